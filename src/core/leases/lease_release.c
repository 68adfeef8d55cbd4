/* Releasing. See lease.h for what is committed before what happens. */
#include "core/leases/lease.h"
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/access.h"
#include "core/access/audit.h"
#include "core/places/place.h"
#include "core/workspaces/workspace.h"
#include "rt/reserve.h"

enum release_outcome {
        RELEASE_WAS_OVER, /* the lease had ended before */
        RELEASE_DONE,     /* nothing outside is left to do */
        RELEASE_LEAVE,    /* another lease keeps the place: only our workspace is given up */
        RELEASE_CLOSE,    /* the place is `closing`: ask the provider */
        RELEASE_PARK,     /* the place may serve again: tell the provider, then `ready` */
};

struct release {
        struct op *op;
        struct runtime *rt;
        const char *lease_id, *status;
        bool destroy;
        struct lease_record *record;
        const struct kind *kind; /* NULL: not registered, so no provider is told */
        struct place place;
        enum release_outcome outcome;
};

static bool can_serve_again(const struct release *rel)
{
        return !rel->destroy && streq(rel->place.policy, POLICY_REUSE_ENVIRONMENT) &&
               streq(rel->status, LEASE_RELEASED) && streq(rel->record->env.status, "active");
}

/* What the last lease of a place leaves behind. */
static int give_up_place(struct db *db, struct release *rel, struct err *err)
{
        struct place *place = &rel->place;
        int64_t others;
        int r = leases_count_living(db, place->id, rel->lease_id, &others, err);

        if (r < 0)
                return r;
        rel->outcome = RELEASE_DONE;
        if (others > 0)
                rel->outcome = RELEASE_LEAVE;
        if (others > 0 || !streq(place->state, PLACE_HELD))
                return 0;
        if (!place->has_world) {
                r = workspace_end_worldless(db, rel->rt, place->id, rel->op->arena, err);
                if (r < 0)
                        return r;
        }
        if (!place->has_world || !rel->kind) {
                r = place_move(db, rel->rt, place, PLACE_CLOSING, err);
                /* Without its kind the place cannot be closed; it stays `closing` and is listed. */
                if (r >= 0 && !place->has_world)
                        r = place_move(db, rel->rt, place, PLACE_GONE, err);
                return r;
        }
        place->next_attempt_at = place_closing_until(rel->rt);
        if (can_serve_again(rel)) {
                rel->outcome = RELEASE_PARK;
                return place_move(db, rel->rt, place, PLACE_HELD, err);
        }
        rel->outcome = RELEASE_CLOSE;
        if (rel->destroy)
                place_insist(place);
        return place_move(db, rel->rt, place, PLACE_CLOSING, err);
}

static bool keeps_place(const struct release *rel)
{
        return !rel->destroy && streq(rel->record->lease.policy, POLICY_RETAIN_ON_FAILURE) &&
               streq(rel->record->lease.status, LEASE_ACTIVE) && streq(rel->status, LEASE_FAILED);
}

static int end_lease(struct db *db, struct release *rel, bool retain, struct err *err)
{
        bool failed = streq(rel->status, LEASE_FAILED);
        int64_t now = clock_now_us();
        struct lease to = {
                .status = retain ? LEASE_RETAINED : rel->status,
                .released_at = retain ? 0 : now,
                .failure_reason = failed && rel->kind ? rel->kind->release_failure_reason : NULL,
                .cleanup_status = rel->kind && rel->kind->writes_cleanup_status ? "success" : NULL,
                .updated_at = now,
        };

        if (to.cleanup_status && (rel->outcome == RELEASE_CLOSE || rel->outcome == RELEASE_PARK))
                to.cleanup_status = "pending";
        return leases_end(db, rel->lease_id, rel->record->lease.status, &to, err);
}

static int lease_begin_release(struct db *db, void *arg, struct err *err)
{
        struct release *rel = arg;
        struct lease_record *record = rel->record;
        int r = lease_record_get(db, rel->lease_id, rel->op->arena, record, err);

        if (r < 0)
                return r;
        rel->outcome = RELEASE_WAS_OVER;
        if (!lease_is_living(&record->lease))
                return 0;
        rel->kind = lease_find_kind(rel->rt, record);
        bool retain = keeps_place(rel);
        rel->outcome = RELEASE_DONE;
        if (!retain) {
                r = places_get(db, record->lease.place_id, rel->op->arena, &rel->place, err);
                if (r >= 0)
                        r = give_up_place(db, rel, err);
        }
        if (r >= 0)
                r = end_lease(db, rel, retain, err);
        if (r >= 0)
                r = lease_record_get(db, rel->lease_id, rel->op->arena, record, err);
        if (r >= 0)
                r = audit_lease(db, rel->op, record->lease.company_id,
                                record->lease.heartbeat_run_id, "environment.lease_released",
                                record->lease.id, lease_activity_details(record, true), err);
        return r;
}

