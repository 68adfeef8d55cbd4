#include "secret_fixture.h"
#include "store_read.h"

#include <stdarg.h>
#include <sys/stat.h>

struct test_vault_calls vault_calls;

static void note(const struct vault_config *config, const struct vault_subject *s)
{
        const char *region = config->config ? json_get_string(config->config, "region") : NULL;

        vault_calls.had_config = config->id != NULL;
        snprintf(vault_calls.config_region, sizeof(vault_calls.config_region), "%s",
                 region ? region : "");
        snprintf(vault_calls.key, sizeof(vault_calls.key), "%s", s->secret_key);
        snprintf(vault_calls.name, sizeof(vault_calls.name), "%s", s->secret_name);
        vault_calls.version = s->version;
}

static int failure(int kind, struct err *err)
{
        return kind ? vault_fail(err, (enum vault_failure)(kind - 1), "The vault said no.") : 0;
}

static bool is_configured(void)
{
        return true;
}

static void answer(struct op *op, const struct vault_subject *s, struct vault_material *ret)
{
        *ret = (struct vault_material){
                .material = arena_printf(op->arena, "{\"v\":%lld}", (long long)s->version),
                .external_ref = arena_printf(op->arena, "ref:%s", s->secret_key),
                .version_ref = arena_printf(op->arena, "v%lld", (long long)s->version),
                .value_mark = "mark",
                .fingerprint = "print",
        };
}

static int create(struct op *op, const struct vault_config *config,
                  const struct vault_subject *subject, const struct secret_value *value,
                  struct vault_material *ret, struct err *err)
{
        int r = failure(vault_calls.fail_create, err);

        vault_calls.creates++;
        note(config, subject);
        if (r >= 0)
                answer(op, subject, ret);
        return r;
}

static int create_version(struct op *op, const struct vault_config *config,
                          const struct vault_subject *subject, const struct vault_material *current,
                          const struct secret_value *value, struct vault_material *ret,
                          struct err *err)
{
        int r = failure(vault_calls.fail_version, err);

        vault_calls.versions++;
        note(config, subject);
        if (r >= 0)
                answer(op, subject, ret);
        return r;
}

static int link_ref(struct op *op, const struct vault_config *config,
                    const struct vault_subject *subject, const char *external_ref,
                    const char *version_ref, struct vault_material *ret, struct err *err)
{
        int r = failure(vault_calls.fail_link, err);

        vault_calls.links++;
        note(config, subject);
        if (r < 0)
                return r;
        if (vault_calls.refuse_ref && streq(vault_calls.refuse_ref, external_ref))
                return err_set(err, ERR_UNPROCESSABLE, "managed namespace");
        *ret = (struct vault_material){
                .material = "{\"linked\":true}",
                .external_ref = arena_strdup(op->arena, external_ref),
                .version_ref = arena_strdup(op->arena, version_ref),
                .value_mark = "print",
                .fingerprint = "print",
        };
        return 0;
}

static int resolve(struct op *op, const struct vault_config *config,
                   const struct vault_subject *subject, const struct vault_material *material,
                   struct secret_value *ret, struct err *err)
{
        int r = failure(vault_calls.fail_resolve, err);

        vault_calls.resolves++;
        note(config, subject);
        snprintf(vault_calls.version_ref, sizeof(vault_calls.version_ref), "%s",
                 material->version_ref ? material->version_ref : "");
        return r < 0 ? r : secret_value_set(ret, "far away", 8, err);
}

static int remove_value(struct op *op, const struct vault_config *config,
                        const struct vault_subject *subject, const struct vault_material *material,
                        enum vault_removal mode, struct err *err)
{
        vault_calls.removes++;
        note(config, subject);
        vault_calls.mode = mode;
        snprintf(vault_calls.ref, sizeof(vault_calls.ref), "%s",
                 material->external_ref ? material->external_ref : "");
        snprintf(vault_calls.material, sizeof(vault_calls.material), "%s",
                 material->material ? material->material : "");
        return failure(vault_calls.fail_remove, err);
}

