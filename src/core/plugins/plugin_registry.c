/* The registry itself: its life cycle, one change of a plugin at a time, and finding drivers. */
#define _GNU_SOURCE
#include "core/plugins/plugin_registry.h"

#include <errno.h>
#include <fcntl.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/log.h"
#include "base/path.h"
#include "core/access/audit.h"
#include "core/plugins/plugin_internal.h"
#include "core/sandboxes/host_ids.h"
#include "store/companies.h"

#define NODE_FILE      "node-id"
#define HOLD_RETRY_MS  10
#define MANIFEST_LIMIT 10000

/* A plugin to activate at the start, or a worker that gave up. */
struct plugin_starting {
        struct plugin_starting *next;
        struct pool_job job;
        struct letter letter;
        struct plugin_registry *reg;
        char *plugin_id;
        char *reason; /* of a worker that gave up */
};

/* Rows */

struct audit_request {
        struct db *db;
        struct op *op;
        const struct plugin *p;
        const char *action;
        struct err *err;
};

static int audit_company(void *ctx, const struct company *company)
{
        struct audit_request *q = ctx;

        return audit(q->db, q->op, company->id, q->action, "plugin", q->p->id,
                     json_pack("{s:s, s:s, s:s, s:s}", "pluginKey", q->p->key, "packageName",
                               q->p->package_name, "version", q->p->version, "status",
                               q->p->status),
                     q->err);
}

int plugin_audit(struct db *db, struct op *op, const struct plugin *p, const char *action,
                 struct err *err)
{
        struct audit_request q = { db, op, p, action, err };

        return companies_list(db, NULL, op->arena, audit_company, &q, err);
}

struct commit_request {
        struct op *op;
        const struct plugin *seen;
        struct plugin *next;
        const char *action, *install_id;
};

static int commit_plugin(struct db *db, void *arg, struct err *err)
{
        struct commit_request *q = arg;

        q->next->updated_at = clock_now_us();
        int r = plugins_update(db, q->next, q->seen->updated_at, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "Plugin %s was changed meanwhile", q->seen->key);
        if (r >= 0 && q->install_id)
                r = plugin_installs_delete(db, q->install_id, err);
        if (r >= 0 && q->action)
                r = plugin_audit(db, q->op, q->next, q->action, err);
        return r;
}

int plugin_commit(struct op *op, struct runtime *rt, const struct plugin *seen, struct plugin *next,
                  const char *action, const char *install_id, struct err *err)
{
        struct commit_request q = { op, seen, next, action, install_id };
        int r = plugin_transition_check(seen->status, next->status, seen->key, err);

        return r < 0 ? r : store_write(op, rt->store, commit_plugin, &q, err);
}

/* One change at a time */

static bool try_hold(struct plugin_registry *reg, const char *key)
{
        struct plugin_held *h;

        pthread_mutex_lock(&reg->lock);
        for (h = reg->held; h && !streq(h->key, key); h = h->next)
                ;
        if (!h) {
                struct plugin_held *mine = xcalloc(1, sizeof(*mine));

                mine->key = xstrdup(key);
                mine->next = reg->held;
                reg->held = mine;
        }
        pthread_mutex_unlock(&reg->lock);
        return !h;
}

int plugin_hold(struct op *op, struct plugin_registry *reg, const char *key, struct err *err)
{
        int64_t until = clock_mono_ms() + PLUGIN_HOLD_MS;

        while (!try_hold(reg, key)) {
                int r = op_wait_fd(op, -1, 0, HOLD_RETRY_MS, err);

                if (r < 0)
                        return r;
                if (clock_mono_ms() >= until)
                        return err_set(err, ERR_CONFLICT,
                                       "Plugin %s is being changed; try again when that is done",
                                       key);
        }
        return 0;
}

void plugin_let_go(struct plugin_registry *reg, const char *key)
{
        struct plugin_held **at, *found;

        pthread_mutex_lock(&reg->lock);
        for (at = &reg->held; !streq((*at)->key, key); at = &(*at)->next)
                ;
        found = *at;
        *at = found->next;
        pthread_mutex_unlock(&reg->lock);
        free(found->key);
        free(found);
}

