/* What an adapter makes of a run: a command before it, and a result after it. Adapters are data
 * (docs/adapters.md): descriptors that come with the program, and those of the operator. Nothing
 * here touches the world but reading an agent's instruction file; the engine (run.h) runs the
 * command in whatever place the run has.
 *
 * Operation threads. Results live in the arena given. */
#ifndef BERTH_CORE_ADAPTER_RUN_H
#define BERTH_CORE_ADAPTER_RUN_H

#include "codec/json.h"
#include "core/runtime.h"
#include "store/agents.h"
#include "store/companies.h"

/* Where it will run. */
struct adapter_target {
        const char *kind;       /* "local", "ssh", "sandbox", "plugin" */
        const char *cwd;        /* the directory of the work there; absolute */
        const char *local_cwd;  /* the same on this machine; NULL: there is none */
        const char *home;       /* a directory of the run's own there, for assets; NULL: none */
        const json_t *identity; /* remote-execution 5.2; NULL: local */
        int64_t timeout_ms;     /* of the environment; 0: none */
        bool is_root;           /* the command runs as uid 0 there */
};

struct adapter_input {
        const char *type;
        const json_t *config; /* adapterConfig */
        const struct agent *agent;
        const char *company_name;
        const char *run_id;
        const json_t *context; /* the run's contextSnapshot */
        const json_t *session; /* saved params, object or NULL */
        struct adapter_target target;
};

/* Whose model it uses and who pays, as far as that is known before. NULL: not known. */
struct adapter_billing {
        const char *provider, *biller, *type, *model;
};

struct adapter_command {
        const char *command;
        const char *const *args; /* NULL-terminated */
        const char *cwd;         /* the target's, or the one that the agent is configured with */
        /* Object of strings: neither the agent's own variables, which the executor adds, nor those
         * of the callback, which the engine sets last. */
        json_t *env;
        /* A script for `sh -c` in the same place before the command, which installs what is not
         * there; NULL: nothing to do. That it fails is no error: the command will say. */
        const char *setup;
        int64_t setup_timeout_ms;
        const char *stdin_text; /* NULL: none */
        size_t stdin_len;
        int64_t timeout_ms;         /* 0: none */
        const char *timeout_source; /* "configured" or "default" */
        int64_t grace_ms;
        const char *session_id;     /* that it resumes; NULL: fresh */
        const char *new_session_id; /* fresh, and told under which name; NULL: it will say */
        struct adapter_billing billing;
        bool is_http;                  /* no command: `request` is sent from this machine */
        json_t *request;               /* {method, url, headers, body} */
        json_t *invocation;            /* payload of the run event adapter.invoke */
        const char *const *redact_env; /* names whose values the event must not show */
};

/* ERR_UNPROCESSABLE with the seed's text (`Process adapter missing command`, …). *ret's JSON values
 * are the arena's. `fresh`: do not resume, whatever is saved. */
int adapter_build(struct op *op, struct runtime *rt, const struct adapter_input *input, bool fresh,
                  struct adapter_command *ret, struct err *err);

/* How the command ended. Of a request the status is the code (-1: no answer came), and the body is
 * fed as standard output. */
struct adapter_exit {
        int64_t code;       /* -1: none */
        const char *signal; /* NULL: none */
        bool timed_out;
};

struct adapter_result {
        const char *error_message, *error_code, *error_family; /* NULL: none */
        int64_t retry_not_before;                              /* 0: none; us */
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
        json_t *question; /* that the agent asked; NULL: none */
        bool clear_session;
        bool unknown_session; /* what was resumed is not known there: again, fresh */
};

/* Reading output, in whatever pieces it comes; bounded memory. */
struct adapter_parser;

int adapter_parser_new(struct runtime *rt, const struct adapter_input *input,
                       const struct adapter_command *command, struct adapter_parser **ret,
                       struct err *err);
void adapter_parser_feed(struct adapter_parser *p, bool is_stderr, const char *data, size_t len);
/* Once. */
void adapter_parser_finish(struct adapter_parser *p, const struct adapter_exit *exit,
                           struct arena *arena, struct adapter_result *ret);
void adapter_parser_free(struct adapter_parser *p);

/* {adapterType, status, checks, testedAt} of an agent's configuration in an environment. */
int adapter_test(struct op *op, struct runtime *rt, const char *company_id, const char *type,
                 json_t *body, struct buf *ret_json, struct err *err);
/* [{id, label}]: the models that a descriptor knows. environment_id may be NULL. */
int adapter_models(struct op *op, struct runtime *rt, const char *company_id, const char *type,
                   const char *environment_id, struct buf *ret_json, struct err *err);

#endif
