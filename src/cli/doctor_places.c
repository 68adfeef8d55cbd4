/* Where agents work: companies whose agents have no place, and agents that work on this machine
 * only because they did so before an upgrade. Companies and agents that the caller may not see are
 * left out. */
#include <berth/berth.h>

#include "cli/doctor.h"

/* Written by the upgrade that made the place of an agent a stored choice. */
#define KEPT "agent.environment_kept_by_upgrade"

/* NULL for everything but an answer of 200. */
static json_t *ask_daemon(struct doctor_report *d, struct berth *api, const char *path)
{
        CLEAN(berth_response_done) struct berth_response response = { 0 };
        struct berth_error error;
        json_t *answer = NULL;

        if (berth_request(api, "GET", path, NULL, &response, &error) < 0 ||
            response.status != 200 || json_parse(response.body, response.len, &answer, NULL) < 0)
                return NULL;
        return cli_keep(d->cli, answer);
}

static void check_default(struct doctor_report *d, const json_t *company)
{
        const char *name = cli_text(company, "name");

        if (!*cli_text(company, "defaultEnvironmentId"))
                doctor_add(d, cli_printf(d->cli, "default of %s", name), DOCTOR_LIMITED,
                           "no default environment: agents without one of their own do not run",
                           cli_printf(d->cli, "berth company update '%s' --default-environment ENV",
                                      name));
}

/* The agent of an entry, while it is still where the upgrade left it and nothing keeps it apart. */
static const json_t *still_kept(struct doctor_report *d, struct berth *api, const json_t *entry,
                                const char **ret_isolation)
{
        const json_t *agent = ask_daemon(
                d, api, cli_printf(d->cli, "/api/agents/%s", cli_text(entry, "entityId")));
        const char *place = cli_text(json_object_get(entry, "details"), "defaultEnvironmentId");

        if (!agent || !streq(cli_text(agent, "defaultEnvironmentId"), place) ||
            streq(cli_text(agent, "status"), "terminated"))
                return NULL;
        const json_t *environment =
                ask_daemon(d, api, cli_printf(d->cli, "/api/environments/%s", place));
        *ret_isolation = cli_text(environment, "isolation");
        return json_is_true(json_object_get(environment, "isolated")) ? NULL : agent;
}

static void check_kept(struct doctor_report *d, struct berth *api, const json_t *company)
{
        CLEAN(buf_done) struct buf names = BUF_INIT;
        const char *isolation = "", *last = "";
        json_t *entries, *entry;
        size_t i;

        entries = ask_daemon(d, api,
                             cli_printf(d->cli, "/api/companies/%s/activity?limit=500&action=" KEPT,
                                        cli_text(company, "id")));
        json_array_foreach(entries, i, entry)
        {
                const json_t *agent = still_kept(d, api, entry, &isolation);

                if (!agent)
                        continue;
                last = cli_text(agent, "name");
                buf_appendf(&names, "%s%s", names.len ? ", " : "", last);
        }
        if (names.len > 0)
                doctor_add(d, cli_printf(d->cli, "agents of %s", cli_text(company, "name")),
                           DOCTOR_LIMITED,
                           cli_printf(d->cli, "%s: %s, since an upgrade kept them there",
                                      buf_str(&names), isolation),
                           cli_printf(d->cli, "berth agent update '%s' --environment ENV", last));
}

void doctor_places(struct doctor_report *d, struct berth *api)
{
        json_t *company, *companies = ask_daemon(d, api, "/api/companies");
        size_t i;

        json_array_foreach(companies, i, company)
        {
                check_default(d, company);
                check_kept(d, api, company);
        }
}
