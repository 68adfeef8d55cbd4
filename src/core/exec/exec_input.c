/* Input of an execution: writes are queued, sent within the box's credit, and kept until it has
 * taken them, so that a lost connection can go on where it was. Loop thread. */
#include "core/exec/exec_internal.h"

#define PART_MAX ((size_t)32 * 1024)

static void send_within_credit(struct exec *e)
{
        struct box_link *link = e->box->link;

        if (!link || !e->channel || e->phase != EXEC_LIVE || e->stdin_unsure)
                return;
        for (struct stdin_write *w = e->stdin_head; w; w = w->next) {
                uint64_t start = w->end - w->len;

                while (e->stdin_sent >= start && e->stdin_sent <= w->end) {
                        size_t done = (size_t)(e->stdin_sent - start);
                        size_t n = MIN(w->len - done, PART_MAX);
                        uint64_t room =
                                e->stdin_limit > e->stdin_sent ? e->stdin_limit - e->stdin_sent : 0;
                        bool last;

                        n = (size_t)MIN((uint64_t)n, room);
                        last = done + n == w->len && w->eof;
                        if (n == 0 && !(last && !e->stdin_eof_sent))
                                break;
                        box_link_stdin(link, e->channel, e->stdin_sent, last, w->data + done, n);
                        e->stdin_sent += n;
                        if (last) {
                                e->stdin_eof_sent = true;
                                break;
                        }
                }
        }
}

static void finish_write(struct stdin_write *w, int code)
{
        if (w->done)
                w->done(w->arg, code);
        if (w->owned)
                free((char *)w->data);
        free(w);
}

/* Writes that the box has in full are done. */
static void stdin_settle(struct exec *e)
{
        while (e->stdin_head && e->stdin_head->end <= e->stdin_taken &&
               (!e->stdin_head->eof || e->stdin_eof_sent)) {
                struct stdin_write *w = e->stdin_head;

                e->stdin_head = w->next;
                if (!e->stdin_head)
                        e->stdin_tail = &e->stdin_head;
                finish_write(w, 0);
        }
}

/* exec_input.c */
static void stdin_pump(struct exec *e)
{
        send_within_credit(e);
        stdin_settle(e);
}

void stdin_taken(struct exec *e, uint64_t taken, uint64_t limit)
{
        e->stdin_taken = MAX(e->stdin_taken, taken);
        e->stdin_limit = MAX(e->stdin_limit, limit);
        e->stdin_unsure = false;
        stdin_pump(e);
}

/* A new connection: input that the box did not take is sent again. */
void stdin_rewind(struct exec *e, uint64_t taken)
{
        e->stdin_taken = e->stdin_sent = taken;
        e->stdin_limit = taken;
        /* The box took these bytes from an earlier daemon: new input follows them. */
        e->stdin_queued = MAX(e->stdin_queued, taken);
        if (e->stdin_head && e->stdin_head->eof)
                e->stdin_eof_sent = false;
}

void stdin_fail(struct exec *e)
{
        while (e->stdin_head) {
                struct stdin_write *w = e->stdin_head;

                e->stdin_head = w->next;
                finish_write(w, ERR_CONFLICT);
        }
        e->stdin_tail = &e->stdin_head;
}

/* Bytes that were queued before are dropped from the front of a repeated write. */
static int drop_known(const struct exec *e, const struct stdin_piece *piece, size_t *ret_known,
                      struct err *err)
{
        *ret_known = 0;
        if (piece->offset < 0)
                return 0;
        if ((uint64_t)piece->offset > e->stdin_queued)
                return err_set(err, ERR_CONFLICT, "The input before offset %lld is missing.",
                               (long long)piece->offset);
        *ret_known = (size_t)MIN((uint64_t)piece->len, e->stdin_queued - (uint64_t)piece->offset);
        return 0;
}

int stdin_add(struct exec *e, const struct stdin_piece *piece, bool owned,
              void (*done)(void *, int), void *arg, struct err *err)
{
        struct stdin_write *w;
        size_t known;
        int r = drop_known(e, piece, &known, err);
        bool is_repeat = piece->offset >= 0 && known == piece->len;

        if (r < 0)
                return r;
        if (!e->takes_stdin && !is_repeat)
                return err_set(err, ERR_CONFLICT,
                               "The execution takes no input, or its input was closed.");
        w = xcalloc(1, sizeof(*w));
        *w = (struct stdin_write){
                .data = piece->data + known,
                .len = piece->len - known,
                .eof = piece->eof && e->takes_stdin,
                .owned = owned,
                .done = done,
                .arg = arg,
        };
        e->stdin_queued += w->len;
        w->end = e->stdin_queued;
        *e->stdin_tail = w;
        e->stdin_tail = &w->next;
        if (piece->eof)
                e->takes_stdin = false;
        stdin_pump(e);
        return 0;
}

int exec_stdin(struct exec_hub *hub, const char *id, const struct stdin_piece *piece,
               void (*done)(void *arg, int code), void *arg, struct err *err)
{
        struct exec *e = exec_find(hub, id);

        if (!e || !e->box)
                return err_set(err, ERR_CONFLICT, "The execution has ended or has not begun.");
        return stdin_add(e, piece, false, done, arg, err);
}
