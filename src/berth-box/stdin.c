/* Input for a command, within its credit.
 *
 * Each slot has a ring of BOX_STDIN_SIZE bytes in one mapping whose pages are given back at the
 * end. `taken` counts what was accepted in all; the host may send up to taken plus the free room.
 * Once the command has closed its stdin, everything is accepted and dropped.
 *
 * For a terminal the end of input is its end-of-file character, because closing would hang up. */
#define _GNU_SOURCE
#include <errno.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <termios.h>

#include "berth-box/box.h"

static char *ring_of(const struct box *b, const struct exec *e)
{
        return b->stdin_store + (size_t)box_index(b, e) * BOX_STDIN_SIZE;
}

uint64_t stdin_limit(const struct exec *e)
{
        return e->taken + (BOX_STDIN_SIZE - e->ring_len);
}

static void put_in_ring(struct box *b, struct exec *e, const char *data, size_t len)
{
        char *ring = ring_of(b, e);
        size_t tail = (e->ring_head + e->ring_len) % BOX_STDIN_SIZE;
        size_t first = MIN(len, BOX_STDIN_SIZE - tail);

        memcpy(ring + tail, data, first);
        memcpy(ring, data + first, len - first);
        e->ring_len += len;
}

/* Below 0: a gap, past the end, or past the credit. Bytes that are there already are dropped. */
int stdin_take(struct box *b, struct exec *e, uint64_t offset, bool eof, const char *data,
               size_t len)
{
        if (offset > e->taken)
                return -1;
        size_t known = (size_t)MIN(e->taken - offset, (uint64_t)len);
        data += known;
        len -= known;
        if ((e->stdin_eof && len > 0) || len > BOX_STDIN_SIZE - e->ring_len)
                return -1;
        if (eof && offset + known + len < e->taken)
                return -1; /* an end before bytes that were taken */
        e->taken += len;
        e->stdin_eof |= eof;
        if (e->stdin_fd < 0)
                return 0;
        put_in_ring(b, e, data, len);
        stdin_write(b, e);
        return 0;
}

static void end_terminal_input(struct exec *e)
{
        struct termios t;
        char eof = 4;

        if (tcgetattr(e->stdin_fd, &t) == 0)
                eof = (char)t.c_cc[VEOF];
        (void)!write(e->stdin_fd, &eof, 1);
}

void stdin_close(struct box *b, struct exec *e)
{
        if (e->stdin_fd < 0)
                return;
        close(e->stdin_fd);
        e->stdin_fd = -1;
        e->stdin_polled = false;
        e->ring_len = e->ring_head = 0;
        (void)madvise(ring_of(b, e), BOX_STDIN_SIZE, MADV_DONTNEED);
}

static void poll_stdin(struct box *b, struct exec *e, bool on)
{
        if (on == e->stdin_polled || e->stdin_fd < 0)
                return;
        if (!on)
                box_unwatch(b, e->stdin_fd);
        else if (box_watch(b, e->stdin_fd, EPOLLOUT, EV_STDIN, box_index(b, e)) < 0)
                return;
        e->stdin_polled = on;
}

/* A TAKEN is due when the room has grown by a quarter, or the ring ran empty with news to tell. */
static void note_room(struct exec *e)
{
        uint64_t grown = stdin_limit(e) - MIN(stdin_limit(e), e->taken_told);

        if (e->channel && (grown >= BOX_STDIN_SIZE / 4 || (grown > 0 && e->ring_len == 0)))
                e->say |= SAY_TAKEN;
}

void stdin_write(struct box *b, struct exec *e)
{
        const char *ring = ring_of(b, e);

        if (e->stdin_fd < 0)
                return;
        while (e->ring_len > 0) {
                size_t run = MIN(e->ring_len, BOX_STDIN_SIZE - e->ring_head);
                ssize_t n = write(e->stdin_fd, ring + e->ring_head, run);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && errno == EAGAIN)
                        break;
                if (n < 0) { /* the reader is gone: take and drop from now on */
                        stdin_close(b, e);
                        note_room(e);
                        return;
                }
                e->ring_head = (e->ring_head + (size_t)n) % BOX_STDIN_SIZE;
                e->ring_len -= (size_t)n;
        }
        note_room(e);
        if (e->ring_len == 0 && e->stdin_eof) {
                if (e->flags & BOX_START_TERMINAL && !e->stdin_eof_sent) {
                        end_terminal_input(e);
                        e->stdin_eof_sent = true;
                } else if (!(e->flags & BOX_START_TERMINAL)) {
                        stdin_close(b, e);
                        return;
                }
        }
        poll_stdin(b, e, e->ring_len > 0);
}
