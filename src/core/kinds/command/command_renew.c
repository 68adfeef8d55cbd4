/* Which places are renewed, and when. */
#include "core/kinds/command/command_renew.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/access/access.h"
#include "core/kinds/command/command_load.h"
#include "core/kinds/command/command_run.h"
#include "core/places/place_state.h"
#include "rt/pool.h"

#define TICK_MIN_MS 250
#define TICK_MAX_MS 30000
#define PASS_MS     600000

/* When a place was renewed last. */
struct renewed {
        char place_id[UUID_LEN + 1];
        int64_t at_ms;
        bool seen; /* by this pass */
};

struct command_keeper {
        struct runtime *rt;
        uv_timer_t timer;
        struct pool_job job;
        bool running, stopping;
        /* of the job */
        struct renewed *list;
        size_t n;
};

/* 0: it does not renew. */
static int64_t interval_of(const struct kind *kind)
{
        const json_t *d = kind ? command_kind_descriptor(kind, NULL) : NULL;
        const json_t *renew = d ? command_of(d, COMMAND_RENEW) : NULL;

        return renew ? command_ms(renew, "everySeconds", 0) : 0;
}

struct wanted {
        struct runtime *rt;
        struct arena *arena;
        struct place *list;
        size_t n, room;
};

/* A paused place cannot be renewed, and a provider does not charge for it as it does for others. */
static int want(void *ctx, const struct place *place)
{
        struct wanted *w = ctx;
        const struct kind *kind = kind_of_place(w->rt, place);
        bool is_ready = streq(place->state, PLACE_READY);

        if (!interval_of(kind) || !place->provider_lease_id ||
            (!streq(place->state, PLACE_HELD) && (!is_ready || kind->park)))
                return 0;
        w->list = arena_more(w->arena, w->list, w->n, &w->room, sizeof(*w->list));
        w->list[w->n++] = *place;
        return 0;
}

/* Counted from the first time that it is seen: opening it counts as a renewal. */
static struct renewed *entry_of(struct command_keeper *k, const char *place_id)
{
        for (size_t i = 0; i < k->n; i++)
                if (streq(k->list[i].place_id, place_id))
                        return &k->list[i];
        k->list = xrealloc(k->list, (k->n + 1) * sizeof(*k->list));
        k->list[k->n] = (struct renewed){ .at_ms = 0 };
        memcpy(k->list[k->n].place_id, place_id, UUID_LEN + 1);
        return &k->list[k->n++];
}

static void renew_due(struct op *op, struct command_keeper *k, const struct place *place)
{
        struct renewed *r = entry_of(k, place->id);
        CLEAN(err_done) struct err err = { 0 };

        r->seen = true;
        if (clock_mono_ms() - r->at_ms < interval_of(kind_of_place(k->rt, place)) && r->at_ms)
                return;
        if (command_about(op, k->rt, place, COMMAND_RENEW, &err) >= 0)
                r->at_ms = clock_mono_ms();
        else if (err.code != ERR_CANCELLED)
                log_warn("a place could not be renewed at its provider and may end",
                         LOG_S("place", place->id), LOG_S("error", err.msg));
}

static void forget_unseen(struct command_keeper *k)
{
        size_t n = 0;

        for (size_t i = 0; i < k->n; i++)
                if (k->list[i].seen)
                        k->list[n++] = k->list[i];
        k->n = n;
        for (size_t i = 0; i < n; i++)
                k->list[i].seen = false;
}

static void pass_run(struct pool_job *job, struct op *op)
{
        struct command_keeper *k = container_of(job, struct command_keeper, job);
        struct wanted w = { .rt = k->rt, .arena = op->arena };
        CLEAN(store_read_end) struct db *db = NULL;
        CLEAN(err_done) struct err err = { 0 };
        int r = store_read_begin(op, k->rt->store, &db, &err);

        op->actor = &actor_system;
        if (r >= 0)
                r = places_living(db, NULL, op->arena, want, &w, &err);
        store_read_end(&db);
        for (size_t i = 0; r >= 0 && i < w.n && op_check(op, NULL) >= 0; i++)
                renew_due(op, k, &w.list[i]);
        if (r >= 0)
                forget_unseen(k);
}

static void pass_done(struct pool_job *job)
{
        container_of(job, struct command_keeper, job)->running = false;
}

static void tick(uv_timer_t *timer)
{
        struct command_keeper *k = container_of(timer, struct command_keeper, timer);

        if (k->running || k->stopping)
                return;
        k->job = (struct pool_job){ .run = pass_run, .done = pass_done, .timeout_ms = PASS_MS };
        pool_job_lane(&k->job, LANE_PEERS, lane_name(NULL, "renew"));
        k->running = pool_submit(k->rt->pool, &k->job, NULL) >= 0;
}

struct command_keeper *command_keeper_start(struct runtime *rt, uv_loop_t *loop)
{
        struct command_keeper *k;
        int64_t least = 0;

        for (const struct kind *const *kind = rt->kinds; *kind; kind++) {
                int64_t every = interval_of(*kind);

                if (every && (!least || every < least))
                        least = every;
        }
        if (!least)
                return NULL;
        least = MAX(MIN(least / 4, TICK_MAX_MS), TICK_MIN_MS);
        k = xcalloc(1, sizeof(*k));
        k->rt = rt;
        uv_timer_init(loop, &k->timer);
        uv_timer_start(&k->timer, tick, (uint64_t)least, (uint64_t)least);
        return k;
}

void command_keeper_stop(struct command_keeper *k)
{
        if (!k)
                return;
        k->stopping = true;
        uv_timer_stop(&k->timer);
        if (k->running)
                pool_cancel(k->rt->pool, &k->job);
}

void command_keeper_free(struct command_keeper *k)
{
        if (!k)
                return;
        free(k->list);
        free(k);
}
