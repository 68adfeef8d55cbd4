/* Acquiring. See lease.h for what is committed before what happens. */
#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"
#include "core/environments/env_select.h"
#include "core/environments/host_use.h"
#include "core/leases/lease.h"
#include "core/leases/stock.h"
#include "core/places/place.h"
#include "rt/reserve.h"
#include "store/agents.h"
#include "store/execution_workspaces.h"
#include "store/issues.h"
#include "store/runs.h"

#define KEY_POLL_MS 5

struct acquisition {
        struct op *op;
        struct runtime *rt;
        const struct environment *env;
        const struct kind *kind;
        const struct lease_request *req;
        struct lease_plan plan;
        struct place place;
        struct provider_lease opened;
        bool claimed;       /* the place was there before */
        bool joined;        /* ... and another lease of the same run uses it still */
        struct place stale; /* could not be resumed; closed once there is something better */
        bool has_stale;
        bool stocked; /* made in advance, and only taken when the lease is recorded */
        struct lease_record *record;
};

/* Finding what is there */

/* The lease that the request's key made before: 1, or 0 when there is none. */
static int find_existing(struct db *db, struct acquisition *q, struct err *err)
{
        int r = leases_by_key(db, q->env->id, q->req->idempotency_key, q->op->arena,
                              &q->record->lease, err);

        if (r == ERR_NOT_FOUND)
                return 0;
        if (r < 0)
                return r;
        q->record->env = *q->env;
        q->record->existed = true;
        lease_record_fill(q->record, q->op->arena);
        return 1;
}

static int read_existing(struct acquisition *q, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(q->op, q->rt->store, &db, err);

        return r < 0 ? r : find_existing(db, q, err);
}

/* Held by our run means that a lease of it lives: a place whose last lease has just ended is on its
 * way to be parked, and that effect would come after ours. */
static int is_held_by_run(struct db *db, const struct acquisition *q, const struct place *p,
                          struct err *err)
{
        int64_t living;

        if (!streq(p->state, PLACE_HELD) || !p->holder_run_id || !q->req->run_id ||
            !streq(p->holder_run_id, q->req->run_id))
                return 0;
        int r = leases_count_living(db, p->id, NULL, &living, err);
        return r < 0 ? r : living > 0;
}

static int64_t busy_until(const struct acquisition *q)
{
        return place_busy_until(q->rt) + q->plan.open_ms * US_PER_MS;
}

static int lease_claim(struct db *db, void *arg, struct err *err)
{
        struct acquisition *q = arg;
        struct place *places;
        int n = places_of_environment(db, q->env->id, q->op->arena, &places, err);

        q->claimed = q->joined = false;
        for (int i = 0; i < n; i++) {
                const struct place *p = &places[i];
                int ours;

                if (!streq(p->policy, q->plan.policy) || !streq(p->driver, q->kind->driver) ||
                    !kind_matches(q->kind, p->config, q->plan.config))
                        continue;
                ours = is_held_by_run(db, q, p, err);
                if (ours < 0)
                        return ours;
                if (!ours && !streq(p->state, PLACE_READY))
                        continue;
                q->place = *p;
                q->claimed = true;
                q->joined = ours;
                break;
        }
        if (n < 0 || !q->claimed || q->joined)
                return n;
        q->place.holder_run_id = q->req->run_id;
        q->place.deadline_at = 0;
        q->place.next_attempt_at = busy_until(q);
        return place_move(db, q->rt, &q->place, PLACE_HELD, err);
}

/* Opening a new one */

static int lease_intend(struct db *db, void *arg, struct err *err)
{
        struct acquisition *q = arg;
        struct place other;
        int r;

        if (q->req->idempotency_key) {
                r = find_existing(db, q, err);
                if (r != 0)
                        return r;
                r = places_by_request(db, q->env->id, q->req->idempotency_key, q->op->arena, &other,
                                      err);
                if (r >= 0)
                        return err_set(err, ERR_LOCKED,
                                       "An acquire with this idempotency key is under way.");
                if (r != ERR_NOT_FOUND)
                        return r;
        }
        q->place.next_attempt_at = busy_until(q);
        r = place_create(db, q->rt, &q->place, PLACE_INTENDED, err);
        if (r >= 0 && q->kind->claim)
                r = q->kind->claim(db, q->rt, &q->place, q->op->arena, err);
        return r;
}

