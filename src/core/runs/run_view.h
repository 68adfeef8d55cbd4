/* Views of runs beyond their rows (run.h): the agent and issue of a run, how long it has been
 * silent, which issues it touched. The actor's rights are checked. Operation threads; results in
 * the operation's arena. */
#pragma once

#include "core/runs/run.h"
#include "core/runs/run_silence.h"
#include "store/issues.h"
#include "store/workspaces.h"

struct run_view {
        struct run run;
        const char *agent_name, *adapter_type;      /* NULL: the agent is gone */
        const char *issue_identifier, *issue_title; /* NULL: there is no issue */
        struct run_decision decision;               /* the last one; id NULL: none */
        int64_t now_us;
};

typedef int (*run_view_fn)(void *ctx, const struct run_view *view);

int run_view_get(struct op *op, struct runtime *rt, const char *run_id, struct run_view *ret,
                 struct err *err);
/* Newest first: of the filter's company, or of an issue, given by id or identifier. */
int run_view_list(struct op *op, struct runtime *rt, const char *issue_ref,
                  const struct run_filter *filter, run_view_fn fn, void *ctx, struct err *err);
/* The run that works on the issue, or will next: 1, or 0 when there is none. */
int run_view_active(struct op *op, struct runtime *rt, const char *issue_ref, struct run_view *ret,
                    struct err *err);

int run_view_events(struct op *op, struct runtime *rt, const char *run_id, int64_t after_seq,
                    int64_t limit, run_event_fn fn, void *ctx, struct err *err);
/* Issues that the run was for, took, or changed. An unknown run has none. */
int run_view_issues(struct op *op, struct runtime *rt, const char *run_id, issue_fn fn, void *ctx,
                    struct err *err);
/* The workspace that was brought in for the run. */
int run_view_operations(struct op *op, struct runtime *rt, const char *run_id, workspace_row_fn fn,
                        void *ctx, struct err *err);

/* One of these, of any run. ERR_NOT_FOUND. */
int run_view_operation(struct op *op, struct runtime *rt, const char *id, struct workspace_row *ret,
                       struct err *err);

/* Whether the actor may decide about a silent run. */
int run_decide_check(struct op *op, struct runtime *rt, const char *run_id, struct err *err);
/* Record a decision about a silent run: `row` has decision, reason, snoozed_until and
 * evaluation_issue_id; the rest is set here. `continue` without a time is one for
 * RUN_SILENCE_CONTINUE_MS. */
int run_decide(struct op *op, struct runtime *rt, const char *run_id, struct run_decision *row,
               struct err *err);
