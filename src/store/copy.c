/* Which tables are copied, in which form rows travel, and how both sides are compared. */
#include "store/copy.h"

#include <sodium.h>

#include "base/buf.h"
#include "base/utf8.h"

/* How many rows are asked for at a time. */
#define ROWS_AT_ONCE "500"
#define COLUMNS_MAX  90
#define DIGEST_WORDS 2

/* They belong to one database: its versions, and pages that it keeps for a full disk. */
static const char *const left_out[] = { "schema_migrations", "disk_reserve" };

struct names {
        const char **at;
        size_t n, room;
        struct arena *arena;
};

static int add_name(void *ctx, const char *name)
{
        struct names *names = ctx;

        for (size_t i = 0; i < ARRAY_LEN(left_out); i++)
                if (streq(name, left_out[i]))
                        return 0;
        names->at = arena_more(names->arena, names->at, names->n, &names->room, sizeof(*names->at));
        names->at[names->n++] = name;
        return 0;
}

/* The sum of the digests of all rows: equal for the same rows in any order. */
struct table_sum {
        int64_t rows;
        uint64_t words[DIGEST_WORDS];
};

struct copying {
        struct db *from, *to;
        struct arena *arena;
        const char *table;
        struct names columns;
        const char *list;   /* of the columns, quoted */
        const char *insert; /* the statement; NULL while only sums are made */
        struct table_sum sum;
};

static const char *clean_text(struct arena *arena, const char *text)
{
        size_t n = strlen(text), len;
        CLEAN(buf_done) struct buf to = BUF_INIT;

        if (utf8_is_valid(text, n))
                return text;
        for (size_t at = 0; at < n; at += len) {
                if (utf8_next(text + at, n - at, &len, NULL))
                        buf_append(&to, text + at, len);
                else
                        buf_append(&to, UTF8_REPLACEMENT, strlen(UTF8_REPLACEMENT));
        }
        return arena_strndup(arena, buf_str(&to), to.len);
}

static void add_row(struct table_sum *sum, const struct db_arg *values, size_t n)
{
        crypto_generichash_state state;
        uint64_t words[DIGEST_WORDS];

        crypto_generichash_init(&state, NULL, 0, sizeof(words));
        for (size_t i = 0; i < n; i++) {
                const unsigned char is_null = values[i].type == DB_ARG_NULL;

                crypto_generichash_update(&state, &is_null, 1);
                if (!is_null)
                        crypto_generichash_update(&state, (const unsigned char *)values[i].text,
                                                  strlen(values[i].text) + 1);
        }
        crypto_generichash_final(&state, (unsigned char *)words, sizeof(words));
        sum->rows++;
        for (size_t i = 0; i < DIGEST_WORDS; i++)
                sum->words[i] += words[i];
}

/* All rows that a statement gives; how many. */
static int take_rows(struct copying *c, struct stmt *s, struct err *err)
{
        struct db_arg values[COLUMNS_MAX];
        struct arena arena;
        int n = 0, r;

        while ((r = stmt_step(s, err)) > 0) {
                arena_init(&arena);
                for (size_t i = 0; i < c->columns.n; i++) {
                        const char *text = stmt_text(s, (int)i, &arena);

                        values[i] = DB_T(text ? clean_text(&arena, text) : NULL);
                }
                add_row(&c->sum, values, c->columns.n);
                r = c->insert ? db_exec(c->to, c->insert, values, c->columns.n, err) : 0;
                arena_done(&arena);
                if (r < 0)
                        return r;
                n++;
        }
        return r < 0 ? r : n;
}

/* Read a table of one side. A back end that would answer with the whole table at once is asked for
 * a part at a time. */
