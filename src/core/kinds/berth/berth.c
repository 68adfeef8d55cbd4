/* Opening, parking, resuming, closing and listing sandboxes. See berth.h for the files of a
 * sandbox, and kind.h for what each call promises. */
#define _GNU_SOURCE
#include "core/kinds/berth/berth.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "box/launch.h"
#include "core/exec/box_route.h"
#include "core/exec/egress.h"
#include "core/exec/exec.h"
#include "core/exec/exec_request.h"
#include "core/kinds/berth/snapshot.h"
#include "core/places/place.h"
#include "core/sandboxes/sandbox_host.h"
#include "core/sandboxes/tool.h"
#include "core/workspaces/workspace.h"

/* Commands in a sandbox. Their environment is built from zero: a few variables that fit the inside,
 * the proxy's where there is one, what the configuration sets, and what the request sets. */

#define INNER_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static void set_variable(json_t *variables, const char *name, const char *value)
{
        json_object_set_new(variables, name, json_string(value));
}

static void set_base(json_t *variables, const json_t *config, bool terminal)
{
        const char *user = json_get_string(config, "user");
        bool root = user && streq(user, "root");

        set_variable(variables, "PATH", INNER_PATH);
        set_variable(variables, "HOME", root ? "/root" : "/home/agent");
        set_variable(variables, "USER", root ? "root" : "agent");
        set_variable(variables, "LOGNAME", root ? "root" : "agent");
        set_variable(variables, "SHELL", "/bin/sh");
        set_variable(variables, "LANG", "C.UTF-8");
        if (terminal)
                set_variable(variables, "TERM", "xterm-256color");
}

static void set_proxy(struct op *op, json_t *variables, const json_t *config)
{
        for (const char *const *v = egress_env(config); *v; v++) {
                size_t n = strcspn(*v, "=");

                set_variable(variables, arena_strndup(op->arena, *v, n), *v + n + 1);
        }
}

/* The user id of the sandbox's supervisor on this machine, which must be known before the first
 * byte of output. */
static int berth_admit_command(struct db *db, const struct place *place, struct arena *arena,
                               uid_t *ret_writer, struct err *err)
{
        struct sandbox_spec ids = { 0 };
        struct sandbox_row row;
        int r = sandboxes_get(db, place->id, arena, &row, err);

        if (r < 0)
                return r;
        if (row.is_paused)
                return err_set(err, ERR_CONFLICT, "The lease is paused; resume it first.");
        ids.first_id = (uint32_t)row.first_id;
        ids.n_ids = (uint32_t)row.n_ids;
        *ret_writer = sandbox_host_id(&ids, SANDBOX_SUPERVISOR);
        return 0;
}

static int berth_prepare_exec(struct op *op, struct runtime *rt, const struct lease_record *record,
                              struct exec_request *ret, struct err *err)
{
        struct place place;
        CLEAN(json_decrefp) json_t *variables = json_object();
        const char *cwd = BERTH_WORKSPACE;
        struct sandbox_row row = { 0 };
        json_t *config = NULL;
        int r = place_load(op, rt, record->lease.place_id, &place, err);

        if (r >= 0)
                r = kind_place_config(op, &place, &config, err);
        if (r >= 0)
                r = berth_row(op, rt, place.id, &row, err);
        if (r < 0)
                return r;
        set_base(variables, config, ret->terminal);
        r = berth_image_defaults(op, rt, &row, config, variables, &cwd, err);
        if (r < 0)
                return r;
        set_proxy(op, variables, config);
        exec_variables_update(variables, json_get_object(config, "env"));
        exec_variables_update(variables, ret->own_env);
        if (!ret->cwd)
                ret->cwd = cwd;
        if (!ret->timeout_ms)
                ret->timeout_ms = json_integer_value(json_object_get(config, "timeoutMs"));
        return exec_request_set_env(op, variables, ret, err);
}

#define CLEAN_UP_MS 20000

char *berth_dir(const struct runtime *rt, const char *place_id)
{
        return xasprintf("%s/%s", rt->sandbox->dir, place_id);
}

char *berth_box_dir(const struct runtime *rt, const char *place_id)
{
        return xasprintf("%s/%s/box", rt->sandbox->dir, place_id);
}

