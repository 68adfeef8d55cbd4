/* The worktrees of execution workspaces: directories that Berth makes (workspace/git_worktree.h)
 * and removes again.
 *
 * The row of the execution workspace names the directory (worktree_path) from before it is made
 * until after it is removed. So what a crash leaves belongs to a row, and is finished or removed by
 * the next run or the sweeper. A worktree of an archived workspace is to be removed; it is archived
 * only when nothing is lost by that.
 *
 * One operation at a time on each; ERR_BUSY for others, which pass. The lock,
 * <data>/worktrees/<id>.lock, says where the worktree is, from before it is made until after it is
 * removed: it is found even when its row is gone. Operation threads. */
#pragma once

#include "core/runtime.h"
#include "rt/op.h"
#include "store/execution_workspaces.h"
#include "workspace/git_worktree.h"

bool worktree_is(const struct execution_workspace *w);
/* Its directory, for a new execution workspace: beneath `parent`, or a place in the repository that
 * is part of no workspace. In the arena. */
const char *worktree_path(struct arena *arena, const char *repository, const char *parent,
                          const char *branch, const char *id);
/* A branch from a template: {{issue.identifier}}, {{issue.title}}, {{slug}}, {{project.name}} …, in
 * characters that git and shells take. `value` returns the text of a name, or NULL. */
const char *worktree_branch(struct arena *arena, const char *template,
                            const char *(*value)(void *ctx, const char *name), void *ctx);

/* Make it unless it is there. */
int worktree_ensure(struct op *op, struct runtime *rt, const struct execution_workspace *w,
                    struct err *err);
/* Bring its branch into the project's repository. */
int worktree_publish(struct op *op, struct runtime *rt, const struct execution_workspace *w,
                     struct git_report *ret, struct err *err);
/* 1, or 0 when its directory is not there. */
int worktree_look(struct op *op, struct runtime *rt, const struct execution_workspace *w,
                  struct git_worktree_state *ret, struct err *err);
/* Those of a company that is deleted: commits come home, and the directory is removed unless
 * something would be lost with it. What stays has no row, and worktree_survey() finds it. */
int worktree_drop_all(struct op *op, struct runtime *rt, const char *company_id, struct err *err);
/* Directories that no row names, and rows whose directory is gone (is_missing). */
typedef void (*worktree_survey_fn)(void *ctx, bool is_missing, const char *id, const char *path);
int worktree_survey(struct op *op, struct runtime *rt, worktree_survey_fn fn, void *ctx,
                    struct err *err);
/* Remove those of archived workspaces. */
int worktree_sweep(struct op *op, struct runtime *rt, struct err *err);
