/* The part of TOML that settings need, read into a flat object.
 *
 *     # comment
 *     listen = "127.0.0.1:3100"
 *     [store]
 *     path = 'data/berth.db'           literal string, nothing is escaped
 *     log.level = "info"               the key store.log.level
 *     hosts = [ "a", "b",              arrays of strings, integers and booleans; several lines
 *               "c" ]
 *
 * Understood: comments, bare and quoted keys, dotted keys, [table], basic and literal strings,
 * integers (signs, underscores, 0x 0o 0b), booleans, arrays of those. Everything else (floats,
 * dates, multi-line strings, inline tables, [[arrays of tables]], arrays in arrays) is refused
 * with a text that says what to write instead. A key that is set twice, a table that is opened
 * twice, and a name that is a value and a table at once are refused as well.
 *
 * What it accepts is valid TOML and means the same there; a byte order mark is skipped.
 *
 * Any thread. */
#pragma once

#include <jansson.h>

#include "base/err.h"

#define TOML_MAX_BYTES ((size_t)256 << 10)
#define TOML_MAX_KEY   256 /* bytes of a flat key: table, dots and all */

/* Read `len` bytes. *ret is a new object {"table.key": string, integer, boolean or array}, in the
 * order of the text. On failure ERR_INVALID, "<file> line 3: …", or ERR_TOO_LARGE; `file` is only
 * for that text. */
int toml_parse(const char *file, const char *text, size_t len, json_t **ret, struct err *err);
