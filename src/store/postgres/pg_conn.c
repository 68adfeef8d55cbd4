/* Connects to PostgreSQL, sends statements in as few round trips as they allow, and maps the
 * server's errors to ours. */
#include "store/postgres/pg_conn.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>

#include "base/buf.h"
#include "base/clock.h"
#include "base/embedded.h"
#include "base/utf8.h"
#include "store/postgres/libpq.h"
#include "store/row.h"

/* Statements are found by the address of their SQL literal, and of the type of their rows; a few
 * hundred exist. */
#define CACHE_SLOTS 512
/* More than one statement has. */
#define ARGS_MAX 96
/* Commands that may wait to be sent, and answers that may be outstanding. */
#define KEPT_MAX   8
#define EXPECT_MAX 32
/* The server ends a statement or a wait for a lock by itself; an answer that comes later than this
 * does not come. */
#define STATEMENT_MS 30000
#define LOCK_MS      10000
#define ANSWER_MS    (STATEMENT_MS + 10000)
/* How long a reader waits for a server that may be restarting. */
#define RECONNECT_MS 5000

#define BOOL_OID    16
#define BIGINT_OID  20
#define TEXT_OF_(x) #x
#define TEXT_OF(x)  TEXT_OF_(x)

struct pg_slot {
        const char *sql;
        const struct row_type *type;
        char name[16];
        bool is_prepared;
        bool numbers[ARGS_MAX]; /* arguments that were prepared as such */
        bool writes;
};

enum answer { ANSWER_SKIP, ANSWER_PREPARE, ANSWER_RESULT, ANSWER_COMMIT, ANSWER_SYNC };

struct pg_conn {
        struct db db;
        PGconn *pg;
        struct pg_state state;
        char *url, *name;
        bool is_careful, reads_only;
        bool is_answered; /* some statement of the transaction */
        const char *begin;
        unsigned n_names;
        int64_t changes;
        struct op op; /* its deadline and cancel only */
        const char *kept[KEPT_MAX];
        size_t n_kept;
        enum answer expected[EXPECT_MAX];
        size_t n_expected;
        struct pg_slot *slots[CACHE_SLOTS];
};

struct pg_stmt {
        struct stmt base;
        PGresult *result;
        int row;
};

/* -- Errors ----------------------------------------------------------------------------------- */

static int lost(struct pg_conn *c, struct err *err)
{
        const char *text = libpq.errorMessage(c->pg);
        int len = (int)strcspn(text, "\n");

        c->state.is_lost = true;
        return err_set(err, ERR_BUSY,
                       "The database server does not answer%s%.*s; try again in a moment.",
                       len > 0 ? ": " : "", len, text);
}

static const struct {
        const char *state; /* SQLSTATE, or how it begins */
        int code;
        const char *text; /* NULL: the server's */
} known[] = {
        { "23", ERR_CONFLICT, NULL },
        { "40001", ERR_BUSY, "The database was busy with the same rows; try again." },
        { "40P01", ERR_BUSY, "The database was busy with the same rows; try again." },
        { "55P03", ERR_BUSY, "Another program holds a lock in the database; try again." },
        { "57014", ERR_BUSY, "The database needed too long; try again." },
        { "53100", ERR_IO, "The disk of the database server is full; nothing was changed." },
        { "53300", ERR_BUSY, "The database server has no connection left; raise max_connections." },
        { "53", ERR_BUSY, NULL },
        { "54000", ERR_TOO_LARGE,
          "A name or key is too long for an index of PostgreSQL, which takes about 2,700 bytes." },
        { "58", ERR_IO, NULL },
        { "XX001", ERR_CORRUPT, NULL },
        { "XX002", ERR_CORRUPT, NULL },
};

/* What the server said about a statement. */
static int result_error(struct pg_conn *c, const PGresult *result, struct err *err)
{
        const char *state = libpq.resultErrorField(result, PG_DIAG_SQLSTATE);
        const char *text = libpq.resultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

        c->state.is_given_up = true;
        if (!state || libpq.status(c->pg) == CONNECTION_BAD)
                return lost(c, err);
        /* The server is stopped or was, or it is a standby now. */
        if (str_starts(state, "57P") || str_starts(state, "08") ||
            (streq(state, "25006") && !c->reads_only))
                return lost(c, err);
        c->state.must_repeat =
                c->state.must_repeat || streq(state, "40001") || streq(state, "40P01");
        for (size_t i = 0; i < ARRAY_LEN(known); i++)
                if (str_starts(state, known[i].state))
                        return err_set(err, known[i].code, "%s",
                                       known[i].text ? known[i].text : text);
        return err_set(err, ERR_INTERNAL, "database: %s (%s)", text ? text : "", state);
}

