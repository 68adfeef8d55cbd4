/* Output of a box that does not share our files: it sends DATA, and we write the files that a box
 * on this machine would have written, so that readers see no difference.
 *
 * The file holds all that we have: the box is asked to go on at its length, after a lost link as
 * after a restart. A byte is written at its own offset, once; the box may drop it when our ACK says
 * that it is safe, and we send ACK only for bytes that are on the disk. The credit given beyond the
 * file's length bounds what we keep in memory.
 *
 * The loop thread receives and answers; a pool job writes, one at a time for each execution. While
 * the job is busy, the members marked below belong to it. A disk that refuses makes the command
 * wait, and is tried again, for as long as a full spool is waited for (output_wait_ms). Then the
 * command is killed, and output that comes until its end is thrown away. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/exec/exec_internal.h"

#define WINDOW           ((uint64_t)512 << 10)
#define WINDOW_AGAIN     ((uint64_t)4 << 10)
#define CLOCK_DIFFERS_MS ((uint64_t)86400 * 1000)
#define SYNC_MAX         ((uint64_t)8 << 20) /* written and not yet known to be on the disk */

struct spool_stream {
        int fd;          /* the job's while it is busy, as the next three */
        uint64_t stored; /* bytes in the file */
        uint64_t safe;   /* and on the disk */
        struct buf writing;
        struct buf waiting; /* behind `writing` */
        uint64_t got;       /* stored and what is to be written */
        uint64_t box_len;   /* what the box had when we attached */
        uint64_t limit;     /* told to the box */
        uint64_t window;    /* what it may be beyond `stored` */
        bool open;          /* it was told on this link where to go on */
};

struct exec_spool {
        struct exec *e; /* NULL: dropped while the job was busy */
        char *dir;
        struct pool_job job;
        bool busy, ready; /* ready: the files are open */
        bool want_sync, failed, was_failing;
        bool is_named;  /* the names of the files are on the disk; the job's */
        bool attaching; /* the box waits for our first ACK */
        bool has_exit;
        const char *lost_reason; /* NULL: the box told of its end */
        bool is_refused;         /* the disk took nothing for too long */
        bool lacks_room;         /* because it is full; the job's */
        int64_t failing_since;   /* monotonic; 0: it does not */
        uint64_t max;            /* bytes that are taken, both together */
        uint64_t drops_over;     /* the oldest goes when more is kept; 0: it does not */
        uint64_t dropped[2];     /* of the files; the job's */
        bool keeps_all;          /* the oldest could not go; the job's */
        bool is_over;            /* the box sent more than its limit */
        struct box_exit exit;
        struct spool_stream streams[2];
};

static const char *const names[] = { "stdout", "stderr" };

static void spool_free(struct exec_spool *s)
{
        for (int i = 0; i < 2; i++) {
                cleanup_fd(&s->streams[i].fd);
                buf_done(&s->streams[i].waiting);
                buf_done(&s->streams[i].writing);
        }
        free(s->dir);
        free(s);
}

/* Writing; on a pool thread */

static int open_stream(struct exec_spool *s, int i, struct err *err)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/%s", s->dir, names[i]);
        struct spool_stream *t = &s->streams[i];
        struct stat st;

        /* A power cut takes a directory in which nothing was safe yet; the box has all of it. */
        if (t->fd < 0 && mkdir(s->dir, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "make %s", s->dir);
        if (t->fd < 0)
                t->fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (t->fd < 0 || fstat(t->fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "open %s", path);
        t->stored = (uint64_t)st.st_size;
        return 0;
}

static int write_stream(struct exec_spool *s, struct spool_stream *t, struct err *err)
{
        while (t->writing.len > 0) {
                ssize_t n = pwrite(t->fd, t->writing.data, t->writing.len, (off_t)t->stored);

                if (n < 0 && errno == EINTR)
                        continue;
                s->lacks_room = n < 0 && (errno == ENOSPC || errno == EDQUOT);
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "write output");
                t->stored += (uint64_t)n;
                buf_consume(&t->writing, (size_t)n);
        }
        return 0;
}

