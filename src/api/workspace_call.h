/* What the routes of workspaces and salvages share. */
#pragma once

#include "api/api.h"
#include "core/workspaces/workspace.h"

/* Let the call take as long as moving a tree may take. */
void call_take_time(struct call *c);
/* A body of {localPath?}. */
int call_local_path(struct call *c, const char **ret, struct err *err);
int answer_restored(struct call *c, const struct restore_report *report);
