/* HTTP requests of providers, by libcurl (rt/libcurl.h). Certificates are verified, redirects are
 * not followed, only http and https are spoken. An answer is bounded; a request has a time limit
 * until its answer begins, one for the whole and one for silence, and ends when the call that it is
 * made for is cancelled. Connections are kept and used again. Any thread. */
#pragma once

#include "base/buf.h"
#include "base/err.h"

#define WEB_ANSWER_MAX ((size_t)16 << 20)
#define WEB_FAILED_MAX ((size_t)64 << 10) /* of the body of an answer that is not 2xx */

struct web_request {
        const char *method, *url;
        const char *const *headers; /* "Name: value"; ends with NULL */
        const char *body;           /* NULL: none */
        size_t body_len;
        int64_t begin_ms;  /* until the answer begins */
        int64_t total_ms;  /* the whole; 0: no limit but the others */
        int64_t silent_ms; /* without a byte once the answer has begun; 0: no limit */
        int cancel_fd;     /* readable: give up; -1: never */
        /* The body of a 2xx answer, as it comes; NULL: it is collected in web_answer.body. Below 0
         * ends the request with that code. */
        int (*on_data)(void *ctx, const char *data, size_t len, struct err *err);
        void *ctx;
};

struct web_answer {
        int status;
        bool begun;             /* an answer came at all */
        int64_t retry_after_ms; /* -1: not said */
        char content_type[128];
        char next_token[256]; /* x-next-token; "": none */
        struct buf body;
};

/* 0 for an answer of any status that came whole. Else *ret says how far it came (`begun`), and
 *   ERR_UNREACHABLE  nothing was sent
 *   ERR_UNCERTAIN    it was sent, and the answer did not come whole
 *   ERR_TIMEOUT      the same, because a limit passed
 *   ERR_CANCELLED, ERR_TOO_LARGE, or what on_data() returned. */
int web_run(const struct web_request *q, struct web_answer *ret, struct err *err);
void web_answer_done(struct web_answer *a);

/* Append `text` as one segment of a URL's path or value of its query. */
void web_escape(struct buf *b, const char *text);
