/* Decides whether the worker of a plugin may start, and starts it. */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/log.h"
#include "core/plugins/plugin_internal.h"
#include "plugin/env.h"

#define PATHS_MAX 200

/* Where the files of a plugin are. `ret_base` is the directory that its checksum covers. */
static int plugin_locate(struct op *op, struct plugin_registry *reg, const struct plugin *p,
                         const char **ret_base, const char **ret_root, struct err *err)
{
        struct arena *a = op->arena;
        char real[PATH_MAX];
        const char *base, *root;

        if (p->package_path) {
                base = root = p->package_path;
        } else {
                base = arena_printf(a, "%s/%s", reg->packages_dir,
                                    p->install_id ? p->install_id : "");
                root = package_root(a, base, p->package_name);
        }
        if (!realpath(root, real))
                return err_sys(err, ERR_INVALID, errno, "the package is not at %s", root);
        *ret_root = arena_strdup(a, real);
        if (!realpath(base, real))
                return err_sys(err, ERR_INVALID, errno, "the package is not at %s", base);
        *ret_base = arena_strdup(a, real);
        return 0;
}

/* Check that the files are the installed ones. */
static int check_files(struct op *op, const struct plugin *p, const char *base, struct err *err)
{
        char now[TREE_CHECKSUM_MAX];
        int r = tree_checksum(op, base, now, err);

        if (r < 0)
                return r;
        if (p->checksum && streq(p->checksum, now))
                return 0;
        return err_set(err, ERR_INVALID,
                       "the files of the package are not those that were installed (checksum %s, "
                       "now %s); if the change is wanted, take it over with `berth plugin upgrade "
                       "%s`",
                       p->checksum ? p->checksum : "none", now, p->key);
}

/* The stored configuration, {} when there is none. A new reference. */
static int load_config(struct op *op, struct runtime *rt, const struct plugin *p, json_t **ret,
                       struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct plugin_config row;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = plugin_config_get(db, p->id, op->arena, &row, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                *ret = json_object();
                return 0;
        }
        return r < 0 ? r : json_parse(row.config, strlen(row.config), ret, err);
}

struct path_list {
        const char **items;
        size_t n;
        const struct plugin_registry *reg;
        const char *refused; /* one that no worker gets */
};

static void add_path(void *ctx, const char *item)
{
        struct path_list *l = ctx;

        if (l->n < PATHS_MAX && *item == '/')
                l->items[l->n++] = item;
}

static bool is_beneath(const char *dir, const char *path)
{
        size_t n = strlen(dir);

        return strncmp(dir, path, n) == 0 && (path[n] == '/' || path[n] == '\0');
}

static void add_granted(void *ctx, const char *item)
{
        struct path_list *l = ctx;
        char real[PATH_MAX];

        if (realpath(item, real) &&
            (is_beneath(l->reg->data_dir, real) || is_beneath(l->reg->plugin_dir, real)))
                l->refused = item;
        add_path(ctx, item);
}

/* Add the paths that the operator lets this plugin read besides its own. */
static int add_paths(struct op *op, const struct plugin_registry *reg, const struct plugin *p,
                     const char *const *reads, const char *const **ret, struct err *err)
{
        struct path_list l = { .reg = reg };

        l.items = arena_alloc(op->arena, (PATHS_MAX + 1) * sizeof(*l.items));
        for (; *reads; reads++)
                add_path(&l, *reads);
        plugin_setting_each(reg->config.rt->settings.plugin_paths, p->key, op->arena, add_granted,
                            &l);
        if (l.refused)
                return err_set(err, ERR_INVALID,
                               "the setting plugin_paths names %s, which is in the daemon's own "
                               "directory: no worker gets that; put what it needs elsewhere",
                               l.refused);
        *ret = l.items;
        return 0;
}

