/* Which changes of issues wake which agents, and which changes end a run. Inside the write function
 * that makes the change.
 *
 *   an agent becomes its assignee            issue_assigned, unless the issue is in the backlog
 *   out of the backlog, or opened again      issue_assigned
 *   a comment by another author              issue_commented: the assignee, while it is open
 *   a comment that names an agent            issue_comment_mentioned
 *   a board caller takes it for an agent     issue_checked_out
 *   the last issue it waited for is done     issue_blockers_resolved: its assignee
 *   it gets another assignee                 its runs end, but not the one that gave it away
 *   another caller cancels it                its runs end
 *
 * Paused and terminated agents are not woken; that is not an error. */
#pragma once

#include "core/runs/run.h"
#include "store/issue_comments.h"
#include "store/issues.h"

struct issue_change_context {
        struct db *db;
        const struct op *op;
        struct runtime *rt;
        bool *kick; /* set when run_host_kick() is to follow the commit */
};

int issue_wake_created(const struct issue_change_context *x, const struct issue *issue,
                       struct err *err);
int issue_wake_changed(const struct issue_change_context *x, const struct issue *before,
                       const struct issue *issue, struct err *err);
int issue_wake_commented(const struct issue_change_context *x, const struct issue *issue,
                         const struct issue_comment *comment, struct err *err);
int issue_wake_taken(const struct issue_change_context *x, const struct issue *issue,
                     struct err *err);
/* A board caller's comment ends the runs for the issue. */
int issue_interrupt(const struct issue_change_context *x, const struct issue *issue,
                    struct err *err);

/* Collects the agents that a text names: `@name`, `@url-key`, `agent://id`. Only a limited number
 * of each kind counts: a text of nothing but `@` must not keep the writer from other work. Any
 * thread. */
#define ISSUE_MENTIONS_MAX 64
struct agent;
struct issue_mentions {
        const struct agent *agents;
        size_t n_agents;
        bool *named; /* as many */
};
void issue_find_mentions(const char *text, struct issue_mentions *mentions);
