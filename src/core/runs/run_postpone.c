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

static int get_place(struct db *db, void *arg, struct err *err)
{
        struct run_task *t = arg;
        struct place place;
        int r = leases_get(db, t->record.lease.id, t->op->arena, &t->record.lease, err);

        if (r >= 0)
                r = places_get(db, t->record.lease.place_id, t->op->arena, &place, err);
        if (r < 0)
                return r;
        return !streq(t->record.lease.status, LEASE_ACTIVE) || !streq(place.state, PLACE_HELD) ||
               kind_is_dead(t->rt, &place);
}

/* Whether the place ended while it was made ready: whatever the error says, another place may
 * do. */
static bool place_has_ended(struct run_task *t)
{
        struct op op = run_note_op(t);

        return t->record.lease.id && store_read(&op, t->rt->store, get_place, t, NULL) > 0;
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

struct lease_search {
        struct run_task *t;
        const char *key;
        struct lease lease; /* id NULL: there is none under the key */
        bool is_used;       /* something was done in its place */
};

static int note_execution(void *ctx, const struct execution *row)
{
        *(bool *)ctx = true;
        return 0;
}

/* The first key without a lease that has ended, and the lease that lives under it. */
static int find_key(struct db *db, void *arg, struct err *err)
{
        struct lease_search *s = arg;
        struct run_task *t = s->t;
        struct arena *a = t->op->arena;
        struct workspace_row workspace;
        const char *own = run_key(t, false);
        int r;

        s->key = own;
        s->is_used = false;
        for (unsigned n = 1;; n++) {
                r = leases_by_key(db, t->choice.env.id, s->key, a, &s->lease, err);
                if (r == ERR_NOT_FOUND) {
                        err_clear(err);
                        s->lease = (struct lease){ 0 };
                        return 0;
                }
                if (r < 0)
                        return r;
                if (streq(s->lease.status, LEASE_ACTIVE))
                        break;
                s->key = arena_printf(a, "%s:%u", own, n);
        }
        r = executions_list(db, s->lease.id, 0, NULL, 1, a, note_execution, &s->is_used, err);
        if (r < 0 || s->is_used)
                return r;
        r = workspaces_of_lease(db, s->lease.id, a, &workspace, err);
        s->is_used = r >= 0;
        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        return 0;
}

int run_lease_key(struct run_task *t, const char **ret, struct err *err)
{
        for (;;) {
                struct lease_search s = { .t = t };
                int r = store_read(t->op, t->rt->store, find_key, &s, err);

                if (r >= 0 && s.lease.id && s.is_used) {
                        struct lease_record record;
                        struct op op = *t->op;

                        op.actor = &actor_system;
                        r = lease_release(&op, t->rt, s.lease.id, LEASE_RELEASED, &record, err);
                        if (r >= 0)
                                continue;
                }
                *ret = s.key;
                return MIN(r, 0);
        }
}
