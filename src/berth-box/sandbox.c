/* From a description on standard input to a running sandbox.
 *
 *   launcher (the host's namespaces)             PID 1 (all of them new)
 *   ---------------------------------            ----------------------------------
 *   directory, lock, socket, cgroups
 *   trees of the host, where it is root
 *   clone  ---------------------------------->   waits
 *   note the pid, map ids, owners, cgroups
 *   "go"   ---------------------------------->   becomes the supervisor, builds the root,
 *                                                network, tables, drops its rights
 *   its word on standard output  <------------   "ready", or what went wrong
 *   "passed on"  ---------------------------->   no longer dies with the launcher
 *   ends                                         the loop
 *
 * The lock is one open file of both, so it is held from before the first outside effect until PID 1
 * ends. Until "ready" PID 1 dies with the launcher: before "go" by the end of the pipe, after it by
 * the parent-death signal. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <linux/securebits.h>
#include <net/if.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/sendfile.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "berth-box/sandbox.h"

extern char **environ;

/* "go": what the launcher has learned since the clone. */
struct go_word {
        pid_t pid;
        bool idmapped;
};

#define NAMESPACES                                                                                 \
        (CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWIPC | CLONE_NEWUTS | CLONE_NEWCGROUP)

/* PID 1 */

static int bring_loopback_up(struct err *err)
{
        struct ifreq request = { .ifr_name = "lo" };
        CLEAN(cleanup_fd) int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);

        request.ifr_flags = IFF_UP | IFF_RUNNING;
        if (fd < 0 || ioctl(fd, SIOCSIFFLAGS, &request) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "bring the loopback interface up");
        return 0;
}

/* Everything that needs rights, then without them. */
static int become_pid_1(struct box *b, int go, struct err *err)
{
        struct sandbox *s = b->sandbox;
        const char *name = s->spec.hostname ? s->spec.hostname : "sandbox";
        struct pollfd p = { .fd = go, .events = POLLIN };
        int r = privs_become_supervisor(s, err);

        if (r < 0)
                return r;
        /* Again, because a change of user forgets it. A launcher that died before has closed its
         * end of the pipe. */
        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (poll(&p, 1, 0) != 0)
                _exit(1);
        setup_process(b);
        r = root_build(b, err);
        if (r >= 0 && sethostname(name, strlen(name)) < 0)
                r = err_sys(err, ERR_PROVIDER, errno, "set the host name");
        if (r >= 0 && s->spec.network != SANDBOX_NET_HOST)
                r = bring_loopback_up(err);
        if (r >= 0)
                r = privs_drop(&s->spec, err);
        if (r >= 0)
                r = setup_tables(b, err);
        if (r >= 0)
                r = setup_signals(b, err);
        if (r < 0)
                return r;
        tree_init(b);
        b->umask = 022;
        if (s->spec.limits.wall_ms)
                s->wall_until = clock_mono_ms() + (int64_t)s->spec.limits.wall_ms;
        s->report.no_new_privs = s->report.seccomp = true;
        return setup_listen(b, err);
}

/* What only building needed; the directory too, since all that is in it is open. */
static void close_building_material(struct box *b)
{
        struct trees *t = &b->sandbox->trees;

        cleanup_fd(&t->storage);
        cleanup_fd(&t->workspace);
        for (size_t i = 0; i < SANDBOX_MAX_BASE; i++)
                cleanup_fd(&t->base[i]);
        for (size_t i = 0; i < SANDBOX_MAX_LAYERS; i++)
                cleanup_fd(&t->layers[i]);
        cleanup_fd(&b->sandbox->cgroup_fd);
        for (int i = 0; i < V1_CONTROLLERS; i++)
                if (i != LIMIT_MEMORY) /* which commands join */
                        cleanup_fd(&b->sandbox->v1_fds[i]);
        cleanup_fd(&b->dir_fd);
        b->dir_fd = -1;
}

static void say_text(int fd, const char *text)
{
        (void)!write(fd, text, strlen(text));
}

static int inner_main(struct box *b, int go, int word)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        CLEAN(err_done) struct err err = { 0 };
        struct sandbox *s = b->sandbox;

        struct go_word w;
        char passed_on;

        prctl(PR_SET_PDEATHSIG, SIGKILL, 0, 0, 0);
        if (read(go, &w, sizeof(w)) != (ssize_t)sizeof(w))
                return 1;
        s->pid = w.pid;
        s->report.idmapped = w.idmapped;
        if (become_pid_1(b, go, &err) < 0) {
                buf_appendf(&text, "error %s%s\n", box_not_now(&err), err.msg);
                say_text(word, buf_str(&text));
                return 1;
        }
        close_building_material(b);
        buf_appendf(&text, "ready %d %d\n", (int)s->pid, b->kill_method);
        sandbox_report_encode(&s->report, &text);
        /* With its end, and only a launcher that has passed it on lets us live without it. */
        if (write(word, buf_str(&text), text.len + 1) != (ssize_t)(text.len + 1) ||
            read(go, &passed_on, 1) != 1)
                return 1;
        prctl(PR_SET_PDEATHSIG, 0, 0, 0, 0);
        close(word);
        close(go);
        return box_loop(b);
}

