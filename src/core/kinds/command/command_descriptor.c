/* Decides which descriptors are accepted. */
#include "core/kinds/command/command_descriptor.h"

#include <ctype.h>
#include <regex.h>

#include "core/kinds/command/command_internal.h"

#define NAME_MAX_LEN 40
#define OPTIONS_MAX  64
#define TEXT_MAX_LEN 4096
#define SECONDS_MAX  86400
#define ERRORS_MAX   64
#define DEPTH_MAX    16

const char *const command_verbs[COMMAND_N_VERBS] = {
        "probe", "create", "wait", "reach", "destroy", "list", "pause", "resume", "renew",
};

const char *const command_word_names[WORD_N] = {
        "id", "name", "ref", "node", "company", "environment", "sh", "login", "lostAfterSeconds",
};

/* Which words each verb may name. */
#define ABOUT_PLACE                                                                                \
        (1u << WORD_ID | 1u << WORD_NAME | 1u << WORD_NODE | 1u << WORD_COMPANY |                  \
         1u << WORD_ENVIRONMENT)
static const unsigned allowed[COMMAND_N_VERBS] = {
        [COMMAND_PROBE] = 1u << WORD_NODE,
        [COMMAND_CREATE] = ABOUT_PLACE | 1u << WORD_LOST_AFTER,
        [COMMAND_WAIT] = ABOUT_PLACE | 1u << WORD_REF,
        [COMMAND_REACH] = ABOUT_PLACE | 1u << WORD_REF | 1u << WORD_SH | 1u << WORD_LOGIN,
        [COMMAND_DESTROY] = ABOUT_PLACE,
        [COMMAND_LIST] = 1u << WORD_NODE,
        [COMMAND_PAUSE] = ABOUT_PLACE | 1u << WORD_REF,
        [COMMAND_RESUME] = ABOUT_PLACE | 1u << WORD_REF,
        [COMMAND_RENEW] = ABOUT_PLACE | 1u << WORD_REF,
};

struct checking {
        const json_t *descriptor, *options;
        const char *where;
        unsigned words; /* that may be named here */
        bool secrets;   /* may be named here */
        struct err *err;
};

static int bad(const struct checking *c, const char *member, const char *what)
{
        return err_set(c->err, ERR_INVALID, "%s%s%s: %s", c->where, *c->where && *member ? "." : "",
                       member, what);
}

/* Placeholders */

static bool is_name(const char *s, size_t n)
{
        if (n == 0 || n > NAME_MAX_LEN || !isalpha((unsigned char)*s))
                return false;
        for (size_t i = 0; i < n; i++)
                if (!isalnum((unsigned char)s[i]) && s[i] != '_')
                        return false;
        return true;
}

static int word_of(const char *name)
{
        for (int i = 0; i < WORD_N; i++)
                if (streq(command_word_names[i], name))
                        return i;
        return -1;
}

bool command_option_is_secret(const json_t *option)
{
        const char *format = json_get_string(option, "format");

        return format && streq(format, "secret-ref");
}

static bool is_always_set(const struct checking *c, const char *name)
{
        const json_t *option = json_object_get(c->options, name), *one;
        size_t i;

        if (json_object_get(option, "default"))
                return true;
        json_array_foreach(json_object_get(c->descriptor, "required"), i,
                           one) if (json_is_string(one) &&
                                    streq(json_string_value(one), name)) return true;
        return false;
}

/* `loose`: what names an option that is not set is left out. */
static int check_text(const struct checking *c, const char *text, bool loose)
{
        struct command_place_holder p;
        CLEAN(cleanup_free) char *name = NULL;

        if (strlen(text) > TEXT_MAX_LEN)
                return bad(c, "", "a text has more than 4096 bytes");
        for (const char *at = text; command_next_holder(at, &p); at = p.end) {
                free(name);
                name = xstrndup(p.name, p.len);
                if (!is_name(p.name, p.len))
                        return bad(c, name, "is no name of a placeholder");
                int word = word_of(name);
                if (word >= 0 && !(c->words & 1u << word))
                        return bad(c, name, "is not known to this command");
                if (word >= 0)
                        continue;
                const json_t *option = json_object_get(c->options, name);
                if (!option)
                        return bad(c, name, "is neither an option nor a word of Berth's");
                if (!c->secrets && command_option_is_secret(option))
                        return bad(c, name,
                                   "is a secret, which may only be named in environment.set and in "
                                   "input: other users see arguments");
                if (!loose && !is_always_set(c, name))
                        return bad(c, name,
                                   "may be without a value: put the words that need it into a list "
                                   "of their own, which is left out then");
        }
        return 0;
}

