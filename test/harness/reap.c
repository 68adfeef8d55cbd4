/* reap [--timeout SECONDS] COMMAND ARG...: run a test so that nothing of it can stay behind.
 *
 * As a child subreaper it inherits every process that the command's tree orphans, also those that
 * made themselves a new session. When the command has ended, what is still alive is listed with its
 * command line, killed and waited for. A short grace comes first: a process that is just dying was
 * not left behind.
 *
 * At the time limit the command gets SIGABRT, so that it can say where it stands (python does), and
 * is then killed with everything beneath it. The same happens, without SIGABRT, when reap itself is
 * told to stop or loses its parent.
 *
 * Exit status: the command's; 128 + signal; 124 at the time limit; 125 when something was left
 * behind by a command that had otherwise succeeded; 126 for trouble of reap's own. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

enum {
        STATUS_TIMEOUT = 124,
        STATUS_LEFT_BEHIND = 125,
        STATUS_TROUBLE = 126,
        GRACE_MS = 1000,
        ABORT_MS = 3000,
        MAX_PROCESSES = 32768,
};

struct process {
        pid_t pid;
        pid_t parent;
        bool zombie;
        bool ours;
};

static struct process processes[MAX_PROCESSES];

static int64_t now_ms(void)
{
        struct timespec ts;

        (void)clock_gettime(CLOCK_MONOTONIC, &ts);
        return (int64_t)ts.tv_sec * 1000 + ts.tv_nsec / 1000000;
}

/* Parent and state from /proc/PID/stat. The name in it is in parentheses and may hold anything, so
 * the fields are read after the last ')'. */
static bool process_read(pid_t pid, struct process *ret)
{
        char path[64], text[1024];
        char *end;
        char state;
        int parent, fd;
        ssize_t n;

        (void)snprintf(path, sizeof(path), "/proc/%d/stat", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return false;
        n = read(fd, text, sizeof(text) - 1);
        (void)close(fd);
        if (n <= 0)
                return false;
        text[n] = '\0';
        end = strrchr(text, ')');
        if (!end || sscanf(end + 1, " %c %d", &state, &parent) != 2)
                return false;
        *ret = (struct process){ .pid = pid,
                                 .parent = parent,
                                 .zombie = state == 'Z' || state == 'X' };
        return true;
}

/* Fill the table with every process, and mark those beneath this one. */
static size_t processes_scan(void)
{
        DIR *proc = opendir("/proc");
        struct dirent *entry;
        size_t n = 0;
        bool more = true;

        if (!proc)
                return 0;
        while ((entry = readdir(proc)) && n < MAX_PROCESSES) {
                char *end;
                long pid = strtol(entry->d_name, &end, 10);

                if (*end == '\0' && pid > 0 && process_read((pid_t)pid, &processes[n]))
                        n++;
        }
        (void)closedir(proc);

        while (more) {
                more = false;
                for (size_t i = 0; i < n; i++) {
                        bool ours = processes[i].parent == getpid();

                        for (size_t j = 0; j < n && !ours; j++)
                                ours = processes[j].ours && processes[j].pid == processes[i].parent;
                        if (ours && !processes[i].ours)
                                more = processes[i].ours = true;
                }
        }
        return n;
}

static void process_print(pid_t pid)
{
        char path[64], text[4096];
        ssize_t n = 0;
        int fd;

        (void)snprintf(path, sizeof(path), "/proc/%d/cmdline", (int)pid);
        fd = open(path, O_RDONLY | O_CLOEXEC);
        if (fd >= 0) {
                n = read(fd, text, sizeof(text) - 1);
                (void)close(fd);
        }
        for (ssize_t i = 0; i < n; i++)
                if (text[i] == '\0' || text[i] == '\n')
                        text[i] = ' ';
        text[n > 0 ? n : 0] = '\0';
        (void)fprintf(stderr, "reap: left behind: %d %s\n", (int)pid,
                      n > 0 ? text : "(no command line)");
}

/* Wait for whatever has ended; remember how `command` did. */
static void collect(pid_t command, int *command_status, bool *command_ended)
{
        int status;
        pid_t pid;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
                if (pid != command)
                        continue;
                *command_status = status;
                *command_ended = true;
        }
}

/* Kill everything beneath this process until nothing is left; a tree that forks meanwhile is met by
 * the next round. Returns how many were alive in the first round. */