/* A file without its name would not be found again. */
static int sync_names(struct exec_spool *s, struct err *err)
{
        int r = s->is_named ? 0 : file_sync(AT_FDCWD, s->dir, err);

        if (r >= 0 && !s->is_named)
                r = file_sync_parent(AT_FDCWD, s->dir, err);
        s->is_named = r >= 0;
        return r;
}

static int sync_stream(struct spool_stream *t, struct err *err)
{
        if (t->safe == t->stored)
                return 0;
        if (fdatasync(t->fd) < 0)
                return err_sys(err, ERR_IO, errno, "make output safe");
        t->safe = t->stored;
        return 0;
}

static void write_run(struct pool_job *job, struct op *op)
{
        struct exec_spool *s = container_of(job, struct exec_spool, job);
        CLEAN(err_done) struct err err = { 0 };
        int r = 0;

        for (int i = 0; i < 2 && r >= 0 && !s->ready; i++)
                r = open_stream(s, i, &err);
        s->ready = r >= 0;
        FAULT("exec.data.before");
        for (int i = 0; i < 2 && r >= 0; i++)
                r = write_stream(s, &s->streams[i], &err);
        if (r >= 0 && s->drops_over)
                s->keeps_all = !exec_output_drop(
                        (const int[]){ s->streams[0].fd, s->streams[1].fd },
                        (const uint64_t[]){ s->streams[0].stored, s->streams[1].stored },
                        s->dropped, s->drops_over);
        FAULT("exec.data.after");
        for (int i = 0; i < 2 && r >= 0 && s->want_sync; i++)
                r = sync_stream(&s->streams[i], &err);
        if (r >= 0 && s->want_sync && (s->streams[0].safe > 0 || s->streams[1].safe > 0))
                r = sync_names(s, &err);
        FAULT("exec.data.safe");
        s->failed = r < 0;
        if (r < 0 && !s->was_failing)
                log_error("could not write output", LOG_S("directory", s->dir),
                          LOG_S("error", err.msg));
}

/* Deciding what comes next; on the loop */

static void spool_turn(struct exec_spool *s);

static struct box_link *link_of(const struct exec_spool *s)
{
        return s->e->channel ? s->e->box->link : NULL;
}

static void show_lengths(struct exec_spool *s)
{
        struct exec *e = s->e;
        bool grew = e->view.stdout_len != s->streams[0].stored ||
                    e->view.stderr_len != s->streams[1].stored;

        exec_set_lengths(e, s->streams[0].stored, s->streams[1].stored);
        if (grew)
                exec_changed(e);
}

static void say_ack(struct exec_spool *s, int i, uint64_t stored)
{
        struct spool_stream *t = &s->streams[i];

        t->limit = t->stored + t->window;
        t->window = MIN(2 * t->window, WINDOW);
        box_link_ack(link_of(s), s->e->channel, (uint8_t)(i + BOX_STDOUT), stored, t->limit);
}

/* After a write: there is room for more. */
static void give_credit(struct exec_spool *s)
{
        for (int i = 0; i < 2; i++) {
                struct spool_stream *t = &s->streams[i];

                if (link_of(s) && t->open && t->limit < t->stored + t->window)
                        say_ack(s, i, MIN(t->safe, t->stored));
        }
}

/* The box sends EXIT only after the output, so the output has to flow. */
static void take_and_drop(struct exec_spool *s)
{
        for (int i = 0; i < 2; i++) {
                struct spool_stream *t = &s->streams[i];

                if (!link_of(s) || !t->open)
                        continue;
                t->limit = MAX(t->limit, t->got + WINDOW);
                box_link_ack(link_of(s), s->e->channel, (uint8_t)(i + BOX_STDOUT),
                             MIN(t->safe, t->stored), t->limit);
        }
}

/* Whether the disk has refused for too long; from then on nothing more is written. */
static bool note_refusal(struct exec_spool *s)
{
        int64_t now = clock_mono_ms();

        if (!s->failing_since)
                s->failing_since = now;
        if (!s->e->box->stopping &&
            now - s->failing_since < s->e->hub->config.rt->settings.output_wait_ms)
                return false;
        s->is_refused = true;
        for (int i = 0; i < 2; i++) {
                buf_clear(&s->streams[i].writing);
                buf_clear(&s->streams[i].waiting);
        }
        if (link_of(s) && !s->has_exit)
                box_link_signal(link_of(s), s->e->channel, SIGKILL);
        take_and_drop(s);
        return true;
}

