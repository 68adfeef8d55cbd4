/* net/sock_owner on real loopback connections. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <linux/filter.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/util.h"
#include "net/sock_owner.h"

struct connection {
        struct sockaddr_in server, client;
        int listener, near, far; /* far: the end whose owner is asked for */
};

static int socket_on(const struct sockaddr_in *address)
{
        static const int on = 1;
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_true(fd >= 0);
        assert_int_equal(setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on)), 0);
        assert_int_equal(bind(fd, (const struct sockaddr *)address, sizeof(*address)), 0);
        return fd;
}

static void find_name(int fd, struct sockaddr_in *ret)
{
        socklen_t len = sizeof(*ret);

        assert_int_equal(getsockname(fd, (struct sockaddr *)ret, &len), 0);
}

static struct connection connection_open(const char *device)
{
        struct sockaddr_in any = { .sin_family = AF_INET,
                                   .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        struct connection c;

        c.listener = socket_on(&any);
        assert_int_equal(listen(c.listener, 4), 0);
        find_name(c.listener, &c.server);
        c.far = socket_on(&any);
        if (device)
                assert_int_equal(setsockopt(c.far, SOL_SOCKET, SO_BINDTODEVICE, device,
                                            (socklen_t)strlen(device)),
                                 0);
        assert_int_equal(connect(c.far, (struct sockaddr *)&c.server, sizeof(c.server)), 0);
        find_name(c.far, &c.client);
        c.near = accept4(c.listener, NULL, NULL, SOCK_CLOEXEC);
        assert_true(c.near >= 0);
        return c;
}

static void connection_close(struct connection *c)
{
        close(c->near);
        close(c->listener);
        if (c->far >= 0)
                close(c->far);
}

static void assert_owner(int netlink, int fd, bool is_known)
{
        uid_t uid = (uid_t)-1;

        assert_int_equal(sock_owner_of_peer(netlink, fd, &uid), is_known);
        if (is_known)
                assert_int_equal(uid, geteuid());
}

static void test_owner_is_found(void **state)
{
        struct connection c = connection_open(NULL);
        int netlink = sock_owner_open();

        assert_owner(netlink, c.near, true);
        assert_int_equal(shutdown(c.far, SHUT_WR), 0); /* it has sent all it had to */
        assert_owner(netlink, c.near, true);
        close(take_fd(&c.far));
        assert_owner(netlink, c.near, false);
        connection_close(&c);
        close(netlink);
}

/* It was found by nobody, and counted as a stranger. */
static void test_owner_of_a_socket_on_the_loopback_device(void **state)
{
        struct connection c = connection_open("lo");
        int netlink = sock_owner_open();

        assert_owner(netlink, c.near, true);
        connection_close(&c);
        close(netlink);
}

/* The peer is gone and our end does not know it: its reset is lost, here in a filter. Whoever gets
 * its port next and connects to ours is not who wrote what we have read. */
static void test_one_who_connects_from_the_same_port(void **state)
{
        static struct sock_filter drop_all[] = { BPF_STMT(BPF_RET | BPF_K, 0) };
        static const struct sock_fprog filter = { .len = 1, .filter = drop_all };
        static const struct linger at_once = { .l_onoff = 1 };
        struct connection c = connection_open(NULL);
        int netlink = sock_owner_open(), other;

        assert_int_equal(setsockopt(c.near, SOL_SOCKET, SO_ATTACH_FILTER, &filter, sizeof(filter)),
                         0);
        assert_int_equal(setsockopt(c.far, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once)), 0);
        close(take_fd(&c.far));
        other = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
        assert_int_equal(bind(other, (struct sockaddr *)&c.client, sizeof(c.client)), 0);
        assert_int_equal(connect(other, (struct sockaddr *)&c.server, sizeof(c.server)), -1);
        assert_int_equal(errno, EINPROGRESS);
        assert_owner(netlink, c.near, false);
        close(other);
        connection_close(&c);
        close(netlink);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_owner_is_found),
                cmocka_unit_test(test_owner_of_a_socket_on_the_loopback_device),
                cmocka_unit_test(test_one_who_connects_from_the_same_port),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
