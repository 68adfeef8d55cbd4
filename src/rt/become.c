/* The trampoline that changes the user before it runs a program. */
#define _GNU_SOURCE
#include "rt/become.h"

#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "base/util.h"

#define UID_OPTION "--uid="
#define NO_GROUP   65534 /* of a user that the machine does not know */

bool become_is_trampoline(const char *argv0)
{
        return argv0 && streq(argv0, BECOME_TRAMPOLINE);
}

/* The groups that the user has at sign-in, never the group of a directory: a user who makes a
 * directory in a directory of a group gets that group for it without being a member. */
static int take_groups(uid_t uid)
{
        const struct passwd *user = getpwuid(uid);

        if (!user)
                return setgroups(0, NULL) < 0 || setresgid(NO_GROUP, NO_GROUP, NO_GROUP) < 0 ? -1
                                                                                             : 0;
        return initgroups(user->pw_name, user->pw_gid) < 0 ||
                               setresgid(user->pw_gid, user->pw_gid, user->pw_gid) < 0
                       ? -1
                       : 0;
}

int become_main(int argc, char **argv)
{
        char *end;

        if (argc < 3 || !str_starts(argv[1], UID_OPTION)) {
                fprintf(stderr, BECOME_TRAMPOLINE ": not meant to be started by hand\n");
                return BECOME_FAILED;
        }
        unsigned long uid = strtoul(argv[1] + strlen(UID_OPTION), &end, 10);
        if (*end || uid == 0 || uid >= (uid_t)-1 || take_groups((uid_t)uid) < 0 ||
            setresuid((uid_t)uid, (uid_t)uid, (uid_t)uid) < 0 || setuid(0) == 0 ||
            prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0) {
                fprintf(stderr, "cannot become user %s: %s\n", argv[1] + strlen(UID_OPTION),
                        strerror(errno));
                return BECOME_FAILED;
        }
        execvp(argv[2], argv + 2);
        fprintf(stderr, "%s: %s\n", argv[2], strerror(errno));
        return errno == ENOENT ? BECOME_NO_PROGRAM : BECOME_FAILED;
}
