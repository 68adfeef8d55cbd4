/* Decides which values of a configuration become secrets, and which secrets are not needed any
 * more. */
#include "core/environments/env_secrets.h"

#include <ctype.h>
#include <stdio.h>

#include "base/fault.h"
#include "base/log.h"
#include "codec/secret_refs.h"
#include "core/kinds/kind.h"

#define SLUG_MAX 48

/* Names */

static const char *slug_of(struct arena *a, const char *text, size_t max)
{
        char *out = arena_alloc(a, strlen(text) + 1);
        size_t n = 0;

        for (const char *p = text; *p; p++) {
                if (isalnum((unsigned char)*p))
                        out[n++] = (char)tolower((unsigned char)*p);
                else if (n > 0 && out[n - 1] != '-')
                        out[n++] = '-';
        }
        while (n > 0 && out[n - 1] == '-')
                n--;
        out[MIN(n, max)] = '\0';
        return out;
}

static const char *secret_name(struct arena *a, const struct environment *env, const char *field)
{
        const char *name = slug_of(a, env->name, SLUG_MAX);
        char suffix[9];

        random_hex(suffix, 4);
        return arena_printf(a, "environment-%s-%s-%s-%s", env->driver, *name ? name : "environment",
                            field, suffix);
}

/* Values out of the configuration */

/* The value moves to pages of its own; `text` stays in a document that is wiped when freed. */
static int draft_secret(struct op *op, struct runtime *rt, const struct environment *env,
                        const char *field, const char *text, size_t len, struct env_secrets *s,
                        const char **ret_id, struct err *err)
{
        struct secret_spec spec = {
                .name = secret_name(op->arena, env, field),
                .description = arena_printf(op->arena, "Secret for %s %s.", env->name, field),
                .managed_mode = SECRET_MANAGED,
                .owner_environment_id = env->id,
        };

        struct secret_value *value = &s->values[s->n_drafts];
        int r = secret_value_set(value, text, len, err);
        if (r >= 0)
                r = secret_draft_make(op, rt, env->company_id, &spec, value,
                                      &s->drafts[s->n_drafts], err);
        if (r < 0) {
                secret_value_done(value);
                return r;
        }
        *ret_id = s->drafts[s->n_drafts++].secret.id;
        return 0;
}

static int extract_member(struct op *op, struct runtime *rt, const struct environment *env,
                          json_t *config, const struct kind_secret *secret, struct env_secrets *s,
                          struct err *err)
{
        json_t *value = json_object_get(config, secret->member);
        const char *id;

        if (!json_is_string(value))
                return 0;
        int r = draft_secret(op, rt, env, secret->name, json_string_value(value),
                             json_string_length(value), s, &id, err);
        if (r < 0)
                return r;
        json_object_set_new(config, secret->reference,
                            json_pack("{s:s, s:s, s:s}", "type", "secret_ref", "secretId", id,
                                      "version", "latest"));
        json_object_set_new(config, secret->member, json_null());
        return 0;
}

/* A blank value is removed, an id stays, anything else is a value. */
static int extract_path(struct op *op, struct runtime *rt, const struct environment *env,
                        json_t *config, const char *path, struct env_secrets *s, struct err *err)
{
        json_t *value = json_path_get(config, path);
        const char *text, *id;
        struct uuid uuid;

        if (!json_is_string(value))
                return 0;
        text = json_string_value(value);
        text += strspn(text, " \t\r\n");
        size_t len = strlen(text);
        while (len > 0 && isspace((unsigned char)text[len - 1]))
                len--;
        if (len == 0) {
                json_path_set(config, path, NULL);
                return 0;
        }
        if (len == UUID_LEN && uuid_parse(arena_strndup(op->arena, text, len), &uuid)) {
                json_path_set(config, path, json_string(uuid.s));
                return 0;
        }
        int r = draft_secret(op, rt, env, slug_of(op->arena, path, strlen(path)), text, len, s, &id,
                             err);
        if (r >= 0)
                json_path_set(config, path, json_string(id));
        return r;
}