/* Reports of the host, on the threads of the workers */

static void starting_free(struct plugin_starting *s)
{
        free(s->plugin_id);
        free(s->reason);
        free(s);
}

/* It is in the list only if it was to be activated at the start. */
static void starting_done(struct pool_job *job)
{
        struct plugin_starting *s = container_of(job, struct plugin_starting, job), **at;
        struct plugin_registry *reg = s->reg;

        pthread_mutex_lock(&reg->lock);
        for (at = &reg->starting; *at && *at != s; at = &(*at)->next)
                ;
        if (*at)
                *at = s->next;
        pthread_mutex_unlock(&reg->lock);
        starting_free(s);
}

/* The row should run and its worker will not be started again. */
static int record_failure(struct op *op, struct plugin_starting *s, struct err *err)
{
        struct runtime *rt = s->reg->config.rt;
        struct worker_view view;
        struct plugin seen, next;
        int r = plugin_load_row(op, rt, s->plugin_id, &seen, err);

        if (r < 0 || !plugin_status_runs(seen.status) ||
            (plugin_host_view(s->reg->host, s->plugin_id, &view) && !view.gave_up))
                return r;
        next = seen;
        next.status = PLUGIN_ERROR;
        next.last_error = s->reason;
        return plugin_commit(op, rt, &seen, &next, NULL, NULL, err);
}

/* The worker ended too often: now the row says so. A change of the plugin that is under way
 * finishes first: it may have been trying this worker. */
static void give_up_run(struct pool_job *job, struct op *op)
{
        struct plugin_starting *s = container_of(job, struct plugin_starting, job);
        CLEAN(err_done) struct err err = { 0 };
        struct plugin p;

        op->actor = &actor_system;
        int r = plugin_load_row(op, s->reg->config.rt, s->plugin_id, &p, &err);
        if (r >= 0)
                r = plugin_hold(op, s->reg, p.key, &err);
        if (r >= 0) {
                r = record_failure(op, s, &err);
                plugin_let_go(s->reg, p.key);
        }
        if (r < 0 && r != ERR_NOT_FOUND)
                log_error("a plugin's failure could not be recorded", LOG_S("plugin", s->plugin_id),
                          LOG_S("error", err.msg));
}

static void submit_give_up(struct letter *letter)
{
        struct plugin_starting *s = container_of(letter, struct plugin_starting, letter);

        s->job = (struct pool_job){ .run = give_up_run, .done = starting_done };
        pool_job_lane(&s->job, LANE_LINKS, lane_name(NULL, s->plugin_id));
        if (pool_submit(s->reg->config.pool, &s->job, NULL) < 0)
                starting_free(s);
}

static void worker_changed(void *ctx, const char *plugin_id, const struct worker_view *view)
{
        struct plugin_registry *reg = ctx;
        struct plugin_starting *s;

        if (!view->gave_up)
                return;
        s = xcalloc(1, sizeof(*s));
        s->reg = reg;
        s->plugin_id = xstrdup(plugin_id);
        s->reason = xstrdup(view->reason);
        mail_post(reg->config.mail, &s->letter, submit_give_up);
}

/* Life cycle */

/* No account and no sandbox may have the users of workers. */
static char *refuse_users(const struct settings *s)
{
        CLEAN(err_done) struct err why = { 0 };
        struct id_range range = { s->plugin_uid_first, s->plugin_uid_count };

        if (!s->plugin_confine || geteuid() != 0)
                return NULL;
        if (range.first < s->sandbox_uid_first + s->sandbox_uid_count &&
            s->sandbox_uid_first < range.first + range.count)
                return xstrdup("the ranges that plugin workers and sandboxes get overlap: set "
                               "plugin_uid_first and plugin_uid_count to one that is nobody's");
        return host_ids_are_free(range, "plugin workers", "plugin", &why) < 0 ? xstrdup(why.msg)
                                                                              : NULL;
}