/* -- Sending and receiving -------------------------------------------------------------------- */

/* Until the socket can be read, or written when something waits to be sent. */
static int wait_socket(struct pg_conn *c, bool to_write, int64_t until_ms, struct err *err)
{
        int64_t left = until_ms - clock_mono_ms();
        short events = (short)(POLLIN | (to_write ? POLLOUT : 0));
        int r = left <= 0 ? 0 : op_wait_fd(&c->op, libpq.socket(c->pg), events, left, err);

        if (r > 0)
                return r;
        /* What the server does with it is not known from here on, and the answer would be taken for
         * the next one's. */
        c->state.is_lost = true;
        return r < 0 ? r
                     : err_set(err, ERR_BUSY, "The database server did not answer in %d s.",
                               ANSWER_MS / 1000);
}

static int send_all(struct pg_conn *c, int64_t until_ms, struct err *err)
{
        int r;

        while ((r = libpq.flush(c->pg)) > 0) {
                r = wait_socket(c, true, until_ms, err);
                if (r >= 0 && !libpq.consumeInput(c->pg))
                        r = lost(c, err);
                if (r < 0)
                        return r;
        }
        return r < 0 ? lost(c, err) : 0;
}

static int next_result(struct pg_conn *c, int64_t until_ms, PGresult **ret, struct err *err)
{
        while (libpq.isBusy(c->pg)) {
                int r = wait_socket(c, false, until_ms, err);

                if (r >= 0 && !libpq.consumeInput(c->pg))
                        r = lost(c, err);
                if (r < 0)
                        return r;
        }
        *ret = libpq.getResult(c->pg);
        return 0;
}

static void expect(struct pg_conn *c, enum answer answer)
{
        c->expected[c->n_expected++] = answer;
}

static bool is_fine(const PGresult *result)
{
        ExecStatusType status = libpq.resultStatus(result);

        return status == PGRES_COMMAND_OK || status == PGRES_TUPLES_OK;
}

/* The answer to one command, whose first error is kept. *ret_result: of ANSWER_RESULT. */
static int take_answer(struct pg_conn *c, enum answer answer, struct pg_slot *slot,
                       int64_t until_ms, PGresult **ret_result, int so_far, struct err *err)
{
        PGresult *result = NULL, *end = NULL;
        int r = next_result(c, until_ms, &result, err);

        if (r < 0)
                return r;
        if (!result)
                return lost(c, err);
        ExecStatusType status = libpq.resultStatus(result);
        if (answer == ANSWER_SYNC) {
                libpq.clear(result);
                return status == PGRES_PIPELINE_SYNC ? so_far : lost(c, err);
        }
        if (status != PGRES_PIPELINE_ABORTED && !is_fine(result) && so_far >= 0)
                so_far = result_error(c, result, err);
        else if (answer == ANSWER_COMMIT && is_fine(result) &&
                 !streq(libpq.cmdStatus(result), "COMMIT"))
                so_far = err_set(err, ERR_INTERNAL, "database: the transaction was given up");
        /* A session that is ended while it waits for a standby has committed. */
        if (answer == ANSWER_COMMIT && !c->state.is_lost)
                c->state.commit_is_out = false;
        if (answer == ANSWER_PREPARE && slot && is_fine(result))
                slot->is_prepared = true;
        if (answer == ANSWER_RESULT && is_fine(result) && ret_result)
                *ret_result = take_ptr(&result);
        libpq.clear(result);
        if (c->state.is_lost)
                return so_far;
        r = next_result(c, until_ms, &end, err);
        libpq.clear(end);
        return r < 0 ? r : so_far;
}

