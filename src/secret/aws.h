/* The parts of the provider for AWS Secrets Manager; secret/vault.h is what others use.
 *
 *   aws.c                    the provider: what each call of vault.h means in AWS's words
 *   aws_settings.c           where, under which names, and what is out of bounds
 *   aws_call.c               one call: its JSON, its signature, and what its failure means
 *   aws_credentials.c        who we are: the chain of sources and its cache; of the sources,
 *                            container, instance and web identity
 *   aws_credentials_files.c  … environment and shared files
 *
 * For operation threads. Strings are in the arena that was passed, or the operation's. */
#pragma once

#include "codec/json.h"
#include "rt/op.h"
#include "secret/transfer.h"
#include "secret/vault.h"

/* ---- settings ---- */

struct aws_settings {
        const char *region;
        const char *deployment_id;
        const char *prefix;
        const char *kms_key_id; /* NULL: AWS's own */
        const char *environment;
        const char *owner;
        const char *endpoint; /* origin and path, checked */
        int64_t recovery_days;
};

/* An environment variable under our name or Paperclip's: BERTH_x, PAPERCLIP_x. NULL when blank. */
const char *aws_env(const char *name);
/* Any variable; NULL when blank. */
const char *aws_env_plain(const char *name);
/* The settings of the vault, or of the process. */
int aws_settings_load(struct arena *arena, const struct vault_config *config,
                      struct aws_settings *ret, struct err *err);
/* Array with the names of the process's settings that are missing; a new reference. */
json_t *aws_settings_missing(void);
/* https, or http to this machine; no query, fragment, credentials, and a plain path. */
bool aws_endpoint_is_valid(const char *url);
/* "host[:port]" and the path of such a URL. */
const char *aws_endpoint_host(struct arena *arena, const char *url);
const char *aws_endpoint_path(const char *url);
bool aws_region_is_valid(const char *region);
/* Where a service is in a region: https://SERVICE.REGION.amazonaws.com. */
const char *aws_service_url(struct arena *arena, const char *service, const char *region);

/* ---- names and what is out of bounds ---- */

#define AWS_REFERENCE_MAX 2048

/* prefix/deployment/company/key. ERR_UNPROCESSABLE without company and key. */
int aws_managed_name(struct arena *arena, const struct aws_settings *s,
                     const struct vault_subject *subject, const char **ret, struct err *err);
/* The name that a reference means: of an ARN what follows ":secret:". */
const char *aws_reference_name(const char *reference);
/* Whether the reference is the managed name, with or without AWS's six characters behind it. */
bool aws_reference_is_managed(const char *reference, const char *managed_name);
/* Whether it lies where we keep values: the vault's namespace or the process's own. */
bool aws_reference_in_namespace(struct arena *arena, const struct aws_settings *s,
                                const char *reference);
/* The first of the references (NULL ones aside) that is the subject's own; the managed name when
 * there is none; ERR_UNPROCESSABLE when there are some and none is. */
int aws_managed_reference(struct arena *arena, const struct aws_settings *s,
                          const struct vault_subject *subject, const char *const references[2],
                          const char **ret, struct err *err);

/* ---- material ---- */

#define AWS_SCHEME "aws_secrets_manager_v1"

struct aws_material {
        const char *secret_id;
        const char *version_id; /* NULL: whatever is current */
        bool managed;
};

int aws_material_read(struct arena *arena, const struct vault_material *material,
                      struct aws_material *ret, struct err *err);
void aws_material_write(struct arena *arena, const struct aws_material *m,
                        struct vault_material *ret);

/* ---- credentials ---- */

#define AWS_KEY_ID_MAX 128

struct aws_credentials {
        char access_key_id[AWS_KEY_ID_MAX + 1];
        struct secret_value secret;
        struct secret_value token; /* data NULL: none */
        int64_t expires_us;        /* wall clock; 0: never */
};

void aws_credentials_done(struct aws_credentials *c);
/* From the cache of the region, or from the first source that has some. *ret is the caller's copy.
 */
int aws_credentials_get(struct op *op, const char *region, struct aws_credentials *ret,
                        struct err *err);
/* AWS refused these: do not hand them out again. */
void aws_credentials_refused(const char *region, const struct aws_credentials *c);
/* Array with the sources that look usable from here, without a call; a new reference. */
json_t *aws_credentials_detected(void);
bool aws_credentials_static_in_env(void);

/* One source: 1 and credentials, 0 when it has none to offer, or why it cannot give what it has.
 * `region` is for those that ask an address of the region. */
int aws_from_environment(struct aws_credentials *ret, struct err *err);
int aws_from_files(struct op *op, struct aws_credentials *ret, struct err *err);

/* Fill in what three texts say; ERR_INVALID when a key is missing or unusable. */
int aws_credentials_set(struct aws_credentials *c, const char *id, size_t id_len,
                        const char *secret, size_t secret_len, const char *token, size_t token_len,
                        struct err *err);

/* ---- calls ---- */

/* Sign and send the object, which is taken. 0 with a 200 and its bytes; otherwise the error of
 * vault_fail(), logged here with AWS's own words. */
int aws_send(struct op *op, const struct aws_settings *s, const char *operation, json_t *take_body,
             struct transfer_answer *ret, struct err *err);
/* The same with the value as SecretString, in memory that is wiped. */
int aws_send_value(struct op *op, const struct aws_settings *s, const char *operation,
                   json_t *take_body, const struct secret_value *value, struct transfer_answer *ret,
                   struct err *err);
/* The answer makes no sense: VAULT_ERROR, and `what` for the log. */
int aws_bad_answer(const char *operation, const char *what, struct err *err);
/* A string member, in the arena; NULL when there is none. Never for the value itself. */
const char *aws_answer_text(struct op *op, const struct transfer_answer *a, const char *key);
/* The whole answer as an object that lives as long as the operation; only where it has no value. */
int aws_answer_json(struct op *op, const char *operation, const struct transfer_answer *a,
                    json_t **ret, struct err *err);
/* What a refusal means. `type` is AWS's name for it, as in x-amzn-errortype or __type. */
enum vault_failure aws_classify(int status, const char *type);
const char *aws_failure_text(enum vault_failure kind);
/* "com.amazon#TypeException:http://…" to "TypeException". */
const char *aws_error_type(struct arena *arena, const char *text);
/* AWS's text for the log: without ARNs, account numbers and key ids, and short. */
const char *aws_redact(struct arena *arena, const char *text);
