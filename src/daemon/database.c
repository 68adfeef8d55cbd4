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
        if (str_starts(w->config.database, "postgres"))
                return err_set(err, ERR_NOT_IMPLEMENTED,
                               "this is for SQLite; use PostgreSQL's own tools");
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

static int check_opened(struct work *w, struct sqlite_conn *c, bool with_directory, struct err *err)
{
        struct db *db = sqlite_conn_db(c);
        int64_t version;
        int r = sqlite_check_all(c, add_finding, w, err);

        if (r > 0) /* the rows mean nothing then */
                return 0;
        if (r >= 0)
                r = sqlite_check_references(c, add_finding, w, err);
        if (r >= 0)
                r = db_number(db, "SELECT MAX(version) FROM schema_migrations", DB_NO_ARGS,
                              &version, err);
        if (r >= 0)
                r = rows_check(db, add_row_finding, w, err);
        for (size_t i = 0; r >= 0 && with_directory && i < N_ROW_FILES; i++) {
                struct files f = { w, &row_files[i] };

                r = check_directory(&f, db, err);
        }
        return r < 0 ? r : 0;
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
        const char *path = w->o->file ? w->o->file : w->config.database;
        CLEAN(cleanup_free) char *text = NULL;
        size_t n, i;
        json_t *finding;
        int r = 0;

        if (!w->o->file)
                r = need_database(w, err);
        if (r >= 0)
                r = check_file(w, path, !w->o->file, err);
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

static int run_backup(struct work *w, struct err *err)
{
        const char *target = w->o->file, *partial;
        struct sqlite_conn *c;
        struct stat st;
        int r = need_database(w, err);

        if (r >= 0 && stat(target, &st) == 0 && S_ISDIR(st.st_mode))
                target = arena_printf(w->arena, "%s/berth-%s.db", target, time_stamp(w->arena));
        if (r >= 0 && !w->o->replace && access(target, F_OK) == 0)
                r = err_set(err, ERR_CONFLICT, "%s exists; --replace overwrites it", target);
        if (r >= 0)
                r = sqlite_conn_open(w->config.database, false, NULL, &c, err);
        if (r < 0)
                return r;
        partial = arena_printf(w->arena, "%s.partial-%s", target, uuid_new().s);
        r = sqlite_copy(c, partial, err);
        sqlite_conn_close(c);
        if (r >= 0)
                r = check_copy(w, partial, w->config.database, err);
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
static int put_aside(struct work *w, const char **ret_aside, struct err *err)
{
        static const char *const parts[] = { "-wal", "-shm", "" };
        const char *path = w->config.database;
        const char *aside = arena_printf(w->arena, "%s.before-%s", path, time_stamp(w->arena));

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
                r = put_aside(w, ret_aside, err);
        if (r >= 0 && rename(copy, w->config.database) < 0)
                r = err_sys(err, ERR_IO, errno, "rename %s", copy);
        return r < 0 ? r : file_sync_parent(AT_FDCWD, w->config.database, err);
}

static int run_restore(struct work *w, struct err *err)
{
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
        printf("restored %s\n", path);
        if (aside)
                printf("the database that was there is %s\n", aside);
        printf("It is an instance of its own: what the backup had under way was ended in the record, "
               "and nothing in the world was touched.\n"
               "Put the master key in its place (docs/secrets.md), start the daemon, and look at "
               "`berth leaks`.\n");
        return 0;
}

/* ---------------------------------------------------------------------------------------------- */

int database(const struct cli_database_options *options)
{
        static int (*const actions[])(struct work * w, struct err * err) = {
                [DATABASE_BACKUP] = run_backup,
                [DATABASE_RESTORE] = run_restore,
                [DATABASE_CHECK] = run_check,
        };
        CLEAN(err_done) struct err err = { 0 };
        struct cli_serve_options flags = { .data = options->data };
        struct arena arena;
        struct work w = { .o = options, .arena = &arena, .findings = json_array() };
        bool of_file = options->action == DATABASE_CHECK && options->file; /* and of nothing else */
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
        else if (options->action != DATABASE_BACKUP && options->file && !has_bytes(options->file))
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
