/* Commands that a runner runs (struct exec_runner): a plugin's worker, or ssh. The runner answers
 * when the command has ended; output that it sends meanwhile can be read at once, and only the rest
 * is added from the final answer.
 *
 * The row, the output files, the end and the watchers are the same as for boxes. The difference:
 * there is no process of ours. A worker cannot be told to stop, so a signal means that we give the
 * command up, and a daemon that restarts cannot take it up again: it is lost, and says so.
 *
 * Callbacks run on the runner's thread and reach the hub by letters. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "codec/redact.h"
#include "core/exec/exec_internal.h"

#define ENDED_REASON "The lease ended while the command ran; its provider may still be at it."
#define GIVEN_UP_REASON                                                                            \
        "The command was given up. Its provider cannot be told to stop, so it may still run."
#define COMPARE_SIZE ((size_t)64 << 10)
#define HELD_MAX     ((size_t)16 << 20) /* that waits for room on the disk */

/* Belongs to the worker's thread until the call is done, then to the loop. */
struct exec_remote_run {
        struct exec_hub *hub;
        char id[UUID_LEN + 1];
        char *dir;
        int fds[2]; /* stdout, stderr */
        uint64_t written[2], dropped[2];
        struct box_output output;
        struct buf held[2]; /* found no room on the disk, and goes first */
        int64_t room_until; /* monotonic: how long that is waited for; 0: there is room */
        bool write_failed, differs, is_full;
        bool lacks_room;           /* and some was lost to it */
        struct redactor *redactor; /* values that are not to be written; NULL: none */
        struct redact_stream redact[2];
        struct letter letter;
        /* the end */
        const char *status; /* static */
        char reason[256];
        struct box_exit exit;
        bool has_exit;
};

void exec_remote_free(struct exec_remote_run *run)
{
        if (!run)
                return;
        cleanup_fd(&run->fds[0]);
        cleanup_fd(&run->fds[1]);
        for (int i = 0; i < 2 && run->redactor; i++)
                redact_done(&run->redact[i]);
        redactor_free(run->redactor);
        buf_wipe(&run->held[0]);
        buf_wipe(&run->held[1]);
        free(run->dir);
        free(run);
}

/* Output */

static int open_output(struct exec_remote_run *run, const char *name, int *ret, struct err *err)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/%s", run->dir, name);

        *ret = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        return *ret < 0 ? err_sys(err, ERR_IO, errno, "make a file for the output") : 0;
}

struct grew_letter {
        struct letter letter;
        struct exec_hub *hub;
        char id[UUID_LEN + 1];
        uint64_t len[2];
};

static void grew_on_loop(struct letter *letter)
{
        struct grew_letter *g = container_of(letter, struct grew_letter, letter);
        struct exec *e = exec_find(g->hub, g->id);

        if (e) {
                exec_set_lengths(e, MAX(e->view.stdout_len, g->len[0]),
                                 MAX(e->view.stderr_len, g->len[1]));
                exec_changed(e);
        }
        free(g);
}

/* Write as much as there is room for, and answer how much that was. A write that fails for another
 * reason than a full disk counts as done, and the run as one with output missing. */
static size_t write_some(struct exec_remote_run *run, bool is_stderr, const char *data, size_t len)
{
        size_t done = 0;

        while (done < len) {
                ssize_t n = write(run->fds[is_stderr], data + done, len - done);

                if (n > 0) {
                        run->written[is_stderr] += (uint64_t)n;
                        run->room_until = 0;
                        done += (size_t)n;
                } else if (n < 0 && (errno == ENOSPC || errno == EDQUOT)) {
                        if (!run->room_until)
                                run->room_until = clock_mono_ms() + run->output.wait_ms;
                        break;
                } else if (n == 0 || errno != EINTR) {
                        run->write_failed = true;
                        return len;
                }
        }
        return done;
}

/* On a full disk it stays held, and is tried again with what comes next, and at the end: a worker's
 * thread waits for nothing. */
static void write_held(struct exec_remote_run *run, bool is_stderr)
{
        struct buf *held = &run->held[is_stderr];

        if (held->len > 0)
                buf_consume(held, write_some(run, is_stderr, held->data, held->len));
}

