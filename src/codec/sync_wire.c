/* Writes and reads messages between the daemon and a file worker. */
#include "codec/sync_wire.h"

/* Which fields a message has, in the order in which they are written. */
enum {
        HAS_PATH = 1,
        HAS_TARGET = 2,
        HAS_TEXT = 4,
        HAS_MODE = 8,
        HAS_NUMBER = 16,
        HAS_MTIME = 32,
        HAS_SIZE = 64,
        HAS_OFFSET = 128,
        HAS_FLAGS = 256,
        HAS_HASH = 512,
        HAS_BLOB = 1024,
        MAY_BE_ANSWER = 2048, /* without a path */
};

static const unsigned fields_of[] = {
        [SYNC_HELLO] = HAS_MODE | HAS_NUMBER,
        [SYNC_TREE] = HAS_TARGET | HAS_TEXT | HAS_FLAGS | HAS_BLOB,
        [SYNC_READY] = HAS_BLOB,
        [SYNC_SCAN] = 0,
        [SYNC_MANIFEST] = HAS_BLOB,
        [SYNC_SCANNED] = 0,
        [SYNC_DIR] = HAS_PATH | HAS_MODE,
        [SYNC_LINK] = HAS_PATH | HAS_TARGET,
        [SYNC_MODE] = HAS_PATH | HAS_MODE,
        [SYNC_REMOVE] = HAS_PATH,
        [SYNC_FILE] = HAS_PATH | HAS_MODE | HAS_MTIME | HAS_HASH | HAS_BLOB | MAY_BE_ANSWER,
        [SYNC_BIG] =
                HAS_PATH | HAS_MODE | HAS_MTIME | HAS_SIZE | HAS_FLAGS | HAS_HASH | MAY_BE_ANSWER,
        [SYNC_CHUNKS_ARE] = HAS_FLAGS | HAS_BLOB,
        [SYNC_WANT] = HAS_BLOB,
        [SYNC_DATA] = HAS_OFFSET | HAS_BLOB,
        [SYNC_BIG_END] = HAS_SIZE | HAS_HASH,
        [SYNC_DONE] = HAS_FLAGS,
        [SYNC_GET] = HAS_PATH | HAS_FLAGS,
        [SYNC_GONE] = 0,
        [SYNC_FINISH] = 0,
        [SYNC_FINISHED] = 0,
        [SYNC_FAIL] = HAS_TEXT,
        [SYNC_CLEAR] = 0,
        [SYNC_ALIVE] = 0,
};

void sync_msg_write(struct buf *b, const struct sync_msg *m)
{
        unsigned fields = fields_of[m->type];
        struct frame_out f = { b, b->len };
        size_t at = b->len;

        frame_put_u32(&f, 0);
        frame_put_u8(&f, m->type);
        frame_put_u32(&f, m->slot);
        if (fields & HAS_PATH)
                frame_put_str(&f, m->path.p, m->path.len);
        if (fields & HAS_TARGET)
                frame_put_str(&f, m->target.p, m->target.len);
        if (fields & HAS_TEXT)
                frame_put_str(&f, m->text.p, m->text.len);
        if (fields & HAS_MODE)
                frame_put_u32(&f, m->mode);
        if (fields & HAS_NUMBER)
                frame_put_u32(&f, m->number);
        if (fields & HAS_MTIME)
                frame_put_u64(&f, (uint64_t)m->mtime_ns);
        if (fields & HAS_SIZE)
                frame_put_u64(&f, m->size);
        if (fields & HAS_OFFSET)
                frame_put_u64(&f, m->offset);
        if (fields & HAS_FLAGS)
                frame_put_u8(&f, m->flags);
        if (fields & HAS_HASH)
                frame_put_blob(&f, m->hash, TREE_HASH);
        if (fields & HAS_BLOB)
                frame_put_blob(&f, m->blob.p, m->blob.len);
        if (b->failed)
                return;
        uint32_t len = (uint32_t)(b->len - at - SYNC_HEADER);
        for (int i = 0; i < 4; i++)
                b->data[at + (size_t)i] = (char)(len >> (24 - 8 * i));
}

static void get_hash(struct frame_in *f, uint8_t ret[TREE_HASH])
{
        if (f->left < TREE_HASH) {
                f->bad = true;
                f->left = 0;
                return;
        }
        memcpy(ret, f->p, TREE_HASH);
        f->p += TREE_HASH;
        f->left -= TREE_HASH;
}

