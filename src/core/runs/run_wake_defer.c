/* Wake-ups that wait for the run of their issue to end. Each agent has at most one per issue; later
 * wake-ups meanwhile are added to it and told to the same run. */
#include "base/clock.h"
#include "core/access/run_policy.h"
#include "core/issues/rules/issue_rules.h"
#include "core/runs/run_wake_internal.h"

#define WAKE_MEMBER "_wake"

int wake_tell_holder(struct wake *w, const char *run_id, struct wake_result *ret, struct err *err)
{
        struct agent holder;
        int r;

        *ret = (struct wake_result){ .outcome = WAKE_DEFERRED,
                                     .reason = WAKE_REASON_DEFERRED,
                                     .issue_id = w->issue.id };
        if (!run_id)
                return 0;
        r = runs_get(w->db, run_id, w->op->arena, &ret->run, err);
        if (r >= 0)
                r = agents_get(w->db, ret->run.agent_id, w->op->arena, &holder, err);
        if (r < 0)
                return r;
        ret->holder_agent_id = holder.id;
        ret->holder_agent_name = holder.name;
        return 0;
}

/* -- Deferring -------------------------------------------------------------------------------- */

/* What the run has to know besides the payload, over the wake-up that waits already (NULL:
 * none). */
static json_t *gather(const struct wake *w, const json_t *waiting)
{
        const char *comment = w->req->wake_comment_id;
        json_t *ids = json_deep_copy(json_object_get(waiting, "commentIds"));
        bool fresh = w->req->force_fresh_session ||
                     json_is_true(json_object_get(waiting, "forceFreshSession"));

        if (!json_is_array(ids)) {
                json_decref(ids);
                ids = json_array();
        }
        if (comment)
                json_array_append_new(ids, json_string(comment));
        else
                comment = json_get_string(waiting, "commentId");
        while (json_array_size(ids) > WAKE_COMMENTS_MAX)
                json_array_remove(ids, 0);
        return json_pack("{s:s?, s:o, s:b}", "commentId", comment, "commentIds", ids,
                         "forceFreshSession", fresh);
}

/* The payload, and the rest. `before` is the text of the waiting wake-up. */
static const char *pack(const struct wake *w, const char *before)
{
        json_t *payload = w->req->payload ? json_deep_copy(w->req->payload) : json_object();
        json_t *waiting = NULL;
        const char *text;

        if (before)
                (void)json_parse(before, strlen(before), &waiting, NULL);
        json_object_set_new(payload, WAKE_MEMBER, gather(w, json_get_object(waiting, WAKE_MEMBER)));
        text = json_to_arena(w->op->arena, payload);
        json_decref(payload);
        json_decref(waiting);
        return text;
}

static int insert(struct wake *w, const char *holder, struct err *err)
{
        struct wakeup row = wake_row(w, WAKEUP_DEFERRED);

        row.payload = pack(w, NULL);
        row.run_id = holder;
        return wakeups_insert(w->db, &row, err);
}

int wake_defer(struct wake *w, const char *holder, struct wake_result *ret, struct err *err)
{
        struct wakeup before;
        int r = wakeups_deferred_of(w->db, w->agent.id, w->issue.id, w->op->arena, &before, err);

        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                r = insert(w, holder, err);
        } else if (r >= 0) {
                r = wakeups_merge(w->db, before.id, WAKEUP_DEFERRED,
                                  w->req->reason ? w->req->reason : before.reason,
                                  pack(w, before.payload), err);
        }
        return r < 0 ? r : wake_tell_holder(w, holder, ret, err);
}

/* -- Taking up a deferred wake-up ------------------------------------------------------------- */

static void drop_json(void *arg)
{
        json_decref(arg);
}

/* The request as it was made. *ret_payload is a new reference; *ret_earlier goes with the arena. */
static struct wake_request unpack(const struct wakeup *row, struct arena *arena,
                                  json_t **ret_payload, const json_t **ret_earlier)
{
        struct wake_request q = {
                .agent_id = row->agent_id,
                .source = row->source,
                .trigger_detail = row->trigger_detail,
                .reason = row->reason,
                .issue_id = row->issue_id,
        };
        json_t *besides, *earlier;

        *ret_payload = NULL;
        if (row->payload)
                (void)json_parse(row->payload, strlen(row->payload), ret_payload, NULL);
        besides = json_get_object(*ret_payload, WAKE_MEMBER);
        q.wake_comment_id = arena_strdup(arena, json_get_string(besides, "commentId"));
        q.force_fresh_session = json_is_true(json_object_get(besides, "forceFreshSession"));
        earlier = json_incref(json_object_get(besides, "commentIds"));
        arena_defer(arena, drop_json, earlier);
        *ret_earlier = earlier;
        if (besides)
                json_object_del(*ret_payload, WAKE_MEMBER);
        if (json_object_size(*ret_payload) > 0)
                q.payload = *ret_payload;
        return q;
}

