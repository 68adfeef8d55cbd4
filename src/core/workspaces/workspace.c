/* Which moves of a workspace are written, and what its readers see. */
#include "core/workspaces/workspace.h"

#include <errno.h>
#include <fcntl.h>

#include "base/clock.h"
#include "base/fd.h"
#include "core/access/audit.h"
#include "core/kinds/kind.h"
#include "core/roots/own_files.h"
#include "core/roots/workspace_root.h"
#include "core/sandboxes/tool.h"
#include "core/workspaces/workspace_internal.h"

const char *const *workspace_patterns(struct arena *arena, const char *json)
{
        json_t *list = NULL, *item;
        const char **patterns;
        size_t i, n = 0;

        if (json_parse(json, strlen(json), &list, NULL) < 0)
                list = json_array();
        patterns = arena_alloc(arena, (json_array_size(list) + 1) * sizeof(*patterns));
        json_array_foreach(list, i, item)
        {
                if (json_is_string(item))
                        patterns[n++] = arena_strdup(arena, json_string_value(item));
        }
        json_decref(list);
        return patterns;
}

/* Ways */

/* The local kind's way: commands work in the directory itself. Nothing is moved, so there is
 * nothing to bring home and nothing to lose. */
static int in_place_stage(struct op *op, struct runtime *rt, const struct place *place,
                          const struct workspace *w, workspace_progress_fn progress, void *ctx,
                          struct stage_result *ret, struct err *err)
{
        *ret = (struct stage_result){ .cwd = w->local_path };
        return 0;
}

const struct workspace_way workspace_in_place = {
        .name = "in_place",
        .stage = in_place_stage,
        .dies_with_place = true,
};

static const struct workspace_way *find_way(const struct workspace_way *const *list,
                                            const char *name)
{
        for (; list && *list; list++)
                if (streq((*list)->name, name))
                        return *list;
        return NULL;
}

/* By its recorded name; NULL: unknown. */
static const struct workspace_way *way_by_name(const struct runtime *rt, const char *name)
{
        const struct workspace_way *way = NULL;

        for (const struct kind *const *k = rt->kinds; !way && *k; k++) {
                way = find_way((*k)->ways, name);
                if (!way)
                        way = find_way((*k)->ways_copy, name);
        }
        return way;
}

int workspace_way_for(const struct runtime *rt, const struct place *place, const char *isolation,
                      const struct workspace_way **ret, struct err *err)
{
        const struct kind *kind = kind_of_place(rt, place);
        const struct workspace_way *const *ways = NULL;
        const char *why = NULL;

        if (kind)
                ways = !isolation                 ? kind->ways
                       : streq(isolation, "copy") ? kind->ways_copy
                                                  : kind->ways_overlay;
        for (; ways && *ways; ways++)
                if (!(*ways)->usable || (*ways)->usable(rt, place, &why)) {
                        *ret = *ways;
                        return 0;
                }
        if (isolation)
                return err_set(err, ERR_UNPROCESSABLE,
                               "A workspace cannot be staged here with isolation \"%s\"%s%s.%s",
                               isolation, why ? ": " : "", why ? why : "",
                               streq(isolation, "overlay")
                                       ? " Leave it out, or use a sandbox environment."
                                       : " Leave it out for the default.");
        return err_set(err, ERR_UNPROCESSABLE,
                       "Workspaces cannot be staged into this kind of environment (%s%s%s)%s%s.",
                       place->driver, place->provider ? ", " : "",
                       place->provider ? place->provider : "", why ? ": " : "", why ? why : "");
}

/* The row as ways see it */

void workspace_job_view(struct workspace_job *j)
{
        CLEAN(cleanup_free) char *dir = workspace_dir(j->rt->workspaces, j->row.id);
        const struct workspace_row *row = &j->row;

        j->view = (struct workspace){
                .id = row->id,
                .lease_id = row->lease_id,
                .place_id = row->place_id,
                .local_path = row->local_path,
                .cwd = row->cwd,
                .isolation = row->isolation,
                .excludes = { workspace_patterns(j->op->arena, row->exclude),
                              own_files_ids(j->rt, j->op->arena) },
                .dir = arena_strdup(j->op->arena, dir),
                .staged_ns = row->staged_ns,
        };
        j->way = way_by_name(j->rt, row->way);
}

