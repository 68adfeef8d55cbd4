/* Writes and reads frames and the values in them, within their bounds. */
#include "codec/frame.h"

/* Writing */

static void store_u32(uint8_t *at, uint32_t v)
{
        at[0] = (uint8_t)(v >> 24);
        at[1] = (uint8_t)(v >> 16);
        at[2] = (uint8_t)(v >> 8);
        at[3] = (uint8_t)v;
}

static uint32_t load_u32(const uint8_t *at)
{
        return (uint32_t)at[0] << 24 | (uint32_t)at[1] << 16 | (uint32_t)at[2] << 8 | at[3];
}

void frame_begin(struct frame_out *f, struct buf *b, enum frame_type type, uint32_t channel)
{
        uint8_t header[FRAME_HEADER] = { 0 };

        f->b = b;
        f->start = b->len;
        header[4] = (uint8_t)type;
        store_u32(header + 8, channel);
        buf_append(b, header, sizeof(header));
}

/* Make room for one more header in front of each part but the first, from the back. */
static void cut_into_parts(struct frame_out *f, size_t payload)
{
        size_t parts = (payload + FRAME_MAX_PAYLOAD - 1) / FRAME_MAX_PAYLOAD;
        uint8_t *first = (uint8_t *)f->b->data + f->start;
        uint8_t type = first[4];
        uint32_t channel = load_u32(first + 8);

        if (!buf_reserve(f->b, (parts - 1) * FRAME_HEADER))
                return;
        buf_grew(f->b, (parts - 1) * FRAME_HEADER);
        first = (uint8_t *)f->b->data + f->start;
        for (size_t i = parts; i-- > 0;) {
                size_t at = i * FRAME_MAX_PAYLOAD;
                size_t len = MIN(payload - at, (size_t)FRAME_MAX_PAYLOAD);
                uint8_t *to = first + i * (FRAME_MAX_PAYLOAD + FRAME_HEADER);

                memmove(to + FRAME_HEADER, first + FRAME_HEADER + at, len);
                memset(to, 0, FRAME_HEADER);
                store_u32(to, (uint32_t)len);
                to[4] = i + 1 == parts ? type : FRAME_CONT;
                store_u32(to + 8, channel);
        }
}

void frame_end(struct frame_out *f)
{
        if (buf_failed(f->b))
                return;
        size_t payload = f->b->len - f->start - FRAME_HEADER;
        if (payload > FRAME_MAX_PAYLOAD)
                cut_into_parts(f, payload);
        else
                store_u32((uint8_t *)f->b->data + f->start, (uint32_t)payload);
}

static void put_number(struct frame_out *f, uint64_t v, size_t size)
{
        uint8_t b[8];

        for (size_t i = 0; i < size; i++)
                b[i] = (uint8_t)(v >> (8 * (size - 1 - i)));
        buf_append(f->b, b, size);
}

void frame_put_u8(struct frame_out *f, uint8_t v)
{
        put_number(f, v, 1);
}

void frame_put_u16(struct frame_out *f, uint16_t v)
{
        put_number(f, v, 2);
}

void frame_put_u32(struct frame_out *f, uint32_t v)
{
        put_number(f, v, 4);
}

void frame_put_u64(struct frame_out *f, uint64_t v)
{
        put_number(f, v, 8);
}

void frame_put_uuid(struct frame_out *f, const uint8_t uuid[FRAME_UUID])
{
        buf_append(f->b, uuid, FRAME_UUID);
}

void frame_put_str(struct frame_out *f, const char *s, size_t len)
{
        frame_put_u32(f, (uint32_t)len);
        buf_append(f->b, s, len);
}

void frame_put_blob(struct frame_out *f, const void *p, size_t len)
{
        buf_append(f->b, p, len);
}

/* Reading */

int frame_parse_header(const void *bytes, size_t len, struct frame_header *ret, struct err *err)
{
        const uint8_t *b = bytes;

        if (len < FRAME_HEADER)
                return 0;
        *ret = (struct frame_header){ load_u32(b), b[4], load_u32(b + 8) };
        if (ret->len > FRAME_MAX_PAYLOAD)
                return err_set(err, ERR_INVALID, "a frame of %u bytes is too long", ret->len);
        if (b[5] || b[6] || b[7])
                return err_set(err, ERR_INVALID,
                               "a frame has flags that this version does not know");
        return 1;
}

