/* Shared by the files of `berth agent`. One thread. */
#ifndef BERTH_CLI_CMD_AGENT_H
#define BERTH_CLI_CMD_AGENT_H

#include "cli/command.h"

extern const struct cli_command cmd_agent_show;
extern const struct cli_command cmd_agent_update;
extern const struct cli_command cmd_agent_delete;
extern const struct cli_command cmd_agent_pause;
extern const struct cli_command cmd_agent_resume;
extern const struct cli_command cmd_agent_terminate;
extern const struct cli_command cmd_agent_wake;

#define AGENT_OPTIONS                                                                              \
        { "adapter", 0, OPTION_VALUE, "TYPE", "how it is run (default: process)" },                \
                { "role", 0, OPTION_VALUE, "ROLE", "engineer, qa, ceo and others (general)" },     \
                { "title", 0, OPTION_VALUE, "TEXT", "what it calls itself" },                      \
                { "reports-to", 0, OPTION_VALUE, "AGENT", "its manager" },                         \
                { "environment", 0, OPTION_VALUE, "ENV",                                           \
                  "where it works (the default of its company)" },                                 \
                { "every", 0, OPTION_VALUE, "TIME", "wake it so often: 30s, 15m, 2h" },            \
                { "cron", 0, OPTION_VALUE, "LINE", "wake it at these times, in UTC" },             \
                { "no-timer", 0, OPTION_FLAG, NULL, "do not wake it by the clock" },               \
                { "option", 'o', OPTION_LIST, "KEY=VALUE", "a member of its adapterConfig" },      \
        {                                                                                          \
                "config", 0, OPTION_VALUE, "JSON|@FILE", "its adapterConfig"                       \
        }

#define AGENT_ENV_OPTIONS                                                                          \
        { "env", 'e', OPTION_LIST, "K=V", "a variable of its commands" },                          \
        {                                                                                          \
                "secret-env", 0, OPTION_LIST, "K=SECRET[@VERSION]", "a variable from a secret"     \
        }

/* Set in `body` what AGENT_OPTIONS say, but for the configuration. */
int agent_fill(struct cli *c, const struct args *a, json_t *body, struct err *err);
/* Set in `body` what --every, --cron and --no-timer say; the rest of the runtimeConfig is that of
 * `agent` (NULL: a new one). cmd_agent_wake.c. */
int agent_timer(struct cli *c, const struct args *a, const json_t *agent, json_t *body,
                struct err *err);
/* Set in `env` what --env and --secret-env say. */
int agent_env_options(struct cli *c, const struct args *a, json_t *env, struct err *err);
/* As --json or as labelled values, its variables last. */
void agent_print(struct cli *c, const json_t *agent);

#endif
