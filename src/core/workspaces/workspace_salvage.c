/* Salvages: saving changes that were not brought home, and reading, applying and dropping them
 * afterwards.
 *
 *   save   row `saving` committed  | the bundle is written | row `ready` committed
 *   drop   `dropping` committed    | directory removed     | row gone
 *
 * After a crash between these the step is repeated: the same workspace is saved into the same row
 * and directory, and content that is there already is used. */

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "core/access/audit.h"
#include "core/places/age.h"
#include "core/places/place.h"
#include "core/roots/workspace_root.h"
#include "core/workspaces/workspace_internal.h"

/* Changes whose first one was looked at already. */
struct peeked {
        struct change_set set;
        struct change_set *from; /* owned */
        struct change first;
        bool has_first;
};

static int peeked_next(struct change_set *set, struct change *ret, struct err *err)
{
        struct peeked *p = container_of(set, struct peeked, set);

        if (!p->has_first)
                return p->from->next(p->from, ret, err);
        p->has_first = false;
        *ret = p->first;
        return 1;
}

static int peeked_open(struct change_set *set, const struct change *c, int *ret_fd, struct err *err)
{
        struct peeked *p = container_of(set, struct peeked, set);

        return p->from->open(p->from, c, ret_fd, err);
}

/* Saving */

struct saving {
        struct workspace_job *job;
        const char *reason;
        struct salvage row;
        struct bundle_size size;
        uint32_t umask;
};

static int salvage_intend(struct db *db, void *arg, struct err *err)
{
        struct saving *s = arg;
        struct workspace_job *j = s->job;
        struct lease lease;
        int64_t now = clock_now_us();
        int r = salvages_saving(db, j->row.id, j->op->arena, &s->row, err);

        if (r != ERR_NOT_FOUND)
                return r;
        r = s->reason ? 0 : leases_get(db, j->row.lease_id, j->op->arena, &lease, err);
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        if (!s->reason) /* how its lease ended */
                s->reason = r < 0 ? LEASE_RELEASED : lease.status;
        err_clear(err);
        s->row = (struct salvage){
                .id = arena_strdup(j->op->arena, uuid_new().s),
                .company_id = j->row.company_id,
                .workspace_id = j->row.id,
                .lease_id = j->row.lease_id,
                .environment_id = j->place.environment_id,
                .state = SALVAGE_SAVING,
                .reason = s->reason,
                .local_path = j->row.local_path,
                .exclude = j->row.exclude,
                .expires_at = j->rt->settings.salvage_ttl_is_set
                                      ? now + j->rt->settings.salvage_ttl_ms * US_PER_MS
                                      : 0,
                .created_at = now,
                .updated_at = now,
        };
        return salvages_insert(db, &s->row, err);
}

static int write_bundle(struct saving *s, struct change_set *changes, struct err *err)
{
        struct workspace_job *j = s->job;
        CLEAN(cleanup_free) char *dir = salvage_dir(j->rt->workspaces, s->row.id);
        struct budget budget = workspace_budget(j->rt);
        struct bundle_writer *writer = NULL;
        struct change_set *made = NULL;
        int r;

        workspace_work_progress(&j->work, "saving", 0, 0);
        FAULT("workspace.salvage.write.before");
        /* A salvage that was finished before a crash: more may have been changed since. */
        r = bundle_open(dir, &made, &s->size, NULL);
        if (made)
                made->close(made);
        made = NULL;
        r = r == ERR_NOT_FOUND ? 0 : bundle_remove(j->op, dir, err);
        if (r >= 0)
                r = bundle_create(dir, &writer, err);
        if (r >= 0)
                r = bundle_take(j->op, writer, changes, &budget, err);
        if (r >= 0)
                r = bundle_finish(writer, err);
        if (writer)
                bundle_close(writer);
        FAULT("workspace.salvage.write.after");
        if (r >= 0)
                r = bundle_open(dir, &made, &s->size, err);
        if (made)
                made->close(made);
        return r;
}

