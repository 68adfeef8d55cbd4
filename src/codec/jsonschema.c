/* Whether a document fits a JSON schema, keyword by keyword. */
#include "codec/jsonschema.h"

#include "base/clock.h"
#include "base/utf8.h"
#include "base/uuid.h"
#include "codec/jsnum.h"

struct run {
        const json_t *root;
        json_t *errors; /* NULL while only the verdict counts */
        size_t found;
        unsigned steps, depth;
        struct buf path;
};

static void check_value(struct run *run, const json_t *schema, const json_t *value);

static bool is_over(const struct run *run)
{
        return run->steps > JSONSCHEMA_MAX_STEPS;
}

static void report_wrong(struct run *run, const char *fmt, ...) PRINTF(2, 3);

static void report_wrong(struct run *run, const char *fmt, ...)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        va_list ap;

        run->found++;
        if (!run->errors || json_array_size(run->errors) >= JSONSCHEMA_MAX_ERRORS)
                return;
        va_start(ap, fmt);
        buf_appendv(&text, fmt, ap);
        va_end(ap);
        json_array_append_new(run->errors, json_pack("{s:s, s:s}", "field",
                                                     run->path.len ? buf_str(&run->path) : "/",
                                                     "message", buf_str(&text)));
}

/* How many errors there would be, without reporting them. */
static size_t count_errors(struct run *run, const json_t *schema, const json_t *value)
{
        struct run silent = { .root = run->root, .steps = run->steps, .depth = run->depth };

        check_value(&silent, schema, value);
        run->steps = silent.steps;
        buf_done(&silent.path);
        return silent.found;
}

/* Values */

static bool values_equal(const json_t *a, const json_t *b)
{
        if (json_is_number(a) && json_is_number(b))
                return json_number_value(a) == json_number_value(b);
        return json_equal((json_t *)a, (json_t *)b);
}

static bool has_type(const json_t *v, const char *type)
{
        if (streq(type, "object"))
                return json_is_object(v);
        if (streq(type, "array"))
                return json_is_array(v);
        if (streq(type, "string"))
                return json_is_string(v);
        if (streq(type, "number"))
                return json_is_number(v);
        if (streq(type, "integer"))
                return json_is_integer(v) ||
                       (json_is_real(v) && jsnum_is_integer(json_real_value(v)));
        if (streq(type, "boolean"))
                return json_is_boolean(v);
        return streq(type, "null") && json_is_null(v);
}

static void check_type(struct run *run, const json_t *schema, const json_t *v)
{
        const json_t *type = json_object_get(schema, "type"), *item;
        CLEAN(buf_done) struct buf names = BUF_INIT;
        bool fits = false;
        size_t i;

        if (json_is_string(type)) {
                if (!has_type(v, json_string_value(type)))
                        report_wrong(run, "must be %s", json_string_value(type));
                return;
        }
        if (!json_is_array(type))
                return;
        json_array_foreach(type, i, item)
        {
                const char *name = json_is_string(item) ? json_string_value(item) : "";

                fits = fits || has_type(v, name);
                buf_appendf(&names, "%s%s", i ? "," : "", name);
        }
        if (!fits)
                report_wrong(run, "must be %s", buf_str(&names));
}

static void check_choice(struct run *run, const json_t *schema, const json_t *v)
{
        const json_t *list = json_object_get(schema, "enum"), *one, *item;
        bool found = false;
        size_t i;

        json_array_foreach(list, i, item) found = found || values_equal(item, v);
        run->steps += (unsigned)MIN(json_array_size(list), (size_t)JSONSCHEMA_MAX_STEPS);
        if (json_is_array(list) && !found)
                report_wrong(run, "must be equal to one of the allowed values");
        one = json_object_get(schema, "const");
        if (one && !values_equal(one, v))
                report_wrong(run, "must be equal to constant");
}

/* Numbers */

static bool number_of(const json_t *schema, const char *key, double *ret)
{
        const json_t *v = json_object_get(schema, key);

        if (!json_is_number(v))
                return false;
        *ret = json_number_value(v);
        return true;
}

static const char *number_text(double v, char buffer[JSNUM_TEXT_MAX])
{
        (void)jsnum_format(v, buffer);
        return buffer;
}

