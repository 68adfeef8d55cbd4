/* What the script at the other end says about the host, line by line: `word rest`. The host may say
 * anything; a line that does not fit is refused. Pure; any thread. */
#pragma once

#include "base/err.h"

#define HELLO_PATH_MAX  4096
#define HELLO_VALUE_MAX 8192

/* The variables of the login that commands start from. */
#define HELLO_N_VARS 7
extern const char *const hello_vars[HELLO_N_VARS];

enum hello_state {
        HELLO_BEGUN, /* the script runs: we are in */
        HELLO_NEED,  /* it wants the box: `need` says which */
        HELLO_READY, /* it becomes the relay when told to */
        HELLO_PLAIN, /* it cannot: `why` */
        HELLO_DONE,  /* all was said */
};

struct ssh_hello {
        enum hello_state state;
        char *cwd;                /* where the workspace is */
        char *os, *machine;       /* `uname -s` and `-m` */
        char *vars[HELLO_N_VARS]; /* values; NULL: not set */
        char *base;               /* the box's directory there */
        char *why;                /* why no box can run */
        char *need;               /* machine */
        bool has_tar;
};

void ssh_hello_done(struct ssh_hello *h);
/* Take one line in. ERR_PROVIDER when it makes no sense. */
int ssh_hello_line(struct ssh_hello *h, const char *line, struct err *err);
