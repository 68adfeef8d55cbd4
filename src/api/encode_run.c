/* Runs as the API shows them. */
#include "api/encode_run.h"

#include "base/clock.h"

#define SUMMARY_TEXT_MAX 500

/* -- Documents, whole and in short ------------------------------------------------------------ */

static json_t *parse(const char *text)
{
        json_t *v = NULL;

        if (text)
                (void)json_parse(text, strlen(text), &v, NULL);
        return v;
}

/* What lists show of a result: how it ended, not what it said. */
static void result_summary(struct jw *w, const char *text)
{
        static const char *const members[] = { "summary",        "result",     "message",
                                               "error",          "stopReason", "timeoutFired",
                                               "total_cost_usd", "cost_usd",   "costUsd" };
        json_t *result = parse(text), *shown = json_object();

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
        jw_kvalue(w, "resultJson", json_object_size(shown) ? shown : NULL);
        json_decref(shown);
        json_decref(result);
}

static void context_summary(struct jw *w, const char *text)
{
        static const char *const members[] = { "issueId",    "taskId",           "taskKey",
                                               "commentId",  "wakeCommentId",    "wakeReason",
                                               "wakeSource", "wakeTriggerDetail" };
        json_t *context = parse(text), *shown = json_object();

        for (size_t i = 0; i < ARRAY_LEN(members); i++) {
                json_t *v = json_object_get(context, members[i]);

                if (json_is_string(v))
                        json_object_set(shown, members[i], v);
        }
        jw_kvalue(w, "contextSnapshot", shown);
        json_decref(shown);
        json_decref(context);
}

/* -- Members ---------------------------------------------------------------------------------- */

/* 0 reads as unknown. */
static void number_or_null(struct jw *w, const char *key, int64_t n)
{
        if (n)
                jw_kint(w, key, n);
        else
                jw_knull(w, key);
}

static void outcome(struct jw *w, const struct run *r)
{
        jw_kstring(w, "status", r->status);
        jw_ktime(w, "startedAt", r->started_at);
        jw_ktime(w, "finishedAt", r->finished_at);
        jw_kstring(w, "error", r->error);
        jw_kstring(w, "wakeupRequestId", r->wakeup_request_id);
        if (r->exit_code >= 0)
                jw_kint(w, "exitCode", r->exit_code);
        else
                jw_knull(w, "exitCode");
        jw_kstring(w, "signal", r->signal);
        jw_kraw(w, "usageJson", r->usage_json);
}

static void output(struct jw *w, const struct run *r, bool full)
{
        jw_kstring(w, "sessionIdBefore", r->session_id_before);
        jw_kstring(w, "sessionIdAfter", r->session_id_after);
        jw_kstring(w, "logStore", r->log_ref ? "local_file" : NULL);
        jw_kstring(w, "logRef", r->log_ref);
        number_or_null(w, "logBytes", r->log_bytes);
        jw_kstring(w, "logSha256", r->log_sha256);
        jw_kbool(w, "logCompressed", false);
        jw_kstring(w, "stdoutExcerpt", full ? r->stdout_excerpt : NULL);
        jw_kstring(w, "stderrExcerpt", full ? r->stderr_excerpt : NULL);
        jw_kbool(w, "incomplete", r->is_incomplete);
        jw_kstring(w, "errorCode", r->error_code);
        jw_knull(w, "externalRunId");
        number_or_null(w, "processPid", r->process_pid);
        number_or_null(w, "processGroupId", r->process_group_id);
        jw_ktime(w, "processStartedAt", r->process_started_at);
        jw_ktime(w, "lastOutputAt", r->last_output_at);
        jw_kint(w, "lastOutputSeq", r->last_output_seq);
        jw_kstring(w, "lastOutputStream", r->last_output_stream);
        number_or_null(w, "lastOutputBytes", r->last_output_bytes);
}

static void retries(struct jw *w, const struct run *r)
{
        jw_kstring(w, "retryOfRunId", r->retry_of_run_id);
        jw_kint(w, "processLossRetryCount", r->process_loss_retry_count);
        jw_ktime(w, "scheduledRetryAt", r->scheduled_retry_at);
        jw_kint(w, "scheduledRetryAttempt", r->scheduled_retry_attempt);
        jw_kstring(w, "scheduledRetryReason", r->scheduled_retry_reason);
        jw_kstring(w, "issueCommentStatus", "not_applicable");
        jw_knull(w, "issueCommentSatisfiedByCommentId");
        jw_knull(w, "issueCommentRetryQueuedAt");
        jw_knull(w, "livenessState");
        jw_knull(w, "livenessReason");
        jw_kint(w, "continuationAttempt", 0);
        jw_knull(w, "lastUsefulActionAt");
        jw_knull(w, "nextAction");
}

