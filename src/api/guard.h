/* Checks that come before a request is looked at: that it is meant for this host, and that no
 * foreign web page sent it. */
#pragma once

#include "api/api.h"

/* 0, or ERR_FORBIDDEN with Paperclip's texts. */
int guard_request(struct call *c, const struct http_peer *peer, const char *method,
                  struct err *err);

/* Pure parts, for tests. `host` is a Host header. */
bool guard_host_allowed(const struct settings *settings, const char *host);
bool guard_origin_allowed(const struct settings *settings, const char *origin, const char *host);
