/* Reading one HTTP answer from bytes as they come. The caller fetches them: a blocking call
 * (http.h) or a poll() loop (flow.h).
 *
 * Bytes are put into `in`; answer_step() uses up what it can and gives body bytes to the sink. The
 * wire rules are those of codec/http1.h. The head has at most HTTP_MAX_HEAD bytes; the sink decides
 * how large the body may grow.
 *
 * One thread at a time. */
#pragma once

#include "base/buf.h"
#include "base/err.h"
#include "codec/http1.h"

#define HTTP_MAX_HEAD ((size_t)64 << 10)

struct http_answer {
        int status;
        bool keep_alive;      /* the connection can take another call */
        bool is_event_stream; /* the content type says so */
        bool begun;           /* at least one byte of the answer came */
};

/* A part of the body. Below 0 ends the call, which returns it. */
typedef int http_sink_fn(void *arg, const struct http_answer *answer, const char *data, size_t len,
                         struct err *err);

enum answer_state { ANSWER_HEAD, ANSWER_LENGTH, ANSWER_CHUNKED, ANSWER_UNTIL_CLOSE, ANSWER_OVER };

struct answer_reader {
        struct buf in; /* received, not yet used */
        bool for_head; /* the request was a HEAD: no body, whatever the head says */
        http_sink_fn *sink;
        void *arg;
        struct http_answer answer;
        enum answer_state state;
        size_t seen;   /* of the head */
        uint64_t left; /* of a body with a length */
        bool may_keep; /* what the head says about the connection */
        struct http1_chunked chunked;
};

void answer_init(struct answer_reader *r, bool for_head, http_sink_fn *sink, void *arg);
void answer_done(struct answer_reader *r);

/* Use up what is in `in`: 1 when the answer is complete, 0 when more bytes are needed. ERR_PROVIDER
 * when it is not HTTP as we read it. */
int answer_step(struct answer_reader *r, struct err *err);
/* The other side closed: 1 when that is how the answer ends, else ERR_UNCERTAIN. */
int answer_closed(struct answer_reader *r, struct err *err);