static void write_done(struct pool_job *job)
{
        struct exec_spool *s = container_of(job, struct exec_spool, job);

        s->busy = false;
        if (!s->e) {
                spool_free(s);
                return;
        }
        for (int i = 0; i < 2; i++) {
                struct spool_stream *t = &s->streams[i];

                t->got = t->stored + t->writing.len + t->waiting.len;
        }
        if (s->keeps_all) {
                s->max = s->drops_over;
                s->drops_over = 0;
                s->keeps_all = false;
        }
        if (s->ready) {
                show_lengths(s);
                give_credit(s);
        }
        if (s->failed && !note_refusal(s)) {
                s->was_failing = true;
                exec_retry_later(s->e->hub);
                return;
        }
        s->was_failing = false;
        if (!s->failed)
                s->failing_since = 0;
        spool_turn(s);
}

/* Whether the job has something to do. */
static bool spool_has_work(struct exec_spool *s)
{
        bool work = !s->ready;

        if (s->is_refused)
                return false;
        s->want_sync = s->attaching; /* at the end, the job that records it syncs */
        for (int i = 0; i < 2; i++) {
                struct spool_stream *t = &s->streams[i];

                if (t->writing.len == 0) {
                        struct buf empty = t->writing;

                        t->writing = t->waiting;
                        t->waiting = empty;
                }
                work = work || t->writing.len > 0;
                if (t->stored + t->writing.len - t->safe >
                    MIN(SYNC_MAX, s->e->box->spool_limit / 4))
                        s->want_sync = true;
        }
        for (int i = 0; i < 2; i++)
                work = work || (s->want_sync && s->streams[i].safe < s->streams[i].stored);
        return work;
}

static void spool_finish(struct exec_spool *s)
{
        uint64_t now = (uint64_t)(clock_wall_us() / US_PER_MS);
        struct box_exit exit = s->exit;

        /* Its clock is not ours, and what ended long ago is forgotten. */
        if (exit.ended_ms > now || exit.ended_ms + CLOCK_DIFFERS_MS < now)
                exit.ended_ms = now;
        if (exit.stdout_len != s->streams[0].stored || exit.stderr_len != s->streams[1].stored)
                exit.flags |= BOX_EXIT_INCOMPLETE;
        if (s->is_over)
                exit.flags |= BOX_EXIT_OUTPUT;
        if (s->is_refused)
                exit.flags |= BOX_EXIT_INCOMPLETE | (s->lacks_room ? BOX_EXIT_DISK_FULL : 0);
        s->e->was_refused = s->is_refused;
        exit.stdout_len = s->streams[0].stored;
        exit.stderr_len = s->streams[1].stored;
        exec_take_exit(s->e, &exit, s->lost_reason ? s->lost_reason : EXEC_LOST_REASON);
}

static void spool_turn(struct exec_spool *s)
{
        if (s->busy)
                return;
        if (spool_has_work(s)) {
                s->job = (struct pool_job){
                        .run = write_run, .done = write_done, .urgent = true, .awaited = true
                };
                s->busy = pool_submit(s->e->hub->config.pool, &s->job, NULL) >= 0;
                if (!s->busy)
                        exec_retry_later(s->e->hub);
                return;
        }
        if (s->attaching && link_of(s)) {
                s->attaching = false;
                /* All that is safe is named; a box that has less than we have lost some of its own
                 * disk. */
                for (int i = 0; i < 2; i++) {
                        s->streams[i].open = true;
                        say_ack(s, i, MIN(s->streams[i].stored, s->streams[i].box_len));
                }
                if (s->is_refused) {
                        box_link_signal(link_of(s), s->e->channel, SIGKILL);
                        take_and_drop(s);
                }
        }
        if (s->has_exit && s->e->phase != EXEC_ENDING)
                spool_finish(s);
}

/* The hub's calls */

