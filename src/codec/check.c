/* Every issue is {own members, path, message} or {own members, message, path}: zod puts the message
 * first where its check carries a text of its own, which a comparison of whole bodies can see.
 * Both forms are built by add().
 *
 * A field goes through three steps, in this order as in zod: fetch() deals with absent and null,
 * the type is looked at, then the bounds. Nothing is allocated until there is an issue or a string
 * to trim; paths are put together from the chain of parents when an issue needs one. */
#include "codec/check.h"

#include <math.h>

#include "base/uuid.h"
#include "codec/jsnum.h"

enum message_place { MESSAGE_LAST, MESSAGE_BEFORE_PATH };

/* ---- issues ---- */

static struct check *root_of(struct check *c)
{
        while (c->parent)
                c = c->parent;
        return c;
}

static void append_path(json_t *path, const struct check *c)
{
        if (!c->parent)
                return;
        append_path(path, c->parent);
        json_array_append_new(path, json_string(c->key));
        if (c->index >= 0)
                json_array_append_new(path, json_integer(c->index));
}

static json_t *path_to(const struct check *c, const char *key, int64_t index)
{
        json_t *path = json_array();

        append_path(path, c);
        if (key)
                json_array_append_new(path, json_string(key));
        if (index >= 0)
                json_array_append_new(path, json_integer(index));
        return path;
}

static void add_at(struct check *c, json_t *take_path, enum message_place place, const char *text,
                   json_t *take_issue)
{
        struct check *root = root_of(c);

        if (place == MESSAGE_BEFORE_PATH)
                json_object_set_new(take_issue, "message", json_string(text));
        json_object_set_new(take_issue, "path", take_path);
        if (place == MESSAGE_LAST)
                json_object_set_new(take_issue, "message", json_string(text));
        if (!root->issues)
                root->issues = json_array();
        json_array_append_new(root->issues, take_issue);
}

static void add_issue(struct check *c, const char *key, enum message_place place, const char *text,
                      json_t *take_issue)
{
        add_at(c, path_to(c, key, -1), place, text, take_issue);
}

/* zod's name for the type of a value; NULL is a member that is not there. */
static const char *type_name(const json_t *v)
{
        switch (v ? (int)json_typeof(v) : -1) {
        case JSON_OBJECT:
                return "object";
        case JSON_ARRAY:
                return "array";
        case JSON_STRING:
                return "string";
        case JSON_INTEGER:
        case JSON_REAL:
                return "number";
        case JSON_TRUE:
        case JSON_FALSE:
                return "boolean";
        case JSON_NULL:
                return "null";
        default:
                return "undefined";
        }
}

static json_t *type_issue(const char *expected, const char *received)
{
        return json_pack("{s:s, s:s, s:s}", "code", "invalid_type", "expected", expected,
                         "received", received);
}

/* `text` replaces "Required" and may be NULL. */
static void wrong_type_at(struct check *c, json_t *take_path, const char *expected,
                          const char *received, const char *text)
{
        CLEAN(buf_done) struct buf message = BUF_INIT;

        if (streq(received, "undefined"))
                buf_puts(&message, text ? text : "Required");
        else
                buf_appendf(&message, "Expected %s, received %s", expected, received);
        add_at(c, take_path, MESSAGE_LAST, buf_str(&message), type_issue(expected, received));
}

static void wrong_type(struct check *c, const char *key, const char *expected, const json_t *v,
                       const char *text)
{
        wrong_type_at(c, path_to(c, key, -1), expected, type_name(v), text);
}

/* too_small and too_big. `text` may be NULL: the library's own. */
static void out_of_bound_at(struct check *c, json_t *take_path, bool small, const char *type,
                            int64_t bound, bool inclusive, const char *text)
{
        CLEAN(buf_done) struct buf message = BUF_INIT;
        const char *unit = streq(type, "string") ? "character(s)" : "element(s)";

        if (text)
                buf_puts(&message, text);
        else if (streq(type, "number"))
                buf_appendf(&message, "Number must be %s than %s%lld", small ? "greater" : "less",
                            inclusive ? "or equal to " : "", (long long)bound);
        else
                buf_appendf(&message, "%s must contain at %s %lld %s",
                            streq(type, "string") ? "String" : "Array", small ? "least" : "most",
                            (long long)bound, unit);
        add_at(c, take_path, MESSAGE_BEFORE_PATH, buf_str(&message),
               json_pack("{s:s, s:I, s:s, s:b, s:b}", "code", small ? "too_small" : "too_big",
                         small ? "minimum" : "maximum", (json_int_t)bound, "type", type,
                         "inclusive", inclusive, "exact", 0));
}

