/* Which checks a provider must pass, in which order, and what is printed of each. */
#define _GNU_SOURCE
#include "conformance/conformance.h"

#include <limits.h>
#include <sodium.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/installed.h"
#include "cli/output.h"
#include "plugin/env.h"

#define RUN_LIMIT_MS      (10 * 60 * 1000)
#define MANIFEST_LIMIT_MS 10000

struct tally {
        unsigned passed, failed, skipped;
        json_t *checks;
};

/* Tools */

static void unref_json(void *v)
{
        json_decref(v);
}

static json_t *keep_json(struct conformance *c, json_t *take)
{
        arena_defer(c->op.arena, unref_json, take);
        return take;
}

json_t *conformance_params(struct conformance *c, json_t *take_more)
{
        json_t *params = json_pack("{s:s, s:s, s:s, s:n, s:O}", "driverKey", c->driver, "companyId",
                                   CONFORMANCE_COMPANY, "environmentId", CONFORMANCE_ENV, "issueId",
                                   "config", c->config);

        if (take_more)
                json_object_update(params, take_more);
        json_decref(take_more);
        return keep_json(c, params);
}

int conformance_call(struct conformance *c, const char *method, json_t *take_more,
                     int64_t timeout_ms, json_t **ret, struct err *err)
{
        struct plugin_call call = { .plugin_id = CONFORMANCE_PLUGIN,
                                    .method = method,
                                    .params = conformance_params(c, take_more),
                                    .company_id = CONFORMANCE_COMPANY,
                                    .timeout_ms = timeout_ms };
        json_t *answer = NULL;
        int r = plugin_call(&c->op, c->host, &call, &answer, err);

        if (r >= 0)
                *ret = keep_json(c, answer);
        return r;
}

int conformance_shell(struct conformance *c, const char *script, json_t *take_more,
                      int64_t timeout_ms, json_t **ret, struct err *err)
{
        json_t *params = json_pack("{s:O, s:s, s:[s,s], s:s*}", "lease", c->lease, "command", "sh",
                                   "args", "-c", script, "cwd", c->cwd);

        if (take_more)
                json_object_update(params, take_more);
        json_decref(take_more);
        return conformance_call(c, "environmentExecute", params, timeout_ms, ret, err);
}

int conformance_acquire(struct conformance *c, json_t **ret_lease, struct err *err)
{
        struct uuid run = uuid_new();
        json_t *lease;
        int r = conformance_call(
                c, "environmentAcquireLease",
                json_pack("{s:s, s:s}", "runId", run.s, "workspaceMode", "isolated"), 0, &lease,
                err);

        if (r < 0)
                return r;
        if (!json_get_string(lease, "providerLeaseId"))
                return err_set(err, ERR_PROVIDER, "the lease has no providerLeaseId");
        if (json_object_get(lease, "metadata") && !json_get_object(lease, "metadata"))
                return err_set(err, ERR_PROVIDER, "metadata is not an object");
        *ret_lease = lease;
        return 0;
}

int conformance_give_up(struct conformance *c, const char *method, const json_t *lease,
                        struct err *err)
{
        json_t *metadata = json_object_get(lease, "metadata"), *answer;

        return conformance_call(c, method,
                                json_pack("{s:O, s:O*}", "providerLeaseId",
                                          json_object_get(lease, "providerLeaseId"),
                                          "leaseMetadata", metadata),
                                0, &answer, err);
}

int conformance_needs(struct conformance *c, const char *method, bool lease, struct err *err)
{
        if (!plugin_host_supports(c->host, CONFORMANCE_PLUGIN, method)) {
                (void)err_set(err, ERR_PROVIDER, "it has no %s", method);
                return CHECK_SKIPPED;
        }
        if (lease && !c->lease) {
                (void)err_set(err, ERR_PROVIDER, "there is no lease");
                return CHECK_SKIPPED;
        }
        return 0;
}

/* Preparing */

