/* Snapshots of sandboxes. */
#include "api/api.h"
#include "api/lease_call.h"
#include "codec/check.h"
#include "core/kinds/berth/snapshot.h"

#define MISSING_COMPANY "Company not found"
#define LIST_DEFAULT    100
#define LIST_MAX        500

static void encode(struct jw *w, const struct snapshot *s)
{
        jw_object(w);
        jw_kstring(w, "id", s->id);
        jw_kstring(w, "companyId", s->company_id);
        jw_kstring(w, "name", s->name);
        jw_kstring(w, "state", s->state);
        jw_kstring(w, "parentId", s->parent_id);
        jw_kstring(w, "rootfs", s->rootfs);
        jw_kstring(w, "leaseId", s->lease_id);
        jw_kint(w, "bytes", s->bytes);
        jw_ktime(w, "createdAt", s->created_at);
        jw_ktime(w, "updatedAt", s->updated_at);
        jw_object_end(w);
}

static int answer(struct call *c, const struct snapshot *s)
{
        struct jw w;

        jw_init(&w, &c->out);
        encode(&w, s);
        return 0;
}

static int check_name(struct call *c, const char **ret, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };

        check_init(&k, c->body);
        *ret = arena_strdup(c->op->arena, check_string(&k, "name", CHECK_REQUIRED, 1, 0));
        check_unknown(&k, (const char *[]){ "name", NULL });
        return check_end(&k, err);
}

static int make(struct call *c, struct err *err)
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
        if (r < 0)
                return r;
        c->status = 201;
        return answer(c, &snapshot);
}

static int show(void *ctx, const struct snapshot *s)
{
        struct call_page *p = ctx;

        if (call_page_has_room(p, s->created_at, s->id))
                encode(&p->w, s);
        return 0;
}

static int list(struct call *c, struct err *err)
{
        struct call_page p = { 0 };
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = call_page(c, &p, LIST_DEFAULT, LIST_MAX, err);
        if (r < 0)
                return r;
        call_page_begin(c, &p);
        r = snapshot_list(c->op, c->rt, company, p.before_us, p.before_id, call_page_rows(&p), show,
                          &p, err);
        return call_page_end(c, &p, r, err);
}

static int get(struct call *c, struct err *err)
{
        struct snapshot snapshot;
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = snapshot_get(c->op, c->rt, company, c->params[1], &snapshot, err);
        return r < 0 ? r : answer(c, &snapshot);
}

static int delete_one(struct call *c, struct err *err)
{
        struct snapshot snapshot;
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = access_board(&c->actor, err);
        if (r >= 0)
                r = snapshot_delete(c->op, c->rt, company, c->params[1], &snapshot, err);
        return r < 0 ? r : answer(c, &snapshot);
}

const struct route routes_snapshots[] = {
        { "POST", "/api/environment-leases/:id/snapshot", make, ROUTE_OF_LEASE },
        { "GET", "/api/companies/:companyId/environment-snapshots", list, 0 },
        { "GET", "/api/companies/:companyId/environment-snapshots/:name", get, 0 },
        { "DELETE", "/api/companies/:companyId/environment-snapshots/:name", delete_one, 0 },
        { NULL, NULL, NULL, 0 },
};
