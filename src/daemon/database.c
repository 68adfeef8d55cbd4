/* `berth db`: backing up, checking and restoring the database. */
#define _GNU_SOURCE
#include "daemon/database.h"

#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>
#include <time.h>

#include "base/clock.h"
#include "base/fd.h"
#include "cli/output.h"
#include "core/leases/leaks.h"
#include "daemon/config.h"
#include "daemon/datadir.h"
#include "daemon/home.h"
#include "store/copy.h"
#include "store/home.h"
#include "store/migrate.h"
#include "store/postgres/pg_conn.h"
#include "store/sqlite/sqlite_check.h"

struct work {
        const struct cli_database_options *o;
        struct config config;
        struct arena *arena;
        json_t *findings; /* of a check; texts */
};

static bool has_bytes(const char *path)
{
        struct stat st;

        return stat(path, &st) == 0 && st.st_size > 0;
}

static int need_database(const struct work *w, struct err *err)
{
        if (!has_bytes(w->config.database))
                return err_set(err, ERR_NOT_FOUND,
                               "there is no database at %s; name its directory with --data",
                               w->config.database);
        return 0;
}

static const char *time_stamp(struct arena *arena)
{
        time_t now = (time_t)(clock_wall_us() / US_PER_S);
        char text[32];
        struct tm tm;

        strftime(text, sizeof(text), "%Y%m%dT%H%M%SZ", gmtime_r(&now, &tm));
        return arena_strdup(arena, text);
}

/* -- Checking ---------------------------------------------------------------------------------- */

static void add_finding(void *ctx, const char *text)
{
        struct work *w = ctx;

        json_array_append_new(w->findings, json_string(text));
}

static void add_row_finding(void *ctx, const char *what, const char *id)
{
        struct work *w = ctx;

        add_finding(w, arena_printf(w->arena, "%s: %s", what, id));
}

struct files {
        struct work *w;
        const struct row_files *of;
};

static int look_for_files(void *ctx, const char *id)
{
        struct files *f = ctx;
        const char *path =
                arena_printf(f->w->arena, "%s/%s/%s", f->w->config.data_dir, f->of->dir, id);

        if (access(path, F_OK) < 0 && errno == ENOENT)
                add_row_finding(f->w, f->of->is_missing, id);
        return 0;
}

static void add_unnamed_files(void *ctx, const char *name)
{
        struct files *f = ctx;

        add_finding(f->w, arena_printf(f->w->arena, "%s/%s: nothing in the record names it",
                                       f->of->dir, name));
}

static int check_directory(struct files *f, struct db *db, struct err *err)
{
        const char *data_dir = f->w->config.data_dir;
        char **names;
        int r = row_files_list(f->of, data_dir, f->w->arena, &names, err);

        if (r >= 0)
                r = row_files_unnamed(db, f->of, data_dir, names, f->w->arena, add_unnamed_files, f,
                                      err);
        if (r >= 0 && f->of->is_missing)
                r = rows_with_files(db, f->of->kind, f->w->arena, look_for_files, f, err);
        return r;
}

static int check_rows(struct work *w, struct db *db, bool with_directory, struct err *err)
{
        int64_t version;
        int r = db_number(db, "SELECT MAX(version) FROM schema_migrations", DB_NO_ARGS, &version,
                          err);

        if (r >= 0)
                r = rows_check(db, add_row_finding, w, err);
        for (size_t i = 0; r >= 0 && with_directory && i < N_ROW_FILES; i++) {
                struct files f = { w, &row_files[i] };

                r = check_directory(&f, db, err);
        }
        return r < 0 ? r : 0;
}

static int check_opened(struct work *w, struct sqlite_conn *c, bool with_directory, struct err *err)
{
        int r = sqlite_check_all(c, add_finding, w, err);

        if (r > 0) /* the rows mean nothing then */
                return 0;
        if (r >= 0)
                r = sqlite_check_references(c, add_finding, w, err);
        return r < 0 ? r : check_rows(w, sqlite_conn_db(c), with_directory, err);
}

