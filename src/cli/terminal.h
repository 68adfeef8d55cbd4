/* The terminal in front of us in raw mode: every key goes to the command as it is.
 *
 * Invariant: after the terminal was made raw, something always restores it: the caller
 * (terminal_restore()), the end of the process (atexit), or a signal that kills it. One thread. */
#pragma once

#include "base/err.h"

/* Standard input, when it is a terminal; nothing otherwise. */
int terminal_raw(struct err *err);
void terminal_restore(void);
bool terminal_is_raw(void);

/* The size of the terminal at standard input, output or error; 80x24 when there is none. */
void terminal_size(int *ret_columns, int *ret_rows);