static int make_policy(struct plugin_registry *reg, struct err *err)
{
        const struct settings *s = &reg->config.rt->settings;
        int r = path_make_durable_dirs(s->plugin_dir, 0700, err);

        if (r < 0)
                return r;
        reg->plugin_dir = realpath(s->plugin_dir, NULL);
        reg->data_dir = realpath(reg->config.rt->data_dir, NULL);
        if (!reg->plugin_dir || !reg->data_dir)
                return err_sys(err, ERR_IO, errno, "look at %s", s->plugin_dir);
        reg->staging_dir = xasprintf("%s/staging", reg->plugin_dir);
        reg->packages_dir = xasprintf("%s/packages", reg->plugin_dir);
        reg->private_dir = xasprintf("%s/private", reg->plugin_dir);
        reg->copies_dir = xasprintf("%s/copies", reg->plugin_dir);
        reg->never_shown[0] = reg->data_dir;
        reg->never_shown[1] = reg->plugin_dir;
        reg->refusal = refuse_users(s);
        reg->policy = (struct confine_policy){
                .trampoline = s->trampoline,
                .confine = s->plugin_confine,
                .uid_first = s->plugin_uid_first,
                .uid_count = s->plugin_uid_count,
                .refusal = reg->refusal,
                .private_dir = reg->private_dir,
                .never_shown = reg->never_shown,
        };
        pthread_mutex_init(&reg->policy.lock, NULL);
        return 0;
}

int plugin_registry_new(const struct plugin_registry_config *config, struct plugin_registry **ret,
                        struct err *err)
{
        const struct settings *s = &config->rt->settings;
        struct plugin_registry *reg = xcalloc(1, sizeof(*reg));
        struct plugin_host_config host = {
                .node = s->node,
                .policy = s->trampoline ? &reg->policy : NULL,
                .instance_id = config->rt->node.id.s,
                .host_version = PLUGIN_HOST_VERSION,
                .ctx = reg,
                .log = plugin_log_add,
                .changed = worker_changed,
        };

        reg->config = *config;
        pthread_mutex_init(&reg->lock, NULL);
        int r = make_policy(reg, err);
        reg->tools = (struct plugin_tools){
                .node = s->node ? s->node : "node",
                .npm = s->npm ? s->npm : "npm",
                .policy = host.policy,
                .scratch_dir = reg->staging_dir,
                .fetch_ms = s->plugin_install_timeout_ms,
                .manifest_ms = MIN(s->plugin_install_timeout_ms, MANIFEST_LIMIT),
        };
        if (r >= 0)
                r = plugin_host_new(&host, &reg->host, err);
        if (r < 0) {
                plugin_registry_free(reg);
                return r;
        }
        *ret = reg;
        return 0;
}

void plugin_registry_free(struct plugin_registry *reg)
{
        struct plugin_operation *o;
        struct plugin_starting *s;

        if (!reg)
                return;
        plugin_host_free(reg->host);
        while ((s = reg->starting)) {
                reg->starting = s->next;
                starting_free(s);
        }
        while ((o = reg->operations)) {
                reg->operations = o->next;
                plugin_operation_free(o);
        }
        plugin_logs_free(reg);
        pthread_mutex_destroy(&reg->lock);
        free(reg->staging_dir);
        free(reg->packages_dir);
        free(reg->private_dir);
        free(reg->copies_dir);
        free(reg->refusal);
        free(reg->data_dir);
        free(reg->plugin_dir);
        pthread_mutex_destroy(&reg->policy.lock);
        free(reg);
}

struct plugin_host *plugin_registry_host(struct plugin_registry *reg)
{
        return reg->host;
}

const char *plugin_registry_private_dir(const struct plugin_registry *reg)
{
        return reg->private_dir;
}

/* Starting */

struct sweep {
        struct op *op;
        struct plugin_registry *reg;
        json_t *wanted; /* install ids that rows name */
};

static void want(struct sweep *sweep, const char *install_id)
{
        if (install_id)
                json_object_set_new(sweep->wanted, install_id, json_true());
}

static int note_row(void *ctx, const struct plugin *p)
{
        struct sweep *sweep = ctx;
        CLEAN(json_decrefp) json_t *pending = NULL;
        struct plugin_starting *s, **at = &sweep->reg->starting;

        want(sweep, p->install_id);
        if (p->pending && json_parse(p->pending, strlen(p->pending), &pending, NULL) >= 0)
                want(sweep, json_get_string(pending, "installId"));
        if (!plugin_status_runs(p->status) && !streq(p->status, PLUGIN_INSTALLED))
                return 0;
        s = xcalloc(1, sizeof(*s));
        s->reg = sweep->reg;
        s->plugin_id = xstrdup(p->id);
        while (*at)
                at = &(*at)->next;
        *at = s;
        return 0;
}

