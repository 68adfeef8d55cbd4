/* One HTTP/1.1 request and its answer on a connection that is open already.
 *
 * The wire rules are those of codec/http1.h; this adds the reading and writing. The head of an
 * answer has at most HTTP_MAX_HEAD bytes. What the body may grow to is the sink's business.
 *
 * One thread at a time. */
#ifndef BERTH_CLIENT_HTTP_H
#define BERTH_CLIENT_HTTP_H

#include "base/err.h"
#include "client/conn.h"

#define HTTP_MAX_HEAD ((size_t)64 << 10)

struct http_call {
        const char *method;
        const char *path;          /* begins with '/', no white space */
        const char *accept;        /* media type */
        const char *api_key;       /* NULL: none */
        const char *run_id;        /* NULL: none */
        const char *last_event_id; /* NULL: none */
        const char *body;          /* JSON text, NULL: none */
        int64_t deadline_ms;       /* for all of it, or up to the head when idle_ms is set */
        int64_t idle_ms;           /* 0: none; else each wait for the body's next bytes */
};

struct http_answer {
        int status;
        bool keep_alive;      /* the connection can take another call */
        bool is_event_stream; /* the content type says so */
        bool begun;           /* at least one byte of the answer came */
};

/* A part of the body. Anything but 0 ends the call, which returns it. */
typedef int http_sink_fn(void *arg, const struct http_answer *answer, const char *data, size_t len,
                         struct err *err);

/* ERR_UNCERTAIN: the connection broke, and what the daemon did is not known. ERR_PROVIDER: the
 * answer is not HTTP as we read it. ret_answer is written in every case. */
int http_call(int fd, const struct conn_address *address, const struct http_call *call,
              http_sink_fn *sink, void *arg, struct http_answer *ret_answer, struct err *err);

/* Whether the text can stand in a request line. */
bool http_is_path(const char *path);

#endif
