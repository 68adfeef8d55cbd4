/* Routes of the audit trail: listing a company's entries, and adding one. */
#include "store/activity.h"

#include "api/api.h"
#include "api/encode.h"
#include "base/clock.h"
#include "codec/check.h"
#include "core/access/audit.h"
#include "store/companies.h"

#define LIMIT_DEFAULT 100
#define LIMIT_MAX     500

static int show_activity(void *ctx, const struct activity *row)
{
        encode_activity(ctx, row);
        return 0;
}

/* The entries of a company that was deleted, which has no members any more. */
static int read_kept(struct call *c, struct db *db, const char *company, struct err *err)
{
        struct company gone;
        int64_t kept;

        if (access_admin(&c->actor, "", NULL) < 0 ||
            companies_get(db, company, c->op->arena, &gone, NULL) != ERR_NOT_FOUND ||
            activity_count(db, company, &kept, NULL) < 0 || kept == 0)
                return err->code;
        err_clear(err);
        return 0;
}

static int list_activity(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const char *company = c->params[0];
        int64_t limit;
        int r = call_query_int(c, "limit", LIMIT_DEFAULT, INT64_MIN, INT64_MAX, &limit, err);

        if (r >= 0)
                r = call_read(c, company, &db, err);
        if (r == ERR_NOT_FOUND || r == ERR_FORBIDDEN)
                r = read_kept(c, db, company, err);
        if (r < 0)
                return r;
        r = activity_list(db, company, call_query(c, "agentId"), call_query(c, "entityType"),
                          call_query(c, "entityId"), call_query(c, "action"),
                          MAX(1, MIN(limit, LIMIT_MAX)), c->op->arena, show_activity, call_list(c),
                          err);
        return call_list_end(c, r);
}

/* Entries that a board caller writes itself. */

static int check_entry(struct call *c, struct activity *row, struct err *err)
{
        static const char *const types[] = { "agent", "user", "system", "plugin", NULL };
        CLEAN(check_done) struct check k = { 0 };
        struct arena *a = c->op->arena;

        check_init(&k, c->body);
        const char *type = check_enum(&k, "actorType", CHECK_OPTIONAL, types);
        row->actor_type = type ? arena_strdup(a, type) : "system";
        row->actor_id = arena_strdup(a, check_string(&k, "actorId", CHECK_REQUIRED, 1, 0));
        row->action = arena_strdup(a, check_string(&k, "action", CHECK_REQUIRED, 1, 0));
        row->entity_type = arena_strdup(a, check_string(&k, "entityType", CHECK_REQUIRED, 1, 0));
        row->entity_id = arena_strdup(a, check_string(&k, "entityId", CHECK_REQUIRED, 1, 0));
        row->agent_id = arena_strdup(a, check_uuid(&k, "agentId", CHECK_NULLABLE));
        json_t *details = check_record(&k, "details", CHECK_NULLABLE);
        if (details) {
                audit_redact(details);
                row->details = json_to_arena(a, details);
        }
        return check_end(&k, err);
}

struct create_request {
        struct call *c;
        struct activity *row;
};

static int activity_append(struct db *db, void *arg, struct err *err)
{
        struct create_request *q = arg;
        int r = access_company(db, &q->c->actor, q->row->company_id, true, err);

        return r < 0 ? r : activity_insert(db, q->row, err);
}

static int create_activity(struct call *c, struct err *err)
{
        struct uuid id = uuid_new();
        struct activity row = { .id = id.s,
                                .company_id = c->params[0],
                                .run_id = c->run_id,
                                .created_at = clock_now_us() };
        struct create_request q = { c, &row };
        int r = access_board(&c->actor, err);

        if (r >= 0)
                r = check_entry(c, &row, err);
        if (r >= 0)
                r = store_write(c->op, c->rt->store, activity_append, &q, err);
        if (r >= 0)
                encode_activity(call_json(c), &row);
        return r;
}

const struct route routes_activity[] = {
        { "GET", "/api/companies/:companyId/activity", .fn = list_activity },
        { "POST", "/api/companies/:companyId/activity", .fn = create_activity, .status = 201 },
        { 0 },
};
