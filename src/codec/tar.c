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
        /* GNU's sparse files: four pieces, whether blocks with more follow, the real size */
        AT_SPARSE = 386,
        AT_IS_EXTENDED = 482,
        AT_REAL_SIZE = 483,
        AT_BLOCK_IS_EXTENDED = 504, /* in a block of 21 pieces */
};

enum { PIECES_IN_HEADER = 4, PIECES_IN_BLOCK = 21 };

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

static void put_header(struct buf *out, const char *name, char type, uint32_t mode, uint32_t uid,
                       uint32_t gid, uint64_t size, int64_t mtime_ns, const char *target)
{
        char h[TAR_BLOCK] = { 0 };

        memcpy(h + AT_NAME, name, strnlen(name, NAME_SIZE));
        put_octal(h + AT_MODE, 8, mode);
        put_number(h + AT_UID, 8, uid);
        put_number(h + AT_GID, 8, gid);
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
        put_header(out, "././@LongLink", type, 0644, 0, 0, len, 0, NULL);
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
        put_header(out, entry->path, type, entry->kind == TREE_LINK ? 0777 : entry->mode, 0, 0,
                   size, entry->mtime_ns, entry->target);
}

void tar_put_xattr(struct buf *xattrs, const char *name, const void *value, size_t len)
{
        /* "<length of all of it> SCHILY.xattr.<name>=<value>\n" */
        size_t rest = strlen(" SCHILY.xattr.=\n") + strlen(name) + len, total = rest + 1;
        char digits[24];

        while (total != rest + (size_t)snprintf(digits, sizeof(digits), "%zu", total))
                total = rest + strlen(digits);
        buf_appendf(xattrs, "%zu SCHILY.xattr.%s=", total, name);
        buf_append(xattrs, value, len);
        buf_putc(xattrs, '\n');
}

void tar_put_layer(struct buf *out, const struct tar_entry *entry, const struct buf *xattrs)
{
        static const char types[] = { [TAR_FILE] = '0', [TAR_DIR] = '5',  [TAR_LINK] = '2',
                                      [TAR_HARD] = '1', [TAR_FIFO] = '6', [TAR_DEVICE] = 0 };
        const char *target =
                entry->kind == TAR_LINK || entry->kind == TAR_HARD ? entry->target : NULL;

        if (xattrs->len) {
                put_header(out, "././@PaxHeader", 'x', 0644, 0, 0, xattrs->len, 0, NULL);
                buf_append(out, xattrs->data, xattrs->len);
                tar_pad(out, xattrs->len);
        }
        if (target)
                put_long(out, 'K', target);
        put_long(out, 'L', entry->path);
        put_header(out, entry->path, types[entry->kind], entry->mode | entry->special, entry->uid,
                   entry->gid, entry->kind == TAR_FILE ? entry->size : 0, entry->mtime_ns, target);
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
        buf_init(&r->xattrs, 2 * TAR_MAX_META);
}

