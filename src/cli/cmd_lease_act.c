/* `berth lease acquire|renew|release`: by the calls of the client library, which know what may be
 * sent twice when a connection breaks. */
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
        cli_show(c, &kind_lease, cli_keep(c, record));
        return 0;
}

int cmd_lease_acquire(struct cli *c, const struct args *a, struct err *err)
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

int cmd_lease_renew(struct cli *c, const struct args *a, struct err *err)
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

int cmd_lease_release(struct cli *c, const struct args *a, struct err *err)
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
