/* Command line, and becoming a process of its own.
 *
 * Two forks: the caller waits for the first process, which ends as soon as the box is ready or has
 * failed; the box itself has no parent that would have to reap it, a session of its own, and no
 * descriptor, environment variable or signal setting of whoever started it. Everything that can
 * fail is done by the final process, so its answer on standard output is the whole truth. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "box/box_exchange.h"
#include "box/box_relay.h"
#include "box/box_sandbox.h"
#include "box/launch.h"
#include "workspace/serve.h"

extern char **environ;

static const char usage[] =
        "usage: berth-box --dir DIR --id UUID [--spool-limit BYTES] [--idle-exit MS] [--kill "
        "METHOD]\n"
        "                 [--locked] [--sandbox]\n"
        "       berth-box --check --ids FIRST:COUNT\n"
        "       berth-box --tree remove|give=ID --ids FIRST:COUNT --dir PATH\n"
        "       berth-box --copy PATH --dir PATH\n"
        "       berth-box --workspace AT --ids FIRST:COUNT --dir DIR [--lower PATH --store PATH]\n"
        "       berth-box --relay --dir BASE\n"
        "       berth-box --files\n"
        "       berth-box --ask ensure|alive|bury --dir BASE --id UUID [EXECUTION...]\n"
        "       berth-box --exchange --dir DIR\n"
        "       berth-box --version\n"
        "\n"
        "Runs commands for a Berth daemon that connects to DIR/box.sock (docs/box-protocol.md).\n"
        "Answers `ready PID KILL-METHOD` or `error TEXT` on standard output, and goes on by "
        "itself.\n"
        "\n"
        "  --spool-limit BYTES  output kept per stream for a host that does not take it (64 MiB)\n"
        "  --idle-exit MS       end after this time without host and executions (600000)\n"
        "  --kill METHOD        auto or subreaper: do not use cgroups even where they work\n"
        "  --locked             descriptor 3 is DIR/box.lock, and locked\n"
        "  --sandbox            as PID 1 of a sandbox, which standard input describes\n"
        "  --check              say what this machine has and lacks for sandboxes\n"
        "  --tree WORK          remove a sandbox's files, or give them to another of its ids\n"
        "  --copy PATH          copy a sandbox's files to --dir, whatever it does to them meanwhile\n"
        "  --workspace AT       show a directory of the host in the sandbox of DIR, or nothing any "
        "more\n"
        "  --relay              carry streams between standard input and output and the boxes in "
        "BASE/boxes\n"
        "  --files              serve files over standard input, a socket (docs/workspaces.md)\n"
        "  --ask WANT           about one box in BASE/boxes\n"
        "  --exchange           hand what standard input holds to the box in DIR and take what it says\n"
        "  --ids FIRST:COUNT    the sandbox's ids on this machine\n";

static bool parse_number(const char *text, int64_t *ret)
{
        char *end;

        errno = 0;
        *ret = strtoll(text, &end, 10);
        return errno == 0 && *text && !*end && *ret > 0;
}

/* An empty environment, also for who reads it in our memory. */
static void forget_environment(void)
{
        for (char **e = environ; e && *e; e++)
                explicit_bzero(*e, strlen(*e));
        clearenv();
}

static void close_inherited(unsigned first)
{
        if (syscall(SYS_close_range, first, ~0U, 0U) < 0)
                for (int fd = (int)first; fd < 65536; fd++)
                        close(fd);
        for (int fd = 0; fd < 3; fd++)
                if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
                        _exit(1);
}

/* One of our own, with a command's rights (box_service.c). */
static int serve_files(void)
{
        close_inherited(3);
        return sodium_init() < 0 || sync_serve(0, NULL) < 0 ? 1 : 0;
}

static struct sandbox sandbox;

