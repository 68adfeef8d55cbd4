/* Copies the given members of a body over a row. */
#include "core/patch.h"

bool patch_text(struct check *c, struct arena *arena, const char *key, const char **row)
{
        const char *text = check_string(c, key, CHECK_NULLABLE, 0, 0);

        if (check_has(c, key))
                *row = arena_strdup(arena, text);
        return check_has(c, key);
}

bool patch_uuid(struct check *c, struct arena *arena, const char *key, const char **row)
{
        const char *id = check_uuid(c, key, CHECK_NULLABLE);

        if (check_has(c, key))
                *row = arena_strdup(arena, id);
        return check_has(c, key);
}

bool patch_word(struct check *c, struct arena *arena, const char *key, const char *const *words,
                const char **row)
{
        const char *word = check_enum(c, key, CHECK_OPTIONAL, words);

        if (word)
                *row = arena_strdup(arena, word);
        return word != NULL;
}

static void drop(void *value)
{
        json_decref(value);
}

json_t *patch_names(struct arena *arena, const json_t *body, const char *const *members)
{
        json_t *list = json_array();

        for (; *members; members++)
                if (json_object_get(body, *members))
                        json_array_append_new(list, json_string(*members));
        arena_defer(arena, drop, list);
        return list;
}