int workspace_open_local(const struct runtime *rt, const struct workspace *w, int *ret_fd,
                         struct err *err)
{
        if (!str_starts(w->local_path, w->dir))
                return workspace_root_reopen(rt, w->local_path, ret_fd, err);
        *ret_fd = open(w->local_path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        return *ret_fd < 0 ? err_sys(err, ERR_IO, errno, "open %s", w->local_path) : 0;
}

/* Beginning */

int workspace_job_begin(struct workspace_job *j, const char *id, bool wait, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = workspace_work_begin(j->op, j->rt->workspaces, id, wait, &j->work, err);

        if (r < 0)
                return r;
        j->at_work = true;
        r = store_read_begin(j->op, j->rt->store, &db, err);
        if (r >= 0)
                r = workspaces_get(db, id, j->op->arena, &j->row, err);
        if (r >= 0)
                r = places_get(db, j->row.place_id, j->op->arena, &j->place, err);
        store_read_end(&db);
        if (r < 0)
                return r;
        workspace_job_view(j);
        if (!j->way && !streq(j->row.state, WORKSPACE_ENDED))
                return err_set(err, ERR_VERSION,
                               "The workspace was staged in a way (%s) that this "
                               "version does not know.",
                               j->row.way);
        return 0;
}

void workspace_job_end(struct workspace_job *j)
{
        if (j->at_work)
                workspace_work_end(&j->work);
        j->at_work = false;
}

/* Moving */

/* What a reader of the lease learns. */
static int tell_lease(struct db *db, const struct workspace_row *row, struct arena *arena,
                      struct err *err)
{
        CLEAN(cleanup_free) char *text = NULL;
        json_t *metadata = NULL;
        struct lease lease;
        int r = leases_get(db, row->lease_id, arena, &lease, err);

        if (r == ERR_NOT_FOUND) { /* its environment was deleted */
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        if (!lease.metadata ||
            json_parse(lease.metadata, strlen(lease.metadata), &metadata, NULL) < 0)
                metadata = json_object();
        json_object_set_new(metadata, "stagedWorkspace",
                            json_pack("{s:s, s:s, s:s, s:s, s:o, s:o, s:o}", "id", row->id, "state",
                                      row->state, "way", row->way, "localPath", row->local_path,
                                      "cwd", json_string_or_null(row->cwd), "restored",
                                      json_boolean(row->restored_at != 0), "note",
                                      json_string_or_null(row->note)));
        text = json_to_text(metadata);
        json_decref(metadata);
        return leases_set_metadata(db, lease.id, text, clock_now_us(), err);
}

int workspace_row_move(struct db *db, const struct runtime *rt, struct workspace_row *row,
                       struct workspace_row *to, struct arena *arena, struct err *err)
{
        int r;

        to->epoch = row->epoch + 1;
        to->owner_instance = rt->node.instance.s;
        to->updated_at = clock_now_us();
        r = workspaces_replace(db, row, to, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "The workspace changed in the meantime.");
        if (r >= 0)
                r = tell_lease(db, to, arena, err);
        return r < 0 ? r : 0;
}

struct workspace_move workspace_move_to(struct workspace_job *j, const char *state,
                                        const char *step)
{
        struct workspace_move m = { .job = j, .to = j->row };

        m.to.state = state;
        m.to.step = step;
        return m;
}

static int write_move(struct db *db, void *arg, struct err *err)
{
        struct workspace_move *m = arg;
        struct workspace_job *j = m->job;
        int r = workspace_row_move(db, j->rt, &j->row, &m->to, j->op->arena, err);

        if (r >= 0 && m->also)
                r = m->also(db, m->ctx, err);
        if (r >= 0 && m->action)
                r = audit(db, j->op, j->row.company_id, m->action, "environment_lease",
                          j->row.lease_id, json_incref(m->details), err);
        return r;
}

int workspace_move(const struct op *op, struct workspace_move *m, struct err *err)
{
        struct workspace_job *j = m->job;
        int r;

        if (m->action && !m->details)
                m->details = json_object();
        if (m->action) {
                json_object_set_new(m->details, "workspaceId", json_string(j->row.id));
                json_object_set_new(m->details, "localPath", json_string(j->row.local_path));
        }
        r = store_write(op, j->rt->store, write_move, m, err);
        json_decref(m->details);
        m->details = NULL;
        if (r < 0)
                return r;
        j->row = m->to;
        workspace_job_view(j);
        return 0;
}

/* Reading */

int workspace_get(struct op *op, struct runtime *rt, const char *lease_id,
                  struct workspace_row *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : workspaces_of_lease(db, lease_id, op->arena, ret, err);
}

int workspace_job_of_lease(struct workspace_job *j, const struct lease_record *record,
                           struct err *err)
{
        struct workspace_row row;
        int r = workspace_get(j->op, j->rt, record->lease.id, &row, err);

