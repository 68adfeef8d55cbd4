/* Boxes on ssh hosts, by way of the connection of their environment (ssh_conn.h). */
#include "core/kinds/ssh/ssh_conn.h"

static int route_connect(struct runtime *rt, const struct place *place, int *ret_fd,
                         struct err *err)
{
        struct ssh_conn *c;
        int r = ssh_conn_of(rt->ssh, place, &c, err);

        if (r < 0)
                return r;
        ssh_conn_use(c, place);
        struct mux *mux = ssh_carrier_mux(c);
        if (!mux)
                return err_set(err, ERR_UNREACHABLE, "no connection to the ssh host");
        return mux_connect(mux, place->id, ret_fd, err);
}

/* Loop thread. */
static struct mux *find_mux(void *owner, const char *key)
{
        struct ssh_conn *c = ssh_conn_find(owner, key);

        return c ? ssh_carrier_mux(c) : NULL;
}

static int ask_host(struct op *op, struct runtime *rt, struct ssh_conn *c, enum mux_want want,
                    const struct place *place, const char *const *exec_ids, struct err *err)
{
        return mux_ask_wait(op, rt->mail, find_mux, rt->ssh, c->key, want, place->id, exec_ids,
                            err);
}

static int route_ensure(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err)
{
        /* The lease goes on as it began, whatever became of its environment. */
        const struct secret_context context = { .for_cleanup = true };
        const char *const node[] = { rt->node.id.s, NULL };
        struct ssh_conn *c;
        int r = ssh_conn_of(rt->ssh, place, &c, err);

        if (r >= 0)
                r = ssh_conn_reach(op, c, &context, NULL, err);
        if (r < 0)
                return r;
        ssh_conn_use(c, place);
        return ask_host(op, rt, c, MUX_ENSURE, place, node, err);
}

static int route_is_alive(struct op *op, struct runtime *rt, const struct place *place,
                          struct err *err)
{
        struct ssh_conn *c;
        int r = ssh_conn_of(rt->ssh, place, &c, err);

        return r < 0 ? r : ask_host(op, rt, c, MUX_ALIVE, place, NULL, err);
}

static int route_bury(struct op *op, struct runtime *rt, const struct place *place,
                      const char *const *exec_ids, struct err *err)
{
        const struct secret_context context = { .for_cleanup = true };
        struct ssh_conn *c;
        int r = ssh_conn_of(rt->ssh, place, &c, err);

        if (r >= 0)
                r = ssh_conn_reach(op, c, &context, NULL, err);
        if (r >= 0)
                r = ask_host(op, rt, c, MUX_BURY, place, exec_ids, err);
        if (r >= 0)
                ssh_conn_leave(c, place->id);
        return r;
}

/* Listing */

struct listing {
        kind_found_fn fn;
        void *ctx;
};

static int found_box(void *ctx, const char *box_id, const char *node)
{
        struct listing *l = ctx;

        return l->fn(l->ctx, &(struct kind_thing){ "ssh", box_id,
                                                   "supervisor of commands on an ssh host", node });
}

int ssh_hosts_list(struct op *op, struct runtime *rt, const struct place *place, kind_found_fn fn,
                   void *ctx, struct err *err)
{
        const struct secret_context context = { .for_cleanup = true };
        struct lane_name lane = lane_name(place->company_id, place->environment_id);
        struct listing l = { fn, ctx };
        struct ssh_hello hello = { 0 };
        struct ssh_conn *c;
        int r = ssh_conn_of(rt->ssh, place, &c, err);

        if (r >= 0 && !pool_take_seat(op, LANE_PEERS, &lane))
                r = err_set(err, ERR_BUSY, "Too many wait for the host already.");
        if (r >= 0)
                r = ssh_conn_reach(op, c, &context, &hello, err);
        bool plain = hello.state == HELLO_PLAIN; /* it runs no boxes */
        ssh_hello_done(&hello);
        return r < 0 || plain
                       ? r
                       : mux_list_wait(op, rt->mail, find_mux, rt->ssh, c->key, found_box, &l, err);
}

const struct box_route ssh_route = {
        .connect = route_connect,
        .ensure = route_ensure,
        .is_alive = route_is_alive,
        .bury = route_bury,
};
