/* Decides when a run that prints nothing is reported, and when it is ended. */
#include "core/runs/run_silence.h"

#include "base/clock.h"
#include "base/log.h"
#include "core/runs/run_internal.h"

/* -- How silent ----------------------------------------------------------------------------------
 */

struct run_silence run_silence(const struct run *run, const struct run_decision *decision,
                               int64_t now_us)
{
        struct run_silence s = { .level = "not_applicable" };
        bool decided;

        if (!streq(run->status, RUN_RUNNING))
                return s;
        s.since = run->last_output_at ? run->last_output_at : run->started_at;
        s.age_ms = MAX(now_us - s.since, 0) / US_PER_MS;
        decided = decision->id && decision->created_at > run->last_output_at;
        if (decision->snoozed_until > now_us)
                s.snoozed_until = decision->snoozed_until;
        s.is_excused = decided &&
                       (s.snoozed_until || streq(decision->decision, "dismissed_false_positive"));
        if (s.is_excused)
                s.level = s.snoozed_until ? "snoozed" : "ok";
        else if (s.age_ms >= RUN_SILENCE_CRITICAL_MS)
                s.level = "critical";
        else
                s.level = s.age_ms >= RUN_SILENCE_SUSPICIOUS_MS ? "suspicious" : "ok";
        return s;
}

/* -- What follows --------------------------------------------------------------------------------
 */

static bool was_said(const struct run *run, const struct run_silence *s)
{
        return run->silence_level && streq(run->silence_level, s->level) &&
               run->silence_noted_at > s->since;
}

struct watch {
        struct op *op;
        struct runtime *rt;
        const char *id;
        int64_t now;
        bool *kick;
};

static int silence_note(struct db *db, struct watch *w, const struct run *run,
                        const struct run_silence *s, struct err *err)
{
        char at[ISO_TIME_LEN + 1];
        int r;

        if (was_said(run, s) || !(streq(s->level, "suspicious") || streq(s->level, "critical")))
                return 0;
        clock_iso(s->since, at);
        r = runs_note_silence(db, run->id, s->level, w->now, err);
        return r <= 0 ? r
                      : run_event_add(db, w->rt, run, "lifecycle",
                                      streq(s->level, "critical") ? "error" : "warn",
                                      arena_printf(w->op->arena, "no output for %lld min: %s",
                                                   (long long)(s->age_ms / 60000), s->level),
                                      json_pack("{s:s, s:s, s:I}", "level", s->level,
                                                "silenceStartedAt", at, "silenceAgeMs",
                                                (json_int_t)s->age_ms),
                                      err);
}

static int silence_judge(struct db *db, void *arg, struct err *err)
{
        struct watch *w = arg;
        struct arena *a = w->op->arena;
        struct run_decision decision;
        struct run_policy policy;
        struct run_silence s;
        struct agent agent;
        struct run run;
        int r = runs_get(db, w->id, a, &run, err);

        if (r >= 0)
                r = run_decisions_last(db, run.id, a, &decision, err);
        if (r >= 0)
                r = agents_get(db, run.agent_id, a, &agent, err);
        if (r < 0)
                return r;
        s = run_silence(&run, &decision, w->now);
        r = silence_note(db, w, &run, &s, err);
        run_policy_read(&agent, a, &policy);
        if (r < 0 || s.is_excused || !streq(run.step, STEP_EXECUTING) || policy.silent_max_s <= 0 ||
            s.age_ms < policy.silent_max_s * 1000)
                return r;
        *w->kick = true;
        return run_cancel_in(db, w->op, w->rt, &run,
                             arena_printf(a, "Cancelled because it printed nothing for %lld s",
                                          (long long)(s.age_ms / 1000)),
                             "output_silence", err);
}

/* Whether the run has to be looked at in a transaction of its own. */
static int silence_is_due(struct db *db, struct watch *w, const struct run *run, bool *ret,
                          struct err *err)
{
        struct run_decision decision;
        struct run_policy policy;
        struct run_silence s;
        struct agent agent;
        int r = run_decisions_last(db, run->id, w->op->arena, &decision, err);

        if (r >= 0)
                r = agents_get(db, run->agent_id, w->op->arena, &agent, err);
        if (r < 0)
                return r;
        s = run_silence(run, &decision, w->now);
        run_policy_read(&agent, w->op->arena, &policy);
        *ret = !s.is_excused &&
               ((s.age_ms >= RUN_SILENCE_SUSPICIOUS_MS && !was_said(run, &s)) ||
                (policy.silent_max_s > 0 && s.age_ms >= policy.silent_max_s * 1000));
        return 0;
}

static int silence_find(struct watch *w, struct run_rows *silent, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct run_rows rows = { .arena = w->op->arena };
        bool due;
        int r = store_read_begin(w->op, w->rt->store, &db, err);

        if (r >= 0)
                r = runs_silent(db, w->now - RUN_INTERVAL_MIN_S * US_PER_S, w->op->arena,
                                run_rows_add, &rows, err);
        for (size_t n = 0; r >= 0 && n < rows.n; n++) {
                r = silence_is_due(db, w, &rows.at[n], &due, err);
                if (r >= 0 && due)
                        r = run_rows_add(silent, &rows.at[n]);
        }
        return r;
}

int run_silence_watch(struct op *op, struct runtime *rt, int64_t now_us, bool *ret_kick,
                      struct err *err)
{
        struct watch w = { .op = op, .rt = rt, .now = now_us, .kick = ret_kick };
        struct run_rows silent = { .arena = op->arena };
        int r = silence_find(&w, &silent, err);

        for (size_t n = 0; r >= 0 && n < silent.n; n++) {
                w.id = silent.at[n].id;
                r = store_write(op, rt->store, silence_judge, &w, err);
        }
        return MIN(r, 0);
}
