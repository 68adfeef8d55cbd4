/* Taking up workspaces that no thread works on: see workspace.h. */
#include <dirent.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/places/place.h"
#include "core/places/sweep_list.h"
#include "core/workspaces/workspace_internal.h"
#include "core/workspaces/worktree.h"

struct findings {
        struct op *op;
        const struct runtime *rt;
        const char *environment_id; /* whose workspaces are taken up */
        struct sweep_list *list;    /* only look: where something is due; NULL: do it */
        struct due {
                const char *id, *lease_id;
                bool orphaned; /* its lease has ended, and its place is not being given up */
                bool foreign;  /* its place is another node's */
                struct place place;
        } * rows;
        size_t n;
        struct db *db;
        struct err *err;
};

/* Whether its lease is over although the place is not being given up: the place was shared, or the
 * daemon died in between. */
static int is_orphaned(struct findings *f, const struct workspace_row *row, struct due *due)
{
        struct lease lease;
        int r = leases_get(f->db, row->lease_id, f->op->arena, &lease, f->err);

        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        if (r >= 0 && lease_is_living(&lease))
                return 0;
        r = places_get(f->db, row->place_id, f->op->arena, &due->place, f->err);
        if (r < 0)
                return r == ERR_NOT_FOUND ? 0 : r;
        due->foreign = place_is_foreign(f->rt, &due->place);
        due->orphaned = !streq(due->place.state, PLACE_CLOSING) &&
                        !(place_is_ours(f->rt, &due->place) &&
                          due->place.next_attempt_at > clock_steady_us());
        return 0;
}

static int consider(void *ctx, const struct workspace_row *row)
{
        struct findings *f = ctx;
        struct due due = { .id = row->id, .lease_id = row->lease_id };
        bool waits = row->next_attempt_at > clock_steady_us() &&
                     streq(row->owner_instance, f->rt->node.instance.s);
        const char *environment_id;
        int r = is_orphaned(f, row, &due);

        if (r < 0)
                return r;
        if (waits || due.foreign || (!due.orphaned && streq(row->state, WORKSPACE_STAGED)))
                return 0;
        if (!due.place.id)
                r = places_get(f->db, row->place_id, f->op->arena, &due.place, f->err);
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        environment_id = due.place.environment_id ? due.place.environment_id : SWEEP_NOWHERE;
        if (f->list)
                sweep_list_add(f->list, environment_id, row->company_id);
        if (f->list || !streq(environment_id, f->environment_id))
                return 0;
        f->rows = xrealloc(f->rows, (f->n + 1) * sizeof(*f->rows));
        f->rows[f->n++] = due;
        return 0;
}

static int find_due(struct findings *f, struct runtime *rt, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(f->op, rt->store, &db, err);

        f->db = db;
        f->err = err;
        return r < 0 ? r : workspaces_living(db, NULL, f->op->arena, consider, f, err);
}

static int record_retry(struct workspace_job *j, const struct err *cause)
{
        struct workspace_move m = workspace_move_to(j, j->row.state, j->row.step);

        m.to.attempts++;
        m.to.next_attempt_at = clock_steady_us() + place_retry_pause(m.to.attempts);
        m.to.note = arena_printf(j->op->arena, "To be gone on with: %s", cause->msg);
        return workspace_move(j->op, &m, NULL);
}

static int take_up_workspace(struct op *op, struct runtime *rt, const struct due *due,
                             struct err *err)
{
        struct workspace_job j = { .op = op, .rt = rt };
        struct restore_report report = { 0 };
        struct workspace_work busy;
        int r;

        if (workspace_work_look(rt->workspaces, due->id, &busy))
                return 0;
        if (due->orphaned)
                return workspace_give_up(op, rt, &due->place, due->lease_id, NULL, err);
        r = workspace_job_begin(&j, due->id, false, err);
        if (r < 0) {
                workspace_job_end(&j);
                return r == ERR_CONFLICT ? 0 : r; /* another thread was faster */
        }
        FAULT("workspace.sweep.before");
        if (streq(j.row.state, WORKSPACE_STAGING))
                r = workspace_end(&j, "Staging was interrupted.", err);
        else
                r = workspace_restore_resume(&j, &report, err);
        FAULT("workspace.sweep.after");
        if (r < 0)
                (void)record_retry(&j, err);
        workspace_job_end(&j);
        return r;
}

/* Directories that no living workspace has. */

static int note_living(void *ctx, const struct workspace_row *row)
{
        json_object_set_new(ctx, row->id, json_true());
        return 0;
}

/* Names are read before rows: a row is committed before its directory is made. */
static int remove_leftovers(struct op *op, struct runtime *rt, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        CLEAN(json_decrefp) json_t *names = json_object();
        CLEAN(json_decrefp) json_t *living = json_object();
        DIR *dir = opendir(rt->workspaces->dir);
        struct dirent *entry;
        const char *name;
        json_t *value;
        int r;

        while (dir && (entry = readdir(dir))) {
                struct uuid id;

                if (uuid_parse(entry->d_name, &id))
                        json_object_set_new(names, entry->d_name, json_true());
        }
        if (dir)
                closedir(dir);
        if (json_object_size(names) == 0)
                return 0;
        r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = workspaces_living(db, NULL, op->arena, note_living, living, err);
        store_read_end(&db);
        if (r < 0)
                return r;
        json_object_foreach(names, name, value)
        {
                CLEAN(cleanup_free) char *path = workspace_dir(rt->workspaces, name);

                if (!json_object_get(living, name))
                        (void)workspace_remove_dir(op, path, NULL);
        }
        return 0;
}

int workspace_sweep_look(struct op *op, struct runtime *rt, struct sweep_list *list,
                         struct err *err)
{
        struct findings f = { .op = op, .rt = rt, .list = list };

        return rt->workspaces ? find_due(&f, rt, err) : 0;
}

int workspace_sweep(struct op *op, struct runtime *rt, const char *environment_id, struct err *err)
{
        struct findings f = { .op = op, .rt = rt, .environment_id = environment_id };
        int r;

        if (!rt->workspaces)
                return 0;
        r = find_due(&f, rt, err);
        for (size_t i = 0; r >= 0 && i < f.n; i++) {
                CLEAN(err_done) struct err one = { 0 };
                struct op limited = *op;

                /* A large workspace gets further with each pass and does not keep the others
                 * waiting. */
                limited.deadline_ms =
                        MIN(op->deadline_ms, clock_mono_ms() + rt->settings.close_timeout_ms);
                if (take_up_workspace(&limited, rt, &f.rows[i], &one) < 0)
                        log_warn("could not go on with a workspace",
                                 LOG_S("workspace", f.rows[i].id), LOG_S("error", one.msg));
                r = op_check(op, err);
        }
        free(f.rows);
        return r;
}

int workspace_tidy(struct op *op, struct runtime *rt, struct err *err)
{
        int r = rt->workspaces ? remove_leftovers(op, rt, err) : 0;

        if (r >= 0)
                r = worktree_sweep(op, rt, err);
        return r < 0 || !rt->workspaces ? r : salvage_sweep(op, rt, err);
}