static int need_host(const struct runtime *rt, struct err *err)
{
        if (!rt->sandbox)
                return err_set(err, ERR_UNPROCESSABLE, "This daemon has no sandboxes.");
        if (rt->sandbox->range_code < 0)
                return err_set(err, rt->sandbox->range_code, "No sandbox can be made: %s.",
                               rt->sandbox->range_error);
        return 0;
}

/* Claiming */

/* The next slice that no row has; each is looked at once. */
static int claim_ids(struct db *db, struct runtime *rt, struct sandbox_row *row, struct err *err)
{
        struct sandbox_host *host = rt->sandbox;
        uint64_t slices = (uint64_t)(host->range.count / host->slice);

        row->n_ids = host->slice;
        for (uint64_t i = 0; i < slices; i++) {
                uint64_t n = atomic_fetch_add(&host->cursor, 1) % slices;
                bool taken;
                int r;

                row->first_id = host->range.first + (int64_t)n * host->slice;
                r = sandboxes_overlap(db, row->node_id, row->first_id, row->n_ids, &taken, err);
                if (r < 0 || !taken)
                        return r;
        }
        return err_set(err, ERR_BUSY,
                       "All %llu ranges of host ids are in use by other sandboxes. Release leases, "
                       "or give the daemon more ids (sandbox_uid_count, /etc/subuid).",
                       (unsigned long long)slices);
}

static int berth_claim(struct db *db, struct runtime *rt, const struct place *place,
                       struct arena *arena, struct err *err)
{
        struct sandbox_row row = {
                .place_id = place->id,
                .node_id = rt->node.id.s,
                .created_at = clock_now_us(),
        };
        const char *of_snapshot = NULL;
        int r = need_host(rt, err);

        if (r >= 0)
                r = claim_ids(db, rt, &row, err);
        if (r >= 0)
                r = snapshot_claim(db, place, arena, &row.snapshot_id, &of_snapshot, err);
        if (r >= 0)
                r = berth_image_claim(db, place, of_snapshot, arena, &row, err);
        if (r >= 0)
                r = sandboxes_insert(db, &row, err);
        return MIN(r, 0);
}

int berth_row(struct op *op, struct runtime *rt, const char *place_id, struct sandbox_row *ret,
              struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : sandboxes_get(db, place_id, op->arena, ret, err);
}

/* Trees */

/* rm(1) does it: trees that a sandbox wrote may be deeper than our stack and longer than a path,
 * and rm(1) handles both. It follows no symlink and stays on the file system. */
int berth_remove_tree(struct op *op, const char *path, struct err *err)
{
        const char *argv[] = { "rm", "-rf", "--one-file-system", "--", path, NULL };

        if (file_life_at(AT_FDCWD, path) == LIFE_NO)
                return 0;
        return run_tool(op, "/bin/rm", argv, "remove what a sandbox left", NULL, err);
}

/* Opening */

