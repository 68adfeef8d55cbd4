/* JSON-RPC 2.0 as plugin workers speak it: both sides send requests, the ids of the two count
 * separately and overlap, and only the shape of a message tells an answer from a request.
 *
 * Reading is lenient where a worker cannot help it (json_parse_lenient()) and strict in everything
 * else. Pure; any thread. */
#pragma once

#include "codec/json.h"

#define RPC_PARSE_ERROR            (-32700)
#define RPC_METHOD_NOT_FOUND       (-32601)
#define RPC_INTERNAL_ERROR         (-32603)
#define RPC_WORKER_UNAVAILABLE     (-32000)
#define RPC_CAPABILITY_DENIED      (-32001)
#define RPC_WORKER_ERROR           (-32002)
#define RPC_TIMEOUT                (-32003)
#define RPC_METHOD_NOT_IMPLEMENTED (-32004)
#define RPC_OUTCOME_UNKNOWN        (-32020) /* Berth's own: it may have been done */

enum jsonrpc_kind {
        JSONRPC_UNKNOWN, /* a message, but none that we know */
        JSONRPC_RESPONSE,
        JSONRPC_REQUEST,
        JSONRPC_NOTIFICATION,
};

/* Members other than doc are borrowed from it. */
struct jsonrpc {
        enum jsonrpc_kind kind;
        json_t *doc;
        json_t *id;
        const char *method;
        json_t *params;            /* an object, or NULL */
        json_t *result;            /* NULL in an error */
        json_t *error;             /* whatever stood there */
        const char *invocation_id; /* paperclipInvocationId, or NULL */
        bool has_nul;              /* a string in it holds U+0000 */
};

/* ERR_INVALID for what is no JSON object with "jsonrpc": "2.0". */
int jsonrpc_parse(const char *line, size_t len, struct jsonrpc *ret, struct err *err);
void jsonrpc_done(struct jsonrpc *m);

/* The number of a response's id if it is one that we may have given out (an integer, 1 or more),
 * else 0. Text "1" is not 1. */
int64_t jsonrpc_own_id(const struct jsonrpc *m);

/* The code and text of a response that is no success. A worker may put anything there. */
int64_t jsonrpc_error_code(const struct jsonrpc *m);
const char *jsonrpc_error_text(const struct jsonrpc *m);

/* Append one message and its line end. `invocation` may be NULL. */
void jsonrpc_put_request(struct buf *b, int64_t id, const char *method, const json_t *params,
                         const json_t *invocation);
void jsonrpc_put_result(struct buf *b, const json_t *id, const json_t *result);
void jsonrpc_put_error(struct buf *b, const json_t *id, int code, const char *text);
