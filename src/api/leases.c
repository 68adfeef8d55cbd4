/* Leases and what can be done with them. Actions are for board callers only: agents work through
 * their run. */
#include <stdio.h>

#include "api/api.h"
#include "api/encode.h"
#include "api/lease_call.h"
#include "base/clock.h"
#include "codec/check.h"
#include "core/access/access.h"
#include "core/environments/host_use.h"
#include "core/leases/lease.h"
#include "core/roots/workspace_root.h"

#define TTL_MAX_MS   (INT64_C(366) * 86400000)
#define LIST_MAX     500
#define LIST_DEFAULT 100

static const char *const end_statuses[] = { LEASE_RELEASED, LEASE_EXPIRED, LEASE_FAILED, NULL };

static int answer_record(struct call *c, int r, const struct lease_record *record)
{
        if (r >= 0)
                encode_lease_record(call_json(c), c->rt, record);
        return r;
}

int lease_check_use(struct op *op, struct runtime *rt, const char *id, enum lease_use use,
                    struct lease_record *ret, struct err *err)
{
        struct environment env;
        int r = use == LEASE_LOOK ? access_authenticated(op->actor, err)
                                  : access_board(op->actor, err);

        if (r >= 0)
                r = lease_load(op, rt, id, ret, err);
        if (r >= 0)
                r = environment_manage(op, rt, ret->env.id, &env, err);
        if (r >= 0 && use == LEASE_USE)
                r = host_use_check(rt, op->actor, lease_driver_key(ret, op->arena), err);
        return r;
}

int call_lease(struct call *c, enum lease_use use, struct lease_record *ret, struct err *err)
{
        return lease_check_use(c->op, c->rt, c->params[0], use, ret, err);
}

/* Listing */

static int show(void *ctx, const struct lease *lease)
{
        struct call_page *p = ctx;

        if (call_page_has_room(p, lease->last_used_at, lease->id))
                encode_lease(p->w, lease);
        return 0;
}

struct list_request {
        struct call *c;
        struct call_page page;
        const char *environment, *company; /* one of them */
        const char *status;
        bool living;
};

static int answer_list(struct list_request *q, int64_t fallback, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct call *c = q->c;
        struct call_page *p = &q->page;
        int r = call_page(c, p, fallback, LIST_MAX, err);

        if (r < 0)
                return r;
        call_page_begin(c, p);
        r = store_read_begin(c->op, c->rt->store, &db, err);
        if (r >= 0 && q->company)
                r = access_manage_environments(db, c->op->actor, q->company, err);
        if (r >= 0)
                r = q->company
                            ? leases_list_company(db, q->company, q->living, p->before_us,
                                                  p->before_id, call_page_rows(p), c->op->arena,
                                                  show, p, err)
                            : leases_list(db, q->environment, q->status, p->before_us, p->before_id,
                                          call_page_rows(p), c->op->arena, show, p, err);
        return call_page_end(c, p, r, err);
}

static int list_leases(struct call *c, struct err *err)
{
        struct list_request q = { .c = c,
                                  .environment = c->params[0],
                                  .status = call_query(c, "status") };
        struct environment env;
        int r = environment_manage(c->op, c->rt, q.environment, &env, err);

        return r < 0 ? r : answer_list(&q, 0, err);
}

static int list_company(struct call *c, struct err *err)
{
        struct list_request q = { .c = c,
                                  .company = c->params[0],
                                  .living = call_query_flag(c, "living") };
        int r = access_authenticated(&c->actor, err);

        return r < 0 ? r : answer_list(&q, LIST_DEFAULT, err);
}

static int get_lease(struct call *c, struct err *err)
{
        struct lease_record record;
        int r = call_lease(c, LEASE_LOOK, &record, err);

        if (r >= 0)
                encode_lease(call_json(c), &record.lease);
        return r;
}

/* Acting */

