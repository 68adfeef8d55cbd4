/* What the transaction under way has beside its rows, for the back ends: what it has announced
 * (db_announce()), told after the commit and forgotten when it does not come; and what it changes
 * in memory (db_keep()), put back when the transaction is undone. The thread that writes. */
#pragma once

#include "store/store.h"

/* Where the lists end now. */
struct pending_mark {
        struct announcement *announced;
        struct kept *kept;
};

struct pending_mark pending_mark(const struct db *db);
/* What came behind the mark is undone: a write function that failed, or that is run once more, has
 * announced nothing, and its memory is as it was. */
void pending_undo(struct db *db, struct pending_mark mark);
/* The same for the whole transaction. */
void pending_undo_all(struct db *db);
/* The commit is durable: tell the store's listener, and forget. */
void pending_tell(struct db *db, const struct store *s);