static int make_image(struct op *op, const char *path, uint64_t size, struct err *err)
{
        const char *argv[] = {
                "mkfs.ext4", "-q", "-F", "-m", "0", "-O", "^has_journal", path, NULL
        };
        CLEAN(cleanup_fd) int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        if (fd < 0 || ftruncate(fd, (off_t)size) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make the sandbox's image");
        return run_tool(op, "/sbin/mkfs.ext4", argv, "make a file system for the sandbox", NULL,
                        err);
}

static int make_directory(const char *path, struct err *err)
{
        if (mkdir(path, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_PROVIDER, errno, "make a directory for the sandbox");
        return 0;
}

/* A directory belongs to root of the sandbox, which creates the missing files in it. */
static int make_storage(struct op *op, const struct sandbox_spec *spec, struct err *err)
{
        uint32_t owner = sandbox_host_id(spec, 0);

        if (spec->storage == SANDBOX_STORE_IMAGE)
                return make_image(op, spec->storage_path, spec->limits.disk_bytes, err);
        if (spec->storage != SANDBOX_STORE_DIR)
                return 0;
        int r = make_directory(spec->storage_path, err);
        if (r >= 0 && chown(spec->storage_path, owner, owner) < 0)
                r = err_sys(err, ERR_PROVIDER, errno, "give %s to the sandbox", spec->storage_path);
        return r;
}

static int launch_sandbox(struct op *op, struct runtime *rt, const struct place *place,
                          const json_t *config, const char *dir, struct sandbox_report *ret,
                          struct err *err)
{
        CLEAN(cleanup_free) char *box = berth_box_dir(rt, place->id);
        struct sandbox_spec spec;
        struct sandbox_row row = { 0 };
        int r = berth_row(op, rt, place->id, &row, err);

        if (r >= 0)
                r = berth_spec(op, rt, config, &row, dir, &spec, err);
        if (r >= 0)
                r = berth_image_spec(op, rt, config, &row, &spec, err);
        if (r >= 0)
                r = sandbox_spec_check(&spec, err);
        if (r >= 0)
                r = snapshot_layers(op, rt, row.snapshot_id, &spec, err);
        FAULT("sandbox.make.before");
        if (r >= 0)
                r = make_directory(dir, err);
        if (r >= 0)
                r = make_storage(op, &spec, err);
        /* PID 1 of a sandbox is not a user of the host and has to reach its spools. Each spool
         * belongs to its own PID 1, and the data directory keeps all other users out. */
        if (r >= 0 && geteuid() == 0)
                (void)chmod(rt->sandbox->output_dir, 0711);
        FAULT("sandbox.launch.before");
        if (r >= 0)
                r = sandbox_launch(op, rt->sandbox->box_program, box, place->id, &spec, ret, err);
        FAULT("sandbox.launch.after");
        return r;
}

/* Bury the box and remove the directory. May be called again, with the same result. */
static int remove_place(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err)
{
        CLEAN(cleanup_free) char *dir = berth_dir(rt, place->id);

        if (file_life_at(AT_FDCWD, dir) == LIFE_NO)
                return file_sync_removal(dir, err);
        int r = exec_close_place(op, rt, place, err);
        FAULT("sandbox.remove.before");
        if (r >= 0)
                r = berth_remove_tree(op, dir, err);
        if (r >= 0)
                r = file_sync_removal(dir, err);
        FAULT("sandbox.remove.after");
        return r;
}

int berth_start(struct op *op, struct runtime *rt, const struct place *place, const json_t *config,
                struct sandbox_report *ret, struct err *err)
{
        CLEAN(cleanup_free) char *dir = berth_dir(rt, place->id);
        int r = launch_sandbox(op, rt, place, config, dir, ret, err);

        if (r >= 0)
                return r;
        struct op shield = op_shield(op, CLEAN_UP_MS);
        if (remove_place(&shield, rt, place, NULL) < 0)
                return err_wrap(err, ERR_UNCERTAIN, "something of it may be left");
        return r;
}

static int64_t wall_ms(const json_t *config)
{
        return json_integer_value(json_object_get(config, "wallTimeMs"));
}

static int berth_open(struct op *op, struct runtime *rt, const struct place *place,
                      const struct lease_request *req, struct provider_lease *ret, struct err *err)
{
        CLEAN(cleanup_free) char *dir = NULL;
        struct sandbox_report report;
        json_t *config = NULL;
        int r = need_host(rt, err);

        if (r >= 0)
                r = kind_place_config(op, place, &config, err);
        if (r < 0)
                return r;
        dir = berth_dir(rt, place->id);
        r = berth_start(op, rt, place, config, &report, err);
        if (r < 0)
                return r;
        ret->id = arena_printf(op->arena, "sandbox://berth/%s", place->id);
        ret->metadata = json_keep(op->arena, berth_describe(config, &report));
        ret->expires_at = wall_ms(config) ? clock_steady_us() + wall_ms(config) * US_PER_MS : 0;
        berth_keep_report(dir, ret->metadata);
        exec_reach_place(rt, place);
        return 0;
}

/* Its time counts from when it was made. */
static int64_t wall_end(const json_t *config, const struct sandbox_row *row)
{
        int64_t age = clock_now_us() - row->created_at;

        return wall_ms(config) ? clock_steady_us() + wall_ms(config) * US_PER_MS - age : 0;
}

static enum life berth_is_alive(const struct runtime *rt, const struct place *place)
{
        CLEAN(cleanup_free) char *box = NULL;

        if (!rt->sandbox)
                return LIFE_UNKNOWN;
        box = berth_box_dir(rt, place->id);
        return box_is_alive(box);
}

/* Between runs */

static int berth_resume(struct op *op, struct runtime *rt, const struct place *place,
                        const struct lease_request *req, struct provider_lease *ret,
                        struct err *err)
{
        CLEAN(cleanup_free) char *dir = NULL;
        CLEAN(cleanup_free) char *box = NULL;
        struct sandbox_row row = { 0 };
        json_t *config = NULL;
        int r = need_host(rt, err);

        if (r >= 0)
                r = kind_place_config(op, place, &config, err);
        if (r >= 0)
                r = berth_row(op, rt, place->id, &row, err);
        if (r < 0)
                return r;
        dir = berth_dir(rt, place->id);
        box = berth_box_dir(rt, place->id);
        r = box_check_alive(box, err);
        if (r == 0)
                r = err_set(err, ERR_NOT_FOUND, "The sandbox is not there any more.");
        if (r >= 0 && !streq(place->policy, POLICY_STOCK)) {
                FAULT("sandbox.thaw.before");
                r = sandbox_thaw(op, box, place->id, err);
                FAULT("sandbox.thaw.after");
        }
        if (r < 0)
                return r;
        ret->id = place->provider_lease_id;
        ret->metadata = json_keep(op->arena, berth_read_report(dir));
        ret->expires_at = wall_end(config, &row);
        return 0;
}

/* The commands of the lease that ended go with it; home, overlay and workspace stay. */
static int berth_park(struct op *op, struct runtime *rt, const struct place *place, struct err *err)
{
        CLEAN(cleanup_free) char *box = berth_box_dir(rt, place->id);
        int r = exec_end_all(op, rt, place, err);

        if (r < 0)
                return r;
        FAULT("sandbox.freeze.before");
        r = sandbox_freeze(op, box, place->id, err);
        FAULT("sandbox.freeze.after");
        return r;
}

static int berth_close(struct op *op, struct runtime *rt, const struct place *place,
                       struct err *err)
{
        return rt->sandbox ? remove_place(op, rt, place, err) : 0;
}

static int berth_list(struct op *op, struct runtime *rt, const struct kind *kind, kind_found_fn fn,
                      void *ctx, struct err *err)
{
        struct dirent *entry;
        int r = 0;

        if (!rt->sandbox)
                return 0;
        DIR *dir = opendir(rt->sandbox->dir);
        if (!dir)
                return err_sys(err, ERR_IO, errno, "read %s", rt->sandbox->dir);
        while (r >= 0 && (errno = 0, entry = readdir(dir)))
                if (uuid_is_valid(entry->d_name))
                        r = fn(ctx, &(struct kind_thing){ BERTH_PROVIDER, entry->d_name, "sandbox",
                                                          rt->node.id.s });
        if (r >= 0 && errno)
                r = err_sys(err, ERR_IO, errno, "read %s", rt->sandbox->dir);
        closedir(dir);
        return r;
}

/* Pausing a lease that goes on */

struct pause_request {
        const char *place_id;
        bool paused;
};

static int write_paused(struct db *db, void *arg, struct err *err)
{
        struct pause_request *q = arg;
        int r = sandboxes_set_paused(db, q->place_id, q->paused, err);

        return r == 0 ? err_set(err, ERR_CONFLICT, "The sandbox of the lease is gone.") : r;
}

static int set_paused(struct op *op, struct runtime *rt, const char *place_id, bool paused,
                      struct err *err)
{
        struct pause_request q = { place_id, paused };

        return store_write(op, rt->store, write_paused, &q, err);
}

static json_t *answer_pause(struct op *op, const struct lease *lease, bool paused)
{
        return json_keep(op->arena, json_pack("{s:s?, s:b}", "providerLeaseId",
                                              lease->provider_lease_id, "paused", paused));
}

/* A dead sandbox is a state of the lease, not an object that the caller asked for by name. */
static int dead_is_conflict(int r, struct err *err)
{
        if (r != ERR_NOT_FOUND)
                return r;
        return err_set(
                err, ERR_CONFLICT,
                "The sandbox of the lease has ended. Release the lease and acquire another.");
}

static int berth_pause_lease(struct op *op, struct runtime *rt, const struct lease *lease,
                             json_t **ret, struct err *err)
{
        CLEAN(cleanup_free) char *box = berth_box_dir(rt, lease->place_id);
        int r = set_paused(op, rt, lease->place_id, true, err);

        if (r < 0)
                return r;
        FAULT("sandbox.pause.before");
        r = dead_is_conflict(sandbox_freeze(op, box, lease->place_id, err), err);
        FAULT("sandbox.pause.after");
        if (r >= 0)
                *ret = answer_pause(op, lease, true);
        return r;
}

static int berth_resume_lease(struct op *op, struct runtime *rt, const struct lease *lease,
                              json_t **ret, struct err *err)
{
        CLEAN(cleanup_free) char *box = berth_box_dir(rt, lease->place_id);

        FAULT("sandbox.unpause.before");
        int r = dead_is_conflict(sandbox_thaw(op, box, lease->place_id, err), err);
        FAULT("sandbox.unpause.after");
        if (r >= 0)
                r = set_paused(op, rt, lease->place_id, false, err);
        if (r >= 0)
                *ret = answer_pause(op, lease, false);
        return r;
}

static int berth_unclaim(struct db *db, const struct place *place, struct err *err)
{
        return sandboxes_delete(db, place->id, err);
}

static int berth_plan(struct op *op, struct runtime *rt, const struct environment *env,
                      const struct lease_request *req, struct lease_plan *ret, struct err *err)
{
        json_t *config = NULL;
        int r = req->config ? json_parse(req->config, strlen(req->config), &config, err)
                            : kind_config(op, &kind_berth, env, &config, err);

        if (r >= 0 && req->config)
                (void)json_keep(op->arena, config);
        /* A fork has the image of its source, whatever its name means by now. */
        if (r >= 0 && !json_object_get(config, FORK_MEMBER))
                r = berth_image_plan(op, rt, env->company_id, req->run_id, &config, err);
        return r < 0 ? r : sandbox_plan(op, rt, &kind_berth, config, req, ret, err);
}

static const struct box_route *berth_route(const struct place *place)
{
        return box_route_here();
}

static bool berth_is_offline(const json_t *config, const json_t **ret_allowed)
{
        const char *network = json_get_string(config, "network");

        *ret_allowed = network && streq(network, "allowlist")
                               ? json_object_get(config, "allowedHosts")
                               : NULL;
        return !network || streq(network, "none");
}

static int berth_starter_check(struct op *op, struct runtime *rt, struct err *err)
{
        return sandbox_host_check(op, rt->sandbox, err);
}

static const struct kind_starter berth_starter = {
        .name = "Sandbox", /* `berth run --sandbox` takes the one of this name */
        .description = "Keeps what runs in it apart from the machine that Berth runs on.",
        .config = "{\"provider\":\"" BERTH_PROVIDER "\"}",
        .check = berth_starter_check,
};

static const struct workspace_way *const layered[] = { &berth_overlay, &berth_copy, &workspace_sync,
                                                       NULL };
static const struct workspace_way *const copied[] = { &berth_copy, &workspace_sync, NULL };
static const struct workspace_way *const overlaid[] = { &berth_overlay, NULL };

const struct kind kind_berth = {
        .driver = "sandbox",
        .provider = BERTH_PROVIDER,
        .label = "sandbox",
        .display_name = "Berth sandbox",
        .description = "Linux namespaces on the daemon's machine: no account, no image, ready in "
                       "milliseconds. The kernel is shared with the host.",
        .isolated = true,
        .isolation = "isolated from this machine and from other places",
        .is_disposable = true,
        .takes_runs = true,
        .can_destroy = true,
        .box_is_place = true,
        .writes_cleanup_status = true,
        .release_failure_reason = "adapter_or_run_failure",
        .reaches_host = sandbox_reaches_host,
        .is_offline = berth_is_offline,
        .starter = &berth_starter,
        .normalize = berth_normalize,
        .schema = berth_schema,
        .check = berth_check,
        .probe = berth_probe,
        .plan = berth_plan,
        .claim = berth_claim,
        .unclaim = berth_unclaim,
        .open = berth_open,
        .resume = berth_resume,
        .park = berth_park,
        .close = berth_close,
        .matches = berth_matches,
        .stock_size = berth_stock_size,
        .list = berth_list,
        .is_alive = berth_is_alive,
        .describe = sandbox_describe,
        .fork = berth_fork,
        .fork_end = berth_fork_end,
        .pause_lease = berth_pause_lease,
        .resume_lease = berth_resume_lease,
        .realize = sandbox_realize,
        .prepare_exec = berth_prepare_exec,
        .admit_command = berth_admit_command,
        .route = berth_route,
        .ways = layered,
        .ways_copy = copied,
        .ways_overlay = overlaid,
        .realization = &sandbox_realization,
};
