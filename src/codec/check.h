/* Checking the shape of JSON that a caller sent, with the issue objects and texts that Paperclip's
 * clients expect (they are those of zod 3).
 *
 * Call the check_* functions in the order of the schema; each reports at most one issue per field and
 * returns what it found. Strict objects end with check_unknown(), so the issue of unknown keys comes
 * last. Values returned are borrowed from the document.
 *
 *     struct check c; check_init(&c, body);
 *     const char *name = check_string(&c, "name", CHECK_REQUIRED, 1, 0);
 *     json_t *config = check_record(&c, "config", 0);
 *     check_unknown(&c, (const char *[]){ "name", "config", NULL });
 *     return check_end(&c, err);          // 400 Validation error, details = issues
 *
 * One thread at a time. */
#ifndef BERTH_CODEC_CHECK_H
#define BERTH_CODEC_CHECK_H

#include "codec/json.h"

enum {
        CHECK_OPTIONAL = 0,      /* absent is fine */
        CHECK_REQUIRED = 1 << 0, /* absent: "Required" */
        CHECK_NULLABLE = 1 << 1, /* null is fine and reads as absent */
        CHECK_TRIM = 1 << 2,     /* surrounding white space does not count; see check_string() */
        CHECK_COERCE = 1 << 3,   /* numbers: accept what Number(x) accepts */
};

struct check {
        json_t *object;  /* borrowed; NULL when the root was no object */
        json_t *issues;  /* owned array */
        json_t *path;    /* owned array: where `object` is */
        json_t *scratch; /* owned array: keeps trimmed strings alive */
        const char *required_text; /* replaces "Required" and the too-small text of the next check */
};

/* `root` may be NULL: one issue, "Required", expected object. */
void check_init(struct check *c, json_t *root);
/* A nested object that shares the issues of its parent; done with its parent. */
void check_nested(struct check *c, struct check *parent, const char *key, json_t *object);
void check_done(struct check *c);

/* Use this text instead of the library's for a missing, blank or too short next field. */
void check_text(struct check *c, const char *text);

/* min and max are in characters, 0 for none. With CHECK_TRIM the trimmed copy is returned. */
const char *check_string(struct check *c, const char *key, unsigned flags, size_t min, size_t max);
const char *check_uuid(struct check *c, const char *key, unsigned flags);
const char *check_enum(struct check *c, const char *key, unsigned flags, const char *const *options);
/* ret_present may be NULL. Out of [min, max]: the library's texts, "greater than 0" when min is 1 and
 * CHECK_POSITIVE is not wanted is never guessed: pass positive_text for that wording. */
int64_t check_int(struct check *c, const char *key, unsigned flags, int64_t min, int64_t max,
                  bool *ret_present);
bool check_bool(struct check *c, const char *key, unsigned flags, bool fallback);
json_t *check_record(struct check *c, const char *key, unsigned flags);
json_t *check_array(struct check *c, const char *key, unsigned flags);
/* The literal string `value` and nothing else. */
void check_literal(struct check *c, const char *key, unsigned flags, const char *value);

/* Whether the key is there at all, null included. */
bool check_has(const struct check *c, const char *key);

/* One issue for all keys that are not in the NULL-terminated list. */
void check_unknown(struct check *c, const char *const *known);

/* An issue of ours: {"code":"custom","path":[..., key],"message":text}. key may be NULL. */
void check_custom(struct check *c, const char *key, const char *text);

bool check_failed(const struct check *c);
/* 0, or ERR_INVALID "Validation error" with the issues as details. */
int check_end(struct check *c, struct err *err);
/* 0, or ERR_UNPROCESSABLE with the first issue's text and details {"issues": [...]}: the form for
 * environment configurations. */
int check_end_config(struct check *c, struct err *err);

#endif
