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

#include "api/exec_call.h"
#include "api/recheck.h"
#include "api/socket.h"
#include "base/fd.h"
#include "base/utf8.h"
#include "core/exec/exec_output.h"
#include "core/live/live.h"

#define MESSAGE_MAX   ((size_t)256 * 1024)
#define INPUT_PENDING ((size_t)256 * 1024) /* past it no more is taken from the client */
#define AHEAD_MAX     ((size_t)512 * 1024)
#define PART_MAX      ((size_t)32 * 1024)
#define HANG_UP_MS    2000 /* what the shell has to end by itself */

struct terminal {
        struct socket socket;
        struct live_reader reader; /* only to hear that the daemon stops */
        struct exec_watch watch;
        struct recheck right;
        struct api *api;
        char id[UUID_LEN + 1];
        struct exec_file *file;
        uint64_t at, len;
        bool keep;     /* the shell stays when the socket goes */
        bool watching; /* the execution */
        bool ended;    /* and its end is known */
        bool over;     /* the socket is gone */
        uv_timer_t timer;
        unsigned inputs; /* on their way to the box */
        size_t input_bytes;
        bool paused;
        uint16_t columns, rows; /* what the shell is yet to hear of; 0: nothing */

        struct pool_job job; /* reads the row once it has ended */
        bool loading;
        const char *reason;
        int64_t exit_code, signal;
};

static void pump(struct terminal *t);

static struct exec_hub *hub_of(const struct terminal *t)
{
        return t->api->rt->hub;
}

/* Ending */

static void timer_closed(uv_handle_t *handle)
{
        struct terminal *t = container_of((uv_timer_t *)handle, struct terminal, timer);

        exec_file_put(t->api->rt, t->file);
        socket_done(&t->socket);
        recheck_release(&t->right);
        free(t);
}

/* Nothing refers to it any more: neither the execution, nor a job, nor input on its way. */
static void free_if_over(struct terminal *t)
{
        if (!t->over || t->watching || t->loading || t->right.running || t->inputs > 0 ||
            uv_is_closing((uv_handle_t *)&t->timer))
                return;
        live_reader_remove(&t->reader);
        uv_close((uv_handle_t *)&t->timer, timer_closed);
}

static void let_go_of_execution(struct terminal *t)
{
        if (t->watching)
                exec_watch_remove(hub_of(t), t->id, &t->watch);
        t->watching = false;
        uv_timer_stop(&t->timer);
        free_if_over(t);
}

static void kill_shell(uv_timer_t *timer)
{
        struct terminal *t = container_of(timer, struct terminal, timer);

        (void)exec_signal(hub_of(t), t->id, SIGKILL, NULL);
        let_go_of_execution(t);
}

static void hang_up(struct terminal *t)
{
        (void)exec_signal(hub_of(t), t->id, SIGHUP, NULL);
        (void)exec_signal(hub_of(t), t->id, SIGCONT, NULL);
        uv_timer_start(&t->timer, kill_shell, HANG_UP_MS, 0);
}

static void socket_closed(struct socket *s)
{
        struct terminal *t = container_of(s, struct terminal, socket);

        t->over = true;
        if (t->watching && !t->keep)
                hang_up(t);
        else
                let_go_of_execution(t);
}

static void stopped(struct live_reader *reader)
{
        struct terminal *t = container_of(reader, struct terminal, reader);

        t->keep = true;
        if (t->over)
                let_go_of_execution(t);
        else
                socket_end(&t->socket, WEBSOCKET_GOING_AWAY, "the daemon stops");
}

/* What we say */

static void send_object(struct terminal *t, struct buf *take_text)
{
        socket_send(&t->socket, take_text->data, take_text->len);
        buf_done(take_text);
}

static void begin_object(struct jw *w, struct buf *b, const char *type)
{
        jw_init(w, b);
        jw_object(w);
        jw_kstring(w, "type", type);
}

static void send_ready(struct terminal *t)
{
        struct buf text = BUF_INIT;
        struct jw w;

        begin_object(&w, &text, "ready");
        jw_kstring(&w, "execId", t->id);
        jw_object_end(&w);
        send_object(t, &text);
}

