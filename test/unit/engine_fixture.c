#include "engine_fixture.h"
#include "store_read.h"

#include <unistd.h>

#include "base/clock.h"
#include "base/log.h"
#include "store/companies.h"

/* The world */

struct thing *engine_find(struct engine *e, const char *tag)
{
        for (size_t i = 0; i < e->n_world; i++)
                if (streq(e->world[i].tag, tag))
                        return &e->world[i];
        return NULL;
}

static void apply(struct engine *e, enum effect effect, const struct place *place)
{
        struct thing *t = engine_find(e, place->id);

        switch (effect) {
        case EFFECT_OPEN:
                if (!t && e->n_world < WORLD_MAX) {
                        t = &e->world[e->n_world++];
                        snprintf(t->tag, sizeof(t->tag), "%s", place->id);
                }
                if (t)
                        t->in_use = true;
                break;
        case EFFECT_RESUME:
        case EFFECT_PARK:
                if (t)
                        t->in_use = effect == EFFECT_RESUME;
                break;
        default:
                if (t)
                        *t = e->world[--e->n_world];
                break;
        }
        e->calls[effect]++;
}

static int perform(struct op *op, struct runtime *rt, enum effect effect, const struct place *place,
                   struct err *err)
{
        struct engine *e = container_of(rt, struct engine, rt);
        struct misdeed m = { 0 };

        if (!e->dead && e->decide_effect)
                m = e->decide_effect(e, effect, op, place);
        if (m.cancel && op->cancel)
                op_cancel_set(op->cancel);
        if (m.die_before)
                e->dead = true;
        if (e->dead)
                return err_set(err, ERR_PROVIDER, "the daemon is dead");
        if (!m.code || m.happens)
                apply(e, effect, place);
        if (m.die_after)
                e->dead = true;
        else if (e->after_effect)
                e->after_effect(e, effect, place);
        if (e->dead)
                return err_set(err, ERR_PROVIDER, "the daemon is dead");
        return m.code ? err_set(err, m.code, "told to fail") : 0;
}

static int fake_open(struct op *op, struct runtime *rt, const struct place *place,
                     const struct lease_request *req, struct provider_lease *ret, struct err *err)
{
        int r = perform(op, rt, EFFECT_OPEN, place, err);

        if (r >= 0)
                ret->id = arena_printf(op->arena, "thing-%s", place->id);
        return r;
}

static int fake_resume(struct op *op, struct runtime *rt, const struct place *place,
                       const struct lease_request *req, struct provider_lease *ret, struct err *err)
{
        struct engine *e = container_of(rt, struct engine, rt);
        int r;

        if (!e->dead && !engine_find(e, place->id))
                return err_set(err, ERR_NOT_FOUND, "not there any more");
        r = perform(op, rt, EFFECT_RESUME, place, err);
        if (r >= 0)
                ret->id = place->provider_lease_id;
        return r;
}

static int fake_park(struct op *op, struct runtime *rt, const struct place *place, struct err *err)
{
        return perform(op, rt, EFFECT_PARK, place, err);
}

static int fake_close(struct op *op, struct runtime *rt, const struct place *place, struct err *err)
{
        return perform(op, rt, EFFECT_CLOSE, place, err);
}

static int fake_plan(struct op *op, struct runtime *rt, const struct environment *env,
                     const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        *ret = (struct lease_plan){
                .provider = "fake",
                .policy = env->name,
                .config = env->config,
                .has_world = true,
                .reuse = streq(env->name, POLICY_REUSE_ENVIRONMENT),
        };
        return 0;
}

static bool fake_matches(const char *recorded, const char *wanted)
{
        return streq(recorded, wanted);
}

static int fake_list(struct op *op, struct runtime *rt, const struct kind *kind, kind_found_fn fn,
                     void *ctx, struct err *err)
{
        struct engine *e = container_of(rt, struct engine, rt);
        int r = 0;

        for (size_t i = 0; r >= 0 && i < e->n_world; i++)
                r = fn(ctx,
                       &(struct kind_thing){ "fake", e->world[i].tag, "thing", rt->node.id.s });
        return r;
}

#define FAKE_KIND(key_, list_)                                                                     \
        {                                                                                          \
                .driver = key_, .plan = fake_plan, .open = fake_open, .resume = fake_resume,       \
                .park = fake_park, .close = fake_close, .matches = fake_matches, .list = list_,    \
                .can_destroy = true, .writes_cleanup_status = true,                                \
                .release_failure_reason = "failed"                                                 \
        }

static const struct kind listed = FAKE_KIND("listed", fake_list);
static const struct kind blind = FAKE_KIND("blind", NULL);
extern const struct kind kind_local;

static const struct kind *const kinds[] = { &listed, &blind, &kind_local, NULL };

/* The store */

static int faulty_read_begin(const struct op *op, struct store *s, struct db **ret, struct err *err)
{
        struct engine *e = container_of(s, struct engine, faulty);

        if (e->dead)
                return err_set(err, ERR_IO, "the daemon is dead");
        return e->store->ops->read_begin(op, e->store, ret, err);
}

