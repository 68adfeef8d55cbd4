/* Shared by the files of `berth issue`. One thread. */
#ifndef BERTH_CLI_CMD_ISSUE_H
#define BERTH_CLI_CMD_ISSUE_H

#include "cli/listing.h"

extern const struct cli_command cmd_issue_create;
extern const struct cli_command cmd_issue_update;
extern const struct cli_command cmd_issue_checkout;
extern const struct cli_command cmd_issue_release;
extern const struct cli_command cmd_issue_comment;
extern const struct cli_command cmd_issue_comments;
extern const struct cli_command cmd_issue_document;

/* The path of an issue that was given by id or identifier, and what follows it. */
const char *issue_path(struct cli *c, const char *given, const char *rest);
/* The path of the company's issues. */
int issues_path(struct cli *c, const char **ret, struct err *err);
/* As --json or as labelled values. */
void issue_print(struct cli *c, const json_t *issue);

#endif
