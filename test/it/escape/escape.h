/* Programs that try to get out of a sandbox: `escape CASE [ARG...]`.
 *
 * Each case tries one thing in as many ways as there are, and prints one line:
 *
 *   HELD how each try was refused        status 0
 *   ESCAPED what it got                  status 1
 *   BROKEN what went wrong with the case status 2: neither
 *
 * A case is written for a hostile program with no help from outside: it may only use what the
 * kernel and its arguments give it. It has to be able to escape: test_sandbox_escape.py runs each
 * one without a sandbox too, and expects ESCAPED. Whatever it fills or starts is bounded, so that
 * an escape does not hurt the machine. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct escape_case {
        const char *name;
        const char *arguments; /* for the usage text; "" for none */
        int least;             /* so many arguments at least */
        void (*run)(char **args);
};

/* One array per file, ended by an entry without a name. */
extern const struct escape_case file_cases[], process_cases[], call_cases[], socket_cases[],
        mount_cases[], device_cases[], descriptor_cases[], flood_cases[], race_cases[],
        setting_cases[];

/* Note that a try was refused; the text becomes part of the line after HELD. */
void refused(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void escaped(const char *format, ...) __attribute__((format(printf, 1, 2)));
_Noreturn void broken(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* `result` is what a system call returned: below 0 it was refused, else it is an escape. */
void must_fail(long result, const char *what);

/* For calls with arguments that no kernel accepts: only a refusal to talk about it at all is one.
 * Any other answer means that the kernel's own code was reached. */
void must_not_be_reached(long result, const char *what);

/* Run `attempt` in a child, so that what it does to itself, and what is done to it, ends there. Its
 * return value or -1 when it was killed, then with the signal. */
int in_child(int (*attempt)(void *ctx), void *ctx, int *ret_signal);
