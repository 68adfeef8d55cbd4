/* What the operator's rules say of a host that is about to be asked. Pure, any thread. */
#pragma once

#include "image/registry.h"

/* Whether an address that is not public may be connected to for this host and port. */
bool rules_name(const struct registry_rules *rules, const char *host, uint16_t port);
/* Whether this host and port may be spoken to without TLS. */
bool rules_allow_http(const struct registry_rules *rules, const char *host, uint16_t port);
