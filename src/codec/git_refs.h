/* What a git repository says of its branches: HEAD, files of single refs, and packed-refs, as bytes
 * from an untrusted source. Object names are SHA-1.
 *
 * Names are taken only when git would take them, and not with what a shell reads otherwise: they
 * end up in the scripts of people. Any thread. */
#pragma once

#include "base/err.h"

#define GIT_HEX      40
#define GIT_NAME_MAX 250

struct git_ref {
        char name[GIT_NAME_MAX + 1]; /* "refs/heads/main"; "" for a HEAD that is on no branch */
        char oid[GIT_HEX + 1];       /* lower case; "" when it is not known */
};

/* Whether a file system could take a name of `len` bytes for `plain` (lower case, ASCII): whatever
 * its case, with characters in it that Unicode calls ignorable, with dots and blanks at its end.
 * ".git" has a short name too. */
bool git_part_is(const char *name, size_t len, const char *plain);

/* "refs/…" that git would accept. */
bool git_ref_name_ok(const char *name);
bool git_oid_ok(const char *hex);

/* The content of HEAD: a branch (name without oid) or a commit (oid without name). */
bool git_parse_head(const char *bytes, size_t len, struct git_ref *ret);
/* The content of the file of one ref: "<hex>\n". */
bool git_parse_oid(const char *bytes, size_t len, char ret[GIT_HEX + 1]);

/* One line of packed-refs after the other; lines that are none of a ref are passed over. *at begins
 * at 0. False at the end. */
bool git_packed_next(const char *bytes, size_t len, size_t *at, struct git_ref *ret);
