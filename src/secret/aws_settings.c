/* Where AWS is reached, under which names, and what is out of bounds. */
#include "secret/aws.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <strings.h>

#define DEFAULT_NAME    "paperclip"
#define MIN_DAYS        7
#define MAX_DAYS        30
#define SUFFIX_LEN      6 /* what AWS puts behind a name in an ARN, after a dash */
#define NEED_REGION     "PAPERCLIP_SECRETS_AWS_REGION or AWS_REGION/AWS_DEFAULT_REGION"
#define NEED_DEPLOYMENT "PAPERCLIP_SECRETS_AWS_DEPLOYMENT_ID"
#define NEED_KMS        "PAPERCLIP_SECRETS_AWS_KMS_KEY_ID"
#define MAX_REGION      40
#define MAX_ENDPOINT    512
#define ENDPOINT_REFUSED                                                                           \
        "The AWS endpoint must be an https URL, or http to this machine, without query"

/* ---- where settings come from ---- */

static bool is_blank(const char *s)
{
        return s[strspn(s, " \t\r\n")] == '\0';
}

const char *aws_env_plain(const char *name)
{
        const char *value = getenv(name);

        return value && !is_blank(value) ? value : NULL;
}

const char *aws_env(const char *name)
{
        char full[80];

        (void)snprintf(full, sizeof(full), "BERTH_%s", name);
        const char *value = aws_env_plain(full);
        if (value)
                return value;
        (void)snprintf(full, sizeof(full), "PAPERCLIP_%s", name);
        return aws_env_plain(full);
}

static const char *first_of(const char *a, const char *b)
{
        return a ? a : b;
}

static const char *process_region(void)
{
        return first_of(aws_env("SECRETS_AWS_REGION"),
                        first_of(aws_env_plain("AWS_REGION"), aws_env_plain("AWS_DEFAULT_REGION")));
}

json_t *aws_settings_missing(void)
{
        json_t *list = json_array();

        if (!process_region())
                json_array_append_new(list, json_string(NEED_REGION));
        if (!aws_env("SECRETS_AWS_DEPLOYMENT_ID"))
                json_array_append_new(list, json_string(NEED_DEPLOYMENT));
        if (!aws_env("SECRETS_AWS_KMS_KEY_ID"))
                json_array_append_new(list, json_string(NEED_KMS));
        return list;
}

/* ---- endpoints ---- */

bool aws_region_is_valid(const char *region)
{
        size_t n = strspn(region, "abcdefghijklmnopqrstuvwxyz0123456789-");

        return n > 0 && n <= MAX_REGION && !region[n] && region[0] != '-' && region[n - 1] != '-';
}

const char *aws_service_url(struct arena *arena, const char *service, const char *region)
{
        return arena_printf(arena, "https://%s.%s.amazonaws.com%s", service, region,
                            str_starts(region, "cn-") ? ".cn" : "");
}

const char *aws_endpoint_path(const char *url)
{
        const char *host = strstr(url, "://");

        host = host ? host + 3 : url;
        return host + strcspn(host, "/");
}

const char *aws_endpoint_host(struct arena *arena, const char *url)
{
        const char *host = strstr(url, "://"), *path = aws_endpoint_path(url);

        host = host ? host + 3 : url;
        return arena_strndup(arena, host, (size_t)(path - host));
}

/* Host and optional port, of which the host is this machine's own. */
static bool is_loopback(const char *host, size_t len)
{
        static const char *const own[] = { "localhost", "127.0.0.1", "[::1]" };

        for (size_t i = 0; i < ARRAY_LEN(own); i++) {
                size_t n = strlen(own[i]);

                if (len >= n && strncasecmp(host, own[i], n) == 0 && (len == n || host[n] == ':'))
                        return true;
        }
        return false;
}

