/* A terminal in a lease, over a WebSocket: `GET …/terminal/ws?cols=&rows=` (docs/api.md).
 *
 * It is an execution as any other, of the login shell on a pseudo-terminal; what it prints is read
 * from its output file. The socket only shows it: when it goes, the shell is hung up, unless it was
 * asked to be kept, and then ?execId= takes it up again, at ?offset=. When the daemon stops, the
 * shell goes on.
 *
 *   from us    {"type":"ready","execId"}  {"type":"output","data","nextOffset"}
 *              {"type":"closed","reason",...}
 *   to us      {"type":"input","data"}    {"type":"resize","cols","rows"}  {"type":"close"}
 *
 * `closed` is the last word when the shell has ended; `exitCode` and `signal` say how. */
#include <signal.h>
#include <stdio.h>

#include "api/exec_feed.h"

#define MESSAGE_MAX   ((size_t)256 * 1024)
#define INPUT_PENDING ((size_t)256 * 1024) /* past it no more is taken from the client */
#define PART_MAX      ((size_t)32 * 1024)
#define HANG_UP_MS    2000 /* time that the shell has to end by itself */

struct terminal {
        struct exec_feed exec;
        bool keep; /* the shell stays when the socket goes */
        uv_timer_t hang_up_timer;
        bool hanging_up;    /* holds the feed */
        size_t input_bytes; /* on their way to the box */
        bool paused;
        uint16_t columns, rows; /* the size that the shell is yet to be told; 0: none */
};

static struct terminal *terminal_of(struct feed *f)
{
        return container_of(f, struct terminal, exec.feed);
}

static struct exec_hub *hub_of(const struct terminal *t)
{
        return t->exec.feed.api->rt->hub;
}

/* Ending: a shell that is not kept is hung up, and killed if it does not go. */

static void hang_up_timer_closed(uv_handle_t *handle)
{
        struct terminal *t = container_of((uv_timer_t *)handle, struct terminal, hang_up_timer);

        feed_release(&t->exec.feed);
}

static void let_go_of_shell(struct terminal *t)
{
        exec_feed_unwatch(&t->exec);
        if (t->hanging_up)
                uv_close((uv_handle_t *)&t->hang_up_timer, hang_up_timer_closed);
        t->hanging_up = false;
}

static void kill_shell(uv_timer_t *timer)
{
        struct terminal *t = container_of(timer, struct terminal, hang_up_timer);

        (void)exec_signal(hub_of(t), t->exec.id, SIGKILL, NULL);
        let_go_of_shell(t);
}

static void hang_up(struct terminal *t)
{
        (void)exec_signal(hub_of(t), t->exec.id, SIGHUP, NULL);
        (void)exec_signal(hub_of(t), t->exec.id, SIGCONT, NULL);
        feed_hold(&t->exec.feed);
        t->hanging_up = true;
        uv_timer_init(t->exec.feed.api->loop, &t->hang_up_timer);
        uv_timer_start(&t->hang_up_timer, kill_shell, HANG_UP_MS, 0);
}

static void terminal_closed(struct feed *f, enum feed_end why)
{
        struct terminal *t = terminal_of(f);
        bool keep = why == FEED_END_STOPPED || (t->keep && why != FEED_END_REFUSED);

        if (t->exec.watching && !keep)
                hang_up(t);
        else
                let_go_of_shell(t);
}

static void terminal_stopped(struct feed *f)
{
        let_go_of_shell(terminal_of(f));
}

static void terminal_free(struct feed *f)
{
        struct terminal *t = terminal_of(f);

        exec_feed_done(&t->exec);
        free(t);
}

/* What we say */

static void begin_object(struct jw *w, struct buf *b, const char *type)
{
        jw_init(w, b);
        jw_object(w);
        jw_kstring(w, "type", type);
}

static void send_object(struct terminal *t, struct jw *w, const struct buf *text)
{
        jw_object_end(w);
        feed_put(&t->exec.feed, NULL, NULL, text->data, text->len);
}