static void out_of_bound(struct check *c, const char *key, bool small, const char *type,
                         int64_t bound, bool inclusive, const char *text)
{
        out_of_bound_at(c, path_to(c, key, -1), small, type, bound, inclusive, text);
}

/* 'a' | 'b', or with ", " between them. */
static void put_quoted(struct buf *b, const char *word, const char *separator)
{
        if (b->len > 0)
                buf_puts(b, separator);
        buf_appendf(b, "'%s'", word);
}

/* ---- life cycle ---- */

void check_init(struct check *c, json_t *root)
{
        *c = (struct check){ .index = -1 };
        if (json_is_object(root))
                c->object = root;
        else
                wrong_type(c, NULL, "object", root, NULL);
}

void check_nested(struct check *c, struct check *parent, const char *key, json_t *object)
{
        *c = (struct check){ .parent = parent, .key = key, .index = -1 };
        if (json_is_object(object))
                c->object = object;
}

void check_nested_item(struct check *c, struct check *parent, const char *key, size_t index,
                       json_t *item)
{
        check_nested(c, parent, key, item);
        c->index = (int64_t)index;
        if (!c->object)
                wrong_type(c, NULL, "object", item, NULL);
}

void check_done(struct check *c)
{
        json_decref(c->issues);
        json_decref(c->scratch);
        c->issues = NULL;
        c->scratch = NULL;
}

void check_text(struct check *c, const char *text)
{
        c->next_text = text;
}

/* ---- fields ---- */

/* Steps over absent and null. Returns whether there is a value to look at; *ret_text is the text
 * given by check_text() for this field, which is used up. */
static bool fetch_member(struct check *c, const char *key, unsigned flags, const char *expected,
                         json_t **ret_value, const char **ret_text)
{
        json_t *v = json_object_get(c->object, key);

        *ret_text = c->next_text;
        c->next_text = NULL;
        *ret_value = v;
        if (!c->object || (json_is_null(v) && (flags & CHECK_NULLABLE)))
                return false;
        if (v)
                return true;
        if (flags & CHECK_REQUIRED)
                wrong_type(c, key, expected, NULL, *ret_text);
        return false;
}

static json_t *fetch_type(struct check *c, const char *key, unsigned flags, json_type type,
                          const char *expected)
{
        const char *text;
        json_t *v;

        if (!fetch_member(c, key, flags, expected, &v, &text))
                return NULL;
        if (json_typeof(v) == type)
                return v;
        wrong_type(c, key, expected, v, NULL);
        return NULL;
}

static size_t utf16_length(const char *s, size_t n)
{
        size_t units = 0;

        for (size_t i = 0; i < n; i++) {
                unsigned char byte = (unsigned char)s[i];

                if ((byte & 0xc0) != 0x80)
                        units += byte >= 0xf0 ? 2 : 1;
        }
        return units;
}

/* A NUL-terminated copy that lives as long as the check. */
static const char *keep_copy(struct check *c, const char *s, size_t n)
{
        struct check *root = root_of(c);
        json_t *copy = json_stringn(s, n);

        if (!root->scratch)
                root->scratch = json_array();
        json_array_append_new(root->scratch, copy);
        return json_string_value(copy);
}

const char *check_string(struct check *c, const char *key, unsigned flags, size_t min, size_t max)
{
        const char *s, *text;
        size_t n, all, units;
        json_t *v;

        if (!fetch_member(c, key, flags, "string", &v, &text))
                return NULL;
        if (!json_is_string(v)) {
                wrong_type(c, key, "string", v, NULL);
                return NULL;
        }
        s = json_string_value(v);
        n = all = json_string_length(v);
        if (flags & CHECK_TRIM)
                s = js_trim(s, n, &n);
        units = utf16_length(s, n);
        if (units < min) {
                out_of_bound(c, key, true, "string", (int64_t)min, true, text);
                return NULL;
        }
        if (max > 0 && units > max) {
                out_of_bound(c, key, false, "string", (int64_t)max, true, NULL);
                return NULL;
        }
        return n == all ? s : keep_copy(c, s, n);
}

const char *check_uuid(struct check *c, const char *key, unsigned flags)
{
        const char *s = check_string(c, key, flags, 0, 0);
        struct uuid id;

        if (s && !uuid_parse(s, &id)) {
                check_invalid_string(c, key, "uuid", "Invalid uuid");
                return NULL;
        }
        return s ? keep_copy(c, id.s, UUID_LEN) : NULL;
}

