/* One HTTP request to a vault, or to the service that hands out the credentials for it.
 *
 * libcurl does the work (rt/libcurl.h). It also signs requests to AWS
 * (docs/decisions/0016-libraries.md). Certificates are always verified, redirects are never
 * followed, only http and https are spoken, and the answer may have TRANSFER_MAX_ANSWER bytes. It
 * is kept in memory that is wiped, since it may hold a value.
 *
 * For operation threads: waits until the answer, the limit, or the end of the operation. */
#pragma once

#include "codec/private_hosts.h"
#include "rt/op.h"
#include "secret/value.h"

#define TRANSFER_MAX_ANSWER ((size_t)1 << 20)

struct transfer_header {
        const char *name;
        const char *value;
};

/* The key that a request to AWS is signed with: Signature Version 4. The headers must have `host`;
 * all of them are signed. */
struct transfer_signing {
        const char *access_key_id, *secret;
        const char *region, *service;
};

struct transfer {
        const char *method; /* GET, PUT or POST */
        const char *url;
        const struct transfer_header *headers;
        size_t n_headers;
        const struct transfer_signing *signing; /* NULL: not signed */
        const char *body;                       /* NULL: none */
        size_t body_len;
        int64_t connect_ms;
        int64_t total_ms;
        const char *ca_file; /* trust these instead of the system's; NULL: the system's */
        bool once;   /* on a new connection: never sent again when an idle one turns out dead */
        bool direct; /* no proxy, whatever the environment says */
        /* Connect to public addresses and to those that `private_hosts` lists (NULL: to none of
         * them); ERR_FORBIDDEN otherwise. It is the address of the connection that is judged, so
         * what a name means a moment later does not matter. Implies `once` and `direct`: a proxy
         * would connect for us to wherever it likes. */
        bool public_only;
        const struct private_hosts *private_hosts;
};

struct transfer_answer {
        int status;
        struct secret_value room; /* the answer is its beginning */
        size_t len;
        char error_type[128]; /* x-amzn-errortype */
        char request_id[80];  /* x-amzn-requestid */
};

/* 0 for an answer of any status. ERR_CANCELLED and ERR_TIMEOUT are the operation's own end;
 * ERR_UNREACHABLE: no answer, or not in time; ERR_TOO_LARGE; ERR_NOT_IMPLEMENTED: no libcurl here.
 * The texts name neither address nor header. *ret is written on success only. */
int transfer_run(struct op *op, const struct transfer *t, struct transfer_answer *ret,
                 struct err *err);
void transfer_answer_done(struct transfer_answer *a);
