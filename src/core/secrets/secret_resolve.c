/* Using secrets: gives a value to the target that it is bound to, with an event for every
 * attempt. */
#include "core/secrets/secret_resolve.h"
#include "base/clock.h"
#include "base/log.h"
#include "codec/secret_refs.h"
#include "core/kinds/kind.h"
#include "core/secrets/secret_draft.h"

#define RECORD_MS      5000
#define ERROR_CODE_MAX 120

static int check_binding(struct db *db, struct secret_attempt *t, struct arena *arena,
                         struct err *err)
{
        const struct secret_use *u = t->use;
        struct secret_binding b;

        if (!u->config_path || u->config_path[strspn(u->config_path, " ")] == '\0')
                return err_set(err, ERR_UNPROCESSABLE,
                               "Secret resolution requires a binding config path");
        int r = secret_bindings_find(db, t->company_id, t->secret.id, u->consumer_type,
                                     u->consumer_id, u->config_path, arena, &b, err);
        if (r > 0) {
                /* The version that binding and caller agree on; 0 for the latest. */
                int64_t bound = streq(b.version_selector, "latest") ? 0 : atoll(b.version_selector);

                t->is_optional = !b.required;
                if (t->asked && t->asked != bound)
                        return err_set(err, ERR_UNPROCESSABLE,
                                       "Secret binding at %s selects version %s, not %lld",
                                       b.config_path, b.version_selector, (long long)t->asked);
                t->asked = bound;
                return 0;
        }
        if (r == 0 && !u->for_cleanup)
                return err_set(err, ERR_UNPROCESSABLE, "Secret is not bound to %s:%s at %s",
                               u->consumer_type, u->consumer_id, u->config_path);
        return r;
}

static int check_version(struct db *db, struct secret_attempt *t, struct arena *arena,
                         struct err *err)
{
        int64_t version = t->asked ? t->asked : t->secret.latest_version;
        int r = secret_versions_get(db, t->secret.id, version, arena, &t->version, err);

        if (r < 0)
                return r;
        if (t->version.revoked_at || streq(t->version.status, VERSION_DISABLED) ||
            streq(t->version.status, VERSION_DESTROYED) || streq(t->version.status, VERSION_FAILED))
                return err_set(err, ERR_UNPROCESSABLE, "Secret version is not active");
        return 0;
}

static int find_attempted(struct db *db, const struct runtime *rt, struct secret_attempt *t,
                          struct arena *a, struct err *err)
{
        int r = secrets_get(db, t->secret_id, a, &t->secret, err);

        if (r >= 0 && streq(t->secret.status, SECRET_DELETED))
                r = err_set(err, ERR_NOT_FOUND, "Secret not found");
        if (r >= 0 && !streq(t->secret.company_id, t->company_id))
                r = err_set(err, ERR_UNPROCESSABLE, "Secret must belong to same company");
        if (r < 0)
                return r;
        t->is_known = true;
        if (!streq(t->secret.status, SECRET_ACTIVE))
                return err_set(err, ERR_UNPROCESSABLE, "Secret is not active");
        if (t->use && !t->use->for_draft)
                r = check_binding(db, t, a, err);
        if (r >= 0)
                r = check_version(db, t, a, err);
        return r < 0 ? r
                     : vault_choose(db, rt, a, t->secret.company_id, t->secret.provider,
                                    t->secret.provider_config_id, &t->vault, err);
}

int secret_attempt(struct op *op, struct runtime *rt, struct secret_attempt *t,
                   struct secret_value *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = find_attempted(db, rt, t, op->arena, err);
        store_read_end(&db);
        if (r >= 0) {
                struct vault_subject subject = secret_subject(&t->secret, t->version.version);
                struct vault_material material = secret_material(&t->secret, &t->version);

                r = t->vault.provider->resolve(op, &t->vault.config, &subject, &material, ret, err);
        }
        t->result = r;
        if (r < 0) {
                size_t n = strnlen(err->msg, ERROR_CODE_MAX);

                while (n > 0 && err->msg[n] && ((unsigned char)err->msg[n] & 0xc0) == 0x80)
                        n--;
                t->error_code = arena_strndup(op->arena, err->msg, n);
        }
        return r;
}

/* Events */

struct attempts {
        const struct secret_attempt *list;
        size_t n;
};

