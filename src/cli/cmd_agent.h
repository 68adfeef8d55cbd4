/* Shared by the files of `berth agent`. One thread. */
#ifndef BERTH_CLI_CMD_AGENT_H
#define BERTH_CLI_CMD_AGENT_H

#include "cli/command.h"

extern const struct cli_command cmd_agent_show;
extern const struct cli_command cmd_agent_update;
extern const struct cli_command cmd_agent_delete;

#define AGENT_ENV_OPTIONS                                                                          \
        { "env", 'e', OPTION_LIST, "K=V", "a variable of its commands" },                          \
        {                                                                                          \
                "secret-env", 0, OPTION_LIST, "K=SECRET[@VERSION]", "a variable from a secret"     \
        }

/* Set in `env` what --env and --secret-env say. */
int agent_env_options(struct cli *c, const struct args *a, json_t *env, struct err *err);
/* As --json or as labelled values, its variables last. */
void agent_print(struct cli *c, const json_t *agent);

#endif