const char *check_enum(struct check *c, const char *key, unsigned flags, const char *const *options)
{
        CLEAN(buf_done) struct buf expected = BUF_INIT, message = BUF_INIT;
        const char *s, *text;
        json_t *v, *list;

        for (size_t i = 0; options[i]; i++)
                put_quoted(&expected, options[i], " | ");
        if (!fetch_member(c, key, flags, buf_str(&expected), &v, &text))
                return NULL;
        if (!json_is_string(v)) {
                wrong_type(c, key, buf_str(&expected), v, NULL);
                return NULL;
        }
        s = json_string_value(v);
        for (size_t i = 0; options[i]; i++)
                if (streq(s, options[i]))
                        return s;
        list = json_array();
        for (size_t i = 0; options[i]; i++)
                json_array_append_new(list, json_string(options[i]));
        buf_appendf(&message, "Invalid enum value. Expected %s, received '%s'", buf_str(&expected),
                    s);
        add_issue(c, key, MESSAGE_LAST, buf_str(&message),
                  json_pack("{s:O, s:s, s:o}", "received", v, "code", "invalid_enum_value",
                            "options", list));
        return NULL;
}

/* Number(v). Objects and arrays are NaN: JavaScript would make a number of [22], which is never
 * meant.
 */
static double coerced_number(const json_t *v)
{
        if (json_is_number(v))
                return json_number_value(v);
        if (json_is_string(v))
                return jsnum_parse(json_string_value(v), json_string_length(v));
        if (json_is_true(v))
                return 1;
        return json_is_false(v) || json_is_null(v) ? 0 : NAN;
}

static bool check_bounds(struct check *c, const char *key, unsigned flags, double d, int64_t min,
                         int64_t max, const char *text)
{
        bool ok = true;

        if ((flags & CHECK_POSITIVE) && d <= 0) {
                out_of_bound(c, key, true, "number", 0, false, text);
                ok = false;
        } else if (!(flags & CHECK_POSITIVE) && d < (double)min) {
                out_of_bound(c, key, true, "number", min, true, text);
                ok = false;
        }
        if (d > (double)max) {
                out_of_bound(c, key, false, "number", max, true, NULL);
                ok = false;
        }
        return ok;
}

/* Up to the bounds, which are the caller's business. False when there is nothing to bound. */
static bool fetch_number(struct check *c, const char *key, unsigned flags, double *ret,
                         const char **ret_text)
{
        json_t *v;

        if (!fetch_member(c, key, flags, "number", &v, ret_text))
                return false;
        if (!json_is_number(v) && !(flags & CHECK_COERCE)) {
                wrong_type(c, key, "number", v, NULL);
                return false;
        }
        *ret = coerced_number(v);
        if (isnan(*ret)) {
                wrong_type_at(c, path_to(c, key, -1), "number", "nan", NULL);
                return false;
        }
        return true;
}

int64_t check_int(struct check *c, const char *key, unsigned flags, int64_t min, int64_t max,
                  bool *ret_present)
{
        const char *text;
        bool ok = true;
        double d;

        if (ret_present)
                *ret_present = false;
        if (!fetch_number(c, key, flags, &d, &text))
                return 0;
        if (!jsnum_is_integer(d)) {
                add_issue(c, key, MESSAGE_BEFORE_PATH, "Expected integer, received float",
                          type_issue("integer", "float"));
                ok = false;
        }
        if (!check_bounds(c, key, flags, d, MAX(min, -JSNUM_MAX_SAFE), MIN(max, JSNUM_MAX_SAFE),
                          text) ||
            !ok)
                return 0;
        if (ret_present)
                *ret_present = true;
        return (int64_t)d;
}

double check_number(struct check *c, const char *key, unsigned flags, int64_t min, int64_t max,
                    bool *ret_present)
{
        const char *text;
        double d;

        if (ret_present)
                *ret_present = false;
        if (!fetch_number(c, key, flags, &d, &text) ||
            !check_bounds(c, key, flags, d, min, max, text))
                return 0;
        if (ret_present)
                *ret_present = true;
        return d;
}

bool check_bool(struct check *c, const char *key, unsigned flags, bool fallback)
{
        const char *text;
        json_t *v;

        if (!fetch_member(c, key, flags, "boolean", &v, &text))
                return fallback;
        if (!json_is_boolean(v)) {
                wrong_type(c, key, "boolean", v, NULL);
                return fallback;
        }
        return json_is_true(v);
}

json_t *check_record(struct check *c, const char *key, unsigned flags)
{
        return fetch_type(c, key, flags, JSON_OBJECT, "object");
}

json_t *check_array(struct check *c, const char *key, unsigned flags)
{
        return fetch_type(c, key, flags, JSON_ARRAY, "array");
}

