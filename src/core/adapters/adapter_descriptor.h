/* Descriptors: what the program knows about each kind of agent, as data (docs/adapters.md). Those
 * that come with it are in src/core/adapters; an operator's are the *.json of `<data>/adapters`,
 * where a descriptor of a known type replaces the built-in one.
 *
 * An accepted descriptor is used without further checks: adapter_descriptor_check() is the only
 * check, and names the member that is wrong.
 *
 * The list is made once. adapter_load() is called before there are threads; a program that never
 * calls it has the built-in descriptors. After that everything here is immutable; any thread. */
#pragma once

#include "codec/json.h"

#define ADAPTER_FILE_MAX ((size_t)256 << 10)
#define ADAPTERS_MAX     64

struct adapter_descriptor {
        const char *type, *label;
        const char *key; /* a short name, for check codes and for its directory beside the work */
        bool runs;       /* false: known by name only */
        bool is_remote;  /* works in ssh and sandbox environments */
        bool is_http;    /* a request instead of a command */
        const json_t *json;
};

/* In the order in which clients show them; NULL past the end. */
const struct adapter_descriptor *adapter_at(size_t i);
/* NULL: unknown. */
const struct adapter_descriptor *adapter_find(const char *type);

/* Add the descriptors of a directory. A file that is not a descriptor is skipped and reported to
 * `complain`; a missing directory has no descriptors. */
int adapter_load(const char *path, void (*complain)(void *ctx, const char *text), void *ctx,
                 struct err *err);

/* ERR_INVALID naming the member. */
int adapter_descriptor_check(const json_t *json, struct err *err);

/* The hosts that its program may need, whatever an agent is configured with. A new reference. */
json_t *adapter_all_hosts(const struct adapter_descriptor *d);

/* The default of a member that is a text, a number, a list. */
const char *adapter_text(const struct adapter_descriptor *d, const char *member,
                         const char *fallback);
