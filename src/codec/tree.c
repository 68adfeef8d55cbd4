/* The order of paths, which paths are valid, and the bytes of a manifest. */
#include "codec/tree.h"

/* The bytes:
 *
 *   header   "BTREE\0\0\1"
 *   entry    kind (1 byte), shared, rest, then the last `rest` bytes of the path; its first
 *            `shared` ones are those of the path before, and no longer beginning is shared
 *     dir      mode (2 bytes)
 *     file     mode (2 bytes), size, mtime (zigzag), hash
 *     link     length, target
 *     unknown  nothing
 *   end      0 (1 byte), count
 *
 * Numbers are LEB128 in their shortest form, modes big-endian: one tree has one encoding. */

static const char header[8] = "BTREE\0\0\1";

#define KIND_END      0
#define MAX_MODE      0777u
#define COMPACT_ABOVE 65536

/* Order and equality */

/* A slash comes before every other byte, so what is in a directory follows it at once. */
static int path_rank(char c)
{
        if (c == '\0')
                return 0;
        return c == '/' ? 1 : (unsigned char)c + 1;
}

int tree_compare(const char *a, const char *b)
{
        while (*a && *a == *b) {
                a++;
                b++;
        }
        return path_rank(*a) - path_rank(*b);
}

bool tree_beneath(const char *path, const char *dir)
{
        size_t n = strlen(dir);

        return strncmp(path, dir, n) == 0 && path[n] == '/';
}

bool tree_same_content(const struct tree_entry *a, const struct tree_entry *b)
{
        if (a->kind != b->kind)
                return false;
        switch (a->kind) {
        case TREE_DIR:
                return true;
        case TREE_FILE:
                return a->size == b->size && memcmp(a->hash, b->hash, TREE_HASH) == 0;
        case TREE_LINK:
                return streq(a->target, b->target);
        case TREE_UNKNOWN:
                break;
        }
        return false;
}

bool tree_same(const struct tree_entry *a, const struct tree_entry *b)
{
        return tree_same_content(a, b) && (a->kind != TREE_FILE || a->mode == b->mode);
}

static bool part_ok(const char *part, size_t len)
{
        if (len == 0 || len > TREE_MAX_NAME)
                return false;
        return !(part[0] == '.' && (len == 1 || (len == 2 && part[1] == '.')));
}

bool tree_path_ok(const char *path)
{
        const char *part = path;

        for (unsigned depth = 1; depth <= TREE_MAX_DEPTH; depth++) {
                size_t len = strcspn(part, "/");

                if (!part_ok(part, len))
                        return false;
                part += len;
                if (*part == '\0')
                        return part - path <= TREE_MAX_PATH;
                part++;
        }
        return false;
}

/* Encoding */

static void put_number(struct buf *b, uint64_t v)
{
        uint8_t bytes[10];
        size_t n = 0;

        do {
                bytes[n] = (uint8_t)(v & 0x7f);
                v >>= 7;
                if (v)
                        bytes[n] |= 0x80;
                n++;
        } while (v);
        buf_append(b, bytes, n);
}

static uint64_t zigzag(int64_t v)
{
        return v < 0 ? ~((uint64_t)v << 1) : (uint64_t)v << 1;
}

static int64_t unzigzag(uint64_t v)
{
        return (int64_t)(v & 1 ? ~(v >> 1) : v >> 1);
}

static void put_mode(struct buf *b, uint32_t mode)
{
        buf_putc(b, (char)(mode >> 8 & 1));
        buf_putc(b, (char)(mode & 0xff));
}

static size_t shared_length(const char *a, const char *b)
{
        size_t n = 0;

        while (a[n] && a[n] == b[n])
                n++;
        return n;
}

void tree_encode_begin(struct tree_encoder *e, struct buf *out)
{
        e->out = out;
        e->last[0] = '\0';
        e->count = 0;
        buf_append(out, header, sizeof(header));
}

