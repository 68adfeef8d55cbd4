/* Options and words of one command line.
 *
 * Options may stand before or after the words of a command: `berth --json env list` and `berth env
 * list --json` are the same. `--name VALUE`, `--name=VALUE`, `-o VALUE` and `-oVALUE` are
 * understood; `--` ends the options. The tables of the levels reached so far are all in force, the
 * innermost first.
 *
 * Reading an option that no table in force has is a programming mistake and aborts.
 *
 * Everything is borrowed from argv and from the tables. One thread. */
#pragma once

#include "base/err.h"

/* A table ends with a NULL name. */
struct cli_option {
        const char *name;  /* without dashes */
        const char *value; /* how the help calls the value; NULL: it is a flag */
        const char *help;  /* NULL: not shown to users */
        char letter;       /* 0: none */
        bool is_list;      /* each value given counts, instead of the last one */
};

#define OPTION(...)                                                                                \
        {                                                                                          \
                __VA_ARGS__                                                                        \
        }

#define OPTIONS(...)                                                                               \
        (const struct cli_option[])                                                                \
        {                                                                                          \
                __VA_ARGS__,                                                                       \
                {                                                                                  \
                        0                                                                          \
                }                                                                                  \
        }

#define ARGS_MAX_TABLES 4

struct args {
        char **argv;
        size_t argc;
        size_t at;          /* the next one to read */
        bool options_ended; /* `--` was seen */
        const struct cli_option *tables[ARGS_MAX_TABLES];
        size_t n_tables;
        struct arg_given *given;
        size_t n_given;
        const char **words;
        size_t n_words;
};

/* argv without the program's name. */
void args_init(struct args *a, int argc, char **argv);
void args_done(struct args *a);
void args_add_table(struct args *a, const struct cli_option *table);

/* Read options up to the next word and return it, or NULL at the end. ERR_USAGE for an option that
 * is unknown, lacks its value or has one too many. */
int args_next_word(struct args *a, const char **ret_word, struct err *err);
/* Read all that is left; the words are then in a->words. Where the command line ends with that of
 * another program, `own` says after how many words of ours the next one ends the options, as `--`
 * does; SIZE_MAX: it does not. */
int args_rest(struct args *a, size_t own, struct err *err);

bool args_flag(const struct args *a, const char *name);
/* NULL when not given. */
const char *args_value(const struct args *a, const char *name);
/* The index'th value of a list, NULL past the end. */
const char *args_item(const struct args *a, const char *name, size_t index);