static int record_attempt(struct db *db, const struct secret_attempt *t, struct err *err)
{
        const struct secret_use *u = t->use;
        struct uuid id = uuid_new();
        struct secret_event e = {
                .id = id.s,
                .company_id = t->company_id,
                .secret_id = t->secret.id,
                .version = t->version.version,
                .provider = t->secret.provider,
                .actor_type = u->actor_type ? u->actor_type : "system",
                .actor_id = u->actor_id,
                .consumer_type = u->consumer_type,
                .consumer_id = u->consumer_id,
                .config_path = u->config_path,
                .issue_id = u->issue_id,
                .heartbeat_run_id = u->run_id,
                .plugin_id = u->plugin_id,
                .outcome = t->result < 0 ? "failure" : "success",
                .error_code = t->result < 0 ? t->error_code : NULL,
                .created_at = clock_now_us(),
        };
        int r = secret_events_insert(db, &e, err);

        if (r >= 0 && t->result >= 0)
                r = secrets_touch_resolved(db, t->secret.id, e.created_at, err);
        return r;
}

static int record_attempts(struct db *db, void *arg, struct err *err)
{
        struct attempts *q = arg;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < q->n; i++)
                if (q->list[i].is_known && q->list[i].use)
                        r = record_attempt(db, &q->list[i], err);
        return r;
}

static int record(struct op *op, struct runtime *rt, const struct secret_attempt *list, size_t n,
                  struct err *err)
{
        struct op shielded = op_shield(op, RECORD_MS);
        struct attempts q = { list, n };

        return n > 0 ? store_write(&shielded, rt->store, record_attempts, &q, err) : 0;
}

/* A failure to record must not keep a run from its secret, but is logged. */
void secret_record(struct op *op, struct runtime *rt, const struct secret_attempt *list, size_t n)
{
        CLEAN(err_done) struct err err = { 0 };

        if (record(op, rt, list, n, &err) < 0)
                log_error("the use of a secret could not be recorded",
                          LOG_S("secret", list[0].secret_id), LOG_S("error", err.msg));
}

int secret_resolve(struct op *op, struct runtime *rt, const char *company_id, const char *secret_id,
                   int64_t version, const struct secret_use *use, struct secret_value *ret,
                   struct err *err)
{
        CLEAN(err_done) struct err local = { 0 };
        struct err *why = err ? err : &local;
        struct secret_attempt t = {
                .company_id = company_id, .secret_id = secret_id, .asked = version, .use = use
        };
        int r = secret_attempt(op, rt, &t, ret, why);

        if (use && t.is_known)
                secret_record(op, rt, &t, 1);
        return r;
}

/* Configurations of environments */

struct config_use {
        struct op *op;
        struct runtime *rt;
        const char *company_id, *environment_id;
        const struct secret_context *context;
        bool is_draft;
        json_t *config;
        struct secret_attempt *attempts; /* heap */
        struct secret_use *uses;         /* heap, beside it */
        size_t n;
};

static int resolve_into(struct config_use *q, const char *path, const char *secret_id,
                        int64_t version, const char *member, struct err *err)
{
        CLEAN(secret_value_done) struct secret_value value = { 0 };
        struct secret_attempt *t = &q->attempts[q->n];
        struct secret_use *u = &q->uses[q->n];

        if (q->is_draft && q->op->actor->type != ACTOR_BOARD)
                return err_set(err, ERR_FORBIDDEN,
                               "Only board users may probe a configuration that refers to secrets "
                               "(%s) before it is saved. Ask the board to save it, then probe the "
                               "environment",
                               path);
        if (!q->environment_id)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Runtime secret resolution requires an environment id");
        *u = (struct secret_use){
                .consumer_type = "environment",
                .consumer_id = q->environment_id,
                .config_path = arena_strdup(q->op->arena, path),
                .actor_type = q->is_draft ? "user" : "system",
                .actor_id = q->is_draft ? q->op->actor->user_id : NULL,
                .for_draft = q->is_draft,
                .issue_id = q->context ? q->context->issue_id : NULL,
                .run_id = q->context ? q->context->run_id : NULL,
                .for_cleanup = q->context && q->context->for_cleanup,
        };
        *t = (struct secret_attempt){
                .company_id = q->company_id,
                .secret_id = arena_strdup(q->op->arena, secret_id),
                .asked = version,
                .use = u,
        };
        q->n++;
        int r = secret_attempt(q->op, q->rt, t, &value, err);
        if (r < 0)
                return r;
        json_t *text = json_stringn(value.data, value.len);
        if (!text)
                return err_set(err, ERR_UNPROCESSABLE, "Secret \"%s\" is not text", t->secret.name);
        json_path_set(q->config, member, text);
        return 0;
}

