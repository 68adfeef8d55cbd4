/* One stream connection to the daemon, blocking with a deadline.
 *
 * The descriptor is non-blocking inside; each call waits with poll() until it can go on or until
 * the deadline (monotonic milliseconds, base/clock.h; CONN_FOREVER for none) and then fails with
 * ERR_TIMEOUT. No call raises SIGPIPE.
 *
 * One thread at a time. */
#pragma once

#include <sys/types.h>

#include "base/err.h"

#define CONN_FOREVER INT64_MAX

/* Where to connect: a Unix socket when path is set, else host and port. */
struct conn_address {
        char *path;
        char *host; /* without the brackets of an IPv6 address */
        char *port;
        char *prefix; /* path in front of every request, "" for none */
        char *text;   /* how to show it */
};

void conn_address_done(struct conn_address *a);
/* http://host[:port][/prefix], unix:/path. A final /api is dropped, because every request path
 * brings its own. */
int conn_address_parse(const char *url, struct conn_address *ret, struct err *err);
void conn_address_unix(const char *path, struct conn_address *ret);

/* Failing is ERR_UNREACHABLE, with a text that names the address and says what to do. */
int conn_open(const struct conn_address *address, int64_t deadline_ms, int *ret_fd,
              struct err *err);

/* Whether an idle connection can no longer be used: closed by the other side, or with bytes that
 * were not asked for. */
bool conn_is_stale(int fd);

/* ERR_UNCERTAIN when the other side closed. */
int conn_write(int fd, const void *data, size_t len, int64_t deadline_ms, struct err *err);
/* 0 is the end of the stream, else the number of bytes. */
ssize_t conn_read(int fd, void *data, size_t len, int64_t deadline_ms, struct err *err);
