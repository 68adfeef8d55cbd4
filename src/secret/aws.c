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

#include <math.h>

#include "base/clock.h"
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

static int aws_describe(struct op *op, const struct aws_settings *s, const char *secret_id,
                        struct description *ret, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        json_t *document = NULL;
        int r = aws_send(op, s, "DescribeSecret", json_pack("{s:s}", "SecretId", secret_id),
                         &answer, err);

        if (r == 0)
                r = aws_answer_json(op, "DescribeSecret", &answer, &document, err);
        if (r < 0)
                return r;
        ret->is_deleted = json_is_number(json_object_get(document, "DeletedDate"));
        ret->stages = json_get_object(document, "VersionIdsToStages");
        return 0;
}

/* The version with the label, or NULL. */
static const char *version_with(const struct description *d, const char *stage)
{
        const char *id;
        json_t *labels, *label;
        size_t i;

        json_object_foreach((json_t *)d->stages, id, labels)
        {
                json_array_foreach(labels, i, label)
                {
                        if (json_is_string(label) && streq(json_string_value(label), stage))
                                return id;
                }
        }
        return NULL;
}

static int move_current(struct op *op, const struct aws_settings *s, const char *secret_id,
                        const char *version_id, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        struct description d = { 0 };
        int r = aws_describe(op, s, secret_id, &d, err);

        if (r < 0)
                return r;
        const char *holder = version_with(&d, STAGE_CURRENT);
        if (holder && streq(holder, version_id))
                return 0;
        return aws_send(op, s, "UpdateSecretVersionStage",
                        json_pack("{s:s, s:s, s:s, s:s*}", "SecretId", secret_id, "VersionStage",
                                  STAGE_CURRENT, "MoveToVersionId", version_id,
                                  "RemoveFromVersionId", holder),
                        &answer, err);
}

/* ---- create ---- */

static json_t *tag(const char *key, const char *value)
{
        return json_pack("{s:s, s:s}", "Key", key, "Value", value);
}

/* At most so many bytes, and whole characters. */
static size_t whole_characters(const char *text, size_t max)
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
        const char *h = vault_hash(op->arena, text, strlen(text));

        return arena_printf(op->arena, "%.8s-%.4s-%.4s-%.4s-%.12s", h, h + 8, h + 12, h + 16,
                            h + 20);
}

/* AWS keeps the name of a deleted secret until its recovery window ends, and says so in a text
 * only. */
static int explain_create(struct op *op, const struct aws_settings *s, const char *name, int code,
                          struct err *err)
{
        struct description d = { 0 };

        if (!err || vault_failure_of(err) != VAULT_INVALID_REQUEST ||
            aws_describe(op, s, name, &d, NULL) < 0 || !d.is_deleted)
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
        const char *title = subject->secret_name ? subject->secret_name : subject->secret_key;
        struct aws_settings s = { 0 };
        const char *name = NULL;
        int r = aws_settings_load(op->arena, config, &s, err);

        if (r == 0)
                r = aws_managed_name(op->arena, &s, subject, &name, err);
        if (r < 0)
                return r;
        json_t *body = json_pack("{s:s, s:s, s:s*, s:s, s:[o,o,o,o,o,o]}", "Name", name,
                                 "ClientRequestToken", first_version(op, subject), "KmsKeyId",
                                 s.kms_key_id, "Description",
                                 arena_printf(op->arena, "Paperclip secret %.*s",
                                              (int)whole_characters(title, DESCRIPTION_MAX), title),
                                 "Tags", tag("paperclip:managed-by", "paperclip"),
                                 tag("paperclip:provider-owner", s.owner),
                                 tag("paperclip:deployment-id", s.deployment_id),
                                 tag("paperclip:company-id", subject->company_id),
                                 tag("paperclip:secret-key", subject->secret_key),
                                 tag("paperclip:environment", s.environment));
        r = aws_send_value(op, &s, "CreateSecret", body, value, &answer, &e);
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
        json_t *body = json_pack("{s:s, s:s, s:[s]}", "SecretId", secret_id, "ClientRequestToken",
                                 uuid_new().s, "VersionStages", STAGE_PENDING);
        int r = aws_send_value(op, s, "PutSecretValue", body, value, &answer, err);

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

static int refuse_namespace(struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE,
                       "AWS Paperclip-managed namespace secrets cannot be imported as external "
                       "references");
}

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
                return refuse_namespace(err);
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

static int aws_resolve(struct op *op, const struct vault_config *config,
                       const struct vault_subject *subject, const struct vault_material *material,
                       struct secret_value *ret, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        struct aws_settings s = { 0 };
        struct aws_material m = { 0 };
        const char *secret_id = NULL, *version_id;
        int r = aws_settings_load(op->arena, config, &s, err);

        if (r == 0)
                r = aws_material_read(op->arena, material, &m, err);
        if (r == 0 && m.managed)
                r = own_reference(op, &s, subject, material, &m, &secret_id, err);
        else if (r == 0 && aws_reference_in_namespace(op->arena, &s, m.secret_id))
                r = refuse_namespace(err); /* it may have been changed since it was linked */
        else
                secret_id = m.secret_id;
        if (r < 0)
                return r;
        version_id = material->version_ref ? material->version_ref : m.version_id;
        r = aws_send(op, &s, "GetSecretValue",
                     json_pack("{s:s, s:s}", "SecretId", secret_id,
                               version_id ? "VersionId" : "VersionStage",
                               version_id ? version_id : STAGE_CURRENT),
                     &answer, err);
        return r < 0 ? r : take_value(&answer, ret, err);
}