int plugin_make_spec(struct op *op, struct plugin_registry *reg, const struct plugin *p,
                     struct worker_spec *ret, struct err *err)
{
        const struct settings *s = &reg->config.rt->settings;
        const char *private_dir = arena_printf(op->arena, "%s/%s", reg->private_dir, p->id);
        struct worker_spec spec = {
                .plugin_id = p->id,
                .plugin_key = p->key,
                .private_dir = private_dir,
                .copies = arena_printf(op->arena, "%s/%s", reg->copies_dir, p->id),
        };
        json_t *manifest = NULL;
        const char *base;
        int r = plugin_locate(op, reg, p, &base, &spec.root, err);

        if (r >= 0)
                r = check_files(op, p, base, err);
        if (r >= 0 && p->install_id && !p->package_path)
                r = tree_open_up(op, base, err); /* older versions made it unreadable for others */
        if (r >= 0)
                r = json_parse(p->manifest, strlen(p->manifest), &manifest, err);
        if (r < 0)
                return r;
        (void)json_keep(op->arena, manifest);
        r = package_find_entry(op->arena, spec.root, manifest, &spec.entry, err);
        if (r < 0)
                return r;
        spec.manifest = manifest;
        spec.env = plugin_env(
                &(struct plugin_env_spec){
                        .plugin_id = p->id,
                        .plugin_key = p->key,
                        .deployment_mode =
                                s->mode == MODE_LOCAL_TRUSTED ? "local_trusted" : "authenticated",
                        .deployment_exposure =
                                s->exposure == EXPOSURE_PRIVATE ? "private" : "public",
                        .private_dir = private_dir,
                        .allowed = s->plugin_env,
                },
                op->arena);
        r = add_paths(op, reg, p, package_find_reads(op->arena, base, spec.root), &spec.extra_reads,
                      err);
        if (r >= 0)
                *ret = spec;
        return r;
}

int plugin_start_worker(struct op *op, struct plugin_registry *reg, const struct plugin *p,
                        bool keep_trying, struct err *err)
{
        CLEAN(json_decrefp) json_t *config = NULL;
        struct worker_spec spec;
        int r = plugin_make_spec(op, reg, p, &spec, err);

        if (r >= 0)
                r = load_config(op, reg->config.rt, p, &config, err);
        if (r < 0)
                return r;
        spec.config = config;
        spec.keep_trying = keep_trying;
        FAULT("registry.start.before");
        r = plugin_host_start(op, reg->host, &spec, err);
        FAULT("registry.start.after");
        return r;
}

int plugin_activate(struct op *op, struct runtime *rt, struct plugin *p, bool keep_trying,
                    struct err *err)
{
        static atomic_flag warned = ATOMIC_FLAG_INIT;
        CLEAN(err_done) struct err why = { 0 };
        struct confine_policy *policy = &rt->plugins->policy;
        struct worker_view view;
        struct plugin next = *p;
        int r = plugin_start_worker(op, rt->plugins, p, keep_trying, &why);

        if (r >= 0) {
                /* Once: the cause is the machine and not the plugin. */
                if (policy->confine && !confine_has_view(policy) &&
                    !atomic_flag_test_and_set(&warned))
                        log_warn("plugin workers have no view of their own; Landlock and a filter "
                                 "confine them. `berth doctor` says what to do",
                                 LOG_S("error", policy->view_failure));
                return 0;
        }
        if (keep_trying && plugin_host_view(rt->plugins->host, p->id, &view)) {
                log_warn("a plugin's worker did not start; it is started again",
                         LOG_S("plugin", p->key), LOG_S("error", why.msg));
                return 0; /* the host reports it when it gives up */
        }
        next.status = PLUGIN_ERROR;
        next.last_error = arena_printf(op->arena, "Activation failed: %s", why.msg);
        log_warn("a plugin could not be activated", LOG_S("plugin", p->key),
                 LOG_S("error", why.msg));
        r = plugin_commit(op, rt, p, &next, NULL, NULL, err);
        if (r >= 0)
                *p = next;
        return r;
}
