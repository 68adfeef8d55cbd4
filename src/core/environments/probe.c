/* Decides who may probe an environment, and turns the result into a document. */
#include "core/environments/probe.h"

#include "codec/check.h"
#include "core/access/audit.h"
#include "core/kinds/kind.h"

struct audit_entry {
        struct op *op;
        const char *company_id, *action, *entity_id, *driver;
        const struct probe_result *res;
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
        const struct kind *kind = kind_of_config(rt, entry->driver, config);
        struct probe_result res = { .details = json_object() };
        struct probe_target target = { entry->company_id,
                                       entry->config_keys < 0 ? entry->entity_id : NULL };
        struct jw w;
        int r = kind->check ? kind->check(rt, config, err) : 0;

        if (r >= 0)
                r = kind->probe(op, rt, &target, config, &res, err);

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
                r = kind_normalize(rt, env.driver, raw, CONFIG_STORED, &config, err);
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

/* A caller that may not save the configuration may not make the daemon connect to it either. */
static int guard_company(struct db *db, void *arg, struct err *err)
{
        struct guard *g = arg;
        int r = access_manage_environments(db, g->op->actor, g->company_id, err);

        if (r >= 0 && g->driver)
                r = environment_check_fields(db, g->op, g->rt, NULL, g->driver, NULL, g->config,
                                             err);
        return r;
}

static int check_unsaved(const struct runtime *rt, json_t *body, struct arena *arena,
                         const char **ret_driver, json_t **ret_config, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *driver;

        check_init(&c, body);
        (void)check_string(&c, "name", CHECK_OPTIONAL, 0, 0);
        (void)check_string(&c, "description", CHECK_NULLABLE, 0, 0);
        driver = check_enum(&c, "driver", CHECK_REQUIRED, kind_drivers(rt, arena));
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
        const struct kind *kind;
        int r = store_read(op, rt->store, guard_company, &g, err);

        if (r >= 0)
                r = check_unsaved(rt, body, op->arena, &entry.driver, &given, err);
        g.driver = entry.driver;
        g.config = given;
        if (r >= 0)
                r = store_read(op, rt->store, guard_company, &g, err);
        if (r >= 0)
                r = kind_normalize(rt, entry.driver, given, CONFIG_SUBMITTED, &config, err);
        kind = r >= 0 ? kind_of_config(rt, entry.driver, config) : NULL;
        if (kind && kind->validate)
                r = kind->validate(op, rt, &config, NULL, err);
        if (r >= 0) {
                entry.config_keys = (int64_t)json_object_size(config);
                r = probe_and_record(op, rt, &entry, config, ret_json, err);
        }
        json_decref(config);
        return r;
}