static void remote_append(struct exec_remote_run *run, bool is_stderr, const char *data, size_t len)
{
        const bool drops = run->output.full == BOX_OUTPUT_DROP;
        struct buf *held = &run->held[is_stderr];
        uint64_t max = exec_output_max(&run->output),
                 have = run->written[0] + run->written[1] + run->held[0].len + run->held[1].len;

        /* The command cannot be made to wait: output over the limit is not kept. */
        if (!drops && len > max - MIN(have, max)) {
                run->is_full = true;
                len = (size_t)(max - MIN(have, max));
        }
        if (run->write_failed || run->lacks_room || len == 0)
                return;
        write_held(run, is_stderr);
        if (held->len == 0) {
                size_t n = write_some(run, is_stderr, data, len);

                data += n;
                len -= n;
        }
        if (held->len + len > HELD_MAX) { /* the final answer may still have it */
                run->lacks_room = true;
                return;
        }
        buf_append(held, data, len);
        if (drops && !exec_output_drop(run->fds, run->written, run->dropped, max))
                run->output.full = BOX_OUTPUT_WAIT;
}

/* Nothing more comes: the bytes held back are not a secret value. */
static void end_stream(struct exec_remote_run *run, bool is_stderr)
{
        CLEAN(buf_wipe) struct buf shown = BUF_INIT;

        if (!run->redactor)
                return;
        redact_end(&run->redact[is_stderr], &shown);
        remote_append(run, is_stderr, buf_str(&shown), shown.len);
}

static void on_output(void *ctx, bool is_stderr, const char *chunk, size_t len)
{
        CLEAN(buf_wipe) struct buf shown = BUF_INIT;
        struct exec_remote_run *run = ctx;
        struct grew_letter *g;

        if (run->redactor) {
                redact_feed(&run->redact[is_stderr], chunk, len, &shown);
                remote_append(run, is_stderr, buf_str(&shown), shown.len);
        } else {
                remote_append(run, is_stderr, chunk, len);
        }
        g = xcalloc(1, sizeof(*g));
        g->hub = run->hub;
        memcpy(g->id, run->id, UUID_LEN + 1);
        memcpy(g->len, run->written, sizeof(g->len));
        mail_post(run->hub->config.mail, &g->letter, grew_on_loop);
}

/* Whether the file holds the first bytes of what came at the end; those before `at` are gone. */
static bool is_beginning(int fd, uint64_t at, uint64_t len, const char *all)
{
        CLEAN(cleanup_free) char *part = xcalloc(1, COMPARE_SIZE);

        while (at < len) {
                ssize_t n = pread(fd, part, (size_t)MIN(len - at, COMPARE_SIZE), (off_t)at);

                if (n <= 0 || memcmp(part, all + at, (size_t)n) != 0)
                        return false;
                at += (uint64_t)n;
        }
        return true;
}

/* Streamed output stays; only the missing rest is added. */
static void append_rest(struct exec_remote_run *run, bool is_stderr, const json_t *text)
{
        CLEAN(buf_wipe) struct buf shown = BUF_INIT;
        uint64_t have = run->written[is_stderr];
        const char *all = json_string_value(text);
        size_t len = json_string_length(text);

        if (all && run->redactor) {
                redact_text(run->redactor, all, len, &shown);
                all = buf_str(&shown);
                len = shown.len;
        }
        if (all && len >= have &&
            is_beginning(run->fds[is_stderr], run->dropped[is_stderr], have, all)) {
                buf_clear(&run->held[is_stderr]);
                remote_append(run, is_stderr, all + have, len - have);
                return;
        }
        run->differs = run->differs || all;
        end_stream(run, is_stderr);
}

/* The end */

static void keep_exit(struct exec_remote_run *run, const json_t *result)
{
        const json_t *code = json_object_get(result, "exitCode");
        const char *signal = json_get_string(result, "signal");
        bool timed_out = json_is_true(json_object_get(result, "timedOut"));

        append_rest(run, false, json_object_get(result, "stdout"));
        append_rest(run, true, json_object_get(result, "stderr"));
        run->status = EXEC_EXITED;
        run->has_exit = true;
        run->exit = (struct box_exit){
                .code = json_is_integer(code) && json_integer_value(code) >= 0 &&
                                        json_integer_value(code) <= INT32_MAX
                                ? (int32_t)json_integer_value(code)
                                : -1,
                .signal = signal ? (uint8_t)signal_number(signal) : 0,
                .flags = (timed_out ? BOX_EXIT_TIMED_OUT : 0) |
                         (run->differs || run->write_failed ? BOX_EXIT_INCOMPLETE : 0) |
                         (run->lacks_room ? BOX_EXIT_INCOMPLETE | BOX_EXIT_DISK_FULL : 0) |
                         (run->is_full ? BOX_EXIT_INCOMPLETE | BOX_EXIT_OUTPUT : 0),
                .stdout_len = run->written[0],
                .stderr_len = run->written[1],
                .ended_ms = (uint64_t)(clock_wall_us() / US_PER_MS),
        };
        if (run->differs)
                snprintf(
                        run->reason, sizeof(run->reason),
                        "What the provider sent while the command ran is not the beginning of what "
                        "it sent at the end.");
}

