/* Programs that root runs with the rights of another user. posix_spawn() changes no user: so they
 * are started by way of our own program under the name BECOME_TRAMPOLINE, which becomes the user,
 * with that user's groups and without a way back, and then the program. */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#define BECOME_TRAMPOLINE "berth-become"
#define BECOME_FAILED     126 /* exit status: the change of user failed */
#define BECOME_NO_PROGRAM 127 /* there is no such program */

struct become {
        const char *trampoline; /* the path of our own program */
        uid_t uid;
};

bool become_is_trampoline(const char *argv0);
int become_main(int argc, char **argv);
