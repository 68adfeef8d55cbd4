/* `berth lease acquire|renew|release|pause|resume|destroy`. The first three go through the calls of
 * the client library, which know what may be sent twice when a connection breaks. */
#include <berth/berth.h>

#include "base/uuid.h"
#include "cli/cmd_lease.h"
#include "cli/duration.h"
#include "cli/output.h"

static int print_record(struct cli *c, struct berth_lease *lease, struct err *err)
{
        json_t *record;
        int r = json_parse(lease->json, strlen(lease->json), &record, err);

        if (r < 0)
                return r;
        lease_print(c, cli_keep(c, record));
        return 0;
}

static int run_acquire(struct cli *c, const struct args *a, struct err *err)
{
        CLEAN(berth_lease_done) struct berth_lease lease = { 0 };
        struct berth_acquire_options o = {
                .run_id = args_value(a, "run"),
                .idempotency_key = args_value(a, "key"),
        };
        struct berth_error error;
        const char *company;
        json_t *environment;
        struct berth *api;
        int r = 0;

        if (o.run_id && !uuid_is_valid(o.run_id))
                return err_set(err, ERR_USAGE, "--run: '%s' is not a UUID", o.run_id);
        if (args_value(a, "ttl"))
                r = duration_parse("--ttl", args_value(a, "ttl"), &o.ttl_ms, err);
        if (r >= 0 && !uuid_is_valid(a->words[0])) /* Local comes with the first company */
                r = cli_company(c, true, &company, err);
        if (r >= 0)
                r = cli_place(c, a->words[0], &environment, err);
        if (r >= 0)
                r = cli_connect(c, &api, err);
        if (r < 0)
                return r;
        if (berth_acquire(api, cli_text(environment, "id"), &o, &lease, &error) < 0)
                return cli_api_error(&error, err);
        return print_record(c, &lease, err);
}

int lease_id(struct cli *c, const char *given, const char **ret_id, struct err *err)
{
        json_t *lease;
        int r;

        if (uuid_is_valid(given)) {
                *ret_id = given;
                return 0;
        }
        r = cli_lease(c, given, &lease, err);
        if (r >= 0)
                *ret_id = cli_text(lease, "id");
        return r;
}

static int run_renew(struct cli *c, const struct args *a, struct err *err)
{
        CLEAN(berth_lease_done) struct berth_lease lease = { 0 };
        const char *ttl = args_value(a, "ttl");
        struct berth_error error;
        struct berth *api;
        const char *id;
        int64_t ttl_ms;
        int r;

        if (!ttl)
                return err_set(err, ERR_USAGE, "say for how long: --ttl 30m");
        r = duration_parse("--ttl", ttl, &ttl_ms, err);
        if (r >= 0)
                r = lease_id(c, a->words[0], &id, err);
        if (r >= 0)
                r = cli_connect(c, &api, err);
        if (r < 0)
                return r;
        if (berth_renew(api, id, ttl_ms, &lease, &error) < 0)
                return cli_api_error(&error, err);
        return print_record(c, &lease, err);
}

static int run_release(struct cli *c, const struct args *a, struct err *err)
{
        static const char *const statuses[] = { "released", "expired", "failed", NULL };
        CLEAN(berth_lease_done) struct berth_lease lease = { 0 };
        const char *status = args_value(a, "status");
        struct berth_error error;
        struct berth *api;
        const char *id;
        int r = 0;

        if (status)
                r = cli_one_of("--status", status, statuses, err);
        if (r >= 0)
                r = lease_id(c, a->words[0], &id, err);
        if (r >= 0)
                r = cli_connect(c, &api, err);
        if (r < 0)
                return r;
        if (berth_release(api, id, status, &lease, &error) < 0)
                return cli_api_error(&error, err);
        return print_record(c, &lease, err);
}

static int post_action(struct cli *c, const struct args *a, const char *action, json_t **ret,
                       struct err *err)
{
        const char *id;
        int r = lease_id(c, a->words[0], &id, err);

        if (r < 0)
                return r;
        return cli_call(c, "POST", cli_printf(c, "/api/environment-leases/%s/%s", id, action),
                        json_object(), ret, err);
}

/* What a driver answers to a resume is its own business, so it is shown as it is. */
static int run_resume(struct cli *c, const struct args *a, struct err *err)
{
        json_t *answer;
        int r = post_action(c, a, "resume", &answer, err);

        if (r < 0)
                return r;
        if (json_get_object(answer, "lease"))
                lease_print(c, answer);
        else
                out_json(answer);
        return 0;
}

static int run_pause(struct cli *c, const struct args *a, struct err *err)
{
        json_t *answer;
        int r = post_action(c, a, "pause", &answer, err);

        if (r >= 0)
                out_json(answer);
        return r;
}

static int run_destroy(struct cli *c, const struct args *a, struct err *err)
{
        json_t *record;
        int r = post_action(c, a, "destroy", &record, err);

        if (r < 0)
                return r;
        lease_print(c, record);
        return 0;
}

static const struct cli_option acquire_options[] = {
        { "ttl", 0, OPTION_VALUE, "TIME", "end it by itself after this time (30s, 5m, 2h, 1d)" },
        { "run", 0, OPTION_VALUE, "UUID", "the run that holds it" },
        { "key", 0, OPTION_VALUE, "TEXT", "idempotency key: the same again gives the same lease" },
        { 0 },
};

static const struct cli_option renew_options[] = {
        { "ttl", 0, OPTION_VALUE, "TIME", "from now on (30s, 5m, 2h, 1d)" },
        { 0 },
};

static const struct cli_option release_options[] = {
        { "status", 0, OPTION_VALUE, "STATUS", "released (default), expired or failed" },
        { 0 },
};

const struct cli_command cmd_lease_acquire = {
        .name = "acquire",
        .synopsis = "ENV [--ttl TIME] [--run UUID] [--key TEXT]",
        .summary = "Take a lease on an environment",
        .example = "berth lease acquire Local --ttl 30m",
        .options = acquire_options,
        .run = run_acquire,
        .min_words = 1,
        .max_words = 1,
};

#define SOME_LEASE "$(berth lease list --json | jq -r '.[0].id')"

const struct cli_command cmd_lease_renew = {
        .name = "renew",
        .synopsis = "LEASE --ttl TIME",
        .summary = "Let a lease live longer",
        .example = "berth lease renew " SOME_LEASE " --ttl 30m",
        .options = renew_options,
        .run = run_renew,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_lease_release = {
        .name = "release",
        .synopsis = "LEASE [--status STATUS]",
        .summary = "Give a lease up",
        .notes = "A lease that has ended already stays as it is.",
        .example = "berth lease release " SOME_LEASE,
        .options = release_options,
        .run = run_release,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_lease_pause = {
        .name = "pause",
        .synopsis = "LEASE",
        .summary = "Stop everything in a sandbox where it is",
        .notes = "Its time goes on. `berth lease resume` lets it go on, too.",
        .example = "berth lease pause " SOME_LEASE,
        .run = run_pause,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_lease_resume = {
        .name = "resume",
        .synopsis = "LEASE",
        .summary = "Ask the driver to resume a lease",
        .example = "berth lease resume " SOME_LEASE,
        .run = run_resume,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_lease_destroy = {
        .name = "destroy",
        .synopsis = "LEASE",
        .summary = "End a lease and its place, kept work included",
        .example = "berth lease destroy " SOME_LEASE,
        .run = run_destroy,
        .min_words = 1,
        .max_words = 1,
};