/* Left for the next daemon, in case this one ends before the row is written. The row makes the end
 * safe, so this does not wait for the disk; a truncated record is known by its checksum. */
static void write_exit_record(const struct exec_remote_run *run)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/exit", run->dir);
        CLEAN(cleanup_fd)
        int fd = open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600);
        uint8_t record[BOX_EXIT_RECORD];

        frame_exit_record(&run->exit, record);
        if (fd >= 0)
                (void)fd_write_all(fd, record, sizeof(record), NULL);
}

static void keep_failure(struct exec_remote_run *run, int code, const struct err *err)
{
        bool never_ran =
                code == ERR_PROVIDER || code == ERR_UNREACHABLE || code == ERR_NOT_IMPLEMENTED;

        end_stream(run, false);
        end_stream(run, true);
        run->status = never_ran ? EXEC_FAILED : EXEC_LOST;
        snprintf(run->reason, sizeof(run->reason), "%.*s", (int)sizeof(run->reason) - 1,
                 code == ERR_CANCELLED ? GIVEN_UP_REASON : err->msg);
        if (never_ran)
                return;
        run->has_exit = true;
        run->exit = (struct box_exit){
                .code = -1,
                .flags = BOX_EXIT_INCOMPLETE | (code == ERR_TIMEOUT ? BOX_EXIT_TIMED_OUT : 0),
                .stdout_len = run->written[0],
                .stderr_len = run->written[1],
                .ended_ms = (uint64_t)(clock_wall_us() / US_PER_MS),
        };
}

static void ended_on_loop(struct letter *letter)
{
        struct exec_remote_run *run = container_of(letter, struct exec_remote_run, letter);
        struct exec *e = exec_find(run->hub, run->id);

        if (e && e->phase != EXEC_ENDING) {
                e->has_exit = run->has_exit;
                e->exit = run->exit;
                exec_set_lengths(e, run->written[0], run->written[1]);
                e->remote_run = run;
                exec_finish(e, run->status, run->reason[0] ? run->reason : NULL);
                return;
        }
        exec_remote_free(run);
}

/* Called by the record job, which alone has the run by now. */
bool exec_remote_flush(struct exec *e)
{
        struct exec_remote_run *run = e->remote_run;

        write_held(run, false);
        write_held(run, true);
        if (run->held[0].len + run->held[1].len > 0) {
                if (clock_mono_ms() < run->room_until)
                        return false;
                e->exit.flags |= BOX_EXIT_INCOMPLETE | BOX_EXIT_DISK_FULL;
        }
        if (run->write_failed)
                e->exit.flags |= BOX_EXIT_INCOMPLETE;
        e->exit.stdout_len = run->written[0];
        e->exit.stderr_len = run->written[1];
        return true;
}

static void on_done(void *ctx, int code, const json_t *result, const struct err *err)
{
        struct exec_remote_run *run = ctx;

        FAULT("provider.execute.after");
        if (code >= 0) {
                keep_exit(run, result);
                if (run->held[0].len + run->held[1].len == 0)
                        write_exit_record(run);
        } else {
                keep_failure(run, code, err);
        }
        mail_post(run->hub->config.mail, &run->letter, ended_on_loop);
}

/* Beginning */

struct live_letter {
        struct letter letter;
        struct exec_hub *hub;
        char id[UUID_LEN + 1], place_id[UUID_LEN + 1];
        const struct exec_runner *runner;
        char *who;
        int64_t call_id;
};

static void live_on_loop(struct letter *letter)
{
        struct live_letter *l = container_of(letter, struct live_letter, letter);
        struct exec *e = exec_find(l->hub, l->id);

        if (e && e->phase == EXEC_INTENDED) { /* else it has ended by now */
                e->phase = EXEC_LIVE;
                e->runner = l->runner;
                e->remote_who = take_ptr(&l->who);
                e->remote_call = l->call_id;
                memcpy(e->remote_place, l->place_id, UUID_LEN + 1);
                intended_remove(l->hub, l->id);
                pthread_mutex_lock(&l->hub->lock);
                e->view.status = EXEC_RUNNING;
                e->view.started_at = clock_wall_us();
                pthread_mutex_unlock(&l->hub->lock);
                exec_changed(e);
        }
        free(l->who);
        free(l);
}