/* Send what was put together, and take all answers. */
static int run_batch(struct pg_conn *c, struct pg_slot *slot, PGresult **ret_result,
                     struct err *err)
{
        int64_t until_ms = clock_mono_ms() + ANSWER_MS;
        PGresult *result = NULL;
        int r = 0;

        if (!libpq.pipelineSync(c->pg))
                r = lost(c, err);
        expect(c, ANSWER_SYNC);
        if (r >= 0)
                r = send_all(c, until_ms, err);
        for (size_t i = 0; i < c->n_expected && !c->state.is_lost; i++)
                r = take_answer(c, c->expected[i], slot, until_ms, &result, r, err);
        c->n_expected = 0;
        if (r < 0)
                libpq.clear(result);
        else if (ret_result)
                *ret_result = result;
        return r;
}

static int send_command(struct pg_conn *c, const char *sql, enum answer answer, struct err *err)
{
        if (c->state.is_lost || !libpq.sendQueryParams(c->pg, sql, 0, NULL, NULL, NULL, NULL, 0))
                return lost(c, err);
        expect(c, answer);
        return 0;
}

static int send_kept(struct pg_conn *c, struct err *err)
{
        int r = 0;

        for (size_t i = 0; r >= 0 && i < c->n_kept; i++)
                r = send_command(c, c->kept[i], ANSWER_SKIP, err);
        c->n_kept = 0;
        return r;
}

/* Send what is kept back and wait for the end. */
static int flush_kept(struct pg_conn *c, struct err *err)
{
        int r = send_kept(c, err);

        return r < 0 ? r : run_batch(c, NULL, NULL, err);
}

void pg_conn_keep_back(struct pg_conn *c, const char *sql)
{
        if (c->n_kept == KEPT_MAX)
                (void)flush_kept(c, NULL);
        c->kept[c->n_kept++] = sql;
}

void pg_conn_begin(struct pg_conn *c, const char *sql)
{
        bool is_lost = c->state.is_lost;

        c->state = (struct pg_state){ .is_lost = is_lost };
        c->is_careful = false;
        c->is_answered = false;
        c->begin = sql;
        c->reads_only = strstr(sql, "READ ONLY") != NULL;
        pg_conn_keep_back(c, sql);
}

int pg_conn_commit(struct pg_conn *c, const char *mark_sql, int64_t mark, struct err *err)
{
        char number[24];
        const char *values[] = { number };
        int r = send_kept(c, err);

        snprintf(number, sizeof(number), "%lld", (long long)mark);
        if (r >= 0 && !libpq.sendQueryParams(c->pg, mark_sql, 1, NULL, values, NULL, NULL, 0))
                r = lost(c, err);
        if (r >= 0) {
                expect(c, ANSWER_SKIP);
                r = send_command(c, "COMMIT", ANSWER_COMMIT, err);
        }
        if (r < 0)
                return r;
        c->state.commit_is_out = true;
        return run_batch(c, NULL, NULL, err);
}

/* When nothing was sent yet there is nothing to end. */
void pg_conn_roll_back(struct pg_conn *c)
{
        bool is_begun = c->n_kept == 0 || !str_starts(c->kept[0], "BEGIN");

        c->n_kept = 0;
        if (!is_begun || c->state.is_lost)
                return;
        if (send_command(c, "ROLLBACK", ANSWER_SKIP, NULL) < 0)
                return;
        if (!libpq.pipelineSync(c->pg))
                c->state.is_lost = true;
        expect(c, ANSWER_SYNC);
        (void)libpq.flush(c->pg); /* what is left goes with the next statement */
}

/* -- Statements ------------------------------------------------------------------------------- */

static const struct db_ops ops;

/* ?1 becomes $1; a question mark in quotes stays. */
static char *pg_sql(const char *sql)
{
        char *to = xstrdup(sql);
        bool quoted = false;

        for (char *p = to; *p; p++) {
                quoted ^= *p == '\'';
                if (*p == '?' && !quoted && p[1] >= '0' && p[1] <= '9')
                        *p = '$';
        }
        return to;
}

static struct pg_slot *find_slot(struct pg_conn *c, const struct row_type *type, const char *sql)
{
        size_t at = (((uintptr_t)sql ^ (uintptr_t)type) >> 3) * 0x9e3779b97f4a7c15u % CACHE_SLOTS;