static void send_output(struct terminal *t, const char *part, size_t n)
{
        struct buf text = BUF_INIT;
        struct jw w;

        begin_object(&w, &text, "output");
        jw_key(&w, "data");
        jw_string_n(&w, part, n);
        jw_kint(&w, "nextOffset", (int64_t)t->at);
        jw_object_end(&w);
        send_object(t, &text);
}

static void send_closed(struct terminal *t)
{
        struct buf text = BUF_INIT;
        struct jw w;

        begin_object(&w, &text, "closed");
        jw_kstring(&w, "reason", t->reason);
        if (t->exit_code >= 0)
                jw_kint(&w, "exitCode", t->exit_code);
        jw_kstring(&w, "signal", signal_name((int)t->signal));
        jw_object_end(&w);
        send_object(t, &text);
}

/* Output */

/* One part; false when there is nothing (more) to say now. */
static bool send_part(struct terminal *t)
{
        static char part[PART_MAX]; /* the loop thread's */
        ssize_t n;

        if (t->at >= t->len)
                return false;
        if (!t->file && exec_file_get(t->api->rt, t->id, false, &t->file, NULL) < 0)
                return false;
        t->at = MIN(exec_output_from(exec_file_fd(t->file), t->at), t->len);
        n = pread(exec_file_fd(t->file), part, (size_t)MIN((uint64_t)PART_MAX, t->len - t->at),
                  (off_t)t->at);
        if (n <= 0)
                return false;
        if (!t->ended || t->at + (uint64_t)n < t->len)
                n -= (ssize_t)utf8_unfinished(part, (size_t)n);
        if (n == 0)
                return false;
        t->at += (uint64_t)n;
        send_output(t, part, (size_t)n);
        return true;
}

static void pump(struct terminal *t)
{
        bool more = true;

        if (t->loading || t->over)
                return;
        while (more && socket_pending(&t->socket) < AHEAD_MAX)
                more = send_part(t);
        if (more || !t->ended)
                return; /* on_drained comes back, or the execution says when there is more */
        send_closed(t);
        socket_end(&t->socket, WEBSOCKET_NORMAL, NULL);
}

static void drained(struct socket *s)
{
        pump(container_of(s, struct terminal, socket));
}

/* The end of the shell: its row says how, and how much it printed. */

static int load_row(struct db *db, void *arg, struct err *err)
{
        struct terminal *t = arg;
        struct arena arena;
        struct execution row;
        int r;

        arena_init(&arena);
        r = executions_get(db, t->id, &arena, &row, err);
        if (r >= 0) {
                t->reason = streq(row.status, EXEC_EXITED) ? "exited"
                            : streq(row.status, EXEC_LOST) ? "lost"
                                                           : "failed";
                t->exit_code = row.exit_code;
                t->signal = row.signal;
                t->len = (uint64_t)row.stdout_len;
        }
        arena_done(&arena);
        return r;
}

static void job_run(struct pool_job *job, struct op *op)
{
        struct terminal *t = container_of(job, struct terminal, job);

        (void)store_read(op, t->api->rt->store, load_row, t, NULL);
}

static void job_done(struct pool_job *job)
{
        struct terminal *t = container_of(job, struct terminal, job);

        t->loading = false;
        t->ended = true;
        pump(t);
        free_if_over(t);
}

static void load_end(struct terminal *t)
{
        t->reason = "lost";
        t->exit_code = -1;
        t->job = (struct pool_job){ .run = job_run, .done = job_done, .urgent = true };
        t->loading = pool_submit(t->api->pool, &t->job, NULL) >= 0;
        if (!t->loading)
                socket_end(&t->socket, WEBSOCKET_GOING_AWAY, "the daemon stops");
}

/* A shell that has not begun, or that a restart has yet to find again, hears of it afterwards. */
static void tell_size(struct terminal *t)
{
        if (t->columns && exec_resize(hub_of(t), t->id, t->columns, t->rows, NULL) >= 0)
                t->columns = 0;
}

static void changed(struct exec_watch *watch, const struct exec_view *view)
{
        struct terminal *t = container_of(watch, struct terminal, watch);

        t->len = view->stdout_len;
        if (!view->ended) {
                tell_size(t);
                pump(t);
                return;
        }
        t->watching = false; /* the list of watches goes with the execution */
        if (t->over)
                let_go_of_execution(t);
        else
                load_end(t);
}

/* What the client says */