static int forget_install(void *ctx, const struct plugin_install *row)
{
        json_t *gone = ctx;

        json_array_append_new(gone, json_string(row->id));
        return 0;
}

static int forget_installs(struct db *db, void *arg, struct err *err)
{
        struct sweep *sweep = arg;
        CLEAN(json_decrefp) json_t *gone = json_array();
        json_t *id;
        size_t i;
        int r = plugin_installs_list(db, sweep->op->arena, forget_install, gone, err);

        json_array_foreach(gone, i, id) if (r >= 0) r =
                plugin_installs_delete(db, json_string_value(id), err);
        return r;
}

static int remove_unwanted(void *ctx, const char *name)
{
        struct sweep *sweep = ctx;
        CLEAN(err_done) struct err err = { 0 };
        const char *path = arena_printf(sweep->op->arena, "%s/%s", sweep->reg->packages_dir, name);

        if (json_object_get(sweep->wanted, name))
                return 0;
        if (tree_remove(sweep->op, path, &err) < 0)
                log_warn("files of a plugin could not be removed", LOG_S("path", path),
                         LOG_S("error", err.msg));
        return 0;
}

/* A plugin directory has one owner: files of another daemon in it must not be swept. */
static int claim_directory(struct plugin_registry *reg, struct err *err)
{
        const char *dir = reg->config.rt->settings.plugin_dir;
        const char *node = reg->config.rt->node.id.s;
        CLEAN(buf_done) struct buf text = BUF_INIT;
        CLEAN(cleanup_fd) int fd = -1;
        int r = path_make_durable_dirs(dir, 0700, err);

        if (r < 0)
                return err_wrap(err, r, "plugin directory");
        fd = open(dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "open plugin directory %s", dir);
        r = file_read_at(fd, NODE_FILE, 64, &text, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return file_write_at(fd, NODE_FILE, node, strlen(node), 0600, err);
        }
        if (r >= 0 && !streq(buf_str(&text), node))
                return err_set(err, ERR_LOCKED,
                               "the plugin directory %s belongs to another daemon (node %s); "
                               "choose another with the setting plugin_dir",
                               dir, buf_str(&text));
        return r;
}

struct leftovers {
        struct op *op;
        const char *dir;
};

static int remove_leftover(void *ctx, const char *name)
{
        const struct leftovers *l = ctx;
        const char *path = arena_printf(l->op->arena, "%s/%s", l->dir, name);
        CLEAN(err_done) struct err err = { 0 };

        if (strncmp(name, PLUGIN_SYNC_DIR, strlen(PLUGIN_SYNC_DIR)) != 0 ||
            !uuid_is_valid(name + strlen(PLUGIN_SYNC_DIR)))
                return 0;
        if (tree_remove(l->op, path, &err) < 0)
                log_warn("files for a plugin could not be removed", LOG_S("path", path),
                         LOG_S("error", err.msg));
        return 0;
}

static int look_for_leftovers(void *ctx, const char *name)
{
        const struct leftovers *l = ctx;
        struct leftovers own = { l->op, arena_printf(l->op->arena, "%s/%s", l->dir, name) };

        (void)tree_each(own.dir, remove_leftover, &own, NULL);
        return 0;
}

void plugin_registry_remove_syncs(struct op *op, const char *private_dir)
{
        struct leftovers l = { op, private_dir };

        (void)tree_each(private_dir, look_for_leftovers, &l, NULL);
}