/* A look into a database on a server, beside its daemon: one moment, read only. */
static int open_server(const struct work *w, struct pg_conn **ret, struct err *err)
{
        int r = pg_url_check(w->config.database, err);

        if (r >= 0)
                r = pg_conn_open(w->config.database, "berth db", ret, err);
        if (r >= 0)
                pg_conn_begin(*ret, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY");
        return r;
}

/* The server looks after its files; the rules between rows are ours. */
static int check_server(struct work *w, struct err *err)
{
        struct pg_conn *c;
        int r = open_server(w, &c, err);

        if (r < 0)
                return r;
        r = check_rows(w, pg_conn_db(c), true, err);
        pg_conn_close(c);
        return r;
}

/* Damage that keeps SQLite from reading on is a finding, too. */
static int check_file(struct work *w, const char *path, bool with_directory, struct err *err)
{
        struct sqlite_conn *c;
        int r = sqlite_conn_open(path, false, NULL, &c, err);

        if (r >= 0) {
                r = check_opened(w, c, with_directory, err);
                sqlite_conn_close(c);
        }
        if (r != ERR_CORRUPT)
                return r;
        add_finding(w, err->msg);
        err_clear(err);
        return 0;
}

static int run_check(struct work *w, struct err *err)
{
        bool on_server = !w->o->file && store_is_on_server(w->config.database);
        const char *path = w->o->file  ? w->o->file
                           : on_server ? "the database on the server" /* its URL may have secrets */
                                       : w->config.database;
        CLEAN(cleanup_free) char *text = NULL;
        size_t n, i;
        json_t *finding;
        int r = 0;

        if (!w->o->file && !on_server)
                r = need_database(w, err);
        if (r >= 0)
                r = on_server ? check_server(w, err) : check_file(w, path, !w->o->file, err);
        if (r < 0)
                return r;
        n = json_array_size(w->findings);
        if (w->o->json) {
                CLEAN(json_decrefp)
                json_t *all = json_pack("{s:s, s:O}", "database", path, "findings", w->findings);

                text = json_to_text(all);
                printf("%s\n", text);
                return n > 0;
        }
        json_array_foreach(w->findings, i, finding) out_line("%s", json_string_value(finding));
        if (n == 0)
                out_line("%s: no findings", path);
        return n > 0;
}

/* -- Backing up -------------------------------------------------------------------------------- */

static int check_copy(struct work *w, const char *copy, const char *of, struct err *err)
{
        int r = check_file(w, copy, false, err);

        if (r >= 0 && json_array_size(w->findings) > 0)
                r = err_set(err, ERR_CORRUPT, "%s is damaged: %s; nothing was written", of,
                            json_string_value(json_array_get(w->findings, 0)));
        return r;
}

static void say_what_is_missing(const struct work *w)
{
        CLEAN(cleanup_free) char *key = xasprintf("%s/secrets/master.key", w->config.data_dir);

        printf("In it: everything recorded, secrets as they are sealed. Not in it:\n");
        if (has_bytes(key))
                printf("  %s, without which no secret can be read: keep a copy apart\n", key);
        else
                printf("  the master key that seals the secrets (docs/secrets.md)\n");
        printf("  what commands printed (output/), snapshots/, salvage/, plugins/, berth.toml\n");
}

struct transfer {
        struct work *w;
        struct db *from;
        struct copy_count count;
};

static int write_transfer(struct db *db, void *arg, struct err *err)
{
        struct transfer *t = arg;

        return copy_rows(t->from, db, t->w->arena, &t->count, err);
}

/* A backup is a SQLite file, whatever it was made from. */
static int copy_server(struct work *w, const char *to, struct err *err)
{
        struct op op = { .arena = w->arena, .deadline_ms = OP_NO_DEADLINE };
        struct transfer t = { .w = w };
        struct store *store = NULL;
        struct sqlite_conn *file;
        struct pg_conn *c;
        int r = open_server(w, &c, err);

        if (r < 0)
                return r;
        t.from = pg_conn_db(c);
        r = migrate_check_same(t.from, err);
        if (r >= 0)
                r = store_open(to, &store, err);
        if (r >= 0)
                r = store_write(&op, store, write_transfer, &t, err);
        store_close(store);
        pg_conn_close(c);
        if (r < 0)
                return r;
        /* One file: a reader needs no log beside it. */
        r = sqlite_conn_open(to, true, NULL, &file, err);
        if (r < 0)
                return r;
        r = sqlite_conn_run(file, "PRAGMA journal_mode = DELETE", err);
        sqlite_conn_close(file);
        return r;
}

static int copy_database(struct work *w, const char *to, struct err *err)
{
        struct sqlite_conn *c;
        int r;

        if (store_is_on_server(w->config.database))
                return copy_server(w, to, err);
        r = sqlite_conn_open(w->config.database, false, NULL, &c, err);
        if (r < 0)
                return r;
        r = sqlite_copy(c, to, err);
        sqlite_conn_close(c);
        return r;
}

static int run_backup(struct work *w, struct err *err)
{
        const char *target = w->o->file, *partial;
        struct stat st;
        int r = store_is_on_server(w->config.database) ? 0 : need_database(w, err);

        if (r >= 0 && stat(target, &st) == 0 && S_ISDIR(st.st_mode))
                target = arena_printf(w->arena, "%s/berth-%s.db", target, time_stamp(w->arena));
        if (r >= 0 && !w->o->replace && access(target, F_OK) == 0)
                r = err_set(err, ERR_CONFLICT, "%s exists; --replace overwrites it", target);
        if (r < 0)
                return r;
        partial = arena_printf(w->arena, "%s.partial-%s", target, uuid_new().s);
        r = copy_database(w, partial, err);
        if (r >= 0)
                r = check_copy(w, partial,
                               store_is_on_server(w->config.database) ? "the database on the server"
                                                                      : w->config.database,
                               err);
        if (r >= 0 && rename(partial, target) < 0)
                r = err_sys(err, ERR_IO, errno, "rename %s", partial);
        if (r < 0) {
                (void)unlink(partial);
                return r;
        }
        r = file_sync_parent(AT_FDCWD, target, err);
        if (r < 0)
                return r;
        printf("wrote %s\n", target);
        say_what_is_missing(w);
        return 0;
}

/* -- Restoring --------------------------------------------------------------------------------- */

/* A copy of the backup beside the database: with our tables, and an identity of its own. */
static int prepare_copy(struct work *w, const char *path, struct err *err)
{
        struct op op = { .arena = w->arena, .deadline_ms = OP_NO_DEADLINE };
        struct home_request q = { .data_dir = w->config.data_dir,
                                  .machine_id = w->config.machine_id };
        struct sqlite_conn *c;
        struct store *store;
        int r = sqlite_conn_open(w->o->file, false, NULL, &c, err);

        if (r < 0)
                return r;
        r = sqlite_copy(c, path, err);
        sqlite_conn_close(c);
        if (r >= 0)
                r = check_copy(w, path, w->o->file, err);
        if (r >= 0)
                r = store_open(path, &store, err);
        if (r < 0)
                return r;
        r = home_take_new(&op, store, &q, err);
        store_close(store);
        return r;
}

/* SQLite finds a log by the name of its database, so both keep their names in common. */
static int put_aside(struct work *w, const char *path, const char *why, const char **ret_aside,
                     struct err *err)
{
        static const char *const parts[] = { "-wal", "-shm", "" };
        const char *aside = arena_printf(w->arena, "%s.%s-%s", path, why, time_stamp(w->arena));

        *ret_aside = NULL;
        for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
                const char *from = arena_printf(w->arena, "%s%s", path, parts[i]);

                if (rename(from, arena_printf(w->arena, "%s%s", aside, parts[i])) == 0)
                        *ret_aside = aside;
                else if (errno != ENOENT)
                        return err_sys(err, ERR_IO, errno, "rename %s", from);
        }
        return 0;
}

