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

static void line_free(struct line *l)
{
        free(l->message);
        free(l->meta);
        free(l);
}

static struct plugin_log *find_log(struct plugin_registry *reg, const char *key)
{
        struct plugin_log *l = reg->logs;

        while (l && !streq(l->key, key))
                l = l->next;
        return l;
}

static struct plugin_log *make_log(struct plugin_registry *reg, const char *key)
{
        struct plugin_log *l = find_log(reg, key);

        if (l)
                return l;
        l = xcalloc(1, sizeof(*l));
        l->key = xstrdup(key);
        l->next = reg->logs;
        reg->logs = l;
        return l;
}

static void log_free(struct plugin_log *l)
{
        struct line *line;

        while ((line = l->first)) {
                l->first = line->next;
                line_free(line);
        }
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

static void trim(struct plugin_log *l)
{
        while (l->n > LOG_LINES_MAX || (l->n > 1 && l->bytes > LOG_BYTES_MAX)) {
                struct line *old = l->first;

                l->first = old->next;
                l->n--;
                l->bytes -= old->size;
                line_free(old);
        }
}

void plugin_log_add(struct plugin_registry *reg, const char *plugin_key, const char *level,
                    const char *message, const char *meta)
{
        struct line *line = xcalloc(1, sizeof(*line));
        struct plugin_log *l;

        line->id = uuid_new();
        line->at = clock_now_us();
        line->message = xstrndup(message, MESSAGE_MAX);
        line->meta = clean_meta(meta);
        strncpy(line->level, level, sizeof(line->level) - 1);
        line->size = sizeof(*line) + strlen(line->message) + (line->meta ? strlen(line->meta) : 0);

        pthread_mutex_lock(&reg->lock);
        l = make_log(reg, plugin_key);
        if (l->first)
                l->last->next = line;
        else
                l->first = line;
        l->last = line;
        l->n++;
        l->bytes += line->size;
        trim(l);
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

static bool fits(const struct line *line, const struct plugin_log_filter *f)
{
        return (!f->level || streq(f->level, line->level)) && line->at >= f->since_us;
}

static void write_line(struct jw *w, const struct line *line, const char *plugin_id)
{
        jw_object(w);
        jw_kstring(w, "id", line->id.s);
        jw_kstring(w, "pluginId", plugin_id);
        jw_kstring(w, "level", line->level);
        jw_kstring(w, "message", line->message);
        jw_kraw(w, "meta", line->meta);
        jw_ktime(w, "createdAt", line->at);
        jw_object_end(w);
}

/* Newest first; the list is linked the other way round. */
static void write_lines(struct jw *w, const struct plugin_log *l, const char *plugin_id,
                        const struct plugin_log_filter *f)
{
        const struct line *shown[LOG_LINES_MAX];
        size_t n = 0;

        for (const struct line *line = l ? l->first : NULL; line; line = line->next)
                if (fits(line, f))
                        shown[n++] = line;
        for (size_t i = 0; i < n && (int64_t)i < f->limit; i++)
                write_line(w, shown[n - 1 - i], plugin_id);
}

int plugin_logs(struct op *op, struct runtime *rt, const char *id_or_key,
                const struct plugin_log_filter *filter, struct buf *ret_json, struct err *err)
{
        struct plugin p;
        struct jw w;
        int r = access_admin(op->actor, "Instance admin access required", err);

        /* One worker serves all companies, and may print anything about each. */
        if (r >= 0)
                r = plugin_get(op, rt, id_or_key, &p, err);
        if (r < 0)
                return r;
        jw_init(&w, ret_json);
        jw_array(&w);
        pthread_mutex_lock(&rt->plugins->lock);
        write_lines(&w, find_log(rt->plugins, p.key), p.id, filter);
        pthread_mutex_unlock(&rt->plugins->lock);
        jw_array_end(&w);
        return 0;
}
