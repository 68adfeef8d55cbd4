/* The kind `ssh`: a directory on another machine, reached by the system's ssh.
 *
 * Acquiring logs in (or finds the connection there) and makes sure of the workspace directory,
 * which is the operator's and stays. The parts that belong to a place, its box and its directory of
 * a run, are made on first need and removed when the lease is released.
 *
 * A place's configuration is {ssh, remoteCwd, vars, plain?}: the environment's configuration of
 * that moment, without secrets, and what the host said. */
#include "base/clock.h"
#include "core/exec/exec_output.h"
#include "core/kinds/realization.h"
#include "core/kinds/ssh/ssh_config.h"
#include "core/kinds/ssh/ssh_env.h"
#include "core/kinds/ssh/ssh_hosts.h"
#include "core/kinds/ssh/ssh_plain.h"
#include "core/places/place.h"
#include "core/workspaces/workspace.h"
#include "secret/transfer.h"

#define CANDIDATES_MAX 8
#define CONNECT_MS     1000
#define TOTAL_MS       2000

/* Members of the configuration that readers of a lease or a probe see. */
static const char *const shown[] = { "host", "port", "username", "remoteWorkspacePath" };

/* Probing */

static void describe_failure(const json_t *config, const struct ssh_report *report,
                             struct probe_result *ret)
{
        buf_appendf(&ret->summary, "SSH probe failed for %s@%s.",
                    json_get_string(config, "username"), json_get_string(config, "host"));
        json_object_set_new(
                ret->details, "error",
                json_string(report->error.len ? buf_str(&report->error) : "SSH probe failed."));
        json_object_set_new(ret->details, "code",
                            report->code >= 0 ? json_integer(report->code) : json_null());
        buf_puts(&ret->hint, buf_str(&report->hint));
}

/* A configuration with a key in it is unsaved. */
static int find_probed(struct op *op, struct runtime *rt, const struct probe_target *probed,
                       json_t *config, struct ssh_target *ret, json_t **ret_resolved,
                       struct err *err)
{
        if (!probed->environment_id && json_get_string(config, "privateKey")) {
                *ret_resolved = json_incref(config);
                ssh_config_read(config, ret);
                return 0;
        }
        return ssh_config_resolve(op, rt, probed->company_id, probed->environment_id, config, NULL,
                                  ret, ret_resolved, err);
}

/* Log in, see that the workspace can be used, and say in one line what is wrong when it cannot.
 * environment_id is NULL for an unsaved configuration, which may have a key in it. Any behaviour of
 * the host is a result, not an error. */
static int ssh_probe(struct op *op, struct runtime *rt, const struct probe_target *probed,
                     json_t *config, struct probe_result *ret, struct err *err)
{
        CLEAN(cleanup_free) char *record = ssh_hosts_record(rt->ssh, probed->environment_id);
        CLEAN(err_done) struct err why = { 0 };
        struct ssh_call call = SSH_CALL_INIT;
        struct ssh_target target;
        json_t *resolved = NULL;
        int r = ssh_config_may(op, rt, config, err);

        if (r >= 0)
                r = find_probed(op, rt, probed, config, &target, &resolved, err);
        if (r < 0)
                return r;
        r = ssh_call_ready(op, carriers_setup(rt->carriers), &target, record, &call, &why);
        json_decref(resolved);
        for (size_t i = 0; i < ARRAY_LEN(shown); i++)
                json_object_set(ret->details, shown[i], json_object_get(config, shown[i]));
        ret->ok = r >= 0;
        if (r < 0) {
                describe_failure(config, &call.report, ret);
        } else {
                buf_appendf(&ret->summary,
                            "Connected to %s@%s and verified the remote workspace path.",
                            json_get_string(config, "username"), json_get_string(config, "host"));
                json_object_set_new(ret->details, "remoteCwd", json_string(call.hello.cwd));
        }
        ssh_call_done(op, &call);
        if (r == ERR_CANCELLED) {
                err_move(err, &why);
                return r;
        }
        return 0;
}

/* Opening */

