/* Salvages: changes that were saved before their place was given up. */
#include "api/encode.h"
#include "api/workspace_call.h"

#define MISSING_COMPANY "Company not found"
#define MISSING         "Salvage not found"
#define LIST_DEFAULT    100
#define LIST_MAX        500

static int show(void *ctx, const struct salvage *s)
{
        struct call_page *p = ctx;

        if (call_page_has_room(p, s->created_at, s->id))
                encode_row(&p->w, &salvage_table, s);
        return 0;
}

static int list(struct call *c, struct err *err)
{
        struct call_page p = { 0 };
        const char *company;
        int r = call_uuid(c, 0, MISSING_COMPANY, &company, err);

        if (r >= 0)
                r = access_board(&c->actor, err);
        if (r >= 0)
                r = call_page(c, &p, LIST_DEFAULT, LIST_MAX, err);
        if (r < 0)
                return r;
        call_page_begin(c, &p);
        r = salvage_list(c->op, c->rt, company, p.before_us, p.before_id, call_page_rows(&p), show,
                         &p, err);
        return call_page_end(c, &p, r, err);
}

/* The salvage of the path. */
static int load(struct call *c, struct salvage *ret, struct err *err)
{
        const char *id;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0)
                r = access_board(&c->actor, err);
        return r < 0 ? r : salvage_get(c->op, c->rt, id, ret, err);
}

static int answer(struct call *c, const struct salvage *s)
{
        struct jw w;

        jw_init(&w, &c->out);
        encode_row(&w, &salvage_table, s);
        return 0;
}

static int get(struct call *c, struct err *err)
{
        struct salvage s;
        int r = load(c, &s, err);

        return r < 0 ? r : answer(c, &s);
}

static int diff(struct call *c, struct err *err)
{
        struct salvage s;
        int r = load(c, &s, err);

        if (r < 0)
                return r;
        call_take_time(c);
        return salvage_diff(c->op, c->rt, &s, call_query_flag(c, "text"), &c->out, err);
}

static int apply(struct call *c, struct err *err)
{
        struct restore_report report;
        const char *local_path;
        struct salvage s;
        int r = load(c, &s, err);

        if (r >= 0)
                r = call_local_path(c, &local_path, err);
        if (r < 0)
                return r;
        call_take_time(c);
        r = salvage_apply(c->op, c->rt, s.id, local_path, &report, err);
        return r < 0 ? r : answer_restored(c, &report);
}

static int drop(struct call *c, struct err *err)
{
        struct salvage s;
        int r = load(c, &s, err);

        if (r >= 0)
                r = salvage_drop(c->op, c->rt, s.id, &s, err);
        return r < 0 ? r : answer(c, &s);
}

const struct route routes_salvages[] = {
        { "GET", "/api/companies/:companyId/salvages", list, 0 },
        { "GET", "/api/salvages/:id", get, 0 },
        { "GET", "/api/salvages/:id/diff", diff, 0 },
        { "POST", "/api/salvages/:id/apply", apply, ROUTE_BODY_FREE },
        { "DELETE", "/api/salvages/:id", drop, 0 },
        { NULL, NULL, NULL, 0 },
};
