/* threads: a server on another thread. */
/* The client library against a server that says exactly what the test wrote down: a thread accepts
 * connections on a Unix socket, reads one request after the other and answers with the next line of
 * its script. */
#include "test.h"

#include <berth/berth.h>
#include <poll.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/un.h>

#include "base/fd.h"
#include "client/answer.h"
#include "client/conn.h"
#include "client/flow.h"

#define ENV_ID   "aaaa1111-0000-4000-8000-000000000001"
#define LEASE_ID "bbbb1111-0000-4000-8000-000000000002"
#define RECORD                                                                                     \
        "{\"environment\":{},\"lease\":{\"id\":\"" LEASE_ID                                        \
        "\",\"status\":\"active\",\"expiresAt\":null},\"leaseContext\":{}}"

struct step {
        const char *answer; /* NULL: close without a word */
        bool close;         /* close after the answer */
        bool silent;        /* say nothing, and wait until the client goes */
};

struct server {
        char dir[64];
        char path[96];
        int fd;
        pthread_t thread;
        const struct step *steps;
        size_t n_steps;
        size_t connections;
        char *requests[8]; /* owned */
        size_t n_requests;
};

/* One whole request: head, and as much body as it announces. NULL when the client is gone. */
static char *read_request(int fd)
{
        struct buf b = BUF_INIT;

        for (;;) {
                const char *end = strstr(buf_str(&b), "\r\n\r\n");
                const char *length = strstr(buf_str(&b), "Content-Length: ");
                size_t want = length ? strtoul(length + 16, NULL, 10) : 0;
                ssize_t n;

                if (end && b.len >= (size_t)(end + 4 - b.data) + want)
                        return buf_take(&b);
                n = read(fd, buf_reserve(&b, 4096), 4096);
                if (n <= 0) {
                        buf_done(&b);
                        return NULL;
                }
                buf_grew(&b, (size_t)n);
        }
}

static void *serve(void *arg)
{
        struct server *s = arg;
        size_t at = 0;

        while (at < s->n_steps) {
                CLEAN(cleanup_fd) int fd = accept(s->fd, NULL, NULL);
                bool open = fd >= 0;

                s->connections++;
                while (open && at < s->n_steps) {
                        char *request = read_request(fd);
                        const struct step *step;

                        if (!request)
                                break;
                        s->requests[s->n_requests++] = request;
                        step = &s->steps[at++];
                        if (step->answer)
                                (void)fd_write_all(fd, step->answer, strlen(step->answer), NULL);
                        if (step->silent)
                                free(read_request(fd));
                        open = step->answer && !step->close && !step->silent;
                }
        }
        return NULL;
}

static void server_start(struct server *s, const struct step *steps, size_t n_steps)
{
        struct sockaddr_un sa = { .sun_family = AF_UNIX };

        *s = (struct server){ .dir = "/tmp/berth-test-XXXXXX", .steps = steps, .n_steps = n_steps };
        assert_non_null(mkdtemp(s->dir));
        (void)snprintf(s->path, sizeof(s->path), "%s/sock", s->dir);
        memcpy(sa.sun_path, s->path, strlen(s->path) + 1);
        s->fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
        assert_int_equal(bind(s->fd, (const struct sockaddr *)&sa, sizeof(sa)), 0);
        assert_int_equal(listen(s->fd, 8), 0);
        assert_int_equal(pthread_create(&s->thread, NULL, serve, s), 0);
}

/* Wait until the script was played to its end; what was asked can be looked at then. */
static void server_join(struct server *s)
{
        assert_int_equal(pthread_join(s->thread, NULL), 0);
}

static void server_done(struct server *s)
{
        for (size_t i = 0; i < s->n_requests; i++)
                free(s->requests[i]);
        close(s->fd);
        unlink(s->path);
        rmdir(s->dir);
}

static struct berth *open_client(const struct server *s)
{
        struct berth *b = NULL;

        assert_int_equal(berth_open(&(struct berth_options){ .socket_path = s->path,
                                                             .api_key = "pcp_secret" },
                                    &b, NULL),
                         0);
        return b;
}

