/* References and the documents of registries: tables of what is read, and of what is refused. */
#include "test.h"

#include <sodium.h>

#include "base/buf.h"
#include "image/challenge.h"
#include "image/manifest.h"
#include "image/registry_rules.h"

#define HEX    "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
#define DIGEST "sha256:" HEX

static const struct {
        const char *text;
        const char *whole; /* NULL: refused */
} references[] = {
        { "node:22", "docker.io/library/node:22" },
        { "debian", "docker.io/library/debian:latest" },
        { "org/name", "docker.io/org/name:latest" },
        { "docker.io/node", "docker.io/library/node:latest" },
        { "index.docker.io/org/name:x", "docker.io/org/name:x" },
        { "ghcr.io/org/name:tag", "ghcr.io/org/name:tag" },
        { "GHCR.io/org/name", "ghcr.io/org/name:latest" },
        { "localhost/x", "localhost/x:latest" },
        { "localhost:5000/x", "localhost:5000/x:latest" },
        { "localhost:5000", "docker.io/library/localhost:5000" },
        { "127.0.0.1:5000/a/b/c:T_1.x-y", "127.0.0.1:5000/a/b/c:T_1.x-y" },
        { "[::1]:5000/x", "[::1]:5000/x:latest" },
        { "debian@" DIGEST, "docker.io/library/debian@" DIGEST },
        { "debian:12@" DIGEST, "docker.io/library/debian:12@" DIGEST },
        { "a__b/c--d.e_f", "docker.io/a__b/c--d.e_f:latest" },
        { "", NULL },
        { "Node", NULL },
        { "node:", NULL },
        { ":22", NULL },
        { "node:-x", NULL },
        { "node:a b", NULL },
        { "node@sha256:12", NULL },
        { "node@sha512:" HEX, NULL },
        { "node@" DIGEST "0", NULL },
        { "node@sha256:0123456789ABCDEF" HEX, NULL },
        { "a//b", NULL },
        { "/a", NULL },
        { "a/", NULL },
        { "a/../b", NULL },
        { "a/./b", NULL },
        { "a___b", NULL },
        { "a.", NULL },
        { "-a", NULL },
        { "a%2fb", NULL },
        { "a?b", NULL },
        { "a#b", NULL },
        { "https://ghcr.io/a", NULL },
        { "user@ghcr.io/a", NULL },
        { "ghcr.io:99999/a", NULL },
        { "ghcr.io:/a", NULL },
        { "a b.c/x", NULL },
        { "r\xc3\xa9.io/x", NULL },
};

static void test_references(void **state)
{
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(references); i++) {
                char whole[IMAGE_REF_SIZE], again[IMAGE_REF_SIZE];
                CLEAN(err_done) struct err err = { 0 };
                struct image_ref ref;
                int r = image_ref_parse(references[i].text, &ref, &err);

                if ((r < 0) != !references[i].whole)
                        fail_msg("%s: %d %s", references[i].text, r, err.msg);
                if (r < 0)
                        continue;
                image_ref_format(&ref, whole);
                assert_string_equal(whole, references[i].whole);
                struct image_ref same;

                assert_int_equal(image_ref_parse(whole, &same, &err), 0);
                assert_memory_equal(&ref, &same, sizeof(ref));
                image_ref_format(&same, again);
                assert_string_equal(again, whole);
        }
        /* At the limits, and one past them. */
        char text[400] = "x:";
        struct image_ref ref;

        memset(text + 2, 't', 128);
        assert_int_equal(image_ref_parse(text, &ref, NULL), 0);
        text[130] = 't';
        assert_int_equal(image_ref_parse(text, &ref, NULL), ERR_INVALID);
        memset(text, 'n', 247);
        text[247] = '\0';
        assert_int_equal(image_ref_parse(text, &ref, NULL), 0);
        text[247] = 'n';
        text[248] = '\0';
        assert_int_equal(image_ref_parse(text, &ref, NULL), ERR_INVALID);
}

#define LAYER_(media, digest, size)                                                                \
        "{\"mediaType\":\"" media "\",\"digest\":\"" digest "\",\"size\":" size "}"
