/* The two things that an adapter makes for a run: a command before it, and a result after it.
 * Adapters are data (docs/adapters.md): descriptors that come with the program, and those of the
 * operator. The only side effect here is reading an agent's instruction file; the engine (run.h)
 * runs the command in the run's place.
 *
 * Operation threads. Results live in the arena given. */
#pragma once

#include "codec/json.h"
#include "core/runtime.h"
#include "store/agents.h"
#include "store/companies.h"

struct kind;
struct provision_end;

/* Where the command will run. */
struct adapter_target {
        const struct kind *kind; /* NULL: none, a request that is made from here */
        const char *cwd;         /* the directory of the work there; absolute */
        const char *local_cwd;   /* the same on this machine; NULL: there is none */
        const char *home;        /* a directory of the run's own there, for assets; NULL: none */
        const char *apart;       /* several may work in cwd at a time: a name of its own in what
                                  * lies beside the work; NULL: cwd is the run's */
        const json_t *identity;  /* remote-execution 5.2; NULL: local */
        int64_t timeout_ms;      /* of the environment; 0: none */
        bool is_root;            /* the command runs as uid 0 there */
        bool is_offline;         /* nothing beyond the place can be reached from there */
        const json_t *allowed;   /* the hosts that can be; NULL: any, or it is not known */
};

struct adapter_input {
        const char *type;
        const json_t *config; /* adapterConfig */
        const struct agent *agent;
        const char *company_name;
        const char *run_id;
        int64_t run_at;         /* when the run was made */
        const json_t *context;  /* the run's contextSnapshot */
        const json_t *session;  /* saved params, object or NULL */
        bool has_session_files; /* the files of that session are kept here, and can be brought to
                                 * any place */
        /* The assets brought to the place (run_assets.c): {key: {dir, key?, missing?, says?}}, or
         * NULL. `dir` is the asset's directory in the place, `key` a hash of its content, `missing`
         * names of skills, `says` whether what the descriptor looks for was found in it. */
        const json_t *assets;
        const struct runtime *rt; /* which files may be read: adapter_file.c; NULL in tests */
        struct adapter_target target;
};

/* The provider of the model and who pays, as far as that is known before. NULL: not known. */
struct adapter_billing {
        const char *provider, *biller, *type, *model;
};

struct adapter_command {
        const char *command;
        const char *const *args; /* NULL-terminated */
        /* It is an agent that speaks ACP: what its client is told. NULL-terminated; NULL: not. */
        const char *const *acp;
        const char *cwd; /* the target's, or the one that the agent is configured with */
        /* Object of strings: neither the agent's own variables, which the executor adds, nor those
         * of the callback, which the engine sets last. */
        json_t *env;
        /* A script for `sh -c` in the same place before the command, which installs a missing
         * program; NULL: nothing to do. If it fails, the run does: `setup_error` and its last line
         * say why. A program that it found outside the search path is the last line of its output,
         * after ADAPTER_FOUND. */
        const char *setup, *setup_error;
        int64_t setup_timeout_ms;
        const char *stdin_text; /* NULL: none */
        size_t stdin_len;
        int64_t timeout_ms;         /* 0: none */
        const char *timeout_source; /* "configured" or "default" */
        int64_t grace_ms;
        const char *session_id;       /* the session that it resumes; NULL: fresh */
        const json_t *session_totals; /* what the program counted in that session before, of the
                                       * counters that it counts by session; NULL: nothing */
        const char *new_session_id;   /* the name given to a fresh session; NULL: the program will
                                         choose one */
        /* The directory in the place with the program's session files, `~/…` in the home, and
         * patterns of a session's names in it; NULL: not known. */
        const char *session_dir;
        const json_t *session_files;
        const char *session_move; /* a script that makes it a session of another directory; NULL:
                                   * that cannot be done */
        struct adapter_billing billing;
        /* Where sessions are files in the place: what the first line of a session that can be
         * resumed says, texts by name. NULL: they are not files. */
        const json_t *session_header;
        /* A command that prints the available models; NULL: the list is not needed. */
        const char **list_argv;
        int64_t list_timeout_ms;
        bool is_http;                  /* no command: `request` is sent from this machine */
        json_t *request;               /* {method, url, headers, body} */
        json_t *invocation;            /* payload of the run event adapter.invoke */
        const char *const *redact_env; /* names whose values the event must not show */
};

#define ADAPTER_FOUND "berth-command "

/* ERR_UNPROCESSABLE with Paperclip's text (`Process adapter missing command`, …). *ret's JSON
 * values are the arena's. `fresh`: do not resume, whatever is saved. */
