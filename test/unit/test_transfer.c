/* What libcurl signs for us: the vectors that AWS publishes, as a server gets them. */
#include "test.h"

#include <netinet/in.h>
#include <pthread.h>
#include <sodium.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/buf.h"
#include "secret/transfer.h"

#define DATE "20150830T123600Z"
#define HOST                                                                                       \
        {                                                                                          \
                "host", "example.amazonaws.com"                                                    \
        }
#define X_AMZ_DATE                                                                                 \
        {                                                                                          \
                "x-amz-date", DATE                                                                 \
        }
#define TOKEN                                                                                      \
        "AQoDYXdzEPT//////////wEXAMPLEtc764bNrC9SAPBSM22wDOk4x4HIZ8j4FZTwdQWLWsKWHGBuFqwAeMicRX"   \
        "mxfpSPfIeoIYRqTflfKD8YUuwthAx7mSEI/qkPpKPi/kMcGdQrmGdeehM4IC1NtBmUpp2wUE8phUZampKsbur"    \
        "EDy0KPkyQDYwT7WZ0wq5VSXDvp75YU9HFvlRd8Tx6q6fE8YQcHNVXAkiY9q6d+xo0rKwT38xVqr7ZD0u0iPPk"    \
        "UL64lIZbqBAz+scqKmlzm8FDrypNC9Yjc8fPOLn9FX9KSYvKTr4rvx3iSIlTJabIQwj2ICCR/oLxBA=="

struct vector {
        const char *name;
        const char *method;
        struct transfer_header headers[4];
        size_t n_headers;
        const char *body;
        const char *names;
        const char *signature;
};

static const struct vector vectors[] = {
        { "get-vanilla",
          "GET",
          { HOST, X_AMZ_DATE },
          2,
          NULL,
          "host;x-amz-date",
          "5fa00fa31553b73ebf1942676e86291e8372ff2a2260956d9b8aae1d763fbf31" },
        { "post-vanilla",
          "POST",
          { HOST, X_AMZ_DATE },
          2,
          "",
          "host;x-amz-date",
          "5da7c1a2acd57cee7505fc6676e4e544621c30862966e37dddb68e92efbe5d6b" },
        { "post-header-key-sort",
          "POST",
          { X_AMZ_DATE, { "my-header1", "value1" }, HOST },
          3,
          "",
          "host;my-header1;x-amz-date",
          "c5410059b04c1ee005303aed430f6e6645f61f4dc9e1461ec8f8916fdf18852c" },
        { "post-header-value-case",
          "POST",
          { HOST, { "my-header1", "VALUE1" }, X_AMZ_DATE },
          3,
          "",
          "host;my-header1;x-amz-date",
          "cdbc9802e29d2942e5e10b5bccfdd67c5f22c7c4e8ae67b53629efa58b974b7d" },
        { "get-header-key-duplicate",
          "GET",
          { HOST, { "my-header1", "value2,value2,value1" }, X_AMZ_DATE },
          3,
          NULL,
          "host;my-header1;x-amz-date",
          "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea" },
        { "get-header-value-trim",
          "GET",
          { HOST, { "my-header1", " value1" }, { "my-header2", " \"a   b   c\"" }, X_AMZ_DATE },
          4,
          NULL,
          "host;my-header1;my-header2;x-amz-date",
          "acc3ed3afb60bb290fc8d2dd0098b9911fcaa05412b367055dee359757a9c736" },
        { "post-x-www-form-urlencoded",
          "POST",
          { { "content-type", "application/x-www-form-urlencoded" }, HOST, X_AMZ_DATE },
          3,
          "Param1=value1",
          "content-type;host;x-amz-date",
          "ff11897932ad3f4e8b18135d722051e5ac45fc38421b1da7b9d196a0fe09473a" },
        { "post-sts-header-before",
          "POST",
          { HOST, X_AMZ_DATE, { "x-amz-security-token", TOKEN } },
          3,
          "",
          "host;x-amz-date;x-amz-security-token",
          "85d96828115b5dc0cfc3bd16ad9e210dd772bbebba041836c64533a82be05ead" },
};

/* One request: its head, and an answer that ends the connection. */
struct server {
        int listening;
        struct buf head;
};

static void *serve_one(void *arg)
{
        static const char answer[] = "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n"
                                     "Connection: close\r\n\r\n";
        struct server *s = arg;
        int fd = accept(s->listening, NULL, NULL);
        char part[4096];
        ssize_t n;

        while (!strstr(buf_str(&s->head), "\r\n\r\n") && (n = read(fd, part, sizeof(part))) > 0)
                buf_append(&s->head, part, (size_t)n);
        (void)!write(fd, answer, sizeof(answer) - 1);
        close(fd);
        return NULL;
}

static void test_published_vectors(void **state)
{
        static const struct transfer_signing key = { "AKIDEXAMPLE",
                                                     "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
                                                     "us-east-1", "service" };
        struct sockaddr_in address = { .sin_family = AF_INET,
                                       .sin_addr.s_addr = htonl(INADDR_LOOPBACK) };
        socklen_t len = sizeof(address);
        int listening = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        char url[64];

        (void)state;
        assert_int_equal(bind(listening, (struct sockaddr *)&address, len), 0);
        assert_int_equal(listen(listening, 8), 0);
        assert_int_equal(getsockname(listening, (struct sockaddr *)&address, &len), 0);
        (void)snprintf(url, sizeof(url), "http://127.0.0.1:%u/", ntohs(address.sin_port));
        for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
                const struct vector *v = &vectors[i];
                CLEAN(buf_done) struct buf expected = BUF_INIT;
                CLEAN(err_done) struct err e = { 0 };
                struct server s = { .listening = listening };
                struct transfer_answer answer = { 0 };
                struct transfer t = { .method = v->method,
                                      .url = url,
                                      .headers = v->headers,
                                      .n_headers = v->n_headers,
                                      .signing = &key,
                                      .body = v->body,
                                      .body_len = v->body ? strlen(v->body) : 0,
                                      .connect_ms = 10000,
                                      .total_ms = 10000,
                                      .once = true,
                                      .direct = true };
                struct op op = { .deadline_ms = OP_NO_DEADLINE };
                pthread_t thread;

                buf_appendf(&expected,
                            "Authorization: AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/"
                            "us-east-1/service/aws4_request, SignedHeaders=%s, Signature=%s\r\n",
                            v->names, v->signature);
                assert_int_equal(pthread_create(&thread, NULL, serve_one, &s), 0);
                if (transfer_run(&op, &t, &answer, &e) < 0)
                        fail_msg("%s: %s", v->name, e.msg);
                pthread_join(thread, NULL);
                if (!strstr(buf_str(&s.head), buf_str(&expected)))
                        fail_msg("%s: %s", v->name, buf_str(&s.head));
                transfer_answer_done(&answer);
                buf_done(&s.head);
        }
        close(listening);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_published_vectors),
        };

        if (sodium_init() < 0)
                return 1;
        return cmocka_run_group_tests(tests, NULL, NULL);
}
