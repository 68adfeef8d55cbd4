/* Writes tar entries, and decides which entries of an archive are accepted. */
#include "codec/tar.h"

#include <stdio.h>

#define NS_PER_S INT64_C(1000000000)

/* Where the fields of a header are. */
enum {
        AT_NAME = 0,
        AT_MODE = 100,
        AT_UID = 108,
        AT_GID = 116,
        AT_SIZE = 124,
        AT_MTIME = 136,
        AT_SUM = 148,
        AT_TYPE = 156,
        AT_TARGET = 157,
        AT_MAGIC = 257,
        AT_PREFIX = 345,
};

enum { NAME_SIZE = 100, PREFIX_SIZE = 155, NUMBER_SIZE = 12 };

/* Writing */

static void put_octal(char *at, size_t size, uint64_t value)
{
        for (size_t i = size - 1; i-- > 0; value >>= 3)
                at[i] = (char)('0' + (value & 7));
        at[size - 1] = '\0';
}

/* In octal where it fits, else GNU's way: binary, with the first bit set. */
static void put_number(char *at, size_t size, uint64_t value)
{
        if (value < UINT64_C(1) << (3 * (size - 1))) {
                put_octal(at, size, value);
                return;
        }
        memset(at, 0, size);
        for (size_t i = size; i-- > size - 8; value >>= 8)
                at[i] = (char)(value & 0xff);
        at[0] = (char)0x80;
}

static unsigned header_checksum(const uint8_t block[TAR_BLOCK])
{
        unsigned sum = 0;

        for (size_t i = 0; i < TAR_BLOCK; i++)
                sum += i >= AT_SUM && i < AT_SUM + 8 ? ' ' : block[i];
        return sum;
}

static void put_header(struct buf *out, const char *name, char type, uint32_t mode, uint64_t size,
                       int64_t mtime_ns, const char *target)
{
        char h[TAR_BLOCK] = { 0 };

        memcpy(h + AT_NAME, name, strnlen(name, NAME_SIZE));
        put_octal(h + AT_MODE, 8, mode);
        put_octal(h + AT_UID, 8, 0);
        put_octal(h + AT_GID, 8, 0);
        put_number(h + AT_SIZE, NUMBER_SIZE, size);
        put_number(h + AT_MTIME, NUMBER_SIZE, mtime_ns > 0 ? (uint64_t)(mtime_ns / NS_PER_S) : 0);
        h[AT_TYPE] = type;
        if (target)
                memcpy(h + AT_TARGET, target, strnlen(target, NAME_SIZE));
        memcpy(h + AT_MAGIC, "ustar  ", 8);
        put_octal(h + AT_SUM, 7, header_checksum((const uint8_t *)h));
        h[AT_SUM + 7] = ' ';
        buf_append(out, h, sizeof(h));
}

static void put_long(struct buf *out, char type, const char *text)
{
        size_t len = strlen(text) + 1;

        if (len <= NAME_SIZE)
                return;
        put_header(out, "././@LongLink", type, 0644, len, 0, NULL);
        buf_append(out, text, len);
        tar_pad(out, len);
}

void tar_put(struct buf *out, const struct tree_entry *entry)
{
        char type = entry->kind == TREE_DIR ? '5' : entry->kind == TREE_LINK ? '2' : '0';
        uint64_t size = entry->kind == TREE_FILE ? entry->size : 0;

        if (entry->target)
                put_long(out, 'K', entry->target);
        put_long(out, 'L', entry->path);
        put_header(out, entry->path, type, entry->kind == TREE_LINK ? 0777 : entry->mode, size,
                   entry->mtime_ns, entry->target);
}

void tar_pad(struct buf *out, uint64_t size)
{
        static const char zeros[TAR_BLOCK];
        size_t rest = (size_t)(size % TAR_BLOCK);

        if (rest)
                buf_append(out, zeros, TAR_BLOCK - rest);
}

void tar_end(struct buf *out)
{
        static const char zeros[2 * TAR_BLOCK];

        buf_append(out, zeros, sizeof(zeros));
}

/* Reading */

void tar_reader_init(struct tar_reader *r)
{
        memset(r, 0, sizeof(*r));
        buf_init(&r->meta, TAR_MAX_META + TAR_BLOCK);
}

void tar_reader_done(struct tar_reader *r)
{
        buf_done(&r->meta);
}

