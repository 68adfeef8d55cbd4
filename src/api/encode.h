/* Rows as the API shows them. One function per kind of object; absent values are null. */
#pragma once

#include "codec/json.h"
#include "core/agents/agent.h"
#include "core/environments/environment.h"
#include "core/issues/issue.h"
#include "core/leases/lease.h"
#include "core/secrets/secret.h"
#include "store/activity.h"
#include "store/companies.h"
#include "store/project_workspaces.h"
#include "store/vault_configs.h"
#include "store/workspaces.h"

/* The columns of a row that have a name in JSON (store/row.h): as members of the object that is
 * open, as an object, and as a member that is null without a row. */
void encode_members(struct jw *w, const struct row_type *type, const void *row);
void encode_row(struct jw *w, const struct row_type *type, const void *row);
void encode_row_or_null(struct jw *w, const char *key, const struct row_type *type,
                        const void *row);

void encode_company(struct jw *w, const struct company *c);
void encode_environment(struct jw *w, const struct runtime *rt, const struct environment *e,
                        bool redacted);
void encode_lease(struct jw *w, const struct lease *l);
/* {environment, lease, leaseContext} */
void encode_lease_record(struct jw *w, const struct runtime *rt, const struct lease_record *r);
/* Without `full` the configurations are blank. */
void encode_agent(struct jw *w, const struct agent *a, bool full);
void encode_agent_detail(struct jw *w, const struct agent_detail *d);
/* Without the values of members with sensitive names. */
void encode_agent_revision(struct jw *w, struct arena *arena,
                           const struct agent_config_revision *v);
/* With its workspaces, the primary one first. */
void encode_project(struct jw *w, const struct project *p,
                    const struct project_workspace *workspaces, size_t n);
void encode_issue(struct jw *w, const struct issue *i);
/* With the comment that was posted with the change, when there is one. */
void encode_issue_change(struct jw *w, const struct issue *i, const struct issue_comment *comment);
/* With what it belongs to and what it waits for. */
void encode_issue_detail(struct jw *w, const struct issue_detail *d);
/* The same, as an agent gets it at the start of a run. */
void encode_issue_context(struct jw *w, const struct issue_detail *d);
void encode_issue_task(struct jw *w, const struct issue_task *t);
void encode_document(struct jw *w, const struct issue_document *d, bool with_body);
void encode_execution_workspace(struct jw *w, const struct execution_workspace *e);
void encode_activity(struct jw *w, const struct activity *a);
