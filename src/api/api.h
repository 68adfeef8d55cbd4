/* The HTTP API: one request becomes one call.
 *
 * On the loop thread a call is matched to its route and checked for Host and Origin. Then it runs
 * as an operation on a pool thread (identity, body, handler) and is answered on the loop thread
 * again. Routes marked inline run on the loop thread and never block.
 *
 * A handler decodes (codec/body.h), calls core and encodes: it returns 0 with JSON in call->out, or
 * an error code; the one place that turns an error into an answer is call.c. Rows that are only
 * shown are read by the handler, after a guard of core/access. */
#pragma once

#include "codec/body.h"
#include "core/access/access.h"
#include "net/http_server.h"
#include "rt/pool.h"
#include "store/workspaces.h"

#define CALL_MAX_PARAMS 4
#define CALL_MAX_FIELDS 8

struct api {
        struct runtime *rt;
        struct pool *pool;
        uv_loop_t *loop;
        uid_t operator_uid; /* the user that runs the daemon: auth_is_operator() */
        int64_t started_ms;
        _Atomic uint64_t requests, errors;
};

struct callback_pass;
struct route;

struct call {
        struct api *api;
        struct runtime *rt;
        struct http_exchange *x;
        const struct route *route;
        struct pool_job job;

        /* the request; borrowed from the exchange or in this arena, which lives as long as the call
         */
        struct arena arena;
        const char *params[CALL_MAX_PARAMS]; /* decoded; UUIDs in lower case */
        const char *query;
        const char *authorization, *run_id, *if_none_match, *host;
        const char *client; /* the client that limits are counted for: http_request_client() */
        const char *last_event_id;
        const char *body_text; /* NULL when there is no JSON body */
        size_t body_len;
        bool is_operator, is_known; /* the peer's uid: auth_is_operator() */
        bool is_daemon_user;        /* it is ours, and came through the Unix socket */

        /* of requests that came through the channel of a run (channel.c) */
        bool is_channel;
        struct callback_pass *pass; /* NULL: refused */
        struct buf channel_body;
        /* of a request with a run token; in this arena */
        const char *noted_run;
        int64_t started_us;

        /* valid while the handler runs */
        struct op *op;
        struct actor actor;
        json_t *body; /* NULL when absent */

        /* A handler that is not done yet sets on_loop: instead of being answered, the call goes on
         * there, on the loop thread, until call_finish(), call_fail(), call_continue() or a stream.
         * on_gone is called when the client went away meanwhile. `data` is the handler's. */
        void (*on_loop)(struct call *c);
        void (*on_gone)(struct call *c);
        void *data;
        int (*stage)(struct call *c, struct err *err);
        struct lane_name lane; /* where it waits for a seat, or has one; key "": nowhere */
        bool gone;             /* the client is */

        /* the answer */
        int status; /* 0: 200 */
        const char *content_type;
        struct http_field fields[CALL_MAX_FIELDS];
        size_t n_fields;
        struct buf out;
        struct jw json; /* call_json() */
        char etag[48];
        /* of a list that is sent in parts (call_list.c) */
        struct {
                bool begun;   /* the head is out: an error can only end the connection */
                bool waiting; /* for the client to read the last part */
                int64_t last_us;
                char last_id[UUID_LEN + 1];
        } part;
};

typedef int (*call_fn)(struct call *c, struct err *err);

enum {
        ROUTE_INLINE = 1 << 0,    /* on the loop thread, when the identity needs no look-up */
        ROUTE_BODY_FREE = 1 << 1, /* a missing body reads as {} */
        ROUTE_RAW_BODY = 1 << 2,  /* the body is bytes; the handler takes them from the exchange */
        ROUTE_SOCKET = 1 << 3,    /* a WebSocket: socket.h */
        ROUTE_OPEN = 1 << 4,      /* for every client that reaches us, also in local trusted mode */
        ROUTE_CLOSES = 1 << 5,    /* it ends something: without a seat there, one in LANE_CLOSING */
        ROUTE_WHEN_FULL = 1 << 6, /* also on a full disk; so is all that reads and deletes */
        /* The handler checks rights before the first parameter, with call_check_thing(). */
        ROUTE_RIGHTS_FIRST = 1 << 7,
        /* It may wait for another party, so it needs a seat in the lane of the object that its
         * first parameter names: thing.h. */
        ROUTE_WAITS = 1 << 8,
};

/* A route calls one of: a handler (`fn`), or a function of core that writes the answer by itself
 * (`write`), takes the body and does so (`take_of`), or ends something and is answered {"ok":true}
 * (`end_of`). Those with _of get the first parameter, the thing that it is about. */
struct route {
        const char *method;
        const char *pattern; /* segments; ":name" takes one */
        call_fn fn;
        int (*write)(struct op *op, struct runtime *rt, struct buf *ret_json, struct err *err);
        int (*write_of)(struct op *op, struct runtime *rt, const char *of, struct buf *ret_json,
                        struct err *err);
        int (*take_of)(struct op *op, struct runtime *rt, const char *of, json_t *body,
                       struct buf *ret_json, struct err *err);
        int (*end_of)(struct op *op, struct runtime *rt, const char *of, struct err *err);
        unsigned flags;
        int status; /* when it is good; 0: 200 */
        int arg;    /* for handlers that serve several routes: c->route->arg */
};