void tar_reader_done(struct tar_reader *r)
{
        buf_done(&r->meta);
        buf_done(&r->xattrs);
        free(r->data);
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
static bool set_path(const struct tar_reader *r, char *to, size_t size, const char *from,
                     size_t len)
{
        while (r->is_layer && len > 0 && from[0] == '/') {
                from++;
                len--;
        }
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

/* Nanoseconds of the digits behind a dot. */
static int64_t read_fraction(const char *at, size_t len)
{
        int64_t value = 0;

        for (size_t i = 0; i < 9; i++) {
                if (i < len && (at[i] < '0' || at[i] > '9'))
                        return 0;
                value = value * 10 + (i < len ? at[i] - '0' : 0);
        }
        return value;
}

/* Pieces come in order, and end where 64 bits do not. */
static bool add_data(struct tar_reader *r, uint64_t offset, uint64_t len)
{
        const struct tar_data *last = r->data && r->n_data ? &r->data[r->n_data - 1] : NULL;

        if (r->n_data >= TAR_MAX_DATA || offset > TREE_MAX_SIZE || len > TREE_MAX_SIZE ||
            (last && offset < last->offset + last->len))
                return false;
        if (!r->data || r->n_data == r->data_room) {
                r->data_room = MAX(2 * r->data_room, (size_t)16);
                r->data = xrealloc(r->data, r->data_room * sizeof(*r->data));
        }
        r->data[r->n_data++] = (struct tar_data){ offset, len };
        return true;
}

/* "0,512,4096,512": offsets and lengths. */
static bool take_map(struct tar_reader *r, const char *at, size_t len)
{
        uint64_t numbers[2];
        unsigned n = 0;

        r->n_data = 0;
        for (const char *end = at + len; at < end;) {
                const char *comma = memchr(at, ',', (size_t)(end - at));
                size_t digits = (size_t)((comma ? comma : end) - at);

                if (!read_decimal(at, digits, &numbers[n % 2]) ||
                    (++n % 2 == 0 && !add_data(r, numbers[0], numbers[1])))
                        return false;
                at += digits + 1;
        }
        return n % 2 == 0;
}

static bool is_key(const char *key, size_t key_len, const char *name)
{
        return key_len == strlen(name) && memcmp(key, name, key_len) == 0;
}

static bool take_id(const char *value, size_t len, uint32_t *ret)
{
        uint64_t number;

        if (!read_decimal(value, len, &number) || number >= UINT32_MAX)
                return false;
        *ret = (uint32_t)number;
        return true;
}

static bool take_xattr(struct tar_reader *r, const char *name, size_t name_len, const char *value,
                       size_t len)
{
        uint32_t size = (uint32_t)len;

        if (name_len == 0 || memchr(name, '\0', name_len))
                return false;
        buf_append(&r->xattrs, name, name_len);
        buf_append(&r->xattrs, "", 1);
        buf_append(&r->xattrs, &size, sizeof(size));
        buf_append(&r->xattrs, value, len);
        return !buf_failed(&r->xattrs);
}

/* What only layers have. */
static bool take_layer_record(struct tar_reader *r, const char *key, size_t key_len,
                              const char *value, size_t len)
{
        static const char xattr[] = "SCHILY.xattr.";
        const size_t prefix = sizeof(xattr) - 1;
        uint64_t number;

        if (is_key(key, key_len, "uid"))
                return r->has_uid = take_id(value, len, &r->next.uid);
        if (is_key(key, key_len, "gid"))
                return r->has_gid = take_id(value, len, &r->next.gid);
        if (key_len > prefix && memcmp(key, xattr, prefix) == 0)
                return take_xattr(r, key + prefix, key_len - prefix, value, len);
        if (is_key(key, key_len, "GNU.sparse.name"))
                return r->has_path = r->has_sparse_name =
                               set_path(r, r->next.path, sizeof(r->next.path), value, len);
        if (is_key(key, key_len, "GNU.sparse.realsize") || is_key(key, key_len, "GNU.sparse.size"))
                return r->next.is_sparse = r->has_real_size =
                               read_decimal(value, len, &r->next.real_size);
        if (is_key(key, key_len, "GNU.sparse.major"))
                return (r->has_map_inside = is_key(value, len, "1")) || is_key(value, len, "0");
        if (is_key(key, key_len, "GNU.sparse.map"))
                return take_map(r, value, len);
        /* The oldest form repeats both, the offset first. */
        if (is_key(key, key_len, "GNU.sparse.offset"))
                return read_decimal(value, len, &number) && add_data(r, number, 0);
        if (is_key(key, key_len, "GNU.sparse.numbytes")) {
                if (r->n_data == 0 || r->data[r->n_data - 1].len != 0 ||
                    !read_decimal(value, len, &number) || number > TREE_MAX_SIZE)
                        return false;
                r->data[r->n_data - 1].len = number;
        }
        return true;
}

static bool take_record(struct tar_reader *r, const char *key, size_t key_len, const char *value,
                        size_t len)
{
        uint64_t number = 0;

        if (key_len == 4 && memcmp(key, "path", 4) == 0 && !r->has_sparse_name)
                return r->has_path = set_path(r, r->next.path, sizeof(r->next.path), value, len);
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
                if (r->has_mtime && dot)
                        r->next.mtime_ns += read_fraction(dot + 1, (size_t)(value + len - dot - 1));
        }
        return r->is_layer ? take_layer_record(r, key, key_len, value, len) : true;
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
                        set_path(r, r->next.path, sizeof(r->next.path), buf_str(&r->meta), len);
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
        case '3':
        case '4':
                return TAR_DEVICE;
        case '5':
                return TAR_DIR;
        case '6':
                return TAR_FIFO;
        default:
                return TAR_OTHER;
        }
}

