/* Counts the bytes of a stream against the credit of both sides. */
#include "codec/credit.h"

int credit_take(struct credit *c, const struct tunnel_frame *f, struct err *err)
{
        switch (f->type) {
        case FRAME_BYTES:
                if (c->end_got || f->offset != c->got || f->data.len > c->told - c->got)
                        return err_set(err, ERR_INVALID,
                                       "bytes with a gap, past their end or past their credit");
                c->got += f->data.len;
                return 0;
        case FRAME_WINDOW:
                if (f->limit < c->limit)
                        return err_set(err, ERR_INVALID, "credit was taken back");
                c->limit = f->limit;
                return 0;
        case FRAME_END:
                if (c->end_got || f->offset != c->got)
                        return err_set(err, ERR_INVALID, "a stream ended elsewhere");
                c->end_got = true;
                return 0;
        default:
                return err_set(err, ERR_INVALID, "a frame of type %u in a stream", f->type);
        }
}

void credit_send(struct credit *c, struct buf *out, uint32_t channel, const void *p, size_t len)
{
        tunnel_frame_write(out, &(struct tunnel_frame){ .type = FRAME_BYTES,
                                                        .channel = channel,
                                                        .offset = c->sent,
                                                        .data = { p, len } });
        c->sent += len;
}

void credit_end(struct credit *c, struct buf *out, uint32_t channel)
{
        if (c->end_sent)
                return;
        c->end_sent = true;
        tunnel_frame_write(out, &(struct tunnel_frame){
                                        .type = FRAME_END, .channel = channel, .offset = c->sent });
}

void credit_give(struct credit *c, struct buf *out, uint32_t channel, size_t waiting)
{
        uint64_t limit = c->got - waiting + CREDIT_WINDOW;

        if (c->end_got || limit < c->told + CREDIT_WINDOW / 2)
                return;
        c->told = limit;
        tunnel_frame_write(out, &(struct tunnel_frame){
                                        .type = FRAME_WINDOW, .channel = channel, .limit = limit });
}