bool aws_endpoint_is_valid(const char *url)
{
        static const char host_chars[] = "abcdefghijklmnopqrstuvwxyz"
                                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_:[]";
        /* The characters that are encoded neither on the way nor for the signature. */
        static const char path_chars[] = "abcdefghijklmnopqrstuvwxyz"
                                         "ABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_~/";
        bool tls = str_starts(url, "https://");

        if (strlen(url) > MAX_ENDPOINT || (!tls && !str_starts(url, "http://")))
                return false;
        const char *host = strstr(url, "://") + 3;
        const char *path = aws_endpoint_path(url);
        if (path == host || strspn(host, host_chars) < (size_t)(path - host))
                return false;
        if (path[strspn(path, path_chars)] || strstr(path, "//") || strstr(path, "/."))
                return false;
        return tls || is_loopback(host, (size_t)(path - host));
}

/* ---- the settings of a vault, or of the process ---- */

static const char *process_environment(void)
{
        return first_of(aws_env_plain("NODE_ENV"), "unknown");
}

static int from_process(struct aws_settings *s, struct err *err)
{
        json_t *missing = aws_settings_missing();
        CLEAN(buf_done) struct buf list = BUF_INIT;
        json_t *name;
        size_t i;

        json_array_foreach(missing, i, name)
                buf_appendf(&list, "%s%s", i ? ", " : "", json_string_value(name));
        json_decref(missing);
        if (list.len > 0)
                return err_set(err, ERR_UNPROCESSABLE,
                               "AWS Secrets Manager provider requires non-secret config: %s",
                               buf_str(&list));
        s->region = process_region();
        s->deployment_id = aws_env("SECRETS_AWS_DEPLOYMENT_ID");
        s->kms_key_id = aws_env("SECRETS_AWS_KMS_KEY_ID");
        s->prefix = first_of(aws_env("SECRETS_AWS_PREFIX"), DEFAULT_NAME);
        s->environment = first_of(aws_env("SECRETS_AWS_ENVIRONMENT"), process_environment());
        s->owner = first_of(aws_env("SECRETS_AWS_PROVIDER_OWNER"), DEFAULT_NAME);
        return 0;
}

static const char *member(struct arena *arena, const struct vault_config *config, const char *key)
{
        return arena_strtrim(arena, json_get_string(config->config, key));
}

static int from_vault(struct arena *arena, const struct vault_config *config,
                      struct aws_settings *s, struct err *err)
{
        const char *status = config->status ? config->status : "";

        if (config->provider && !streq(config->provider, VAULT_AWS))
                return err_set(err, ERR_UNPROCESSABLE,
                               "AWS Secrets Manager provider received a mismatched provider vault");
        if (streq(status, "disabled"))
                return err_set(err, ERR_UNPROCESSABLE,
                               "AWS Secrets Manager provider vault is disabled");
        if (streq(status, "coming_soon"))
                return err_set(err, ERR_UNPROCESSABLE,
                               "AWS Secrets Manager provider vault runtime is locked while coming "
                               "soon");
        s->region = member(arena, config, "region");
        if (!s->region)
                return err_set(err, ERR_UNPROCESSABLE,
                               "AWS Secrets Manager provider vault requires non-secret config: "
                               "region");
        s->deployment_id = first_of(member(arena, config, "namespace"), config->id);
        s->prefix = first_of(member(arena, config, "secretNamePrefix"), DEFAULT_NAME);
        s->kms_key_id = member(arena, config, "kmsKeyId");
        s->environment = first_of(member(arena, config, "environmentTag"), process_environment());
        s->owner = first_of(member(arena, config, "ownerTag"), DEFAULT_NAME);
        return 0;
}

int aws_settings_load(struct arena *arena, const struct vault_config *config,
                      struct aws_settings *ret, struct err *err)
{
        const char *days = aws_env("SECRETS_AWS_DELETE_RECOVERY_DAYS");
        struct aws_settings s = { .recovery_days = MAX_DAYS };
        char *end = NULL;
        int r = config && config->id ? from_vault(arena, config, &s, err) : from_process(&s, err);

