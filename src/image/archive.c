/* Finds images in archives and layouts.
 *
 * An archive is read once for the names in it; after that a member is bytes at an offset. Of two
 * members with one name the later counts, as when the archive is unpacked. */
#define _GNU_SOURCE
#include "image/archive.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "codec/json.h"
#include "codec/tar.h"
#include "image/archive_internal.h"
#include "image/layer_stream.h"

#define MAX_LINKS 4

struct member {
        const char *name;
        uint64_t offset, size;
        const char *target; /* of a link, as a path in the archive; NULL: a file */
        size_t number;
};

/* One name of one image. */
struct found {
        const char *name;
        size_t entry;  /* in manifest.json or index.json */
        bool is_whole; /* of index.json: all of it is one image */
};

/* A layer of a docker archive is named by its plain content. */
struct docker_layer {
        char digest[IMAGE_DIGEST_SIZE];
        const char *name;
};

struct image_archive {
        int fd;
        bool is_dir, is_oci;
        struct arena arena;
        struct member *members;
        size_t n_members, members_room;
        json_t *list; /* index.json, or manifest.json */
        struct found images[IMAGE_ARCHIVE_MAX_IMAGES];
        size_t n_images;
        struct docker_layer *layers;
        size_t n_layers, layers_room;
        int open_fd; /* of a layout: the file that was asked for last */
};

static int bad_image_archive(struct err *err, const char *what)
{
        return err_set(err, ERR_INVALID, "not an archive with images: %s", what);
}

/* Names */

/* Where a link leads, from the directory of its name; NULL: out of the archive. */
static const char *link_target(struct arena *arena, const char *name, const char *target)
{
        CLEAN(buf_done) struct buf path = BUF_INIT;
        const char *slash = strrchr(name, '/');

        if (*target == '/')
                return NULL;
        buf_append(&path, name, slash ? (size_t)(slash - name) : 0);
        for (const char *part = target; part;) {
                const char *next = strchr(part, '/');
                size_t len = next ? (size_t)(next - part) : strlen(part);

                if (len == 2 && memcmp(part, "..", 2) == 0) {
                        const char *last = strrchr(buf_str(&path), '/');

                        if (path.len == 0)
                                return NULL;
                        path.len = last ? (size_t)(last - path.data) : 0;
                        path.data[path.len] = '\0';
                } else if (len > 0 && !(len == 1 && *part == '.')) {
                        if (path.len)
                                buf_putc(&path, '/');
                        buf_append(&path, part, len);
                }
                part = next ? next + 1 : NULL;
        }
        return arena_strdup(arena, buf_str(&path));
}

static int add_member(struct image_archive *a, const struct tar_entry *e, uint64_t offset,
                      struct err *err)
{
        struct member m = { .offset = offset, .size = e->size, .number = a->n_members };

        if (e->kind != TAR_FILE && e->kind != TAR_LINK && e->kind != TAR_HARD)
                return 0;
        if (e->is_sparse)
                return bad_image_archive(err, "a sparse file is in it");
        if (a->n_members == IMAGE_ARCHIVE_MAX_ENTRIES)
                return err_set(err, ERR_TOO_LARGE, "the archive has more than %d entries",
                               IMAGE_ARCHIVE_MAX_ENTRIES);
        if (e->kind == TAR_LINK) {
                m.target = link_target(&a->arena, e->path, e->target);
                if (!m.target)
                        return bad_image_archive(err, "a link leads out of it");
        } else if (e->kind == TAR_HARD) {
                m.target = arena_strdup(&a->arena, e->target);
        }
        m.name = arena_strdup(&a->arena, e->path);
        a->members = arena_more(&a->arena, a->members, a->n_members, &a->members_room, sizeof(m));
        a->members[a->n_members++] = m;
        return 0;
}

/* By name, and of one name the last first. */
static int compare_members(const void *a, const void *b)
{
        const struct member *x = a, *y = b;
        int order = strcmp(x->name, y->name);

        return order ? order : x->number < y->number ? 1 : -1;
}