        for (size_t i = 0; i < CACHE_SLOTS; i++, at = (at + 1) % CACHE_SLOTS) {
                struct pg_slot *slot = c->slots[at];

                if (slot && (slot->sql != sql || slot->type != type))
                        continue;
                if (!slot) {
                        slot = c->slots[at] = xcalloc(1, sizeof(*slot));
                        slot->sql = sql;
                        slot->type = type;
                        slot->writes = !str_starts(sql, "SELECT");
                        snprintf(slot->name, sizeof(slot->name), "s%u", c->n_names++);
                }
                return slot;
        }
        return NULL;
}

/* PostgreSQL takes no text that is not UTF-8, which the output of programs may be. NULL: the text
 * is fine. To be freed. */
static char *cleaned(const char *text)
{
        CLEAN(buf_done) struct buf to = BUF_INIT;
        size_t n = strlen(text), len;

        if (utf8_is_valid(text, n))
                return NULL;
        for (size_t at = 0; at < n; at += len) {
                if (utf8_next(text + at, n - at, &len, NULL))
                        buf_append(&to, text + at, len);
                else
                        buf_append(&to, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT));
        }
        return xstrdup(buf_str(&to));
}

struct values {
        const char *text[ARGS_MAX];
        char numbers[ARGS_MAX][24];
        char *cleaned[ARGS_MAX];
};

static void put_values(struct values *v, const struct db_arg *args, size_t n)
{
        for (size_t i = 0; i < n; i++) {
                v->cleaned[i] = NULL;
                v->text[i] = NULL;
                if (args[i].type == DB_ARG_INT) {
                        snprintf(v->numbers[i], sizeof(v->numbers[i]), "%lld",
                                 (long long)args[i].number);
                        v->text[i] = v->numbers[i];
                } else if (args[i].type == DB_ARG_TEXT) {
                        v->cleaned[i] = cleaned(args[i].text);
                        v->text[i] = v->cleaned[i] ? v->cleaned[i] : args[i].text;
                }
        }
}

/* A number is declared as one: of `?1 = 0 OR at < ?1` the server would take ?1 for a small one. An
 * argument that was NULL when the statement was prepared may be a number later. */
static void declare_numbers(struct pg_conn *c, struct pg_slot *slot, const struct db_arg *args,
                            size_t n_args)
{
        for (size_t i = 0; i < n_args; i++) {
                if (args[i].type != DB_ARG_INT || slot->numbers[i])
                        continue;
                slot->numbers[i] = true;
                if (slot->is_prepared)
                        snprintf(slot->name, sizeof(slot->name), "s%u", c->n_names++);
                slot->is_prepared = false;
        }
}

static int send_statement(struct pg_conn *c, struct pg_slot *slot, const struct db_arg *args,
                          size_t n_args, struct err *err)
{
        struct values v;
        int r = 0;

        declare_numbers(c, slot, args, n_args);
        if (!slot->is_prepared) {
                Oid types[ARGS_MAX] = { 0 };
                CLEAN(cleanup_free)
                char *made = slot->type ? row_sql(slot->type, slot->sql, n_args) : NULL;
                CLEAN(cleanup_free) char *sql = pg_sql(made ? made : slot->sql);

                for (size_t i = 0; i < n_args; i++)
                        types[i] = slot->numbers[i] ? BIGINT_OID : 0;
                if (!libpq.sendPrepare(c->pg, slot->name, sql, (int)n_args, types))
                        return lost(c, err);
                expect(c, ANSWER_PREPARE);
        }
        put_values(&v, args, n_args);
        if (!libpq.sendQueryPrepared(c->pg, slot->name, (int)n_args, v.text, NULL, NULL, 0))
                r = lost(c, err);
        else
                expect(c, ANSWER_RESULT);
        for (size_t i = 0; i < n_args; i++)
                free(v.cleaned[i]);
        return r;
}

static int run_statement(struct pg_conn *c, struct pg_slot *slot, const struct db_arg *args,
                         size_t n_args, PGresult **ret, struct err *err)
{
        bool apart = c->is_careful && slot->writes;
        int r;

        if (apart)
                pg_conn_keep_back(c, "SAVEPOINT statement");
        r = send_kept(c, err);
        if (r >= 0)
                r = send_statement(c, slot, args, n_args, err);
        if (r >= 0)
                r = run_batch(c, slot, ret, err);
        if (apart && r < 0 && !c->state.is_lost && !c->state.must_repeat) {
                c->state.is_given_up = false;
                pg_conn_keep_back(c, "ROLLBACK TO statement");
        }
        if (apart && !c->state.is_lost)
                pg_conn_keep_back(c, "RELEASE statement");
        return r;
}

