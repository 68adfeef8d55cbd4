/* Which route leads to the box of a place, the route of boxes on this machine, and their locks. */
#define _GNU_SOURCE
#include "core/exec/box_route.h"

#include <time.h>

#include "box/launch.h"
#include "core/exec/box_route_test.h"
#include "core/exec/exec_internal.h"
#include "core/kinds/kind.h"
#include "rt/reserve.h"

#define LOOK_MS 20

/* Boxes on this machine */

static int connect_here(struct runtime *rt, const struct place *place, int *ret_fd, struct err *err)
{
        CLEAN(cleanup_free) char *dir = box_dir(rt->hub, place->id);

        return box_connect(dir, ret_fd, err);
}

static int ensure_here(struct op *op, struct runtime *rt, const struct place *place,
                       struct err *err)
{
        CLEAN(cleanup_free) char *dir = box_dir(rt->hub, place->id);
        const struct kind *kind = kind_of_place(rt, place);
        int r = box_check_alive(dir, err);

        if (r != 0)
                return MIN(r, 0);
        if (kind && kind->box_is_place)
                return err_set(err, ERR_CONFLICT,
                               "The sandbox of the lease has ended. Release the lease and acquire "
                               "another.");
        r = reserve_check(err);
        return r < 0 ? r : box_launch(op, rt->hub->config.box_program, dir, place->id, err);
}

static int is_alive_here(struct op *op, struct runtime *rt, const struct place *place,
                         struct err *err)
{
        CLEAN(cleanup_free) char *dir = box_dir(rt->hub, place->id);

        return box_check_alive(dir, err);
}

static int bury_here(struct op *op, struct runtime *rt, const struct place *place,
                     const char *const *exec_ids, struct err *err)
{
        CLEAN(cleanup_free) char *dir = box_dir(rt->hub, place->id);

        return box_bury(op, dir, place->id, exec_ids, err);
}

const struct box_route box_route_untested = {
        .is_here = true,
        .connect = connect_here,
        .ensure = ensure_here,
        .is_alive = is_alive_here,
        .bury = bury_here,
};

const struct box_route *box_route_here(void)
{
        return box_route_tested(&box_route_untested);
}

/* Which */

static const struct box_route *own_route(const struct runtime *rt, const struct place *place)
{
        const struct kind *kind = kind_of_place(rt, place);

        return kind && kind->route ? kind->route(place) : NULL;
}

const struct box_route *box_route_of(const struct runtime *rt, const struct place *place)
{
        const struct box_route *route = own_route(rt, place);

        return route ? route : box_route_here();
}

bool box_route_has_box(const struct runtime *rt, const struct place *place)
{
        return place->has_world && own_route(rt, place);
}

/* Keeping places */

struct kept_place *kept_place_new(const struct place *place)
{
        struct kept_place *k = xcalloc(1, sizeof(*k));
        const char **texts[] = {
                &k->place.id,          &k->place.company_id,     &k->place.environment_id,
                &k->place.driver,      &k->place.provider,       &k->place.provider_lease_id,
                &k->place.config,      &k->place.policy,         &k->place.state,
                &k->place.request_key, &k->place.holder_run_id,  &k->place.owner_node,
                &k->place.owner_boot,  &k->place.owner_instance, &k->place.note,
        };

        arena_init(&k->arena);
        k->place = *place;
        for (size_t i = 0; i < ARRAY_LEN(texts); i++)
                *texts[i] = arena_strdup(&k->arena, *texts[i]);
        return k;
}

void kept_place_free(struct kept_place *k)
{
        if (!k)
                return;
        arena_done(&k->arena);
        free(k);
}

/* Locks */

struct box_lock {
        struct box_lock *next;
        char place_id[UUID_LEN + 1];
};

void box_locks_init(struct box_locks *l)
{
        pthread_condattr_t attr;

        pthread_condattr_init(&attr);
        pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
        pthread_mutex_init(&l->lock, NULL);
        pthread_cond_init(&l->changed, &attr);
        pthread_condattr_destroy(&attr);
        l->held = NULL;
}

void box_locks_done(struct box_locks *l)
{
        pthread_cond_destroy(&l->changed);
        pthread_mutex_destroy(&l->lock);
}

/* Where it is in the list, or the list's end. */
static struct box_lock **find_lock(struct box_locks *l, const char *place_id)
{
        struct box_lock **at = &l->held;

        while (*at && !streq((*at)->place_id, place_id))
                at = &(*at)->next;
        return at;
}

/* Waits in short steps, because a condition variable cannot wait for a cancel. */
static void wait_a_little(struct box_locks *l)
{
        struct timespec until;

        (void)clock_gettime(CLOCK_MONOTONIC, &until);
        until.tv_nsec += LOOK_MS * 1000000L;
        until.tv_sec += until.tv_nsec / 1000000000L;
        until.tv_nsec %= 1000000000L;
        (void)pthread_cond_timedwait(&l->changed, &l->lock, &until);
}

int box_locks_take(struct op *op, struct box_locks *l, const char *place_id, struct err *err)
{
        struct box_lock *mine = xcalloc(1, sizeof(*mine));
        int r = 0;

        memcpy(mine->place_id, place_id, UUID_LEN + 1);
        pthread_mutex_lock(&l->lock);
        while (r >= 0 && *find_lock(l, place_id)) {
                wait_a_little(l);
                r = op_check(op, err);
        }
        if (r >= 0) {
                mine->next = l->held;
                l->held = mine;
        }
        pthread_mutex_unlock(&l->lock);
        if (r < 0)
                free(mine);
        return r;
}

void box_locks_give(struct box_locks *l, const char *place_id)
{
        pthread_mutex_lock(&l->lock);
        struct box_lock **at = find_lock(l, place_id);
        struct box_lock *mine = *at;
        if (mine)
                *at = mine->next;
        pthread_cond_broadcast(&l->changed);
        pthread_mutex_unlock(&l->lock);
        free(mine);
}