static size_t kill_all(bool print)
{
        size_t first = 0;

        for (int round = 0;; round++) {
                struct timespec pause = { .tv_nsec = 5 * 1000 * 1000 };
                size_t n = processes_scan(), alive = 0;

                for (size_t i = 0; i < n; i++) {
                        if (!processes[i].ours || processes[i].zombie)
                                continue;
                        alive++;
                        if (round == 0 && print)
                                process_print(processes[i].pid);
                        (void)kill(processes[i].pid, SIGKILL);
                }
                if (round == 0)
                        first = alive;
                while (waitpid(-1, NULL, WNOHANG) > 0)
                        ;
                if (alive == 0)
                        return first;
                (void)nanosleep(&pause, NULL);
        }
}

static bool anything_alive(void)
{
        size_t n = processes_scan();

        for (size_t i = 0; i < n; i++)
                if (processes[i].ours && !processes[i].zombie)
                        return true;
        return false;
}

static pid_t start(char **argv, const sigset_t *old_mask)
{
        pid_t pid = fork();

        if (pid != 0)
                return pid;
        (void)sigprocmask(SIG_SETMASK, old_mask, NULL);
        (void)execvp(argv[0], argv);
        (void)fprintf(stderr, "reap: %s: %s\n", argv[0], strerror(errno));
        _exit(STATUS_TROUBLE);
}

/* Wait for the command until `deadline` (0: for ever). Returns 0 when it ended, else the signal
 * that told reap to stop, or -1 at the deadline. */
static int await(pid_t command, const sigset_t *signals, int64_t deadline, int *status)
{
        bool ended = false;

        for (;;) {
                struct timespec left = { .tv_sec = 3600 };
                int sig;

                collect(command, status, &ended);
                if (ended)
                        return 0;
                if (deadline > 0) {
                        int64_t ms = deadline - now_ms();

                        if (ms <= 0)
                                return -1;
                        left = (struct timespec){ .tv_sec = ms / 1000,
                                                  .tv_nsec = ms % 1000 * 1000000 };
                }
                sig = sigtimedwait(signals, NULL, &left);
                if (sig > 0 && sig != SIGCHLD)
                        return sig;
        }
}

static int usage(void)
{
        (void)fprintf(stderr, "usage: reap [--timeout SECONDS] COMMAND ARG...\n");
        return STATUS_TROUBLE;
}

int main(int argc, char **argv)
{
        sigset_t signals, old_mask;
        int64_t deadline = 0;
        int first = 1, status = 0, why, code;
        pid_t command;

        if (argc > 3 && strcmp(argv[1], "--timeout") == 0) {
                deadline = now_ms() + (int64_t)(strtod(argv[2], NULL) * 1000);
                first = 3;
        }
        if (argc <= first)
                return usage();

        (void)sigemptyset(&signals);
        for (const int *s = (const int[]){ SIGCHLD, SIGTERM, SIGINT, SIGHUP, 0 }; *s; s++)
                (void)sigaddset(&signals, *s);
        (void)sigprocmask(SIG_BLOCK, &signals, &old_mask);
        if (prctl(PR_SET_CHILD_SUBREAPER, 1) < 0 || prctl(PR_SET_PDEATHSIG, SIGTERM) < 0) {
                perror("reap: prctl");
                return STATUS_TROUBLE;
        }

        command = start(argv + first, &old_mask);
        if (command < 0) {
                perror("reap: fork");
                return STATUS_TROUBLE;
        }
        why = await(command, &signals, deadline, &status);
        if (why < 0) {
                (void)fprintf(stderr, "reap: time limit reached\n");
                (void)kill(command, SIGABRT);
                (void)await(command, &signals, now_ms() + ABORT_MS, &status);
        }
        if (why != 0) {
                (void)kill_all(why < 0);
                return why < 0 ? STATUS_TIMEOUT : 128 + why;
        }

        code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
        if (WIFSIGNALED(status))
                (void)fprintf(stderr, "reap: ended by signal %d (%s)\n", WTERMSIG(status),
                              strsignal(WTERMSIG(status)));
        for (int64_t until = now_ms() + GRACE_MS; anything_alive() && now_ms() < until;) {
                struct timespec pause = { .tv_nsec = 10 * 1000 * 1000 };

                while (waitpid(-1, NULL, WNOHANG) > 0)
                        ;
                (void)nanosleep(&pause, NULL);
        }
        if (kill_all(true) > 0 && code == 0)
                code = STATUS_LEFT_BEHIND;
        return code;
}
