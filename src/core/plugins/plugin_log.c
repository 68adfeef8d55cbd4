/* The output of workers: the last lines of each plugin, in memory. Through some providers commands
 * print secrets and customers' texts, so none of it is kept on disk. */
#include "base/clock.h"
#include "core/access/audit.h"
#include "core/plugins/plugin_internal.h"

#define LOG_LINES_MAX 500
#define LOG_BYTES_MAX ((size_t)1 << 20) /* of one plugin */
#define MESSAGE_MAX   ((size_t)8192)
#define META_MAX      ((size_t)8192)

struct line {
        struct line *next;
        struct uuid id;
        char level[8];
        char *message, *meta;
        size_t size;
        int64_t at;
};

struct plugin_log {
        struct plugin_log *next;
        char *key;
        struct line *first, *last; /* from old to new */
        size_t n, bytes;
};

static void log_drop_first(struct plugin_log *l)
{
        struct line *old = l->first;

        l->first = old->next;
        l->n--;
        l->bytes -= old->size;
        free(old->message);
        free(old->meta);
        free(old);
}

static struct plugin_log *find_log(struct plugin_registry *reg, const char *key)
{
        struct plugin_log *l = reg->logs;

        while (l && !streq(l->key, key))
                l = l->next;
        return l;
}

static void log_free(struct plugin_log *l)
{
        while (l->first)
                log_drop_first(l);
        free(l->key);
        free(l);
}

/* Hide the values of members with names of secrets, whatever they are. */
static char *clean_meta(const char *meta)
{
        CLEAN(json_decrefp) json_t *v = NULL;

        if (!meta || strlen(meta) > META_MAX || json_parse(meta, strlen(meta), &v, NULL) < 0)
                return NULL;
        audit_redact(v);
        return json_to_text(v);
}

void plugin_log_add(void *registry, const char *plugin_key, const char *level, const char *message,
                    const char *meta)
{
        struct plugin_registry *reg = registry;
        struct line *line = xcalloc(1, sizeof(*line));

        line->id = uuid_new();
        line->at = clock_now_us();
        line->message = xstrndup(message, MESSAGE_MAX);
        line->meta = clean_meta(meta);
        strncpy(line->level, level, sizeof(line->level) - 1);
        line->size = sizeof(*line) + strlen(line->message) + (line->meta ? strlen(line->meta) : 0);

        pthread_mutex_lock(&reg->lock);
        struct plugin_log *l = find_log(reg, plugin_key);
        if (!l) {
                l = xcalloc(1, sizeof(*l));
                l->key = xstrdup(plugin_key);
                l->next = reg->logs;
                reg->logs = l;
        }
        if (l->first)
                l->last->next = line;
        else
                l->first = line;
        l->last = line;
        l->n++;
        l->bytes += line->size;
        while (l->n > LOG_LINES_MAX || (l->n > 1 && l->bytes > LOG_BYTES_MAX))
                log_drop_first(l);
        pthread_mutex_unlock(&reg->lock);
}

void plugin_log_forget(struct plugin_registry *reg, const char *plugin_key)
{
        struct plugin_log **at, *found;

        pthread_mutex_lock(&reg->lock);
        for (at = &reg->logs; *at && !streq((*at)->key, plugin_key); at = &(*at)->next)
                ;
        found = *at;
        if (found)
                *at = found->next;
        pthread_mutex_unlock(&reg->lock);
        if (found)
                log_free(found);
}

void plugin_logs_free(struct plugin_registry *reg)
{
        struct plugin_log *l;

        while ((l = reg->logs)) {
                reg->logs = l->next;
                log_free(l);
        }
}

/* Showing */

int plugin_logs(struct op *op, struct runtime *rt, const char *id_or_key,
                const struct plugin_log_filter *f, struct plugin *ret_plugin,
                struct plugin_log_line **ret, size_t *ret_n, struct err *err)
{
        const struct line *shown[LOG_LINES_MAX];
        struct plugin_registry *reg = rt->plugins;
        size_t n = 0;
        int r = access_admin(op->actor, "Instance admin access required", err);

        /* One worker serves all companies, and may print anything about each. */
        if (r >= 0)
                r = plugin_get(op, rt, id_or_key, ret_plugin, err);
        if (r < 0)
                return r;
        *ret = arena_alloc(op->arena, LOG_LINES_MAX * sizeof(**ret));
        *ret_n = 0;
        pthread_mutex_lock(&reg->lock);
        const struct plugin_log *l = find_log(reg, ret_plugin->key);
        for (const struct line *line = l ? l->first : NULL; line; line = line->next)
                if ((!f->level || streq(f->level, line->level)) && line->at >= f->since_us)
                        shown[n++] = line;
        /* Newest first; the list is linked the other way round. */
        while (n > 0 && (int64_t)*ret_n < f->limit) {
                const struct line *line = shown[--n];

                (*ret)[(*ret_n)++] = (struct plugin_log_line){
                        .id = line->id,
                        .level = arena_strdup(op->arena, line->level),
                        .message = arena_strdup(op->arena, line->message),
                        .meta = arena_strdup(op->arena, line->meta),
                        .at = line->at,
                };
        }
        pthread_mutex_unlock(&reg->lock);
        return 0;
}
