/* What the host's frames do: one function per type, each of which reads its payload to the end
 * before it changes anything. A frame for a channel that means nothing (its START failed, or it was
 * forgotten, while the host was still sending) is answered with ERROR 4 and otherwise ignored; a
 * mistake that bad timing cannot explain ends the connection with ERROR 3. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdio.h>

#include "base/clock.h"
#include "berth-box/box.h"
#include "codec/frame_tunnel.h"

#define FOREVER_MS ((uint64_t)1000 * 365 * 86400 * 1000)

static int malformed(struct err *err, const char *text)
{
        return err_set(err, BOX_ERR_FRAME, "%s", text);
}

static int end_of(const struct frame_in *f, struct err *err)
{
        return frame_in_end(f, err) < 0 ? BOX_ERR_FRAME : 0;
}

/* Control */

static int on_hello(struct box *b, struct conn *c, struct frame_in *f, struct err *err)
{
        uint32_t magic = frame_get_u32(f);
        uint16_t low = frame_get_u16(f), high = frame_get_u16(f);
        uint8_t node[FRAME_UUID];

        frame_get_uuid(f, node);
        uint64_t epoch = frame_get_u64(f);
        if (end_of(f, err))
                return BOX_ERR_FRAME;
        if (magic != 0x42525448 /* "BRTH" */ || low > high)
                return malformed(err, "this is no HELLO");
        if (low > FRAME_VERSION || high < FRAME_VERSION)
                return err_set(err, BOX_ERR_VERSION, "this box speaks version %d", FRAME_VERSION);
        if (epoch < b->epoch)
                return err_set(err, BOX_ERR_STALE, "a host with a newer epoch was here");
        if (b->host)
                conn_fail(b, b->host, 0, BOX_ERR_STALE, "another host has taken over");
        b->epoch = epoch;
        b->host = c;
        c->state = CONN_HOST;
        say_welcome(b, c);
        return 0;
}

static int on_error(struct frame_in *f, struct err *err)
{
        (void)frame_get_u16(f);
        (void)frame_get_str(f);
        return end_of(f, err);
}

static int on_control(struct box *b, struct conn *c, uint8_t type, struct frame_in *f,
                      struct err *err)
{
        bool has_u64 = type == FRAME_PING || type == FRAME_PONG || type == FRAME_STOP_BY;
        uint64_t value = has_u64 ? frame_get_u64(f) : type == FRAME_STOP ? frame_get_u32(f) : 0;

        if (type == FRAME_ERROR)
                return on_error(f, err);
        if (!has_u64 && type != FRAME_STOP && type != FRAME_LIST)
                return malformed(err, "this frame has no meaning on channel 0");
        if (end_of(f, err))
                return BOX_ERR_FRAME;
        switch (type) {
        case FRAME_PING:
                FRAME_WRITE(&c->out, FRAME_PONG, 0, F_U64(value));
                break;
        case FRAME_LIST:
                c->list_at = 0;
                c->list_count = 0;
                break;
        case FRAME_STOP_BY:
                b->stop_by = value ? b->now + (int64_t)MIN(value, FOREVER_MS) : 0;
                break;
        case FRAME_STOP:
                box_stop(b, (int64_t)value);
                break;
        default:
                break;
        }
        return 0;
}

/* Starting */

/* A string becomes NUL-terminated where it lies, moved by one byte into its own length. */
static char *get_text(struct frame_in *f)
{
        struct frame_bytes s = frame_get_str(f);

        if (f->bad)
                return NULL;
        char *at = (char *)s.p - 1;
        memmove(at, s.p, s.len);
        at[s.len] = '\0';
        return at;
}

/* An array with the list's strings from slot `first` on and a NULL after them; NULL when it is
 * malformed or too large. */
static char **get_list(struct frame_in *f, size_t first)
{
        uint32_t count = frame_get_u32(f);
        char **list;

        if (f->bad || count > f->left / 4) {
                f->bad = true;
                return NULL;
        }
        list = calloc(first + count + 1, sizeof(*list));
        if (!list) {
                f->bad = true;
                return NULL;
        }
        for (uint32_t i = 0; i < count; i++)
                list[first + i] = get_text(f);
        return list;
}

/* The command of an ACP agent is given to its client, which is this program (acp.c). */
static bool run_through_client(struct start *s)
{
        static const char *const first[] = { "berth-box", "--acp", "--" };
        size_t n = 0, n_words = 0, n_argv = 0;
        char **argv;

        while (s->acp[n_words])
                n_words++;
        while (s->argv[n_argv])
                n_argv++;
        argv = calloc(ARRAY_LEN(first) + n_words + n_argv + 2, sizeof(*argv));
        if (!argv)
                return false;
        for (; n < ARRAY_LEN(first); n++)
                argv[n] = (char *)first[n];
        for (size_t i = 0; i < n_words; i++)
                argv[n++] = s->acp[i];
        argv[n++] = (char *)"--";
        for (size_t i = 0; i < n_argv; i++)
                argv[n++] = s->argv[i];
        free(s->argv);
        s->argv = argv;
        return true;
}