#define OK(body_len, body) "HTTP/1.1 200 OK\r\nContent-Length: " body_len "\r\n\r\n" body

static void test_keep_alive(void **state UNUSED)
{
        static const struct step steps[] = {
                { .answer = OK("2", "{}") },
                { .answer = "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\n"
                            "Transfer-Encoding: chunked\r\n\r\n3\r\n[1,\r\n2\r\n2]\r\n0\r\n\r\n" },
                { .answer = "HTTP/1.1 204 No Content\r\n\r\n", .close = true },
                { .answer = "HTTP/1.0 200 OK\r\n\r\n\"till the end\"", .close = true },
        };
        struct berth_response response;
        struct berth_error error;
        struct server s;
        struct berth *b;

        server_start(&s, steps, ARRAY_LEN(steps));
        b = open_client(&s);
        assert_int_equal(berth_request(b, "GET", "/api/a", NULL, &response, &error), 0);
        assert_int_equal(response.status, 200);
        assert_string_equal(response.body, "{}");
        berth_response_done(&response);
        assert_int_equal(berth_request(b, "POST", "/api/b", "{\"x\":1}", &response, &error), 0);
        assert_string_equal(response.body, "[1,2]");
        berth_response_done(&response);
        assert_int_equal(berth_request(b, "DELETE", "/api/c", NULL, &response, &error), 0);
        assert_int_equal(response.status, 204);
        assert_string_equal(response.body, "");
        berth_response_done(&response);
        assert_int_equal(berth_request(b, "GET", "/api/d", NULL, &response, &error), 0);
        assert_string_equal(response.body, "\"till the end\"");
        berth_response_done(&response);
        berth_close(b);
        server_join(&s);
        assert_true(str_starts(s.requests[0], "GET /api/a HTTP/1.1\r\n"));
        assert_non_null(strstr(s.requests[0], "\r\nHost: localhost\r\n"));
        assert_non_null(strstr(s.requests[0], "\r\nAuthorization: Bearer pcp_secret\r\n"));
        assert_null(strstr(s.requests[0], "Content-Type"));
        assert_non_null(strstr(s.requests[1], "\r\nContent-Type: application/json\r\n"));
        assert_non_null(strstr(s.requests[1], "\r\n\r\n{\"x\":1}"));
        assert_int_equal(s.connections, 2);
        server_done(&s);
}

static void test_refusal(void **state UNUSED)
{
        static const struct step steps[] = {
                { .answer = "HTTP/1.1 400 Bad Request\r\nContent-Length: 63\r\n\r\n"
                            "{\"error\":\"Validation "
                            "error\",\"details\":[{\"message\":\"Required\"}]}" },
                { .answer = "HTTP/1.1 500 Oops\r\nContent-Length: 4\r\n\r\noops" },
        };
        struct berth_lease lease;
        struct berth_error error;
        struct server s;
        struct berth *b;

        server_start(&s, steps, ARRAY_LEN(steps));
        b = open_client(&s);
        assert_int_equal(berth_acquire(b, ENV_ID, NULL, &lease, &error), BERTH_REFUSED);
        assert_int_equal(error.http_status, 400);
        assert_string_equal(error.text, "Validation error");
        assert_string_equal(error.details, "[{\"message\":\"Required\"}]");
        assert_int_equal(berth_renew(b, LEASE_ID, 5, &lease, &error), BERTH_REFUSED);
        assert_int_equal(error.http_status, 500);
        assert_non_null(strstr(error.text, "500"));
        berth_close(b);
        server_join(&s);
        server_done(&s);
}

/* An acquire whose connection breaks is sent again with the same key, a renewal is not sent again.
 */
