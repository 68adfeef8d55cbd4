/* Snapshots of sandboxes. */
#include "api/api.h"
#include "api/encode.h"
#include "api/lease_call.h"
#include "codec/check.h"
#include "core/kinds/berth/berth.h"
#include "core/kinds/berth/snapshot.h"

#define LIST_DEFAULT 100
#define LIST_MAX     500

static int answer_snapshot(struct call *c, int r, const struct snapshot *s)
{
        if (r >= 0)
                encode_row(call_json(c), &snapshot_table, s);
        return r;
}

static int check_name(struct call *c, const char **ret, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };

        check_init(&k, c->body);
        *ret = arena_strdup(c->op->arena, check_string(&k, "name", CHECK_REQUIRED, 1, 0));
        check_unknown(&k, (const char *[]){ "name", NULL });
        return check_end(&k, err);
}

static int make_snapshot(struct call *c, struct err *err)
{
        const struct kind *kind;
        struct lease_record record;
        struct snapshot snapshot;
        const char *name;
        int r = call_lease(c, LEASE_USE, &record, err);

        if (r >= 0)
                r = check_name(c, &name, err);
        if (r >= 0)
                r = lease_load_usable(c->op, c->rt, c->params[0], &record, &kind, err);
        if (r >= 0)
                r = snapshot_make(c->op, c->rt, &record, name, &snapshot, err);
        return answer_snapshot(c, r, &snapshot);
}

static int show_snapshot(void *ctx, const struct snapshot *s)
{
        struct call_page *p = ctx;

        if (call_page_has_room(p, s->created_at, s->id))
                encode_row(p->w, &snapshot_table, s);
        return 0;
}

static int list_snapshots(struct call *c, struct err *err)
{
        struct call_page p = { 0 };
        int r = call_page(c, &p, LIST_DEFAULT, LIST_MAX, err);

        if (r < 0)
                return r;
        call_page_begin(c, &p);
        r = snapshot_list(c->op, c->rt, c->params[0], p.before_us, p.before_id, call_page_rows(&p),
                          show_snapshot, &p, err);
        return call_page_end(c, &p, r, err);
}

static int get_snapshot(struct call *c, struct err *err)
{
        struct snapshot snapshot;
        int r = snapshot_get(c->op, c->rt, c->params[0], c->params[1], &snapshot, err);

        return answer_snapshot(c, r, &snapshot);
}

static int fork_snapshot(struct call *c, struct err *err)
{
        struct environment env;
        struct fork_body body;
        int r = access_board(&c->actor, err);

        if (r >= 0)
                r = call_fork_request(c, true, &body, err);
        if (r >= 0)
                r = environment_manage(c->op, c->rt, body.environment_id, &env, err);
        if (r >= 0 && !streq(env.company_id, c->params[0]))
                r = err_set(err, ERR_NOT_FOUND, "Environment not found");
        if (r >= 0)
                r = berth_fork_snapshot(c->op, c->rt, &env, c->params[1], &body.req.config, err);
        if (r >= 0)
                r = lease_acquire_many(c->op, c->rt, &env, c->params[1], body.n, &body.req,
                                       body.made, err);
        return answer_forks(c, r, &body);
}

static int delete_snapshot(struct call *c, struct err *err)
{
        struct snapshot snapshot;
        int r = access_board(&c->actor, err);

        if (r >= 0)
                r = snapshot_delete(c->op, c->rt, c->params[0], c->params[1], &snapshot, err);
        return answer_snapshot(c, r, &snapshot);
}

const struct route routes_snapshots[] = {
        { "POST", "/api/environment-leases/:id/snapshot", .fn = make_snapshot, .status = 201,
          .flags = ROUTE_WAITS },
        { "GET", "/api/companies/:companyId/environment-snapshots", .fn = list_snapshots },
        { "GET", "/api/companies/:companyId/environment-snapshots/:name", .fn = get_snapshot },
        { "POST", "/api/companies/:companyId/environment-snapshots/:name/fork", .fn = fork_snapshot,
          .flags = ROUTE_WAITS },
        { "DELETE", "/api/companies/:companyId/environment-snapshots/:name",
          .fn = delete_snapshot },
        { 0 },
};