static int check_words(const struct checking *c, const json_t *list, bool inner)
{
        const json_t *one;
        size_t i;
        int r = 0;

        if (!json_is_array(list) || json_array_size(list) == 0 ||
            json_array_size(list) > COMMAND_ARGS_MAX)
                return bad(c, "", "needs a list of 1 to 100 words");
        json_array_foreach((json_t *)list, i, one)
        {
                if (json_is_string(one)) {
                        r = check_text(c, json_string_value(one), inner);
                } else if (json_is_array(one) && !inner && i > 0) {
                        r = check_words(c, one, true);
                } else if (json_is_object(one) && !inner && i > 0) {
                        const char *name = json_get_string(one, "if");

                        if (!name || !json_object_get(c->options, name) ||
                            json_object_size(one) != 2)
                                return bad(c, "if", "needs `if`, an option, and `args`");
                        r = check_words(c, json_object_get(one, "args"), true);
                } else {
                        return bad(c, "", "a word is a text, or a list of texts");
                }
                if (r < 0)
                        return r;
        }
        return 0;
}

static int check_document(const struct checking *c, const json_t *v, int depth)
{
        const char *key;
        const json_t *one;
        size_t i;
        int r = 0;

        if (depth > DEPTH_MAX)
                return bad(c, "", "is nested too deeply");
        if (json_is_string(v))
                return check_text(c, json_string_value(v), true);
        json_object_foreach((json_t *)v, key, one) if (r >= 0) r =
                check_document(c, one, depth + 1);
        json_array_foreach((json_t *)v, i, one) if (r >= 0) r = check_document(c, one, depth + 1);
        return r;
}

/* Members */

static int check_known(const struct checking *c, const json_t *object, const char *const *known)
{
        const char *key;
        const json_t *value;

        if (!json_is_object(object))
                return bad(c, "", "needs an object");
        json_object_foreach((json_t *)object, key, value)
        {
                const char *const *k = known;

                while (*k && !streq(*k, key))
                        k++;
                if (!*k)
                        return bad(c, key, "is not known");
        }
        return 0;
}

static int check_string_member(const struct checking *c, const json_t *object, const char *member,
                               bool required)
{
        const json_t *v = json_object_get(object, member);

        if (!v)
                return required ? bad(c, member, "is missing") : 0;
        if (!json_is_string(v) || json_string_length(v) == 0 ||
            json_string_length(v) > TEXT_MAX_LEN)
                return bad(c, member, "needs a text");
        return 0;
}

static int check_seconds(const struct checking *c, const json_t *object, const char *member,
                         bool required)
{
        const json_t *v = json_object_get(object, member);

        if (!v)
                return required ? bad(c, member, "is missing") : 0;
        if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > SECONDS_MAX)
                return bad(c, member, "needs a number of seconds, 1 to 86400");
        return 0;
}

static int check_pattern(const struct checking *c, const json_t *object, const char *member,
                         bool required)
{
        const char *pattern = json_get_string(object, member);
        regex_t compiled;
        int r = check_string_member(c, object, member, required);

        if (r < 0 || !pattern)
                return r;
        if (strlen(pattern) > 500 || regcomp(&compiled, pattern, REG_EXTENDED | REG_NOSUB) != 0)
                return bad(c, member, "is no extended regular expression of POSIX");
        regfree(&compiled);
        return 0;
}

/* Options: a JSON schema of one level. */

static int check_option(const struct checking *c, const char *name, const json_t *option)
{
        static const char *const known[] = { "type",        "title",
                                             "description", "default",
                                             "enum",        "minimum",
                                             "maximum",     "pattern",
                                             "format",      "items",
                                             "minLength",   "maxLength",
                                             "examples",    "additionalProperties",
                                             NULL };
        static const char *const types[] = { "string", "integer", "number", "boolean",
                                             "array",  "object",  NULL };
        const char *type = json_get_string(option, "type");
        const char *const *t = types;
        struct checking inner = *c;
        int r;

        inner.where = name;
        if (!is_name(name, strlen(name)) || word_of(name) >= 0 || streq(name, "provider") ||
            streq(name, "reuseLease"))
                return bad(c, name, "is no name for an option");
        r = check_known(&inner, option, known);
        if (r < 0)
                return r;
        while (*t && (!type || !streq(*t, type)))
                t++;
        if (!*t)
                return bad(&inner, "type",
                           "is none of string, integer, number, boolean, array, object");
        if (command_option_is_secret(option) &&
            (!streq(type, "string") || json_object_get(option, "default")))
                return bad(&inner, "format", "a secret is a string without a default");
        return check_pattern(&inner, option, "pattern", false);
}

