/* Names that change their meaning while the other side looks at them. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "escape.h"

/* `swap DIR NAME TARGET TIMES`: DIR/NAME is a directory and a link to TARGET in turn. Other names
 * beneath it do the same, for whoever walks the tree. The test sees from outside whether somebody
 * followed. */
static void swap(char **args)
{
        long times = strtol(args[3], NULL, 10);
        int dir = open(args[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        char other[256], file[300];
        long i;

        (void)snprintf(other, sizeof(other), ".%s-other", args[1]);
        if (dir < 0 || (mkdirat(dir, args[1], 0755) < 0 && errno != EEXIST))
                broken("%s/%s: %s", args[0], args[1], strerrorname_np(errno));
        (void)snprintf(file, sizeof(file), "%s/inside", args[1]);
        (void)close(openat(dir, file, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
        (void)unlinkat(dir, other, 0);
        if (symlinkat(args[2], dir, other) < 0)
                broken("symlink: %s", strerrorname_np(errno));
        (void)printf("swapping\n");
        (void)fflush(stdout);
        for (i = 0; i < times; i++)
                if (renameat2(dir, args[1], dir, other, RENAME_EXCHANGE) < 0)
                        break;
        refused("swapped %ld times", i);
}

/* `links DIR TARGET...`: one of every kind that somebody who cleans up or copies could follow. */
static void links(char **args)
{
        int dir = open(args[0], O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        char name[64];
        int n = 0;

        for (args++; *args; args++, n++) {
                (void)snprintf(name, sizeof(name), "to-%d", n);
                if (symlinkat(*args, dir, name) < 0)
                        broken("symlink: %s", strerrorname_np(errno));
                (void)snprintf(name, sizeof(name), "deep-%d", n);
                (void)mkdirat(dir, name, 0700);
                (void)snprintf(name, sizeof(name), "deep-%d/to", n);
                if (symlinkat(*args, dir, name) < 0)
                        broken("symlink: %s", strerrorname_np(errno));
                must_fail(linkat(AT_FDCWD, *args, dir, "hard", 0), "hard link");
        }
        /* Directories that their owner cannot enter still have to go. */
        (void)mkdirat(dir, "locked", 0700);
        (void)mkdirat(dir, "locked/inner", 0700);
        if (fchmodat(dir, "locked", 0, 0) < 0)
                broken("chmod: %s", strerrorname_np(errno));
        refused("laid out %d links", n);
}

const struct escape_case race_cases[] = {
        { "swap", "DIR NAME TARGET TIMES", 4, swap },
        { "links", "DIR TARGET...", 2, links },
        { 0 },
};