int env_secrets_extract(struct op *op, struct runtime *rt, const struct environment *env,
                        json_t *config, const json_t *schema, struct env_secrets *ret,
                        struct err *err)
{
        const struct kind *kind = kind_of_config(rt, env->driver, config);
        const struct kind_secret *secret = kind->secrets;
        json_t *paths = kind->has_secrets_by_schema && !kind->keeps_references
                                ? secret_ref_paths(schema)
                                : json_array();
        size_t most = json_array_size(paths) + kind_n_secrets(kind) + 1;
        int r = 0;

        *ret = (struct env_secrets){ .drafts = xcalloc(most, sizeof(*ret->drafts)),
                                     .values = xcalloc(most, sizeof(*ret->values)) };
        for (; r >= 0 && secret && secret->member; secret++)
                r = extract_member(op, rt, env, config, secret, ret, err);
        for (size_t i = 0; r >= 0 && i < json_array_size(paths); i++)
                r = extract_path(op, rt, env, config, json_string_value(json_array_get(paths, i)),
                                 ret, err);
        json_decref(paths);
        if (r < 0)
                env_secrets_abandon(op, ret);
        return r;
}

/* Bindings */

static size_t collect_refs(const struct kind *kind, const json_t *config, const json_t *paths,
                           struct arena *arena, struct secret_ref *refs)
{
        size_t n = 0, i;
        json_t *path;

        for (const struct kind_secret *s = kind->secrets; s && s->member; s++) {
                const json_t *ref = json_get_object(config, s->reference);

                if (ref)
                        refs[n++] = (struct secret_ref){
                                .secret_id = json_get_string(ref, "secretId"),
                                .config_path = s->reference,
                                .version = json_integer_value(json_object_get(ref, "version")),
                        };
        }
        json_array_foreach(paths, i, path)
        {
                struct secret_ref ref = { .config_path = json_string_value(path) };

                if (!secret_read_member(kind, config, ref.config_path, &ref.secret_id,
                                        &ref.version))
                        continue;
                ref.config_path = arena_strdup(arena, ref.config_path);
                refs[n++] = ref;
        }
        return n;
}

static int bind_refs(struct db *db, const struct op *op, const struct runtime *rt,
                     const struct environment *env, const json_t *config, const json_t *schema,
                     struct err *err)
{
        const struct kind *kind = kind_of_config(rt, env->driver, config);
        json_t *paths = kind->has_secrets_by_schema ? secret_ref_paths(schema) : json_array();
        struct secret_ref *refs =
                xcalloc(json_array_size(paths) + kind_n_secrets(kind) + 1, sizeof(*refs));
        size_t n = collect_refs(kind, config, paths, op->arena, refs);
        int r = secret_sync_refs(db, env->company_id, "environment", env->id, refs, n, op->arena,
                                 err);

        free(refs);
        json_decref(paths);
        return r;
}

/* What is not needed any more */

/* Only other objects have bindings to it: it is theirs from now on. */
static int let_go(struct db *db, struct secret *secret, const char *environment_id, struct err *err)
{
        int64_t others;
        int r = secret_bindings_count_others(db, secret->id, environment_id, &others, err);

        if (r < 0 || others < secret->reference_count)
                return r; /* still in the configuration */
        secret->owner_environment_id = NULL;
        return secret_store(db, secret, err);
}

/* A living place may need its key once more, to be given up: then the sweeper comes back. */
static int drop_unneeded(struct db *db, const struct op *op, struct runtime *rt,
                         const char *environment_id, struct env_secrets *s, struct err *err)
{
        struct secret *list;
        int64_t living = 0;
        int n, r = db_number(db,
                             "SELECT COUNT(*) FROM places WHERE environment_id = ?1 AND state <> "
                             "'gone'",
                             DB_ARGS(DB_T(environment_id)), &living, err);

        n = r < 0 ? r : secrets_owned(db, environment_id, op->arena, &list, err);
        if (n < 0)
                return n;
        free(s->removals); /* of a run that was undone */
        s->removals = xcalloc((size_t)n + 1, sizeof(*s->removals));
        s->n_removals = 0;
        for (struct secret *one = list; r >= 0 && one < list + n; one++) {
                if (streq(one->status, SECRET_DELETED) || one->reserved_by)
                        continue;
                if (one->reference_count > 0)
                        r = let_go(db, one, environment_id, err);
                else if (living == 0)
                        r = secret_removal_mark(db, op, rt, one, &s->removals[s->n_removals++],
                                                err);
        }
        return MIN(r, 0);
}