static int read_names(struct op *op, struct image_archive *a, uint64_t size, struct err *err)
{
        struct tar_entry *e = xcalloc(1, sizeof(*e));
        uint8_t block[TAR_BLOCK];
        struct tar_reader tar;
        uint64_t at = 0;
        int r = 0;

        tar_reader_init(&tar);
        tar.is_layer = true;
        while (r >= 0 && r != 2 && at + TAR_BLOCK <= size) {
                ssize_t n = pread(a->fd, block, sizeof(block), (off_t)at);

                if (n != TAR_BLOCK) {
                        r = err_sys(err, ERR_IO, n < 0 ? errno : EIO, "read an archive");
                        break;
                }
                at += TAR_BLOCK;
                r = tar_read(&tar, block, e, err);
                if (r == 1) {
                        if (e->size > size - at)
                                r = bad_image_archive(err, "it ends too early");
                        else
                                r = add_member(a, e, at, err);
                        at += (e->size + TAR_BLOCK - 1) / TAR_BLOCK * TAR_BLOCK;
                }
                if (r >= 0 && r != 2) {
                        int stopped = op_check(op, err);

                        r = stopped < 0 ? stopped : r;
                }
        }
        tar_reader_done(&tar);
        free(e);
        if (r >= 0 && a->n_members)
                qsort(a->members, a->n_members, sizeof(*a->members), compare_members);
        return r < 0 ? r : 0;
}

static const struct member *find_member(const struct image_archive *a, const char *name)
{
        for (int links = 0; links < MAX_LINKS; links++) {
                size_t low = 0, high = a->n_members;

                while (low < high) {
                        size_t middle = (low + high) / 2;

                        if (strcmp(a->members[middle].name, name) < 0)
                                low = middle + 1;
                        else
                                high = middle;
                }
                if (low == a->n_members || !streq(a->members[low].name, name))
                        return NULL;
                if (!a->members[low].target)
                        return &a->members[low];
                name = a->members[low].target;
        }
        return NULL;
}

static int find_bytes(struct image_archive *a, const char *name, struct layer_source *ret,
                      struct err *err)
{
        const struct member *m;
        struct stat st;

        if (a->is_dir) {
                CLEAN(cleanup_fd) int fd = -1;
                int r = path_open_plain(a->fd, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0, &fd, err);

                if (r < 0)
                        return r;
                if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                        return bad_image_archive(err, "a part of it is not a file");
                cleanup_fd(&a->open_fd);
                a->open_fd = take_fd(&fd);
                *ret = (struct layer_source){ .fd = a->open_fd, .size = (uint64_t)st.st_size };
                return 0;
        }
        m = find_member(a, name);
        if (!m)
                return err_set(err, ERR_NOT_FOUND, "the archive has no '%.200s'", name);
        *ret = (struct layer_source){ .fd = a->fd, .offset = m->offset, .size = m->size };
        return 0;
}

/* A document, in the arena. */
static int read_bytes(struct op *op, struct image_archive *a, const char *name, const char **ret,
                      size_t *ret_len, struct err *err)
{
        struct layer_source from;
        char *text;
        int r = find_bytes(a, name, &from, err);

        if (r < 0)
                return r;
        if (from.size > IMAGE_MAX_DOCUMENT)
                return err_set(err, ERR_TOO_LARGE, "'%.200s' in the archive is larger than %zu MiB",
                               name, IMAGE_MAX_DOCUMENT >> 20);
        text = arena_alloc(op->arena, (size_t)from.size + 1);
        if (pread(from.fd, text, (size_t)from.size, (off_t)from.offset) != (ssize_t)from.size)
                return err_set(err, ERR_IO, "'%.200s' in the archive cannot be read", name);
        *ret = text;
        *ret_len = (size_t)from.size;
        return 0;
}

/* "blobs/sha256/<digits>" */
static const char *blob_name(struct op *op, const char *digest)
{
        return arena_printf(op->arena, "blobs/sha256/%s", digest + strlen("sha256:"));
}

static int read_blob(struct op *op, struct image_archive *a, const char *digest, const char **ret,
                     size_t *ret_len, struct err *err)
{
        char found[IMAGE_DIGEST_SIZE];
        int r = read_bytes(op, a, blob_name(op, digest), ret, ret_len, err);

        if (r < 0)
                return r;
        digest_of(*ret, *ret_len, found);
        return streq(found, digest)
                       ? 0
                       : err_set(err, ERR_INVALID, "the archive is broken: %s has other content",
                                 digest);
}

/* Opening */

static int add_image(struct image_archive *a, const char *name, size_t entry, bool is_whole,
                     struct err *err)
{
        if (a->n_images == IMAGE_ARCHIVE_MAX_IMAGES)
                return err_set(err, ERR_TOO_LARGE, "the archive has more than %d images",
                               IMAGE_ARCHIVE_MAX_IMAGES);
        a->images[a->n_images++] = (struct found){ .name = arena_strdup(&a->arena, name),
                                                   .entry = entry,
                                                   .is_whole = is_whole };
        return 0;
}

