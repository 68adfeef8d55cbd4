/* Shared by the files of `berth workspace`. One thread. */
#ifndef BERTH_CLI_CMD_WORKSPACE_H
#define BERTH_CLI_CMD_WORKSPACE_H

#include "cli/command.h"

/* What a restore would do, as --json or as lines. */
void workspace_print_diff(struct cli *c, const json_t *diff);
void workspace_print_restored(struct cli *c, const json_t *report);
/* {localPath?} from --to. Heap; NULL with *err when there is no such directory. */
char *workspace_target_body(const struct args *a, struct err *err);

#endif
