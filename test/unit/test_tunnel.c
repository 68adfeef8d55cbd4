/* box/tunnel over a real link, with the test in the part of the box: frames written and read by
 * hand. Both share this thread; an alarm ends a test that waits in vain. */
#define _GNU_SOURCE
#include "test.h"

#include <errno.h>
#include <sys/socket.h>

#include "box/tunnel.h"
#include "codec/peer_state.h"
#include "net/http_server.h"

#define WINDOW (256 << 10)

static const uint8_t listener_id[FRAME_UUID] = { 7 };

struct fixture {
        uv_loop_t loop;
        struct box_link *link;
        struct tunnel *tunnel;
        struct tunnel_listener listener;
        int box; /* our end */
        struct buf in;
        bool link_closed;
        char why[256];
        /* what the consumer saw */
        struct byte_stream *stream;
        int n_streams, events, n_closed;
        uint16_t port, code;
};

/* The host */

static void on_welcome(void *ctx, const struct box_welcome *welcome)
{
        struct fixture *f = ctx;

        tunnel_up(f->tunnel, f->link);
}

static int on_tunnel(void *ctx, const struct frame_header *h, struct frame_in *in, struct err *err)
{
        return tunnel_frame_in(((struct fixture *)ctx)->tunnel, h, in, err);
}

static void on_drained(void *ctx)
{
        tunnel_drained(((struct fixture *)ctx)->tunnel);
}

static void on_closed(void *ctx, const char *why, bool is_breach)
{
        struct fixture *f = ctx;

        f->link_closed = true;
        (void)snprintf(f->why, sizeof(f->why), "%s", why);
        tunnel_down(f->tunnel);
}

static const struct box_link_events events = {
        .on_welcome = on_welcome,
        .on_tunnel = on_tunnel,
        .on_drained = on_drained,
        .on_closed = on_closed,
};

static void on_ready(void *ctx, int found)
{
        struct fixture *f = ctx;

        f->events |= found;
        if (f->stream)
                stream_watch(f->stream, 0);
}

static void on_listening(struct tunnel_listener *l, uint16_t port, uint16_t code, const char *text)
{
        struct fixture *f = container_of(l, struct fixture, listener);

        f->port = port;
        f->code = code;
}

static void on_stream(struct tunnel_listener *l, struct byte_stream *stream)
{
        struct fixture *f = container_of(l, struct fixture, listener);

        f->stream = stream;
        f->n_streams++;
        stream_on_ready(stream, on_ready, f);
}

static void note_closed(void *arg)
{
        ((struct fixture *)arg)->n_closed++;
}

/* The box */

static void turn(struct fixture *f)
{
        for (int i = 0; i < 10; i++)
                (void)uv_run(&f->loop, UV_RUN_NOWAIT);
}

static void say_bytes(struct fixture *f, const struct buf *b)
{
        assert_int_equal(send(f->box, b->data, b->len, MSG_NOSIGNAL), b->len);
        turn(f);
}

static void say(struct fixture *f, struct tunnel_frame t)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        if (!t.text.p)
                t.text.p = "";
        tunnel_frame_write(&b, &t);
        say_bytes(f, &b);
}

static void say_data(struct fixture *f, uint32_t channel, uint64_t offset, const char *p,
                     size_t len)
{
        say(f, (struct tunnel_frame){ .type = FRAME_BYTES,
                                      .channel = channel,
                                      .offset = offset,
                                      .data = { p, len } });
}

static void say_open(struct fixture *f, uint32_t channel, uint64_t limit)
{
        struct tunnel_frame t = { .type = FRAME_OPEN, .channel = channel, .limit = limit };

        memcpy(t.id, listener_id, FRAME_UUID);
        say(f, t);
}

static void say_welcome(struct fixture *f)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct frame_out o;

        frame_begin(&o, &b, FRAME_WELCOME, 0);
        frame_put_u16(&o, FRAME_VERSION);
        frame_put_u32(&o, BOX_FEATURE_TUNNEL);
        frame_put_uuid(&o, listener_id);
        frame_put_u32(&o, 1);
        frame_put_u8(&o, BOX_KILL_SUBREAPER);
        frame_put_u64(&o, 1);
        frame_put_u32(&o, 0);
        frame_end(&o);
        say_bytes(f, &b);
}

