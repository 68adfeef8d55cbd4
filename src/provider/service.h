/* What providers of services have in common: one request with the call's limits and a text for each
 * way in which it can fail, and files by three verbs. The thread of the call. */
#pragma once

#include "codec/json.h"
#include "provider/call.h"
#include "provider/web.h"

#define SERVICE_BEGIN_MS 60000

struct service {
        const char *name; /* as texts call it: "E2B" */
        const char *key;  /* the member of the configuration that a refused key is in */
        const char *of;   /* what the call is about, for texts: "the sandbox x"; NULL: nothing */
};

enum {
        SERVICE_CREATES = 1 << 0, /* a failure after it was sent leaves open what exists */
};

/* 0 for a 2xx answer, which is *ret; 404, 409 or 410 for such an answer, which the caller judges;
 * -1 when the call has failed, with its text. A 429 whose Retry-After is short is waited for, twice
 * at most. The answer is to be done in any case. */
int service_ask(struct berth_call *call, const struct service *s, const struct web_request *q,
                unsigned flags, struct web_answer *ret);
/* The text for an answer that was left to the caller; returns -1. */
int service_fail_status(struct berth_call *call, const struct service *s,
                        const struct web_answer *a);
/* The JSON object of an answer; NULL when the call has failed. The arena of the call keeps it. */
json_t *service_object(struct berth_call *call, const struct service *s,
                       const struct web_answer *a);
json_t *service_array(struct berth_call *call, const struct service *s, const struct web_answer *a);
/* What a service says of its failure, short and in one line; in the arena. "": nothing. */
const char *service_said(struct berth_call *call, const struct web_answer *a);

/* An URL of the configuration: https, or http to this machine; without slashes at its end. In the
 * arena; NULL and a complaint when it is none. */
const char *service_url(struct berth_call *call, const char *member, const char *fallback);
/* A text of the configuration without blanks around it; NULL when it is blank. In the arena. */
const char *service_text(struct berth_call *call, const char *member);
/* A whole number of the configuration within limits, truncated; a complaint when it is not. */
int64_t service_number(struct berth_call *call, const char *member, int64_t fallback, int64_t min,
                       int64_t max);

/* Files: sync_in and sync_out of a provider that has these verbs. `run` runs a script of sh with
 * the working directory `/` and returns its status, below 0 when the call has failed. */
struct service_files {
        int (*put)(struct berth_call *call, void *ctx, int fd, const char *path);
        int (*get)(struct berth_call *call, void *ctx, const char *path, int fd);
        int (*run)(struct berth_call *call, void *ctx, const char *script, int64_t timeout_ms,
                   struct buf *ret_out);
        void *ctx;
};

int service_sync(struct berth_call *call, const struct service_files *f, bool is_in);