#define GZIP    "application/vnd.oci.image.layer.v1.tar+gzip"
#define CONFIG  "application/vnd.docker.container.image.v1+json"
#define GOOD    LAYER_(GZIP, DIGEST, "7")
#define OF(...) "{\"schemaVersion\":2,\"config\":" LAYER_(CONFIG, DIGEST, "5") "," __VA_ARGS__ "}"

static const struct {
        const char *text;
        int code;
        const char *says;
} manifests[] = {
        { OF("\"layers\":[" GOOD "]"), 0, "" },
        { OF("\"layers\":[" GOOD "," GOOD "],\"unknown\":{}"), 0, "" },
        { OF("\"layers\":[]"), ERR_UNPROCESSABLE, "0 layers" },
        { OF("\"layers\":{}"), ERR_INVALID, "not a list" },
        { OF("\"layers\":[7]"), ERR_INVALID, "not an object" },
        { OF("\"layers\":[" LAYER_("text/plain", DIGEST, "7") "]"), ERR_UNPROCESSABLE,
          "text/plain" },
        { OF("\"layers\":[" LAYER_(CONFIG, DIGEST, "7") "]"), ERR_INVALID, "not a tar" },
        { OF("\"layers\":[" LAYER_("application/vnd.docker.image.rootfs.foreign.diff.tar.gzip",
                                   DIGEST, "7") "]"),
          ERR_UNPROCESSABLE, "may not be distributed" },
        { OF("\"layers\":[" LAYER_(GZIP, "sha256:7", "7") "]"), ERR_INVALID, "digest" },
        { OF("\"layers\":[" LAYER_(GZIP, "../../" HEX, "7") "]"), ERR_INVALID, "digest" },
        { OF("\"layers\":[" LAYER_(GZIP, DIGEST, "-1") "]"), ERR_INVALID, "size" },
        { OF("\"layers\":[" LAYER_(GZIP, DIGEST, "1e300") "]"), ERR_INVALID, "size" },
        { OF("\"layers\":[" LAYER_(GZIP, DIGEST, "\"7\"") "]"), ERR_INVALID, "size" },
        { "{\"schemaVersion\":1}", ERR_UNPROCESSABLE, "schema 1" },
        { "{}", ERR_INVALID, "schemaVersion" },
        { "[]", ERR_INVALID, "object" },
        { "{", ERR_INVALID, "manifest" },
        { "{\"schemaVersion\":2,\"config\":" LAYER_("application/vnd.oci.empty.v1+json", DIGEST,
                                                    "2") "}",
          ERR_UNPROCESSABLE, "unknown media" },
        { "{\"schemaVersion\":2,\"config\":" LAYER_(CONFIG, DIGEST, "5000000") "}", ERR_TOO_LARGE,
          "4 MiB" },
};

static void test_manifests(void **state)
{
        struct arena arena;

        (void)state;
        arena_init(&arena);
        for (size_t i = 0; i < ARRAY_LEN(manifests); i++) {
                CLEAN(err_done) struct err err = { 0 };
                struct image_manifest m;
                int r = image_manifest_parse(&arena, manifests[i].text, strlen(manifests[i].text),
                                             &m, &err);

                if (r != manifests[i].code || (r < 0 && !strstr(err.msg, manifests[i].says)))
                        fail_msg("%s: %d %s", manifests[i].text, r, err.msg);
        }
        /* As many layers as there may be, and one more. */
        for (size_t n = IMAGE_MAX_LAYERS; n <= IMAGE_MAX_LAYERS + 1; n++) {
                CLEAN(buf_done) struct buf b = BUF_INIT;
                struct image_manifest m;

                buf_puts(&b, "{\"schemaVersion\":2,\"config\":" LAYER_(CONFIG, DIGEST,
                                                                       "5") ",\"layers\":[" GOOD);
                for (size_t i = 1; i < n; i++)
                        buf_puts(&b, "," GOOD);
                buf_puts(&b, "]}");
                assert_int_equal(image_manifest_parse(&arena, b.data, b.len, &m, NULL),
                                 n == IMAGE_MAX_LAYERS ? 0 : ERR_UNPROCESSABLE);
        }
        arena_done(&arena);
}

#define ROOTFS "\"rootfs\":{\"type\":\"layers\",\"diff_ids\":[\"" DIGEST "\"]}"

