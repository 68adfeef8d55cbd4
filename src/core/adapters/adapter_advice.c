/* Decides what a person is told to do about a run that failed: one sentence with the commands. */
#include "codec/shell.h"
#include "core/adapters/adapter_descriptor.h"
#include "core/adapters/adapter_expr.h"
#include "core/adapters/adapter_run.h"

#define NEW_SANDBOX                                                                                \
        "berth env create sandbox {{ name }} --for {{ type }}, then berth agent update "           \
        "{{ agent }} --environment {{ name }}"

/* `code` is the end of the run's error code; `error` the beginning of its text. The first that fits
 * counts. */
static const struct {
        const char *code, *error, *text;
} advices[] = {
        { "_auth_required", "",
          "Give the agent a key that works: berth secret create {{ key }} (or rotate, where it "
          "exists), then berth agent update {{ agent }} --secret-env {{ key }}" },
        { "_out_of_budget", "",
          "Add money to the account, or give the agent the key of another one: berth secret "
          "rotate {{ key }}" },
        { "_model_unavailable", "",
          "Choose another model: berth agent update {{ agent }} -o model=MODEL" },
        { "adapter_no_network", "",
          "Give the agent a sandbox that reaches its model: " NEW_SANDBOX },
        { "adapter_install_failed", "",
          "Give the agent a sandbox that can have its program: " NEW_SANDBOX },
        { "_unreachable", "",
          "See that the place reaches the hosts that berth adapter list shows; for a sandbox: " NEW_SANDBOX },
        { "adapter_failed", "cannot run '",
          "Install the program where the agent works: npm install -g {{ package }}" },
};

static bool ends_with(const char *text, const char *end)
{
        size_t len = strlen(text), end_len = strlen(end);

        return len >= end_len && streq(text + len - end_len, end);
}

bool adapter_advice(const char *type, const char *agent, const char *code, const char *error,
                    struct buf *ret)
{
        const struct adapter_descriptor *d = type ? adapter_find(type) : NULL;
        const char *package =
                d ? json_get_string(json_get_object(d->json, "install"), "npm") : NULL;
        CLEAN(json_decrefp) json_t *scope = NULL;
        CLEAN(buf_done) struct buf word = BUF_INIT;

        if (!d || !d->key || !agent || !code || !json_get_string(d->json, "command"))
                return false;
        shell_quote(&word, agent);
        scope = json_pack("{s:s, s:s, s:s, s:s, s:s*}", "type", type, "name", d->label, "agent",
                          buf_str(&word), "key", adapter_text(d, "keyVariable", "PROVIDER_API_KEY"),
                          "package", package);
        for (size_t i = 0; i < ARRAY_LEN(advices); i++) {
                if (!ends_with(code, advices[i].code) ||
                    !str_starts(error ? error : "", advices[i].error) ||
                    (!package && strstr(advices[i].text, "{{ package }}")))
                        continue;
                adapter_fill(ret, advices[i].text, scope);
                return true;
        }
        return false;
}
