/* Writes and reads the tunnel's frames. */
#include "codec/frame_tunnel.h"

static bool is_control(uint8_t type)
{
        return type == FRAME_LISTEN || type == FRAME_LISTENING || type == FRAME_UNLISTEN;
}

static void read_payload(struct frame_in *f, struct tunnel_frame *t)
{
        switch (t->type) {
        case FRAME_LISTEN:
                frame_get_uuid(f, t->id);
                t->kind = frame_get_u8(f);
                t->port = frame_get_u16(f);
                t->idle_ms = frame_get_u32(f);
                if (t->kind != TUNNEL_CALLBACK && t->kind != TUNNEL_PROXY)
                        f->bad = true;
                break;
        case FRAME_LISTENING:
                frame_get_uuid(f, t->id);
                t->port = frame_get_u16(f);
                t->code = frame_get_u16(f);
                t->text = frame_get_str(f);
                /* It listens on a port, or it does not and says why. */
                if ((t->port == 0) != (t->code != 0))
                        f->bad = true;
                break;
        case FRAME_UNLISTEN:
                frame_get_uuid(f, t->id);
                break;
        case FRAME_OPEN:
                frame_get_uuid(f, t->id);
                t->limit = frame_get_u64(f);
                break;
        case FRAME_ACCEPT:
        case FRAME_WINDOW:
                t->limit = frame_get_u64(f);
                break;
        case FRAME_CONNECT:
                t->kind = frame_get_u8(f);
                t->limit = frame_get_u64(f);
                if (!(t->channel & TUNNEL_FROM_HOST))
                        f->bad = true;
                break;
        case FRAME_BYTES:
                t->offset = frame_get_u64(f);
                t->data = frame_get_blob(f);
                if (t->data.len == 0 || t->offset > UINT64_MAX - t->data.len)
                        f->bad = true;
                break;
        case FRAME_END:
                t->offset = frame_get_u64(f);
                break;
        case FRAME_RESET:
                t->reason = frame_get_u8(f);
                break;
        default:
                f->bad = true;
        }
}

int tunnel_frame_read(const struct frame_header *h, struct frame_in *f, struct tunnel_frame *ret,
                      struct err *err)
{
        *ret = (struct tunnel_frame){ .type = h->type, .channel = h->channel };
        if (is_control(h->type) != (h->channel == 0))
                return err_set(err, ERR_INVALID, "a frame of type %u on channel %u", h->type,
                               h->channel);
        read_payload(f, ret);
        return frame_in_end(f, err);
}

void tunnel_frame_write(struct buf *b, const struct tunnel_frame *t)
{
        struct frame_out f;

        frame_begin(&f, b, (enum frame_type)t->type, t->channel);
        switch (t->type) {
        case FRAME_LISTEN:
                frame_put_uuid(&f, t->id);
                frame_put_u8(&f, t->kind);
                frame_put_u16(&f, t->port);
                frame_put_u32(&f, t->idle_ms);
                break;
        case FRAME_LISTENING:
                frame_put_uuid(&f, t->id);
                frame_put_u16(&f, t->port);
                frame_put_u16(&f, t->code);
                frame_put_str(&f, t->text.p, t->text.len);
                break;
        case FRAME_UNLISTEN:
                frame_put_uuid(&f, t->id);
                break;
        case FRAME_OPEN:
                frame_put_uuid(&f, t->id);
                frame_put_u64(&f, t->limit);
                break;
        case FRAME_CONNECT:
                frame_put_u8(&f, t->kind);
                frame_put_u64(&f, t->limit);
                break;
        case FRAME_BYTES:
                frame_put_u64(&f, t->offset);
                frame_put_blob(&f, t->data.p, t->data.len);
                break;
        case FRAME_END:
                frame_put_u64(&f, t->offset);
                break;
        case FRAME_RESET:
                frame_put_u8(&f, t->reason);
                break;
        default:
                frame_put_u64(&f, t->limit);
        }
        frame_end(&f);
}
