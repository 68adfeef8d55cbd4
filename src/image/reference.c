/* Decides which texts are references to images, and what they mean. */
#include "image/reference.h"

#include <ctype.h>
#include <stdio.h>

#include "codec/host_pattern.h"

#define DEFAULT_HOST "docker.io"
#define OFFICIAL     "library/"
#define HTTPS        443

/* The parts of a text, not terminated. */
struct part {
        const char *at;
        size_t len;
};

static bool is_lower_or_digit(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool image_digest_ok(const char *text)
{
        if (!str_starts(text, "sha256:") || strlen(text) != IMAGE_DIGEST_SIZE - 1)
                return false;
        for (const char *c = text + 7; *c; c++)
                if (hex_digit(*c) < 0 || (*c >= 'A' && *c <= 'F'))
                        return false;
        return true;
}

/* "a", "a.b", "a_b", "a__b", "a--b": letters and digits with separators inside. */
static bool is_component(struct part p)
{
        size_t i = 0;

        while (i < p.len) {
                size_t separator;

                if (!is_lower_or_digit(p.at[i]))
                        return false;
                while (i < p.len && is_lower_or_digit(p.at[i]))
                        i++;
                separator = i;
                if (i == p.len)
                        return true;
                if (p.at[i] == '.')
                        i++;
                else if (p.at[i] == '-')
                        while (i < p.len && p.at[i] == '-')
                                i++;
                else
                        while (i < p.len && p.at[i] == '_' && i - separator < 2)
                                i++;
                if (i == separator)
                        return false;
        }
        return false; /* nothing at all, or a separator at the end */
}

static bool is_repository(struct part p)
{
        const char *slash;

        while ((slash = memchr(p.at, '/', p.len))) {
                size_t n = (size_t)(slash - p.at);

                if (!is_component((struct part){ p.at, n }))
                        return false;
                p.at += n + 1;
                p.len -= n + 1;
        }
        return is_component(p);
}

static bool is_tag(struct part p)
{
        if (p.len == 0 || p.len >= IMAGE_TAG_SIZE || p.at[0] == '.' || p.at[0] == '-')
                return false;
        for (size_t i = 0; i < p.len; i++)
                if (!isalnum((unsigned char)p.at[i]) && p.at[i] != '_' && p.at[i] != '.' &&
                    p.at[i] != '-')
                        return false;
        return true;
}

static bool set_part(char *to, size_t size, struct part p)
{
        if (p.len >= size)
                return false;
        memcpy(to, p.at, p.len);
        to[p.len] = '\0';
        return true;
}

/* The registry, where the text begins with one; *name is what follows it. */
static int take_host(struct part *name, struct image_ref *ref, struct err *err)
{
        const char *slash = memchr(name->at, '/', name->len);
        struct part host = { name->at, slash ? (size_t)(slash - name->at) : 0 };
        struct host_target target;

        if (!slash || !(memchr(host.at, '.', host.len) || memchr(host.at, ':', host.len) ||
                        (host.len == 9 && memcmp(host.at, "localhost", 9) == 0))) {
                memcpy(ref->host, DEFAULT_HOST, sizeof(DEFAULT_HOST));
                return 0;
        }
        if (!set_part(ref->host, sizeof(ref->host), host))
                return err_set(err, ERR_INVALID, "the name of its registry is too long");
        if (host_target_parse(host.at, host.len, HTTPS, &target, err) < 0)
                return err_wrap(err, ERR_INVALID, "its registry");
        for (char *c = ref->host; *c; c++)
                *c = (char)tolower((unsigned char)*c);
        if (streq(ref->host, "index.docker.io") || streq(ref->host, "registry-1.docker.io")) {
                memset(ref->host, 0, sizeof(ref->host)); /* equal references are equal bytes */
                memcpy(ref->host, DEFAULT_HOST, sizeof(DEFAULT_HOST));
        }
        name->at += host.len + 1;
        name->len -= host.len + 1;
        return 0;
}

static int take_repository(struct part name, struct image_ref *ref, struct err *err)
{
        bool official = streq(ref->host, DEFAULT_HOST) && !memchr(name.at, '/', name.len);

        for (size_t i = 0; i < name.len; i++)
                if (isupper((unsigned char)name.at[i]))
                        return err_set(err, ERR_INVALID, "the name of an image is in lower case");
        if (!is_repository(name))
                return err_set(err, ERR_INVALID,
                               "a name has letters, digits and single '.', '_', '-' and '/' "
                               "between them");
        if (name.len + (official ? sizeof(OFFICIAL) - 1 : 0) >= sizeof(ref->repository))
                return err_set(err, ERR_INVALID, "its name is too long");
        (void)snprintf(ref->repository, sizeof(ref->repository), "%s%.*s", official ? OFFICIAL : "",
                       (int)name.len, name.at);
        return 0;
}

static int parse_parts(const char *text, struct image_ref *ref, struct err *err)
{
        const char *at = strchr(text, '@');
        struct part name = { text, at ? (size_t)(at - text) : strlen(text) };
        int r;

        if (at && !image_digest_ok(at + 1))
                return err_set(err, ERR_INVALID,
                               "behind '@' comes \"sha256:\" and 64 digits in lower case");
        if (at)
                memcpy(ref->digest, at + 1, IMAGE_DIGEST_SIZE);
        r = take_host(&name, ref, err);
        if (r < 0)
                return r;
        const char *colon = memchr(name.at, ':', name.len);
        if (colon) {
                struct part tag = { colon + 1, (size_t)(name.at + name.len - colon - 1) };

                if (!is_tag(tag) || !set_part(ref->tag, sizeof(ref->tag), tag))
                        return err_set(err, ERR_INVALID,
                                       "a tag has up to 128 letters, digits, '_', '.' and '-'");
                name.len = (size_t)(colon - name.at);
        } else if (!at) {
                memcpy(ref->tag, "latest", sizeof("latest"));
        }
        return take_repository(name, ref, err);
}

int image_ref_parse(const char *text, struct image_ref *ret, struct err *err)
{
        struct image_ref ref = { 0 };
        int r;

        if (!*text)
                return err_set(err, ERR_INVALID, "the reference to an image is empty");
        if (strlen(text) >= IMAGE_REF_SIZE)
                return err_set(err, ERR_INVALID, "the reference to an image is too long");
        r = parse_parts(text, &ref, err);
        if (r < 0)
                return err_wrap(err, r,
                                "not a reference to an image (as \"node:22\" or "
                                "\"ghcr.io/org/name:tag\")");
        *ret = ref;
        return 0;
}

void image_ref_format(const struct image_ref *ref, char ret[IMAGE_REF_SIZE])
{
        (void)snprintf(ret, IMAGE_REF_SIZE, "%s/%s%s%s%s%s", ref->host, ref->repository,
                       *ref->tag ? ":" : "", ref->tag, *ref->digest ? "@" : "", ref->digest);
}
