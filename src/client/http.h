/* One HTTP/1.1 request and its answer on a connection that is open already.
 *
 * How answers are read is in client/answer.h; this adds the waiting.
 *
 * One thread at a time. */
#pragma once

#include "client/answer.h"
#include "client/conn.h"

struct http_call {
        const char *method;
        const char *path;          /* begins with '/', no white space */
        const char *accept;        /* media type */
        const char *api_key;       /* NULL: none */
        const char *run_id;        /* NULL: none */
        const char *last_event_id; /* NULL: none */
        const char *body;          /* NULL: none */
        size_t body_len;           /* 0: up to the NUL of body */
        const char *content_type;  /* of the body; NULL: JSON */
        int64_t deadline_ms;       /* for all of it, or up to the head when idle_ms is set */
        int64_t idle_ms;           /* 0: none; else each wait for the body's next bytes */
};

/* ERR_UNCERTAIN: the connection broke, and what the daemon did is not known. ERR_PROVIDER: the
 * answer is not HTTP as we read it. ret_answer is written in every case. */
int http_call(int fd, const struct conn_address *address, const struct http_call *call,
              http_sink_fn *sink, void *arg, struct http_answer *ret_answer, struct err *err);

/* The head of a request, the empty line included. It holds the token: wipe it. */
void http_put_head(struct buf *b, const struct conn_address *address, const struct http_call *call);
size_t http_body_len(const struct http_call *call);

/* Whether the text can stand in a request line. */
bool http_is_path(const char *path);
