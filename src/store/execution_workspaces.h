/* Rows of `execution_workspaces`, as far as issues need them. */
#ifndef BERTH_STORE_EXECUTION_WORKSPACES_H
#define BERTH_STORE_EXECUTION_WORKSPACES_H

#include "store/db.h"

/* The metadata of a workspace of the company: a JSON object or NULL. ERR_NOT_FOUND "Execution
 * workspace not found". */
int execution_workspaces_metadata(struct db *db, const char *company_id, const char *id,
                                  struct arena *arena, const char **ret, struct err *err);
int execution_workspaces_set_metadata(struct db *db, const char *id, const char *metadata,
                                      int64_t now_us, struct err *err);

#endif
