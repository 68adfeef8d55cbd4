/* Shared by the files of adapter_run.h. Operation threads. */
#pragma once

#include "core/adapters/adapter_descriptor.h"
#include "core/adapters/adapter_expr.h"
#include "core/adapters/adapter_run.h"

#define ADAPTER_TOTALS_MEMBER "totals" /* of a saved session: adapter_run.h, session_totals */

/* While a command is being built. */
struct adapter_draft {
        struct arena *arena;
        const struct adapter_descriptor *d;
        const struct adapter_input *in;
        const char *cwd;
        json_t *scope;          /* what descriptors see; the arena's */
        const char *session_id; /* the session that is resumed; NULL: fresh */
        const char *prompt;
        json_t *notes, *metrics; /* of the invocation; the arena's */
};

/* Give a reference to the arena, which drops it at its end. */
json_t *adapter_keep(struct arena *arena, json_t *take_value);
/* The text without white space around it; NULL when the value is blank or not a text. */
const char *adapter_trimmed(struct arena *arena, const json_t *value);
/* The part of a URL that may be shown: without user, password, query and fragment. */
const char *adapter_shown_url(struct arena *arena, const char *url);
bool adapter_is_local(const struct adapter_target *target);
/* The name of the target's kind in descriptors. */
const char *adapter_target_name(const struct adapter_target *target);

/* adapter_env.c: the run's variables (remote-execution 6.2); and what conditions see of all
 * variables. */
json_t *adapter_env(const struct adapter_draft *draft);
json_t *adapter_env_scope(const struct adapter_input *in);
/* For the event: the variables of `env` and the agent's own, as far as they may be shown. */
json_t *adapter_env_shown(const struct adapter_draft *draft, const json_t *env,
                          const char *resolved_command);
const char *const *adapter_env_hidden(const struct adapter_draft *draft);

/* adapter_build.c: fill as much of a draft as conditions and templates need. */
void adapter_draft_begin(struct adapter_draft *draft);
/* The program's own directory beside the work. */
const char *adapter_runtime(const struct adapter_draft *draft);

/* adapter_prompt.c: the agent's instructions; NULL: none. */
const char *adapter_instructions(struct adapter_draft *draft);
/* Fills draft->prompt, and `instructions` in the scope. */
void adapter_prompt(struct adapter_draft *draft);

/* adapter_file.c: a text of at most `max` bytes. `workspace` is the directory of the work here, or
 * NULL. The text of an error says what is wrong with the file. */
int adapter_read_file(const struct adapter_input *in, const char *path, const char *workspace,
                      size_t max, struct buf *ret, struct err *err);

/* adapter_session.c: the session to resume; NULL: none that fits. */
const char *adapter_session_resume(const struct adapter_input *in, const char *cwd,
                                   struct arena *arena);
/* The part of a session that is saved. `totals` is borrowed; NULL: none. A new reference. */
json_t *adapter_session_params(const struct adapter_input *in, const char *cwd,
                               const char *session_id, json_t *totals);

/* A time as part of a file's name. */
const char *adapter_stamp(struct arena *arena, int64_t us);
/* The first line of a command's output, as far as it can be shown. */
const char *adapter_first_line(struct arena *arena, const char *text);

/* adapter_install.c: a script that installs the command of a descriptor; NULL: it has none. */
const char *adapter_install_script(const struct adapter_descriptor *d, struct arena *arena);
/* A script that sees to it that `command` is there, also in ~/.local/bin; without a network it only
 * looks. NULL: the descriptor does not say how to install it. */
const char *adapter_setup_script(const struct adapter_descriptor *d, const char *command,
                                 bool is_offline, struct arena *arena);
/* What is said when it is not there afterwards. */
const char *adapter_setup_error(struct arena *arena, const char *command,
                                const struct adapter_target *target);
