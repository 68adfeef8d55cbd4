/* Reads indexes, manifests and configurations of images, and decides which of them can be used. */
#include "image/manifest.h"

#include <stdio.h>

#include "codec/json.h"
#include "image/digest.h"

#define MAX_BLOB ((json_int_t)1 << 44)
#define NAMED    200 /* bytes of a foreign name in a text */

static const struct {
        const char *name;
        enum image_media media; /* 0: known, and not supported */
        const char *why;
} media_types[] = {
        { "application/vnd.oci.image.index.v1+json", IMAGE_MEDIA_INDEX, NULL },
        { "application/vnd.docker.distribution.manifest.list.v2+json", IMAGE_MEDIA_INDEX, NULL },
        { "application/vnd.oci.image.manifest.v1+json", IMAGE_MEDIA_MANIFEST, NULL },
        { "application/vnd.docker.distribution.manifest.v2+json", IMAGE_MEDIA_MANIFEST, NULL },
        { "application/vnd.oci.image.config.v1+json", IMAGE_MEDIA_CONFIG, NULL },
        { "application/vnd.docker.container.image.v1+json", IMAGE_MEDIA_CONFIG, NULL },
        { "application/vnd.oci.image.layer.v1.tar", IMAGE_MEDIA_TAR, NULL },
        { "application/vnd.oci.image.layer.v1.tar+gzip", IMAGE_MEDIA_TAR_GZIP, NULL },
        { "application/vnd.oci.image.layer.v1.tar+zstd", IMAGE_MEDIA_TAR_ZSTD, NULL },
        { "application/vnd.docker.image.rootfs.diff.tar", IMAGE_MEDIA_TAR, NULL },
        { "application/vnd.docker.image.rootfs.diff.tar.gzip", IMAGE_MEDIA_TAR_GZIP, NULL },
        { "application/vnd.docker.image.rootfs.diff.tar.zstd", IMAGE_MEDIA_TAR_ZSTD, NULL },
        { "application/vnd.docker.distribution.manifest.v1+json", 0,
          "a manifest of the old schema 1; push the image again with a current tool" },
        { "application/vnd.docker.distribution.manifest.v1+prettyjws", 0,
          "a manifest of the old schema 1; push the image again with a current tool" },
        { "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", 0,
          "a layer that may not be distributed, as Windows images have" },
        { "application/vnd.oci.image.layer.nondistributable.v1.tar", 0,
          "a layer that may not be distributed, as Windows images have" },
        { "application/vnd.oci.image.layer.nondistributable.v1.tar+gzip", 0,
          "a layer that may not be distributed, as Windows images have" },
};

static int find_media(const char *name, const char *what, enum image_media *ret, struct err *err)
{
        for (size_t i = 0; i < ARRAY_LEN(media_types); i++) {
                if (!streq(media_types[i].name, name))
                        continue;
                *ret = media_types[i].media;
                return *ret ? 0
                            : err_set(err, ERR_UNPROCESSABLE, "%s is %s", what, media_types[i].why);
        }
        return err_set(err, ERR_UNPROCESSABLE, "%s has the unknown media type \"%.*s\"", what,
                       NAMED, name);
}

/* Platforms */

#if defined(__x86_64__)
static const struct image_platform here = { "linux", "amd64", "" };
#elif defined(__aarch64__)
static const struct image_platform here = { "linux", "arm64", "v8" };
#elif defined(__arm__)
static const struct image_platform here = { "linux", "arm", "v7" };
#elif defined(__i386__)
static const struct image_platform here = { "linux", "386", "" };
#elif defined(__riscv)
static const struct image_platform here = { "linux", "riscv64", "" };
#elif defined(__s390x__)
static const struct image_platform here = { "linux", "s390x", "" };
#elif defined(__powerpc64__)
static const struct image_platform here = { "linux", "ppc64le", "" };
#else
static const struct image_platform here = { "linux", "unknown", "" };
#endif

void image_platform_here(struct image_platform *ret)
{
        *ret = here;
}

static bool set_word(char *to, size_t size, const char *from, size_t len)
{
        if (len >= size)
                return false;
        for (size_t i = 0; i < len; i++)
                if (!strchr("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-",
                            from[i]))
                        return false;
        memcpy(to, from, len);
        to[len] = '\0';
        return true;
}

