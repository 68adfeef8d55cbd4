/* What a plugin says about itself, checked.
 *
 * A manifest is foreign: it comes out of a program that a third party wrote (manifest_eval()).
 * manifest_check() takes any JSON value and gives back a document that holds nothing but known
 * members of the right shape, or one text that names everything that is wrong with it. Being
 * generous is on purpose where later versions add things: unknown members of the manifest and of a
 * driver are dropped, an unknown capability is a warning.
 *
 * Pure but for manifest_eval(), which is an operation; any thread. */
#pragma once

#include "codec/json.h"
#include "rt/op.h"

/* The version of Paperclip whose plugin interface we offer: what minimumHostVersion is compared
 * with, and what workers are told. */
#define PLUGIN_HOST_VERSION "2026.916.1"

#define MANIFEST_MAX_BYTES   ((size_t)1 << 20)
#define MANIFEST_MAX_DRIVERS 64

#define CAPABILITY_DRIVERS "environment.drivers.register"
/* The `kind` of a driver that is a provider of sandboxes. */
#define PLUGIN_KIND_SANDBOX "sandbox_provider"

/* *ret is a new reference: the manifest as it is stored and as the worker gets it. Texts of what is
 * strange but harmless are appended to `warnings` (an array; may be NULL). ERR_INVALID
 * "Invalid plugin manifest: <path>: <text>; …" and the texts of features without capability and of
 * a host that is too old. */
int manifest_check(json_t *given, const char *host_version, json_t *warnings, json_t **ret,
                   struct err *err);

/* The driver with this key, or NULL. `kind` NULL: any. Borrowed. */
json_t *manifest_driver(const json_t *manifest, const char *driver_key, const char *kind);

/* The capabilities of `next` that `now` does not have. A new array. */
json_t *manifest_new_capabilities(const json_t *now, const json_t *next);
