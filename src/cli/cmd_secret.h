/* Shared by the files of `berth secret` and `berth vault`. One thread. */
#ifndef BERTH_CLI_CMD_SECRET_H
#define BERTH_CLI_CMD_SECRET_H

#include "cli/command.h"

/* cmd_secret_write.c */
int cmd_secret_create(struct cli *c, const struct args *a, struct err *err);
int cmd_secret_link(struct cli *c, const struct args *a, struct err *err);
int cmd_secret_rotate(struct cli *c, const struct args *a, struct err *err);
int cmd_secret_delete(struct cli *c, const struct args *a, struct err *err);
int cmd_secret_import(struct cli *c, const struct args *a, struct err *err);

/* Say what became of each that was to be taken up; the exit status. */
int secret_imported(struct cli *c, const json_t *answer);

#endif
