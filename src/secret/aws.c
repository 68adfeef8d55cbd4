/* Values in AWS Secrets Manager.
 *
 * A managed secret has a name that is derived from deployment, company and key. Its versions are
 * told apart by AWS's version ids, and stored material names one, so what resolves never depends on
 * a label that somebody moves.
 *
 * AWS discards versions without a label when it likes. A rotation puts the new value under
 * PAPERCLIP_PENDING, which takes that label off the version before it. So it first gives AWSCURRENT
 * to the version that is current here; whatever happens then, the version in use has a label:
 *
 *     current here: v2        v1              v2                    v3
 *     before                  AWSCURRENT      PENDING
 *     promote v2              AWSPREVIOUS     AWSCURRENT, PENDING
 *     put v3                  AWSPREVIOUS     AWSCURRENT            PENDING
 *     v3 was committed        -               AWSPREVIOUS           AWSCURRENT, PENDING
 *     or v3 was given up      AWSPREVIOUS     AWSCURRENT            -
 *
 * The ids of versions are chosen here (ClientRequestToken), so that after a lost answer we can tell
 * whether the request arrived. */
#include "secret/aws.h"

#include <math.h>

#include "base/clock.h"
#include "base/log.h"
#include "codec/json_scan.h"

#define STAGE_PENDING   "PAPERCLIP_PENDING"
#define STAGE_CURRENT   "AWSCURRENT"
#define UNDO_MS         10000
#define DESCRIPTION_MAX 500
#define REFERENCE_MAX   2048

/* ---- calls ---- */

struct request {
        struct buf text;
        struct jw w;
};

static void request_init(struct request *q)
{
        q->text = BUF_INIT;
        jw_init(&q->w, &q->text);
        jw_object(&q->w);
}

static void request_done(struct request *q)
{
        buf_done(&q->text);
}

/* Without a value in it. */
static int send(struct op *op, const struct aws_settings *s, const char *operation,
                struct request *q, struct transfer_answer *ret, struct err *err)
{
        struct aws_call call = { .operation = operation };

        jw_object_end(&q->w);
        if (buf_failed(&q->text))
                return err_set(err, ERR_TOO_LARGE, "The request to the vault is too large.");
        call.body = buf_str(&q->text);
        call.len = q->text.len;
        return aws_call_run(op, s, &call, ret, err);
}

/* With the value as SecretString, in memory that is wiped. */
static int send_value(struct op *op, const struct aws_settings *s, const char *operation,
                      struct request *q, const struct secret_value *value,
                      struct transfer_answer *ret, struct err *err)
{
        CLEAN(secret_value_done) struct secret_value body = { 0 };
        struct aws_call call = { .operation = operation, .holds_value = true };
        size_t escaped = json_scan_escaped_len(value->data, value->len), n;
        int r;

        jw_key(&q->w, "SecretString");
        if (buf_failed(&q->text))
                return err_set(err, ERR_TOO_LARGE, "The request to the vault is too large.");
        r = secret_value_alloc(&body, q->text.len + escaped + 3, err);
        if (r < 0)
                return r;
        memcpy(body.data, q->text.data, q->text.len);
        n = q->text.len;
        body.data[n++] = '"';
        n += json_scan_escape(value->data, value->len, body.data + n);
        body.data[n++] = '"';
        body.data[n++] = '}';
        call.body = body.data;
        call.len = n;
        return aws_call_run(op, s, &call, ret, err);
}

static int bad_answer(const char *operation, const char *what, struct err *err)
{
        log_warn("AWS Secrets Manager answered nonsense", LOG_S("operation", operation),
                 LOG_S("what", what));
        return vault_fail(err, VAULT_ERROR, aws_failure_text(VAULT_ERROR));
}

/* A string member, in the arena; NULL when there is none. Never for the value itself. */
static const char *answer_text(struct op *op, const struct transfer_answer *a, const char *key)
{
        const char *raw;
        size_t len, n;
        char *text;

        if (!a->room.data || json_scan_string(a->room.data, a->len, key, &raw, &len, NULL) <= 0)
                return NULL;
        text = arena_alloc(op->arena, len + 1);
        if (json_scan_decode(raw, len, text, &n, NULL) < 0 || n == 0 || n > REFERENCE_MAX)
                return NULL;
        return text;
}