/* The next frame of the tunnel from the host; its bytes live until the next call. */
static struct tunnel_frame hear(struct fixture *f)
{
        static char kept[FRAME_MAX_PAYLOAD];

        for (;;) {
                struct frame_header h;
                struct tunnel_frame t;
                struct frame_in in;
                char *at;
                ssize_t n;

                if (frame_parse_header(buf_str(&f->in), f->in.len, &h, NULL) == 1 &&
                    f->in.len >= FRAME_HEADER + h.len) {
                        memcpy(kept, f->in.data + FRAME_HEADER, h.len);
                        buf_consume(&f->in, FRAME_HEADER + h.len);
                        if (!frame_is_tunnel(h.type))
                                continue;
                        frame_in_init(&in, kept, h.len);
                        assert_int_equal(tunnel_frame_read(&h, &in, &t, NULL), 0);
                        return t;
                }
                turn(f);
                at = buf_reserve(&f->in, 65536);
                n = recv(f->box, at, 65536, MSG_DONTWAIT);
                if (n > 0)
                        buf_grew(&f->in, (size_t)n);
        }
}

static bool is_silent(struct fixture *f)
{
        char byte;

        turn(f);
        return f->in.len == 0 && recv(f->box, &byte, 1, MSG_PEEK | MSG_DONTWAIT) < 0;
}

/* Fixture */

static void open_link(struct fixture *f)
{
        static const uint8_t node[FRAME_UUID] = { 1 };
        int fds[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        f->box = fds[1];
        f->link_closed = false;
        assert_int_equal(box_link_open(&f->loop, fds[0], node, 1, &events, f, &f->link, NULL), 0);
        say_welcome(f);
}

static int set_up(void **state)
{
        struct fixture *f = xcalloc(1, sizeof(*f));

        alarm(60);
        uv_loop_init(&f->loop);
        assert_int_equal(tunnel_new(&f->loop, &f->tunnel, NULL), 0);
        f->listener = (struct tunnel_listener){ .kind = TUNNEL_CALLBACK,
                                                .port = 99,
                                                .idle_ms = 5,
                                                .on_listening = on_listening,
                                                .on_stream = on_stream };
        memcpy(f->listener.id, listener_id, FRAME_UUID);
        tunnel_listen(f->tunnel, &f->listener);
        open_link(f);
        *state = f;
        return 0;
}

static int tear_down(void **state)
{
        struct fixture *f = *state;

        if (f->stream)
                stream_close(f->stream, NULL, NULL);
        tunnel_free(f->tunnel);
        if (!f->link_closed)
                box_link_close(f->link);
        close(f->box);
        (void)uv_run(&f->loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&f->loop), 0);
        buf_done(&f->in);
        free(f);
        alarm(0);
        return 0;
}

/* A connection that is accepted. */
static void accept_one(struct fixture *f, uint64_t limit)
{
        struct tunnel_frame t;

        assert_int_equal(hear(f).type, FRAME_LISTEN);
        say_open(f, 1, limit);
        t = hear(f);
        assert_int_equal(t.type, FRAME_ACCEPT);
        assert_int_equal(t.channel, 1);
        assert_int_equal(t.limit, WINDOW);
        assert_non_null(f->stream);
}

static void test_listening_is_asked_for_on_each_link(void **state)
{
        struct fixture *f = *state;
        struct tunnel_frame t = hear(f);

        assert_int_equal(t.type, FRAME_LISTEN);
        assert_memory_equal(t.id, listener_id, FRAME_UUID);
        assert_int_equal(t.kind, TUNNEL_CALLBACK);
        assert_int_equal(t.port, 99);
        assert_int_equal(t.idle_ms, 5);
        t = (struct tunnel_frame){ .type = FRAME_LISTENING, .port = 99 };
        memcpy(t.id, listener_id, FRAME_UUID);
        say(f, t);
        assert_int_equal(f->port, 99);
        close(f->box);
        turn(f);
        assert_true(f->link_closed);
        buf_clear(&f->in);
        open_link(f);
        assert_int_equal(hear(f).type, FRAME_LISTEN);
        tunnel_unlisten(f->tunnel, &f->listener);
        assert_int_equal(hear(f).type, FRAME_UNLISTEN);
        say_open(f, 1, 5);
        t = hear(f);
        assert_int_equal(t.type, FRAME_RESET);
        assert_int_equal(t.reason, TUNNEL_RESET_REFUSED);
        assert_int_equal(f->n_streams, 0);
}