static int parse_start(struct frame_in *f, struct start *s, struct err *err)
{
        frame_get_uuid(f, s->id);
        s->flags = frame_get_u32(f);
        s->time_limit_ms = frame_get_u64(f);
        s->time_limit_ms = MIN(s->time_limit_ms, FOREVER_MS);
        s->grace_ms = frame_get_u32(f);
        s->columns = frame_get_u16(f);
        s->rows = frame_get_u16(f);
        s->cwd = get_text(f);
        s->spool = get_text(f);
        s->command = get_text(f);
        s->argv = get_list(f, 1);
        s->envp = get_list(f, 1);
        if (s->flags & BOX_START_REDACT)
                s->redact = get_list(f, 0);
        if (s->flags & BOX_START_OUTPUT)
                frame_get_output(f, &s->output);
        if (s->flags & BOX_START_ACP)
                s->acp = get_list(f, 0);
        if (end_of(f, err))
                return BOX_ERR_FRAME;
        if (s->flags & ~(uint32_t)(BOX_START_TERMINAL | BOX_START_SHARED | BOX_START_STDIN |
                                   BOX_START_REDACT | BOX_START_OUTPUT | BOX_START_ACP))
                return malformed(err, "START has flags that this version does not know");
        if ((s->flags & BOX_START_SHARED) ? s->spool[0] != '/' : s->spool[0] != '\0')
                return malformed(err,
                                 "a shared spool needs an absolute directory, an own one none");
        s->argv[0] = s->command;
        if (s->acp && !run_through_client(s))
                return malformed(err, "out of memory");
        return 0;
}

static void refuse_start(struct conn *c, uint32_t channel, uint16_t code, const char *text)
{
        FRAME_WRITE(&c->out, FRAME_FAILED, channel, F_U16(code), F_TEXT(text, strlen(text)));
}

/* Tie the execution to a channel. STATE goes out before anything that happens from now on. */
static void attach_exec(struct exec *e, uint32_t channel)
{
        e->channel = channel;
        e->say = SAY_STATE;
        if (e->stdin_open && !e->stdin_eof && e->state != EXEC_ENDED)
                e->say |= SAY_TAKEN;
        if (e->state == EXEC_ENDED)
                e->say |= SAY_EXIT;
        for (int i = 0; i < 2; i++)
                e->out[i].open = false;
}

static void start_new(struct box *b, struct conn *c, uint32_t channel, struct start *s)
{
        char marker[64];
        size_t to = 1;

        if (b->stopping) {
                refuse_start(c, channel, BOX_ERR_REFUSED, "the box is stopping");
                return;
        }
        struct exec *e = exec_new(b, s->id);
        if (!e) {
                refuse_start(c, channel, BOX_ERR_FULL, "too many executions");
                return;
        }
        e->channel = channel;
        e->flags = s->flags;
        e->grace_ms = s->grace_ms;
        if (s->flags & BOX_START_OUTPUT) {
                /* The host sets the numbers of the place, because it knows what was forgotten and
                 * what was removed since. Commands that wait for room may have it now. */
                e->output = s->output;
                b->output_limit = s->output.place_limit;
                b->output_taken = s->output.place_taken;
                for (int i = 0; i < b->n_execs; i++)
                        for (int k = 0; k < 2 && b->execs[i].state == EXEC_RUNNING; k++)
                                spool_poll(b, &b->execs[i], k);
        }
        if (s->redact && !spool_redact(e, s->redact)) {
                refuse_start(c, channel, BOX_ERR_RESOURCES, "too many values to replace");
                exec_free(b, e);
                return;
        }
        snprintf(e->command, sizeof(e->command), "%s", s->command);
        snprintf(marker, sizeof(marker), "BERTH_EXEC=%s", e->name);
        /* The marker comes first, where it is found soonest; one that the host gave is dropped, so
         * that nothing else can be taken for it. */
        s->envp[0] = marker;
        for (size_t i = 1; s->envp[i]; i++)
                if (!str_starts(s->envp[i], "BERTH_EXEC="))
                        s->envp[to++] = s->envp[i];
        s->envp[to] = NULL;
        child_start(b, e, s);
}

static int on_start(struct box *b, struct conn *c, uint32_t channel, struct frame_in *f,
                    struct err *err)
{
        struct start s = { 0 };
        int code = parse_start(f, &s, err);
        struct exec *e = code ? NULL : exec_find(b, s.id);

        if (!code && exec_by_channel(b, channel))
                code = malformed(err, "START on a channel that is in use");
        else if (!code && e && e->channel)
                code = malformed(err, "the execution is attached to another channel");
        else if (!code && e)
                attach_exec(e, channel);
        else if (!code)
                start_new(b, c, channel, &s);
        free(s.argv);
        free(s.envp);
        free(s.redact);
        free(s.acp);
        return code;
}

static int on_attach(struct box *b, struct conn *c, uint32_t channel, struct frame_in *f,
                     struct err *err)
{
        uint8_t id[FRAME_UUID];

