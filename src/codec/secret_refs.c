/* Finds references to secrets by a schema, and reads and changes members by path. */
#include "codec/secret_refs.h"

#include "base/uuid.h"

static bool has_path(const json_t *paths, const char *path)
{
        json_t *item;
        size_t i;

        json_array_foreach(paths, i, item) if (streq(json_string_value(item), path)) return true;
        return false;
}

static void walk_schema(const json_t *schema, const char *prefix, json_t *paths);

static void walk_branches(const json_t *schema, const char *prefix, json_t *paths)
{
        static const char *const kinds[] = { "allOf", "anyOf", "oneOf" };

        for (size_t k = 0; k < ARRAY_LEN(kinds); k++) {
                json_t *branches = json_object_get(schema, kinds[k]), *branch;
                size_t i;

                if (!json_is_array(branches))
                        continue;
                json_array_foreach(branches, i, branch) walk_schema(branch, prefix, paths);
        }
}

/* As deep as the document, which json_parse() bounds. */
static void walk_schema(const json_t *schema, const char *prefix, json_t *paths)
{
        json_t *property;
        const char *key;

        if (!json_is_object(schema))
                return;
        walk_branches(schema, prefix, paths);
        json_object_foreach(json_get_object(schema, "properties"), key, property)
        {
                CLEAN(cleanup_free) char *path = NULL;
                const char *format = json_get_string(property, "format");

                if (!json_is_object(property))
                        continue;
                path = *prefix ? xasprintf("%s.%s", prefix, key) : xstrdup(key);
                if (format && streq(format, "secret-ref") && !has_path(paths, path) &&
                    json_array_size(paths) < SECRET_REFS_MAX)
                        json_array_append_new(paths, json_string(path));
                walk_schema(property, path, paths);
        }
}

json_t *secret_ref_paths(const json_t *schema)
{
        json_t *paths = json_array();

        walk_schema(schema, "", paths);
        return paths;
}

bool secret_ref_is(const json_t *value)
{
        const char *type = json_get_string(value, "type");

        return type && streq(type, "secret_ref");
}

bool secret_ref_read(const json_t *value, const char **ret_id, int64_t *ret_version)
{
        const json_t *version = json_object_get(value, "version");
        const char *named = json_string_value(version);

        *ret_id = json_get_string(value, "secretId");
        *ret_version = json_integer_value(version);
        return secret_ref_is(value) && *ret_id && uuid_is_valid(*ret_id) &&
               (!version || (named && streq(named, "latest")) || *ret_version > 0);
}

json_t *json_path_get(const json_t *doc, const char *path)
{
        CLEAN(cleanup_free) char *copy = xstrdup(path);
        json_t *at = json_is_object(doc) ? (json_t *)doc : NULL;
        char *key = copy, *dot;

        while (at && (dot = strchr(key, '.')) != NULL) {
                *dot = '\0';
                at = json_get_object(at, key);
                key = dot + 1;
        }
        return at ? json_object_get(at, key) : NULL;
}

void json_path_set(json_t *doc, const char *path, json_t *take_value)
{
        CLEAN(cleanup_free) char *copy = xstrdup(path);
        char *key = copy, *dot;

        while ((dot = strchr(key, '.')) != NULL) {
                json_t *inner;

                *dot = '\0';
                inner = json_get_object(doc, key);
                if (!inner) {
                        inner = json_object();
                        json_object_set_new(doc, key, inner);
                }
                doc = inner;
                key = dot + 1;
        }
        if (take_value)
                json_object_set_new(doc, key, take_value);
        else
                json_object_del(doc, key);
}

void json_path_prune(json_t *doc, const char *path)
{
        CLEAN(cleanup_free) char *rest = xstrdup(path);
        char *dot;

        if (!json_path_get(doc, path))
                return;
        json_path_set(doc, path, NULL);
        while ((dot = strrchr(rest, '.'))) {
                json_t *parent;

                *dot = '\0';
                parent = json_path_get(doc, rest);
                if (!json_is_object(parent) || json_object_size(parent) > 0)
                        return;
                json_path_set(doc, rest, NULL);
        }
}
