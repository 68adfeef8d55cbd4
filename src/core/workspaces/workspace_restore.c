/* Restoring. See workspace.h for what is committed before what happens. */
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/access.h"
#include "core/places/place.h"
#include "core/roots/workspace_root.h"
#include "core/workspaces/workspace_internal.h"

static const char *bundle_path(const struct workspace_job *j)
{
        return arena_printf(j->op->arena, "%s/" WORKSPACE_BUNDLE, j->view.dir);
}

static int move_plainly(struct workspace_job *j, const char *state, const char *step,
                        struct err *err)
{
        struct workspace_move m = workspace_move_to(j, state, step);

        return workspace_move(j->op, &m, err);
}

/* Merging */

/* The list of changes for later readers, when the place is gone. It goes into the row. */
#define LISTED_MAX       500
#define LISTED_TEXTS_MAX ((size_t)128 << 10)

static int record_merged(struct workspace_job *j, const struct restore_report *report,
                         struct err *err)
{
        struct workspace_move m = workspace_move_to(j, WORKSPACE_RESTORING, STEP_SETTLING);
        const struct merge_report *k = &report->merge;
        CLEAN(buf_done) struct buf text = BUF_INIT;
        struct jw w;

        jw_init(&w, &text);
        jw_object(&w);
        restore_report_members(&w, report);
        jw_kraw(&w, "changes", report->changes);
        jw_object_end(&w);
        m.to.restored_at = clock_now_us();
        m.to.report = buf_failed(&text) ? NULL : arena_strdup(j->op->arena, buf_str(&text));
        m.action = "environment.workspace_restored";
        m.details = json_pack("{s:I, s:I, s:I, s:I}", "added", (json_int_t)k->added, "changed",
                              (json_int_t)k->changed, "deleted", (json_int_t)k->deleted,
                              "conflicts", (json_int_t)k->n_conflicts);
        return workspace_move(j->op, &m, err);
}

/* Settling */

static int settle_restored(struct workspace_job *j, struct err *err)
{
        int r = 0;

        FAULT("workspace.restore.settle.before");
        if (j->way->settle)
                r = j->way->settle(j->op, j->rt, &j->place, &j->view, err);
        FAULT("workspace.restore.settle.after");
        if (r >= 0)
                r = move_plainly(j, WORKSPACE_STAGED, NULL, err);
        FAULT("workspace.restore.done.after");
        if (r >= 0)
                (void)bundle_remove(j->op, bundle_path(j), NULL); /* the next one overwrites it */
        return r;
}

static int merge_and_settle(struct workspace_job *j, struct change_set *changes,
                            struct restore_report *ret, struct err *err)
{
        struct merge_request req = {
                .company_id = j->row.company_id,
                .path = j->row.target_path ? j->row.target_path : j->row.local_path,
                .excludes = &j->view.excludes,
                .umask = (uint32_t)j->row.umask,
                .work = &j->work,
                .scratch = workspace_scratch(j->op->arena, j->view.dir),
        };
        CLEAN(buf_done) struct buf listed = BUF_INIT;
        struct jw w;
        struct change_list list = {
                .w = &w, .max = LISTED_MAX, .texts_max = LISTED_TEXTS_MAX, .is_kept = true
        };
        int r;

        jw_init(&w, &listed);
        jw_array(&w);
        change_list_watch(&list, &req);
        FAULT("workspace.restore.merge.before");
        r = workspace_merge(j->op, j->rt, changes, &req, ret, err);
        FAULT("workspace.restore.merge.after");
        jw_array_end(&w);
        if (r >= 0 && !buf_failed(&listed))
                ret->changes = arena_strdup(j->op->arena, buf_str(&listed));
        if (r >= 0)
                r = record_merged(j, ret, err);
        FAULT("workspace.restore.merged.after");
        if (r < 0)
                return r;
        atomic_fetch_add(&j->rt->counters.workspaces_restored, 1);
        return settle_restored(j, err);
}

/* Going on with one that was begun */

/* The changes that had been collected; ERR_NOT_FOUND when the way does not fetch first. */
static int open_collected(struct workspace_job *j, struct change_set **ret, struct err *err)
{
        struct bundle_size size;

        return bundle_open(bundle_path(j), ret, &size, err);
}

