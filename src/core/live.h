/* Live events: what happens in a company, as it happens (http-api 4).
 *
 * Each event has a number that only grows, also over restarts of the daemon, and is kept for a
 * while in memory, so that a reader who comes back with the last number it saw misses nothing; one
 * who comes too late is told so (`reset`). A reader that does not keep up is told what it missed
 * and never slows anybody down.
 *
 * Publishing: any thread, never blocks. Reading: loop thread. */
#ifndef BERTH_CORE_LIVE_H
#define BERTH_CORE_LIVE_H

#include <uv.h>

#include "codec/json.h"
#include "core/runtime.h"

struct live;

int live_new(uv_loop_t *loop, struct live **ret, struct err *err);
void live_free(struct live *live);

/* live may be NULL: nothing happens. take_payload is an object; its reference is taken. */
void live_publish(struct live *live, const char *company_id, const char *type,
                  json_t *take_payload);

#endif
