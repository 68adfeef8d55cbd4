/* Building the workspace realization record from the caller's request and the lease. */
#include "core/kinds/realization.h"

#include <ctype.h>

/* The member, or null. A new reference. */
static json_t *member(const json_t *object, const char *key)
{
        json_t *v = json_object_get(object, key);

        return v ? json_incref(v) : json_null();
}

static bool non_blank(const json_t *object, const char *key)
{
        const char *s = json_get_string(object, key);

        while (s && isspace((unsigned char)*s))
                s++;
        return s && *s;
}

/* The request that the caller sent along, if it is one we know. */
static const json_t *given_request(const json_t *workspace)
{
        const json_t *metadata = json_get_object(workspace, "metadata");
        const json_t *request = json_get_object(metadata, "workspaceRealizationRequest");

        if (!request)
                request = json_get_object(metadata, "request");
        const json_t *source = json_get_object(request, "source");
        if (!request || json_integer_value(json_object_get(request, "version")) != 1 ||
            !non_blank(source, "localPath") || !non_blank(request, "companyId") ||
            !non_blank(request, "environmentId") || !non_blank(request, "heartbeatRunId") ||
            !non_blank(request, "adapterType"))
                return NULL;
        return request;
}

static json_t *synthesise_request(const struct lease *lease, const json_t *workspace,
                                  const char *cwd)
{
        const char *local = json_get_string(workspace, "localPath");
        const char *remote = json_get_string(workspace, "remotePath");
        const char *path = local ? local : cwd ? cwd : remote ? remote : "/";

        return json_pack(
                "{s:i, s:s, s:s, s:s, s:o, s:o, s:s, s:o, s:{s:s, s:s, s:n, s:n, s:n, s:n, s:s, "
                "s:n, "
                "s:n}, s:{s:n, s:n, s:n, s:n}}",
                "version", 1, "adapterType", "unknown", "companyId", lease->company_id,
                "environmentId", lease->environment_id, "executionWorkspaceId",
                json_string_or_null(lease->execution_workspace_id), "issueId",
                json_string_or_null(lease->issue_id), "heartbeatRunId",
                lease->heartbeat_run_id ? lease->heartbeat_run_id : "unknown", "requestedMode",
                member(workspace, "mode"), "source", "kind", "task_session", "localPath", path,
                "projectId", "projectWorkspaceId", "repoUrl", "repoRef", "strategy",
                "project_primary", "branchName", "worktreePath", "runtimeOverlay",
                "provisionCommand", "teardownCommand", "cleanupCommand", "workspaceRuntime");
}

/* What the provider said of the lease, for drivers that keep it apart. */
static const json_t *provider_metadata(const json_t *metadata)
{
        return json_get_object(metadata, "providerMetadata");
}

static const char *remote_path(const json_t *metadata)
{
        const json_t *provider = provider_metadata(metadata);
        const char *path = json_get_string(provider, "remoteCwd");

        if (!path)
                path = json_get_string(metadata, "remoteCwd");
        return path ? path : json_get_string(provider, "remotePath");
}

json_t *realization_sandbox_id(const json_t *metadata)
{
        json_t *id = json_object_get(metadata, "sandboxId");

        return id ? id : json_object_get(provider_metadata(metadata), "sandboxId");
}

static json_t *remote_of(const json_t *metadata, const char *path)
{
        static const char *const optional[] = { "host", "port", "username" };
        json_t *remote = json_pack("{s:o}", "path", json_string_or_null(path));

        for (size_t i = 0; i < ARRAY_LEN(optional); i++) {
                json_t *v = json_object_get(metadata, optional[i]);

                if (v)
                        json_object_set(remote, optional[i], v);
        }
        if (realization_sandbox_id(metadata))
                json_object_set(remote, "sandboxId", realization_sandbox_id(metadata));
        return remote;
}

