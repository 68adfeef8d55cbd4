/* The end of an execution: recorded first, told afterwards. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "codec/peer_state.h"
#include "core/exec/exec_internal.h"
#include "core/kinds/kind.h"

#define REASON_MAX 512

int exec_write_end(struct db *db, void *row, struct err *err)
{
        return executions_end(db, row, err);
}

/* `is_here`: the files were written on this machine. `text` is for a reason. */
static void fill_exit(const struct exec_hub *hub, struct execution *row, const struct box_exit *e,
                      bool is_here, char text[REASON_MAX])
{
        row->exit_code = e->code;
        row->signal = e->signal;
        row->timed_out = e->flags & BOX_EXIT_TIMED_OUT;
        row->is_incomplete = e->flags & BOX_EXIT_INCOMPLETE;
        row->stdout_len = (int64_t)e->stdout_len;
        row->stderr_len = (int64_t)e->stderr_len;
        row->ended_at = (int64_t)e->ended_ms * US_PER_MS;
        if (e->flags & BOX_EXIT_STOPPED)
                row->reason = "The lease ended while the command ran.";
        else if (e->flags & BOX_EXIT_DISK_FULL)
                row->reason = exec_disk_full_reason(
                        hub->config.rt, is_here ? hub->output_dir : NULL, text, REASON_MAX);
        else if (e->flags & BOX_EXIT_OUTPUT)
                row->reason = exec_output_reason(e, text, REASON_MAX);
}

/* From the hub's knowledge */

static void record_run(struct pool_job *job, struct op *op)
{
        struct exec *e = container_of(job, struct exec, job);
        CLEAN(err_done) struct err err = { 0 };
        struct execution row = {
                .id = e->view.id,
                .status = e->final_status,
                .pid = e->view.pid,
                .started_at = e->view.started_at,
                .exit_code = e->final_code ? e->final_code : -1,
                .ended_at = clock_wall_us(),
                .updated_at = clock_now_us(),
        };
        char text[REASON_MAX];

        if (e->remote_run && !exec_remote_flush(e)) { /* room is waited for */
                e->recorded = false;
                return;
        }
        if (e->has_exit)
                fill_exit(e->hub, &row, &e->exit, e->is_here, text);
        if (e->reason[0])
                row.reason = e->reason;
        FAULT("exec.output.before");
        int r = exec_output_make_safe(e->hub, &row, &err);
        FAULT("exec.end.before");
        if (r >= 0)
                r = store_write(op, e->hub->config.rt->store, exec_write_end, &row, &err);
        FAULT("exec.end.after");
        e->recorded = r >= 0;
        if (r < 0)
                log_error("could not record the end of an execution",
                          LOG_S("execution", e->view.id), LOG_S("error", err.msg));
}

static void exec_record_again(uv_timer_t *timer);

static void record_done(struct pool_job *job);

void exec_retry_later(struct exec_hub *hub)
{
        if (!hub->closing && !uv_is_active((uv_handle_t *)&hub->record_timer))
                uv_timer_start(&hub->record_timer, exec_record_again, RECORD_AGAIN_MS, 0);
}

/* The disk may be full, or the daemon is stopping. The box keeps its record until we have it. */
static void record_later(struct exec *e)
{
        e->needs_record = true;
        exec_retry_later(e->hub);
}

static void submit_record(struct exec *e)
{
        e->needs_record = false;
        e->is_here = !e->box || e->box->route->is_here || e->was_refused;
        e->job = (struct pool_job){
                .run = record_run, .done = record_done, .urgent = true, .awaited = true
        };
        if (pool_submit(e->hub->config.pool, &e->job, NULL) < 0)
                record_later(e);
}

static void exec_record_again(uv_timer_t *timer)
{
        struct exec_hub *hub = container_of(timer, struct exec_hub, record_timer);

        for (size_t i = 0; i < EXEC_BUCKETS; i++)
                for (struct exec *e = hub->table[i]; e; e = e->next) {
                        if (e->needs_record)
                                submit_record(e);
                        exec_spool_again(e);
                }
}

