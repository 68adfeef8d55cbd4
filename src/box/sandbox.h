/* Sandboxes: berth-box as PID 1 of Linux namespaces with a root of its own (docs/box-protocol.md,
 * section 10). Starting one, pausing it, and what a machine lacks for it.
 *
 * Everything else is as for any box: box_connect() and the protocol reach it, box_is_alive() tells
 * whether it lives, box_bury() ends it. Nothing of a sandbox is visible in the host's mount table;
 * its mounts, its network and its processes go with PID 1. After that there remain its directory,
 * its cgroups (`berth-<id>`, also in version 1 hierarchies) and whatever storage the caller gave
 * it; box_bury() removes the first two, the storage is the caller's. A sandbox that ends by itself
 * (STOP, its wall time) leaves them too: bury it in any case.
 *
 * Ids. Inside, 0 is root, 1000 is `agent` and SANDBOX_SUPERVISOR is PID 1. A daemon that is root
 * gives each sandbox a range of host ids that nothing else uses: inner ids from 0 up are the range
 * from its start, the supervisor is its last id. For another user the range comes from /etc/subuid
 * and /etc/subgid, and the supervisor is that user. sandbox_host_id() does the sum. Host id 0 is
 * never mapped, and neither is the supervisor's group, where the daemon is root.
 *
 * Output. Shared spools (START flag 2) must be `<output_dir>/<execution id>`. The host makes that
 * directory before START, mode 0700, and gives it to sandbox_host_id(spec, SANDBOX_SUPERVISOR); in
 * the sandbox only PID 1 can reach it. `output_dir` gets the search permission for others (0711)
 * when the daemon is root; the directory above it keeps others out.
 *
 * Operation threads; a spec and a report are plain values. */
#pragma once

#include "box/sandbox_spec.h"
#include "rt/op.h"

/* Start a sandbox in `dir` (made when missing) and wait until it is ready. One that lives there
 * already is ERR_LOCKED: its spec may be another. After any failure nothing of it runs; bury it to
 * remove what is left on disk. ret_report may be NULL. */
int sandbox_launch(struct op *op, const char *program, const char *dir, const char *id,
                   const struct sandbox_spec *spec, struct sandbox_report *ret_report,
                   struct err *err);

/* Stop all commands where they are, and let them go on. PID 1 goes on: the protocol works, STOP and
 * box_bury() too. Commands started meanwhile are not frozen. Again is fine. ERR_NOT_FOUND when no
 * box lives there. */
int sandbox_freeze(struct op *op, const char *dir, const char *id, struct err *err);
int sandbox_thaw(struct op *op, const char *dir, const char *id, struct err *err);

/* Show the host's directory `lower_fd` at `at` in the sandbox that runs in `dir`, in place of what
 * was shown there before; writes go to <store>/upper, which has the agent's owner, and
 * <store>/work, which has inner root's, both made by the caller. Needs a daemon that is root.
 * ERR_NOT_FOUND when no sandbox runs there. (spec: only ids count.) */
int sandbox_workspace_show(struct op *op, const char *program, const struct sandbox_spec *spec,
                           const char *dir, const char *at, int lower_fd, const char *store,
                           struct err *err);
/* Not any more; fine when there is nothing. */
int sandbox_workspace_hide(struct op *op, const char *program, const struct sandbox_spec *spec,
                           const char *dir, const char *at, struct err *err);

/* What a machine has and lacks. Without a `required` one no sandbox starts; the others make it
 * weaker, and the report of each sandbox says so. */
#define SANDBOX_MAX_CHECKS 24
struct sandbox_check {
        char name[32]; /* "user-namespaces", "id-ranges", "overlay", "cgroup-memory", ... */
        bool ok, required;
        char found[256]; /* what is there */
        char fix[256];   /* what to do about it; "" when ok */
};

/* Really tried, as the daemon's user, by a process that ends. `first_id` and `n_ids` as for a spec.
 */
int sandbox_checks(struct op *op, const char *program, uint32_t first_id, uint32_t n_ids,
                   struct sandbox_check ret[SANDBOX_MAX_CHECKS], size_t *ret_n, struct err *err);
