/* Writes changes as bytes, and decides which bytes are accepted as changes. */
#include "workspace/change_file.h"

#include "codec/frame.h"

/* The bytes, numbers big-endian:
 *
 *   header   "BCHANGE\1"
 *   record   length (2 bytes), flags, path (str); what is now, unless deleted; what was, if known;
 *            the time, if it was staged by time
 *   a state  kind; of a file mode, size, mtime, hash; of a directory mode; of a link its target
 *   end      length 9, flags END, count */

static const char header[8] = "BCHANGE\1";

#define FLAG_DELETE   1
#define FLAG_WAS      2
#define FLAG_BY_TIME  4
#define FLAG_END      128
#define LENGTH        2
#define COMPACT_ABOVE 65536

/* Encoding */

static void put_state(struct frame_out *f, const struct tree_entry *e)
{
        frame_put_u8(f, (uint8_t)e->kind);
        if (e->kind == TREE_LINK) {
                frame_put_str(f, e->target, strlen(e->target));
                return;
        }
        frame_put_u16(f, (uint16_t)(e->mode & 0777));
        if (e->kind != TREE_FILE)
                return;
        frame_put_u64(f, e->size);
        frame_put_u64(f, (uint64_t)e->mtime_ns);
        buf_append(f->b, e->hash, TREE_HASH);
}

static void put_record(struct buf *out, const struct buf *record)
{
        struct frame_out f = { out, 0 };

        frame_put_u16(&f, (uint16_t)record->len);
        buf_append(out, record->data, record->len);
}

void change_encode_begin(struct buf *out)
{
        buf_append(out, header, sizeof(header));
}

void change_encode(struct buf *out, const struct change *c)
{
        CLEAN(buf_done) struct buf record = BUF_INIT;
        struct frame_out f = { &record, 0 };

        frame_put_u8(&f, (uint8_t)((c->is_delete ? FLAG_DELETE : 0) | (c->has_was ? FLAG_WAS : 0) |
                                   (c->was_by_time ? FLAG_BY_TIME : 0)));
        frame_put_str(&f, c->now.path, strlen(c->now.path));
        if (!c->is_delete)
                put_state(&f, &c->now);
        if (c->has_was)
                put_state(&f, &c->was);
        if (c->was_by_time)
                frame_put_u64(&f, (uint64_t)c->staged_ns);
        put_record(out, &record);
}

void change_encode_end(struct buf *out, uint64_t count)
{
        CLEAN(buf_done) struct buf record = BUF_INIT;
        struct frame_out f = { &record, 0 };

        frame_put_u8(&f, FLAG_END);
        frame_put_u64(&f, count);
        put_record(out, &record);
}

/* Decoding */

static bool get_text(struct frame_in *f, char *ret, size_t max)
{
        struct frame_bytes s = frame_get_str(f);

        if (f->bad || s.len == 0 || s.len > max)
                return false;
        memcpy(ret, s.p, s.len);
        ret[s.len] = '\0';
        return true;
}

static bool get_state(struct frame_in *f, const char *path, char target[TREE_MAX_TARGET + 1],
                      struct tree_entry *ret)
{
        uint8_t kind = frame_get_u8(f);

        *ret = (struct tree_entry){ .path = path };
        if (kind == TREE_LINK) {
                ret->kind = TREE_LINK;
                ret->target = target;
                return get_text(f, target, TREE_MAX_TARGET);
        }
        if (kind != TREE_FILE && kind != TREE_DIR)
                return false;
        ret->kind = kind == TREE_FILE ? TREE_FILE : TREE_DIR;
        ret->mode = frame_get_u16(f);
        if (kind == TREE_FILE) {
                ret->size = frame_get_u64(f);
                ret->mtime_ns = (int64_t)frame_get_u64(f);
                if (f->bad || f->left < TREE_HASH)
                        return false;
                memcpy(ret->hash, f->p, TREE_HASH);
                f->p += TREE_HASH;
                f->left -= TREE_HASH;
        }
        return !f->bad && ret->mode <= 0777 && ret->size <= TREE_MAX_SIZE;
}

static bool get_path(struct change_decoder *d, struct frame_in *f)
{
        char next[TREE_MAX_PATH + 1];

        if (!get_text(f, next, TREE_MAX_PATH) || !tree_path_ok(next))
                return false;
        if (d->count > 0 && tree_compare(d->path, next) >= 0)
                return false;
        memcpy(d->path, next, strlen(next) + 1);
        return true;
}

static bool get_change(struct change_decoder *d, uint8_t flags, struct frame_in *f,
                       struct change *ret)
{
        *ret = (struct change){
                .is_delete = flags & FLAG_DELETE,
                .has_was = flags & FLAG_WAS,
                .was_by_time = flags & FLAG_BY_TIME,
        };
        if (flags > (FLAG_DELETE | FLAG_WAS | FLAG_BY_TIME) || d->count >= TREE_MAX_COUNT ||
            !get_path(d, f))
                return false;
        ret->now.path = d->path;
        if (!ret->is_delete && !get_state(f, d->path, d->target, &ret->now))
                return false;
        if (ret->has_was && !get_state(f, d->path, d->was_target, &ret->was))
                return false;
        if (ret->was_by_time)
                ret->staged_ns = (int64_t)frame_get_u64(f);
        return frame_in_end(f, NULL) == 0;
}

void change_decode_init(struct change_decoder *d)
{
        memset(d, 0, sizeof(*d));
}

void change_decode_done(struct change_decoder *d)
{
        buf_done(&d->in);
}

void change_decode_feed(struct change_decoder *d, const void *bytes, size_t len)
{
        if (d->used == d->in.len || d->used > COMPACT_ABOVE) {
                buf_consume(&d->in, d->used);
                d->used = 0;
        }
        buf_append(&d->in, bytes, len);
}

static int refuse_change(const struct change_decoder *d, struct err *err)
{
        return err_set(err, ERR_CORRUPT, "change %llu is malformed",
                       (unsigned long long)d->count + 1);
}

static int decode_record(struct change_decoder *d, struct frame_in *f, struct change *ret,
                         struct err *err)
{
        uint8_t flags = frame_get_u8(f);

        if (flags == FLAG_END) {
                uint64_t count = frame_get_u64(f);

                if (frame_in_end(f, NULL) < 0 || count != d->count)
                        return refuse_change(d, err);
                d->done = true;
                return 0;
        }
        if (!get_change(d, flags, f, ret))
                return refuse_change(d, err);
        d->count++;
        return 1;
}

int change_decode_next(struct change_decoder *d, struct change *ret, struct err *err)
{
        const uint8_t *at = (const uint8_t *)buf_str(&d->in) + d->used;
        size_t left = d->in.len - d->used, len;
        struct frame_in f;

        if (buf_failed(&d->in) || (d->done && left > 0))
                return refuse_change(d, err);
        if (!d->begun) {
                if (left < sizeof(header))
                        return 0;
                if (memcmp(at, header, sizeof(header)) != 0)
                        return refuse_change(d, err);
                d->begun = true;
                d->used += sizeof(header);
                return change_decode_next(d, ret, err);
        }
        if (left < LENGTH)
                return 0;
        len = (size_t)at[0] << 8 | at[1];
        if (left < LENGTH + len)
                return 0;
        d->used += LENGTH + len;
        frame_in_init(&f, at + LENGTH, len);
        return decode_record(d, &f, ret, err);
}
