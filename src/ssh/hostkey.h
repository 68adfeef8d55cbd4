/* Host keys as known_hosts has them: they identify a host. Pure; any thread. */
#pragma once

#include "base/buf.h"

#define FINGERPRINT_MAX 64

/* The fingerprint of the key in one line of a known_hosts file, as ssh prints it: `SHA256:` and 43
 * characters. False when there is no key in it. */
bool hostkey_fingerprint(const char *line, size_t len, char out[FINGERPRINT_MAX]);

/* Line `number`, counted from 1; NULL when there is none. *ret_len is without its end. */
const char *hostkey_line(const char *text, size_t number, size_t *ret_len);
