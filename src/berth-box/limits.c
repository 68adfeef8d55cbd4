/* Limits of a sandbox as a whole: a cgroup of version 2 for each limit that it has a controller
 * for, else one of version 1, else a resource limit of each process, else nothing; the report says
 * which.
 *
 * All cgroups are called berth-<box id>. Their paths are in DIR/cgroup before the first is made, so
 * box_bury() finds them whenever the launcher died. PID 1 lives in them from the start. The one of
 * version 2 needs no controller to be of use: it freezes and kills, and belongs to the supervisor,
 * which makes one in it per execution (cgroup.c).
 *
 * Memory is limited for all but PID 1. Files in memory outlive the commands that wrote them,
 * and commands can be smaller than PID 1: inside the limit the kernel would choose PID 1 to be
 * killed. In version 1 each command joins the memory cgroup before exec, PID 1 does not. In version
 * 2 only a cgroup without processes limits those beneath it:
 *
 *   berth-<box id>              processes and CPU; root of the cgroup namespace
 *   berth-<box id>/box          PID 1
 *   berth-<box id>/commands     memory; file workers; one in it per execution */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "berth-box/sandbox.h"

#define CPU_PERIOD_US 100000

static const char *const controllers[V1_CONTROLLERS] = { [LIMIT_MEMORY] = "memory", "pids", "cpu" };

static uint64_t wanted_limit(const struct sandbox_limits *l, int controller)
{
        return controller == LIMIT_MEMORY ? l->memory_bytes
               : controller == 1          ? l->processes
                                          : l->cpu_millis;
}

static enum sandbox_means *means_of(struct sandbox_report *r, int controller)
{
        return controller == LIMIT_MEMORY ? &r->memory : controller == 1 ? &r->processes : &r->cpu;
}

static int put_limit(int dir_fd, const char *name, const char *fmt, unsigned long long value)
{
        char text[64];
        CLEAN(cleanup_fd) int fd = openat(dir_fd, name, O_WRONLY | O_CLOEXEC);

        if (fd < 0)
                return -1;
        int n = streq(fmt, "%llu") ? snprintf(text, sizeof(text), "%llu", value)
                                   : snprintf(text, sizeof(text), "%llu %d", value, CPU_PERIOD_US);
        return write(fd, text, (size_t)n) == n ? 0 : -1;
}

/* PID 1 is a process too, but not one of the caller's. */
static int set_v2(int fd, int controller, uint64_t value)
{
        switch (controller) {
        case LIMIT_MEMORY:
                (void)put_limit(fd, "memory.swap.max", "%llu", 0);
                return put_limit(fd, "memory.max", "%llu", value);
        case 1:
                return put_limit(fd, "pids.max", "%llu", value + 1);
        default:
                return put_limit(fd, "cpu.max", "%llu period", value * (CPU_PERIOD_US / 1000));
        }
}

static int set_v1(int fd, int controller, uint64_t value)
{
        switch (controller) {
        case LIMIT_MEMORY:
                if (put_limit(fd, "memory.limit_in_bytes", "%llu", value) < 0)
                        return -1;
                (void)put_limit(fd, "memory.memsw.limit_in_bytes", "%llu", value);
                return 0;
        case 1:
                return put_limit(fd, "pids.max", "%llu", value + 1);
        default:
                return put_limit(fd, "cpu.cfs_quota_us", "%llu", value * (CPU_PERIOD_US / 1000));
        }
}

static bool has_word(int dir_fd, const char *file, const char *word)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        const char *at;
        size_t n = strlen(word);

        if (file_read_at(dir_fd, file, 4096, &text, NULL) < 0)
                return false;
        for (at = buf_str(&text); (at = strstr(at, word)); at += n)
                if ((at == text.data || at[-1] == ' ') && (!at[n] || strchr(" \n", at[n])))
                        return true;
        return false;
}