/* Answers without a value. */
static int answer_json(struct op *op, const char *operation, const struct transfer_answer *a,
                       json_t **ret, struct err *err)
{
        CLEAN(err_done) struct err why = { 0 };
        json_t *document = NULL;

        if (!a->room.data || json_parse(a->room.data, a->len, &document, &why) < 0)
                return bad_answer(operation, why.msg, err);
        arena_defer(op->arena, (void (*)(void *))json_decref, document);
        if (!json_is_object(document))
                return bad_answer(operation, "not an object", err);
        *ret = document;
        return 0;
}

/* What create and put answer: which secret, which version. */
static int answer_material(struct op *op, const char *operation, const struct transfer_answer *a,
                           const char *asked_for, struct vault_material *ret, struct err *err)
{
        struct aws_material m = { .managed = true };

        m.secret_id = answer_text(op, a, "ARN");
        if (!m.secret_id)
                m.secret_id = answer_text(op, a, "Name");
        if (!m.secret_id)
                m.secret_id = asked_for;
        m.version_id = answer_text(op, a, "VersionId");
        if (!m.version_id)
                return bad_answer(operation, "no version", err);
        aws_material_write(op->arena, &m, ret);
        return 0;
}

/* ---- what AWS has under a name ---- */

struct description {
        bool is_deleted;      /* it only waits for the end of its recovery window */
        const json_t *stages; /* version id to its labels */
};

static int describe(struct op *op, const struct aws_settings *s, const char *secret_id,
                    struct description *ret, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(request_done) struct request q;
        json_t *document = NULL;
        int r;

        request_init(&q);
        jw_kstring(&q.w, "SecretId", secret_id);
        r = send(op, s, "DescribeSecret", &q, &answer, err);
        if (r == 0)
                r = answer_json(op, "DescribeSecret", &answer, &document, err);
        if (r < 0)
                return r;
        ret->is_deleted = json_is_number(json_object_get(document, "DeletedDate"));
        ret->stages = json_get_object(document, "VersionIdsToStages");
        return 0;
}

static bool has_stage(const json_t *labels, const char *stage)
{
        const json_t *label;
        size_t i;

        json_array_foreach(labels, i,
                           label) if (json_is_string(label) &&
                                      streq(json_string_value(label), stage)) return true;
        return false;
}

/* The version with the label, or NULL. */
static const char *version_with(const struct description *d, const char *stage)
{
        const char *id;
        json_t *labels;

        json_object_foreach((json_t *)d->stages, id,
                            labels) if (has_stage(labels, stage)) return id;
        return NULL;
}

static int move_current(struct op *op, const struct aws_settings *s, const char *secret_id,
                        const char *version_id, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(request_done) struct request q;
        struct description d = { 0 };
        const char *holder;
        int r = describe(op, s, secret_id, &d, err);

        if (r < 0)
                return r;
        holder = version_with(&d, STAGE_CURRENT);
        if (holder && streq(holder, version_id))
                return 0;
        request_init(&q);
        jw_kstring(&q.w, "SecretId", secret_id);
        jw_kstring(&q.w, "VersionStage", STAGE_CURRENT);
        jw_kstring(&q.w, "MoveToVersionId", version_id);
        if (holder)
                jw_kstring(&q.w, "RemoveFromVersionId", holder);
        return send(op, s, "UpdateSecretVersionStage", &q, &answer, err);
}

/* ---- create ---- */

static void put_tag(struct jw *w, const char *key, const char *value)
{
        jw_object(w);
        jw_kstring(w, "Key", key);
        jw_kstring(w, "Value", value);
        jw_object_end(w);
}

static void put_tags(struct jw *w, const struct aws_settings *s,
                     const struct vault_subject *subject)
{
        jw_key(w, "Tags");
        jw_array(w);
        put_tag(w, "paperclip:managed-by", "paperclip");
        put_tag(w, "paperclip:provider-owner", s->owner);
        put_tag(w, "paperclip:deployment-id", s->deployment_id);
        put_tag(w, "paperclip:company-id", subject->company_id);
        put_tag(w, "paperclip:secret-key", subject->secret_key);
        put_tag(w, "paperclip:environment", s->environment);
        jw_array_end(w);
}

