/* Which crash point ends the process, and which write to the database fails, in the test build. */
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
static void trace_fault(const char *name)
{
        const char *path = getenv("BERTH_FAULT_TRACE");
        char line[128];
        size_t len = strlen(name);

        if (!path || len + 1 > sizeof(line))
                return;
        memcpy(line, name, len);
        line[len] = '\n';
        int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
        if (fd < 0)
                return;
        (void)!write(fd, line, len + 1);
        close(fd);
}

/* Whether `wanted`, "name" or "name:3", means this point, at this time. */
static bool is_meant(const char *wanted, const char *name, _Atomic int *times)
{
        size_t len = strlen(name);
        int at = 1;

        if (!wanted || strncmp(wanted, name, len) != 0)
                return false;
        if (wanted[len] == ':')
                at = atoi(wanted + len + 1);
        else if (wanted[len] != '\0')
                return false;
        return atomic_fetch_add(times, 1) + 1 == at;
}

static _Thread_local bool write_fails;

void fault_reached(const char *name)
{
        static _Atomic int crash_times, fail_times;

        trace_fault(name);
        if (is_meant(getenv("BERTH_CRASH_AT"), name, &crash_times))
                raise(SIGKILL);
        if (is_meant(getenv("BERTH_FAIL_AT"), name, &fail_times))
                write_fails = true;
}

bool fault_fails_write(void)
{
        bool fails = write_fails;

        write_fails = false;
        return fails;
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