int workspace_restore_resume(struct workspace_job *j, struct restore_report *ret, struct err *err)
{
        struct change_set *changes = NULL;
        uint32_t umask = 0;
        int r;

        if (!streq(j->row.state, WORKSPACE_RESTORING))
                return 0;
        if (j->row.step && streq(j->row.step, STEP_SETTLING))
                return settle_restored(j, err);
        if (!j->row.step || !streq(j->row.step, STEP_MERGING))
                return move_plainly(j, WORKSPACE_STAGED, NULL, err);
        r = open_collected(j, &changes, err);
        if (r == ERR_NOT_FOUND && j->way->works_dead) /* a restore that had begun is completed */
                r = workspace_collect(j, &changes, &umask, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return move_plainly(j, WORKSPACE_STAGED, NULL, err);
        }
        if (r >= 0)
                r = merge_and_settle(j, changes, ret, err);
        if (changes)
                changes->close(changes);
        return r;
}

/* After a failure: back to `staged` where nothing had been fetched; otherwise it waits to be
 * continued. With time of its own, for the operation's may be over. */
static void step_back(struct workspace_job *j, const struct err *cause)
{
        struct op shield = op_shield(j->op, j->rt->settings.close_timeout_ms);
        struct workspace_move m = workspace_move_to(j, WORKSPACE_STAGED, NULL);
        struct change_set *changes = NULL;
        bool collected = j->row.step && !streq(j->row.step, STEP_COLLECTING);

        if (!streq(j->row.state, WORKSPACE_RESTORING))
                return;
        if (collected &&
            (streq(j->row.step, STEP_SETTLING) || open_collected(j, &changes, NULL) >= 0)) {
                m.to.state = j->row.state;
                m.to.step = j->row.step;
                m.to.attempts++;
                m.to.next_attempt_at = clock_steady_us() + place_retry_pause(m.to.attempts);
        }
        if (changes)
                changes->close(changes);
        m.to.note = arena_printf(j->op->arena, "The last restore failed: %s", cause->msg);
        (void)workspace_move(&shield, &m, NULL);
}

static int restore_changes(struct workspace_job *j, const char *local_path,
                           struct restore_report *ret, struct err *err)
{
        struct restore_report earlier = { 0 };
        struct change_set *changes = NULL;
        struct workspace_move m;
        uint32_t umask = 0;
        int r = workspace_restore_resume(j, &earlier, err);

        if (r < 0)
                return r;
        m = workspace_move_to(j, WORKSPACE_RESTORING, STEP_COLLECTING);
        m.to.target_path = local_path;
        m.to.attempts = 0;
        m.to.next_attempt_at = 0;
        m.to.note = NULL;
        FAULT("workspace.restore.begin.before");
        r = workspace_move(j->op, &m, err);
        FAULT("workspace.restore.begin.after");
        if (r < 0)
                return r;
        FAULT("workspace.restore.collect.before");
        r = workspace_collect(j, &changes, &umask, err);
        FAULT("workspace.restore.collect.after");
        if (r >= 0) {
                m = workspace_move_to(j, WORKSPACE_RESTORING, STEP_MERGING);
                m.to.umask = umask;
                FAULT("workspace.restore.collected.before");
                r = workspace_move(j->op, &m, err);
                FAULT("workspace.restore.collected.after");
        }
        if (r >= 0)
                r = merge_and_settle(j, changes, ret, err);
        if (changes)
                changes->close(changes);
        return r;
}

int workspace_restore(struct op *op, struct runtime *rt, const struct lease_record *record,
                      const char *local_path, struct restore_report *ret, struct err *err)
{
        struct workspace_job j = { .op = op, .rt = rt };
        int64_t began = clock_mono_ms();
        int r = 0;

        *ret = (struct restore_report){ 0 };
        if (local_path)
                r = workspace_root_check(rt,
                                         &(struct workspace_asker){ record->lease.company_id,
                                                                    op->actor->is_daemon_user },
                                         local_path, err);
        if (r >= 0)
                r = workspace_job_of_lease(&j, record, err);
        if (r >= 0) {
                if (j.way->collect) {
                        r = restore_changes(&j, local_path, ret, err);
                } else { /* commands work in the directory itself */
                        r = record_merged(&j, &(struct restore_report){ 0 }, err);
                        if (r >= 0)
                                r = move_plainly(&j, WORKSPACE_STAGED, NULL, err);
                }
                if (r < 0)
                        step_back(&j, err);
        }
        workspace_job_end(&j);
        ret->duration_ms = clock_mono_ms() - began;
        return r;
}
