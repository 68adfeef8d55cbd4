/* Staging. See workspace.h for what is committed before what happens. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "core/access/access.h"
#include "core/exec/box_service.h"
#include "core/places/place.h"
#include "core/roots/workspace_root.h"
#include "core/workspaces/workspace_internal.h"

struct staging {
        struct workspace_job job;
        const struct lease_record *record;
        const struct stage_request *req;
        const char *path; /* canonical */
        struct stage_result result;
};

static int64_t now_ns(clockid_t clock)
{
        struct timespec now;

        clock_gettime(clock, &now);
        return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* The intent */

static int stage_intend(struct db *db, void *arg, struct err *err)
{
        struct staging *s = arg;
        struct workspace_job *j = &s->job;
        struct lease lease;
        struct place place;
        int r = leases_get(db, j->row.lease_id, j->op->arena, &lease, err);

        if (r < 0)
                return r;
        if (!streq(lease.status, LEASE_ACTIVE))
                return err_set(err, ERR_CONFLICT, "The lease is %s and cannot be used any more.",
                               lease.status);
        r = places_get(db, lease.place_id, j->op->arena, &place, err);
        if (r >= 0 && !streq(place.state, PLACE_HELD))
                r = err_set(err, ERR_CONFLICT, "The place of the lease is %s.", place.state);
        if (r >= 0 && j->way->needs_world && !place.has_world) {
                place.has_world = true;
                r = place_move(db, j->rt, &place, PLACE_HELD, err);
        }
        if (r < 0)
                return r;
        j->place = place;
        r = workspaces_insert(db, &j->row, err);
        return r == ERR_CONFLICT ? err_set(err, r, "The lease has a workspace already.") : r;
}

static int stage_into_place(struct staging *s, struct err *err)
{
        struct workspace_job *j = &s->job;
        CLEAN(json_decrefp) json_t *exclude = json_array();
        const char *const *pattern = s->req->exclude;
        struct workspace_move m;
        struct op *op = j->op, shield;
        int64_t now = clock_now_us();
        int r;

        for (; pattern && *pattern; pattern++)
                json_array_append_new(exclude, json_string(*pattern));
        j->row = (struct workspace_row){
                .id = arena_strdup(op->arena, uuid_new().s),
                .company_id = s->record->lease.company_id,
                .lease_id = s->record->lease.id,
                .place_id = j->place.id,
                .state = WORKSPACE_STAGING,
                .epoch = 1,
                .way = j->way->name,
                .isolation = s->req->isolation,
                .local_path = s->path,
                .exclude = json_to_arena(op->arena, exclude),
                .staged_ns = now_ns(CLOCK_REALTIME),
                .owner_instance = j->rt->node.instance.s,
                .created_at = now,
                .updated_at = now,
        };
        r = workspace_work_begin(op, j->rt->workspaces, j->row.id, false, &j->work, err);
        if (r < 0)
                return r;
        j->at_work = true;
        workspace_work_may_cancel(&j->work);
        FAULT("workspace.stage.intend.before");
        r = store_write(op, j->rt->store, stage_intend, s, err);
        FAULT("workspace.stage.intend.after");
        if (r < 0)
                return r;

        workspace_job_view(j);
        r = path_make_durable_dirs(j->view.dir, 0700, err);
        /* Files are stamped with the kernel's coarse clock, which lags behind the one that we read
         * by some milliseconds. Once it has passed `staged_ns`, what was changed before has that
         * time or an earlier one, and what is changed from now on a later one. */
        while (r >= 0 && j->way->collect && now_ns(CLOCK_REALTIME_COARSE) <= j->row.staged_ns)
                r = op_wait_fd(op, -1, 0, 1, err);
        FAULT("workspace.stage.way.before");
        if (r >= 0)
                r = j->way->stage(op, j->rt, &j->place, &j->view, workspace_work_progress, &j->work,
                                  &s->result, err);
        FAULT("workspace.stage.way.after");
        if (r >= 0) {
                m = workspace_move_to(j, WORKSPACE_STAGED, NULL);
                m.to.cwd = s->result.cwd;
                m.to.files = (int64_t)s->result.files;
                m.to.bytes = (int64_t)s->result.bytes;
                m.to.sent_bytes = (int64_t)s->result.sent_bytes;
                m.action = "environment.workspace_staged";
                m.details = json_pack("{s:s, s:I, s:I}", "way", j->way->name, "files",
                                      (json_int_t)s->result.files, "bytes",
                                      (json_int_t)s->result.bytes);
                FAULT("workspace.stage.record.before");
                r = workspace_move(op, &m, err);
                FAULT("workspace.stage.record.after");
        }
        if (r >= 0) {
                atomic_fetch_add(&j->rt->counters.workspaces_staged, 1);
                return 0;
        }
        /* No command could work in it yet, so nothing can be lost. */
        shield = op_shield(op, j->rt->settings.close_timeout_ms);
        j->op = &shield;
        if (workspace_end(j, arena_printf(op->arena, "Staging failed: %s", err->msg), NULL) < 0)
                log_warn("a stage that failed will be undone later", LOG_S("workspace", j->row.id));
        j->op = op;
        /* Cancelled by the client, which no longer reads this, or by the end of the lease. */
        return r == ERR_CANCELLED
                       ? err_set(err, ERR_CONFLICT, "The lease ended while a workspace was staged.")
                       : r;
}

int workspace_stage(struct op *op, struct runtime *rt, const struct lease_record *record,
                    const struct stage_request *req, struct workspace_row *ret_row, struct err *err)
{
        struct staging s = { .job = { .op = op, .rt = rt }, .record = record, .req = req };
        CLEAN(cleanup_fd) int fd = -1;
        int r = workspace_root_open(
                rt,
                &(struct workspace_asker){ record->lease.company_id, op->actor->is_daemon_user },
                req->local_path, op->arena, &fd, &s.path, err);

        if (r >= 0)
                r = place_load(op, rt, record->lease.place_id, &s.job.place, err);
        if (r >= 0)
                r = box_bring(op, rt, &record->lease, &s.job.place, err);
        if (r >= 0)
                r = workspace_way_for(rt, &s.job.place, req->isolation, &s.job.way, err);
        if (r >= 0)
                r = workspace_replace(op, rt, &s.job.place, record->lease.id, s.job.way, err);
        if (r >= 0)
                r = stage_into_place(&s, err);
        workspace_job_end(&s.job);
        if (r >= 0)
                *ret_row = s.job.row;
        return r;
}
