/* Merging changes into a directory of the operator, with all inputs of merge.h. */
#define _GNU_SOURCE
#include <time.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "core/access/access.h"
#include "core/roots/workspace_root.h"
#include "core/workspaces/workspace_internal.h"

/* "20261115T101500Z" */
static const char *stamp_now(struct arena *arena)
{
        char iso[ISO_TIME_LEN + 1], *out = arena_alloc(arena, sizeof(iso));
        size_t n = 0;

        clock_iso(clock_wall_us(), iso);
        for (const char *p = iso; *p && *p != '.'; p++)
                if (*p != '-' && *p != ':')
                        out[n++] = *p;
        out[n] = 'Z';
        return out;
}

static void tell_progress(void *ctx, const struct merge_report *so_far)
{
        if (ctx)
                workspace_work_progress(ctx, "merging",
                                        so_far->added + so_far->changed + so_far->deleted, 0);
}

struct budget workspace_budget(const struct runtime *rt)
{
        return (struct budget){ .max_files = (uint64_t)rt->settings.restore_max_files,
                                .max_bytes = (uint64_t)rt->settings.restore_max_mb << 20 };
}

int workspace_merge(struct op *op, struct runtime *rt, struct change_set *changes,
                    const struct merge_request *req, struct restore_report *ret, struct err *err)
{
        int64_t began = clock_mono_ms();
        struct budget budget = workspace_budget(rt);
        CLEAN(cleanup_free) char *lock = NULL;
        CLEAN(cleanup_fd) int dir = -1;
        struct merge_options options = {
                .budget = &budget,
                .excludes = req->excludes,
                .stamp = stamp_now(op->arena),
                .umask = req->umask,
                .set_owner = geteuid() == 0,
                .dry_run = req->dry_run,
                .ctx = req->work,
                .progress = tell_progress,
        };
        struct git_import *git = NULL;
        struct change_set *files;
        struct budget_set watch;
        const char *path;
        int r = workspace_root_open(
                rt, &(struct workspace_asker){ req->company_id, op->actor->is_daemon_user },
                req->path, op->arena, &dir, &path, err);

        if (r < 0)
                return r;
        lock = workspace_lock_path(rt->workspaces, path);
        options.lock_path = lock;
        r = git_import_new(op, dir, req->scratch, &git, err);
        if (r >= 0) {
                /* Commits come apart from the files: git.h. */
                files = git_import_filter(git, budget_watch(&watch, &budget, changes));
                if (req->watch)
                        files = req->watch(req->ctx, files, dir);
                r = merge_apply(op, dir, files, &options, &ret->merge, err);
                FAULT("workspace.restore.git.before");
                if (r >= 0 && !req->dry_run)
                        r = git_import_apply(
                                git,
                                &(struct git_options){ .workspace = path,
                                                       .program = rt->settings.trampoline,
                                                       .stamp = options.stamp },
                                &ret->git, err);
                git_import_free(git);
                FAULT("workspace.restore.git.after");
                /* else with the directory around it */
                (void)workspace_remove_dir(op, req->scratch, NULL);
        }
        ret->duration_ms = clock_mono_ms() - began;
        if (r >= 0 && !req->dry_run)
                atomic_fetch_add(&rt->counters.workspace_conflicts, ret->merge.n_conflicts);
        return r;
}

static void encode_git(struct jw *w, const struct git_report *g)
{
        jw_key(w, "git");
        if (!g->head && !g->conflict_ref && !g->kept && !g->note && !g->index_stale &&
            g->refused == 0) {
                jw_null(w);
                return;
        }
        jw_object(w);
        jw_kstring(w, "head", g->head);
        jw_kbool(w, "merged", g->merged);
        jw_kstring(w, "conflictRef", g->conflict_ref);
        jw_kbool(w, "indexStale", g->index_stale);
        jw_key(w, "kept");
        jw_array(w);
        for (const struct git_kept *k = g->kept; k; k = k->next) {
                jw_object(w);
                jw_kstring(w, "name", k->name);
                jw_kstring(w, "here", k->here);
                jw_object_end(w);
        }
        jw_array_end(w);
        jw_kint(w, "refused", (int64_t)g->refused);
        jw_kstring(w, "firstRefused", g->first_refused);
        jw_kstring(w, "note", g->note);
        jw_object_end(w);
}

void restore_report_members(struct jw *w, const struct restore_report *report)
{
        const struct merge_report *m = &report->merge;

        jw_kint(w, "added", (int64_t)m->added);
        jw_kint(w, "changed", (int64_t)m->changed);
        jw_kint(w, "deleted", (int64_t)m->deleted);
        jw_kint(w, "left", (int64_t)m->left);
        jw_key(w, "conflicts");
        jw_array(w);
        for (const struct merge_conflict *c = m->conflicts; c; c = c->next) {
                jw_object(w);
                jw_kstring(w, "path", c->path);
                jw_kstring(w, "kept", c->kept);
                jw_object_end(w);
        }
        jw_array_end(w);
        jw_kint(w, "bytes", (int64_t)m->bytes);
        encode_git(w, &report->git);
        jw_kint(w, "durationMs", report->duration_ms);
}

void restore_report_encode(struct jw *w, const struct restore_report *report)
{
        jw_object(w);
        restore_report_members(w, report);
        jw_object_end(w);
}
