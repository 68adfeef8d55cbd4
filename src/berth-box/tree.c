/* Killing a process tree.
 *
 * By cgroup where there is one (cgroup.c), and in addition, always, by descent and marker. The box
 * is a subreaper, so whatever a command starts stays beneath the box, and once the command itself
 * is gone its descendants hang below children of the box that are no execution's main process:
 * orphans. So, most of the time, one look at our own list of children answers whether anything is
 * left. Only when there is an orphan that may belong to the execution is /proc read as a whole.
 *
 * A process belongs to an execution when it is the main process, or has its session, or the marker
 * BERTH_EXEC=<id> in its environment, or a parent that belongs to it. An orphan that has neither
 * session nor marker (it has cleared its environment) is taken for the execution's when no other
 * one is alive that it could belong to; otherwise it is left for the last of them.
 *
 * Without a cgroup a tree can grow while it is being looked at. So every process found is stopped
 * first, until a look finds no new one, and then all are killed. Signals go through pidfds that are
 * opened before a last look at the process: a pid that was given to another meanwhile is safe. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "berth-box/sandbox.h"

#define MARKER      "BERTH_EXEC="
#define STOP_ROUNDS 32
#define ADOPT_MS    5000
#define UNCLEAR_MS  30

enum owner { NOT_OURS, BENEATH, OTHER, MINE };
enum marker { MARK_NONE, MARK_OTHER, MARK_MINE };

/* The target of a pass: one execution, all that were adopted, or everything beneath the box. */
struct target {
        const struct exec *e;
        bool adopted, everything;
};

/* Reading /proc */

static ssize_t read_proc(struct box *b, const char *path, char *buffer, size_t size)
{
        CLEAN(cleanup_fd) int fd = openat(b->proc_fd, path, O_RDONLY | O_CLOEXEC);
        ssize_t n = fd >= 0 ? read(fd, buffer, size - 1) : -1;

        if (n == 0)
                errno = ESRCH;
        buffer[n > 0 ? n : 0] = '\0';
        return n;
}

/* "pid (name) state ppid pgrp sid ..."; the name may contain anything, so look from its end. False:
 * errno says whether it is gone. */
static bool read_stat(struct box *b, pid_t pid, struct proc *ret)
{
        char path[32], text[1024];
        unsigned long long start = 0;
        int ppid, sid;

        snprintf(path, sizeof(path), "%d/stat", (int)pid);
        if (read_proc(b, path, text, sizeof(text)) <= 0)
                return false;
        const char *at = strrchr(text, ')');
        if (!at || sscanf(at + 1,
                          " %c %d %*d %d %*d %*d %*u %*u %*u %*u %*u %*u %*u %*d %*d %*d %*d %*d "
                          "%*d %llu",
                          &ret->state, &ppid, &sid, &start) != 4)
                return false;
        ret->pid = pid;
        ret->ppid = ppid;
        ret->sid = sid;
        ret->start = start;
        ret->owner = NOT_OURS;
        return true;
}

static bool is_dead(const struct proc *p)
{
        return p->state == 'Z' || p->state == 'X';
}

static bool marker_matches(struct box *b, const struct target *t, const char *value)
{
        uint8_t id[FRAME_UUID];
        char text[37];

        memcpy(text, value, 36);
        text[36] = '\0';
        if (!frame_uuid_bytes(text, id))
                return false;
        if (t->e)
                return memcmp(id, t->e->id, FRAME_UUID) == 0;
        struct exec *e = exec_find(b, id);
        return e && (t->everything || e->adopted);
}

/* The cgroup says it best, where there is one: ".../berth-<box>/<execution>". A process that has
 * left its cgroup says nothing by it. */
static enum marker read_cgroup(struct box *b, pid_t pid, const struct target *t)
{
        char path[32], text[8192], own[64];

