/* Words for a POSIX shell. Pure; any thread. */
#pragma once

#include "base/buf.h"

/* Append the text as one word: 'it'"'"'s'. Nothing in it means anything to the shell. */
void shell_quote(struct buf *b, const char *text);
void shell_quote_n(struct buf *b, const char *text, size_t len);