        if (r < 0)
                return r;
        if (!aws_region_is_valid(s.region))
                return err_set(err, ERR_UNPROCESSABLE, "Invalid AWS region");
        errno = 0;
        if (days)
                s.recovery_days = strtol(days, &end, 10);
        if (errno || (end && *end) || s.recovery_days < MIN_DAYS || s.recovery_days > MAX_DAYS)
                return err_set(err, ERR_UNPROCESSABLE,
                               "PAPERCLIP_SECRETS_AWS_DELETE_RECOVERY_DAYS must be an integer "
                               "between 7 and 30");
        s.endpoint = first_of(aws_env("SECRETS_AWS_ENDPOINT"),
                              first_of(aws_env_plain("AWS_ENDPOINT_URL_SECRETS_MANAGER"),
                                       aws_env_plain("AWS_ENDPOINT_URL")));
        if (!s.endpoint)
                s.endpoint = aws_service_url(arena, "secretsmanager", s.region);
        if (!aws_endpoint_is_valid(s.endpoint))
                return err_set(err, ERR_UNPROCESSABLE, ENDPOINT_REFUSED);
        *ret = s;
        return 0;
}

/* ---- names ---- */

static bool is_name_char(char c)
{
        return isalnum((unsigned char)c) || (c && strchr("/_+=.@-", c));
}

/* Append one segment, with a "/" before it unless it is the first; an empty segment is dropped. A
 * segment may hold slashes of its own, but none twice and none at its ends. */
static void put_segment(struct buf *out, const char *text)
{
        size_t start = out->len, len = strlen(text);
        const char *trimmed = text + strspn(text, " \t\r\n");
        bool replaced = false;

        while (len > 0 && strchr(" \t\r\n", text[len - 1]))
                len--;
        if (start > 0)
                buf_putc(out, '/');
        for (const char *c = trimmed; c < text + len; c++) {
                if (!is_name_char(*c)) {
                        if (!replaced)
                                buf_putc(out, '-');
                        replaced = true;
                        continue;
                }
                replaced = false;
                if (*c == '/' && (out->len == 0 || out->data[out->len - 1] == '/'))
                        continue;
                buf_putc(out, *c);
        }
        while (out->len > start && out->data[out->len - 1] == '/')
                out->data[--out->len] = '\0';
}

static const char *namespace_name(struct arena *arena, const char *prefix,
                                  const char *deployment_id, const char *company_id,
                                  const char *key)
{
        const char *const segments[] = { prefix, deployment_id, company_id, key };
        CLEAN(buf_done) struct buf name = BUF_INIT;

        for (size_t i = 0; i < ARRAY_LEN(segments); i++)
                if (segments[i])
                        put_segment(&name, segments[i]);
        return arena_strdup(arena, buf_str(&name));
}

int aws_managed_name(struct arena *arena, const struct aws_settings *s,
                     const struct vault_subject *subject, const char **ret, struct err *err)
{
        if (!subject || !subject->company_id || !subject->secret_key)
                return err_set(err, ERR_UNPROCESSABLE,
                               "AWS Secrets Manager provider requires secret context for managed "
                               "values");
        *ret = namespace_name(arena, s->prefix, s->deployment_id, subject->company_id,
                              subject->secret_key);
        return 0;
}

/* Step over "text:" in any case; NULL when it is not there. */
static const char *over(const char *at, const char *text)
{
        return at && strncasecmp(at, text, strlen(text)) == 0 ? at + strlen(text) : NULL;
}

static const char *over_field(const char *at, bool may_be_empty)
{
        size_t n = at ? strcspn(at, ":") : 0;

        return !at || at[n] != ':' || (n == 0 && !may_be_empty) ? NULL : at + n + 1;
}

const char *aws_reference_name(const char *reference)
{
        const char *at = over(reference, "arn:");

        at = over(over_field(at, false), "secretsmanager:");
        at = over_field(over_field(at, true), true);
        at = over(at, "secret:");
        return at && *at ? at : reference;
}

bool aws_reference_is_managed(const char *reference, const char *managed_name)
{
        const char *name = aws_reference_name(reference), *rest;

        if (!str_starts(name, managed_name))
                return false;
        rest = name + strlen(managed_name);
        if (!*rest)
                return true;
        if (*rest++ != '-' || strlen(rest) != SUFFIX_LEN)
                return false;
        for (; *rest; rest++)
                if (!isalnum((unsigned char)*rest))
                        return false;
        return true;
}

