/* bench-secrets: what secrets cost inside the daemon, where no request can measure it.
 *
 *   bench-secrets DIR SECONDS THREADS keep       seal and store a new secret, then use it
 *   bench-secrets DIR SECONDS THREADS resolve    the configuration of an ssh environment, with its
 * event bench-secrets DIR SECONDS THREADS open       opening a sealed value, and nothing else
 *
 * DIR is an empty directory for the database and the key. */
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>

#include "base/clock.h"
#include "core/environments/environment.h"
#include "core/kinds/kind.h"
#include "core/secrets/secret.h"
#include "secret/seal.h"
#include "stats.h"
#include "store/companies.h"

#define COMPANY "c0000000-0000-4000-8000-000000000001"

enum mode { MODE_KEEP, MODE_RESOLVE, MODE_OPEN };

struct bench {
        struct runtime rt;
        struct actor actor;
        enum mode mode;
        int64_t until_ns;
        struct environment env;
        json_t *config;
        const char *material;
};

struct worker {
        struct bench *b;
        pthread_t thread;
        struct stats stats;
};

static void fail(const struct err *err)
{
        (void)fprintf(stderr, "bench-secrets: %s\n", err->msg);
        exit(1);
}

static int insert_company(struct db *db, void *arg, struct err *err)
{
        struct company c = { .id = COMPANY,
                             .name = "Bench",
                             .status = "active",
                             .issue_prefix = "BEN",
                             .created_at = 1,
                             .updated_at = 1 };

        (void)arg;
        return companies_insert(db, &c, err);
}

static void keep_and_use(struct bench *b, struct op *op, struct err *err)
{
        struct uuid id = uuid_new();
        struct secret_spec spec = { .name = id.s, .managed_mode = SECRET_MANAGED };
        struct secret_value given = { 0 }, value = { 0 };
        struct secret made;

        if (secret_value_set(&given, "0123456789abcdef", 16, err) < 0 ||
            secret_create(op, &b->rt, COMPANY, &spec, &given, &made, err) < 0 ||
            secret_resolve(op, &b->rt, COMPANY, made.id, 0, NULL, &value, err) < 0)
                fail(err);
        secret_value_done(&given);
        secret_value_done(&value);
}

static void resolve(struct bench *b, struct op *op, struct err *err)
{
        struct secret_context context = { 0 };
        json_t *resolved;

        if (secret_resolve_config(op, &b->rt, COMPANY, b->env.id, kind_find(&b->rt, "ssh", NULL),
                                  b->config, NULL, &context, &resolved, err) < 0)
                fail(err);
        json_decref(resolved);
}

static void open_only(struct bench *b, struct err *err)
{
        static const struct seal_place place = { "c", "s", 1 };
        struct secret_value value;

        if (seal_open(&place, b->material, &value, err) < 0)
                fail(err);
        secret_value_done(&value);
}

static void *work(void *arg)
{
        struct worker *w = arg;
        struct err err = { 0 };

        stats_begin(&w->stats);
        while (stats_now_ns() < w->b->until_ns) {
                int64_t began = stats_now_ns();
                struct arena arena;
                struct op op = { .arena = &arena,
                                 .deadline_ms = OP_NO_DEADLINE,
                                 .actor = &w->b->actor };

                arena_init(&arena);
                if (w->b->mode == MODE_KEEP)
                        keep_and_use(w->b, &op, &err);
                else if (w->b->mode == MODE_RESOLVE)
                        resolve(w->b, &op, &err);
                else
                        open_only(w->b, &err);
                arena_done(&arena);
                stats_add(&w->stats, stats_now_ns() - began);
        }
        stats_end(&w->stats);
        return NULL;
}

static void set_up(struct bench *b, const char *dir, struct op *op)
{
        static const struct seal_place place = { "c", "s", 1 };
        struct master_key_source source = { .is_ours = true };
        struct secret_value value = { 0 };
        struct err err = { 0 };
        struct environment_change wish = {
                .name = "box",
                .driver = "ssh",
                .config = json_pack("{s:s, s:s, s:s, s:s}", "host", "h", "username", "u",
                                    "remoteWorkspacePath", "/w", "privateKey", "0123456789abcdef"),
        };

        source.file = arena_printf(op->arena, "%s/master.key", dir);
        b->rt.kinds = builtin_kinds;
        if (sodium_init() < 0 || master_key_load(&source, false, &err) < 0 ||
            store_open(arena_printf(op->arena, "%s/berth.db", dir), &b->rt.store, &err) < 0 ||
            store_write(op, b->rt.store, insert_company, NULL, &err) < 0 ||
            environment_create(op, &b->rt, COMPANY, &wish, &b->env, &err) < 0 ||
            json_parse(b->env.config, strlen(b->env.config), &b->config, &err) < 0 ||
            secret_value_set(&value, "0123456789abcdef", 16, &err) < 0 ||
            seal(op->arena, &place, &value, &b->material, &err) < 0)
                fail(&err);
        secret_value_done(&value);
        json_decref(wish.config);
}

int main(int argc, char **argv)
{
        static const char *const modes[] = { "keep", "resolve", "open" };
        struct bench b = { .actor = { .type = ACTOR_BOARD,
                                      .source = SOURCE_LOCAL_IMPLICIT,
                                      .user_id = LOCAL_BOARD_USER } };
        unsigned n = argc == 5 ? (unsigned)atoi(argv[3]) : 0;
        struct worker *workers = xcalloc(n + 1, sizeof(*workers));
        struct stats all = { 0 };
        struct arena arena;
        struct op op = { .arena = &arena, .deadline_ms = OP_NO_DEADLINE, .actor = &b.actor };

        if (n == 0) {
                (void)fprintf(stderr,
                              "usage: bench-secrets DIR SECONDS THREADS keep|resolve|open\n");
                return 2;
        }
        for (size_t i = 0; i < ARRAY_LEN(modes); i++)
                if (streq(modes[i], argv[4]))
                        b.mode = (enum mode)i;
        arena_init(&arena);
        set_up(&b, argv[1], &op);
        b.until_ns = stats_now_ns() + (int64_t)(atof(argv[2]) * 1e9);
        stats_begin(&all);
        for (unsigned i = 0; i < n; i++) {
                workers[i].b = &b;
                pthread_create(&workers[i].thread, NULL, work, &workers[i]);
        }
        for (unsigned i = 0; i < n; i++) {
                pthread_join(workers[i].thread, NULL);
                for (size_t k = 0; k < workers[i].stats.n; k++)
                        stats_add(&all, (int64_t)workers[i].stats.us[k] * 1000);
                stats_done(&workers[i].stats);
        }
        stats_end(&all);
        stats_print(&all, argv[4], n);
        stats_done(&all);
        free(workers);
        json_decref(b.config);
        store_close(b.rt.store);
        master_key_unload();
        arena_done(&arena);
        return 0;
}