static int walk_table(struct copying *c, struct db *db, struct err *err)
{
        const char *select = arena_printf(c->arena, "SELECT %s FROM %s", c->list, c->table);
        bool in_parts = db->ops->catalog->has_cursors;
        const char *next =
                arena_printf(c->arena, "FETCH " ROWS_AT_ONCE " FROM \"walk_%s\"", c->table);
        int r = 0;

        c->sum = (struct table_sum){ 0 };
        if (in_parts)
                r = db_exec(db,
                            arena_printf(c->arena, "DECLARE \"walk_%s\" NO SCROLL CURSOR FOR %s",
                                         c->table, select),
                            DB_NO_ARGS, err);
        do {
                CLEAN(stmt_end) struct stmt *s = NULL;

                if (r >= 0)
                        r = db_query(db, in_parts ? next : select, DB_NO_ARGS, &s, err);
                if (r >= 0)
                        r = take_rows(c, s, err);
        } while (r > 0 && in_parts);
        if (r >= 0 && in_parts)
                r = db_exec(db, arena_printf(c->arena, "CLOSE \"walk_%s\"", c->table), DB_NO_ARGS,
                            err);
        return MIN(r, 0);
}

static int describe_table(struct copying *c, struct err *err)
{
        CLEAN(buf_done) struct buf list = BUF_INIT, values = BUF_INIT;
        int r = db_texts(c->to, c->to->ops->catalog->columns, DB_ARGS(DB_T(c->table)), c->arena,
                         add_name, &c->columns, err);

        if (r >= 0 && (c->columns.n == 0 || c->columns.n > COLUMNS_MAX))
                r = err_set(err, ERR_INTERNAL, "table %s has %zu columns", c->table, c->columns.n);
        for (size_t i = 0; r >= 0 && i < c->columns.n; i++) {
                buf_appendf(&list, "%s\"%s\"", i ? ", " : "", c->columns.at[i]);
                buf_appendf(&values, "%s?%zu", i ? ", " : "", i + 1);
        }
        c->list = arena_strndup(c->arena, buf_str(&list), list.len);
        c->insert = arena_printf(c->arena, "INSERT INTO %s (%s) VALUES (%s)", c->table, c->list,
                                 buf_str(&values));
        return MIN(r, 0);
}

static int copy_table(struct copying *c, struct err *err)
{
        struct table_sum source;
        int64_t n = 0;
        int r = describe_table(c, err);

        if (r >= 0)
                r = db_number(c->to, arena_printf(c->arena, "SELECT COUNT(*) FROM %s", c->table),
                              DB_NO_ARGS, &n, err);
        if (r >= 0 && n > 0)
                return err_set(err, ERR_CONFLICT,
                               "the database that is to be written has rows already (%s: %lld); "
                               "rows are copied only into an empty one",
                               c->table, (long long)n);
        if (r >= 0)
                r = walk_table(c, c->from, err);
        source = c->sum;
        c->insert = NULL;
        if (r >= 0)
                r = walk_table(c, c->to, err);
        if (r >= 0 && memcmp(&source, &c->sum, sizeof(source)) != 0)
                r = err_set(err, ERR_CORRUPT,
                            "the copy of table %s is not what it was made from (%lld rows, %lld "
                            "copied); nothing was written",
                            c->table, (long long)source.rows, (long long)c->sum.rows);
        return r < 0 ? err_wrap(err, r, "table %s", c->table) : 0;
}

int copy_rows(struct db *from, struct db *to, struct arena *arena, struct copy_count *ret,
              struct err *err)
{
        struct names tables = { .arena = arena };
        int r;

        *ret = (struct copy_count){ 0 };
        r = db_texts(from, from->ops->catalog->tables, DB_NO_ARGS, arena, add_name, &tables, err);
        if (r >= 0)
                r = db_script(to, to->ops->catalog->defer, err);
        for (size_t i = 0; r >= 0 && i < tables.n; i++) {
                struct copying c = {
                        .from = from,
                        .to = to,
                        .arena = arena,
                        .table = tables.at[i],
                        .columns = { .arena = arena },
                };

                r = copy_table(&c, err);
                ret->tables++;
                ret->rows += c.sum.rows;
        }
        if (r >= 0)
                r = db_script(to, to->ops->catalog->settle, err);
        return MIN(r, 0);
}
