/* Shared by the files of `berth plugin`. One thread. */
#ifndef BERTH_CLI_CMD_PLUGIN_H
#define BERTH_CLI_CMD_PLUGIN_H

#include "cli/command.h"

extern const struct cli_command cmd_plugin_install;
extern const struct cli_command cmd_plugin_upgrade;
extern const struct cli_command cmd_plugin_approve;
extern const struct cli_command cmd_plugin_enable;
extern const struct cli_command cmd_plugin_disable;
extern const struct cli_command cmd_plugin_uninstall;
extern const struct cli_command cmd_plugin_config;
extern const struct cli_command cmd_plugin_conformance;

/* "/api/plugins/<id or key><rest>". */
const char *plugin_path(struct cli *c, const char *given, const char *rest);
/* As --json or as labelled values. */
void plugin_print(struct cli *c, const json_t *plugin);

#endif