static int swap_database(struct work *w, const char *copy, const char **ret_aside, struct err *err)
{
        int r = home_forget_node(w->config.data_dir, err);

        if (r >= 0)
                r = put_aside(w, w->config.database, "before", ret_aside, err);
        if (r >= 0 && rename(copy, w->config.database) < 0)
                r = err_sys(err, ERR_IO, errno, "rename %s", copy);
        return r < 0 ? r : file_sync_parent(AT_FDCWD, w->config.database, err);
}

static int transfer(struct work *w, struct store *from, struct store *to, struct copy_count *ret,
                    struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct op op = { .arena = w->arena, .deadline_ms = OP_NO_DEADLINE };
        struct transfer t = { .w = w };
        int r = store_read_begin(&op, from, &db, err);

        t.from = db;
        if (r >= 0)
                r = store_write(&op, to, write_transfer, &t, err);
        *ret = t.count;
        return r;
}

static void say_restored(const char *what)
{
        printf("restored %s\n", what);
        printf("It is an instance of its own: what the backup had under way was ended in the record, "
               "and nothing in the world was touched.\n"
               "Put the master key in its place (docs/secrets.md), start the daemon, and look at "
               "`berth leaks`.\n");
}

/* Into an empty database. */
static int restore_on_server(struct work *w, struct err *err)
{
        CLEAN(cleanup_fd) int lock = -1;
        const char *copy =
                arena_printf(w->arena, "%s/berth.db.restore-%s", w->config.data_dir, uuid_new().s);
        struct store *from = NULL, *to = NULL;
        struct copy_count count;
        int r = datadir_lock(w->config.data_dir, false, &lock, err);

        if (r >= 0 && w->o->replace)
                r = err_set(err, ERR_USAGE,
                            "--replace is for SQLite; create an empty database on the server");
        if (r >= 0)
                r = prepare_copy(w, copy, err);
        if (r >= 0)
                r = store_open(copy, &from, err);
        if (r >= 0)
                r = store_open(w->config.database, &to, err);
        if (r >= 0)
                r = transfer(w, from, to, &count, err);
        if (r >= 0)
                r = home_forget_node(w->config.data_dir, err);
        store_close(from);
        store_close(to);
        (void)unlink(copy);
        if (r < 0)
                return r;
        say_restored("the database on the server");
        return 0;
}

