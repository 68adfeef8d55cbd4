/* `instance_settings`: one row with two JSON documents, of which reading gives "{}" while there is
 * none, and one that says which numbers of live events are given away.
 */
#pragma once

#include "store/db.h"

struct instance_settings {
        const char *general, *experimental;
};

int settings_get(struct db *db, struct arena *arena, struct instance_settings *ret,
                 struct err *err);
int settings_put(struct db *db, const struct instance_settings *row, int64_t now_us,
                 struct err *err);

/* The first number that is not reserved; 0 at first. */
int settings_get_event_numbers(struct db *db, int64_t *ret_end, struct err *err);
int settings_put_event_numbers(struct db *db, int64_t end, int64_t now_us, struct err *err);
