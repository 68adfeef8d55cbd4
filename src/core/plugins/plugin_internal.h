/* Shared by the files of the plugin registry; see plugin_registry.h and plugin_ops.h. */
#pragma once

#include <pthread.h>

#include "core/plugins/plugin_ops.h"
#include "core/plugins/plugin_registry.h"
#include "core/plugins/plugin_state.h"
#include "plugin/package.h"

#define PLUGIN_INSTALLS_MAX   2     /* at the same time */
#define PLUGIN_HOLD_MS        20000 /* how long one change waits for another */
#define PLUGIN_SHIELD_MS      60000 /* for work that has to be finished although the caller left */
#define PLUGIN_OPERATIONS_MAX 32
#define PLUGIN_LINES_MAX      200

struct plugin_log;

/* A plugin that is being changed. */
struct plugin_held {
        struct plugin_held *next;
        char *key;
};

/* An install or upgrade whose progress can be asked for. Under the registry's lock. */
struct plugin_operation {
        struct plugin_operation *next;
        struct uuid id;
        char *package_name;
        char *lines[PLUGIN_LINES_MAX]; /* a ring: line n is at n % PLUGIN_LINES_MAX */
        size_t n_lines;                /* how many there ever were */
        bool done;
        int code; /* 0 or what went wrong */
        char *text;
        struct uuid plugin_id; /* when done well */
};

struct plugin_registry {
        struct plugin_registry_config config;
        struct plugin_host *host;
        struct plugin_tools tools;
        struct confine_policy policy;
        char *refusal, *data_dir,
                *plugin_dir; /* of the policy; the directories by their real paths */
        const char *never_shown[3];
        char *staging_dir, *packages_dir, *private_dir, *copies_dir;
        pthread_mutex_t lock;
        struct plugin_held *held;
        unsigned installs;
        struct plugin_operation *operations; /* newest first */
        struct plugin_log *logs;
        struct plugin_starting *starting; /* until plugin_registry_start() has activated them */
};

/* Where the progress of an operation goes. */
struct plugin_sink {
        struct plugin_registry *reg;
        struct plugin_operation *operation; /* NULL: no progress is kept */
};

/* plugin_registry.c */

/* One change at a time: wait until this change holds the plugin. ERR_CONFLICT when that takes too
 * long. */
int plugin_hold(struct op *op, struct plugin_registry *reg, const char *key, struct err *err);
void plugin_let_go(struct plugin_registry *reg, const char *key);

/* Write `next` over the row that was seen: the move is checked against the table, and the first
 * writer wins. With an action, the trail of every company gets an entry. `install_id`, when not
 * NULL, is the fetch that ends with it. */
int plugin_commit(struct op *op, struct runtime *rt, const struct plugin *seen, struct plugin *next,
                  const char *action, const char *install_id, struct err *err);
/* Inside a store_write() function: an entry in the trail of every company. */
int plugin_audit(struct db *db, struct op *op, const struct plugin *p, const char *action,
                 struct err *err);

/* plugin_view.c */

int plugin_load_row(struct op *op, struct runtime *rt, const char *id_or_key, struct plugin *ret,
                    struct err *err);
/* The manifest of a row, kept by the arena; NULL when it is not valid JSON any more. */
json_t *plugin_manifest(struct op *op, const struct plugin *p);

/* plugin_activate.c */

/* Check the files and describe the worker to start, without the configuration. In the arena. */
int plugin_make_spec(struct op *op, struct plugin_registry *reg, const struct plugin *p,
                     struct worker_spec *ret, struct err *err);
/* Check the files and start the worker. Does not touch the row. keep_trying: no caller hears of a
 * failure, so it counts as a crash (worker_spec). */
int plugin_start_worker(struct op *op, struct plugin_registry *reg, const struct plugin *p,
                        bool keep_trying, struct err *err);
/* The same for a row that should run; a failure becomes its status, with keep_trying once the crash
 * budget is spent: *p is then the changed row. */
int plugin_activate(struct op *op, struct runtime *rt, struct plugin *p, bool keep_trying,
                    struct err *err);

/* plugin_fetch.c */

/* What to fetch. */
struct plugin_source {
        const char *name; /* package, or directory */
        const char *version;
        bool is_local;
};

/* What was fetched. */
struct plugin_fetched {
        struct package package;
        const char *install_id; /* NULL: local */
        const char *local_path;
};

/* install_id is set as soon as there is something to abandon: check it after a failure, too. */
int plugin_obtain(struct op *op, struct plugin_registry *reg, const struct plugin_source *source,
                  struct plugin_sink *sink, struct plugin_fetched *ret, struct err *err);
/* Remove the files of a fetch and forget it, whether or not the caller still waits. */
void plugin_abandon(struct op *op, struct plugin_registry *reg, const char *install_id);
/* NULL is allowed. */
void plugin_remove_package(struct op *op, struct plugin_registry *reg, const char *install_id);
/* Fill the row's members that follow from the fetched package; the rest is left unchanged. */
void plugin_fill_row(struct op *op, const struct plugin_fetched *f, struct plugin *row);

/* plugin_upgrade.c */

/* Approve or reject the waiting upgrade. The plugin is held. */
int plugin_settle(struct op *op, struct runtime *rt, const struct plugin *seen, bool approve,
                  struct plugin *ret, struct err *err);

/* plugin_log.c */

/* Any thread; `registry` is the ctx of the host's reports. meta is JSON text or NULL. */
void plugin_log_add(void *registry, const char *plugin_key, const char *level, const char *message,
                    const char *meta);
void plugin_log_forget(struct plugin_registry *reg, const char *plugin_key);
void plugin_logs_free(struct plugin_registry *reg);

/* plugin_operation.c */

void plugin_operation_free(struct plugin_operation *o);
/* ctx is a struct plugin_sink. */
void plugin_say(void *ctx, const char *line);

/* The two operations that can go on in the background. `sink` gets their progress. */
int plugin_do_install(struct op *op, struct runtime *rt, json_t *body, struct plugin_sink *sink,
                      struct plugin *ret, struct err *err);
int plugin_do_upgrade(struct op *op, struct runtime *rt, const char *id_or_key, json_t *body,
                      struct plugin_sink *sink, struct plugin *ret, struct err *err);
