/* The one row of `instance_settings`: two JSON documents. Reading gives "{}" while there is no row.
 */
#ifndef BERTH_STORE_SETTINGS_H
#define BERTH_STORE_SETTINGS_H

#include "store/db.h"

struct instance_settings {
        const char *general, *experimental;
};

int settings_get(struct db *db, struct arena *arena, struct instance_settings *ret,
                 struct err *err);
int settings_put(struct db *db, const struct instance_settings *row, int64_t now_us,
                 struct err *err);

#endif
