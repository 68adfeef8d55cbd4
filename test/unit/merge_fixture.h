/* Trees in memory, for tests of bundles and merges: written to a directory, read back, compared,
 * and as a change set between two of them. */
#pragma once

#include "test.h"

#include "rt/op.h"
#include "workspace/bundle.h"
#include "workspace/merge.h"
#include "workspace/scan.h"

#define STAMP "20261115T101500Z"

struct node {
        char *path;
        enum tree_kind kind;
        uint32_t mode;
        char *text; /* content, or target */
};

struct tree {
        struct node *nodes; /* in order */
        size_t n;
};

void mock_done(struct tree *t);
void mock_assign(struct tree *to, const struct tree *from);
struct node *mock_find(const struct tree *t, const char *path);
/* Add or replace; parents that are missing are made, what is no directory on the way is replaced,
 * and what was beneath a directory that becomes something else is gone. */
void mock_put(struct tree *t, const char *path, enum tree_kind kind, uint32_t mode,
              const char *text);
void mock_file(struct tree *t, const char *path, const char *text);
void mock_dir(struct tree *t, const char *path);
void mock_link(struct tree *t, const char *path, const char *target);
/* With all beneath it. */
void mock_remove(struct tree *t, const char *path);
/* Move with all beneath it. */
void mock_move(struct tree *t, const char *from, const char *to);

void mock_write(const struct tree *t, int dir);
void mock_read(struct tree *t, int dir);
/* Fails the test, with both printed, when they differ. Modes of directories do not count. */
void mock_assert_equal(const struct tree *got, const struct tree *want, const char *what);
void mock_print(const struct tree *t, const char *what);

/* What was changed between two trees. */
struct tree_changes {
        struct change_set set;
        const struct tree *was, *now;
        size_t was_at, now_at;
        const char *(*edit)(struct tree_changes *, struct change *c); /* for hostile ones */
        /* As of an overlay: `ours` tells what the host has changed since. */
        const struct tree *ours;
        bool by_time;
};

void mock_changes_init(struct tree_changes *c, const struct tree *was, const struct tree *now);

/* A directory with a workspace in it, and one operation. */
struct merge_world {
        char root[SCRATCH_PATH_MAX];
        int root_fd, ws;
        char lock[SCRATCH_PATH_MAX + 16], bundle[SCRATCH_PATH_MAX + 16];
        struct arena arena;
        struct op op;
        struct err err;
        struct merge_options options;
        struct merge_report report;
};

/* In memory where there is a file system for it: these tests sync a lot. */
void world_init(struct merge_world *w);
void world_done(struct merge_world *w);
/* The workspace as it is in `t`, whatever it was. */
void world_set(struct merge_world *w, const struct tree *t);
/* Merge was -> now into the workspace, by way of a bundle if told. */
int world_merge(struct merge_world *w, const struct tree *was, const struct tree *now,
                bool by_bundle);
void world_read(struct merge_world *w, struct tree *ret);
/* Write to, remove, or look at one path of the workspace. */
void world_write(struct merge_world *w, const char *path, const char *text);
char *world_text(struct merge_world *w, const char *path); /* NULL: it is not there */
void mock_remove_dir(const char *path);