/* The launcher */

static int read_spec(struct sandbox *s, struct err *err)
{
        CLEAN(buf_done) struct buf text = { .max = SANDBOX_MAX_SPEC + 1 };

        if (fd_read_to_end(0, &text) < 0)
                return err_set(err, ERR_INVALID, "cannot read the description of the sandbox");
        return sandbox_spec_decode(buf_str(&text), text.len, &s->spec, &s->store, err);
}

static int open_output(struct sandbox *s, struct err *err)
{
        struct stat st;

        if (!s->spec.output_dir)
                return 0;
        s->output_fd = open(s->spec.output_dir, O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (s->output_fd < 0 || fstat(s->output_fd, &st) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "open the output directory");
        /* The supervisor has to find its own directories in it by name. */
        if (!s->rootless && !(st.st_mode & S_IXOTH) &&
            chmod(s->spec.output_dir, (st.st_mode & 07777) | S_IXGRP | S_IXOTH) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "open the output directory to sandboxes");
        return 0;
}

static int prepare_sandbox(struct box *b, struct err *err)
{
        struct sandbox *s = b->sandbox;
        int r = read_spec(s, err);

        if (r < 0)
                return r;
        /* Inner root gives a namespace of its own making any id that is mapped here. */
        if (s->rootless && s->spec.root_inside && s->spec.nested_sandbox)
                return err_set(
                        err, ERR_UNPROCESSABLE,
                        "root inside with nested sandboxes needs a daemon that runs as root: "
                        "here it could become user %u, who runs the daemon",
                        geteuid());
        uid_t id = sandbox_host_id(&s->spec, SANDBOX_SUPERVISOR);
        s->report.rootless = s->rootless;
        s->report.root_id = sandbox_host_id(&s->spec, 0);
        s->report.agent_id = sandbox_host_id(&s->spec, sandbox_user_id(&s->spec));
        s->report.supervisor_id = id;
        snprintf(s->report.namespaces, sizeof(s->report.namespaces),
                 "user mnt pid%s ipc uts cgroup",
                 s->spec.network == SANDBOX_NET_HOST ? "" : " net");
        r = setup_directory(b, err);
        if (r >= 0)
                r = setup_lock(b, err);
        if (r >= 0)
                r = setup_spool(b, err);
        if (r >= 0 && !s->rootless && fchown(b->spool_fd, id, id) < 0)
                r = err_sys(err, ERR_PROVIDER, errno, "give the spool to the sandbox");
        if (r >= 0)
                r = open_output(s, err);
        if (r >= 0)
                r = setup_socket(b, err);
        if (r >= 0)
                r = limits_make(b, err);
        if (r >= 0 && !s->rootless)
                r = trees_grab(s, err);
        return r;
}

static pid_t clone_pid_1(const struct box *b, bool *ret_joined)
{
        struct clone_args args = { .flags = NAMESPACES, .exit_signal = SIGCHLD };
        pid_t pid = -1;

        if (b->sandbox->spec.network != SANDBOX_NET_HOST)
                args.flags |= CLONE_NEWNET;
        *ret_joined = b->sandbox->cgroup_fd >= 0;
        if (*ret_joined) {
                struct clone_args into = args;

                into.flags |= CLONE_INTO_CGROUP;
                into.cgroup = (unsigned)b->sandbox->cgroup_fd;
                pid = (pid_t)syscall(SYS_clone3, &into, sizeof(into));
        }
        if (pid < 0) {
                *ret_joined = false;
                pid = (pid_t)syscall(SYS_clone3, &args, sizeof(args));
        }
        return pid;
}

static bool take_ids(uid_t user, gid_t group)
{
        return syscall(SYS_setresgid, group, group, group) == 0 &&
               syscall(SYS_setresuid, user, user, user) == 0;
}

/* As the supervisor, with all rights. Its group is not in the sandbox's own maps: PID 1 could not
 * change to it. And what the kernel counts for each user (inotify instances, queued signals and
 * messages, locked memory) it counts inside a namespace for the user that made it, too: for root
 * that would be one account of all sandboxes and the host. */
static pid_t clone_as_supervisor(const struct box *b, bool *ret_joined)
{
        uid_t own = geteuid(), id = sandbox_host_id(&b->sandbox->spec, SANDBOX_SUPERVISOR);
        gid_t group = getegid();
        pid_t pid = -1;

        if (b->sandbox->rootless)
                return clone_pid_1(b, ret_joined);
        if (prctl(PR_SET_SECUREBITS, SECBIT_NO_SETUID_FIXUP, 0, 0, 0) < 0)
                return -1;
        if (take_ids(id, id))
                pid = clone_pid_1(b, ret_joined);
        if (pid == 0)
                return 0;
        int e = errno;
        if (!take_ids(own, group) && pid > 0) {
                (void)kill(pid, SIGKILL);
                (void)waitpid(pid, NULL, 0);
                return -1;
        }
        errno = e;
        return pid;
}

/* Pass its word on; true when it is the good one, and PID 1 on its own. */
static bool pass_word_on(int word, int go)
{
        char text[4096];
        size_t len = 0;
        ssize_t n;

        do {
                n = read(word, text + len, sizeof(text) - 1 - len);
                len += n > 0 ? (size_t)n : 0;
        } while ((n > 0 && text[len - 1] != '\0' && len < sizeof(text) - 1) ||
                 (n < 0 && errno == EINTR));
        text[len] = '\0';
        if (len == 0)
                snprintf(text, sizeof(text),
                         "error " BOX_NOT_NOW "the sandbox ended while it was made\n");
        say_text(1, text);
        if (!str_starts(text, "ready "))
                return false;
        (void)!write(go, "", 1);
        (void)!read(word, text, 1); /* its end */
        return true;
}

static int start_pid_1(struct box *b, struct err *err)
{
        struct sandbox *s = b->sandbox;
        int go[2], word[2], r;
        bool joined;

        if (pipe2(go, O_CLOEXEC) < 0 || pipe2(word, O_CLOEXEC) < 0)
                return err_sys(err, ERR_BUSY, errno, "pipe");
        r = limits_go_ahead(b, err);
        if (r < 0)
                return r;
        pid_t pid = clone_as_supervisor(b, &joined);
        if (pid < 0)
                return err_set(err, ERR_PROVIDER, "make the namespaces: %s%s", strerror(errno),
                               errno == EPERM || errno == EACCES
                                       ? " (user namespaces are not allowed here: see `berth "
                                         "doctor`)"
                               : errno == ENOSPC || errno == EUSERS
                                       ? " (the limit in /proc/sys/user is reached)"
                                       : "");
        if (pid == 0) {
                close(go[1]);
                close(word[0]);
                _exit(setup_null_streams() < 0 ? 1 : inner_main(b, go[0], word[1]));
        }
        close(go[0]);
        close(word[1]);
        r = setup_pid_file(b, pid, err);
        if (r >= 0)
                r = limits_join(b, pid, joined, err);
        if (r >= 0)
                r = userns_map(s, pid, err);
        if (r >= 0 && !s->rootless)
                r = trees_show_owners(s, err);
        if (r >= 0) {
                struct go_word w = { .pid = pid, .idmapped = s->report.idmapped };

                if (write(go[1], &w, sizeof(w)) == (ssize_t)sizeof(w) &&
                    pass_word_on(word[0], go[1]))
                        return 0;
                r = ERR_PROVIDER;
        }
        (void)kill(pid, SIGKILL);
        (void)waitpid(pid, NULL, 0);
        return r;
}

int sandbox_main(struct box *b)
{
        CLEAN(err_done) struct err err = { 0 };
        struct sandbox *s = b->sandbox;

        s->rootless = geteuid() != 0;
        s->output_fd = s->cgroup_fd = -1;
        trees_init(&s->trees);
        for (int i = 0; i < V1_CONTROLLERS; i++)
                s->v1_fds[i] = -1;
        umask(077);
        int r = prepare_sandbox(b, &err);
        if (r >= 0)
                r = start_pid_1(b, &err);
        if (r < 0 && err.msg[0]) {
                say_text(1, "error ");
                say_text(1, box_not_now(&err));
                say_text(1, err.msg);
                say_text(1, "\n");
        }
        return r < 0 ? 1 : 0;
}

/* A copy of ourselves in memory */

static int sealed_copy(void)
{
        CLEAN(cleanup_fd) int from = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
        CLEAN(cleanup_fd) int to = memfd_create("berth-box", MFD_CLOEXEC | MFD_ALLOW_SEALING);
        struct stat st;
        off_t at = 0;

        if (from < 0 || to < 0 || fstat(from, &st) < 0)
                return -1;
        while (at < st.st_size)
                if (sendfile(to, from, &at, (size_t)(st.st_size - at)) <= 0)
                        return -1;
        if (fcntl(to, F_ADD_SEALS, F_SEAL_SEAL | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE) < 0)
                return -1;
        return take_fd(&to);
}

void sandbox_seal_program(char **argv)
{
        char path[64] = "";

        if (readlink("/proc/self/exe", path, sizeof(path) - 1) > 0 && str_starts(path, "/memfd:"))
                return;
        int fd = sealed_copy();
        if (fd >= 0)
                (void)syscall(SYS_execveat, fd, "", argv, environ, AT_EMPTY_PATH);
        say_text(1, "error cannot run from memory\n");
        _exit(1);
}
