/* A lease that a worker grants after its caller gave up. No caller will ever use it, so it is
 * destroyed, and the place that was uncertain about it says so. */
#pragma once

#include "codec/json.h"
#include "core/runtime.h"

struct late_lease;
struct place;

/* Members at these paths of the provider's metadata are secret and are not kept
 * (codec/secret_refs.h). */
struct late_lease *late_lease_new(struct runtime *rt, const struct place *place,
                                  json_t *take_secret_paths);
void late_lease_free(struct late_lease *late);
/* For struct plugin_call: takes ctx, a struct late_lease. */
void late_lease_arrived(void *ctx, const json_t *result);
