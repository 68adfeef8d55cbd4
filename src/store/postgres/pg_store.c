/* PostgreSQL as a store of one daemon: one writer connection, any number of readers.
 *
 * Writes go through one connection, in groups that share a commit, as in SQLite (write_queue.h): so
 * all that write functions rely on there holds here, and announcements come in the order of the
 * commits. A transaction is REPEATABLE READ; a conflict with another program's transaction repeats
 * the whole group.
 *
 * The writer's session holds an advisory lock, and only a session that holds it writes: while a
 * daemon has the database no second one does, and when a connection is lost the server has ended
 * its transaction before the next one gets the lock. The row of `store_writer` has the token of the
 * daemon that wrote last, and the number of its last commit, which is written in the same
 * transaction. After a COMMIT whose answer was lost the new session reads the number: it says
 * whether the commit happened. A token of another daemon means that it has had the database
 * meanwhile: then this one writes nothing any more.
 *
 * While the server is away, writes and reads wait a few seconds for it, since a restart takes no
 * longer; later ones fail at once until it is back. */
#include "store/postgres/pg_store.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/uuid.h"
#include "store/announce.h"
#include "store/migrate.h"
#include "store/postgres/pg_conn.h"
#include "store/write_queue.h"

/* How long a server that went away is waited for, and how often it is tried. */
#define RIDE_OUT_MS  5000
#define TRY_MS       50
#define TRY_LATER_MS 1000
/* A session that ended badly keeps its lock until the server has noticed. */
#define LOCK_WAIT_MS 5000
#define REPEATS_MAX  20
#define IDLE_READERS 16
/* "berth" */
#define LOCK_KEY "422777746536"

struct pg_store {
        struct store base;
        char *url;
        char name[64]; /* of the writer's session */
        struct uuid token;

        struct write_queue queue;
        struct pg_conn *writer; /* of the thread that runs a group; NULL: to be made */
        int64_t commits;
        _Atomic bool is_taken_over;

        _Atomic int64_t down_since_ms; /* 0: the server answers */
        _Atomic int64_t tried_ms;
        _Atomic bool damaged;

        pthread_mutex_t readers_lock;
        struct pg_conn *readers[IDLE_READERS]; /* that are not in use now */
        size_t n_readers;
};

static struct pg_store *pg_store_of(struct store *base)
{
        return container_of(base, struct pg_store, base);
}

static void pause_ms(int64_t ms)
{
        struct op op = { .deadline_ms = OP_NO_DEADLINE };

        (void)op_wait_fd(&op, -1, 0, ms, NULL);
}

/* -- Whether the server answers --------------------------------------------------------------- */

/* Whether it is worth waiting and trying again. */
static bool note_missed(struct pg_store *s)
{
        int64_t none = 0, now = clock_mono_ms();

        (void)atomic_compare_exchange_strong(&s->down_since_ms, &none, now);
        return now - atomic_load(&s->down_since_ms) < RIDE_OUT_MS;
}

/* A server that has been away for long is tried once a second, by whoever comes. */
static int may_try(struct pg_store *s, struct err *err)
{
        int64_t now = clock_mono_ms(), down = atomic_load(&s->down_since_ms);
        int64_t tried = atomic_load(&s->tried_ms);

        if (down && now - down >= RIDE_OUT_MS &&
            (now - tried < TRY_LATER_MS ||
             !atomic_compare_exchange_strong(&s->tried_ms, &tried, now)))
                return err_set(err, ERR_BUSY,
                               "The database server does not answer; try again in a moment.");
        return 0;
}

static int open_conn(struct pg_store *s, const char *name, struct pg_conn **ret, struct err *err)
{
        int r = may_try(s, err);

        if (r >= 0)
                r = pg_conn_open(s->url, name, ret, err);
        if (r >= 0)
                atomic_store(&s->down_since_ms, 0);
        return r;
}

/* -- The writer's session --------------------------------------------------------------------- */