/* "v7" is 7; what an architecture without a variant means is the least of it. */
static unsigned variant_rank(const struct image_platform *p)
{
        const char *v = p->variant;

        if (v[0] == 'v' && v[1] >= '1' && v[1] <= '9' && (v[2] == '\0' || v[2] == '.'))
                return (unsigned)(v[1] - '0');
        if (*v)
                return 99; /* not one that we know */
        return streq(p->architecture, "arm64") ? 8 : streq(p->architecture, "arm") ? 7 : 1;
}

/* Reading members */

static const char *what_is(const char *what, const char *key, char ret[NAMED])
{
        (void)snprintf(ret, NAMED, "'%s' of %s", key, what);
        return ret;
}

static int wrong(struct err *err, const char *what, const char *key, const char *should)
{
        char name[NAMED];

        return err_set(err, ERR_INVALID, "%s is not %s", what_is(what, key, name), should);
}

/* A member that may be missing: null counts as missing. 1 there, 0 not. */
static int member(const json_t *object, const char *what, const char *key, json_type type,
                  const char *should, json_t **ret, struct err *err)
{
        *ret = json_object_get(object, key);
        if (!*ret || json_is_null(*ret)) {
                *ret = NULL;
                return 0;
        }
        return json_typeof(*ret) == type ? 1 : wrong(err, what, key, should);
}

static int string_member(const json_t *object, const char *what, const char *key, const char **ret,
                         struct err *err)
{
        json_t *value;
        int r = member(object, what, key, JSON_STRING, "a text", &value, err);

        *ret = r > 0 ? json_string_value(value) : "";
        return r;
}

/* What the document says of its media type, which may be nothing. */
static int parse_document(const char *text, size_t len, const char *what, json_t **ret,
                          struct err *err)
{
        CLEAN(json_decrefp) json_t *document = NULL;
        int r;

        if (len > IMAGE_MAX_DOCUMENT)
                return err_set(err, ERR_TOO_LARGE, "%s is larger than %zu MiB", what,
                               IMAGE_MAX_DOCUMENT >> 20);
        r = json_parse(text, len, &document, err);
        if (r < 0)
                return err_wrap(err, r, "%s", what);
        if (!json_is_object(document))
                return err_set(err, ERR_INVALID, "%s is not a JSON object", what);
        *ret = take_ptr(&document);
        return 0;
}

static int check_schema(const json_t *document, const char *what, struct err *err)
{
        const json_t *version = json_object_get(document, "schemaVersion");

        if (json_is_integer(version) && json_integer_value(version) == 1)
                return err_set(err, ERR_UNPROCESSABLE,
                               "%s is of the old schema 1; push the image again with a current "
                               "tool",
                               what);
        return json_is_integer(version) && json_integer_value(version) == 2
                       ? 0
                       : wrong(err, what, "schemaVersion", "2");
}

static int read_descriptor(const json_t *value, const char *what, struct image_descriptor *ret,
                           struct err *err)
{
        const char *media, *digest;
        const json_t *size = json_object_get(value, "size");
        int r;

        if (!json_is_object(value))
                return err_set(err, ERR_INVALID, "%s is not an object", what);
        r = string_member(value, what, "mediaType", &media, err);
        if (r >= 0)
                r = find_media(media, what, &ret->media, err);
        if (r >= 0)
                r = string_member(value, what, "digest", &digest, err);
        if (r < 0)
                return r;
        if (!image_digest_ok(digest))
                return wrong(err, what, "digest", "\"sha256:\" and 64 digits");
        if (!json_is_integer(size) || json_integer_value(size) < 0 ||
            json_integer_value(size) > MAX_BLOB)
                return wrong(err, what, "size", "a possible size");
        memcpy(ret->digest, digest, IMAGE_DIGEST_SIZE);
        ret->size = (uint64_t)json_integer_value(size);
        return 0;
}

static int read_platform(const json_t *value, const char *what, struct image_platform *ret,
                         struct err *err)
{
        const char *os, *architecture, *variant;
        int r = string_member(value, what, "os", &os, err);

        if (r >= 0)
                r = string_member(value, what, "architecture", &architecture, err);
        if (r >= 0)
                r = string_member(value, what, "variant", &variant, err);
        if (r < 0)
                return r;
        if (!set_word(ret->os, sizeof(ret->os), os, strlen(os)) ||
            !set_word(ret->architecture, sizeof(ret->architecture), architecture,
                      strlen(architecture)) ||
            !set_word(ret->variant, sizeof(ret->variant), variant, strlen(variant)))
                return err_set(err, ERR_INVALID, "the platform of %s is not a platform", what);
        return 0;
}

