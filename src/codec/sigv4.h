/* Signing a request to AWS: Signature Version 4, with the signature in the Authorization header.
 *
 * For requests without a query string, which are all that we send. The caller passes every header
 * that is to be signed, Host and X-Amz-Date among them; names are lower case. The signature covers
 * what AWS rebuilds from the request: method, path, headers sorted by name with their blanks
 * trimmed, and the hash of the body.
 *
 * Pure. Any thread, after sodium_init(). */
#ifndef BERTH_CODEC_SIGV4_H
#define BERTH_CODEC_SIGV4_H

#include "base/buf.h"
#include "base/err.h"

#define SIGV4_DATE_LEN    16 /* 20150830T123600Z */
#define SIGV4_HASH_LEN    64 /* SHA-256 in lower-case hex */
#define SIGV4_HEADERS_MAX 16

struct sigv4_header {
        const char *name; /* lower case */
        const char *value;
};

struct sigv4_request {
        const char *method;
        const char *path; /* as sent; empty means "/" */
        const struct sigv4_header *headers;
        size_t n_headers; /* at most SIGV4_HEADERS_MAX, no name twice */
        const void *body;
        size_t body_len;
};

struct sigv4_key {
        const char *access_key_id;
        const char *secret; /* secret access key */
        const char *region;
        const char *service;
};

/* The instant as X-Amz-Date wants it. */
void sigv4_date(int64_t us, char ret[SIGV4_DATE_LEN + 1]);
void sigv4_hash(const void *data, size_t len, char ret[SIGV4_HASH_LEN + 1]);

/* Append the value of the Authorization header. `date` is the one of X-Amz-Date. ERR_INVALID when
 * the request cannot be signed: a header twice, a line end in one, too many, a bad date. */
int sigv4_sign(const struct sigv4_request *request, const struct sigv4_key *key, const char *date,
               struct buf *ret_authorization, struct err *err);

#endif
