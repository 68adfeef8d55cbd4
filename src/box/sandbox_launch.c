/* Running berth-box to start a sandbox, to show a workspace in it, and to check the machine. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fd.h"
#include "box/launch.h"
#include "box/launch_spawn.h"
#include "box/sandbox.h"

/* A pipe that holds the whole specification already, so that neither side waits for the other. */
static int spec_pipe(const struct sandbox_spec *spec, int *ret_fd, struct err *err)
{
        CLEAN(buf_done) struct buf text = { .max = SANDBOX_MAX_SPEC };
        CLEAN(cleanup_fd) int in = -1;
        CLEAN(cleanup_fd) int out = -1;
        int fds[2];

        sandbox_spec_encode(spec, &text);
        if (buf_failed(&text))
                return err_set(err, ERR_UNPROCESSABLE,
                               "the description of the sandbox is too long");
        if (pipe2(fds, O_CLOEXEC) < 0)
                return err_sys(err, ERR_BUSY, errno, "pipe");
        out = fds[0];
        in = fds[1];
        /* A user with many pipes gets small ones. */
        if (fcntl(in, F_GETPIPE_SZ) < (int)text.len && fcntl(in, F_SETPIPE_SZ, (int)text.len) < 0)
                return err_sys(err, ERR_BUSY, errno, "a pipe for the sandbox's description");
        if (write(in, text.data, text.len) != (ssize_t)text.len)
                return err_sys(err, ERR_BUSY, errno, "describe the sandbox");
        *ret_fd = take_fd(&out);
        return 0;
}

int sandbox_launch(struct op *op, const char *program, const char *dir, const char *id,
                   const struct sandbox_spec *spec, struct sandbox_report *ret_report,
                   struct err *err)
{
        const char *argv[] = {
                "berth-box", "--dir", dir, "--id", id, "--locked", "--sandbox", NULL
        };
        CLEAN(buf_done) struct buf word = { .max = 8192 };
        CLEAN(cleanup_fd) int lock = -1;
        CLEAN(cleanup_fd) int text = -1;
        int r = sandbox_spec_check(spec, err);

        if (r >= 0)
                r = box_lock_take(dir, &lock, err);
        if (r == ERR_LOCKED)
                return err_set(err, r, "a sandbox runs there already");
        if (r >= 0)
                r = spec_pipe(spec, &text, err);
        if (r >= 0)
                r = launch_spawn(op, program, argv, text, lock, &word, err);
        if (r < 0)
                return err_wrap(err, r, "start the sandbox");
        if (!str_starts(buf_str(&word), "ready "))
                return launch_refused(buf_str(&word), ERR_PROVIDER,
                                      "the sandbox did not start: ", err);
        if (ret_report)
                sandbox_report_decode(buf_str(&word), ret_report);
        return 0;
}

/* Workspaces */

static int workspace_work(struct op *op, const char *program, const char *const *argv, int fd_in,
                          struct err *err)
{
        CLEAN(buf_done) struct buf word = { .max = 8192 };
        int r = launch_spawn(op, program, argv, fd_in, 0, &word, err);
        const char *text = buf_str(&word);

        if (r < 0)
                return r;
        if (str_starts(text, "done\n"))
                return 0;
        text += str_starts(text, "error ") ? strlen("error ") : 0;
        return launch_refused(text,
                              str_starts(text, "no sandbox runs") ||
                                              str_starts(text, "the sandbox has")
                                      ? ERR_NOT_FOUND
                                      : ERR_PROVIDER,
                              "", err);
}

int sandbox_workspace_show(struct op *op, const char *program, const struct sandbox_spec *spec,
                           const char *dir, const char *at, int lower_fd, const char *store,
                           struct err *err)
{
        CLEAN(cleanup_free)
        char *ids = xasprintf("%u:%u:%u", spec->first_id, spec->n_ids, sandbox_user_id(spec));
        const char *argv[] = { "berth-box", "--workspace", at,        "--ids",           ids,
                               "--dir",     dir,           "--lower", "/proc/self/fd/0", "--store",
                               store,       NULL };

        return workspace_work(op, program, argv, lower_fd, err);
}

int sandbox_workspace_hide(struct op *op, const char *program, const struct sandbox_spec *spec,
                           const char *dir, const char *at, struct err *err)
{
        CLEAN(cleanup_free) char *ids = xasprintf("%u:%u", spec->first_id, spec->n_ids);
        const char *argv[] = { "berth-box", "--workspace", at, "--ids", ids, "--dir", dir, NULL };

        return workspace_work(op, program, argv, -1, err);
}

/* What the machine has: lines of name, yes/no/weaker, found, fix, separated by tabs. */

static bool check_line(char *line, struct sandbox_check *ret)
{
        char *field[4];

        for (size_t i = 0; i < 4; i++) {
                field[i] = strsep(&line, "\t");
                if (!field[i])
                        return false;
        }
        *ret = (struct sandbox_check){ .ok = streq(field[1], "ok"),
                                       .required = !streq(field[1], "weaker") };
        snprintf(ret->name, sizeof(ret->name), "%s", field[0]);
        snprintf(ret->found, sizeof(ret->found), "%s", field[2]);
        snprintf(ret->fix, sizeof(ret->fix), "%s", field[3]);
        return true;
}

int sandbox_checks(struct op *op, const char *program, uint32_t first_id, uint32_t n_ids,
                   struct sandbox_check ret[SANDBOX_MAX_CHECKS], size_t *ret_n, struct err *err)
{
        CLEAN(cleanup_free) char *ids = xasprintf("%u:%u", first_id, n_ids);
        const char *argv[] = { "berth-box", "--check", "--ids", ids, NULL };
        CLEAN(buf_done) struct buf word = { .max = (size_t)32 << 10 };
        int r = launch_spawn(op, program, argv, -1, 0, &word, err);
        char *rest = word.data;
        size_t n = 0;

        if (r < 0)
                return err_wrap(err, r, "check the machine");
        for (char *line; (line = strsep(&rest, "\n")) && n < SANDBOX_MAX_CHECKS;)
                n += check_line(line, &ret[n]);
        *ret_n = n;
        return n > 0 ? 0 : err_set(err, ERR_PROVIDER, "check the machine: no word from berth-box");
}