/* Whether the wake-up was for the issue's assignee, rather than for this agent. */
static bool is_for_assignee(const struct wake *w)
{
        static const char *const reasons[] = { WAKE_ASSIGNED, WAKE_COMMENTED, WAKE_TAKEN,
                                               WAKE_UNBLOCKED };

        for (size_t i = 0; w->req->reason && i < ARRAY_LEN(reasons); i++)
                if (streq(w->req->reason, reasons[i]))
                        return true;
        return false;
}

static bool is_assignee(const struct wake *w)
{
        return w->issue.assignee_agent_id && streq(w->issue.assignee_agent_id, w->agent.id);
}

/* Why the wake-up is not wanted any more; NULL when it is. */
static const char *obsolete(const struct wake *w)
{
        const char *status = w->issue.status;
        bool closed = streq(status, "done") || streq(status, "cancelled");

        if (!run_agent_is_invokable(&w->agent))
                return "agent_not_invokable";
        if (closed && !w->req->wake_comment_id)
                return "issue_closed";
        return is_for_assignee(w) && !is_assignee(w) ? "issue_reassigned" : NULL;
}

/* 1 when it became a run. */
static int promote(struct db *db, const struct op *op, const struct wakeup *row, bool *ret_kick,
                   struct err *err)
{
        json_t *payload;
        const json_t *earlier;
        struct wake_request req = unpack(row, op->arena, &payload, &earlier);
        struct wake w = { .db = db,
                          .op = op,
                          .req = &req,
                          .actor_type = row->requested_by_actor_type,
                          .actor_id = row->requested_by_actor_id,
                          .earlier = earlier,
                          .now = clock_now_us() };
        struct wake_result result;
        const char *why;
        int r = wake_load(&w, err);

        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                r = wakeups_move(db, row->id, WAKEUP_DEFERRED, WAKEUP_SKIPPED, NULL,
                                 "issue_not_found", w.now, err);
                json_decref(payload);
                return r < 0 ? r : 0;
        }
        why = r < 0 ? NULL : obsolete(&w);
        if (r >= 0 && why) {
                r = wakeups_move(db, row->id, WAKEUP_DEFERRED, WAKEUP_SKIPPED, NULL, why, w.now,
                                 err);
        } else if (r >= 0) {
                r = wake_queue(&w, row, &result, err);
                if (r > 0 && ret_kick)
                        *ret_kick = true;
        }
        json_decref(payload);
        return r < 0 ? r : (why ? 0 : r);
}

struct wakeup_rows {
        struct arena *arena;
        struct wakeup *at;
        size_t n, room;
};

static int collect(void *ctx, const struct wakeup *row)
{
        struct wakeup_rows *rows = ctx;

        rows->at = arena_more(rows->arena, rows->at, rows->n, &rows->room, sizeof(*rows->at));
        rows->at[rows->n++] = *row;
        return 0;
}

/* Promote unless a run works on the issue, which may be one that was just made for an earlier
 * row. */
static int promote_free(struct db *db, const struct op *op, const struct wakeup *row,
                        bool *ret_kick, struct err *err)
{
        const char *holder = NULL;
        struct issue issue;
        int r = issues_get(db, row->issue_id, op->arena, &issue, err);

        if (r >= 0)
                r = issue_active_run(db, op, &issue, &holder, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                r = 0;
        }
        return r < 0 || holder ? r : promote(db, op, row, ret_kick, err);
}

int run_wake_promote_all(struct db *db, const struct op *op, struct runtime *rt UNUSED,
                         bool *ret_kick, struct err *err)
{
        struct wakeup_rows rows = { .arena = op->arena };
        int r = wakeups_deferred(db, op->arena, collect, &rows, err);

        for (size_t n = 0; r >= 0 && n < rows.n; n++)
                r = promote_free(db, op, &rows.at[n], ret_kick, err);
        return r < 0 ? r : 0;
}

int run_wake_promote_in(struct db *db, const struct op *op, struct runtime *rt UNUSED,
                        const struct run *ended, bool *ret_kick, struct err *err)
{
        struct wakeup_rows rows = { .arena = op->arena };
        int r = wakeups_deferred_after(db, ended->id, ended->issue_id, op->arena, collect, &rows,
                                       err);

        for (size_t n = 0; r >= 0 && n < rows.n; n++)
                r = promote_free(db, op, &rows.at[n], ret_kick, err);
        return r < 0 ? r : 0;
}