/* Two requests with one key: the second waits for the first and gets its lease. */
static int intend_once(struct acquisition *q, struct err *err)
{
        for (;;) {
                int r;

                FAULT("lease.intend.before");
                r = store_write(q->op, q->rt->store, lease_intend, q, err);
                FAULT("lease.intend.after");
                if (r != ERR_LOCKED)
                        return r;
                r = op_wait_fd(q->op, -1, 0, KEY_POLL_MS, err);
                if (r < 0)
                        return r;
        }
}

/* The lease row */

/* An ad-hoc lease has no run whose end would end it, so it always has an expiry. */
static int64_t lease_expiry(const struct acquisition *q)
{
        int64_t ttl = q->req->ttl_ms, until;

        if (ttl == 0 && !q->req->run_id)
                ttl = q->rt->settings.adhoc_ttl_ms;
        until = ttl ? clock_steady_us() + ttl * US_PER_MS : 0;
        return until && q->opened.expires_at ? MIN(until, q->opened.expires_at)
                                             : MAX(until, q->opened.expires_at);
}

static void build_lease(struct acquisition *q)
{
        CLEAN(json_decrefp)
        json_t *metadata = json_pack("{s:s, s:s?}", "driver", q->env->driver,
                                     "executionWorkspaceMode", q->req->execution_workspace_mode);
        int64_t now = clock_now_us();

        if (q->req->agent_id)
                json_object_set_new(metadata, "agentId", json_string(q->req->agent_id));
        if (q->kind->describe)
                q->kind->describe(&q->place, &q->opened, q->claimed, metadata);
        q->record->env = *q->env;
        q->record->lease = (struct lease){
                .id = arena_strdup(q->op->arena, uuid_new().s),
                .company_id = q->env->company_id,
                .environment_id = q->env->id,
                .place_id = q->place.id,
                .execution_workspace_id = q->req->execution_workspace_id,
                .issue_id = q->req->issue_id,
                .heartbeat_run_id = q->req->run_id,
                .status = LEASE_ACTIVE,
                .policy = q->plan.policy,
                .provider = q->plan.provider,
                .provider_lease_id = q->opened.id,
                .acquired_at = now,
                .last_used_at = now,
                .metadata = json_to_arena(q->op->arena, metadata),
                .idempotency_key = q->req->idempotency_key,
                .created_at = now,
                .updated_at = now,
        };
        q->record->workspace_mode = q->req->execution_workspace_mode;
}

static int refuse_foreign(const char *member, const char *company_id, const char *owner,
                          struct err *err)
{
        return streq(company_id, owner)
                       ? 0
                       : err_set(err, ERR_UNPROCESSABLE, "%s is another company's", member);
}

/* Ids that name no record are accepted as the caller's own; ids of another company are refused. */
static int check_ids(struct db *db, const struct acquisition *q, struct err *err)
{
        const struct lease_request *req = q->req;
        const char *own = q->env->company_id;
        struct arena *a = q->op->arena;
        struct run run;
        struct issue issue;
        struct execution_workspace workspace;
        struct agent agent;
        int r = 0;

        if (req->agent_id) {
                r = agents_get(db, req->agent_id, a, &agent, err);
                if (r >= 0)
                        r = refuse_foreign("agentId", own, agent.company_id, err);
        }
        if ((r >= 0 || r == ERR_NOT_FOUND) && req->run_id) {
                r = runs_get(db, req->run_id, a, &run, err);
                if (r >= 0)
                        r = refuse_foreign("heartbeatRunId", own, run.company_id, err);
        }
        if ((r >= 0 || r == ERR_NOT_FOUND) && req->issue_id) {
                r = issues_get(db, req->issue_id, a, &issue, err);
                if (r >= 0)
                        r = refuse_foreign("issueId", own, issue.company_id, err);
        }
        if ((r >= 0 || r == ERR_NOT_FOUND) && req->execution_workspace_id) {
                r = execution_workspaces_get(db, req->execution_workspace_id, a, &workspace, err);
                if (r >= 0)
                        r = refuse_foreign("executionWorkspaceId", own, workspace.company_id, err);
        }
        if (r != ERR_NOT_FOUND)
                return r;
        err_clear(err);
        return 0;
}

