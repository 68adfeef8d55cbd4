/* Boxes elsewhere, by way of the connection that leads there (carrier.h). */
#include "core/carriers/carrier_internal.h"

static int check_there(struct runtime *rt, const struct place *place, struct err *err)
{
        return carrier_is_gone(rt, place) ? err_set(err, ERR_NOT_FOUND, "The place is gone.") : 0;
}

static int route_connect(struct runtime *rt, const struct place *place, int *ret_fd,
                         struct err *err)
{
        CLEAN(carrier_putp) struct carrier *c = NULL;
        int r = check_there(rt, place, err);

        if (r >= 0)
                r = carrier_of(rt, place, &c, err);
        if (r < 0)
                return r;
        carrier_use(c, place);
        struct mux *mux = carrier_mux(c);
        if (!mux)
                return err_set(err, ERR_UNREACHABLE, "no connection to the %s", c->type->what);
        return mux_connect(mux, place->id, ret_fd, err);
}

/* Loop thread. */
static struct mux *find_mux(void *owner, const char *key)
{
        CLEAN(carrier_putp) struct carrier *c = carrier_find(owner, key);

        return c ? carrier_mux(c) : NULL;
}

static int ask_relay(struct op *op, struct runtime *rt, struct carrier *c, enum mux_want want,
                     const struct place *place, const char *const *exec_ids, struct err *err)
{
        return mux_ask_wait(op, rt->mail, find_mux, rt->carriers, c->key, want, place->id, exec_ids,
                            err);
}

static int route_ensure(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err)
{
        /* The lease goes on as it began, whatever became of its environment. */
        const struct secret_context context = { .for_cleanup = true };
        const char *const node[] = { rt->node.id.s, NULL };
        CLEAN(carrier_putp) struct carrier *c = NULL;
        int r = check_there(rt, place, err);

        if (r >= 0)
                r = carrier_of(rt, place, &c, err);
        if (r >= 0)
                r = carrier_open(op, c, &context, NULL, err);
        if (r < 0)
                return r;
        carrier_use(c, place);
        return ask_relay(op, rt, c, MUX_ENSURE, place, node, err);
}

static int route_is_alive(struct op *op, struct runtime *rt, const struct place *place,
                          struct err *err)
{
        CLEAN(carrier_putp) struct carrier *c = NULL;
        int r;

        if (carrier_is_gone(rt, place))
                return 0;
        r = carrier_of(rt, place, &c, err);
        return r < 0 ? r : ask_relay(op, rt, c, MUX_ALIVE, place, NULL, err);
}

static int route_bury(struct op *op, struct runtime *rt, const struct place *place,
                      const char *const *exec_ids, struct err *err)
{
        const struct secret_context context = { .for_cleanup = true };
        CLEAN(carrier_putp) struct carrier *c = NULL;
        int r;

        if (carrier_is_gone(rt, place))
                return 0;
        r = carrier_of(rt, place, &c, err);
        if (r >= 0)
                r = carrier_open(op, c, &context, NULL, err);
        if (r >= 0)
                r = ask_relay(op, rt, c, MUX_BURY, place, exec_ids, err);
        if (r >= 0)
                carrier_leave(rt, place);
        return r;
}

/* Listing */

struct listing {
        const char *provider, *description;
        kind_found_fn fn;
        void *ctx;
};

static int found_box(void *ctx, const char *box_id, const char *node)
{
        struct listing *l = ctx;

        return l->fn(l->ctx, &(struct kind_thing){ l->provider, box_id, l->description, node });
}

int carrier_list(struct op *op, struct runtime *rt, const struct place *place,
                 const char *description, kind_found_fn fn, void *ctx, struct err *err)
{
        const struct secret_context context = { .for_cleanup = true };
        struct lane_name lane = lane_name(place->company_id, place->environment_id);
        struct listing l = { place->driver, description, fn, ctx };
        CLEAN(carrier_putp) struct carrier *c = NULL;
        struct ssh_hello hello = { 0 };
        int r = carrier_of(rt, place, &c, err);

        if (r >= 0 && !pool_take_seat(op, LANE_PEERS, &lane))
                r = err_set(err, ERR_BUSY, "Too many wait for the %s already.", c->type->what);
        if (r >= 0)
                r = carrier_open(op, c, &context, &hello, err);
        bool plain = hello.state == HELLO_PLAIN; /* it runs no boxes */
        ssh_hello_done(&hello);
        return r < 0 || plain ? r
                              : mux_list_wait(op, rt->mail, find_mux, rt->carriers, c->key,
                                              found_box, &l, err);
}

const struct box_route carrier_route = {
        .connect = route_connect,
        .ensure = route_ensure,
        .is_alive = route_is_alive,
        .bury = route_bury,
};
