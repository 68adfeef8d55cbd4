/* SHA-1, for the one use that a standard leaves no choice in: the handshake of WebSockets. It
 * protects nothing. Any thread. */
#pragma once

#include "base/util.h"

#define SHA1_BYTES 20

void sha1(const void *data, size_t len, uint8_t ret[SHA1_BYTES]);
