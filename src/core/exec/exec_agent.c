/* Which variables of an agent a command gets, and with which values. */
#include "core/exec/exec_agent.h"

#include "core/access/run_policy.h"
#include "core/exec/exec_request.h"
#include "core/secrets/agent_env.h"
#include "store/projects.h"

int exec_agent_find(struct op *op, struct runtime *rt, const struct lease_record *record,
                    struct exec_request *req, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct project project;
        struct agent agent;

        if (!req->agent_id)
                return 0;
        int r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = agents_get(db, req->agent_id, op->arena, &agent, err);
        if (r < 0)
                return r;
        if (!streq(agent.company_id, record->lease.company_id))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Agent must belong to the company of the lease");
        r = run_agent_check(&agent, err);
        if (r < 0)
                return r;
        req->agent_config = agent.adapter_config;
        if (!req->project_id)
                return 0;
        r = projects_get(db, req->project_id, op->arena, &project, err);
        if (r >= 0 && streq(project.company_id, agent.company_id))
                req->project_env = project.env;
        if (r != ERR_NOT_FOUND) /* it was deleted meanwhile */
                return r;
        err_clear(err);
        return 0;
}

/* Resolving */

/* Whose variables they are, in the order in which they win. */
enum { OF_AGENT, OF_PROJECT, N_OWNERS };

static void drop_names(json_t *env, const json_t *names)
{
        const char *name;
        json_t *value;

        json_object_foreach((json_t *)names, name, value) json_object_del(env, name);
}

/* Those that nothing wins over; new references. */
static int read_variables(const struct exec_request *req, json_t *ret[N_OWNERS], struct err *err)
{
        json_t *config = NULL, *env;
        int r = json_parse(req->agent_config, strlen(req->agent_config), &config, err);

        if (r < 0)
                return r;
        env = json_get_object(config, "env");
        ret[OF_AGENT] = env ? json_incref(env) : json_object();
        json_decref(config);
        if (req->project_env)
                r = json_parse(req->project_env, strlen(req->project_env), &ret[OF_PROJECT], err);
        drop_names(ret[OF_PROJECT], req->own_env);
        drop_names(ret[OF_PROJECT], ret[OF_AGENT]);
        drop_names(ret[OF_AGENT], req->own_env);
        return MIN(r, 0);
}

static struct secret_use describe_use(const struct op *op, const struct lease_record *record,
                                      const struct exec_request *req, int owner)
{
        return (struct secret_use){
                .consumer_type = owner == OF_PROJECT ? "project" : "agent",
                .consumer_id = owner == OF_PROJECT ? req->project_id : req->agent_id,
                .config_path = AGENT_ENV_PREFIX,
                /* The caller: the agent's own run, or a board user who runs something for it. */
                .actor_type = op->actor->type == ACTOR_AGENT ? "agent" : "user",
                .actor_id =
                        op->actor->type == ACTOR_AGENT ? op->actor->agent_id : op->actor->user_id,
                .issue_id = record->lease.issue_id,
                .run_id = record->lease.heartbeat_run_id,
        };
}

static int make_text(struct exec_variables *v, const struct secret_env_var *var, struct err *err)
{
        size_t name = strlen(var->name);
        struct secret_value *text = &v->texts[v->n_texts];

        if (memchr(var->value.data, '\0', var->value.len))
                return err_set(err, ERR_UNPROCESSABLE,
                               "variable %s: a value with a NUL byte cannot be a variable",
                               var->name);
        int r = secret_value_room(text, name + 1 + var->value.len, err);
        if (r < 0)
                return r;
        memcpy(text->data, var->name, name);
        text->data[name] = '=';
        memcpy(text->data + name + 1, var->value.data, var->value.len);
        v->n_texts++;
        return 0;
}

static size_t list_len(const char *const *list)
{
        size_t n = 0;

        while (list && list[n])
                n++;
        return n;
}

static bool is_set(const struct exec_variables *v, const char *variable)
{
        size_t name = strcspn(variable, "=") + 1;

        for (size_t i = 0; i < v->n_texts; i++)
                if (strncmp(v->texts[i].data, variable, name) == 0)
                        return true;
        return false;
}

static void add_env(struct exec_variables *v, const char *const *base)
{
        size_t n = 0;

        v->env = xcalloc(list_len(base) + v->n_texts + 1, sizeof(*v->env));
        for (; base && *base; base++)
                if (!is_set(v, *base))
                        v->env[n++] = *base;
        for (size_t i = 0; i < v->n_texts; i++)
                v->env[n++] = v->texts[i].data;
}

static void add_redact(struct exec_variables *v, const struct secret_env *resolved,
                       const char *const *base)
{
        size_t n = 0, at = 0;

        v->redact = xcalloc(list_len(base) + v->n_texts + 1, sizeof(*v->redact));
        for (; base && *base; base++)
                v->redact[n++] = *base;
        for (int o = 0; o < N_OWNERS; o++)
                for (size_t i = 0; i < resolved[o].n_vars; i++, at++)
                        if (resolved[o].vars[i].is_secret && resolved[o].vars[i].value.len > 0)
                                v->redact[n++] =
                                        v->texts[at].data + strlen(resolved[o].vars[i].name) + 1;
}

static int build(const struct secret_env *resolved, const struct exec_request *req,
                 struct exec_variables *v, struct err *err)
{
        struct exec_request full = *req;
        int r = 0;

        v->texts = xcalloc(resolved[OF_AGENT].n_vars + resolved[OF_PROJECT].n_vars + 1,
                           sizeof(*v->texts));
        for (int o = 0; o < N_OWNERS; o++)
                for (size_t i = 0; r >= 0 && i < resolved[o].n_vars; i++)
                        r = make_text(v, &resolved[o].vars[i], err);
        if (r < 0)
                return r;
        add_env(v, req->env);
        add_redact(v, resolved, req->redact);
        full.env = v->env;
        return exec_request_check_size(&full, err);
}

int exec_agent_resolve(struct op *op, struct runtime *rt, const struct lease_record *record,
                       const struct exec_request *req, struct exec_variables *ret, struct err *err)
{
        const struct kind *kind = kind_of_environment(rt, &record->env);
        struct secret_env resolved[N_OWNERS] = { 0 };
        json_t *env[N_OWNERS] = { 0 };
        int r = read_variables(req, env, err);

        for (int o = 0; r >= 0 && o < N_OWNERS; o++) {
                struct secret_use use = describe_use(op, record, req, o);

                if (kind && kind->is_elsewhere) {
                        json_t *kept = exec_variables_sanitize(env[o]);

                        json_decref(env[o]);
                        env[o] = kept;
                }
                r = secret_resolve_env(op, rt, record->lease.company_id, env[o], &use, &resolved[o],
                                       err);
        }
        if (r >= 0)
                r = build(resolved, req, ret, err);
        for (int o = 0; o < N_OWNERS; o++) {
                secret_env_done(&resolved[o]);
                json_decref(env[o]);
        }
        return r;
}

void exec_variables_done(struct exec_variables *v)
{
        for (size_t i = 0; i < v->n_texts; i++)
                secret_value_done(&v->texts[i]);
        free(v->texts);
        free(v->env);
        free(v->redact);
        *v = (struct exec_variables){ 0 };
}