static int try_lock(struct db *db, bool *ret, struct err *err)
{
        int64_t yes = 0;
        int r = db_number(db, "SELECT pg_try_advisory_lock(" LOCK_KEY ")", DB_NO_ARGS, &yes, err);

        *ret = r >= 0 && yes;
        return r;
}

/* Our own session from before, which the server has not missed yet. */
static int end_own_session(struct pg_store *s, struct db *db, struct err *err)
{
        int64_t n;

        return db_number(db,
                         "SELECT COUNT(*) FROM (SELECT pg_terminate_backend(pid) "
                         "FROM pg_stat_activity WHERE application_name = ?1 "
                         "AND datname = current_database() AND usename = current_user "
                         "AND pid <> pg_backend_pid()) ended",
                         DB_ARGS(DB_T(s->name)), &n, err);
}

static int say_who_has_it(struct db *db, struct err *err)
{
        struct arena arena;
        const char *who = NULL;

        arena_init(&arena);
        (void)db_text(db,
                      "SELECT a.application_name || COALESCE(' at ' || host(a.client_addr), '') "
                      "FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid "
                      "WHERE l.locktype = 'advisory' AND l.granted "
                      "AND l.database = (SELECT oid FROM pg_database "
                      "WHERE datname = current_database()) LIMIT 1",
                      DB_NO_ARGS, &arena, &who, NULL);
        int r = err_set(err, ERR_LOCKED,
                        "another berth daemon (%s) uses this database; stop it, or give this one a "
                        "database of its own",
                        who ? who : "unknown");
        arena_done(&arena);
        return r;
}

static int take_lock(struct pg_store *s, struct pg_conn *c, struct err *err)
{
        int64_t until = clock_mono_ms() + LOCK_WAIT_MS;
        struct db *db = pg_conn_db(c);
        bool got;
        int r;

        while ((r = try_lock(db, &got, err)) >= 0 && !got && clock_mono_ms() < until) {
                r = end_own_session(s, db, err);
                if (r < 0)
                        return r;
                pause_ms(TRY_MS);
        }
        return r < 0 || got ? r : say_who_has_it(db, err);
}

static int taken_over(struct err *err)
{
        return err_set(
                err, ERR_LOCKED,
                "Another berth daemon has had the database meanwhile; nothing is written any "
                "more. Stop one of both.");
}

/* The number of our last commit as the database has it. */
static int read_commits(struct pg_store *s, struct db *db, int64_t *ret, struct err *err)
{
        int r = db_number(db, "SELECT commits FROM store_writer WHERE id = 1 AND token = ?1",
                          DB_ARGS(DB_T(s->token.s)), ret, err);

        if (r != ERR_NOT_FOUND)
                return r;
        atomic_store(&s->is_taken_over, true);
        return taken_over(err);
}

/* A session that may write. *ret_commits: what the database has, when the session is new. */
static int need_writer(struct pg_store *s, int64_t *ret_commits, struct err *err)
{
        int r;

        if (atomic_load(&s->is_taken_over))
                return taken_over(err);
        if (s->writer && pg_conn_is_alive(s->writer))
                return 0;
        pg_conn_close(take_ptr(&s->writer));
        r = open_conn(s, s->name, &s->writer, err);
        if (r >= 0)
                r = take_lock(s, s->writer, err);
        if (r >= 0)
                r = read_commits(s, pg_conn_db(s->writer), ret_commits, err);
        if (r < 0)
                pg_conn_close(take_ptr(&s->writer));
        return r;
}

/* A writer for the group, waited for while the server may be restarting. */
static int await_writer(struct pg_store *s, int64_t *ret_commits, struct err *err)
{
        int r;

        while ((r = need_writer(s, ret_commits, err)) == ERR_BUSY && note_missed(s)) {
                pause_ms(TRY_MS);
                err_clear(err);
        }
        return r;
}

/* -- Writing ---------------------------------------------------------------------------------- */