static int faulty_write(const struct op *op, struct store *s, store_fn fn, void *arg,
                        struct err *err)
{
        struct engine *e = container_of(s, struct engine, faulty);
        struct misdeed m = { 0 };
        int r;

        if (!e->dead && e->decide_write)
                m = e->decide_write(e, op);
        if (m.die_before)
                e->dead = true;
        if (e->dead)
                return err_set(err, ERR_IO, "the daemon is dead");
        if (m.code)
                return err_set(err, m.code, "the store was told to fail");
        r = store_write(op, e->store, fn, arg, err);
        if (m.die_after) {
                e->dead = true;
                return err_set(err, ERR_IO, "the daemon is dead");
        }
        return r;
}

static const struct store_ops faulty_ops = { .read_begin = faulty_read_begin,
                                             .write = faulty_write };

/* The fixture */

static int add_environments(struct db *db, void *arg, struct err *err)
{
        static const struct {
                const char *id, *policy, *driver;
        } environments[] = {
                { ENV_ONCE, POLICY_EPHEMERAL, "listed" },
                { ENV_REUSE, POLICY_REUSE_ENVIRONMENT, "listed" },
                { ENV_RETAIN, POLICY_RETAIN_ON_FAILURE, "listed" },
                { ENV_BLIND, POLICY_REUSE_ENVIRONMENT, "blind" },
        };
        struct company c = {
                .id = "c1", .name = "c1", .status = "active", .issue_prefix = "C", .created_at = 1
        };
        int r = companies_insert(db, &c, err);

        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(environments); i++) {
                struct environment env = { .id = environments[i].id,
                                           .company_id = "c1",
                                           .name = environments[i].policy,
                                           .driver = environments[i].driver,
                                           .status = "active",
                                           .config = environments[i].id,
                                           .created_at = 1,
                                           .updated_at = 1 };

                r = environments_insert(db, &env, err);
        }
        return r;
}

static struct op plain_op(struct arena *arena)
{
        return (struct op){ .arena = arena, .deadline_ms = OP_NO_DEADLINE, .actor = &actor_system };
}

void engine_start(struct engine *e)
{
        struct err err = { 0 };
        struct op op = plain_op(NULL);

        *e = (struct engine){ .faulty.ops = &faulty_ops };
        log_init(LOG_LEVEL_ERROR, LOG_FORMAT_TEXT);
        memory_may_fail(false);
        make_scratch(e->scratch);
        snprintf(e->url, sizeof(e->url), "%s/berth.db", e->scratch);
        if (store_open(e->url, &e->store, &err) < 0 ||
            store_write(&op, e->store, add_environments, NULL, &err) < 0)
                fail_msg("%s", err.msg);
        e->rt.store = &e->faulty;
        e->rt.kinds = kinds;
        e->rt.settings = (struct settings){ .idle_place_ttl_ms = 600000,
                                            .adhoc_ttl_ms = 900000,
                                            .operation_timeout_ms = 120000,
                                            .close_timeout_ms = 60000 };
        e->rt.node.id = uuid_new();
        e->rt.node.instance = uuid_new();
        memory_may_fail(true);
}

void engine_stop(struct engine *e)
{
        static const char *const suffixes[] = { "", "-wal", "-shm" };
        char path[sizeof(e->url) + 8];

        memory_may_fail(false);
        store_close(e->store);
        for (size_t i = 0; i < ARRAY_LEN(suffixes); i++) {
                snprintf(path, sizeof(path), "%s%s", e->url, suffixes[i]);
                unlink(path);
        }
        rmdir(e->scratch);
}

void engine_restart(struct engine *e)
{
        e->dead = false;
        e->rt.node.instance = uuid_new();
}

struct statement {
        const char *sql, *arg;
        char *ret;
        size_t size;
};

static int run_statement(struct db *db, void *arg, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        struct statement *q = arg;
        struct arena arena;
        int r = db_query(db, q->sql, q->arg ? (struct db_arg[]){ DB_T(q->arg) } : NULL,
                         q->arg ? 1 : 0, &s, err);

        arena_init(&arena);
        if (r >= 0)
                r = stmt_step(s, err);
        if (q->ret)
                snprintf(q->ret, q->size, "%s",
                         r > 0 && !stmt_is_null(s, 0) ? stmt_text(s, 0, &arena) : "-");
        arena_done(&arena);
        return r;
}

static void run_sql(struct engine *e, struct statement q, bool write)
{
        struct err err = { 0 };
        struct op op = plain_op(NULL);

        if ((write ? store_write : store_read)(&op, e->store, run_statement, &q, &err) < 0)
                fail_msg("%s: %s", q.sql, err.msg);
}

const char *engine_sql(struct engine *e, const char *sql, const char *arg)
{
        static char text[4][512];
        static unsigned turn;
        char *ret = text[turn++ % 4];

        run_sql(e, (struct statement){ sql, arg, ret, sizeof(text[0]) }, false);
        return ret;
}

int64_t engine_count(struct engine *e, const char *sql, const char *arg)
{
        return strtoll(engine_sql(e, sql, arg), NULL, 10);
}

