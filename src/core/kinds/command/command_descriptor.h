/* Descriptors of kinds whose places are made by commands: what is in such a file, how its commands
 * are put together from a configuration, and how their output is read (docs/kinds.md is the
 * author's page).
 *
 * A descriptor is data: commands are lists of words, with placeholders `${name}` for options of the
 * configuration and for the words below; no shell sees them. What a program prints is foreign, and
 * so is a descriptor until command_descriptor_check() has accepted it: everything here is bounded.
 *
 * Pure functions; any thread. */
#pragma once

#include "base/arena.h"
#include "codec/json.h"

#define COMMAND_FILE_MAX ((size_t)256 << 10)
#define COMMAND_ARGS_MAX 100

enum command_verb {
        COMMAND_PROBE,
        COMMAND_CREATE,
        COMMAND_WAIT,
        COMMAND_REACH,
        COMMAND_DESTROY,
        COMMAND_LIST,
        COMMAND_PAUSE,
        COMMAND_RESUME,
        COMMAND_RENEW,
        COMMAND_N_VERBS
};

extern const char *const command_verbs[COMMAND_N_VERBS];

/* What placeholders may name besides options. */
enum command_word {
        WORD_ID,          /* of the place: the owner tag */
        WORD_NAME,        /* berth-ID */
        WORD_REF,         /* what create answered with; the name where it answers with nothing */
        WORD_NODE,        /* which daemon made it */
        WORD_COMPANY,     /* ids */
        WORD_ENVIRONMENT, /* the same */
        WORD_SH,          /* what a shell there is to run: the argument after `sh -c` */
        WORD_LOGIN,       /* the same as one line for any login shell */
        WORD_LOST_AFTER,  /* renew.lostAfterSeconds */
        WORD_N
};

struct command_vars {
        const json_t *options; /* a normal configuration */
        const char *words[WORD_N];
};

/* ERR_INVALID, with a text that says where and what. */
int command_descriptor_check(const json_t *descriptor, struct err *err);

/* The command of a verb, an object; NULL: there is none. */
const json_t *command_of(const json_t *descriptor, enum command_verb verb);
/* A number of a command in milliseconds, from its member in seconds. */
int64_t command_ms(const json_t *command, const char *member, int64_t fallback_s);

/* Put a list of words together; NULL-terminated and in the arena. ERR_UNPROCESSABLE when it becomes
 * too long. */
int command_fill_args(struct arena *arena, const json_t *list, const struct command_vars *vars,
                      const char ***ret, struct err *err);
/* The same for what goes to standard input: a text, or a document in which a text that is nothing
 * but a placeholder becomes the option's value, and what names an option that is not set is left
 * out. *ret is NULL where there is no input. */
int command_fill_input(struct arena *arena, const json_t *input, const struct command_vars *vars,
                       const char **ret, struct err *err);
/* One text; NULL when it names an option that is not set. In the arena. */
const char *command_fill_text(struct arena *arena, const char *text,
                              const struct command_vars *vars);

/* Whether a text matches an extended regular expression of POSIX. *ret_group (may be NULL) is what
 * its first group matched, or all of it; in the arena. */
bool command_matches(struct arena *arena, const char *pattern, const char *text,
                     const char **ret_group);

/* Something that `list` named. */
struct command_thing {
        const char *tag, *ref, *node; /* the last two may be NULL */
};
typedef int (*command_thing_fn)(void *ctx, const struct command_thing *thing);
/* Read the output of `list`: every line or item whose tag is an id of ours. ERR_PROVIDER when it is
 * not what the descriptor says. */
int command_read_list(struct arena *arena, const json_t *command, const char *text, size_t len,
                      command_thing_fn fn, void *ctx, struct err *err);

/* What a failed command means, by the descriptor's patterns. */
enum command_failure {
        FAILURE_OTHER,
        FAILURE_GONE,        /* the place does not exist (any more) */
        FAILURE_EXISTS,      /* create: it exists already */
        FAILURE_BUSY,        /* not now: a quota, a queue */
        FAILURE_UNREACHABLE, /* the provider does not answer */
        FAILURE_DENIED,      /* a key or a right is missing */
        FAILURE_REFUSED,     /* the configuration cannot work */
};
/* *ret_hint (may be NULL where there is none) is the descriptor's. */
enum command_failure command_failure_of(struct arena *arena, const json_t *descriptor,
                                        const char *said, const char **ret_hint);