static bool header_path(const struct tar_reader *r, const uint8_t h[TAR_BLOCK], struct tar_entry *e)
{
        char text[PREFIX_SIZE + NAME_SIZE + 2];
        const char *name = (const char *)h + AT_NAME, *prefix = (const char *)h + AT_PREFIX;
        /* GNU's old format has other things where the prefix is. */
        size_t prefix_len =
                memcmp(h + AT_MAGIC, "ustar\0", 6) == 0 ? strnlen(prefix, PREFIX_SIZE) : 0;
        int n = snprintf(text, sizeof(text), "%.*s%s%.*s", (int)prefix_len, prefix,
                         prefix_len ? "/" : "", (int)strnlen(name, NAME_SIZE), name);

        return set_path(r, e->path, sizeof(e->path), text, (size_t)n);
}

static bool ends_in_slash(const uint8_t h[TAR_BLOCK])
{
        size_t len = strnlen((const char *)h + AT_NAME, NAME_SIZE);

        return len > 0 && h[AT_NAME + len - 1] == '/';
}

static bool read_owner(const struct tar_reader *r, const uint8_t h[TAR_BLOCK], struct tar_entry *e)
{
        uint64_t uid = 0, gid = 0;

        if ((!r->has_uid && (!get_number(h + AT_UID, 8, &uid) || uid >= UINT32_MAX)) ||
            (!r->has_gid && (!get_number(h + AT_GID, 8, &gid) || gid >= UINT32_MAX)))
                return false;
        if (!r->has_uid)
                e->uid = (uint32_t)uid;
        if (!r->has_gid)
                e->gid = (uint32_t)gid;
        return true;
}

static bool read_entry(struct tar_reader *r, const uint8_t h[TAR_BLOCK], struct tar_entry *e)
{
        const char *target = (const char *)h + AT_TARGET;
        uint64_t mode, mtime;

        e->kind = r->is_layer && h[AT_TYPE] == 'S' ? TAR_FILE : kind_of((char)h[AT_TYPE]);
        if (!r->has_path && !header_path(r, h, e))
                return false;
        if (!r->has_target && !set_target(e, target, strnlen(target, NAME_SIZE)))
                return false;
        if (!r->has_size && !get_number(h + AT_SIZE, NUMBER_SIZE, &e->size))
                return false;
        if (!get_number(h + AT_MODE, 8, &mode) || e->size > TREE_MAX_SIZE)
                return false;
        e->mode = (uint32_t)(mode & 0777);
        e->special = (uint32_t)(mode & 07000);
        if (r->is_layer && !read_owner(r, h, e))
                return false;
        if (!r->has_real_size)
                e->real_size = e->size;
        if (!r->has_mtime)
                e->mtime_ns = get_number(h + AT_MTIME, NUMBER_SIZE, &mtime) &&
                                              mtime < INT64_MAX / NS_PER_S
                                      ? (int64_t)mtime * NS_PER_S
                                      : 0;
        if (e->kind != TAR_FILE && e->kind != TAR_OTHER)
                e->size = 0;
        /* The oldest tars have no type for directories. */
        if (e->kind == TAR_FILE && e->size == 0 && !r->has_path && ends_in_slash(h))
                e->kind = TAR_DIR;
        if (e->kind == TAR_LINK)
                return e->target[0] != '\0';
        return e->kind != TAR_HARD ||
               (set_path(r, e->target, sizeof(e->target), e->target, strlen(e->target)) &&
                e->target[0] != '\0');
}

/* Sparse files: the map may be in the header and in blocks behind it, or, as text, at the beginning
 * of the content. */

static bool take_pieces(struct tar_reader *r, const uint8_t *at, unsigned n)
{
        for (unsigned i = 0; i < n; i++, at += 2 * NUMBER_SIZE) {
                uint64_t offset, len;

                if (at[0] == '\0' || at[NUMBER_SIZE] == '\0') /* no further one */
                        return true;
                if (!get_number(at, NUMBER_SIZE, &offset) ||
                    !get_number(at + NUMBER_SIZE, NUMBER_SIZE, &len) || !add_data(r, offset, len))
                        return false;
        }
        return true;
}

static bool begin_old_sparse(struct tar_reader *r, const uint8_t h[TAR_BLOCK])
{
        r->next.is_sparse = true;
        if (h[AT_IS_EXTENDED])
                r->map = TAR_MAP_BLOCKS;
        return get_number(h + AT_REAL_SIZE, NUMBER_SIZE, &r->next.real_size) &&
               take_pieces(r, h + AT_SPARSE, PIECES_IN_HEADER);
}