/* At most so many bytes, and whole characters. */
static size_t cut(const char *text, size_t max)
{
        size_t n = strnlen(text, max + 1);

        if (n <= max)
                return n;
        for (n = max; n > 0 && ((unsigned char)text[n] & 0xc0) == 0x80;)
                n--;
        return n;
}

static void put_create(struct op *op, struct request *q, const struct aws_settings *s,
                       const struct vault_subject *subject, const char *name, const char *token)
{
        const char *title = subject->secret_name ? subject->secret_name : subject->secret_key;

        jw_kstring(&q->w, "Name", name);
        jw_kstring(&q->w, "ClientRequestToken", token);
        if (s->kms_key_id)
                jw_kstring(&q->w, "KmsKeyId", s->kms_key_id);
        jw_kstring(&q->w, "Description",
                   arena_printf(op->arena, "Paperclip secret %.*s",
                                (int)cut(title, DESCRIPTION_MAX), title));
        put_tags(&q->w, s, subject);
}

/* No answer came to a create. If AWS did it, nobody will ever ask for that secret, and its name
 * would be taken: remove it, but only if the version in it is the one that we sent. */
static void undo_create(const struct op *op, const struct aws_settings *s, const char *name,
                        const char *token)
{
        struct op shield = op_shield(op, UNDO_MS);
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(request_done) struct request q;
        struct description d = { 0 };
        int r = describe(&shield, s, name, &d, &e);

        if (r < 0 && vault_failure_of(&e) == VAULT_NOT_FOUND)
                return;
        if (r == 0 && !json_object_get(d.stages, token))
                return;
        request_init(&q);
        jw_kstring(&q.w, "SecretId", name);
        jw_kbool(&q.w, "ForceDeleteWithoutRecovery", true);
        if (r == 0)
                r = send(&shield, s, "DeleteSecret", &q, &answer, &e);
        if (r < 0)
                log_warn("a secret may have been left in AWS Secrets Manager", LOG_S("name", name),
                         LOG_S("reason", e.msg));
}

/* AWS keeps the name of a deleted secret until its recovery window ends, and says so in a text
 * only. */
static int explain_create(struct op *op, const struct aws_settings *s, const char *name, int code,
                          struct err *err)
{
        struct description d = { 0 };

        if (!err || vault_failure_of(err) != VAULT_INVALID_REQUEST ||
            describe(op, s, name, &d, NULL) < 0 || !d.is_deleted)
                return code;
        return vault_fail(err, VAULT_CONFLICT,
                          "AWS Secrets Manager still keeps a deleted secret of this key until its "
                          "recovery window ends. Choose another key, or purge it in AWS.");
}

static bool may_have_happened(int code, const struct transfer_answer *a, const struct err *err)
{
        return a->sent &&
               (code == ERR_CANCELLED || code == ERR_TIMEOUT ||
                vault_failure_of(err) == VAULT_UNAVAILABLE || vault_failure_of(err) == VAULT_ERROR);
}

static int aws_create(struct op *op, const struct vault_config *config,
                      const struct vault_subject *subject, const struct secret_value *value,
                      struct vault_material *ret, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(request_done) struct request q;
        struct uuid token = uuid_new();
        struct aws_settings s = { 0 };
        const char *name = NULL;
        int r = aws_settings_load(op->arena, config, &s, err);

        if (r == 0)
                r = aws_managed_name(op->arena, &s, subject, &name, err);
        if (r < 0)
                return r;
        request_init(&q);
        put_create(op, &q, &s, subject, name, token.s);
        r = send_value(op, &s, "CreateSecret", &q, value, &answer, &e);
        if (r == 0)
                r = answer_material(op, "CreateSecret", &answer, name, ret, &e);
        if (r < 0 && may_have_happened(r, &answer, &e))
                undo_create(op, &s, name, token.s);
        else if (r < 0)
                r = explain_create(op, &s, name, r, &e);
        if (r < 0)
                err_move(err, &e);
        return r;
}

