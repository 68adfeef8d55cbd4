/* Decides what is told to the host. Nothing here waits and nothing is queued elsewhere: an
 * execution has bits that say what is due, and a round over the executions turns them into frames
 * as long as there is room. The order within an execution is fixed: STARTED or STATE first, then
 * TAKEN and output, EXIT last.
 *
 * Rounds begin where the last one stopped, so that one talkative command does not starve the rest.
 */
#define _GNU_SOURCE
#include <stdio.h>

#include "berth-box/sandbox.h"

#define DATA_HEAD 9 /* stream and offset in front of the bytes of DATA */

void say_error(struct conn *c, uint32_t channel, uint16_t code, const char *text)
{
        /* A host that does not read is not told why it is closed. */
        if (conn_room(c) >= BOX_OUT_RESERVE / 2)
                FRAME_WRITE(&c->out, FRAME_ERROR, channel, F_U16(code),
                            F_TEXT(text, strnlen(text, 1024)));
}

void say_welcome(struct box *b, struct conn *c)
{
        uint32_t features = BOX_FEATURE_SHARED | BOX_FEATURE_TERMINAL | BOX_FEATURE_TUNNEL |
                            BOX_FEATURE_REDACT | BOX_FEATURE_OUTPUT |
                            (b->program_fd >= 0 ? BOX_FEATURE_FILES | BOX_FEATURE_ACP : 0);

        FRAME_WRITE(&c->out, FRAME_WELCOME, 0, F_U16(FRAME_VERSION), F_U32(features),
                    F_BYTES(b->id, FRAME_UUID), F_U32(b->sandbox ? b->sandbox->pid : b->pid),
                    F_U8(b->kill_method), F_U64(b->spool_limit), F_U32(b->in_use));
}

static void put_state_frame(struct conn *c, const struct exec *e, uint32_t channel)
{
        struct box_state s = {
                .state = e->state == EXEC_ENDED ? BOX_ENDED : BOX_RUNNING,
                .pid = (uint32_t)e->pid,
                .started_ms = e->started_ms,
                .stdin_len = e->taken,
                .stdout_len = e->out[0].written,
                .stderr_len = e->out[1].written,
                .exit = e->exit,
        };
        struct frame_out f;

        memcpy(s.id, e->id, FRAME_UUID);
        frame_begin(&f, &c->out, FRAME_STATE, channel);
        frame_put_state(&f, &s);
        frame_end(&f);
}

static bool say_list(struct box *b, struct conn *c)
{
        for (; c->list_at < b->n_execs; c->list_at++) {
                const struct exec *e = &b->execs[c->list_at];

                if (conn_room(c) < BOX_OUT_RESERVE)
                        return false;
                if (e->state == EXEC_FREE || e->state == EXEC_FAILED)
                        continue;
                put_state_frame(c, e, 0);
                c->list_count++;
        }
        FRAME_WRITE(&c->out, FRAME_LISTED, 0, F_U32(c->list_count));
        c->list_at = -1;
        return true;
}

static void say_grew(struct conn *c, struct exec *e, int stream)
{
        struct stream *s = &e->out[stream];

        if (s->told == s->written)
                return;
        s->told = s->written;
        FRAME_WRITE(&c->out, FRAME_GREW, e->channel, F_U8(stream + 1), F_U64(s->told));
}

/* One frame of output, read from the spool straight into the buffer. Returns false when there is
 * none to send, or none may be sent. */
static bool say_data(struct box *b, struct conn *c, struct exec *e, int stream)
{
        struct stream *s = &e->out[stream];
        uint64_t upto = MIN(s->written, s->limit);
        struct frame_out f;

        if (!s->open || s->sent >= upto)
                return false;
        size_t want = (size_t)MIN(upto - s->sent, (uint64_t)FRAME_MAX_PAYLOAD - DATA_HEAD);
        frame_begin(&f, &c->out, FRAME_DATA, e->channel);
        frame_put_u8(&f, (uint8_t)(stream + 1));
        frame_put_u64(&f, s->sent);
        char *at = buf_reserve(&c->out, want);
        ssize_t n = at && spool_reopen(b, e) ? pread(s->file, at, want, (off_t)s->sent) : -1;
        if (n <= 0) {
                c->out.len = f.start;
                /* The file no longer has what it had. Say so and go on to the end: a host must not
                 * wait for ever. */
                s->sent = s->written;
                e->end_flags |= BOX_EXIT_INCOMPLETE;
                e->exit.flags |= BOX_EXIT_INCOMPLETE;
                snprintf(e->fail_text, sizeof(e->fail_text), "the spool cannot be read");
                e->say |= SAY_ERROR;
                return false;
        }
        buf_grew(&c->out, (size_t)n);
        frame_end(&f);
        s->sent += (uint64_t)n;
        return true;
}

