/* The tests of the store, the same for every back end: each test opens a store of its own by URL.
 * A program per back end (test_store.c) says where, and adds what only that back end has. */
#pragma once

#include "test.h"

#include "store/store.h"

#define STORE_URL_MAX 512

struct store_backend {
        const char *name;
        /* The URL of a database that does not exist or is empty; and its end. */
        void (*create)(char url[STORE_URL_MAX]);
        void (*drop)(const char *url);
};

struct store_fixture {
        char url[STORE_URL_MAX];
        struct store *store;
        struct arena arena;
        struct op op;
        struct err err;
};

/* Fails the write function it stands in: cmocka's own assertions jump, which another thread must
 * not. */
#define CHECK(condition)                                                                           \
        do {                                                                                       \
                if (!(condition))                                                                  \
                        return err_set(err, ERR_INTERNAL, "%s:%d: not true: %s", __FILE__,         \
                                       __LINE__, #condition);                                      \
        } while (0)

/* A text as the argument of a write function, which only reads it. */
#define TEXT(s) ((void *)(s))

void store_suite_use(const struct store_backend *backend);
int store_suite_setup(void **state); /* *state becomes a struct store_fixture */
int store_suite_teardown(void **state);

/* Write, and fail the test unless it worked. */
void store_suite_write(struct store_fixture *f, store_fn fn, void *arg);
/* Make a company "c1" and an environment "e1" in it. */
int store_suite_company(struct db *db, void *arg, struct err *err);
int64_t store_suite_count(struct store_fixture *f, const char *sql);

/* Several writes that are queued together behind one that waits. */
struct store_member {
        store_fn fn;
        void *arg;
        struct err err;
        /* the suite's own */
        struct store_fixture *f;
        unsigned long thread;
        int tid;
        int result; /* what store_write() returned */
};
void store_suite_group(struct store_fixture *f, struct store_member *members, size_t n);

/* The ids of a list in a row. */
struct ids {
        char text[512];
};

static inline int add_id(struct ids *ids, const char *id)
{
        size_t n = strlen(ids->text);

        snprintf(ids->text + n, sizeof(ids->text) - n, "%s%s", n ? " " : "", id);
        return 0;
}

/* Makes collect_<type>(), which takes down the ids of rows. */
#define COLLECT(type)                                                                              \
        static int collect_##type(void *ctx, const struct type *row)                               \
        {                                                                                          \
                return add_id(ctx, row->id);                                                       \
        }

/* Takes down the ids of a query that puts its rows into the array `found`; what it returned. */
#define ROWS(type, query)                                                                          \
        __extension__({                                                                            \
                struct type *found = NULL;                                                         \
                int n_rows = (query);                                                              \
                                                                                                   \
                for (int at_row = 0; at_row < n_rows; at_row++)                                    \
                        add_id(&ids, found[at_row].id);                                            \
                n_rows;                                                                            \
        })

/* Run a listing and compare. */
#define CHECK_LIST(expected, call)                                                                 \
        do {                                                                                       \
                struct ids ids = { "" };                                                           \
                                                                                                   \
                CHECK((call) >= 0);                                                                \
                if (!streq(ids.text, expected))                                                    \
                        return err_set(err, ERR_INTERNAL, "%s:%d: '%s', expected '%s'", __FILE__,  \
                                       __LINE__, ids.text, expected);                              \
        } while (0)

static inline bool same(const char *a, const char *b)
{
        return a == b || (a && b && streq(a, b));
}

/* store_suite.c: the store itself; store_suite_rows.c, _work.c and _workspaces.c: its tables. */
int store_suite_run_engine(void);
int store_suite_run_rows(void);
int store_suite_run_work(void);
int store_suite_run_workspaces(void);