/* ---- rotate ---- */

/* The subject's own secret, whichever of the stored references still names it. */
static int own_reference(struct op *op, const struct aws_settings *s,
                         const struct vault_subject *subject, const struct vault_material *stored,
                         const struct aws_material *m, const char **ret, struct err *err)
{
        const char *const references[2] = { m->secret_id, stored->external_ref };

        return aws_managed_reference(op->arena, s, subject, references, ret, err);
}

/* AWS may have discarded it, or somebody there deleted it: then there is nothing to keep, and
 * rotating is the cure. */
static int protect_current(struct op *op, const struct aws_settings *s, const char *secret_id,
                           const char *version_id, struct err *err)
{
        CLEAN(err_done) struct err e = { 0 };
        int r = version_id ? move_current(op, s, secret_id, version_id, &e) : 0;

        if (r < 0 && vault_failure_of(&e) == VAULT_NOT_FOUND) {
                log_warn("the current version of a secret is not in AWS Secrets Manager any more");
                return 0;
        }
        if (r < 0)
                err_move(err, &e);
        return r;
}

static int put_version(struct op *op, const struct aws_settings *s, const char *secret_id,
                       const struct secret_value *value, struct vault_material *ret,
                       struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(request_done) struct request q;
        struct uuid token = uuid_new();
        int r;

        request_init(&q);
        jw_kstring(&q.w, "SecretId", secret_id);
        jw_kstring(&q.w, "ClientRequestToken", token.s);
        jw_key(&q.w, "VersionStages");
        jw_array(&q.w);
        jw_string(&q.w, STAGE_PENDING);
        jw_array_end(&q.w);
        r = send_value(op, s, "PutSecretValue", &q, value, &answer, err);
        return r < 0 ? r : answer_material(op, "PutSecretValue", &answer, secret_id, ret, err);
}

static int aws_create_version(struct op *op, const struct vault_config *config,
                              const struct vault_subject *subject,
                              const struct vault_material *current,
                              const struct secret_value *value, struct vault_material *ret,
                              struct err *err)
{
        struct aws_settings s = { 0 };
        struct aws_material m = { 0 };
        const char *secret_id = NULL, *version_id;
        int r = aws_settings_load(op->arena, config, &s, err);

        if (r == 0)
                r = aws_material_read(op->arena, current, &m, err);
        if (r == 0)
                r = own_reference(op, &s, subject, current, &m, &secret_id, err);
        if (r < 0)
                return r;
        version_id = current->version_ref ? current->version_ref : m.version_id;
        r = protect_current(op, &s, secret_id, version_id, err);
        return r < 0 ? r : put_version(op, &s, secret_id, value, ret, err);
}

static int aws_promote(struct op *op, const struct vault_config *config,
                       const struct vault_subject *subject, const struct vault_material *material,
                       struct err *err)
{
        struct aws_settings s = { 0 };
        struct aws_material m = { 0 };
        const char *secret_id = NULL;
        int r = aws_settings_load(op->arena, config, &s, err);

        if (r == 0)
                r = aws_material_read(op->arena, material, &m, err);
        if (r < 0 || !m.managed || !m.version_id)
                return r;
        r = own_reference(op, &s, subject, material, &m, &secret_id, err);
        return r < 0 ? r : move_current(op, &s, secret_id, m.version_id, err);
}

/* ---- references ---- */

static int aws_link(struct op *op, const struct vault_config *config,
                    const struct vault_subject *subject, const char *external_ref,
                    const char *version_ref, struct vault_material *ret, struct err *err)
{
        struct aws_settings s = { 0 };
        struct aws_material m = { .secret_id = arena_strtrim(op->arena, external_ref),
                                  .version_id = arena_strtrim(op->arena, version_ref) };
        int r = aws_settings_load(op->arena, config, &s, err);

        if (r < 0)
                return r;
        if (!m.secret_id || strlen(m.secret_id) > REFERENCE_MAX)
                return err_set(err, ERR_UNPROCESSABLE,
                               "An AWS secret is named by its ARN or its name");
        if (aws_reference_in_namespace(op->arena, &s, m.secret_id))
                return err_set(err, ERR_UNPROCESSABLE,
                               "AWS Paperclip-managed namespace secrets cannot be imported as "
                               "external references");
        aws_material_write(op->arena, &m, ret);
        return 0;
}

