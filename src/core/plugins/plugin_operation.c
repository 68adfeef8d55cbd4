/* Installs and upgrades in the background, and their progress. The last few are remembered, in
 * memory: after a restart only the plugin's row is known. */
#include "base/clock.h"
#include "base/log.h"
#include "core/plugins/plugin_internal.h"

struct background {
        struct letter letter;
        struct pool_job job;
        struct arena arena;
        struct plugin_registry *reg;
        struct plugin_operation *operation;
        struct actor actor;
        const char *plugin_id; /* NULL: an install */
        const char *run_id;
        json_t *body;
};

void plugin_operation_free(struct plugin_operation *o)
{
        for (size_t i = 0; i < PLUGIN_LINES_MAX; i++)
                free(o->lines[i]);
        free(o->package_name);
        free(o->text);
        free(o);
}

void plugin_say(void *ctx, const char *line)
{
        const struct plugin_sink *sink = ctx;
        struct plugin_operation *o = sink->operation;

        log_debug("plugin operation", LOG_S("line", line));
        if (!o)
                return;
        pthread_mutex_lock(&sink->reg->lock);
        char **at = &o->lines[o->n_lines++ % PLUGIN_LINES_MAX];
        free(*at);
        *at = xstrndup(line, 500);
        pthread_mutex_unlock(&sink->reg->lock);
}

static void background_finish(struct background *b, int code, const char *text,
                              const char *plugin_id)
{
        struct plugin_operation *o = b->operation;

        pthread_mutex_lock(&b->reg->lock);
        o->code = code;
        o->text = code < 0 ? xstrdup(text) : NULL;
        if (plugin_id)
                (void)uuid_parse(plugin_id, &o->plugin_id);
        o->done = true;
        pthread_mutex_unlock(&b->reg->lock);
}

static void background_free(struct background *b)
{
        json_decref(b->body);
        arena_done(&b->arena);
        free(b);
}

static void background_run(struct pool_job *job, struct op *op)
{
        struct background *b = container_of(job, struct background, job);
        struct plugin_sink sink = { b->reg, b->operation };
        struct runtime *rt = b->reg->config.rt;
        CLEAN(err_done) struct err err = { 0 };
        struct plugin p = { 0 };
        int r;

        op->actor = &b->actor;
        op->run_id = b->run_id;
        if (b->plugin_id)
                r = plugin_do_upgrade(op, rt, b->plugin_id, b->body, &sink, &p, &err);
        else
                r = plugin_do_install(op, rt, b->body, &sink, &p, &err);
        background_finish(b, r, err.msg, r < 0 ? NULL : p.id);
}

static void background_done(struct pool_job *job)
{
        background_free(container_of(job, struct background, job));
}

static void background_submit(struct letter *letter)
{
        struct background *b = container_of(letter, struct background, letter);
        CLEAN(err_done) struct err err = { 0 };

        b->job = (struct pool_job){ .run = background_run, .done = background_done };
        pool_job_lane(&b->job, LANE_PEERS,
                      lane_name(NULL, b->plugin_id ? b->plugin_id : "install"));
        int r = pool_submit(b->reg->config.pool, &b->job, &err);
        if (r < 0) {
                background_finish(b, r, err.msg, NULL);
                background_free(b);
        }
}

/* The oldest that are done are forgotten. */
static struct plugin_operation *add_operation(struct plugin_registry *reg, const char *name)
{
        struct plugin_operation *o = xcalloc(1, sizeof(*o)), **at = &reg->operations;
        size_t n = 0;

        o->id = uuid_new();
        o->package_name = xstrdup(name ? name : "");
        pthread_mutex_lock(&reg->lock);
        o->next = reg->operations;
        reg->operations = o;
        while (*at) {
                struct plugin_operation *old = *at;

                if (++n > PLUGIN_OPERATIONS_MAX && old->done) {
                        *at = old->next;
                        plugin_operation_free(old);
                } else {
                        at = &old->next;
                }
        }
        pthread_mutex_unlock(&reg->lock);
        return o;
}

static void copy_actor(struct background *b, const struct op *op)
{
        struct arena *a = &b->arena;

        b->actor = *op->actor;
        b->actor.user_id = arena_strdup(a, op->actor->user_id);
        b->actor.agent_id = arena_strdup(a, op->actor->agent_id);
        b->actor.company_id = arena_strdup(a, op->actor->company_id);
        b->actor.key_id = arena_strdup(a, op->actor->key_id);
        b->run_id = arena_strdup(a, op->run_id);
}

int plugin_begin(struct op *op, struct runtime *rt, const char *id_or_key, json_t *body,
                 struct uuid *ret_id, struct err *err)
{
        struct plugin_registry *reg = rt->plugins;
        struct background *b;
        struct plugin p = { 0 };
        int r = access_admin(op->actor, "Instance admin access required", err);

        if (r >= 0 && id_or_key)
                r = plugin_load_row(op, rt, id_or_key, &p, err);
        if (r < 0)
                return r;
        b = xcalloc(1, sizeof(*b));
        arena_init(&b->arena);
        b->reg = reg;
        b->plugin_id = arena_strdup(&b->arena, p.id);
        b->body = json_deep_copy(body);
        copy_actor(b, op);
        b->operation =
                add_operation(reg, p.id ? p.package_name : json_get_string(body, "packageName"));
        *ret_id = b->operation->id;
        mail_post(reg->config.mail, &b->letter, background_submit);
        return 0;
}

/* Showing */

int plugin_progress(struct op *op, struct runtime *rt, const char *operation_id, int64_t after,
                    struct plugin_progress *ret, struct err *err)
{
        struct plugin_registry *reg = rt->plugins;
        struct plugin_operation *o;
        size_t first;
        int r = access_admin(op->actor, "Instance admin access required", err);

        if (r < 0)
                return r;
        pthread_mutex_lock(&reg->lock);
        for (o = reg->operations; o && !streq(o->id.s, operation_id); o = o->next)
                ;
        if (o) {
                *ret = (struct plugin_progress){
                        .package_name = arena_strdup(op->arena, o->package_name),
                        .done = o->done,
                        .code = o->code,
                        .text = arena_strdup(op->arena, o->text),
                        .plugin_id = o->plugin_id,
                        .next = (int64_t)o->n_lines,
                        .lines = arena_alloc(op->arena, PLUGIN_LINES_MAX * sizeof(*ret->lines)),
                };
                first = o->n_lines > PLUGIN_LINES_MAX ? o->n_lines - PLUGIN_LINES_MAX : 0;
                for (size_t i = MAX(first, (size_t)MAX(after, 0)); i < o->n_lines; i++)
                        ret->lines[ret->n_lines++] =
                                arena_strdup(op->arena, o->lines[i % PLUGIN_LINES_MAX]);
        }
        pthread_mutex_unlock(&reg->lock);
        return o ? 0 : err_set(err, ERR_NOT_FOUND, "Plugin operation not found");
}