static int check_allowed(const struct acquisition *q, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(q->op, q->rt->store, &db, err);

        if (r >= 0)
                r = env_allowed(db, q->rt, q->op->arena, q->env, err);
        if (r >= 0)
                r = host_use_check(q->rt, q->op->actor, q->env->driver, err);
        /* The daemon's own are its runs'. */
        return r < 0 || q->op->actor->type == ACTOR_SYSTEM ? r : check_ids(db, q, err);
}

/* The environment may have been archived, deleted or forbidden while the provider worked. */
static int still_active(struct db *db, const struct acquisition *q, struct err *err)
{
        struct environment now;
        int r = environments_get(db, q->env->id, q->op->arena, &now, err);

        if (r >= 0 && !streq(now.status, "active"))
                return err_set(err, ERR_UNPROCESSABLE, "Environment \"%s\" is not active.",
                               now.name);
        return r < 0 ? r : env_allowed(db, q->rt, q->op->arena, &now, err);
}

/* A joined place is not ours to move: its lease keeps it, as long as that lease lives. */
static int still_joined(struct db *db, struct acquisition *q, struct err *err)
{
        struct place now;
        int r = places_get(db, q->place.id, q->op->arena, &now, err);

        if (r >= 0)
                r = is_held_by_run(db, q, &now, err);
        return r == 0 ? err_set(err, ERR_CONFLICT, "The lease that held the place ended meanwhile.")
                      : r;
}

static int lease_bind(struct db *db, void *arg, struct err *err)
{
        struct acquisition *q = arg;
        struct place place = q->place;
        int r = still_active(db, q, err);

        if (r < 0)
                return r;
        /* Here and not before: the clock may be set, and all deadlines moved, in between. */
        q->record->lease.expires_at = lease_expiry(q);
        place.provider_lease_id = q->opened.id;
        place.next_attempt_at = 0;
        if (q->stocked) {
                place.policy = q->plan.policy;
                place.holder_run_id = q->req->run_id;
        }
        /* On a copy: when this is not committed, q->place must still be what the database has, or
         * undoing would find a place that it does not know. */
        if (q->joined)
                r = still_joined(db, q, err);
        else if (!q->plan.has_world)
                r = place_create(db, q->rt, &place, PLACE_HELD, err);
        else
                r = place_move(db, q->rt, &place, PLACE_HELD, err);
        if (r >= 0)
                r = leases_insert(db, &q->record->lease, err);
        return r < 0 ? r
                     : audit_lease(db, q->op, q->env->company_id, q->req->run_id,
                                   "environment.lease_acquired", q->record->lease.id,
                                   lease_activity_details(q->record, false), err);
}

/* Undoing */

/* Close a place that exists although no lease came of it. When the sweeper was faster, because the
 * provider took longer than it may, it has closed what was there at that time; what came into being
 * since then has no row that leads to it and is closed here. */
static void close_new(struct op *op, struct acquisition *q, const char *note)
{
        int r = place_commit_move(op, q->rt, &q->place, PLACE_CLOSING, note, NULL);

        if (r >= 0)
                (void)lease_finish_closing(op, q->rt, &q->place, NULL);
        else if (r == ERR_CONFLICT)
                (void)q->kind->close(op, q->rt, &q->place, NULL);
}

static bool outcome_unknown(int r)
{
        return r == ERR_UNCERTAIN || r == ERR_TIMEOUT || r == ERR_CANCELLED;
}

/* open() failed. Where nothing can exist the intent is written off; where something may exist and
 * its kind can find it by our tag, closing settles it; else only "uncertain" is true. */