static int salvage_record_ready(struct db *db, void *arg, struct err *err)
{
        struct saving *s = arg;
        const struct workspace_job *j = s->job;
        struct salvage to = s->row;
        int r;

        to.state = SALVAGE_READY;
        to.umask = s->umask;
        to.changes = (int64_t)(s->size.changes - s->size.deletes);
        to.deletes = (int64_t)s->size.deletes;
        to.bytes = (int64_t)s->size.bytes;
        to.updated_at = clock_now_us();
        r = salvages_move(db, s->row.id, SALVAGE_SAVING, &to, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "The salvage was removed meanwhile.");
        if (r >= 0)
                r = audit(db, j->op, to.company_id, "environment.workspace_salvaged",
                          "environment_lease", to.lease_id,
                          json_pack("{s:s, s:s, s:s, s:I, s:I, s:I}", "salvageId", to.id, "reason",
                                    to.reason, "localPath", to.local_path, "changes",
                                    (json_int_t)to.changes, "deletes", (json_int_t)to.deletes,
                                    "bytes", (json_int_t)to.bytes),
                          err);
        s->row = to;
        return r;
}

static int save_changes(struct saving *s, struct change_set *changes, struct err *err)
{
        struct workspace_job *j = s->job;
        int r;

        FAULT("workspace.salvage.intend.before");
        r = store_write(j->op, j->rt->store, salvage_intend, s, err);
        FAULT("workspace.salvage.intend.after");
        if (r >= 0)
                r = write_bundle(s, changes, err);
        if (r < 0)
                return r;
        r = store_write(j->op, j->rt->store, salvage_record_ready, s, err);
        FAULT("workspace.salvage.ready.after");
        if (r >= 0)
                atomic_fetch_add(&j->rt->counters.salvages, 1);
        return r;
}

/* Where the directory on the host is gone, or is another one by now, an empty directory of ours
 * replaces it: the changes are then all that was written. */
static int stand_in(struct workspace_job *j, struct err *err)
{
        const char *nothing = arena_printf(j->op->arena, "%s/nothing", j->view.dir);
        CLEAN(cleanup_fd) int fd = -1;
        int r;

        if (workspace_open_local(j->rt, &j->view, &fd, NULL) >= 0)
                return 0;
        r = path_make_durable_dirs(nothing, 0700, err);
        if (r >= 0)
                j->view.local_path = nothing;
        return r;
}

/* Take the changes from the place; when it will never answer again, take those that a restore had
 * fetched already. As long as the place may answer, the fetched ones are not enough. */
static int salvage_collect(struct saving *s, struct change_set **ret, struct err *err)
{
        struct workspace_job *j = s->job;
        CLEAN(cleanup_free) char *fetched = xasprintf("%s/" WORKSPACE_BUNDLE, j->view.dir);
        struct bundle_size size;
        int r = stand_in(j, err);

        FAULT("workspace.salvage.collect.before");
        if (r >= 0)
                r = workspace_collect(j, ret, &s->umask, err);
        FAULT("workspace.salvage.collect.after");
        if (r >= 0 || !workspace_is_hopeless(j, r) || !j->row.step ||
            !streq(j->row.step, STEP_MERGING) || bundle_open(fetched, ret, &size, NULL) < 0)
                return r;
        s->umask = (uint32_t)j->row.umask;
        err_clear(err);
        return 0;
}

int workspace_save(struct workspace_job *j, const char *reason, struct salvage *ret_saved,
                   struct err *err)
{
        struct saving s = { .job = j, .reason = reason };
        struct change_set *changes = NULL;
        struct peeked peeked = { .set = { .next = peeked_next, .open = peeked_open } };
        int r = salvage_collect(&s, &changes, err);