/* A list of texts, in the arena. */
static int read_strings(struct arena *arena, const json_t *object, const char *what,
                        const char *key, const char *const **ret, struct err *err)
{
        json_t *list;
        int r = member(object, what, key, JSON_ARRAY, "a list of texts", &list, err);
        size_t n = r > 0 ? json_array_size(list) : 0;
        const char **strings;

        if (r < 0)
                return r;
        if (n > IMAGE_MAX_STRINGS)
                return wrong(err, what, key, "of a reasonable length");
        strings = arena_alloc(arena, (n + 1) * sizeof(*strings));
        for (size_t i = 0; i < n; i++) {
                const json_t *item = json_array_get(list, i);

                if (!json_is_string(item))
                        return wrong(err, what, key, "a list of texts");
                strings[i] = arena_strdup(arena, json_string_value(item));
        }
        *ret = strings;
        return 0;
}

/* Documents */

int image_document_media(const char *text, size_t len, const char *content_type,
                         enum image_media *ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *document = NULL;
        enum image_media said = 0, sent = 0;
        char sent_name[128];
        const char *media = "";
        int r = parse_document(text, len, "the document of the image", &document, err);

        if (r >= 0)
                r = string_member(document, "the document of the image", "mediaType", &media, err);
        if (r >= 0 && *media)
                r = find_media(media, "the document of the image", &said, err);
        if (r < 0)
                return r;
        /* Parameters do not count, and a type that says nothing does not either. */
        (void)snprintf(sent_name, sizeof(sent_name), "%.*s",
                       (int)strcspn(content_type ? content_type : "", "; \t"),
                       content_type ? content_type : "");
        if (str_starts(sent_name, "application/vnd.")) {
                r = find_media(sent_name, "the document of the image", &sent, err);
                if (r < 0)
                        return r;
        }
        if (said && sent && said != sent)
                return err_set(err, ERR_INVALID,
                               "the document of the image and its sender name different media "
                               "types");
        if (!said && !sent) /* by its shape; not both, for then two readers see two images */
                said = json_object_get(document, "manifests") ? IMAGE_MEDIA_INDEX
                                                              : IMAGE_MEDIA_MANIFEST;
        *ret = said ? said : sent;
        if (*ret != IMAGE_MEDIA_INDEX && *ret != IMAGE_MEDIA_MANIFEST)
                return err_set(err, ERR_INVALID, "the document is neither an index nor a manifest");
        if (json_object_get(document, "manifests") &&
            (json_object_get(document, "layers") || json_object_get(document, "config")))
                return err_set(err, ERR_INVALID, "the document is an index and a manifest at once");
        return 0;
}

/* How well a platform of an index fits; 0: not at all. */
static unsigned fits(const struct image_platform *want, const struct image_platform *has)
{
        if (!streq(want->os, has->os) || !streq(want->architecture, has->architecture))
                return 0;
        if (streq(want->variant, has->variant))
                return 100;
        return variant_rank(has) <= variant_rank(want) ? variant_rank(has) : 0;
}

static void name_platform(struct buf *to, const struct image_platform *p)
{
        if (to->len > NAMED || streq(p->os, "unknown"))
                return;
        buf_appendf(to, "%s%s/%s%s%s", to->len ? ", " : "", p->os, p->architecture,
                    *p->variant ? "/" : "", p->variant);
}

int image_index_choose(const char *text, size_t len, const struct image_platform *platform,
                       struct image_descriptor *ret, struct err *err)
{
        static const char what[] = "a manifest in the index";
        CLEAN(json_decrefp) json_t *document = NULL;
        CLEAN(buf_done) struct buf others = BUF_INIT;
        struct image_descriptor best = { 0 }, unnamed = { 0 };
        unsigned best_fit = 0, n_usable = 0;
        json_t *list = NULL, *value, *named;
        size_t i;
        int r = parse_document(text, len, "the index", &document, err);

