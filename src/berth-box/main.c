/* Command line, and becoming a process of its own.
 *
 * Two forks: the caller waits for the first process, which ends as soon as the box is ready or has
 * failed; the box itself has no parent that would have to reap it, a session of its own, and no
 * descriptor, environment variable or signal setting of the process that started it. Everything
 * that can fail is done by the final process, so its answer on standard output is the whole
 * truth. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/fd.h"
#include "berth-box/mains.h"
#include "berth-box/sandbox.h"
#include "box/launch.h"
#include "workspace/serve.h"

extern char **environ;

static bool parse_number(const char *text, int64_t *ret)
{
        char *end;

        errno = 0;
        *ret = strtoll(text, &end, 10);
        return errno == 0 && *text && !*end && *ret > 0;
}

/* An empty environment, also for a process that reads it in our memory. */
static void forget_environment(void)
{
        for (char **e = environ; e && *e; e++)
                explicit_bzero(*e, strlen(*e));
        clearenv();
}

static void close_inherited(unsigned first)
{
        fd_close_from(first);
        for (int fd = 0; fd < 3; fd++)
                if (fcntl(fd, F_GETFD) < 0 && open("/dev/null", O_RDWR) < 0)
                        _exit(1);
}

/* -- What berth-box can be started as ---------------------------------------------------------- */

static int relay_alone_main(const struct main_args *a)
{
        close_inherited(3);
        forget_environment();
        return relay_main(a);
}

/* One of our own, with a command's rights (service.c). */
static int serve_files_main(const struct main_args *a UNUSED)
{
        close_inherited(3);
        return sodium_init() < 0 || sync_serve(0, NULL) < 0 ? 1 : 0;
}

/* In place of a command (child.c), with its environment. */
static int acp_alone_main(const struct main_args *a)
{
        close_inherited(3);
        return acp_main(a);
}

enum need { NEEDS_DIR = 1, NEEDS_ID = 2, NEEDS_IDS = 4, TAKES_WORDS = 8 };

/* The option that chooses it, and what it needs besides. Without any of them it is the box. */
static const struct {
        const char *option;
        const char *value;    /* what the help calls the option's value; NULL: it has none */
        const char *synopsis; /* the rest of its usage line */
        const char *help;
        unsigned needs;
        int (*run)(const struct main_args *a);
} mains[] = {
        { "check", NULL, "--ids FIRST:COUNT", "say what this machine has and lacks for sandboxes",
          NEEDS_IDS, check_main },
        { "copy", "PATH", "PATH --dir PATH [--inside DIR]",
          "copy a sandbox's files to --dir, whatever it does to them meanwhile", NEEDS_DIR,
          copy_main },
        { "workspace", "AT", "AT --ids FIRST:COUNT[:USER] --dir DIR [--lower PATH --store PATH]",
          "show a directory of the host in the sandbox of DIR, or nothing any more",
          NEEDS_IDS | NEEDS_DIR, workspace_main },
        { "relay", NULL, "--dir BASE",
          "carry streams between standard input and output and the boxes in BASE/boxes", NEEDS_DIR,
          relay_alone_main },
        { "files", NULL, "", "serve files over standard input, a socket (docs/workspaces.md)", 0,
          serve_files_main },
        { "ask", "WANT", "ensure|alive|bury --dir BASE --id UUID [EXECUTION...]",
          "about one box in BASE/boxes", NEEDS_DIR | NEEDS_ID | TAKES_WORDS, ask_main },
        { "exchange", NULL, "--dir DIR",
          "hand what standard input holds to the box in DIR and take what it says", NEEDS_DIR,
          exchange_main },
        { "acp", NULL, "-- [NAME=VALUE...] -- COMMAND [ARGUMENT...]",
          "run an agent that speaks the Agent Client Protocol, with standard input as its prompt",
          TAKES_WORDS, acp_alone_main },
};

static void print_usage(FILE *f)
{
        fputs("usage: berth-box --dir DIR --id UUID [--spool-limit BYTES] [--idle-exit MS] [--kill "
              "METHOD]\n"
              "                 [--locked] [--sandbox]\n",
              f);
        for (size_t i = 0; i < ARRAY_LEN(mains); i++)
                fprintf(f, "       berth-box --%s%s%s\n", mains[i].option,
                        *mains[i].synopsis ? " " : "", mains[i].synopsis);
        fputs("       berth-box --version\n"
              "\n"
              "Runs commands for a Berth daemon that connects to DIR/box.sock (docs/box-protocol.md).\n"
              "Answers `ready PID KILL-METHOD` or `error TEXT` on standard output, and goes on by "
              "itself.\n"
              "\n"
              "  --spool-limit BYTES  output kept per stream for a host that does not take it (64 MiB)\n"
              "  --idle-exit MS       end after this time without host and executions (600000)\n"
              "  --kill METHOD        auto or subreaper: do not use cgroups even where they work\n"
              "  --locked             descriptor 3 is DIR/box.lock, and locked\n"
              "  --sandbox            as PID 1 of a sandbox, which standard input describes\n",
              f);
        for (size_t i = 0; i < ARRAY_LEN(mains); i++)
                fprintf(f, "  --%s %-*s %s\n", mains[i].option, 17 - (int)strlen(mains[i].option),
                        mains[i].value ? mains[i].value : "", mains[i].help);
        fputs("  --inside DIR         PATH is one of the sandbox of DIR\n"
              "  --ids FIRST:COUNT    the sandbox's ids on this machine; USER: the inner id of commands (1000)\n",
              f);
}

