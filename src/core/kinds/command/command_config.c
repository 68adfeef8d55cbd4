/* Configurations of kinds made by commands: checks, defaults and the schema, from the options of
 * the descriptor. */
#include <ctype.h>
#include <errno.h>

#include "codec/check.h"
#include "codec/jsonschema.h"
#include "core/access/access.h"
#include "core/kinds/command/command_internal.h"

json_t *command_config_of(const json_t *recorded)
{
        json_t *config = json_object(), *value;
        const char *key;

        json_object_foreach((json_t *)recorded, key, value)
        {
                if (*key != '$')
                        json_object_set(config, key, value);
        }
        return config;
}

/* Forms and command lines send numbers and truth as texts too. A new reference. */
static json_t *coerce(const json_t *option, const json_t *value)
{
        const char *type = json_get_string(option, "type"), *text = json_string_value(value);
        char *end;

        if (text && (streq(type, "integer") || streq(type, "number")) && *text) {
                errno = 0;
                double number = strtod(text, &end);

                if (!*end && errno == 0 && number == (double)(json_int_t)number)
                        return json_integer((json_int_t)number);
                if (!*end && errno == 0)
                        return json_real(number);
        }
        if (text && streq(type, "boolean") && (streq(text, "true") || streq(text, "false")))
                return json_boolean(streq(text, "true"));
        if (text && streq(type, "string")) {
                size_t n = strlen(text);

                while (n > 0 && isspace((unsigned char)text[n - 1]))
                        n--;
                while (n > 0 && isspace((unsigned char)*text)) {
                        text++;
                        n--;
                }
                return json_stringn(text, n);
        }
        return json_incref((json_t *)value);
}

/* What would be taken for an option of the program, or would end its line. */
static const char *fault_of_text(const char *text)
{
        if (*text == '-')
                return "may not begin with a hyphen";
        for (; *text; text++)
                if ((unsigned char)*text < ' ' || *text == 0x7f)
                        return "may not contain control characters";
        return NULL;
}

static const char *fault_of_texts(const json_t *value)
{
        const char *key, *fault = NULL;
        const json_t *one;
        size_t i;

        if (json_is_string(value))
                return fault_of_text(json_string_value(value));
        json_array_foreach((json_t *)value, i, one)
        {
                if (!fault)
                        fault = json_is_string(one) || json_is_number(one)
                                        ? fault_of_texts(one)
                                        : "needs a list of texts";
        }
        json_object_foreach((json_t *)value, key, one)
        {
                if (!fault)
                        fault = fault_of_text(key) ? fault_of_text(key) : fault_of_texts(one);
        }
        return fault;
}

static void check_value(struct check *c, const char *key, const json_t *option, const json_t *value)
{
        CLEAN(json_decrefp) json_t *errors = json_array();
        const char *pattern = json_get_string(option, "pattern");
        const char *fault = command_option_is_secret(option) ? NULL : fault_of_texts(value);
        struct arena arena;

        arena_init(&arena);
        if (jsonschema_check(option, value, errors, NULL) != 0) {
                const char *said = json_get_string(json_array_get(errors, 0), "message");

                check_custom(c, key, arena_printf(&arena, "%s %s", key, said ? said : "is wrong"));
        } else if (fault) {
                check_custom(c, key, arena_printf(&arena, "%s %s", key, fault));
        } else if (pattern && json_is_string(value) &&
                   !command_matches(&arena, pattern, json_string_value(value), NULL)) {
                check_custom(
                        c, key,
                        arena_printf(&arena, "%s does not match the pattern %s", key, pattern));
        }
        arena_done(&arena);
}

/* A picker of secrets sends a reference, of which the id is kept. A new reference. */
static json_t *secret_value(const json_t *value)
{
        const char *id = json_get_string(value, "secretId");

        return id ? json_string(id) : json_incref((json_t *)value);
}

