/* Shared by the files of `berth issue`. One thread. */
#ifndef BERTH_CLI_CMD_ISSUE_H
#define BERTH_CLI_CMD_ISSUE_H

#include "cli/command.h"

/* cmd_issue_write.c */
int cmd_issue_create(struct cli *c, const struct args *a, struct err *err);
int cmd_issue_update(struct cli *c, const struct args *a, struct err *err);
int cmd_issue_checkout(struct cli *c, const struct args *a, struct err *err);
int cmd_issue_release(struct cli *c, const struct args *a, struct err *err);
/* cmd_issue_document.c */
int cmd_issue_document(struct cli *c, const struct args *a, struct err *err);

/* The path of an issue that was given by id or identifier, and what follows it. */
const char *issue_path(struct cli *c, const char *given, const char *rest);

#endif