static int connect_once(struct pg_conn *c, struct err *err);

/* While the server may be restarting. */
static int connect_again(struct pg_conn *c, struct err *err)
{
        int64_t until = clock_mono_ms() + RECONNECT_MS;
        int r;

        while ((r = connect_once(c, err)) == ERR_BUSY && clock_mono_ms() < until &&
               op_check(&c->op, NULL) >= 0) {
                err_clear(err);
                (void)op_wait_fd(&c->op, -1, 0, 50, NULL);
        }
        if (r >= 0)
                pg_conn_begin(c, c->begin);
        return r;
}

static int64_t to_number(const char *text)
{
        return strtoll(text, NULL, 10);
}

static int pg_query(struct db *db, const struct row_type *type, const char *sql,
                    const struct db_arg *args, size_t n_args, struct stmt **ret, struct err *err)
{
        struct pg_conn *c = pg_conn_of(db);
        struct pg_slot *slot = find_slot(c, type, sql);
        PGresult *result = NULL;

        if (!slot || n_args > ARGS_MAX)
                return err_set(err, ERR_INTERNAL, "too many statements or arguments");
        if (c->state.is_given_up) {
                c->state.needs_care = true;
                return err_set(err, ERR_INTERNAL, "database: the transaction was given up");
        }
        int r = run_statement(c, slot, args, n_args, &result, err);
        /* A connection that waited in the pool may be dead without our knowledge. As long as a
         * reader has seen nothing, another connection is as good. */
        if (r < 0 && c->state.is_lost && c->reads_only && !c->is_answered &&
            op_check(&c->op, NULL) >= 0) {
                err_clear(err);
                r = connect_again(c, err);
                if (r >= 0)
                        r = run_statement(c, slot, args, n_args, &result, err);
        }
        c->is_answered = true;
        if (r < 0)
                return r;
        c->changes = to_number(libpq.cmdTuples(result));
        if (slot->writes)
                c->state.has_written = true;
        struct pg_stmt *s = xcalloc(1, sizeof(*s));
        s->base.ops = &ops;
        s->result = result;
        s->row = -1;
        *ret = &s->base;
        return 0;
}

static struct pg_stmt *stmt_of(struct stmt *s)
{
        return container_of(s, struct pg_stmt, base);
}

static int pg_step(struct stmt *base, struct err *err)
{
        struct pg_stmt *s = stmt_of(base);

        return ++s->row < libpq.ntuples(s->result);
}

static bool pg_is_null(struct stmt *base, int column)
{
        return libpq.getisnull(stmt_of(base)->result, stmt_of(base)->row, column);
}

static const char *pg_text(struct stmt *base, int column, size_t *ret_len)
{
        const struct pg_stmt *s = stmt_of(base);

        *ret_len = (size_t)libpq.getlength(s->result, s->row, column);
        return libpq.getisnull(s->result, s->row, column)
                       ? NULL
                       : libpq.getvalue(s->result, s->row, column);
}

static int64_t pg_number(struct stmt *base, int column)
{
        const struct pg_stmt *s = stmt_of(base);
        const char *text = libpq.getvalue(s->result, s->row, column); /* "" for NULL */

        return libpq.ftype(s->result, column) == BOOL_OID ? *text == 't' : to_number(text);
}

static void pg_end(struct stmt *base)
{
        struct pg_stmt *s = stmt_of(base);

        libpq.clear(s->result);
        free(s);
}

static int64_t pg_changes(struct db *db)
{
        return pg_conn_of(db)->changes;
}

/* Texts compare by their bytes, as they do in SQLite, whatever the database's own order is. */
static void put_types(struct buf *to, const char *sql)
{
        static const char type[] = " TEXT";

        for (const char *p = sql, *at; *p; p = at) {
                at = strstr(p, type);
                if (!at) {
                        buf_append(to, p, strlen(p));
                        return;
                }
                at += strlen(type);
                buf_append(to, p, (size_t)(at - p));
                if (strchr(" ,\n;", *at))
                        buf_appendf(to, " COLLATE \"C\"");
        }
}

