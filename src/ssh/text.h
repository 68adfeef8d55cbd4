/* Texts that go to a shell, and texts that come from a host. Pure; any thread. */
#pragma once

#include "base/buf.h"

/* A word for a POSIX shell: in single quotes, and an embedded one becomes '"'"'. */
void ssh_text_quote(const char *word, struct buf *out);

/* Something a stranger wrote, as one line of at most `max` bytes of clean UTF-8: control characters
 * and line ends become spaces, runs of them one, none around it. */
void ssh_text_line(const char *s, size_t len, size_t max, struct buf *out);
/* The same, but lines stay lines. */
void ssh_text_clean(const char *s, size_t len, size_t max, struct buf *out);