struct input {
        struct terminal *t;
        size_t len;
        char data[];
};

static void input_taken(void *arg, int code)
{
        struct input *in = arg;
        struct terminal *t = in->t;

        t->inputs--;
        t->input_bytes -= in->len;
        free(in);
        if (t->paused && t->input_bytes < INPUT_PENDING && !t->over) {
                t->paused = false;
                http_body_resume(t->socket.x);
        }
        free_if_over(t);
}

static void take_input(struct terminal *t, const json_t *message)
{
        json_t *data = json_object_get(message, "data");
        size_t len = json_string_length(data);
        struct stdin_piece piece = { .len = len, .offset = -1 };
        struct input *in;

        if (len == 0)
                return;
        in = xcalloc(1, sizeof(*in) + len);
        in->t = t;
        in->len = len;
        memcpy(in->data, json_string_value(data), len);
        piece.data = in->data;
        t->inputs++;
        t->input_bytes += len;
        if (exec_stdin(hub_of(t), t->id, &piece, input_taken, in, NULL) < 0)
                input_taken(in, -1);
        if (t->input_bytes >= INPUT_PENDING && !t->over) {
                t->paused = true;
                http_body_pause(t->socket.x);
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
                socket_end(&t->socket, WEBSOCKET_NORMAL, NULL);
        } else {
                return false;
        }
        return true;
}

static void on_message(struct socket *s, const char *data, size_t len)
{
        struct terminal *t = container_of(s, struct terminal, socket);
        json_t *message = NULL;
        /* Ctrl-@ is a NUL, so strings may have one. */
        int r = json_parse_lenient(data, len, &message, NULL);

        if (r < 0 || !take_message(t, message))
                socket_end(s, WEBSOCKET_POLICY, "not a message of a terminal");
        json_decref(message);
}

/* Signs of life */

static void checked(struct recheck *right)
{
        struct terminal *t = container_of(right, struct terminal, right);

        if (right->refused && !t->over) {
                t->keep = false;
                socket_end(&t->socket, WEBSOCKET_POLICY, "forbidden");
        }
        free_if_over(t);
}

static void beat(uv_timer_t *timer)
{
        struct terminal *t = container_of(timer, struct terminal, timer);

        if (socket_ping(&t->socket))
                recheck_start(&t->right);
}

/* Beginning */

static void begin(struct call *c)
{
        struct terminal *t = c->data;
        uint64_t ms = (uint64_t)c->rt->settings.live_ping_ms;
        bool is_gone = http_is_gone(c->x) || live_is_stopped(c->rt->live);
        struct exec_view view;

        uv_timer_init(c->api->loop, &t->timer);
        t->reader.stopped = stopped;
        live_reader_add(c->rt->live, &t->reader, t->right.company_id, LIVE_NOW);
        t->watch.changed = changed;
        t->watching = exec_watch_add(hub_of(t), t->id, &t->watch);
        t->socket.message = on_message;
        t->socket.drained = drained;
        t->socket.closed = socket_closed;
        socket_begin(&t->socket, c, MESSAGE_MAX);
        if (is_gone) {
                socket_end(&t->socket, WEBSOCKET_GOING_AWAY, NULL);
                return;
        }
        uv_timer_start(&t->timer, beat, ms, ms);
        send_ready(t);
        if (!t->watching) {
                load_end(t);
                return;
        }
        if (exec_snapshot(hub_of(t), t->id, &view))
                t->len = view.stdout_len;
        pump(t);
}

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
        json_t *body;
        int r = call_query_int(c, "cols", 80, 1, 9999, &columns, err);

        if (r >= 0)
                r = call_query_int(c, "rows", 24, 1, 9999, &rows, err);
        if (r < 0)
                return r;
        body = shell_request(columns, rows);
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
        t->api = c->api;
        t->at = (uint64_t)at;
        t->keep = call_query_flag(c, "keep");
        memcpy(t->id, id, UUID_LEN + 1);
        recheck_init(&t->right, c, record.env.company_id, true, checked);
        c->data = t;
        c->on_loop = begin;
        return 0;
}

const struct route routes_terminal[] = {
        { "GET", "/api/environment-leases/:id/terminal/ws", open_terminal,
          ROUTE_SOCKET | ROUTE_OF_LEASE },
        { NULL, NULL, NULL, 0 },
};
