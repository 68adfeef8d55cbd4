/* The command line: `berth COMMAND ...`.
 *
 * The same binary is daemon and command line, but this layer knows nothing of the daemon: main()
 * passes what only the daemon can do as hooks. A NULL hook makes its command fail.
 *
 * cli_main() runs one command line in one process: it is called once, from the main thread, and the
 * strings it hands to a hook are borrowed from argv and the environment. */
#pragma once

#include <stdbool.h>

/* What `berth serve` was told. NULL means: not given on the command line, so the environment, then
 * berth.toml, then the default decide; the daemon applies that order. The values are as typed; only
 * log_level, log_format and mode are already known to be one of their words. */
struct cli_serve_options {
        const char *listen;     /* ADDR:PORT */
        const char *data;       /* directory */
        const char *database;   /* URL */
        const char *log_level;  /* debug, info, warn or error */
        const char *log_format; /* text or json */
        const char *mode;       /* local_trusted or authenticated */
        bool new_identity;      /* start a database that is not at home as an instance of its own */
        bool is_private;        /* only the Unix socket, and only as long as it is needed */
};

/* What `berth plugin conformance` was told. */
struct cli_conformance_options {
        const char *path;   /* of the package */
        const char *driver; /* NULL: the first */
        const char *config; /* JSON object, or NULL */
        const char *only;   /* NULL: all checks */
        bool json;
        bool colour;
};

/* What `berth db` was told. */
struct cli_database_options {
        enum {
                DATABASE_BACKUP,
                DATABASE_RESTORE,
                DATABASE_CHECK,
                DATABASE_MIGRATE,
                DATABASE_COPY
        } action;
        const char *data; /* directory */
        const char *file; /* the backup; NULL: check the database of the data directory */
        const char *to;   /* of a copy, which `file` is the source of */
        bool replace;     /* an existing backup, or the database that is there */
        bool json;
};

struct cli_hooks {
        /* Run the daemon until it is told to stop. Returns the exit status of the process and has
         * said on standard error why when that is not 0. */
        int (*serve)(const struct cli_serve_options *options);
        /* Run the checks and print the table. Returns the exit status of the process. */
        int (*conformance)(const struct cli_conformance_options *options);
        /* Back the database up, restore or check it, and say how it went. Returns the exit status
         * of the process. */
        int (*database)(const struct cli_database_options *options);
};

/* Returns the exit status: 0 done, 1 failed, 2 wrong usage, 3 daemon not reachable, 4 not allowed,
 * 5 not found. */
int cli_main(int argc, char **argv, const struct cli_hooks *hooks);