        if (r >= 0)
                r = workspace_job_begin(j, row.id, false, err);
        if (r >= 0 && streq(j->row.state, WORKSPACE_ENDED))
                r = err_set(err, ERR_CONFLICT, "The lease has no workspace any more. %s",
                            j->row.note ? j->row.note : "");
        if (r >= 0 && streq(j->row.state, WORKSPACE_STAGING))
                r = err_set(err, ERR_CONFLICT, "Staging the workspace did not come to its end.");
        return r;
}

const char *workspace_default_cwd(struct arena *arena, const struct lease *lease)
{
        json_t *metadata = NULL;
        const json_t *workspace;
        const char *state, *cwd = NULL;

        if (!lease->metadata ||
            json_parse(lease->metadata, strlen(lease->metadata), &metadata, NULL) < 0)
                return NULL;
        workspace = json_get_object(metadata, "stagedWorkspace");
        state = json_get_string(workspace, "state");
        if (state && !streq(state, WORKSPACE_STAGING) && !streq(state, WORKSPACE_ENDED))
                cwd = arena_strdup(arena, json_get_string(workspace, "cwd"));
        json_decref(metadata);
        return cwd;
}

/* Collecting */

int workspace_collect(struct workspace_job *j, struct change_set **ret, uint32_t *ret_umask,
                      struct err *err)
{
        return j->way->collect(j->op, j->rt, &j->place, &j->view, workspace_work_progress, &j->work,
                               ret, ret_umask, err);
}

/* Directories of ours */

int workspace_remove_dir(struct op *op, const char *path, struct err *err)
{
        const char *argv[] = { "rm", "-rf", "--one-file-system", "--", path, NULL };

        if (file_life_at(AT_FDCWD, path) == LIFE_NO)
                return 0;
        return run_tool(op, "/bin/rm", argv, "remove what belonged to a workspace", NULL, err);
}

/* Places elsewhere */

int workspace_remote_find(struct op *op, struct runtime *rt, const char *lease_id,
                          struct workspace_remote *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        CLEAN(json_decrefp) json_t *metadata = NULL;
        struct arena *a = op->arena;
        bool is_first; /* of its run in its environment */
        const char *mode;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = leases_get(db, lease_id, a, &ret->lease, err);
        if (r >= 0)
                r = leases_is_first_of_run(db, &ret->lease, &is_first, err);
        if (r < 0)
                return r;
        if (ret->lease.metadata)
                (void)json_parse(ret->lease.metadata, strlen(ret->lease.metadata), &metadata, NULL);
        ret->run = is_first ? ret->lease.heartbeat_run_id : ret->lease.id;
        ret->cwd = arena_strtrim(
                a, json_get_string(json_get_object(metadata, "providerMetadata"), "remoteCwd"));
        if (!ret->cwd)
                ret->cwd = arena_strtrim(a, json_get_string(metadata, "remoteCwd"));
        mode = arena_strtrim(a, json_get_string(metadata, "workspaceMode"));
        ret->in_place = mode && streq(mode, "in_place");
        if (!ret->cwd || ret->cwd[0] != '/')
                return err_set(err, ERR_UNPROCESSABLE,
                               "The lease names no directory for a workspace.");
        return 0;
}

/* What ways that fetch have in common */

int workspace_open_dir(const char *path, int *ret_fd, struct err *err)
{
        *ret_fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (*ret_fd < 0)
                return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno, "open %s",
                               path);
        return 0;
}

int workspace_keep_fetched(struct op *op, const struct workspace *w, int dir_fd,
                           struct change_set **ret, struct err *err)
{
        const char *path = arena_printf(op->arena, "%s/" WORKSPACE_BUNDLE, w->dir);
        struct bundle_size size;
        int r = bundle_remove(op, path, err);

        if (r >= 0 && renameat(dir_fd, WORKSPACE_FETCHING, dir_fd, WORKSPACE_BUNDLE) < 0)
                r = err_sys(err, ERR_IO, errno, "keep what was fetched");
        return r < 0 ? r : bundle_open(path, ret, &size, err);
}

/* After a crash it may have happened already. */
int workspace_settle_fetched(struct op *op, struct runtime *rt, const struct place *place,
                             const struct workspace *w, struct err *err)
{
        CLEAN(cleanup_fd) int dir = -1;
        int r = workspace_open_dir(w->dir, &dir, err);

        if (r < 0)
                return r;
        if ((renameat(dir, WORKSPACE_BUNDLE "/" WORKSPACE_NEXT, dir, WORKSPACE_BASELINE) < 0 &&
             errno != ENOENT) ||
            fsync(dir) < 0)
                return err_sys(err, ERR_IO, errno, "keep what was brought home");
        return 0;
}
