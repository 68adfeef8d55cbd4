/* Testing an agent's configuration in an environment, in a lease of its own that is given up
 * afterwards (environment-runtime 5.6). Without an environment the test uses the company's default
 * one; it never uses this machine instead. */
#include "core/runs/adapter_test.h"
#include "base/clock.h"
#include "codec/check.h"
#include "core/environments/env_default.h"
#include "core/runs/adapter_probe.h"

#define TEST_MS    360000 /* all of it: installing, and waiting for an answer */
#define RELEASE_MS 30000

struct test {
        struct op *op;
        struct runtime *rt;
        const char *company_id, *environment_id; /* NULL: the company has no default */
        bool is_default;                         /* the caller named none */
        const struct adapter_descriptor *d;
        json_t *config;
        struct environment env;
        const struct kind *kind; /* of env; NULL: it has none here, and takes no lease */
        struct lease_record record;
        json_t *checks;
};

/* The environment */

/* The test runs a command of the caller's choice: where it is not isolated only the board may. An
 * environment that is gone, or of another company, is reported by the test itself. */
static int choose_environment(struct test *t, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(t->op, t->rt->store, &db, err);

        if (r >= 0)
                r = access_manage_agents(db, t->op->actor, t->company_id, err);
        if (r >= 0 && !t->environment_id) {
                t->is_default = true;
                r = env_default_get(db, t->company_id, t->op->arena, &t->environment_id, err);
        }
        if (r < 0 || !t->environment_id)
                return r;
        r = environments_get(db, t->environment_id, t->op->arena, &t->env, err);
        if (r >= 0 && !streq(t->env.company_id, t->company_id))
                r = ERR_NOT_FOUND;
        if (r == ERR_NOT_FOUND) {
                t->env = (struct environment){ 0 };
                return 0;
        }
        if (r < 0)
                return r;
        t->kind = kind_of_environment(t->rt, &t->env);
        return kind_is_isolated(t->rt, t->env.driver) ? 0 : access_board(t->op->actor, err);
}

/* Requests are made from this machine, whatever environment is the default. */
static bool is_request(const struct test *t)
{
        return t->d->is_http &&
               (t->is_default || (t->env.id && kind_runs_on_host(t->rt, t->env.driver)));
}

/* Where the agent would work */

/* An existing host elsewhere, which may be out of reach. */
static bool is_host_elsewhere(const struct test *t)
{
        return t->kind && t->kind->has_own_files && t->kind->is_elsewhere;
}

static void note(struct test *t, const char *code, const char *level, const char *fmt,
                 const char *detail)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        const char *hole = strstr(fmt, "%s");

        buf_append(&b, fmt, (size_t)(hole - fmt));
        buf_puts(&b, t->env.name);
        buf_puts(&b, hole + 2);
        adapter_check(t->checks, NULL, code, level, buf_str(&b), detail);
}

static int acquire(struct test *t)
{
        CLEAN(err_done) struct err why = { 0 };
        struct lease_request req = { .ttl_ms = TEST_MS + RELEASE_MS };
        int r = lease_acquire(t->op, t->rt, &t->env, &req, &t->record, &why);

        if (r >= 0)
                return 0;
        if (is_host_elsewhere(t))
                note(t, "environment_target_failed", "warn",
                     "Could not connect to environment \"%s\" to run the test.", why.msg);
        else
                note(t, "environment_lease_acquire_failed", "error",
                     "Could not acquire a lease for environment \"%s\".", why.msg);
        return r;
}

/* Reads the lease again, to see what became of it. */
static int realize(struct test *t, const char **ret_cwd)
{
        CLEAN(err_done) struct err why = { 0 };
        CLEAN(json_decrefp) json_t *workspace = json_object();
        json_t *answer = NULL;
        int r = lease_realize(t->op, t->rt, t->record.lease.id, workspace, &answer, &why);

        if (r >= 0)
                r = lease_load(t->op, t->rt, t->record.lease.id, &t->record, &why);
        if (r < 0)
                note(t, "environment_workspace_realize_failed", "error",
                     "Could not realize a workspace inside \"%s\".", why.msg);
        else
                *ret_cwd = arena_strtrim(t->op->arena, json_get_string(answer, "cwd"));
        return r;
}

