/* The cases of AWS's published test suite for Signature Version 4 that have no query string; their
 * signatures were computed a second time with Python's hmac and hashlib. */
#include "test.h"

#include <sodium.h>

#include "codec/sigv4.h"

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

static const struct sigv4_key key = {
        "AKIDEXAMPLE",
        "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY",
        "us-east-1",
        "service",
};

struct vector {
        const char *name;
        const char *method;
        struct sigv4_header headers[4];
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
          "",
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
          "",
          "host;my-header1;x-amz-date",
          "c9d5ea9f3f72853aea855b47ea873832890dbdd183b4468f858259531a5138ea" },
        { "get-header-value-trim",
          "GET",
          { HOST, { "my-header1", " value1" }, { "my-header2", " \"a   b   c\"" }, X_AMZ_DATE },
          4,
          "",
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

static struct sigv4_request request_of(const struct vector *v)
{
        return (struct sigv4_request){
                .method = v->method,
                .path = "/",
                .headers = v->headers,
                .n_headers = v->n_headers,
                .body = v->body,
                .body_len = strlen(v->body),
        };
}

static void test_published_vectors(void **state)
{
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(vectors); i++) {
                const struct vector *v = &vectors[i];
                CLEAN(buf_done) struct buf got = BUF_INIT, expected = BUF_INIT;
                struct sigv4_request request = request_of(v);

                buf_appendf(&expected,
                            "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/20150830/us-east-1/service/"
                            "aws4_request, SignedHeaders=%s, Signature=%s",
                            v->names, v->signature);
                assert_int_equal(sigv4_sign(&request, &key, DATE, &got, NULL), 0);
                if (!streq(buf_str(&got), buf_str(&expected)))
                        fail_msg("%s: %s", v->name, buf_str(&got));
        }
}

static void test_an_empty_path_is_the_root(void **state)
{
        CLEAN(buf_done) struct buf got = BUF_INIT;
        struct sigv4_request request = request_of(&vectors[0]);

        (void)state;
        request.path = "";
        assert_int_equal(sigv4_sign(&request, &key, DATE, &got, NULL), 0);
        assert_non_null(strstr(buf_str(&got), vectors[0].signature));
}

static void assert_refused(struct sigv4_header header, const char *date)
{
        CLEAN(buf_done) struct buf got = BUF_INIT;
        CLEAN(err_done) struct err e = { 0 };
        struct sigv4_header headers[] = { HOST, header };
        struct sigv4_request request = {
                .method = "GET", .path = "/", .headers = headers, .n_headers = 2, .body = ""
        };

        assert_int_equal(sigv4_sign(&request, &key, date, &got, &e), ERR_INVALID);
        assert_int_equal(got.len, 0);
        assert_true(*e.msg);
}

static void test_what_cannot_be_signed(void **state)
{
        (void)state;
        assert_refused((struct sigv4_header)HOST, DATE);
        assert_refused((struct sigv4_header){ "x", "a\r\nb: c" }, DATE);
        assert_refused((struct sigv4_header){ "x:y", "a" }, DATE);
        assert_refused((struct sigv4_header){ "X-Y", "a" }, DATE);
        assert_refused((struct sigv4_header){ "", "a" }, DATE);
        assert_refused((struct sigv4_header){ "x", "a" }, "20150830T12360Z");
        assert_refused((struct sigv4_header){ "x", "a" }, "20150830T1236000");
        assert_refused((struct sigv4_header){ "x", "a" }, "2015-830T123600Z");
}

static void test_too_many_headers(void **state)
{
        CLEAN(buf_done) struct buf got = BUF_INIT;
        static const char names[] = "a\0b\0c\0d\0e\0f\0g\0h\0i\0j\0k\0l\0m\0n\0o\0p\0q";
        struct sigv4_header headers[SIGV4_HEADERS_MAX + 1];
        struct sigv4_request request = {
                .method = "GET", .path = "/", .headers = headers, .body = ""
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(headers); i++)
                headers[i] = (struct sigv4_header){ names + 2 * i, "x" };
        request.n_headers = SIGV4_HEADERS_MAX;
        assert_int_equal(sigv4_sign(&request, &key, DATE, &got, NULL), 0);
        request.n_headers = SIGV4_HEADERS_MAX + 1;
        assert_int_equal(sigv4_sign(&request, &key, DATE, &got, NULL), ERR_INVALID);
}

static void test_date(void **state)
{
        char date[SIGV4_DATE_LEN + 1];

        (void)state;
        sigv4_date(INT64_C(1440938160999999), date);
        assert_string_equal(date, DATE);
        sigv4_date(0, date);
        assert_string_equal(date, "19700101T000000Z");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_published_vectors),
                cmocka_unit_test(test_an_empty_path_is_the_root),
                cmocka_unit_test(test_what_cannot_be_signed),
                cmocka_unit_test(test_too_many_headers),
                cmocka_unit_test(test_date),
        };

        return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
