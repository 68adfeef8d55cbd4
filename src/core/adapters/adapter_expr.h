/* The small language of adapter descriptors: paths into documents, texts with holes, conditions,
 * and patterns. docs/adapters.md is the contract.
 *
 *   path       a.b.c; `a[].b` is every element of an array, `a[type=text].b` those of that kind
 *   template   "--model={{ model.id }}": an absent value is empty, objects are JSON
 *   condition  "config.model" (is set), "!config.model", {"path", "is"|"like"}, {"all"|"any"|"not"}
 *   pattern    a text that is looked for in each line, without regard to case; `*` stands for
 *              anything within the line, `^` at its start and `$` at its end anchor it there
 *
 * Documents may come from hostile programs: the work is bounded by the size of the document, times
 * the length of the path or pattern. No function here fails. Pure; any thread. */
#pragma once

#include "codec/json.h"

#define ADAPTER_PATH_MAX        256 /* bytes */
#define ADAPTER_CONDITION_DEPTH 8

/* Every value at the path, in order. */
typedef void (*adapter_value_fn)(void *ctx, const json_t *value);
void adapter_path_each(const json_t *root, const char *path, adapter_value_fn fn, void *ctx);
/* The last value at the path; NULL: none. */
const json_t *adapter_path_last(const json_t *root, const char *path);
/* The same; NULL when the value is not a text. */
const char *adapter_path_string(const json_t *root, const char *path);
/* A text that says what is wrong with a path, or NULL. */
const char *adapter_path_fault(const char *path);

/* A text that is not blank, true, a number above 0, something that has members. */
bool adapter_is_set(const json_t *value);
bool adapter_holds(const json_t *condition, const json_t *scope);
/* A text that says what is wrong with a condition, or NULL. */
const char *adapter_condition_fault(const json_t *condition);

void adapter_fill(struct buf *b, const char *template, const json_t *scope);
char *adapter_fill_arena(struct arena *arena, const char *template, const json_t *scope);

bool adapter_like(const char *pattern, const char *text, size_t len);
/* A pattern or a list of them; an absent one matches nothing. */
bool adapter_like_any(const json_t *patterns, const char *text, size_t len);
