/* What a restore would do: changes as the merge sees them, with nothing done. */
#include "base/clock.h"
#include "core/workspace_internal.h"

#define LIST_MAX 10000

/* Passes a change set on and writes down what went by. */
struct listing {
        struct change_set set;
        struct change_set *from;
        struct jw *w;
        uint64_t n;
};

static const char *kind_name(enum tree_kind kind)
{
        return kind == TREE_DIR ? "directory" : kind == TREE_LINK ? "link" : "file";
}

static int list_next(struct change_set *set, struct change *ret, struct err *err)
{
        struct listing *l = container_of(set, struct listing, set);
        int r = l->from->next(l->from, ret, err);

        if (r <= 0 || l->n++ >= LIST_MAX)
                return r;
        jw_object(l->w);
        jw_kstring(l->w, "path", ret->now.path);
        jw_kstring(l->w, "change", ret->is_delete ? "delete" : "write");
        if (!ret->is_delete) {
                jw_kstring(l->w, "kind", kind_name(ret->now.kind));
                jw_kint(l->w, "size", (int64_t)ret->now.size);
        }
        jw_object_end(l->w);
        return r;
}

static int list_open(struct change_set *set, const struct change *c, int *ret_fd, struct err *err)
{
        struct listing *l = container_of(set, struct listing, set);

        return l->from->open(l->from, c, ret_fd, err);
}

static int write_diff(struct op *op, struct runtime *rt, struct change_set *changes,
                      const struct merge_request *req, struct buf *ret_json, struct err *err)
{
        struct restore_report report = { 0 };
        struct jw w;
        struct listing l = { .set = { list_next, list_open, NULL }, .from = changes, .w = &w };
        int r;

        jw_init(&w, ret_json);
        jw_object(&w);
        jw_kstring(&w, "localPath", req->path);
        jw_key(&w, "changes");
        jw_array(&w);
        r = workspace_merge(op, rt, &l.set, req, &report, err);
        jw_array_end(&w);
        jw_kbool(&w, "truncated", l.n > LIST_MAX);
        jw_key(&w, "restore");
        restore_report_encode(&w, &report);
        jw_object_end(&w);
        return r;
}

static int no_change(struct change_set *set, struct change *ret, struct err *err)
{
        return 0;
}

static int diff(struct workspace_job *j, struct buf *ret_json, struct err *err)
{
        struct change_set *changes = NULL;
        struct merge_request req = {
                .path = j->row.local_path,
                .excludes = &j->view.excludes,
                .dry_run = true,
                .work = &j->work,
        };
        struct change_set nothing = { .next = no_change };
        int r = 0;

        if (j->way->collect)
                r = j->way->collect(j->op, j->rt, &j->place, &j->view, workspace_work_progress,
                                    &j->work, &changes, &req.umask, err);
        if (r >= 0)
                r = write_diff(j->op, j->rt, changes ? changes : &nothing, &req, ret_json, err);
        if (changes)
                changes->close(changes);
        return r;
}

int workspace_diff(struct op *op, struct runtime *rt, const struct lease_record *record,
                   bool with_text, struct buf *ret_json, struct err *err)
{
        struct workspace_job j = { .op = op, .rt = rt };
        struct restore_report earlier = { 0 };
        int r = workspace_job_of_lease(&j, record, err);

        if (r >= 0) /* collecting would change what it takes as its baseline */
                r = workspace_restore_resume(&j, &earlier, err);
        if (r >= 0)
                r = diff(&j, ret_json, err);
        workspace_job_end(&j);
        return r;
}

int salvage_diff(struct op *op, struct runtime *rt, const struct salvage *s, bool with_text,
                 struct buf *ret_json, struct err *err)
{
        CLEAN(cleanup_free) char *dir = salvage_dir(rt->workspaces, s->id);
        struct excludes excludes = { workspace_patterns(op->arena, s->exclude) };
        struct merge_request req = {
                .path = s->local_path,
                .excludes = &excludes,
                .umask = (uint32_t)s->umask,
                .dry_run = true,
        };
        struct change_set *changes = NULL;
        struct bundle_size size;
        int r = bundle_open(dir, &changes, &size, err);

        if (r >= 0)
                r = write_diff(op, rt, changes, &req, ret_json, err);
        if (changes)
                changes->close(changes);
        return r;
}