int plugin_registry_recover(struct op *op, struct plugin_registry *reg, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        CLEAN(json_decrefp) json_t *wanted = json_object();
        struct sweep sweep = { op, reg, wanted };
        struct store *store = reg->config.rt->store;
        int r = claim_directory(reg, err);

        if (r >= 0)
                r = store_read_begin(op, store, &db, err);
        if (r >= 0)
                r = plugins_list(db, NULL, op->arena, note_row, &sweep, err);
        store_read_end(&db);
        if (r >= 0)
                r = tree_remove(op, reg->staging_dir, err);
        if (r >= 0)
                r = path_make_durable_dirs(reg->staging_dir, 0700, err);
        if (r >= 0)
                r = path_make_durable_dirs(reg->packages_dir, 0700, err);
        if (r >= 0)
                r = path_make_durable_dirs(reg->private_dir, 0700, err);
        if (r >= 0)
                r = tree_remove(op, reg->copies_dir, err); /* workers get new ones */
        if (r >= 0)
                plugin_registry_remove_syncs(op, reg->private_dir);
        if (r >= 0)
                r = tree_each(reg->packages_dir, remove_unwanted, &sweep, err);
        if (r >= 0)
                r = store_write(op, store, forget_installs, &sweep, err);
        return r < 0 ? r : 0;
}

/* `installed` is the status that a crash between recording and loading leaves. */
static void start_run(struct pool_job *job, struct op *op)
{
        struct plugin_starting *s = container_of(job, struct plugin_starting, job);
        CLEAN(err_done) struct err err = { 0 };
        struct runtime *rt = s->reg->config.rt;
        struct plugin p, next;

        op->actor = &actor_system;
        int r = plugin_load_row(op, rt, s->plugin_id, &p, &err);
        if (r >= 0)
                r = plugin_hold(op, s->reg, p.key, &err);
        if (r < 0)
                return;
        r = plugin_load_row(op, rt, s->plugin_id, &p, &err);
        if (r >= 0 && streq(p.status, PLUGIN_INSTALLED)) {
                next = p;
                next.status = PLUGIN_READY;
                r = plugin_commit(op, rt, &p, &next, NULL, NULL, &err);
                p = next;
        }
        if (r >= 0 && plugin_status_runs(p.status))
                r = plugin_activate(op, rt, &p, true, &err);
        if (r < 0)
                log_error("a plugin could not be activated", LOG_S("plugin", p.key),
                          LOG_S("error", err.msg));
        plugin_let_go(s->reg, p.key);
}

void plugin_registry_start(struct plugin_registry *reg)
{
        for (struct plugin_starting *s = reg->starting, *next; s; s = next) {
                next = s->next;
                s->job = (struct pool_job){ .run = start_run, .done = starting_done };
                pool_job_lane(&s->job, LANE_STARTS, lane_name(NULL, s->plugin_id));
                if (pool_submit(reg->config.pool, &s->job, NULL) < 0)
                        starting_done(&s->job);
        }
}

bool plugin_registry_is_starting(struct plugin_registry *reg, const char *plugin_id)
{
        const struct plugin_starting *s;

        pthread_mutex_lock(&reg->lock);
        for (s = reg->starting; s && !streq(s->plugin_id, plugin_id); s = s->next)
                ;
        pthread_mutex_unlock(&reg->lock);
        return s != NULL;
}

/* Stopping */

struct stopping {
        struct pool_job job;
        struct plugin_registry *reg;
        void (*done)(void *arg);
        void *arg;
};

static void stop_run(struct pool_job *job, struct op *op)
{
        struct stopping *s = container_of(job, struct stopping, job);
        CLEAN(err_done) struct err err = { 0 };

        if (plugin_host_stop_all(op, s->reg->host, &err) < 0)
                log_warn("plugin workers did not stop in order", LOG_S("error", err.msg));
}

static void stop_done(struct pool_job *job)
{
        struct stopping *s = container_of(job, struct stopping, job);

        s->done(s->arg);
        free(s);
}

void plugin_registry_stop(struct plugin_registry *reg, void (*done)(void *arg), void *arg)
{
        struct stopping *s = xcalloc(1, sizeof(*s));

        *s = (struct stopping){ .job = { .run = stop_run, .done = stop_done, .urgent = true },
                                .reg = reg,
                                .done = done,
                                .arg = arg };
        if (pool_submit(reg->config.pool, &s->job, NULL) < 0) {
                free(s);
                done(arg); /* plugin_registry_free() kills the workers that run */
        }
}