static void record_done(struct pool_job *job)
{
        struct exec *e = container_of(job, struct exec, job);
        struct box *box = e->box;

        if (!e->recorded) {
                record_later(e);
                return;
        }
        if (box && box->link && e->channel && e->has_exit)
                box_link_forget(box->link, e->channel);
        if (e->has_exit) {
                int64_t bytes = exec_output_bytes(e->exit.stdout_len, e->exit.stderr_len);

                if (e->output.limit)
                        bytes = MIN(bytes, (int64_t)e->output.limit);
                exec_output_took(e->hub, box ? box->place_id : e->remote_place, bytes);
        }
        exec_drop_ended(e, e->final_status);
}

void exec_finish(struct exec *e, const char *status, const char *reason)
{
        if (e->phase == EXEC_ENDING) /* its record is being written, by a job that is in the pool */
                return;
        e->phase = EXEC_ENDING;
        e->final_status = status;
        snprintf(e->reason, sizeof(e->reason), "%s", reason ? reason : "");
        submit_record(e);
}

bool exec_lacked_room(const struct execution *row)
{
        return row->is_incomplete && row->reason && str_starts(row->reason, EXEC_DISK_FULL_REASON);
}

bool exec_lacked_means(const struct execution *row)
{
        return streq(row->status, EXEC_FAILED) && row->reason &&
               str_starts(row->reason, EXEC_NOT_NOW_REASON);
}

bool exec_never_began(const struct execution *row)
{
        return exec_lacked_means(row) || (streq(row->status, EXEC_FAILED) && row->reason &&
                                          streq(row->reason, EXEC_UNSTARTED_REASON));
}

/* From the files that a dead box left behind */

struct settlement {
        struct op *op;
        struct exec_hub *hub;
        const struct place *place;
        const struct box_route *route;
        bool closing;
        bool is_remote; /* a plugin ran it, or ssh without a box */
        struct execution *rows;
        const char **ids; /* NULL-terminated */
        size_t n;
};

static int note_open(void *ctx, const struct execution *row)
{
        struct settlement *s = ctx;

        if (!s->closing && intended_has(s->hub, row->id))
                return 0;
        s->rows = xrealloc(s->rows, (s->n + 1) * sizeof(*s->rows));
        s->ids = xrealloc(s->ids, (s->n + 2) * sizeof(*s->ids));
        s->rows[s->n] = *row;
        s->ids[s->n++] = row->id;
        s->ids[s->n] = NULL;
        return 0;
}

/* -1 when there is no such file. */
static int file_size(const char *dir, const char *name, int64_t *ret, struct err *err)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/%s", dir, name);
        struct stat st;

        *ret = -1;
        if (stat(path, &st) == 0)
                *ret = (int64_t)st.st_size;
        else if (life_by_errno(errno) == LIFE_UNKNOWN)
                return err_sys(err, ERR_IO, errno, "look at %s", path);
        return 0;
}

/* The exit record tells how the execution ended; without one that stays unknown. The box makes the
 * files before the process: where there are none, it never began, unless a power cut took their
 * names. A file that cannot be read now says nothing, and the execution stays open. */
