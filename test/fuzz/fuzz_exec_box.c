/* A hostile box against everything of the host that acts on its frames: the hub with its executions
 * (core/exec), the link and the tunnel, on a real loop with a real pool. Only the store is none,
 * and the box is a socket pair.
 *
 * The input is a sequence of steps. The first byte says whether the box shares our files (bit 0)
 * and whether executions take input (bit 1). Then each step begins with a byte:
 *
 *   0 to 239   a frame of that type: u8 channel (bit 7: one of the host's connections), u8 length,
 *              so many bytes of payload; a length of 255 is a payload of 60000 zeros
 *   240        another execution          241  input for the last one
 *   242        the box closes the link    243  the host reaches for the box again
 *   244        the host tells it to stop  245  a stream to its file worker
 *   246        the loop and the pool settle: ends are recorded, executions let go
 *   others     a good WELCOME
 *
 * Whatever comes: no execution ends twice, its numbers stay within bounds, a breach of the protocol
 * ends no execution, and nothing is left in the end. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/peer_state.h"
#include "core/exec/exec_internal.h"
#include "core/kinds/kind.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_EXECS 6
#define PLACE     "0a000000-0000-4000-8000-000000000001"

static struct world {
        uv_loop_t loop;
        struct runtime rt;
        struct pool *pool;
        struct mail *mail;
        struct exec_hub *hub;
        struct box *box;
        char dir[64];
        int far; /* the box's end of the link; -1: none */
        bool takes_input;
        struct tunnel_listener listener;
        struct byte_stream *streams[8];
        size_t n_streams;
        struct watched {
                struct exec_watch watch;
                unsigned ends;
        } execs[MAX_EXECS];
        unsigned n_execs;
} w;

static void check(bool ok, const char *what)
{
        if (!ok) {
                fprintf(stderr, "violated: %s\n", what);
                abort();
        }
}

/* The world around the hub */

static int store_nothing(const struct op *op, struct store *s, store_fn fn, void *arg,
                         struct err *err)
{
        return 0;
}

/* Tables without rows. */
static int find_nothing(struct db *db, const struct row_type *type, const char *sql,
                        const struct db_arg *args, size_t n_args, struct stmt **ret,
                        struct err *err)
{
        static struct stmt nothing;

        nothing.ops = db->ops;
        *ret = &nothing;
        return 0;
}

static int no_row(struct stmt *s, struct err *err)
{
        return 0;
}

static void end_nothing(struct stmt *s)
{
}

static int read_nothing(const struct op *op, struct store *s, struct db **ret, struct err *err)
{
        static const struct db_ops nothing = { .query = find_nothing,
                                               .step = no_row,
                                               .end = end_nothing };
        static struct db db = { .ops = &nothing };

        db.reads = s;
        *ret = &db;
        return 0;
}

static void read_nothing_end(struct store *s, struct db *db)
{
}

static int connect_pair(struct runtime *rt, const struct place *place, int *ret_fd, struct err *err)
{
        int fds[2];

        if (w.far >= 0)
                close(w.far);
        w.far = -1;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "socketpair");
        w.far = fds[1];
        *ret_fd = fds[0];
        return 0;
}

static int lives(struct op *op, struct runtime *rt, const struct place *place, struct err *err)
{
        return 1;
}

static int ensured(struct op *op, struct runtime *rt, const struct place *place, struct err *err)
{
        return 0;
}

static int buried(struct op *op, struct runtime *rt, const struct place *place,
                  const char *const *exec_ids, struct err *err)
{
        check(false, "a box that lives is not buried");
        return 0;
}

static const struct box_route route_there = {
        .connect = connect_pair, .ensure = ensured, .is_alive = lives, .bury = buried
};
static const struct box_route route_here = { .is_here = true,
                                             .connect = connect_pair,
                                             .ensure = ensured,
                                             .is_alive = lives,
                                             .bury = buried };
static const struct box_route *route;

static const struct box_route *the_route(const struct place *place)
{
        return route;
}

static void on_stream_ready(void *ctx, int events)
{
        struct byte_stream **s = ctx;
        char bytes[1000];
        ssize_t n = 0;

        while (!(events & STREAM_BROKEN) && (n = stream_read(*s, bytes, sizeof(bytes))) > 0)
                (void)stream_write(*s, bytes, (size_t)n);
        if (n == 0 || events & STREAM_BROKEN) {
                stream_close(*s, NULL, NULL);
                *s = NULL;
        }
}

/* Echoed, up to eight at a time. */
static void keep_stream(struct byte_stream *stream)
{
        struct byte_stream **s = &w.streams[w.n_streams++ % ARRAY_LEN(w.streams)];

        if (*s)
                stream_close(*s, NULL, NULL);
        *s = stream;
        stream_on_ready(stream, on_stream_ready, s);
        stream_watch(stream, STREAM_READABLE);
}

