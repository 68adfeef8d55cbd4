/* What a restore would do: the changes as the merge sees them, without merging. Also what a restore
 * did. */
#define _GNU_SOURCE /* FNM_CASEFOLD */
#include <errno.h>
#include <fcntl.h>
#include <fnmatch.h>

#include "base/fd.h"
#include "base/path.h"
#include "core/workspaces/workspace_internal.h"
#include "workspace/owner.h"
#include "workspace/textdiff.h"

#define LIST_MAX  10000
#define TEXTS_MAX ((size_t)8 << 20) /* of all differences together */

/* Judged by its name: the content of such a file should not get into our records. */
static bool is_private(const char *path)
{
        static const char *const names[] = { ".env",         ".env.*", "*.pem",  "*.key",
                                             "*.p12",        "*.pfx",  "id_*",   "*secret*",
                                             "*token*",      ".netrc", ".npmrc", ".pypirc",
                                             "*credential*", "*passw*" };
        const char *slash = strrchr(path, '/');

        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (fnmatch(names[i], slash ? slash + 1 : path, FNM_CASEFOLD) == 0)
                        return true;
        return false;
}

/* 0 also when it cannot be read: then the list has no text of it. */
static bool read_text(int fd, struct buf *ret)
{
        char *at;
        ssize_t n;

        while ((at = buf_reserve(ret, 65536)) && (n = read(fd, at, 65536)) > 0)
                buf_grew(ret, (size_t)n);
        return !buf_failed(ret);
}

/* With the rights of the directory's owner. False when the owner may not read it; -1 when it does
 * not exist. */
static bool open_ours(int dir, const char *path, int *ret_fd)
{
        const struct owner *owner;
        struct owner store;
        bool refused;

        if (owner_find(dir, &store, &owner, NULL) < 0 || owner_enter(owner) < 0)
                return false;
        refused = path_open_plain(dir, path, O_RDONLY | O_NONBLOCK, 0, ret_fd, NULL) < 0 &&
                  errno == EACCES;
        owner_leave(owner);
        return !refused;
}

static void list_text(struct change_list *l, const struct change *c)
{
        CLEAN(buf_done) struct buf was = BUF_INIT;
        CLEAN(buf_done) struct buf now = BUF_INIT;
        CLEAN(buf_done) struct buf diff = BUF_INIT;
        CLEAN(cleanup_fd) int ours = -1;
        CLEAN(cleanup_fd) int theirs = -1;
        struct textdiff_side a, b;

        buf_init(&was, TEXTDIFF_MAX_BYTES);
        buf_init(&now, TEXTDIFF_MAX_BYTES);
        if (l->texts >= l->texts_max || l->from->open(l->from, c, &theirs, NULL) < 0 ||
            !read_text(theirs, &now))
                return;
        if (!open_ours(l->dir, c->now.path, &ours) || (ours >= 0 && !read_text(ours, &was)))
                return;
        a = (struct textdiff_side){ buf_str(&was), was.len };
        b = (struct textdiff_side){ buf_str(&now), now.len };
        if (!textdiff_is_text(&a) || !textdiff_is_text(&b) || textdiff(&a, &b, &diff) <= 0 ||
            diff.len > l->texts_max - l->texts)
                return;
        l->texts += diff.len;
        jw_kstring(l->w, "diff", buf_str(&diff));
}

static int list_next(struct change_set *set, struct change *ret, struct err *err)
{
        struct change_list *l = container_of(set, struct change_list, set);
        char target[TREE_MAX_TARGET + 1];
        struct tree_entry here;
        int r = l->from->next(l->from, ret, err);

        if (r <= 0 || l->n++ >= l->max)
                return r;
        jw_object(l->w);
        jw_kstring(l->w, "path", ret->now.path);
        if (ret->is_delete) {
                jw_kstring(l->w, "change", "delete");
        } else {
                bool is_here = scan_one(l->dir, ret->now.path, false, &here, target, NULL) > 0;

                jw_kstring(l->w, "change", is_here ? "change" : "add");
                jw_kstring(l->w, "kind",
                           ret->now.kind == TREE_DIR    ? "directory"
                           : ret->now.kind == TREE_LINK ? "link"
                                                        : "file");
                jw_kint(l->w, "size", (int64_t)ret->now.size);
                if (ret->now.kind == TREE_FILE && !(l->is_kept && is_private(ret->now.path)))
                        list_text(l, ret);
        }
        jw_object_end(l->w);
        return r;
}