static int parse_args(struct box *b, int argc, char **argv, struct err *err)
{
        static const struct option options[] = {
                { "dir", required_argument, NULL, 'd' },
                { "id", required_argument, NULL, 'i' },
                { "spool-limit", required_argument, NULL, 's' },
                { "idle-exit", required_argument, NULL, 'e' },
                { "kill", required_argument, NULL, 'k' },
                { "locked", no_argument, NULL, 'L' },
                { "sandbox", no_argument, NULL, 'S' },
                { "check", no_argument, NULL, 'c' },
                { "tree", required_argument, NULL, 't' },
                { "copy", required_argument, NULL, 'C' },
                { "workspace", required_argument, NULL, 'w' },
                { "lower", required_argument, NULL, 'l' },
                { "store", required_argument, NULL, 'o' },
                { "ids", required_argument, NULL, 'n' },
                { "relay", no_argument, NULL, 'r' },
                { "files", no_argument, NULL, 'f' },
                { "ask", required_argument, NULL, 'a' },
                { "exchange", no_argument, NULL, 'x' },
                { "version", no_argument, NULL, 'v' },
                { "help", no_argument, NULL, 'h' },
                { NULL, 0, NULL, 0 },
        };
        const char *dir = NULL, *id = NULL, *tree = NULL, *copy = NULL;
        struct workspace_args shown = { 0 };
        const char *ask = NULL;
        bool check = false, files = false, relay = false, exchange = false;
        int64_t limit = (int64_t)64 << 20;
        int opt;

        b->idle_exit_ms = 600 * 1000;
        while ((opt = getopt_long(argc, argv, "", options, NULL)) >= 0) {
                switch (opt) {
                case 'd':
                        dir = optarg;
                        break;
                case 'i':
                        id = optarg;
                        break;
                case 's':
                        if (!parse_number(optarg, &limit))
                                return err_set(err, ERR_USAGE, "--spool-limit: not a number");
                        break;
                case 'e':
                        if (!parse_number(optarg, &b->idle_exit_ms))
                                return err_set(err, ERR_USAGE, "--idle-exit: not a number");
                        break;
                case 'k':
                        b->force_subreaper = streq(optarg, "subreaper");
                        if (!b->force_subreaper && !streq(optarg, "auto"))
                                return err_set(err, ERR_USAGE, "--kill: auto or subreaper");
                        break;
                case 'L':
                        b->is_locked = true;
                        break;
                case 'S':
                        b->sandbox = &sandbox;
                        break;
                case 'n':
                        if (sscanf(optarg, "%u:%u", &sandbox.spec.first_id, &sandbox.spec.n_ids) !=
                            2)
                                return err_set(err, ERR_USAGE, "--ids: FIRST:COUNT");
                        break;
                case 'r':
                        relay = true;
                        break;
                case 'a':
                        ask = optarg;
                        break;
                case 'x':
                        exchange = true;
                        break;
                case 'c':
                        check = true;
                        break;
                case 't':
                        tree = optarg;
                        break;
                case 'C':
                        copy = optarg;
                        break;
                case 'f':
                        files = true;
                        break;
                case 'w':
                        shown.at = optarg;
                        break;
                case 'l':
                        shown.lower = optarg;
                        break;
                case 'o':
                        shown.store = optarg;
                        break;
                case 'v':
                        printf("berth-box %s protocol %d\n", BERTH_VERSION, FRAME_VERSION);
                        exit(0);
                case 'h':
                        fputs(usage, stdout);
                        exit(0);
                default:
                        return err_set(err, ERR_USAGE, "unknown option");
                }
        }
        if (relay && dir && optind == argc) {
                close_inherited(3);
                forget_environment();
                exit(relay_main(dir));
        }
        if (files)
                exit(serve_files());
        if (ask && dir && id && frame_uuid_bytes(id, b->id))
                exit(ask_main(dir, ask, id, (const char *const *)argv + optind));
        if (exchange && dir && optind == argc)
                exit(exchange_main(dir));
        if (check && sandbox.spec.n_ids >= SANDBOX_MIN_IDS)
                exit(check_main(&sandbox));
        if (tree && dir && sandbox.spec.n_ids >= SANDBOX_MIN_IDS)
                exit(files_main(&sandbox, dir, tree));
        if (copy && dir)
                exit(copy_main(copy, dir));
        if (shown.at && dir && !shown.lower == !shown.store &&
            sandbox.spec.n_ids >= SANDBOX_MIN_IDS) {
                shown.dir = dir;
                exit(workspace_main(&sandbox, &shown));
        }
        if (optind != argc || !dir || !id || !frame_uuid_bytes(id, b->id))
                return err_set(err, ERR_USAGE, "--dir DIR and --id UUID are needed");
        frame_uuid_text(b->id, b->name);
        b->spool_limit = (uint64_t)limit;
        if (strlen(dir) >= sizeof(b->dir))
                return err_set(err, ERR_USAGE, "--dir: too long");
        memcpy(b->dir, dir, strlen(dir) + 1);
        return 0;
}

