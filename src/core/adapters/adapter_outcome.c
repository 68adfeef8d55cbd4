/* Decides how a run ended, from the gathered output and the exit of the command. */
#define _GNU_SOURCE
#include <ctype.h>
#include <stdio.h>
#include <time.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "core/adapters/adapter_parse.h"

#define EPOCH_DIGITS 10
#define SUMMARY_MAX  ((size_t)64 << 10)

/* Bytes of a hostile program as a JSON string: sequences that a cut or the program itself made
 * invalid are replaced. */
static json_t *as_string(const struct buf *b)
{
        CLEAN(buf_done) struct buf quoted = BUF_INIT;
        json_t *value = NULL;
        const char *s = buf_str(b);
        size_t n = b->len;
        struct jw w;

        while (n > 0 && b->len == ADAPTER_EXCERPT_MAX && ((unsigned char)*s & 0xc0) == 0x80) {
                s++;
                n--;
        }
        jw_init(&w, &quoted);
        jw_string_n(&w, s, n);
        if (json_parse_lenient(buf_str(&quoted), quoted.len, &value, NULL) < 0)
                return json_string("");
        return value;
}

/* The beginning of the buffer, with bytes that are not text replaced: it goes into rows and events,
 * which hold only text. */
static const char *trimmed_copy(struct arena *arena, const struct buf *b, size_t max)
{
        CLEAN(buf_done) struct buf clean = BUF_INIT;
        const char *s = buf_str(b);
        size_t n = MIN(b->len, max), len;

        while (n > 0 && n < b->len && ((unsigned char)s[n] & 0xc0) == 0x80)
                n--;
        for (size_t at = 0; at < n; at += len) {
                if (utf8_next(s + at, n - at, &len, NULL))
                        buf_append(&clean, s + at, len);
                else
                        buf_puts(&clean, UTF8_REPLACEMENT);
        }
        return arena_strtrim(arena, buf_str(&clean));
}

/* Why it failed */

static bool is_trouble(const struct adapter_parser *p, const json_t *patterns)
{
        return adapter_like_any(patterns, buf_str(&p->failure), p->failure.len) ||
               adapter_like_any(patterns, buf_str(&p->error), p->error.len) ||
               adapter_like_any(patterns, buf_str(&p->trouble), p->trouble.len);
}

static json_t *rule_scope(const struct adapter_parser *p, const struct adapter_exit *exit)
{
        return json_pack("{s:o, s:{s:I}}", "event",
                         p->event ? json_incref(p->event) : json_object(), "exit", "code",
                         (json_int_t)exit->code);
}

static const json_t *find_rule(const struct adapter_parser *p, const struct adapter_exit *exit)
{
        CLEAN(json_decrefp) json_t *scope = rule_scope(p, exit);
        size_t i;
        json_t *rule;

        json_array_foreach(json_object_get(p->d->json, "errors"), i, rule)
        {
                const json_t *when = json_object_get(rule, "when");

                if ((when && adapter_holds(when, scope)) ||
                    is_trouble(p, json_object_get(rule, "like")))
                        return rule;
        }
        return NULL;
}

/* The first address, without the punctuation of the sentence around it. */
static const char *find_url(const struct buf *text, struct arena *arena)
{
        const char *s = strstr(buf_str(text), "https://");
        size_t n = s ? strcspn(s, " \t\r\n\"'<>`|\\") : 0;

        while (n > 0 && strchr(".,;:!?)]}", s[n - 1]))
                n--;
        return n > strlen("https://") ? arena_strndup(arena, s, n) : NULL;
}

/* When to try again */

/* `3pm`, `3:30 pm`, `15:30`: the next such time of this machine's clock. */
static int64_t clock_time(const char *s)
{
        int hour, minute = 0, n = 0;
        time_t now = (time_t)(clock_wall_us() / US_PER_S), at;
        struct tm tm;

        if (sscanf(s, "%2d%n", &hour, &n) != 1 || hour < 0 || hour > 23)
                return 0;
        s += n;
        if (*s == ':' && sscanf(s, ":%2d%n", &minute, &n) == 1)
                s += n;
        s += *s == ' ';
        if (strncasecmp(s, "pm", 2) == 0 && hour < 12)
                hour += 12;
        else if (strncasecmp(s, "am", 2) == 0 && hour == 12)
                hour = 0;
        if (minute < 0 || minute > 59 || !localtime_r(&now, &tm))
                return 0;
        tm.tm_hour = hour;
        tm.tm_min = minute;
        tm.tm_sec = 0;
        at = mktime(&tm);
        if (at <= now)
                at += 24 * 3600;
        return (int64_t)at * US_PER_S;
}

static int64_t read_time(const char *s)
{
        size_t digits = strspn(s, "0123456789");

        if (digits == EPOCH_DIGITS)
                return strtoll(s, NULL, 10) * US_PER_S;
        return digits == 1 || digits == 2 ? clock_time(s) : 0;
}