static int check_acquire(struct call *c, struct lease_request *req, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };
        struct arena *a = c->op->arena;

        check_init(&k, c->body);
        req->run_id = arena_strdup(a, check_uuid(&k, "heartbeatRunId", CHECK_NULLABLE));
        req->issue_id = arena_strdup(a, check_uuid(&k, "issueId", CHECK_NULLABLE));
        req->execution_workspace_id =
                arena_strdup(a, check_uuid(&k, "executionWorkspaceId", CHECK_NULLABLE));
        req->execution_workspace_mode =
                arena_strdup(a, check_string(&k, "executionWorkspaceMode", CHECK_NULLABLE, 1, 64));
        req->agent_id = arena_strdup(a, check_uuid(&k, "agentId", CHECK_NULLABLE));
        req->adapter_type = arena_strdup(a, check_string(&k, "adapterType", CHECK_NULLABLE, 1, 64));
        req->requested_cwd =
                arena_strdup(a, check_string(&k, "requestedCwd", CHECK_NULLABLE, 1, 4096));
        req->workspace_settings = check_record(&k, "executionWorkspaceSettings", CHECK_NULLABLE);
        req->ttl_ms = check_int(&k, "ttlMs", CHECK_OPTIONAL, 1, TTL_MAX_MS, NULL);
        req->idempotency_key =
                arena_strdup(a, check_string(&k, "idempotencyKey", CHECK_OPTIONAL, 1, 255));
        check_unknown(&k, (const char *[]){ "heartbeatRunId", "issueId", "executionWorkspaceId",
                                            "executionWorkspaceMode", "agentId", "adapterType",
                                            "requestedCwd", "executionWorkspaceSettings", "ttlMs",
                                            "idempotencyKey", NULL });
        return check_end(&k, err);
}

static int acquire_lease(struct call *c, struct err *err)
{
        struct lease_request req = { 0 };
        struct lease_record record;
        struct environment env;
        int r = access_board(&c->actor, err);

        if (r >= 0)
                r = environment_manage(c->op, c->rt, c->params[0], &env, err);
        if (r >= 0)
                r = check_acquire(c, &req, err);
        if (r >= 0)
                r = lease_acquire(c->op, c->rt, &env, &req, &record, err);
        if (r >= 0 && !record.existed)
                c->status = 201;
        return answer_record(c, r, &record);
}

/* Forks */

int call_fork_request(struct call *c, bool of_snapshot, struct fork_body *ret, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };
        struct arena *a = c->op->arena;

        *ret = (struct fork_body){ .n = 1 };
        check_init(&k, c->body);
        if (of_snapshot)
                ret->environment_id =
                        arena_strdup(a, check_uuid(&k, "environmentId", CHECK_REQUIRED));
        if (check_has(&k, "count"))
                ret->n = (size_t)check_int(&k, "count", CHECK_REQUIRED, 1, LEASE_FORKS_MAX, NULL);
        ret->req.ttl_ms = check_int(&k, "ttlMs", CHECK_OPTIONAL, 1, TTL_MAX_MS, NULL);
        ret->req.idempotency_key =
                arena_strdup(a, check_string(&k, "idempotencyKey", CHECK_OPTIONAL, 1, 255));
        check_unknown(&k, (const char *[]){ "count", "ttlMs", "idempotencyKey",
                                            of_snapshot ? "environmentId" : NULL, NULL });
        int r = check_end(&k, err);
        if (r >= 0)
                ret->made = arena_alloc(a, ret->n * sizeof(*ret->made));
        return r;
}

int answer_forks(struct call *c, int r, const struct fork_body *body)
{
        struct jw *w = call_list(c);

        for (size_t i = 0; r >= 0 && i < body->n; i++) {
                if (!body->made[i].existed)
                        c->status = 201;
                encode_lease_record(w, c->rt, &body->made[i]);
        }
        return call_list_end(c, r);
}

static int fork_lease(struct call *c, struct err *err)
{
        const struct kind *kind;
        struct lease_record source;
        struct fork_body body;
        int r = call_lease(c, LEASE_USE, &source, err);

        if (r >= 0)
                r = call_fork_request(c, false, &body, err);
        if (r >= 0)
                r = lease_load_usable(c->op, c->rt, c->params[0], &source, &kind, err);
        if (r >= 0)
                r = lease_fork(c->op, c->rt, &source, body.n, &body.req, body.made, err);
        return answer_forks(c, r, &body);
}

static int renew_lease(struct call *c, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };
        struct lease_record record;
        int r = call_lease(c, LEASE_KEEP, &record, err);

        check_init(&k, c->body);
        if (r < 0)
                return r;
        int64_t ttl = check_int(&k, "ttlMs", CHECK_REQUIRED, 1, TTL_MAX_MS, NULL);
        check_unknown(&k, (const char *[]){ "ttlMs", NULL });
        r = check_end(&k, err);
        if (r >= 0)
                r = lease_renew(c->op, c->rt, c->params[0], ttl, &record, err);
        return answer_record(c, r, &record);
}

static int check_status(struct call *c, const char **ret, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };

        check_init(&k, c->body);
        const char *status = check_enum(&k, "status", CHECK_OPTIONAL, end_statuses);
        check_unknown(&k, (const char *[]){ "status", NULL });
        *ret = status ? arena_strdup(c->op->arena, status) : LEASE_RELEASED;
        return check_end(&k, err);
}