/* A box that keeps to the limits of START never sends more. If one does, no more is kept. */
static void set_limits(struct exec_spool *s)
{
        struct exec *e = s->e;

        if (e->output.limit == 0)
                e->output = exec_output_limits(e->hub->config.rt, &e->box->kept->place);
        s->max = exec_output_max(&e->output);
        if (e->output.full == BOX_OUTPUT_DROP) {
                s->drops_over = s->max;
                s->max = UINT64_MAX;
        }
}

/* How many of `len` more bytes are taken; a box that is over its limit is told to end it. */
static size_t within_limit(struct exec_spool *s, size_t len)
{
        uint64_t got = s->streams[0].got + s->streams[1].got;

        if (got <= s->max && len <= s->max - got)
                return len;
        if (!s->is_over)
                box_link_signal(link_of(s), s->e->channel, SIGKILL);
        s->is_over = true;
        return got < s->max ? (size_t)(s->max - got) : 0;
}

void exec_spool_attach(struct exec *e, const struct box_state *state)
{
        struct exec_spool *s = e->spool;

        if (!s) {
                s = e->spool = xcalloc(1, sizeof(*s));
                s->e = e;
                s->dir = xasprintf("%s/%s", e->hub->output_dir, e->view.id);
                s->streams[0].fd = s->streams[1].fd = -1;
                set_limits(s);
        }
        s->streams[0].box_len = state ? state->stdout_len : 0;
        s->streams[1].box_len = state ? state->stderr_len : 0;
        /* Frames are small at first when a link was lost: one that never lasts for a large one
         * must still get on. */
        s->streams[0].window = s->streams[1].window = state ? WINDOW_AGAIN : WINDOW;
        s->attaching = true;
        spool_turn(s);
}

void exec_spool_detach(struct exec *e)
{
        if (!e->spool)
                return;
        e->spool->attaching = false;
        e->spool->streams[0].open = e->spool->streams[1].open = false;
}

int exec_spool_data(struct exec *e, uint8_t stream, uint64_t offset, const char *data, size_t len,
                    struct err *err)
{
        struct exec_spool *s = e->spool;

        if (!s || !s->streams[stream - BOX_STDOUT].open || s->has_exit)
                return err_set(err, ERR_INVALID, "the box sent output that nobody asked for");
        if (s->is_over)
                return 0;
        struct spool_stream *t = &s->streams[stream - BOX_STDOUT];
        if (offset > t->got || offset > t->limit || len > t->limit - offset)
                return err_set(err, ERR_INVALID,
                               "the box sent output with a gap or past its credit");
        size_t known = (size_t)MIN((uint64_t)len, t->got - offset);
        if (s->is_refused) {
                t->got += len - known;
                take_and_drop(s);
                return 0;
        }
        len = known + within_limit(s, len - known);
        buf_append(&t->waiting, data + known, len - known);
        if (buf_failed(&t->waiting))
                return err_set(err, ERR_BUSY, "no memory for output");
        t->got += len - known;
        spool_turn(s);
        return 0;
}

void exec_spool_exit(struct exec *e, const struct box_exit *exit)
{
        struct exec_spool *s = e->spool;

        if (!s || s->has_exit)
                return;
        s->has_exit = true;
        s->exit = *exit;
        spool_turn(s);
}

void exec_spool_lost(struct exec *e, const char *reason)
{
        if (!e->spool)
                exec_spool_attach(e, NULL);
        if (e->spool->has_exit)
                return;
        e->spool->lost_reason = reason;
        exec_drop_start(e); /* not to be sent again */
        exec_spool_exit(e, &(struct box_exit){ .code = -1, .flags = BOX_EXIT_INCOMPLETE });
}

void exec_spool_again(struct exec *e)
{
        if (e->spool)
                spool_turn(e->spool);
}

void exec_spool_drop(struct exec *e)
{
        struct exec_spool *s = take_ptr(&e->spool);

        if (!s)
                return;
        s->e = NULL;
        if (!s->busy)
                spool_free(s);
}

int exec_spool_prepare(const char *dir, struct err *err)
{
        for (int i = 0; i < 2; i++) {
                CLEAN(cleanup_free) char *path = xasprintf("%s/%s", dir, names[i]);
                CLEAN(cleanup_fd)
                int fd = open(path, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);

                if (fd < 0)
                        return err_sys(err, ERR_IO, errno, "make a file for the output");
        }
        return 0;
}