/* `1h 30m`, `20s`, `34.07s`, `5 minutes`, `45`: from now on. */
static int64_t read_duration(const char *s)
{
        static const struct {
                const char *unit;
                double seconds;
        } units[] = { { "ms", 0.001 }, { "s", 1 }, { "m", 60 }, { "h", 3600 }, { "d", 86400 } };
        double total = 0;
        char *end;

        for (;;) {
                double n = strtod(s, &end), seconds = 1;

                if (end == s || !(n >= 0) || n > 1e7)
                        break;
                s = end + strspn(end, " ");
                for (size_t i = 0; i < ARRAY_LEN(units); i++) {
                        if (!str_starts(s, units[i].unit))
                                continue;
                        seconds = units[i].seconds;
                        s += strspn(s, "abcdefghijklmnopqrstuvwxyz");
                        break;
                }
                total += n * seconds;
                s += strspn(s, " ");
        }
        return total > 0 ? clock_wall_us() + (int64_t)(total * 1e6) : 0;
}

static int64_t find_retry(const struct buf *text, const json_t *marks,
                          int64_t (*read)(const char *))
{
        size_t i;
        json_t *mark;

        json_array_foreach((json_t *)marks, i, mark)
        {
                const char *at = strcasestr(buf_str(text), json_string_value(mark));
                int64_t when = at ? read(at + json_string_length(mark)) : 0;

                if (when)
                        return when;
        }
        return 0;
}

static int64_t retry_time(const struct adapter_parser *p, const json_t *rule, bool *ret_named)
{
        const struct buf *const texts[] = { &p->failure, &p->error, &p->trouble };
        const json_t *seconds = json_object_get(rule, "retrySec");

        for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
                int64_t at = find_retry(texts[i], json_object_get(rule, "retryAt"), read_time);

                if (!at)
                        at = find_retry(texts[i], json_object_get(rule, "retryIn"), read_duration);
                *ret_named = at != 0;
                if (at)
                        return at;
        }
        return seconds ? clock_wall_us() + json_integer_value(seconds) * US_PER_S : 0;
}

static void apply_rule(const struct adapter_parser *p, const json_t *rule, struct arena *arena,
                       struct adapter_result *ret)
{
        const char *message = json_get_string(rule, "message"), *url;
        CLEAN(json_decrefp) json_t *scope = NULL;

        ret->error_code = json_get_string(rule, "code");
        ret->error_family = json_get_string(rule, "family");
        ret->clear_session = json_is_true(json_object_get(rule, "clearSession"));
        ret->retry_not_before = retry_time(p, rule, &ret->retry_named);
        if (message) {
                scope = json_pack("{s:s, s:s?}", "said", ret->error_message, "model",
                                  p->billing.model);
                ret->error_message = adapter_fill_arena(arena, message, scope);
        }
        if (!json_is_true(json_object_get(rule, "loginUrl")))
                return;
        url = find_url(&p->error, arena);
        url = url ? url : find_url(&p->trouble, arena);
        if (url)
                ret->error_meta = adapter_keep(arena, json_pack("{s:s}", "loginUrl", url));
}

/* How it ended */

static const char *exit_message(const struct adapter_parser *p, const struct adapter_exit *exit,
                                struct arena *arena)
{
        const char *line = trimmed_copy(arena, &p->first_error, SUMMARY_MAX);

        if (exit->code < 0 && exit->signal)
                return arena_printf(arena, "%s was ended by %s", p->d->label, exit->signal);
        return arena_printf(arena, "%s exited with code %lld%s%s", p->d->label,
                            (long long)exit->code, line ? ": " : "", line ? line : "");
}

static void set_failure(const struct adapter_parser *p, const struct adapter_exit *exit,
                        struct arena *arena, struct adapter_result *ret)
{
        const char *said =
                trimmed_copy(arena, p->failure.len ? &p->failure : &p->error, SUMMARY_MAX);
        const json_t *unknown = json_object_get(json_get_object(p->d->json, "session"), "unknown");
        const json_t *forced = json_object_get(p->output, "errorExit");
        const json_t *rule;

        ret->error_message = said ? said : exit_message(p, exit, arena);
        if (ret->exit_code == 0 && forced)
                ret->exit_code = json_integer_value(forced);
        if (p->resumed_id && is_trouble(p, unknown)) {
                ret->unknown_session = true;
                return;
        }
        rule = find_rule(p, exit);
        if (rule)
                apply_rule(p, rule, arena, ret);
}

/* For a command that we ended after its last word, that word decides how it ended. */
static struct adapter_exit real_ending(const struct adapter_parser *p,
                                       const struct adapter_exit *exit)
{
        struct adapter_exit how = *exit;

        how.was_asked = how.was_asked && p->said_last && !how.timed_out;
        if (how.was_asked) {
                how.code = p->error.len > 0;
                how.signal = NULL;
        }
        return how;
}