void engine_exec(struct engine *e, const char *sql, const char *arg)
{
        run_sql(e, (struct statement){ sql, arg, NULL, 0 }, true);
}

void engine_advance(struct engine *e, int64_t seconds)
{
        char us[32];

        snprintf(us, sizeof(us), "%lld", (long long)(seconds * US_PER_S));
        engine_exec(e,
                    "UPDATE places SET next_attempt_at = next_attempt_at - CAST(?1 AS BIGINT), "
                    "deadline_at = deadline_at - CAST(?1 AS BIGINT) WHERE state <> 'gone'",
                    us);
        engine_exec(e,
                    "UPDATE environment_leases SET expires_at = expires_at - CAST(?1 AS BIGINT) "
                    "WHERE status = 'active'",
                    us);
}

void engine_op_init(struct engine_op *o)
{
        arena_init(&o->arena);
        o->op = plain_op(&o->arena);
        assert_int_equal(op_cancel_init(&o->cancel, NULL), 0);
        o->op.cancel = &o->cancel;
}

void engine_op_done(struct engine_op *o)
{
        op_cancel_done(&o->cancel);
        arena_done(&o->arena);
}

struct env_request {
        struct engine_op *o;
        const char *id;
        struct environment env;
};

static int get_environment(struct db *db, void *arg, struct err *err)
{
        struct env_request *q = arg;

        return environments_get(db, q->id, &q->o->arena, &q->env, err);
}

int engine_acquire(struct engine *e, struct engine_op *o, const char *environment, const char *run,
                   const char *key, int64_t ttl_ms, struct lease_record *ret, struct err *err)
{
        struct env_request q = { .o = o, .id = environment };
        struct lease_request req = { .run_id = run, .idempotency_key = key, .ttl_ms = ttl_ms };
        int r = store_read(&o->op, e->store, get_environment, &q, err);

        return r < 0 ? r : lease_acquire(&o->op, &e->rt, &q.env, &req, ret, err);
}

int engine_release(struct engine *e, const char *lease_id, const char *status)
{
        struct lease_record record;
        struct engine_op o;
        int r;

        engine_op_init(&o);
        r = lease_release(&o.op, &e->rt, lease_id, status, &record, NULL);
        engine_op_done(&o);
        return r;
}

void engine_sweep(struct engine *e)
{
        struct sweep_result result;
        struct engine_op o;

        engine_op_init(&o);
        (void)sweep(&o.op, &e->rt, NULL, &result, NULL);
        engine_op_done(&o);
}

/* Invariants */

#define LIVING "(l.status = 'active' OR l.status = 'retained')"

static int note_place(void *ctx, const struct place *p)
{
        struct engine *e = ctx;
        const struct thing *t = engine_find(e, p->id);

        if (streq(p->state, PLACE_READY) && (!t || t->in_use))
                return t ? -1 : -2;
        return 0;
}

static int check_idle(struct db *db, void *arg, struct err *err)
{
        struct arena arena;
        int r;

        arena_init(&arena);
        r = places_living(db, PLACE_READY, &arena, note_place, arg, err);
        arena_done(&arena);
        return r;
}

static int check_leased(struct db *db, void *arg, struct err *err)
{
        CLEAN(stmt_end) struct stmt *s = NULL;
        struct engine *e = arg;
        struct arena arena;
        int r = db_query(db,
                         "SELECT p.id, p.state FROM environment_leases l "
                         "JOIN places p ON p.id = l.place_id WHERE " LIVING,
                         DB_NO_ARGS, &s, err);

        arena_init(&arena);
        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                const struct thing *t = engine_find(e, stmt_text(s, 0, &arena));

                r = !streq(stmt_text(s, 1, &arena), PLACE_HELD) ? -1
                    : !t                                        ? -2
                    : !t->in_use                                ? -3
                                                                : 0;
        }
        arena_done(&arena);
        return r;
}

const char *engine_broken_invariant(struct engine *e)
{
        struct op op = plain_op(NULL);
        int r;

        for (size_t i = 0; i < e->n_world; i++)
                if (engine_count(e, "SELECT COUNT(*) FROM places WHERE id = ?1 AND state <> 'gone'",
                                 e->world[i].tag) != 1)
                        return "something exists that no living row names";
        r = store_read(&op, e->store, check_leased, e, NULL);
        if (r < 0)
                return r == -1   ? "a place with a living lease is not held"
                       : r == -2 ? "a place with a living lease does not exist"
                                 : "a place with a living lease is not in use";
        r = store_read(&op, e->store, check_idle, e, NULL);
        if (r < 0)
                return r == -1 ? "an idle place is in use" : "an idle place does not exist";
        if (engine_count(e,
                         "SELECT COUNT(*) FROM (SELECT l.place_id FROM environment_leases l "
                         "JOIN places p ON p.id = l.place_id WHERE " LIVING " GROUP BY l.place_id "
                         "HAVING COUNT(DISTINCT COALESCE(l.heartbeat_run_id, l.id)) > 1 "
                         "OR (COUNT(*) > 1 AND MIN(p.policy) <> 'reuse_by_environment')) x",
                         NULL) != 0)
                return "a place has two holders";
        return NULL;
}