/* ---- resolve ---- */

static int take_value(const struct transfer_answer *a, struct secret_value *ret, struct err *err)
{
        CLEAN(secret_value_done) struct secret_value decoded = { 0 };
        const char *raw = NULL;
        size_t len = 0, n = 0;
        int r = a->room.data
                        ? json_scan_string(a->room.data, a->len, "SecretString", &raw, &len, NULL)
                        : 0;

        if (r < 0)
                return bad_answer("GetSecretValue", "not JSON", err);
        if (r == 0 || len == 0)
                return bad_answer("GetSecretValue", "SecretString was empty", err);
        r = secret_value_alloc(&decoded, len, err);
        if (r < 0)
                return r;
        if (json_scan_decode(raw, len, decoded.data, &n, NULL) < 0)
                return bad_answer("GetSecretValue", "SecretString is not text", err);
        return secret_value_set(ret, decoded.data, n, err);
}

static int find_target(struct op *op, const struct aws_settings *s,
                       const struct vault_subject *subject, const struct vault_material *material,
                       const struct aws_material *m, const char **ret, struct err *err)
{
        if (m->managed)
                return own_reference(op, s, subject, material, m, ret, err);
        /* The namespace may have been changed since it was linked. */
        if (aws_reference_in_namespace(op->arena, s, m->secret_id))
                return err_set(err, ERR_UNPROCESSABLE,
                               "AWS Paperclip-managed namespace secrets cannot be imported as "
                               "external references");
        *ret = m->secret_id;
        return 0;
}

static int aws_resolve(struct op *op, const struct vault_config *config,
                       const struct vault_subject *subject, const struct vault_material *material,
                       struct secret_value *ret, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(request_done) struct request q;
        struct aws_settings s = { 0 };
        struct aws_material m = { 0 };
        const char *secret_id = NULL, *version_id;
        int r = aws_settings_load(op->arena, config, &s, err);

        if (r == 0)
                r = aws_material_read(op->arena, material, &m, err);
        if (r == 0)
                r = find_target(op, &s, subject, material, &m, &secret_id, err);
        if (r < 0)
                return r;
        version_id = material->version_ref ? material->version_ref : m.version_id;
        request_init(&q);
        jw_kstring(&q.w, "SecretId", secret_id);
        if (version_id)
                jw_kstring(&q.w, "VersionId", version_id);
        else
                jw_kstring(&q.w, "VersionStage", STAGE_CURRENT);
        jw_object_end(&q.w);
        r = aws_call_run(op, &s,
                         &(struct aws_call){ .operation = "GetSecretValue",
                                             .body = buf_str(&q.text),
                                             .len = q.text.len,
                                             .holds_value = true },
                         &answer, err);
        return r < 0 ? r : take_value(&answer, ret, err);
}

/* ---- remove ---- */

static int delete_secret(struct op *op, const struct aws_settings *s, const char *secret_id,
                         struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(request_done) struct request q;
        struct description d = { 0 };
        struct err e = { 0 };
        int r;

        request_init(&q);
        jw_kstring(&q.w, "SecretId", secret_id);
        jw_kint(&q.w, "RecoveryWindowInDays", s->recovery_days);
        r = send(op, s, "DeleteSecret", &q, &answer, &e);
        /* A deletion whose answer was lost is asked for again, and refused the second time. */
        if (r < 0 && vault_failure_of(&e) == VAULT_INVALID_REQUEST &&
            describe(op, s, secret_id, &d, NULL) == 0 && d.is_deleted)
                r = 0;
        if (r < 0)
                err_move(err, &e);
        err_done(&e);
        return r;
}

