/* Checks a SQLite file for damage, table by table, and copies one. */
#define _GNU_SOURCE
#include "store/sqlite/sqlite_check.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"

/* The size of a database that is read through in a few milliseconds. */
#define SMALL_BYTES ((int64_t)4 << 20)
/* The rest after a table of a scrub, by the time that the table took. */
#define REST_FACTOR 4
#define REST_MAX_MS 5000

/* The rows of a check: "ok" says that there is nothing, and one row may have several lines beneath
 * a heading. The number of findings. */
static int read_findings(struct stmt *s, sqlite_finding_fn fn, void *ctx, struct err *err)
{
        struct arena arena;
        int found = 0, r;

        arena_init(&arena);
        while ((r = stmt_step(s, err)) > 0) {
                char *rest = arena_strdup(&arena, stmt_text(s, 0, &arena)), *line;

                while (rest && (line = strsep(&rest, "\n"))) {
                        if (!*line || streq(line, "ok") || str_starts(line, "***"))
                                continue;
                        found++;
                        fn(ctx, line);
                }
        }
        arena_done(&arena);
        return r < 0 ? r : found;
}

static void keep_first(void *ctx, const char *text)
{
        struct err *err = ctx;

        if (err && !err->code)
                err_set(err, ERR_CORRUPT,
                        "The database file is damaged (%s): `berth db check` tells all, and "
                        "`berth db restore` puts a backup in its place.",
                        text);
}

int sqlite_check_small(struct sqlite_conn *c, bool *ret_checked, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        struct db *db = sqlite_conn_db(c);
        int64_t bytes;
        int r = db_number(db,
                          "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size",
                          DB_NO_ARGS, &bytes, err);

        *ret_checked = r >= 0 && bytes <= SMALL_BYTES;
        if (!*ret_checked)
                return r;
        r = db_query(db, "SELECT quick_check FROM pragma_quick_check(1)", DB_NO_ARGS, &s, err);
        if (r >= 0)
                r = read_findings(s, keep_first, err, err);
        return r > 0 ? ERR_CORRUPT : r;
}

static int check_table(struct sqlite_conn *c, const char *name, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(sqlite_conn_db(c),
                         "SELECT integrity_check FROM pragma_integrity_check(?1)",
                         DB_ARGS(DB_T(name)), &s, err);

        if (r >= 0)
                r = read_findings(s, keep_first, err, err);
        return r > 0 ? ERR_CORRUPT : r;
}

struct names {
        const char **at;
        size_t n;
};

static int list_tables(struct sqlite_conn *c, struct arena *arena, struct names *ret,
                       struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(sqlite_conn_db(c), "SELECT name FROM sqlite_schema WHERE type = 'table'",
                         DB_NO_ARGS, &s, err);

        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                ret->at = xrealloc(ret->at, (ret->n + 1) * sizeof(*ret->at));
                ret->at[ret->n++] = stmt_text(s, 0, arena);
        }
        return r;
}

int sqlite_check_tables(const char *path, const struct op *op, struct err *err)
{
        struct names tables = { 0 };
        struct sqlite_conn *c;
        int r = sqlite_conn_open(path, false, NULL, &c, err);

        if (r < 0)
                return r;
        r = list_tables(c, op->arena, &tables, err);
        for (size_t i = 0; r >= 0 && i < tables.n; i++) {
                int64_t began = clock_mono_ms();

                r = check_table(c, tables.at[i], err);
                if (r >= 0)
                        r = op_wait_fd(op, -1, 0,
                                       MIN((clock_mono_ms() - began) * REST_FACTOR, REST_MAX_MS),
                                       err);
        }
        free(tables.at);
        sqlite_conn_close(c);
        return r < 0 ? r : 0;
}

int sqlite_check_all(struct sqlite_conn *c, sqlite_finding_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(sqlite_conn_db(c), "SELECT integrity_check FROM pragma_integrity_check",
                         DB_NO_ARGS, &s, err);

        return r < 0 ? r : read_findings(s, fn, ctx, err);
}

int sqlite_check_references(struct sqlite_conn *c, sqlite_finding_fn fn, void *ctx, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(sqlite_conn_db(c),
                         "SELECT 'row ' || rowid || ' of ' || \"table\" || ' refers to a row of ' "
                         "|| parent || ' that is not there' FROM pragma_foreign_key_check",
                         DB_NO_ARGS, &s, err);

        return r < 0 ? r : read_findings(s, fn, ctx, err);
}

/* All pages in one step: the copy is of one moment, and writers go on beside it. In several steps
 * every write by another process would begin it anew. */
static int copy_pages(sqlite3 *from, sqlite3 *to, struct err *err)
{
        sqlite3_backup *b = sqlite3_backup_init(to, "main", from, "main");

        if (!b)
                return sqlite_error(to, sqlite3_errcode(to), err);
        int r = sqlite3_backup_step(b, -1);
        (void)sqlite3_backup_finish(b);
        return r == SQLITE_DONE ? 0 : sqlite_error(r == SQLITE_CORRUPT ? from : to, r, err);
}

static int sync_file(const char *path, struct err *err)
{
        CLEAN(cleanup_fd) int fd = open(path, O_RDONLY | O_CLOEXEC);

        return fd < 0 || fsync(fd) < 0 ? err_sys(err, ERR_IO, errno, "sync %s", path) : 0;
}

int sqlite_copy(struct sqlite_conn *from, const char *to, struct err *err)
{
        sqlite3 *copy = NULL;
        int fd = open(to, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "create %s", to);
        close(fd);
        int r = sqlite3_open_v2(to, &copy, SQLITE_OPEN_READWRITE | SQLITE_OPEN_EXRESCODE, NULL);
        r = r == SQLITE_OK ? copy_pages(sqlite_conn_handle(from), copy, err)
                           : sqlite_error(copy, r, err);
        /* One file: a reader needs no log beside it. */
        if (r >= 0 &&
            sqlite3_exec(copy, "PRAGMA journal_mode = DELETE", NULL, NULL, NULL) != SQLITE_OK)
                r = sqlite_error(copy, sqlite3_errcode(copy), err);
        (void)sqlite3_close(copy);
        return r < 0 ? r : sync_file(to, err);
}