int adapter_build(struct op *op, struct runtime *rt, const struct adapter_input *input, bool fresh,
                  struct adapter_command *ret, struct err *err);

/* The assets that the agent's descriptor asks for there: a list of those that are due, with the
 * members of the descriptor but for `when` and `on`, and with these members set. `dir`: the asset's
 * directory in the place, absent on this machine. `copyTo`: filled in. `instructions`: the text,
 * when one of the asset's parts is the instructions. `home`: HOME of the command, absent where it
 * is that of the place. A keyFile part is in the list only when the agent has the variable. The
 * arena's. */
const json_t *adapter_assets(struct op *op, const struct adapter_input *input);
/* The short name of an adapter, used for its directories; NULL: unknown. */
const char *adapter_key(const char *type);

/* Whether a file that begins so is a session with such a header. Hostile bytes. */
bool adapter_session_fits(const json_t *header, const char *text, size_t len);
/* What is wrong with the model, judged by the output of `list_argv`; NULL: the model is available.
 * The arena's. */
const char *adapter_model_fault(struct arena *arena, const struct adapter_input *input,
                                const struct adapter_command *command,
                                const struct provision_end *how);

/* Why the command will not reach its model from its place; NULL: nothing is known against it. The
 * arena's. */
const char *adapter_network_fault(struct arena *arena, const struct adapter_input *input);

/* How the command ended. For a request the status is the code (-1: no answer came), and the body is
 * fed as standard output. */
struct adapter_exit {
        int64_t code;       /* -1: none */
        const char *signal; /* NULL: none */
        bool timed_out;
        bool was_asked; /* by us, because it lived on after its last event */
};

struct adapter_result {
        const char *error_message, *error_code, *error_family; /* NULL: none */
        int64_t retry_not_before; /* trying again may help, at this time; 0: it will not; us */
        bool retry_named;         /* the service said when; else it is the rule's own guess */
        json_t *error_meta;
        int64_t exit_code; /* as corrected by the adapter; -1: none */
        bool has_usage;
        int64_t input_tokens, output_tokens, cached_input_tokens;
        const char *session_id, *session_display_id;
        json_t *session_params;
        const char *provider, *biller, *model, *billing_type;
        bool has_cost;
        double cost_usd;
        json_t *result_json;
        const char *summary;
        json_t *question; /* the question that the agent asked; NULL: none */
        bool clear_session;
        bool as_said;         /* ended by us: exit_code follows from its last event */
        bool unknown_session; /* the resumed session is not known there: run again with a fresh one
                               */
};

/* Reading output, in pieces of any size; bounded memory. */
struct adapter_parser;

int adapter_parser_new(struct runtime *rt, const struct adapter_input *input,
                       const struct adapter_command *command, struct adapter_parser **ret,
                       struct err *err);
void adapter_parser_feed(struct adapter_parser *p, bool is_stderr, const char *data, size_t len);
/* Once. */
void adapter_parser_finish(struct adapter_parser *p, const struct adapter_exit *exit,
                           struct arena *arena, struct adapter_result *ret);
void adapter_parser_free(struct adapter_parser *p);

/* A readable transcript: what the lines of standard output are, as its descriptor says.
 * adapter_has_transcript(): whether it says so. adapter_transcript() appends to `records`
 * {kind: text, delta, thinking, tool, result, usage, error or output, text?, id?, name?, input?,
 * failed?, tokens?}; a line that is no event is `output`. Any thread. */
bool adapter_has_transcript(const char *type);
void adapter_transcript(const char *type, const char *line, size_t len, json_t *records);
/* The same for the records that become events of the run, with `event`, the event's type. */
bool adapter_has_steps(const char *type);
void adapter_steps(const char *type, const char *line, size_t len, json_t *records);

/* Some programs live on after their last word, the event marked `end`. These say whether an adapter
 * has such an event; how often a line of standard output has to come, with nothing else between, to
 * be that event, 0: it is none; and how long the program may take to end by itself. Any thread. */
#define ADAPTER_LINE_MAX ((size_t)1 << 20) /* longer lines are skipped */
bool adapter_has_last_word(const char *type);
int64_t adapter_last_word(const char *type, const char *line, size_t len);
int64_t adapter_linger_ms(const char *type);

/* What to do about a run that failed with this code and text (may be NULL), for the agent of that
 * name: one sentence, appended to `ret`. false: nothing is known. Any thread. */
bool adapter_advice(const char *type, const char *agent, const char *code, const char *error,
                    struct buf *ret);