static int archive_version(struct op *op, const struct aws_settings *s, const char *secret_id,
                           const char *version_id, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(request_done) struct request q;

        if (!version_id)
                return 0;
        request_init(&q);
        jw_kstring(&q.w, "SecretId", secret_id);
        jw_kstring(&q.w, "VersionStage", STAGE_PENDING);
        jw_kstring(&q.w, "RemoveFromVersionId", version_id);
        return send(op, s, "UpdateSecretVersionStage", &q, &answer, err);
}

static int aws_remove(struct op *op, const struct vault_config *config,
                      const struct vault_subject *subject, const struct vault_material *material,
                      enum vault_removal mode, struct err *err)
{
        struct aws_settings s = { 0 };
        struct aws_material m = { 0 };
        const char *secret_id = NULL;
        int r = aws_material_read(op->arena, material, &m, err);

        if (r < 0 || !m.managed)
                return r;
        r = aws_settings_load(op->arena, config, &s, err);
        if (r == 0)
                r = own_reference(op, &s, subject, material, &m, &secret_id, err);
        if (r < 0)
                return r;
        if (mode == VAULT_DELETE)
                return delete_secret(op, &s, secret_id, err);
        return archive_version(op, &s, secret_id,
                               material->version_ref ? material->version_ref : m.version_id, err);
}

/* ---- list ---- */

/* AWS writes seconds since 1970, with a fraction. */
static void set_date(json_t *to, const char *key, const json_t *entry, const char *from)
{
        const json_t *v = json_object_get(entry, from);
        double seconds = json_is_number(v) ? json_number_value(v) : NAN;
        char iso[ISO_TIME_LEN + 1];

        if (!isfinite(seconds) || fabs(seconds) > 1e11) {
                json_object_set_new(to, key, json_null());
                return;
        }
        clock_iso((int64_t)(seconds * (double)US_PER_S), iso);
        json_object_set_new(to, key, json_string(iso));
}

/* What a description or a tag says stays in AWS; that there is one may be known. */
static json_t *metadata_of(const json_t *entry)
{
        const char *description = json_get_string(entry, "Description");
        const char *kms = json_get_string(entry, "KmsKeyId");
        json_t *m = json_object();

        set_date(m, "createdDate", entry, "CreatedDate");
        set_date(m, "lastAccessedDate", entry, "LastAccessedDate");
        set_date(m, "lastChangedDate", entry, "LastChangedDate");
        set_date(m, "deletedDate", entry, "DeletedDate");
        json_object_set_new(m, "hasDescription", json_boolean(description && *description));
        json_object_set_new(m, "hasKmsKey", json_boolean(kms && *kms));
        json_object_set_new(
                m, "tagCount",
                json_integer((json_int_t)json_array_size(json_object_get(entry, "Tags"))));
        return m;
}

static void add_entry(json_t *list, const json_t *entry)
{
        const char *arn = json_get_string(entry, "ARN"), *name = json_get_string(entry, "Name");
        json_t *row;

        if (!arn && !name)
                return;
        row = json_object();
        json_object_set_new(row, "externalRef", json_string(arn ? arn : name));
        json_object_set_new(row, "name", json_string(name ? name : aws_reference_name(arn)));
        json_object_set_new(row, "providerVersionRef", json_null());
        json_object_set_new(row, "providerMetadata", metadata_of(entry));
        json_array_append_new(list, row);
}

static void put_list(struct jw *w, const struct vault_page *page)
{
        jw_kint(w, "MaxResults", MAX(1, MIN(page->page_size, 100)));
        if (page->next_token)
                jw_kstring(w, "NextToken", page->next_token);
        jw_kbool(w, "IncludePlannedDeletion", false);
        if (!page->query || !*page->query)
                return;
        jw_key(w, "Filters");
        jw_array(w);
        jw_object(w);
        jw_kstring(w, "Key", "all");
        jw_key(w, "Values");
        jw_array(w);
        jw_string(w, page->query);
        jw_array_end(w);
        jw_object_end(w);
        jw_array_end(w);
}