static void on_stream(struct tunnel_listener *l, struct byte_stream *take_stream)
{
        keep_stream(take_stream);
}

/* Executions */

static void on_change(struct exec_watch *watch, const struct exec_view *view)
{
        struct watched *e = container_of(watch, struct watched, watch);

        check(e->ends == 0, "nothing is told after the end");
        check(view->pid >= 0 && view->started_at >= 0 && view->started_at <= clock_wall_us() &&
                      view->stdout_len <= PEER_MAX_LENGTH && view->stderr_len <= PEER_MAX_LENGTH,
              "numbers within bounds");
        e->ends += view->ended;
}

/* Ids that a corpus can name: sixteen times the same byte, 1 and up. */
static void exec_id(unsigned n, char ret[UUID_LEN + 1])
{
        uint8_t id[FRAME_UUID];

        memset(id, (int)n + 1, sizeof(id));
        frame_uuid_text(id, ret);
}

static void remove_output(unsigned n)
{
        static const char *const names[] = { "stdout", "stderr", "exit" };
        char id[UUID_LEN + 1], path[256];

        exec_id(n, id);
        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                snprintf(path, sizeof(path), "%s/output/%s/%s", w.dir, id, names[i]);
                (void)unlink(path);
        }
}

static void start_another(void)
{
        static const char *const none[] = { NULL };
        struct watched *k = &w.execs[w.n_execs];
        char id[UUID_LEN + 1], path[256];
        struct exec *e;

        if (w.n_execs == MAX_EXECS || w.box->job_running)
                return;
        exec_id(w.n_execs, id);
        remove_output(w.n_execs);
        snprintf(path, sizeof(path), "%s/output/%s", w.dir, id);
        (void)mkdir(path, 0700);
        intended_add(w.hub, id);
        e = exec_add(w.hub, id);
        e->start = xcalloc(1, sizeof(*e->start));
        *e->start = (struct box_start){ .flags = (route->is_here ? BOX_START_SHARED : 0) |
                                                 (w.takes_input ? BOX_START_STDIN : 0),
                                        .cwd = "",
                                        .spool_dir = "",
                                        .command = "x",
                                        .args = none,
                                        .env = none };
        memcpy(e->start->id, e->id, FRAME_UUID);
        e->takes_stdin = w.takes_input;
        k->watch.changed = on_change;
        check(exec_watch_add(w.hub, id, &k->watch), "it is open");
        exec_join_box(e, w.box);
        exec_submit(e);
        w.n_execs++;
}

static void give_input(void)
{
        char id[UUID_LEN + 1];

        if (w.n_execs == 0)
                return;
        exec_id(w.n_execs - 1, id);
        (void)exec_stdin(w.hub, id, &(struct stdin_piece){ "input", 5, false, -1 }, NULL, NULL,
                         NULL);
}

/* Steps */

static void turn(void)
{
        static char sink[65536];

        for (int i = 0; i < 3; i++) {
                (void)uv_run(&w.loop, UV_RUN_NOWAIT);
                while (w.far >= 0 && recv(w.far, sink, sizeof(sink), MSG_DONTWAIT) > 0)
                        ;
        }
}

static void settle(void)
{
        while (!pool_idle(w.pool)) {
                (void)uv_run(&w.loop, UV_RUN_ONCE);
                turn();
        }
        turn();
}

static void say_bytes(const struct buf *b)
{
        for (size_t at = 0; at < b->len && w.far >= 0;) {
                ssize_t n = send(w.far, b->data + at, b->len - at, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n > 0)
                        at += (size_t)n;
                else if (n < 0 && errno != EAGAIN)
                        return;
                turn();
        }
}

static void say(uint8_t type, uint32_t channel, const void *payload, size_t len)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct frame_out f;

        frame_begin(&f, &b, (enum frame_type)type, channel);
        frame_put_blob(&f, payload, len);
        frame_end(&f);
        say_bytes(&b);
}

static void say_welcome(void)
{
        static const uint8_t good[] = { 0, 1, 0, 0, 0, 31, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,
                                        1, 1, 0, 0, 0, 7,  3, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0 };

        say(FRAME_WELCOME, 0, good, sizeof(good));
}

static size_t say_frame(const uint8_t *p, size_t left)
{
        static const uint8_t zeros[60000];
        uint32_t channel;
        size_t len;

        if (left < 3)
                return left;
        channel = p[1] & 0x80 ? TUNNEL_FROM_HOST | (p[1] & 0x7f) : p[1];
        if (p[2] == 255) {
                say(p[0], channel, zeros, sizeof(zeros));
                return 3;
        }
        len = MIN((size_t)p[2], left - 3);
        say(p[0], channel, p + 3, len);
        return 3 + len;
}

