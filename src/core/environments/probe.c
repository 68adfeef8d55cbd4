/* Decides who may probe an environment, and records the result. */
#include "core/environments/probe.h"

#include "core/access/audit.h"
#include "core/secrets/secret.h"

struct probing {
        struct op *op;
        const char *company_id, *action, *entity_id;
        const struct probe_result *res;
        int64_t config_keys; /* -1: not mentioned */
};

static int probe_audit(struct db *db, void *arg, struct err *err)
{
        struct probing *q = arg;
        json_t *details = json_pack("{s:s, s:b, s:s}", "driver", q->res->driver, "ok", q->res->ok,
                                    "summary", buf_str(&q->res->summary));

        if (q->config_keys >= 0)
                json_object_set_new(details, "configTopLevelKeyCount",
                                    json_integer(q->config_keys));
        return audit(db, q->op, q->company_id, q->action, "environment", q->entity_id, details,
                     err);
}

static int probe_and_record(struct runtime *rt, struct probing *q, const char *driver,
                            json_t *config, struct probe_result *ret, struct err *err)
{
        const struct kind *kind = kind_of_config(rt, driver, config);
        struct probe_target target = { q->company_id, q->config_keys < 0 ? q->entity_id : NULL };
        int r = kind->check ? kind->check(rt, config, err) : 0;

        ret->driver = driver;
        ret->details = json_object();
        q->res = ret;
        if (r >= 0)
                r = kind->probe(q->op, rt, &target, config, ret, err);
        return r < 0 ? r : store_write(q->op, rt->store, probe_audit, q, err);
}

int probe_saved(struct op *op, struct runtime *rt, const char *id, struct probe_result *ret,
                struct err *err)
{
        CLEAN(json_decrefp) json_t *raw = NULL, *config = NULL;
        struct environment env;
        int r = environment_manage(op, rt, id, &env, err);

        if (r >= 0)
                r = json_parse(env.config, strlen(env.config), &raw, err);
        if (r >= 0)
                r = kind_normalize(rt, env.driver, raw, CONFIG_STORED, &config, err);
        if (r >= 0) {
                struct probing q = { op, env.company_id, "environment.probed", env.id, NULL, -1 };

                r = probe_and_record(rt, &q, env.driver, config, ret, err);
        }
        return r;
}

int probe_unsaved(struct op *op, struct runtime *rt, const char *company_id, const char *driver,
                  json_t *config, struct probe_result *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        CLEAN(json_decrefp) json_t *normal = NULL, *sent = NULL;
        const struct kind *kind = NULL;
        const json_t *schema = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = access_manage_environments(db, op->actor, company_id, err);
        /* A caller that may not save the configuration may not make the daemon connect to it
         * either. */
        if (r >= 0)
                r = environment_check_fields(db, op, rt, NULL, driver, NULL, config, err);
        store_read_end(&db);
        if (r >= 0)
                r = kind_normalize(rt, driver, config, CONFIG_SUBMITTED, &normal, err);
        if (r >= 0) {
                sent = json_deep_copy(normal);
                kind = kind_of_config(rt, driver, normal);
                r = kind->validate ? kind->validate(op, rt, &normal, &schema, err) : 0;
        }
        /* After the plugin has looked at it: only the probe itself gets the values. */
        if (r >= 0)
                r = secret_resolve_draft(op, rt, company_id, kind, sent, schema, normal, err);
        if (r >= 0) {
                struct probing q = { op,        company_id, "environment.probed_unsaved",
                                     "unsaved", NULL,       (int64_t)json_object_size(normal) };

                r = probe_and_record(rt, &q, driver, normal, ret, err);
        }
        return r;
}

void probe_result_done(struct probe_result *res)
{
        buf_done(&res->summary);
        buf_done(&res->hint);
        json_decref(take_ptr(&res->details));
}