/* "<count>\n<offset>\n<length>\n...", filled up to a block. */
static bool take_map_text(struct tar_reader *r, const uint8_t block[TAR_BLOCK])
{
        if (r->next.size < TAR_BLOCK)
                return false;
        r->next.size -= TAR_BLOCK;
        for (size_t i = 0; i < TAR_BLOCK; i++) {
                if (block[i] >= '0' && block[i] <= '9' && r->map_number <= TREE_MAX_SIZE) {
                        r->map_number = r->map_number * 10 + (uint64_t)(block[i] - '0');
                        r->map_has_digit = true;
                        continue;
                }
                if (block[i] != '\n' || !r->map_has_digit)
                        return false;
                if (!r->map_has_count) {
                        if (r->map_number > TAR_MAX_DATA)
                                return false;
                        r->map_numbers = 2 * r->map_number;
                        r->map_has_count = true;
                } else if (r->map_numbers-- % 2 == 0) {
                        if (!add_data(r, r->map_number, 0))
                                return false;
                } else {
                        if (r->map_number > TREE_MAX_SIZE)
                                return false;
                        r->data[r->n_data - 1].len = r->map_number;
                }
                r->map_number = 0;
                r->map_has_digit = false;
                if (r->map_numbers == 0) {
                        r->map = TAR_MAP_NONE;
                        return true;
                }
        }
        return true;
}

/* Exactly the bytes that follow belong to the pieces. */
static bool map_is_sound(const struct tar_reader *r)
{
        const struct tar_data *last = r->n_data ? &r->data[r->n_data - 1] : NULL;
        uint64_t sum = 0;

        for (size_t i = 0; i < r->n_data; i++)
                sum += r->data[i].len;
        return sum == r->next.size && r->next.real_size <= TREE_MAX_SIZE &&
               (!last || last->offset + last->len <= r->next.real_size);
}

static int end_entry(struct tar_reader *r, struct tar_entry *ret, struct err *err)
{
        if (r->next.is_sparse && !map_is_sound(r))
                return bad_archive(err, "a sparse file");
        *ret = r->next;
        r->has_path = r->has_target = r->has_size = r->has_mtime = r->has_uid = r->has_gid = false;
        r->has_real_size = r->has_map_inside = r->map_has_count = r->has_sparse_name = false;
        memset(&r->next, 0, sizeof(r->next));
        r->returned = true;
        return 1;
}

static int more_map(struct tar_reader *r, const uint8_t block[TAR_BLOCK], struct tar_entry *ret,
                    struct err *err)
{
        if (r->map == TAR_MAP_TEXT) {
                if (!take_map_text(r, block))
                        return bad_archive(err, "a sparse file");
        } else {
                if (!take_pieces(r, block, PIECES_IN_BLOCK))
                        return bad_archive(err, "a sparse file");
                if (!block[AT_BLOCK_IS_EXTENDED])
                        r->map = TAR_MAP_NONE;
        }
        return r->map == TAR_MAP_NONE ? end_entry(r, ret, err) : 0;
}

bool tar_xattr(const struct tar_reader *r, size_t *at, const char **ret_name,
               const void **ret_value, size_t *ret_len)
{
        const char *record = buf_str(&r->xattrs) + *at;
        size_t name_size = *at < r->xattrs.len ? strlen(record) + 1 : 0;
        uint32_t len;

        if (name_size == 0)
                return false;
        memcpy(&len, record + name_size, sizeof(len));
        *ret_name = record;
        *ret_value = record + name_size + sizeof(len);
        *ret_len = len;
        *at += name_size + sizeof(len) + len;
        return true;
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
        if (r->is_layer && r->next.kind == TAR_FILE) {
                if (type == 'S' && !begin_old_sparse(r, block))
                        return bad_archive(err, "a sparse file");
                if (r->has_map_inside && r->next.is_sparse)
                        r->map = TAR_MAP_TEXT;
        } else {
                r->next.is_sparse = false;
        }
        return r->map == TAR_MAP_NONE ? end_entry(r, ret, err) : 0;
}

int tar_read(struct tar_reader *r, const uint8_t block[TAR_BLOCK], struct tar_entry *ret,
             struct err *err)
{
        static const uint8_t zeros[TAR_BLOCK];

        if (r->returned) {
                r->returned = false;
                r->n_data = 0;
                buf_clear(&r->xattrs);
        }
        if (r->meta_left > 0)
                return more_meta(r, block, err);
        if (r->map != TAR_MAP_NONE)
                return more_map(r, block, ret, err);
        if (memcmp(block, zeros, TAR_BLOCK) == 0)
                return ++r->zeros >= 2 ? 2 : 0;
        r->zeros = 0;
        return read_header(r, block, ret, err);
}
