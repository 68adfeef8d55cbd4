/* Whether a move of a place may be written, and when closing it is tried again. */
#include "core/places/place.h"

#include "base/clock.h"
#include "core/kinds/kind.h"

static void place_sign(const struct runtime *rt, struct place *place)
{
        place->owner_node = rt->node.id.s;
        place->owner_boot = rt->node.boot_id;
        place->owner_instance = rt->node.instance.s;
}

int place_create(struct db *db, const struct runtime *rt, struct place *place, const char *state,
                 struct err *err)
{
        int r = place_transition_check(NULL, state, err);

        if (r < 0)
                return r;
        place_sign(rt, place);
        place->state = state;
        place->epoch = 1;
        place->created_at = place->updated_at = clock_now_us();
        r = places_insert(db, place, err);
        return r < 0 ? r : 0;
}

int place_move(struct db *db, const struct runtime *rt, struct place *place, const char *state,
               struct err *err)
{
        struct place to = *place;
        int r = place_transition_check(place->state, state, err);

        if (r < 0)
                return r;
        if (place_is_foreign(rt, place) && !streq(state, PLACE_GONE))
                return err_set(err, ERR_CONFLICT,
                               "The place belongs to another instance of Berth (node %s), which "
                               "may be using it; nothing was done. `berth leaks` says what can "
                               "be done.",
                               place->owner_node);
        place_sign(rt, &to);
        to.state = state;
        to.epoch = place->epoch + 1;
        to.updated_at = clock_now_us();
        r = places_replace(db, place, &to, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_CONFLICT,
                               "The place changed in the meantime; nothing was done.");
        const struct kind *kind = streq(state, PLACE_GONE) ? kind_of_place(rt, place) : NULL;
        if (kind && kind->unclaim) {
                r = kind->unclaim(db, place, err);
                if (r < 0)
                        return r;
        }
        *place = to;
        return 0;
}

struct move_request {
        struct runtime *rt;
        struct place *place;
        const char *state, *note;
};

static int place_move_noted(struct db *db, void *arg, struct err *err)
{
        struct move_request *m = arg;
        bool is_over = streq(m->state, PLACE_GONE) || streq(m->state, PLACE_READY);

        db_keep(db, m->place, sizeof(*m->place));
        if (m->note)
                m->place->note = m->note;
        m->place->next_attempt_at = is_over ? 0 : place_closing_until(m->rt);
        return place_move(db, m->rt, m->place, m->state, err);
}

int place_commit_move(const struct op *op, struct runtime *rt, struct place *place,
                      const char *state, const char *note, struct err *err)
{
        struct move_request m = { rt, place, state, note };

        return store_write(op, rt->store, place_move_noted, &m, err);
}

bool place_is_foreign(const struct runtime *rt, const struct place *place)
{
        return !streq(place->owner_node, rt->node.id.s);
}

void place_take_over(const struct runtime *rt, struct place *place)
{
        place->owner_node = rt->node.id.s;
}

bool place_is_ours(const struct runtime *rt, const struct place *place)
{
        return streq(place->owner_instance, rt->node.instance.s);
}

/* The provider's time, and as much again to record how it went. */
int64_t place_closing_until(const struct runtime *rt)
{
        return clock_steady_us() + 2 * rt->settings.close_timeout_ms * US_PER_MS;
}

int64_t place_busy_until(const struct runtime *rt)
{
        return place_closing_until(rt) + rt->settings.operation_timeout_ms * US_PER_MS;
}

int64_t place_retry_pause(int64_t attempts)
{
        int64_t pause = US_PER_S;

        for (int64_t i = 1; i < attempts && pause < 300 * US_PER_S; i++)
                pause *= 2;
        return MIN(pause, 300 * US_PER_S);
}

int place_load(struct op *op, struct runtime *rt, const char *id, struct place *ret,
               struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : places_get(db, id, op->arena, ret, err);
}
