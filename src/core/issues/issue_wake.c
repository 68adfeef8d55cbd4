/* Decides which changes of an issue wake which agents, and which end runs. */
#define _GNU_SOURCE
#include "core/issues/issue_wake.h"

#include <ctype.h>
#include <strings.h>

#include "core/issues/issue_internal.h"
#include "core/runs/run_internal.h"
#include "store/agents.h"

/* -- Waking ----------------------------------------------------------------------------------- */

static int wake_agent(const struct issue_change_context *x, const struct issue *i,
                      const char *agent_id, const char *source, const char *reason,
                      const char *comment_id, struct err *err)
{
        struct wake_request req = {
                .agent_id = agent_id,
                .source = source,
                .trigger_detail = "system",
                .reason = reason,
                .issue_id = i->id,
                .wake_comment_id = comment_id,
        };
        struct wake_result result;
        struct agent g;
        int r = agents_get(x->db, agent_id, x->op->arena, &g, err);

        if (r < 0 || !run_agent_is_invokable(&g))
                return r;
        json_t *payload = json_pack("{s:s, s:s*}", "issueId", i->id, "commentId", comment_id);
        req.payload = payload;
        r = run_wake_in(x->db, x->op, x->rt, &req, &result, err);
        json_decref(payload);
        if (r >= 0)
                *x->kick |= result.outcome == WAKE_QUEUED;
        return r;
}

static bool is_waiting(const struct issue *i)
{
        return !i->assignee_agent_id || streq(i->status, "backlog") || issue_is_closed(i);
}

int issue_wake_created(const struct issue_change_context *x, const struct issue *i, struct err *err)
{
        return is_waiting(i) ? 0
                             : wake_agent(x, i, i->assignee_agent_id, WAKE_ASSIGNMENT,
                                          WAKE_ASSIGNED, NULL, err);
}

int issue_wake_taken(const struct issue_change_context *x, const struct issue *i, struct err *err)
{
        if (x->op->actor->type != ACTOR_BOARD)
                return 0;
        return wake_agent(x, i, i->assignee_agent_id, WAKE_ASSIGNMENT, WAKE_TAKEN, NULL, err);
}

/* Issues that waited for this one and now wait for nothing. */
static int wake_dependents(const struct issue_change_context *x, const struct issue *i,
                           struct err *err)
{
        struct issue_rows all = { .arena = x->op->arena };
        int r = issue_blockers_list(x->db, i->id, true, x->op->arena, issue_collect, &all, err);

        for (size_t n = 0; r >= 0 && n < all.n; n++) {
                const struct issue *other = &all.at[n];
                int64_t open = 0;

                if (is_waiting(other))
                        continue;
                r = issue_blockers_open(x->db, other->id, &open, err);
                if (r >= 0 && open == 0)
                        r = wake_agent(x, other, other->assignee_agent_id, WAKE_AUTOMATION,
                                       WAKE_UNBLOCKED, NULL, err);
        }
        return r;
}

/* -- Ending runs ------------------------------------------------------------------------------ */

/* End the runs of one agent, or with NULL of all; never the calling run. */
static int end_runs(const struct issue_change_context *x, const struct issue *i,
                    const char *agent_id, const char *why, const char *code, struct err *err)
{
        struct run_filter filter = { .issue_id = i->id, .agent_id = agent_id, .live = true };
        struct run_rows rows = { .arena = x->op->arena };
        int r = runs_list(x->db, &filter, x->op->arena, run_rows_add, &rows, err);

        for (size_t n = 0; r >= 0 && n < rows.n; n++) {
                if (x->op->run_id && streq(x->op->run_id, rows.at[n].id))
                        continue;
                r = run_cancel_in(x->db, x->op, x->rt, &rows.at[n], why, code, err);
                *x->kick = true;
        }
        return r < 0 ? r : 0;
}

int issue_interrupt(const struct issue_change_context *x, const struct issue *i, struct err *err)
{
        return end_runs(x, i, NULL, "Interrupted by a comment", "cancelled", err);
}

/* -- Changes ---------------------------------------------------------------------------------- */

static bool is_assignee(const struct issue *i, const char *agent_id)
{
        return i->assignee_agent_id && agent_id && streq(i->assignee_agent_id, agent_id);
}

static int end_what_is_over(const struct issue_change_context *x, const struct issue *before,
                            const struct issue *i, struct err *err)
{
        if (before->assignee_agent_id && !is_assignee(i, before->assignee_agent_id))
                return end_runs(x, i, before->assignee_agent_id,
                                "The issue was assigned to somebody else", "issue_reassigned", err);
        if (streq(i->status, "cancelled") && !streq(before->status, "cancelled"))
                return end_runs(x, i, NULL, "The issue was cancelled", "issue_cancelled", err);
        return 0;
}

