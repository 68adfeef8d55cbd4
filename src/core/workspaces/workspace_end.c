/* The end of a workspace: given up with its place, replaced, discarded, or never really staged. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/exec/exec.h"
#include "core/kinds/kind.h"
#include "core/places/place.h"
#include "core/workspaces/workspace_internal.h"

/* How often a place is asked for changes that it does not deliver: for about twenty minutes, so
 * that a host may restart meanwhile. Then the loss is recorded: a box that does not answer as it
 * should must not keep its place for ever. A failure of the daemon's own (a full disk) has no such
 * limit. */
#define MAX_ATTEMPTS 12

/* Ending */

static bool is_removed_there(const struct workspace_job *j)
{
        const char *state = j->place.state;
        bool is_used = streq(state, PLACE_HELD) || streq(state, PLACE_READY);

        return j->way && j->way->unstage && (is_used || !j->way->dies_with_place) &&
               !streq(state, PLACE_GONE);
}

static int remove_there(struct workspace_job *j, struct err *err)
{
        int r;

        if (!is_removed_there(j))
                return 0;
        FAULT("workspace.unstage.before");
        r = j->way->unstage(j->op, j->rt, &j->place, &j->view, err);
        FAULT("workspace.unstage.after");
        if (r == ERR_NOT_FOUND) { /* the place has gone, and it with the place */
                err_clear(err);
                return 0;
        }
        return r;
}

static int record_end(struct workspace_job *j, const char *note, const char *action,
                      json_t *take_details, struct err *err)
{
        CLEAN(cleanup_free) char *dir = workspace_dir(j->rt->workspaces, j->row.id);
        struct workspace_move m = workspace_move_to(j, WORKSPACE_ENDED, NULL);
        int r;

        if (note)
                m.to.note = note;
        m.action = action;
        m.details = take_details;
        FAULT("workspace.end.before");
        r = workspace_move(j->op, &m, err);
        FAULT("workspace.end.after");
        if (r >= 0)
                (void)workspace_remove_dir(j->op, dir, NULL); /* else the sweeper does */
        return r;
}

int workspace_end(struct workspace_job *j, const char *note, struct err *err)
{
        int r = remove_there(j, err);

        return r < 0 ? r : record_end(j, note, NULL, NULL, err);
}

/* Giving up */

bool workspace_is_hopeless(const struct workspace_job *j, int r)
{
        if (!j->has_changes && (r == ERR_NOT_FOUND || streq(j->place.state, PLACE_GONE) ||
                                (kind_is_dead(j->rt, &j->place) && !j->way->works_dead)))
                return true;
        if (r == ERR_TOO_LARGE && j->way->works_dead) /* it is here, and a setting lets it come */
                return false;
        if (r == ERR_IO || r == ERR_CANCELLED || r == ERR_LOCKED || r == ERR_BUSY ||
            r == ERR_CONFLICT || r == ERR_INTERNAL || r == ERR_VERSION) /* our own trouble */
                return false;
        return j->row.attempts + 1 >= MAX_ATTEMPTS;
}

static int record_loss(struct workspace_job *j, const struct err *cause, struct err *err)
{
        const char *note = arena_printf(j->op->arena,
                                        "Changes that had not been brought home are "
                                        "lost: %s",
                                        cause->msg);

        log_warn("changes of a workspace could not be saved", LOG_S("workspace", j->row.id),
                 LOG_S("lease", j->row.lease_id), LOG_S("error", cause->msg));
        atomic_fetch_add(&j->rt->counters.workspaces_lost, 1);
        return record_end(j, note, "environment.workspace_lost",
                          json_pack("{s:s}", "error", cause->msg), err);
}

static int record_attempt(struct workspace_job *j, const struct err *cause)
{
        struct op shield = op_shield(j->op, j->rt->settings.close_timeout_ms);
        struct workspace_move m = workspace_move_to(j, j->row.state, j->row.step);

        m.to.attempts++;
        m.to.next_attempt_at = clock_steady_us() + place_retry_pause(m.to.attempts);
        m.to.note = arena_printf(j->op->arena, "Could not be given up yet: %s", cause->msg);
        return workspace_move(&shield, &m, NULL);
}

/* Nothing is left to be saved there. Recorded before the tree is removed: after a crash in between,
 * a tree that is not there would be taken for one that cannot be read. */
static int record_saved(struct workspace_job *j, const struct salvage *saved, struct err *err)
{
        struct workspace_move m = workspace_move_to(j, WORKSPACE_STAGED, STEP_SAVED);

        if (saved->id)
                m.to.note = arena_printf(j->op->arena,
                                         "Changes that had not been brought home are kept as "
                                         "salvage %s.",
                                         saved->id);
        return workspace_move(j->op, &m, err);
}

/* Nothing may change it any more while it is read. Only for a whole place: one that stays open is
 * still in use. */
static int end_commands(struct workspace_job *j, struct err *err)
{
        const struct kind *kind = kind_of_place(j->rt, &j->place);

        if (!j->rt->hub || !j->place.has_world || kind_is_dead(j->rt, &j->place))
                return 0;
        if (kind && kind->end_commands)
                return kind->end_commands(j->op, j->rt, &j->place, err);
        return exec_end_all(j->op, j->rt, &j->place, err);
}

static int save_all(struct workspace_job *j, const char *reason, bool whole_place, struct err *err)
{
        struct restore_report ignored = { 0 };
        struct salvage saved = { 0 };
        int r = whole_place ? end_commands(j, err) : 0;

        if (r < 0)
                return r;
        /* A restore that was begun is brought to its end, so that nothing of it is left half done
         * on the host. Where that fails, all is saved; but not while it settles: collecting again
         * would change what it takes as its baseline. */
        r = workspace_restore_resume(j, &ignored, err);
        if (r < 0 && j->row.step && streq(j->row.step, STEP_SETTLING))
                return r;
        if (r < 0)
                err_clear(err);
        r = workspace_save(j, reason, &saved, err);
        if (r >= 0 && (saved.id || is_removed_there(j)))
                r = record_saved(j, &saved, err);
        if (r >= 0)
                j->has_changes = false;
        return r;
}

