/* Shared by the files of `berth plugin`. One thread. */
#ifndef BERTH_CLI_CMD_PLUGIN_H
#define BERTH_CLI_CMD_PLUGIN_H

#include "cli/command.h"

/* cmd_plugin_change.c */
int cmd_plugin_install(struct cli *c, const struct args *a, struct err *err);
int cmd_plugin_upgrade(struct cli *c, const struct args *a, struct err *err);
int cmd_plugin_uninstall(struct cli *c, const struct args *a, struct err *err);
/* cmd_plugin_config.c */
int cmd_plugin_config(struct cli *c, const struct args *a, struct err *err);
/* cmd_plugin_conformance.c */
int cmd_plugin_conformance(struct cli *c, const struct args *a, struct err *err);

/* "/api/plugins/<id or key><rest>". */
const char *plugin_path(struct cli *c, const char *given, const char *rest);
/* The exit status after a change: 1 when the plugin does not run. */
int plugin_exit_status(const json_t *plugin);

#endif
