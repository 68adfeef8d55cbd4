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

#include "base/fault.h"
#include "store/announce.h"
#include "store/migrate.h"
#include "store/sqlite/sqlite_check.h"
#include "store/sqlite/sqlite_conn.h"
#include "store/write_queue.h"

struct sqlite_store {
        struct store base;
        char *path;
        /* failing until a commit shows that the disk works, damaged until a whole check finds
         * nothing */
        struct sqlite_health health;
        bool is_checked; /* when it was opened */

        struct write_queue queue;
        struct sqlite_conn *writer; /* of the thread that runs a group */

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

#ifdef BERTH_FAULTS
/* In the test build on demand: a first run that is undone. PostgreSQL's store repeats functions by
 * need (store.h), and a function that cannot be repeated shows itself here. */
static int rehearse(struct sqlite_store *s, const struct write_job *job)
{
        struct db *db = sqlite_conn_db(s->writer);
        struct pending_mark mark = pending_mark(db);
        CLEAN(err_done) struct err err = { 0 };
        int r;

        if (!getenv("BERTH_TEST_REPEAT_WRITES"))
                return 0;
        r = sqlite_conn_run(s->writer, "SAVEPOINT rehearsal", job->err);
        if (r < 0)
                return r;
        (void)job->fn(db, job->arg, &err);
        pending_undo(db, mark);
        if (!sqlite_conn_in_transaction(s->writer))
                return sqlite_conn_run(s->writer, "BEGIN IMMEDIATE", job->err);
        return sqlite_conn_run(s->writer, "ROLLBACK TO rehearsal; RELEASE rehearsal", job->err);
}
#else
#define rehearse(s, job) 0
#endif

/* Run one function so that its failure undoes only itself. Alone in its group it needs no
 * savepoint. */
static int run_one(struct sqlite_store *s, struct write_job *job, bool alone)
{
        struct db *db = sqlite_conn_db(s->writer);
        struct pending_mark mark = pending_mark(db);
        int r = rehearse(s, job);

        if (r >= 0 && !alone)
                r = sqlite_conn_run(s->writer, "SAVEPOINT job", job->err);
        if (r >= 0)
                r = job->fn(db, job->arg, job->err);
        if (r < 0)
                pending_undo(db, mark);
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

static void run_group(struct write_queue *q, struct write_job *group)
{
        struct sqlite_store *s = container_of(q, struct sqlite_store, queue);
        CLEAN(err_done) struct err err = { 0 };
        bool alone = !group->next, any = false;
        int r = sqlite_conn_run(s->writer, "BEGIN IMMEDIATE", &err);

        if (r < 0) {
                write_group_fail(group, r, &err);
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
                write_group_fail(group, r, &err);
        FAULT("store.commit.after");
        if (any && r >= 0)
                pending_tell(sqlite_conn_db(s->writer), &s->base);
        else
                pending_undo_all(sqlite_conn_db(s->writer));
        note_outcome(s, r < 0 ? r : alone ? group->result : 0, any && r >= 0);
}

static int sqlite_store_write(const struct op *op, struct store *base, store_fn fn, void *arg,
                              struct err *err)
{
        struct sqlite_store *s = container_of(base, struct sqlite_store, base);

        return write_queue_write(&s->queue, op, fn, arg, err);
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

static int sqlite_store_read_begin(const struct op *op, struct store *base, struct db **ret,
                                   struct err *err)
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
        pthread_mutex_destroy(&s->readers_lock);
        free(s->path);
        free(s);
}

static void sqlite_store_close(struct store *base)
{
        struct sqlite_store *s = container_of(base, struct sqlite_store, base);

        write_queue_stop(&s->queue);
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
        pthread_mutex_init(&s->readers_lock, NULL);
        r = sqlite_conn_open(path, true, &s->health, &s->writer, err);
        if (r >= 0)
                r = sqlite_check_small(s->writer, &s->is_checked, err);
        if (r >= 0)
                r = run_migrations(s, err);
        if (r >= 0)
                r = write_queue_start(&s->queue, run_group, err);
        if (r < 0) {
                free_store(s);
                return r;
        }
        *ret = &s->base;
        return 0;
}