static int set_up(struct box *b, struct err *err)
{
        int r;

        setup_process(b);
        r = setup_tables(b, err);
        if (r >= 0)
                r = setup_directory(b, err);
        if (r >= 0)
                r = setup_lock(b, err);
        if (r >= 0)
                r = setup_spool(b, err);
        if (r >= 0)
                r = setup_signals(b, err);
        if (r < 0)
                return r;
        tree_init(b);
        r = spool_adopt(b, err);
        if (r >= 0)
                r = setup_pid_file(b, b->pid, err);
        if (r >= 0)
                r = setup_socket(b, err);
        return r < 0 ? r : setup_listen(b, err);
}

static void answer(int fd, const char *text)
{
        (void)!write(fd, text, strlen(text));
        close(fd);
}

/* The final process: set up, answer, work. */
static int run_box(struct box *b, int done_pipe)
{
        CLEAN(err_done) struct err err = { 0 };
        char text[1100];
        int out = fcntl(1, F_DUPFD_CLOEXEC, 3);

        if (out < 0 || setup_null_streams() < 0)
                return 1;
        if (set_up(b, &err) < 0) {
                snprintf(text, sizeof(text), "error %s%s\n", box_not_now(&err), err.msg);
                answer(out, text);
                return 1;
        }
        snprintf(text, sizeof(text), "ready %d %d\n", (int)b->pid, b->kill_method);
        answer(out, text);
        (void)!write(done_pipe, "", 1);
        close(done_pipe);
        return box_loop(b);
}

static int wait_until_ready(pid_t child, int done_pipe)
{
        char byte;
        ssize_t n;

        while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
                ;
        do
                n = read(done_pipe, &byte, 1);
        while (n < 0 && errno == EINTR);
        return n == 1 ? 0 : 1;
}

int main(int argc, char **argv)
{
        static struct box box;
        CLEAN(err_done) struct err err = { 0 };
        int done[2];
        pid_t child;

        if (parse_args(&box, argc, argv, &err) < 0) {
                printf("error %s%s\n", box_not_now(&err), err.msg);
                fputs(usage, stderr);
                return 2;
        }
        close_inherited(box.is_locked ? BOX_LOCK_FD + 1 : BOX_LOCK_FD);
        if (box.sandbox && geteuid() != 0)
                sandbox_seal_program(argv);
        forget_environment();
        box.program_fd = open("/proc/self/exe", O_PATH | O_CLOEXEC);
        box.cgroup_fd = box.spool_fd = box.listen_fd = box.dir_fd = -1;
        if (box.sandbox)
                return sandbox_main(&box);
        if (pipe2(done, O_CLOEXEC) < 0 || (child = fork()) < 0) {
                printf("error %s\n", strerror(errno));
                return 1;
        }
        if (child > 0) {
                close(done[1]);
                return wait_until_ready(child, done[0]);
        }
        close(done[0]);
        setsid();
        child = fork();
        if (child != 0)
                _exit(child < 0 ? 1 : 0);
        return run_box(&box, done[1]);
}
