/* The kernel's settings and control groups, as files. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "escape.h"

/* Opened, never written to: on a machine without a sandbox that would hurt. */
static void settings(char **args)
{
        static const char *const files[] = {
                "/proc/sys/kernel/core_pattern",
                "/proc/sys/kernel/modprobe",
                "/proc/sys/kernel/hotplug",
                "/proc/sys/kernel/sysrq",
                "/proc/sys/kernel/panic",
                "/proc/sys/kernel/randomize_va_space",
                "/proc/sys/kernel/yama/ptrace_scope",
                "/proc/sys/fs/binfmt_misc/register",
                "/proc/sys/fs/protected_symlinks",
                "/proc/sys/fs/file-max",
                "/proc/sys/vm/overcommit_memory",
                "/proc/sys/vm/drop_caches",
                "/proc/sysrq-trigger",
                "/sys/kernel/uevent_helper",
                "/sys/kernel/mm/transparent_hugepage/enabled",
                "/sys/power/state",
                "/sys/module/kernel/parameters/panic",
        };

        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++)
                must_fail(open(files[i], O_WRONLY | O_CLOEXEC), files[i]);
}

static void memory_of_the_kernel(char **args)
{
        static const char *const files[] = { "/proc/kcore",
                                             "/proc/kmsg",
                                             "/proc/vmallocinfo",
                                             "/proc/slabinfo",
                                             "/proc/kpagecount",
                                             "/sys/kernel/debug/sched",
                                             "/sys/kernel/tracing/trace",
                                             "/sys/firmware/acpi/tables",
                                             "/proc/timer_list" };
        char byte;

        for (size_t i = 0; i < sizeof(files) / sizeof(files[0]); i++) {
                int fd = open(files[i], O_RDONLY | O_CLOEXEC | O_NONBLOCK);

                /* What is masked can be opened and is empty. */
                if (fd >= 0 && read(fd, &byte, 1) == 0)
                        refused("%s: empty", files[i]);
                else
                        must_fail(fd, files[i]);
                (void)close(fd);
        }
}

/* Every control file that can be found, and the names that would be there on common machines. */
static void open_controls(const char *dir, unsigned depth)
{
        static const char *const names[] = {
                "release_agent", "notify_on_release", "cgroup.procs",
                "tasks",         "memory.max",        "memory.limit_in_bytes",
                "pids.max",      "devices.allow",     "cgroup.subtree_control"
        };
        DIR *list = opendir(dir);
        struct dirent *entry;
        char path[PATH_MAX];

        if (!list) {
                refused("%s: %s", dir, strerrorname_np(errno));
                return;
        }
        for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
                (void)snprintf(path, sizeof(path), "%s/%s", dir, names[i]);
                if (open(path, O_WRONLY | O_CLOEXEC) >= 0)
                        escaped("%s is writable", path);
        }
        while (depth < 3 && (entry = readdir(list)))
                if (entry->d_type == DT_DIR && entry->d_name[0] != '.') {
                        (void)snprintf(path, sizeof(path), "%s/%s", dir, entry->d_name);
                        open_controls(path, depth + 1);
                }
        (void)closedir(list);
        refused("%s: nothing writable", dir);
}

static void control_groups(char **args)
{
        char text[4096], *line, *rest = text, *path;
        ssize_t n;
        int fd = open("/proc/self/cgroup", O_RDONLY | O_CLOEXEC);

        open_controls("/sys/fs/cgroup", 0);
        n = fd < 0 ? 0 : read(fd, text, sizeof(text) - 1);
        text[n > 0 ? n : 0] = '\0';
        while ((line = strsep(&rest, "\n"))) {
                path = strrchr(line, ':');
                /* Whatever lies above the box's own group is the host's business. */
                if (path && strncmp(path, ":/..", 4) == 0)
                        escaped("in a group outside its namespace: %s", line);
        }
}

const struct escape_case setting_cases[] = {
        { "settings", "", 0, settings },
        { "kernel-memory", "", 0, memory_of_the_kernel },
        { "cgroups", "", 0, control_groups },
        { 0 },
};
