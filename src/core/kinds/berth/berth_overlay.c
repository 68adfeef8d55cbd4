/* Workspaces of the built-in sandbox: the host's directory is the lower layer of an overlay, and
 * writes go to the upper one (workspace/overlay.h). Nothing is copied, and changes are read from
 * the upper layer, whether the sandbox lives or not. With isolation "copy" the lower layer is a
 * copy of our own, so that changes that others make to the directory meanwhile are not seen inside.
 *
 *   sandboxes/<place id>/workspace-<id>/upper, work, copy
 *
 * They are removed with the place. Only for a daemon that runs as root: only root may show a
 * directory with other owners. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "core/kinds/berth/berth.h"
#include "core/sandboxes/sandbox_host.h"
#include "core/workspaces/workspace.h"
#include "workspace/copy.h"
#include "workspace/overlay.h"
#include "workspace/owner.h"

#define APPLIED "applied" /* manifests of the upper layer in w->dir: as it was taken over, */
#define NEXT    "next"    /* and as it was read since */

struct layers {
        struct sandbox_spec ids;
        const char *box, *store, *copy; /* paths */
        int upper, lower;
};

static void layers_done(struct layers *l)
{
        cleanup_fd(&l->upper);
        cleanup_fd(&l->lower);
}

static bool layers_usable(const struct runtime *rt, const struct place *place, const char **ret_why)
{
        if (!rt->sandbox)
                *ret_why = "only the built-in sandbox has an overlay of this machine's files";
        else if (geteuid() != 0)
                *ret_why = "only a daemon that is root can show a directory with other owners";
        else
                return true;
        return false;
}

static int find_layers(struct op *op, struct runtime *rt, const struct place *place,
                       const struct workspace *w, struct layers *ret, struct err *err)
{
        CLEAN(cleanup_free) char *dir = berth_dir(rt, place->id);
        CLEAN(cleanup_free) char *box = berth_box_dir(rt, place->id);
        struct sandbox_row row = { 0 };
        int r = berth_row(op, rt, place->id, &row, err);

        *ret = (struct layers){ .upper = -1, .lower = -1 };
        if (r < 0)
                return r;
        ret->ids.first_id = (uint32_t)row.first_id;
        ret->ids.n_ids = (uint32_t)row.n_ids;
        ret->ids.user_id = (uint32_t)row.user_id;
        ret->ids.group_id = (uint32_t)row.group_id;
        ret->box = arena_strdup(op->arena, box);
        ret->store = arena_printf(op->arena, "%s/" BERTH_WORKSPACE_PREFIX "%s", dir, w->id);
        ret->copy = arena_printf(op->arena, "%s/copy", ret->store);
        return 0;
}

/* Staging */

static int make_layer(const char *path, mode_t mode, uid_t owner, struct err *err)
{
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "make a layer of the workspace");
        if (chown(path, owner, owner) < 0 || chmod(path, mode) < 0)
                return err_sys(err, ERR_IO, errno, "give a layer of the workspace to the sandbox");
        return 0;
}

static int open_dir(const char *path, int *ret, struct err *err)
{
        *ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        if (*ret < 0)
                return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno,
                               "open a layer of the workspace");
        return 0;
}

static int make_layers(struct op *op, const struct workspace *w, struct layers *l, struct err *err)
{
        uid_t root = sandbox_host_id(&l->ids, 0),
              agent = sandbox_host_id(&l->ids, sandbox_user_id(&l->ids));
        const char *upper = arena_printf(op->arena, "%s/upper", l->store);
        const char *work = arena_printf(op->arena, "%s/work", l->store);
        struct stat st;

        if (stat(w->local_path, &st) < 0)
                return err_sys(err, ERR_UNPROCESSABLE, errno, "%s", w->local_path);
        int r = make_layer(l->store, 0700, root, err);
        if (r >= 0)
                r = make_layer(upper, st.st_mode & 0777, agent, err);
        if (r >= 0)
                r = make_layer(work, 0700, root, err);
        return r < 0 ? r : open_dir(upper, &l->upper, err);
}

/* Uses the descriptor that was checked: the owner of a directory above it can make its path lead
 * elsewhere, and back again. */
static int show_layers(struct op *op, struct runtime *rt, const struct layers *l, struct err *err)
{
        FAULT("workspace.show.before");
        int r = sandbox_workspace_show(op, rt->sandbox->box_program, &l->ids, l->box,
                                       BERTH_WORKSPACE, l->lower, l->store, err);
        FAULT("workspace.show.after");
        return r;
}

static int overlay_stage(struct op *op, struct runtime *rt, const struct place *place,
                         const struct workspace *w, workspace_progress_fn progress, void *ctx,
                         struct stage_result *ret, struct err *err)
{
        CLEAN(layers_done) struct layers l;
        int r = find_layers(op, rt, place, w, &l, err);

        if (r >= 0)
                r = make_layers(op, w, &l, err);
        if (r >= 0)
                r = workspace_open_local(rt, w, &l.lower, err);
        if (r >= 0)
                r = overlay_hide(l.upper, l.lower, &w->excludes, err);
        if (r >= 0)
                r = show_layers(op, rt, &l, err);
        if (r >= 0)
                *ret = (struct stage_result){ .cwd = BERTH_WORKSPACE };
        return r;
}