static void count(void *arg)
{
        ++*(int *)arg;
}

/* A box may be forgotten while its last request is still being answered. */
static void test_freed_before_its_streams(void **state)
{
        struct fixture *f = *state;
        int n_closed = 0;
        char p[4];

        accept_one(f, 4);
        close(f->box);
        turn(f);
        assert_true(f->link_closed);
        tunnel_free(take_ptr(&f->tunnel));
        turn(f);
        turn(f);
        assert_true(stream_read(f->stream, p, sizeof(p)) < 0);
        stream_close(take_ptr(&f->stream), count, &n_closed);
        (void)uv_run(&f->loop, UV_RUN_DEFAULT);
        assert_int_equal(n_closed, 1);
}

static void test_bytes_both_ways(void **state)
{
        struct fixture *f = *state;
        struct tunnel_frame t;
        char p[16];

        accept_one(f, 4);
        assert_int_equal(stream_read(f->stream, p, sizeof(p)), -EAGAIN);
        assert_false(stream_has_input(f->stream));
        stream_watch(f->stream, STREAM_READABLE);
        turn(f);
        assert_int_equal(f->events, 0);
        say_data(f, 1, 0, "hello", 5);
        assert_int_equal(f->events, STREAM_READABLE);
        assert_true(stream_has_input(f->stream));
        assert_int_equal(stream_read(f->stream, p, 2), 2);
        assert_int_equal(stream_read(f->stream, p + 2, sizeof(p) - 2), 3);
        assert_memory_equal(p, "hello", 5);

        /* Four bytes of credit, then none until there is more. */
        assert_int_equal(stream_write(f->stream, "answer", 6), 4);
        assert_int_equal(stream_write(f->stream, "er", 2), -EAGAIN);
        t = hear(f);
        assert_int_equal(t.type, FRAME_BYTES);
        assert_memory_equal(t.data.p, "answ", 4);
        f->events = 0;
        stream_watch(f->stream, STREAM_WRITABLE);
        turn(f);
        assert_int_equal(f->events, 0);
        say(f, (struct tunnel_frame){ .type = FRAME_WINDOW, .channel = 1, .limit = 100 });
        assert_int_equal(f->events, STREAM_WRITABLE);
        assert_int_equal(stream_write(f->stream, "er", 2), 2);
        t = hear(f);
        assert_int_equal(t.offset, 4);

        /* Ends, then nothing is left to say. */
        stream_end(f->stream);
        t = hear(f);
        assert_int_equal(t.type, FRAME_END);
        assert_int_equal(t.offset, 6);
        assert_int_equal(stream_write(f->stream, "x", 1), -EPIPE);
        say(f, (struct tunnel_frame){ .type = FRAME_END, .channel = 1, .offset = 5 });
        assert_int_equal(stream_read(f->stream, p, sizeof(p)), 0);
        stream_close(take_ptr(&f->stream), note_closed, f);
        assert_int_equal(f->n_closed, 0);
        assert_true(is_silent(f));
        assert_int_equal(f->n_closed, 1);
}

static void test_credit_follows_the_reader(void **state)
{
        struct fixture *f = *state;
        char *block = xcalloc(1, TUNNEL_BYTES_MAX), *all = xcalloc(1, WINDOW);
        struct tunnel_frame t;
        uint64_t at = 0;

        accept_one(f, 0);
        while (at < WINDOW) {
                size_t n = (size_t)MIN((uint64_t)TUNNEL_BYTES_MAX, WINDOW - at);

                say_data(f, 1, at, block, n);
                at += n;
        }
        assert_true(is_silent(f));
        assert_int_equal(stream_read(f->stream, all, WINDOW / 2 - 1), WINDOW / 2 - 1);
        assert_true(is_silent(f));
        assert_int_equal(stream_read(f->stream, all, 1), 1);
        t = hear(f);
        assert_int_equal(t.type, FRAME_WINDOW);
        assert_int_equal(t.limit, WINDOW + WINDOW / 2);
        /* All of it again, and one byte too many. */
        for (; at < t.limit; at += 1024)
                say_data(f, 1, at, block, 1024);
        assert_false(f->link_closed);
        say_data(f, 1, at, block, 1);
        assert_true(f->link_closed);
        assert_non_null(strstr(f->why, "credit"));
        assert_int_equal(f->events, STREAM_BROKEN);
        assert_int_equal(stream_read(f->stream, all, 1), -ECONNRESET);
        free(block);
        free(all);
}