        if (r >= 0)
                r = check_schema(document, "the index", err);
        if (r >= 0)
                r = member(document, "the index", "manifests", JSON_ARRAY, "a list", &list, err);
        if (r == 0 || (r > 0 && json_array_size(list) > IMAGE_MAX_INDEX))
                return wrong(err, "the index", "manifests", "a list of a reasonable length");
        if (r < 0)
                return r;
        json_array_foreach(list, i, value)
        {
                struct image_descriptor d = { 0 };
                struct image_platform p = { 0 };
                const char *media;

                r = string_member(value, what, "mediaType", &media, err);
                if (r < 0)
                        return r;
                /* Others may be listed, signatures for example: the specification says so. */
                if (find_media(media, what, &d.media, NULL) < 0 || d.media != IMAGE_MEDIA_MANIFEST)
                        continue;
                r = read_descriptor(value, what, &d, err);
                if (r >= 0)
                        r = member(value, what, "platform", JSON_OBJECT, "an object", &named, err);
                if (r > 0)
                        r = read_platform(named, what, &p, err);
                if (r < 0)
                        return r;
                n_usable++;
                if (!named) {
                        unnamed = d;
                        continue;
                }
                name_platform(&others, &p);
                if (fits(platform, &p) > best_fit) {
                        best_fit = fits(platform, &p);
                        best = d;
                }
        }
        if (!best_fit && unnamed.media && n_usable == 1)
                best = unnamed;
        if (!best.media)
                return err_set(err, ERR_UNPROCESSABLE,
                               "there is no image for %s/%s%s%s; there is one for: %s",
                               platform->os, platform->architecture, *platform->variant ? "/" : "",
                               platform->variant, others.len ? buf_str(&others) : "nothing");
        *ret = best;
        return 0;
}

int image_manifest_parse(struct arena *arena, const char *text, size_t len,
                         struct image_manifest *ret, struct err *err)
{
        static const char what[] = "the manifest";
        CLEAN(json_decrefp) json_t *document = NULL;
        struct image_manifest m = { 0 };
        struct image_descriptor *layers;
        json_t *list = NULL;
        int r = parse_document(text, len, what, &document, err);

        if (r >= 0)
                r = check_schema(document, what, err);
        if (r >= 0)
                r = read_descriptor(json_object_get(document, "config"), "the configuration",
                                    &m.config, err);
        if (r >= 0 && m.config.media != IMAGE_MEDIA_CONFIG)
                r = err_set(err, ERR_UNPROCESSABLE, "the manifest is not that of an image");
        if (r >= 0 && m.config.size > IMAGE_MAX_DOCUMENT)
                r = err_set(err, ERR_TOO_LARGE, "the configuration is larger than %zu MiB",
                            IMAGE_MAX_DOCUMENT >> 20);
        if (r >= 0)
                r = member(document, what, "layers", JSON_ARRAY, "a list", &list, err);
        if (r < 0)
                return r;
        m.n_layers = json_array_size(list);
        if (m.n_layers == 0 || m.n_layers > IMAGE_MAX_LAYERS)
                return err_set(err, ERR_UNPROCESSABLE,
                               "the image has %zu layers; one to %d are supported", m.n_layers,
                               IMAGE_MAX_LAYERS);
        layers = arena_alloc(arena, m.n_layers * sizeof(*layers));
        for (size_t i = 0; i < m.n_layers; i++) {
                r = read_descriptor(json_array_get(list, i), "a layer", &layers[i], err);
                if (r >= 0 && layers[i].media < IMAGE_MEDIA_TAR)
                        r = err_set(err, ERR_INVALID, "a layer that is not a tar archive");
                if (r < 0)
                        return r;
        }
        m.layers = layers;
        *ret = m;
        return 0;
}