/* When each part was over. */
static void timeline(struct jw *w, const struct run *r)
{
        jw_key(w, "timeline");
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

/* Of one that could not be prepared yet. */
static void waiting(struct jw *w, const struct run *r)
{
        if (!r->waiting_reason) {
                jw_knull(w, "waiting");
                return;
        }
        jw_key(w, "waiting");
        jw_object(w);
        jw_kstring(w, "reason", r->waiting_reason);
        jw_ktime(w, "since", r->waiting_since);
        jw_ktime(w, "nextTryAt", r->next_try_at);
        jw_kint(w, "failures", r->prepare_failures);
        jw_object_end(w);
}

static void members(struct jw *w, const struct run *r, bool full)
{
        jw_kstring(w, "id", r->id);
        jw_kstring(w, "companyId", r->company_id);
        jw_kstring(w, "agentId", r->agent_id);
        jw_kstring(w, "invocationSource", r->invocation_source);
        jw_kstring(w, "triggerDetail", r->trigger_detail);
        outcome(w, r);
        if (full)
                jw_kraw(w, "resultJson", r->result_json);
        else
                result_summary(w, r->result_json);
        output(w, r, full);
        retries(w, r);
        if (full)
                jw_kraw(w, "contextSnapshot", r->context_snapshot);
        else
                context_summary(w, r->context_snapshot);
        jw_ktime(w, "createdAt", r->created_at);
        jw_ktime(w, "updatedAt", r->updated_at);
        jw_kstring(w, "step", r->step);
        waiting(w, r);
        jw_kstring(w, "issueId", r->issue_id);
        jw_kstring(w, "taskKey", r->task_key);
        jw_kstring(w, "environmentId", r->environment_id);
        jw_kstring(w, "leaseId", r->lease_id);
        jw_kstring(w, "executionId", r->execution_id);
        timeline(w, r);
}

/* -- Silence ---------------------------------------------------------------------------------- */

static const char *silence_level(const struct run_view *v, int64_t age_ms)
{
        const struct run_decision *d = &v->decision;
        bool decided = d->id && d->created_at > v->run.last_output_at;

        if (decided && d->snoozed_until > v->now_us)
                return "snoozed";
        if (decided && streq(d->decision, "dismissed_false_positive"))
                return "ok";
        if (age_ms >= RUN_SILENCE_CRITICAL_MS)
                return "critical";
        return age_ms >= RUN_SILENCE_SUSPICIOUS_MS ? "suspicious" : "ok";
}

static void silence(struct jw *w, const struct run_view *v)
{
        const struct run *r = &v->run;
        bool runs = streq(r->status, RUN_RUNNING);
        int64_t since = r->last_output_at ? r->last_output_at : r->started_at;
        int64_t age_ms = MAX(v->now_us - since, 0) / US_PER_MS;
        bool snoozed = runs && v->decision.snoozed_until > v->now_us;

        jw_key(w, "outputSilence");
        jw_object(w);
        jw_ktime(w, "lastOutputAt", r->last_output_at);
        jw_kint(w, "lastOutputSeq", r->last_output_seq);
        jw_kstring(w, "lastOutputStream", r->last_output_stream);
        jw_ktime(w, "silenceStartedAt", runs ? since : 0);
        if (runs)
                jw_kint(w, "silenceAgeMs", age_ms);
        else
                jw_knull(w, "silenceAgeMs");
        jw_kstring(w, "level", runs ? silence_level(v, age_ms) : "not_applicable");
        jw_kint(w, "suspicionThresholdMs", RUN_SILENCE_SUSPICIOUS_MS);
        jw_kint(w, "criticalThresholdMs", RUN_SILENCE_CRITICAL_MS);
        jw_ktime(w, "snoozedUntil", snoozed ? v->decision.snoozed_until : 0);
        jw_kstring(w, "evaluationIssueId", runs ? v->decision.evaluation_issue_id : NULL);
        jw_knull(w, "evaluationIssueIdentifier");
        jw_knull(w, "evaluationIssueAssigneeAgentId");
        jw_object_end(w);
}

/* -- The forms -------------------------------------------------------------------------------- */

void encode_run(struct jw *w, const struct run *r)
{
        jw_object(w);
        members(w, r, true);
        jw_object_end(w);
}

void encode_run_view(struct jw *w, const struct run_view *v, bool full)
{
        jw_object(w);
        members(w, &v->run, full);
        jw_kstring(w, "runId", v->run.id);
        jw_kstring(w, "agentName", v->agent_name);
        jw_kstring(w, "adapterType", v->adapter_type);
        jw_kstring(w, "issueIdentifier", v->issue_identifier);
        jw_kstring(w, "issueTitle", v->issue_title);
        jw_knull(w, "retryExhaustedReason");
        silence(w, v);
        jw_object_end(w);
}

void encode_run_event(struct jw *w, const struct run_event *e)
{
        jw_object(w);
        jw_kstring(w, "id", e->id);
        jw_kstring(w, "companyId", e->company_id);
        jw_kstring(w, "runId", e->run_id);
        jw_kstring(w, "agentId", e->agent_id);
        jw_kint(w, "seq", e->seq);
        jw_kstring(w, "eventType", e->event_type);
        jw_kstring(w, "stream", e->stream);
        jw_kstring(w, "level", e->level);
        jw_kstring(w, "color", e->color);
        jw_kstring(w, "message", e->message);
        jw_kraw(w, "payload", e->payload);
        jw_ktime(w, "createdAt", e->created_at);
        jw_object_end(w);
}

void encode_run_decision(struct jw *w, const struct run_decision *d)
{
        jw_object(w);
        jw_kstring(w, "id", d->id);
        jw_kstring(w, "companyId", d->company_id);
        jw_kstring(w, "runId", d->run_id);
        jw_kstring(w, "evaluationIssueId", d->evaluation_issue_id);
        jw_kstring(w, "decision", d->decision);
        jw_ktime(w, "snoozedUntil", d->snoozed_until);
        jw_kstring(w, "reason", d->reason);
        jw_kstring(w, "createdByAgentId", d->created_by_agent_id);
        jw_kstring(w, "createdByUserId", d->created_by_user_id);
        jw_kstring(w, "createdByRunId", d->created_by_run_id);
        jw_ktime(w, "createdAt", d->created_at);
        jw_object_end(w);
}