void tree_encode(struct tree_encoder *e, const struct tree_entry *entry)
{
        size_t len = strnlen(entry->path, TREE_MAX_PATH);
        size_t shared = shared_length(e->last, entry->path);

        buf_putc(e->out, (char)entry->kind);
        put_number(e->out, shared);
        put_number(e->out, len - shared);
        buf_append(e->out, entry->path + shared, len - shared);
        switch (entry->kind) {
        case TREE_FILE:
                put_mode(e->out, entry->mode);
                put_number(e->out, entry->size);
                put_number(e->out, zigzag(entry->mtime_ns));
                buf_append(e->out, entry->hash, TREE_HASH);
                break;
        case TREE_DIR:
                put_mode(e->out, entry->mode);
                break;
        case TREE_LINK:
                put_number(e->out, strlen(entry->target));
                buf_puts(e->out, entry->target);
                break;
        case TREE_UNKNOWN:
                break;
        }
        memcpy(e->last, entry->path, len);
        e->last[len] = '\0';
        e->count++;
}

void tree_encode_end(struct tree_encoder *e)
{
        buf_putc(e->out, KIND_END);
        put_number(e->out, e->count);
}

/* Decoding. A reader goes through what is there of one entry; when the bytes end too early, the
 * entry is read again from its beginning once there are more. */

struct reader {
        const uint8_t *at, *end;
        bool short_of, bad;
};

static const uint8_t *get_bytes(struct reader *r, size_t n)
{
        const uint8_t *at = r->at;

        if (r->short_of || r->bad || (size_t)(r->end - r->at) < n) {
                r->short_of = true;
                return NULL;
        }
        r->at += n;
        return at;
}

static uint64_t get_number(struct reader *r, uint64_t max)
{
        uint64_t v = 0;

        for (unsigned shift = 0; shift < 64; shift += 7) {
                const uint8_t *at = get_bytes(r, 1);
                uint64_t part;

                if (!at)
                        return 0;
                part = *at & 0x7f;
                if ((shift == 63 && part > 1) || (shift > 0 && *at == 0))
                        break; /* does not fit, or is not the shortest form */
                v |= part << shift;
                if (*at & 0x80)
                        continue;
                if (v > max)
                        break;
                return v;
        }
        r->bad = true;
        return 0;
}

static uint32_t get_mode(struct reader *r)
{
        const uint8_t *at = get_bytes(r, 2);

        if (!at)
                return 0;
        uint32_t mode = (uint32_t)at[0] << 8 | at[1];
        if (mode > MAX_MODE)
                r->bad = true;
        return mode;
}

static void get_file(struct reader *r, struct tree_entry *ret)
{
        ret->mode = get_mode(r);
        ret->size = get_number(r, TREE_MAX_SIZE);
        ret->mtime_ns = unzigzag(get_number(r, UINT64_MAX));
        const uint8_t *hash = get_bytes(r, TREE_HASH);
        if (hash)
                memcpy(ret->hash, hash, TREE_HASH);
}

static void get_link(struct tree_decoder *d, struct reader *r, struct tree_entry *ret)
{
        size_t len = (size_t)get_number(r, TREE_MAX_TARGET);
        const uint8_t *target = get_bytes(r, len);

        if (!target)
                return;
        if (len == 0 || memchr(target, '\0', len))
                r->bad = true;
        memcpy(d->target, target, len);
        d->target[len] = '\0';
        ret->target = d->target;
}

/* The directory that a path is in must have been there: the one before, or one that it is in. */
static bool parent_ok(const struct tree_decoder *d, const char *path)
{
        const char *slash = strrchr(path, '/');

        if (!slash)
                return true;
        size_t n = (size_t)(slash - path);
        if (strncmp(d->path, path, n) != 0)
                return false;
        return d->path[n] == '/' || (d->path[n] == '\0' && d->last_kind == TREE_DIR);
}

/* `next` may be looked at only when the reader is content: then it is complete. */
static bool path_follows(const struct tree_decoder *d, const char *next, size_t shared)
{
        if (!tree_path_ok(next) || shared != shared_length(d->path, next))
                return false;
        return tree_compare(d->path, next) < 0 && parent_ok(d, next);
}