        frame_get_uuid(f, id);
        if (end_of(f, err))
                return BOX_ERR_FRAME;
        if (exec_by_channel(b, channel))
                return malformed(err, "ATTACH on a channel that is in use");
        struct exec *e = exec_find(b, id);
        if (!e) {
                say_error(c, channel, BOX_ERR_UNKNOWN, "no such execution");
                return 0;
        }
        if (e->channel)
                return malformed(err, "the execution is attached to another channel");
        attach_exec(e, channel);
        return 0;
}

/* An execution's channel */

static int on_ack(struct box *b, struct exec *e, struct frame_in *f, struct err *err)
{
        uint8_t stream = frame_get_u8(f);
        uint64_t stored = frame_get_u64(f), limit = frame_get_u64(f);
        bool shared = e->flags & BOX_START_SHARED;

        if (end_of(f, err))
                return BOX_ERR_FRAME;
        if (stream != BOX_STDOUT && stream != BOX_STDERR)
                return malformed(err, "ACK for a stream that does not exist");
        struct stream *s = &e->out[stream - 1];
        if (stored > s->written)
                return malformed(err, "ACK for bytes that were not written");
        if (!shared && stored < s->stored)
                return malformed(err, "ACK goes back behind bytes that were let go");
        if (!s->open)
                s->sent = stored;
        s->open = true;
        s->sent = MAX(s->sent, stored);
        s->limit = limit;
        spool_stored(b, e, stream - 1, stored);
        return 0;
}

static int on_stdin(struct box *b, struct exec *e, struct frame_in *f, struct err *err)
{
        uint64_t offset = frame_get_u64(f);
        uint8_t eof = frame_get_u8(f);
        struct frame_bytes data = frame_get_blob(f);

        if (end_of(f, err))
                return BOX_ERR_FRAME;
        if (eof > 1)
                return malformed(err, "eof is 0 or 1");
        if (!e->stdin_open)
                return malformed(err, "STDIN for an execution that was started without");
        if (stdin_take(b, e, offset, eof, data.p, data.len) < 0)
                return malformed(err, "STDIN with a gap, past its end or past its credit");
        e->say |= SAY_TAKEN;
        return 0;
}

static int on_forget(struct box *b, struct exec *e, struct frame_in *f, struct err *err)
{
        if (end_of(f, err))
                return BOX_ERR_FRAME;
        if (e->state != EXEC_ENDED)
                return malformed(err, "FORGET for an execution that runs");
        b->output_taken += spool_kept(e);
        spool_remove(b, e);
        exec_free(b, e);
        return 0;
}

static int on_channel(struct box *b, struct conn *c, const struct frame_header *h,
                      struct frame_in *f, struct err *err)
{
        struct exec *e = exec_by_channel(b, h->channel);
        uint16_t number, rows; /* a signal, or columns and rows */

        if (h->type < FRAME_ACK || h->type > FRAME_FORGET || h->type == FRAME_TAKEN ||
            h->type == FRAME_EXIT)
                return malformed(err, "a frame of unknown type, or not for a box");
        if (!e) {
                say_error(c, h->channel, BOX_ERR_UNKNOWN, "no such execution");
                return 0;
        }
        switch (h->type) {
        case FRAME_ACK:
                return on_ack(b, e, f, err);
        case FRAME_STDIN:
                return on_stdin(b, e, f, err);
        case FRAME_SIGNAL:
                number = frame_get_u8(f);
                if (end_of(f, err))
                        return BOX_ERR_FRAME;
                if (number < 1 || number > 64)
                        return malformed(err, "no such signal");
                exec_signal(b, e, number);
                return 0;
        case FRAME_RESIZE:
                number = frame_get_u16(f);
                rows = frame_get_u16(f);
                if (end_of(f, err))
                        return BOX_ERR_FRAME;
                child_resize(e, number, rows);
                return 0;
        default:
                return on_forget(b, e, f, err);
        }
}

int host_frame(struct box *b, struct conn *c, const struct frame_header *h, char *payload,
               size_t len, struct err *err)
{
        struct frame_in f;

        frame_in_init(&f, payload, len);
        if (c->state == CONN_NEW)
                return h->type == FRAME_HELLO && h->channel == 0
                               ? on_hello(b, c, &f, err)
                               : malformed(err, "HELLO comes first");
        if (frame_is_tunnel(h->type))
                return tunnel_frame(b, c, h, &f, err);
        if (h->channel == 0)
                return on_control(b, c, h->type, &f, err);
        switch (h->type) {
        case FRAME_START:
                return on_start(b, c, h->channel, &f, err);
        case FRAME_ATTACH:
                return on_attach(b, c, h->channel, &f, err);
        case FRAME_ERROR:
                return on_error(&f, err);
        default:
                return on_channel(b, c, h, &f, err);
        }
}

void host_detach_all(struct box *b)
{
        tunnel_detach(b);
        for (int i = 0; i < b->n_execs; i++) {
                struct exec *e = &b->execs[i];

                e->channel = 0;
                e->say = 0;
                if (e->state == EXEC_ENDED)
                        spool_close(e);
                if (e->state == EXEC_FAILED)
                        exec_free(b, e);
        }
}
