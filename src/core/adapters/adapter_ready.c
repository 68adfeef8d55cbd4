/* Decides whether a command may start in a place: its session belongs to that directory, and its
 * model is available. The input comes from the place, and is hostile. */
#include "base/clock.h"
#include "codec/host_pattern.h"
#include "core/adapters/adapter_internal.h"
#include "core/kinds/kind.h"
#include "core/kinds/provision.h"

#define DETAIL_MAX 240
#define MODEL_MAX  128
#define SHOWN_MAX  12

const char *adapter_first_line(struct arena *arena, const char *text)
{
        CLEAN(buf_done) struct buf quoted = BUF_INIT;
        json_t *value = NULL;
        size_t n;
        struct jw w;

        text += strspn(text, " \t\r\n");
        n = MIN(strcspn(text, "\r\n"), (size_t)DETAIL_MAX);
        jw_init(&w, &quoted);
        jw_string_n(&w, text, n);
        if (json_parse_lenient(buf_str(&quoted), quoted.len, &value, NULL) < 0)
                return NULL;
        return json_string_value(adapter_keep(arena, value));
}

const char *adapter_stamp(struct arena *arena, int64_t us)
{
        char iso[ISO_TIME_LEN + 1];
        char *stamp;

        clock_iso(us, iso);
        iso[ISO_TIME_LEN - 1] = '\0'; /* to the microsecond, which no two runs share */
        stamp = arena_printf(arena, "%s%03dZ", iso, (int)(us % US_PER_MS));
        for (char *at = stamp; (at = strpbrk(at, ":.")); at++)
                *at = '-';
        return stamp;
}

/* Sessions */

bool adapter_session_fits(const json_t *header, const char *text, size_t len)
{
        CLEAN(json_decrefp) json_t *line = NULL;
        const char *end = memchr(text, '\n', len);
        const char *name;
        json_t *wanted;

        if (end)
                len = (size_t)(end - text);
        if (json_parse(text, len, &line, NULL) < 0 || !json_is_object(line))
                return false;
        json_object_foreach((json_t *)header, name, wanted)
        {
                if (!json_equal(wanted, json_object_get(line, name)))
                        return false;
        }
        return true;
}

/* Models */

struct listed {
        struct buf shown; /* the first names */
        size_t n;
        bool found;
};

static bool is_shown(const char *name, size_t len)
{
        for (size_t i = 0; i < len; i++)
                if (name[i] <= ' ' || name[i] > '~')
                        return false;
        return len <= MODEL_MAX;
}

/* The first word of each line that has a slash in it. */
static void read_list(const char *text, const char *model, struct listed *ret)
{
        for (; *text; text += strcspn(text, "\n"), text += *text == '\n') {
                size_t len;

                text += strspn(text, " \t\r");
                len = strcspn(text, " \t\r\n");
                if (!memchr(text, '/', len))
                        continue;
                if (strlen(model) == len && memcmp(text, model, len) == 0)
                        ret->found = true;
                if (ret->n++ < SHOWN_MAX && is_shown(text, len))
                        buf_appendf(&ret->shown, "%s%.*s", ret->shown.len ? ", " : "", (int)len,
                                    text);
        }
}

static const char *shown_command(struct arena *arena, const struct adapter_command *c)
{
        const char *shown = NULL;

        for (const char *const *arg = c->list_argv; *arg; arg++)
                shown = shown ? arena_printf(arena, "%s %s", shown, *arg) : *arg;
        return shown;
}

