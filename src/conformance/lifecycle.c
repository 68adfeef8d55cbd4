/* A lease's life when all goes well, and the answers that providers have to give on the way. */
#include "base/clock.h"
#include "conformance/conformance.h"

#define GREETING_SCRIPT "echo out; echo err >&2; cat; echo \"$GREETING\"; exit 3"

static int check_start(struct conformance *c, struct err *err)
{
        return plugin_host_start(&c->op, c->host, &c->spec, err);
}

static int check_methods(struct conformance *c, struct err *err)
{
        static const char *const needed[] = { "environmentValidateConfig", "environmentProbe",
                                              "environmentAcquireLease", "environmentReleaseLease",
                                              "environmentDestroyLease" };

        for (size_t i = 0; i < ARRAY_LEN(needed); i++)
                if (!plugin_host_supports(c->host, CONFORMANCE_PLUGIN, needed[i]))
                        return err_set(err, ERR_PROVIDER, "supportedMethods does not list %s",
                                       needed[i]);
        return 0;
}

static int check_validate(struct conformance *c, struct err *err)
{
        json_t *answer, *normalized, *first;
        int r = conformance_call(c, "environmentValidateConfig", NULL, 0, &answer, err);

        if (r < 0)
                return r;
        first = json_array_get(json_object_get(answer, "errors"), 0);
        if (!json_is_boolean(json_object_get(answer, "ok")))
                return err_set(err, ERR_PROVIDER, "the answer has no boolean `ok`");
        if (!json_is_true(json_object_get(answer, "ok")))
                return err_set(err, ERR_PROVIDER, "refused: %s; give a configuration with -o",
                               json_is_string(first) ? json_string_value(first) : "no errors");
        normalized = json_object_get(answer, "normalizedConfig");
        if (normalized && !json_is_object(normalized))
                return err_set(err, ERR_PROVIDER, "normalizedConfig is not an object");
        if (normalized)
                c->config = normalized;
        return 0;
}

/* Nonsense is refused in an answer, and the worker is there afterwards. */
static int validate_nonsense(struct conformance *c, struct err *err)
{
        json_t *answer,
                *nonsense = json_pack("{s:{s:{s:[i,n,b]}, s:s, s:i, s:n}}", "config", "nonsense",
                                      "deep", 1, 0, "timeoutMs", "soon", "image", 7, "apiKey");
        int r = conformance_call(c, "environmentValidateConfig", nonsense, 0, &answer, err);

        if (r < 0 && r != ERR_PROVIDER)
                return r;
        err_clear(err);
        return conformance_call(c, "health", NULL, 0, &answer, err);
}

static int check_probe(struct conformance *c, struct err *err)
{
        json_t *answer;
        int r = conformance_call(c, "environmentProbe", NULL, 120000, &answer, err);

        if (r < 0)
                return r;
        const char *summary = json_get_string(answer, "summary");
        if (!json_is_true(json_object_get(answer, "ok")))
                return err_set(err, ERR_PROVIDER, "not ok: %s", summary ? summary : "no summary");
        return 0;
}

static int check_acquire(struct conformance *c, struct err *err)
{
        json_t *lease = NULL;
        int r = conformance_acquire(c, &lease, err);

        if (r < 0)
                return r;
        c->lease = lease;
        c->cwd = json_get_string(json_object_get(lease, "metadata"), "remoteCwd");
        return 0;
}

static int check_realize(struct conformance *c, struct err *err)
{
        json_t *answer;
        int r = conformance_needs(c, "environmentRealizeWorkspace", true, err);

        if (r == 0)
                r = conformance_call(c, "environmentRealizeWorkspace",
                                     json_pack("{s:O, s:{s:s}}", "lease", c->lease, "workspace",
                                               "mode", "isolated"),
                                     0, &answer, err);
        if (r != 0)
                return r;
        if (!json_get_string(answer, "cwd"))
                return err_set(err, ERR_PROVIDER, "the answer has no text `cwd`");
        c->cwd = json_get_string(answer, "cwd");
        return 0;
}

static int expect_text(const json_t *answer, const char *member, const char *wanted,
                       struct err *err)
{
        const char *found = json_get_string(answer, member);

        if (found && streq(found, wanted))
                return 0;
        return err_set(err, ERR_PROVIDER, "%s is \"%.200s\", not \"%.200s\"", member,
                       found ? found : "(no text)", wanted);
}

static int expect_exit(const json_t *answer, int wanted, struct err *err)
{
        const json_t *code = json_object_get(answer, "exitCode");

        if (json_is_integer(code) && json_integer_value(code) == wanted)
                return 0;
        return err_set(err, ERR_PROVIDER, "exitCode is %lld, not %d",
                       (long long)json_integer_value(code), wanted);
}

static int check_execute(struct conformance *c, struct err *err)
{
        json_t *answer;
        int r = conformance_needs(c, "environmentExecute", true, err);

        if (r == 0)
                r = conformance_shell(c, GREETING_SCRIPT,
                                      json_pack("{s:s, s:{s:s}, s:i}", "stdin", "piped\n", "env",
                                                "GREETING", "hi", "timeoutMs", 20000),
                                      60000, &answer, err);
        if (r == 0)
                r = expect_exit(answer, 3, err);
        if (r == 0)
                r = expect_text(answer, "stdout", "out\npiped\nhi\n", err);
        if (r == 0)
                r = expect_text(answer, "stderr", "err\n", err);
        if (r == 0 && !json_is_false(json_object_get(answer, "timedOut")))
                r = err_set(err, ERR_PROVIDER, "timedOut is not false");
        return r;
}