/* A machine is its own provider. */
static json_t *build_record(const struct kind *kind, const struct environment *env,
                            const struct lease *lease, const json_t *request,
                            const json_t *metadata, const char *cwd)
{
        const char *provider = lease->provider       ? lease->provider
                               : kind->has_own_files ? kind->driver
                                                     : NULL;
        const json_t *source = json_get_object(request, "source");
        const json_t *overlay = json_get_object(request, "runtimeOverlay");
        const char *local = json_get_string(source, "localPath");
        const char *remote = remote_path(metadata);
        const json_t *said = provider_metadata(metadata);
        json_t *record = json_pack(
                "{s:i, s:s, s:o, s:s, s:s, s:o}", "version", 1, "transport", kind->driver,
                "provider", json_string_or_null(provider), "environmentId", env->id, "leaseId",
                lease->id, "providerLeaseId", json_string_or_null(lease->provider_lease_id));

        json_object_set_new(
                record, "local",
                json_pack("{s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "path", local, "source",
                          member(source, "kind"), "strategy", member(source, "strategy"),
                          "projectId", member(source, "projectId"), "projectWorkspaceId",
                          member(source, "projectWorkspaceId"), "repoUrl",
                          member(source, "repoUrl"), "repoRef", member(source, "repoRef"),
                          "branchName", member(source, "branchName"), "worktreePath",
                          member(source, "worktreePath")));
        json_object_set_new(record, "remote", remote_of(metadata, remote));
        json_object_set_new(record, "sync",
                            json_pack("{s:s, s:s, s:s?}", "strategy", kind->realization->strategy,
                                      "prepare", kind->realization->prepare, "syncBack",
                                      kind->realization->sync_back));
        json_object_set_new(record, "bootstrap",
                            json_pack("{s:o}", "command", member(overlay, "provisionCommand")));
        json_object_set_new(
                record, "rebuild",
                json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:o, s:{s:o, s:o, s:s, s:o, s:o}}",
                          "executionWorkspaceId", member(request, "executionWorkspaceId"), "mode",
                          member(request, "requestedMode"), "repoUrl", member(source, "repoUrl"),
                          "repoRef", member(source, "repoRef"), "localPath", local, "remotePath",
                          json_string_or_null(remote), "providerLeaseId",
                          json_string_or_null(lease->provider_lease_id), "metadata", "source",
                          source ? json_incref((json_t *)source) : json_object(), "runtimeOverlay",
                          overlay ? json_incref((json_t *)overlay) : json_object(),
                          "environmentDriver", env->driver, "provider",
                          json_string_or_null(provider), "providerMetadata",
                          said ? json_incref((json_t *)said) : json_object()));
        json_object_set_new(record, "summary",
                            kind->realization->summary(metadata, local, remote, cwd));
        return record;
}

json_t *realization_record(const struct kind *kind, const struct environment *env,
                           const struct lease *lease, const json_t *workspace, const char *cwd)
{
        const json_t *given = given_request(workspace);
        json_t *request =
                given ? json_incref((json_t *)given) : synthesise_request(lease, workspace, cwd);
        json_t *metadata = NULL, *record;

        if (!lease->metadata ||
            json_parse(lease->metadata, strlen(lease->metadata), &metadata, NULL) < 0)
                metadata = json_object();
        record = build_record(kind, env, lease, request, metadata, cwd);
        json_decref(metadata);
        json_decref(request);
        return record;
}

json_t *realization_answer(struct op *op, const char *cwd, json_t *take_record)
{
        return json_keep(op->arena, json_pack("{s:s, s:{s:o}}", "cwd", cwd, "metadata",
                                              "workspaceRealization", take_record));
}

json_t *realization_elsewhere(struct op *op, const struct kind *kind, const struct environment *env,
                              const struct lease *lease, const json_t *workspace)
{
        const char *local = json_get_string(workspace, "localPath");
        const char *remote = json_get_string(workspace, "remotePath");
        const json_t *metadata = json_from_text(op->arena, lease->metadata);

        const char *cwd = arena_strtrim(op->arena, json_get_string(metadata, "remoteCwd"));
        if (!cwd)
                cwd = remote ? remote : local;
        json_t *record = realization_record(kind, env, lease, workspace, cwd);
        const char *path = json_get_string(json_get_object(record, "remote"), "path");
        if (!path)
                path = json_get_string(json_get_object(record, "local"), "path");
        return realization_answer(op, path ? path : "/", record);
}
