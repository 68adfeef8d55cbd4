/* Pausing: the executions' cgroups are frozen, or without cgroups all processes beneath PID 1 are
 * stopped. PID 1 itself goes on, so the daemon can still talk to it. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>

#include "base/clock.h"
#include "base/fd.h"
#include "box/launch.h"
#include "box/launch_spawn.h"
#include "box/sandbox.h"

#define FREEZE_TIMEOUT_MS 5000
#define STOP_ROUNDS       64

/* By cgroup */

/* The box's own word: the first of its cgroups is the one of version 2, if it has one; -1 where it
 * has none. */
static int open_cgroup(const char *dir, const char *id, int *ret_fd, struct err *err)
{
        CLEAN(cleanup_free) char *note = xasprintf("%s/cgroup", dir);
        CLEAN(cleanup_free) char *name = xasprintf("/berth-%s", id);
        CLEAN(buf_done) struct buf text = BUF_INIT;
        CLEAN(cleanup_fd) int fd = -1;
        int r = file_read_at(AT_FDCWD, note, (size_t)64 << 10, &text, err);

        *ret_fd = -1;
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0 || !text.data)
                return r;
        text.data[strcspn(text.data, "\n")] = '\0';
        if (text.data[0] != '/' || !strstr(text.data, name))
                return 0;
        fd = open(text.data, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        /* Version 1 has no such file. */
        enum life life = fd < 0 ? life_by_errno(errno) : file_life_at(fd, "cgroup.freeze");
        if (life == LIFE_UNKNOWN)
                return err_sys(err, ERR_BUSY, errno, "reach the cgroup of the sandbox");
        if (life == LIFE_YES)
                *ret_fd = take_fd(&fd);
        return 0;
}

/* 1, 0, or an error. */
static int is_frozen(int fd, bool wanted, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;

        if (file_read_at(fd, "cgroup.events", 4096, &text, NULL) >= 0)
                return strstr(buf_str(&text), "frozen 1") != NULL;
        /* One that is gone has nothing that runs, and nothing that could be let run. */
        return errno == ENODEV || life_by_errno(errno) == LIFE_NO
                       ? wanted
                       : err_sys(err, ERR_BUSY, errno, "read the state of a cgroup");
}

/* Freezing is asked for and takes effect soon. */
static int set_frozen(struct op *op, int fd, bool frozen, struct err *err)
{
        CLEAN(cleanup_fd) int file = openat(fd, "cgroup.freeze", O_WRONLY | O_CLOEXEC);
        int64_t until = clock_mono_ms() + FREEZE_TIMEOUT_MS;
        int r;

        if (file < 0 || write(file, frozen ? "1" : "0", 1) != 1)
                return errno == ENOENT || errno == ENODEV
                               ? 0
                               : err_sys(err, ERR_PROVIDER, errno, "freeze a cgroup");
        while ((r = is_frozen(fd, frozen, err)) >= 0 && r != frozen) {
                r = op_wait_fd(op, -1, 0, 1, err);
                if (r < 0)
                        return r;
                if (clock_mono_ms() > until)
                        return err_set(err, ERR_TIMEOUT, "the sandbox does not freeze");
        }
        return MIN(r, 0);
}

