/* `berth doctor`: says what this machine can do, and how to mend what is missing. Needs no
 * daemon. */
#include <stdio.h>

#include "cli/doctor.h"
#include "cli/output.h"

static const char *const status_names[] = { "ok", "limited", "missing" };

static void add_check(struct doctor_report *d, const char *name, enum doctor_status status,
                      const char *detail, const char *fix, bool needed)
{
        if (status == DOCTOR_OK)
                fix = NULL;
        if (needed && status == DOCTOR_MISSING)
                d->needed_is_gone = true;
        json_array_append_new(d->checks, json_pack("{s:s, s:s, s:s, s:s?, s:b}", "name", name,
                                                   "status", status_names[status], "detail", detail,
                                                   "fix", fix, "needed", needed));
}

void doctor_add(struct doctor_report *d, const char *name, enum doctor_status status,
                const char *detail, const char *fix)
{
        add_check(d, name, status, detail, fix, false);
}

void doctor_add_needed(struct doctor_report *d, const char *name, enum doctor_status status,
                       const char *detail, const char *fix)
{
        add_check(d, name, status, detail, fix, true);
}

static void print_report(const struct doctor_report *d)
{
        json_t *check;
        size_t i;

        json_array_foreach(d->checks, i, check)
        {
                const char *status = cli_text(check, "status");
                CLEAN(cleanup_free) char *padded = xasprintf("%-8s", status);

                out_state(status, padded);
                out_line(" %-18s %s", cli_text(check, "name"), cli_text(check, "detail"));
                if (*cli_text(check, "fix"))
                        out_line("         %-18s \u2192 %s", "", cli_text(check, "fix"));
        }
}

int cmd_doctor(struct cli *c, const struct args *a UNUSED, struct err *err UNUSED)
{
        struct doctor_report d = { .cli = c, .checks = cli_keep(c, json_array()) };

        doctor_kernel(&d);
        doctor_subids(&d);
        doctor_sandbox(&d);
        doctor_workers(&d);
        doctor_programs(&d);
        doctor_data(&d);
        doctor_daemon(&d);
        if (c->json)
                out_json(cli_keep(
                        c, json_pack("{s:b, s:O}", "ok", !d.needed_is_gone, "checks", d.checks)));
        else
                print_report(&d);
        if (d.needed_is_gone && !c->json)
                out_error("something that Berth cannot do without is missing");
        return d.needed_is_gone ? 1 : 0;
}