/* A copy of an earlier attempt may be half of one. */
static int make_copy(struct op *op, struct runtime *rt, const struct workspace *w, struct layers *l,
                     struct stage_result *ret, struct err *err)
{
        struct copy_options options = {
                .excludes = &w->excludes,
                .uid = sandbox_host_id(&l->ids, sandbox_user_id(&l->ids)),
                .gid = sandbox_host_id(&l->ids, sandbox_user_id(&l->ids)),
        };
        struct owner owner;
        CLEAN(cleanup_fd) int from = -1;
        struct copy_result copied = { 0 };
        int r = berth_remove_tree(op, l->copy, err);

        if (r >= 0)
                r = workspace_open_local(rt, w, &from, err);
        if (r >= 0)
                r = owner_find(from, &owner, &options.owner, err);
        if (r >= 0)
                r = make_layer(l->copy, 0700, options.uid, err);
        if (r >= 0)
                r = open_dir(l->copy, &l->lower, err);
        if (r >= 0)
                r = tree_copy(op, from, l->lower, &options, &copied, err);
        ret->files = copied.files;
        ret->bytes = copied.bytes;
        ret->sent_bytes = copied.bytes;
        return r;
}

static int copy_stage(struct op *op, struct runtime *rt, const struct place *place,
                      const struct workspace *w, workspace_progress_fn progress, void *ctx,
                      struct stage_result *ret, struct err *err)
{
        CLEAN(layers_done) struct layers l;
        int r = find_layers(op, rt, place, w, &l, err);

        *ret = (struct stage_result){ .cwd = BERTH_WORKSPACE };
        if (r >= 0)
                r = make_layers(op, w, &l, err);
        if (r >= 0)
                r = make_copy(op, rt, w, &l, ret, err);
        return r < 0 ? r : show_layers(op, rt, &l, err);
}

/* Bringing home */

/* `copy`: the layer below is a copy of ours; NULL: the directory itself. */
static int collect_from(struct op *op, struct runtime *rt, const struct workspace *w,
                        struct layers *l, const char *copy, int64_t staged_ns,
                        struct change_set **ret, struct err *err)
{
        struct budget holes = workspace_budget(rt);
        struct overlay_layers layers = {
                .budget = &holes,
                .staged_ns = staged_ns,
                .excludes = &w->excludes,
                .manifest_name = NEXT,
        };
        CLEAN(cleanup_fd) int dir = -1;
        struct manifest_file *applied = NULL;
        int r = open_dir(arena_printf(op->arena, "%s/upper", l->store), &l->upper, err);

        if (r >= 0)
                r = copy ? open_dir(copy, &l->lower, err)
                         : workspace_open_local(rt, w, &l->lower, err);
        if (r >= 0)
                r = open_dir(w->dir, &dir, err);
        if (r < 0)
                return r;
        r = manifest_open(dir, APPLIED, &applied, err);
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        layers.upper_fd = l->upper;
        layers.lower_fd = l->lower;
        layers.manifest_dir = dir;
        layers.applied = applied ? manifest_source(applied) : NULL;
        r = overlay_open(&layers, ret, err);
        if (applied)
                manifest_close(applied);
        return r;
}

static int overlay_collect(struct op *op, struct runtime *rt, const struct place *place,
                           const struct workspace *w, workspace_progress_fn progress, void *ctx,
                           struct change_set **ret, uint32_t *ret_umask, struct err *err)
{
        CLEAN(layers_done) struct layers l;
        int r = find_layers(op, rt, place, w, &l, err);

        *ret_umask = 0;
        return r < 0 ? r : collect_from(op, rt, w, &l, NULL, w->staged_ns, ret, err);
}

static int copy_collect(struct op *op, struct runtime *rt, const struct place *place,
                        const struct workspace *w, workspace_progress_fn progress, void *ctx,
                        struct change_set **ret, uint32_t *ret_umask, struct err *err)
{
        CLEAN(layers_done) struct layers l;
        int r = find_layers(op, rt, place, w, &l, err);

        *ret_umask = 0;
        return r < 0 ? r : collect_from(op, rt, w, &l, l.copy, 0, ret, err);
}

/* After a crash it may have happened already. */
static int layers_settle(struct op *op, struct runtime *rt, const struct place *place,
                         const struct workspace *w, struct err *err)
{
        CLEAN(cleanup_fd) int dir = -1;
        int r = open_dir(w->dir, &dir, err);

        if (r < 0)
                return r;
        if ((renameat(dir, NEXT, dir, APPLIED) < 0 && errno != ENOENT) || fsync(dir) < 0)
                return err_sys(err, ERR_IO, errno, "keep what was brought home");
        return 0;
}

static int layers_unstage(struct op *op, struct runtime *rt, const struct place *place,
                          const struct workspace *w, struct err *err)
{
        CLEAN(layers_done) struct layers l;
        int r = find_layers(op, rt, place, w, &l, err);

        if (r == ERR_NOT_FOUND)
                return 0;
        if (r >= 0)
                r = sandbox_workspace_hide(op, rt->sandbox->box_program, &l.ids, l.box,
                                           BERTH_WORKSPACE, err);
        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        FAULT("workspace.unstage.hidden");
        return berth_remove_tree(op, l.store, err);
}

const struct workspace_way berth_overlay = {
        .name = "overlay",
        .usable = layers_usable,
        .stage = overlay_stage,
        .collect = overlay_collect,
        .settle = layers_settle,
        .unstage = layers_unstage,
        .works_dead = true,
        .dies_with_place = true,
        .needs_world = true,
};

const struct workspace_way berth_copy = {
        .name = "copy",
        .usable = layers_usable,
        .stage = copy_stage,
        .collect = copy_collect,
        .settle = layers_settle,
        .unstage = layers_unstage,
        .works_dead = true,
        .dies_with_place = true,
        .needs_world = true,
};
