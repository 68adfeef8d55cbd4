/* Runs as the API shows them. */
#include "api/encode_run.h"

#include "api/encode.h"
#include "base/clock.h"
#include "core/adapters/adapter_run.h"

#define SUMMARY_TEXT_MAX 500

/* -- Documents, whole and in short ------------------------------------------------------------ */

static json_t *parse(const char *text)
{
        json_t *v = NULL;

        if (text)
                (void)json_parse(text, strlen(text), &v, NULL);
        return v;
}

/* What lists show of a result: how it ended, not what it said. To be freed; NULL: nothing. */
static char *result_summary(const char *text)
{
        static const char *const members[] = { "summary",        "result",     "message",
                                               "error",          "stopReason", "timeoutFired",
                                               "total_cost_usd", "cost_usd",   "costUsd" };
        CLEAN(json_decrefp) json_t *result = parse(text), *shown = json_object();

        for (size_t i = 0; i < ARRAY_LEN(members); i++) {
                json_t *v = json_object_get(result, members[i]);
                size_t n = json_string_length(v);

                if (!v || json_is_object(v) || json_is_array(v))
                        continue;
                if (json_is_string(v) && n > SUMMARY_TEXT_MAX) {
                        const char *s = json_string_value(v);

                        for (n = SUMMARY_TEXT_MAX; n > 0 && ((unsigned char)s[n] & 0xc0) == 0x80;)
                                n--;
                        json_object_set_new(shown, members[i], json_stringn(s, n));
                } else {
                        json_object_set(shown, members[i], v);
                }
        }
        return json_object_size(shown) > 0 ? json_to_text(shown) : NULL;
}

static char *context_summary(const char *text)
{
        static const char *const members[] = { "issueId",    "taskId",           "taskKey",
                                               "commentId",  "wakeCommentId",    "wakeReason",
                                               "wakeSource", "wakeTriggerDetail" };
        CLEAN(json_decrefp) json_t *context = parse(text), *shown = json_object();

        for (size_t i = 0; i < ARRAY_LEN(members); i++) {
                json_t *v = json_object_get(context, members[i]);

                if (json_is_string(v))
                        json_object_set(shown, members[i], v);
        }
        return json_to_text(shown);
}

/* -- Members ---------------------------------------------------------------------------------- */

static void run_columns(struct jw *w, const struct run *r, bool full)
{
        CLEAN(cleanup_free) char *result = full ? NULL : result_summary(r->result_json);
        CLEAN(cleanup_free) char *context = full ? NULL : context_summary(r->context_snapshot);
        struct run shown = *r;

        if (!full) {
                shown.result_json = result;
                shown.context_snapshot = context;
                shown.stdout_excerpt = shown.stderr_excerpt = NULL;
        }
        encode_members(w, &run_table, &shown);
}

/* What Paperclip knows of a run and Berth does not. */
static void run_constants(struct jw *w, const struct run *r)
{
        jw_kstring(w, "logStore", r->log_ref ? "local_file" : NULL);
        jw_kbool(w, "logCompressed", false);
        jw_knull(w, "externalRunId");
        jw_kstring(w, "issueCommentStatus", "not_applicable");
        jw_knull(w, "issueCommentSatisfiedByCommentId");
        jw_knull(w, "issueCommentRetryQueuedAt");
        jw_knull(w, "nextAction");
        jw_knull(w, "responsibleUserId");
}

static void run_members(struct jw *w, const struct run *r, bool full)
{
        run_columns(w, r, full);
        run_constants(w, r);
        jw_key(w, "waiting"); /* of one that could not be prepared yet */
        if (r->waiting_reason) {
                jw_object(w);
                jw_kstring(w, "reason", r->waiting_reason);
                jw_ktime(w, "since", r->waiting_since);
                jw_ktime(w, "nextTryAt", r->next_try_at);
                jw_kint(w, "failures", r->prepare_failures);
                jw_object_end(w);
        } else {
                jw_null(w);
        }
        jw_key(w, "timeline"); /* when each part was over */
        jw_object(w);
        jw_ktime(w, "queuedAt", r->created_at);
        jw_ktime(w, "startedAt", r->started_at);
        jw_ktime(w, "leasedAt", r->leased_at);
        jw_ktime(w, "stagedAt", r->staged_at);
        jw_ktime(w, "spawnedAt", r->spawned_at);
        jw_ktime(w, "firstOutputAt", r->first_output_at);
        jw_ktime(w, "exitedAt", r->exited_at);
        jw_ktime(w, "restoredAt", r->restored_at);
        jw_ktime(w, "finishedAt", r->finished_at);
        jw_ktime(w, "releasedAt", r->released_at);
        jw_object_end(w);
}

/* -- Silence ---------------------------------------------------------------------------------- */

static void silence(struct jw *w, const struct run_view *v)
{
        const struct run *r = &v->run;
        struct run_silence s = run_silence(r, &v->decision, v->now_us);
        bool runs = s.since != 0;

        jw_key(w, "outputSilence");
        jw_object(w);
        jw_ktime(w, "lastOutputAt", r->last_output_at);
        jw_kint(w, "lastOutputSeq", r->last_output_seq);
        jw_kstring(w, "lastOutputStream", r->last_output_stream);
        jw_ktime(w, "silenceStartedAt", s.since);
        if (runs)
                jw_kint(w, "silenceAgeMs", s.age_ms);
        else
                jw_knull(w, "silenceAgeMs");
        jw_kstring(w, "level", s.level);
        jw_kint(w, "suspicionThresholdMs", RUN_SILENCE_SUSPICIOUS_MS);
        jw_kint(w, "criticalThresholdMs", RUN_SILENCE_CRITICAL_MS);
        jw_ktime(w, "snoozedUntil", s.snoozed_until);
        jw_kstring(w, "evaluationIssueId", runs ? v->decision.evaluation_issue_id : NULL);
        jw_knull(w, "evaluationIssueIdentifier");
        jw_knull(w, "evaluationIssueAssigneeAgentId");
        jw_object_end(w);
}

/* -- The forms -------------------------------------------------------------------------------- */

void encode_run(struct jw *w, const struct run *r)
{
        jw_object(w);
        run_members(w, r, true);
        jw_object_end(w);
}

void encode_run_view(struct jw *w, const struct run_view *v, bool full)
{
        CLEAN(buf_done) struct buf advice = BUF_INIT;

        jw_object(w);
        run_members(w, &v->run, full);
        jw_kstring(w, "runId", v->run.id);
        jw_kstring(w, "agentName", v->agent_name);
        jw_kstring(w, "adapterType", v->adapter_type);
        if (full && adapter_advice(v->adapter_type, v->agent_name, v->run.error_code, v->run.error,
                                   &advice))
                jw_kstring(w, "advice", buf_str(&advice));
        jw_kstring(w, "issueIdentifier", v->issue_identifier);
        jw_kstring(w, "issueTitle", v->issue_title);
        silence(w, v);
        jw_object_end(w);
}

void encode_run_event(struct jw *w, const struct run_event *e)
{
        encode_row(w, &run_event_table, e);
}

void encode_run_decision(struct jw *w, const struct run_decision *d)
{
        encode_row(w, &run_decision_table, d);
}