static int freeze_executions(struct op *op, int box_fd, bool frozen, struct err *err)
{
        int fd = openat(box_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd < 0 ? NULL : fdopendir(fd);
        struct dirent *entry;
        int r = 0;

        if (!dir) {
                r = err_sys(err, ERR_BUSY, errno, "read the cgroup of the sandbox");
                cleanup_fd(&fd);
                return r;
        }
        while (r >= 0 && (entry = readdir(dir))) {
                CLEAN(cleanup_fd) int one = -1;

                /* PID 1 answers while its commands are frozen (berth-box/limits.c). */
                if (entry->d_type != DT_DIR || entry->d_name[0] == '.' ||
                    streq(entry->d_name, "box"))
                        continue;
                one = openat(fd, entry->d_name, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);
                if (one >= 0)
                        r = set_frozen(op, one, frozen, err);
                else if (life_by_errno(errno) == LIFE_UNKNOWN)
                        r = err_sys(err, ERR_BUSY, errno, "reach a cgroup of the sandbox");
        }
        closedir(dir);
        return r;
}

/* By signals */

struct process {
        pid_t pid, parent;
        bool inside;
        char state;
};

struct processes {
        struct process *at;
        size_t n, room;
};

/* 1, 0 when it is gone, or an error. */
static int read_process(pid_t pid, struct process *ret, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        char path[32];
        int parent;

        snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        if (file_read_at(AT_FDCWD, path, 4096, &text, NULL) < 0)
                return life_by_errno(errno) == LIFE_NO
                               ? 0
                               : err_sys(err, ERR_BUSY, errno, "look at process %d", (int)pid);
        const char *at = strrchr(buf_str(&text), ')');
        if (!at || sscanf(at + 1, " %c %d", &ret->state, &parent) != 2)
                return 0;
        ret->pid = pid;
        ret->parent = parent;
        ret->inside = false;
        return 1;
}

static int read_all(struct processes *p, struct err *err)
{
        DIR *dir = opendir("/proc");
        struct dirent *entry;
        int r = 0;

        p->n = 0;
        if (!dir)
                return err_sys(err, ERR_BUSY, errno, "look at the processes");
        while (r >= 0 && (entry = readdir(dir))) {
                if (!isdigit((unsigned char)entry->d_name[0]))
                        continue;
                if (p->n == p->room) {
                        p->room = p->room ? p->room * 2 : 256;
                        p->at = xrealloc(p->at, p->room * sizeof(*p->at));
                }
                r = read_process((pid_t)atoi(entry->d_name), &p->at[p->n], err);
                p->n += r > 0;
        }
        closedir(dir);
        return MIN(r, 0);
}

/* The processes that descend from PID 1: orphans in its namespace are its children. How many do not
 * stand still.
 */
static int signal_inside(struct processes *p, pid_t init, int signal, struct err *err)
{
        int moving = 0, r = read_all(p, err);
        bool changed = true;

        if (r < 0)
                return r;
        while (changed) {
                changed = false;
                for (size_t i = 0; i < p->n; i++) {
                        bool above = p->at[i].parent == init;

                        for (size_t k = 0; k < p->n && !above; k++)
                                above = p->at[k].inside && p->at[k].pid == p->at[i].parent;
                        if (above && !p->at[i].inside)
                                changed = p->at[i].inside = true;
                }
        }
        for (size_t i = 0; i < p->n; i++) {
                if (!p->at[i].inside || strchr("ZX", p->at[i].state))
                        continue;
                moving += !strchr("Tt", p->at[i].state);
                (void)kill(p->at[i].pid, signal);
        }
        return moving;
}

static int stop_all(struct op *op, pid_t init, struct err *err)
{
        struct processes p = { 0 };
        int moving = 1, r = 0;

        /* Nothing new can appear once a whole pass finds every process stopped. */
        for (int i = 0; i < STOP_ROUNDS && moving > 0 && r >= 0; i++) {
                moving = signal_inside(&p, init, SIGSTOP, err);
                r = moving > 0 ? op_wait_fd(op, -1, 0, 1, err) : moving;
        }
        free(p.at);
        if (r >= 0 && moving > 0)
                return err_set(err, ERR_TIMEOUT, "the sandbox does not stop");
        return r < 0 ? r : 0;
}

static int change_frozen(struct op *op, const char *dir, const char *id, bool frozen,
                         struct err *err)
{
        CLEAN(cleanup_fd) int cgroup = -1;
        struct processes p = { 0 };
        pid_t init = 0;
        int r = box_check_alive(dir, err);

        if (r > 0)
                r = open_cgroup(dir, id, &cgroup, err);
        else if (r == 0)
                r = err_set(err, ERR_NOT_FOUND, "no sandbox lives there");
        if (r >= 0 && cgroup >= 0)
                return freeze_executions(op, cgroup, frozen, err);
        if (r >= 0)
                r = launch_noted_process(dir, &init, err);
        if (r < 0)
                return r;
        if (r == 0)
                return err_set(err, ERR_NOT_FOUND, "no sandbox lives there");
        if (frozen)
                return stop_all(op, init, err);
        r = signal_inside(&p, init, SIGCONT, err);
        free(p.at);
        return MIN(r, 0);
}

int sandbox_freeze(struct op *op, const char *dir, const char *id, struct err *err)
{
        return change_frozen(op, dir, id, true, err);
}

int sandbox_thaw(struct op *op, const char *dir, const char *id, struct err *err)
{
        return change_frozen(op, dir, id, false, err);
}
