/* This process's state for workspaces: directories, and which operation works on which workspace
 * now.
 *
 * At most one thread works on a workspace; the second one waits or gets ERR_CONFLICT. A reader of a
 * workspace sees how far the work is. Any thread. */
#pragma once

#include <pthread.h>

#include "core/runtime.h"

struct workspace_work {
        struct workspace_work *next;
        const char *id;
        const char *phase; /* static text */
        uint64_t done, total;
        struct op *op;
        bool may_cancel;
        struct workspace_host *host;
};

struct workspace_host {
        char *dir;         /* workspaces/: what belongs to one, by its id */
        char *salvage_dir; /* salvage/ */
        char *locks_dir;   /* workspace-locks/: one file for each directory that is merged into */
        pthread_mutex_t lock;
        pthread_cond_t changed;
        struct workspace_work *works;
};

int workspace_host_new(const char *data_dir, struct workspace_host **ret, struct err *err);
void workspace_host_free(struct workspace_host *host);

/* Begin to work on a workspace; *work is the caller's until workspace_work_end(). Without `wait`,
 * ERR_CONFLICT when another operation works on it. With `wait`, that operation is cancelled if it
 * may be, and waited for as long as the caller's operation may take. */
int workspace_work_begin(struct op *op, struct workspace_host *host, const char *id, bool wait,
                         struct workspace_work *work, struct err *err);
void workspace_work_end(struct workspace_work *work);
/* Allow cancelling the work, so that giving the place up need not wait for its end. */
void workspace_work_may_cancel(struct workspace_work *work);
/* How far it is; a workspace_progress_fn whose ctx is the work. */
void workspace_work_progress(void *ctx, const char *phase, uint64_t done, uint64_t total);
/* A copy of the work's state; false when no operation works on the workspace. */
bool workspace_work_look(struct workspace_host *host, const char *id, struct workspace_work *ret);

/* Names. Heap. */
char *workspace_dir(const struct workspace_host *host, const char *id);
char *salvage_dir(const struct workspace_host *host, const char *id);
/* The file that is locked during a merge into a directory, by the directory's canonical path. */
char *workspace_lock_path(const struct workspace_host *host, const char *path);
