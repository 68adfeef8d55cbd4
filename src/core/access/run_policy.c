/* Decides whether and when an agent may work. */
#include "core/access/run_policy.h"

#include "codec/cron.h"

#define CONCURRENT_DEFAULT 20
#define CONCURRENT_MAX     50
#define FOLLOW_UPS_DEFAULT 2
#define FOLLOW_UPS_MAX     10
#define INTERVAL_MAX_S     (INT64_C(366) * 24 * 3600)

static bool heartbeat_flag(const json_t *heartbeat, const char *name, bool fallback)
{
        const json_t *v = json_object_get(heartbeat, name);

        return json_is_boolean(v) ? json_is_true(v) : fallback;
}

/* A whole number; 0 for anything else. */
static int64_t heartbeat_number(const json_t *heartbeat, const char *name)
{
        const json_t *v = json_object_get(heartbeat, name);

        return json_is_integer(v) ? json_integer_value(v) : 0;
}

void run_policy_read(const struct agent *agent, struct arena *arena, struct run_policy *ret)
{
        json_t *config = NULL;

        (void)json_parse(agent->runtime_config, strlen(agent->runtime_config), &config, NULL);
        const json_t *h = json_get_object(config, "heartbeat");
        *ret = (struct run_policy){ .wake_on_demand = heartbeat_flag(h, "wakeOnDemand", true) };
        ret->interval_s = heartbeat_number(h, "intervalSec");
        if (ret->interval_s > 0)
                ret->interval_s = MAX(RUN_INTERVAL_MIN_S, MIN(ret->interval_s, INTERVAL_MAX_S));
        else
                ret->interval_s = 0;
        ret->cron = arena_strdup(arena, json_get_string(h, "cron"));
        ret->timer = heartbeat_flag(h, "enabled", false) && (ret->interval_s > 0 || ret->cron);
        int64_t most = heartbeat_number(h, "maxConcurrentRuns");
        ret->max_concurrent = most > 0 ? MIN(most, CONCURRENT_MAX) : CONCURRENT_DEFAULT;
        ret->max_follow_ups = json_is_integer(json_object_get(h, "maxFollowUps"))
                                      ? heartbeat_number(h, "maxFollowUps")
                                      : FOLLOW_UPS_DEFAULT;
        ret->max_follow_ups = MAX(0, MIN(ret->max_follow_ups, FOLLOW_UPS_MAX));
        ret->silent_max_s = heartbeat_number(h, "cancelSilentSec");
        if (ret->silent_max_s > 0)
                ret->silent_max_s = MAX(RUN_INTERVAL_MIN_S, MIN(ret->silent_max_s, INTERVAL_MAX_S));
        json_decref(config);
}

int run_policy_check(const json_t *runtime_config, struct err *err)
{
        const json_t *h = json_get_object(runtime_config, "heartbeat");
        const json_t *line = json_object_get(h, "cron");
        struct cron cron;

        if (!line || json_is_null(line))
                return 0;
        if (!json_is_string(line))
                return err_set(err, ERR_UNPROCESSABLE, "heartbeat.cron has to be a text");
        if (cron_parse(json_string_value(line), &cron, err) < 0)
                return err_wrap(err, ERR_UNPROCESSABLE, "heartbeat.cron");
        return 0;
}

const char *run_agent_absence(const struct agent *agent)
{
        if (streq(agent->status, "terminated"))
                return "terminated";
        return streq(agent->status, "pending_approval") ? "pending approval" : NULL;
}

bool run_agent_is_invokable(const struct agent *agent)
{
        return !run_agent_absence(agent) && !streq(agent->status, "paused");
}

int run_agent_check(const struct agent *agent, struct err *err)
{
        if (run_agent_is_invokable(agent))
                return 0;
        int r = err_set(err, ERR_CONFLICT, RUN_NOT_INVOKABLE_TEXT);
        json_t *details = json_pack("{s:s}", "status", agent->status);
        if (err)
                err_details(err, json_to_text(details));
        json_decref(details);
        return r;
}