        if (b->cgroup_fd < 0)
                return MARK_NONE;
        snprintf(path, sizeof(path), "%d/cgroup", (int)pid);
        snprintf(own, sizeof(own), "/berth-%s/", b->name);
        if (read_proc(b, path, text, sizeof(text)) <= 0)
                return MARK_NONE;
        const char *at = strstr(text, own);
        if (!at && b->sandbox) { /* whose cgroup namespace begins at its own */
                snprintf(own, sizeof(own), "0::/%s", b->sandbox->cgroup_split ? "commands/" : "");
                at = strstr(text, own);
        }
        if (!at || strlen(at + strlen(own)) < 36)
                return MARK_NONE;
        return marker_matches(b, t, at + strlen(own)) ? MARK_MINE : MARK_OTHER;
}

/* Look for the marker in blocks that overlap by as much as it is long. */
static enum marker read_marker(struct box *b, pid_t pid, const struct target *t)
{
        static char block[65536];
        const size_t whole = strlen(MARKER) + 36;
        size_t kept = 0, total = 0;
        char path[32];

        snprintf(path, sizeof(path), "%d/environ", (int)pid);
        CLEAN(cleanup_fd) int fd = openat(b->proc_fd, path, O_RDONLY | O_CLOEXEC);

        while (fd >= 0 && total < FRAME_MAX_JOINED) {
                ssize_t n = read(fd, block + kept, sizeof(block) - kept);
                const char *at = block, *end;

                if (n <= 0)
                        break;
                total += (size_t)n;
                end = block + kept + n;
                while ((at = memmem(at, (size_t)(end - at), MARKER, strlen(MARKER))) &&
                       at + whole <= end) {
                        bool first = at == block ? total == (size_t)n : at[-1] == '\0';

                        if (first)
                                return marker_matches(b, t, at + strlen(MARKER)) ? MARK_MINE
                                                                                 : MARK_OTHER;
                        at++;
                }
                kept = MIN((size_t)(end - block), whole);
                memmove(block, end - kept, kept);
        }
        return MARK_NONE;
}

/* Whether another execution lives that an orphan without a trace could belong to. */
static bool others_live(const struct box *b, const struct exec *e)
{
        for (int i = 0; i < b->n_execs; i++)
                if (&b->execs[i] != e && exec_is_live(&b->execs[i]))
                        return true;
        return false;
}

static bool session_of_other(struct box *b, const struct proc *p, const struct exec *e)
{
        for (int i = 0; i < b->n_execs; i++)
                if (&b->execs[i] != e && exec_is_live(&b->execs[i]) && b->execs[i].pid == p->sid)
                        return true;
        return false;
}

/* The execution that a process beneath the box belongs to when no main process is its ancestor. */
static enum owner owner_of_orphan(struct box *b, const struct proc *p, const struct target *t)
{
        if (t->everything)
                return MINE;
        if (service_is_worker(b, p->pid))
                return OTHER;
        if (t->e && p->sid == t->e->pid)
                return MINE;
        enum marker m = read_cgroup(b, p->pid, t);
        if (m == MARK_NONE)
                m = read_marker(b, p->pid, t);
        if (m == MARK_MINE)
                return MINE;
        if (m == MARK_OTHER || session_of_other(b, p, t->e))
                return OTHER;
        return p->ppid == b->pid && t->e && !others_live(b, t->e) ? MINE : BENEATH;
}

static enum owner owner_by_parent(struct box *b, const struct proc *p, enum owner parent,
                                  const struct target *t)
{
        struct exec *main_of = exec_by_pid(b, p->pid);

        if (main_of)
                return main_of == t->e || t->everything ? MINE : OTHER;
        return parent == MINE || parent == OTHER ? parent : owner_of_orphan(b, p, t);
}

static struct proc *find_proc(struct box *b, pid_t pid)
{
        size_t low = 0, high = b->n_procs;

        while (low < high) {
                size_t middle = (low + high) / 2;

                if (b->procs[middle].pid == pid)
                        return &b->procs[middle];
                if (b->procs[middle].pid < pid)
                        low = middle + 1;
                else
                        high = middle;
        }
        return NULL;
}