/* Recording how the provider did */

struct outcome {
        struct runtime *rt;
        struct place *place;
        const char *to;      /* state when it went well */
        const char *failure; /* NULL: it went well */
        bool stays;          /* tried again later, and meanwhile as it is */
};

static int record_outcome(struct db *db, void *arg, struct err *err)
{
        struct outcome *o = arg;
        struct place *place = o->place;
        int64_t now = clock_now_us();
        int r;

        db_keep(db, place, sizeof(*place));
        if (o->failure) {
                place->attempts++;
                place->next_attempt_at = clock_steady_us() + place_retry_pause(place->attempts);
                place->note = o->failure;
                r = place_move(db, o->rt, place, o->stays ? PLACE_HELD : PLACE_CLOSING, err);
        } else {
                place->next_attempt_at = 0;
                place->holder_run_id = NULL;
                place->note = NULL;
                if (streq(o->to, PLACE_READY)) {
                        place->attempts = 0;
                        place->deadline_at =
                                clock_steady_us() + o->rt->settings.idle_place_ttl_ms * US_PER_MS;
                }
                r = place_move(db, o->rt, place, o->to, err);
        }
        if (r < 0)
                return r;
        return leases_set_cleanup(db, place->id, o->failure ? "failed" : "success", now, err);
}

/* With time of its own: the operation's may have been used up by the provider, and then the failure
 * has to be recorded all the more, or it would go unnoticed.
 *
 * A conflict means that another operation took the place up (the sweeper, after we were slow): its
 * outcome counts, and nothing is wrong. */
static int record_finish(struct op *op, struct runtime *rt, struct place *place, const char *to,
                         int provider_result, struct err *provider_err, struct err *err)
{
        CLEAN(err_done) struct err failure = { 0 };
        struct outcome o = { .rt = rt, .place = place, .to = to };
        struct op shield = op_shield(op, rt->settings.close_timeout_ms);

        /* A failure for want of the daemon's own resources says nothing about a place that is to
         * stay. */
        o.stays = streq(to, PLACE_READY) &&
                  (provider_result == ERR_BUSY || provider_result == ERR_IO ||
                   provider_result == ERR_CANCELLED);
        if (provider_result < 0) {
                o.failure = arena_strdup(op->arena, provider_err->msg);
                atomic_fetch_add(&rt->counters.cleanup_failures, 1);
        }
        FAULT("lease.finish.before");
        int r = store_write(&shield, rt->store, record_outcome, &o, &failure);
        FAULT("lease.finish.after");
        if (r == ERR_CONFLICT) {
                atomic_fetch_add(&rt->counters.conflicts, 1);
                return 0;
        }
        if (r < 0)
                err_move(err, &failure);
        else if (provider_result < 0)
                err_move(err, provider_err);
        return r < 0 ? r : provider_result;
}

/* Saving a workspace has a time of its own; the provider gets all of its. */
static struct op with_time_to_close(const struct op *op, const struct runtime *rt)
{
        struct op closing = *op;

        closing.deadline_ms = clock_mono_ms() + rt->settings.close_timeout_ms;
        return closing;
}

int lease_finish_closing(struct op *op, struct runtime *rt, struct place *place, struct err *err)
{
        CLEAN(err_done) struct err failure = { 0 };
        CLEAN(reserve_return) unsigned loan = reserve_borrow();
        const struct kind *kind = kind_of_place(rt, place);
        int r = kind_required(kind, place->driver, &failure);

        (void)loan;
        if (r >= 0)
                r = workspace_give_up(op, rt, place, NULL, NULL, &failure);
        FAULT("lease.close.before");
        if (r >= 0) {
                struct op closing = with_time_to_close(op, rt);

                r = kind->close(&closing, rt, place, &failure);
        }
        FAULT("lease.close.after");
        return record_finish(op, rt, place, PLACE_GONE, r, &failure, err);
}

int lease_close_place(struct op *op, struct runtime *rt, struct place *place, const char *note,
                      struct err *err)
{
        int r = place_commit_move(op, rt, place, PLACE_CLOSING, note, err);

        return r < 0 ? r : lease_finish_closing(op, rt, place, err);
}

