/* Decides what the command of a run is: built with the adapter, recorded, given its variables, and
 * started. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/adapters/adapter_internal.h"
#include "core/exec/exec_request.h"
#include "core/runs/run_internal.h"
#include "store/agent_state.h"
#include "store/run_commands.h"

static const char *const callback_names[] = { "PAPERCLIP_API_URL", "PAPERCLIP_API_KEY",
                                              "PAPERCLIP_API_BRIDGE_MODE" };

const char *run_key(struct run_task *t, bool fresh)
{
        return arena_printf(t->op->arena, "run:%s%s", t->run.id, fresh ? ":fresh" : "");
}

/* -- The session ------------------------------------------------------------------------------- */

/* The session that the agent saved for the run's task; NULL: none, or a fresh one is wanted. */
static int find_session(struct run_task *t, bool fresh, const json_t **ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct agent_task_session task;
        struct agent_runtime_state state;
        const char *type = NULL, *text = NULL;
        const json_t *params;
        int r;

        *ret = NULL;
        if (fresh || json_is_true(json_object_get(t->context, "forceFreshSession")))
                return 0;
        r = store_read_begin(t->op, t->rt->store, &db, err);
        if (r < 0)
                return r;
        if (t->run.task_key) {
                r = agent_task_session_get(db, t->agent.id, t->run.task_key, t->op->arena, &task,
                                           err);
                if (r >= 0) {
                        type = task.adapter_type;
                        text = task.session_params_json;
                }
        } else {
                r = agent_runtime_state_get(db, t->agent.id, t->op->arena, &state, err);
                if (r >= 0) {
                        type = state.adapter_type;
                        text = state.session_params_json;
                }
        }
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0 || !text || !streq(type, t->agent.adapter_type))
                return r;
        params = run_parse(t->op->arena, text);
        *ret = json_object_size(params) ? params : NULL;
        return 0;
}

/* -- The target -------------------------------------------------------------------------------- */

/* A provider need not say where the work is done. */
static const char *target_cwd(const struct run_task *t)
{
        return t->cwd ? t->cwd : "/tmp";
}

/* A run without a place is a request that is made from this machine: it has no kind. */
static const struct kind *target_kind(const struct run_task *t)
{
        return t->record.env.driver ? kind_of_environment(t->rt, &t->record.env) : NULL;
}

/* Whether the host is worked on in place: other runs may be there at the same time. */
static bool is_shared(const struct run_task *t)
{
        const struct kind *kind = target_kind(t);

        return kind && kind->has_run_dirs && !strstr(target_cwd(t), "/.paperclip-runtime/runs/");
}

/* remote-execution 5.2. */
static json_t *target_identity(struct run_task *t)
{
        const struct environment *env = &t->record.env;
        const struct kind *kind = target_kind(t);
        const json_t *metadata = run_parse(t->op->arena, t->record.lease.metadata);
        json_t *id;

        if (!kind || kind->runs_on_host)
                return NULL;
        id = json_pack("{s:s}", "transport", kind->driver);
        for (const char *const *member = kind->identity; member && *member; member++)
                json_object_set(id, *member, json_object_get(metadata, *member));
        if (!kind->identity) {
                json_object_set_new(id, "providerKey",
                                    json_string_or_null(t->record.lease.provider));
                json_object_set_new(id, "environmentId", json_string(env->id));
                json_object_set_new(id, "leaseId", json_string(t->record.lease.id));
        }
        json_object_set_new(id, "remoteCwd", json_string(target_cwd(t)));
        return run_keep(t->op->arena, id);
}

void run_input(struct run_task *t, const json_t *session)
{
        const struct kind *kind = target_kind(t);
        const json_t *config = run_parse(t->op->arena, t->record.env.config), *allowed = NULL;
        bool is_local = kind && kind->runs_on_host;
        json_int_t limit = json_integer_value(json_object_get(config, "timeoutMs"));
        bool is_offline = kind && kind->is_offline && kind->is_offline(config, &allowed);

        t->input = (struct adapter_input){
                .type = t->agent.adapter_type,
                .config = t->config,
                .agent = &t->agent,
                .company_name = t->company_name,
                .run_id = t->run.id,
                .run_at = t->run.created_at,
                .context = t->context,
                .session = session,
                .assets = json_get_object(t->context, RUN_ASSETS_MEMBER),
                .rt = t->rt,
                .target = {
                        .kind = kind,
                        .cwd = target_cwd(t),
                        .local_cwd = t->local_cwd,
                        .apart = is_shared(t) ? t->agent.id : NULL,
                        .identity = target_identity(t),
                        .timeout_ms = is_local ? 0 : MAX(limit, 0),
                        .is_root = is_local && geteuid() == 0,
                        .is_offline = is_offline,
                        .allowed = allowed,
                },
        };
}