static int resolve_members(struct config_use *q, const struct kind_secret *list, struct err *err)
{
        int r = 0;

        for (const struct kind_secret *s = list; s && s->member && r >= 0; s++) {
                const json_t *ref = json_get_object(q->config, s->reference);

                if (ref)
                        r = resolve_into(q, s->reference, json_get_string(ref, "secretId"),
                                         json_integer_value(json_object_get(ref, "version")),
                                         s->member, err);
        }
        return r;
}

bool secret_read_member(const struct kind *kind, const json_t *config, const char *path,
                        const char **ret_id, int64_t *ret_version)
{
        const json_t *value = json_path_get(config, path);

        if (kind->keeps_references)
                return secret_ref_read(value, ret_id, ret_version);
        *ret_id = json_string_value(value);
        *ret_version = 0;
        return *ret_id && uuid_is_valid(*ret_id);
}

static int resolve_paths(struct config_use *q, const struct kind *kind, const json_t *paths,
                         struct err *err)
{
        const char *id;
        int64_t version;
        json_t *path;
        size_t i;
        int r = 0;

        json_array_foreach(paths, i, path)
        {
                const char *p = json_string_value(path);

                if (!secret_read_member(kind, q->config, p, &id, &version))
                        continue;
                r = resolve_into(q, p, id, version, p, err);
                if (r < 0)
                        break;
        }
        return r;
}

int secret_resolve_config(struct op *op, struct runtime *rt, const char *company_id,
                          const char *environment_id, const struct kind *kind, json_t *config,
                          const json_t *schema, const struct secret_context *context, json_t **ret,
                          struct err *err)
{
        struct config_use q = { .op = op,
                                .rt = rt,
                                .company_id = company_id,
                                .environment_id = environment_id,
                                .context = context };
        json_t *paths = secret_ref_paths(schema), *normal = NULL;
        size_t most = json_array_size(paths) + kind_n_secrets(kind) + 1;
        int r = kind->normalize(kind, config, CONFIG_STORED, &normal, err);

        q.attempts = xcalloc(most, sizeof(*q.attempts));
        q.uses = xcalloc(most, sizeof(*q.uses));
        q.config = normal ? json_deep_copy(normal) : NULL;
        if (r >= 0)
                r = resolve_members(&q, kind->secrets, err);
        if (r >= 0 && kind->has_secrets_by_schema)
                r = resolve_paths(&q, kind, paths, err);
        secret_record(op, rt, q.attempts, q.n);
        free(q.attempts);
        free(q.uses);
        json_decref(paths);
        json_decref(normal);
        if (r < 0)
                json_decref(q.config);
        else
                *ret = q.config;
        return r;
}

/* Configurations that are not saved */

static int resolve_sent(struct config_use *q, const struct kind *kind, const json_t *sent,
                        const json_t *paths, struct err *err)
{
        const char *id;
        int64_t version;
        json_t *path;
        size_t i;
        int r = 0;

        for (const struct kind_secret *s = kind->secrets; s && s->member && r >= 0; s++)
                if (!json_is_string(json_object_get(sent, s->member)) &&
                    secret_ref_read(json_object_get(sent, s->reference), &id, &version))
                        r = resolve_into(q, s->reference, id, version, s->member, err);
        json_array_foreach(paths, i, path)
        {
                const char *p = json_string_value(path);

                if (r >= 0 && secret_ref_read(json_path_get(sent, p), &id, &version))
                        r = resolve_into(q, p, id, version, p, err);
        }
        return r;
}

/* Whoever may send a value of the company to a place of their choice could as well save it there;
 * an agent could not. */
int secret_resolve_draft(struct op *op, struct runtime *rt, const char *company_id,
                         const struct kind *kind, const json_t *sent, const json_t *schema,
                         json_t *config, struct err *err)
{
        struct config_use q = { .op = op,
                                .rt = rt,
                                .company_id = company_id,
                                .environment_id = "unsaved",
                                .is_draft = true,
                                .config = config };
        json_t *paths = kind->has_secrets_by_schema ? secret_ref_paths(schema) : json_array();
        size_t most = json_array_size(paths) + kind_n_secrets(kind) + 1;
        CLEAN(err_done) struct err unrecorded = { 0 };
        int r;

        q.attempts = xcalloc(most, sizeof(*q.attempts));
        q.uses = xcalloc(most, sizeof(*q.uses));
        r = resolve_sent(&q, kind, sent, paths, err);
        if (record(op, rt, q.attempts, q.n, &unrecorded) < 0 && r >= 0) {
                r = unrecorded.code;
                err_move(err, &unrecorded);
        }
        free(q.attempts);
        free(q.uses);
        json_decref(paths);
        return r;
}
