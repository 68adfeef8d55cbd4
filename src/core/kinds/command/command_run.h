/* Running a command of a descriptor: its words, its environment, its input, and what it means when
 * it fails.
 *
 * A command has a process group and a session of its own that end with the operation and with the
 * daemon, no descriptor of the daemon's, and exactly the variables that the descriptor names. HOME
 * is a private directory unless the descriptor asks for the user's. Secrets reach it in variables
 * and on its standard input only, and are replaced in whatever is reported of it. Operation
 * threads. */
#pragma once

#include "core/kinds/command/command_internal.h"
#include "core/secrets/secret.h"

/* What a command is about. */
struct command_job {
        const struct command_kind *kind;
        const char *company_id, *environment_id; /* the last is NULL for an unsaved configuration */
        const char *place_id, *ref;              /* NULL: none */
        json_t *config;                          /* normal, as it is stored */
        const struct secret_context *context;    /* NULL: none */
        /* command_job_begin(): */
        json_t *resolved; /* with its secrets in clear */
        struct command_vars vars;
        const char *const *env;
        struct redactor *redactor; /* NULL: nothing to replace */
};

struct command_result {
        int status; /* of the program; -1: a signal ended it */
        struct buf out;
        enum command_failure failure;
        const char *said; /* in the arena: what it said about its failure */
        const char *hint; /* the descriptor's; NULL: none */
};

/* Resolve its secrets and make its environment. */
int command_job_begin(struct op *op, struct runtime *rt, struct command_job *j, struct err *err);
void command_job_done(struct command_job *j);
/* Run the command of a verb. 0 when it ended with status 0; otherwise an error by what it means:
 * ERR_NOT_FOUND the place is gone, ERR_CONFLICT it exists already, ERR_BUSY, ERR_UNREACHABLE,
 * ERR_UNPROCESSABLE and else ERR_PROVIDER. *ret is the caller's either way (command_result_done()).
 */
int command_run(struct op *op, struct runtime *rt, struct command_job *j, enum command_verb verb,
                struct command_result *ret, struct err *err);
void command_result_done(struct command_result *r);
/* The same for one command about a place, from its beginning to its end (command.c). */
int command_about(struct op *op, struct runtime *rt, const struct place *place,
                  enum command_verb verb, struct err *err);
/* An error text from what a process said: that of a failed `reach`. */
int command_explain(struct op *op, const struct command_job *j, const char *verb, const char *said,
                    int code, struct command_result *ret, struct err *err);
