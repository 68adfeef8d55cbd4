/* JSON in and out.
 *
 * In: json_parse() is jansson with the screws tight: one document (a lone scalar too), valid UTF-8,
 * no duplicate keys, no NUL, no lone surrogates, nesting at most JSON_MAX_DEPTH. Numbers follow
 * JavaScript: integral and within 2^53 is an integer, however it was written (1.0, 1e2); everything
 * else is a double, so integers past 2^53 are rounded. Key order is kept.
 * Out: documents are written as JSON.stringify would write them, except that U+2028 and U+2029 are
 * escaped; answers are built with struct jw, an append-only writer on a buf that never goes back.
 * What json_put() writes, json_parse() reads back as an equal document.
 *
 * Any thread; a json_t is used by one thread at a time. */
#pragma once

#include <jansson.h>

#include "base/arena.h"
#include "base/buf.h"
#include "base/err.h"

#define JSON_MAX_DEPTH 128

/* On failure ERR_INVALID with a text that says where and what, and repeats nothing of the input.
 * *ret is a new reference. */
int json_parse(const char *text, size_t len, json_t **ret, struct err *err);

/* For what a program in another language wrote and cannot help: strings may hold U+0000 (so their
 * length counts, json_string_length()), and lone surrogates and bytes that are no UTF-8 become
 * U+FFFD. Not for anything that is stored. */
int json_parse_lenient(const char *text, size_t len, json_t **ret, struct err *err);

/* Append v as JSON.stringify(v) would print it. NULL writes null. */
void json_put(struct buf *b, const json_t *v);
/* The same as a heap string, of any length; never NULL. */
char *json_to_text(const json_t *v);

/* The same in an arena. */
const char *json_to_arena(struct arena *arena, const json_t *v);
/* The other way round: the arena keeps the value, and it is returned (NULL gives NULL); and the
 * value of a text, NULL when the text is NULL or no JSON. */
json_t *json_keep(struct arena *arena, json_t *take_value);
json_t *json_from_text(struct arena *arena, const char *text);
/* A string, or null for NULL. A new reference. */
json_t *json_string_or_null(const char *s);

/* Borrowed members; NULL when absent or of another type. */
const char *json_get_string(const json_t *object, const char *key);
json_t *json_get_object(const json_t *object, const char *key);

/* The writer. Commas are its own business. A failed buffer (base/buf.h) makes it a no-op. */
struct jw {
        struct buf *b;
        bool comma;
};

void jw_init(struct jw *w, struct buf *b);
void jw_object(struct jw *w);
void jw_object_end(struct jw *w);
void jw_array(struct jw *w);
void jw_array_end(struct jw *w);
void jw_key(struct jw *w, const char *key);
void jw_string(struct jw *w, const char *s); /* NULL writes null; invalid UTF-8 becomes U+FFFD */
void jw_string_n(struct jw *w, const char *s, size_t n);
void jw_int(struct jw *w, int64_t v);
void jw_bool(struct jw *w, bool v);
void jw_null(struct jw *w);
void jw_time(struct jw *w, int64_t us);       /* ISO text; 0 writes null */
void jw_raw(struct jw *w, const char *json);  /* already JSON; NULL writes null */
void jw_value(struct jw *w, const json_t *v); /* NULL writes null */

/* key and value in one call. */
void jw_kstring(struct jw *w, const char *key, const char *s);
void jw_kint(struct jw *w, const char *key, int64_t v);
void jw_kbool(struct jw *w, const char *key, bool v);
void jw_knull(struct jw *w, const char *key);
void jw_ktime(struct jw *w, const char *key, int64_t us);
void jw_kraw(struct jw *w, const char *key, const char *json);
void jw_kvalue(struct jw *w, const char *key, const json_t *v);
