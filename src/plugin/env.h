/* The environment of a worker: built from nothing, never inherited. A fixed table (PATH, NODE_PATH,
 * PAPERCLIP_PLUGIN_ID, NODE_ENV, TZ, PAPERCLIP_DEPLOYMENT_MODE and _EXPOSURE), TMPDIR and HOME in
 * the worker's own directory because it may not write elsewhere, and the variables that the
 * operator allowed, which may include HOME. Operation threads. */
#pragma once

#include "base/arena.h"

struct plugin_env_spec {
        const char *plugin_id, *plugin_key;
        const char *deployment_mode, *deployment_exposure; /* NULL: empty */
        const char *private_dir;                           /* NULL: no TMPDIR and HOME */
        const char *allowed; /* see plugin_setting_each(); names of variables; NULL: none */
};

/* NULL-terminated NAME=value, in the arena. */
const char *const *plugin_env(const struct plugin_env_spec *spec, struct arena *arena);

/* Settings that name things for workers are lists separated by commas: `ITEM` is for all plugins,
 * `KEY:ITEM` for the one with that key. fn gets the items that concern this one. */
void plugin_setting_each(const char *list, const char *plugin_key, struct arena *arena,
                         void (*fn)(void *ctx, const char *item), void *ctx);