        *ret_saved = (struct salvage){ 0 };
        j->has_changes = r >= 0;
        if (r >= 0) {
                r = changes->next(changes, &peeked.first, err);
                peeked.from = changes;
                peeked.has_first = r > 0;
        }
        if (r > 0)
                r = save_changes(&s, &peeked.set, err);
        if (changes)
                changes->close(changes);
        if (r >= 0)
                *ret_saved = s.row;
        return r;
}

/* Reading */

int salvage_list(struct op *op, struct runtime *rt, const char *company_id, int64_t before_us,
                 const char *before_id, int64_t limit, salvage_fn fn, void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = access_manage_environments(db, op->actor, company_id, err);
        return r < 0 ? r
                     : salvages_list(db, company_id, before_us, before_id, limit, op->arena, fn,
                                     ctx, err);
}

static int salvage_note_seen(struct db *db, void *arg, struct err *err)
{
        const struct salvage *s = arg;

        return salvages_note_seen(db, s->id, s->seen_at, s->expires_at, err);
}

int salvage_get(struct op *op, struct runtime *rt, const char *id, struct salvage *ret,
                struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct salvage row;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = salvages_get(db, id, op->arena, &row, err);
        if (r >= 0)
                r = access_manage_environments(db, op->actor, row.company_id, err);
        store_read_end(&db);
        if (r >= 0 && !streq(row.state, SALVAGE_READY))
                r = err_set(err, ERR_NOT_FOUND, "Salvage not found");
        if (r >= 0 && !row.seen_at) {
                row.seen_at = clock_now_us();
                if (!rt->settings.salvage_ttl_is_set)
                        row.expires_at = row.seen_at + rt->settings.salvage_ttl_ms * US_PER_MS;
                r = store_write(op, rt->store, salvage_note_seen, &row, err);
        }
        if (r >= 0)
                *ret = row;
        return r;
}

/* Applying */

struct applied {
        struct op *op;
        struct salvage row;
        const struct restore_report *report;
};

static int salvage_record_applied(struct db *db, void *arg, struct err *err)
{
        struct applied *a = arg;
        const struct merge_report *m = &a->report->merge;
        int r;

        a->row.applied_at = a->row.updated_at = clock_now_us();
        r = salvages_move(db, a->row.id, SALVAGE_READY, &a->row, err);
        if (r >= 0)
                r = audit(db, a->op, a->row.company_id, "environment.salvage_applied",
                          "workspace_salvage", a->row.id,
                          json_pack("{s:s, s:I, s:I, s:I, s:I}", "localPath", a->row.local_path,
                                    "added", (json_int_t)m->added, "changed",
                                    (json_int_t)m->changed, "deleted", (json_int_t)m->deleted,
                                    "conflicts", (json_int_t)m->n_conflicts),
                          err);
        return r;
}

int salvage_apply(struct op *op, struct runtime *rt, const char *id, const char *local_path,
                  struct restore_report *ret, struct err *err)
{
        struct applied a = { .op = op, .report = ret };
        CLEAN(cleanup_free) char *dir = salvage_dir(rt->workspaces, id);
        struct workspace_work work = { 0 };
        struct change_set *changes = NULL;
        struct bundle_size size;
        struct excludes excludes = { 0 };
        int r;

        *ret = (struct restore_report){ 0 };
        r = workspace_work_begin(op, rt->workspaces, id, false, &work, err);
        if (r >= 0)
                r = salvage_get(op, rt, id, &a.row, err);
        if (r >= 0)
                r = bundle_open(dir, &changes, &size, err);
        if (r >= 0) {
                struct merge_request req = {
                        .company_id = a.row.company_id,
                        .path = local_path ? local_path : a.row.local_path,
                        .excludes = &excludes,
                        .umask = (uint32_t)a.row.umask,
                        .work = &work,
                        .scratch = workspace_scratch(op->arena, dir),
                };

                excludes.patterns = workspace_patterns(op->arena, a.row.exclude);
                FAULT("workspace.salvage.apply.before");
                r = workspace_merge(op, rt, changes, &req, ret, err);
                FAULT("workspace.salvage.apply.after");
        }
        if (changes)
                changes->close(changes);
        if (r >= 0)
                r = store_write(op, rt->store, salvage_record_applied, &a, err);
        workspace_work_end(&work);
        return r;
}

