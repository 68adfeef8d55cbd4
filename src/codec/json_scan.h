/* A string into and out of JSON text without a document in between: for values that must not be
 * copied into memory that is not wiped (secret/value.h). Everything else uses codec/json.h.
 *
 * Any thread. */
#pragma once

#include "base/err.h"

/* The string member `key` of the object that the text is: 1 and what stands between the quotes,
 * escapes and all; 0 when there is none or it is no string; ERR_INVALID when the text is no object,
 * or has the key twice. Other members are stepped over, and looked at only as far as that needs. */
int json_scan_string(const char *text, size_t len, const char *key, const char **ret,
                     size_t *ret_len, struct err *err);

/* Undo the escapes. `out` has room for `len` bytes; it never grows. ERR_INVALID for what is no JSON
 * string, is not UTF-8, or has a NUL in it. */
int json_scan_decode(const char *raw, size_t len, char *out, size_t *ret_len, struct err *err);

/* How long `text` is between the quotes of a JSON string, and write it so. Returns the length. The
 * text is UTF-8. */
size_t json_scan_escaped_len(const char *text, size_t len);
size_t json_scan_escape(const char *text, size_t len, char *out);
