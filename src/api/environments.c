/* Routes of environments: creating, listing, showing, changing and removing them. */
#include "api/api.h"
#include "api/encode.h"
#include "core/adapters/adapter.h"
#include "core/environments/probe.h"
#include "core/leases/environment_delete.h"

struct shown {
        struct jw *w;
        const struct runtime *rt;
};

static int show(void *ctx, const struct environment_view *view)
{
        struct shown *s = ctx;

        encode_environment(s->w, s->rt, &view->env, view->redacted);
        return 0;
}

static int list_environments(struct call *c, struct err *err)
{
        struct shown s = { call_list(c), c->rt };

        return call_list_end(c,
                             environment_list(c->op, c->rt, c->params[0], call_query(c, "status"),
                                              call_query(c, "driver"), show, &s, err));
}

static int capabilities(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(c->op, c->rt->store, &db, err);

        if (r >= 0)
                r = access_company(db, &c->actor, c->params[0], false, err);
        store_read_end(&db);
        return r < 0 ? r : adapter_write_capabilities(c->op, c->rt, &c->out, err);
}

static int answer_environment(struct call *c, int r, const struct environment *env, bool redacted)
{
        if (r >= 0)
                encode_environment(call_json(c), c->rt, env, redacted);
        return r;
}

static int create(struct call *c, struct err *err)
{
        struct environment env;
        int r = environment_create(c->op, c->rt, c->params[0], c->body, &env, err);

        return answer_environment(c, r, &env, false);
}

static int get(struct call *c, struct err *err)
{
        struct environment_view view;
        int r = environment_get(c->op, c->rt, c->params[0], &view, err);

        return answer_environment(c, r, &view.env, view.redacted);
}

static int update(struct call *c, struct err *err)
{
        struct environment env;
        int r = environment_update(c->op, c->rt, c->params[0], c->body, &env, err);

        return answer_environment(c, r, &env, false);
}

static int remove_environment(struct call *c, struct err *err)
{
        struct environment env;
        const char *move_to = call_query(c, "moveTo");
        int r;

        if (move_to && !uuid_is_valid(move_to))
                return err_set(err, ERR_INVALID, "moveTo is no id of an environment");
        r = environment_delete(c->op, c->rt, c->params[0], call_query_flag(c, "closeLeases"),
                               move_to, &env, err);
        return answer_environment(c, r, &env, false);
}

const struct route routes_environments[] = {
        { "GET", "/api/companies/:companyId/environments", .fn = list_environments },
        { "GET", "/api/companies/:companyId/environments/capabilities", .fn = capabilities },
        { "POST", "/api/companies/:companyId/environments", .fn = create, .status = 201,
          .flags = ROUTE_WAITS },
        { "POST", "/api/companies/:companyId/environments/probe-config", .take_of = probe_unsaved,
          .flags = ROUTE_WAITS },
        { "GET", "/api/environments/:id", .fn = get },
        { "PATCH", "/api/environments/:id", .fn = update, .flags = ROUTE_WAITS },
        { "DELETE", "/api/environments/:id", .fn = remove_environment,
          .flags = ROUTE_WAITS | ROUTE_CLOSES },
        { "GET", "/api/environments/:id/delete-blast-radius",
          .write_of = environment_blast_radius },
        { "POST", "/api/environments/:id/probe", .write_of = probe_saved, .flags = ROUTE_WAITS },
        { 0 },
};