static void check_number(struct run *run, const json_t *schema, double v)
{
        char text[JSNUM_TEXT_MAX];
        double limit;

        if (number_of(schema, "minimum", &limit) && v < limit)
                report_wrong(run, "must be >= %s", number_text(limit, text));
        if (number_of(schema, "maximum", &limit) && v > limit)
                report_wrong(run, "must be <= %s", number_text(limit, text));
        if (number_of(schema, "exclusiveMinimum", &limit) && v <= limit)
                report_wrong(run, "must be > %s", number_text(limit, text));
        if (number_of(schema, "exclusiveMaximum", &limit) && v >= limit)
                report_wrong(run, "must be < %s", number_text(limit, text));
        if (number_of(schema, "multipleOf", &limit) && limit > 0 && !jsnum_is_integer(v / limit))
                report_wrong(run, "must be multiple of %s", number_text(limit, text));
}

/* Strings */

static bool fits_format(const char *format, const char *s)
{
        static const char scheme[] =
                "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+.-";
        const char *at = strchr(s, '@');
        size_t n = strspn(s, scheme);
        int64_t us;

        if (streq(format, "date-time"))
                return clock_parse_iso(s, &us);
        if (streq(format, "email"))
                return at && at != s && at[1] && !strchr(at + 1, '@') && !s[strcspn(s, " \t\r\n")];
        if (streq(format, "uri") || streq(format, "url"))
                return n > 0 && strchr("0123456789+.-", *s) == NULL && s[n] == ':' && s[n + 1] &&
                       !s[strcspn(s, " \t\r\n<>\"{}|\\^`")];
        if (streq(format, "uuid"))
                return uuid_is_valid(s);
        return true;
}

static void check_count(struct run *run, const json_t *schema, size_t n, const char *min,
                        const char *max, const char *unit)
{
        char text[JSNUM_TEXT_MAX];
        double limit;

        if (number_of(schema, min, &limit) && (double)n < limit)
                report_wrong(run, "must NOT have fewer than %s %s", number_text(limit, text), unit);
        if (number_of(schema, max, &limit) && (double)n > limit)
                report_wrong(run, "must NOT have more than %s %s", number_text(limit, text), unit);
}

static void check_string(struct run *run, const json_t *schema, const json_t *v)
{
        const char *format = json_get_string(schema, "format"), *s = json_string_value(v);
        size_t n = 0, len;

        for (size_t left = json_string_length(v); left > 0; s += len, left -= len, n++)
                (void)utf8_next(s, left, &len, NULL);
        check_count(run, schema, n, "minLength", "maxLength", "characters");
        if (format && !fits_format(format, json_string_value(v)))
                report_wrong(run, "must match format \"%s\"", format);
}

/* Arrays and objects */

static void walk_at(struct run *run, const char *key, const json_t *schema, const json_t *value)
{
        size_t len = run->path.len;

        buf_putc(&run->path, '/');
        for (; *key; key++) {
                if (*key == '~' || *key == '/')
                        buf_puts(&run->path, *key == '~' ? "~0" : "~1");
                else
                        buf_putc(&run->path, *key);
        }
        check_value(run, schema, value);
        if (!buf_failed(&run->path)) {
                run->path.len = len;
                run->path.data[len] = '\0';
        }
}

static void check_unique(struct run *run, const json_t *v)
{
        size_t n = json_array_size(v);

        for (size_t i = 1; i < n && !is_over(run); i++) {
                for (size_t j = 0; j < i && !is_over(run); j++) {
                        run->steps++;
                        if (!values_equal(json_array_get(v, i), json_array_get(v, j)))
                                continue;
                        report_wrong(
                                run,
                                "must NOT have duplicate items (items ## %zu and %zu are identical)",
                                j, i);
                        return;
                }
        }
}

static void check_array(struct run *run, const json_t *schema, const json_t *v)
{
        const json_t *items = json_object_get(schema, "items"), *item;
        char index[JSNUM_TEXT_MAX];
        size_t i;

        check_count(run, schema, json_array_size(v), "minItems", "maxItems", "items");
        if (json_is_true(json_object_get(schema, "uniqueItems")))
                check_unique(run, v);
        if (!json_is_object(items))
                return;
        json_array_foreach(v, i, item)
        {
                if (is_over(run))
                        return;
                (void)jsnum_format_int((int64_t)i, index);
                walk_at(run, index, items, item);
        }
}

