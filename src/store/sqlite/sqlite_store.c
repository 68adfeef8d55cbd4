/* SQLite as a store: one writer thread, any number of readers.
 *
 * Writers queue their functions. The writer takes everything that is queued, runs each function in
 * a savepoint of one transaction, and commits once: while a commit waits for the disk the next
 * group collects behind it, so durable writes per second grow with the number of callers and not
 * with the speed of fdatasync. A function that fails rolls back to its savepoint; if the commit
 * itself fails, the whole group fails and nothing of it happened.
 *
 * A caller that finds no writer at work writes by itself, on its own thread: a group of one without
 * the way to the writer and back, which takes as long as a fast disk.
 *
 * Readers take a connection from a stack and put it back; write-ahead logging lets them run beside
 * the writer. */
#include "store/sqlite/sqlite_store.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "store/announce.h"
#include "store/migrate.h"
#include "store/sqlite/sqlite_check.h"
#include "store/sqlite/sqlite_conn.h"

/* How often a queued write looks whether its caller gave up. */
#define CANCEL_LOOK_MS 1000

enum write_state { WRITE_QUEUED, WRITE_TAKEN, WRITE_FINISHED };

/* On the stack of the thread that waits for it. */
struct write_job {
        struct write_job *next;
        store_fn fn;
        void *arg;
        struct err *err;
        int result;
        enum write_state state;
        pthread_cond_t finished;
};

struct sqlite_store {
        struct store base;
        char *path;
        /* failing until a commit shows that the disk works, damaged until a whole check finds
         * nothing */
        struct sqlite_health health;
        bool is_checked; /* when it was opened */

        pthread_mutex_t lock;
        pthread_cond_t work;
        pthread_t thread;
        struct write_job *head, **tail;
        bool writing; /* a thread uses `writer` */
        bool stopping;
        struct sqlite_conn *writer;

        pthread_mutex_t readers_lock;
        struct sqlite_conn **readers; /* that are not in use now */
        size_t n_readers;
};

/* Only a commit shows that the disk works again; a refusal says nothing about it. */
static void note_outcome(struct sqlite_store *s, int r, bool committed)
{
        if (r == ERR_IO || r == ERR_CORRUPT)
                atomic_store(&s->health.failing, true);
        else if (committed)
                atomic_store(&s->health.failing, false);
}

/* Run one function so that its failure undoes only itself. Alone in its group it needs no
 * savepoint. */
static int run_one(struct sqlite_store *s, struct write_job *job, bool alone)
{
        struct db *db = sqlite_conn_db(s->writer);
        struct announcement *mark = announce_mark(db);
        int r = 0;

        if (!alone)
                r = sqlite_conn_run(s->writer, "SAVEPOINT job", job->err);
        if (r >= 0)
                r = job->fn(db, job->arg, job->err);
        if (r < 0)
                announce_forget(db, mark);
        if (alone || !sqlite_conn_in_transaction(s->writer))
                return r;
        if (r < 0)
                (void)sqlite_conn_run(s->writer, "ROLLBACK TO job", NULL);
        (void)sqlite_conn_run(s->writer, "RELEASE job", NULL);
        return r;
}

/* SQLite gives up the whole transaction when it cannot write in the middle of it (the disk is full
 * and its cache too). Then what ran before is undone, and what would run after would commit by
 * itself, so the group ends here. */
static int check_transaction(struct sqlite_store *s, const struct write_job *job, struct err *err)
{
        if (sqlite_conn_in_transaction(s->writer))
                return 0;
        return err_set(err, job->result < 0 ? job->result : ERR_IO, "%s",
                       job->result < 0 ? job->err->msg : "The database gave the transaction up.");
}

/* A commit that failed counts for no job: every job in the group gets its error. */
static void fail_group(struct write_job *group, int code, const struct err *cause)
{
        for (struct write_job *job = group; job; job = job->next) {
                if (job->result < 0)
                        continue;
                job->result = code;
                err_set(job->err, code, "%s", cause->msg);
        }
}

static void run_group(struct sqlite_store *s, struct write_job *group)
{
        CLEAN(err_done) struct err err = { 0 };
        bool alone = !group->next, any = false;
        int r = sqlite_conn_run(s->writer, "BEGIN IMMEDIATE", &err);

        if (r < 0) {
                fail_group(group, r, &err);
                note_outcome(s, r, false);
                return;
        }
        for (struct write_job *job = group; r >= 0 && job; job = job->next) {
                job->result = run_one(s, job, alone);
                any = any || job->result >= 0;
                r = check_transaction(s, job, &err);
        }
        FAULT("store.commit.before");
        if (any && r >= 0)
                r = sqlite_conn_run(s->writer, "COMMIT", &err);
        if ((!any || r < 0) && sqlite_conn_in_transaction(s->writer))
                (void)sqlite_conn_run(s->writer, "ROLLBACK", NULL);
        if (r < 0)
                fail_group(group, r, &err);
        FAULT("store.commit.after");
        if (any && r >= 0)
                announce_tell(sqlite_conn_db(s->writer), &s->base);
        else
                announce_forget(sqlite_conn_db(s->writer), NULL);
        note_outcome(s, r < 0 ? r : alone ? group->result : 0, any && r >= 0);
}