static bool path_is_good(struct frame_bytes s)
{
        char text[TREE_MAX_PATH + 1];

        if (s.len == 0 || s.len > TREE_MAX_PATH)
                return false;
        memcpy(text, s.p, s.len);
        text[s.len] = '\0';
        return tree_path_ok(text);
}

static void check(struct frame_in *f, const struct sync_msg *m, unsigned fields)
{
        if (fields & HAS_PATH && !(m->path.len == 0 && fields & MAY_BE_ANSWER) &&
            !path_is_good(m->path))
                f->bad = true;
        if (m->target.len > TREE_MAX_TARGET || (m->type == SYNC_LINK && m->target.len == 0) ||
            m->mode & ~0777U || m->size > TREE_MAX_SIZE || m->flags > 1)
                f->bad = true;
        if (m->type == SYNC_FILE && m->blob.len > SYNC_SMALL)
                f->bad = true;
        if (m->type == SYNC_DATA &&
            (m->blob.len == 0 || m->blob.len > SYNC_PIECE || m->offset > TREE_MAX_SIZE))
                f->bad = true;
        if (m->type == SYNC_CHUNKS_ARE &&
            (m->blob.len % SYNC_CHUNK_SIZE || m->blob.len > SYNC_CHUNKS * SYNC_CHUNK_SIZE))
                f->bad = true;
        if (m->type == SYNC_READY && m->blob.len % TREE_HASH)
                f->bad = true;
}

static int read_payload(struct frame_in *f, struct sync_msg *m, struct err *err)
{
        unsigned fields = fields_of[m->type];

        if (fields & HAS_PATH)
                m->path = frame_get_str(f);
        if (fields & HAS_TARGET)
                m->target = frame_get_str(f);
        if (fields & HAS_TEXT)
                m->text = frame_get_str(f);
        if (fields & HAS_MODE)
                m->mode = frame_get_u32(f);
        if (fields & HAS_NUMBER)
                m->number = frame_get_u32(f);
        if (fields & HAS_MTIME)
                m->mtime_ns = (int64_t)frame_get_u64(f);
        if (fields & HAS_SIZE)
                m->size = frame_get_u64(f);
        if (fields & HAS_OFFSET)
                m->offset = frame_get_u64(f);
        if (fields & HAS_FLAGS)
                m->flags = frame_get_u8(f);
        if (fields & HAS_HASH)
                get_hash(f, m->hash);
        if (fields & HAS_BLOB)
                m->blob = frame_get_blob(f);
        check(f, m, fields);
        return frame_in_end(f, err);
}

int sync_msg_read(const void *bytes, size_t len, struct sync_msg *ret, size_t *ret_len,
                  struct err *err)
{
        struct frame_in f;

        frame_in_init(&f, bytes, len);
        if (len < SYNC_HEADER)
                return 0;
        uint32_t size = frame_get_u32(&f);
        *ret = (struct sync_msg){ .type = frame_get_u8(&f) };
        ret->slot = frame_get_u32(&f);
        if (size > SYNC_MAX_PAYLOAD || ret->type == 0 || ret->type >= ARRAY_LEN(fields_of))
                return err_set(err, ERR_INVALID, "not a message of a file worker");
        if (f.left < size)
                return 0;
        f.left = size;
        int r = read_payload(&f, ret, err);
        if (r < 0)
                return err_wrap(err, r, "message of type %u", ret->type);
        *ret_len = SYNC_HEADER + size;
        return 1;
}

int sync_text_next(struct frame_bytes *blob, struct frame_bytes *ret, struct err *err)
{
        struct frame_in f;

        if (blob->len == 0)
                return 0;
        frame_in_init(&f, blob->p, blob->len);
        *ret = frame_get_str(&f);
        if (f.bad || ret->len == 0 || ret->len > TREE_MAX_PATH)
                return err_set(err, ERR_INVALID, "a list of texts that is none");
        *blob = (struct frame_bytes){ (const char *)f.p, f.left };
        return 1;
}

void sync_text_add(struct buf *b, const char *text)
{
        struct frame_out f = { b, b->len };

        frame_put_str(&f, text, strlen(text));
}
