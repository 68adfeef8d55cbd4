/* `berth agent wake`, and the options that say when an agent wakes by itself. */
#include "cli/cmd_agent.h"
#include "cli/cmd_runs.h"
#include "cli/duration.h"

/* -- By the clock ----------------------------------------------------------------------------- */

static int set_timer(const struct args *a, json_t *heartbeat, struct err *err)
{
        const char *every = args_value(a, "every"), *line = args_value(a, "cron");
        int64_t ms = 0;
        int r = every ? duration_parse("--every", every, &ms, err) : 0;

        if (r >= 0 && every && ms < 10000)
                r = err_set(err, ERR_USAGE, "--every: at least 10s");
        if (r < 0)
                return r;
        json_object_del(heartbeat, "intervalSec");
        json_object_del(heartbeat, "cron");
        json_object_set_new(heartbeat, "enabled", json_boolean(every || line));
        if (every)
                json_object_set_new(heartbeat, "intervalSec", json_integer(ms / 1000));
        return body_set(heartbeat, "cron", line, err);
}

int agent_timer(struct cli *c, const struct args *a, const json_t *agent, json_t *body,
                struct err *err)
{
        json_t *had = json_get_object(agent, "runtimeConfig"), *config, *heartbeat;
        int given = !!args_value(a, "every") + !!args_value(a, "cron") + args_flag(a, "no-timer");

        if (given == 0)
                return 0;
        if (given > 1)
                return err_set(err, ERR_USAGE, "--every, --cron or --no-timer: one of them");
        config = cli_keep(c, had ? json_deep_copy(had) : json_object());
        if (!json_get_object(config, "heartbeat"))
                json_object_set_new(config, "heartbeat", json_object());
        heartbeat = json_get_object(config, "heartbeat");
        json_object_set(body, "runtimeConfig", config);
        return set_timer(a, heartbeat, err);
}

/* -- Now -------------------------------------------------------------------------------------- */

static int fill(struct cli *c, const struct args *a, json_t *body, struct err *err)
{
        json_t *payload = cli_keep(c, json_object());
        int r = cli_fill(c, a,
                         MEMBERS({ "reason", "reason" }, { "triggerDetail", .otherwise = "manual" },
                                 { "idempotencyKey", "key" },
                                 { "forceFreshSession", "fresh", MEMBER_TRUE }),
                         body, err);

        if (r >= 0)
                r = cli_fill(c, a,
                             MEMBERS({ "taskKey", "task" },
                                     { "issueId", "issue", MEMBER_ID, .kind = &kind_issue }),
                             payload, err);
        if (r >= 0 && json_object_size(payload) > 0)
                json_object_set(body, "payload", payload);
        return r;
}

static int show(struct cli *c, const struct args *a, const json_t *answer, struct err *err)
{
        const char *id = cli_text(answer, "id"), *status;
        bool follow = args_flag(a, "follow");
        int r;

        if (streq(cli_text(answer, "status"), "skipped")) {
                if (c->json)
                        out_json(answer);
                else
                        out_line("%s", cli_text(answer, "message"));
                return 0;
        }
        if (!follow) {
                if (c->json)
                        out_json(answer);
                else
                        out_line("%s", id);
                return 0;
        }
        out_note("run %s", id);
        r = runs_follow_log(c, id, &status, err);
        if (r < 0)
                return r;
        runs_say_end(c, id, status, cli_printf(c, "; `berth runs show %s` says more", id));
        return runs_exit_status(status);
}

int cmd_agent_wake(struct cli *c, const struct args *a, struct err *err)
{
        json_t *agent, *answer, *body = cli_keep(c, json_object());
        int r = cli_find(c, &kind_agent, a->words[0], &agent, err);

        if (r >= 0)
                r = fill(c, a, body, err);
        if (r >= 0)
                r = cli_call(c, "POST",
                             cli_printf(c, "/api/agents/%s/wakeup", cli_text(agent, "id")),
                             json_incref(body), &answer, err);
        if (r == ERR_CONFLICT && streq(cli_text(agent, "status"), "paused"))
                return err_set(err, r, "%s is paused; `berth agent resume %s` lets it work again",
                               cli_text(agent, "name"), a->words[0]);
        if (r == ERR_CONFLICT)
                return err_wrap(err, r, "%s is %s", cli_text(agent, "name"),
                                cli_text(agent, "status"));
        return r < 0 ? r : show(c, a, answer, err);
}