#define BEGIN_WRITE "BEGIN ISOLATION LEVEL REPEATABLE READ"
#define MARK_COMMIT "UPDATE store_writer SET commits = $1 WHERE id = 1"

static void undo_job(struct pg_conn *c, bool alone)
{
        struct pg_state *state = pg_conn_state(c);

        if (alone) {
                pg_conn_roll_back(c);
                pg_conn_begin(c, BEGIN_WRITE);
                return;
        }
        pg_conn_keep_back(c, "ROLLBACK TO job");
        state->is_given_up = state->needs_care = false;
}

/* Run one function so that its failure undoes only itself; a second time, with a savepoint around
 * each statement, when it goes on after an error (pg_conn.h). */
static int run_one(struct pg_store *s, struct write_job *job, bool alone)
{
        struct pg_conn *c = s->writer;
        struct pg_state *state = pg_conn_state(c);
        struct db *db = pg_conn_db(c);
        struct pending_mark mark = pending_mark(db);

        if (!alone)
                pg_conn_keep_back(c, "SAVEPOINT job");
        int r = job->fn(db, job->arg, job->err);
        if (state->is_lost || state->must_repeat)
                return r;
        if (state->needs_care || (state->is_given_up && r >= 0)) {
                pending_undo(db, mark);
                undo_job(c, alone);
                err_clear(job->err);
                pg_conn_careful(c, true);
                r = job->fn(db, job->arg, job->err);
                pg_conn_careful(c, false);
        }
        if (r < 0) {
                pending_undo(db, mark);
                undo_job(c, alone);
        }
        if (!alone)
                pg_conn_keep_back(c, "RELEASE job");
        return r;
}

enum group_end { GROUP_DONE, GROUP_AGAIN, GROUP_UNKNOWN, GROUP_FAILED };

static enum group_end end_group(struct pg_store *s, bool any, struct err *err)
{
        struct pg_conn *c = s->writer;
        const struct pg_state *state = pg_conn_state(c);
        bool writes = any && state->has_written;
        int r = 0;

        FAULT("store.commit.before");
        if (writes)
                r = pg_conn_commit(c, MARK_COMMIT, s->commits + 1, err);
        else
                pg_conn_roll_back(c);
        FAULT("store.commit.after");
        if (r >= 0) {
                s->commits += writes;
                return GROUP_DONE;
        }
        if (state->commit_is_out)
                return GROUP_UNKNOWN;
        if (state->is_lost || state->must_repeat)
                return GROUP_AGAIN;
        if (r == ERR_CORRUPT)
                atomic_store(&s->damaged, true);
        return GROUP_FAILED;
}

static enum group_end try_group(struct pg_store *s, struct write_job *group, struct err *err)
{
        struct pg_conn *c = s->writer;
        const struct pg_state *state = pg_conn_state(c);
        bool alone = !group->next, any = false;

        pg_conn_begin(c, BEGIN_WRITE);
        for (struct write_job *job = group; job; job = job->next) {
                err_clear(job->err);
                job->result = run_one(s, job, alone);
                if (state->is_lost || state->must_repeat) {
                        err_set(err, job->err->code ? job->err->code : ERR_BUSY, "%s",
                                job->err->msg);
                        return GROUP_AGAIN;
                }
                if (job->result == ERR_CORRUPT)
                        atomic_store(&s->damaged, true);
                any = any || job->result >= 0;
        }
        return end_group(s, any, err);
}

/* What the lost connection's transaction had in memory goes over to the new one: whether it counts
 * is known only then. */
static void move_pending(struct db *from, struct db *to)
{
        to->first_announced = from->first_announced;
        to->last_announced = from->last_announced;
        to->kept = from->kept;
        from->first_announced = from->last_announced = NULL;
        from->kept = NULL;
}

/* The answer to COMMIT was lost. The new session sees whether it happened. */
static enum group_end resolve_commit(struct pg_store *s, struct err *err)
{
        struct db held = { 0 };
        int64_t commits = -1;

