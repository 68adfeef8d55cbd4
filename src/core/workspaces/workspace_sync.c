/* Workspaces in places with a box: moved by its file worker (workspace/sync.h).
 *
 *   where           the directory there                         beside it
 *   ssh             RUNTIME/runs/<run or lease>/workspace       .../cache
 *   ssh, in_place   <cwd>                                       RUNTIME/berth
 *   a sandbox       <cwd>                                       RUNTIME/berth
 *   local           workspaces/<id>/tree, on this machine       workspaces/<id>/there
 *
 * <cwd> is the lease's `remoteCwd`, RUNTIME is <cwd>/.paperclip-runtime. Here, in workspaces/<id>:
 * `baseline`, the tree that was staged or last brought home; `bundle`, the changes that the last
 * collect() fetched, with `next`, the tree that it saw, in it; and `fetching`, the same during a
 * collect(). The two change together: a baseline that is newer than what was merged would hide what
 * lies between them. A connection that is lost is made again, and the transfer goes on where it
 * was. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "core/exec/box_route.h"
#include "core/exec/box_service.h"
#include "core/workspaces/workspace_internal.h"
#include "workspace/sync.h"

#define TRIES     8
#define PAUSE_MS  50
#define PAUSE_MAX 5000
#define GOT_ON    65536 /* after so many bytes another try is worth it */

/* One transfer. */
struct moving {
        struct op *op;
        struct runtime *rt;
        const struct place *place;
        const struct workspace *w;
        const char *run_dir; /* goes with the workspace; NULL: none */
        struct sync_options options;
        struct sync_progress moved;
        uint64_t moved_now; /* over this connection */
        workspace_progress_fn progress;
        void *ctx;
        const char *phase;
        int dir_fd, local_fd;
        struct bundle_writer *into;
        uint32_t umask;
};

/* Where it is there */

static int find_there(struct moving *m, struct err *err)
{
        const struct kind *kind = kind_of_place(m->rt, m->place);
        struct arena *arena = m->op->arena;
        struct workspace_remote remote;
        const char *base; /* of what is below the directory */
        int r;

        m->options.silence_ms = m->rt->settings.peer_silence_ms;
        m->options.excludes = &m->w->excludes;
        if (kind->runs_on_host) {
                m->options.remote_dir = arena_printf(arena, "%s/tree", m->w->dir);
                m->options.remote_cache = arena_printf(arena, "%s/there", m->w->dir);
                return 0;
        }
        r = workspace_remote_find(m->op, m->rt, m->w->lease_id, &remote, err);
        if (r < 0)
                return r;
        base = streq(remote.cwd, "/") ? "" : remote.cwd;
        if (!kind->has_run_dirs || remote.in_place) {
                m->options.remote_dir = remote.cwd;
                m->options.remote_cache = arena_printf(arena, "%s/.paperclip-runtime/berth", base);
                return 0;
        }
        m->run_dir = arena_printf(arena, "%s/.paperclip-runtime/runs/%s", base, remote.run);
        m->options.remote_dir = arena_printf(arena, "%s/workspace", m->run_dir);
        m->options.remote_cache = arena_printf(arena, "%s/cache", m->run_dir);
        return 0;
}

/* Here */

static void sync_way_tell(void *ctx, const struct sync_progress *p)
{
        struct moving *m = ctx;

        m->moved_now = p->sent_bytes;
        if (m->progress)
                m->progress(m->ctx, m->phase, p->bytes, p->total_bytes);
}

static void moving_done(struct moving *m)
{
        cleanup_fd(&m->dir_fd);
        cleanup_fd(&m->local_fd);
        if (m->into)
                bundle_close(m->into);
}