/* The short frames; false when the execution is gone afterwards. */
static bool say_short(struct box *b, struct conn *c, struct exec *e)
{
        if (e->state == EXEC_FAILED) {
                FRAME_WRITE(&c->out, FRAME_FAILED, e->channel, F_U16(e->fail_code),
                            F_TEXT(e->fail_text, strlen(e->fail_text)));
                exec_free(b, e);
                return false;
        }
        if (e->say & SAY_STARTED)
                FRAME_WRITE(&c->out, FRAME_STARTED, e->channel, F_U32(e->pid), F_U64(e->started_ms),
                            F_U8(e->kill_method));
        if (e->say & SAY_STATE) {
                put_state_frame(c, e, e->channel);
                e->out[0].told = e->out[0].written;
                e->out[1].told = e->out[1].written;
        }
        if (e->say & SAY_TAKEN) {
                e->taken_told = stdin_limit(e);
                FRAME_WRITE(&c->out, FRAME_TAKEN, e->channel, F_U64(e->taken),
                            F_U64(e->taken_told));
        }
        if (e->say & SAY_ERROR)
                say_error(c, e->channel, BOX_ERR_SPOOL, e->fail_text);
        e->say &= SAY_EXIT;
        if (e->flags & BOX_START_SHARED) {
                say_grew(c, e, 0);
                say_grew(c, e, 1);
        }
        return true;
}

/* Everything about one execution; false when it stopped for want of room. */
static bool say_exec(struct box *b, struct conn *c, struct exec *e)
{
        struct frame_out f;
        bool told = true;

        if (conn_room(c) < BOX_OUT_RESERVE)
                return false;
        if (e->state == EXEC_STARTING)
                return true;
        if (!say_short(b, c, e))
                return true;
        if (!(e->flags & BOX_START_SHARED)) {
                for (int i = 0; i < 2; i++) {
                        bool more = true;

                        while (more) {
                                if (conn_room(c) <
                                    FRAME_HEADER + FRAME_MAX_PAYLOAD + BOX_OUT_RESERVE)
                                        return false;
                                more = say_data(b, c, e, i);
                        }
                }
        }
        for (int i = 0; i < 2; i++)
                told = told &&
                       (e->flags & BOX_START_SHARED ||
                        (e->out[i].open ? e->out[i].sent : e->out[i].stored) >= e->out[i].written);
        if (e->say == SAY_EXIT && told) {
                frame_begin(&f, &c->out, FRAME_EXIT, e->channel);
                frame_put_exit(&f, &e->exit);
                frame_end(&f);
                e->say &= ~(unsigned)SAY_EXIT;
        }
        return true;
}

static bool has_something(const struct exec *e)
{
        if (e->channel == 0)
                return false;
        if (e->say || e->state == EXEC_FAILED)
                return true;
        for (int i = 0; i < 2; i++) {
                const struct stream *s = &e->out[i];

                if (e->flags & BOX_START_SHARED ? s->told < s->written
                                                : s->open && s->sent < MIN(s->written, s->limit))
                        return true;
        }
        return false;
}

static bool say_execs(struct box *b, struct conn *c)
{
        int n = b->n_execs;

        for (int i = 0; i < n; i++) {
                int at = (b->say_next + i) % n;

                if (!has_something(&b->execs[at]))
                        continue;
                if (!say_exec(b, c, &b->execs[at])) {
                        b->say_next = (at + 1) % n;
                        return false;
                }
        }
        return true;
}

/* Output and the tunnel share the link: the one that has filled it lets the other begin next
 * time. */
bool say_pending(struct box *b, struct conn *c)
{
        bool tunnel_first = b->say_tunnel_first;

        if (c->list_at >= 0 && !say_list(b, c))
                return false;
        (void)conn_room(c); /* drops what was sent, so that the length only grows from here */
        size_t before = c->out.len;
        if (!(tunnel_first ? tunnel_say(b, c) : say_execs(b, c))) {
                if (c->out.len > before)
                        b->say_tunnel_first = !tunnel_first;
                return false;
        }
        return tunnel_first ? say_execs(b, c) : tunnel_say(b, c);
}

bool say_done(const struct box *b)
{
        if (!b->host)
                return true;
        for (int i = 0; i < b->n_execs; i++)
                if (b->execs[i].channel && (b->execs[i].say || b->execs[i].state == EXEC_FAILED))
                        return false;
        return b->host->out.len == 0;
}