void frame_in_init(struct frame_in *f, const void *payload, size_t len)
{
        *f = (struct frame_in){ .p = payload, .left = len };
}

static const uint8_t *take(struct frame_in *f, size_t n)
{
        const uint8_t *at = f->p;

        if (f->bad || f->left < n) {
                f->bad = true;
                return NULL;
        }
        f->p += n;
        f->left -= n;
        return at;
}

uint8_t frame_get_u8(struct frame_in *f)
{
        const uint8_t *b = take(f, 1);

        return b ? *b : 0;
}

uint16_t frame_get_u16(struct frame_in *f)
{
        const uint8_t *b = take(f, 2);

        return b ? (uint16_t)(b[0] << 8 | b[1]) : 0;
}

uint32_t frame_get_u32(struct frame_in *f)
{
        const uint8_t *b = take(f, 4);

        return b ? load_u32(b) : 0;
}

uint64_t frame_get_u64(struct frame_in *f)
{
        uint64_t high = frame_get_u32(f);

        return high << 32 | frame_get_u32(f);
}

void frame_get_uuid(struct frame_in *f, uint8_t ret[FRAME_UUID])
{
        const uint8_t *b = take(f, FRAME_UUID);

        if (b)
                memcpy(ret, b, FRAME_UUID);
        else
                memset(ret, 0, FRAME_UUID);
}

struct frame_bytes frame_get_str(struct frame_in *f)
{
        size_t len = frame_get_u32(f);
        const uint8_t *b = len <= FRAME_MAX_STR ? take(f, len) : NULL;

        if (!b || memchr(b, '\0', len))
                f->bad = true;
        return b ? (struct frame_bytes){ (const char *)b, len } : (struct frame_bytes){ "", 0 };
}

struct frame_bytes frame_get_blob(struct frame_in *f)
{
        size_t len = f->left;
        const uint8_t *b = take(f, len);

        return b ? (struct frame_bytes){ (const char *)b, len } : (struct frame_bytes){ "", 0 };
}

int frame_in_end(const struct frame_in *f, struct err *err)
{
        if (f->bad)
                return err_set(err, ERR_INVALID, "a frame's payload is too short or malformed");
        if (f->left)
                return err_set(err, ERR_INVALID, "a frame's payload is too long");
        return 0;
}

/* UUIDs */

void frame_uuid_text(const uint8_t uuid[FRAME_UUID], char ret[37])
{
        static const char digits[] = "0123456789abcdef";
        char *p = ret;

        for (int i = 0; i < FRAME_UUID; i++) {
                if (i == 4 || i == 6 || i == 8 || i == 10)
                        *p++ = '-';
                *p++ = digits[uuid[i] >> 4];
                *p++ = digits[uuid[i] & 15];
        }
        *p = '\0';
}

bool frame_uuid_bytes(const char *text, uint8_t ret[FRAME_UUID])
{
        for (int i = 0; i < FRAME_UUID; i++) {
                int high, low;

                if (i == 4 || i == 6 || i == 8 || i == 10)
                        if (*text++ != '-')
                                return false;
                high = hex_digit(*text++);
                low = high < 0 ? -1 : hex_digit(*text++);
                if (low < 0)
                        return false;
                ret[i] = (uint8_t)(high << 4 | low);
        }
        return *text == '\0';
}

void frame_write(struct buf *b, enum frame_type type, uint32_t channel,
                 const struct frame_field *fields, size_t n)
{
        struct frame_out f;

        frame_begin(&f, b, type, channel);
        for (size_t i = 0; i < n; i++) {
                if (fields[i].size > 0)
                        put_number(&f, fields[i].number, fields[i].size);
                else if (fields[i].is_text)
                        frame_put_str(&f, fields[i].bytes, fields[i].number);
                else
                        frame_put_blob(&f, fields[i].bytes, fields[i].number);
        }
        frame_end(&f);
}

/* Shared payloads */

