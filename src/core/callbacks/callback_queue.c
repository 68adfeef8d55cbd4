/* The thread of a file queue: turn by turn, one request at a time, in the order of their names.
 *
 * A request passes through the channel over a pair of sockets, of which the server has one end, so
 * it meets the same checks as one from a tunnel. It is handled once: its answer is kept until a
 * command has written it into the place, however often that has to be tried. */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/access/access.h"
#include "core/callbacks/callback_files.h"
#include "core/callbacks/callback_internal.h"
#include "net/http_server.h"

#define ROUNDS      20 /* tenths of a second that a turn waits */
#define SLICE_MS    100
#define PAUSE_MS    200 /* after a turn that failed, and then twice as long */
#define PAUSE_MAX   5000
#define STOP_MS     15000
#define LEFT_MAX    1000 /* requests that are told that it is over */
#define REPLY_EXTRA ((size_t)64 << 10)

struct callback_queue {
        struct runtime *rt;
        char run_id[UUID_LEN + 1], lease_id[UUID_LEN + 1];
        char adapter_type[JWT_ADAPTER_MAX + 1];
        char token[CHANNEL_TOKEN_LEN + 1];
        uintptr_t number;
        pthread_t thread;
        bool runs;
        struct op_cancel cancel;
        _Atomic int64_t close_by; /* 0: go on */
        struct letter letter;
        void (*over)(void *ctx);
        void *ctx;
        /* the thread's own */
        struct buf answer; /* to be put */
        char answer_id[UUID_LEN + 1];
        bool has_answer, told_gateway;
        unsigned failures, left;
};

static bool is_closing(struct callback_queue *q)
{
        return atomic_load(&q->close_by) != 0;
}

static bool is_late(struct callback_queue *q)
{
        int64_t by = atomic_load(&q->close_by);

        return by != 0 && clock_mono_ms() >= by;
}

/* Through the channel */

struct serve_letter {
        struct letter letter;
        struct runtime *rt;
        uintptr_t number;
        int fd;
};

static void serve_on_loop(struct letter *letter)
{
        struct serve_letter *l = container_of(letter, struct serve_letter, letter);

        callback_serve(l->rt->callbacks, l->fd, l->number);
        free(l);
}

static int connect_channel(struct callback_queue *q, int *ret_fd, struct err *err)
{
        struct serve_letter *l;
        int pair[2];

        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) < 0)
                return err_sys(err, ERR_BUSY, errno, "connect to the API");
        l = xcalloc(1, sizeof(*l));
        l->rt = q->rt;
        l->number = q->number;
        l->fd = pair[1];
        *ret_fd = pair[0];
        mail_post(q->rt->mail, &l->letter, serve_on_loop);
        return 0;
}

/* 1 when fd is ready. */
static int await_socket(struct callback_queue *q, const struct op *op, int fd, short events,
                        struct err *err)
{
        int r;

        do {
                if (is_late(q))
                        return err_set(err, ERR_BUSY, QUEUE_STOPPED);
                r = op_wait_fd(op, fd, events, SLICE_MS, err);
        } while (r == 0);
        return r;
}

static int send_all(struct callback_queue *q, const struct op *op, int fd, const struct buf *bytes,
                    struct err *err)
{
        size_t at = 0;