static void set_ending(const struct adapter_parser *p, const struct adapter_exit *exit,
                       struct arena *arena, struct adapter_result *ret)
{
        const char *unparsed = json_get_string(p->output, "unparsed");
        bool said = p->failure.len > 0 ||
                    (p->error.len > 0 && json_is_true(json_object_get(p->output, "errorFails")));

        ret->exit_code = exit->code;
        if (exit->timed_out) {
                ret->error_code = "timeout";
                ret->error_message = arena_printf(arena, "Timed out after %llds",
                                                  (long long)(p->timeout_ms / 1000));
        } else if (exit->code != 0 || said) {
                set_failure(p, exit, arena, ret);
        } else if (unparsed && !p->event) {
                ret->error_message = unparsed;
        }
}

static void set_http_ending(const struct adapter_parser *p, const struct adapter_exit *exit,
                            struct arena *arena, struct adapter_result *ret)
{
        const char *what = arena_printf(arena, "HTTP %s %s", p->method, p->url);
        bool good = exit->code >= 200 && exit->code < 300;

        ret->exit_code = good ? 0 : -1;
        if (exit->timed_out) {
                ret->error_code = "timeout";
                ret->error_message = arena_printf(arena, "%s timed out after %lldms", what,
                                                  (long long)p->timeout_ms);
        } else if (exit->code < 0) {
                ret->error_message = arena_printf(arena, "%s got no answer", what);
        } else if (!good) {
                ret->error_message = arena_printf(arena, "HTTP invoke failed with status %lld",
                                                  (long long)exit->code);
        } else {
                ret->summary = what;
        }
}

/* The agent's output */

static void set_session(const struct adapter_parser *p, json_t *totals, struct arena *arena,
                        struct adapter_result *ret)
{
        const char *id = trimmed_copy(arena, &p->session, ADAPTER_PATH_MAX * 4);

        if (ret->clear_session || ret->unknown_session)
                return;
        if (!id)
                id = arena_strdup(arena, p->resumed_id ? p->resumed_id : p->new_id);
        if (!id)
                return;
        ret->session_id = id;
        ret->session_display_id = id;
        ret->session_params =
                adapter_keep(arena, adapter_session_params(&p->in, p->cwd, id, totals));
}

/* Some programs count by session. What they counted before this run is taken off, and what they
 * count now is kept with the session. A number that fell was begun anew. A new reference. */
static json_t *own_counts(struct adapter_parser *p)
{
        json_t *totals = json_object(), *name;
        size_t i;

        json_array_foreach(json_object_get(p->output, "cumulative"), i, name)
        {
                double *n = adapter_counter(p, json_string_value(name));
                double before =
                        json_number_value(json_object_get(p->totals, json_string_value(name)));

                if (!n)
                        continue;
                if (*n > 0 || before > 0)
                        json_object_set_new(totals, json_string_value(name),
                                            json_real(*n > 0 ? *n : before));
                if (*n >= before)
                        *n -= before;
        }
        return totals;
}

static void set_usage(const struct adapter_parser *p, struct adapter_result *ret)
{
        ret->has_usage = p->has_usage;
        ret->input_tokens = (int64_t)p->input;
        ret->output_tokens = (int64_t)(p->output_tokens + p->reasoning);
        ret->cached_input_tokens = (int64_t)p->cached;
        ret->has_cost = p->has_cost && p->cost > 0;
        ret->cost_usd = p->cost;
}

static void set_billing(const struct adapter_parser *p, struct arena *arena,
                        struct adapter_result *ret)
{
        const char *model = trimmed_copy(arena, &p->model, ADAPTER_PATH_MAX);

        ret->provider = arena_strdup(arena, p->billing.provider);
        ret->biller = arena_strdup(arena, p->billing.biller);
        ret->billing_type = arena_strdup(arena, p->billing.type);
        ret->model = model ? model : arena_strdup(arena, p->billing.model);
}

static json_t *make_result(const struct adapter_parser *p)
{
        if (p->event)
                return json_deep_copy(p->event);
        return json_pack("{s:o, s:o}", "stdout", as_string(&p->out.tail), "stderr",
                         as_string(&p->err.tail));
}

void adapter_outcome(struct adapter_parser *p, const struct adapter_exit *exit, struct arena *arena,
                     struct adapter_result *ret)
{
        struct adapter_exit ending = real_ending(p, exit);
        struct adapter_result res = { 0 };
        json_t *totals;

        if (p->is_http) {
                set_http_ending(p, exit, arena, &res);
        } else {
                set_ending(p, &ending, arena, &res);
                res.as_said = ending.was_asked;
                res.summary =
                        trimmed_copy(arena, p->summary.len ? &p->summary : &p->text, SUMMARY_MAX);
        }
        totals = adapter_keep(arena, own_counts(p));
        set_session(p, totals, arena, &res);
        set_usage(p, &res);
        set_billing(p, arena, &res);
        res.result_json = adapter_keep(arena, make_result(p));
        if (p->question)
                res.question = adapter_keep(arena, json_incref(p->question));
        *ret = res;
}