static int run_restore(struct work *w, struct err *err)
{
        if (store_is_on_server(w->config.database))
                return restore_on_server(w, err);
        CLEAN(cleanup_fd) int lock = -1;
        const char *path = w->config.database, *aside = NULL;
        const char *copy = arena_printf(w->arena, "%s.restore-%s", path, uuid_new().s);
        const char *log = arena_printf(w->arena, "%s-wal", path);
        int r = datadir_lock(w->config.data_dir, false, &lock, err);

        if (r >= 0 && !w->o->replace && (has_bytes(path) || has_bytes(log)))
                r = err_set(err, ERR_CONFLICT,
                            "there is a database in %s; --replace puts it aside and takes the "
                            "backup's place",
                            w->config.data_dir);
        if (r >= 0)
                r = prepare_copy(w, copy, err);
        if (r >= 0)
                r = swap_database(w, copy, &aside, err);
        if (r < 0) {
                (void)unlink(copy);
                return r;
        }
        if (aside)
                printf("the database that was there is %s\n", aside);
        say_restored(path);
        return 0;
}

/* -- Moving over ------------------------------------------------------------------------------- */

/* One end of a copy: a data directory, or a database on a server. */
struct side {
        const char *dir; /* NULL: on a server */
        const char *url;
        int lock;
        struct store *store;
};

static int open_side(struct work *w, const char *text, bool is_source, struct side *ret,
                     struct err *err)
{
        bool on_server = store_is_on_server(text);
        int r = 0;

        *ret = (struct side){ .lock = -1 };
        if (on_server && config_url_has_password(text))
                return err_set(err, ERR_USAGE,
                               "the URL has a password, which every user of this machine could "
                               "read: keep it in ~/.pgpass or PGPASSFILE");
        ret->dir = on_server ? NULL : text;
        ret->url = on_server ? text : arena_printf(w->arena, "%s/berth.db", text);
        if (ret->dir && is_source && !has_bytes(ret->url))
                return err_set(err, ERR_NOT_FOUND, "there is no database at %s", ret->url);
        if (ret->dir && !is_source && has_bytes(ret->url))
                return err_set(err, ERR_CONFLICT, "there is a database at %s already", ret->url);
        if (ret->dir)
                r = datadir_lock(ret->dir, false, &ret->lock, err);
        return r < 0 ? r : store_open(ret->url, &ret->store, err);
}

static int forget_home(struct db *db, void *arg, struct err *err)
{
        return home_forget(db, err);
}

/* No daemon takes the old one for the record any more: a file gets another name, a database on a
 * server has no home. */
