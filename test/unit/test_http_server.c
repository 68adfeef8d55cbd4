/* net/http_server over real sockets. Server and clients share this thread: a client writes, and the
 * test turns the loop until what it waits for is there. An alarm ends a test that waits in vain. */
#define _GNU_SOURCE
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>

#include <cmocka.h>

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <netinet/in.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/fd.h"
#include "net/http_internal.h"

#define MAX_HELD 8

struct fixture {
        uv_loop_t loop;
        struct http_server *server;
        struct http_handler handler;
        struct http_server_config config;
        struct sockaddr_in tcp;
        char dir[64];
        char path[96];
        bool closed;
        /* what the handler saw */
        struct http_exchange *held[MAX_HELD];
        int n_held, n_requests, n_aborts, n_drained, n_body_ends;
        struct http_exchange *aborted;
        bool finish_on_abort;
        struct buf body;
};

static void respond_text(struct http_exchange *x, int status, const char *text)
{
        struct buf body = BUF_INIT;

        buf_puts(&body, text);
        http_respond(x, status, NULL, 0, &body);
}

/* Everything the request says, for the client to compare. */
static void echo(struct http_exchange *x)
{
        const char *a = http_header(x, "x-a");
        struct buf body = BUF_INIT;
        size_t len;
        const char *content = http_body(x, &len);

        buf_appendf(&body, "%s|%s|%s|%s|%s|%zu|%s", http_method(x), http_path(x), http_query(x),
                    a ? a : "-", http_has_body(x) ? "body" : "none", len, content);
        http_respond(x, 200, NULL, 0, &body);
}

static enum http_body_mode on_head(void *ctx, struct http_exchange *x)
{
        (void)ctx;
        return str_starts(http_path(x), "/upload") ? HTTP_BODY_STREAM : HTTP_BODY_BUFFER;
}

static void on_request(void *ctx, struct http_exchange *x)
{
        static const struct http_field bad_fields[] = { { "X-Good", "1" },
                                                        { "X-Bad", "a\r\nX-Evil: 1" },
                                                        { "X Bad", "1" },
                                                        { "Content-Length", "7" } };
        static const struct http_field close_field = { "Connection", "close" };
        struct fixture *f = ctx;
        const char *path = http_path(x);

        f->n_requests++;
        if (streq(path, "/echo"))
                echo(x);
        else if (streq(path, "/fields"))
                http_respond(x, 200, bad_fields, ARRAY_LEN(bad_fields), NULL);
        else if (streq(path, "/close"))
                http_respond(x, 204, &close_field, 1, NULL);
        else if (streq(path, "/upload-no"))
                respond_text(x, 403, "no");
        else if (streq(path, "/drain")) {
                http_server_drain(f->server);
                respond_text(x, 200, "bye");
        } else if (streq(path, "/shut")) {
                http_server_close(take_ptr(&f->server), NULL, NULL);
        } else
                f->held[f->n_held++] = x;
}

static void on_body(void *ctx, struct http_exchange *x, const void *data, size_t len)
{
        struct fixture *f = ctx;

        buf_append(&f->body, data, len);
        if (len == 0)
                f->n_body_ends++;
        else if (streq(http_path(x), "/upload-slow"))
                http_body_pause(x);
}

static void on_abort(void *ctx, struct http_exchange *x)
{
        struct fixture *f = ctx;

        f->n_aborts++;
        f->aborted = x;
        if (f->finish_on_abort)
                respond_text(x, 200, "into the void");
}

static void on_closed(void *arg)
{
        *(bool *)arg = true;
}

static int setup(void **state)
{
        struct fixture *f = xcalloc(1, sizeof(*f));

        alarm(120);
        uv_loop_init(&f->loop);
        strcpy(f->dir, "/tmp/berth-test-XXXXXX");
        if (!mkdtemp(f->dir))
                return -1;
        snprintf(f->path, sizeof(f->path), "%s/sock", f->dir);
        f->handler = (struct http_handler){ .on_head = on_head,
                                            .on_request = on_request,
                                            .on_body = on_body,
                                            .on_abort = on_abort };
        f->config =
                (struct http_server_config){ .loop = &f->loop, .handler = &f->handler, .ctx = f };
        *state = f;
        return 0;
}

/* Start the server with f->config as the test has changed it. */
static void start(struct fixture *f)
{
        struct err CLEAN(err_done) err = { 0 };
        socklen_t len = sizeof(f->tcp);
        int fd;

        assert_int_equal(http_server_new(&f->config, &f->server, &err), 0);
        assert_int_equal(http_listen_tcp("127.0.0.1:0", &fd, &err), 0);
        assert_int_equal(getsockname(fd, (struct sockaddr *)&f->tcp, &len), 0);
        assert_int_equal(http_server_listen(f->server, fd, &err), 0);
        assert_int_equal(http_listen_unix(f->path, 0600, &fd, &err), 0);
        assert_int_equal(http_server_listen(f->server, fd, &err), 0);
}

static int teardown(void **state)
{
        struct fixture *f = *state;

        if (f->server)
                http_server_close(f->server, on_closed, &f->closed);
        while (uv_run(&f->loop, UV_RUN_NOWAIT))
                ;
        if (uv_loop_close(&f->loop) != 0)
                return -1;
        buf_done(&f->body);
        unlink(f->path);
        rmdir(f->dir);
        free(f);
        alarm(0);
        return 0;
}

#define TURN_UNTIL(f, condition)                                                                   \
        while (!(condition))                                                                       \
        uv_run(&(f)->loop, UV_RUN_NOWAIT)

/* --- clients --- */

static int dial(struct fixture *f)
{
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

        assert_int_equal(connect(fd, (struct sockaddr *)&f->tcp, sizeof(f->tcp)), 0);
        return fd;
}

static int dial_unix(struct fixture *f)
{
        int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        struct sockaddr_un a = { .sun_family = AF_UNIX };

        snprintf(a.sun_path, sizeof(a.sun_path), "%s", f->path);
        assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof(a)), 0);
        return fd;
}

static void say(int fd, const char *text)
{
        assert_int_equal(send(fd, text, strlen(text), MSG_NOSIGNAL), strlen(text));
}