static bool get_number(const uint8_t *at, size_t size, uint64_t *ret)
{
        uint64_t value = 0;
        size_t i = 0;

        *ret = 0;
        if (at[0] & 0x80) {
                if (at[0] != 0x80) /* below zero, or beyond all sense */
                        return false;
                for (i = 1; i < size; i++) {
                        if (value >> 56)
                                return false;
                        value = value << 8 | at[i];
                }
                *ret = value;
                return true;
        }
        while (i < size && at[i] == ' ')
                i++;
        for (; i < size && at[i] >= '0' && at[i] <= '7'; i++)
                value = value << 3 | (uint64_t)(at[i] - '0');
        *ret = value;
        return i == size || at[i] == '\0' || at[i] == ' ';
}

static int bad_archive(struct err *err, const char *what)
{
        return err_set(err, ERR_INVALID, "not an archive: %s", what);
}

/* "./a/b/" is a/b, "." is nothing. */
static bool set_path(char *to, size_t size, const char *from, size_t len)
{
        while (len >= 2 && from[0] == '.' && from[1] == '/') {
                from += 2;
                len -= 2;
                while (len > 0 && from[0] == '/') {
                        from++;
                        len--;
                }
        }
        while (len > 0 && from[len - 1] == '/')
                len--;
        if (len == 1 && from[0] == '.')
                len = 0;
        if (len >= size || memchr(from, '\0', len))
                return false;
        memmove(to, from, len);
        to[len] = '\0';
        return len == 0 || tree_path_ok(to);
}

static bool set_target(struct tar_entry *e, const char *from, size_t len)
{
        if (len >= sizeof(e->target) || memchr(from, '\0', len))
                return false;
        memcpy(e->target, from, len);
        e->target[len] = '\0';
        return true;
}

/* Extended headers */

static bool read_decimal(const char *at, size_t len, uint64_t *ret)
{
        uint64_t value = 0;

        if (len == 0 || len > 18)
                return false;
        for (size_t i = 0; i < len; i++) {
                if (at[i] < '0' || at[i] > '9')
                        return false;
                value = value * 10 + (uint64_t)(at[i] - '0');
        }
        *ret = value;
        return true;
}

static bool take_record(struct tar_reader *r, const char *key, size_t key_len, const char *value,
                        size_t len)
{
        uint64_t number = 0;

        if (key_len == 4 && memcmp(key, "path", 4) == 0)
                return r->has_path = set_path(r->next.path, sizeof(r->next.path), value, len);
        if (key_len == 8 && memcmp(key, "linkpath", 8) == 0)
                return r->has_target = set_target(&r->next, value, len);
        if (key_len == 4 && memcmp(key, "size", 4) == 0) {
                r->has_size = read_decimal(value, len, &number);
                r->next.size = number;
                return r->has_size;
        }
        if (key_len == 5 && memcmp(key, "mtime", 5) == 0) {
                const char *dot = memchr(value, '.', len);

                r->has_mtime = read_decimal(value, dot ? (size_t)(dot - value) : len, &number) &&
                               number < INT64_MAX / NS_PER_S;
                if (r->has_mtime)
                        r->next.mtime_ns = (int64_t)number * NS_PER_S;
        }
        return true;
}

/* "<length of all of it> <key>=<value>\n", again and again. */
static bool take_records(struct tar_reader *r)
{
        const char *at = buf_str(&r->meta);
        size_t left = r->meta.len;

        while (left > 0) {
                const char *space = memchr(at, ' ', left), *equals;
                uint64_t len;

                if (!space || !read_decimal(at, (size_t)(space - at), &len) || len > left ||
                    len <= (size_t)(space - at) + 1 || at[len - 1] != '\n')
                        return false;
                space++;
                equals = memchr(space, '=', (size_t)(at + len - space));
                if (!equals || !take_record(r, space, (size_t)(equals - space), equals + 1,
                                            (size_t)(at + len - 1 - equals - 1)))
                        return false;
                at += len;
                left -= len;
        }
        return true;
}

static int end_meta(struct tar_reader *r, struct err *err)
{
        size_t len = strnlen(buf_str(&r->meta), r->meta.len);
        bool good = true;

        if (r->meta_type == 'L')
                good = r->has_path =
                        set_path(r->next.path, sizeof(r->next.path), buf_str(&r->meta), len);
        else if (r->meta_type == 'K')
                good = r->has_target = set_target(&r->next, buf_str(&r->meta), len);
        else if (r->meta_type == 'x')
                good = take_records(r);
        buf_clear(&r->meta);
        return good ? 0 : bad_archive(err, "an extended header");
}

