#include "core/box_route_test.h"

#ifdef BERTH_FAULTS
#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"
#include "core/exec_internal.h"

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

        return r < 0 ? r : box_route_here.ensure(op, rt, place, err);
}

static int is_alive_there(struct op *op, struct runtime *rt, const struct place *place,
                          struct err *err)
{
        int r = check_way(err);

        return r < 0 ? r : box_route_here.is_alive(op, rt, place, err);
}

static int bury_there(struct op *op, struct runtime *rt, const struct place *place,
                      const char *const *exec_ids, struct err *err)
{
        int r = check_way(err);

        return r < 0 ? r : box_route_here.bury(op, rt, place, exec_ids, err);
}

static const struct box_route there = {
        .connect = connect_there,
        .ensure = ensure_there,
        .is_alive = is_alive_there,
        .bury = bury_there,
};

const struct box_route *box_route_tested(const struct box_route *here)
{
        return relay_path() ? &there : here;
}
#endif
