/* Kinds of places that descriptors make: which there are, and trying a step of one on a lease
 * (`berth kind check`). */
#include "api/lease_call.h"
#include "api/thing.h"
#include "core/kinds/command/command_load.h"

static void write_kind(struct jw *w, const struct kind *kind, bool whole)
{
        const char *path = NULL;
        const json_t *d = command_kind_descriptor(kind, &path);

        jw_object(w);
        jw_kstring(w, "name", kind->provider);
        jw_kstring(w, "displayName", kind->display_name);
        jw_kstring(w, "description", kind->description);
        jw_kbool(w, "isolated", kind->isolated);
        jw_kstring(w, "isolation", kind->isolation);
        jw_kstring(w, "source", path ? path : "berth");
        if (whole)
                jw_kvalue(w, "descriptor", d);
        jw_object_end(w);
}

static int list_kinds(struct call *c, struct err *err)
{
        struct jw *w = call_list(c);

        for (const struct kind *const *k = c->rt->kinds; *k; k++)
                if (command_kind_descriptor(*k, NULL))
                        write_kind(w, *k, false);
        return call_list_end(c, access_board(&c->actor, err));
}

static int get_kind(struct call *c, struct err *err)
{
        const struct kind *kind = kind_of_provider(c->rt, c->params[0]);
        int r = access_board(&c->actor, err);

        if (r < 0)
                return r;
        if (!kind || !command_kind_descriptor(kind, NULL))
                return err_set(err, ERR_NOT_FOUND, "Kind not found");
        write_kind(call_json(c), kind, true);
        return 0;
}

/* A file that could not be used is named with the reason. */
static int list_refused(struct call *c, struct err *err)
{
        struct jw *w = call_list(c);

        for (size_t i = 0; command_kinds_refused(c->rt->command_kinds, i); i++)
                jw_string(w, command_kinds_refused(c->rt->command_kinds, i));
        return call_list_end(c, access_board(&c->actor, err));
}

static int try_step(struct call *c, struct err *err)
{
        struct lease_record record;
        json_t *answer = NULL;
        int r = access_admin(
                &c->actor, "Only an instance admin may try single steps of a kind of places.", err);

        if (r >= 0)
                r = call_lease(c, LEASE_KEEP, &record, err);
        if (r >= 0)
                r = command_try(c->op, c->rt, record.lease.place_id, c->params[1], &answer, err);
        if (r >= 0)
                json_put(&c->out, answer);
        return r;
}

const struct route routes_kinds[] = {
        { "GET", "/api/kinds", .fn = list_kinds },
        { "GET", "/api/refused-kinds", .fn = list_refused },
        { "GET", "/api/kinds/:name", .fn = get_kind },
        { "POST", "/api/environment-leases/:id/kind/:step", .fn = try_step,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS | ROUTE_RIGHTS_FIRST },
        { 0 },
};