static int list_docker(struct image_archive *a, struct err *err)
{
        size_t i, k;
        json_t *entry, *tag;

        if (!json_is_array(a->list))
                return bad_image_archive(err, "manifest.json is not a list");
        json_array_foreach(a->list, i, entry)
        {
                json_t *tags = json_object_get(entry, "RepoTags");
                int r = 0;

                if (json_array_size(tags) == 0)
                        r = add_image(a, "", i, false, err);
                json_array_foreach(tags, k, tag) if (r >= 0 && json_is_string(tag)) r =
                        add_image(a, json_string_value(tag), i, false, err);
                if (r < 0)
                        return r;
        }
        return 0;
}

static const char *name_in_layout(const json_t *entry)
{
        const json_t *notes = json_get_object(entry, "annotations");
        const char *name = json_get_string(notes, "io.containerd.image.name");

        if (!name)
                name = json_get_string(notes, "org.opencontainers.image.ref.name");
        return name ? name : "";
}

static int list_layout(struct image_archive *a, struct err *err)
{
        json_t *manifests = json_object_get(a->list, "manifests"), *entry;
        bool is_index = json_array_size(manifests) > 1;
        size_t i;

        if (!json_is_array(manifests))
                return bad_image_archive(err, "index.json has no manifests");
        /* Several without names, each for a platform, are one image. */
        json_array_foreach(manifests, i, entry) is_index =
                is_index && !*name_in_layout(entry) && json_get_object(entry, "platform");
        if (is_index)
                return add_image(a, "", 0, true, err);
        json_array_foreach(manifests, i, entry)
        {
                int r = add_image(a, name_in_layout(entry), i, false, err);

                if (r < 0)
                        return r;
        }
        return 0;
}

/* What the first bytes say of a file that is no tar archive. */
static int check_beginning(const struct image_archive *a, struct err *err)
{
        uint8_t b[6] = { 0 };

        if (pread(a->fd, b, sizeof(b), 0) < 0)
                return err_sys(err, ERR_IO, errno, "read an archive");
        if (b[0] == 0x1f && b[1] == 0x8b)
                return bad_image_archive(err, "it is compressed; unpack it first with gunzip");
        if (memcmp(b, "\x28\xb5\x2f\xfd", 4) == 0)
                return bad_image_archive(err, "it is compressed; unpack it first with unzstd");
        if (memcmp(b,
                   "\xfd"
                   "7zXZ",
                   5) == 0)
                return bad_image_archive(err, "it is compressed; unpack it first with unxz");
        return 0;
}

int image_archive_open(struct op *op, int fd, struct image_archive **ret, struct err *err)
{
        struct image_archive *a = xcalloc(1, sizeof(*a));
        const char *text = NULL;
        struct stat st;
        size_t len = 0;
        int r;

        a->fd = fd;
        a->open_fd = -1;
        arena_init(&a->arena);
        r = fstat(fd, &st) < 0 ? err_sys(err, ERR_IO, errno, "read an archive") : 0;
        a->is_dir = r >= 0 && S_ISDIR(st.st_mode);
        if (r >= 0 && !a->is_dir && !S_ISREG(st.st_mode))
                r = bad_image_archive(err, "it is neither a file nor a directory");
        if (r >= 0 && !a->is_dir)
                r = check_beginning(a, err);
        if (r >= 0 && !a->is_dir)
                r = read_names(op, a, (uint64_t)st.st_size, err);
        if (r >= 0) {
                struct layer_source unused;

                a->is_oci = find_bytes(a, "oci-layout", &unused, NULL) >= 0 &&
                            find_bytes(a, "index.json", &unused, NULL) >= 0;
                r = read_bytes(op, a, a->is_oci ? "index.json" : "manifest.json", &text, &len, err);
        }
        if (r == ERR_NOT_FOUND)
                r = bad_image_archive(err, a->is_dir ? "the directory has no oci-layout and "
                                                       "index.json (for a directory with the files "
                                                       "of a system see `berth image from-dir`)"
                                                     : "it has neither oci-layout and index.json "
                                                       "nor manifest.json");
        if (r >= 0)
                r = json_parse(text, len, &a->list, err);
        if (r >= 0)
                r = a->is_oci ? list_layout(a, err) : list_docker(a, err);
        if (r >= 0 && a->n_images == 0)
                r = bad_image_archive(err, "no image is in it");
        if (r < 0) {
                image_archive_close(a);
                return r;
        }
        *ret = a;
        return 0;
}

