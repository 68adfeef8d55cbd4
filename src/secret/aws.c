/* Values in AWS Secrets Manager.
 *
 * A managed secret has a name that is derived from deployment, company and key. Its versions are
 * told apart by AWS's version ids, and stored material names one, so resolving never depends on a
 * label that can be moved.
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
 * The ids of versions are chosen here (ClientRequestToken), as AWS wants it. */
#include "secret/aws.h"

#include "base/log.h"
#include "codec/json_scan.h"

#define STAGE_PENDING   "PAPERCLIP_PENDING"
#define STAGE_CURRENT   "AWSCURRENT"
#define DESCRIPTION_MAX 500

/* What create and put answer: which secret, which version. */
static int answer_material(struct op *op, const char *operation, const struct transfer_answer *a,
                           const char *asked_for, struct vault_material *ret, struct err *err)
{
        struct aws_material m = { .managed = true };

        m.secret_id = aws_answer_text(op, a, "ARN");
        if (!m.secret_id)
                m.secret_id = aws_answer_text(op, a, "Name");
        if (!m.secret_id)
                m.secret_id = asked_for;
        m.version_id = aws_answer_text(op, a, "VersionId");
        if (!m.version_id)
                return aws_bad_answer(operation, "no version", err);
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
        CLEAN(aws_request_done) struct aws_request q = { 0 };
        json_t *document = NULL;
        int r;

        aws_request_init(&q);
        jw_kstring(&q.w, "SecretId", secret_id);
        r = aws_send(op, s, "DescribeSecret", &q, &answer, err);
        if (r == 0)
                r = aws_answer_json(op, "DescribeSecret", &answer, &document, err);
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
        CLEAN(aws_request_done) struct aws_request q = { 0 };
        struct description d = { 0 };
        const char *holder;
        int r = describe(op, s, secret_id, &d, err);

        if (r < 0)
                return r;
        holder = version_with(&d, STAGE_CURRENT);
        if (holder && streq(holder, version_id))
                return 0;
        aws_request_init(&q);
        jw_kstring(&q.w, "SecretId", secret_id);
        jw_kstring(&q.w, "VersionStage", STAGE_CURRENT);
        jw_kstring(&q.w, "MoveToVersionId", version_id);
        if (holder)
                jw_kstring(&q.w, "RemoveFromVersionId", holder);
        return aws_send(op, s, "UpdateSecretVersionStage", &q, &answer, err);
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

/* The id of a secret's first version. It follows from the secret, so that after a lost answer, or a
 * crash, we know whether what lies under the name is ours. */
static const char *first_version(struct op *op, const struct vault_subject *subject)
{
        const char *text = arena_printf(op->arena, "%s/%s", subject->company_id,
                                        subject->secret_id ? subject->secret_id : "");
        char h[SIGV4_HASH_LEN + 1];

        sigv4_hash(text, strlen(text), h);
        return arena_printf(op->arena, "%.8s-%.4s-%.4s-%.4s-%.12s", h, h + 8, h + 12, h + 16,
                            h + 20);
}

static void put_create(struct op *op, struct aws_request *q, const struct aws_settings *s,
                       const struct vault_subject *subject, const char *name)
{
        const char *title = subject->secret_name ? subject->secret_name : subject->secret_key;

        jw_kstring(&q->w, "Name", name);
        jw_kstring(&q->w, "ClientRequestToken", first_version(op, subject));
        if (s->kms_key_id)
                jw_kstring(&q->w, "KmsKeyId", s->kms_key_id);
        jw_kstring(&q->w, "Description",
                   arena_printf(op->arena, "Paperclip secret %.*s",
                                (int)cut(title, DESCRIPTION_MAX), title));
        put_tags(&q->w, s, subject);
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

static int aws_create(struct op *op, const struct vault_config *config,
                      const struct vault_subject *subject, const struct secret_value *value,
                      struct vault_material *ret, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(aws_request_done) struct aws_request q = { 0 };
        struct aws_settings s = { 0 };
        const char *name = NULL;
        int r = aws_settings_load(op->arena, config, &s, err);

        if (r == 0)
                r = aws_managed_name(op->arena, &s, subject, &name, err);
        if (r < 0)
                return r;
        aws_request_init(&q);
        put_create(op, &q, &s, subject, name);
        r = aws_send_value(op, &s, "CreateSecret", &q, value, &answer, &e);
        if (r == 0)
                r = answer_material(op, "CreateSecret", &answer, name, ret, &e);
        else
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

/* AWS may have discarded it, or a user there deleted it: then there is nothing to keep, and
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
        CLEAN(aws_request_done) struct aws_request q = { 0 };
        struct uuid token = uuid_new();
        int r;

        aws_request_init(&q);
        jw_kstring(&q.w, "SecretId", secret_id);
        jw_kstring(&q.w, "ClientRequestToken", token.s);
        jw_key(&q.w, "VersionStages");
        jw_array(&q.w);
        jw_string(&q.w, STAGE_PENDING);
        jw_array_end(&q.w);
        r = aws_send_value(op, s, "PutSecretValue", &q, value, &answer, err);
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
        if (!m.secret_id || strlen(m.secret_id) > AWS_REFERENCE_MAX)
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
                return aws_bad_answer("GetSecretValue", "not JSON", err);
        if (r == 0 || len == 0)
                return aws_bad_answer("GetSecretValue", "SecretString was empty", err);
        r = secret_value_room(&decoded, len, err);
        if (r < 0)
                return r;
        if (json_scan_decode(raw, len, decoded.data, &n, NULL) < 0)
                return aws_bad_answer("GetSecretValue", "SecretString is not text", err);
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
        CLEAN(aws_request_done) struct aws_request q = { 0 };
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
        aws_request_init(&q);
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
        CLEAN(aws_request_done) struct aws_request q = { 0 };
        struct description d = { 0 };
        struct err e = { 0 };
        int r;

        aws_request_init(&q);
        jw_kstring(&q.w, "SecretId", secret_id);
        jw_kint(&q.w, "RecoveryWindowInDays", s->recovery_days);
        r = aws_send(op, s, "DeleteSecret", &q, &answer, &e);
        /* A deletion whose answer was lost is asked for again, and refused the second time. */
        if (r < 0 && vault_failure_of(&e) == VAULT_INVALID_REQUEST &&
            describe(op, s, secret_id, &d, NULL) == 0 && d.is_deleted)
                r = 0;
        if (r < 0)
                err_move(err, &e);
        err_done(&e);
        return r;
}

/* It is unknown whether create() reached AWS. The secret under the name is removed only if its
 * version is the one that create() asked for; it was never in use, so it leaves no recovery window
 * behind that would keep the name. */
static int remove_unanswered(struct op *op, const struct aws_settings *s,
                             const struct vault_subject *subject, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(aws_request_done) struct aws_request q = { 0 };
        struct description d = { 0 };
        const char *name = NULL;
        int r = aws_managed_name(op->arena, s, subject, &name, err);

        if (r == 0)
                r = describe(op, s, name, &d, err);
        if (r < 0)
                return r;
        if (d.is_deleted || !json_object_get(d.stages, first_version(op, subject)))
                return vault_fail(err, VAULT_NOT_FOUND, aws_failure_text(VAULT_NOT_FOUND));
        aws_request_init(&q);
        jw_kstring(&q.w, "SecretId", name);
        jw_kbool(&q.w, "ForceDeleteWithoutRecovery", true);
        return aws_send(op, s, "DeleteSecret", &q, &answer, err);
}

static int archive_version(struct op *op, const struct aws_settings *s, const char *secret_id,
                           const char *version_id, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        CLEAN(aws_request_done) struct aws_request q = { 0 };

        if (!version_id)
                return 0;
        aws_request_init(&q);
        jw_kstring(&q.w, "SecretId", secret_id);
        jw_kstring(&q.w, "VersionStage", STAGE_PENDING);
        jw_kstring(&q.w, "RemoveFromVersionId", version_id);
        return aws_send(op, s, "UpdateSecretVersionStage", &q, &answer, err);
}

static int remove_known(struct op *op, const struct aws_settings *s,
                        const struct vault_subject *subject, const struct vault_material *material,
                        const struct aws_material *m, enum vault_removal mode, struct err *err)
{
        const char *secret_id = NULL;
        int r = own_reference(op, s, subject, material, m, &secret_id, err);

        if (r < 0)
                return r;
        if (mode == VAULT_DELETE)
                return delete_secret(op, s, secret_id, err);
        return archive_version(op, s, secret_id,
                               material->version_ref ? material->version_ref : m->version_id, err);
}

static int aws_remove(struct op *op, const struct vault_config *config,
                      const struct vault_subject *subject, const struct vault_material *material,
                      enum vault_removal mode, struct err *err)
{
        struct aws_settings s = { 0 };
        struct aws_material m = { 0 };
        int r = 0;

        /* A version whose answer was lost has a label that the next one takes over. */
        if (!material->material && mode == VAULT_ARCHIVE)
                return 0;
        if (material->material)
                r = aws_material_read(op->arena, material, &m, err);
        if (r < 0 || (material->material && !m.managed))
                return r;
        r = aws_settings_load(op->arena, config, &s, err);
        if (r < 0)
                return r;
        if (!material->material)
                return remove_unanswered(op, &s, subject, err);
        return remove_known(op, &s, subject, material, &m, mode, err);
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
