/* User namespaces: maps, and namespaces made only for their map.
 *
 * Root writes the maps itself. Any other user needs the setuid programs newuidmap and newgidmap,
 * which look the range up in /etc/subuid and /etc/subgid; they map the user's own id without being
 * asked for permission, and that is the supervisor. Its group has to be in the map there: a rootfs
 * of that user belongs to it, and inner root may change only files whose owner and group are both
 * mapped. seccomp.c keeps inner root out of it. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "berth-box/sandbox.h"

static int write_map(pid_t pid, const char *name, const char *text)
{
        char path[64];

        snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, name);
        CLEAN(cleanup_fd) int fd = open(path, O_WRONLY | O_CLOEXEC);

        return fd >= 0 && write(fd, text, strlen(text)) == (ssize_t)strlen(text) ? 0 : -1;
}

/* The supervisor's group is in no map: inner root could join it otherwise, by a list of groups that
 * no system call filter can read. */
static int map_as_root(const struct sandbox *s, pid_t pid, struct err *err)
{
        char users[128], groups[64];

        snprintf(users, sizeof(users), "0 %u %u\n%u %u 1\n", s->spec.first_id, s->spec.n_ids - 1,
                 SANDBOX_SUPERVISOR, sandbox_host_id(&s->spec, SANDBOX_SUPERVISOR));
        snprintf(groups, sizeof(groups), "0 %u %u\n", s->spec.first_id, s->spec.n_ids - 1);
        if (write_map(pid, "uid_map", users) < 0 || write_map(pid, "gid_map", groups) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "map the ids of the sandbox");
        return 0;
}

/* Both at once; they take longer than everything else. */
static int start_mapper(const char *program, const struct sandbox *s, pid_t pid, uint32_t own,
                        pid_t *ret)
{
        static const char *const folders[] = { "/usr/bin/", "/bin/", "/usr/local/bin/" };
        char target[16], first[16], count[16], supervisor[16], self[16], path[64];
        char *argv[] = { (char *)program, target, (char *)"0", first, count,
                         supervisor,      self,   (char *)"1", NULL };
        char *env[] = { NULL };
        int r = ENOENT;

        snprintf(target, sizeof(target), "%d", (int)pid);
        snprintf(first, sizeof(first), "%u", s->spec.first_id);
        snprintf(count, sizeof(count), "%u", s->spec.n_ids);
        snprintf(supervisor, sizeof(supervisor), "%u", SANDBOX_SUPERVISOR);
        snprintf(self, sizeof(self), "%u", own);
        for (size_t i = 0; i < ARRAY_LEN(folders) && r == ENOENT; i++) {
                snprintf(path, sizeof(path), "%s%s", folders[i], program);
                r = posix_spawn(ret, path, NULL, NULL, argv, env);
        }
        return r;
}

static int map_by_programs(const struct sandbox *s, pid_t pid, struct err *err)
{
        static const char *const programs[] = { "newuidmap", "newgidmap" };
        const uint32_t own[] = { geteuid(), getegid() };
        pid_t mapper[2] = { -1, -1 };
        int r = 0;

        for (size_t i = 0; i < 2 && r == 0; i++)
                r = start_mapper(programs[i], s, pid, own[i], &mapper[i]);
        if (r != 0)
                err_sys(err, ERR_PROVIDER, r,
                        "run newuidmap and newgidmap (Debian package uidmap: apt-get install "
                        "uidmap)");
        for (size_t i = 0; i < 2; i++) {
                int status = 0;

                if (mapper[i] <= 0)
                        continue;
                while (waitpid(mapper[i], &status, 0) < 0 && errno == EINTR)
                        ;
                if (status != 0 && r == 0)
                        r = err_set(err, ERR_PROVIDER,
                                    "%s does not allow ids %u to %u: add this range for the user "
                                    "%u to /etc/sub%s",
                                    programs[i], s->spec.first_id,
                                    s->spec.first_id + s->spec.n_ids - 1, own[0],
                                    i ? "gid" : "uid");
        }
        return r == 0 ? 0 : ERR_PROVIDER;
}

int userns_map(const struct sandbox *s, pid_t pid, struct err *err)
{
        return s->rootless ? map_by_programs(s, pid, err) : map_as_root(s, pid, err);
}

/* A process that is there as long as the other end of the pipe is open, so that it cannot outlive
 * us. */
static pid_t clone_idle(int *ret_keep)
{
        struct clone_args args = { .flags = CLONE_NEWUSER, .exit_signal = SIGCHLD };
        int p[2];
        char byte;

        if (pipe2(p, O_CLOEXEC) < 0)
                return -1;
        pid_t pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
        if (pid == 0) {
                close(p[1]);
                (void)!read(p[0], &byte, 1);
                _exit(0);
        }
        close(p[0]);
        *ret_keep = p[1];
        return pid;
}

/* The namespace lives by its descriptor; the process is only there to make it. */
int userns_for_idmap(const struct idmap *map, int *ret_fd, struct err *err)
{
        char path[64], uids[64], gids[64];
        CLEAN(cleanup_fd) int keep = -1;
        pid_t pid = clone_idle(&keep);
        int fd = -1;

        if (pid < 0)
                return err_sys(err, ERR_PROVIDER, errno, "make a user namespace");
        snprintf(uids, sizeof(uids), "%u %u %u", map->from_uid, map->to, map->n);
        snprintf(gids, sizeof(gids), "%u %u %u", map->from_gid, map->to, map->n);
        snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
        if (write_map(pid, "uid_map", uids) == 0 && write_map(pid, "gid_map", gids) == 0)
                fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                err_sys(err, ERR_PROVIDER, errno, "map the owners of a directory");
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        *ret_fd = fd;
        return fd < 0 ? ERR_PROVIDER : 0;
}