void image_archive_close(struct image_archive *a)
{
        if (!a)
                return;
        cleanup_fd(&a->open_fd);
        json_decref(a->list);
        arena_done(&a->arena);
        free(a);
}

size_t image_archive_count(const struct image_archive *a)
{
        return a->n_images;
}

const char *image_archive_name(const struct image_archive *a, size_t i)
{
        return a->images[i].name;
}

/* Images */

static int image_of_layout(struct op *op, struct image_archive *a, const struct found *f,
                           const struct image_platform *platform, struct image *ret,
                           struct err *err)
{
        json_t *entry = json_array_get(json_object_get(a->list, "manifests"), f->entry);
        const char *digest = json_get_string(entry, "digest"), *text, *config;
        struct image_descriptor chosen;
        struct image_manifest manifest;
        enum image_media media;
        size_t len, config_len;
        int r;

        if (f->is_whole) {
                r = read_bytes(op, a, "index.json", &text, &len, err);
                media = IMAGE_MEDIA_INDEX;
        } else {
                if (!digest || !image_digest_ok(digest))
                        return bad_image_archive(err,
                                                 "index.json names something else than sha256");
                r = read_blob(op, a, digest, &text, &len, err);
                if (r >= 0)
                        r = image_document_media(text, len, json_get_string(entry, "mediaType"),
                                                 &media, err);
        }
        if (r >= 0 && media == IMAGE_MEDIA_INDEX) {
                r = image_index_choose(text, len, platform, &chosen, err);
                if (r >= 0)
                        r = read_blob(op, a, chosen.digest, &text, &len, err);
        }
        if (r >= 0)
                r = image_manifest_parse(op->arena, text, len, &manifest, err);
        if (r >= 0)
                r = read_blob(op, a, manifest.config.digest, &config, &config_len, err);
        return r < 0 ? r : image_read(op->arena, text, len, config, config_len, platform, ret, err);
}

/* Documents that we make ourselves. */

static void put_descriptor(struct jw *w, const char *media, const char *digest, uint64_t size)
{
        jw_object(w);
        jw_kstring(w, "mediaType", media);
        jw_kstring(w, "digest", digest);
        jw_kint(w, "size", (int64_t)size);
        jw_object_end(w);
}

static int make_image(struct op *op, const char *config, size_t config_len,
                      const char *const *digests, const uint64_t *sizes, size_t n,
                      const struct image_platform *platform, struct image *ret, struct err *err)
{
        CLEAN(buf_done) struct buf b = { .max = IMAGE_MAX_DOCUMENT };
        char digest[IMAGE_DIGEST_SIZE];
        struct jw w;

        digest_of(config, config_len, digest);
        jw_init(&w, &b);
        jw_object(&w);
        jw_kint(&w, "schemaVersion", 2);
        jw_kstring(&w, "mediaType", "application/vnd.oci.image.manifest.v1+json");
        jw_key(&w, "config");
        put_descriptor(&w, "application/vnd.oci.image.config.v1+json", digest, config_len);
        jw_key(&w, "layers");
        jw_array(&w);
        for (size_t i = 0; i < n; i++)
                put_descriptor(&w, "application/vnd.oci.image.layer.v1.tar", digests[i], sizes[i]);
        jw_array_end(&w);
        jw_object_end(&w);
        return image_read(op->arena, buf_str(&b), b.len, config, config_len, platform, ret, err);
}

int image_of_one_layer(struct op *op, const char *config, size_t config_len, const char *digest,
                       uint64_t size, struct image *ret, struct err *err)
{
        return make_image(op, config, config_len, &digest, &size, 1, NULL, ret, err);
}

/* A layer of a docker archive is plain, or, by some tools, compressed. */
static int plain_size(struct op *op, const struct layer_source *from, uint64_t *ret,
                      struct err *err)
{
        CLEAN(layer_stream_close) struct layer_stream *s = NULL;
        struct layer_limits limits = { 0 };
        CLEAN(cleanup_free) uint8_t *piece = xcalloc(1, LAYER_PIECE);
        int64_t n = layer_stream_open(op, from, &limits, &s, err);

        *ret = from->size;
        if (n < 0 || s->packing == LAYER_PLAIN)
                return (int)n;
        do
                n = layer_stream_read(s, piece, LAYER_PIECE, err);
        while (n == (int64_t)LAYER_PIECE);
        *ret = s->given;
        return n < 0 ? (int)n : 0;
}

