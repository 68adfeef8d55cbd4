/* Decides who may read and write projects, and which policies and variables they may have. */
#include "core/companies/project.h"
#include "core/environments/host_use.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/agent_fields.h"
#include "core/access/audit.h"
#include "core/environments/env_select.h"
#include "core/patch.h"
#include "core/secrets/agent_env.h"
#include "core/slug.h"

static const char *const members[] = { "description", "env",    "executionWorkspacePolicy",
                                       "name",        "status", NULL };
static const char *const statuses[] = { "active", "paused", "archived", NULL };

struct request {
        struct op *op;
        struct runtime *rt;
        const char *company_id, *reference;
        json_t *body;
        struct project *project;
        json_t *env, *policy; /* borrowed from the body */
        bool has_env, has_policy;
        project_fn fn;
        void *ctx;
};

/* -- Reading ---------------------------------------------------------------------------------- */

static int find(struct db *db, struct request *q, bool write, struct err *err)
{
        const struct actor *a = q->op->actor;
        const char *company = a->type == ACTOR_AGENT ? a->company_id : q->company_id;
        int r = access_authenticated(a, err);

        if (r < 0)
                return r;
        if (uuid_is_valid(q->reference))
                r = projects_get(db, q->reference, q->op->arena, q->project, err);
        else if (!company)
                r = err_set(err, ERR_NOT_FOUND, "Project not found");
        else if ((r = access_company(db, a, company, false, err)) >= 0)
                r = projects_find(db, company, q->reference, q->op->arena, q->project, err);
        return r < 0 ? r : access_company(db, a, q->project->company_id, write, err);
}

static int get(struct db *db, void *arg, struct err *err)
{
        return find(db, arg, false, err);
}

int project_get(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
                struct project *ret, struct err *err)
{
        struct request q = {
                .op = op, .reference = reference, .company_id = company_id, .project = ret
        };

        return store_read(op, rt->store, get, &q, err);
}

static int list(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        int r = access_company(db, q->op->actor, q->company_id, false, err);

        return r < 0 ? r : projects_list(db, q->company_id, q->op->arena, q->fn, q->ctx, err);
}

int project_list(struct op *op, struct runtime *rt, const char *company_id, project_fn fn,
                 void *ctx, struct err *err)
{
        struct request q = { .op = op, .company_id = company_id, .fn = fn, .ctx = ctx };

        return store_read(op, rt->store, list, &q, err);
}

/* -- Writing ---------------------------------------------------------------------------------- */

static void read_policy(struct check *c, struct request *q)
{
        static const char *const records[] = { "workspaceStrategy", "workspaceRuntime",
                                               "branchPolicy",      "pullRequestPolicy",
                                               "runtimePolicy",     "cleanupPolicy" };
        static const char *const known[] = { "enabled",
                                             "defaultMode",
                                             "allowIssueOverride",
                                             "defaultProjectWorkspaceId",
                                             "environmentId",
                                             "workspaceStrategy",
                                             "workspaceRuntime",
                                             "branchPolicy",
                                             "pullRequestPolicy",
                                             "runtimePolicy",
                                             "cleanupPolicy",
                                             NULL };
        struct check n;

        q->has_policy = check_has(c, "executionWorkspacePolicy");
        q->policy = check_record(c, "executionWorkspacePolicy", CHECK_NULLABLE);
        check_nested(&n, c, "executionWorkspacePolicy", q->policy);
        if (!q->policy)
                return;
        (void)check_bool(&n, "enabled", CHECK_REQUIRED, false);
        (void)check_string(&n, "defaultMode", CHECK_OPTIONAL, 1, 0);
        (void)check_bool(&n, "allowIssueOverride", CHECK_OPTIONAL, false);
        (void)check_uuid(&n, "defaultProjectWorkspaceId", CHECK_NULLABLE);
        (void)check_uuid(&n, "environmentId", CHECK_NULLABLE);
        for (size_t i = 0; i < ARRAY_LEN(records); i++)
                (void)check_record(&n, records[i], CHECK_NULLABLE);
        check_unknown(&n, known);
}

static int read_body(struct request *q, bool creating, struct project *p, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        struct arena *a = q->op->arena;
        const char *text;

        check_init(&c, q->body);
        text = check_string(&c, "name", creating ? CHECK_REQUIRED : CHECK_OPTIONAL, 1, 0);
        if (text) {
                p->name = arena_strdup(a, text);
                p->url_key = slug(p->name, a);
        }
        (void)patch_text(&c, a, "description", &p->description);
        (void)patch_word(&c, a, "status", statuses, &p->status);
        q->has_env = check_has(&c, "env");
        q->env = check_record(&c, "env", CHECK_NULLABLE);
        read_policy(&c, q);
        return check_end(&c, err);
}

static json_t *document(const char *text)
{
        json_t *value = NULL;

        if (text)
                (void)json_parse(text, strlen(text), &value, NULL);
        return value;
}