static void *write_thread(void *arg)
{
        struct sqlite_store *s = arg;

        pthread_mutex_lock(&s->lock);
        for (;;) {
                struct write_job *group, *job, *next;

                while (s->writing || (!s->head && !s->stopping))
                        pthread_cond_wait(&s->work, &s->lock);
                if (!s->head)
                        break;
                s->writing = true;
                group = s->head;
                s->head = NULL;
                s->tail = &s->head;
                for (job = group; job; job = job->next)
                        job->state = WRITE_TAKEN;
                pthread_mutex_unlock(&s->lock);

                run_group(s, group);

                pthread_mutex_lock(&s->lock);
                s->writing = false;
                for (job = group; job; job = next) {
                        next = job->next; /* the job is gone once its owner sees FINISHED */
                        job->state = WRITE_FINISHED;
                        pthread_cond_signal(&job->finished);
                }
        }
        pthread_mutex_unlock(&s->lock);
        return NULL;
}

static void unlink_job(struct sqlite_store *s, struct write_job *job)
{
        struct write_job **at = &s->head;

        while (*at != job)
                at = &(*at)->next;
        *at = job->next;
        if (s->tail == &job->next)
                s->tail = at;
}

static void add_ms(struct timespec *t, int64_t ms)
{
        int64_t ns = t->tv_nsec + (ms % 1000) * 1000000;

        t->tv_sec += ms / 1000 + ns / 1000000000;
        t->tv_nsec = ns % 1000000000;
}

/* With the lock held. A job that the writer has taken is waited for however long it takes: its
 * outcome must be known. One that is still queued can be withdrawn. */
static int wait_for_job(struct sqlite_store *s, const struct op *op, struct write_job *job)
{
        while (job->state == WRITE_QUEUED) {
                struct timespec until;
                int r = op_check(op, job->err);

                if (r < 0) {
                        unlink_job(s, job);
                        return r;
                }
                clock_gettime(CLOCK_MONOTONIC, &until);
                add_ms(&until, op_time_left(op, CANCEL_LOOK_MS));
                pthread_cond_timedwait(&job->finished, &s->lock, &until);
        }
        while (job->state != WRITE_FINISHED)
                pthread_cond_wait(&job->finished, &s->lock);
        return job->result;
}

/* No job writes and no job waits. With the lock held, which is let go of meanwhile. */
static int write_here(struct sqlite_store *s, const struct op *op, struct write_job *job)
{
        int r = op_check(op, job->err);

        if (r < 0)
                return r;
        s->writing = true;
        pthread_mutex_unlock(&s->lock);
        run_group(s, job);
        pthread_mutex_lock(&s->lock);
        s->writing = false;
        if (s->head || s->stopping)
                pthread_cond_signal(&s->work);
        return job->result;
}

static int write_in_turn(struct sqlite_store *s, const struct op *op, struct write_job *job)
{
        pthread_condattr_t attr;

        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_cond_init(&job->finished, &attr);
        pthread_condattr_destroy(&attr);
        *s->tail = job;
        s->tail = &job->next;
        pthread_cond_signal(&s->work);
        int r = wait_for_job(s, op, job);
        pthread_cond_destroy(&job->finished);
        return r;
}

static int sqlite_store_write(const struct op *op, struct store *base, store_fn fn, void *arg,
                              struct err *err)
{
        struct sqlite_store *s = container_of(base, struct sqlite_store, base);
        struct err scratch = { 0 };
        struct write_job job = { .fn = fn, .arg = arg, .err = err ? err : &scratch };

        pthread_mutex_lock(&s->lock);
        int r = s->writing || s->head ? write_in_turn(s, op, &job) : write_here(s, op, &job);
        pthread_mutex_unlock(&s->lock);
        err_done(&scratch);
        return r;
}

static void sqlite_store_read_end(struct store *base, struct db *db)
{
        struct sqlite_store *s = container_of(base, struct sqlite_store, base);
        struct sqlite_conn *reader = sqlite_conn_of(db);

        if (sqlite_conn_in_transaction(reader))
                (void)sqlite_conn_run(reader, "ROLLBACK", NULL);
        pthread_mutex_lock(&s->readers_lock);
        s->readers = xrealloc(s->readers, (s->n_readers + 1) * sizeof(struct sqlite_conn *));
        s->readers[s->n_readers++] = reader;
        pthread_mutex_unlock(&s->readers_lock);
}

