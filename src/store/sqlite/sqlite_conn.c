/* Opens a SQLite connection, runs its statements, and maps SQLite's errors to ours. */
#include "store/sqlite/sqlite_conn.h"

#include <stdio.h>

#include "store/row.h"

/* Statements are found by the address of their SQL literal, and of the type of their rows; a few
 * hundred exist. */
#define CACHE_SLOTS 512

struct sqlite_stmt_slot {
        struct stmt base;
        const char *sql;
        const struct row_type *type;
        sqlite3_stmt *handle;
        struct sqlite_conn *conn;
        bool in_use;
};

struct sqlite_conn {
        struct db db;
        sqlite3 *handle;
        struct sqlite_health *health; /* may be NULL */
        struct sqlite_stmt_slot *slots[CACHE_SLOTS];
};

int sqlite_error(sqlite3 *handle, int code, struct err *err)
{
        const char *text = handle ? sqlite3_errmsg(handle) : sqlite3_errstr(code);

        switch (code & 0xff) {
        case SQLITE_FULL:
                return err_set(err, ERR_IO,
                               "The disk with the data directory is full; nothing was changed. "
                               "Free some space and try again.");
        case SQLITE_IOERR:
                return err_set(err, ERR_IO, "The database could not be read or written: %s", text);
        case SQLITE_READONLY:
        case SQLITE_CANTOPEN:
        case SQLITE_PERM:
                return err_set(err, ERR_IO, "The database is not accessible: %s", text);
        case SQLITE_CORRUPT:
        case SQLITE_NOTADB:
                return err_set(err, ERR_CORRUPT,
                               "The database file is damaged or not a Berth database: %s", text);
        case SQLITE_CONSTRAINT:
                return err_set(err, ERR_CONFLICT, "%s", text);
        case SQLITE_BUSY:
        case SQLITE_LOCKED:
                return err_set(err, ERR_BUSY, "The database is in use by another program.");
        case SQLITE_NOMEM:
                return err_set(err, ERR_INTERNAL, "out of memory");
        default:
                return err_set(err, ERR_INTERNAL, "database: %s", text);
        }
}

/* As sqlite_error(). Note what the error means for the file, whatever the caller makes of the
 * error.
 */
static int conn_error(struct sqlite_conn *c, int code, struct err *err)
{
        int r = sqlite_error(c->handle, code, err);

        if (c->health && r == ERR_CORRUPT)
                atomic_store(&c->health->damaged, true);
        if (c->health && (r == ERR_CORRUPT || r == ERR_IO))
                atomic_store(&c->health->failing, true);
        return r;
}

struct sqlite_conn *sqlite_conn_of(struct db *db)
{
        return container_of(db, struct sqlite_conn, db);
}

static struct sqlite_stmt_slot *slot_of(struct stmt *s)
{
        return container_of(s, struct sqlite_stmt_slot, base);
}

static const struct db_ops ops;

static int prepare_statement(struct sqlite_conn *c, const struct row_type *type, const char *sql,
                             size_t n_args, struct sqlite_stmt_slot **ret, struct err *err)
{
        struct sqlite_stmt_slot *slot = xcalloc(1, sizeof(*slot));
        CLEAN(cleanup_free) char *made = type ? row_sql(type, sql, n_args) : NULL;
        int r = sqlite3_prepare_v3(c->handle, made ? made : sql, -1, SQLITE_PREPARE_PERSISTENT,
                                   &slot->handle, NULL);

        if (r != SQLITE_OK) {
                free(slot);
                return conn_error(c, r, err);
        }
        slot->base.ops = &ops;
        slot->sql = sql;
        slot->type = type;
        slot->conn = c;
        *ret = slot;
        return 0;
}

/* The statement for this SQL: the cached one, a new one to cache, or, when the cached one is busy
 * in an outer loop, a new one that lives for this use only. */
static int find_statement(struct sqlite_conn *c, const struct row_type *type, const char *sql,
                          size_t n_args, struct sqlite_stmt_slot **ret, struct err *err)
{
        size_t at = (((uintptr_t)sql ^ (uintptr_t)type) >> 3) * 0x9e3779b97f4a7c15u % CACHE_SLOTS;

        for (size_t i = 0; i < CACHE_SLOTS; i++, at = (at + 1) % CACHE_SLOTS) {
                struct sqlite_stmt_slot *slot = c->slots[at];
                int r;

                if (slot && (slot->sql != sql || slot->type != type))
                        continue;
                if (slot && !slot->in_use) {
                        *ret = slot;
                        return 0;
                }
                r = prepare_statement(c, type, sql, n_args, ret, err);
                if (*ret && !slot)
                        c->slots[at] = *ret;
                else if (*ret)
                        (*ret)->sql = NULL;
                return r;
        }
        return err_set(err, ERR_INTERNAL, "too many different statements");
}

static int sqlite_query(struct db *db, const struct row_type *type, const char *sql,
                        const struct db_arg *args, size_t n_args, struct stmt **ret,
                        struct err *err)
{
        struct sqlite_conn *c = sqlite_conn_of(db);
        struct sqlite_stmt_slot *slot = NULL;
        int r = find_statement(c, type, sql, n_args, &slot, err);

