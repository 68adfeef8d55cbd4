/* UUIDs in their text form, which is how the database, JSON and paths want them.
 * Generated ones have the layout of version 4, lower case, with the time in milliseconds in the
 * first 48 bits and 74 random bits behind it: new rows land at the right edge of every index, so
 * inserting stays as cheap in a large table as in a small one
 * (docs/decisions/0005-time-ordered-ids.md). They are names, not secrets; tokens come from
 * random_hex(). Any thread. */
#pragma once

#include "base/util.h"

#define UUID_LEN 36

struct uuid {
        char s[UUID_LEN + 1];
};

/* Aborts when the kernel has no randomness to give. */
struct uuid uuid_new(void);
/* For a run: random from its first digit on, because providers name machines by the first eight. */
struct uuid uuid_new_run(void);

/* 8-4-4-4-12 hexadecimal digits, any version, any case; *ret is lower case. */
bool uuid_parse(const char *text, struct uuid *ret);
bool uuid_is_valid(const char *text);

/* Fill p with n random bytes from the kernel; aborts when it has none to give. */
void random_bytes(void *p, size_t n);
/* n random bytes as 2n lower-case hexadecimal digits and a NUL. */
void random_hex(char *ret, size_t n);