static int compare_text(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

/* The members of an object are the ports. */
static int read_ports(struct arena *arena, const json_t *object, const char *what,
                      const char *const **ret, struct err *err)
{
        json_t *map, *unused;
        int r = member(object, what, "ExposedPorts", JSON_OBJECT, "an object", &map, err);
        size_t n = 0;
        const char *key, **ports;

        if (r < 0)
                return r;
        if (r > 0 && json_object_size(map) > IMAGE_MAX_STRINGS)
                return wrong(err, what, "ExposedPorts", "of a reasonable length");
        ports = arena_alloc(arena, ((map ? json_object_size(map) : 0) + 1) * sizeof(*ports));
        json_object_foreach(map, key, unused) ports[n++] = arena_strdup(arena, key);
        qsort(ports, n, sizeof(*ports), compare_text);
        *ret = ports;
        return 0;
}

/* "NAME" alone is a variable without a value. */
static int check_env(struct arena *arena, const char *const *env, struct err *err)
{
        const char **list = (const char **)env;

        for (; *list; list++) {
                if (**list == '=' || !**list)
                        return err_set(err, ERR_INVALID,
                                       "a variable of the configuration has no name");
                if (!strchr(*list, '='))
                        *list = arena_printf(arena, "%s=", *list);
        }
        return 0;
}

static int read_settings(struct arena *arena, const json_t *document, struct image_config *c,
                         struct err *err)
{
        static const char what[] = "the configuration";
        const struct {
                const char *key, **to;
        } texts[] = { { "User", &c->user },
                      { "WorkingDir", &c->working_dir },
                      { "StopSignal", &c->stop_signal } };
        json_t *settings;
        int r = member(document, what, "config", JSON_OBJECT, "an object", &settings, err);

        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(texts); i++) {
                r = string_member(settings, what, texts[i].key, texts[i].to, err);
                if (r >= 0)
                        *texts[i].to = arena_strdup(arena, *texts[i].to);
        }
        if (r >= 0)
                r = read_strings(arena, settings, what, "Env", &c->env, err);
        if (r >= 0)
                r = check_env(arena, c->env, err);
        if (r >= 0)
                r = read_strings(arena, settings, what, "Entrypoint", &c->entrypoint, err);
        if (r >= 0)
                r = read_strings(arena, settings, what, "Cmd", &c->cmd, err);
        return r < 0 ? r : read_ports(arena, settings, what, &c->ports, err);
}

static int check_platform(const struct image_platform *want, const struct image_platform *has,
                          struct err *err)
{
        const char *os = want ? want->os : "linux";

        if (*has->os && !streq(has->os, os))
                return err_set(err, ERR_UNPROCESSABLE, "the image is for %s, not for %s", has->os,
                               os);
        if (want && *has->architecture && !streq(has->architecture, want->architecture))
                return err_set(err, ERR_UNPROCESSABLE, "the image is for %s/%s, not for %s/%s",
                               has->os, has->architecture, want->os, want->architecture);
        return 0;
}

int image_config_parse(struct arena *arena, const char *text, size_t len, size_t n_layers,
                       const struct image_platform *platform, struct image_config *ret,
                       struct err *err)
{
        static const char what[] = "the configuration";
        CLEAN(json_decrefp) json_t *document = NULL;
        struct image_config c = { 0 };
        json_t *rootfs;
        int r = parse_document(text, len, what, &document, err);

        if (r >= 0)
                r = read_platform(document, what, &c.platform, err);
        if (r >= 0)
                r = check_platform(platform, &c.platform, err);
        if (r >= 0)
                r = read_settings(arena, document, &c, err);
        if (r >= 0)
                r = member(document, what, "rootfs", JSON_OBJECT, "an object", &rootfs, err);
        if (r == 0)
                return wrong(err, what, "rootfs", "there");
        if (r > 0)
                r = read_strings(arena, rootfs, what, "diff_ids", &c.diff_ids, err);
        if (r < 0)
                return r;
        while (c.diff_ids[c.n_diff_ids]) {
                if (!image_digest_ok(c.diff_ids[c.n_diff_ids]))
                        return wrong(err, what, "diff_ids", "a list of digests");
                c.n_diff_ids++;
        }
        if (c.n_diff_ids != n_layers)
                return err_set(err, ERR_INVALID,
                               "the configuration knows %zu layers and the manifest %zu",
                               c.n_diff_ids, n_layers);
        *ret = c;
        return 0;
}

int image_read(struct arena *arena, const char *manifest, size_t manifest_len, const char *config,
               size_t config_len, const struct image_platform *platform, struct image *ret,
               struct err *err)
{
        struct image image = { .manifest_text = arena_strndup(arena, manifest, manifest_len),
                               .manifest_len = manifest_len,
                               .config_text = arena_strndup(arena, config, config_len),
                               .config_len = config_len };
        char digest[IMAGE_DIGEST_SIZE];
        int r = image_manifest_parse(arena, manifest, manifest_len, &image.manifest, err);

        if (r < 0)
                return r;
        digest_of(config, config_len, digest);
        if (!streq(digest, image.manifest.config.digest))
                return err_set(err, ERR_INVALID,
                               "the configuration is not the one that the manifest names");
        r = image_config_parse(arena, config, config_len, image.manifest.n_layers, platform,
                               &image.config, err);
        if (r < 0)
                return r;
        digest_of(manifest, manifest_len, image.digest);
        *ret = image;
        return 0;
}