/* Dropping */

struct dropping {
        struct op *op;
        struct salvage row;
        const char *from;
};

static int salvage_intend_drop(struct db *db, void *arg, struct err *err)
{
        struct dropping *d = arg;
        struct salvage to = d->row;
        int r;

        to.state = SALVAGE_DROPPING;
        to.updated_at = clock_now_us();
        r = salvages_move(db, d->row.id, d->from, &to, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "The salvage changed in the meantime.");
        if (r >= 0 && streq(d->from, SALVAGE_READY))
                r = audit(db, d->op, d->row.company_id, "environment.salvage_deleted",
                          "workspace_salvage", d->row.id,
                          json_pack("{s:s, s:b}", "localPath", d->row.local_path, "applied",
                                    d->row.applied_at != 0),
                          err);
        return r;
}

static int salvage_forget(struct db *db, void *arg, struct err *err)
{
        struct dropping *d = arg;

        return salvages_delete(db, d->row.id, SALVAGE_DROPPING, err);
}

static int salvage_drop_row(struct op *op, struct runtime *rt, const struct salvage *row,
                            struct err *err)
{
        CLEAN(cleanup_free) char *dir = salvage_dir(rt->workspaces, row->id);
        struct dropping d = { op, *row, row->state };
        int r = 0;

        FAULT("workspace.drop.intend.before");
        if (!streq(row->state, SALVAGE_DROPPING))
                r = store_write(op, rt->store, salvage_intend_drop, &d, err);
        FAULT("workspace.drop.intend.after");
        if (r >= 0)
                r = workspace_remove_dir(op, dir, err);
        FAULT("workspace.drop.remove.after");
        return r < 0 ? r : store_write(op, rt->store, salvage_forget, &d, err);
}

int salvage_drop(struct op *op, struct runtime *rt, const char *id, struct salvage *ret,
                 struct err *err)
{
        struct workspace_work work = { 0 };
        int r = workspace_work_begin(op, rt->workspaces, id, false, &work, err);

        if (r >= 0)
                r = salvage_get(op, rt, id, ret, err);
        if (r >= 0)
                r = salvage_drop_row(op, rt, ret, err);
        workspace_work_end(&work);
        return r < 0 ? r : 0;
}

/* Those that are over */

struct over {
        struct salvage *rows;
        size_t n;
};

static int add_over(void *ctx, const struct salvage *row)
{
        struct over *o = ctx;

        o->rows = xrealloc(o->rows, (o->n + 1) * sizeof(*o->rows));
        o->rows[o->n++] = *row;
        return 0;
}

int salvage_sweep(struct op *op, struct runtime *rt, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const struct settings *s = &rt->settings;
        int64_t before_us = INT64_MIN;
        struct over o = { 0 };
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = age_cutoff(db, rt, s->salvage_ttl_ms * US_PER_MS, op->arena, &before_us, err);
        if (r >= 0)
                r = salvages_over(db, before_us, s->salvage_ttl_is_set, op->arena, add_over, &o,
                                  err);
        store_read_end(&db);
        for (size_t i = 0; r >= 0 && i < o.n; i++) {
                CLEAN(err_done) struct err one = { 0 };
                struct workspace_work work = { 0 };

                if (workspace_work_begin(op, rt->workspaces, o.rows[i].id, false, &work, NULL) < 0)
                        continue; /* it is being applied just now */
                if (salvage_drop_row(op, rt, &o.rows[i], &one) < 0)
                        log_warn("could not remove a salvage", LOG_S("salvage", o.rows[i].id),
                                 LOG_S("error", one.msg));
                workspace_work_end(&work);
        }
        free(o.rows);
        return r;
}