json_t *check_strings(struct check *c, const char *key, unsigned flags, size_t min)
{
        json_t *array = check_array(c, key, flags), *item;
        bool ok = true;
        size_t i;

        json_array_foreach(array, i, item)
        {
                json_t *path = path_to(c, key, (int64_t)i);
                bool is_string = json_is_string(item);

                if (!is_string)
                        wrong_type_at(c, path, "string", type_name(item), NULL);
                else if (utf16_length(json_string_value(item), json_string_length(item)) < min)
                        out_of_bound_at(c, path, true, "string", (int64_t)min, true, NULL);
                else {
                        json_decref(path);
                        continue;
                }
                ok = false;
        }
        return ok ? array : NULL;
}

void check_null(struct check *c, const char *key)
{
        const char *text;
        json_t *v;

        if (fetch_member(c, key, CHECK_NULLABLE, "null", &v, &text))
                wrong_type(c, key, "null", v, NULL);
}

void check_literal(struct check *c, const char *key, unsigned flags, const char *value)
{
        CLEAN(buf_done) struct buf message = BUF_INIT;
        json_t *v = json_object_get(c->object, key), *issue;
        struct jw w;

        c->next_text = NULL;
        if (!c->object || (!v && !(flags & CHECK_REQUIRED)) ||
            (json_is_null(v) && (flags & CHECK_NULLABLE)))
                return;
        if (json_is_string(v) && streq(json_string_value(v), value))
                return;
        buf_puts(&message, "Invalid literal value, expected ");
        jw_init(&w, &message);
        jw_string(&w, value);
        issue = json_object();
        if (v) /* JSON has no undefined: a missing value has no `received` */
                json_object_set(issue, "received", v);
        json_object_set_new(issue, "code", json_string("invalid_literal"));
        json_object_set_new(issue, "expected", json_string(value));
        add_issue(c, key, MESSAGE_LAST, buf_str(&message), issue);
}

bool check_has(const struct check *c, const char *key)
{
        return json_object_get(c->object, key) != NULL;
}

void check_unknown(struct check *c, const char *const *known)
{
        CLEAN(buf_done) struct buf names = BUF_INIT, message = BUF_INIT;
        json_t *keys = NULL, *value;
        const char *key;

        json_object_foreach(c->object, key, value)
        {
                const char *const *listed = known;

                while (*listed && !streq(key, *listed))
                        listed++;
                if (*listed)
                        continue;
                if (!keys)
                        keys = json_array();
                json_array_append_new(keys, json_string(key));
                put_quoted(&names, key, ", ");
        }
        if (!keys)
                return;
        buf_appendf(&message, "Unrecognized key(s) in object: %s", buf_str(&names));
        add_issue(c, NULL, MESSAGE_LAST, buf_str(&message),
                  json_pack("{s:s, s:o}", "code", "unrecognized_keys", "keys", keys));
}

void check_custom(struct check *c, const char *key, const char *text)
{
        add_issue(c, key, MESSAGE_LAST, text, json_pack("{s:s}", "code", "custom"));
}

void check_invalid_string(struct check *c, const char *key, const char *validation,
                          const char *text)
{
        add_issue(c, key, MESSAGE_BEFORE_PATH, text,
                  json_pack("{s:s, s:s}", "validation", validation, "code", "invalid_string"));
}

void check_array_size(struct check *c, const char *key, const json_t *array, size_t min, size_t max)
{
        size_t n = json_array_size(array);

        if (!array)
                return;
        if (n < min)
                out_of_bound(c, key, true, "array", (int64_t)min, true, NULL);
        if (max > 0 && n > max)
                out_of_bound(c, key, false, "array", (int64_t)max, true, NULL);
}

/* ---- the end ---- */

bool check_failed(const struct check *c)
{
        while (c->parent)
                c = c->parent;
        return c->issues != NULL;
}

int check_end(struct check *c, struct err *err)
{
        struct check *root = root_of(c);

        if (!root->issues)
                return 0;
        err_set(err, ERR_INVALID, "Validation error");
        err_details(err, json_to_text(root->issues));
        check_done(root);
        return ERR_INVALID;
}

int check_end_config(struct check *c, struct err *err)
{
        struct check *root = root_of(c);

        if (!root->issues)
                return 0;
        err_set(err, ERR_UNPROCESSABLE, "%s",
                json_get_string(json_array_get(root->issues, 0), "message"));
        json_t *details = json_pack("{s:O}", "issues", root->issues);
        err_details(err, json_to_text(details));
        json_decref(details);
        check_done(root);
        return ERR_UNPROCESSABLE;
}