/* How it is given up. */
struct farewell {
        const char *lease_id; /* NULL: with its whole place */
        const char *reason;
        const struct workspace_way *next; /* by which another takes its place; NULL: none does */
};

static int give_up_one(struct workspace_job *j, const struct farewell *how, struct err *err)
{
        CLEAN(err_done) struct err failure = { 0 };
        bool saving = false;
        int r = 0;

        if (streq(j->row.state, WORKSPACE_ENDED))
                return 0;
        if (j->way->collect && !streq(j->row.state, WORKSPACE_STAGING) &&
            !(j->row.step && streq(j->row.step, STEP_SAVED))) {
                saving = true;
                r = save_all(j, how->reason, !how->lease_id, &failure);
        }
        if (r >= 0) {
                bool is_replaced = how->next && how->next == j->way && j->way->is_replaced;

                saving = false;
                r = is_replaced ? 0 : remove_there(j, &failure);
                if (r >= 0)
                        r = record_end(j, NULL, NULL, NULL, &failure);
        }
        if (r >= 0)
                return 0;
        if (workspace_is_hopeless(j, r))
                return saving ? record_loss(j, &failure, err)
                              : record_end(j, NULL, NULL, NULL, err);
        (void)record_attempt(j, &failure);
        err_move(err, &failure);
        return err_wrap(err, r, "give up the workspace %s", j->row.local_path);
}

struct of_place {
        const char *lease_id; /* NULL: of all */
        const char *ids[64];  /* more leases than that do not share a place */
        size_t n;
};

static int add_living(void *ctx, const struct workspace_row *row)
{
        struct of_place *q = ctx;

        if ((!q->lease_id || streq(row->lease_id, q->lease_id)) && q->n < ARRAY_LEN(q->ids))
                q->ids[q->n++] = row->id;
        return 0;
}

static int find_living(struct op *op, struct runtime *rt, const char *place_id,
                       struct of_place *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : workspaces_living(db, place_id, op->arena, add_living, ret, err);
}

static int give_up_all(struct op *op, struct runtime *rt, const struct place *place,
                       const struct farewell *how, struct err *err)
{
        struct of_place q = { .lease_id = how->lease_id };
        int failure = 0, r;

        if (!rt->workspaces)
                return 0;
        r = find_living(op, rt, place->id, &q, err);
        for (size_t i = 0; r >= 0 && i < q.n; i++) {
                CLEAN(err_done) struct err one = { 0 };
                struct workspace_job j = { .op = op, .rt = rt };
                int one_r = workspace_job_begin(&j, q.ids[i], true, &one);

                if (one_r >= 0)
                        one_r = give_up_one(&j, how, &one);
                workspace_job_end(&j);
                if (one_r < 0) {
                        failure = one_r;
                        err_move(err, &one);
                }
        }
        return r < 0 ? r : failure;
}

int workspace_give_up(struct op *op, struct runtime *rt, const struct place *place,
                      const char *lease_id, const char *reason, struct err *err)
{
        struct farewell how = { .lease_id = lease_id, .reason = reason };

        return give_up_all(op, rt, place, &how, err);
}

int workspace_replace(struct op *op, struct runtime *rt, const struct place *place,
                      const char *lease_id, const struct workspace_way *next, struct err *err)
{
        struct farewell how = { .lease_id = lease_id, .reason = "staged again", .next = next };

        return give_up_all(op, rt, place, &how, err);
}

bool workspace_is_busy(struct op *op, struct runtime *rt, const char *place_id)
{
        struct of_place q = { 0 };
        struct workspace_work work;

        if (!rt->workspaces || find_living(op, rt, place_id, &q, NULL) < 0)
                return false;
        for (size_t i = 0; i < q.n; i++)
                if (workspace_work_look(rt->workspaces, q.ids[i], &work))
                        return true;
        return false;
}

struct ending {
        struct db *db;
        const struct runtime *rt;
        struct arena *arena;
        struct err *err;
};

static int end_row(void *ctx, const struct workspace_row *row)
{
        struct ending *e = ctx;
        struct workspace_row from = *row, to = *row;

        to.state = WORKSPACE_ENDED;
        to.step = NULL;
        return workspace_row_move(e->db, e->rt, &from, &to, e->arena, e->err);
}

int workspace_end_worldless(struct db *db, const struct runtime *rt, const char *place_id,
                            struct arena *arena, struct err *err)
{
        struct ending e = { db, rt, arena, err };

        return workspaces_living(db, place_id, arena, end_row, &e, err);
}

/* Discarding */

int workspace_discard(struct op *op, struct runtime *rt, const struct lease_record *record,
                      struct workspace_row *ret_row, struct err *err)
{
        struct workspace_job j = { .op = op, .rt = rt };
        struct workspace_row row;
        int r = workspace_get(op, rt, record->lease.id, &row, err);

        if (r >= 0)
                r = workspace_job_begin(&j, row.id, false, err);
        if (r >= 0 && !streq(j.row.state, WORKSPACE_ENDED)) {
                r = remove_there(&j, err);
                if (r >= 0)
                        r = record_end(&j, "Discarded.", "environment.workspace_discarded", NULL,
                                       err);
        }
        workspace_job_end(&j);
        if (r >= 0)
                *ret_row = j.row;
        return r;
}