static bool is_under(const char *name, const char *space)
{
        size_t n = strlen(space);

        return n > 0 && strncmp(name, space, n) == 0 && (name[n] == '\0' || name[n] == '/');
}

bool aws_reference_in_namespace(struct arena *arena, const struct aws_settings *s,
                                const char *reference)
{
        const char *name = aws_reference_name(reference);
        const char *deployment = aws_env("SECRETS_AWS_DEPLOYMENT_ID");
        const char *prefix = first_of(aws_env("SECRETS_AWS_PREFIX"), DEFAULT_NAME);

        if (is_under(name, namespace_name(arena, s->prefix, s->deployment_id, NULL, NULL)))
                return true;
        /* A vault names its own namespace. It must not be a way to read what other companies keep
         * in the process's. */
        return deployment && is_under(name, namespace_name(arena, prefix, deployment, NULL, NULL));
}

int aws_managed_reference(struct arena *arena, const struct aws_settings *s,
                          const struct vault_subject *subject, const char *const references[2],
                          const char **ret, struct err *err)
{
        const char *name = NULL;
        bool some = false;
        int r = aws_managed_name(arena, s, subject, &name, err);

        if (r < 0)
                return r;
        for (size_t i = 0; i < 2; i++) {
                if (!references[i] || !*references[i])
                        continue;
                some = true;
                if (aws_reference_is_managed(references[i], name)) {
                        *ret = references[i];
                        return 0;
                }
        }
        if (some)
                return err_set(err, ERR_UNPROCESSABLE,
                               "AWS Secrets Manager managed secret ref drifted outside the derived "
                               "deployment/company scope");
        *ret = name;
        return 0;
}

/* ---- material ---- */

static int bad_material(struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE, "Invalid AWS Secrets Manager material");
}

int aws_material_read(struct arena *arena, const struct vault_material *material,
                      struct aws_material *ret, struct err *err)
{
        const char *text = material->material ? material->material : "";
        json_t *document = NULL;

        if (json_parse(text, strlen(text), &document, NULL) < 0)
                return bad_material(err);
        const char *scheme = json_get_string(document, "scheme");
        const char *id = json_get_string(document, "secretId");
        const char *source = json_get_string(document, "source");
        ret->secret_id = arena_strtrim(arena, id);
        ret->version_id = arena_strtrim(arena, json_get_string(document, "versionId"));
        ret->managed = source && streq(source, "managed");
        if (!scheme || !streq(scheme, AWS_SCHEME) || !ret->secret_id ||
            strlen(ret->secret_id) > AWS_REFERENCE_MAX ||
            (!ret->managed && (!source || !streq(source, "external_reference")))) {
                json_decref(document);
                return bad_material(err);
        }
        json_decref(document);
        return 0;
}

void aws_material_write(struct arena *arena, const struct aws_material *m,
                        struct vault_material *ret)
{
        CLEAN(buf_done) struct buf text = BUF_INIT, mark = BUF_INIT;
        struct jw w;

        jw_init(&w, &text);
        jw_object(&w);
        jw_kstring(&w, "scheme", AWS_SCHEME);
        jw_kstring(&w, "secretId", m->secret_id);
        jw_kstring(&w, "versionId", m->version_id);
        jw_kstring(&w, "source", m->managed ? "managed" : "external_reference");
        jw_object_end(&w);
        buf_appendf(&mark, AWS_SCHEME ":%s:%s", m->secret_id, m->version_id ? m->version_id : "");
        const char *hash = vault_hash(arena, mark.data, mark.len);
        *ret = (struct vault_material){
                .material = arena_strdup(arena, buf_str(&text)),
                .external_ref = arena_strdup(arena, m->secret_id),
                .version_ref = arena_strdup(arena, m->version_id),
                .value_mark = hash,
                .fingerprint = hash,
        };
}