static bool api_answers(struct op *op, const char *base)
{
        struct transfer_answer answer = { 0 };
        size_t len = strlen(base);
        struct transfer t = {
                .method = "GET",
                .connect_ms = CONNECT_MS,
                .total_ms = TOTAL_MS,
                .direct = true,
        };

        while (len > 0 && base[len - 1] == '/')
                len--;
        t.url = arena_printf(op->arena, "%.*s/api/health", (int)len, base);
        if (transfer_run(op, &t, &answer, NULL) < 0)
                return false;
        bool good = answer.status == 200;
        transfer_answer_done(&answer);
        return good;
}

/* A note for readers of leases: the first address of PAPERCLIP_RUNTIME_API_CANDIDATES_JSON under
 * which the API answers. Nothing of ours uses it; callbacks go through the box. */
static const char *find_api_url(struct op *op, const struct runtime *rt)
{
        json_t *list = json_from_text(op->arena, rt->settings.api_candidates), *item;
        size_t i;

        json_array_foreach(list, i, item)
        {
                const char *base = json_string_value(item);

                if (i >= CANDIDATES_MAX)
                        break;
                if (base && api_answers(op, base))
                        return base;
        }
        return NULL;
}

static int ssh_plan(struct op *op, struct runtime *rt, const struct environment *env,
                    const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        struct ssh_target target;
        json_t *config = NULL, *own;
        int r = kind_config(op, &kind_ssh, env, &config, err);

        if (r < 0)
                return r;
        ssh_config_read(config, &target);
        r = ssh_target_check(&target, err);
        if (r < 0)
                return r;
        own = json_pack("{s:O}", "ssh", config);
        exec_output_keep(config, own);
        *ret = (struct lease_plan){
                .provider = "ssh",
                .policy = POLICY_EPHEMERAL,
                .config = json_to_arena(op->arena, own),
                .has_world = true,
        };
        json_decref(own);
        return 0;
}

static json_t *describe_host(const json_t *config, const struct ssh_hello *hello)
{
        json_t *vars = json_object();
        json_t *own =
                json_pack("{s:O, s:s, s:o}", "ssh", config, "remoteCwd", hello->cwd, "vars", vars);

        for (size_t i = 0; i < HELLO_N_VARS; i++)
                if (hello->vars[i])
                        json_object_set_new(vars, hello_vars[i], json_string(hello->vars[i]));
        if (hello->why)
                json_object_set_new(own, "plain", json_string(hello->why));
        return own;
}

static json_t *lease_metadata(const json_t *config, const struct ssh_hello *hello)
{
        json_t *metadata = json_object();

        for (size_t i = 0; i < ARRAY_LEN(shown); i++)
                json_object_set(metadata, shown[i], json_object_get(config, shown[i]));
        json_object_set_new(metadata, "remoteCwd", json_string(hello->cwd));
        if (json_get_string(config, "workspaceMode"))
                json_object_set(metadata, "workspaceMode",
                                json_object_get(config, "workspaceMode"));
        if (hello->why) {
                json_object_set_new(metadata, "execution", json_string("plain"));
                json_object_set_new(metadata, "executionReason", json_string(hello->why));
        }
        return metadata;
}

static int ssh_open(struct op *op, struct runtime *rt, const struct place *place,
                    const struct lease_request *req, struct provider_lease *ret, struct err *err)
{
        struct secret_context context = { .issue_id = req->issue_id, .run_id = req->run_id };
        struct ssh_hello hello = { 0 };
        json_t *document = NULL, *config, *own;
        int r = kind_place_config(op, place, &document, err);

        if (r < 0)
                return r;
        config = json_get_object(document, "ssh");
        r = carrier_reach(op, rt, place, &context, &hello, err);
        if (r < 0) {
                ssh_hello_done(&hello);
                /* Nothing of the place exists yet, whatever the host did. */
                return r == ERR_TIMEOUT || r == ERR_CANCELLED ? ERR_UNREACHABLE : r;
        }
        const char *api_url = find_api_url(op, rt);
        own = describe_host(config, &hello);
        exec_output_keep(config, own);
        *ret = (struct provider_lease){
                .id = arena_printf(
                        op->arena, "ssh://%s@%s:%d%s", json_get_string(config, "username"),
                        json_get_string(config, "host"),
                        (int)json_integer_value(json_object_get(config, "port")), hello.cwd),
                .metadata = lease_metadata(config, &hello),
                .config = json_to_arena(op->arena, own),
        };
        (void)json_keep(op->arena, ret->metadata);
        if (api_url)
                json_object_set_new(ret->metadata, "paperclipApiUrl", json_string(api_url));
        json_decref(own);
        ssh_hello_done(&hello);
        return 0;
}

