/* Running commands: start and wait, or start and go; list, input, signals. Watching output is in
 * exec_feed.c. */
#include <stdio.h>

#include "api/encode.h"
#include "api/exec_call.h"
#include "base/clock.h"
#include "base/fd.h"
#include "codec/check.h"
#include "core/exec/exec_output.h"
#include "core/exec/exec_request.h"
#include "core/workspaces/workspace.h"

#define MISSING     "Execution not found"
#define OUTPUT_MAX  ((size_t)16 << 20)
#define OUTPUT_STEP (1 << 20) /* the oldest goes in steps of this */
#define LIST_LIMIT  100
#define LIST_MAX    500

/* Only a long output can have lost its beginning. */
static int64_t first_kept(const struct runtime *rt, const char *id, bool want_stderr, int64_t len)
{
        CLEAN(cleanup_fd) int fd = -1;

        if (len < OUTPUT_STEP || exec_open_output(rt, id, want_stderr, &fd, NULL) < 0)
                return 0;
        return (int64_t)exec_output_from(fd, 0);
}

/* One execution as the API shows it: the row, and over it what is known of one that runs. */
static void encode_execution(const struct runtime *rt, struct jw *w, const struct execution *row,
                             const struct exec_view *live)
{
        bool running = live && !live->ended;
        struct execution shown = *row;

        if (running) {
                shown.status = live->status;
                shown.pid = live->pid;
                shown.stdout_len = (int64_t)live->stdout_len;
                shown.stderr_len = (int64_t)live->stderr_len;
                shown.started_at = live->started_at;
        }
        jw_object(w);
        encode_members(w, &execution_table, &shown);
        jw_kstring(w, "signal", signal_name((int)row->signal));
        jw_kint(w, "stdoutStart", first_kept(rt, row->id, false, shown.stdout_len));
        jw_kint(w, "stderrStart", first_kept(rt, row->id, true, shown.stderr_len));
        jw_kstring(w, "killMethod", running ? kill_method_name(live->kill_method) : NULL);
        jw_object_end(w);
}

/* Reading */

static int read_execution(struct call *c, const char *lease_id, const char *id,
                          struct execution *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(c->op, c->rt->store, &db, err);

        if (r >= 0)
                r = executions_get(db, id, c->op->arena, ret, err);
        if (r >= 0 && !streq(ret->lease_id, lease_id))
                r = err_set(err, ERR_NOT_FOUND, MISSING);
        return r;
}

int call_execution_of(struct call *c, const char *id, struct execution *ret, struct err *err)
{
        struct lease_record record;
        int r = call_lease(c, LEASE_USE, &record, err);

        if (r >= 0 && !uuid_is_valid(id))
                r = err_set(err, ERR_NOT_FOUND, MISSING);
        return r < 0 ? r : read_execution(c, c->params[0], id, ret, err);
}

int call_execution(struct call *c, struct execution *ret, struct err *err)
{
        return call_execution_of(c, c->params[1], ret, err);
}

static int get_execution(struct call *c, struct err *err)
{
        struct execution row;
        struct exec_view live;
        int r = call_execution(c, &row, err);

        if (r < 0)
                return r;
        bool open = exec_snapshot(c->rt->hub, row.id, &live);
        struct jw *w = call_json(c);
        encode_execution(c->rt, w, &row, open ? &live : NULL);
        return 0;
}

struct listing {
        struct call *c;
        struct call_page page;
};

static int show_execution(void *ctx, const struct execution *row)
{
        struct listing *l = ctx;
        struct exec_view live;

        if (!call_page_has_room(&l->page, row->created_at, row->id))
                return 0;
        bool open = exec_snapshot(l->c->rt->hub, row->id, &live);
        encode_execution(l->c->rt, l->page.w, row, open ? &live : NULL);
        return 0;
}

static int list_executions(struct call *c, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct lease_record record;
        struct listing l = { .c = c };
        int r = call_lease(c, LEASE_USE, &record, err);

        if (r >= 0)
                r = call_page(c, &l.page, LIST_LIMIT, LIST_MAX, err);
        if (r < 0)
                return r;
        call_page_begin(c, &l.page);
        r = store_read_begin(c->op, c->rt->store, &db, err);
        if (r >= 0)
                r = executions_list(db, c->params[0], l.page.before_us, l.page.before_id,
                                    call_page_rows(&l.page), c->op->arena, show_execution, &l, err);
        return call_page_end(c, &l.page, r, err);
}

/* Starting */

struct waiting {
        struct exec_watch watch;
        struct call *c;
        const char *id;
        bool detach, watching;
        int64_t pid, started_at;
};