        move_pending(pg_conn_db(s->writer), &held);
        pg_conn_close(take_ptr(&s->writer));
        err_clear(err);
        int r = await_writer(s, &commits, err);
        if (r < 0) {
                pending_undo_all(&held);
                return GROUP_UNKNOWN;
        }
        move_pending(&held, pg_conn_db(s->writer));
        if (commits != s->commits + 1)
                return GROUP_AGAIN;
        s->commits = commits;
        return GROUP_DONE;
}

static void run_group(struct write_queue *q, struct write_job *group)
{
        struct pg_store *s = container_of(q, struct pg_store, queue);
        CLEAN(err_done) struct err err = { 0 };
        enum group_end end = GROUP_AGAIN;
        int64_t commits;
        int r = 0;

        for (int i = 0; end == GROUP_AGAIN && i < REPEATS_MAX; i++) {
                err_clear(&err);
                r = await_writer(s, &commits, &err);
                if (r < 0)
                        break;
                end = try_group(s, group, &err);
                if (end == GROUP_UNKNOWN)
                        end = resolve_commit(s, &err);
                if (end == GROUP_DONE || !s->writer)
                        break;
                for (struct write_job *job = group; end == GROUP_AGAIN && job; job = job->next)
                        job->result = 0;
                pending_undo_all(pg_conn_db(s->writer));
                pg_conn_roll_back(s->writer);
                if (end == GROUP_AGAIN && !pg_conn_state(s->writer)->is_lost)
                        pause_ms(MIN(1 << MIN(i, 6), TRY_MS));
        }
        if (end == GROUP_DONE) {
                pending_tell(pg_conn_db(s->writer), &s->base);
                return;
        }
        if (end == GROUP_UNKNOWN)
                r = err_set(&err, ERR_UNCERTAIN,
                            "The database server went away while it stored this, and it is not "
                            "known whether it did; look before you try again.");
        else if (r >= 0)
                r = err.code ? err.code : err_set(&err, ERR_BUSY, "The database is busy.");
        write_group_fail(group, r, &err);
}

static int pg_store_write(const struct op *op, struct store *base, store_fn fn, void *arg,
                          struct err *err)
{
        return write_queue_write(&pg_store_of(base)->queue, op, fn, arg, err);
}

/* -- Reading ---------------------------------------------------------------------------------- */

static struct pg_conn *idle_reader(struct pg_store *s)
{
        struct pg_conn *c = NULL;

        do {
                pg_conn_close(c);
                c = NULL;
                pthread_mutex_lock(&s->readers_lock);
                if (s->n_readers > 0)
                        c = s->readers[--s->n_readers];
                pthread_mutex_unlock(&s->readers_lock);
        } while (c && !pg_conn_is_alive(c));
        return c;
}

static int pg_store_read_begin(const struct op *op, struct store *base, struct db **ret,
                               struct err *err)
{
        struct pg_store *s = pg_store_of(base);
        struct pg_conn *c = idle_reader(s);
        int r = 0;