static const struct {
        const char *text;
        int code;
        const char *says;
} configs[] = {
        { "{" ROOTFS "}", 0, "" },
        { "{\"os\":\"linux\",\"architecture\":\"amd64\",\"config\":null," ROOTFS "}", 0, "" },
        { "{\"os\":\"windows\"," ROOTFS "}", ERR_UNPROCESSABLE, "windows" },
        { "{\"os\":\"linux\",\"architecture\":\"s390x\"," ROOTFS "}", ERR_UNPROCESSABLE, "s390x" },
        { "{\"os\":\"li\\nnux\"," ROOTFS "}", ERR_INVALID, "platform" },
        { "{\"config\":[]," ROOTFS "}", ERR_INVALID, "'config'" },
        { "{\"config\":{\"User\":7}," ROOTFS "}", ERR_INVALID, "'User'" },
        { "{\"config\":{\"Env\":\"A=b\"}," ROOTFS "}", ERR_INVALID, "'Env'" },
        { "{\"config\":{\"Env\":[7]}," ROOTFS "}", ERR_INVALID, "'Env'" },
        { "{\"config\":{\"Env\":[\"=b\"]}," ROOTFS "}", ERR_INVALID, "no name" },
        { "{\"config\":{\"Cmd\":[\"a\\u0000b\"]}," ROOTFS "}", ERR_INVALID, "" },
        { "{\"config\":{\"ExposedPorts\":[]}," ROOTFS "}", ERR_INVALID, "'ExposedPorts'" },
        { "{}", ERR_INVALID, "'rootfs'" },
        { "{\"rootfs\":{}}", ERR_INVALID, "knows 0 layers" },
        { "{\"rootfs\":{\"diff_ids\":[\"x\"]}}", ERR_INVALID, "'diff_ids'" },
        { "{\"rootfs\":{\"diff_ids\":[\"" DIGEST "\",\"" DIGEST "\"]}}", ERR_INVALID,
          "knows 2 layers" },
};

/* "linux/arm/v7" */
static struct image_platform platform_of(const char *text)
{
        struct image_platform p = { 0 };

        assert_true(sscanf(text, "%31[^/]/%31[^/]/%31s", p.os, p.architecture, p.variant) >= 2);
        return p;
}

static void test_configs(void **state)
{
        struct image_platform amd64;
        struct image_config c;
        struct arena arena;

        (void)state;
        arena_init(&arena);
        amd64 = platform_of("linux/amd64");
        for (size_t i = 0; i < ARRAY_LEN(configs); i++) {
                CLEAN(err_done) struct err err = { 0 };
                int r = image_config_parse(&arena, configs[i].text, strlen(configs[i].text), 1,
                                           &amd64, &c, &err);

                if (r != configs[i].code || (r < 0 && !strstr(err.msg, configs[i].says)))
                        fail_msg("%s: %d %s", configs[i].text, r, err.msg);
                if (r == 0) {
                        assert_string_equal(c.user, "");
                        assert_null(c.env[0]);
                }
        }
        arena_done(&arena);
}

/* Which of the variants of an index is taken. */
static void test_variants(void **state)
{
        static const struct {
                const char *platform, *there; /* what the index has, in order */
                int chosen;                   /* -1: none */
        } table[] = {
                { "linux/arm/v7", "arm/v5 arm/v6 arm/v7 arm/v8", 2 },
                { "linux/arm/v6", "arm/v7 arm/v5 arm/v6", 2 },
                { "linux/arm/v7", "arm/v5 arm/v6 arm64", 1 },
                { "linux/arm/v6", "arm/v7", -1 },
                { "linux/arm64/v8", "amd64 arm64", 1 },
                { "linux/arm64", "arm64/v8", 0 },
                { "linux/amd64", "amd64/v3 amd64", 1 },
                { "linux/amd64", "amd64/v3", -1 },
                { "linux/amd64", "amd64/v1", 0 },
                { "linux/amd64", "unknown amd64", 1 },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                CLEAN(buf_done) struct buf b = BUF_INIT;
                struct image_descriptor d = { 0 };
                struct image_platform p;
                char names[100], *rest = names, *name;
                unsigned n = 0;

                snprintf(names, sizeof(names), "%s", table[i].there);
                buf_puts(&b, "{\"schemaVersion\":2,\"manifests\":[");
                while ((name = strtok_r(rest, " ", &rest))) {
                        char *slash = strchr(name, '/');

                        if (slash)
                                *slash = '\0';
                        buf_appendf(
                                &b,
                                "%s{\"mediaType\":\"application/vnd.oci.image.manifest.v1+json\","
                                "\"digest\":\"sha256:%064u\",\"size\":1,\"platform\":{\"os\":"
                                "\"linux\",\"architecture\":\"%s\",\"variant\":\"%s\"}}",
                                n ? "," : "", n, name, slash ? slash + 1 : "");
                        n++;
                }
                buf_puts(&b, "]}");
                p = platform_of(table[i].platform);
                int r = image_index_choose(b.data, b.len, &p, &d, NULL);
                if ((r < 0) != (table[i].chosen < 0) ||
                    (r >= 0 && d.digest[70] != '0' + table[i].chosen))
                        fail_msg("%s of %s: %s", table[i].platform, table[i].there, d.digest);
        }
}