static int sqlite_store_read_begin(struct store *base, struct db **ret, struct err *err)
{
        struct sqlite_store *s = container_of(base, struct sqlite_store, base);
        struct sqlite_conn *reader = NULL;
        int r = 0;

        pthread_mutex_lock(&s->readers_lock);
        if (s->n_readers > 0)
                reader = s->readers[--s->n_readers];
        pthread_mutex_unlock(&s->readers_lock);
        if (!reader)
                r = sqlite_conn_open(s->path, false, &s->health, &reader, err);
        if (r < 0)
                return r;
        sqlite_conn_db(reader)->reads = base;
        r = sqlite_conn_run(reader, "BEGIN", err);
        if (r < 0)
                sqlite_store_read_end(base, sqlite_conn_db(reader));
        else
                *ret = sqlite_conn_db(reader);
        return r;
}

static bool sqlite_store_healthy(struct store *base)
{
        struct sqlite_store *s = container_of(base, struct sqlite_store, base);

        return !atomic_load(&s->health.failing) && !atomic_load(&s->health.damaged);
}

static bool sqlite_store_is_checked(struct store *base)
{
        return container_of(base, struct sqlite_store, base)->is_checked;
}

static bool sqlite_store_is_damaged(struct store *base)
{
        return atomic_load(&container_of(base, struct sqlite_store, base)->health.damaged);
}

/* A connection of its own: pages that were read long ago would come from a cache. */
static int sqlite_store_scrub(const struct op *op, struct store *base, struct err *err)
{
        struct sqlite_store *s = container_of(base, struct sqlite_store, base);
        int r = sqlite_check_tables(s->path, op, err);

        if (r == ERR_CORRUPT)
                atomic_store(&s->health.damaged, true);
        else if (r >= 0)
                atomic_store(&s->health.damaged, false);
        return r;
}

static void free_store(struct sqlite_store *s)
{
        for (size_t i = 0; i < s->n_readers; i++)
                sqlite_conn_close(s->readers[i]);
        free(s->readers);
        sqlite_conn_close(s->writer);
        pthread_mutex_destroy(&s->lock);
        pthread_mutex_destroy(&s->readers_lock);
        pthread_cond_destroy(&s->work);
        free(s->path);
        free(s);
}

static void sqlite_store_close(struct store *base)
{
        struct sqlite_store *s = container_of(base, struct sqlite_store, base);

        pthread_mutex_lock(&s->lock);
        s->stopping = true;
        pthread_cond_signal(&s->work);
        pthread_mutex_unlock(&s->lock);
        pthread_join(s->thread, NULL);
        free_store(s);
}

static const struct store_ops ops = {
        .close = sqlite_store_close,
        .read_begin = sqlite_store_read_begin,
        .read_end = sqlite_store_read_end,
        .write = sqlite_store_write,
        .healthy = sqlite_store_healthy,
        .is_checked = sqlite_store_is_checked,
        .is_damaged = sqlite_store_is_damaged,
        .scrub = sqlite_store_scrub,
};

static int run_migrations(struct sqlite_store *s, struct err *err)
{
        int r = sqlite_conn_run(s->writer, "BEGIN IMMEDIATE", err);

        if (r < 0)
                return r;
        FAULT("store.migrate.before");
        r = migrate(sqlite_conn_db(s->writer), err);
        FAULT("store.migrate.after");
        if (r < 0) {
                (void)sqlite_conn_run(s->writer, "ROLLBACK", NULL);
                return r;
        }
        return sqlite_conn_run(s->writer, "COMMIT", err);
}

/* The database holds digests of tokens and sealed secrets: no other user may read it. SQLite gives
 * its journal files the mode of the main file. */
static int create_private(const char *path, struct err *err)
{
        int fd = open(path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);

        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "open %s", path);
        close(fd);
        return 0;
}

int sqlite_store_open(const char *path, struct store **ret, struct err *err)
{
        struct sqlite_store *s;
        int r = create_private(path, err);

        if (r < 0)
                return r;
        s = xcalloc(1, sizeof(*s));
        s->base.ops = &ops;
        s->path = xstrdup(path);
        s->tail = &s->head;
        pthread_mutex_init(&s->lock, NULL);
        pthread_mutex_init(&s->readers_lock, NULL);
        pthread_cond_init(&s->work, NULL);
        r = sqlite_conn_open(path, true, &s->health, &s->writer, err);
        if (r >= 0)
                r = sqlite_check_small(s->writer, &s->is_checked, err);
        if (r >= 0)
                r = run_migrations(s, err);
        if (r >= 0) {
                r = pthread_create(&s->thread, NULL, write_thread, s);
                if (r != 0)
                        r = err_sys(err, ERR_INTERNAL, r, "start the writer thread");
        }
        if (r < 0) {
                free_store(s);
                return r;
        }
        *ret = &s->base;
        return 0;
}
