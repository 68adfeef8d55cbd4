/* The parts of a merge (merge.h) share this. merge.c reads the changes and decides; merge_local.c
 * looks at the host's side, makes directories and keeps things aside; merge_step.c makes what was
 * decided happen, a batch at a time.
 *
 * Directories are made at once, when their change comes. Everything else is a step: files and links
 * are written under a temporary name; when a batch is full, it is synced, and then its steps are
 * taken in order, each after another look at its path. What concerns a directory of ours that they
 * deleted or replaced waits until the changes beneath it went by. */
#pragma once

#include <sodium.h>
#include <sys/stat.h>

#include "workspace/merge.h"
#include "workspace/merge_decide.h"
#include "workspace/merge_journal.h"

#define MERGE_TOUCHED 32 /* directories that are synced singly; more, and the file system is */

/* A look at the host's side, and how to tell later that it is still the same. */
struct merge_look {
        struct merge_local local;
        struct stat st;
        char target[TREE_MAX_TARGET + 1];
};

struct merge_step {
        struct change change;
        char *texts[3]; /* of the change */
        struct merge_verdict verdict;
        bool was_there;
        struct stat st; /* of the host's side when it was decided */
        char temp[64];  /* in the same directory; "" for none */
        dev_t temp_dev; /* of a file */
        ino_t temp_ino;
};

/* Something that waits until the changes beneath its path went by. */
struct merge_wait {
        struct merge_step *step;
        uint64_t deleted; /* dry run: how much went beneath it */
};

struct merge {
        struct op *op;
        int root;
        struct stat root_st;
        struct change_set *changes;
        const struct merge_options *options;
        struct merge_report report;
        struct merge_conflict *last_conflict, **conflict_slots; /* by path */
        size_t n_conflict_slots;
        uint8_t conflict_key[crypto_shorthash_KEYBYTES];
        struct merge_journal journal;

        struct merge_step **steps;
        size_t n_steps, n_temps;
        uint64_t batch_bytes;
        struct merge_wait waits[TREE_MAX_DEPTH];
        size_t n_waits;

        /* The directory that was used last. */
        int dir;
        char dir_path[TREE_MAX_PATH + 1];
        int64_t dir_moved_ns; /* if it is known: when it came to be where it is */
        bool dir_moved_known;
        char *touched[MERGE_TOUCHED];
        size_t n_touched; /* MERGE_TOUCHED + 1: too many */

        char last[TREE_MAX_PATH + 1];   /* path of the last change */
        char closed[TREE_MAX_PATH + 1]; /* they have no directory there: nothing comes beneath */
        char made[TREE_MAX_PATH + 1];   /* dry run: a directory that would be made */
};

/* merge_local.c */

/* The directory that holds `path`: 1 and a borrowed descriptor, 0 when there is none, ERR_*. */
int merge_parent(struct merge *m, const char *path, int *ret_dir, struct err *err);
/* The same, made where it is missing; an entry in the way is kept aside. */
int merge_make_parent(struct merge *m, const char *path, int *ret_dir, struct err *err);
const char *merge_name_of(const char *path);
/* The directory part of a path; "" at the root. */
void merge_dir_of(const char *path, char ret[TREE_MAX_PATH + 1]);

int merge_look(struct merge *m, const struct change *c, struct merge_look *ret, struct err *err);
bool merge_is_same_stat(const struct stat *a, const struct stat *b);

/* Keep what is at path. `vacate`: the path has to be free afterwards; else a file may stay there
 * until theirs replaces it. In a dry run it is only reported. */
int merge_keep_aside(struct merge *m, const char *path, bool vacate, struct err *err);

void merge_report_conflict(struct merge *m, const char *path, const char *kept);
/* Give what was made, a directory or a link, to the owner that the options name. */
int merge_give_owner(struct merge *m, int dir, const char *name, struct err *err);
/* ERR_CONFLICT, for an entry that has changed. */
int merge_replaced(const char *name, struct err *err);
void merge_touch(struct merge *m, const char *dir_path);
void merge_forget_dir(struct merge *m);
/* Remove what merges that died left. */
int merge_clean(struct merge *m, struct err *err);

/* merge_step.c */

/* Count the outcome of a step for the report. */
void merge_count(struct merge *m, const struct change *c, enum merge_what what, bool was_there);

struct merge_step *merge_step_new(const struct change *c, const struct merge_look *look,
                                  struct merge_verdict verdict);
/* Write theirs under a temporary name. */
int merge_step_prepare(struct merge *m, struct merge_step *s, struct err *err);
/* Frees it, and removes the temporary file if it is still there. */
void merge_step_drop(struct merge *m, struct merge_step *s);
/* Takes the step into the batch; a full batch is carried out. */
int merge_step_add(struct merge *m, struct merge_step *take_step, struct err *err);
int merge_flush(struct merge *m, struct err *err);
/* A directory of theirs, at once. */
int merge_make_dir(struct merge *m, const struct change *c, struct err *err);
int merge_sync_touched(struct merge *m, struct err *err);