static int list_open(struct change_set *set, const struct change *c, int *ret_fd, struct err *err)
{
        struct change_list *l = container_of(set, struct change_list, set);

        return l->from->open(l->from, c, ret_fd, err);
}

static struct change_set *list_watch(void *ctx, struct change_set *from, int dir)
{
        struct change_list *l = ctx;

        l->from = from;
        l->dir = dir;
        return &l->set;
}

void change_list_watch(struct change_list *l, struct merge_request *req)
{
        l->set = (struct change_set){ list_next, list_open, NULL };
        req->watch = list_watch;
        req->ctx = l;
}

static int write_diff(struct op *op, struct runtime *rt, struct change_set *changes,
                      const struct merge_request *req, bool with_text, struct buf *ret_json,
                      struct err *err)
{
        struct merge_request watched = *req;
        struct restore_report report = { 0 };
        struct jw w;
        struct change_list l = { .w = &w, .max = LIST_MAX, .texts_max = with_text ? TEXTS_MAX : 0 };
        int r;

        watched.dry_run = true;
        change_list_watch(&l, &watched);
        jw_init(&w, ret_json);
        jw_object(&w);
        jw_kstring(&w, "localPath", req->path);
        jw_key(&w, "changes");
        jw_array(&w);
        r = workspace_merge(op, rt, changes, &watched, &report, err);
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

int workspace_diff(struct op *op, struct runtime *rt, const struct lease_record *record,
                   bool with_text, struct buf *ret_json, struct err *err)
{
        struct workspace_job j = { .op = op, .rt = rt };
        struct change_set *changes = NULL, nothing = { .next = no_change };
        struct restore_report earlier = { 0 };
        struct merge_request req = { 0 };
        int r = workspace_job_of_lease(&j, record, err);

        if (r >= 0) /* collecting would change what it takes as its baseline */
                r = workspace_restore_resume(&j, &earlier, err);
        if (r >= 0) {
                req = (struct merge_request){
                        .company_id = j.row.company_id,
                        .path = j.row.local_path,
                        .excludes = &j.view.excludes,
                        .work = &j.work,
                        .scratch = workspace_scratch(op->arena, j.view.dir),
                };
                if (j.way->collect)
                        r = workspace_collect(&j, &changes, &req.umask, err);
        }
        if (r >= 0)
                r = write_diff(op, rt, changes ? changes : &nothing, &req, with_text, ret_json,
                               err);
        if (changes)
                changes->close(changes);
        workspace_job_end(&j);
        return r;
}

int salvage_diff(struct op *op, struct runtime *rt, const struct salvage *s, bool with_text,
                 struct buf *ret_json, struct err *err)
{
        CLEAN(cleanup_free) char *dir = salvage_dir(rt->workspaces, s->id);
        struct excludes excludes = { .patterns = workspace_patterns(op->arena, s->exclude) };
        struct merge_request req = {
                .company_id = s->company_id,
                .path = s->local_path,
                .excludes = &excludes,
                .umask = (uint32_t)s->umask,
                .scratch = workspace_scratch(op->arena, dir),
        };
        struct change_set *changes = NULL;
        struct bundle_size size;
        int r = bundle_open(dir, &changes, &size, err);

        if (r >= 0)
                r = write_diff(op, rt, changes, &req, with_text, ret_json, err);
        if (changes)
                changes->close(changes);
        return r;
}