/* The variables of a project reach the agents that work in it, so the same rules hold. */
static int apply_env(struct db *db, struct request *q, struct project *p, struct err *err)
{
        json_t *before = NULL, *config;
        int r;

        if (!q->has_env)
                return 0;
        before = json_pack("{s:o?}", "env", document(p->env));
        config = json_pack("{s:O?}", "env", q->env);
        r = agent_env_check(db, q->op, q->rt, p->company_id, before, config, err);
        if (r >= 0)
                p->env =
                        q->env ? json_to_arena(q->op->arena, json_object_get(config, "env")) : NULL;
        if (r >= 0)
                r = secret_sync_env_bindings(db, p->company_id, "project", p->id, AGENT_ENV_PREFIX,
                                             json_get_object(config, "env"), q->op->arena, err);
        json_decref(before);
        json_decref(config);
        return r;
}

static int apply_policy(struct db *db, struct request *q, struct project *p, struct err *err)
{
        int r;

        if (!q->has_policy)
                return 0;
        r = env_select_in(db, q->rt, q->op, p->company_id, q->policy, p->execution_workspace_policy,
                          err);
        if (r >= 0)
                p->execution_workspace_policy =
                        q->policy ? json_to_arena(q->op->arena, q->policy) : NULL;
        return r;
}

/* Whether the actor may set the members that differ. Without an environment the project's work is
 * done wherever its agents work. */
static int check_fields(struct db *db, struct request *q, const struct project *before,
                        const struct project *p, struct err *err)
{
        CLEAN(json_decrefp)
        json_t *was =
                json_pack("{s:o?, s:o?}", "env", document(before->env), "executionWorkspacePolicy",
                          document(before->execution_workspace_policy));
        CLEAN(json_decrefp)
        json_t *is = json_pack("{s:o?, s:o?}", "env", document(p->env), "executionWorkspacePolicy",
                               document(p->execution_workspace_policy));
        struct field_change change = {
                .of = FIELD_OF_PROJECT, .company_id = p->company_id, .before = was, .after = is
        };
        const char *id =
                json_get_string(json_get_object(is, "executionWorkspacePolicy"), "environmentId");
        int r = 0;

        if (id)
                r = agent_environment_is_isolated(db, q->rt, q->op->arena, p->company_id, id,
                                                  &change.is_isolated, err);
        return r < 0 ? r : agent_fields_check(db, q->op, &change, NULL, err);
}

static int create(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct project p = { .company_id = q->company_id, .status = "active" };
        int r = access_company(db, q->op->actor, q->company_id, true, err);

        p.id = arena_strdup(q->op->arena, uuid_new().s);
        p.created_at = p.updated_at = clock_now_us();
        if (r >= 0)
                r = read_body(q, true, &p, err);
        if (r >= 0)
                r = apply_policy(db, q, &p, err);
        if (r >= 0)
                r = apply_env(db, q, &p, err);
        if (r >= 0)
                r = check_fields(db, q, &(struct project){ 0 }, &p, err);
        if (r >= 0)
                r = projects_insert(db, &p, err);
        if (r >= 0)
                r = audit(db, q->op, p.company_id, "project.created", "project", p.id,
                          json_pack("{s:s}", "name", p.name), err);
        if (r >= 0)
                *q->project = p;
        return r;
}

int project_create(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                   struct project *ret, struct err *err)
{
        struct request q = {
                .op = op, .rt = rt, .company_id = company_id, .body = body, .project = ret
        };
        int r;

        FAULT("project.create.before");
        r = store_write(op, rt->store, create, &q, err);
        FAULT("project.create.after");
        return r;
}

static int update(struct db *db, void *arg, struct err *err)
{
        struct request *q = arg;
        struct project *p = q->project, before;
        int r = find(db, q, true, err);

        before = *p;
        if (r >= 0)
                r = read_body(q, false, p, err);
        if (r >= 0)
                r = apply_policy(db, q, p, err);
        if (r >= 0)
                r = apply_env(db, q, p, err);
        if (r >= 0)
                r = check_fields(db, q, &before, p, err);
        if (r < 0)
                return r;
        p->updated_at = clock_now_us();
        r = projects_update(db, p, err);
        if (r >= 0)
                r = audit(db, q->op, p->company_id, "project.updated", "project", p->id,
                          json_pack("{s:O}", "changedFields",
                                    patch_names(q->op->arena, q->body, members)),
                          err);
        return r;
}

int project_update(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
                   json_t *body, struct project *ret, struct err *err)
{
        struct request q = { .op = op,
                             .rt = rt,
                             .reference = reference,
                             .company_id = company_id,
                             .body = body,
                             .project = ret };
        int r;

        FAULT("project.update.before");
        r = store_write(op, rt->store, update, &q, err);
        FAULT("project.update.after");
        return r;
}
