/* `berth agent pause|resume|terminate`. */
#include "cli/cmd_agent.h"
#include "cli/listing.h"

static int act(struct cli *c, const struct args *a, const char *action, json_t *take_body,
               struct err *err)
{
        json_t *agent, *body = cli_keep(c, take_body);
        int r = cli_agent(c, a->words[0], &agent, err);

        if (r >= 0)
                r = cli_call(c, "POST",
                             cli_printf(c, "/api/agents/%s/%s", cli_text(agent, "id"), action),
                             json_incref(body), &agent, err);
        if (r >= 0)
                agent_print(c, agent);
        return r < 0 ? r : 0;
}

static int run_pause(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = json_object();
        int r = body_set(body, "reason", args_value(a, "reason"), err);

        if (r < 0)
                json_decref(body);
        return r < 0 ? r : act(c, a, "pause", body, err);
}

static int run_resume(struct cli *c, const struct args *a, struct err *err)
{
        return act(c, a, "resume", json_object(), err);
}

static int run_terminate(struct cli *c, const struct args *a, struct err *err)
{
        int r = cli_confirm(cli_printf(c, "Terminate %s for ever?", a->words[0]), err);

        return r < 0 ? r : act(c, a, "terminate", json_object(), err);
}

static const struct cli_option pause_options[] = {
        { "reason", 0, OPTION_VALUE, "TEXT", "why (manual)" },
        { 0 },
};

const struct cli_command cmd_agent_pause = {
        .name = "pause",
        .synopsis = "AGENT [--reason TEXT]",
        .summary = "Let an agent do nothing until it is resumed",
        .example = "berth agent pause Ada --reason 'over budget'",
        .options = pause_options,
        .run = run_pause,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_agent_resume = {
        .name = "resume",
        .synopsis = "AGENT",
        .summary = "Let a paused agent work again",
        .example = "berth agent resume Ada",
        .run = run_resume,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_agent_terminate = {
        .name = "terminate",
        .synopsis = "AGENT",
        .summary = "End an agent for ever: its keys and its secrets go",
        .example = "berth agent terminate Ada",
        .run = run_terminate,
        .min_words = 1,
        .max_words = 1,
};