/* /proc lists processes by ascending pid, which find_proc() relies on. False when not all could be
 * looked at; those of others may be hidden from us. */
static bool read_all(struct box *b)
{
        int fd = openat(b->proc_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
        struct dirent *entry;

        bool complete = dir;

        b->n_procs = 0;
        while (dir && b->n_procs < BOX_MAX_PROCS && (entry = readdir(dir))) {
                struct proc *p = &b->procs[b->n_procs];

                if (!isdigit((unsigned char)entry->d_name[0]))
                        continue;
                if (read_stat(b, (pid_t)strtol(entry->d_name, NULL, 10), p))
                        b->n_procs += !is_dead(p);
                else if (life_by_errno(errno) == LIFE_UNKNOWN && errno != EACCES && errno != EPERM)
                        complete = false;
        }
        if (dir)
                closedir(dir);
        else
                cleanup_fd(&fd);
        return complete;
}

/* Fill in the owners, parents before children; how many are the target's. */
static size_t assign_owners(struct box *b, const struct target *t)
{
        size_t mine = 0;
        bool changed = true;

        for (size_t i = 0; i < b->n_procs && t->adopted; i++)
                if (b->procs[i].pid != b->pid && read_marker(b, b->procs[i].pid, t) == MARK_MINE)
                        b->procs[i].owner = MINE;
        while (changed) {
                changed = false;
                for (size_t i = 0; i < b->n_procs; i++) {
                        struct proc *p = &b->procs[i], *parent;
                        enum owner above;

                        if (p->owner != NOT_OURS || p->pid == b->pid)
                                continue;
                        parent = find_proc(b, p->ppid);
                        above = p->ppid == b->pid ? BENEATH
                                : parent          ? (enum owner)parent->owner
                                                  : NOT_OURS;
                        if (above == NOT_OURS)
                                continue;
                        p->owner = (uint8_t)owner_by_parent(b, p, above, t);
                        changed = true;
                }
        }
        for (size_t i = 0; i < b->n_procs; i++)
                mine += b->procs[i].owner == MINE;
        return mine;
}

static void signal_proc(struct box *b, const struct proc *p, int signal)
{
        struct proc now;
        CLEAN(cleanup_fd) int fd = (int)syscall(SYS_pidfd_open, p->pid, 0);

        if (!read_stat(b, p->pid, &now) || now.start != p->start)
                return;
        if (fd < 0 || syscall(SYS_pidfd_send_signal, fd, signal, NULL, 0) < 0)
                (void)kill(p->pid, signal);
}

/* How many there are; one more when not all could be looked at, for that is not the end. */
static size_t tree_pass(struct box *b, const struct target *t, int signal)
{
        bool complete = read_all(b);
        size_t mine = assign_owners(b, t);

        for (size_t i = 0; i < b->n_procs && mine > 0 && signal; i++)
                if (b->procs[i].owner == MINE)
                        signal_proc(b, &b->procs[i], signal);
        return mine + !complete;
}

/* Stop until nothing new appears, then kill; how many there were. */
static size_t stop_and_kill(struct box *b, const struct target *t)
{
        size_t seen = 0, mine = tree_pass(b, t, SIGSTOP);

        for (int i = 0; i < STOP_ROUNDS && mine > seen; i++) {
                seen = mine;
                mine = tree_pass(b, t, SIGSTOP);
        }
        for (size_t i = 0; i < b->n_procs; i++)
                if (b->procs[i].owner == MINE)
                        signal_proc(b, &b->procs[i], SIGKILL);
        return mine;
}

static size_t count_alive(const struct box *b)
{
        size_t n = service_count(b);

        for (int i = 0; i < b->n_execs; i++)
                n += b->execs[i].alive;
        return n;
}

enum orphans { ORPHANS_NONE, ORPHANS_OF_OTHERS, ORPHANS_UNCLEAR, ORPHANS_DYING, ORPHANS_LIKELY };

/* Are there orphans of this execution among our children? Only we reap them, so the list does not
 * shrink under our eyes; when it is as long as there are main processes, no other process is on
 * it. */
static enum orphans look_for_orphans(struct box *b, const struct target *t)
{
        static char text[1 << 20];
        size_t len = 0, children = 0;
        ssize_t n;

        if (b->children_fd < 0)
                return ORPHANS_LIKELY;
        while ((n = pread(b->children_fd, text + len, sizeof(text) - 1 - len, (off_t)len)) > 0)
                len += (size_t)n;
        if (n < 0 || len == sizeof(text) - 1)
                return ORPHANS_LIKELY;
        text[len] = '\0';
        for (size_t i = 0; i < len; i++)
                children += text[i] == ' ';
        if (children == count_alive(b))
                return ORPHANS_NONE;

        /* The first of the children in `text` that says most. */
        enum orphans found = ORPHANS_NONE;
        char *end;

        for (char *p = text;; p = end) {
                pid_t pid = (pid_t)strtol(p, &end, 10);
                struct proc proc;
                enum owner owner;

                if (end == p || found == ORPHANS_LIKELY)
                        return found;
                if (exec_by_pid(b, pid))
                        continue;
                /* What it leaves came to us when it died, which may be after the list was read. */
                if (!read_stat(b, pid, &proc) || is_dead(&proc)) {
                        found = MAX(found, ORPHANS_DYING);
                        continue;
                }
                owner = owner_of_orphan(b, &proc, t);
                found = MAX(found, owner == OTHER     ? ORPHANS_OF_OTHERS
                                   : owner == BENEATH ? ORPHANS_UNCLEAR
                                                      : ORPHANS_LIKELY);
        }
}

/* The interface */

void tree_init(struct box *b)
{
        b->proc_fd = open("/proc", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        b->children_fd = open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
        if (b->sandbox) { /* its cgroups are made outside */
                b->kill_method = BOX_KILL_PIDNS;
                return;
        }
        b->kill_method = BOX_KILL_SUBREAPER;
        cgroup_init(b);
}

bool tree_kill_step(struct box *b, struct exec *e)
{
        struct target t = { .e = e };
        bool left = false;

        if (e->kill_method == BOX_KILL_CGROUP)
                left = !cgroup_kill_step(b, e);
        else if (e->alive)
                left = stop_and_kill(b, &t) > 0;
        exec_reap(b);
        if (!exec_is_live(e))
                return false;
        if (e->alive) {
                (void)kill(-e->pid, SIGKILL);
                (void)kill(e->pid, SIGKILL);
                return false;
        }
        enum orphans orphans = look_for_orphans(b, &t);
        if (orphans == ORPHANS_LIKELY)
                (void)stop_and_kill(b, &t);
        /* A process that was seen may be gone and its child there instead: only a look that finds
         * no process ends this. */
        if ((orphans == ORPHANS_LIKELY || orphans == ORPHANS_DYING) && b->now < e->give_up_at)
                return false;
        /* It may have been in the middle of exec, when no environment can be read: look twice. */
        if (orphans == ORPHANS_UNCLEAR && b->now < e->give_up_at - BOX_GIVE_UP_MS + UNCLEAR_MS)
                return false;
        return !left;
}

void tree_signal(struct box *b, struct exec *e, int signal)
{
        struct target t = { .e = e };

        if (e->kill_method == BOX_KILL_CGROUP)
                cgroup_signal(b, e, signal);
        else
                (void)tree_pass(b, &t, signal);
}

void tree_kill_adopted(struct box *b)
{
        struct target t = { .adopted = true };
        int64_t until = clock_mono_ms() + ADOPT_MS;

        while (stop_and_kill(b, &t) > 0 && clock_mono_ms() < until)
                (void)usleep(1000);
}

bool tree_kill_all_step(struct box *b)
{
        struct target t = { .everything = true };

        exec_reap(b);
        return look_for_orphans(b, &t) == ORPHANS_NONE || stop_and_kill(b, &t) == 0;
}
