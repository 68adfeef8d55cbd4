/* Rules between rows, beyond those that the database itself keeps: for `berth db check`. */
#pragma once

#include "store/db.h"

/* One finding: what is wrong, and with which row. */
typedef void (*rows_finding_fn)(void *ctx, const char *what, const char *id);

/* The number of findings. */
int rows_check(struct db *db, rows_finding_fn fn, void *ctx, struct err *err);

/* Rows that have a directory of their own, named by their id. */
enum rows_kind { ROWS_EXECUTIONS, ROWS_SNAPSHOTS, ROWS_SALVAGES, ROWS_IMAGE_LAYERS };
/* Whether `id` is a row of that kind. Output that waits to be removed counts. */
int rows_has(struct db *db, enum rows_kind kind, const char *id, bool *ret, struct err *err);
/* Those whose directory has to be there. */
int rows_with_files(struct db *db, enum rows_kind kind, struct arena *arena,
                    int (*fn)(void *ctx, const char *id), void *ctx, struct err *err);