        if (!slot)
                return r;
        slot->in_use = true;
        for (size_t i = 0; i < n_args && r == SQLITE_OK; i++) {
                int at = (int)i + 1;

                switch (args[i].type) {
                case DB_ARG_NULL:
                        r = sqlite3_bind_null(slot->handle, at);
                        break;
                case DB_ARG_INT:
                        r = sqlite3_bind_int64(slot->handle, at, args[i].number);
                        break;
                case DB_ARG_TEXT:
                        r = sqlite3_bind_text(slot->handle, at, args[i].text, -1, SQLITE_STATIC);
                        break;
                }
        }
        *ret = &slot->base;
        if (r != SQLITE_OK) {
                r = conn_error(c, r, err);
                stmt_end(ret);
                return r;
        }
        return 0;
}

static int sqlite_step(struct stmt *s, struct err *err)
{
        struct sqlite_stmt_slot *slot = slot_of(s);
        int r = sqlite3_step(slot->handle);

        if (r == SQLITE_ROW)
                return 1;
        return r == SQLITE_DONE ? 0 : conn_error(slot->conn, r, err);
}

static bool sqlite_is_null(struct stmt *s, int column)
{
        return sqlite3_column_type(slot_of(s)->handle, column) == SQLITE_NULL;
}

static const char *sqlite_text(struct stmt *s, int column, size_t *ret_len)
{
        sqlite3_stmt *handle = slot_of(s)->handle;
        const char *text = (const char *)sqlite3_column_text(handle, column);

        *ret_len = text ? (size_t)sqlite3_column_bytes(handle, column) : 0;
        return text;
}

static int64_t sqlite_number(struct stmt *s, int column)
{
        return sqlite3_column_int64(slot_of(s)->handle, column);
}

static void sqlite_end(struct stmt *s)
{
        struct sqlite_stmt_slot *slot = slot_of(s);

        if (!slot->sql) {
                sqlite3_finalize(slot->handle);
                free(slot);
                return;
        }
        sqlite3_reset(slot->handle);
        sqlite3_clear_bindings(slot->handle);
        slot->in_use = false;
}

static int64_t sqlite_changes(struct db *db)
{
        return sqlite3_changes64(sqlite_conn_of(db)->handle);
}

static int sqlite_script(struct db *db, const char *sql, struct err *err)
{
        return sqlite_conn_run(sqlite_conn_of(db), sql, err);
}

static const struct db_catalog catalog = {
        .tables = "SELECT name FROM sqlite_schema WHERE type = 'table' "
                  "AND name NOT LIKE 'sqlite%' ORDER BY name",
        .columns = "SELECT name FROM pragma_table_info(?1) ORDER BY cid",
        .defer = "PRAGMA defer_foreign_keys = ON",
        .settle = "",
};

static const struct db_ops ops = {
        .catalog = &catalog,
        .query = sqlite_query,
        .step = sqlite_step,
        .is_null = sqlite_is_null,
        .text = sqlite_text,
        .number = sqlite_number,
        .end = sqlite_end,
        .changes = sqlite_changes,
        .script = sqlite_script,
};

int sqlite_conn_run(struct sqlite_conn *c, const char *sql, struct err *err)
{
        int r = sqlite3_exec(c->handle, sql, NULL, NULL, NULL);

        return r == SQLITE_OK ? 0 : conn_error(c, r, err);
}

bool sqlite_conn_in_transaction(struct sqlite_conn *c)
{
        return sqlite3_get_autocommit(c->handle) == 0;
}

/* Readers keep little: the pages they need are in the system's cache. The writer's cache has to
 * hold the right edge of every index, or each insert into a large table would read first. */
static const char *setup_sql(bool writer)
{
        return writer ? "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;"
                        "PRAGMA foreign_keys = ON; PRAGMA cache_size = -8192;"
                        "PRAGMA temp_store = MEMORY; PRAGMA journal_size_limit = 16777216;"
                        "PRAGMA wal_autocheckpoint = 2000"
                      : "PRAGMA query_only = ON; PRAGMA cache_size = -256; PRAGMA temp_store = "
                        "MEMORY";
}

int sqlite_conn_open(const char *path, bool writer, struct sqlite_health *health,
                     struct sqlite_conn **ret, struct err *err)
{
        struct sqlite_conn *c = xcalloc(1, sizeof(*c));
        int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE | SQLITE_OPEN_READWRITE |
                    (writer ? SQLITE_OPEN_CREATE : 0);
        int r = sqlite3_open_v2(path, &c->handle, flags, NULL);

        c->db.ops = &ops;
        c->health = health;
        if (r != SQLITE_OK) {
                r = conn_error(c, r, err);
        } else {
                sqlite3_busy_timeout(c->handle, 5000);
                r = sqlite_conn_run(c, setup_sql(writer), err);
        }
        if (r < 0) {
                sqlite_conn_close(c);
                return err_wrap(err, r, "open %s", path);
        }
        *ret = c;
        return 0;
}

void sqlite_conn_close(struct sqlite_conn *c)
{
        if (!c)
                return;
        for (size_t i = 0; i < CACHE_SLOTS; i++) {
                if (!c->slots[i])
                        continue;
                sqlite3_finalize(c->slots[i]->handle);
                free(c->slots[i]);
        }
        sqlite3_close(c->handle);
        free(c);
}

sqlite3 *sqlite_conn_handle(struct sqlite_conn *c)
{
        return c->handle;
}

struct db *sqlite_conn_db(struct sqlite_conn *c)
{
        return &c->db;
}
