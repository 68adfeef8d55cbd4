#include "codec/secret_paths.h"

#define DEPTH_MAX 32

static bool has_text(const json_t *list, const char *text)
{
        json_t *item;
        size_t i;

        json_array_foreach(list, i, item) if (streq(json_string_value(item), text)) return true;
        return false;
}

static void walk(const json_t *schema, const char *prefix, unsigned depth, json_t *found);

static void walk_branches(const json_t *branches, const char *prefix, unsigned depth, json_t *found)
{
        json_t *branch;
        size_t i;

        json_array_foreach(branches, i, branch) if (json_is_object(branch))
                walk(branch, prefix, depth + 1, found);
}

static void walk_property(const char *key, const json_t *property, const char *prefix,
                          unsigned depth, json_t *found)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s%s%s", prefix, *prefix ? "." : "", key);
        const char *format = json_get_string(property, "format");

        if (format && streq(format, "secret-ref") && !has_text(found, path))
                json_array_append_new(found, json_string(path));
        walk(property, path, depth + 1, found);
}

static void walk(const json_t *schema, const char *prefix, unsigned depth, json_t *found)
{
        static const char *const compositions[] = { "allOf", "anyOf", "oneOf" };
        const char *key;
        json_t *property;

        if (depth > DEPTH_MAX)
                return;
        for (size_t i = 0; i < ARRAY_LEN(compositions); i++)
                walk_branches(json_object_get(schema, compositions[i]), prefix, depth, found);
        json_object_foreach(json_get_object(schema, "properties"), key, property)
        {
                if (json_is_object(property))
                        walk_property(key, property, prefix, depth, found);
        }
}

json_t *secret_paths(const json_t *schema)
{
        json_t *found = json_array();

        if (json_is_object(schema))
                walk(schema, "", 0, found);
        return found;
}

/* The object that holds the leaf, and in *ret_leaf its key there. NULL when the way ends before. */
static json_t *parent_of(json_t *config, const char *path, bool make, const char **ret_leaf)
{
        for (;;) {
                const char *dot = strchr(path, '.');
                CLEAN(cleanup_free) char *key = NULL;
                json_t *next;

                if (!json_is_object(config))
                        return NULL;
                if (!dot) {
                        *ret_leaf = path;
                        return config;
                }
                key = xstrndup(path, (size_t)(dot - path));
                next = json_object_get(config, key);
                if (!json_is_object(next) && make) {
                        next = json_object();
                        json_object_set_new(config, key, next);
                }
                config = next;
                path = dot + 1;
        }
}

json_t *secret_path_get(const json_t *config, const char *path)
{
        const char *leaf;
        json_t *parent = parent_of((json_t *)config, path, false, &leaf);

        return parent ? json_object_get(parent, leaf) : NULL;
}

void secret_path_set(json_t *config, const char *path, json_t *take_value)
{
        const char *leaf;
        json_t *parent = parent_of(config, path, take_value != NULL, &leaf);

        if (parent && take_value)
                json_object_set_new(parent, leaf, take_value);
        else if (parent)
                json_object_del(parent, leaf);
        else
                json_decref(take_value);
}

void secret_path_prune(json_t *config, const char *path)
{
        CLEAN(cleanup_free) char *rest = xstrdup(path);
        char *dot;

        if (!secret_path_get(config, path))
                return;
        secret_path_set(config, path, NULL);
        while ((dot = strrchr(rest, '.'))) {
                json_t *parent;

                *dot = '\0';
                parent = secret_path_get(config, rest);
                if (!json_is_object(parent) || json_object_size(parent) > 0)
                        return;
                secret_path_set(config, rest, NULL);
        }
}