static void test_lost_connection(void **state UNUSED)
{
        static const struct step steps[] = {
                { .answer = NULL },
                { .answer = OK("125", RECORD) },
                { .answer = NULL },
                { .answer = OK("20", "{\"cut"), .close = true },
        };
        struct berth_response response;
        struct berth_lease lease;
        struct berth_error error;
        const char *key1, *key2;
        struct server s;
        struct berth *b;

        assert_int_equal(strlen(RECORD), 125);
        server_start(&s, steps, ARRAY_LEN(steps));
        b = open_client(&s);
        assert_int_equal(berth_acquire(b, ENV_ID,
                                       &(struct berth_acquire_options){ .ttl_ms = 60000 }, &lease,
                                       &error),
                         0);
        assert_string_equal(lease.id, LEASE_ID);
        assert_string_equal(lease.status, "active");
        assert_string_equal(lease.expires_at, "");
        assert_string_equal(lease.json, RECORD);
        berth_lease_done(&lease);
        assert_int_equal(berth_renew(b, LEASE_ID, 5, &lease, &error), BERTH_LOST);
        assert_int_equal(berth_request(b, "POST", "/api/x", "{}", &response, &error), BERTH_LOST);
        berth_close(b);
        server_join(&s);
        key1 = strstr(s.requests[0], "idempotencyKey");
        key2 = strstr(s.requests[1], "idempotencyKey");
        assert_non_null(key1);
        assert_string_equal(key1, key2);
        assert_non_null(strstr(s.requests[0], "\"ttlMs\":60000"));
        assert_int_equal(s.n_requests, 4);
        server_done(&s);
}

static void test_timeout(void **state UNUSED)
{
        static const struct step steps[] = { { .silent = true, .answer = "HTTP/1.1 200 " } };
        struct berth_response response;
        struct berth_error error;
        struct server s;
        struct berth *b;

        server_start(&s, steps, ARRAY_LEN(steps));
        assert_int_equal(
                berth_open(&(struct berth_options){ .socket_path = s.path, .timeout_ms = 20 }, &b,
                           NULL),
                0);
        assert_int_equal(berth_request(b, "GET", "/api/x", NULL, &response, &error), BERTH_TIMEOUT);
        berth_close(b);
        server_join(&s);
        server_done(&s);
}

static void test_not_http(void **state UNUSED)
{
        static const struct step steps[] = { { .answer = "SSH-2.0-OpenSSH_9.2\r\n\r\n" } };
        struct berth_response response;
        struct berth_error error;
        struct server s;
        struct berth *b;

        server_start(&s, steps, ARRAY_LEN(steps));
        b = open_client(&s);
        assert_int_equal(berth_request(b, "GET", "/api/x", NULL, &response, &error),
                         BERTH_PROTOCOL);
        berth_close(b);
        server_join(&s);
        server_done(&s);
}

static void test_unreachable(void **state UNUSED)
{
        struct berth_response response;
        struct berth_error error;
        struct berth *b;

        assert_int_equal(
                berth_open(&(struct berth_options){ .url = "unix:/does/not/exist" }, &b, &error),
                0);
        assert_int_equal(berth_request(b, "GET", "/api/x", NULL, &response, &error),
                         BERTH_UNREACHABLE);
        assert_non_null(strstr(error.text, "unix:/does/not/exist"));
        assert_non_null(strstr(error.text, "start one with: berth serve"));
        berth_close(b);
}

static void test_invalid(void **state UNUSED)
{
        static const char *const urls[] = { "",           "ftp://x",        "http://",
                                            "https://x",  "http://a:b",     "http://a:0",
                                            "http://a b", "http://[::1",    "http://a:99999",
                                            "unix:x",     "http://u@h:3100" };
        struct berth_response response;
        struct berth_lease lease;
        struct berth_error error;
        struct berth *b;

        for (size_t i = 0; i < ARRAY_LEN(urls); i++)
                assert_int_equal(berth_open(&(struct berth_options){ .url = urls[i] }, &b, &error),
                                 BERTH_INVALID);
        assert_int_equal(
                berth_open(&(struct berth_options){ .url = "http://x", .api_key = "a\r\nb: c" }, &b,
                           &error),
                BERTH_INVALID);
        assert_null(strstr(error.text, "b: c"));
        assert_int_equal(berth_open(&(struct berth_options){ .url = "unix:/none" }, &b, &error), 0);
        assert_int_equal(berth_request(b, "GET", "/a b", NULL, &response, &error), BERTH_INVALID);
        assert_int_equal(berth_request(b, "G T", "/a", NULL, &response, &error), BERTH_INVALID);
        assert_int_equal(berth_acquire(b, "../x", NULL, &lease, &error), BERTH_INVALID);
        berth_close(b);
}