static void get_path(const struct tree_decoder *d, struct reader *r, char next[TREE_MAX_PATH + 1])
{
        size_t shared = (size_t)get_number(r, TREE_MAX_PATH);
        size_t rest = (size_t)get_number(r, TREE_MAX_PATH);
        const uint8_t *bytes = get_bytes(r, rest);

        if (!bytes)
                return;
        if (shared > strlen(d->path) || shared + rest > TREE_MAX_PATH ||
            memchr(bytes, '\0', rest)) {
                r->bad = true;
                return;
        }
        memcpy(next, d->path, shared);
        memcpy(next + shared, bytes, rest);
        next[shared + rest] = '\0';
        if (!path_follows(d, next, shared))
                r->bad = true;
}

static void get_entry(struct tree_decoder *d, struct reader *r, struct tree_entry *ret,
                      char next[TREE_MAX_PATH + 1])
{
        const uint8_t *kind = get_bytes(r, 1);

        *ret = (struct tree_entry){ 0 };
        if (!kind || *kind == KIND_END)
                return;
        ret->kind = (enum tree_kind) * kind;
        get_path(d, r, next);
        switch (*kind) {
        case TREE_DIR:
                ret->mode = get_mode(r);
                break;
        case TREE_FILE:
                get_file(r, ret);
                break;
        case TREE_LINK:
                get_link(d, r, ret);
                break;
        case TREE_UNKNOWN:
                break;
        default:
                r->bad = true;
        }
}

void tree_decode_init(struct tree_decoder *d)
{
        memset(d, 0, sizeof(*d));
}

void tree_decode_done(struct tree_decoder *d)
{
        buf_done(&d->in);
}

void tree_decode_feed(struct tree_decoder *d, const void *bytes, size_t len)
{
        if (d->used == d->in.len || d->used > COMPACT_ABOVE) {
                buf_consume(&d->in, d->used);
                d->used = 0;
        }
        buf_append(&d->in, bytes, len);
}

static int refuse_tree(struct tree_decoder *d, struct err *err)
{
        d->bad = true;
        return err_set(err, ERR_INVALID, "not a manifest: entry %llu is malformed",
                       (unsigned long long)d->count + 1);
}

static void use(struct tree_decoder *d, const struct reader *r)
{
        d->used = (size_t)(r->at - (const uint8_t *)buf_str(&d->in));
}

static struct reader reader_of(const struct tree_decoder *d)
{
        const uint8_t *start = (const uint8_t *)buf_str(&d->in);

        return (struct reader){ .at = start + d->used, .end = start + d->in.len };
}

static int decode_begin(struct tree_decoder *d, struct err *err)
{
        struct reader r = reader_of(d);
        const uint8_t *at = get_bytes(&r, sizeof(header));

        if (!at)
                return 0;
        if (memcmp(at, header, sizeof(header)) != 0)
                return refuse_tree(d, err);
        d->begun = true;
        use(d, &r);
        return 0;
}

static int decode_end(struct tree_decoder *d, struct reader *r, struct err *err)
{
        uint64_t count = get_number(r, TREE_MAX_COUNT);

        if (r->bad)
                return refuse_tree(d, err);
        if (r->short_of)
                return 0;
        if (count != d->count)
                return refuse_tree(d, err);
        use(d, r);
        d->done = true;
        return d->used < d->in.len ? refuse_tree(d, err) : 0; /* nothing may follow */
}

int tree_decode_next(struct tree_decoder *d, struct tree_entry *ret, struct err *err)
{
        char next[TREE_MAX_PATH + 1];
        int code;

        if (d->bad || buf_failed(&d->in))
                return refuse_tree(d, err);
        if (d->done)
                return d->used < d->in.len ? refuse_tree(d, err) : 0;
        if (!d->begun) {
                code = decode_begin(d, err);
                if (code < 0 || !d->begun)
                        return code;
        }
        struct reader r = reader_of(d);
        get_entry(d, &r, ret, next);
        if (!r.short_of && !r.bad && ret->kind == KIND_END)
                return decode_end(d, &r, err);
        if (r.bad || d->count >= TREE_MAX_COUNT)
                return refuse_tree(d, err);
        if (r.short_of)
                return 0;
        memcpy(d->path, next, strlen(next) + 1);
        d->last_kind = ret->kind;
        d->count++;
        use(d, &r);
        ret->path = d->path;
        return 1;
}