static int prepare_worker(struct conformance *c, const char *scratch, struct err *err)
{
        struct arena *a = c->op.arena;
        const char *config = c->options->config ? c->options->config : "{}";
        const char *node = getenv("BERTH_NODE");
        struct plugin_tools tools = {
                .node = node ? node : "node",
                .policy = &c->policy,
                .scratch_dir = scratch,
                .manifest_ms = MANIFEST_LIMIT_MS,
        };

        c->host_config = (struct plugin_host_config){
                .node = node,
                .policy = &c->policy,
                .instance_id = "conformance",
                .host_version = PLUGIN_HOST_VERSION,
        };
        c->policy = (struct confine_policy){ .trampoline = installed_program(a),
                                             .confine = true,
                                             .uid_first = CONFINE_UID_FIRST,
                                             .uid_count = CONFINE_UID_COUNT };
        pthread_mutex_init(&c->policy.lock, NULL);
        int r = package_open(&c->op, &tools, c->options->path, c->options->path, &c->package, err);
        if (r >= 0)
                r = json_parse(config, strlen(config), &c->config, err);
        if (r < 0)
                return r;
        keep_json(c, c->config);
        const json_t *drivers = json_object_get(c->package.manifest, "environmentDrivers");
        c->driver = c->options->driver ? c->options->driver
                                       : json_get_string(json_array_get(drivers, 0), "driverKey");
        if (!c->driver)
                return err_set(err, ERR_INVALID, "the plugin declares no environmentDrivers");
        if (!manifest_driver(c->package.manifest, c->driver, NULL))
                return err_set(err, ERR_INVALID, "the plugin declares no driver '%s'", c->driver);
        c->spec = (struct worker_spec){
                .plugin_id = CONFORMANCE_PLUGIN,
                .plugin_key = json_get_string(c->package.manifest, "id"),
                .root = c->package.root,
                .entry = c->package.entry,
                .manifest = c->package.manifest,
                .private_dir = arena_printf(a, "%s/worker", scratch),
                .extra_reads = c->package.reads,
                .copies = arena_printf(a, "%s/copies", scratch),
        };
        c->spec.env = plugin_env(&(struct plugin_env_spec){ .plugin_id = CONFORMANCE_PLUGIN,
                                                            .plugin_key = c->spec.plugin_key,
                                                            .deployment_mode = "local_trusted",
                                                            .deployment_exposure = "private",
                                                            .private_dir = c->spec.private_dir,
                                                            .allowed = getenv("BERTH_PLUGIN_ENV") },
                                 a);
        return plugin_host_new(&c->host_config, &c->host, err);
}

/* Running */

static void run_check(struct conformance *c, const struct conformance_check *check,
                      struct tally *tally)
{
        CLEAN(err_done) struct err err = { 0 };
        int64_t began = clock_mono_ms();
        const char *result = "ok";

        if (c->options->only && !strstr(check->name, c->options->only) &&
            check != conformance_lifecycle)
                return;
        int r = check->run(c, &err);
        if (r == CHECK_SKIPPED)
                result = "skipped";
        else if (r < 0)
                result = "failed";
        tally->passed += r >= 0 && r != CHECK_SKIPPED;
        tally->skipped += r == CHECK_SKIPPED;
        tally->failed += r < 0;
        json_array_append_new(tally->checks,
                              json_pack("{s:s, s:s, s:s, s:I}", "name", check->name, "result",
                                        result, "message", r ? err.msg : "", "ms",
                                        (json_int_t)(clock_mono_ms() - began)));
}

static void print_tally(const struct conformance *c, const struct tally *tally)
{
        static const struct column columns[] = { { "CHECK", COLUMN_TEXT },
                                                 { "RESULT", COLUMN_STATE },
                                                 { "", COLUMN_TEXT } };
        CLEAN(table_done) struct table t;
        json_t *check;
        size_t i;

        table_init(&t, columns, ARRAY_LEN(columns));
        if (c->options->json) {
                CLEAN(json_decrefp)
                json_t *report = json_pack("{s:s, s:s, s:s, s:i, s:i, s:i, s:O}", "plugin",
                                           c->spec.plugin_key, "driver", c->driver, "checksum",
                                           c->package.checksum, "passed", (int)tally->passed,
                                           "failed", (int)tally->failed, "skipped",
                                           (int)tally->skipped, "checks", tally->checks);

                out_json(report);
                return;
        }
        json_array_foreach(tally->checks, i, check)
                table_row(&t, (const char *[]){ json_get_string(check, "name"),
                                                json_get_string(check, "result"),
                                                json_get_string(check, "message") });
        table_print(&t, "no checks");
        out_line("%u passed, %u failed, %u skipped", tally->passed, tally->failed, tally->skipped);
}

static int run_all(struct conformance *c)
{
        CLEAN(json_decrefp) json_t *checks = json_array();
        struct tally tally = { .checks = checks };

        for (const struct conformance_check *k = conformance_lifecycle; k->name; k++)
                run_check(c, k, &tally);
        for (const struct conformance_check *k = conformance_trouble; k->name; k++)
                run_check(c, k, &tally);
        print_tally(c, &tally);
        return tally.failed > 0 ? 1 : 0;
}

int conformance(const struct cli_conformance_options *options)
{
        CLEAN(err_done) struct err err = { 0 };
        const char *tmp = getenv("TMPDIR");
        struct arena arena;
        struct conformance c = { .options = options,
                                 .op = { .arena = &arena,
                                         .deadline_ms = clock_mono_ms() + RUN_LIMIT_MS } };
        char real[PATH_MAX], *scratch;

        arena_init(&arena);
        /* What a worker sees is decided by real paths. */
        scratch = mkdtemp(arena_printf(&arena, "%s/berth-conformance-XXXXXX", tmp ? tmp : "/tmp"));
        scratch = scratch ? realpath(scratch, real) : NULL;
        int r = sodium_init() < 0 || !scratch
                        ? err_set(&err, ERR_INTERNAL, "cannot make a temporary directory")
                        : prepare_worker(&c, scratch, &err);
        if (r < 0)
                out_error(err.msg);
        r = r < 0 ? err_info(r)->exit_status : run_all(&c);
        plugin_host_free(c.host);
        struct op shield = op_shield(&c.op, 10000);
        if (scratch)
                (void)tree_remove(&shield, scratch, NULL);
        arena_done(&arena);
        return r;
}
