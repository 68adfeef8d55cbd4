/* The Agent Client Protocol, version 1, as its client speaks it: one session with one prompt.
 *
 * JSON-RPC 2.0, one message in a line, both sides send requests. The machine takes the agent's
 * bytes and makes two streams: messages for the agent, and events for the log, an object in each
 * line (docs/adapters.md lists them). It answers each request of the agent at once, so none is ever
 * pending, and has at most one request of its own under way:
 *
 *     initialize -> session/new | load | resume (-> authenticate, once) -> mode, model -> prompt
 *
 * The agent is foreign: its lines are bounded, texts in events are cut, and a line that is no
 * message is an event `noise` and nothing else. Whoever reads from the agent stops while
 * acp_is_full(): an agent that asks without reading the answers is not read from.
 *
 * No I/O but for the two functions of struct acp_files. One thread. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define ACP_LINE_MAX ((size_t)16 << 20) /* of the agent; a longer one ends the session */
#define ACP_FILE_MAX ((size_t)4 << 20)  /* that the agent may read or write by a request */

enum acp_permission {
        ACP_REJECT,
        ACP_ALLOW_READS, /* what only reads, searches or thinks */
        ACP_ALLOW_ONCE,
        ACP_ALLOW_ALWAYS,
};
/* -1: no such word. */
int acp_permission_of(const char *word);

struct acp_config {
        const char *cwd;         /* absolute */
        const char *session;     /* to go on with; NULL: a new one */
        const char *model;       /* NULL: the agent's own */
        const char *mode;        /* the agent's session mode; NULL: its own */
        const char *const *auth; /* methods to log in by, the first that it offers; NULL-terminated,
                                  * or NULL */
        enum acp_permission permission;
        const char *prompt;
        size_t prompt_len;
};

struct acp_files {
        /* The text of a file. The error's message is what the agent is told. */
        int (*read)(void *ctx, const char *path, struct buf *ret, struct err *err);
        int (*write)(void *ctx, const char *path, const char *text, size_t len, struct err *err);
        void *ctx;
};

struct acp;

/* Both are borrowed for as long as the machine lives. */
struct acp *acp_new(const struct acp_config *config, const struct acp_files *files);
void acp_free(struct acp *a); /* NULL: nothing */

/* Bytes of the agent, in pieces of any size. */
void acp_feed(struct acp *a, const char *data, size_t len);
/* The agent's output has ended: over, if it was not, because of `how`. */
void acp_end(struct acp *a, const char *how);
/* Give up because of `why`. */
void acp_fail(struct acp *a, const char *why);
/* A session that was loaded is told again by its agent, and not every agent is done with that when
 * it answers. While this holds, its updates are skipped and no prompt is sent; the caller ends it
 * with acp_settled() when nothing has come for a while. */
bool acp_is_settling(const struct acp *a);
void acp_settled(struct acp *a);
/* Ask the agent to stop what it does. Over at once, or when it has answered. */
void acp_cancel(struct acp *a);

/* What is to be sent and printed; the caller consumes both. */
struct buf *acp_to_agent(struct acp *a);
struct buf *acp_events(struct acp *a);
bool acp_is_full(const struct acp *a);

bool acp_has_prompted(const struct acp *a);
bool acp_is_over(const struct acp *a);
/* Once it is over: the prompt was answered, and the agent's turn is complete. */
bool acp_is_good(const struct acp *a);