static void undo_open(struct acquisition *q, int code, const struct err *cause)
{
        struct op shield = op_shield(q->op, q->rt->settings.close_timeout_ms);
        const char *note = arena_strdup(q->op->arena, cause->msg);

        FAULT("lease.undo_open.before");
        if (!outcome_unknown(code))
                (void)place_commit_move(&shield, q->rt, &q->place, PLACE_GONE, note, NULL);
        else if (!kind_can_find(q->rt, &q->place))
                (void)place_commit_move(&shield, q->rt, &q->place, PLACE_UNCERTAIN, note, NULL);
        else
                close_new(&shield, q, note);
        FAULT("lease.undo_open.after");
}

/* The place exists, but no lease came of it. A claimed place goes back, unless another lease has it
 * by now; a new one is closed. */
static void undo_bind(struct acquisition *q)
{
        struct op shield = op_shield(q->op, q->rt->settings.close_timeout_ms);

        FAULT("lease.undo_bind.before");
        if (q->joined || q->stocked)
                ; /* the other lease keeps a joined place; a stocked one was not taken */
        else if (q->claimed &&
                 place_commit_move(&shield, q->rt, &q->place, PLACE_HELD, NULL, NULL) >= 0)
                (void)lease_finish_parking(&shield, q->rt, &q->place, NULL);
        else if (!q->claimed && q->plan.has_world)
                close_new(&shield, q, "no lease came of it");
        FAULT("lease.undo_bind.after");
}

/* The steps */

static int lease_reuse(struct acquisition *q, struct err *err)
{
        CLEAN(err_done) struct err failure = { 0 };

        FAULT("lease.claim.before");
        int r = store_write(q->op, q->rt->store, lease_claim, q, err);
        FAULT("lease.claim.after");
        if (r < 0 || !q->claimed)
                return r;
        r = q->kind->resume(q->op, q->rt, &q->place, q->req, &q->opened, &failure);
        FAULT("lease.resume.after");
        if (r >= 0)
                return 0;
        /* The failure is the daemon's, or the caller has left: that says nothing about the place.
         */
        if (r == ERR_BUSY || r == ERR_IO || r == ERR_CANCELLED) {
                err_move(err, &failure);
                undo_bind(q);
                return r;
        }
        /* A place that cannot be resumed is useless; it is closed, and a new one is opened. */
        struct op shield = op_shield(q->op, q->rt->settings.close_timeout_ms);
        place_insist(&q->place);
        if (!q->joined && !q->has_stale &&
            place_commit_move(&shield, q->rt, &q->place, PLACE_CLOSING,
                              arena_strdup(q->op->arena, failure.msg), NULL) >= 0) {
                q->stale = q->place;
                q->has_stale = true;
        }
        q->claimed = q->joined = false;
        q->opened = (struct provider_lease){ 0 };
        return 0;
}

static int open_new(struct acquisition *q, struct err *err)
{
        CLEAN(err_done) struct err failure = { 0 };

        q->place = (struct place){
                .id = arena_strdup(q->op->arena, uuid_new().s),
                .company_id = q->env->company_id,
                .environment_id = q->env->id,
                .driver = q->kind->driver,
                .provider = q->plan.provider,
                .config = q->plan.config,
                .policy = q->plan.policy,
                .has_world = q->plan.has_world,
                .holder_run_id = q->req->run_id,
                .request_key = q->req->idempotency_key,
        };
        if (!q->plan.has_world)
                return 0;
        int r = reserve_check(err);
        if (r >= 0)
                r = intend_once(q, err);
        if (r != 0)
                return r;
        r = q->kind->open(q->op, q->rt, &q->place, q->req, &q->opened, &failure);
        FAULT("lease.open.after");
        if (r < 0) {
                undo_open(q, r, &failure);
                err_move(err, &failure);
                return r;
        }
        q->place.provider_lease_id = q->opened.id; /* undoing needs the name */
        if (q->opened.config)
                q->place.config = q->opened.config;
        return 0;
}

