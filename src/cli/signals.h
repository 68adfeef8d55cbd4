/* Signals as things to be read: a handler writes the number into a pipe, a loop polls the pipe.
 * Blocking calls end with EINTR, so that a write to a stopped terminal does not outlast Ctrl-C.
 *
 * What is caught stays caught until the process ends. One thread. */
#pragma once

#include "base/err.h"

/* SIGINT, SIGTERM, SIGHUP, SIGQUIT and SIGWINCH from now on; SIGPIPE is ignored. Signals that the
 * process that started us ignores (nohup) stay ignored. A second call does nothing. */
int signals_catch(struct err *err);
/* To poll for; -1 before signals_catch(). */
int signals_fd(void);
/* The next one that came, 0 when there is none. */
int signals_next(void);

/* "SIGTERM", "term" or "15" to 15; 0 for what is no signal. */
int signals_number(const char *text);
/* 15 to "SIGTERM"; NULL for what is none. Valid until the next call. */
const char *signals_name(int number);

/* End by this signal, so that a shell script around us ends too. Returns only when that fails. */
void signals_die_of(int number);