const char *adapter_model_fault(struct arena *arena, const struct adapter_input *input,
                                const struct adapter_command *command,
                                const struct provision_end *how)
{
        const struct adapter_descriptor *d = adapter_find(input->type);
        const char *shown = shown_command(arena, command), *model = command->billing.model, *line;
        CLEAN(buf_done) struct buf names = BUF_INIT;
        struct listed all = { 0 };

        if (how->timed_out)
                return arena_printf(arena, "`%s` timed out after %llds.", shown,
                                    (long long)(command->list_timeout_ms / 1000));
        if (!how->has_code || how->code != 0) {
                line = adapter_first_line(arena, how->err);
                line = line && *line ? line : adapter_first_line(arena, how->out);
                return arena_printf(arena, "`%s` failed%s%s", shown, line && *line ? ": " : ".",
                                    line ? line : "");
        }
        if (!model)
                return NULL;
        read_list(how->out, model, &all);
        names = all.shown;
        if (all.found)
                return NULL;
        if (all.n == 0)
                return arena_printf(arena,
                                    "%s names no models. Run `%s` there and see that it is logged "
                                    "in with a provider.",
                                    d->label, shown);
        return arena_printf(arena, "Configured %s model is unavailable: %s. Available models: %s%s",
                            d->label, model, buf_str(&names), all.n > SHOWN_MAX ? ", ..." : "");
}

/* The network */

static bool is_allowed(const json_t *allowed, const char *host)
{
        struct host_target target;
        size_t i;
        json_t *entry;

        if (host_target_parse(host, strlen(host), 443, &target, NULL) < 0)
                return true; /* it cannot be judged */
        json_array_foreach((json_t *)allowed, i, entry)
        {
                struct host_pattern pattern;

                if (json_is_string(entry) &&
                    host_pattern_parse(json_string_value(entry), json_string_length(entry),
                                       &pattern, NULL) >= 0 &&
                    host_pattern_matches(&pattern, &target))
                        return true;
        }
        return false;
}

/* Whether the agent reaches the service in another way: its hosts are then not the descriptor's. */
static bool has_own_way(const struct adapter_draft *draft)
{
        static const char *const proxies[] = { "HTTPS_PROXY", "https_proxy", "ALL_PROXY",
                                               "all_proxy" };
        const json_t *env = json_object_get(draft->scope, "env");
        size_t k;
        json_t *when;

        for (size_t i = 0; i < ARRAY_LEN(proxies); i++)
                if (adapter_is_set(json_object_get(env, proxies[i])))
                        return true;
        json_array_foreach(json_object_get(draft->d->json, "baseUrl"), k, when)
        {
                if (adapter_holds(when, draft->scope))
                        return true;
        }
        return false;
}

const char *adapter_network_fault(struct arena *arena, const struct adapter_input *input)
{
        struct adapter_draft draft = { .arena = arena,
                                       .d = adapter_find(input->type),
                                       .in = input };
        const char *own = draft.d ? json_get_string(draft.d->json, "command") : NULL;
        const char *command = adapter_trimmed(arena, json_object_get(input->config, "command"));
        const char *label = input->target.kind ? input->target.kind->label : "";
        size_t i, k;
        json_t *one, *host;

        if (!own || (command && !streq(command, own)) ||
            (!input->target.is_offline && !input->target.allowed))
                return NULL;
        adapter_draft_begin(&draft);
        if (has_own_way(&draft))
                return NULL;
        json_array_foreach(json_object_get(draft.d->json, "hosts"), i, one)
        {
                const json_t *when = json_object_get(one, "when");
                json_t *single =
                        json_is_string(one) ? adapter_keep(arena, json_pack("[O]", one)) : NULL;

                if (when && !adapter_holds(when, draft.scope))
                        continue;
                json_array_foreach(single ? single : json_object_get(one, "hosts"), k, host)
                {
                        const char *name = json_string_value(host);

                        if (input->target.is_offline)
                                return arena_printf(
                                        arena,
                                        "%s needs %s, and this %s has no network: allow "
                                        "it with -o network=allowlist -o "
                                        "'allowedHosts:=[\"%s\"]', or make one with "
                                        "berth env create sandbox NAME --for %s",
                                        draft.d->label, name, label, name, input->type);
                        if (!is_allowed(input->target.allowed, name))
                                return arena_printf(
                                        arena,
                                        "%s needs %s, which is not in allowedHosts of this %s: "
                                        "add it there; or, where the agent uses another address, "
                                        "say so in its env (docs/adapters.md, Network)",
                                        draft.d->label, name, label);
                }
        }
        return NULL;
}