int lease_finish_parking(struct op *op, struct runtime *rt, struct place *place, struct err *err)
{
        CLEAN(err_done) struct err failure = { 0 };
        const struct kind *kind = kind_of_place(rt, place);
        int r = kind_required(kind, place->driver, &failure);

        if (r >= 0)
                r = workspace_give_up(op, rt, place, NULL, NULL, &failure);
        FAULT("lease.park.before");
        if (r >= 0 && kind->park) {
                struct op parking = with_time_to_close(op, rt);

                r = kind->park(&parking, rt, place, &failure);
        }
        FAULT("lease.park.after");
        return record_finish(op, rt, place, PLACE_READY, r, &failure, err);
}

static int run_release(struct release *rel, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;

        FAULT("lease.release.before");
        int r = store_write(rel->op, rel->rt->store, lease_begin_release, rel, err);
        FAULT("lease.release.after");
        if (r < 0 || rel->outcome == RELEASE_WAS_OVER)
                return r;
        atomic_fetch_add(&rel->rt->counters.leases_released, 1);
        if (rel->outcome == RELEASE_DONE)
                return 0;
        /* From here on the lease has ended, whatever the provider says; its answer is recorded on
         * the lease. */
        struct op shield = op_shield(rel->op, rel->rt->settings.workspace_timeout_ms);
        if (rel->outcome == RELEASE_LEAVE) /* the sweeper goes on with what fails */
                (void)workspace_give_up(&shield, rel->rt, &rel->place, rel->lease_id, NULL, NULL);
        else if (rel->outcome == RELEASE_PARK)
                (void)lease_finish_parking(&shield, rel->rt, &rel->place, NULL);
        else
                (void)lease_finish_closing(&shield, rel->rt, &rel->place, NULL);
        /* The provider may have used that time up; the lease has ended all the same. */
        shield = op_shield(rel->op, rel->rt->settings.close_timeout_ms);
        r = store_read_begin(&shield, rel->rt->store, &db, err);
        return r < 0 ? r : lease_record_get(db, rel->lease_id, rel->op->arena, rel->record, err);
}

int lease_release(struct op *op, struct runtime *rt, const char *lease_id, const char *status,
                  struct lease_record *ret, struct err *err)
{
        struct release rel = {
                .op = op, .rt = rt, .lease_id = lease_id, .status = status, .record = ret
        };

        *ret = (struct lease_record){ 0 };
        return run_release(&rel, err);
}

int lease_destroy(struct op *op, struct runtime *rt, const char *lease_id, struct lease_record *ret,
                  struct err *err)
{
        struct release rel = {
                .op = op,
                .rt = rt,
                .lease_id = lease_id,
                .status = LEASE_FAILED,
                .destroy = true,
                .record = ret,
        };
        const struct kind *kind;
        int r = lease_load(op, rt, lease_id, ret, err);

        if (r >= 0)
                r = lease_kind(rt, ret, &kind, err);
        if (r < 0)
                return r;
        if (!kind->can_destroy)
                return kind_unsupported(kind, "lease destroy", err);
        return run_release(&rel, err);
}

/* Releasing all of a run's leases */

/* A caller can name any run when acquiring, so leases of one run may lie in several companies: the
 * rights are checked for each lease's own company. *ret has the leases that the actor may manage:
 * how many. */
static int read_leases_of_run(struct op *op, struct runtime *rt, const char *run_id,
                              struct lease **ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int n, kept = 0, r = store_read_begin(op, rt->store, &db, err);

        n = r < 0 ? r : leases_active_of_run(db, run_id, op->arena, ret, err);
        for (int i = 0; i < n; i++) {
                r = access_manage_environments(db, op->actor, (*ret)[i].company_id, err);
                if (r >= 0)
                        (*ret)[kept++] = (*ret)[i];
                else if (r != ERR_FORBIDDEN)
                        return r;
        }
        if (n < 0 || (n > 0 && kept == 0))
                return n < 0 ? n : ERR_FORBIDDEN;
        err_clear(err);
        return kept;
}

int lease_release_run(struct op *op, struct runtime *rt, const char *run_id, const char *status,
                      int (*fn)(void *ctx, const struct lease_record *record), void *ctx,
                      struct err *err)
{
        struct lease *leases;
        int n = read_leases_of_run(op, rt, run_id, &leases, err), r = MIN(n, 0), failure = 0;

        for (int i = 0; r >= 0 && i < n; i++) {
                CLEAN(err_done) struct err one = { 0 };
                struct lease_record record;

                if (lease_release(op, rt, leases[i].id, status, &record, &one) < 0) {
                        failure = one.code;
                        err_move(err, &one);
                        continue;
                }
                r = fn(ctx, &record);
        }
        return r < 0 ? r : failure;
}