static size_t step(const uint8_t *p, size_t left)
{
        struct byte_stream *s;

        switch (p[0]) {
        case 240:
                start_another();
                break;
        case 241:
                give_input();
                break;
        case 242:
                if (w.far >= 0)
                        (void)shutdown(w.far, SHUT_RDWR);
                break;
        case 243:
                settle();
                box_reach(w.box);
                break;
        case 244:
                if (w.box->phase == BOX_READY && !w.box->listing)
                        box_link_stop(w.box->link, STOP_GRACE_MS);
                break;
        case 245:
                s = w.box->has_tunnel ? tunnel_connect(w.box->tunnel, TUNNEL_FILES) : NULL;
                if (s)
                        keep_stream(s);
                break;
        case 246:
                settle();
                break;
        default:
                if (p[0] < 240)
                        return say_frame(p, left);
                say_welcome();
        }
        turn();
        return 1;
}

/* Life */

static void begin(uint8_t how)
{
        static const struct store_ops ops = { .read_begin = read_nothing,
                                              .read_end = read_nothing_end,
                                              .write = store_nothing };
        static struct store store = { .ops = &ops };
        static const struct kind kind = { .driver = "fuzz", .route = the_route };
        static const struct kind *const kinds[] = { &kind, NULL };
        const struct place place = { .id = PLACE, .driver = "fuzz", .epoch = 1 };

        if (!w.dir[0]) {
                snprintf(w.dir, sizeof(w.dir), "/tmp/fuzz-exec-XXXXXX");
                check(mkdtemp(w.dir), "a directory");
                log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
        }
        w.far = -1;
        w.n_execs = 0;
        w.n_streams = 0;
        memset(w.execs, 0, sizeof(w.execs));
        memset(w.streams, 0, sizeof(w.streams));
        w.rt = (struct runtime){ .store = &store, .kinds = kinds };
        memcpy(w.rt.node.id.s, PLACE, UUID_LEN + 1);
        route = how & 1 ? &route_here : &route_there;
        w.takes_input = how & 2;
        check(uv_loop_init(&w.loop) == 0 && pool_new(&w.loop, 2, 16, &w.pool, NULL) >= 0 &&
                      mail_new(&w.loop, &w.mail, NULL) >= 0,
              "a loop, a pool and mail");
        check(exec_hub_new(&(struct exec_hub_config){ .loop = &w.loop,
                                                      .mail = w.mail,
                                                      .pool = w.pool,
                                                      .rt = &w.rt,
                                                      .data_dir = w.dir },
                           &w.hub, NULL) >= 0,
              "a hub");
        w.box = box_add(w.hub, kept_place_new(&place));
        w.listener = (struct tunnel_listener){ .kind = TUNNEL_PROXY, .on_stream = on_stream };
        memset(w.listener.id, 9, FRAME_UUID);
        check(box_tunnel(w.box), "a tunnel");
        tunnel_listen(w.box->tunnel, &w.listener);
        box_reach(w.box);
}

static void finish(void)
{
        /* What ended did so by a word of the box; what did not is still open: nobody took a breach,
         * or the end of a link, for the end of a command. */
        settle();
        for (unsigned i = 0; i < w.n_execs; i++) {
                char id[UUID_LEN + 1];

                exec_id(i, id);
                check(w.execs[i].ends <= 1, "it ends once");
                check((exec_find(w.hub, id) != NULL) == (w.execs[i].ends == 0), "open or ended");
        }
        for (size_t i = 0; i < ARRAY_LEN(w.streams); i++)
                if (w.streams[i])
                        stream_close(w.streams[i], NULL, NULL);
        tunnel_forget(w.box->tunnel, &w.listener);
        pool_drain(w.pool, true);
        while (!pool_idle(w.pool))
                (void)uv_run(&w.loop, UV_RUN_ONCE);
        exec_hub_free(w.hub);
        mail_free(w.mail);
        pool_free(w.pool);
        (void)uv_run(&w.loop, UV_RUN_DEFAULT);
        check(uv_loop_close(&w.loop) == 0, "nothing is left on the loop");
        if (w.far >= 0)
                close(w.far);
        for (unsigned i = 0; i < w.n_execs; i++)
                remove_output(i);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        size_t at = 1;

        if (size < 2 || size > 4096)
                return 0;
        begin(data[0]);
        while (at < size)
                at += step(data + at, size - at);
        finish();
        return 0;
}