static int begin_meta(struct tar_reader *r, char type, uint64_t size, struct err *err)
{
        if (size > TAR_MAX_META)
                return bad_archive(err, "an extended header that is too long");
        r->meta_type = type;
        r->meta_left = size;
        return size == 0 ? end_meta(r, err) : 0;
}

static int more_meta(struct tar_reader *r, const uint8_t block[TAR_BLOCK], struct err *err)
{
        size_t n = (size_t)MIN(r->meta_left, (uint64_t)TAR_BLOCK);

        buf_append(&r->meta, block, n);
        r->meta_left -= n;
        return r->meta_left == 0 ? end_meta(r, err) : 0;
}

/* Entries */

static enum tar_kind kind_of(char type)
{
        switch (type) {
        case '0':
        case '\0':
        case '7':
                return TAR_FILE;
        case '1':
                return TAR_HARD;
        case '2':
                return TAR_LINK;
        case '5':
                return TAR_DIR;
        default:
                return TAR_OTHER;
        }
}

static bool header_path(const uint8_t h[TAR_BLOCK], struct tar_entry *e)
{
        char text[PREFIX_SIZE + NAME_SIZE + 2];
        const char *name = (const char *)h + AT_NAME, *prefix = (const char *)h + AT_PREFIX;
        /* GNU's old format has other things where the prefix is. */
        size_t prefix_len =
                memcmp(h + AT_MAGIC, "ustar\0", 6) == 0 ? strnlen(prefix, PREFIX_SIZE) : 0;
        int n = snprintf(text, sizeof(text), "%.*s%s%.*s", (int)prefix_len, prefix,
                         prefix_len ? "/" : "", (int)strnlen(name, NAME_SIZE), name);

        return set_path(e->path, sizeof(e->path), text, (size_t)n);
}

static bool read_entry(struct tar_reader *r, const uint8_t h[TAR_BLOCK], struct tar_entry *e)
{
        const char *target = (const char *)h + AT_TARGET;
        uint64_t mode, mtime;

        e->kind = kind_of((char)h[AT_TYPE]);
        if (!r->has_path && !header_path(h, e))
                return false;
        if (!r->has_target && !set_target(e, target, strnlen(target, NAME_SIZE)))
                return false;
        if (!r->has_size && !get_number(h + AT_SIZE, NUMBER_SIZE, &e->size))
                return false;
        if (!get_number(h + AT_MODE, 8, &mode) || e->size > TREE_MAX_SIZE)
                return false;
        e->mode = (uint32_t)(mode & 0777);
        if (!r->has_mtime)
                e->mtime_ns = get_number(h + AT_MTIME, NUMBER_SIZE, &mtime) &&
                                              mtime < INT64_MAX / NS_PER_S
                                      ? (int64_t)mtime * NS_PER_S
                                      : 0;
        if (e->kind != TAR_FILE && e->kind != TAR_OTHER)
                e->size = 0;
        if (e->kind == TAR_LINK)
                return e->target[0] != '\0';
        return e->kind != TAR_HARD ||
               (set_path(e->target, sizeof(e->target), e->target, strlen(e->target)) &&
                e->target[0] != '\0');
}

static int read_header(struct tar_reader *r, const uint8_t block[TAR_BLOCK], struct tar_entry *ret,
                       struct err *err)
{
        char type = (char)block[AT_TYPE];
        uint64_t sum, size;

        if (!get_number(block + AT_SUM, 8, &sum) || sum != header_checksum(block))
                return bad_archive(err, "a header with a wrong sum");
        if (type == 'L' || type == 'K' || type == 'x' || type == 'g') {
                if (!get_number(block + AT_SIZE, NUMBER_SIZE, &size))
                        return bad_archive(err, "a size");
                return begin_meta(r, type, size, err);
        }
        if (!read_entry(r, block, &r->next))
                return bad_archive(err, "an entry with a name, a target or a size that cannot be");
        *ret = r->next;
        r->has_path = r->has_target = r->has_size = r->has_mtime = false;
        memset(&r->next, 0, sizeof(r->next));
        return 1;
}

int tar_read(struct tar_reader *r, const uint8_t block[TAR_BLOCK], struct tar_entry *ret,
             struct err *err)
{
        static const uint8_t zeros[TAR_BLOCK];

        if (r->meta_left > 0)
                return more_meta(r, block, err);
        if (memcmp(block, zeros, TAR_BLOCK) == 0)
                return ++r->zeros >= 2 ? 2 : 0;
        r->zeros = 0;
        return read_header(r, block, ret, err);
}