/* Children of `parent` get the controller; on a cgroup with processes the kernel refuses that. */
static bool enable_controller(int parent, const char *controller)
{
        char text[32];
        int n = snprintf(text, sizeof(text), "+%s", controller);

        if (has_word(parent, "cgroup.subtree_control", controller))
                return true;
        /* Also a write that is refused locks all cgroups of the machine. */
        if (!has_word(parent, "cgroup.controllers", controller))
                return false;
        CLEAN(cleanup_fd) int fd = openat(parent, "cgroup.subtree_control", O_WRONLY | O_CLOEXEC);

        return fd >= 0 && write(fd, text, (size_t)n) == n;
}

static int count_enabled(int parent, const struct sandbox_limits *l)
{
        int n = 0;

        for (int i = 0; i < V1_CONTROLLERS; i++)
                n += wanted_limit(l, i) && enable_controller(parent, controllers[i]);
        return n;
}

/* Our own cgroup, or the one above it when only that can hand out controllers: a service that runs
 * in a leaf of what was delegated to it. */
static bool find_v2_parent(const struct sandbox_limits *l, char path[4096])
{
        char above[4096], *slash;

        if (!cgroup_own_directory(NULL, path))
                return false;
        CLEAN(cleanup_fd) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        int here = fd < 0 ? 0 : count_enabled(fd, l);
        memcpy(above, path, 4096);
        slash = strrchr(above, '/');
        if (!slash || slash == above)
                return true;
        *slash = '\0';
        CLEAN(cleanup_fd) int fd_above = open(above, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd_above < 0 || faccessat(fd_above, "cgroup.procs", W_OK, AT_EACCESS) < 0)
                return true;
        int more = count_enabled(fd_above, l);
        if (more > here)
                memcpy(path, above, 4096);
        return true;
}

struct plan {
        char v2[4096];
        char v1[V1_CONTROLLERS][4096];
};

static bool add_name(const struct box *b, char path[4096])
{
        size_t n = strlen(path);

        return snprintf(path + n, 4096 - n, "/berth-%s", b->name) < (int)(4096 - n);
}

static void make_plan(const struct box *b, struct plan *p)
{
        const struct sandbox_limits *l = &b->sandbox->spec.limits;

        if (b->force_subreaper || !find_v2_parent(l, p->v2) || !add_name(b, p->v2))
                p->v2[0] = '\0';
        for (int i = 0; i < V1_CONTROLLERS && !b->force_subreaper; i++)
                if (!wanted_limit(l, i) || !cgroup_own_directory(controllers[i], p->v1[i]) ||
                    !add_name(b, p->v1[i]))
                        p->v1[i][0] = '\0';
}

static int note_plan(const struct box *b, const struct plan *p, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;

        if (p->v2[0])
                buf_appendf(&text, "%s\n", p->v2);
        for (int i = 0; i < V1_CONTROLLERS; i++)
                if (p->v1[i][0])
                        buf_appendf(&text, "%s\n", p->v1[i]);
        (void)unlinkat(b->dir_fd, "cgroup", 0);
        CLEAN(cleanup_fd)
        int fd = openat(b->dir_fd, "cgroup", O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "note the cgroups");
        return fd_write_all(fd, buf_str(&text), text.len, err);
}

