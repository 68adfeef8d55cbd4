/* Pages of the database that hold nothing. Given up, they are what the next rows are written to,
 * and the file does not grow; so a full disk takes some thousand more of the rows that say how
 * things ended. */
#pragma once

#include "store/db.h"

/* arg: bool, whether they are there. */
int disk_reserve_is_kept(struct db *db, void *arg, struct err *err);
int disk_reserve_keep(struct db *db, struct err *err);
int disk_reserve_give(struct db *db, struct err *err);