static int retire_source(struct work *w, struct side *s, const char **ret_aside, struct err *err)
{
        struct op op = { .arena = w->arena, .deadline_ms = OP_NO_DEADLINE };

        if (!s->dir)
                return store_write(&op, s->store, forget_home, NULL, err);
        store_close(take_ptr(&s->store));
        return put_aside(w, s->url, "copied", ret_aside, err);
}

static int run_copy(struct work *w, struct err *err)
{
        struct side from = { .lock = -1 }, to = { .lock = -1 };
        const char *aside = NULL;
        struct copy_count count = { 0 };
        int r = open_side(w, w->o->file, true, &from, err);

        if (r >= 0)
                r = open_side(w, w->o->to, false, &to, err);
        if (r >= 0)
                r = transfer(w, from.store, to.store, &count, err);
        bool is_copied = r >= 0, made_file = to.dir && to.store;
        store_close(to.store);
        if (is_copied)
                r = retire_source(w, &from, &aside, err);
        else if (made_file)
                (void)unlink(to.url);
        store_close(from.store);
        cleanup_fd(&to.lock);
        cleanup_fd(&from.lock);
        if (r < 0)
                return r;
        printf("copied %lld rows of %lld tables, and compared them\n", (long long)count.rows,
               (long long)count.tables);
        if (aside)
                printf("the database that was copied is %s now\n", aside);
        printf("Start the daemon %s.\n",
               to.dir ? "without the setting `database`"
                      : "on the same data directory, with the setting `database`");
        return 0;
}

/* -- Bringing up to date ----------------------------------------------------------------------- */

static int run_migrate(struct work *w, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        CLEAN(cleanup_fd) int lock = -1;
        struct op op = { .arena = w->arena, .deadline_ms = OP_NO_DEADLINE };
        struct store *store = NULL;
        int64_t version = 0;
        int r = datadir_lock(w->config.data_dir, false, &lock, err);

        if (r >= 0)
                r = store_open(w->config.database, &store, err);
        if (r < 0)
                return r;
        r = store_read_begin(&op, store, &db, err);
        if (r >= 0)
                r = db_number(db, "SELECT MAX(version) FROM schema_migrations", DB_NO_ARGS,
                              &version, err);
        store_read_end(&db);
        store_close(store);
        if (r >= 0)
                printf("the database has version %lld\n", (long long)version);
        return r;
}

/* ---------------------------------------------------------------------------------------------- */

int database(const struct cli_database_options *options)
{
        static int (*const actions[])(struct work * w, struct err * err) = {
                [DATABASE_BACKUP] = run_backup, [DATABASE_RESTORE] = run_restore,
                [DATABASE_CHECK] = run_check,   [DATABASE_MIGRATE] = run_migrate,
                [DATABASE_COPY] = run_copy,
        };
        CLEAN(err_done) struct err err = { 0 };
        struct cli_serve_options flags = { .data = options->data };
        struct arena arena;
        struct work w = { .o = options, .arena = &arena, .findings = json_array() };
        /* and of nothing else */
        bool of_file = (options->action == DATABASE_CHECK && options->file) ||
                       options->action == DATABASE_COPY;
        int r = 0;

        arena_init(&arena);
        umask(077);
        if (sodium_init() < 0)
                r = err_set(&err, ERR_INTERNAL, "libsodium does not start");
        else if (options->action != DATABASE_RESTORE && !of_file && access(options->data, F_OK) < 0)
                r = errno == ENOENT
                            ? err_set(&err, ERR_NOT_FOUND,
                                      "there is no data directory %s; name the daemon's with "
                                      "--data",
                                      options->data)
                            : err_sys(&err, ERR_NOT_FOUND, errno,
                                      "data directory %s; run as the user of the daemon, or name "
                                      "another with --data",
                                      options->data);
        else if (options->action != DATABASE_BACKUP && options->action != DATABASE_COPY &&
                 options->file && !has_bytes(options->file))
                r = err_set(&err, ERR_NOT_FOUND, "there is no backup at %s", options->file);
        else if (!of_file)
                r = config_load(&flags, &arena, &w.config, &err);
        if (r >= 0)
                r = actions[options->action](&w, &err);
        if (r < 0)
                out_error(err.msg); /* it may hold names from a file of unknown origin */
        json_decref(w.findings);
        arena_done(&arena);
        return r < 0 ? err_info(r)->exit_status : r;
}
