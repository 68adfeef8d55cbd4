/* What every subcommand shares: the table of commands, the state of one invocation, talking to the
 * daemon, and finding things by name or by a part of the id.
 *
 * A command is one row: its words, help and options, and what it does. Most are one request, which
 * the row says too (action.h); the others have a function. The rows of a group are a table in the
 * group's file (cmd_env.c, cmd_lease.c ...), the groups are rows of commands.c.
 *
 * A command's run() returns 0 or an exit status for "done", or an error code below 0 with *err
 * filled, which cli_main() prints and turns into the exit status. Answers of the daemon (json_t)
 * are borrowed: they live as long as struct cli, as does everything from its arena.
 *
 * One thread. */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "cli/action.h"
#include "cli/args.h"
#include "cli/cli.h"
#include "codec/json.h"

struct berth;
struct berth_error;
struct berth_options;
struct cli;

/* A row of a table of commands; a NULL name ends it. */
struct cli_command {
        const char *name;
        const char *synopsis; /* what follows the name in the usage line */
        const char *summary;  /* one line, no full stop */
        const char *example;  /* a line that works when pasted */
        const char *notes;    /* further lines for --help, or NULL */
        size_t words;         /* how many words it takes, at least */
        size_t max_words;     /* 0: no more than that */
        /* The last of `words` is a program; the words behind it are its arguments, never our
         * options. */
        bool takes_command;
        const struct cli_option *options; /* NULL: none of its own */
        const struct cli_command *sub;    /* a group when not NULL */
        struct cli_action act;            /* what it does, unless */
        /* this does. A group with neither needs a subcommand. */
        int (*run)(struct cli *c, const struct args *a, struct err *err);
};

extern const struct cli_command cli_top;        /* `berth` itself */
extern const struct cli_command cli_commands[]; /* commands.c */
extern const struct cli_option cli_global_options[];

extern const struct cli_command company_commands[], env_commands[], lease_commands[],
        snapshot_commands[], image_commands[], workspace_commands[], leaks_commands[],
        key_commands[], adapter_commands[], kind_commands[], agent_commands[], runs_commands[],
        issue_commands[], project_commands[], plugin_commands[], activity_commands[],
        secret_commands[], vault_commands[], db_commands[];
extern const struct cli_option run_options[], serve_options[];

/* The commands without subcommands, and what `berth leaks` does by itself. */
int cmd_run(struct cli *c, const struct args *a, struct err *err);
int cmd_serve(struct cli *c, const struct args *a, struct err *err);
int cmd_doctor(struct cli *c, const struct args *a, struct err *err);
int cmd_help(struct cli *c, const struct args *a, struct err *err);
int cmd_faults(struct cli *c, const struct args *a, struct err *err);
int cmd_fork(struct cli *c, const struct args *a, struct err *err);
int cmd_leaks(struct cli *c, const struct args *a, struct err *err);
/* cmd_secret.c: say what became of each that was to be taken up; the exit status. */
int secret_imported(struct cli *c, const json_t *answer);

/* Each in the file of its commands. */
extern const struct cli_kind kind_company, kind_environment, kind_lease, kind_snapshot, kind_agent,
        kind_run, kind_issue, kind_project, kind_secret, kind_vault;

struct cli {
        const struct cli_hooks *hooks;
        struct arena arena;
        bool json;             /* --json: print the API's object */
        const char *api_url;   /* --api-url or environment; NULL: look for a daemon */
        const char *api_key;   /* NULL: none */
        const char *company;   /* id or name as given; NULL: not given */
        const char *data;      /* data directory; never NULL */
        const char *data_flag; /* --data as given, NULL when not */
        bool data_given;       /* by --data or BERTH_DATA */
        struct berth *api;     /* opened by the first call */
        int end_by_signal;     /* end the process by this signal when all is done; 0: do not */
};

/* Fill everything but the connection from the global options and the environment. */
int cli_init(struct cli *c, const struct cli_hooks *hooks, const struct args *a, struct err *err);
void cli_done(struct cli *c);

/* The first variable that is set and not empty, or NULL. */
const char *cli_env(const char *ours, const char *paperclips);

/* help.c. `path` is the command's full name, "berth env create". */
void cli_print_help(const char *path, const struct cli_command *command);
const struct cli_command *cli_find_command(const struct cli_command *table, const char *name);
int cli_unknown_command(const struct cli_command *table, const char *path, const char *typed,
                        struct err *err);