static int list(struct op *op, const struct vault_config *config, const struct vault_page *page,
                json_t **ret, struct err *err)
{
        int r = failure(vault_calls.fail_list, err);

        vault_calls.lists++;
        snprintf(vault_calls.query, sizeof(vault_calls.query), "%s",
                 page->query ? page->query : "");
        snprintf(vault_calls.token, sizeof(vault_calls.token), "%s",
                 page->next_token ? page->next_token : "");
        vault_calls.page_size = page->page_size;
        if (r >= 0)
                *ret = json_incref(vault_calls.listing);
        return r;
}

static int health(struct op *op, const struct vault_config *config, struct vault_health *ret,
                  struct err *err)
{
        *ret = (struct vault_health){ .status = "ok",
                                      .message = "fine",
                                      .details = json_keep(op->arena, json_object()) };
        return 0;
}

const struct vault_provider test_vault = {
        .key = VAULT_AWS,
        .label = "Test",
        .keeps_values = true,
        .keeps_references = true,
        .is_configured = is_configured,
        .create = create,
        .create_version = create_version,
        .link = link_ref,
        .resolve = resolve,
        .remove = remove_value,
        .list = list,
        .health = health,
};

static const struct vault_provider *const vaults[] = { &test_vault, NULL };

static int insert_rows(struct db *db, void *arg, struct err *err)
{
        struct company c = { .id = OTHER_COMPANY,
                             .name = "Other",
                             .status = "active",
                             .issue_prefix = "OTH",
                             .created_at = clock_now_us(),
                             .updated_at = clock_now_us() };

        (void)arg;
        return companies_insert(db, &c, err);
}

int secret_world_setup(void **state)
{
        struct secret_world *w = xcalloc(1, sizeof(*w));
        struct master_key_source source = { .is_ours = true };

        w->t = test_runtime_new(NULL);
        w->op = &w->t->op;
        w->rt = &w->t->rt;
        w->rt->vaults = vaults;
        w->board = (struct actor){ .type = ACTOR_BOARD,
                                   .source = SOURCE_LOCAL_IMPLICIT,
                                   .user_id = LOCAL_BOARD_USER,
                                   .is_instance_admin = true };
        w->op->actor = &w->board;
        snprintf(w->key_file, sizeof(w->key_file), "%s/master.key", w->t->dir);
        source.file = w->key_file;
        assert_int_equal(master_key_load(&source, false, NULL), 0);
        assert_true(store_write(w->op, w->rt->store, insert_rows, NULL, NULL) >= 0);
        vault_calls = (struct test_vault_calls){ 0 };
        *state = w;
        return 0;
}

int secret_world_teardown(void **state)
{
        struct secret_world *w = *state;
        char next[sizeof(w->key_file) + 8];

        snprintf(next, sizeof(next), "%s.next", w->key_file);
        (void)remove(w->key_file);
        (void)remove(next);
        master_key_unload();
        test_runtime_free(w->t);
        free(w);
        return 0;
}

static void drop(void *value)
{
        json_decref(value);
}

json_t *doc(struct secret_world *w, const char *fmt, ...)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        struct err e = { 0 };
        json_t *value = NULL;
        va_list ap;

        va_start(ap, fmt);
        buf_appendv(&text, fmt, ap);
        va_end(ap);
        if (json_parse(buf_str(&text), text.len, &value, &e) < 0)
                fail_msg("%s: %s", e.msg, buf_str(&text));
        arena_defer(w->op->arena, drop, value);
        return value;
}

static int run(struct db *db, void *arg, struct err *err)
{
        return db_script(db, *(const char *const *)arg, err);
}

void run_sql(struct secret_world *w, const char *sql)
{
        struct err e = { 0 };

        if (store_write(w->op, w->rt->store, run, &sql, &e) < 0)
                fail_msg("%s", e.msg);
}

struct text_query {
        const char *sql, *text;
        struct arena *arena;
};

static int read_text(struct db *db, void *arg, struct err *err)
{
        struct text_query *q = arg;
        CLEAN(stmt_end) struct stmt *s = NULL;
        int r = db_query(db, q->sql, DB_NO_ARGS, &s, err);

        if (r >= 0)
                r = stmt_step(s, err);
        if (r > 0)
                q->text = stmt_text(s, 0, q->arena);
        return r;
}

const char *sql_text(struct secret_world *w, const char *sql)
{
        struct text_query q = { sql, NULL, w->op->arena };

        assert_true(store_read(w->op, w->rt->store, read_text, &q, NULL) >= 0);
        return q.text;
}

