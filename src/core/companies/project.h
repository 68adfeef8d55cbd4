/* Projects: groups of issues, with variables and a choice of environment for all of them. Everybody
 * in the company may write, agents included; agent_fields.h and env_select.h say what an agent may
 * not set. `reference` is an id, or a slug in company_id. Operation threads; results in the
 * operation's arena. */
#pragma once

#include "codec/body.h"
#include "core/access/access.h"
#include "store/project_workspaces.h"
#include "store/projects.h"

/* What is wanted of a workspace of a project. */
struct project_workspace_patch {
        struct project_workspace row;
        struct body body;
};
extern const struct body_type project_workspace_body;

/* What is wanted of a project. */
struct project_patch {
        struct project row;
        struct body body;
        json_t *env, *policy; /* NULL: not given, or none is wanted */
        json_t *goal_ids;
        const char *goal_id;
        json_t *workspace_json; /* of a new project, its first workspace; NULL: it has none */
        struct project_workspace_patch workspace;
};
extern const struct body_type project_body;

int project_create(struct op *op, struct runtime *rt, const char *company_id,
                   const struct project_patch *patch, struct project *ret, struct err *err);
/* company_id may be NULL. */
int project_get(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
                struct project *ret, struct err *err);
int project_update(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
                   const struct project_patch *patch, struct project *ret, struct err *err);
/* Board users only. ERR_CONFLICT while work is done in it, or kept in a directory that Berth made
 * for it. */
int project_delete(struct op *op, struct runtime *rt, const char *reference, const char *company_id,
                   struct project *ret, struct err *err);

/* Workspaces. The first one of a project is its primary one, and when that goes, the oldest of the
 * others is. A directory counts on this machine only when somebody named it who may decide what
 * runs there (execution_workspaces.h). */

/* *ret: an array in the operation's arena. Returns how many. */
int project_workspace_list(struct op *op, struct runtime *rt, const char *project,
                           struct project_workspace **ret, struct err *err);
/* With `id` that one is changed; without, one is made. */
int project_workspace_put(struct op *op, struct runtime *rt, const char *project, const char *id,
                          const struct project_workspace_patch *patch,
                          struct project_workspace *ret, struct err *err);
int project_workspace_delete(struct op *op, struct runtime *rt, const char *project, const char *id,
                             struct project_workspace *ret, struct err *err);
/* 403 for agents; ERR_UNPROCESSABLE: there are no runtime services here. */
int project_workspace_control(struct op *op, struct runtime *rt, const char *project,
                              const char *id, const char *action, struct err *err);

/* For project.c and project_workspace.c: inside store functions. */
int project_load(struct db *db, struct op *op, const char *reference, const char *company_id,
                 bool write, struct project *ret, struct err *err);
int project_workspace_write(struct db *db, struct op *op, struct runtime *rt,
                            const struct project *project,
                            const struct project_workspace_patch *patch, bool is_new,
                            struct project_workspace *row, struct err *err);