static bool is_plain(const struct place *place)
{
        CLEAN(json_decrefp) json_t *document = NULL;

        (void)json_parse(place->config, strlen(place->config), &document, NULL);
        return json_get_string(document, "plain") != NULL;
}

/* Listing */

#define LIST_MS 10000 /* for all hosts together */

/* A host that does not answer must not hide what the others have: they are asked all the same, and
 * the first error is reported. */
static int ssh_list(struct op *op, struct runtime *rt, const struct kind *kind, kind_found_fn fn,
                    void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct environment *list;
        struct op limited = *op;
        int n, r = 0;

        if (!rt->ssh)
                return 0;
        n = store_read_begin(op, rt->store, &db, err);
        if (n >= 0)
                n = environments_of_driver(db, "ssh", "active", op->arena, &list, err);
        store_read_end(&db);
        limited.deadline_ms = MIN(op->deadline_ms, clock_mono_ms() + LIST_MS);
        for (int i = 0; i < n && op_check(op, NULL) >= 0; i++) {
                CLEAN(err_done) struct err one = { 0 };
                CLEAN(json_decrefp) json_t *own = NULL;
                struct place host = { .driver = "ssh", /* as a place there would be */
                                      .company_id = list[i].company_id,
                                      .environment_id = list[i].id };
                json_t *config;
                int code;

                if (kind_config(op, &kind_ssh, &list[i], &config, NULL) < 0)
                        continue; /* nothing could have been made there */
                own = json_pack("{s:O}", "ssh", config);
                host.config = json_to_arena(op->arena, own);
                code = carrier_list(&limited, rt, &host, "supervisor of commands on an ssh host",
                                    fn, ctx, &one);
                if (code < 0 && r >= 0) {
                        r = code;
                        err_move(err, &one);
                }
        }
        return n < 0 ? n : r;
}

/* Opening makes nothing that belongs to the place, so one that was never opened has nothing on the
 * host, and closing it needs no host that answers. */
static bool was_opened(const struct place *place)
{
        return place->provider_lease_id != NULL;
}

static int ssh_close(struct op *op, struct runtime *rt, const struct place *place, struct err *err)
{
        int r;

        if (!was_opened(place)) {
                r = 0;
        } else if (is_plain(place)) {
                r = exec_remote_end_place(op, rt, place->id, err);
                if (r >= 0)
                        r = ssh_plain_end_place(op, rt, place, err);
        } else {
                r = exec_close_place(op, rt, place, err);
        }
        if (r >= 0)
                carrier_leave(rt, place);
        return r;
}

static const struct box_route *ssh_route_of(const struct place *place)
{
        return is_plain(place) ? NULL : &carrier_route;
}

static void ssh_describe(const struct place *place, const struct provider_lease *opened,
                         bool resumed, json_t *metadata)
{
        json_object_update(metadata, opened->metadata);
}

/* Using */

static int ssh_realize(struct op *op, struct runtime *rt, const struct environment *env,
                       const struct lease *lease, json_t *workspace, json_t **ret, struct err *err)
{
        *ret = realization_elsewhere(op, &kind_ssh, env, lease, workspace);
        return 0;
}

static const char *const *login_variables(struct op *op, const json_t *document, bool terminal)
{
        const json_t *vars = json_get_object(document, "vars");
        const char **list = arena_alloc(op->arena, (json_object_size(vars) + 2) * sizeof(*list));
        const char *name;
        json_t *value;
        size_t n = 0;

        json_object_foreach((json_t *)vars, name, value) list[n++] =
                arena_printf(op->arena, "%s=%s", name, json_string_value(value));
        if (terminal)
                list[n++] = "TERM=xterm-256color";
        return list;
}

/* A blank directory is as good as none (remote-execution 5.2). */
static const char *choose_cwd(struct op *op, const struct exec_request *req, const json_t *document)
{
        const char *cwd = arena_strtrim(op->arena, req->cwd);

        return cwd ? cwd : arena_strdup(op->arena, json_get_string(document, "remoteCwd"));
}

/* Without a box there is neither a terminal nor input that comes later. */
static int run_plain(struct op *op, const struct place *place, struct exec_request *req,
                     struct err *err)
{
        struct exec_remote *remote = arena_new(op->arena, struct exec_remote);
        struct place *kept = arena_new(op->arena, struct place);

