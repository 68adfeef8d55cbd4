/* The built-in sandbox: berth-box tries what it needs, as the user who asks, and says in lines of
 * name, verdict (ok, bad, weaker), what was found, what to do, separated by tabs. And the workers
 * of plugins, which our own program confines. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>

#include "base/fd.h"
#include "base/installed.h"
#include "cli/child.h"
#include "cli/doctor.h"
#include "codec/subid.h"

#define ROOT_FIRST 0x70000000
#define ROOT_COUNT 65536
#define TEXT_MAX   ((size_t)64 << 10)

static struct id_range read_range(const char *path)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        const struct passwd *pw = getpwuid(geteuid());
        struct id_range range;

        (void)file_read_at(AT_FDCWD, path, TEXT_MAX, &text, NULL);
        (void)subid_largest(buf_str(&text), text.len, pw ? pw->pw_name : NULL, geteuid(), &range);
        return range;
}

/* NULL: the user has none. */
static const char *ids_argument(struct cli *c)
{
        struct id_range range = { ROOT_FIRST, ROOT_COUNT };

        if (geteuid() != 0)
                range = id_range_common(read_range("/etc/subuid"), read_range("/etc/subgid"));
        if (range.count == 0)
                return NULL;
        return cli_printf(c, "%lld:%lld", (long long)range.first, (long long)range.count);
}

/* Without a required one no sandbox starts. */
static void add_line(struct doctor_report *d, char *line, bool *usable)
{
        char *field[4];
        bool ok, weaker;

        for (size_t i = 0; i < ARRAY_LEN(field); i++) {
                field[i] = strsep(&line, "\t");
                if (!field[i])
                        return;
        }
        ok = streq(field[1], "ok");
        weaker = streq(field[1], "weaker");
        *usable = *usable && (ok || weaker);
        doctor_add(d, cli_printf(d->cli, "box %s", field[0]),
                   ok       ? DOCTOR_OK
                   : weaker ? DOCTOR_LIMITED
                            : DOCTOR_MISSING,
                   cli_printf(d->cli, "%s", field[2]), cli_printf(d->cli, "%s", field[3]));
}

void doctor_sandbox(struct doctor_report *d)
{
        CLEAN(buf_done) struct buf out = { .max = TEXT_MAX };
        const char *program = installed_box(&d->cli->arena);
        const char *argv[] = { "berth-box", "--check", "--ids", ids_argument(d->cli), NULL };
        bool usable = true;
        char *rest, *line;
        int status;

        if (!program) {
                doctor_add(d, "sandbox", DOCTOR_MISSING, "berth-box is not beside berth",
                           "install both programs together");
                return;
        }
        if (!argv[3]) {
                doctor_add(d, "sandbox", DOCTOR_MISSING,
                           "the built-in one does not start for a user without subordinate ids",
                           "mend what is missing above");
                return;
        }
        if (child_capture(program, argv, STDOUT_FILENO, &out, &status) != 0 || out.len == 0) {
                doctor_add(d, "sandbox", DOCTOR_MISSING, "berth-box does not run",
                           "install the berth-box of this version");
                return;
        }
        rest = out.data;
        while ((line = strsep(&rest, "\n")))
                add_line(d, line, &usable);
        doctor_add(d, "sandbox", usable ? DOCTOR_OK : DOCTOR_MISSING,
                   usable ? "the built-in one works; it shares the kernel with the host"
                          : "the built-in one does not start here",
                   "mend what is missing above");
}

/* Workers of plugins: our own program tries, as it would confine one (plugin/confine.h). */
void doctor_workers(struct doctor_report *d)
{
        static const char *const argv[] = { "berth-worker", "--check", NULL };
        CLEAN(buf_done) struct buf out = { .max = TEXT_MAX };
        const char *program = installed_program(&d->cli->arena);
        int status = -1;

        if (program && child_capture(program, argv, STDERR_FILENO, &out, &status) == 0 &&
            status == 0)
                doctor_add(d, "plugin workers", DOCTOR_OK,
                           geteuid() == 0 ? "confined: users, files and processes of their own"
                                          : "confined: files and processes of their own, the user "
                                            "of the daemon",
                           NULL);
        else
                doctor_add(d, "plugin workers", DOCTOR_LIMITED,
                           cli_printf(d->cli, "confined by Landlock and a filter only: %.*s",
                                      (int)strcspn(buf_str(&out), "\n"), buf_str(&out)),
                           "allow user namespaces, or mounts in the container; `berth plugin "
                           "sandbox-check` shows what a worker can reach");
}
