/* Whether the settings and credentials for AWS make sense, without a call. */
#include "secret/aws.h"

static json_t *texts(struct op *op, const char *text)
{
        json_t *list = aws_keep(op, json_array());

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
int aws_health(struct op *op, const struct vault_config *config, struct vault_health *ret,
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
                .details = aws_keep(op, json_object()),
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