/* A line reader that takes U+2028 for the end of a line loses the request. */
static int check_separators(struct conformance *c, struct err *err)
{
        static const char text[] = "a\xe2\x80\xa8"
                                   "b\xe2\x80\xa9"
                                   "c";
        json_t *answer;
        int r = conformance_needs(c, "environmentExecute", true, err);

        if (r == 0)
                r = conformance_shell(c, "cat", json_pack("{s:s}", "stdin", text), 30000, &answer,
                                      err);
        return r == 0 ? expect_text(answer, "stdout", text, err) : r;
}

static int large_output(struct conformance *c, struct err *err)
{
        json_t *answer;
        int r = conformance_needs(c, "environmentExecute", true, err);

        if (r == 0)
                r = conformance_shell(c, "head -c 4000000 /dev/zero | tr '\\0' x", NULL, 60000,
                                      &answer, err);
        if (r != 0)
                return r;
        size_t n = json_string_length(json_object_get(answer, "stdout"));
        return n == 4000000
                       ? 0
                       : err_set(err, ERR_PROVIDER, "of 4000000 bytes of output %zu arrived", n);
}

static int missing_command(struct conformance *c, struct err *err)
{
        json_t *answer;
        int r = conformance_needs(c, "environmentExecute", true, err);

        if (r != 0)
                return r;
        r = conformance_call(
                c, "environmentExecute",
                json_pack("{s:O, s:s}", "lease", c->lease, "command", "berth-no-such-command"),
                30000, &answer, err);
        if (r == ERR_PROVIDER) { /* an error is an answer, too */
                err_clear(err);
                return 0;
        }
        return r < 0 ? r : expect_exit(answer, 127, err);
}

static int check_resume(struct conformance *c, struct err *err)
{
        const char *id = json_get_string(c->lease, "providerLeaseId"), *found;
        json_t *answer;
        int r = conformance_needs(c, "environmentResumeLease", true, err);

        if (r == 0)
                r = conformance_call(c, "environmentResumeLease",
                                     json_pack("{s:s, s:O*}", "providerLeaseId", id,
                                               "leaseMetadata",
                                               json_object_get(c->lease, "metadata")),
                                     0, &answer, err);
        if (r != 0)
                return r;
        found = json_get_string(answer, "providerLeaseId");
        if (found && streq(found, id))
                return 0;
        return err_set(err, ERR_PROVIDER, "a lease that is held was resumed as \"%s\"",
                       found ? found : "(gone)");
}

static int resume_unknown(struct conformance *c, struct err *err)
{
        json_t *answer;
        int r = conformance_needs(c, "environmentResumeLease", false, err);

        if (r != 0)
                return r;
        r = conformance_call(c, "environmentResumeLease",
                             json_pack("{s:s}", "providerLeaseId", "berth-no-such-lease"), 0,
                             &answer, err);
        if (r == ERR_PROVIDER) {
                err_clear(err);
                return 0;
        }
        if (r >= 0 && json_get_string(answer, "providerLeaseId"))
                return err_set(err, ERR_PROVIDER, "a lease that never was is there");
        return r;
}

/* Twice, because the caller may have missed the first answer. */
static int give_up_twice(struct conformance *c, const char *method, struct err *err)
{
        int r = conformance_needs(c, method, true, err);

        for (int i = 0; r == 0 && i < 2; i++) {
                r = conformance_give_up(c, method, c->lease, err);
                if (r < 0 && i == 1)
                        (void)err_wrap(err, r, "the second time");
        }
        return r;
}

static int release_twice(struct conformance *c, struct err *err)
{
        return give_up_twice(c, "environmentReleaseLease", err);
}

static int destroy_twice(struct conformance *c, struct err *err)
{
        int r = give_up_twice(c, "environmentDestroyLease", err);

        c->lease = NULL;
        return r;
}

/* Two acquires are two sandboxes. */
static int two_leases(struct conformance *c, struct err *err)
{
        json_t *first = NULL, *second = NULL;
        int r = conformance_acquire(c, &first, err);

        if (r >= 0)
                r = conformance_acquire(c, &second, err);
        const char *a = json_get_string(first, "providerLeaseId");
        const char *b = json_get_string(second, "providerLeaseId");
        if (r >= 0 && streq(a, b))
                r = err_set(err, ERR_PROVIDER, "two runs were given the same lease");
        if (first)
                (void)conformance_give_up(c, "environmentDestroyLease", first, NULL);
        if (second)
                (void)conformance_give_up(c, "environmentDestroyLease", second, NULL);
        return r;
}

const struct conformance_check conformance_lifecycle[] = {
        { "the worker starts", check_start },
        { "it has the methods of a provider", check_methods },
        { "its configuration is accepted", check_validate },
        { "nonsense as configuration is answered", validate_nonsense },
        { "probe", check_probe },
        { "acquire", check_acquire },
        { "realize the workspace", check_realize },
        { "execute: arguments, input, variables, outputs, status", check_execute },
        { "execute: U+2028 and U+2029 pass", check_separators },
        { "execute: 4 MB of output", large_output },
        { "execute: a command that is not there", missing_command },
        { "resume", check_resume },
        { "resume of an unknown lease", resume_unknown },
        { "duplicate: release twice", release_twice },
        { "duplicate: destroy twice", destroy_twice },
        { "duplicate: two acquires, two leases", two_leases },
        { NULL, NULL },
};