/* ERR_USAGE unless everything is there that `needs` says, and nothing else. */
static int check_needs(const struct main_args *a, const char *option, unsigned needs,
                       struct err *err)
{
        uint8_t uuid[FRAME_UUID];

        if ((needs & NEEDS_DIR) && !a->dir)
                return err_set(err, ERR_USAGE, "--%s needs --dir", option);
        if ((needs & NEEDS_ID) && (!a->id || !frame_uuid_bytes(a->id, uuid)))
                return err_set(err, ERR_USAGE, "--%s needs --id UUID", option);
        if ((needs & NEEDS_IDS) && a->sandbox->spec.n_ids < SANDBOX_MIN_IDS)
                return err_set(err, ERR_USAGE, "--%s needs --ids FIRST:COUNT, at least %d", option,
                               SANDBOX_MIN_IDS);
        if (!a->lower != !a->store)
                return err_set(err, ERR_USAGE, "--lower and --store go together");
        if (!(needs & TAKES_WORDS) && *a->words)
                return err_set(err, ERR_USAGE, "--%s takes no '%s'", option, *a->words);
        return 0;
}

/* -- The command line -------------------------------------------------------------------------- */

#define FIRST_MAIN 256 /* what getopt_long() says for mains[0] */

static const struct option common_options[] = {
        { "dir", required_argument, NULL, 'd' },
        { "id", required_argument, NULL, 'i' },
        { "spool-limit", required_argument, NULL, 's' },
        { "idle-exit", required_argument, NULL, 'e' },
        { "kill", required_argument, NULL, 'k' },
        { "locked", no_argument, NULL, 'L' },
        { "sandbox", no_argument, NULL, 'S' },
        { "lower", required_argument, NULL, 'l' },
        { "store", required_argument, NULL, 'o' },
        { "inside", required_argument, NULL, 'I' },
        { "ids", required_argument, NULL, 'n' },
        { "version", no_argument, NULL, 'v' },
        { "help", no_argument, NULL, 'h' },
};

/* One of common_options. */
static int take_option(struct box *b, struct main_args *a, int opt, struct err *err)
{
        int64_t limit;

        switch (opt) {
        case 'd':
                a->dir = optarg;
                break;
        case 'i':
                a->id = optarg;
                break;
        case 'I':
                a->inside = optarg;
                break;
        case 's':
                if (!parse_number(optarg, &limit))
                        return err_set(err, ERR_USAGE, "--spool-limit: not a number");
                b->spool_limit = (uint64_t)limit;
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
                b->sandbox = a->sandbox;
                break;
        case 'n':
                if (sscanf(optarg, "%u:%u:%u", &a->sandbox->spec.first_id, &a->sandbox->spec.n_ids,
                           &a->sandbox->spec.user_id) < 2)
                        return err_set(err, ERR_USAGE, "--ids: FIRST:COUNT[:USER]");
                break;
        case 'l':
                a->lower = optarg;
                break;
        case 'o':
                a->store = optarg;
                break;
        case 'v':
                printf("berth-box %s protocol %d\n", BERTH_VERSION, FRAME_VERSION);
                exit(0);
        case 'h':
                print_usage(stdout);
                exit(0);
        default:
                return err_set(err, ERR_USAGE, "unknown option");
        }
        return 0;
}

/* Does not return for one of `mains`. */
static int parse_args(struct box *b, int argc, char **argv, struct err *err)
{
        static struct sandbox sandbox;
        struct option options[ARRAY_LEN(common_options) + ARRAY_LEN(mains) + 1] = { 0 };
        struct main_args a = { .sandbox = &sandbox };
        int opt, chosen = -1, r = 0;

        memcpy(options, common_options, sizeof(common_options));
        for (size_t i = 0; i < ARRAY_LEN(mains); i++)
                options[ARRAY_LEN(common_options) + i] =
                        (struct option){ mains[i].option,
                                         mains[i].value ? required_argument : no_argument, NULL,
                                         FIRST_MAIN + (int)i };
        b->idle_exit_ms = 600 * 1000;
        b->spool_limit = (uint64_t)64 << 20;
        while (r >= 0 && (opt = getopt_long(argc, argv, "", options, NULL)) >= 0) {
                if (opt < FIRST_MAIN) {
                        r = take_option(b, &a, opt, err);
                        continue;
                }
                chosen = opt - FIRST_MAIN;
                a.given = optarg;
        }
        if (r < 0)
                return r;
        a.words = (const char *const *)argv + optind;
        if (chosen >= 0) {
                r = check_needs(&a, mains[chosen].option, mains[chosen].needs, err);
                if (r < 0)
                        return r;
                exit(mains[chosen].run(&a));
        }
        if (*a.words || !a.dir || !a.id || !frame_uuid_bytes(a.id, b->id))
                return err_set(err, ERR_USAGE, "--dir DIR and --id UUID are needed");
        frame_uuid_text(b->id, b->name);
        if (strlen(a.dir) >= sizeof(b->dir))
                return err_set(err, ERR_USAGE, "--dir: too long");
        memcpy(b->dir, a.dir, strlen(a.dir) + 1);
        return 0;
}

/* -- The box ----------------------------------------------------------------------------------- */

static int set_up_box(struct box *b, struct err *err)
{
        setup_process(b);
        int r = setup_tables(b, err);
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

static void answer_and_close(int fd, const char *text)
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
        if (set_up_box(b, &err) < 0) {
                snprintf(text, sizeof(text), "error %s%s\n", box_not_now(&err), err.msg);
                answer_and_close(out, text);
                return 1;
        }
        snprintf(text, sizeof(text), "ready %d %d\n", (int)b->pid, b->kill_method);
        answer_and_close(out, text);
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
                print_usage(stderr);
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
