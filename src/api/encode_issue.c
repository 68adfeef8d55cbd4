/* Issues and what belongs to them, as the API shows them. */
#include "api/encode.h"

static void issue_members(struct jw *w, const struct issue *i)
{
        encode_members(w, &issue_table, i);
        jw_knull(w, "goalId");
        jw_kraw(w, "labels", "[]");
        jw_kraw(w, "labelIds", "[]");
        jw_knull(w, "assigneeAdapterOverrides");
        jw_knull(w, "executionAgentNameKey");
        jw_knull(w, "responsibleUserId");
        jw_knull(w, "reviewPolicy");
}

void encode_issue(struct jw *w, const struct issue *i)
{
        jw_object(w);
        issue_members(w, i);
        jw_object_end(w);
}

void encode_issue_change(struct jw *w, const struct issue *i, const struct issue_comment *comment)
{
        jw_object(w);
        issue_members(w, i);
        if (comment->id) {
                jw_key(w, "comment");
                encode_row(w, &issue_comment_table, comment);
        }
        jw_object_end(w);
}

/* Enough to know them by. */
static void summaries(struct jw *w, const char *key, const struct issue_rows *rows,
                      bool with_assignee)
{
        jw_key(w, key);
        jw_array(w);
        for (size_t n = 0; n < rows->n; n++) {
                const struct issue *i = &rows->at[n];

                jw_object(w);
                jw_kstring(w, "id", i->id);
                jw_kstring(w, "identifier", i->identifier);
                jw_kstring(w, "title", i->title);
                jw_kstring(w, "status", i->status);
                jw_kstring(w, "priority", i->priority);
                if (with_assignee) {
                        jw_kstring(w, "assigneeAgentId", i->assignee_agent_id);
                        jw_kstring(w, "assigneeUserId", i->assignee_user_id);
                }
                jw_object_end(w);
        }
        jw_array_end(w);
}

static const struct issue_document *find_document(const struct issue_detail *d, const char *key)
{
        for (size_t n = 0; n < d->n_documents; n++)
                if (streq(d->documents[n].key, key))
                        return &d->documents[n];
        return NULL;
}

static void document_or_null(struct jw *w, const char *name, const struct issue_document *d)
{
        jw_key(w, name);
        if (d)
                encode_document(w, d, true);
        else
                jw_null(w);
}

static void workspace_or_null(struct jw *w, const struct execution_workspace *e)
{
        jw_key(w, "currentExecutionWorkspace");
        if (e->id)
                encode_execution_workspace(w, e);
        else
                jw_null(w);
}

void encode_issue_detail(struct jw *w, const struct issue_detail *d)
{
        jw_object(w);
        issue_members(w, &d->issue);
        summaries(w, "ancestors", &d->ancestors, false);
        summaries(w, "blockedBy", &d->blocked_by, true);
        summaries(w, "blocks", &d->blocks, true);
        jw_kraw(w, "relatedWork", "{\"outbound\":[],\"inbound\":[]}");
        jw_key(w, "project");
        if (d->project.id)
                encode_project(w, &d->project, d->project_workspaces, d->n_project_workspaces);
        else
                jw_null(w);
        jw_knull(w, "goal");
        workspace_or_null(w, &d->workspace);
        jw_kraw(w, "workProducts", "[]");
        document_or_null(w, "planDocument", find_document(d, "plan"));
        jw_key(w, "documentSummaries");
        jw_array(w);
        for (size_t n = 0; n < d->n_documents; n++)
                encode_document(w, &d->documents[n], false);
        jw_array_end(w);
        jw_object_end(w);
}