static int bind_lease(struct acquisition *q, struct err *err)
{
        build_lease(q);
        FAULT("lease.bind.before");
        int r = store_write(q->op, q->rt->store, lease_bind, q, err);
        FAULT("lease.bind.after");
        if (r >= 0)
                return 0;
        undo_bind(q);
        if (r == ERR_CONFLICT && q->req->idempotency_key) {
                /* Another request with the same key was faster: its lease counts. */
                if (read_existing(q, NULL) > 0) {
                        err_clear(err);
                        return 0;
                }
        }
        return r;
}

/* Take one that was made in advance. Nothing happens in the world for it, so the lease and the
 * place are recorded in one transaction: the second of two requests finds another place. 1 when
 * there is none. */
static int take_stocked(struct acquisition *q, struct err *err)
{
        int r = 1;

        while (q->plan.stock && r > 0) {
                r = stock_find(q->op, q->rt, q->env, q->kind, q->plan.config, &q->place, err);
                if (r <= 0)
                        break;
                r = q->kind->resume(q->op, q->rt, &q->place, q->req, &q->opened, err);
                if (r == ERR_NOT_FOUND) {
                        err_clear(err);
                        stock_discard(q->op, q->rt, &q->place);
                        r = 1;
                        continue;
                }
                if (r < 0)
                        return r;
                q->stocked = true;
                r = bind_lease(q, err);
                if (r != ERR_CONFLICT) {
                        stock_want(q->rt);
                        return r;
                }
                err_clear(err);
                r = op_check(q->op, err) < 0 ? err->code : 1;
        }
        q->stocked = false;
        q->opened = (struct provider_lease){ 0 };
        return r < 0 ? r : 1;
}

static int acquire_steps(struct acquisition *q, struct err *err)
{
        int r = 0;

        if (q->req->idempotency_key) {
                r = read_existing(q, err);
                if (r != 0)
                        return r;
        }
        for (bool again = q->plan.reuse; again;) {
                r = lease_reuse(q, err);
                if (r < 0)
                        return r;
                if (!q->claimed)
                        break;
                r = bind_lease(q, err);
                if (r != ERR_CONFLICT)
                        return r;
                /* Another operation changed the place since we found it: it counts as busy. But the
                 * lease that we joined may have ended and its place been parked before our resume
                 * reached it; then it is idle, and ours to take up properly. */
                again = q->joined && op_check(q->op, NULL) >= 0;
                atomic_fetch_add(&q->rt->counters.conflicts, 1);
                err_clear(err);
                q->claimed = q->joined = false;
                q->opened = (struct provider_lease){ 0 };
        }
        r = take_stocked(q, err);
        if (r <= 0)
                return r;
        r = open_new(q, err);
        return r != 0 ? r : bind_lease(q, err);
}

int lease_acquire(struct op *op, struct runtime *rt, const struct environment *env,
                  const struct lease_request *req, struct lease_record *ret, struct err *err)
{
        struct acquisition q = { .op = op, .rt = rt, .env = env, .req = req, .record = ret };

        *ret = (struct lease_record){ 0 };
        if (!streq(env->status, "active"))
                return err_set(err, ERR_UNPROCESSABLE, "Environment \"%s\" is not active.",
                               env->name);
        q.kind = kind_of_environment(rt, env);
        int r = kind_required(q.kind, env->driver, err);
        if (r >= 0)
                r = check_allowed(&q, err);
        if (r >= 0)
                r = q.kind->plan(op, rt, env, req, &q.plan, err);
        /* The lease is recorded after the place was opened, however long that may take. */
        struct op longer = op_with_time(op, q.plan.open_ms);
        q.op = &longer;
        if (r >= 0)
                r = acquire_steps(&q, err);
        if (q.has_stale) {
                /* Last, because the caller need not wait for it: a crash before leaves `closing`,
                 * which the sweeper takes up. */
                struct op shield = op_shield(op, rt->settings.close_timeout_ms);

                (void)lease_finish_closing(&shield, rt, &q.stale, NULL);
        }
        if (r < 0) {
                atomic_fetch_add(&rt->counters.acquire_failures, 1);
                return r;
        }
        if (!ret->existed)
                atomic_fetch_add(&rt->counters.leases_acquired, 1);
        if (q.claimed)
                atomic_fetch_add(&rt->counters.leases_reused, 1);
        return 0;
}
