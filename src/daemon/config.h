/* The daemon's settings: flags, then BERTH_* variables (PAPERCLIP_* where Paperclip has one), then
 * berth.toml in the data directory, then defaults. Read once at start; a setting that makes no
 * sense is an error that names it and where it came from. The table is settings.c. */
#pragma once

#include "base/arena.h"
#include "base/log.h"
#include "cli/cli.h"
#include "core/runtime.h"

#define CONFIG_FILE "berth.toml"

struct config {
        const char *data_dir;
        const char *listen;   /* ADDR:PORT */
        const char *database; /* path or URL */
        enum log_level log_level;
        enum log_format log_format;
        const char *secrets_key_file; /* NULL: not given */
        const char *machine_id;       /* NULL: /etc/machine-id (daemon/home.h) */
        bool new_identity;            /* a database that is not at home may start */
        bool is_private;              /* no port; ends by itself (daemon/idle.h) */
        unsigned op_threads, op_queue;
        /* Of operations that wait for providers, hosts and boxes (rt/pool.h): at once, at once in
         * one environment, and how many more may wait for one environment. */
        unsigned peer_threads, peer_threads_each, peer_queue;
        unsigned connections_per_client; /* 0: half of what there is */
        const char *trusted_users;       /* as given; NULL: not set: daemon/trusted.h */
        const char *private_hosts;       /* as given; NULL: not set */
        struct settings settings;
};

/* Strings live in the arena. The data directory exists afterwards. */
int config_load(const struct cli_serve_options *flags, struct arena *arena, struct config *ret,
                struct err *err);

/* Whether the URL of a database holds a password. */
bool config_url_has_password(const char *url);
