/* The plugins of this instance: the installed ones, those that should run, and the worker of each.
 *
 * The registry owns the plugin host (plugin/host.h); only the registry starts and stops workers.
 * Rows hold the wanted state (plugin_state.h), the host knows the actual one; activation brings the
 * two together: at the start of the daemon, and after each change. One change of a plugin at a
 * time: a second one meanwhile is a conflict.
 *
 * Files, beneath the plugin directory:
 *
 *   staging/<install>    npm works here; nothing points to it, and a start of the daemon empties it
 *   packages/<install>   complete, named by a row (`install_id`, or a pending upgrade) or swept
 *   private/<plugin>     the worker's own directory
 *
 * Life cycle functions: loop thread. Everything that takes an op: operation threads. */
#pragma once

#include "core/access/access.h"
#include "plugin/host.h"
#include "rt/mail.h"
#include "rt/pool.h"
#include "store/plugins.h"

struct plugin_registry;

struct plugin_registry_config {
        struct mail *mail;
        struct pool *pool;
        struct runtime *rt;
};

int plugin_registry_new(const struct plugin_registry_config *config, struct plugin_registry **ret,
                        struct err *err);
void plugin_registry_free(struct plugin_registry *reg);
/* Operation, before anything else happens: remove what a crash left of installs. */
int plugin_registry_recover(struct op *op, struct plugin_registry *reg, struct err *err);
/* Start the workers of all plugins that should run, in parallel; does not wait. */
void plugin_registry_start(struct plugin_registry *reg);
/* Whether its worker is still being started with the daemon. Any thread. */
bool plugin_registry_is_starting(struct plugin_registry *reg, const char *plugin_id);
/* Stop all workers, then call done(arg). */
void plugin_registry_stop(struct plugin_registry *reg, void (*done)(void *arg), void *arg);

struct plugin_host *plugin_registry_host(struct plugin_registry *reg);
/* The parent of the workers' own directories, each named by its plugin's id. */
const char *plugin_registry_private_dir(const struct plugin_registry *reg);
/* The prefix of directories in there for one exchange of files; a UUID follows
 * (kinds/plugin/plugin_sync.h). */
#define PLUGIN_SYNC_DIR "sync-"
/* Operation, at the start of the daemon: remove exchange directories that a crash left. */
void plugin_registry_remove_syncs(struct op *op, const char *private_dir);

/* -- For drivers ------------------------------------------------------------------------------ */

/* A driver that a plugin declares. In the operation's arena. */
struct plugin_driver {
        const char *plugin_id, *plugin_key;
        json_t *manifest; /* of the plugin */
        json_t *driver;   /* its element of environmentDrivers */
        bool is_sandbox;  /* a sandbox provider; else a driver of its own */
        bool is_running;  /* whether its worker runs */
};

/* Every driver of a plugin that should run and does run. */
int plugin_each_driver(struct op *op, struct runtime *rt,
                       int (*fn)(void *ctx, const struct plugin_driver *driver), void *ctx,
                       struct err *err);