/* It never ran. The details say which execution that was and how a shell would have ended. */
static int refuse_failed(const struct execution *row, struct err *err)
{
        int r = err_set(err, exec_lacked_means(row) ? ERR_BUSY : ERR_UNPROCESSABLE, "%s",
                        row->reason ? row->reason : "The command could not be started.");

        err_details(err, row->exit_code >= 0 ? xasprintf("{\"execId\":\"%s\",\"exitCode\":%d}",
                                                         row->id, (int)row->exit_code)
                                             : xasprintf("{\"execId\":\"%s\"}", row->id));
        return r;
}

/* The second stage: the execution ended, or failed to begin; its row tells. */
static int answer_ended(struct call *c, struct err *err)
{
        struct waiting *wait = c->data;
        CLEAN(buf_done) struct buf out = { .max = OUTPUT_MAX }, errors = { .max = OUTPUT_MAX };
        struct execution row;
        bool truncated = false;
        int r = read_execution(c, c->params[0], wait->id, &row, err);

        if (r < 0)
                return r;
        if (streq(row.status, EXEC_FAILED))
                return refuse_failed(&row, err);
        if (streq(row.status, EXEC_LOST)) {
                r = err_set(err, ERR_PROVIDER, "%s", row.reason);
                err_details(err, xasprintf("{\"execId\":\"%s\"}", row.id));
                return r;
        }
        r = exec_read_output(c->rt, row.id, false, OUTPUT_MAX, &out, &truncated, err);
        if (r >= 0)
                r = exec_read_output(c->rt, row.id, true, OUTPUT_MAX, &errors, &truncated, err);
        if (r < 0) {
                r = err_wrap(err, r, "The command has ended; read its output by its execId later");
                err_details(err, xasprintf("{\"execId\":\"%s\"}", row.id));
                return r;
        }
        c->out.max = 2 * 6 * OUTPUT_MAX + 65536; /* both, escaped */
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "execId", row.id);
        if (row.exit_code >= 0)
                jw_kint(w, "exitCode", row.exit_code);
        else
                jw_knull(w, "exitCode");
        jw_kstring(w, "signal", signal_name((int)row.signal));
        jw_kbool(w, "timedOut", row.timed_out);
        jw_key(w, "stdout");
        jw_string_n(w, buf_str(&out), out.len);
        jw_key(w, "stderr");
        jw_string_n(w, buf_str(&errors), errors.len);
        jw_kbool(w, "truncated", truncated);
        jw_kint(w, "pid", row.pid);
        jw_ktime(w, "startedAt", row.started_at);
        if (row.is_incomplete || row.reason) {
                jw_key(w, "metadata");
                jw_object(w);
                jw_kbool(w, "incomplete", row.is_incomplete);
                jw_kstring(w, "reason", row.reason);
                jw_object_end(w);
        }
        jw_object_end(w);
        return 0;
}

static void answer_started(struct waiting *wait, const struct exec_view *view)
{
        struct call *c = wait->c;

        c->status = 202;
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "execId", wait->id);
        jw_kint(w, "pid", view->pid);
        jw_ktime(w, "startedAt", view->started_at);
        jw_object_end(w);
        call_finish(c);
}

static void execution_changed(struct exec_watch *watch, const struct exec_view *view)
{
        struct waiting *wait = container_of(watch, struct waiting, watch);

        if (view->ended) {
                wait->watching = false; /* the list of watches goes with the execution */
                call_continue(wait->c, answer_ended);
        } else if (wait->detach && streq(view->status, EXEC_RUNNING)) {
                exec_watch_remove(wait->c->rt->hub, wait->id, watch);
                wait->watching = false;
                answer_started(wait, view);
        }
}

/* The caller is gone; the command goes on. */
static void waiter_gone(struct call *c)
{
        struct waiting *wait = c->data;

        if (wait->watching)
                exec_watch_remove(c->rt->hub, wait->id, &wait->watch);
        call_finish(c);
}

static void wait_on_loop(struct call *c)
{
        struct waiting *wait = c->data;
        struct exec_view view;

        wait->watching = exec_watch_add(c->rt->hub, wait->id, &wait->watch);
        if (!wait->watching) {
                call_continue(c, answer_ended);
                return;
        }
        c->on_gone = waiter_gone;
        if (c->gone) { /* before it began to wait: on_abort() does not come again */
                waiter_gone(c);
                return;
        }
        if (exec_snapshot(c->rt->hub, wait->id, &view))
                execution_changed(&wait->watch, &view);
}