/* The variables of the run's project come under the agent's own. A project that is gone has none.
 */
static int take_project_env(struct run_task *t, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        json_t *own = json_get_object(t->config, "env"), *env;
        struct project project;
        int r = store_read_begin(t->op, t->rt->store, &db, err);

        if (r >= 0)
                r = run_find_project(db, t, &project, err);
        if (r <= 0)
                return r;
        t->project_id = project.id;
        env = json_deep_copy(run_parse(t->op->arena, project.env));
        json_object_update(env, own);
        json_object_set_new(t->config, "env", env);
        return 0;
}

int run_build(struct run_task *t, bool fresh, struct err *err)
{
        const json_t *session;
        int r = find_session(t, fresh, &session, err);

        if (r >= 0)
                r = take_project_env(t, err);
        if (r >= 0)
                r = run_check_place(t, &t->record.env, err);
        if (r < 0)
                return r;
        run_input(t, session);
        t->input.has_session_files = session && run_session_is_kept(t, session);
        return adapter_build(t->op, t->rt, &t->input, fresh, &t->command, err);
}

int run_rebuild(struct run_task *t, const char *key, struct err *err)
{
        bool fresh = key && streq(key, run_key(t, true));
        int r = key ? run_kept_get(t, key, err) : 0;

        run_find_cwd(t);
        if (r != 0) /* nothing is kept of a command that an earlier version started */
                return MIN(r, 0);
        r = run_build(t, fresh || !t->run.session_id_before, err);
        /* Another run of the agent may have saved another session since. */
        if (r >= 0 && !fresh)
                t->command.session_id = t->run.session_id_before;
        return r;
}

/* -- The record of a command ------------------------------------------------------------------- */

/* Kept from the command's beginning to its end: what is needed to read its output, and its input.
 * The agent may change while the command works, even into another kind; the started command stays
 * as it was. */
int run_kept_put(struct db *db, struct run_task *t, const char *key, struct err *err)
{
        const struct adapter_command *c = &t->command;
        const struct adapter_billing *b = &c->billing;
        CLEAN(json_decrefp)
        json_t *json = json_pack(
                "{s:s, s:O*, s:s*, s:s*, s:s*, s:I, s:s*, s:I, s:{s:s*, s:s*, "
                "s:s*, s:s*}, s:O*, s:s*, s:O*}",
                "type", t->input.type, "identity", t->input.target.identity, "cwd", c->cwd,
                "sessionId", c->session_id, "newSessionId", c->new_session_id, "timeoutMs",
                (json_int_t)c->timeout_ms, "timeoutSource", c->timeout_source, "graceMs",
                (json_int_t)c->grace_ms, "billing", "provider", b->provider, "biller", b->biller,
                "type", b->type, "model", b->model, "sessionTotals", c->session_totals,
                "sessionDir", c->session_dir, "sessionFiles", c->session_files);
        struct run_command row = {
                .run_id = t->run.id,
                .execution_key = key,
                .adapter = json_to_arena(t->op->arena, json),
                .input = t->command.stdin_text,
                .created_at = clock_now_us(),
        };

        return run_commands_put(db, &row, err);
}