/* A connection that ended, or that says something unasked, must not carry the next request. */
static void test_stale_connections(void **state UNUSED)
{
        int fds[2];

        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        assert_false(conn_is_stale(fds[0]));
        assert_int_equal(write(fds[1], "x", 1), 1);
        assert_true(conn_is_stale(fds[0]));
        close(fds[0]);
        close(fds[1]);
        assert_int_equal(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds), 0);
        close(fds[1]);
        assert_true(conn_is_stale(fds[0]));
        close(fds[0]);
}

static void test_address(void **state UNUSED)
{
        struct conn_address a;

        assert_int_equal(conn_address_parse("http://localhost", &a, NULL), 0);
        assert_string_equal(a.port, "3100");
        assert_string_equal(a.prefix, "");
        conn_address_done(&a);
        assert_int_equal(conn_address_parse("http://[::1]:80/x/api/", &a, NULL), 0);
        assert_string_equal(a.host, "::1");
        assert_string_equal(a.port, "80");
        assert_string_equal(a.prefix, "/x");
        conn_address_done(&a);
}

/* -- Event streams ---------------------------------------------------------------------------- */

static int stop_at_exit(void *arg, const struct berth_event *event)
{
        buf_appendf(arg, "[%s|%s|%s]", event->id, event->event, event->data);
        return streq(event->event, "exit") ? 7 : 0;
}

static void test_stream(void **state UNUSED)
{
        static const struct step steps[] = {
                { .answer = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\n"
                            "\r\nid: 3.0\nevent: stdout\ndata: hi\n\nevent: exit\ndata: {}\n\n"
                            "data: never\n\n",
                  .close = true },
                { .answer = "HTTP/1.1 404 No\r\nContent-Length: 16\r\n\r\n{\"error\":\"gone\"}",
                  .close = true },
                { .answer = OK("2", "{}"), .close = true },
        };
        CLEAN(buf_done) struct buf seen = BUF_INIT;
        struct berth_error error;
        struct server s;
        struct berth *b;

        server_start(&s, steps, ARRAY_LEN(steps));
        b = open_client(&s);
        assert_int_equal(berth_stream(b, "/api/e", "2.0", 0, stop_at_exit, &seen, &error), 7);
        assert_string_equal(buf_str(&seen), "[3.0|stdout|hi][3.0|exit|{}]");
        assert_int_equal(berth_stream(b, "/api/e", NULL, 0, stop_at_exit, &seen, &error),
                         BERTH_REFUSED);
        assert_string_equal(error.text, "gone");
        assert_int_equal(berth_stream(b, "/api/e", NULL, 0, stop_at_exit, &seen, &error),
                         BERTH_PROTOCOL);
        berth_close(b);
        server_join(&s);
        assert_non_null(strstr(s.requests[0], "\r\nLast-Event-ID: 2.0\r\n"));
        assert_non_null(strstr(s.requests[0], "\r\nAccept: text/event-stream\r\n"));
        server_done(&s);
}

/* However the bytes are cut, the answer is the same. */
static int append(void *arg, const struct http_answer *answer UNUSED, const char *data, size_t len,
                  struct err *err UNUSED)
{
        buf_append(arg, data, len);
        return 0;
}

static int feed(const char *text, size_t piece, struct answer_reader *r, struct buf *body)
{
        int result = 0;

        answer_init(r, false, append, body);
        for (size_t i = 0, n = strlen(text); i < n && result == 0; i += piece) {
                buf_append(&r->in, text + i, MIN(piece, n - i));
                result = answer_step(r, NULL);
        }
        return result;
}

