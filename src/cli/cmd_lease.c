/* `berth lease`: reading is here, acting in cmd_lease_act.c. */
#include "cli/cmd_lease.h"
#include "cli/output.h"

static void print_workspace(struct cli *c, const json_t *workspace)
{
        if (!workspace)
                return;
        out_label("Workspace", COLUMN_TEXT,
                  cli_printf(c, "%s (%s%s)", cli_text(workspace, "localPath"),
                             cli_text(workspace, "state"),
                             json_is_true(json_object_get(workspace, "restored")) ? ", restored"
                                                                                  : ""));
        if (*cli_text(workspace, "note"))
                out_label("", COLUMN_TEXT, cli_text(workspace, "note"));
}

void lease_print(struct cli *c, const json_t *lease_or_record)
{
        const json_t *inner = json_get_object(lease_or_record, "lease");
        const json_t *lease = inner ? inner : lease_or_record;
        const json_t *environment = json_get_object(lease_or_record, "environment");

        if (c->json) {
                out_json(lease_or_record);
                return;
        }
        out_label("Id", COLUMN_ID, cli_text(lease, "id"));
        if (environment)
                out_label("Environment", COLUMN_TEXT, cli_text(environment, "name"));
        else
                out_label("Environment", COLUMN_ID, cli_text(lease, "environmentId"));
        out_label("Status", COLUMN_STATE, cli_text(lease, "status"));
        out_label("Policy", COLUMN_TEXT, cli_text(lease, "leasePolicy"));
        out_label("Provider", COLUMN_TEXT, cli_text(lease, "provider"));
        out_label("Provider id", COLUMN_TEXT, cli_text(lease, "providerLeaseId"));
        out_label("Run", COLUMN_ID, cli_text(lease, "heartbeatRunId"));
        out_label("Acquired", COLUMN_TIME, cli_text(lease, "acquiredAt"));
        out_label("Expires", COLUMN_TIME, cli_text(lease, "expiresAt"));
        out_label("Released", COLUMN_TIME, cli_text(lease, "releasedAt"));
        print_workspace(c, json_get_object(json_get_object(lease, "metadata"), "stagedWorkspace"));
        if (*cli_text(lease, "cleanupStatus"))
                out_label("Clean-up", COLUMN_STATE, cli_text(lease, "cleanupStatus"));
        if (*cli_text(lease, "failureReason"))
                out_label("Failure", COLUMN_TEXT, cli_text(lease, "failureReason"));
}

/* -- list ------------------------------------------------------------------------------------- */

/* Without --status and --all: what is still there, or ended without having been cleaned up. */
static bool is_wanted(const json_t *lease, const char *status, bool all)
{
        const char *is = cli_text(lease, "status");

        if (status)
                return streq(is, status);
        return all || streq(is, "active") || streq(is, "retained") ||
               streq(cli_text(lease, "cleanupStatus"), "failed") ||
               streq(cli_text(lease, "cleanupStatus"), "pending");
}

static void add_row(struct table *t, const json_t *environment, const json_t *lease)
{
        table_row(t,
                  (const char *[]){ cli_text(lease, "id"), cli_text(environment, "name"),
                                    cli_text(lease, "status"), cli_text(lease, "cleanupStatus"),
                                    cli_text(lease, "provider"), cli_text(lease, "heartbeatRunId"),
                                    cli_text(lease, "acquiredAt"), cli_text(lease, "expiresAt") });
}

static int collect_leases(struct cli *c, const struct args *a, const json_t *environment,
                          struct table *t, json_t *all, struct err *err)
{
        json_t *leases, *lease;
        size_t i;
        int r;

        r = cli_call_list(c,
                          cli_printf(c, "/api/environments/%s/leases", cli_text(environment, "id")),
                          &leases, err);
        if (r < 0)
                return r;
        json_array_foreach(leases, i, lease)
        {
                if (!is_wanted(lease, args_value(a, "status"), args_flag(a, "all")))
                        continue;
                json_array_append(all, lease);
                add_row(t, environment, lease);
        }
        return 0;
}

static int run_list(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = {
                { "ID", COLUMN_ID },         { "ENVIRONMENT", COLUMN_TEXT },
                { "STATUS", COLUMN_STATE },  { "CLEAN-UP", COLUMN_STATE },
                { "PROVIDER", COLUMN_TEXT }, { "RUN", COLUMN_ID },
                { "ACQUIRED", COLUMN_TIME }, { "EXPIRES", COLUMN_TIME },
        };
        CLEAN(table_done) struct table t;
        json_t *all = cli_keep(c, json_array());
        json_t *environments, *environment;
        size_t i;
        int r;

        table_init(&t, columns, ARRAY_LEN(columns));
        if (a->n_words > 0) {
                r = cli_environment(c, a->words[0], &environment, err);
                if (r >= 0)
                        r = collect_leases(c, a, environment, &t, all, err);
        } else {
                r = cli_environments(c, &environments, err);
                for (i = 0; r >= 0 && i < json_array_size(environments); i++)
                        r = collect_leases(c, a, json_array_get(environments, i), &t, all, err);
        }
        if (r < 0)
                return r;
        if (c->json)
                out_json(all);
        else
                table_print(&t, args_flag(a, "all") || args_value(a, "status")
                                        ? "no leases"
                                        : "no leases in use (--all shows those that ended)");
        return 0;
}

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        json_t *lease;
        int r = cli_lease(c, a->words[0], &lease, err);

        if (r < 0)
                return r;
        lease_print(c, lease);
        return 0;
}

static const struct cli_option list_options[] = {
        { "status", 0, OPTION_VALUE, "STATUS", "active, released, expired, failed or retained" },
        { "all", 'a', OPTION_FLAG, NULL, "also those that ended" },
        { 0 },
};

static const struct cli_command list = {
        .name = "list",
        .synopsis = "[ENV] [--status STATUS] [--all]",
        .summary = "List leases",
        .notes = "Shows what is in use, retained, or still to be cleaned up.",
        .example = "berth lease list --all",
        .options = list_options,
        .run = run_list,
        .max_words = 1,
};

static const struct cli_command show = {
        .name = "show",
        .synopsis = "LEASE",
        .summary = "Show one lease",
        .example = "berth lease show $(berth lease list --json | jq -r '.[0].id')",
        .run = run_show,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_lease = {
        .name = "lease",
        .synopsis = "",
        .summary = "List, acquire, renew and release leases; run commands in them",
        .notes = "LEASE is an id, or at least four characters with which exactly one begins or "
                 "ends.",
        .example = "berth lease acquire Local --ttl 30m",
        .sub = (const struct cli_command *const[]){ &list, &show, &cmd_lease_acquire,
                                                    &cmd_lease_renew, &cmd_lease_release,
                                                    &cmd_lease_pause, &cmd_lease_resume,
                                                    &cmd_lease_destroy, &cmd_lease_snapshot,
                                                    &cmd_lease_exec, &cmd_lease_executions,
                                                    &cmd_lease_output, &cmd_lease_signal, NULL },
};