static const char *text_of(const json_t *body, const char *member, const char *fallback)
{
        const char *text = json_get_string(body, member);

        return text ? text : fallback;
}

int create_from(struct op *op, struct runtime *rt, const char *company_id, json_t *body,
                struct secret *ret, struct err *err)
{
        CLEAN(secret_value_done) struct secret_value value = { 0 };
        const char *text = json_get_string(body, "value");
        struct secret_spec spec = {
                .name = json_get_string(body, "name"),
                .key = json_get_string(body, "key"),
                .provider = json_get_string(body, "provider"),
                .config_id = json_get_string(body, "providerConfigId"),
                .managed_mode = text_of(body, "managedMode", SECRET_MANAGED),
                .description = json_get_string(body, "description"),
                .external_ref = json_get_string(body, "externalRef"),
                .version_ref = json_get_string(body, "providerVersionRef"),
        };

        if (text)
                assert_true(secret_value_set(&value, text, strlen(text), NULL) >= 0);
        return secret_create(op, rt, company_id, &spec, text ? &value : NULL, ret, err);
}

int rotate_from(struct op *op, struct runtime *rt, const char *id, json_t *body, struct secret *ret,
                struct err *err)
{
        CLEAN(secret_value_done) struct secret_value value = { 0 };
        const char *text = json_get_string(body, "value");
        struct secret_rotation wanted = {
                .value = text ? &value : NULL,
                .external_ref = json_get_string(body, "externalRef"),
                .version_ref = json_get_string(body, "providerVersionRef"),
                .config_id = json_get_string(body, "providerConfigId"),
                .has_config = json_object_get(body, "providerConfigId") != NULL,
        };

        if (text)
                assert_true(secret_value_set(&value, text, strlen(text), NULL) >= 0);
        return secret_rotate(op, rt, id, &wanted, ret, err);
}

int update_from(struct op *op, struct runtime *rt, const char *id, json_t *body, struct secret *ret,
                struct err *err)
{
        struct secret_change change = {
                .name = json_get_string(body, "name"),
                .status = json_get_string(body, "status"),
                .config_id = json_get_string(body, "providerConfigId"),
                .external_ref = json_get_string(body, "externalRef"),
                .has_config = json_object_get(body, "providerConfigId") != NULL,
                .has_ref = json_object_get(body, "externalRef") != NULL,
        };

        return secret_update(op, rt, id, &change, ret, err);
}

const char *make_secret(struct secret_world *w, const char *name, const char *value)
{
        struct secret s;

        assert_done(create_from(w->op, w->rt, TEST_COMPANY,
                                doc(w, "{\"name\":\"%s\",\"value\":\"%s\"}", name, value), &s,
                                err));
        return s.id;
}

const char *make_in_vault(struct secret_world *w, const char *name, const char *value,
                          const char *config_id)
{
        struct secret s;

        assert_done(create_from(w->op, w->rt, TEST_COMPANY,
                                doc(w,
                                    "{\"name\":\"%s\",\"value\":\"%s\",\"provider\":"
                                    "\"aws_secrets_manager\",\"providerConfigId\":%s%s%s}",
                                    name, value, config_id ? "\"" : "",
                                    config_id ? config_id : "null", config_id ? "\"" : ""),
                                &s, err));
        return s.id;
}

const char *make_vault(struct secret_world *w, const char *company, const char *name,
                       bool is_default)
{
        struct vault_spec spec = { .provider = VAULT_AWS,
                                   .display_name = name,
                                   .status = VAULT_READY,
                                   .is_default = is_default,
                                   .config = "{\"region\":\"us-east-1\"}" };
        struct vault_row row;

        assert_done(vault_create(w->op, w->rt, company, &spec, &row, err));
        return row.id;
}

struct binding {
        struct secret_world *w;
        const char *type, *target;
        struct secret_ref ref;
};

static int do_bind(struct db *db, void *arg, struct err *err)
{
        struct binding *b = arg;

        return secret_bind(db, TEST_COMPANY, b->type, b->target, &b->ref, b->w->op->arena, err);
}

void bind(struct secret_world *w, const char *secret, const char *type, const char *target,
          const char *path, int64_t version)
{
        struct binding b = {
                w, type, target, { .secret_id = secret, .config_path = path, .version = version }
        };

        assert_done(store_write(w->op, w->rt->store, do_bind, &b, err));
}