static int aws_list(struct op *op, const struct vault_config *config, const struct vault_page *page,
                    json_t **ret, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(request_done) struct request q;
        struct aws_settings s = { 0 };
        json_t *document = NULL, *list, *entry;
        size_t i;
        int r = aws_settings_load(op->arena, config, &s, err);

        if (r < 0)
                return r;
        request_init(&q);
        put_list(&q.w, page);
        r = send(op, &s, "ListSecrets", &q, &answer, err);
        if (r == 0)
                r = answer_json(op, "ListSecrets", &answer, &document, err);
        if (r < 0)
                return r;
        list = json_array();
        json_array_foreach(json_object_get(document, "SecretList"), i, entry)
                add_entry(list, entry);
        *ret = json_pack("{s:o,s:o}", "secrets", list, "nextToken",
                         json_string_or_null(json_get_string(document, "NextToken")));
        return 0;
}

/* ---- health ---- */

static json_t *in_arena(struct op *op, json_t *v)
{
        arena_defer(op->arena, (void (*)(void *))json_decref, v);
        return v;
}

static json_t *texts(struct op *op, const char *text)
{
        json_t *list = in_arena(op, json_array());

        if (text)
                json_array_append_new(list, json_string(text));
        return list;
}

static int health_missing(struct op *op, struct vault_health *ret)
{
        CLEAN(buf_done) struct buf list = BUF_INIT;
        json_t *missing = aws_settings_missing(), *name;
        size_t i;

        json_array_foreach(missing, i, name)
                buf_appendf(&list, "%s%s", i ? ", " : "", json_string_value(name));
        ret->status = "warn";
        ret->message =
                arena_printf(op->arena, "AWS Secrets Manager provider is not ready: missing %s.",
                             buf_str(&list));
        json_object_set_new(ret->details, "missingConfig", missing);
        return 0;
}

/* Makes no call: whether the settings and what can be seen of credentials make sense. */
static int aws_health(struct op *op, const struct vault_config *config, struct vault_health *ret,
                      struct err *err)
{
        CLEAN(err_done) struct err why = { 0 };
        json_t *missing = aws_settings_missing();
        bool is_static = aws_credentials_static_in_env(), has_all = json_array_size(missing) == 0;
        struct aws_settings s = { 0 };
        int r = aws_settings_load(op->arena, config, &s, &why);

        json_decref(missing);
        *ret = (struct vault_health){
                .status = is_static ? "warn" : "ok",
                .message = "AWS Secrets Manager provider is configured.",
                .details = in_arena(op, json_object()),
                .warnings = texts(op, is_static ? "Static AWS access keys are visible in the "
                                                  "environment of this process. Prefer a role: "
                                                  "instance, container or web identity."
                                                : NULL),
                .guidance = texts(op, "Values live in AWS. A back-up of the database holds their "
                                      "references, and restores nothing without that account."),
        };
        json_object_set_new(ret->details, "credentialSource",
                            json_string("AWS SDK default credential provider chain"));
        json_object_set_new(ret->details, "detectedCredentialSources", aws_credentials_detected());
        if (r < 0 && !(config && config->id) && !has_all)
                return health_missing(op, ret);
        if (r < 0) {
                ret->status = "error";
                ret->message = arena_strdup(op->arena, why.msg);
                return 0;
        }
        json_object_set_new(ret->details, "region", json_string(s.region));
        json_object_set_new(ret->details, "prefix", json_string(s.prefix));
        json_object_set_new(ret->details, "deploymentId", json_string(s.deployment_id));
        json_object_set_new(ret->details, "kmsKeyConfigured", json_boolean(s.kms_key_id != NULL));
        return 0;
}

static bool aws_is_configured(void)
{
        json_t *missing = aws_settings_missing();
        bool has_all = json_array_size(missing) == 0;

        json_decref(missing);
        return has_all;
}

const struct vault_provider vault_aws = {
        .key = VAULT_AWS,
        .label = "AWS Secrets Manager",
        .keeps_values = true,
        .keeps_references = true,
        .is_configured = aws_is_configured,
        .create = aws_create,
        .create_version = aws_create_version,
        .promote = aws_promote,
        .link = aws_link,
        .resolve = aws_resolve,
        .remove = aws_remove,
        .list = aws_list,
        .health = aws_health,
};
