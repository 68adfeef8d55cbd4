/* Whether a workspace needs a provision command, its request, and how its failure reads. */
#include "core/kinds/provision.h"

#include <ctype.h>

json_t *realization_request(const struct realization_input *in)
{
        static const char *const overlay[] = { "provisionCommand", "teardownCommand",
                                               "cleanupCommand", "workspaceRuntime" };
        json_t *request = json_object(), *runtime = json_object();
        json_t *source = json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "kind",
                                   json_string_or_null(in->source_kind), "localPath",
                                   json_string_or_null(in->local_path), "projectId",
                                   json_string_or_null(in->project_id), "projectWorkspaceId",
                                   json_string_or_null(in->project_workspace_id), "repoUrl",
                                   json_string_or_null(in->repo_url), "repoRef",
                                   json_string_or_null(in->repo_ref), "strategy",
                                   json_string_or_null(in->strategy), "branchName",
                                   json_string_or_null(in->branch_name), "worktreePath",
                                   json_string_or_null(in->worktree_path));

        for (size_t i = 0; i < ARRAY_LEN(overlay); i++) {
                json_t *v = json_object_get(in->config, overlay[i]);

                json_object_set_new(runtime, overlay[i], v ? json_incref(v) : json_null());
        }
        json_object_set_new(request, "version", json_integer(1));
        json_object_set_new(request, "adapterType", json_string_or_null(in->adapter_type));
        json_object_set_new(request, "companyId", json_string_or_null(in->company_id));
        json_object_set_new(request, "environmentId", json_string_or_null(in->environment_id));
        json_object_set_new(request, "executionWorkspaceId",
                            json_string_or_null(in->execution_workspace_id));
        json_object_set_new(request, "issueId", json_string_or_null(in->issue_id));
        json_object_set_new(request, "heartbeatRunId", json_string_or_null(in->run_id));
        json_object_set_new(request, "requestedMode", json_string_or_null(in->mode));
        json_object_set_new(request, "source", source);
        json_object_set_new(request, "runtimeOverlay", runtime);
        return request;
}

const char *provision_script(const json_t *request, bool is_local)
{
        const json_t *overlay = json_get_object(request, "runtimeOverlay");
        const char *script = json_get_string(overlay, "provisionCommand");

        return script && script[strspn(script, " \t\r\n\f\v")] && !is_local ? script : NULL;
}

const char *provision_cwd(struct arena *arena, const char *realized_cwd, const char *remote_cwd,
                          const char *local_cwd)
{
        const char *cwd = arena_strtrim(arena, realized_cwd);

        if (!cwd)
                cwd = arena_strtrim(arena, remote_cwd);
        return cwd ? cwd : local_cwd;
}

/* The first line that is not blank, without white space around it. */
static bool first_line(const char *text, const char **ret, size_t *ret_len)
{
        while (text && *text) {
                const char *end = text + strcspn(text, "\r\n");
                size_t n;

                while (text < end && isspace((unsigned char)*text))
                        text++;
                n = (size_t)(end - text);
                while (n > 0 && isspace((unsigned char)text[n - 1]))
                        n--;
                if (n > 0) {
                        *ret = text;
                        *ret_len = n;
                        return true;
                }
                text = *end ? end + 1 : end;
        }
        return false;
}

char *provision_failure(const char *environment, const char *driver,
                        const struct provision_end *end)
{
        struct buf b = BUF_INIT;
        const char *line;
        size_t n;

        if (!end->timed_out && end->has_code && end->code == 0)
                return NULL;
        buf_appendf(&b, "Failed to provision workspace for environment \"%s\" (%s): ", environment,
                    driver);
        if (end->timed_out) {
                buf_puts(&b, "provision command timed out");
                return buf_take(&b);
        }
        if (end->has_code)
                buf_appendf(&b, "exit code %d", end->code);
        else
                buf_puts(&b, "exit code null");
        if (end->signal)
                buf_appendf(&b, " (signal %s)", end->signal);
        if (first_line(end->err, &line, &n) || first_line(end->out, &line, &n)) {
                buf_puts(&b, ": ");
                buf_append(&b, line, n);
        }
        return buf_take(&b);
}
