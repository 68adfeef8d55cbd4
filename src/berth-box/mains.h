/* The works of berth-box besides being a box, one for each row of `mains` in main.c: each is the
 * whole program, and returns its exit status. */
#pragma once

struct sandbox;

/* What the command line said; main.c has checked that everything needed is there. */
struct main_args {
        const char *dir, *id;
        const char *given;         /* the value of the option that chose the work */
        const char *lower, *store; /* --workspace: of the host; NULL: hide what was shown */
        const char *inside;        /* --copy: DIR of the sandbox that the path is one of; or NULL */
        const char *const *words;  /* what follows the options; NULL-terminated */
        struct sandbox *sandbox;   /* empty but for --ids */
};

/* For the works that enter a sandbox: the namespaces of the PID 1 in `dir`. ERR_NOT_FOUND when no
 * sandbox runs there. */
struct err;
int sandbox_find(const char *dir, int *ret_user_ns, int *ret_mount_ns, struct err *err);
/* A directory of a sandbox that was entered. Links that its processes may have put there are not
 * followed. */
int sandbox_open_dir(const char *path);

int check_main(const struct main_args *a);
int copy_main(const struct main_args *a);
int workspace_main(const struct main_args *a);
int relay_main(const struct main_args *a);
/* The questions of the relay, answered by a line with ASK_WORD and `yes`, `no` or what went wrong.
 * ensure and bury say `no`. */
int ask_main(const struct main_args *a);
/* Reads the call from standard input, where no other process sees it, and prints the answer. */
int exchange_main(const struct main_args *a);
/* The words are options of the form NAME=VALUE, `--`, and the agent's command. */
int acp_main(const struct main_args *a);