static int image_of_docker(struct op *op, struct image_archive *a, const struct found *f,
                           const struct image_platform *platform, struct image *ret,
                           struct err *err)
{
        json_t *entry = json_array_get(a->list, f->entry), *names = NULL;
        const char *config_name = json_get_string(entry, "Config"), *config;
        uint64_t sizes[IMAGE_MAX_LAYERS];
        struct image_config parsed;
        size_t config_len, n;
        int r;

        names = json_object_get(entry, "Layers");
        n = json_array_size(names);
        if (!config_name || n == 0 || n > IMAGE_MAX_LAYERS)
                return err_set(err, ERR_UNPROCESSABLE,
                               "the image in the archive has no configuration, or not 1 to %d "
                               "layers",
                               IMAGE_MAX_LAYERS);
        r = read_bytes(op, a, config_name, &config, &config_len, err);
        if (r >= 0)
                r = image_config_parse(op->arena, config, config_len, n, platform, &parsed, err);
        for (size_t i = 0; r >= 0 && i < n; i++) {
                const char *name = json_string_value(json_array_get(names, i));
                struct docker_layer layer = { .name = name };
                struct layer_source from;

                if (!name)
                        return bad_image_archive(err, "a layer has no name");
                memcpy(layer.digest, parsed.diff_ids[i], IMAGE_DIGEST_SIZE);
                a->layers = arena_more(&a->arena, a->layers, a->n_layers, &a->layers_room,
                                       sizeof(layer));
                a->layers[a->n_layers++] = layer;
                r = find_bytes(a, name, &from, err);
                if (r >= 0)
                        r = plain_size(op, &from, &sizes[i], err);
        }
        return r < 0 ? r
                     : make_image(op, config, config_len, parsed.diff_ids, sizes, n, platform, ret,
                                  err);
}

int image_archive_image(struct op *op, struct image_archive *a, size_t i,
                        const struct image_platform *platform, struct image *ret, struct err *err)
{
        int r = i >= a->n_images ? ERR_NOT_FOUND
                : a->is_oci      ? image_of_layout(op, a, &a->images[i], platform, ret, err)
                                 : image_of_docker(op, a, &a->images[i], platform, ret, err);

        if (r == ERR_NOT_FOUND) /* a part that is missing is no image that is missing */
                return i >= a->n_images ? err_set(err, r, "the archive has no such image")
                                        : err_wrap(err, ERR_INVALID, "the archive is incomplete");
        return r;
}

/* Where the bytes of a layer are. */
static int find_layer(struct op *op, struct image_archive *a, const struct image_descriptor *layer,
                      struct layer_source *ret, struct err *err)
{
        const char *name = a->is_oci ? blob_name(op, layer->digest) : NULL;

        for (size_t i = 0; !name && i < a->n_layers; i++)
                if (streq(a->layers[i].digest, layer->digest))
                        name = a->layers[i].name;
        return name ? find_bytes(a, name, ret, err)
                    : err_set(err, ERR_NOT_FOUND, "the archive has no layer %s", layer->digest);
}

int image_archive_copy(struct op *op, struct image_archive *a, const struct image_descriptor *layer,
                       int to_fd, struct err *err)
{
        CLEAN(layer_stream_close) struct layer_stream *s = NULL;
        CLEAN(cleanup_free) uint8_t *piece = xcalloc(1, LAYER_PIECE);
        char digest[IMAGE_DIGEST_SIZE];
        struct layer_limits limits = { 0 };
        struct layer_source from;
        int64_t n;
        int r = find_layer(op, a, layer, &from, err);

        if (r >= 0 && a->is_oci && from.size != layer->size)
                r = err_set(err, ERR_INVALID, "the archive is broken: %s has another size",
                            layer->digest);
        if (r >= 0)
                r = layer_stream_open(op, &from, &limits, &s, err);
        if (r < 0)
                return r;
        /* A layout has the layer as it is; a docker archive is asked for its plain content. */
        if (a->is_oci)
                layer_stream_take_packed(s);
        do {
                n = layer_stream_read(s, piece, LAYER_PIECE, err);
                r = n < 0 ? (int)n : fd_write_all(to_fd, piece, (size_t)n, err);
        } while (r >= 0 && n == (int64_t)LAYER_PIECE);
        if (r < 0)
                return r;
        digest_end(&s->digest, digest);
        return streq(digest, layer->digest)
                       ? 0
                       : err_set(err, ERR_INVALID, "the archive is broken: %s has other content",
                                 layer->digest);
}