/* Whether there is something to do for the assignee that was not there before. */
static bool is_news(const struct issue *before, const struct issue *i)
{
        bool was_waiting = streq(before->status, "backlog") || issue_is_closed(before);

        return !is_assignee(before, i->assignee_agent_id) || was_waiting;
}

int issue_wake_changed(const struct issue_change_context *x, const struct issue *before,
                       const struct issue *i, struct err *err)
{
        int r = end_what_is_over(x, before, i, err);

        if (r >= 0 && is_news(before, i))
                r = issue_wake_created(x, i, err);
        if (r >= 0 && streq(i->status, "done") && !streq(before->status, "done"))
                r = wake_dependents(x, i, err);
        return r;
}

/* -- Comments --------------------------------------------------------------------------------- */

static bool is_word(char c)
{
        return isalnum((unsigned char)c) || c == '_' || c == '-' || (unsigned char)c >= 0x80;
}

/* The length of the name, if `text` begins with it as a whole word; else 0. */
static size_t match(const char *text, const char *name)
{
        size_t n = name ? strlen(name) : 0;

        return n > 0 && strncasecmp(text, name, n) == 0 && !is_word(text[n]) ? n : 0;
}

/* Note the agent with the longest name that begins here. */
static void note_name(const char *text, struct issue_mentions *m)
{
        size_t best = 0, which = 0;

        for (size_t i = 0; i < m->n_agents; i++) {
                size_t n = MAX(match(text, m->agents[i].name), match(text, m->agents[i].url_key));

                if (n > best) {
                        best = n;
                        which = i;
                }
        }
        if (best)
                m->named[which] = true;
}

/* Where a name may follow: not in the middle of an address, not before a blank. */
static bool is_mention(const char *text, const char *at)
{
        return (at == text || !is_word(at[-1])) && at[1] && !isspace((unsigned char)at[1]);
}

static void note_id(const char *text, struct issue_mentions *m)
{
        for (size_t i = 0; i < m->n_agents; i++)
                if (match(text, m->agents[i].id))
                        m->named[i] = true;
}

void issue_find_mentions(const char *text, struct issue_mentions *m)
{
        static const char scheme[] = "agent://";
        unsigned names = 0, ids = 0;

        for (const char *at = strchr(text, '@'); at && names < ISSUE_MENTIONS_MAX;
             at = strchr(at + 1, '@')) {
                if (!is_mention(text, at))
                        continue;
                note_name(at + 1, m);
                names++;
        }
        for (const char *at = strstr(text, scheme); at && ids < ISSUE_MENTIONS_MAX;
             at = strstr(at + 1, scheme), ids++)
                note_id(at + strlen(scheme), m);
}

struct agents {
        struct arena *arena;
        struct agent *at;
        size_t n, room;
};

static int collect_agent(void *ctx, const struct agent *row)
{
        struct agents *all = ctx;

        all->at = arena_more(all->arena, all->at, all->n, &all->room, sizeof(*all->at));
        all->at[all->n++] = *row;
        return 0;
}

static int wake_mentioned(const struct issue_change_context *x, const struct issue *i,
                          const struct issue_comment *c, struct err *err)
{
        struct agents all = { .arena = x->op->arena };

        if (!strchr(c->body, '@') && !strstr(c->body, "agent://"))
                return 0;
        int r = agents_list(x->db, i->company_id, x->op->arena, collect_agent, &all, err);
        if (r < 0)
                return r;
        struct issue_mentions m =
                (struct issue_mentions){ all.at, all.n,
                                         arena_alloc(x->op->arena, all.n * sizeof(bool)) };
        issue_find_mentions(c->body, &m);
        for (size_t n = 0; r >= 0 && n < all.n; n++) {
                const char *id = all.at[n].id;
                bool told = is_assignee(i, id) && !issue_is_closed(i);

                if (m.named[n] && !told && !(c->author_agent_id && streq(c->author_agent_id, id)))
                        r = wake_agent(x, i, id, WAKE_AUTOMATION, WAKE_MENTIONED, c->id, err);
        }
        return r;
}

int issue_wake_commented(const struct issue_change_context *x, const struct issue *i,
                         const struct issue_comment *c, struct err *err)
{
        bool is_own = is_assignee(i, c->author_agent_id);
        int r = 0;

        if (i->assignee_agent_id && !is_own && !issue_is_closed(i))
                r = wake_agent(x, i, i->assignee_agent_id, WAKE_AUTOMATION, WAKE_COMMENTED, c->id,
                               err);
        return r < 0 ? r : wake_mentioned(x, i, c, err);
}
