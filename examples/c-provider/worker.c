/* A provider in C whose sandboxes are directories of its own: a page to begin from. They keep
 * nobody in.
 *
 *     cc worker.c -o worker $(pkg-config --cflags --libs --static berth-provider)
 *     berth plugin conformance .        # then: berth plugin install . */
#define _GNU_SOURCE
#include <berth/provider.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

/* In the working directory, which is the provider's own. The host names the place it makes one for,
 * so a second acquire for the same place finds the directory that is there. */
static int acquire(struct berth_call *call)
{
        const char *owner = berth_owner_place(call);
        char name[128], path[4096];

        snprintf(name, sizeof(name), "box-%s", owner ? owner : berth_param_text(call, "runId"));
        if (strchr(name, '/') || (mkdir(name, 0700) < 0 && errno != EEXIST) ||
            !realpath(name, path))
                return berth_fail(call, "cannot make the directory %s: %s", name, strerror(errno));
        berth_lease_set(call, name);
        berth_metadata_text(call, "remoteCwd", path);
        return 0;
}

static int resume(struct berth_call *call)
{
        const char *name = berth_lease(call);
        char path[4096];

        if (strncmp(name, "box-", 4) != 0 || strchr(name, '/') || !realpath(name, path))
                return 0; /* it is gone */
        berth_lease_set(call, name);
        berth_metadata_text(call, "remoteCwd", path);
        return 0;
}

static int destroy(struct berth_call *call)
{
        const char *name = berth_lease(call);
        pid_t pid;
        int status = 0;

        if (!name || strncmp(name, "box-", 4) != 0 || strchr(name, '/'))
                return 0;
        if (posix_spawnp(&pid, "rm", NULL, NULL,
                         (char **)(const char *[]){ "rm", "-rf", name, NULL }, environ) != 0 ||
            waitpid(pid, &status, 0) < 0 || status != 0)
                return berth_fail(call, "cannot remove the directory %s", name);
        return 0;
}

static int list_leases(struct berth_call *call)
{
        DIR *dir = opendir(".");

        for (struct dirent *e; dir && (e = readdir(dir));)
                if (strncmp(e->d_name, "box-", 4) == 0)
                        berth_found(call, e->d_name, berth_owner_instance(call), e->d_name + 4);
        if (dir)
                closedir(dir);
        return 0;
}

/* env -C DIRECTORY NAME=value... COMMAND ARGUMENT..., in a process group of its own. */
static pid_t start(struct berth_call *call, int in, int out, int err)
{
        const char *const *variables = berth_variables(call);
        const char *const *arguments = berth_arguments(call);
        const char *words[4096] = { "env", "-C", berth_directory(call) };
        size_t n = 3;
        posix_spawn_file_actions_t files;
        posix_spawnattr_t attr;
        pid_t pid = -1;

        for (; *variables && n < 2000; variables++)
                words[n++] = *variables;
        words[n++] = berth_command(call);
        for (; *arguments && n < 4000; arguments++)
                words[n++] = *arguments;
        posix_spawn_file_actions_init(&files);
        posix_spawn_file_actions_adddup2(&files, in, 0);
        posix_spawn_file_actions_adddup2(&files, out, 1);
        posix_spawn_file_actions_adddup2(&files, err, 2);
        posix_spawnattr_init(&attr);
        posix_spawnattr_setflags(&attr, POSIX_SPAWN_SETPGROUP);
        if (posix_spawnp(&pid, "env", &files, &attr, (char **)words, environ) != 0)
                pid = -1;
        posix_spawn_file_actions_destroy(&files);
        posix_spawnattr_destroy(&attr);
        return pid;
}

/* Until both outputs have ended, the time is over, or the sandbox is given up. */
static void follow(struct berth_call *call, pid_t pid, int out, int err)
{
        struct pollfd fds[] = { { out, POLLIN, 0 },
                                { err, POLLIN, 0 },
                                { berth_cancel_fd(call), POLLIN, 0 } };
        char bytes[65536];

        while (fds[0].fd >= 0 || fds[1].fd >= 0) {
                int64_t left = berth_time_left(call, 300000);

                if (poll(fds, 3, (int)left) == 0 || fds[2].revents) {
                        berth_timed_out_set(call);
                        kill(-pid, SIGKILL);
                        return;
                }
                for (int i = 0; i < 2; i++) {
                        ssize_t n = fds[i].revents ? read(fds[i].fd, bytes, sizeof(bytes)) : 0;

                        if (n > 0)
                                berth_output(call, i ? BERTH_STDERR : BERTH_STDOUT, bytes,
                                             (size_t)n);
                        else if (fds[i].revents)
                                fds[i].fd = -1;
                }
        }
}

static int execute(struct berth_call *call)
{
        size_t len;
        const char *input = berth_input(call, &len);
        int in = memfd_create("input", MFD_CLOEXEC), out[2] = { -1, -1 }, err[2] = { -1, -1 };
        int status = 0;
        pid_t pid = -1;

        if (in >= 0 && write(in, input, len) == (ssize_t)len && lseek(in, 0, SEEK_SET) == 0 &&
            pipe2(out, O_CLOEXEC) == 0 && pipe2(err, O_CLOEXEC) == 0)
                pid = start(call, in, out[1], err[1]);
        close(in);
        close(out[1]);
        close(err[1]);
        if (pid > 0) {
                follow(call, pid, out[0], err[0]);
                waitpid(pid, &status, 0);
                berth_exit_set(call,
                               WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status));
        }
        close(out[0]);
        close(err[0]);
        return pid > 0 ? 0 : berth_fail(call, "cannot start a command: %s", strerror(errno));
}

static int probe(struct berth_call *call)
{
        berth_summary(call, "Directories are ready.");
        return 0;
}

static int validate(struct berth_call *call)
{
        (void)call; /* everything is fine, and stays as it was sent */
        return 0;
}

int main(void)
{
        return berth_provider_main(&(struct berth_provider){ .validate = validate,
                                                             .probe = probe,
                                                             .acquire = acquire,
                                                             .resume = resume,
                                                             .execute = execute,
                                                             .release = destroy,
                                                             .destroy = destroy,
                                                             .list_leases = list_leases });
}
