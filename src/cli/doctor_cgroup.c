/* Control groups: Berth kills whole process trees with cgroup.kill where it may make a group of its
 * own below the one it runs in. That is tried, since an owner that only looks right (a read-only
 * mount, a group delegated to another user) is common. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <stdio.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include "base/fd.h"
#include "cli/doctor.h"

static bool is_cgroup2(const char *path)
{
        struct statfs s;

        return statfs(path, &s) == 0 && s.f_type == CGROUP2_SUPER_MAGIC;
}

static const char *cgroup2_mount(void)
{
        if (is_cgroup2("/sys/fs/cgroup"))
                return "/sys/fs/cgroup";
        return is_cgroup2("/sys/fs/cgroup/unified") ? "/sys/fs/cgroup/unified" : NULL;
}

/* The path behind "0::" of /proc/self/cgroup, or NULL. */
static const char *own_group(struct cli *c)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        const char *line;

        if (file_read_at(AT_FDCWD, "/proc/self/cgroup", 65536, &b, NULL) < 0)
                return NULL;
        line = str_starts(buf_str(&b), "0::") ? buf_str(&b) : strstr(buf_str(&b), "\n0::");
        if (!line)
                return NULL;
        line = strstr(line, "0::") + 3;
        return cli_printf(c, "%.*s", (int)strcspn(line, "\n"), line);
}

/* 0 or an errno value; *ret_kill says whether cgroup.kill is there. */
static int try_group(struct cli *c, const char *parent, bool *ret_kill)
{
        const char *path = cli_printf(c, "%s/berth-doctor-%d", parent, (int)getpid());

        if (mkdir(path, 0755) < 0)
                return errno;
        *ret_kill = access(cli_printf(c, "%s/cgroup.kill", path), W_OK) == 0;
        (void)rmdir(path);
        return 0;
}

void doctor_cgroup(struct doctor_report *d)
{
        const char *mount = cgroup2_mount();
        const char *group = own_group(d->cli);
        bool kill = false;
        int e;

        if (!mount || !group) {
                bool v1 = access("/sys/fs/cgroup/memory", F_OK) == 0 ||
                          access("/sys/fs/cgroup/pids", F_OK) == 0;

                doctor_add(d, "cgroup", v1 ? DOCTOR_LIMITED : DOCTOR_MISSING,
                           v1 ? "version 1 only; process trees are found by other means"
                              : "no cgroup file system is mounted",
                           v1 ? "boot with systemd.unified_cgroup_hierarchy=1"
                              : "mount -t cgroup2 none /sys/fs/cgroup");
                return;
        }
        e = try_group(d->cli, cli_printf(d->cli, "%s%s", mount, group), &kill);
        if (e != 0)
                doctor_add(d, "cgroup", DOCTOR_LIMITED,
                           cli_printf(d->cli, "version 2, but no group can be made in %s: %s",
                                      group, strerror(e)),
                           "run the daemon as a systemd unit with Delegate=yes");
        else
                doctor_add(d, "cgroup", kill ? DOCTOR_OK : DOCTOR_LIMITED,
                           kill ? "version 2, writable, with cgroup.kill"
                                : "version 2, writable, without cgroup.kill",
                           "use Linux 5.14 or newer");
}