static void restore_command(struct run_task *t, const struct run_command *row)
{
        const json_t *json = run_parse(t->op->arena, row->adapter);
        const json_t *billing = json_get_object(json, "billing");

        t->input = (struct adapter_input){
                .type = json_get_string(json, "type"),
                .agent = &t->agent,
                .company_name = t->company_name,
                .run_id = t->run.id,
                .context = t->context,
                .assets = json_get_object(t->context, RUN_ASSETS_MEMBER),
                .target = { .identity = json_get_object(json, "identity") },
        };
        t->command = (struct adapter_command){
                .cwd = json_get_string(json, "cwd"),
                .stdin_text = row->input,
                .stdin_len = row->input ? strlen(row->input) : 0,
                .timeout_ms = json_integer_value(json_object_get(json, "timeoutMs")),
                .timeout_source = json_get_string(json, "timeoutSource"),
                .grace_ms = json_integer_value(json_object_get(json, "graceMs")),
                .session_id = json_get_string(json, "sessionId"),
                .session_totals = json_get_object(json, "sessionTotals"),
                .session_dir = json_get_string(json, "sessionDir"),
                .session_files = json_object_get(json, "sessionFiles"),
                .new_session_id = json_get_string(json, "newSessionId"),
                .billing = { .provider = json_get_string(billing, "provider"),
                             .biller = json_get_string(billing, "biller"),
                             .type = json_get_string(billing, "type"),
                             .model = json_get_string(billing, "model") },
        };
        t->end_asked_at = row->end_asked_at;
}

int run_kept_get(struct run_task *t, const char *key, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct run_command row;
        int r = store_read_begin(t->op, t->rt->store, &db, err);

        if (r >= 0)
                r = run_commands_get(db, t->run.id, key, t->op->arena, &row, err);
        if (r > 0)
                restore_command(t, &row);
        return r;
}

/* -- Starting ---------------------------------------------------------------------------------- */

/* A variable of the agent's configuration wins over ours: the adapter leaves it out, except for
 * those that it has to set anew. The callback's variables are always the run's own. Only a local
 * agent may bring a key of its own. */
static json_t *run_variables(struct run_task *t, const struct callback_address *callback)
{
        const char *values[] = { callback->url, callback->key, callback->mode };
        bool is_local = kind_runs_on_host(t->rt, t->record.env.driver);
        json_t *env = json_object();

        json_object_update(env, t->command.env);
        for (size_t i = 0; i < ARRAY_LEN(values); i++) {
                bool own_key =
                        i == 1 && is_local &&
                        json_object_get(json_get_object(t->config, "env"), callback_names[i]);

                if (values[i] && *values[i] && !own_key)
                        json_object_set_new(env, callback_names[i], json_string(values[i]));
        }
        return env;
}

static void add_redact(struct arena *arena, const char *value, struct exec_request *req)
{
        size_t n = 0;
        const char **list;

        while (req->redact && req->redact[n])
                n++;
        list = arena_alloc(arena, (n + 2) * sizeof(*list));
        if (n)
                memcpy(list, req->redact, n * sizeof(*list));
        list[n] = value;
        req->redact = list;
}

int run_start(struct run_task *t, const char *key, const char **ret_id, struct err *err)
{
        struct callback_address *callback = arena_new(t->op->arena, struct callback_address);
        const struct adapter_command *c = &t->command;
        struct exec_request req = {
                .command = c->command,
                .args = c->args,
                .cwd = c->cwd,
                .stdin_text = c->stdin_text,
                .stdin_len = c->stdin_len,
                .timeout_ms = MAX(c->timeout_ms, 0),
                .idempotency_key = key,
                .agent_id = t->agent.id,
                .project_id = t->project_id,
                .acp = c->acp,
        };
        const struct kind *kind;
        int r;

        FAULT("run.callback.before");
        r = callback_open(t->op, t->rt, &t->run, &t->record, callback, err);
        FAULT("run.callback.after");
        if (r == ERR_UNPROCESSABLE) { /* no callback is possible from there; the command starts
                                         without one */
                log_warn("a run has no callback channel", LOG_S("run", t->run.id),
                         LOG_S("error", err->msg));
                err_clear(err);
                *callback = (struct callback_address){ 0 };
        } else if (r < 0) {
                return run_fail_transport(t, r, "target", err);
        }
        t->run.callback_port = callback->port;
        req.own_env = run_keep(t->op->arena, run_variables(t, callback));
        r = lease_kind(t->rt, &t->record, &kind, err);
        if (r >= 0)
                r = exec_prepare(t->op, t->rt, kind, &t->record, &req, err);
        if (r < 0)
                return run_fail_transport(t, r, "target", err);
        if (*callback->key)
                add_redact(t->op->arena, callback->key, &req);
        r = exec_start(t->op, t->rt, &t->record, &req, ret_id, err);
        explicit_bzero(callback->key, sizeof(callback->key));
        return r;
}