        while (at < bytes->len) {
                ssize_t n = send(fd, bytes->data + at, bytes->len - at, MSG_NOSIGNAL);
                int r;

                if (n > 0) {
                        at += (size_t)n;
                        continue;
                }
                if (n < 0 && errno != EAGAIN && errno != EINTR)
                        return 0; /* refused before it was read: there is an answer */
                r = await_socket(q, op, fd, POLLOUT, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

static int read_all(struct callback_queue *q, const struct op *op, int fd, struct buf *ret,
                    struct err *err)
{
        for (;;) {
                char *at = buf_reserve(ret, 65536);
                ssize_t n;
                int r;

                if (!at)
                        return err_set(err, ERR_PROVIDER, "The answer of the API is too large.");
                n = recv(fd, at, 65536, 0);
                if (n > 0) {
                        buf_grew(ret, (size_t)n);
                        continue;
                }
                if (n == 0 || (errno != EAGAIN && errno != EINTR))
                        return 0;
                r = await_socket(q, op, fd, POLLIN, err);
                if (r < 0)
                        return r;
        }
}

static int put_through(struct callback_queue *q, const struct op *op, const struct queue_turn *turn,
                       struct err *err)
{
        CLEAN(buf_wipe) struct buf request = BUF_INIT;
        CLEAN(buf_done) struct buf reply = { .max = CALLBACK_BODY_MAX + 2 * REPLY_EXTRA };
        CLEAN(cleanup_fd) int fd = -1;
        int r = queue_request_bytes(turn->ret_text ? turn->ret_text : "", turn->ret_len, q->token,
                                    &request, err);

        if (r >= 0)
                r = connect_channel(q, &fd, err);
        if (r >= 0)
                r = send_all(q, op, fd, &request, err);
        if (r >= 0)
                r = read_all(q, op, fd, &reply, err);
        return r < 0 ? r
                     : queue_answer_text(q->answer_id, buf_str(&reply), reply.len, &q->answer, err);
}

static void handle_request(struct callback_queue *q, const struct op *op,
                           const struct queue_turn *turn)
{
        CLEAN(err_done) struct err err = { 0 };
        int r;

        memcpy(q->answer_id, turn->ret_id, UUID_LEN + 1);
        buf_clear(&q->answer);
        if (is_late(q)) {
                q->left++;
                queue_error_text(q->answer_id, 503, QUEUE_STOPPED, &q->answer);
        } else {
                r = put_through(q, op, turn, &err);
                if (r < 0)
                        queue_error_text(q->answer_id,
                                         r == ERR_INVALID ? 400
                                         : r == ERR_BUSY  ? 503
                                                          : 502,
                                         err.msg, &q->answer);
        }
        q->has_answer = true;
}

/* Turns */

/* Read the lease as it is now; ERR_NOT_FOUND when it is over. */
static int load_lease(struct callback_queue *q, struct op *op, struct lease_record *record,
                      struct plugin_lease *l, struct queue_paths *paths, struct err *err)
{
        int r = lease_load(op, q->rt, q->lease_id, record, err);

        if (r >= 0 && !lease_is_living(&record->lease))
                r = err_set(err, ERR_NOT_FOUND, "The lease has ended.");
        if (r >= 0)
                r = plugin_lease_load(op, q->rt, &record->lease, l, err);
        return r < 0 ? r : queue_paths_of(op, l, q->adapter_type, q->run_id, paths, err);
}

/* 1: go on; 0: it is over. */
static int take_turn(struct callback_queue *q, struct op *op, struct err *err)
{
        struct queue_turn turn = { .rounds = is_closing(q) ? 0 : ROUNDS };
        struct lease_record record;
        struct plugin_lease l;
        struct queue_paths paths;
        int r = load_lease(q, op, &record, &l, &paths, err);

        if (r < 0)
                return r;
        if (is_closing(q) && !q->told_gateway) {
                q->told_gateway = true;
                (void)queue_refuse_new(op, q->rt, &l, &paths, NULL);
        }
        if (q->has_answer) {
                turn.id = q->answer_id;
                turn.answer = buf_str(&q->answer);
                turn.is_forced = is_late(q);
                turn.rounds = 0; /* the same program asks soon, but others may be waiting */
        }
        r = queue_take_turn(op, q->rt, &l, &paths, &turn, err);
        if (r < 0)
                return r;
        q->has_answer = false;
        q->failures = 0;
        if (turn.ret_id)
                handle_request(q, op, &turn);
        else if (is_closing(q))
                return 0;
        return q->left < LEFT_MAX;
}

/* Once the queue is closed, failed turns are repeated only for a limited time. */
static bool go_on_after(struct callback_queue *q, const struct op *op, int r, const struct err *err)
{
        if (q->failures++ == 0 && r != ERR_CANCELLED && !is_closing(q))
                log_warn("Sandbox callback bridge worker failed; trying again",
                         LOG_S("run", q->run_id), LOG_S("error", err->msg));
        if (r == ERR_CANCELLED || r == ERR_NOT_FOUND || is_late(q))
                return false;
        (void)op_wait_fd(op, -1, 0, MIN(PAUSE_MS << MIN(q->failures, 8U), PAUSE_MAX), NULL);
        return true;
}

static bool one_turn(struct callback_queue *q)
{
        CLEAN(err_done) struct err err = { 0 };
        struct arena arena;
        struct op op = { .arena = &arena,
                         .deadline_ms = OP_NO_DEADLINE,
                         .cancel = &q->cancel,
                         .actor = &actor_system };

        arena_init(&arena);
        int r = take_turn(q, &op, &err);
        bool more = r < 0 ? go_on_after(q, &op, r, &err) : r > 0;
        arena_done(&arena);
        return more;
}

static void stop_gateway(struct callback_queue *q)
{
        struct arena arena;
        struct op op = { .arena = &arena,
                         .deadline_ms = clock_mono_ms() + STOP_MS,
                         .cancel = &q->cancel,
                         .actor = &actor_system };
        struct lease_record record;
        struct plugin_lease l;
        struct queue_paths paths;

        arena_init(&arena);
        if (load_lease(q, &op, &record, &l, &paths, NULL) >= 0)
                (void)queue_stop(&op, q->rt, &l, &paths, NULL);
        arena_done(&arena);
}

static void over_on_loop(struct letter *letter)
{
        struct callback_queue *q = container_of(letter, struct callback_queue, letter);

        q->over(q->ctx);
}

static void *queue_work(void *arg)
{
        struct callback_queue *q = arg;

        while (one_turn(q))
                ;
        if (is_closing(q) && !atomic_load(&q->cancel.set))
                stop_gateway(q);
        mail_post(q->rt->mail, &q->letter, over_on_loop);
        return NULL;
}

/* Life */

struct callback_queue *queue_new(struct runtime *rt, const char *run_id, const char *lease_id,
                                 const char *adapter_type)
{
        struct callback_queue *q = xcalloc(1, sizeof(*q));

        q->rt = rt;
        q->cancel.fd = -1;
        snprintf(q->run_id, sizeof(q->run_id), "%s", run_id);
        snprintf(q->lease_id, sizeof(q->lease_id), "%s", lease_id);
        snprintf(q->adapter_type, sizeof(q->adapter_type), "%s", adapter_type);
        run_channel_token(rt, run_id, q->token);
        return q;
}

int queue_run(struct callback_queue *q, uintptr_t number, void (*over)(void *ctx), void *ctx,
              struct err *err)
{
        int r = op_cancel_init(&q->cancel, err);

        if (r < 0)
                return r;
        q->number = number;
        q->over = over;
        q->ctx = ctx;
        r = pthread_create(&q->thread, NULL, queue_work, q);
        if (r != 0)
                return err_sys(err, ERR_BUSY, r, "start a thread");
        q->runs = true;
        return 0;
}

void queue_close(struct callback_queue *q)
{
        int64_t none = 0;

        atomic_compare_exchange_strong(&q->close_by, &none, clock_mono_ms() + QUEUE_DRAIN_MS);
}

void queue_abandon(struct callback_queue *q)
{
        if (!q->runs)
                return;
        op_cancel_set(&q->cancel);
        pthread_join(q->thread, NULL);
        q->runs = false;
}

void queue_free(struct callback_queue *q)
{
        if (!q)
                return;
        if (q->runs)
                pthread_join(q->thread, NULL);
        if (q->cancel.fd >= 0)
                op_cancel_done(&q->cancel);
        buf_done(&q->answer);
        explicit_bzero(q->token, sizeof(q->token));
        free(q);
}