static void test_answers_in_pieces(void **state UNUSED)
{
        static const struct {
                const char *text, *body;
                int status, result;
                bool keep_alive;
        } cases[] = {
                { OK("2", "{}"), "{}", 200, 1, true },
                { "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "", 200, 1, true },
                { "HTTP/1.1 204 No\r\nConnection: close\r\n\r\n", "", 204, 1, false },
                { "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nTransfer-Encoding: "
                  "chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n",
                  "abcde", 200, 1, true },
                { "HTTP/1.0 200 OK\r\n\r\nto the end", "to the end", 200, 0, false },
                { "HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", "abc", 200, 0, false },
                { "SSH-2.0-OpenSSH\r\n\r\n", "", 0, ERR_PROVIDER, false },
        };

        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                for (size_t piece = 1; piece < 200; piece++) {
                        CLEAN(buf_done) struct buf body = BUF_INIT;
                        CLEAN(answer_done) struct answer_reader r;

                        assert_int_equal(feed(cases[i].text, piece, &r, &body), cases[i].result);
                        assert_int_equal(r.answer.status, cases[i].status);
                        assert_string_equal(buf_str(&body), cases[i].body);
                        assert_int_equal(r.answer.keep_alive, cases[i].keep_alive);
                }
        }
}

static void test_answers_cut_off(void **state UNUSED)
{
        CLEAN(buf_done) struct buf body = BUF_INIT;
        struct answer_reader r;

        assert_int_equal(feed("HTTP/1.0 200 OK\r\n\r\nall", 7, &r, &body), 0);
        assert_int_equal(answer_closed(&r, NULL), 1);
        assert_false(r.answer.keep_alive);
        answer_done(&r);
        assert_int_equal(feed("HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nabc", 7, &r, &body), 0);
        assert_int_equal(answer_closed(&r, NULL), ERR_UNCERTAIN);
        answer_done(&r);
}

static int finish_flow(struct flow *f)
{
        for (;;) {
                struct pollfd p = { .fd = f->fd, .events = flow_events(f) };
                int r;

                assert_int_equal(poll(&p, 1, 30000), 1);
                r = flow_step(f, NULL);
                if (r != 0)
                        return r;
        }
}

static void test_flow(void **state UNUSED)
{
        static const struct step steps[] = {
                { .answer = OK("3", "one") },
                /* It says that it closes: else the next request may still go to this connection. */
                { .answer = "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 3\r\n\r\ntwo",
                  .close = true },
                { .answer = NULL },
                { .answer = OK("4", "four") },
        };
        struct http_call call = { .method = "POST",
                                  .path = "/api/x",
                                  .accept = "application/json",
                                  .body = "a\0b",
                                  .body_len = 3,
                                  .content_type = "application/octet-stream" };
        CLEAN(buf_done) struct buf body = BUF_INIT;
        struct flow f = FLOW_INIT;
        struct server s;
        struct berth *b;

        server_start(&s, steps, ARRAY_LEN(steps));
        b = open_client(&s);
        assert_int_equal(flow_events(&f), 0);
        for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
                assert_int_equal(flow_start(&f, b, &call, append, &body, NULL), 0);
                assert_int_equal(flow_events(&f), POLLIN | POLLOUT);
                assert_int_equal(finish_flow(&f), steps[i].answer ? 1 : ERR_UNCERTAIN);
                assert_false(f.busy);
                call.body = NULL; /* what a string shows of the first is enough */
        }
        assert_string_equal(buf_str(&body), "onetwofour");
        flow_close(&f);
        berth_close(b);
        server_join(&s);
        assert_true(s.connections >= 3);
        assert_non_null(strstr(s.requests[0], "\r\nContent-Type: application/octet-stream\r\n"));
        assert_non_null(strstr(s.requests[0], "\r\nContent-Length: 3\r\n"));
        assert_non_null(strstr(s.requests[0], "\r\nAuthorization: Bearer pcp_secret\r\n"));
        server_done(&s);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_keep_alive),
                cmocka_unit_test(test_refusal),
                cmocka_unit_test(test_lost_connection),
                cmocka_unit_test(test_timeout),
                cmocka_unit_test(test_not_http),
                cmocka_unit_test(test_unreachable),
                cmocka_unit_test(test_invalid),
                cmocka_unit_test(test_address),
                cmocka_unit_test(test_stale_connections),
                cmocka_unit_test(test_stream),
                cmocka_unit_test(test_answers_in_pieces),
                cmocka_unit_test(test_answers_cut_off),
                cmocka_unit_test(test_flow),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