/* Tables of the resources; each ended by a NULL method. */
extern const struct route routes_instance[];
extern const struct route routes_access[];
extern const struct route routes_callback_test[];
extern const struct route routes_companies[];
extern const struct route routes_environments[];
extern const struct route routes_kinds[];
extern const struct route routes_leases[];
extern const struct route routes_execution_workspaces[];
extern const struct route routes_executions[];
extern const struct route routes_run_log[];
extern const struct route routes_runs[];
extern const struct route routes_salvages[];
extern const struct route routes_snapshots[];
extern const struct route routes_images[];
extern const struct route routes_adapters[];
extern const struct route routes_agents[];
extern const struct route routes_agent_config[];
extern const struct route routes_issues[];
extern const struct route routes_live[];
extern const struct route routes_activity[];
extern const struct route routes_plugin_bridge[];
extern const struct route routes_plugins[];
extern const struct route routes_projects[];
extern const struct route routes_secrets[];
extern const struct route routes_terminal[];
extern const struct route routes_vaults[];
extern const struct route routes_watch[];
extern const struct route routes_workspaces[];
extern const struct route routes_overview[];
extern const struct route routes_openapi[];

extern const struct http_handler api_handler; /* ctx: struct api */

/* Find the route for a path; params are put into the call. NULL when there is none; *ret_allowed
 * then says which methods the path knows, "" for none. */
const struct route *route_find(struct call *c, const char *method, const char *path,
                               struct buf *ret_allowed);

/* All routes one after the other: the first for NULL, NULL after the last. */
const struct route *route_next(const struct route *route);

/* The end of a list that was sent in parts, instead of an answer. */
void call_parts_end(struct call *c);

/* For calls that went on in on_loop. Loop thread; each ends the call but call_continue(), which
 * runs one more stage on the pool and then answers (or goes on_loop again). */
void call_finish(struct call *c);
void call_fail(struct call *c, int code, const struct err *err);
void call_continue(struct call *c, int (*stage)(struct call *c, struct err *err));
/* The call became a stream that ended or was taken over: free it without an answer. */
void call_free(struct call *c);

/* Tools for handlers */

/* A query parameter, decoded, in the call's arena; NULL when absent or empty. */
const char *call_query(struct call *c, const char *name);
/* A whole number in a query parameter. 0 and *ret = fallback when absent; ERR_INVALID otherwise. */
int call_query_int(struct call *c, const char *name, int64_t fallback, int64_t min, int64_t max,
                   int64_t *ret, struct err *err);
bool call_query_flag(struct call *c, const char *name);
/* A validator for the answer as it is now. JSON gets one by itself. */
void call_etag(struct call *c);
/* Add a header to the answer; name and value must outlive the call. */
void call_field(struct call *c, const char *name, const char *value);
/* A writer for the answer. */
struct jw *call_json(struct call *c);
/* The same for a list: begin it, let another function write the rows, end it and return the result.
 */
struct jw *call_list(struct call *c);
int call_list_end(struct call *c, int r);
/* Answer with the workspaces that `list` finds for the first parameter, as operations. */
int answer_operations(struct call *c,
                      int (*list)(struct op *op, struct runtime *rt, const char *id,
                                  workspace_row_fn fn, void *ctx, struct err *err),
                      struct err *err);
/* {"ok":true}, unless r is an error. */
int call_ended(struct call *c, int r);
/* A list in pages. A cursor is "<microseconds>.<id>" of the last row shown. A list of all rows is
 * sent in parts: the handler runs once for each, as if the client had asked for one page after the
 * other, and neither a thread nor memory is kept while the client reads. */
struct call_page {
        struct jw *w;
        bool whole; /* all rows, in parts; limit is then the size of a part */
        int64_t limit;
        int64_t before_us; /* the cursor that was sent; 0 and NULL without */
        const char *before_id;
        int64_t shown, last_us;
        const char *last_id;
        bool more;
};

/* Read `limit`, `fallback` when absent (0: all rows), and `cursor`; or the cursor alone, for a
 * limit that is set already. */
int call_page(struct call *c, struct call_page *p, int64_t fallback, int64_t max, struct err *err);
int call_cursor(struct call *c, struct call_page *p, struct err *err);
/* How many rows to ask the store for: one more than fit says that there is another page. */
int64_t call_page_rows(const struct call_page *p);
/* As call_list(). The caller asks whether there is room for a row before it shows the row. */
void call_page_begin(struct call *c, struct call_page *p);
bool call_page_has_room(struct call_page *p, int64_t us, const char *id);
int call_page_end(struct call *c, struct call_page *p, int r, struct err *err);
/* Begin to read, for a caller that may see the company. */
int call_read(struct call *c, const char *company_id, struct db **ret, struct err *err);
/* Decode a body of one text of 1 to `max` characters, the member `name`. */
struct body call_text(struct call *c, const char *name, unsigned flags, size_t max,
                      const char **ret);
/* ERR_NOT_FOUND with this text when a path parameter is no UUID; the first one is checked by
 * call_check_thing(). */
int call_uuid(struct call *c, size_t param, const char *missing, struct err *err);