/* Several statements take the simple protocol, which a pipeline does not have. */
static int pg_script(struct db *db, const char *sql, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        struct pg_conn *c = pg_conn_of(db);
        int r = flush_kept(c, err);

        if (r < 0)
                return r;
        put_types(&text, sql);
        if (!libpq.exitPipelineMode(c->pg))
                return lost(c, err);
        libpq.setnonblocking(c->pg, 0);
        PGresult *result = libpq.exec(c->pg, buf_str(&text));
        if (!result)
                r = lost(c, err);
        else if (!is_fine(result) && libpq.resultStatus(result) != PGRES_EMPTY_QUERY)
                r = result_error(c, result, err);
        libpq.clear(result);
        c->state.has_written = true;
        libpq.setnonblocking(c->pg, 1);
        if (!libpq.enterPipelineMode(c->pg) && r >= 0)
                r = lost(c, err);
        return r;
}

/* Of all references of our tables. */
#define EACH_REFERENCE(how)                                                                        \
        "DO $$ DECLARE r record; BEGIN FOR r IN SELECT conrelid::regclass AS t, conname "          \
        "FROM pg_constraint WHERE contype = 'f' "                                                  \
        "AND connamespace = current_schema()::regnamespace LOOP "                                  \
        "EXECUTE format('ALTER TABLE %s ALTER CONSTRAINT %I " how "', r.t, r.conname); "           \
        "END LOOP; END $$; "

static const struct db_catalog catalog = {
        .tables = "SELECT table_name FROM information_schema.tables "
                  "WHERE table_schema = current_schema() AND table_type = 'BASE TABLE' "
                  "AND table_name <> 'store_writer' ORDER BY table_name",
        .columns = "SELECT column_name FROM information_schema.columns "
                   "WHERE table_schema = current_schema() AND table_name = ?1 "
                   "ORDER BY ordinal_position",
        .defer =
                "SET LOCAL statement_timeout = 0; " EACH_REFERENCE("DEFERRABLE INITIALLY DEFERRED"),
        .settle = "SET CONSTRAINTS ALL IMMEDIATE; " EACH_REFERENCE("NOT DEFERRABLE") "ANALYZE",
        .has_cursors = true,
};

static const struct db_ops ops = {
        .catalog = &catalog,
        .query = pg_query,
        .step = pg_step,
        .is_null = pg_is_null,
        .text = pg_text,
        .number = pg_number,
        .end = pg_end,
        .changes = pg_changes,
        .script = pg_script,
        .own_migrations = store_migrations_postgres,
};

/* -- The connection --------------------------------------------------------------------------- */

static void ignore_notice(void *arg, const char *message)
{
}

/* A statement that nobody waits for any more ends soon, and a session that was forgotten with its
 * locks, too. Commits are durable whatever the server's default is. */
static const char session_sql[] = "SET statement_timeout = " TEXT_OF(
        STATEMENT_MS) "; "
                      "SET lock_timeout = " TEXT_OF(
                              LOCK_MS) "; "
                                       "SET idle_in_transaction_session_timeout = 60000; "
                                       "SET client_connection_check_interval = 2000; "
                                       "SET client_min_messages = error; SET standard_conforming_strings = on; "
                                       "SELECT set_config('synchronous_commit', CASE current_setting('synchronous_commit') "
                                       "WHEN 'off' THEN 'local' ELSE current_setting('synchronous_commit') END, false)";

/* What the URL does not say. It stands last and wins. */
static PGconn *connect_params(const char *url, const char *name)
{
        static const char *const keys[] = { "connect_timeout",
                                            "keepalives_idle",
                                            "keepalives_interval",
                                            "keepalives_count",
                                            "tcp_user_timeout",
                                            "target_session_attrs",
                                            "client_encoding",
                                            "application_name",
                                            "dbname",
                                            NULL };
        const char *values[] = {
                "5", "15", "5", "3", "20000", "read-write", "UTF8", name, url, NULL
        };

        return libpq.connectdbParams(keys, values, 1);
}

