#include "base/fault.h"

#ifdef BERTH_FAULTS

#include <fcntl.h>
#include <signal.h>
#include <stdatomic.h>

#include "base/util.h"

/* Weak, because a program without any crash point has no such section. */
extern const struct fault_name __start_berth_faults[] __attribute__((weak));
extern const struct fault_name __stop_berth_faults[] __attribute__((weak));

/* One write per name: the lines of several threads do not mix. */
static void trace(const char *name)
{
        const char *path = getenv("BERTH_FAULT_TRACE");
        char line[128];
        size_t len = strlen(name);
        int fd;

        if (!path || len + 1 > sizeof(line))
                return;
        memcpy(line, name, len);
        line[len] = '\n';
        fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0)
                return;
        (void)!write(fd, line, len + 1);
        close(fd);
}

void fault_reached(const char *name)
{
        static _Atomic int times;
        const char *wanted = getenv("BERTH_CRASH_AT");
        size_t len = strlen(name);
        int at = 1;

        trace(name);
        if (!wanted || strncmp(wanted, name, len) != 0)
                return;
        if (wanted[len] == ':')
                at = atoi(wanted + len + 1);
        else if (wanted[len] != '\0')
                return;
        if (atomic_fetch_add(&times, 1) + 1 == at)
                raise(SIGKILL);
}

void fault_each(void (*fn)(const char *name, void *arg), void *arg)
{
        for (const struct fault_name *f = __start_berth_faults; f < __stop_berth_faults; f++) {
                bool seen = false;

                for (const struct fault_name *g = __start_berth_faults; g < f; g++)
                        seen = seen || streq(f->name, g->name);
                if (!seen)
                        fn(f->name, arg);
        }
}

#endif
