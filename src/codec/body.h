/* Bodies of requests, decoded into structs: a table says what each member is called, what it may be
 * and where it goes.
 *
 *     static const struct body_member members[] = {
 *             BODY_TEXT(struct project, name, "name", .flags = CHECK_REQUIRED, .min = 1),
 *             BODY_WORD(struct project, status, "status", statuses),
 *     };
 *     const struct body_type project_body = BODY_TYPE(members);
 *
 * A body that makes something has all required members, and members that are not given keep what
 * the struct had before. A body that changes something has any of them: body_apply() puts those
 * that were given over a row, null included.
 *
 * A caller without the right to do something is told so, whatever its body says. So what is wrong
 * with a body stays with it until its turn comes: body_check(). Any thread. */
#pragma once

#include "codec/check.h"

enum body_kind {
        BODY_IS_TEXT,     /* const char *, a copy; .min and .max characters */
        BODY_IS_TRIMMED,  /* the same without white space around it; blank is NULL */
        BODY_IS_UUID,     /* const char * */
        BODY_IS_WORD,     /* const char *, one of .words */
        BODY_IS_DOCUMENT, /* const char *: the JSON of an object */
        BODY_IS_NUMBER,   /* int64_t from .min to .max; .max 0: no bound */
        BODY_IS_TIME,     /* int64_t, microseconds; null is 0 */
        BODY_IS_FLAG,     /* bool */
        BODY_IS_PRESENT,  /* bool: whether it is there, whatever it is */
        BODY_IS_OBJECT,   /* json_t *, of the body */
        BODY_IS_LIST,     /* json_t *, of the body */
        BODY_IS_STRINGS,  /* the same; each has at least .min characters */
};

enum body_when {
        BODY_ALWAYS = 0,
        BODY_CREATING, /* only looked at in a body that makes something */
        BODY_CHANGING, /* only in one that changes something */
};

struct body_member {
        const char *name;
        const char *const *words;
        /* Looks further into a value that is there; reports to the check. */
        void (*more)(struct check *c, const struct body_member *m, void *into, struct arena *arena);
        int64_t min, max;
        uint16_t offset;
        uint8_t kind, flags /* CHECK_* */, when;
        bool unnamed; /* body_names() leaves it out */
};

struct body_type {
        const struct body_member *members;
        size_t n;       /* at most 64 */
        bool is_strict; /* unknown members are refused */
};

/* What there is to know about a body beside its values. */
struct body {
        uint64_t given;    /* bit i: member i of the table was there, null included */
        struct err *fault; /* the arena's; NULL: it is good */
};

#define BODY_MEMBER(kind_, row, field, c_type, json_name, ...)                                     \
        {                                                                                          \
                .kind = (kind_), .name = (json_name),                                              \
                .offset = offsetof(row, field) + 0 * sizeof((c_type *){ &((row *)0)->field }),     \
                __VA_ARGS__                                                                        \
        }
#define BODY_STRING_(kind, row, field, ...) BODY_MEMBER(kind, row, field, const char *, __VA_ARGS__)
#define BODY_TEXT(row, field, ...)          BODY_STRING_(BODY_IS_TEXT, row, field, __VA_ARGS__)
#define BODY_TRIMMED(row, field, ...)       BODY_STRING_(BODY_IS_TRIMMED, row, field, __VA_ARGS__)
#define BODY_UUID(row, field, ...)          BODY_STRING_(BODY_IS_UUID, row, field, __VA_ARGS__)
#define BODY_DOCUMENT(row, field, ...)      BODY_STRING_(BODY_IS_DOCUMENT, row, field, __VA_ARGS__)
#define BODY_WORD(row, field, json_name, ...)                                                      \
        BODY_STRING_(BODY_IS_WORD, row, field, json_name, .words = __VA_ARGS__)
#define BODY_NUMBER(row, field, ...)  BODY_MEMBER(BODY_IS_NUMBER, row, field, int64_t, __VA_ARGS__)
#define BODY_TIME(row, field, ...)    BODY_MEMBER(BODY_IS_TIME, row, field, int64_t, __VA_ARGS__)
#define BODY_FLAG(row, field, ...)    BODY_MEMBER(BODY_IS_FLAG, row, field, bool, __VA_ARGS__)
#define BODY_PRESENT(row, field, ...) BODY_MEMBER(BODY_IS_PRESENT, row, field, bool, __VA_ARGS__)
#define BODY_OBJECT(row, field, ...)  BODY_MEMBER(BODY_IS_OBJECT, row, field, json_t *, __VA_ARGS__)
#define BODY_LIST(row, field, ...)    BODY_MEMBER(BODY_IS_LIST, row, field, json_t *, __VA_ARGS__)
#define BODY_STRINGS(row, field, ...)                                                              \
        BODY_MEMBER(BODY_IS_STRINGS, row, field, json_t *, __VA_ARGS__)
#define BODY_TYPE(list, ...)                                                                       \
        {                                                                                          \
                .members = (list), .n = ARRAY_LEN(list), __VA_ARGS__                               \
        }

/* Decode `json` (NULL: there is none, which is a fault) into the struct at `into`. Texts are copies
 * in the arena. */
struct body body_decode(const struct body_type *type, json_t *json, bool creating,
                        struct arena *arena, void *into);
/* 0, or what is wrong with the body. */
int body_check(const struct body *body, struct err *err);
/* Whether the member was given. */
bool body_has(const struct body_type *type, const struct body *body, const char *name);
/* Copy the members that were given and lie in the first to_size bytes of the struct. */
void body_apply(const struct body_type *type, const struct body *body, const void *from, void *to,
                size_t to_size);
/* The names of the members that were given, sorted. The arena's. */
json_t *body_names(const struct body_type *type, const struct body *body, struct arena *arena);
