/* The table of the daemon's settings: what each is called, where it may come from, what it may be,
 * its default, and what it is for. config.c reads them by it; `man berth.toml` and
 * docs/settings.md are made from it (scripts/settings). */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum setting_type {
        SETTING_TEXT,   /* const char *; NULL: not given */
        SETTING_LIST,   /* const char *, joined by `separator`; NULL: not given */
        SETTING_NUMBER, /* int64_t */
        SETTING_COUNT,  /* unsigned */
        SETTING_SWITCH, /* bool */
        SETTING_WORD,   /* an enum: which of `words` */
        SETTING_SECOND, /* bool: whether it is the second of the two words */
        SETTING_NAME,   /* const char *: one of the words */
};

/* Where the manual has it. */
enum settings_section {
        SETTINGS_FILE,
        SETTINGS_VARIABLES,
        SETTINGS_SECRETS,
        SETTINGS_TESTS,
};

struct setting {
        const char *key;       /* in berth.toml; NULL: a variable only */
        const char *variable;  /* BERTH_…; NULL ends the table */
        const char *paperclip; /* the variable that Paperclip reads for it; NULL: none */
        const char *flag;      /* of `berth serve`; NULL: none */
        size_t flag_at;        /* in struct cli_serve_options */
        enum settings_section section;
        enum setting_type type;
        size_t at; /* in struct config */
        const char *text;
        int64_t number, min, max;
        const char *const *words; /* NULL-terminated; the default is words[number] */
        char separator;
        const char *otherwise; /* what the manual says about the default; NULL: the value itself */
        const char *help;      /* whole sentences, in the manual's markup; the first is a summary */
};

extern const struct setting settings_table[];