        if (req->terminal || req->open_stdin)
                return err_set(err, ERR_UNPROCESSABLE,
                               "The host cannot run a box, so commands there have no terminal and "
                               "get their input at once.");
        *kept = *place;
        *remote = (struct exec_remote){ .runner = &ssh_plain_runner, .who = "ssh", .call = kept };
        req->remote = remote;
        return 0;
}

static int ssh_admit_exec(struct op *op, struct runtime *rt, const struct lease_record *record,
                          const struct exec_request *req, struct err *err)
{
        return ssh_env_check(req->own_env, err);
}

static int ssh_prepare_exec(struct op *op, struct runtime *rt, const struct lease_record *record,
                            struct exec_request *ret, struct err *err)
{
        struct place place;
        json_t *document = NULL, *variables;
        int r = place_load(op, rt, record->lease.place_id, &place, err);

        if (r >= 0)
                r = kind_place_config(op, &place, &document, err);
        if (r < 0)
                return r;
        variables = exec_variables_sanitize(ret->own_env);
        r = exec_request_set_env(op, variables, ret, err);
        json_decref(variables);
        ret->cwd = choose_cwd(op, ret, document);
        if (r >= 0 && json_get_string(document, "plain")) {
                r = run_plain(op, &place, ret, err);
        } else {
                ret->login = login_variables(op, document, ret->terminal);
                ret->wrap = ssh_env_wrap;
        }
        if (r >= 0 && ret->cwd && *ret->cwd != '/')
                r = err_set(err, ERR_UNPROCESSABLE,
                            "Working directory must be an absolute POSIX path on the remote "
                            "target: \"%s\"",
                            ret->cwd);
        return r;
}

/* What readers are told */

static const char *or_empty(const char *s)
{
        return s ? s : "";
}

static const char *ssh_address(struct arena *arena, const json_t *object)
{
        return arena_printf(arena, "%s@%s:%lld", or_empty(json_get_string(object, "username")),
                            or_empty(json_get_string(object, "host")),
                            (long long)json_integer_value(json_object_get(object, "port")));
}

static json_t *ssh_summary(const json_t *metadata, const char *local, const char *remote,
                           const char *cwd)
{
        const char *user = json_get_string(metadata, "username");
        const char *host = json_get_string(metadata, "host");
        json_int_t port = json_integer_value(json_object_get(metadata, "port"));

        return json_sprintf("SSH workspace realized at %s@%s:%d:%s.", user ? user : "user",
                            host ? host : "host", port ? (int)port : 22, remote ? remote : local);
}

static void ssh_forget_environment(struct runtime *rt, const char *environment_id)
{
        if (rt->ssh)
                ssh_hosts_forget(rt->ssh, environment_id);
}

static const struct kind_secret secrets[] = {
        { "privateKey", "privateKeySecretRef", "private-key" },
        { 0 },
};

static const char *const identity[] = { "host", "port", "username", NULL };

static const struct workspace_way *const synced[] = { &workspace_sync, &workspace_archive, NULL };

static const struct kind_realization ssh_realization = {
        .strategy = "ssh_git_import_export",
        .prepare = "The workspace is sent to the host before the command starts.",
        .sync_back = "Changes are brought back after the command ends.",
        .summary = ssh_summary,
};

const struct kind kind_ssh = {
        .driver = "ssh",
        .label = "SSH",
        .isolation = "another machine, not isolated",
        .is_elsewhere = true,
        .has_own_files = true,
        .takes_runs = true,
        .makes_world_lazily = true,
        .forget_environment = ssh_forget_environment,
        .normalize = ssh_config_normalize,
        .secrets = secrets,
        .may_save = ssh_config_may,
        .probe = ssh_probe,
        .plan = ssh_plan,
        .open = ssh_open,
        .close = ssh_close,
        .list = ssh_list,
        .describe = ssh_describe,
        .identity = identity,
        .address = ssh_address,
        .realize = ssh_realize,
        .admit_exec = ssh_admit_exec,
        .prepare_exec = ssh_prepare_exec,
        .route = ssh_route_of,
        .carrier = &ssh_carrier,
        .ways = synced,
        .ways_copy = synced,
        .has_run_dirs = true,
        .realization = &ssh_realization,
};
