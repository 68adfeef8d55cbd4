/* How git is run: its arguments, its environment, its input and its output. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "base/fd.h"
#include "rt/tool.h"
#include "workspace/git_internal.h"

/* git is told everything that it would otherwise find by itself. */

#define LIMIT_MS   (10 * 60 * 1000)
#define MAX_OUTPUT ((size_t)64 << 20)
#define MAX_SAID   500
#define MAX_ARGS   32

/* The host's own configuration is read where its refs are read and moved; what in it could start
 * something is turned off. */
static const char *const fixed[] = {
        "-c", "safe.bareRepository=explicit",
        "-c", "core.hooksPath=/dev/null",
        "-c", "core.fsmonitor=false",
        "-c", "core.pager=cat",
        "-c", "core.editor=false",
        "-c", "core.askPass=false",
        "-c", "core.sshCommand=false",
        "-c", "core.alternateRefsCommand=false",
        "-c", "core.attributesFile=/dev/null",
        "-c", "core.bigFileThreshold=32m",
        "-c", "credential.helper=",
        "-c", "diff.external=false",
        "-c", "commit.gpgSign=false",
        "-c", "gpg.program=false",
        "-c", "gc.auto=0",
        "-c", "maintenance.auto=false",
        "-c", "protocol.allow=never",
};

struct said {
        struct buf text;
};

static void take_line(void *ctx, const char *line)
{
        struct said *said = ctx;

        /* Lines of a file of the host's, wherever that lies by now. */
        if (strstr(line, "alternate") || said->text.len + strlen(line) + 2 > MAX_SAID)
                return;
        if (said->text.len > 0)
                buf_puts(&said->text, "; ");
        buf_puts(&said->text, line);
}

/* As GIT_ALTERNATE_OBJECT_DIRECTORIES wants paths that may hold anything. */
static const char *quoted(struct arena *arena, const char *path)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        buf_putc(&b, '"');
        for (; *path; path++) {
                if (*path == '"' || *path == '\\')
                        buf_putc(&b, '\\');
                if (*path == '\n')
                        buf_puts(&b, "\\n");
                else
                        buf_putc(&b, *path);
        }
        buf_putc(&b, '"');
        return arena_strdup(arena, buf_str(&b));
}

static const char *const *environment(struct git_import *g, const struct git_run *run)
{
        const char *repository = run->alone ? g->own_repository : g->repository;
        static const char *const always[] = {
                "HOME=/nonexistent",
                "LC_ALL=C",
                "GIT_CONFIG_NOSYSTEM=1",
                "GIT_CONFIG_SYSTEM=/dev/null",
                "GIT_CONFIG_GLOBAL=/dev/null",
                "GIT_ATTR_NOSYSTEM=1",
                "GIT_TERMINAL_PROMPT=0",
                "GIT_PAGER=cat",
                "GIT_EDITOR=false",
                "GIT_OPTIONAL_LOCKS=0",
                "GIT_NO_REPLACE_OBJECTS=1",
                "GIT_NO_LAZY_FETCH=1",
                "GIT_ALLOW_PROTOCOL=none",
                "GIT_ALLOC_LIMIT=1g", /* of one allocation: what a pack or an object claims */
                "GIT_AUTHOR_NAME=Paperclip",
                "GIT_AUTHOR_EMAIL=noreply@paperclip.ing",
                "GIT_COMMITTER_NAME=Paperclip",
                "GIT_COMMITTER_EMAIL=noreply@paperclip.ing",
        };
        struct arena *a = g->op->arena;
        const char **env = arena_alloc(a, (ARRAY_LEN(always) + 8) * sizeof(*env));
        const char *path = getenv("PATH");
        size_t n = 0;

        for (; n < ARRAY_LEN(always); n++)
                env[n] = always[n];
        env[n++] = arena_printf(a, "PATH=%s", path ? path : "/usr/local/bin:/usr/bin:/bin");
        env[n++] = arena_printf(a, "GIT_DIR=%s", run->on_host ? g->host_of_git : repository);
        if (run->on_host)
                return env;
        env[n++] = run->objects ? arena_printf(a, "GIT_OBJECT_DIRECTORY=%s", run->objects)
                                : arena_printf(a, "GIT_OBJECT_DIRECTORY=%s/objects", repository);
        if (g->owner.uid && !run->alone) /* ours is a copy of the host's */
                env[n++] = arena_printf(a, "GIT_SHALLOW_FILE=%s/shallow", g->host_of_git);
        if (!run->alone)
                env[n++] = arena_printf(a, "GIT_ALTERNATE_OBJECT_DIRECTORIES=%s",
                                        quoted(a, arena_printf(a, "%s/objects", g->host_of_git)));
        if (run->index)
                env[n++] = arena_printf(a, "GIT_INDEX_FILE=%s", run->index);
        return env;
}

/* A temporary file in the scratch directory, without a name. */
static int git_scratch_file(const struct git_import *g, int *ret_fd, struct err *err)
{
        *ret_fd = openat(g->scratch_fd, "text", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (*ret_fd < 0)
                return err_sys(err, ERR_IO, errno, "create a file in %s", g->scratch);
        (void)unlinkat(g->scratch_fd, "text", 0);
        return 0;
}

static int input_of(const struct git_import *g, const char *text, int *ret_fd, struct err *err)
{
        int r = git_scratch_file(g, ret_fd, err);

        if (r >= 0)
                r = fd_write_all(*ret_fd, text, strlen(text), err);
        if (r >= 0 && lseek(*ret_fd, 0, SEEK_SET) < 0)
                r = err_sys(err, ERR_IO, errno, "seek");
        return r;
}

int git_run(struct git_import *g, const struct git_run *run, struct buf *out, int *ret_status,
            const char **ret_said, struct err *err)
{
        const char *argv[ARRAY_LEN(fixed) + MAX_ARGS + 2] = { "git" };
        const bool as_owner = g->owner.uid && !run->alone;
        struct said said = { .text = BUF_INIT };
        CLEAN(buf_done) struct buf unused = { .max = MAX_OUTPUT };
        CLEAN(cleanup_fd) int input = -1;
        struct tool tool = {
                .path = "git",
                .argv = argv,
                .env = environment(g, run),
                .cwd = as_owner ? "/" : g->scratch,
                .cwd_fd = as_owner || run->alone ? 0 : g->host_fd,
                .as = as_owner ? &g->owner : NULL,
                .limit_ms = LIMIT_MS,
                .in_fd = run->in_fd,
                .out_fd = run->out_fd,
                .out = out ? out : &unused,
                .line = take_line,
                .ctx = &said,
        };
        struct proc_status status = { .exit_code = -1 };
        size_t n = 1;
        int r = 0;

        for (size_t i = 0; i < ARRAY_LEN(fixed); i++)
                argv[n++] = fixed[i];
        for (size_t i = 0; i < MAX_ARGS && run->args[i]; i++)
                argv[n++] = run->args[i];
        if (run->input)
                r = input_of(g, run->input, &input, err);
        if (run->input)
                tool.in_fd = input;
        if (r >= 0)
                r = tool_run(g->op, &tool, &status, err);
        if (r >= 0 && as_owner && status.exit_code == BECOME_NO_PROGRAM)
                r = err_set(err, ERR_NOT_FOUND, "start git");
        if (r >= 0) {
                *ret_status = status.exit_code;
                *ret_said = arena_strdup(g->op->arena, buf_str(&said.text));
        }
        buf_done(&said.text);
        return r < 0 ? err_wrap(err, r, "git %s", run->args[0]) : 0;
}