static int check_options(struct checking *c)
{
        const json_t *options = json_object_get(c->descriptor, "options"), *one;
        static const char *const lists[] = { "required", "admin" };
        const char *key;
        size_t i;
        int r = 0;

        c->where = "options";
        if (options && (!json_is_object(options) || json_object_size(options) > OPTIONS_MAX))
                return bad(c, "", "needs an object of at most 64 options");
        c->options = options;
        json_object_foreach((json_t *)options, key, one) if (r >= 0) r = check_option(c, key, one);
        for (size_t k = 0; r >= 0 && k < ARRAY_LEN(lists); k++) {
                const json_t *list = json_object_get(c->descriptor, lists[k]);

                c->where = lists[k];
                if (list && !json_is_array(list))
                        return bad(c, "", "needs a list of options");
                json_array_foreach((json_t *)list, i, one) if (
                        !json_is_string(one) ||
                        !json_object_get(
                                options,
                                json_string_value(
                                        one))) return bad(c, "",
                                                          "names something that is no option");
        }
        return r;
}

static int check_environment(struct checking *c)
{
        static const char *const known[] = { "pass", "set", "home", NULL };
        const json_t *e = json_object_get(c->descriptor, "environment"), *one;
        const char *home = json_get_string(e, "home"), *key;
        size_t i;
        int r;

        c->where = "environment";
        c->words = 0;
        c->secrets = true;
        r = e ? check_known(c, e, known) : 0;
        if (r >= 0 && json_object_get(e, "home") &&
            (!home || (!streq(home, "private") && !streq(home, "user"))))
                r = bad(c, "home", "is private or user");
        json_array_foreach(json_object_get(e, "pass"), i, one)
        {
                if (r >= 0 && (!json_is_string(one) ||
                               !is_name(json_string_value(one), json_string_length(one))))
                        r = bad(c, "pass", "needs names of variables");
        }
        json_object_foreach(json_object_get(e, "set"), key, one)
        {
                if (r >= 0 && (!is_name(key, strlen(key)) || !json_is_string(one)))
                        r = bad(c, "set", "needs names of variables and their texts");
                if (r >= 0)
                        r = check_text(c, json_string_value(one), true);
        }
        return r;
}

static int check_list(struct checking *c, const json_t *command)
{
        static const char *const known[] = { "items", "tag", "ref", "node", NULL };
        static const char *const column_names[] = { "tag", "ref", "node", "-", NULL };
        const json_t *json = json_object_get(command, "json"), *one;
        const json_t *columns = json_object_get(command, "columns");
        bool has_tag = false;
        size_t i;
        int r = 0;

        if (!json == !columns)
                return bad(c, "", "needs either `columns` or `json`, to read what it prints");
        if (json) {
                r = check_known(c, json, known);
                for (const char *const *k = known; r >= 0 && *k; k++)
                        r = check_string_member(c, json, *k, streq(*k, "tag"));
                return r;
        }
        if (!json_is_array(columns) || json_array_size(columns) > 8)
                return bad(c, "columns", "needs a list of at most 8 names");
        json_array_foreach((json_t *)columns, i, one)
        {
                const char *const *k = column_names;

                while (*k && (!json_is_string(one) || !streq(*k, json_string_value(one))))
                        k++;
                if (!*k)
                        return bad(c, "columns", "knows tag, ref, node and -");
                has_tag = has_tag || streq(*k, "tag");
        }
        return has_tag ? check_string_member(c, command, "separator", false)
                       : bad(c, "columns", "needs tag");
}

static int check_renew(struct checking *c, const json_t *command)
{
        int r = check_seconds(c, command, "everySeconds", true);

        if (r >= 0)
                r = check_seconds(c, command, "lostAfterSeconds", true);
        if (r >= 0 && json_integer_value(json_object_get(command, "lostAfterSeconds")) <
                              2 * json_integer_value(json_object_get(command, "everySeconds")))
                r = bad(c, "lostAfterSeconds", "is less than twice everySeconds");
        return r;
}

static int check_command(struct checking *c, enum command_verb verb, const json_t *command)
{
        static const char *const known[] = { "run",       "input",        "seconds",
                                             "ref",       "until",        "failed",
                                             "listFirst", "columns",      "json",
                                             "separator", "everySeconds", "lostAfterSeconds",
                                             NULL };
        static const char *const patterns[] = { "ref", "until", "failed" };
        const json_t *input = json_object_get(command, "input");
        int r;

        c->where = command_verbs[verb];
        c->words = allowed[verb];
        c->secrets = false;
        r = check_known(c, command, known);
        if (r >= 0)
                r = check_words(c, json_object_get(command, "run"), false);
        c->secrets = true;
        if (r >= 0 && input)
                r = json_is_string(input) || json_is_object(input)
                            ? check_document(c, input, 0)
                            : bad(c, "input", "is a text or an object");
        if (r >= 0)
                r = check_seconds(c, command, "seconds", false);
        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(patterns); i++)
                r = check_pattern(c, command, patterns[i], false);
        if (r >= 0 && verb == COMMAND_RENEW)
                r = check_renew(c, command);
        if (r >= 0 && verb == COMMAND_REACH && input)
                r = bad(c, "input", "cannot be: the line to the box is on the standard input");
        return r >= 0 && verb == COMMAND_LIST ? check_list(c, command) : r;
}

