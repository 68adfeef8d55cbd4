/* The directory of a file call, which paths it may name, and the call itself. */
#define _GNU_SOURCE
#include "core/kinds/plugin/plugin_sync.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "core/kinds/plugin/plugin_capabilities.h"
#include "core/plugins/plugin_registry.h"
#include "plugin/tree.h"

#define SYNC_IN   "environmentSyncIn"
#define SYNC_OUT  "environmentSyncOut"
#define REMOVE_MS 30000
#define ID_PREFIX "sync-op-"

bool plugin_sync_is_native(struct runtime *rt, const struct plugin_lease *lease)
{
        struct plugin_capabilities c = plugin_lease_capabilities(rt, lease);

        return c.has[CAPABILITY_NATIVE_SYNC_IN] && c.has[CAPABILITY_NATIVE_SYNC_OUT];
}

/* The directory of a call */

/* The worker may run as another user, which needs access to the files put there. */
static int give_to_worker(const struct plugin_sync *sync, int fd, struct err *err)
{
        if (sync->owner != geteuid() && fchown(fd, sync->owner, sync->owner) < 0)
                return err_sys(err, ERR_IO, errno, "give files to a plugin");
        return 0;
}

int plugin_sync_begin(struct op *op, struct runtime *rt, const struct plugin_lease *lease,
                      struct plugin_sync *ret, struct err *err)
{
        const char *own = arena_printf(op->arena, "%s/%s", plugin_registry_private_dir(rt->plugins),
                                       lease->target.plugin_id);
        const char *name = arena_printf(op->arena, PLUGIN_SYNC_DIR "%s", uuid_new().s);
        CLEAN(cleanup_fd) int dir = open(own, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
        struct stat st;
        int r;

        *ret = (struct plugin_sync){ .fd = -1 };
        if (dir < 0 || fstat(dir, &st) < 0)
                return err_sys(err, ERR_IO, errno, "open the private directory of a plugin");
        if (mkdirat(dir, name, 0700) < 0)
                return err_sys(err, ERR_IO, errno, "make a directory for files of a plugin");
        ret->lease = lease;
        ret->owner = st.st_uid;
        ret->path = arena_printf(op->arena, "%s/%s", own, name);
        r = path_open_plain(dir, name, O_RDONLY | O_DIRECTORY, 0, &ret->fd, err);
        if (r >= 0)
                r = give_to_worker(ret, ret->fd, err);
        if (r < 0)
                (void)tree_remove(op, ret->path, NULL);
        return r;
}

static void remove_dir(struct op *op, const char *path)
{
        CLEAN(err_done) struct err err = { 0 };

        if (tree_remove(op, path, &err) < 0)
                log_warn("files for a plugin could not be removed", LOG_S("path", path),
                         LOG_S("error", err.msg));
}

void plugin_sync_end(struct op *op, struct plugin_sync *sync)
{
        struct op shield = op_shield(op, REMOVE_MS);

        if (sync->fd < 0)
                return;
        cleanup_fd(&sync->fd);
        sync->fd = -1;
        remove_dir(&shield, sync->path);
}

/* Made as far as they are missing; a link among them is refused when the file is opened. */
static void make_parents(const struct plugin_sync *sync, const char *here)
{
        CLEAN(cleanup_free) char *path = xstrdup(here);

        for (char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
                CLEAN(cleanup_fd) int parent = -1;
                char *name;

                *slash = '\0';
                name = strrchr(path, '/');
                if (name)
                        *name = '\0';
                if (path_open_plain(sync->fd, name ? path : ".", O_PATH | O_DIRECTORY, 0, &parent,
                                    NULL) >= 0 &&
                    mkdirat(parent, name ? name + 1 : path, 0700) == 0 && sync->owner != geteuid())
                        (void)!fchownat(parent, name ? name + 1 : path, sync->owner, sync->owner,
                                        AT_SYMLINK_NOFOLLOW);
                if (name)
                        *name = '/';
                *slash = '/';
        }
}

int plugin_sync_open(const struct plugin_sync *sync, const char *here, int flags, int *ret_fd,
                     struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        struct stat st;
        int r;

        if (flags & O_CREAT) {
                make_parents(sync, here);
                flags |= O_EXCL;
        }
        r = path_open_plain(sync->fd, here, flags | O_NONBLOCK | O_NOCTTY, 0600, &fd, err);
        if (r < 0)
                return r;
        if (fstat(fd, &st) < 0 || !S_ISREG(st.st_mode))
                return err_set(err, ERR_FORBIDDEN, "%s is no ordinary file", here);
        if (flags & O_CREAT)
                r = give_to_worker(sync, fd, err);
        if (r < 0)
                return r;
        *ret_fd = take_fd(&fd);
        return 0;
}

/* Which paths are allowed */

static bool climbs(const char *path)
{
        for (const char *p = path; p; p = strchr(p, '/')) {
                p += *p == '/';
                if (strncmp(p, "..", 2) == 0 && (p[2] == '/' || p[2] == '\0'))
                        return true;
        }
        return false;
}

static bool is_beneath(const char *root, const char *path)
{
        size_t n = strlen(root);

        while (n > 0 && root[n - 1] == '/')
                n--;
        return strncmp(path, root, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static int not_confined(const char *what, const char *path, struct err *err)
{
        return err_set(err, ERR_INVALID, "%s is not a confined absolute path: %.300s", what, path);
}

static int leads_out(const char *what, const char *path, struct err *err)
{
        return err_set(err, ERR_INVALID, "%s escapes its confinement root: %.300s", what, path);
}

static int check_confined(const char *what, const char *root, const char *path, struct err *err)
{
        if (*path != '/' || climbs(path))
                return not_confined(what, path, err);
        return is_beneath(root, path) ? 0 : leads_out(what, path, err);
}

/* A directory, or the one that a file is in. */
static bool is_in_target(const struct plugin_sync_file *f, const char *path)
{
        const char *slash = strrchr(f->there, '/');
        CLEAN(cleanup_free)
        char *dir = xstrndup(f->there, f->is_directory || !slash ? strlen(f->there)
                                                                 : (size_t)(slash - f->there));

        return is_beneath(dir, path);
}

/* In one of the operation's targets. */
static int check_cwd(const struct plugin_sync_operation *o, const char *cwd, struct err *err)
{
        static const char what[] = "post-upload command cwd";

        if (*cwd != '/' || climbs(cwd))
                return not_confined(what, cwd, err);
        for (size_t i = 0; i < o->n_files; i++)
                if (is_in_target(&o->files[i], cwd))
                        return 0;
        return leads_out(what, cwd, err);
}

/* The request */

struct request {
        struct op *op;
        const struct plugin_sync *sync;
        const char *root; /* there */
        bool is_in;
        size_t n_files;
        int64_t commands_ms; /* what the commands may take by themselves */
};

static const char *absolute(const struct request *q, const char *here)
{
        if (*here == '/')
                return here;
        return streq(here, ".") ? q->sync->path
                                : arena_printf(q->op->arena, "%s/%s", q->sync->path, here);
}

static int add_file(struct request *q, const struct plugin_sync_file *f, json_t *files,
                    struct err *err)
{
        const char *here = absolute(q, f->here);
        json_t *v, *exclude;
        int r = check_confined(q->is_in ? "sync operation source path"
                                        : "sync operation target path",
                               q->sync->path, here, err);

        if (r >= 0)
                r = check_confined(q->is_in ? "sync operation target path"
                                            : "sync operation source path",
                                   q->root, f->there, err);
        if (r >= 0 && f->writable_path)
                r = check_confined("sync operation writable path", q->root, f->writable_path, err);
        if (r >= 0 && ++q->n_files > PLUGIN_SYNC_FILES_MAX)
                r = err_set(err, ERR_TOO_LARGE, "a sync has at most %d files",
                            PLUGIN_SYNC_FILES_MAX);
        if (r < 0)
                return r;
        v = json_pack("{s:s, s:s, s:s}", "sourcePath", q->is_in ? here : f->there, "targetPath",
                      q->is_in ? f->there : here, "kind", f->is_directory ? "directory" : "file");
        if (!v)
                return err_set(err, ERR_INVALID, "a path of a sync is not UTF-8 text");
        json_array_append_new(files, v);
        if (f->has_mode)
                json_object_set_new(v, "mode", json_integer(f->mode & 07777));
        if (f->follow_symlinks)
                json_object_set_new(v, "followSymlinks", json_true());
        if (f->access)
                json_object_set_new(v, "access", json_string(f->access));
        if (f->writable_path)
                json_object_set_new(v, "writablePath", json_string(f->writable_path));
        if (f->exclude) {
                exclude = json_array();
                json_object_set_new(v, "exclude", exclude);
                for (const char *const *e = f->exclude; *e; e++)
                        json_array_append_new(exclude, json_string(*e));
        }
        return 0;
}

static int add_command(struct request *q, const struct plugin_sync_operation *o,
                       const struct plugin_sync_command *c, json_t *commands, struct err *err)
{
        int r = c->cwd ? check_cwd(o, c->cwd, err) : 0;
        json_t *v = r < 0 ? NULL : json_pack("{s:s}", "command", c->command);

        if (r < 0)
                return r;
        if (!v)
                return err_set(err, ERR_INVALID, "a command of a sync is not UTF-8 text");
        json_array_append_new(commands, v);
        if (c->cwd)
                json_object_set_new(v, "cwd", json_string(c->cwd));
        if (c->timeout_ms > 0) {
                json_object_set_new(v, "timeoutMs", json_integer(c->timeout_ms));
                q->commands_ms += c->timeout_ms;
        }
        return 0;
}

static const char *operation_id(struct op *op, size_t i)
{
        return arena_printf(op->arena, ID_PREFIX "%zu", i + 1);
}

static int add_operation(struct request *q, const struct plugin_sync_operation *o, size_t i,
                         json_t *all, struct err *err)
{
        json_t *files = json_array(), *commands = json_array();
        json_t *v = json_pack("{s:s, s:o}", "operationId", operation_id(q->op, i), "files", files);
        int r = 0;

        json_array_append_new(all, v);
        for (size_t k = 0; r >= 0 && k < o->n_files; k++)
                r = add_file(q, &o->files[k], files, err);
        for (size_t k = 0; r >= 0 && q->is_in && k < o->n_commands; k++)
                r = add_command(q, o, &o->commands[k], commands, err);
        if (json_array_size(commands) > 0)
                json_object_set(v, "postUploadCommands", commands);
        json_decref(commands);
        return r;
}

/* The answer */

static bool read_count(const json_t *answer, const char *name, uint64_t *ret)
{
        const json_t *v = json_object_get(answer, name);

        if (!json_is_integer(v) || json_integer_value(v) < 0)
                return false;
        *ret = (uint64_t)json_integer_value(v);
        return true;
}

static int read_answer(struct op *op, const struct plugin_sync *sync, const json_t *answer,
                       struct plugin_sync_operation *operations, size_t n, struct err *err)
{
        const json_t *done = json_object_get(answer, "operations");
        bool good = json_array_size(done) == n;

        for (size_t i = 0; good && i < n; i++) {
                const json_t *v = json_array_get(done, i);
                const char *id = json_get_string(v, "operationId");

                good = id && streq(id, operation_id(op, i)) &&
                       read_count(v, "filesTransferred", &operations[i].files_transferred) &&
                       read_count(v, "bytesTransferred", &operations[i].bytes_transferred);
        }
        return good ? 0
                    : err_set(err, ERR_PROVIDER,
                              "Plugin \"%s\" answered with something that is no result of a sync.",
                              sync->lease->target.plugin_key);
}

static int synchronize(struct op *op, struct runtime *rt, const struct plugin_sync *sync,
                       const char *root, struct plugin_sync_operation *operations, size_t n,
                       bool is_in, struct err *err)
{
        const struct plugin_lease *l = sync->lease;
        struct request q = { op, sync, root, is_in, 0, 0 };
        CLEAN(json_decrefp) json_t *all = json_array();
        json_t *answer = NULL;
        int64_t limit = plugin_limit_lease(&l->target, l->config);
        int r = 0;

        if (n > PLUGIN_SYNC_OPERATIONS_MAX)
                return err_set(err, ERR_TOO_LARGE, "a sync has at most %d operations",
                               PLUGIN_SYNC_OPERATIONS_MAX);
        for (size_t i = 0; r >= 0 && i < n; i++)
                r = add_operation(&q, &operations[i], i, all, err);
        if (r < 0)
                return r;
        if (q.commands_ms > 0)
                limit = MAX(limit, q.commands_ms + PLUGIN_CALL_GRACE_MS);
        r = plugin_request(op, rt,
                           &(struct plugin_request){
                                   .target = &l->target,
                                   .scope = &l->scope,
                                   .method = is_in ? SYNC_IN : SYNC_OUT,
                                   .config = l->config,
                                   .take_params = json_pack("{s:o, s:O}", "lease",
                                                            plugin_lease_ref(l), "operations", all),
                                   .limit_ms = limit,
                           },
                           &answer, err);
        return r < 0 ? r : read_answer(op, sync, answer, operations, n, err);
}

int plugin_sync_in(struct op *op, struct runtime *rt, const struct plugin_sync *sync,
                   const char *root, struct plugin_sync_operation *operations, size_t n,
                   struct err *err)
{
        return synchronize(op, rt, sync, root, operations, n, true, err);
}

int plugin_sync_out(struct op *op, struct runtime *rt, const struct plugin_sync *sync,
                    const char *root, struct plugin_sync_operation *operations, size_t n,
                    struct err *err)
{
        return synchronize(op, rt, sync, root, operations, n, false, err);
}