static int set_redaction(struct exec_remote_run *run, const char *const *values, struct err *err)
{
        bool too_much = false;
        size_t n = 0;

        while (values && values[n])
                n++;
        if (n > 0)
                run->redactor = redactor_new(values, n, &too_much);
        for (int i = 0; i < 2 && run->redactor; i++)
                redact_begin(&run->redact[i], run->redactor);
        return too_much ? err_set(err, ERR_TOO_LARGE, "too many values to replace") : 0;
}

int exec_remote_begin(struct exec_hub *hub, const struct execution *row, const struct place *place,
                      const struct exec_request *req, const char *dir, struct err *err)
{
        struct exec_remote_run *run = xcalloc(1, sizeof(*run));
        struct live_letter *l;
        int64_t call_id;

        run->hub = hub;
        memcpy(run->id, row->id, UUID_LEN + 1);
        run->dir = xstrdup(dir);
        run->output = exec_output_limits(hub->config.rt, place);
        run->fds[0] = run->fds[1] = -1;
        int r = set_redaction(run, req->redact, err);
        if (r >= 0)
                r = open_output(run, "stdout", &run->fds[0], err);
        if (r >= 0)
                r = open_output(run, "stderr", &run->fds[1], err);
        if (r >= 0) {
                FAULT("provider.execute.before");
                r = req->remote->runner->begin(hub->config.rt, row, req, on_output, on_done, run,
                                               &call_id, err);
        }
        if (r < 0) {
                exec_remote_free(run);
                return r;
        }
        l = xcalloc(1, sizeof(*l));
        l->hub = hub;
        l->runner = req->remote->runner;
        l->who = xstrdup(req->remote->who);
        l->call_id = call_id;
        memcpy(l->id, row->id, UUID_LEN + 1);
        memcpy(l->place_id, row->place_id, UUID_LEN + 1);
        mail_post(hub->config.mail, &l->letter, live_on_loop);
        return 0;
}

/* Giving up */

void exec_remote_abandon(struct exec *e)
{
        e->runner->abandon(e->hub->config.rt, e->remote_who, e->remote_call);
}

struct end_letter {
        struct letter letter;
        struct exec_hub *hub;
        char place_id[UUID_LEN + 1];
};

static void end_on_loop(struct letter *letter)
{
        struct end_letter *l = container_of(letter, struct end_letter, letter);

        for (size_t i = 0; i < EXEC_BUCKETS; i++)
                for (struct exec *e = l->hub->table[i]; e; e = e->next)
                        if (e->runner && streq(e->remote_place, l->place_id))
                                exec_remote_abandon(e);
        free(l);
}

struct ending {
        struct op *op;
        const char *place_id;
        struct execution *rows;
        size_t n;
};

static int note_open(void *ctx, const struct execution *row)
{
        struct ending *s = ctx;

        s->rows = xrealloc(s->rows, (s->n + 1) * sizeof(*s->rows));
        s->rows[s->n++] = *row;
        return 0;
}

static int find_rows(struct db *db, struct ending *s, struct err *err)
{
        s->n = 0;
        return executions_open(db, s->place_id, s->op->arena, note_open, s, err);
}

static int end_rows(struct db *db, void *arg, struct err *err)
{
        struct ending *s = arg;
        int r = find_rows(db, s, err);

        for (size_t i = 0; r >= 0 && i < s->n; i++) {
                struct execution *row = &s->rows[i];

                row->status = EXEC_LOST;
                row->is_incomplete = true;
                row->exit_code = -1;
                row->reason = ENDED_REASON;
                row->ended_at = clock_wall_us();
                row->updated_at = clock_now_us();
                r = executions_end(db, row, err);
        }
        return MIN(r, 0);
}

int exec_remote_end_place(struct op *op, struct runtime *rt, const char *place_id, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct ending s = { .op = op, .place_id = place_id };
        struct end_letter *l;

        if (!rt->hub)
                return 0;
        /* Mostly there are none, and none begins once the lease has ended. */
        int r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = find_rows(db, &s, err);
        store_read_end(&db);
        if (r >= 0 && s.n > 0)
                r = store_write(op, rt->store, end_rows, &s, err);
        free(s.rows);
        if (r < 0 || s.n == 0)
                return MIN(r, 0);
        l = xcalloc(1, sizeof(*l));
        l->hub = rt->hub;
        memcpy(l->place_id, place_id, UUID_LEN + 1);
        mail_post(rt->hub->config.mail, &l->letter, end_on_loop);
        return 0;
}