static int check_commands(struct checking *c)
{
        static const enum command_verb needed[] = { COMMAND_CREATE, COMMAND_REACH, COMMAND_DESTROY,
                                                    COMMAND_LIST };
        const json_t *commands = json_object_get(c->descriptor, "commands"), *one;
        const char *key;
        int r;

        json_object_foreach((json_t *)commands, key, one)
        {
                size_t v = 0;

                while (v < COMMAND_N_VERBS && !streq(command_verbs[v], key))
                        v++;
                c->where = "commands";
                if (v == COMMAND_N_VERBS)
                        return bad(c, key, "is no command that Berth knows");
                r = check_command(c, (enum command_verb)v, one);
                if (r < 0)
                        return r;
        }
        c->where = "commands";
        for (size_t i = 0; i < ARRAY_LEN(needed); i++)
                if (!json_object_get(commands, command_verbs[needed[i]]))
                        return bad(c, command_verbs[needed[i]], "is missing");
        if (!json_object_get(commands, "pause") != !json_object_get(commands, "resume"))
                return bad(c, "pause", "needs resume, and resume needs pause");
        return 0;
}

static int check_errors(struct checking *c)
{
        static const char *const known[] = { "match", "is", "hint", NULL };
        const json_t *list = json_object_get(c->descriptor, "errors"), *one;
        size_t i;
        int r;

        c->where = "errors";
        if (list && (!json_is_array(list) || json_array_size(list) > ERRORS_MAX))
                return bad(c, "", "needs a list of at most 64");
        json_array_foreach((json_t *)list, i, one)
        {
                const char *const *k = command_failures;
                const char *is;

                r = check_known(c, one, known);
                if (r >= 0)
                        r = check_pattern(c, one, "match", true);
                if (r >= 0)
                        r = check_string_member(c, one, "hint", false);
                if (r < 0)
                        return r;
                is = json_get_string(one, "is");
                while (*k && (!is || !streq(*k, is)))
                        k++;
                if (!*k)
                        return bad(c, "is",
                                   "is none of other, gone, exists, busy, unreachable, denied, "
                                   "refused");
        }
        return 0;
}

/* Bringing a workspace makes the directory what the workspace is. Where a place shares its files
 * with others, the directory has to be the place's own. */
static int check_workdir(struct checking *c)
{
        const char *text, *last;
        int r = check_string_member(c, c->descriptor, "workdir", true);

        c->words = ABOUT_PLACE;
        c->where = "workdir";
        if (r < 0)
                return r;
        text = json_get_string(c->descriptor, "workdir");
        last = strrchr(text, '/');
        r = check_text(c, text, false);
        if (r >= 0 && !json_is_true(json_object_get(c->descriptor, "isolated")) &&
            (!last || (!strstr(last, "${name}") && !strstr(last, "${id}"))))
                r = bad(c, "",
                        "a place that is not isolated needs a directory of its own: the last part "
                        "of the path has to name ${name} or ${id}");
        return r;
}

int command_descriptor_check(const json_t *descriptor, struct err *err)
{
        static const char *const known[] = { "name",      "displayName", "description", "isolated",
                                             "isolation", "workdir",     "options",     "required",
                                             "admin",     "adminOnly",   "environment", "commands",
                                             "errors",    NULL };
        static const char *const texts[] = { "displayName", "description", "isolation" };
        struct checking c = { .descriptor = descriptor, .where = "", .err = err };
        const char *name = json_get_string(descriptor, "name");
        int r = check_known(&c, descriptor, known);

        if (r >= 0 && (!name || strlen(name) > NAME_MAX_LEN || !kind_is_key(name)))
                r = bad(&c, "name", "needs 1 to 40 lower-case letters, digits, dots, hyphens, _");
        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(texts); i++)
                r = check_string_member(&c, descriptor, texts[i], true);
        if (r >= 0 && !json_is_boolean(json_object_get(descriptor, "isolated")))
                r = bad(&c, "isolated",
                        "says true or false: whether commands in a place can reach neither other "
                        "places nor the machine that they are on");
        if (r >= 0)
                r = check_options(&c);
        c.where = "";
        if (r >= 0)
                r = check_workdir(&c);
        if (r >= 0)
                r = check_environment(&c);
        if (r >= 0)
                r = check_commands(&c);
        return r < 0 ? r : check_errors(&c);
}