static void send_output(struct terminal *t, const char *part, size_t n)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        struct jw w;

        begin_object(&w, &text, "output");
        jw_key(&w, "data");
        jw_string_n(&w, part, n);
        jw_kint(&w, "nextOffset", (int64_t)t->exec.at[0]);
        send_object(t, &w, &text);
}

static void send_closed(struct terminal *t)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        struct jw w;

        begin_object(&w, &text, "closed");
        jw_kstring(&w, "reason", t->exec.end.status);
        if (t->exec.end.code >= 0)
                jw_kint(&w, "exitCode", t->exec.end.code);
        jw_kstring(&w, "signal", signal_name((int)t->exec.end.signal));
        send_object(t, &w, &text);
}

static enum feed_step terminal_next(struct feed *f)
{
        static char part[PART_MAX]; /* the loop thread's */
        struct terminal *t = terminal_of(f);
        size_t n;
        enum feed_step step = exec_feed_read(&t->exec, 0, true, part, sizeof(part), &n);

        if (step == FEED_MORE) {
                t->exec.at[0] += n;
                send_output(t, part, n);
        }
        if (step != FEED_WAIT || !t->exec.loaded)
                return step;
        send_closed(t);
        return FEED_DONE;
}

/* A shell that has not begun, or that a restart has yet to find again, hears of it afterwards. */
static void tell_size(struct terminal *t)
{
        if (t->columns && exec_resize(hub_of(t), t->exec.id, t->columns, t->rows, NULL) >= 0)
                t->columns = 0;
}

static void terminal_changed(struct exec_watch *watch, const struct exec_view *view)
{
        struct terminal *t = container_of(watch, struct terminal, exec.watch);

        exec_feed_grow(&t->exec, view);
        if (!view->ended)
                tell_size(t);
        else if (!t->exec.feed.c)
                let_go_of_shell(t);
        feed_pump(&t->exec.feed);
}

static void terminal_begin(struct feed *f)
{
        struct terminal *t = terminal_of(f);

        exec_feed_watch(&t->exec, terminal_changed);
        CLEAN(buf_done) struct buf text = BUF_INIT;
        struct jw w;

        begin_object(&w, &text, "ready");
        jw_kstring(&w, "execId", t->exec.id);
        send_object(t, &w, &text);
}

/* What the client says */

struct input {
        struct terminal *t;
        size_t len;
        char data[];
};

static void input_taken(void *arg, int code UNUSED)
{
        struct input *in = arg;
        struct terminal *t = in->t;
        struct feed *f = &t->exec.feed;

        t->input_bytes -= in->len;
        free(in);
        if (t->paused && t->input_bytes < INPUT_PENDING && f->c) {
                t->paused = false;
                http_body_resume(f->c->x);
        }
        feed_release(f);
}

static void take_input(struct terminal *t, const json_t *message)
{
        json_t *data = json_object_get(message, "data");
        size_t len = json_string_length(data);
        struct stdin_piece piece = { .len = len, .offset = -1 };
        struct feed *f = &t->exec.feed;
        struct input *in;

        if (len == 0)
                return;
        in = xcalloc(1, sizeof(*in) + len);
        in->t = t;
        in->len = len;
        memcpy(in->data, json_string_value(data), len);
        piece.data = in->data;
        feed_hold(f);
        t->input_bytes += len;
        if (exec_stdin(hub_of(t), t->exec.id, &piece, input_taken, in, NULL) < 0)
                input_taken(in, -1);
        if (t->input_bytes >= INPUT_PENDING && f->c) {
                t->paused = true;
                http_body_pause(f->c->x);
        }
}

static bool read_side(const json_t *message, const char *name, uint16_t *ret)
{
        const json_t *v = json_object_get(message, name);

        if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > 9999)
                return false;
        *ret = (uint16_t)json_integer_value(v);
        return true;
}

