/* Commands that are one request: what the first word names, what is sent, and how the answer is
 * shown, as a table beside the command's name and help (command.h). One thread. */
#pragma once

#include "cli/args.h"
#include "cli/listing.h"

/* A kind of thing that people name: by id, by name, or by a part of the id. */
struct cli_kind {
        const char *what;    /* in messages */
        const char *command; /* `berth COMMAND list` shows those there are; NULL: nothing does */
        const char *path;    /* of one, before its id */
        /* Of all, from which one is picked. NULL: the daemon finds it by whatever was given. */
        const char *list;
        const char *name, *other;   /* members that name one besides its id; NULL: none */
        bool is_partial;            /* the list has less of each than GET of one */
        const struct field *fields; /* as labelled values, */
        void (*print)(struct cli *c, const json_t *object); /* unless this prints it */
        int (*find)(struct cli *c, const char *given, json_t **ret, struct err *err); /* or NULL */
};

enum member_type {
        MEMBER_TEXT,
        MEMBER_NUMBER, /* digits */
        MEMBER_TRUE,   /* a flag: true, or not there */
        MEMBER_BOOL,   /* a flag: true or false */
        MEMBER_ID,     /* the id of what is named, of `kind` */
        MEMBER_PLACE,  /* the id of an environment: says so when it is not isolated */
        MEMBER_CONFIG, /* what --config and -o say */
};

/* A member of what is sent: of the body, or, for GET and DELETE, of the query. A table of them ends
 * with a NULL name. */
struct cli_member {
        const char *name;
        const char *option;
        enum member_type type;
        unsigned word; /* from the first (1), second ... word instead of an option */
        const struct cli_kind *kind;
        const char *otherwise; /* when it was not given; NULL: nothing is sent */
};

#define MEMBERS(...)                                                                               \
        (const struct cli_member[])                                                                \
        {                                                                                          \
                __VA_ARGS__,                                                                       \
                {                                                                                  \
                        0                                                                          \
                }                                                                                  \
        }

struct cli_action {
        const struct cli_kind *kind; /* what the first word names; NULL: no existing thing */
        const char *method;          /* NULL: nothing is sent, what was found is shown */
        /* What follows the path of the thing; or, from the first slash of /api/ on, a whole path.
         * {company} and {id} are put in. */
        const char *path;
        bool by_id;         /* a whole id is believed, without asking for the thing */
        bool makes_company; /* the first company is made where there is none */
        bool is_new; /* the first word names an `answer` that is not there: cli_check_new() */
        const struct cli_member *members;
        const char *nothing; /* ERR_USAGE with this text when no member was given; NULL: fine */

        /* The answer, with --json as it is. Without any of these it is shown as `kind` is. */
        const struct cli_kind *answer;
        const struct field *columns; /* it is a list, or has one */
        const char *within;          /* the member that is the list; NULL: the answer is */
        const char *none;            /* when it is empty */
        void (*print)(struct cli *c, const json_t *answer);
        const char *done;                    /* a line with this word and the id */
        int (*status)(const json_t *answer); /* the exit status; NULL: 0 */
};

/* The whole command. Returns an exit status, or an error below 0. */
int cli_act(struct cli *c, const struct args *a, const struct cli_action *act, struct err *err);

/* Set in `body` what the options and words say. */
int cli_fill(struct cli *c, const struct args *a, const struct cli_member *members, json_t *body,
             struct err *err);
/* Fill {company} and {id} in. */
int cli_path(struct cli *c, const char *pattern, const char *id, bool makes_company,
             const char **ret, struct err *err);
/* One request whose answer is shown as things of that kind are. */
int cli_send(struct cli *c, const char *method, const char *path, json_t *take_body,
             const struct cli_kind *kind, struct err *err);
/* With --json the answer, else the line. */
void cli_answer(struct cli *c, const json_t *answer, const char *fmt, ...) PRINTF(3, 4);
/* As --json, or as its kind is shown. */
void cli_show(struct cli *c, const struct cli_kind *kind, const json_t *object);
int cli_find(struct cli *c, const struct cli_kind *kind, const char *given, json_t **ret,
             struct err *err);
/* Its id alone; a whole one is believed. */
int cli_find_id(struct cli *c, const struct cli_kind *kind, const char *given, const char **ret,
                struct err *err);
/* Set a member that an option gave; nothing for NULL. ERR_USAGE when it is no UTF-8. */
int body_set(json_t *body, const char *key, const char *value, struct err *err);
