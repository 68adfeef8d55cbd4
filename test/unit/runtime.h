/* A runtime on a store of its own, for tests of core that no request can reach. */
#pragma once

#include "store_read.h"
#include "test.h"

#include <sodium.h>

#include "base/clock.h"
#include "core/access/access.h"
#include "core/kinds/kind.h"
#include "store/companies.h"

#define TEST_COMPANY "c0000000-0000-4000-8000-000000000001"

struct test_runtime {
        char dir[SCRATCH_PATH_MAX];
        struct arena arena;
        struct op op;
        struct runtime rt;
};

static inline int test_insert_company(struct db *db, void *arg, struct err *err)
{
        struct company c = { .id = TEST_COMPANY,
                             .name = "Acme",
                             .status = "active",
                             .issue_prefix = "ACM",
                             .created_at = clock_now_us(),
                             .updated_at = clock_now_us() };

        (void)arg;
        return companies_insert(db, &c, err);
}

/* With one company in it and nothing else. `kinds` may be NULL: those that are built in. */
static inline struct test_runtime *test_runtime_new(const struct kind *const *kinds)
{
        struct test_runtime *t = xcalloc(1, sizeof(*t));
        char path[SCRATCH_PATH_MAX + 16];
        struct err e = { 0 };

        assert_true(sodium_init() >= 0);
        memory_may_fail(false);
        make_scratch(t->dir);
        snprintf(path, sizeof(path), "%s/berth.db", t->dir);
        if (store_open(path, &t->rt.store, &e) < 0)
                fail_msg("%s", e.msg);
        t->rt.kinds = kinds ? kinds : builtin_kinds;
        t->rt.settings.allow_fake_provider = true;
        t->rt.settings.adhoc_ttl_ms = t->rt.settings.idle_place_ttl_ms = 3600000;
        t->rt.settings.operation_timeout_ms = t->rt.settings.close_timeout_ms = 60000;
        t->rt.node.id = t->rt.node.instance = uuid_new();
        memcpy(t->rt.node.boot_id, t->rt.node.id.s, sizeof(t->rt.node.boot_id));
        arena_init(&t->arena);
        t->op = (struct op){ .arena = &t->arena,
                             .deadline_ms = OP_NO_DEADLINE,
                             .actor = &actor_system };
        assert_int_equal(store_write(&t->op, t->rt.store, test_insert_company, NULL, &e), 1);
        memory_may_fail(true);
        return t;
}

static inline void test_runtime_free(struct test_runtime *t)
{
        static const char *const files[] = { "berth.db", "berth.db-wal", "berth.db-shm" };
        char path[SCRATCH_PATH_MAX + 16];

        memory_may_fail(false);
        store_close(t->rt.store);
        for (size_t i = 0; i < ARRAY_LEN(files); i++) {
                snprintf(path, sizeof(path), "%s/%s", t->dir, files[i]);
                (void)remove(path);
        }
        assert_int_equal(remove(t->dir), 0);
        arena_done(&t->arena);
        free(t);
}

struct test_count {
        const char *sql;
        int64_t n;
};

static inline int test_count_rows(struct db *db, void *arg, struct err *err)
{
        struct test_count *c = arg;

        return db_number(db, c->sql, DB_NO_ARGS, &c->n, err);
}

static inline int64_t test_number(struct test_runtime *t, const char *sql)
{
        struct test_count c = { sql, -1 };

        assert_true(store_read(&t->op, t->rt.store, test_count_rows, &c, NULL) >= 0);
        return c.n;
}
