/* Comparing the record with the world, in both directions. Directories of rows (output, snapshots,
 * saved changes) belong to the world.
 *
 *   unknown      exists in the world; no living row names it
 *   missing      a row says that it exists; the world does not have it
 *   uncertain    it cannot be known whether it exists; an operator decides
 *   cleanupDue   closing was tried and failed, and will be tried again
 *
 * Work under way is none of these. Where the record and the world cannot be read at one instant,
 * both are read twice, so that a place that just came or went is not reported. Operation threads.
 */
#pragma once

#include "codec/json.h"
#include "core/runtime.h"
#include "store/places.h"
#include "store/rows_check.h"

enum leaks_list { LEAKS_UNKNOWN, LEAKS_MISSING, LEAKS_UNCERTAIN, LEAKS_DUE };

struct leak {
        enum leaks_list list;
        const struct place *place;                /* NULL: it is not about a row of a place */
        const char *provider, *tag, *description; /* then */
        int64_t attempts;                         /* then, and on the list of what is due */
        const char *note;
        const char *next; /* what an operator can do */
};

/* In the operation's arena. */
struct leaks {
        struct leak *at;
        size_t n, room;
        const char **not_listable; /* drivers, providers and directories */
        size_t n_not_listable, room_not_listable;
};

int leaks_find(struct op *op, struct runtime *rt, struct leaks *ret, struct err *err);

/* Files that belong to rows: a directory of the data directory, whose entries are named by the
 * rows' ids. */
struct row_files {
        enum rows_kind kind;
        const char *dir;
        const char *is_missing; /* a finding; NULL: of no consequence */
};

#define N_ROW_FILES 4
extern const struct row_files row_files[N_ROW_FILES];

/* The names in that directory that are ids; ends with NULL. A directory that is not there is empty.
 */
int row_files_list(const struct row_files *files, const char *data_dir, struct arena *arena,
                   char ***ret, struct err *err);
/* Those of them that no row names. Rows are committed before their directory is made and deleted
 * before it is removed. So the transaction has to begin after the names were listed, and a
 * directory that is gone by then is skipped. */
int row_files_unnamed(struct db *db, const struct row_files *files, const char *data_dir,
                      char *const *names, struct arena *arena,
                      void (*fn)(void *ctx, const char *name), void *ctx, struct err *err);

/* An operator's decisions on one place: close it now, or write it off. `forget` is for uncertain
 * places and for closing ones that failed; the operator takes care of what still exists. A place of
 * another node (store/home.h) is uncertain, and closed only with `take_over`. */
int leaks_close(struct op *op, struct runtime *rt, const char *place_id, bool take_over,
                struct err *err);
int leaks_forget(struct op *op, struct runtime *rt, const char *place_id, struct err *err);