static int make_one(const char *path)
{
        (void)rmdir(path); /* limits and processes of an earlier one do not count */
        return mkdir(path, 0755) < 0 ? -1 : open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

/* So that PID 1 may make cgroups in it and move its own commands there, and nothing more. */
static bool give_away(const struct box *b, int fd)
{
        static const char *const files[] = { "cgroup.procs", "cgroup.threads",
                                             "cgroup.subtree_control" };
        uid_t id = sandbox_host_id(&b->sandbox->spec, SANDBOX_SUPERVISOR);

        if (b->sandbox->rootless)
                return true;
        for (size_t i = 0; i < ARRAY_LEN(files); i++)
                if (fchownat(fd, files[i], id, id, 0) < 0)
                        return false;
        return fchown(fd, id, id) == 0;
}

/* Give the commands a cgroup beneath the box's, where memory can be limited for them. The limit
 * itself waits until PID 1 is out of the way: limits_join(). */
static bool split_v2(struct box *b)
{
        struct sandbox *s = b->sandbox;

        if (!s->spec.limits.memory_bytes ||
            !has_word(s->cgroup_fd, "cgroup.controllers", controllers[LIMIT_MEMORY]) ||
            mkdirat(s->cgroup_fd, "box", 0755) < 0 || mkdirat(s->cgroup_fd, "commands", 0755) < 0)
                return false;
        b->cgroup_fd = openat(s->cgroup_fd, "commands", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (b->cgroup_fd >= 0 && give_away(b, b->cgroup_fd))
                return true;
        cleanup_fd(&b->cgroup_fd);
        return false;
}

static void make_v2(struct box *b, const struct plan *p)
{
        struct sandbox *s = b->sandbox;

        s->cgroup_fd = p->v2[0] ? make_one(p->v2) : -1;
        if (s->cgroup_fd < 0 || !give_away(b, s->cgroup_fd)) {
                cleanup_fd(&s->cgroup_fd);
                s->cgroup_fd = -1;
                return;
        }
        s->cgroup_split = split_v2(b);
        if (!s->cgroup_split)
                b->cgroup_fd = fcntl(s->cgroup_fd, F_DUPFD_CLOEXEC, 3);
        memcpy(b->cgroup_path, p->v2, sizeof(b->cgroup_path));
        b->cgroup_has_kill = faccessat(s->cgroup_fd, "cgroup.kill", F_OK, 0) == 0;
        /* Longer than the report has room for, it is still in DIR/cgroup. */
        if (strlen(p->v2) < sizeof(s->report.cgroup))
                memcpy(s->report.cgroup, p->v2, strlen(p->v2) + 1);
        s->report.freeze = SANDBOX_BY_CGROUP2;
        s->report.exec_kill_method = BOX_KILL_CGROUP;
        for (int i = 0; i < V1_CONTROLLERS; i++)
                if (i == LIMIT_MEMORY ? s->cgroup_split
                                      : wanted_limit(&s->spec.limits, i) &&
                                                set_v2(s->cgroup_fd, i,
                                                       wanted_limit(&s->spec.limits, i)) == 0)
                        *means_of(&s->report, i) = SANDBOX_BY_CGROUP2;
}

static void make_v1(struct box *b, const struct plan *p)
{
        struct sandbox *s = b->sandbox;

        for (int i = 0; i < V1_CONTROLLERS; i++) {
                if (!p->v1[i][0] || *means_of(&s->report, i) != SANDBOX_BY_NOTHING)
                        continue;
                CLEAN(cleanup_fd) int fd = make_one(p->v1[i]);

                if (fd < 0)
                        continue;
                if (set_v1(fd, i, wanted_limit(&s->spec.limits, i)) < 0) {
                        (void)rmdir(p->v1[i]);
                        continue;
                }
                s->v1_fds[i] = openat(fd, "tasks", O_WRONLY | O_CLOEXEC);
                *means_of(&s->report, i) = SANDBOX_BY_CGROUP1;
        }
}

/* What only each process can be held to. */
static void report_rest(struct sandbox *s)
{
        const struct sandbox_limits *l = &s->spec.limits;
        struct sandbox_report *r = &s->report;
        bool tmpfs = s->spec.storage == SANDBOX_STORE_TMPFS;
        bool image = s->spec.storage == SANDBOX_STORE_IMAGE;
        enum sandbox_means store = tmpfs   ? SANDBOX_BY_TMPFS
                                   : image ? SANDBOX_BY_IMAGE
                                           : SANDBOX_BY_NOTHING;

        if (l->memory_bytes && r->memory == SANDBOX_BY_NOTHING)
                r->memory = SANDBOX_BY_RLIMIT;
        if (l->processes && r->processes == SANDBOX_BY_NOTHING)
                r->processes = SANDBOX_BY_RLIMIT;
        r->open_files = l->open_files ? SANDBOX_BY_RLIMIT : SANDBOX_BY_NOTHING;
        r->disk = l->disk_bytes ? store : SANDBOX_BY_NOTHING;
        r->inodes = l->inodes ? store : SANDBOX_BY_NOTHING;
        r->wall = l->wall_ms ? SANDBOX_BY_BOX : SANDBOX_BY_NOTHING;
        if (r->freeze == SANDBOX_BY_NOTHING)
                r->freeze = SANDBOX_BY_SIGNALS;
}

int limits_make(struct box *b, struct err *err)
{
        static struct plan plan;

        b->sandbox->report.exec_kill_method = BOX_KILL_SUBREAPER;
        make_plan(b, &plan);
        int r = note_plan(b, &plan, err);
        if (r < 0)
                return r;
        make_v2(b, &plan);
        make_v1(b, &plan);
        report_rest(b->sandbox);
        return 0;
}

/* A process that moves itself as a thread is the one case in which version 1 does not make every
 * process on the machine wait for a grace period: milliseconds for each controller. So the launcher
 * goes ahead, and PID 1 is born there; a command joins the one for memory itself. */
static int join_v1(const struct sandbox *s, int controller)
{
        return s->v1_fds[controller] < 0 || write(s->v1_fds[controller], "0", 1) == 1 ? 0 : -1;
}

int limits_go_ahead(struct box *b, struct err *err)
{
        for (int i = 0; i < V1_CONTROLLERS; i++)
                if (i != LIMIT_MEMORY && join_v1(b->sandbox, i) < 0)
                        return err_sys(err, ERR_PROVIDER, errno,
                                       "put the sandbox into its %s cgroup", controllers[i]);
        return 0;
}

int limits_join(struct box *b, pid_t pid, bool joined_v2, struct err *err)
{
        struct sandbox *s = b->sandbox;
        const char *leaf = s->cgroup_split ? "box/cgroup.procs" : "cgroup.procs";

        if (s->cgroup_fd < 0 || (joined_v2 && !s->cgroup_split))
                return 0;
        if (put_limit(s->cgroup_fd, leaf, "%llu", (unsigned long long)pid) < 0)
                return err_sys(err, ERR_PROVIDER, errno, "put the sandbox into its cgroup");
        if (s->cgroup_split &&
            (!enable_controller(s->cgroup_fd, controllers[LIMIT_MEMORY]) ||
             set_v2(b->cgroup_fd, LIMIT_MEMORY, s->spec.limits.memory_bytes) < 0))
                return err_sys(err, ERR_PROVIDER, errno, "limit the memory of the sandbox");
        return 0;
}

/* In a command. A limit can only go down, so what the daemon itself has is the most there is. */
static void lower(__rlimit_resource_t what, uint64_t value)
{
        struct rlimit l;

        if (!value || getrlimit(what, &l) < 0)
                return;
        l.rlim_max = MIN(l.rlim_max, (rlim_t)value);
        l.rlim_cur = l.rlim_max;
        (void)setrlimit(what, &l);
}

/* When the machine's memory runs out, the kernel is to choose a command and not PID 1. */
static void prefer_as_victim(void)
{
        CLEAN(cleanup_fd) int fd = open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);

        if (fd >= 0)
                (void)!write(fd, "500", 3);
}

int limits_enter(const struct box *b)
{
        return b->sandbox ? join_v1(b->sandbox, LIMIT_MEMORY) : 0;
}

void limits_command(const struct box *b)
{
        const struct sandbox *s = b->sandbox;
        /* With 1, other than with 0, the kernel does not start the host's crash handler. */
        struct rlimit no_core = { 1, 1 };

        lower(RLIMIT_NPROC, s->spec.limits.processes);
        lower(RLIMIT_NOFILE, s->spec.limits.open_files);
        if (s->report.memory == SANDBOX_BY_RLIMIT)
                lower(RLIMIT_DATA, s->spec.limits.memory_bytes);
        else if (s->report.memory != SANDBOX_BY_NOTHING)
                prefer_as_victim();
        (void)setrlimit(RLIMIT_CORE, &no_core);
}