static void test_what_ends_the_link(void **state)
{
        static const struct {
                struct tunnel_frame frame;
                const char *why;
        } table[] = {
                { { .type = FRAME_BYTES, .channel = 1, .offset = 3, .data = { "x", 1 } }, "gap" },
                { { .type = FRAME_END, .channel = 1, .offset = 3 }, "elsewhere" },
                { { .type = FRAME_WINDOW, .channel = 1, .limit = 1 }, "credit back" },
                { { .type = FRAME_BYTES, .channel = 2, .data = { "x", 1 } }, "never offered" },
                { { .type = FRAME_OPEN, .channel = 1 }, "out of order" },
                { { .type = FRAME_OPEN, .channel = 9 }, "out of order" },
                { { .type = FRAME_ACCEPT, .channel = 1, .limit = 9 }, "ACCEPT on a connection" },
                { { .type = FRAME_LISTEN, .kind = TUNNEL_PROXY }, "only a host" },
        };
        struct fixture *f = *state;

        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                accept_one(f, 10);
                say(f, table[i].frame);
                assert_true(f->link_closed);
                if (!strstr(f->why, table[i].why))
                        fail_msg("%s, not %s", f->why, table[i].why);
                stream_close(take_ptr(&f->stream), NULL, NULL);
                turn(f);
                close(f->box);
                buf_clear(&f->in);
                open_link(f);
        }
}

static void test_resets(void **state)
{
        struct fixture *f = *state;
        struct tunnel_frame t;

        accept_one(f, 10);
        say(f, (struct tunnel_frame){ .type = FRAME_RESET, .channel = 1, .reason = 1 });
        assert_int_equal(f->events, STREAM_BROKEN);
        assert_int_equal(stream_write(f->stream, "x", 1), -EPIPE);
        stream_close(take_ptr(&f->stream), NULL, NULL);
        assert_true(is_silent(f));

        say_open(f, 2, 10);
        assert_int_equal(hear(f).type, FRAME_ACCEPT);
        stream_close(take_ptr(&f->stream), NULL, NULL);
        t = hear(f);
        assert_int_equal(t.type, FRAME_RESET);
        assert_int_equal(t.channel, 2);
        say_data(f, 2, 0, "late", 4); /* sent before it knew */
        assert_false(f->link_closed);
}

static void test_a_link_that_breaks(void **state)
{
        struct fixture *f = *state;
        struct byte_stream *old;
        struct tunnel_frame t;

        accept_one(f, 10);
        old = take_ptr(&f->stream);
        close(f->box);
        turn(f);
        assert_true(f->link_closed);
        assert_int_equal(f->events, STREAM_BROKEN);
        buf_clear(&f->in);
        open_link(f);
        /* Numbers begin anew; the one that is broken is not meant. */
        accept_one(f, 10);
        say_data(f, 1, 0, "new", 3);
        assert_true(stream_has_input(f->stream));
        assert_false(stream_has_input(old));
        stream_close(old, NULL, NULL);
        stream_end(f->stream);
        t = hear(f);
        assert_int_equal(t.type, FRAME_END);
}