static void check_terminal(struct check *k, struct exec_request *req)
{
        json_t *tty = check_record(k, "tty", CHECK_OPTIONAL);
        struct check n;

        req->terminal = tty != NULL;
        if (!tty)
                return;
        check_nested(&n, k, "tty", tty);
        req->open_stdin = true;
        req->columns = (uint16_t)check_int(&n, "columns", CHECK_OPTIONAL, 1, 9999, NULL);
        req->rows = (uint16_t)check_int(&n, "rows", CHECK_OPTIONAL, 1, 9999, NULL);
        check_unknown(&n, (const char *[]){ "columns", "rows", NULL });
        if (!req->columns)
                req->columns = 80;
        if (!req->rows)
                req->rows = 24;
}

/* The body of an execute request. A runner takes a command to its end: all input is given at once,
 * and there is no terminal. */
static int read_request(struct call *c, json_t *body, struct exec_request *req, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };
        struct arena *a = c->op->arena;
        json_t *args, *env, *value;
        const char *name, **list;
        struct check n;
        size_t i;

        check_init(&k, body);
        req->command = arena_strdup(a, check_string(&k, "command", CHECK_REQUIRED, 1, 0));
        args = check_strings(&k, "args", CHECK_OPTIONAL, 0);
        check_array_size(&k, "args", args, 0, EXEC_ARGS_MAX);
        req->cwd = arena_strdup(a, check_string(&k, "cwd", CHECK_NULLABLE, 1, EXEC_CWD_MAX));
        req->own_env = env = check_record(&k, "env", CHECK_OPTIONAL);
        check_nested(&n, &k, "env", env);
        json_object_foreach(env, name, value)
        {
                (void)check_string(&n, name, CHECK_REQUIRED, 0, 0);
                if (!req->is_single && !exec_is_variable_name(name))
                        check_custom(&n, name, "Not a name for a variable");
        }
        req->stdin_text = arena_strdup(a, check_string(&k, "stdin", CHECK_NULLABLE, 0, 0));
        req->stdin_len = req->stdin_text ? strlen(req->stdin_text) : 0;
        req->timeout_ms = check_int(&k, "timeoutMs", CHECK_NULLABLE, 1, EXEC_TIMEOUT_MAX, NULL);
        req->idempotency_key = arena_strdup(
                a, check_string(&k, "idempotencyKey", CHECK_NULLABLE, 1, EXEC_KEY_MAX));
        req->agent_id = arena_strdup(a, check_uuid(&k, "agentId", CHECK_NULLABLE));
        (void)check_bool(&k, "detach", CHECK_OPTIONAL, false);
        req->open_stdin = check_bool(&k, "openStdin", CHECK_OPTIONAL, false);
        if (req->is_single && req->open_stdin)
                check_custom(&k, "openStdin",
                             "Commands that a plugin runs get all of their input at the start: "
                             "send it as stdin");
        if (!req->is_single)
                check_terminal(&k, req);
        else if (check_has(&k, "tty"))
                check_custom(&k, "tty", "Commands that a plugin runs have no terminal");
        check_unknown(&k, (const char *[]){ "command", "args", "cwd", "env", "stdin", "timeoutMs",
                                            "idempotencyKey", "agentId", "detach", "openStdin",
                                            "tty", NULL });
        if (args && !check_failed(&k)) {
                list = arena_alloc(a, (json_array_size(args) + 1) * sizeof(*list));
                json_array_foreach(args, i, value) list[i] =
                        arena_strdup(a, json_string_value(value));
                req->args = list;
        }
        return check_end(&k, err);
}

int call_start_execution(struct call *c, json_t *body, const char **ret_id, struct err *err)
{
        const json_t *tty = json_object_get(body, "tty");
        const struct kind *kind = NULL;
        struct lease_record record;
        struct exec_request req = { .own_env = json_object_get(body, "env"),
                                    .terminal = tty && !json_is_null(tty) };
        int r = call_lease(c, LEASE_USE, &record, err);

        if (r >= 0)
                r = lease_load_usable(c->op, c->rt, c->params[0], &record, &kind, err);
        if (r >= 0)
                r = exec_admit(c->op, c->rt, kind, &record, &req, err);
        if (r >= 0)
                r = read_request(c, body, &req, err);
        if (r >= 0 && !json_object_get(body, "cwd"))
                req.cwd = workspace_default_cwd(c->op->arena, &record.lease);
        if (r >= 0)
                r = kind->prepare_exec(c->op, c->rt, &record, &req, err);
        return r < 0 ? r : exec_start(c->op, c->rt, &record, &req, ret_id, err);
}

static int post_execute(struct call *c, struct err *err)
{
        struct waiting *wait = arena_new(&c->arena, struct waiting);
        const char *id = NULL;
        int r = call_start_execution(c, c->body, &id, err);

        if (r < 0)
                return r;
        wait->c = c;
        wait->watch.changed = execution_changed;
        wait->id = arena_strdup(&c->arena, id);
        wait->detach = json_is_true(json_object_get(c->body, "detach"));
        c->data = wait;
        c->on_loop = wait_on_loop;
        return 0;
}

