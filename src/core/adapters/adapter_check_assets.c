/* Decides what a descriptor may say about assets. */
#include "core/adapters/adapter_check.h"

static bool is_variable(const char *s)
{
        return s && *s && !(*s >= '0' && *s <= '9') &&
               s[strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")] == '\0';
}

static bool is_asset_key(const char *s)
{
        return s && *s && strlen(s) <= 64 && !streq(s, "workspace") && !streq(s, "git-workspace") &&
               s[strspn(s, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-")] ==
                       '\0';
}

/* A path that stays beneath its starting point; "" is the starting point itself. */
static bool is_inner(const char *path)
{
        while (*path) {
                size_t n = strcspn(path, "/");

                if (n == 0 || (n <= 2 && strspn(path, ".") >= n))
                        return false;
                path += n;
                if (*path == '/' && !*++path)
                        return false;
        }
        return true;
}

static bool are_names(const json_t *list)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)list, i, one)
        {
                const char *name = json_string_value(one);

                if (!*name || strchr(name, '/') || !is_inner(name))
                        return false;
        }
        return true;
}

static int check_paths(const json_t *part, const char *where, struct err *err)
{
        static const char *const paths[] = { "skills",  "instructions", "user",
                                             "keyFile", "tree",         "into" };
        static const char *const lists[] = { "files", "link", "exclude" };

        for (size_t i = 0; i < ARRAY_LEN(paths); i++) {
                const char *path = json_get_string(part, paths[i]);

                if (path && !is_inner(path))
                        return adapter_check_bad(err, where, paths[i], "has to be a relative path");
        }
        for (size_t i = 0; i < ARRAY_LEN(lists); i++)
                if (!are_names(json_object_get(part, lists[i])))
                        return adapter_check_bad(err, where, lists[i], "has to be a list of names");
        return 0;
}

static int check_part(const json_t *part, const char *where, struct err *err)
{
        static const char *const kinds[] = { "skills", "instructions", "user", "keyFile" };
        const char *variable = json_get_string(part, "variable");
        const char *company = json_get_string(part, "company");
        const char *key_file = json_get_string(part, "keyFile");
        const char *instructions = json_get_string(part, "instructions");
        size_t n = 0;

        for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
                n += json_object_get(part, kinds[i]) != NULL;
        if (n != 1)
                return adapter_check_bad(
                        err, where, "", "needs one of `skills`, `instructions`, `user`, `keyFile`");
        if (instructions && !*instructions)
                return adapter_check_bad(err, where, "instructions", "has to name a file");
        if (variable && !is_variable(variable))
                return adapter_check_bad(err, where, "variable",
                                         "has to be the name of a variable");
        if (key_file && (!variable || !*key_file))
                return adapter_check_bad(err, where, "keyFile",
                                         "has to name a file, and needs `variable`");
        if (company && !adapter_check_is_word(company))
                return adapter_check_bad(err, where, "company",
                                         "has to be a word of a-z, 0-9, _ and -");
        return check_paths(part, where, err);
}

/* What an asset is made of. */
static int check_from(const json_t *list, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "skills", TEXT, NULL, NULL },
                                                         { "instructions", TEXT, NULL, NULL },
                                                         { "user", TEXT, NULL, NULL },
                                                         { "variable", TEXT, NULL, NULL },
                                                         { "company", TEXT, NULL, NULL },
                                                         { "into", TEXT, NULL, NULL },
                                                         { "files", WORDS, NULL, NULL },
                                                         { "link", WORDS, NULL, NULL },
                                                         { "exclude", WORDS, NULL, NULL },
                                                         { "keyFile", TEXT, NULL, NULL },
                                                         { "tree", TEXT, NULL, NULL },
                                                         { "whole", FLAG, NULL, NULL },
                                                         { 0 } };
        size_t i;
        json_t *part;
        int r = adapter_check_each(list, members, where, err);

        json_array_foreach((json_t *)list, i, part)
        {
                CLEAN(cleanup_free) char *inner = xasprintf("%s[%zu]", where, i);

                if (r >= 0)
                        r = check_part(part, inner, err);
        }
        return r;
}

static bool is_there_before(const json_t *list, size_t end, const char *key)
{
        for (size_t i = 0; i < end; i++) {
                const char *other = json_get_string(json_array_get(list, i), "key");

                if (other && streq(other, key))
                        return true;
        }
        return false;
}

static int check_asset(const json_t *list, size_t at, const char *where, struct err *err)
{
        const json_t *asset = json_array_get(list, at);
        const char *key = json_get_string(asset, "key");

        if (!is_asset_key(key))
                return adapter_check_bad(err, where, "key",
                                         "has to be a word of letters, 0-9, _ and -, and not "
                                         "`workspace`");
        if (is_there_before(list, at, key))
                return adapter_check_bad(err, where, "key", "is there twice");
        if (!json_object_get(asset, "from"))
                return adapter_check_bad(err, where, "from", "is missing");
        if (!are_names(json_object_get(asset, "keep")))
                return adapter_check_bad(err, where, "keep", "has to be a list of names");
        return 0;
}

static int check_says(const json_t *says, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "file", TEXT, NULL, NULL },
                                                         { "like", PATTERNS, NULL, NULL },
                                                         { 0 } };
        const char *file = json_get_string(says, "file");
        int r = adapter_check_members(says, members, where, err);

        if (r >= 0 && (!file || !*file || !is_inner(file)))
                return adapter_check_bad(err, where, "file", "has to be a relative path");
        return r;
}

int adapter_check_assets(const json_t *list, const char *where, struct err *err)
{
        static const struct adapter_member members[] = { { "key", TEXT, NULL, NULL },
                                                         { "on", WORDS, NULL, NULL },
                                                         { "when", CONDITION, NULL, NULL },
                                                         { "from", LIST, NULL, check_from },
                                                         { "followSymlinks", FLAG, NULL, NULL },
                                                         { "keep", WORDS, NULL, NULL },
                                                         { "copyTo", TEXT, NULL, NULL },
                                                         { "says", OBJECT, NULL, check_says },
                                                         { 0 } };
        int r = adapter_check_each(list, members, where, err);

        for (size_t i = 0; r >= 0 && i < json_array_size(list); i++) {
                CLEAN(cleanup_free) char *inner = xasprintf("%s[%zu]", where, i);

                r = check_asset(list, i, inner, err);
        }
        return r;
}
