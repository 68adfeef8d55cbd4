#include "core/environments/probe.h"

#include <limits.h>
#include <stdio.h>

#include "codec/check.h"
#include "core/access/audit.h"
#include "core/environments/env_config.h"
#include "core/kinds/plugin/plugin_validate.h"
#include "core/kinds/sandbox.h"
#include "core/kinds/ssh/ssh_probe.h"

/* What is probed. environment_id is NULL for what nobody saved. */
struct target {
        const char *driver, *company_id, *environment_id;
};

struct result {
        bool ok;
        struct buf summary;
        json_t *details;
        struct buf hint; /* empty: none */
};

static void probe_local(struct result *res)
{
        char host[HOST_NAME_MAX + 1] = "", cwd[PATH_MAX] = "";

        (void)gethostname(host, sizeof(host) - 1);
        (void)!getcwd(cwd, sizeof(cwd));
        res->ok = true;
        buf_puts(&res->summary, "Local environment is available on this Paperclip host.");
        json_object_set_new(res->details, "hostname", json_string(host));
        json_object_set_new(res->details, "cwd", json_string(cwd));
}

static int run(struct op *op, struct runtime *rt, const struct target *t, json_t *config,
               struct result *res, struct err *err)
{
        const struct provider *p;

        if (streq(t->driver, "local")) {
                probe_local(res);
                return 0;
        }
        if (streq(t->driver, "ssh"))
                return ssh_probe(op, rt, t->company_id, t->environment_id, config, &res->ok,
                                 &res->summary, res->details, &res->hint, err);
        p = streq(t->driver, "sandbox") ? provider_lookup(json_get_string(config, "provider"))
                                        : NULL;
        if (p)
                return p->probe(op, rt, t->company_id, config, &res->summary, res->details,
                                &res->ok, err);
        return plugin_probe(op, rt, t->driver, t->company_id, t->environment_id, config, &res->ok,
                            &res->summary, res->details, err);
}

struct audit_entry {
        struct op *op;
        const char *company_id, *action, *entity_id, *driver;
        const struct result *res;
        int64_t config_keys; /* -1: not mentioned */
};

static int write_audit(struct db *db, void *arg, struct err *err)
{
        struct audit_entry *e = arg;
        json_t *details = json_pack("{s:s, s:b, s:s}", "driver", e->driver, "ok", e->res->ok,
                                    "summary", buf_str(&e->res->summary));

        if (e->config_keys >= 0)
                json_object_set_new(details, "configTopLevelKeyCount",
                                    json_integer(e->config_keys));
        return audit(db, e->op, e->company_id, e->action, "environment", e->entity_id, details,
                     err);
}

static int probe_and_record(struct op *op, struct runtime *rt, struct audit_entry *entry,
                            json_t *config, struct buf *ret_json, struct err *err)
{
        struct result res = { .details = json_object() };
        struct target target = { entry->driver, entry->company_id,
                                 entry->config_keys < 0 ? entry->entity_id : NULL };
        struct jw w;
        int r = run(op, rt, &target, config, &res, err);

        entry->res = &res;
        if (r >= 0)
                r = store_write(op, rt->store, write_audit, entry, err);
        if (r >= 0) {
                jw_init(&w, ret_json);
                jw_object(&w);
                jw_kbool(&w, "ok", res.ok);
                jw_kstring(&w, "driver", entry->driver);
                jw_kstring(&w, "summary", buf_str(&res.summary));
                jw_kvalue(&w, "details", res.details);
                if (res.hint.len > 0)
                        jw_kstring(&w, "hint", buf_str(&res.hint));
                jw_object_end(&w);
        }
        entry->res = NULL;
        buf_done(&res.summary);
        buf_done(&res.hint);
        json_decref(res.details);
        return r;
}

int probe_saved(struct op *op, struct runtime *rt, const char *id, struct buf *ret_json,
                struct err *err)
{
        struct environment env;
        json_t *raw = NULL, *config = NULL;
        struct audit_entry entry = { .op = op, .action = "environment.probed", .config_keys = -1 };
        int r = environment_manage(op, rt, id, &env, err);

        if (r >= 0)
                r = json_parse(env.config, strlen(env.config), &raw, err);
        if (r >= 0)
                r = env_config_normalize(env.driver, raw, CONFIG_STORED, &config, err);
        if (r >= 0 && streq(env.driver, "sandbox"))
                r = provider_check(rt, config, err);
        if (r >= 0) {
                entry.company_id = env.company_id;
                entry.entity_id = env.id;
                entry.driver = env.driver;
                r = probe_and_record(op, rt, &entry, config, ret_json, err);
        }
        json_decref(raw);
        json_decref(config);
        return r;
}

struct guard {
        struct op *op;
        struct runtime *rt;
        const char *company_id;
        const char *driver; /* NULL: not read yet */
        json_t *config;
};

/* Who may not save it, may not have us connect to it either. */
static int guard_company(struct db *db, void *arg, struct err *err)
{
        struct guard *g = arg;
        int r = access_manage_environments(db, g->op->actor, g->company_id, err);

        if (r >= 0 && g->driver)
                r = environment_check_fields(db, g->op, g->rt, NULL, g->driver, NULL, g->config,
                                             err);
        return r;
}

static int check_unsaved(json_t *body, struct arena *arena, const char **ret_driver,
                         json_t **ret_config, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *driver;

        check_init(&c, body);
        (void)check_string(&c, "name", CHECK_OPTIONAL, 0, 0);
        (void)check_string(&c, "description", CHECK_NULLABLE, 0, 0);
        driver = check_enum(&c, "driver", CHECK_REQUIRED, environment_drivers);
        *ret_config = check_record(&c, "config", CHECK_OPTIONAL);
        (void)check_record(&c, "metadata", CHECK_NULLABLE);
        check_unknown(&c, (const char *[]){ "name", "description", "driver", "config", "metadata",
                                            NULL });
        *ret_driver = arena_strdup(arena, driver);
        return check_end(&c, err);
}

int probe_unsaved(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                  struct buf *ret_json, struct err *err)
{
        struct guard g = { .op = op, .rt = rt, .company_id = company_id };
        struct audit_entry entry = {
                .op = op,
                .company_id = company_id,
                .action = "environment.probed_unsaved",
                .entity_id = "unsaved",
        };
        json_t *given = NULL, *config = NULL;
        int r = store_read(op, rt->store, guard_company, &g, err);

        if (r >= 0)
                r = check_unsaved(body, op->arena, &entry.driver, &given, err);
        g.driver = entry.driver;
        g.config = given;
        if (r >= 0)
                r = store_read(op, rt->store, guard_company, &g, err);
        if (r >= 0)
                r = env_config_normalize(entry.driver, given, CONFIG_SUBMITTED, &config, err);
        if (r >= 0)
                r = plugin_validate_config(op, rt, entry.driver, &config, NULL, err);
        if (r >= 0 && streq(entry.driver, "sandbox"))
                r = provider_check(rt, config, err);
        if (r >= 0) {
                entry.config_keys = (int64_t)json_object_size(config);
                r = probe_and_record(op, rt, &entry, config, ret_json, err);
        }
        json_decref(config);
        return r;
}
