/* What the transaction under way has announced (db_announce()), for the back ends: told after the
 * commit, forgotten when it does not come. The thread that writes. */
#pragma once

#include "store/store.h"

/* Where the list ends now, and forget what came behind that: a write function that failed has
 * announced nothing. A mark of NULL forgets everything. */
struct announcement *announce_mark(const struct db *db);
void announce_forget(struct db *db, struct announcement *mark);
/* Tell the store's listener, and forget. */
void announce_tell(struct db *db, const struct store *s);
