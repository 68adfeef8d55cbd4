/* Preparing again. Until the command of a run has been started, a failure that may pass costs the
 * run only time: its lease is given up, the reason and the time of the next try are recorded, and
 * it is prepared anew under the same id. No retry is used up, because nothing ran. This goes on for
 * as long as the setting run_prepare_timeout_ms allows; time in which no daemon ran does not count,
 * and the wall clock has no part in it. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/places/place.h"
#include "core/runs/run_internal.h"
#include "store/workspaces.h"

#define PAUSE_MS     250
#define PAUSE_MAX_MS 60000
#define PAUSE_SHIFTS 8 /* PAUSE_MS is then past PAUSE_MAX_MS */

/* Whether the place ended while it was made ready: whatever the error says, another place may
 * do. */
static bool place_has_ended(struct run_task *t)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct op op = run_note_op(t);
        struct lease *lease = &t->record.lease;
        struct place place;

        if (!lease->id || store_read_begin(&op, t->rt->store, &db, NULL) < 0 ||
            leases_get(db, lease->id, t->op->arena, lease, NULL) < 0 ||
            places_get(db, lease->place_id, t->op->arena, &place, NULL) < 0)
                return false;
        return !streq(lease->status, LEASE_ACTIVE) || !streq(place.state, PLACE_HELD) ||
               kind_is_dead(t->rt, &place);
}

bool run_may_pass(struct run_task *t, int r, const struct err *cause)
{
        bool is_transient = cause->code ? cause->is_transient : err_info(r)->is_transient;

        return is_transient || place_has_ended(t);
}

/* If this fails, the rest is released before the next try (run_lease_key). */
static void give_up_place(struct run_task *t)
{
        CLEAN(err_done) struct err err = { 0 };
        struct op op = op_shield(t->op, t->rt->settings.close_timeout_ms);
        struct lease_record record;

        callback_settle(t->op, t->rt, t->run.id);
        if (!t->record.lease.id)
                return;
        op.actor = &actor_system;
        FAULT("run.wait.release.before");
        if (lease_release(&op, t->rt, t->record.lease.id, LEASE_RELEASED, &record, &err) < 0)
                log_warn("could not release the lease of a run that waits", LOG_S("run", t->run.id),
                         LOG_S("error", err.msg));
        FAULT("run.wait.release.after");
}

static int add_waiting(struct db *db, struct run_task *t, struct err *err)
{
        char next[ISO_TIME_LEN + 1];

        clock_iso(t->run.next_try_at, next);
        run_announce_status(db, &t->run);
        return run_event_add(db, t->rt, &t->run, "lifecycle", "warn",
                             arena_printf(t->op->arena, "waiting: %s; next try at %s",
                                          t->run.waiting_reason, next),
                             json_pack("{s:s, s:s, s:I}", "reason", t->run.waiting_reason,
                                       "nextTryAt", next, "failures",
                                       (json_int_t)t->run.prepare_failures),
                             err);
}

/* The run was tried for long enough. */
static enum run_next fail_for_good(struct run_task *t, const char *from, const struct err *cause)
{
        CLEAN(err_done) struct err err = { 0 };
        struct run_outcome outcome = run_failure(t, cause);

        outcome.error = arena_printf(
                t->op->arena, "%s; given up after %lld tries in %lld s (run_prepare_timeout_ms)",
                cause->msg, (long long)t->run.prepare_failures,
                (long long)(t->run.waited_ms / 1000));
        if (run_conclude(t, from, &outcome, &err) >= 0)
                return run_release(t);
        log_warn("could not record how a run ended", LOG_S("run", t->run.id),
                 LOG_S("error", err.msg));
        return RUN_NEXT_AGAIN;
}

enum run_next run_postpone(struct run_task *t, const char *from, int64_t took_ms,
                           const struct err *cause, struct run_result *ret)
{
        CLEAN(err_done) struct err err = { 0 };
        int64_t shift = MIN(t->run.prepare_failures, PAUSE_SHIFTS), left;
        int r;

        t->run.prepare_failures++;
        t->run.waited_ms += took_ms;
        left = t->rt->settings.run_prepare_timeout_ms - t->run.waited_ms;
        if (left <= 0)
                return fail_for_good(t, from, cause);
        ret->pause_ms = MIN(MIN(PAUSE_MS << shift, PAUSE_MAX_MS), left);
        t->run.waited_ms += ret->pause_ms;
        t->run.waiting_reason = arena_strdup(t->op->arena, cause->msg);
        t->run.next_try_at = clock_wall_us() + ret->pause_ms * US_PER_MS;
        if (!t->run.waiting_since)
                t->run.waiting_since = clock_wall_us();
        t->run.lease_id = t->run.execution_id = NULL;
        t->run.leased_at = t->run.staged_at = t->run.spawned_at = t->run.exited_at = 0;
        t->run.callback_port = t->run.process_pid = t->run.process_started_at = 0;
        FAULT("run.wait.before");
        r = run_step(t, from, STEP_PREPARING, add_waiting, &err);
        FAULT("run.wait.after");
        if (r < 0) {
                log_warn("could not record that a run waits", LOG_S("run", t->run.id),
                         LOG_S("reason", cause->msg), LOG_S("error", err.msg));
                return RUN_NEXT_AGAIN;
        }
        give_up_place(t);
        return RUN_NEXT_WAIT;
}

/* -- The lease of the next try ----------------------------------------------------------------- */

static int note_execution(void *ctx, const struct execution *row)
{
        *(bool *)ctx = true;
        return 0;
}

/* The first key without a lease that has ended, and the lease that lives under it (id NULL: none).
 * *ret_used: something was done in its place. */
static int find_lease_key(struct run_task *t, const char **ret_key, struct lease *ret_lease,
                          bool *ret_used, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct arena *a = t->op->arena;
        struct workspace_row workspace;
        const char *own = run_key(t, false);
        int r = store_read_begin(t->op, t->rt->store, &db, err);

        *ret_key = own;
        *ret_lease = (struct lease){ 0 };
        *ret_used = false;
        for (unsigned n = 1; r >= 0; n++) {
                r = leases_by_key(db, t->choice.env.id, *ret_key, a, ret_lease, err);
                if (r == ERR_NOT_FOUND) {
                        err_clear(err);
                        *ret_lease = (struct lease){ 0 };
                        return 0;
                }
                if (r >= 0 && streq(ret_lease->status, LEASE_ACTIVE))
                        break;
                *ret_key = arena_printf(a, "%s:%u", own, n);
        }
        if (r >= 0)
                r = executions_list(db, ret_lease->id, 0, NULL, 1, a, note_execution, ret_used,
                                    err);
        if (r < 0 || *ret_used)
                return r;
        r = workspaces_of_lease(db, ret_lease->id, a, &workspace, err);
        *ret_used = r >= 0;
        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        return 0;
}

int run_lease_key(struct run_task *t, const char **ret, struct err *err)
{
        for (;;) {
                struct lease_record record;
                struct lease lease;
                struct op op = *t->op;
                bool is_used;
                int r = find_lease_key(t, ret, &lease, &is_used, err);

                if (r < 0 || !lease.id || !is_used)
                        return MIN(r, 0);
                op.actor = &actor_system;
                r = lease_release(&op, t->rt, lease.id, LEASE_RELEASED, &record, err);
                if (r < 0)
                        return r;
        }
}
