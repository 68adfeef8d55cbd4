/* Connections that the host makes to a service of the box (section 7 of the protocol): each is
 * served by a process of its own, over a pair of sockets whose other end is a connection of the
 * tunnel like any other.
 *
 * The process has the rights of a command, no more, so that what it reads (a tree that the work
 * wrote) cannot reach the box through it. It is killed when its connection goes, whichever way. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "berth-box/tunnel.h"

static struct tunnel_conn *free_conn(struct box_tunnel *t)
{
        struct tunnel_conn *found = NULL;
        int workers = 0;

        for (int i = 0; i < TUNNEL_MAX_CONNS; i++) {
                struct tunnel_conn *k = &t->conns[i];

                if (k->worker) /* also one that was killed and is not reaped */
                        workers++;
                else if (k->state == TUNNEL_FREE && !found)
                        found = k;
        }
        return workers < TUNNEL_MAX_WORKERS ? found : NULL;
}

static void refuse_connect(struct conn *c, const struct tunnel_frame *f, uint8_t reason)
{
        struct tunnel_frame no = { .type = FRAME_RESET, .channel = f->channel, .reason = reason };

        tunnel_frame_write(&c->out, &no);
}

/* Our end of a pair whose other end has a worker; -1 when there is none. */
static int start_worker(struct box *b, pid_t *ret_pid)
{
        CLEAN(cleanup_fd) int ours = -1, theirs = -1;
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return -1;
        ours = pair[0];
        theirs = pair[1];
        if (fcntl(ours, F_SETFL, O_NONBLOCK) < 0)
                return -1;
        *ret_pid = child_serve_files(b, theirs);
        return *ret_pid > 0 ? take_fd(&ours) : -1;
}

void service_connect(struct box *b, struct conn *c, const struct tunnel_frame *f)
{
        struct tunnel_frame yes = { .type = FRAME_ACCEPT,
                                    .channel = f->channel,
                                    .limit = TUNNEL_RING };
        struct tunnel_conn *k = free_conn(b->tunnel);
        pid_t worker;

        if (f->kind != TUNNEL_FILES || b->stopping) {
                refuse_connect(c, f, TUNNEL_RESET_REFUSED);
                return;
        }
        int fd = k ? start_worker(b, &worker) : -1;
        if (fd < 0) {
                refuse_connect(c, f, TUNNEL_RESET_LIMIT);
                return;
        }
        *k = (struct tunnel_conn){ .state = TUNNEL_OPEN,
                                   .fd = fd,
                                   .listener = &b->tunnel->services,
                                   .channel = f->channel,
                                   .worker = worker,
                                   .send_limit = f->limit,
                                   .told_limit = TUNNEL_RING };
        b->tunnel->n_conns++;
        if (box_watch(b, fd, EPOLLIN | EPOLLOUT | EPOLLRDHUP | EPOLLET, EV_TUNNEL,
                      (int)(k - b->tunnel->conns)) < 0) {
                tunnel_release(b, k);
                refuse_connect(c, f, TUNNEL_RESET_LIMIT);
                return;
        }
        tunnel_frame_write(&c->out, &yes);
}

/* It is a child that was not reaped, so the number is still its own. */
void service_end(struct tunnel_conn *k)
{
        if (k->worker)
                (void)kill(k->worker, SIGKILL);
}

bool service_is_worker(const struct box *b, pid_t pid)
{
        for (int i = 0; b->tunnel && i < TUNNEL_MAX_CONNS; i++)
                if (b->tunnel->conns[i].worker == pid)
                        return true;
        return false;
}

size_t service_count(const struct box *b)
{
        size_t n = 0;

        for (int i = 0; b->tunnel && i < TUNNEL_MAX_CONNS; i++)
                n += b->tunnel->conns[i].worker != 0;
        return n;
}

void service_reaped(struct box *b, pid_t pid)
{
        for (int i = 0; b->tunnel && i < TUNNEL_MAX_CONNS; i++)
                if (b->tunnel->conns[i].worker == pid)
                        b->tunnel->conns[i].worker = 0;
}