/* False: nothing that can be understood. */
static bool take_message(struct terminal *t, const json_t *message)
{
        const char *type = json_get_string(message, "type");
        uint16_t columns, rows;

        if (!type)
                return false;
        if (streq(type, "input") && json_is_string(json_object_get(message, "data"))) {
                take_input(t, message);
        } else if (streq(type, "resize") && read_side(message, "cols", &columns) &&
                   read_side(message, "rows", &rows)) {
                t->columns = columns;
                t->rows = rows;
                tell_size(t);
        } else if (streq(type, "close")) {
                t->keep = false;
                feed_end(&t->exec.feed, FEED_END_DONE);
        } else {
                return false;
        }
        return true;
}

static bool terminal_message(struct feed *f, const char *data, size_t len)
{
        json_t *message = NULL;
        /* Ctrl-@ is a NUL, so strings may have one. */
        bool good = json_parse_lenient(data, len, &message, NULL) >= 0 &&
                    take_message(terminal_of(f), message);

        json_decref(message);
        return good;
}

static const struct feed_kind terminal_kind = {
        .max_message = MESSAGE_MAX,
        .may = exec_feed_may,
        .begin = terminal_begin,
        .next = terminal_next,
        .load = exec_feed_load,
        .tick = exec_feed_tick,
        .message = terminal_message,
        .no_message = "not a message of a terminal",
        .closed = terminal_closed,
        .stopped = terminal_stopped,
        .free = terminal_free,
};

/* Beginning */

/* The user's own shell where there is one. */
static json_t *shell_request(int64_t columns, int64_t rows)
{
        static const char script[] = "for s in \"$SHELL\" /bin/bash /bin/sh; do "
                                     "[ -x \"$s\" ] && exec \"$s\" -l; done; exec sh -l";
        json_t *body = json_object();

        json_object_set_new(body, "command", json_string("sh"));
        json_object_set_new(body, "args", json_pack("[ss]", "-c", script));
        json_object_set_new(body, "env", json_pack("{ss}", "TERM", "xterm-256color"));
        json_object_set_new(
                body, "tty",
                json_pack("{sI,sI}", "columns", (json_int_t)columns, "rows", (json_int_t)rows));
        return body;
}

static int start_shell(struct call *c, const char **ret_id, struct err *err)
{
        int64_t columns, rows;
        int r = call_query_int(c, "cols", 80, 1, 9999, &columns, err);

        if (r >= 0)
                r = call_query_int(c, "rows", 24, 1, 9999, &rows, err);
        if (r < 0)
                return r;
        json_t *body = shell_request(columns, rows);
        r = call_start_execution(c, body, ret_id, err);
        json_decref(body);
        return r;
}

/* A screen that has what was printed must not get it again: it would answer what was asked then. */
static int take_up(struct call *c, const char *id, int64_t *ret_at, struct err *err)
{
        struct execution row;
        int r = call_execution_of(c, id, &row, err);

        if (r >= 0 && !row.is_terminal)
                r = err_set(err, ERR_CONFLICT, "That execution has no terminal.");
        return r < 0 ? r : call_query_int(c, "offset", 0, 0, INT64_MAX, ret_at, err);
}

static int open_terminal(struct call *c, struct err *err)
{
        const char *id = call_query(c, "execId");
        struct lease_record record;
        struct terminal *t;
        int64_t at = 0;
        int r = call_lease(c, LEASE_USE, &record, err);

        if (r >= 0)
                r = id ? take_up(c, id, &at, err) : start_shell(c, &id, err);
        if (r < 0)
                return r;
        t = xcalloc(1, sizeof(*t));
        t->keep = call_query_flag(c, "keep");
        t->exec.at[0] = (uint64_t)at;
        exec_feed_open(&t->exec, c, id, &terminal_kind, FEED_SOCKET, record.env.company_id);
        return 0;
}

const struct route routes_terminal[] = {
        { "GET", "/api/environment-leases/:id/terminal/ws", .fn = open_terminal,
          .flags = ROUTE_SOCKET | ROUTE_WAITS },
        { 0 },
};