static void check_object(struct run *run, const json_t *schema, const json_t *v)
{
        const json_t *properties = json_object_get(schema, "properties"), *item;
        const json_t *others = json_object_get(schema, "additionalProperties");
        const char *key;
        json_t *member;
        size_t i;

        check_count(run, schema, json_object_size(v), "minProperties", "maxProperties",
                    "properties");
        json_array_foreach(json_object_get(schema, "required"), i,
                           item) if (json_is_string(item) &&
                                     !json_object_get(v, json_string_value(item)))
                report_wrong(run, "must have required property '%s'", json_string_value(item));
        json_object_foreach((json_t *)v, key, member)
        {
                const json_t *known = json_object_get(properties, key);

                if (is_over(run))
                        return;
                if (known)
                        walk_at(run, key, known, member);
                else if (json_is_false(others))
                        report_wrong(run, "must NOT have additional properties");
                else if (json_is_object(others))
                        walk_at(run, key, others, member);
        }
}

/* Composition */

static void check_all(struct run *run, const json_t *schema, const json_t *v)
{
        const json_t *branch;
        size_t i;

        json_array_foreach(json_object_get(schema, "allOf"), i, branch) check_value(run, branch, v);
        branch = json_object_get(schema, "not");
        if (branch && count_errors(run, branch, v) == 0 && !is_over(run))
                report_wrong(run, "must NOT be valid");
}

static size_t count_fitting(struct run *run, const json_t *branches, const json_t *v)
{
        const json_t *branch;
        size_t n = 0, i;

        json_array_foreach(branches, i, branch) n += count_errors(run, branch, v) == 0;
        return n;
}

static void check_some(struct run *run, const json_t *schema, const json_t *v)
{
        const json_t *any = json_object_get(schema, "anyOf"),
                     *one = json_object_get(schema, "oneOf");

        if (json_is_array(any) && count_fitting(run, any, v) == 0)
                report_wrong(run, "must match a schema in anyOf");
        if (json_is_array(one) && count_fitting(run, one, v) != 1)
                report_wrong(run, "must match exactly one schema in oneOf");
}

/* "#", "#/$defs/x": one name after the other; NULL when there is no such place. */
static const json_t *resolve_ref(const struct run *run, const char *ref)
{
        const json_t *at = run->root;

        if (*ref++ != '#')
                return NULL;
        while (at && *ref == '/') {
                size_t n = strcspn(++ref, "/");
                CLEAN(cleanup_free) char *name = xstrndup(ref, n);

                at = json_object_get(at, name);
                ref += n;
        }
        return *ref ? NULL : at;
}

static void check_ref(struct run *run, const json_t *schema, const json_t *v)
{
        const char *ref = json_get_string(schema, "$ref");
        const json_t *target = ref ? resolve_ref(run, ref) : NULL;

        if (target)
                check_value(run, target, v);
        else if (ref)
                report_wrong(run,
                             "cannot be checked: the schema refers to something that is not in it");
}

static void check_value(struct run *run, const json_t *schema, const json_t *v)
{
        run->steps++;
        if (json_is_false(schema))
                report_wrong(run, "boolean schema is false");
        if (!json_is_object(schema) || is_over(run))
                return;
        /* A reference to itself goes nowhere; the stack must not find out. */
        if (++run->depth > JSON_MAX_DEPTH * 2)
                run->steps = JSONSCHEMA_MAX_STEPS + 1;
        check_type(run, schema, v);
        check_choice(run, schema, v);
        if (json_is_number(v))
                check_number(run, schema, json_number_value(v));
        else if (json_is_string(v))
                check_string(run, schema, v);
        else if (json_is_array(v))
                check_array(run, schema, v);
        else if (json_is_object(v))
                check_object(run, schema, v);
        check_all(run, schema, v);
        check_some(run, schema, v);
        check_ref(run, schema, v);
        run->depth--;
}

int jsonschema_check(const json_t *schema, const json_t *value, json_t *errors, struct err *err)
{
        struct run run = { .root = schema, .errors = errors };

        check_value(&run, schema, value);
        buf_done(&run.path);
        if (is_over(&run))
                return err_set(err, ERR_TOO_LARGE, "the schema is too much work to check");
        return (int)MIN(run.found, (size_t)INT32_MAX);
}