/* The directory of the agent's configuration, else that of the lease. */
static const char *choose_cwd(struct test *t, const char *realized)
{
        const char *cwd = adapter_trimmed(t->op->arena, json_object_get(t->config, "cwd"));
        const char *home = getenv("HOME");
        json_t *metadata = NULL;

        if (cwd && t->kind->has_own_files)
                return cwd;
        if (realized)
                return realized;
        if (t->record.lease.metadata &&
            json_parse(t->record.lease.metadata, strlen(t->record.lease.metadata), &metadata,
                       NULL) >= 0)
                cwd = adapter_trimmed(
                        t->op->arena,
                        json_object_get(adapter_keep(t->op->arena, metadata), "remoteCwd"));
        else
                cwd = NULL;
        if (cwd)
                return cwd;
        return t->kind->runs_on_host && home && *home == '/' ? home : "/tmp";
}

static const char *describe(struct test *t)
{
        json_t *config = NULL;

        if (t->kind->runs_on_host)
                return arena_printf(t->op->arena, "%s environment", t->kind->label);
        if (json_parse(t->env.config, strlen(t->env.config), &config, NULL) < 0)
                return "environment";
        adapter_keep(t->op->arena, config);
        if (t->kind->address)
                return arena_printf(t->op->arena, "%s environment %s", t->kind->label,
                                    t->kind->address(t->op->arena, config));
        return arena_printf(t->op->arena, "%s environment (%s)", t->env.driver,
                            t->record.lease.provider ? t->record.lease.provider : t->env.name);
}

static int try_it(struct test *t, const char *cwd)
{
        CLEAN(err_done) struct err why = { 0 };
        struct adapter_probe probe = {
                .op = t->op,
                .rt = t->rt,
                .d = t->d,
                .config = t->config,
                .record = &t->record,
                .kind = t->kind,
                .cwd = cwd,
                .checks = t->checks,
        };
        int r;

        adapter_check(t->checks, t->d->key, "environment_target", "info",
                      arena_printf(t->op->arena, "Tried in the %s.", describe(t)), NULL);
        r = adapter_probe(&probe, &why);
        if (r < 0)
                note(t, "environment_target_failed", is_host_elsewhere(t) ? "warn" : "error",
                     is_host_elsewhere(t)
                             ? "Could not connect to environment \"%s\" to run the test."
                             : "Could not resolve a sandbox execution target for \"%s\".",
                     why.msg);
        return r;
}

static bool may_work_there(const struct test *t)
{
        return t->d->runs && (t->d->is_remote || t->kind->runs_on_host);
}

/* The part of the test that needs the lease. */
static int test_in_lease(struct test *t)
{
        const char *cwd = NULL;
        int r = t->kind->has_own_files ? 0 : realize(t, &cwd);

        if (r < 0)
                return r;
        if (!may_work_there(t)) {
                CLEAN(cleanup_free)
                char *text = xasprintf("Adapter \"%s\" is not allowed in \"%s\" environments.",
                                       t->d->type, t->env.name);

                adapter_check(t->checks, NULL, "environment_target_unsupported", "warn", text,
                              NULL);
                return ERR_UNPROCESSABLE;
        }
        return try_it(t, choose_cwd(t, cwd));
}

/* The lease is given up even if the caller is gone. */
static void test_with_lease(struct test *t)
{
        struct op shield;
        struct lease_record released;
        int r = acquire(t);

        if (r < 0)
                return;
        r = test_in_lease(t);
        shield = op_shield(t->op, RELEASE_MS);
        (void)lease_release(&shield, t->rt, t->record.lease.id,
                            r < 0 ? LEASE_FAILED : LEASE_RELEASED, &released, NULL);
}