static int release_lease(struct call *c, struct err *err)
{
        struct lease_record record;
        const char *status;
        int r = call_lease(c, LEASE_KEEP, &record, err);

        if (r >= 0)
                r = check_status(c, &status, err);
        if (r >= 0)
                r = lease_release(c->op, c->rt, c->params[0], status, &record, err);
        return answer_record(c, r, &record);
}

static int destroy_lease(struct call *c, struct err *err)
{
        struct lease_record record;
        int r = call_lease(c, LEASE_KEEP, &record, err);

        if (r >= 0)
                r = lease_destroy(c->op, c->rt, c->params[0], &record, err);
        return answer_record(c, r, &record);
}

static int answer_document(struct call *c, int r, const json_t *document)
{
        if (r >= 0)
                json_put(&c->out, document);
        return r;
}

static int set_paused(struct call *c, bool paused, struct err *err)
{
        struct lease_record record;
        json_t *answer = NULL;
        int r = call_lease(c, LEASE_USE, &record, err);

        if (r >= 0)
                r = lease_set_paused(c->op, c->rt, c->params[0], paused, &answer, err);
        return answer_document(c, r, answer);
}

static int pause_lease(struct call *c, struct err *err)
{
        return set_paused(c, true, err);
}

static int resume_lease(struct call *c, struct err *err)
{
        return set_paused(c, false, err);
}

static int realize_workspace(struct call *c, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };
        struct check n;
        struct lease_record record;
        json_t *workspace, *answer = NULL;
        int r = call_lease(c, LEASE_USE, &record, err);

        check_init(&k, c->body);
        if (r < 0)
                return r;
        workspace = check_record(&k, "workspace", CHECK_REQUIRED);
        check_nested(&n, &k, "workspace", workspace);
        const char *local = check_string(&n, "localPath", CHECK_OPTIONAL, 1, 4096);
        (void)check_string(&n, "remotePath", CHECK_OPTIONAL, 1, 4096);
        (void)check_string(&n, "mode", CHECK_OPTIONAL, 1, 64);
        (void)check_record(&n, "metadata", CHECK_OPTIONAL);
        check_unknown(&n, (const char *[]){ "localPath", "remotePath", "mode", "metadata", NULL });
        check_unknown(&k, (const char *[]){ "workspace", NULL });
        r = check_end(&k, err);
        if (r >= 0 && local)
                r = workspace_root_check(c->rt,
                                         &(struct workspace_asker){ record.env.company_id,
                                                                    c->op->actor->is_daemon_user },
                                         local, err);
        if (r >= 0)
                r = lease_realize(c->op, c->rt, c->params[0], workspace, &answer, err);
        return answer_document(c, r, answer);
}

/* All leases of a run. */

struct released {
        struct jw *w;
        const struct runtime *rt;
};

static int show_released(void *ctx, const struct lease_record *record)
{
        struct released *s = ctx;

        encode_lease_record(s->w, s->rt, record);
        return 0;
}

static int release_run(struct call *c, struct err *err)
{
        const char *status;
        struct released s = { call_list(c), c->rt };
        int r = access_board(&c->actor, err);

        if (r >= 0)
                r = check_status(c, &status, err);
        if (r >= 0)
                r = lease_release_run(c->op, c->rt, c->params[0], status, show_released, &s, err);
        return call_list_end(c, r);
}

const struct route routes_leases[] = {
        { "GET", "/api/companies/:id/environment-leases", .fn = list_company },
        { "GET", "/api/environments/:id/leases", .fn = list_leases },
        { "POST", "/api/environments/:id/leases", .fn = acquire_lease,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "GET", "/api/environment-leases/:id", .fn = get_lease },
        { "POST", "/api/environment-leases/:id/renew", .fn = renew_lease,
          .flags = ROUTE_WHEN_FULL },
        { "POST", "/api/environment-leases/:id/release", .fn = release_lease,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS | ROUTE_CLOSES | ROUTE_WHEN_FULL },
        { "POST", "/api/environment-leases/:id/pause", .fn = pause_lease,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "POST", "/api/environment-leases/:id/resume", .fn = resume_lease,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "POST", "/api/environment-leases/:id/destroy", .fn = destroy_lease,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS | ROUTE_CLOSES | ROUTE_WHEN_FULL },
        { "POST", "/api/environment-leases/:id/fork", .fn = fork_lease,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "POST", "/api/environment-leases/:id/realize-workspace", .fn = realize_workspace,
          .flags = ROUTE_WAITS },
        { "POST", "/api/heartbeat-runs/:id/release-leases", .fn = release_run,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS | ROUTE_CLOSES | ROUTE_WHEN_FULL },
        { 0 },
};