        while (!c && (r = open_conn(s, "berth", &c, err)) == ERR_BUSY && note_missed(s)) {
                err_clear(err);
                r = op_wait_fd(op, -1, 0, TRY_MS, err);
                if (r < 0)
                        return r;
        }
        if (r < 0)
                return r;
        pg_conn_limit(c, op);
        pg_conn_begin(c, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        pg_conn_db(c)->reads = base;
        *ret = pg_conn_db(c);
        return 0;
}

static void pg_store_read_end(struct store *base, struct db *db)
{
        struct pg_store *s = pg_store_of(base);
        struct pg_conn *c = pg_conn_of(db);

        pg_conn_roll_back(c);
        pg_conn_limit(c, NULL);
        pthread_mutex_lock(&s->readers_lock);
        if (!pg_conn_state(c)->is_lost && s->n_readers < IDLE_READERS)
                s->readers[s->n_readers++] = take_ptr(&c);
        pthread_mutex_unlock(&s->readers_lock);
        pg_conn_close(c);
}

/* -- The whole -------------------------------------------------------------------------------- */

static bool pg_store_healthy(struct store *base)
{
        struct pg_store *s = pg_store_of(base);

        return !atomic_load(&s->down_since_ms) && !atomic_load(&s->is_taken_over) &&
               !atomic_load(&s->damaged);
}

/* The server looks after its files; a daemon does not read them through. */
static bool pg_store_is_checked(struct store *base)
{
        return true;
}

static bool pg_store_is_damaged(struct store *base)
{
        return atomic_load(&pg_store_of(base)->damaged);
}

static int pg_store_scrub(const struct op *op, struct store *base, struct err *err)
{
        atomic_store(&pg_store_of(base)->damaged, false);
        return 0;
}

static void free_store(struct pg_store *s)
{
        for (size_t i = 0; i < s->n_readers; i++)
                pg_conn_close(s->readers[i]);
        pg_conn_close(s->writer);
        pthread_mutex_destroy(&s->readers_lock);
        free(s->url);
        free(s);
}

static void pg_store_close(struct store *base)
{
        struct pg_store *s = pg_store_of(base);

        write_queue_stop(&s->queue);
        free_store(s);
}

static const struct store_ops ops = {
        .close = pg_store_close,
        .read_begin = pg_store_read_begin,
        .read_end = pg_store_read_end,
        .write = pg_store_write,
        .healthy = pg_store_healthy,
        .is_checked = pg_store_is_checked,
        .is_damaged = pg_store_is_damaged,
        .scrub = pg_store_scrub,
};

/* Before anything is taken: a newer Berth's database stays as it is. */
static int check_version(struct db *db, struct err *err)
{
        int64_t there;
        int r = db_number(db, "SELECT to_regclass('schema_migrations') IS NOT NULL", DB_NO_ARGS,
                          &there, err);

        return r < 0 || !there ? r : migrate_check(db, err);
}

/* The tables, and that this daemon is the one that writes. */
static int settle(struct pg_store *s, struct err *err)
{
        struct pg_conn *c = s->writer;
        struct db *db = pg_conn_db(c);

        pg_conn_begin(c, BEGIN_WRITE);
        FAULT("store.migrate.before");
        int r = migrate(db, err);
        if (r >= 0)
                r = db_script(db,
                              "CREATE TABLE IF NOT EXISTS store_writer (id BIGINT PRIMARY KEY "
                              "CHECK (id = 1), token TEXT NOT NULL, commits BIGINT NOT NULL)",
                              err);
        if (r >= 0)
                r = db_exec(db,
                            "INSERT INTO store_writer (id, token, commits) VALUES (1, ?1, 0) "
                            "ON CONFLICT (id) DO UPDATE SET token = ?1, commits = 0",
                            DB_ARGS(DB_T(s->token.s)), err);
        FAULT("store.migrate.after");
        if (r >= 0)
                return pg_conn_commit(c, MARK_COMMIT, 0, err);
        pg_conn_roll_back(c);
        return r;
}

int pg_store_open(const char *url, struct store **ret, struct err *err)
{
        struct pg_store *s;
        int r = pg_url_check(url, err);

        if (r < 0)
                return r;
        s = xcalloc(1, sizeof(*s));
        s->base.ops = &ops;
        s->url = xstrdup(url);
        s->token = uuid_new();
        snprintf(s->name, sizeof(s->name), "berth %s", s->token.s);
        pthread_mutex_init(&s->readers_lock, NULL);
        r = pg_conn_open(url, s->name, &s->writer, err);
        if (r >= 0)
                r = check_version(pg_conn_db(s->writer), err);
        if (r >= 0)
                r = take_lock(s, s->writer, err);
        if (r >= 0)
                r = settle(s, err);
        if (r >= 0)
                r = write_queue_start(&s->queue, run_group, err);
        if (r < 0) {
                free_store(s);
                return r;
        }
        *ret = &s->base;
        return 0;
}
