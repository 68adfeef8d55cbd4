/* `berth run --workspace`: the directory goes into the lease before the command, and what was
 * changed comes back after it, whatever became of the command. One thread. */
#pragma once

#include "cli/command.h"

struct run_workspace {
        struct cli *c;
        const struct args *a;
        const char *lease_id;
        int64_t renew_ms;
        void (*revive)(struct cli *c); /* the daemon, when it went away; NULL: not ours */
        bool staged;
        const json_t *stage, *restore; /* what the daemon answered; NULL: nothing yet */
};

/* *ret_cwd is where commands start. A signal ends it: c->end_by_signal. */
int run_workspace_stage(struct run_workspace *w, const char *dir, const char **ret_cwd,
                        struct err *err);
/* 0 also when nothing was staged. Says what happened on standard error. */
int run_workspace_restore(struct run_workspace *w, struct err *err);

/* {localPath, exclude, isolation} from the options --exclude and --isolation. Heap. */
char *run_workspace_body(const struct args *a, const char *path);