/* -- The daemon (session.c) ------------------------------------------------------------------- */

/* Where to connect: --api-url, the environment, the Unix socket of the data directory, the default
 * port, in this order. The strings are the arena's. */
int cli_endpoint(struct cli *c, struct berth_options *ret, struct err *err);
/* 1 when root or this user listens on the port, 0 when nobody does; ERR_FORBIDDEN when another user
 * does (port_owner.c). */
int cli_check_port(unsigned port, struct err *err);
/* The handle, opened by the first call; c owns it. Without an address, and with no daemon there, a
 * private one is started (private.h). */
int cli_connect(struct cli *c, struct berth **ret, struct err *err);

/* One request. take_body may be NULL. An answer of 400 and above is an error with the daemon's text
 * and details. *ret may be NULL when the answer was empty; ret itself may be NULL. */
int cli_call(struct cli *c, const char *method, const char *path, json_t *take_body, json_t **ret,
             struct err *err);
/* The same for a list: ERR_PROVIDER when the answer is no array. */
int cli_call_list(struct cli *c, const char *path, json_t **ret, struct err *err);

/* Turn an error of the client library into ours; returns the code. */
int cli_api_error(const struct berth_error *error, struct err *err);

/* Keep a new reference until the end and return it, borrowed. */
json_t *cli_keep(struct cli *c, json_t *take_value);

char *cli_printf(struct cli *c, const char *fmt, ...) PRINTF(2, 3);
/* Percent-encoded for use as one path segment or query value. */
const char *cli_escape(struct cli *c, const char *text);

/* -- Finding things (resolve.c) --------------------------------------------------------------- */

/* The company's id: the one given, or the only one there is. When there is none and `create` is
 * set, makes one named "Default" and says so. */
int cli_company(struct cli *c, bool create, const char **ret_id, struct err *err);
/* An environment that is chosen as a place for work: says so when it is not isolated. */
int cli_place(struct cli *c, const char *given, json_t **ret, struct err *err);
int cli_environments(struct cli *c, json_t **ret_list, struct err *err);

/* "NAME (ID)" of what GET `folder`/ID answers; the id alone when that is not there any more. */
const char *cli_named(struct cli *c, const char *folder, const char *id);

/* The element of `list` meant by `given`: an exact id, one of the kind's names, or at least
 * CLI_PART_MIN characters with which exactly one id begins or ends. */
#define CLI_PART_MIN 4
int cli_pick(const struct cli_kind *kind, json_t *list, const char *given, json_t **ret,
             struct err *err);

/* ERR_CONFLICT when the company has one of that name, unless --allow-duplicate is given. The API
 * allows several, but none of them could be named on the command line then. */
int cli_check_new(struct cli *c, const struct args *a, const struct cli_kind *kind,
                  const char *name, struct err *err);
#define ALLOW_DUPLICATE                                                                            \
        {                                                                                          \
                "allow-duplicate", NULL, "even when there is one of this name"                     \
        }

/* -- Small things (values.c) ------------------------------------------------------------------ */

/* Merge `--config JSON` and each `-o key=value` into a new object; *ret is a new reference, NULL
 * when none was given. */
int cli_config(const struct args *a, json_t **ret, struct err *err);
/* cmd_agent.c: a variable of an agent or a project, as it is shown. */
const char *cli_variable_text(struct cli *c, const json_t *variable);
/* cmd_agent.c: put the variables that --env and --secret-env name into `env`. */
int cli_set_variables(struct cli *c, const struct args *a, json_t *env, struct err *err);
/* The same over those of `had`, without those that --unset names. *ret is NULL when none of the
 * options is about variables. */
int cli_changed_env(struct cli *c, const struct args *a, const json_t *had, json_t **ret,
                    struct err *err);
/* Lease and environment references in answers. */
const char *cli_text(const json_t *object, const char *key); /* "" when absent */
/* Whether `text` is one of the NULL-terminated words; ERR_USAGE with the list otherwise. */
int cli_one_of(const char *what, const char *text, const char *const *words, struct err *err);
/* Ask on the terminal; ERR_CANCELLED unless the answer is yes. Without a terminal there is no user
 * to ask, and the author of the script meant it. */
int cli_confirm(const char *question, struct err *err);
