/* What `berth doctor` looks at. Each group of checks is one function that adds lines to a report; a
 * check tries the thing itself rather than reading what the machine claims, because containers and
 * security modules take away what the kernel has.
 *
 * One thread: the checks fork, and change namespaces in the child only. */
#pragma once

#include "cli/command.h"

enum doctor_status {
        DOCTOR_OK,
        DOCTOR_LIMITED, /* works, with less than there could be */
        DOCTOR_MISSING,
};

struct doctor_report {
        struct cli *cli;
        json_t *checks;      /* owned array */
        bool needed_is_gone; /* something that every Berth needs is missing */
};

/* fix may be NULL. */
void doctor_add(struct doctor_report *d, const char *name, enum doctor_status status,
                const char *detail, const char *fix);
/* The same for what nothing works without: missing makes the command fail. */
void doctor_add_needed(struct doctor_report *d, const char *name, enum doctor_status status,
                       const char *detail, const char *fix);

void doctor_kernel(struct doctor_report *d); /* also namespaces and cgroups: doctor_kernel.c */
void doctor_data(struct doctor_report *d);   /* the data directory: doctor_host.c */
void doctor_programs(struct doctor_report *d);
void doctor_subids(struct doctor_report *d);
void doctor_sandbox(struct doctor_report *d); /* the built-in one: doctor_sandbox.c */
void doctor_workers(struct doctor_report *d); /* of plugins; the same file */
void doctor_daemon(struct doctor_report *d);
