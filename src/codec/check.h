/* Checking the shape of JSON that a caller sent, with the issue objects and texts that Paperclip's
 * clients expect (they are those of zod 3, member for member).
 *
 * Call the check_* functions in the order of the schema. Each reports what zod would report for
 * that field: nothing, one issue, or for a number several (0.5 where an integer from 1 is wanted is
 * both no integer and too small). Each returns what it found; a refused value reads as absent.
 * Strict objects end with check_unknown(), so the issue of unknown keys comes last.
 *
 * Values returned are borrowed from the document, or, when they had to be changed, from the check:
 * both outlive their use when the check is cleaned up at the end of the scope.
 *
 *     CLEAN(check_done) struct check c = { 0 };
 *     check_init(&c, body);
 *     const char *name = check_string(&c, "name", CHECK_REQUIRED, 1, 0);
 *     json_t *config = check_record(&c, "config", 0);
 *     check_unknown(&c, (const char *[]){ "name", "config", NULL });
 *     r = check_end(&c, err);          // 400 Validation error, details = issues
 *
 * When the root is no object there is one issue that says so, and the checks of its members do
 * nothing. One thread at a time. */
#pragma once

#include "codec/json.h"

enum {
        CHECK_OPTIONAL = 0,      /* absent is fine */
        CHECK_REQUIRED = 1 << 0, /* absent: "Required" */
        CHECK_NULLABLE = 1 << 1, /* null is fine and reads as absent */
        CHECK_TRIM = 1 << 2,     /* surrounding white space does not count; see check_string() */
        CHECK_COERCE = 1 << 3,   /* numbers: accept what Number(x) accepts */
        CHECK_POSITIVE = 1 << 4, /* numbers: below 1 is "Number must be greater than 0" */
};

/* On the caller's stack and not to be copied. The members are the module's own. */
struct check {
        json_t *object;        /* borrowed; NULL when there is none to look into */
        struct check *parent;  /* NULL at the root */
        const char *key;       /* borrowed: where in the parent; NULL at the root */
        int64_t index;         /* element of the array at key, or -1 */
        json_t *issues;        /* owned array, at the root only; NULL while there is none */
        json_t *scratch;       /* owned array, at the root only: keeps trimmed strings alive */
        const char *next_text; /* replaces "Required" and the too-small text of the next check */
};

/* `root` may be NULL: one issue, "Required", expected object. */
void check_init(struct check *c, json_t *root);
/* An object inside the parent's object, at `key`. It reports to its parent, which has to outlive
 * it, and needs no check_done(). A NULL object (absent, or refused already) checks nothing. */
void check_nested(struct check *c, struct check *parent, const char *key, json_t *object);
/* The same for element `index` of the array at `key`; an element that is no object is an issue. */
void check_nested_item(struct check *c, struct check *parent, const char *key, size_t index,
                       json_t *item);
/* May be called more than once. */
void check_done(struct check *c);

/* Use this text (borrowed) instead of the library's for a missing, blank or too short next field.
 */
void check_text(struct check *c, const char *text);

/* min and max are in characters as JavaScript counts them (UTF-16), 0 for none. With CHECK_TRIM the
 * trimmed copy is measured and returned. */
const char *check_string(struct check *c, const char *key, unsigned flags, size_t min, size_t max);
/* In lower case, however it was written. */
const char *check_uuid(struct check *c, const char *key, unsigned flags);
/* options is NULL-terminated. */
const char *check_enum(struct check *c, const char *key, unsigned flags,
                       const char *const *options);
/* An integer in [min, max]; INT64_MIN and INT64_MAX for no bound, which still means no further than
 * the integers that a double holds exactly. The texts name the bound; the wording "greater than 0"
 * is a different rule of the library: ask for it with CHECK_POSITIVE, and min is not looked at.
 * 0 when absent or refused; ret_present may be NULL. */
int64_t check_int(struct check *c, const char *key, unsigned flags, int64_t min, int64_t max,
                  bool *ret_present);
/* Any number in [min, max]. 0 when absent or refused; ret_present may be NULL. */
double check_number(struct check *c, const char *key, unsigned flags, int64_t min, int64_t max,
                    bool *ret_present);
bool check_bool(struct check *c, const char *key, unsigned flags, bool fallback);
json_t *check_record(struct check *c, const char *key, unsigned flags);
json_t *check_array(struct check *c, const char *key, unsigned flags);
/* An array of strings, each at least min characters. */
json_t *check_strings(struct check *c, const char *key, unsigned flags, size_t min);
/* Absent or null and nothing else. */
void check_null(struct check *c, const char *key);
/* The literal string `value` and nothing else. */
void check_literal(struct check *c, const char *key, unsigned flags, const char *value);

/* Whether the key is there at all, null included. */
bool check_has(const struct check *c, const char *key);

/* One issue for all keys that are not in the NULL-terminated list. */
void check_unknown(struct check *c, const char *const *known);

/* Issues that the caller found. key may be NULL: the object itself.
 * {"code":"custom","path":[..., key],"message":text} */
void check_custom(struct check *c, const char *key, const char *text);
/* {"validation":validation,"code":"invalid_string","message":text,"path":[..., key]}, for regex,
 * datetime and url. */
void check_invalid_string(struct check *c, const char *key, const char *validation,
                          const char *text);
/* "Array must contain at least <min> element(s)" and its opposite; 0 for no bound. */
void check_array_size(struct check *c, const char *key, const json_t *array, size_t min,
                      size_t max);

bool check_failed(const struct check *c);
/* 0, or ERR_INVALID "Validation error" with the issues as details. After a failure the check is
 * done and what it returned must not be used. */
int check_end(struct check *c, struct err *err);
/* 0, or ERR_UNPROCESSABLE with the first issue's text and details {"issues": [...]}: the form for
 * environment configurations. The same holds after a failure. */
int check_end_config(struct check *c, struct err *err);
