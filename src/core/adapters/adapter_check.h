/* Checking the members of a descriptor against tables: the type of each member, and the members in
 * it. An error is ERR_INVALID and names the member with its full path. For the files of
 * adapter_descriptor.h; any thread. */
#pragma once

#include "codec/json.h"

/* The types that a member may have. */
enum adapter_member_kind {
        TEXT,
        FLAG,
        NUMBER,
        OBJECT,
        LIST,
        CONDITION,
        PATTERNS,
        PATHS,
        WORDS,
        CHOICE
};

/* Tables end with an empty one. */
struct adapter_member {
        const char *name;
        enum adapter_member_kind kind;
        const char *const *choices;
        int (*check)(const json_t *value, const char *where, struct err *err);
};

/* ERR_INVALID: "<where>.<name> <fault>". */
int adapter_check_bad(struct err *err, const char *where, const char *name, const char *fault);
int adapter_check_members(const json_t *object, const struct adapter_member *members,
                          const char *where, struct err *err);
/* Every element of a list. */
int adapter_check_each(const json_t *list, const struct adapter_member *members, const char *where,
                       struct err *err);
/* A word of a-z, 0-9, _ and -. */
bool adapter_check_is_word(const char *s);

/* adapter_check_assets.c */
int adapter_check_assets(const json_t *list, const char *where, struct err *err);
