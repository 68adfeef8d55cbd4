/* Which variables a plugin worker gets. */
#include "plugin/env.h"

#define ENV_MAX 128

struct env_list {
        struct arena *arena;
        const char **items;
        size_t n;
};

static bool has_name(const struct env_list *l, const char *name)
{
        size_t len = strlen(name);

        for (size_t i = 0; i < l->n; i++)
                if (strncmp(l->items[i], name, len) == 0 && l->items[i][len] == '=')
                        return true;
        return false;
}

static void env_put(struct env_list *l, const char *name, const char *value)
{
        if (l->n < ENV_MAX)
                l->items[l->n++] = arena_printf(l->arena, "%s=%s", name, value ? value : "");
}

static const char *host_value(const char *name, const char *fallback)
{
        const char *value = getenv(name);

        return value && *value ? value : fallback;
}

static char *trim_item(struct arena *arena, const char *s, size_t n)
{
        return arena_strtrim(arena, arena_strndup(arena, s, n));
}

void plugin_setting_each(const char *list, const char *plugin_key, struct arena *arena,
                         void (*fn)(void *ctx, const char *item), void *ctx)
{
        while (list && *list) {
                size_t n = strcspn(list, ",");
                const char *item = trim_item(arena, list, n);
                const char *colon = item ? strchr(item, ':') : NULL;

                if (colon) {
                        size_t key = (size_t)(colon - item);

                        if (strlen(plugin_key) == key && strncmp(item, plugin_key, key) == 0)
                                fn(ctx, colon + 1);
                } else if (item) {
                        fn(ctx, item);
                }
                list += n + (list[n] == ',');
        }
}

/* The fixed names are there already and win. */
static void allow(void *ctx, const char *name)
{
        struct env_list *l = ctx;
        const char *value = getenv(name);

        if (value && *value && !has_name(l, name))
                env_put(l, name, value);
}

const char *const *plugin_env(const struct plugin_env_spec *spec, struct arena *arena)
{
        struct env_list l = { .arena = arena };

        l.items = arena_alloc(arena, (ENV_MAX + 1) * sizeof(*l.items));
        env_put(&l, "PATH", host_value("PATH", ""));
        env_put(&l, "NODE_PATH", host_value("NODE_PATH", ""));
        env_put(&l, "PAPERCLIP_PLUGIN_ID", spec->plugin_id);
        env_put(&l, "NODE_ENV", host_value("NODE_ENV", "production"));
        env_put(&l, "TZ", host_value("TZ", "UTC"));
        env_put(&l, "PAPERCLIP_DEPLOYMENT_MODE", spec->deployment_mode);
        env_put(&l, "PAPERCLIP_DEPLOYMENT_EXPOSURE", spec->deployment_exposure);
        if (spec->private_dir)
                env_put(&l, "TMPDIR", arena_printf(arena, "%s/tmp", spec->private_dir));
        plugin_setting_each(spec->allowed, spec->plugin_key, arena, allow, &l);
        if (spec->private_dir && !has_name(&l, "HOME"))
                env_put(&l, "HOME", spec->private_dir);
        return l.items;
}