/* ---- remove ---- */

static int delete_secret(struct op *op, const struct aws_settings *s, const char *secret_id,
                         struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        struct description d = { 0 };
        CLEAN(err_done) struct err e = { 0 };
        int r = aws_send(op, s, "DeleteSecret",
                         json_pack("{s:s, s:I}", "SecretId", secret_id, "RecoveryWindowInDays",
                                   (json_int_t)s->recovery_days),
                         &answer, &e);

        /* A deletion whose answer was lost is asked for again, and refused the second time. */
        if (r < 0 && vault_failure_of(&e) == VAULT_INVALID_REQUEST &&
            aws_describe(op, s, secret_id, &d, NULL) == 0 && d.is_deleted)
                r = 0;
        if (r < 0)
                err_move(err, &e);
        return r;
}

/* It is unknown whether create() reached AWS. The secret under the name is removed only if its
 * version is the one that create() asked for; it was never in use, so it leaves no recovery window
 * behind that would keep the name. */
static int remove_unanswered(struct op *op, const struct aws_settings *s,
                             const struct vault_subject *subject, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        struct description d = { 0 };
        const char *name = NULL;
        int r = aws_managed_name(op->arena, s, subject, &name, err);

        if (r == 0)
                r = aws_describe(op, s, name, &d, err);
        if (r < 0)
                return r;
        if (d.is_deleted || !json_object_get(d.stages, first_version(op, subject)))
                return vault_fail(err, VAULT_NOT_FOUND, aws_failure_text(VAULT_NOT_FOUND));
        return aws_send(op, s, "DeleteSecret",
                        json_pack("{s:s, s:b}", "SecretId", name, "ForceDeleteWithoutRecovery", 1),
                        &answer, err);
}

static int aws_remove(struct op *op, const struct vault_config *config,
                      const struct vault_subject *subject, const struct vault_material *material,
                      enum vault_removal mode, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        struct aws_settings s = { 0 };
        struct aws_material m = { 0 };
        const char *secret_id = NULL, *version_id;
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
        r = own_reference(op, &s, subject, material, &m, &secret_id, err);
        if (r < 0)
                return r;
        if (mode == VAULT_DELETE)
                return delete_secret(op, &s, secret_id, err);
        version_id = material->version_ref ? material->version_ref : m.version_id;
        if (!version_id)
                return 0;
        return aws_send(op, &s, "UpdateSecretVersionStage",
                        json_pack("{s:s, s:s, s:s}", "SecretId", secret_id, "VersionStage",
                                  STAGE_PENDING, "RemoveFromVersionId", version_id),
                        &answer, err);
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

static int aws_list(struct op *op, const struct vault_config *config, const struct vault_page *page,
                    json_t **ret, struct err *err)
{
        CLEAN(transfer_answer_done) struct transfer_answer answer = { 0 };
        struct aws_settings s = { 0 };
        json_t *document = NULL, *list, *entry, *body;
        size_t i;
        int r = aws_settings_load(op->arena, config, &s, err);

        if (r < 0)
                return r;
        body = json_pack("{s:I, s:s*, s:b}", "MaxResults",
                         (json_int_t)MAX(1, MIN(page->page_size, 100)), "NextToken",
                         page->next_token, "IncludePlannedDeletion", 0);
        if (page->query && *page->query)
                json_object_set_new(
                        body, "Filters",
                        json_pack("[{s:s, s:[s]}]", "Key", "all", "Values", page->query));
        r = aws_send(op, &s, "ListSecrets", body, &answer, err);
        if (r == 0)
                r = aws_answer_json(op, "ListSecrets", &answer, &document, err);
        if (r < 0)
                return r;
        list = json_array();
        json_array_foreach(json_object_get(document, "SecretList"), i, entry)
        {
                const char *arn = json_get_string(entry, "ARN");
                const char *name = json_get_string(entry, "Name");

                if (arn || name)
                        json_array_append_new(list,
                                              json_pack("{s:s, s:s, s:n, s:o}", "externalRef",
                                                        arn ? arn : name, "name",
                                                        name ? name : aws_reference_name(arn),
                                                        "providerVersionRef", "providerMetadata",
                                                        metadata_of(entry)));
        }
        *ret = json_pack("{s:o,s:o}", "secrets", list, "nextToken",
                         json_string_or_null(json_get_string(document, "NextToken")));
        return 0;
}

/* ---- health ---- */

static json_t *texts(struct op *op, const char *text)
{
        json_t *list = json_keep(op->arena, json_array());

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
                .details = json_keep(op->arena, json_object()),
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