void frame_put_output(struct frame_out *f, const struct box_output *o)
{
        frame_put_u64(f, o->limit);
        frame_put_u64(f, o->place_limit);
        frame_put_u64(f, o->place_taken);
        frame_put_u32(f, o->wait_ms);
        frame_put_u8(f, o->full);
}

void frame_get_output(struct frame_in *f, struct box_output *ret)
{
        ret->limit = frame_get_u64(f);
        ret->place_limit = frame_get_u64(f);
        ret->place_taken = frame_get_u64(f);
        ret->wait_ms = frame_get_u32(f);
        ret->full = frame_get_u8(f);
        if (ret->full != BOX_OUTPUT_WAIT && ret->full != BOX_OUTPUT_DROP)
                f->bad = true;
}

void frame_put_exit(struct frame_out *f, const struct box_exit *e)
{
        frame_put_u32(f, (uint32_t)e->code);
        frame_put_u8(f, e->signal);
        frame_put_u8(f, e->flags);
        frame_put_u64(f, e->ended_ms);
        frame_put_u64(f, e->stdout_len);
        frame_put_u64(f, e->stderr_len);
}

void frame_get_exit(struct frame_in *f, struct box_exit *ret)
{
        ret->code = (int32_t)frame_get_u32(f);
        ret->signal = frame_get_u8(f);
        ret->flags = frame_get_u8(f);
        ret->ended_ms = frame_get_u64(f);
        ret->stdout_len = frame_get_u64(f);
        ret->stderr_len = frame_get_u64(f);
        if (ret->flags & ~(BOX_EXIT_TIMED_OUT | BOX_EXIT_STOPPED | BOX_EXIT_INCOMPLETE |
                           BOX_EXIT_OUTPUT | BOX_EXIT_DISK_FULL))
                f->bad = true;
}

void frame_put_state(struct frame_out *f, const struct box_state *s)
{
        frame_put_uuid(f, s->id);
        frame_put_u8(f, s->state);
        frame_put_u32(f, s->pid);
        frame_put_u64(f, s->started_ms);
        frame_put_u64(f, s->stdin_len);
        frame_put_u64(f, s->stdout_len);
        frame_put_u64(f, s->stderr_len);
        if (s->state == BOX_ENDED)
                frame_put_exit(f, &s->exit);
}

void frame_get_state(struct frame_in *f, struct box_state *ret)
{
        *ret = (struct box_state){ 0 };
        frame_get_uuid(f, ret->id);
        ret->state = frame_get_u8(f);
        ret->pid = frame_get_u32(f);
        ret->started_ms = frame_get_u64(f);
        ret->stdin_len = frame_get_u64(f);
        ret->stdout_len = frame_get_u64(f);
        ret->stderr_len = frame_get_u64(f);
        if (ret->state == BOX_ENDED)
                frame_get_exit(f, &ret->exit);
        else if (ret->state != BOX_RUNNING)
                f->bad = true;
}

static uint32_t crc32(const uint8_t *p, size_t n)
{
        uint32_t crc = 0xffffffff;

        while (n-- > 0) {
                crc ^= *p++;
                for (int k = 0; k < 8; k++)
                        crc = crc >> 1 ^ (0xedb88320 & (0 - (crc & 1)));
        }
        return ~crc;
}

void frame_exit_record(const struct box_exit *e, uint8_t ret[BOX_EXIT_RECORD])
{
        struct buf b = BUF_INIT;
        struct frame_out f = { &b, 0 };

        frame_put_exit(&f, e);
        if (b.len == BOX_EXIT_RECORD - 4)
                memcpy(ret + 4, b.data, b.len);
        buf_done(&b);
        store_u32(ret, crc32(ret + 4, BOX_EXIT_RECORD - 4));
}

int frame_exit_record_parse(const void *bytes, size_t len, struct box_exit *ret, struct err *err)
{
        const uint8_t *b = bytes;
        struct frame_in f;

        if (len != BOX_EXIT_RECORD || load_u32(b) != crc32(b + 4, len - 4))
                return err_set(err, ERR_CORRUPT, "the exit record is damaged");
        frame_in_init(&f, b + 4, len - 4);
        frame_get_exit(&f, ret);
        return frame_in_end(&f, err);
}