/* Send what may be more than the kernel takes at once. */
static void say_long(struct fixture *f, int fd, const char *data, size_t len)
{
        while (len) {
                ssize_t n = send(fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

                if (n > 0) {
                        data += n;
                        len -= (size_t)n;
                }
                uv_run(&f->loop, UV_RUN_NOWAIT);
        }
}

/* Returns false at the end of the stream (or a reset). */
static bool hear_some(struct fixture *f, int fd, struct buf *to)
{
        for (;;) {
                char part[65536];
                ssize_t n = recv(fd, part, sizeof(part), MSG_DONTWAIT);

                if (n > 0) {
                        buf_append(to, part, (size_t)n);
                        return true;
                }
                if (n == 0 || errno != EAGAIN)
                        return false;
                uv_run(&f->loop, UV_RUN_NOWAIT);
        }
}

static void hear_end(struct fixture *f, int fd, struct buf *to)
{
        while (hear_some(f, fd, to))
                ;
}

/* Read until `text` has come. */
static void hear(struct fixture *f, int fd, struct buf *to, const char *text)
{
        while (!memmem(buf_str(to), to->len, text, strlen(text)))
                if (!hear_some(f, fd, to))
                        fail_msg("closed; got: %s", buf_str(to));
}

static void has(const struct buf *b, const char *text)
{
        if (!strstr(buf_str(b), text))
                fail_msg("no '%s' in: %s", text, buf_str(b));
}

static void has_not(const struct buf *b, const char *text)
{
        if (strstr(buf_str(b), text))
                fail_msg("'%s' in: %s", text, buf_str(b));
}

static int count(const struct buf *b, const char *text)
{
        int n = 0;

        for (const char *at = buf_str(b); (at = strstr(at, text)); at++)
                n++;
        return n;
}

/* One request on a connection of its own; the server must close. */
static void ask(struct fixture *f, const char *request, struct buf *ret)
{
        int CLEAN(cleanup_fd) fd = dial(f);

        buf_clear(ret);
        say_long(f, fd, request, strlen(request));
        hear_end(f, fd, ret);
}

/* Close with a reset, as a killed client with unread data does. */
static void slam(int *fd)
{
        const struct linger now = { 1, 0 };

        setsockopt(*fd, SOL_SOCKET, SO_LINGER, &now, sizeof(now));
        close(take_fd(fd));
}

/* --- the tests --- */

static void test_inline_answer(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial(f);
        for (int i = 0; i < 3; i++) {
                buf_clear(&got);
                say(fd, "GET /echo?q=1 HTTP/1.1\r\nHost: a\r\nX-A: 1\r\nx-a: 2\r\n\r\n");
                hear(f, fd, &got, "GET|/echo|q=1|1, 2|none|0|");
                assert_true(str_starts(got.data, "HTTP/1.1 200 OK\r\n"));
                has(&got, "\r\nContent-Length: 26\r\n");
                has(&got, "\r\nConnection: keep-alive\r\nKeep-Alive: timeout=185\r\n");
                has(&got, " GMT\r\n");
        }
        assert_int_equal(http_server_connections(f->server), 1);
        close(take_fd(&fd));
        TURN_UNTIL(f, http_server_connections(f->server) == 0);
        assert_int_equal(f->n_aborts, 0);
}

static void test_peer(void **state)
{
        struct fixture *f = *state;
        int CLEAN(cleanup_fd) tcp = -1;
        int CLEAN(cleanup_fd) local = -1;

        start(f);
        tcp = dial(f);
        say(tcp, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        local = dial_unix(f);
        say(local, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 2);
        assert_false(http_peer(f->held[0])->is_unix);
        assert_string_equal(http_peer(f->held[0])->address, "127.0.0.1");
        assert_int_equal(http_peer(f->held[0])->uid, (uid_t)-1);
        assert_true(http_peer(f->held[1])->is_unix);
        assert_string_equal(http_peer(f->held[1])->address, "unix");
        assert_int_equal(http_peer(f->held[1])->uid, getuid());
        http_set_data(f->held[0], f);
        assert_ptr_equal(http_data(f->held[0]), f);
        respond_text(f->held[0], 200, "a");
        respond_text(f->held[1], 200, "b");
}

static void test_bodies(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial(f);
        say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe");
        uv_run(&f->loop, UV_RUN_NOWAIT);
        say(fd, "llo");
        hear(f, fd, &got, "POST|/echo||-|body|5|hello");
        say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        uv_run(&f->loop, UV_RUN_NOWAIT);
        say(fd, "2\r\nde\r\n0\r\nX-T: 1\r\n\r\n");
        hear(f, fd, &got, "POST|/echo||-|body|5|abcde");
        say(fd, "PUT /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 0\r\n\r\n");
        hear(f, fd, &got, "PUT|/echo||-|body|0|");
        say(fd, "DELETE /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        hear(f, fd, &got, "DELETE|/echo||-|none|0|");
}

static void test_byte_by_byte(void **state)
{
        static const char text[] =
                "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
                "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                "4\r\ndefg\r\n0\r\n\r\n";
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial_unix(f);
        for (size_t i = 0; i < sizeof(text) - 1; i++) {
                assert_int_equal(send(fd, text + i, 1, 0), 1);
                uv_run(&f->loop, UV_RUN_NOWAIT);
        }
        hear(f, fd, &got, "body|4|defg");
        has(&got, "body|3|abc");
}

static void test_pipelining_keeps_order(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial(f);
        say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"
                "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
                "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n"
                "GET /echo?last HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_int_equal(f->n_requests, 1); /* the others wait for their turn */
        respond_text(f->held[0], 200, "first");
        assert_int_equal(f->n_requests, 1); /* and are not started from within the answer */
        TURN_UNTIL(f, f->n_held == 2);
        assert_int_equal(f->n_requests, 3);
        respond_text(f->held[1], 200, "third");
        hear(f, fd, &got, "|last|");
        assert_true(strstr(got.data, "first") < strstr(got.data, "|abc"));
        assert_true(strstr(got.data, "|abc") < strstr(got.data, "third"));
        assert_true(strstr(got.data, "third") < strstr(got.data, "|last|"));
}

static void test_many_pipelined(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) send_all = BUF_INIT;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial(f);
        for (int i = 0; i < 5000; i++)
                buf_appendf(&send_all, "GET /echo?%d HTTP/1.1\r\nHost: a\r\n\r\n", i);
        say_long(f, fd, send_all.data, send_all.len);
        hear(f, fd, &got, "|4999|");
        assert_int_equal(count(&got, "HTTP/1.1 200 OK"), 5000);
}

static void test_head_and_empty_answers(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;

        start(f);
        ask(f, "HEAD /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", &got);
        has(&got, "Content-Length: 21\r\n");
        has(&got, "Connection: close\r\n");
        assert_string_equal(strstr(got.data, "\r\n\r\n"), "\r\n\r\n");
        ask(f, "GET /close HTTP/1.1\r\nHost: a\r\n\r\n", &got);
        has(&got, "HTTP/1.1 204 No Content\r\n");
        has(&got, "Connection: close\r\n");
        has_not(&got, "Content-Length");
}

static void test_bad_fields_left_out(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;

        start(f);
        ask(f, "GET /fields HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", &got);
        has(&got, "X-Good: 1\r\n");
        has(&got, "Content-Length: 0\r\n");
        has_not(&got, "Evil");
        has_not(&got, "Bad");
        assert_int_equal(count(&got, "Content-Length"), 1);
}

static void test_continue(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        f->config.max_body = 100;
        start(f);
        fd = dial(f);
        say(fd,
            "PUT /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 3\r\n\r\n");
        hear(f, fd, &got, "HTTP/1.1 100 Continue\r\n\r\n");
        assert_int_equal(f->n_requests, 0);
        say(fd, "abc");
        hear(f, fd, &got, "|abc");
        /* Not when the body is there already, nor when it will not be taken. */
        buf_clear(&got);
        say(fd, "PUT /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: "
                "3\r\n\r\nabc");
        hear(f, fd, &got, "|abc");
        has_not(&got, "100 Continue");
        buf_clear(&got);
        say(fd, "PUT /upload-no HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: "
                "3\r\n\r\n");
        hear_end(f, fd, &got);
        assert_true(str_starts(got.data, "HTTP/1.1 403"));
        ask(f,
            "PUT /echo HTTP/1.1\r\nHost: a\r\nExpect: 100-continue\r\nContent-Length: 101\r\n\r\n",
            &got);
        assert_true(str_starts(got.data, "HTTP/1.1 413"));
}

static void test_refusal_ends_the_connection(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;

        start(f);
        ask(f,
            "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 4\r\nTransfer-Encoding: "
            "chunked\r\n\r\n"
            "0\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n",
            &got);
        assert_true(str_starts(got.data, "HTTP/1.1 400 Bad Request\r\n"));
        has(&got, "Connection: close\r\n");
        has(&got, "Content-Type: application/json\r\n");
        has(&got, "{\"error\": \"Content-Length and Transfer-Encoding together\"}");
        assert_int_equal(f->n_requests, 0);
        /* The strictness holds for the second request of a connection as for the first. */
        ask(f, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HTTP/1.1\r\nHost : a\r\n\r\n", &got);
        assert_int_equal(count(&got, "HTTP/1.1 200 OK"), 1);
        assert_int_equal(count(&got, "HTTP/1.1 400 Bad Request"), 1);
        /* A body that turns out malformed never reaches the handler. */
        f->n_requests = 0;
        ask(f, "POST /echo HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabcd\r\n",
            &got);
        assert_true(str_starts(got.data, "HTTP/1.1 400"));
        assert_int_equal(f->n_requests, 0);
}

static void write_refusal(void *ctx, int status, const char *text, struct buf *body)
{
        (void)ctx;
        buf_appendf(body, "<%d %s>", status, text);
}

static void test_refusal_body_by_handler(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;

        f->handler.on_refused = write_refusal;
        start(f);
        ask(f, "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", &got);
        has(&got, "\r\n\r\n<501 Method not implemented>");
}

static void test_old_clients(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        ask(f, "GET /echo HTTP/1.0\r\n\r\n", &got);
        has(&got, "Connection: close\r\n");
        has(&got, "GET|/echo|");
        fd = dial(f);
        say(fd, "GET /echo HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        buf_clear(&got);
        hear(f, fd, &got, "GET|/echo|");
        has(&got, "Connection: keep-alive\r\n");
        /* No chunks for it: the end of the connection is the end of the stream. */
        say(fd, "GET /hold HTTP/1.0\r\nConnection: keep-alive\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        buf_clear(&got);
        http_stream_begin(f->held[0], 200, NULL, 0);
        http_stream_write(f->held[0], "abc", 3);
        http_stream_end(f->held[0]);
        hear_end(f, fd, &got);
        has_not(&got, "chunked");
        has(&got, "\r\n\r\nabc");
}

/* --- limits --- */

static void test_limit_head(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        struct buf CLEAN(buf_done) request = BUF_INIT;

        f->config.max_head = 1000;
        start(f);
        for (size_t total = 1000; total <= 1001; total++) {
                buf_clear(&request);
                buf_puts(&request, "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nX: ");
                while (request.len < total - 4)
                        buf_putc(&request, 'x');
                buf_puts(&request, "\r\n\r\n");
                ask(f, request.data, &got);
                assert_true(str_starts(got.data, total == 1000 ? "HTTP/1.1 200" : "HTTP/1.1 431"));
        }
}

static void test_limit_body(void **state)
{
        static const char x10[] = "xxxxxxxxxx";
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        char request[300];

        f->config.max_body = 10;
        start(f);
        for (int len = 10; len <= 11; len++) {
                const char *status = len == 10 ? "HTTP/1.1 200" : "HTTP/1.1 413";

                snprintf(request, sizeof(request),
                         "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\nContent-Length: "
                         "%d\r\n\r\n"
                         "%s%s",
                         len, x10, len == 10 ? "" : "x");
                ask(f, request, &got);
                assert_true(str_starts(got.data, status));
                snprintf(request, sizeof(request),
                         "POST /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
                         "Transfer-Encoding: "
                         "chunked\r\n\r\n5\r\nxxxxx\r\n%d\r\nxxxxx%s\r\n0\r\n\r\n",
                         len - 5, len == 10 ? "" : "x");
                ask(f, request, &got);
                assert_true(str_starts(got.data, status));
        }
        assert_int_equal(f->n_requests, 2);
}

static void test_limit_connections(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) a = -1;
        int CLEAN(cleanup_fd) b = -1;

        f->config.max_connections = 2;
        start(f);
        a = dial(f);
        b = dial(f);
        say(a, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\nGET");
        say(b, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\nGET");
        hear(f, a, &got, "GET|");
        buf_clear(&got);
        hear(f, b, &got, "GET|");
        ask(f, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", &got);
        assert_true(str_starts(got.data, "HTTP/1.1 503"));
        has(&got, "Retry-After: 1\r\n");
        assert_int_equal(f->n_requests, 2);
        close(take_fd(&a));
        TURN_UNTIL(f, http_server_connections(f->server) == 1);
        ask(f, "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", &got);
        assert_true(str_starts(got.data, "HTTP/1.1 200"));
}

/* Large bodies share a budget; who does not need it is not concerned. */
static void test_limit_bodies(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        struct buf CLEAN(buf_done) large = BUF_INIT;
        int CLEAN(cleanup_fd) a = -1;

        f->config.max_bodies = 150000;
        start(f);
        buf_puts(&large, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 100000\r\n"
                         "Connection: close\r\n\r\n");
        for (int i = 0; i < 99999; i++)
                buf_putc(&large, 'x');
        a = dial(f);
        say(a, buf_str(&large));
        TURN_UNTIL(f, f->server->bodies == 99999);
        ask(f, buf_str(&large), &got);
        assert_true(str_starts(got.data, "HTTP/1.1 503"));
        ask(f, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 2\r\nConnection: close\r\n\r\nhi",
            &got);
        assert_true(str_starts(got.data, "HTTP/1.1 200"));
        close(take_fd(&a));
        TURN_UNTIL(f, f->server->bodies == 0);
        buf_putc(&large, 'x');
        ask(f, buf_str(&large), &got);
        assert_true(str_starts(got.data, "HTTP/1.1 200"));
        assert_int_equal(f->server->bodies, 0);
}

static void respond_large(struct http_exchange *x, size_t len)
{
        struct buf body = BUF_INIT;

        for (size_t i = 0; i < len; i++)
                buf_putc(&body, 'x');
        http_respond(x, 200, NULL, 0, &body);
}

/* Answers that nobody reads are given up, the longest unread first, when they are too much. */
static void test_limit_answers(void **state)
{
        const size_t large = (size_t)16 << 20; /* more than fits between the two ends */
        struct fixture *f = *state;
        int fds[3];

        f->config.max_answers = 2 * large;
        start(f);
        for (int i = 0; i < 3; i++) {
                fds[i] = dial(f);
                say(fds[i], "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
                TURN_UNTIL(f, f->n_held == i + 1);
                respond_large(f->held[i], large);
                if (i < 2)
                        TURN_UNTIL(f, !link_is_empty(&f->server->deadlines[DEADLINE_WRITE]) &&
                                              f->server->answers == ((size_t)i + 1) * large);
        }
        TURN_UNTIL(f, http_server_connections(f->server) == 2);
        assert_int_equal(f->server->answers, 2 * large);
        slam(&fds[1]);
        slam(&fds[2]);
        TURN_UNTIL(f, http_server_connections(f->server) == 0);
        assert_int_equal(f->server->answers, 0);
        close(fds[0]);
}

/* Who holds connections open without using them does not keep others out. */
static void test_limit_idle_makes_room(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) a = -1;
        int CLEAN(cleanup_fd) b = -1;

        f->config.max_connections = 2;
        start(f);
        a = dial(f);
        say(a, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        hear(f, a, &got, "GET|");
        buf_clear(&got);
        b = dial(f);
        say(b, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        hear(f, b, &got, "GET|");
        ask(f, "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", &got);
        assert_true(str_starts(got.data, "HTTP/1.1 200"));
        buf_clear(&got);
        hear_end(f, a, &got); /* idle longest */
        assert_int_equal(got.len, 0);
        say(b, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        hear(f, b, &got, "GET|");
}

/* Past the limit 64 more are told why; the next is closed without a word. */
static void test_limit_surplus(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) last = -1;
        int fds[1 + SURPLUS_MAX];

        f->config.max_connections = 1;
        start(f);
        for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
                fds[i] = dial(f);
                if (i == 0)
                        say(fds[i], "GET");
                TURN_UNTIL(f, http_server_connections(f->server) == i + 1);
        }
        hear_end(f, fds[SURPLUS_MAX], &got);
        assert_true(str_starts(got.data, "HTTP/1.1 503"));
        buf_clear(&got);
        last = dial(f);
        hear_end(f, last, &got);
        assert_int_equal(got.len, 0);
        for (size_t i = 0; i < ARRAY_LEN(fds); i++)
                close(fds[i]);
}

/* One that a carrier with that number brings. */
static int carry(struct fixture *f, uintptr_t number)
{
        struct http_peer peer = { .uid = (uid_t)-1, .address = "carried" };
        int fds[2];

        /* NOLINTNEXTLINE(performance-no-int-to-ptr): a number, never followed */
        peer.via = (void *)number;
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds),
                         0);
        http_server_serve_fd(f->server, fds[1], &peer);
        return fds[0];
}

static void is_one_too_many(struct fixture *f, uintptr_t number)
{
        struct buf CLEAN(buf_done) got = BUF_INIT;
        unsigned before = f->server->n_carried;
        int CLEAN(cleanup_fd) fd = carry(f, number);

        hear_end(f, fd, &got);
        assert_true(str_starts(buf_str(&got), "HTTP/1.1 503"));
        close(take_fd(&fd));
        TURN_UNTIL(f, f->server->n_carried == before);
}

/* What is carried has places of its own, each carrier some of them; the port keeps its own. */
static void test_limit_carried(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int fds[3], CLEAN(cleanup_fd) tcp = -1;

        f->config.max_connections = 1;
        f->config.max_carried = 3;
        f->config.max_per_carrier = 2;
        start(f);
        for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
                fds[i] = carry(f, i < 2 ? 1 : 2);
                say(fds[i], "GET");
                TURN_UNTIL(f, !link_is_empty(&f->server->deadlines[DEADLINE_HEAD]) &&
                                      f->server->n_carried == i + 1);
        }
        is_one_too_many(f, 1); /* for the carrier */
        is_one_too_many(f, 3); /* for all */
        tcp = dial(f);
        say(tcp, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\nGET");
        hear(f, tcp, &got, "GET|");
        ask(f, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", &got);
        assert_true(str_starts(got.data, "HTTP/1.1 503")); /* the port has its own limit, too */
        for (size_t i = 0; i < ARRAY_LEN(fds); i++)
                close(fds[i]);
        TURN_UNTIL(f, http_server_connections(f->server) == 1);
        assert_int_equal(f->server->n_carried, 0);
}

/* The one that makes room is of the same carrier. */
static void test_limit_carried_idle(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) other = -1, CLEAN(cleanup_fd) own = -1, CLEAN(cleanup_fd) more = -1;

        f->config.max_per_carrier = 1;
        start(f);
        other = carry(f, 1);
        own = carry(f, 2);
        more = carry(f, 2);
        hear_end(f, own, &got);
        assert_int_equal(got.len, 0);
        say(other, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        hear(f, other, &got, "GET|");
        buf_clear(&got);
        say(more, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        hear(f, more, &got, "GET|");
}

/* Also when as many are being told that they are too many as may be. */
static void test_limit_carried_surplus(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int fds[1 + CARRIER_SURPLUS_MAX], CLEAN(cleanup_fd) more = -1;

        f->config.max_per_carrier = 1;
        start(f);
        for (size_t i = 0; i < ARRAY_LEN(fds); i++) {
                fds[i] = carry(f, 1);
                if (i == 0)
                        say(fds[i], "GET");
                TURN_UNTIL(f, !link_is_empty(&f->server->deadlines[DEADLINE_HEAD]) &&
                                      f->server->n_carried == i + 1);
        }
        say(fds[0], " /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        hear(f, fds[0], &got, "GET|");
        buf_clear(&got);
        more = carry(f, 1);
        say(more, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        hear(f, more, &got, "GET|");
        for (size_t i = 0; i < ARRAY_LEN(fds); i++)
                close(fds[i]);
}

/* The test lowers the number of descriptors to those in use: the client in the queue is taken on
 * the reserve and dropped, instead of waking the loop for ever. */
static void test_out_of_descriptors(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        struct rlimit before, low;
        int CLEAN(cleanup_fd) fd = -1;
        int next;

        start(f);
        uv_run(&f->loop, UV_RUN_NOWAIT);
        fd = dial(f);
        next = dup(fd);
        close(next);
        getrlimit(RLIMIT_NOFILE, &before);
        low = (struct rlimit){ (rlim_t)next, before.rlim_max };
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        hear_end(f, fd, &got);
        setrlimit(RLIMIT_NOFILE, &before);
        assert_int_equal(got.len, 0);
        ask(f, "GET /echo HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n", &got);
        assert_true(str_starts(got.data, "HTTP/1.1 200"));
}

/* Without even the reserve the server looks away, and comes back by itself. */
static void test_out_of_reserve(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        struct rlimit before, low;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        uv_run(&f->loop, UV_RUN_NOWAIT);
        fd = dial(f);
        say(fd, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        getrlimit(RLIMIT_NOFILE, &before);
        low = (struct rlimit){ (rlim_t)f->server->reserve[0], before.rlim_max };
        while (f->server->n_reserve > 0)
                close(f->server->reserve[--f->server->n_reserve]);
        assert_int_equal(setrlimit(RLIMIT_NOFILE, &low), 0);
        TURN_UNTIL(f, uv_is_active((uv_handle_t *)&f->server->accept_retry));
        setrlimit(RLIMIT_NOFILE, &before);
        hear(f, fd, &got, "GET|/echo");
}

/* A client that was refused and does not close is closed. */
static void test_deadline_linger(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        f->server->limits_ms[DEADLINE_LINGER] = 1;
        fd = dial(f);
        say(fd, "BREW / HTTP/1.1\r\nHost: a\r\n\r\n");
        hear_end(f, fd, &got);
        assert_true(str_starts(got.data, "HTTP/1.1 501"));
        TURN_UNTIL(f, http_server_connections(f->server) == 0);
}

static void test_deadline_head(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;

        f->config.head_timeout_ms = 1;
        start(f);
        ask(f, "GET /echo HTTP/1.1\r\nHos", &got);
        assert_true(str_starts(got.data, "HTTP/1.1 408"));
}

/* Each head has its own deadline, also for a client whose requests never quite fill its writes. */
static void test_deadline_of_next_head(void **state)
{
        struct fixture *f = *state;
        struct http_link *waiting;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;
        uint64_t first;

        start(f);
        waiting = &f->server->deadlines[DEADLINE_HEAD];
        fd = dial(f);
        say(fd, "GET /echo HTTP/1.1\r\n");
        TURN_UNTIL(f, !link_is_empty(waiting));
        first = container_of(waiting->next, struct http_conn, deadline)->deadline_at;
        TURN_UNTIL(f, uv_now(&f->loop) + f->server->limits_ms[DEADLINE_HEAD] > first);
        say(fd, "Host: a\r\n\r\nGET /ec");
        hear(f, fd, &got, "GET|/echo");
        assert_false(link_is_empty(waiting));
        assert_true(container_of(waiting->next, struct http_conn, deadline)->deadline_at > first);
}

static void test_deadline_body(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;

        f->config.body_timeout_ms = 1;
        start(f);
        ask(f, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", &got);
        assert_true(str_starts(got.data, "HTTP/1.1 408"));
        assert_int_equal(f->n_requests, 0);
        /* A handler that takes the body as a stream hears of it. */
        f->finish_on_abort = true;
        ask(f, "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc", &got);
        assert_true(str_starts(got.data, "HTTP/1.1 408"));
        assert_int_equal(f->n_aborts, 1);
}

/* When the body has to be there, after one byte of it and after another one later. */
static void send_body(struct fixture *f, int fd, uint64_t ret_at[2])
{
        const struct http_link *waiting = &f->server->deadlines[DEADLINE_BODY];

        say(fd, "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\na");
        buf_clear(&f->body);
        TURN_UNTIL(f, f->body.len == 1 && !link_is_empty(waiting));
        ret_at[0] = container_of(waiting->next, struct http_conn, deadline)->deadline_at;
        TURN_UNTIL(f, uv_now(&f->loop) + f->server->limits_ms[DEADLINE_BODY] > ret_at[0]);
        say(fd, "b");
        TURN_UNTIL(f, f->body.len == 2);
        uv_run(&f->loop, UV_RUN_NOWAIT);
        ret_at[1] = container_of(waiting->next, struct http_conn, deadline)->deadline_at;
}

/* Steady bytes are time enough for a client of the port, and none for what is carried. */
static void test_deadline_body_carried(void **state)
{
        struct fixture *f = *state;
        uint64_t at[2];
        int CLEAN(cleanup_fd) fd = -1;

        f->finish_on_abort = true;
        start(f);
        fd = dial(f);
        send_body(f, fd, at);
        assert_true(at[1] > at[0]);
        close(take_fd(&fd));
        TURN_UNTIL(f, http_server_connections(f->server) == 0);
        fd = carry(f, 1);
        send_body(f, fd, at);
        assert_true(at[1] == at[0]);
        close(take_fd(&fd));
        TURN_UNTIL(f, http_server_connections(f->server) == 0);
}

static void test_deadline_idle(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;

        f->config.idle_timeout_ms = 1;
        start(f);
        ask(f, "", &got);
        assert_int_equal(got.len, 0);
        /* A request that comes in time is answered; on a busy machine a millisecond may be over. */
        for (int i = 0; i < 1000 && got.len == 0; i++)
                ask(f, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n", &got);
        assert_true(str_starts(buf_str(&got), "HTTP/1.1 200"));
}

static void test_deadline_write(void **state)
{
        static char block[1 << 20];
        struct fixture *f = *state;
        int CLEAN(cleanup_fd) fd = -1;

        f->config.write_timeout_ms = 1;
        f->finish_on_abort = false;
        start(f);
        fd = dial(f);
        say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        http_stream_begin(f->held[0], 200, NULL, 0);
        for (int i = 0; i < 16; i++)
                http_stream_write(f->held[0], block, sizeof(block));
        TURN_UNTIL(f, f->n_aborts == 1);
        assert_ptr_equal(f->aborted, f->held[0]);
        assert_int_equal(http_server_connections(f->server), 0);
        http_stream_write(f->held[0], "x", 1);
        assert_int_equal(http_stream_pending(f->held[0]), 0);
        http_stream_end(f->held[0]);
}

/* A server that waits for nobody sets no timer, and an idle connection is only its struct. */
static void test_idle_costs(void **state)
{
        enum { N = 200 };
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        size_t before, after;
        int fds[N];

        start(f);
        uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_int_equal(uv_backend_timeout(&f->loop), -1);
        buf_reserve(&got, 1 << 16);
        before = mallinfo2().uordblks;
        for (int i = 0; i < N; i++) {
                fds[i] = dial(f);
                buf_clear(&got);
                say(fds[i], "POST /echo HTTP/1.1\r\n");
                TURN_UNTIL(f, !link_is_empty(&f->server->deadlines[DEADLINE_HEAD]));
                say(fds[i], "Host: a\r\nContent-Length: 3\r\n\r\nabc");
                hear(f, fds[i], &got, "|abc");
        }
        after = mallinfo2().uordblks;
        /* 1 KB is promised; with a buffer left behind it would be more than this. */
        assert_true((after - before) / N < sizeof(struct http_conn) + 64);
        assert_int_not_equal(uv_backend_timeout(&f->loop), -1);
        for (int i = 0; i < N; i++)
                close(fds[i]);
        TURN_UNTIL(f, http_server_connections(f->server) == 0);
        uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_int_equal(uv_backend_timeout(&f->loop), -1);
}

/* --- streams --- */

static void on_drained(struct http_exchange *x)
{
        struct fixture *f = http_data(x);

        f->n_drained++;
        assert_int_equal(http_stream_pending(x), 0);
}

static void test_stream(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial(f);
        say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        http_set_data(f->held[0], f);
        http_stream_on_drained(f->held[0], on_drained);
        http_stream_begin(f->held[0], 200, NULL, 0);
        assert_int_equal(f->n_drained, 0); /* never from within the call */
        TURN_UNTIL(f, f->n_drained == 1);
        http_stream_write(f->held[0], "0123456789abcdefg", 17);
        http_stream_write(f->held[0], "", 0);
        TURN_UNTIL(f, f->n_drained == 2);
        http_stream_write(f->held[0], "x", 1);
        http_stream_end(f->held[0]);
        hear(f, fd, &got, "\r\n\r\n11\r\n0123456789abcdefg\r\n1\r\nx\r\n0\r\n\r\n");
        has(&got, "Transfer-Encoding: chunked\r\n");
        has_not(&got, "Content-Length");
        /* The connection goes on. */
        say(fd, "HEAD /hold HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 2);
        buf_clear(&got);
        http_stream_begin(f->held[1], 200, NULL, 0);
        http_stream_write(f->held[1], "abc", 3);
        http_stream_end(f->held[1]);
        hear(f, fd, &got, "GET|/echo");
        has(&got, "chunked\r\n\r\nHTTP/1.1 200 OK");
}

static void test_stream_back_pressure(void **state)
{
        enum { BLOCKS = 16, BLOCK = 1 << 20 };
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        char *CLEAN(cleanup_free) block = xcalloc(1, BLOCK);
        int CLEAN(cleanup_fd) fd = -1;
        size_t pending;

        start(f);
        fd = dial(f);
        say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        http_set_data(f->held[0], f);
        http_stream_on_drained(f->held[0], on_drained);
        memset(block, 'b', BLOCK);
        http_stream_begin(f->held[0], 200, NULL, 0);
        for (int i = 0; i < BLOCKS; i++)
                http_stream_write(f->held[0], block, BLOCK);
        for (int i = 0; i < 100; i++)
                uv_run(&f->loop, UV_RUN_NOWAIT);
        pending = http_stream_pending(f->held[0]);
        assert_true(pending > 0 && pending < (size_t)BLOCKS * BLOCK);
        assert_int_equal(f->n_drained, 0);
        while (f->n_drained == 0)
                assert_true(hear_some(f, fd, &got));
        http_stream_end(f->held[0]);
        hear(f, fd, &got, "\r\n0\r\n\r\n");
        assert_true(got.len > (size_t)BLOCKS * BLOCK);
        assert_int_equal(count(&got, "\r\n100000\r\nb"), BLOCKS);
}

/* A writer that is HTTP_STREAM_MAX_PENDING ahead of its reader loses the connection. */
static void test_limit_stream_pending(void **state)
{
        struct fixture *f = *state;
        char *CLEAN(cleanup_free) block = xcalloc(1, HTTP_STREAM_MAX_PENDING);
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        for (size_t over = 0; over <= 1; over++) {
                struct http_exchange *x;
                size_t framing;

                fd = dial_unix(f);
                say(fd, "GET /hold HTTP/1.0\r\n\r\n");
                TURN_UNTIL(f, f->n_held == (int)over + 1);
                x = f->held[over];
                http_stream_begin(x, 200, NULL, 0);
                framing = http_stream_pending(x);
                http_stream_write(x, block, HTTP_STREAM_MAX_PENDING - framing + over);
                if (!over) {
                        http_stream_end(x);
                        buf_init(&got, 2 * HTTP_STREAM_MAX_PENDING);
                        hear_end(f, fd, &got);
                        assert_int_equal(got.len, HTTP_STREAM_MAX_PENDING);
                } else {
                        TURN_UNTIL(f, f->n_aborts == 1);
                        http_stream_end(x);
                }
                close(take_fd(&fd));
        }
}

static void test_large_answer(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        struct buf body = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial(f);
        say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        while (body.len < (8 << 20))
                buf_puts(&body, "0123456789");
        http_respond(f->held[0], 200, NULL, 0, &body);
        assert_null(body.data);
        hear(f, fd, &got, "GET|/echo");
        has(&got, "Content-Length: 8388610\r\n");
        has(&got, "0123456789HTTP/1.1 200 OK");
}

static void test_failed_body_is_500(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        struct buf body;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial(f);
        say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        buf_init(&body, 4);
        buf_puts(&body, "1234");
        buf_puts(&body, "5");
        http_respond(f->held[0], 200, NULL, 0, &body);
        hear(f, fd, &got, "\r\n\r\n");
        assert_true(str_starts(got.data, "HTTP/1.1 500"));
        has(&got, "Content-Length: 0\r\n");
}

static void test_upload(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        f->config.max_body = 4; /* not for streams */
        start(f);
        fd = dial(f);
        say(fd, "POST /upload HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1); /* before any body */
        say(fd, "5\r\nhello\r\n");
        TURN_UNTIL(f, f->body.len == 5);
        assert_int_equal(f->n_body_ends, 0);
        say(fd, "1\r\n!\r\n0\r\n\r\n");
        TURN_UNTIL(f, f->n_body_ends == 1);
        assert_string_equal(f->body.data, "hello!");
        respond_text(f->held[0], 200, "thanks");
        hear(f, fd, &got, "thanks");
        has(&got, "Connection: keep-alive\r\n");
        /* Answered before its end: the rest is not read as a request. */
        buf_clear(&got);
        say(fd, "POST /upload-no HTTP/1.1\r\nHost: a\r\nContent-Length: 100\r\n\r\n"
                "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        hear_end(f, fd, &got);
        assert_true(str_starts(got.data, "HTTP/1.1 403"));
        has(&got, "Connection: close\r\n");
        assert_int_equal(count(&got, "HTTP/1.1"), 1);
}

static void test_upload_pause(void **state)
{
        enum { TOTAL = 8 << 20 };
        struct fixture *f = *state;
        char *CLEAN(cleanup_free) data = xcalloc(1, TOTAL);
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;
        size_t sent = 0;
        int stalls = 0;
        size_t taken;

        start(f);
        fd = dial(f);
        buf_init(&f->body, TOTAL);
        say(fd, "POST /upload-slow HTTP/1.1\r\nHost: a\r\nContent-Length: 8388608\r\n\r\n");
        /* The handler pauses at its first part; then the client gets stuck. */
        while (stalls < 100) {
                ssize_t n = send(fd, data + sent, TOTAL - sent, MSG_DONTWAIT | MSG_NOSIGNAL);

                stalls = n > 0 ? 0 : stalls + 1;
                sent += n > 0 ? (size_t)n : 0;
                uv_run(&f->loop, UV_RUN_NOWAIT);
        }
        assert_true(sent < TOTAL);
        taken = f->body.len;
        assert_true(taken > 0 && taken <= 65536);
        while (f->n_body_ends == 0) {
                ssize_t n = sent < TOTAL ? send(fd, data + sent, TOTAL - sent,
                                                MSG_DONTWAIT | MSG_NOSIGNAL)
                                         : 0;

                sent += n > 0 ? (size_t)n : 0;
                http_body_resume(f->held[0]);
                uv_run(&f->loop, UV_RUN_NOWAIT);
        }
        assert_int_equal(f->body.len, TOTAL);
        respond_text(f->held[0], 200, "thanks");
        hear(f, fd, &got, "thanks");
}

/* What was read together with the part at which the handler paused is kept back too. */
static void test_upload_pause_within_a_read(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial(f);
        say(fd, "POST /upload-slow HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
                "1\r\na\r\n1\r\nb\r\n0\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        for (int turn = 0; turn < 10; turn++)
                uv_run(&f->loop, UV_RUN_NOWAIT);
        assert_string_equal(buf_str(&f->body), "a");
        http_body_resume(f->held[0]);
        assert_string_equal(f->body.data, "a");
        TURN_UNTIL(f, f->body.len == 2);
        assert_int_equal(f->n_body_ends, 0);
        http_body_resume(f->held[0]);
        TURN_UNTIL(f, f->n_body_ends == 1);
        respond_text(f->held[0], 200, "thanks");
        hear(f, fd, &got, "thanks");
}

/* A limit above that of buffers in general is the limit that counts. */
static void test_huge_body(void **state)
{
        enum { TOTAL = 65 << 20 };
        struct fixture *f = *state;
        char *CLEAN(cleanup_free) data = xcalloc(1, TOTAL);
        int CLEAN(cleanup_fd) fd = -1;
        size_t len;

        f->config.max_body = TOTAL;
        start(f);
        fd = dial_unix(f);
        say(fd, "POST /hold HTTP/1.1\r\nHost: a\r\nContent-Length: 68157440\r\n\r\n");
        say_long(f, fd, data, TOTAL);
        TURN_UNTIL(f, f->n_held == 1);
        (void)http_body(f->held[0], &len);
        assert_int_equal(len, TOTAL);
        respond_text(f->held[0], 200, "thanks");
}

/* --- clients that leave --- */

static void test_abort_by_reset(void **state)
{
        struct fixture *f = *state;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        for (int unfinished = 0; unfinished < 2; unfinished++) {
                f->finish_on_abort = !unfinished;
                f->n_aborts = f->n_held = 0;
                fd = dial(f);
                say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
                TURN_UNTIL(f, f->n_held == 1);
                slam(&fd);
                TURN_UNTIL(f, f->n_aborts == 1);
                assert_ptr_equal(f->aborted, f->held[0]);
                assert_int_equal(http_server_connections(f->server), 0);
        }
        /* The request can still be read, and the answer still has to be given. */
        assert_string_equal(http_path(f->held[0]), "/hold");
        assert_string_equal(http_peer(f->held[0])->address, "127.0.0.1");
        respond_text(f->held[0], 200, "late");
}

static void test_abort_by_close_unix(void **state)
{
        struct fixture *f = *state;
        int CLEAN(cleanup_fd) fd = -1;

        f->finish_on_abort = true;
        start(f);
        fd = dial_unix(f);
        say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        close(take_fd(&fd));
        TURN_UNTIL(f, f->n_aborts == 1);
}

/* An orderly close of a TCP client looks like the end of its requests, until something is sent. */
static void test_abort_by_close_tcp(void **state)
{
        struct fixture *f = *state;
        int CLEAN(cleanup_fd) fd = -1;

        f->finish_on_abort = true;
        start(f);
        f->server->limits_ms[DEADLINE_PROBE] = 1;
        fd = dial(f);
        say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        close(take_fd(&fd));
        TURN_UNTIL(f, f->n_aborts == 1);
}

/* And one that only ended its side is asked once, with an interim answer, and gets the real one. */
static void test_half_closed_and_probed(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        f->server->limits_ms[DEADLINE_PROBE] = 1;
        fd = dial(f);
        say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        shutdown(fd, SHUT_WR);
        hear(f, fd, &got, "HTTP/1.1 100 Continue\r\n\r\n");
        assert_true(link_is_empty(&f->server->deadlines[DEADLINE_PROBE]));
        respond_text(f->held[0], 200, "slow");
        hear_end(f, fd, &got);
        assert_true(str_starts(got.data, "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK"));
        has(&got, "slow");
        assert_int_equal(f->n_aborts, 0);
}

static void test_abort_in_body(void **state)
{
        struct fixture *f = *state;
        int CLEAN(cleanup_fd) fd = -1;

        f->finish_on_abort = true;
        start(f);
        /* Nobody has heard of this one yet. */
        fd = dial(f);
        say(fd, "POST /echo HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
        TURN_UNTIL(f, http_server_connections(f->server) == 1);
        close(take_fd(&fd));
        TURN_UNTIL(f, http_server_connections(f->server) == 0);
        assert_int_equal(f->n_requests + f->n_aborts, 0);
        fd = dial(f);
        say(fd, "POST /upload HTTP/1.1\r\nHost: a\r\nContent-Length: 9\r\n\r\nabc");
        TURN_UNTIL(f, f->body.len == 3);
        close(take_fd(&fd));
        TURN_UNTIL(f, f->n_aborts == 1);
        assert_int_equal(f->n_body_ends, 0);
}

static void test_abort_while_streaming(void **state)
{
        struct fixture *f = *state;
        int CLEAN(cleanup_fd) fd = -1;

        f->finish_on_abort = false;
        start(f);
        fd = dial(f);
        say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        http_stream_begin(f->held[0], 200, NULL, 0);
        close(take_fd(&fd));
        while (f->n_aborts == 0) {
                http_stream_write(f->held[0], "tick", 4);
                assert_int_equal(f->n_aborts, 0);
                uv_run(&f->loop, UV_RUN_NOWAIT);
        }
        http_stream_end(f->held[0]);
}

static void test_half_closed(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        for (int i = 0; i < 2; i++) {
                fd = i ? dial(f) : dial_unix(f);
                say(fd,
                    "GET /hold HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
                shutdown(fd, SHUT_WR);
                TURN_UNTIL(f, f->n_held == i + 1);
                for (int turn = 0; turn < 10; turn++)
                        uv_run(&f->loop, UV_RUN_NOWAIT);
                respond_text(f->held[i], 200, "slow");
                buf_clear(&got);
                hear_end(f, fd, &got);
                has(&got, "slow");
                has(&got, "GET|/echo");
                close(take_fd(&fd));
        }
        assert_int_equal(f->n_aborts, 0);
}

/* --- the end --- */

static void test_drain(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) idle = -1;
        int CLEAN(cleanup_fd) busy = -1;
        int CLEAN(cleanup_fd) late = -1;

        start(f);
        idle = dial(f);
        say(idle, "GET /echo HTTP/1.1\r\nHost: a\r\n\r\n");
        hear(f, idle, &got, "GET|");
        busy = dial(f);
        say(busy, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        http_server_drain(f->server);
        buf_clear(&got);
        hear_end(f, idle, &got);
        assert_int_equal(got.len, 0);
        late = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(connect(late, (struct sockaddr *)&f->tcp, sizeof(f->tcp)), -1);
        assert_int_equal(http_server_connections(f->server), 1);
        respond_text(f->held[0], 200, "done");
        hear_end(f, busy, &got);
        has(&got, "Connection: close\r\n");
        has(&got, "done");
        close(take_fd(&busy));
        TURN_UNTIL(f, http_server_connections(f->server) == 0);
}

static void test_drain_by_handler(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;

        start(f);
        ask(f, "GET /drain HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n", &got);
        has(&got, "bye");
        has(&got, "Connection: close\r\n");
        assert_int_equal(f->n_requests, 1);
}

static void test_close_with_work_left(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial(f);
        say(fd, "GET /hold HTTP/1.1\r\nHost: a\r\n\r\n");
        TURN_UNTIL(f, f->n_held == 1);
        http_server_close(take_ptr(&f->server), on_closed, &f->closed);
        assert_int_equal(f->n_aborts, 1);
        assert_false(f->closed);
        TURN_UNTIL(f, f->closed);
        hear_end(f, fd, &got);
        assert_int_equal(got.len, 0);
        respond_text(f->held[0], 200, "after the end of the server");
}

static void test_close_by_handler(void **state)
{
        struct fixture *f = *state;
        struct buf CLEAN(buf_done) got = BUF_INIT;

        f->finish_on_abort = true;
        start(f);
        ask(f, "GET /shut HTTP/1.1\r\nHost: a\r\n\r\nGET /echo HTTP/1.1\r\nHost: a\r\n\r\n", &got);
        assert_int_equal(got.len, 0);
        assert_int_equal(f->n_aborts, 1);
        assert_int_equal(f->n_requests, 1);
}

/* --- listening sockets --- */

#define UPGRADE "GET /up HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\n"

static size_t shouted;

static void shout(struct http_exchange *x, const char *data, size_t len)
{
        shouted += len;
        for (size_t i = 0; i < len; i++) {
                char c = data[i] >= 'a' && data[i] <= 'z' ? (char)(data[i] - 32) : data[i];

                http_stream_write(x, &c, 1);
        }
        if (memchr(data, '#', len))
                http_body_pause(x);
        if (memchr(data, '.', len))
                http_stream_end(x);
}

static const struct http_field upgrade_field = { "Upgrade", "shout" };

/* The connection leaves HTTP: bytes as they are, both ways, from right behind the request on. */
static void test_upgrade(void **state)
{
        struct fixture *f = *state;
        CLEAN(buf_done) struct buf got = BUF_INIT, other = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial(f);
        say(fd, UPGRADE "early ");
        while (f->n_held == 0)
                uv_run(&f->loop, UV_RUN_NOWAIT);
        http_upgrade(f->held[0], &upgrade_field, 1, shout);
        hear(f, fd, &got, "EARLY ");
        assert_true(str_starts(got.data, "HTTP/1.1 101 Switching Protocols\r\n"));
        has(&got, "\r\nConnection: Upgrade\r\nUpgrade: shout\r\n\r\nEARLY ");
        say(fd, "late #");
        hear(f, fd, &got, "LATE #");
        say(fd, "held back.");
        ask(f, "GET /echo HTTP/1.0\r\n\r\n", &other); /* by then it has been read */
        assert_int_equal(shouted, strlen("early late #"));
        http_body_resume(f->held[0]);
        hear_end(f, fd, &got);
        has(&got, "LATE #HELD BACK.");
        assert_int_equal(f->n_aborts, 0);
}

static void test_upgrade_and_gone(void **state)
{
        struct fixture *f = *state;
        CLEAN(buf_done) struct buf got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial(f);
        say(fd, UPGRADE);
        while (f->n_held == 0)
                uv_run(&f->loop, UV_RUN_NOWAIT);
        http_upgrade(f->held[0], &upgrade_field, 1, shout);
        hear(f, fd, &got, "\r\n\r\n");
        assert_int_equal(shutdown(fd, SHUT_WR), 0);
        while (f->n_aborts == 0)
                uv_run(&f->loop, UV_RUN_NOWAIT);
        http_stream_write(f->held[0], "x", 1);
        http_stream_end(f->held[0]);
        hear_end(f, fd, &got);
        has_not(&got, "x");
}

/* Nothing is answered at all. */
static void test_drop(void **state)
{
        struct fixture *f = *state;
        CLEAN(buf_done) struct buf got = BUF_INIT;
        int CLEAN(cleanup_fd) fd = -1;

        start(f);
        fd = dial(f);
        say(fd, UPGRADE);
        while (f->n_held == 0)
                uv_run(&f->loop, UV_RUN_NOWAIT);
        http_drop(f->held[0]);
        hear_end(f, fd, &got);
        assert_int_equal(got.len, 0);
        assert_int_equal(http_server_connections(f->server), 0);
        assert_int_equal(f->n_aborts, 0);
}

static void test_listen_tcp(void **state)
{
        static const char *const bad[] = {
                "",      "127.0.0.1", "127.0.0.1:", "127.0.0.1:65536", "x:1", "127.0.0.1:+1",
                "[::1]", "::1:80",    "[::1:80",    "1.2.3.4.5:80",    ":80", "[]:80"
        };
        struct err CLEAN(err_done) err = { 0 };
        int fd;

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (http_listen_tcp(bad[i], &fd, &err) != ERR_INVALID)
                        fail_msg("accepted: %s", bad[i]);
        assert_int_equal(http_listen_tcp("localhost:0", &fd, &err), 0);
        assert_true(fcntl(fd, F_GETFD) & FD_CLOEXEC);
        close(fd);
        if (http_listen_tcp("[::1]:0", &fd, &err) == 0)
                close(fd);
        else
                assert_int_equal(err.code, ERR_INTERNAL); /* a machine without IPv6 */
}

static void test_listen_unix(void **state)
{
        struct fixture *f = *state;
        struct err CLEAN(err_done) err = { 0 };
        char long_path[120];
        struct stat st;
        int fd, other;

        assert_int_equal(http_listen_unix(f->path, 0660, &fd, &err), 0);
        assert_int_equal(stat(f->path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0660);
        assert_int_equal(http_listen_unix(f->path, 0600, &other, &err), ERR_LOCKED);
        close(fd); /* as a killed process leaves it */
        assert_int_equal(http_listen_unix(f->path, 0600, &fd, &err), 0);
        assert_int_equal(stat(f->path, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0600);
        close(fd);
        /* What is no socket is not ours to remove. */
        unlink(f->path);
        fd = open(f->path, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
        assert_true(fd >= 0);
        close(fd);
        assert_int_equal(http_listen_unix(f->path, 0600, &fd, &err), ERR_LOCKED);
        assert_int_equal(stat(f->path, &st), 0);

        /* The kernel's limit is 107 bytes and the terminator. */
        memset(long_path, 'x', sizeof(long_path));
        memcpy(long_path, f->dir, strlen(f->dir));
        long_path[strlen(f->dir)] = '/';
        long_path[108] = '\0';
        assert_int_equal(http_listen_unix(long_path, 0600, &fd, &err), ERR_INVALID);
        long_path[107] = '\0';
        assert_int_equal(http_listen_unix(long_path, 0600, &fd, &err), 0);
        close(fd);
        unlink(long_path);
}

/* The names of clients */

static const char *client_of(const char *address, uid_t owner)
{
        static char name[80];
        union {
                struct sockaddr any;
                struct sockaddr_in v4;
                struct sockaddr_in6 v6;
        } a = { .any.sa_family = AF_UNIX };

        if (inet_pton(AF_INET, address, &a.v4.sin_addr) == 1)
                a.any.sa_family = AF_INET;
        else if (inet_pton(AF_INET6, address, &a.v6.sin6_addr) == 1)
                a.any.sa_family = AF_INET6;
        http_client_name(&a.any, owner, name, sizeof(name));
        return name;
}

static void test_names_of_clients(void **state)
{
        static const char *const loopback[] = { "127.0.0.1", "127.0.0.2", "127.255.255.254",
                                                "::ffff:127.3.4.5", "::1" };
        const uid_t nobody = (uid_t)-1, mapped = geteuid() == 100000 ? 100001 : 100000;

        for (size_t i = 0; i < ARRAY_LEN(loopback); i++) {
                assert_string_equal(client_of(loopback[i], nobody), "local");
                assert_string_equal(client_of(loopback[i], 1000), "local uid 1000");
                assert_string_equal(client_of(loopback[i], mapped), "local uids from 65536");
        }
        assert_string_equal(client_of("unix", 0), "unix uid 0");
        assert_string_equal(client_of("192.0.2.7", nobody), "192.0.2.7");
        assert_string_equal(client_of("::ffff:192.0.2.7", nobody), "192.0.2.7");
        assert_string_equal(client_of("2001:db8:1:2:3:4:5:6", nobody), "2001:db8:1:2::");
        assert_string_equal(client_of("2001:db8:1:2:ffff::", nobody), "2001:db8:1:2::");
        assert_string_equal(client_of("2001:db8:1:3::1", nobody), "2001:db8:1:3::");
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_names_of_clients),
                TEST(test_inline_answer),
                TEST(test_peer),
                TEST(test_bodies),
                TEST(test_byte_by_byte),
                TEST(test_pipelining_keeps_order),
                TEST(test_many_pipelined),
                TEST(test_head_and_empty_answers),
                TEST(test_bad_fields_left_out),
                TEST(test_continue),
                TEST(test_refusal_ends_the_connection),
                TEST(test_refusal_body_by_handler),
                TEST(test_old_clients),
                TEST(test_limit_head),
                TEST(test_limit_body),
                TEST(test_limit_connections),
                TEST(test_limit_bodies),
                TEST(test_limit_answers),
                TEST(test_limit_idle_makes_room),
                TEST(test_limit_surplus),
                TEST(test_limit_carried),
                TEST(test_limit_carried_idle),
                TEST(test_limit_carried_surplus),
                TEST(test_out_of_descriptors),
                TEST(test_out_of_reserve),
                TEST(test_deadline_linger),
                TEST(test_deadline_head),
                TEST(test_deadline_of_next_head),
                TEST(test_deadline_body),
                TEST(test_deadline_body_carried),
                TEST(test_deadline_idle),
                TEST(test_deadline_write),
                TEST(test_idle_costs),
                TEST(test_stream),
                TEST(test_stream_back_pressure),
                TEST(test_limit_stream_pending),
                TEST(test_large_answer),
                TEST(test_failed_body_is_500),
                TEST(test_upload),
                TEST(test_upload_pause),
                TEST(test_upload_pause_within_a_read),
                TEST(test_huge_body),
                TEST(test_abort_by_reset),
                TEST(test_abort_by_close_unix),
                TEST(test_abort_by_close_tcp),
                TEST(test_half_closed_and_probed),
                TEST(test_abort_in_body),
                TEST(test_abort_while_streaming),
                TEST(test_half_closed),
                TEST(test_drain),
                TEST(test_drain_by_handler),
                TEST(test_close_with_work_left),
                TEST(test_close_by_handler),
                TEST(test_upgrade),
                TEST(test_upgrade_and_gone),
                TEST(test_drop),
                TEST(test_listen_tcp),
                TEST(test_listen_unix),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
