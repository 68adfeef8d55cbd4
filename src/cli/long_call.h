/* Requests that move a workspace: they may take long, so the lease is renewed meanwhile, a terminal
 * sees how far it is, and signals are listened to. One thread. */
#pragma once

#include "cli/command.h"

struct long_call {
        const char *what; /* for people: "staging" */
        const char *path; /* of the POST */
        const char *body; /* JSON text */
        const char *lease_id;
        int64_t renew_ms; /* the lease's time; 0: not ours to renew */
        /* The first Ctrl-C does not end it: the user has to press it twice. */
        bool insist;
};

/* ERR_CANCELLED when a signal ended it; *ret_signal is which, ret_signal may be NULL. Whether the
 * daemon did it is not known when the connection broke (ERR_UNCERTAIN). */
int long_call_run(struct cli *c, const struct long_call *t, json_t **ret, int *ret_signal,
                  struct err *err);

/* The answer of a restore: conflicts on standard error, and a line that counts. */
void long_call_report(const json_t *report);