int env_secrets_commit(struct db *db, const struct op *op, struct runtime *rt,
                       const struct environment *env, const json_t *config, const json_t *schema,
                       struct env_secrets *s, struct err *err)
{
        int r = 0;

        for (size_t i = 0; r >= 0 && i < s->n_drafts; i++)
                r = secret_draft_commit(db, op, &s->drafts[i], err);
        if (r >= 0)
                r = bind_refs(db, op, rt, env, config, schema, err);
        return r < 0 ? r : drop_unneeded(db, op, rt, env->id, s, err);
}

int env_secrets_remove(struct db *db, const struct op *op, struct runtime *rt,
                       const struct environment *env, struct env_secrets *s, struct err *err)
{
        int r = secret_sync_refs(db, env->company_id, "environment", env->id, NULL, 0, op->arena,
                                 err);

        return r < 0 ? r : drop_unneeded(db, op, rt, env->id, s, err);
}

/* Ends */

static void env_secrets_done(struct env_secrets *s)
{
        for (size_t i = 0; i < s->n_drafts; i++)
                secret_value_done(&s->values[i]);
        free(s->drafts);
        free(s->values);
        free(s->removals);
        *s = (struct env_secrets){ 0 };
}

void env_secrets_finish(struct op *op, struct runtime *rt, struct env_secrets *s)
{
        for (size_t i = 0; i < s->n_removals; i++) {
                CLEAN(err_done) struct err err = { 0 };

                if (s->removals[i].is_done)
                        continue;
                if (secret_removal_finish(op, rt, &s->removals[i].secret, &err) < 0)
                        log_warn("the secret of an environment could not be removed from its "
                                 "vault; it will be tried again",
                                 LOG_S("secret", s->removals[i].secret.id),
                                 LOG_S("error", err.msg));
        }
        env_secrets_done(s);
}

void env_secrets_abandon(struct op *op, struct env_secrets *s)
{
        for (size_t i = 0; i < s->n_drafts; i++)
                secret_draft_abandon(op, &s->drafts[i]);
        env_secrets_done(s);
}

/* Sweeping */

struct secrets_sweep {
        struct op *op;
        struct runtime *rt;
        const char *environment_id;
        struct env_secrets secrets;
};

static int sweep_unneeded(struct db *db, void *arg, struct err *err)
{
        struct secrets_sweep *q = arg;

        return drop_unneeded(db, q->op, q->rt, q->environment_id, &q->secrets, err);
}

int env_secrets_sweep(struct op *op, struct runtime *rt, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct secrets_sweep q = { .op = op, .rt = rt };
        struct stmt *s = NULL;
        const char **due = NULL;
        size_t n = 0, room = 0;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = db_query(db,
                             "SELECT DISTINCT owner_environment_id FROM company_secrets c "
                             "WHERE owner_environment_id IS NOT NULL AND reserved_by IS NULL "
                             "AND status <> 'deleted' "
                             "AND NOT EXISTS (SELECT 1 FROM company_secret_bindings b "
                             "WHERE b.secret_id = c.id) "
                             "AND NOT EXISTS (SELECT 1 FROM places p WHERE "
                             "p.environment_id = c.owner_environment_id AND p.state <> 'gone')",
                             DB_NO_ARGS, &s, err);
        while (r >= 0 && (r = stmt_step(s, err)) > 0) {
                due = arena_more(op->arena, due, n, &room, sizeof(*due));
                due[n++] = stmt_text(s, 0, op->arena);
        }
        stmt_end(&s);
        store_read_end(&db);
        for (size_t i = 0; r >= 0 && i < n; i++) {
                q.environment_id = due[i];
                FAULT("env_secrets.sweep.before");
                r = store_write(op, rt->store, sweep_unneeded, &q, err);
                FAULT("env_secrets.sweep.after");
                if (r >= 0)
                        env_secrets_finish(op, rt, &q.secrets);
                else
                        env_secrets_done(&q.secrets);
        }
        return r;
}