/* Input, signals, size */

struct action {
        char id[UUID_LEN + 1];
        int signal;
        uint16_t columns, rows;
        int64_t offset;
};

static struct action *new_action(struct call *c, const struct execution *row)
{
        struct action *a = arena_new(&c->arena, struct action);

        memcpy(a->id, row->id, UUID_LEN + 1);
        c->data = a;
        return a;
}

static void answer_action(struct call *c, int r, const struct err *err)
{
        if (r < 0) {
                call_fail(c, r, err);
                return;
        }
        buf_puts(&c->out, "{\"ok\":true}");
        call_finish(c);
}

static void stdin_done(void *arg, int code)
{
        CLEAN(err_done) struct err err = { 0 };

        if (code < 0)
                (void)err_set(&err, ERR_CONFLICT,
                              "The execution ended before it had taken all of the input.");
        answer_action(arg, code, &err);
}

static void stdin_on_loop(struct call *c)
{
        CLEAN(err_done) struct err err = { 0 };
        struct action *a = c->data;
        struct stdin_piece piece = { .eof = call_query_flag(c, "eof"), .offset = a->offset };

        piece.data = http_body(c->x, &piece.len);
        int r = exec_stdin(c->rt->hub, a->id, &piece, stdin_done, c, &err);
        if (r < 0)
                answer_action(c, r, &err);
}

static int post_stdin(struct call *c, struct err *err)
{
        struct execution row;
        int64_t offset;
        int r = call_execution(c, &row, err);

        if (r >= 0)
                r = call_query_int(c, "offset", -1, 0, INT64_MAX, &offset, err);
        if (r < 0)
                return r;
        new_action(c, &row)->offset = offset;
        c->on_loop = stdin_on_loop;
        return 0;
}

static void signal_on_loop(struct call *c)
{
        CLEAN(err_done) struct err err = { 0 };
        struct action *a = c->data;

        answer_action(c, exec_signal(c->rt->hub, a->id, a->signal, &err), &err);
}

static int post_signal(struct call *c, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };
        struct execution row;
        int number, r = call_execution(c, &row, err);

        check_init(&k, c->body);
        if (r < 0)
                return r;
        const char *name = check_string(&k, "signal", CHECK_REQUIRED, 1, 16);
        number = name ? signal_number(name) : 0;
        if (name && !number)
                check_custom(&k, "signal", "There is no such signal; use a name such as SIGTERM");
        check_unknown(&k, (const char *[]){ "signal", NULL });
        r = check_end(&k, err);
        if (r < 0)
                return r;
        new_action(c, &row)->signal = number;
        c->on_loop = signal_on_loop;
        return 0;
}

static void resize_on_loop(struct call *c)
{
        CLEAN(err_done) struct err err = { 0 };
        struct action *a = c->data;

        answer_action(c, exec_resize(c->rt->hub, a->id, a->columns, a->rows, &err), &err);
}

static int post_resize(struct call *c, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };
        struct execution row;
        int r = call_execution(c, &row, err);

        check_init(&k, c->body);
        if (r < 0)
                return r;
        int64_t columns = check_int(&k, "columns", CHECK_REQUIRED, 1, 9999, NULL);
        int64_t rows = check_int(&k, "rows", CHECK_REQUIRED, 1, 9999, NULL);
        check_unknown(&k, (const char *[]){ "columns", "rows", NULL });
        r = check_end(&k, err);
        if (r < 0)
                return r;
        struct action *a = new_action(c, &row);
        a->columns = (uint16_t)columns;
        a->rows = (uint16_t)rows;
        c->on_loop = resize_on_loop;
        return 0;
}

#define BASE "/api/environment-leases/:id/"

const struct route routes_executions[] = {
        { "POST", BASE "execute", .fn = post_execute, .flags = ROUTE_WAITS },
        { "GET", BASE "executions", .fn = list_executions },
        { "GET", BASE "executions/:execId", .fn = get_execution },
        { "GET", BASE "executions/:execId/events", .fn = exec_stream_events },
        { "GET", BASE "executions/:execId/output", .fn = exec_stream_output },
        { "POST", BASE "executions/:execId/stdin", .fn = post_stdin,
          .flags = ROUTE_RAW_BODY | ROUTE_WHEN_FULL },
        { "POST", BASE "executions/:execId/signal", .fn = post_signal, .flags = ROUTE_WHEN_FULL },
        { "POST", BASE "executions/:execId/resize", .fn = post_resize, .flags = ROUTE_WHEN_FULL },
        { 0 },
};