static void test_no_more_than_there_may_be(void **state)
{
        struct fixture *f = *state;
        struct byte_stream *streams[TUNNEL_MAX_CONNS];
        struct tunnel_frame t;

        assert_int_equal(hear(f).type, FRAME_LISTEN);
        for (uint32_t i = 0; i < TUNNEL_MAX_CONNS; i++) {
                say_open(f, i + 1, 10);
                t = hear(f);
                assert_int_equal(t.type, FRAME_ACCEPT);
                assert_int_equal(t.limit, i < 32 ? WINDOW : WINDOW / 4);
                streams[i] = take_ptr(&f->stream);
        }
        say_open(f, TUNNEL_MAX_CONNS + 1, 10);
        t = hear(f);
        assert_int_equal(t.type, FRAME_RESET);
        assert_int_equal(t.reason, TUNNEL_RESET_LIMIT);
        assert_int_equal(f->n_streams, TUNNEL_MAX_CONNS);
        for (uint32_t i = 0; i < TUNNEL_MAX_CONNS; i++)
                stream_close(streams[i], NULL, NULL);
}

/* A link that does not take what it is sent: the writer waits, and hears when there is room. */
static void test_a_full_link(void **state)
{
        struct fixture *f = *state;
        char *block = xcalloc(1, TUNNEL_BYTES_MAX);
        uint64_t sent = 0, got = 0;
        ssize_t n;

        accept_one(f, PEER_MAX_LENGTH);
        while ((n = stream_write(f->stream, block, TUNNEL_BYTES_MAX)) > 0)
                sent += (uint64_t)n;
        assert_int_equal(n, -EAGAIN);
        assert_in_range(box_link_pending(f->link), 1, 1 << 20);
        stream_watch(f->stream, STREAM_WRITABLE);
        turn(f);
        assert_int_equal(f->events, 0);
        while (got < sent)
                got += hear(f).data.len;
        turn(f);
        assert_int_equal(got, sent);
        assert_int_equal(f->events, STREAM_WRITABLE);
        free(block);
}

/* HTTP over it */

static void on_request(void *ctx, struct http_exchange *x)
{
        struct buf body = BUF_INIT;

        *(const void **)ctx = http_peer(x)->via;
        buf_appendf(&body, "%s %s", http_method(x), http_path(x));
        http_respond(x, 200, NULL, 0, &body);
}

static void test_the_http_server_serves_it(void **state)
{
        static const char request[] = "GET /a HTTP/1.1\r\nHost: x\r\n\r\n";
        static const struct http_handler handler = { .on_request = on_request };
        struct http_peer peer = { .address = "box", .via = *state };
        struct fixture *f = *state;
        const void *via = NULL;
        struct http_server_config config = { .loop = &f->loop, .handler = &handler, .ctx = &via };
        struct http_server *server;
        struct tunnel_frame t;

        assert_int_equal(http_server_new(&config, &server, NULL), 0);
        accept_one(f, 100000);
        http_server_serve(server, take_ptr(&f->stream), &peer);
        assert_int_equal(http_server_connections(server), 1);
        /* Two requests on one connection, the second in pieces. */
        say_data(f, 1, 0, request, sizeof(request) - 1);
        t = hear(f);
        assert_int_equal(t.type, FRAME_BYTES);
        assert_non_null(memmem(t.data.p, t.data.len, "200 OK", 6));
        assert_memory_equal(t.data.p + t.data.len - 6, "GET /a", 6);
        assert_ptr_equal(via, f);
        say_data(f, 1, sizeof(request) - 1, request, 9);
        say_data(f, 1, sizeof(request) + 8, request + 9, sizeof(request) - 10);
        t = hear(f);
        assert_non_null(memmem(t.data.p, t.data.len, "200 OK", 6));
        /* The client ends; so does the server, and nothing is reset. */
        say(f, (struct tunnel_frame){
                       .type = FRAME_END, .channel = 1, .offset = 2 * (sizeof(request) - 1) });
        t = hear(f);
        assert_int_equal(t.type, FRAME_END);
        assert_true(is_silent(f));
        assert_int_equal(http_server_connections(server), 0);
        http_server_close(server, NULL, NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_listening_is_asked_for_on_each_link, set_up,
                                                tear_down),
                cmocka_unit_test_setup_teardown(test_bytes_both_ways, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_credit_follows_the_reader, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_what_ends_the_link, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_resets, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_a_link_that_breaks, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_no_more_than_there_may_be, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_a_full_link, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_freed_before_its_streams, set_up, tear_down),
                cmocka_unit_test_setup_teardown(test_the_http_server_serves_it, set_up, tear_down),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