static int moving_begin(struct moving *m, struct err *err)
{
        int r;

        m->dir_fd = m->local_fd = -1;
        m->options.progress = sync_way_tell;
        m->options.ctx = m;
        r = find_there(m, err);
        if (r < 0)
                return r;
        if (mkdir(m->w->dir, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "create %s", m->w->dir);
        r = workspace_open_dir(m->w->dir, &m->dir_fd, err);
        return r < 0 ? r : workspace_open_local(m->rt, m->w, &m->local_fd, err);
}

/* Over a connection, and another one when it is lost. */
static int over_line(struct moving *m, int (*work)(struct moving *m, int fd, struct err *err),
                     struct err *err)
{
        int64_t pause = PAUSE_MS;
        int r = 0;

        for (int i = 0; i < TRIES; i++) {
                int fd = -1;

                err_clear(err);
                m->moved_now = 0;
                r = box_service_open(m->op, m->rt, m->place->id, BOX_SERVICE_FILES, &fd, err);
                if (r >= 0)
                        r = work(m, fd, err);
                cleanup_fd(&fd);
                if (r != ERR_UNCERTAIN)
                        return r;
                if (op_wait_fd(m->op, -1, 0, pause, NULL) < 0)
                        break;
                pause = MIN(pause * 2, (int64_t)PAUSE_MAX);
                if (m->moved_now >= GOT_ON) {
                        pause = PAUSE_MS;
                        i = 0;
                }
        }
        return err_wrap(err, ERR_PROVIDER, "The workspace was not moved");
}

/* The way */

static bool sync_way_usable(const struct runtime *rt, const struct place *place,
                            const char **ret_why)
{
        struct place would = *place;

        would.has_world = true;
        if (box_route_has_box(rt, &would))
                return true;
        *ret_why = "no supervisor of ours runs there";
        return false;
}

static int sync_way_push(struct moving *m, int fd, struct err *err)
{
        /* The hashes of a directory serve all workspaces that are staged from it. */
        CLEAN(cleanup_free) char *lock = workspace_lock_path(m->rt->workspaces, m->w->local_path);

        return sync_push(m->op, fd, m->local_fd, arena_printf(m->op->arena, "%s.hashes", lock),
                         m->dir_fd, WORKSPACE_BASELINE, &m->options, &m->moved, err);
}

static int sync_way_stage(struct op *op, struct runtime *rt, const struct place *place,
                          const struct workspace *w, workspace_progress_fn progress, void *ctx,
                          struct stage_result *ret, struct err *err)
{
        CLEAN(moving_done)
        struct moving m = { .op = op,
                            .rt = rt,
                            .place = place,
                            .w = w,
                            .progress = progress,
                            .ctx = ctx,
                            .phase = "staging" };
        int r = moving_begin(&m, err);

        if (r >= 0)
                r = over_line(&m, sync_way_push, err);
        if (r < 0)
                return r;
        *ret = (struct stage_result){ .cwd = m.options.remote_dir,
                                      .files = m.moved.files,
                                      .bytes = m.moved.bytes,
                                      .sent_bytes = m.moved.sent_bytes };
        return 0;
}

/* The present bundle stays until this one is complete: it may be all that is left. */
static int sync_way_pull(struct moving *m, int fd, struct err *err)
{
        CLEAN(cleanup_free) char *done = xasprintf("%s/" WORKSPACE_FETCHING "/changes", m->w->dir);
        CLEAN(cleanup_free) char *path = xasprintf("%s/" WORKSPACE_FETCHING, m->w->dir);
        struct budget budget = workspace_budget(m->rt);
        int r;

        m->options.budget = &budget;
        if (unlink(done) < 0 && errno != ENOENT) /* complete, and never put in its place */
                return err_sys(err, ERR_IO, errno, "remove %s", done);
        r = bundle_create(path, &m->into, err);
        if (r >= 0)
                r = sync_pull(m->op, fd, m->dir_fd, WORKSPACE_BASELINE,
                              WORKSPACE_FETCHING "/" WORKSPACE_NEXT, m->local_fd, m->into,
                              &m->options, &m->umask, &m->moved, err);
        if (r >= 0)
                r = bundle_finish(m->into, err);
        if (m->into)
                bundle_close(take_ptr(&m->into));
        m->options.budget = NULL;
        return r;
}

static int sync_way_collect(struct op *op, struct runtime *rt, const struct place *place,
                            const struct workspace *w, workspace_progress_fn progress, void *ctx,
                            struct change_set **ret, uint32_t *ret_umask, struct err *err)
{
        CLEAN(moving_done)
        struct moving m = { .op = op,
                            .rt = rt,
                            .place = place,
                            .w = w,
                            .progress = progress,
                            .ctx = ctx,
                            .phase = "collecting" };
        int r = moving_begin(&m, err);

        if (r >= 0)
                r = over_line(&m, sync_way_pull, err);
        *ret_umask = m.umask;
        return r < 0 ? r : workspace_keep_fetched(op, w, m.dir_fd, ret, err);
}

static int sync_way_clear(struct moving *m, int fd, struct err *err)
{
        return sync_clear(m->op, fd, &m->options, err);
}

/* A sandbox ends with all that is in it, and the next workspace makes the directory its own; what
 * is on this machine goes with workspaces/<id>. */
static int sync_way_unstage(struct op *op, struct runtime *rt, const struct place *place,
                            const struct workspace *w, struct err *err)
{
        struct moving m = { .op = op, .rt = rt, .place = place, .w = w };
        int r = find_there(&m, err);

        if (r < 0 || !m.run_dir)
                return r == ERR_UNPROCESSABLE ? 0 : r;
        m.options.remote_dir = m.run_dir;
        return over_line(&m, sync_way_clear, err);
}

const struct workspace_way workspace_sync = {
        .name = "sync",
        .usable = sync_way_usable,
        .stage = sync_way_stage,
        .collect = sync_way_collect,
        .settle = workspace_settle_fetched,
        .unstage = sync_way_unstage,
        .is_replaced = true,
        .needs_world = true,
};
