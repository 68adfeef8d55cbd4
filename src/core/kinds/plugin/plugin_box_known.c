/* What the daemon remembers of boxes that are reached by calls, to make fewer of them: when a box
 * was last heard, and whether an environment's provider runs calls side by side. Forgetting any of
 * it costs a call or a second, so the tables are small, and a new entry replaces an old one. */
#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/hash.h"
#include "core/kinds/plugin/plugin_box.h"

#define ENTRIES  256
#define FRESH_MS 2000 /* a box that was heard so recently counts as living */
/* So many calls more often than not waited for the one before. On a busy machine a call may
 * overtake another one although the provider runs them one after the other, so one does not decide
 * it. */
#define STRIKES 2
#define MANY    1000

struct heard {
        char place_id[UUID_LEN + 1];
        int64_t at_ms;
};

struct order {
        char environment_id[UUID_LEN + 1];
        unsigned overtakes, strikes;
};

static struct heard heards[ENTRIES];
static struct order orders[ENTRIES];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

static size_t slot_of(const char *id)
{
        return hash_text(id) % ENTRIES;
}

void plugin_box_note_heard(const char *place_id, bool lives)
{
        struct heard *h = &heards[slot_of(place_id)];

        pthread_mutex_lock(&lock);
        if (lives) {
                snprintf(h->place_id, sizeof(h->place_id), "%s", place_id);
                h->at_ms = clock_mono_ms();
        } else if (streq(h->place_id, place_id)) {
                h->place_id[0] = '\0';
        }
        pthread_mutex_unlock(&lock);
}

bool plugin_box_was_heard(const char *place_id)
{
        const struct heard *h = &heards[slot_of(place_id)];
        bool is;

        pthread_mutex_lock(&lock);
        is = streq(h->place_id, place_id) && clock_mono_ms() - h->at_ms < FRESH_MS;
        pthread_mutex_unlock(&lock);
        return is;
}

/* Under the lock. */
static struct order *order_of(const char *environment_id)
{
        struct order *o = &orders[slot_of(environment_id)];

        if (!streq(o->environment_id, environment_id)) {
                *o = (struct order){ 0 };
                snprintf(o->environment_id, sizeof(o->environment_id), "%s", environment_id);
        }
        return o;
}

void plugin_box_note_order(const char *environment_id, bool side_by_side)
{
        struct order *o;

        pthread_mutex_lock(&lock);
        o = order_of(environment_id);
        if (side_by_side && o->overtakes < MANY)
                o->overtakes++;
        else if (!side_by_side && o->strikes < MANY)
                o->strikes++;
        pthread_mutex_unlock(&lock);
}

bool plugin_box_is_serial(const char *environment_id)
{
        const struct order *o;
        bool is;

        pthread_mutex_lock(&lock);
        o = order_of(environment_id);
        is = o->strikes >= STRIKES * (1 + o->overtakes);
        pthread_mutex_unlock(&lock);
        return is;
}
