/* The lock of a workspace, and in the same file what a merge that died left undone:
 *
 *   B id             a merge began; its temporary files are named .berth-tmp-<id>-<number>
 *   D directory      one of them may be there
 *   C path, kept     what was at path is kept, or about to be
 *
 * each a letter and texts that end with NUL. The file is empty when no merge is under way. Only the
 * first record is synced: a process that dies loses none, and after a power cut the merge that is
 * done again looks for temporary files wherever it works. One thread. */
#pragma once

#include "base/buf.h"
#include "rt/op.h"

#define MERGE_ID 16 /* hexadecimal digits */

struct merge_journal {
        int fd;
        bool begun, has_kept;
        struct buf before; /* what the file held: records of merges that died */
        char id[MERGE_ID + 1], last_dir[4096];
        unsigned temps;
};

#define MERGE_JOURNAL_INIT                                                                         \
        (struct merge_journal)                                                                     \
        {                                                                                          \
                .fd = -1                                                                           \
        }

/* Waits for the lock as long as the operation may. */
int merge_journal_open(struct op *op, struct merge_journal *j, const char *path, struct err *err);
void merge_journal_close(struct merge_journal *j); /* gives the lock up */

/* A name for a temporary file in `dir` ("" is the root), recorded. */
int merge_journal_temp(struct merge_journal *j, const char *dir, char ret[64], struct err *err);
int merge_journal_kept(struct merge_journal *j, const char *path, const char *kept,
                       struct err *err);
int merge_journal_sync(struct merge_journal *j, struct err *err);
/* All is done and on disk: forget everything. */
int merge_journal_end(struct merge_journal *j, struct err *err);
/* It failed and has removed its temporary files itself: nothing to remember, unless it kept some.
 */
void merge_journal_give_up(struct merge_journal *j);

/* Of merges that died: */
static inline bool merge_journal_is_dirty(const struct merge_journal *j)
{
        return j->before.len > 0;
}
/* whether this is a temporary file of one of them, */
bool merge_journal_owns(const struct merge_journal *j, const char *name);
/* the directories where there may be some, and what they kept. Each is called with NULL first, then
 * with what it gave; NULL at the end. */
const char *merge_journal_next_dir(const struct merge_journal *j, const char *last);
const char *merge_journal_next_kept(const struct merge_journal *j, const char *last,
                                    const char **ret_kept);