static void test_challenges(void **state)
{
        static const struct {
                const char *header;
                enum challenge_kind kind;
                const char *realm, *scope;
        } table[] = {
                { "Bearer realm=\"https://a/t\",service=\"s\",scope=\"repository:x:pull,push\"",
                  CHALLENGE_BEARER, "https://a/t", "repository:x:pull,push" },
                { "bearer scope=x , realm = \"q\\\"uote\"", CHALLENGE_BEARER, "q\"uote", "x" },
                { "Basic realm=\"r\", Bearer realm=\"b\"", CHALLENGE_BEARER, "b", "" },
                { "Negotiate, Basic realm=\"r\"", CHALLENGE_BASIC, "r", "" },
                { "Basic", CHALLENGE_BASIC, "", "" },
                { "Bearer", CHALLENGE_NONE, "", "" },
                { "Bearer realm=\"not closed", CHALLENGE_NONE, "", "" },
                { "Bearer realm=\"a\nb\"", CHALLENGE_NONE, "", "" },
                { "Digest realm=\"r\"", CHALLENGE_NONE, "", "" },
                { "", CHALLENGE_NONE, "", "" },
                { "=,=,\"", CHALLENGE_NONE, "", "" },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(table); i++) {
                struct challenge c = { 0 };

                challenge_add(&c, table[i].header, strlen(table[i].header));
                if (c.kind != table[i].kind || strcmp(c.realm, table[i].realm) != 0 ||
                    strcmp(c.scope, table[i].scope) != 0)
                        fail_msg("%s: %d '%s' '%s'", table[i].header, c.kind, c.realm, c.scope);
        }
}

static void test_rules(void **state)
{
        static const char *const wrong[] = { "a b", "ftp://x", "http://", "x=",    "=x",
                                             "x/y", "x:0",     "*.x",     "x=y=z", "u@x" };
        struct registry_rules r;

        (void)state;
        assert_int_equal(registry_rules_parse(NULL, &r, NULL), 0);
        assert_int_equal(r.n, 0);
        assert_int_equal(registry_rules_parse(" Reg.corp:5000, http://localhost:5000/ ,,docker.io="
                                              "http://10.0.0.5,https://plain.corp",
                                              &r, NULL),
                         0);
        assert_int_equal(r.n, 4);
        assert_true(rules_name(&r, "reg.corp", 5000));
        assert_false(rules_name(&r, "reg.corp", 443));
        assert_false(rules_allow_http(&r, "reg.corp", 5000));
        assert_true(rules_allow_http(&r, "localhost", 5000));
        assert_true(rules_name(&r, "localhost", 5000));
        assert_false(rules_name(&r, "127.0.0.1", 5000));
        assert_true(rules_allow_http(&r, "10.0.0.5", 80));
        assert_string_equal(r.at[2].mirror_of, "docker.io");
        assert_true(rules_name(&r, "plain.corp", 443));
        for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
                assert_int_equal(registry_rules_parse(wrong[i], &r, NULL), ERR_INVALID);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_references), cmocka_unit_test(test_manifests),
                cmocka_unit_test(test_configs),    cmocka_unit_test(test_variants),
                cmocka_unit_test(test_challenges), cmocka_unit_test(test_rules),
        };

        return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