static int set_session_up(struct pg_conn *c, struct err *err)
{
        const char *encoding = libpq.parameterStatus(c->pg, "server_encoding");
        int r = 0;

        if (!encoding || !streq(encoding, "UTF8"))
                return err_set(err, ERR_IO,
                               "the database has the encoding %s; create it with ENCODING 'UTF8'",
                               encoding ? encoding : "unknown");
        PGresult *result = libpq.exec(c->pg, session_sql);
        if (!result || !is_fine(result))
                r = result ? result_error(c, result, err) : lost(c, err);
        libpq.clear(result);
        if (r < 0)
                return r;
        return libpq.setnonblocking(c->pg, 1) == 0 && libpq.enterPipelineMode(c->pg) ? 0
                                                                                     : lost(c, err);
}

static int connect_once(struct pg_conn *c, struct err *err)
{
        if (c->pg)
                libpq.finish(c->pg);
        for (size_t i = 0; i < CACHE_SLOTS; i++)
                if (c->slots[i])
                        c->slots[i]->is_prepared = false;
        c->n_kept = c->n_expected = 0;
        c->state = (struct pg_state){ 0 };
        c->pg = connect_params(c->url, c->name);
        if (!c->pg || libpq.status(c->pg) != CONNECTION_OK) {
                const char *text = c->pg ? libpq.errorMessage(c->pg) : "out of memory";

                c->state.is_lost = true;
                return err_set(err, ERR_BUSY, "The database server does not answer: %.*s",
                               (int)strcspn(text, "\n"), text);
        }
        (void)libpq.setNoticeProcessor(c->pg, ignore_notice, NULL);
        return set_session_up(c, err);
}

int pg_conn_open(const char *url, const char *name, struct pg_conn **ret, struct err *err)
{
        struct pg_conn *c;

        if (!libpq_load())
                return err_set(err, ERR_IO,
                               "libpq.so.5 (14 or newer) is not installed; it is Debian's libpq5");
        c = xcalloc(1, sizeof(*c));
        c->db.ops = &ops;
        c->op.deadline_ms = OP_NO_DEADLINE;
        c->url = xstrdup(url);
        c->name = xstrdup(name);
        int r = connect_once(c, err);
        if (r < 0) {
                pg_conn_close(c);
                return r;
        }
        *ret = c;
        return 0;
}

void pg_conn_close(struct pg_conn *c)
{
        if (!c)
                return;
        for (size_t i = 0; i < CACHE_SLOTS; i++)
                free(c->slots[i]);
        libpq.finish(c->pg);
        free(c->url);
        free(c->name);
        free(c);
}

struct db *pg_conn_db(struct pg_conn *c)
{
        return &c->db;
}

struct pg_conn *pg_conn_of(struct db *db)
{
        return container_of(db, struct pg_conn, db);
}

struct pg_state *pg_conn_state(struct pg_conn *c)
{
        return &c->state;
}

bool pg_conn_is_alive(struct pg_conn *c)
{
        for (int i = 0; i < 4 && !c->state.is_lost; i++) {
                struct pollfd p = { .fd = libpq.socket(c->pg), .events = POLLIN };

                if (poll(&p, 1, 0) <= 0)
                        return true;
                if (!libpq.consumeInput(c->pg))
                        return false;
        }
        return false;
}

void pg_conn_limit(struct pg_conn *c, const struct op *op)
{
        c->op = (struct op){ .deadline_ms = op ? op->deadline_ms : OP_NO_DEADLINE,
                             .cancel = op ? op->cancel : NULL };
}

void pg_conn_careful(struct pg_conn *c, bool careful)
{
        c->is_careful = careful;
}

int pg_url_check(const char *url, struct err *err)
{
        char *text = NULL;

        if (!libpq_load())
                return err_set(err, ERR_IO,
                               "libpq.so.5 (14 or newer) is not installed; it is Debian's libpq5");
        PQconninfoOption *options = libpq.conninfoParse(url, &text);
        int r = options ? 0
                        : err_set(err, ERR_INVALID, "the database's URL: %.*s",
                                  (int)strcspn(text ? text : "?", "\n"), text ? text : "?");
        libpq.conninfoFree(options);
        libpq.freemem(text);
        return r;
}
