/* Decides whether references to an environment may move to another one, and moves them. */
#include "core/environments/env_move.h"

#include "base/clock.h"
#include "core/access/agent_fields.h"
#include "core/access/audit.h"
#include "core/environments/env_select.h"
#include "store/agents.h"

/* The only list of objects that can refer to an environment. */
static const struct {
        size_t at; /* of the count */
        const char *reason, *one, *several, *member;
} kinds[] = {
#define COUNT_AT(name) offsetof(struct environment_references, name)
        { COUNT_AT(companies), "company_default", "company as its default", NULL,
          "companyDefault" },
        { COUNT_AT(agents), "agent_default", "agent", "agents", "agents" },
        { COUNT_AT(projects), "project_selection", "project", "projects", "projects" },
        { COUNT_AT(issues), "issue_selection", "issue", "issues", "issues" },
        { COUNT_AT(execution_workspaces), "execution_workspace_selection", "execution workspace",
          "execution workspaces", "executionWorkspaces" },
#undef COUNT_AT
};

static int64_t count_of(const struct environment_references *refs, size_t kind)
{
        int64_t n;

        memcpy(&n, (const char *)refs + kinds[kind].at, sizeof(n));
        return n;
}

void env_move_reasons(const struct environment_references *refs, json_t *list)
{
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
                if (count_of(refs, i) > 0)
                        json_array_append_new(list, json_string(kinds[i].reason));
}

int env_move_refuse(const struct environment *env, const struct environment_references *refs,
                    const char *what, struct err *err)
{
        CLEAN(buf_done) struct buf users = BUF_INIT;
        CLEAN(json_decrefp) json_t *details = json_pack("{s:[]}", "deleteBlockedReasons");

        for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
                int64_t n = count_of(refs, i);

                if (n > 0)
                        buf_appendf(&users, "%s%lld %s", users.len ? ", " : "", (long long)n,
                                    n > 1 ? kinds[i].several : kinds[i].one);
        }
        int r = err_set(
                err, ERR_CONFLICT,
                "Environment \"%s\" cannot be %s: it is used by %s. Choose another environment "
                "for each, or move them all to one: moveTo=ENVIRONMENT_ID (berth env: --move-to "
                "ENV).",
                env->name, what, buf_str(&users));
        env_move_reasons(refs, json_object_get(details, "deleteBlockedReasons"));
        err_details(err, json_to_text(details));
        return r;
}

struct move {
        struct db *db;
        struct runtime *rt;
        struct op *op;
        const struct environment *env;
        const char *to_id;
        struct err *err;
};

/* Each adapter has to work in the new environment. */
static int check_agent(void *ctx, const struct agent *agent)
{
        struct move *m = ctx;

        if (!agent->default_environment_id || !streq(agent->default_environment_id, m->env->id))
                return 0;
        int r = env_select(m->db, m->rt, m->op, m->env->company_id, m->to_id, ENV_FOR_CHANGED_AGENT,
                           agent->adapter_type, m->err);
        return r < 0 ? err_wrap(m->err, r, "agent \"%s\"", agent->name) : 0;
}

int env_move(struct db *db, struct runtime *rt, struct op *op, const struct environment *env,
             const struct environment_references *refs, const char *to_id, struct err *err)
{
        struct move m = { db, rt, op, env, to_id, err };
        CLEAN(json_decrefp) json_t *wish = json_pack("{s:s}", "moveTo", to_id);
        struct field_change change = { .of = FIELD_OF_ENVIRONMENT, .after = wish };

        if (streq(env->id, to_id))
                return err_set(err, ERR_UNPROCESSABLE,
                               "moveTo names the environment itself; name another one.");
        int r = agent_fields_check(db, op, &change, NULL, err);
        if (r >= 0)
                r = env_select(db, rt, op, env->company_id, to_id, ENV_FOR_WORK, NULL, err);
        if (r >= 0)
                r = agents_list(db, env->company_id, op->arena, check_agent, &m, err);
        if (r >= 0)
                r = environments_move_references(db, env, to_id, clock_now_us(), err);
        if (r < 0)
                return r;
        json_t *details = json_pack("{s:s, s:s}", "name", env->name, "movedTo", to_id);
        for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
                json_object_set_new(details, kinds[i].member, json_integer(count_of(refs, i)));
        return audit(db, op, env->company_id, "environment.references_moved", "environment",
                     env->id, details, err);
}
