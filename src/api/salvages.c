/* Salvages: changes that were saved before their place was given up. */
#include "api/encode.h"
#include "api/workspace_call.h"

#define LIST_DEFAULT 100
#define LIST_MAX     500

static int show_salvage(void *ctx, const struct salvage *s)
{
        struct call_page *p = ctx;

        if (call_page_has_room(p, s->created_at, s->id))
                encode_row(p->w, &salvage_table, s);
        return 0;
}

static int list_salvages(struct call *c, struct err *err)
{
        struct call_page p = { 0 };
        int r = access_board(&c->actor, err);

        if (r >= 0)
                r = call_page(c, &p, LIST_DEFAULT, LIST_MAX, err);
        if (r < 0)
                return r;
        call_page_begin(c, &p);
        r = salvage_list(c->op, c->rt, c->params[0], p.before_us, p.before_id, call_page_rows(&p),
                         show_salvage, &p, err);
        return call_page_end(c, &p, r, err);
}

/* The salvage of the path. */
static int load_salvage(struct call *c, struct salvage *ret, struct err *err)
{
        int r = access_board(&c->actor, err);

        return r < 0 ? r : salvage_get(c->op, c->rt, c->params[0], ret, err);
}

static int answer_salvage(struct call *c, int r, const struct salvage *s)
{
        if (r >= 0)
                encode_row(call_json(c), &salvage_table, s);
        return r;
}

static int show_one_salvage(struct call *c, struct err *err)
{
        struct salvage s;

        return answer_salvage(c, load_salvage(c, &s, err), &s);
}

static int show_salvage_diff(struct call *c, struct err *err)
{
        struct salvage s;
        int r = load_salvage(c, &s, err);

        if (r < 0)
                return r;
        call_take_time(c);
        return salvage_diff(c->op, c->rt, &s, call_query_flag(c, "text"), &c->out, err);
}

static int apply_salvage(struct call *c, struct err *err)
{
        struct restore_report report;
        const char *local_path;
        struct salvage s;
        int r = load_salvage(c, &s, err);

        if (r >= 0)
                r = call_local_path(c, &local_path, err);
        if (r < 0)
                return r;
        call_take_time(c);
        r = salvage_apply(c->op, c->rt, s.id, local_path, &report, err);
        return r < 0 ? r : answer_restored(c, &report);
}

static int drop_salvage(struct call *c, struct err *err)
{
        struct salvage s;
        int r = load_salvage(c, &s, err);

        if (r >= 0)
                r = salvage_drop(c->op, c->rt, s.id, &s, err);
        return answer_salvage(c, r, &s);
}

const struct route routes_salvages[] = {
        { "GET", "/api/companies/:companyId/salvages", .fn = list_salvages },
        { "GET", "/api/salvages/:id", .fn = show_one_salvage },
        { "GET", "/api/salvages/:id/diff", .fn = show_salvage_diff },
        { "POST", "/api/salvages/:id/apply", .fn = apply_salvage, .flags = ROUTE_BODY_FREE },
        { "DELETE", "/api/salvages/:id", .fn = drop_salvage },
        { 0 },
};