static int judge_open(const struct settlement *s, struct execution *row, struct err *err)
{
        static const struct frame_header h = { .len = BOX_EXIT_RECORD - 4, .type = FRAME_EXIT };
        CLEAN(cleanup_free) char *dir = xasprintf("%s/%s", s->hub->output_dir, row->id);
        CLEAN(cleanup_free) char *path = xasprintf("%s/exit", dir);
        CLEAN(buf_done) struct buf record = { .max = 4096 };
        int64_t out, errors;
        struct box_exit e;

        row->updated_at = clock_now_us();
        row->ended_at = clock_wall_us();
        row->exit_code = -1;
        int r = file_read_at(AT_FDCWD, path, 256, &record, err);
        if (r == ERR_IO)
                return r;
        /* A box wrote it: its numbers are held against the same bounds as those of EXIT. */
        if (r >= 0 && frame_exit_record_parse(buf_str(&record), record.len, &e, NULL) >= 0 &&
            peer_frame_fits(&h, record.data + 4, NULL) >= 0) {
                row->status = EXEC_EXITED;
                fill_exit(s->hub, row, &e, s->route->is_here,
                          arena_alloc(s->op->arena, REASON_MAX));
                return 0;
        }
        err_clear(err);
        r = file_size(dir, "stdout", &out, err);
        if (r >= 0)
                r = file_size(dir, "stderr", &errors, err);
        if (r < 0)
                return r;
        if (out < 0 && row->boot_id && streq(row->boot_id, s->hub->config.rt->node.boot_id)) {
                row->status = EXEC_FAILED;
                row->reason = EXEC_UNSTARTED_REASON;
                return 0;
        }
        row->status = EXEC_LOST;
        row->is_incomplete = true;
        row->reason = s->is_remote ? EXEC_REMOTE_REASON : EXEC_LOST_REASON;
        row->stdout_len = MAX(out, 0);
        row->stderr_len = MAX(errors, 0);
        return 0;
}

static int write_settled(struct db *db, void *arg, struct err *err)
{
        struct settlement *s = arg;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < s->n; i++)
                r = executions_end(db, &s->rows[i], err);
        return r;
}

static int settle_rows(struct settlement *s, struct err *err)
{
        static const char *const none[] = { NULL };
        struct runtime *rt = s->hub->config.rt;

        FAULT("exec.bury.before");
        int r = s->route->bury(s->op, rt, s->place, s->ids ? s->ids : none, err);
        FAULT("exec.bury.after");
        for (size_t i = 0; r >= 0 && i < s->n; i++) {
                r = judge_open(s, &s->rows[i], err);
                if (r >= 0)
                        r = exec_output_make_safe(s->hub, &s->rows[i], err);
        }
        if (r >= 0 && s->n > 0)
                r = store_write(s->op, rt->store, write_settled, s, err);
        return MIN(r, 0);
}

static int settle_locked(struct settlement *s, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct runtime *rt = s->hub->config.rt;
        const struct kind *kind = NULL;
        struct place place;
        int r = 0;

        if (!s->closing) {
                r = s->route->is_alive(s->op, rt, s->place, err);
                if (r != 0)
                        return r > 0 ? SETTLE_ALIVE : SETTLE_UNKNOWN;
        }
        r = store_read_begin(s->op, rt->store, &db, err);
        if (r >= 0 && places_get(db, s->place->id, s->op->arena, &place, NULL) >= 0)
                kind = kind_of_place(rt, &place);
        s->is_remote = kind && kind->is_elsewhere;
        if (r >= 0)
                r = executions_open(db, s->place->id, s->op->arena, note_open, s, err);
        store_read_end(&db);
        if (r < 0)
                return r;
        if (s->closing || s->route->is_here || s->n == 0)
                return settle_rows(s, err);
        /* The box does not live. A box elsewhere kept its executions in its directory, where
         * another box finds them and reports them. */
        FAULT("exec.launch.before");
        r = s->route->ensure(s->op, rt, s->place, err);
        FAULT("exec.launch.after");
        return r < 0 ? SETTLE_UNKNOWN : SETTLE_ALIVE;
}

int exec_settle_place(struct op *op, struct exec_hub *hub, const struct place *place, bool closing,
                      struct err *err)
{
        struct settlement s = { .op = op,
                                .hub = hub,
                                .place = place,
                                .route = box_route_of(hub->config.rt, place),
                                .closing = closing };
        int r = box_locks_take(op, &hub->locks, place->id, err);

        if (r < 0)
                return r;
        r = settle_locked(&s, err);
        box_locks_give(&hub->locks, place->id);
        free(s.rows);
        free(s.ids);
        return r;
}