/* A test makes no requests: their effects are unknown. */
static void test_http(struct test *t)
{
        const char *url = adapter_trimmed(t->op->arena, json_object_get(t->config, "url"));

        if (!url)
                adapter_check(t->checks, t->d->key, "url_missing", "error",
                              adapter_text(t->d, "missing", "missing url"), NULL);
        else
                adapter_check(t->checks, t->d->key, "url_configured", "info",
                              "A URL is configured; it was not called.", url);
}

/* The answer */

static const char *overall(const json_t *checks)
{
        const char *status = "pass";
        size_t i;
        json_t *check;

        json_array_foreach((json_t *)checks, i, check)
        {
                const char *level = json_get_string(check, "level");

                if (streq(level, "error"))
                        return "fail";
                if (streq(level, "warn"))
                        status = "warn";
        }
        return status;
}

static void answer(const struct test *t, struct buf *b)
{
        struct jw w;

        jw_init(&w, b);
        jw_object(&w);
        jw_kstring(&w, "adapterType", t->d->type);
        jw_kstring(&w, "status", overall(t->checks));
        jw_kvalue(&w, "checks", t->checks);
        jw_ktime(&w, "testedAt", clock_wall_us());
        jw_object_end(&w);
}

static int read_body(struct test *t, json_t *body, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        json_t *config;

        check_init(&c, body);
        config = check_record(&c, "adapterConfig", CHECK_OPTIONAL);
        t->environment_id =
                arena_strdup(t->op->arena, check_uuid(&c, "environmentId", CHECK_NULLABLE));
        t->config = adapter_keep(t->op->arena, config ? json_deep_copy(config) : json_object());
        return check_end(&c, err);
}

int adapter_test(struct op *op, struct runtime *rt, const char *company_id, const char *type,
                 json_t *body, struct buf *ret_json, struct err *err)
{
        struct op longer = *op;
        struct test t = { .op = &longer,
                          .rt = rt,
                          .company_id = company_id,
                          .d = adapter_find(type),
                          .checks = adapter_keep(op->arena, json_array()) };
        int r = read_body(&t, body, err);

        if (r >= 0)
                r = choose_environment(&t, err);
        if (r < 0)
                return r;
        if (!t.d)
                return err_set(err, ERR_UNPROCESSABLE, "Unknown adapter type: %s", type);
        longer.deadline_ms = clock_mono_ms() + TEST_MS;
        if (is_request(&t))
                test_http(&t);
        else if (!t.environment_id)
                adapter_check(t.checks, NULL, "environment_not_found", "warn",
                              "No environment was named, and the company has no default "
                              "environment. The test did not run.",
                              "Choose one with: berth company update COMPANY --default-environment "
                              "ENV");
        else if (!t.env.id)
                adapter_check(t.checks, NULL, "environment_not_found", "warn",
                              "Selected environment was not found. The test did not run.", NULL);
        else if (is_host_elsewhere(&t) && !may_work_there(&t))
                note(&t, "environment_target_unavailable", "warn",
                     "Could not resolve an execution target for environment \"%s\". The test did "
                     "not run.",
                     NULL);
        else
                test_with_lease(&t);
        answer(&t, ret_json);
        return 0;
}

/* Models */

int adapter_models(struct op *op, struct runtime *rt, const char *company_id, const char *type,
                   const char *environment_id, struct buf *ret_json, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        const struct adapter_descriptor *d = adapter_find(type);
        struct environment env;
        const json_t *models;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = access_company(db, op->actor, company_id, false, err);
        if (r >= 0 && environment_id) {
                r = environments_get(db, environment_id, op->arena, &env, err);
                if (r >= 0 && !streq(env.company_id, company_id))
                        r = err_set(err, ERR_NOT_FOUND, "Environment not found");
        }
        if (r < 0)
                return r;
        if (!d)
                return err_set(err, ERR_UNPROCESSABLE, "Unknown adapter type: %s", type);
        models = json_object_get(d->json, "models");
        if (models)
                json_put(ret_json, models);
        else
                buf_puts(ret_json, "[]");
        return 0;
}
