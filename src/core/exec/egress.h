/* The way out of an environment whose network is "allowlist": the proxy (net/proxy.h) at a fixed
 * address inside, reached through the tunnel of its box.
 *
 * Of a place's recorded configuration two fields count: `network` ("none", "allowlist", "host") and
 * `allowedHosts`, a list of host patterns (codec/host_pattern.h). A policy is read from it on an
 * operation's thread and handed to the loop with the place's first command; from then on the box
 * listens, also after a restart of the daemon. */
#pragma once

#include "box/tunnel.h"
#include "codec/json.h"
#include "core/runtime.h"
#include "net/resolve.h"

/* The same address inside every place: what programs were told once stays true. */
#define EGRESS_PORT      3128
#define EGRESS_MAX_HOSTS 1000

struct egress;
struct egress_policy;

/* Any thread. *ret is NULL when the configuration asks for no proxy. ERR_UNPROCESSABLE names the
 * entry that is not a host pattern. */
int egress_policy_read(const char *config, struct egress_policy **ret, struct err *err);
void egress_policy_free(struct egress_policy *policy);

/* Any thread. The variables that point programs to the proxy, NAME=value and NULL at the end; an
 * empty list when the configuration asks for none. Static. */
const char *const *egress_env(const json_t *config);

/* Loop thread: serve a box. */
struct egress *egress_new(uv_loop_t *loop, struct resolver *resolver, struct runtime *rt,
                          struct tunnel *tunnel, const char *place_id,
                          struct egress_policy *take_policy);
void egress_free(struct egress *e);