static bool is_required(const json_t *descriptor, const char *key)
{
        const json_t *one;
        size_t i;

        json_array_foreach(json_object_get(descriptor, "required"), i, one)
        {
                if (streq(json_string_value(one), key))
                        return true;
        }
        return false;
}

static void take_option(struct check *c, const json_t *descriptor, const char *key,
                        const json_t *option, const json_t *given, json_t *result)
{
        json_t *value;

        if (!given || json_is_null(given) ||
            (json_is_string(given) && json_string_length(given) == 0))
                given = json_object_get(option, "default");
        if (!given && is_required(descriptor, key)) {
                struct arena arena;

                arena_init(&arena);
                check_custom(c, key, arena_printf(&arena, "%s is required", key));
                arena_done(&arena);
        }
        if (!given)
                return;
        value = command_option_is_secret(option) ? secret_value(given) : coerce(option, given);
        check_value(c, key, option, value);
        json_object_set_new(result, key, value);
}

static void refuse_unknown(struct check *c, const json_t *descriptor)
{
        const json_t *options = json_object_get(descriptor, "options"), *value;
        const char **known = xcalloc(json_object_size(options) + 3, sizeof(*known));
        const char *key;
        size_t n = 0;

        known[n++] = "provider";
        known[n++] = "reuseLease";
        json_object_foreach((json_t *)options, key, value) known[n++] = key;
        check_unknown(c, known);
        free(known);
}

int command_normalize(const struct kind *kind, json_t *config, enum config_form form, json_t **ret,
                      struct err *err)
{
        const json_t *descriptor = command_kind_of(kind)->descriptor, *option;
        CLEAN(check_done) struct check c = { 0 };
        json_t *result = json_pack("{s:s}", "provider", kind->provider);
        const char *key;
        int r;

        check_init(&c, config);
        json_object_set_new(result, "reuseLease",
                            json_boolean(check_bool(&c, "reuseLease", CHECK_OPTIONAL, false)));
        json_object_foreach(json_object_get(descriptor, "options"), key, option)
                take_option(&c, descriptor, key, option, json_object_get(config, key), result);
        refuse_unknown(&c, descriptor);
        r = check_end_config(&c, err);
        if (r < 0)
                json_decref(result);
        else
                *ret = result;
        return r;
}

json_t *command_schema(const struct kind *kind)
{
        return json_incref(command_kind_of(kind)->schema);
}

int command_may_save(const struct op *op, const struct runtime *rt, const json_t *config,
                     struct err *err)
{
        const struct kind *kind = kind_of_provider(rt, json_get_string(config, "provider"));
        const json_t *descriptor = command_kind_of(kind)->descriptor, *one;
        struct arena arena;
        size_t i;
        int r = 0;

        arena_init(&arena);
        if (json_is_true(json_object_get(descriptor, "adminOnly")))
                r = access_admin(op->actor,
                                 arena_printf(&arena,
                                              "Only an instance admin may set up environments of "
                                              "%s: its commands run with rights of the operator.",
                                              kind->display_name),
                                 err);
        json_array_foreach(json_object_get(descriptor, "admin"), i, one)
        {
                const char *name = json_string_value(one);
                const json_t *option =
                        json_object_get(json_object_get(descriptor, "options"), name);
                const json_t *value = json_object_get(config, name);

                if (r >= 0 && value && !json_equal(value, json_object_get(option, "default")))
                        r = access_admin(op->actor,
                                         arena_printf(&arena,
                                                      "Only an instance admin may set \"%s\" of an "
                                                      "environment of %s.",
                                                      name, kind->display_name),
                                         err);
        }
        arena_done(&arena);
        return r;
}

int command_validate(struct op *op UNUSED, struct runtime *rt, json_t **config,
                     const json_t **ret_schema, struct err *err UNUSED)
{
        const struct kind *kind = kind_of_provider(rt, json_get_string(*config, "provider"));

        if (ret_schema)
                *ret_schema = command_kind_of(kind)->schema;
        return 0;
}
