/* The test routes: boxes of this machine behind a socket or a relay of the test. */
#include "core/exec/box_route_test.h"

#ifdef BERTH_FAULTS
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"
#include "box/mux.h"
#include "core/exec/exec_internal.h"

static const char *relay_path(void)
{
        return getenv("BERTH_TEST_BOX_RELAY");
}

static int reach_relay(int *ret_fd, struct err *err)
{
        CLEAN(cleanup_fd) int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_un address = { .sun_family = AF_UNIX };

        snprintf(address.sun_path, sizeof(address.sun_path), "%s", relay_path());
        if (fd < 0 || connect(fd, (struct sockaddr *)&address, sizeof(address)) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "the way to the box is down");
        *ret_fd = take_fd(&fd);
        return 0;
}

static int connect_there(struct runtime *rt, const struct place *place, int *ret_fd,
                         struct err *err)
{
        CLEAN(cleanup_free) char *dir = box_dir(rt->hub, place->id);
        CLEAN(cleanup_free) char *line = xasprintf("%s\n", dir);
        CLEAN(cleanup_fd) int fd = -1;
        int r = reach_relay(&fd, err);

        if (r >= 0)
                r = fd_write_all(fd, line, strlen(line), err);
        if (r >= 0)
                *ret_fd = take_fd(&fd);
        return r;
}

static int check_way(struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;

        return reach_relay(&fd, err);
}

static int ensure_there(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err)
{
        int r = check_way(err);

        return r < 0 ? r : box_route_untested.ensure(op, rt, place, err);
}

static int is_alive_there(struct op *op, struct runtime *rt, const struct place *place,
                          struct err *err)
{
        int r = check_way(err);

        return r < 0 ? r : box_route_untested.is_alive(op, rt, place, err);
}

static int bury_there(struct op *op, struct runtime *rt, const struct place *place,
                      const char *const *exec_ids, struct err *err)
{
        int r = check_way(err);

        return r < 0 ? r : box_route_untested.bury(op, rt, place, exec_ids, err);
}

static const struct box_route there = {
        .connect = connect_there,
        .ensure = ensure_there,
        .is_alive = is_alive_there,
        .bury = bury_there,
};

/* Over a relay. Loop thread, but for asking. */

static struct mux *the_mux;

static void on_mux_closed(void *ctx, const char *why, bool is_breach)
{
        the_mux = NULL;
}

static int open_mux(struct runtime *rt, struct err *err)
{
        static const struct mux_events events = { .on_closed = on_mux_closed };
        int fd, r = the_mux ? 0 : reach_relay(&fd, err);

        if (r < 0 || the_mux)
                return r;
        (void)!write(fd, "\n", 1);
        return mux_open(rt->hub->config.loop, fd, fd, &events, NULL, &the_mux, err);
}

static int connect_mux(struct runtime *rt, const struct place *place, int *ret_fd, struct err *err)
{
        int r = open_mux(rt, err);

        return r < 0 ? r : mux_connect(the_mux, place->id, ret_fd, err);
}

static struct mux *find_mux(void *owner, const char *key)
{
        return open_mux(owner, NULL) < 0 ? NULL : the_mux;
}

static int ask_mux(struct op *op, struct runtime *rt, const struct place *place, enum mux_want want,
                   const char *const *exec_ids, struct err *err)
{
        return mux_ask_wait(op, rt->mail, find_mux, rt, "", want, place->id, exec_ids, err);
}

static int ensure_mux(struct op *op, struct runtime *rt, const struct place *place, struct err *err)
{
        return ask_mux(op, rt, place, MUX_ENSURE, NULL, err);
}

static int is_alive_mux(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err)
{
        return ask_mux(op, rt, place, MUX_ALIVE, NULL, err);
}

static int bury_mux(struct op *op, struct runtime *rt, const struct place *place,
                    const char *const *exec_ids, struct err *err)
{
        return ask_mux(op, rt, place, MUX_BURY, exec_ids, err);
}

static const struct box_route over_mux = {
        .connect = connect_mux,
        .ensure = ensure_mux,
        .is_alive = is_alive_mux,
        .bury = bury_mux,
};

void box_route_test_done(void)
{
        mux_close(take_ptr(&the_mux));
}

const struct box_route *box_route_tested(const struct box_route *here)
{
        if (!relay_path())
                return here;
        return getenv("BERTH_TEST_BOX_MUX") ? &over_mux : &there;
}
#endif