static void context_issue(struct jw *w, const struct issue_detail *d)
{
        const struct issue *i = &d->issue;

        jw_key(w, "issue");
        jw_object(w);
        jw_kstring(w, "id", i->id);
        jw_kstring(w, "identifier", i->identifier);
        jw_kstring(w, "title", i->title);
        jw_kstring(w, "description", i->description);
        jw_kstring(w, "status", i->status);
        jw_kstring(w, "workMode", i->work_mode);
        jw_kstring(w, "priority", i->priority);
        jw_kstring(w, "projectId", i->project_id);
        jw_knull(w, "goalId");
        jw_kstring(w, "parentId", i->parent_id);
        summaries(w, "blockedBy", &d->blocked_by, true);
        summaries(w, "blocks", &d->blocks, true);
        jw_kstring(w, "assigneeAgentId", i->assignee_agent_id);
        jw_kstring(w, "assigneeUserId", i->assignee_user_id);
        jw_kstring(w, "originKind", i->origin_kind);
        jw_kstring(w, "originId", i->origin_id);
        jw_ktime(w, "updatedAt", i->updated_at);
        jw_object_end(w);
}

static void context_project(struct jw *w, const struct project *p)
{
        jw_key(w, "project");
        if (!p->id) {
                jw_null(w);
                return;
        }
        jw_object(w);
        jw_kstring(w, "id", p->id);
        jw_kstring(w, "name", p->name);
        jw_kstring(w, "status", p->status);
        jw_object_end(w);
}

void encode_issue_context(struct jw *w, const struct issue_detail *d)
{
        jw_object(w);
        context_issue(w, d);
        summaries(w, "ancestors", &d->ancestors, false);
        context_project(w, &d->project);
        jw_knull(w, "goal");
        jw_key(w, "commentCursor");
        jw_object(w);
        jw_kint(w, "totalComments", d->n_comments);
        jw_kstring(w, "latestCommentId", d->newest.id);
        jw_ktime(w, "latestCommentAt", d->newest.created_at);
        jw_object_end(w);
        encode_row_or_null(w, "wakeComment", &issue_comment_table, d->wake.id ? &d->wake : NULL);
        jw_kraw(w, "attachments", "[]");
        document_or_null(w, "continuationSummary", find_document(d, "continuation-summary"));
        workspace_or_null(w, &d->workspace);
        jw_object_end(w);
}

static void active_run(struct jw *w, const struct run *r)
{
        jw_key(w, "activeRun");
        if (!r->id) {
                jw_null(w);
                return;
        }
        jw_object(w);
        jw_kstring(w, "id", r->id);
        jw_kstring(w, "status", r->status);
        jw_kstring(w, "agentId", r->agent_id);
        jw_kstring(w, "invocationSource", r->invocation_source);
        jw_kstring(w, "triggerDetail", r->trigger_detail);
        jw_ktime(w, "startedAt", r->started_at);
        jw_ktime(w, "createdAt", r->created_at);
        jw_object_end(w);
}

void encode_issue_task(struct jw *w, const struct issue_task *t)
{
        const struct issue *i = t->issue;

        jw_object(w);
        jw_kstring(w, "id", i->id);
        jw_kstring(w, "identifier", i->identifier);
        jw_kstring(w, "title", i->title);
        jw_kstring(w, "status", i->status);
        jw_kstring(w, "priority", i->priority);
        jw_kstring(w, "projectId", i->project_id);
        jw_knull(w, "goalId");
        jw_kstring(w, "parentId", i->parent_id);
        jw_ktime(w, "updatedAt", i->updated_at);
        active_run(w, &t->active);
        jw_kbool(w, "dependencyReady", t->unresolved.n == 0);
        jw_kint(w, "unresolvedBlockerCount", (int64_t)t->unresolved.n);
        jw_key(w, "unresolvedBlockerIssueIds");
        jw_array(w);
        for (size_t n = 0; n < t->unresolved.n; n++)
                jw_string(w, t->unresolved.at[n].id);
        jw_array_end(w);
        jw_object_end(w);
}

void encode_document(struct jw *w, const struct issue_document *d, bool with_body)
{
        jw_object(w);
        encode_members(w, &issue_document_table, d);
        jw_knull(w, "lockedAt"); /* Berth locks none */
        jw_knull(w, "lockedByAgentId");
        jw_knull(w, "lockedByUserId");
        if (with_body)
                jw_kstring(w, "body", d->body);
        jw_object_end(w);
}
