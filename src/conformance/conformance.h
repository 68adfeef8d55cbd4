/* `berth plugin conformance`: does a provider keep to the plugin protocol? Starts its worker the
 * way the daemon would, without one, and makes the calls that a life of leases makes, the unlucky
 * ones among them. Main thread. */
#pragma once

#include "cli/cli.h"
#include "plugin/host.h"
#include "plugin/package.h"

/* Returns the exit status of the process: 0 all is well, 1 a check failed. */
int conformance(const struct cli_conformance_options *options);

#define CONFORMANCE_PLUGIN  "0c000000-0000-4000-8000-000000000001"
#define CONFORMANCE_COMPANY "0c000000-0000-4000-8000-000000000002"
#define CONFORMANCE_ENV     "0c000000-0000-4000-8000-000000000003"

/* One run, shared by the checks. Strings in the operation's arena. */
struct conformance {
        const struct cli_conformance_options *options;
        struct op op;
        struct package package;
        struct confine_policy policy;
        struct plugin_host_config host_config;
        struct plugin_host *host;
        struct worker_spec spec;
        const char *driver;
        json_t *config; /* what environments would store; changes once it was validated */
        json_t *lease;  /* LeaseRef of the lease under test; NULL: none */
        const char *cwd;
};

/* A check returns 0 when all is well, CHECK_SKIPPED with the reason as text, or an error. */
#define CHECK_SKIPPED 1

struct conformance_check {
        const char *name;
        int (*run)(struct conformance *c, struct err *err);
};

/* In the order in which they are made; ended by a NULL name. */
extern const struct conformance_check conformance_lifecycle[];
extern const struct conformance_check conformance_trouble[];

/* Tools for checks */

/* Call the driver with the usual members and those given (taken; may be NULL). *ret is kept by the
 * arena. */
int conformance_call(struct conformance *c, const char *method, json_t *take_more,
                     int64_t timeout_ms, json_t **ret, struct err *err);
json_t *conformance_params(struct conformance *c, json_t *take_more);
/* Run a shell command in the lease. */
int conformance_shell(struct conformance *c, const char *script, json_t *take_more,
                      int64_t timeout_ms, json_t **ret, struct err *err);
int conformance_acquire(struct conformance *c, json_t **ret_lease, struct err *err);
int conformance_give_up(struct conformance *c, const char *method, const json_t *lease,
                        struct err *err);
/* CHECK_SKIPPED without the method or without a lease; 0 otherwise. */
int conformance_needs(struct conformance *c, const char *method, bool lease, struct err *err);
