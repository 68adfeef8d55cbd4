/* Decides what a vault's configuration may hold, per provider. */
#include <ctype.h>
#include <strings.h>

#include "codec/check.h"
#include "core/secrets/vault.h"

#define SHORT_MAX 160
#define KMS_MAX   512

#define ORIGIN_ONLY                                                                                \
        "Vault address must be an origin-only HTTP(S) URL without credentials, path, query, or "   \
        "fragment"

/* Words of credential-like names, without separators. */
static const char *const sensitive[] = {
        "accesskey",    "accesskeyid", "secretaccesskey", "secretkey",      "token",
        "password",     "passwd",      "credential",      "credentials",    "privatekey",
        "pem",          "jwt",         "sessiontoken",    "serviceaccount", "serviceaccountjson",
        "clientsecret", "secretid",    "unsealkey",       "recoverykey",    "keyfile",
        "keyfilepath",  "tokenfile",   "tokenfilepath",
};

static bool is_sensitive(const char *key)
{
        char plain[64];
        size_t n = 0;

        for (; *key; key++) {
                if (*key == '-' || *key == '_')
                        continue;
                if (n + 1 == sizeof(plain))
                        return false;
                plain[n++] = *key;
        }
        plain[n] = '\0';
        for (size_t i = 0; i < ARRAY_LEN(sensitive); i++)
                if (strcasecmp(plain, sensitive[i]) == 0)
                        return true;
        return false;
}

static void refuse_sensitive(struct check *c, const char *key, json_t *config)
{
        const char *name;
        json_t *value;

        json_object_foreach(config, name, value)
        {
                CLEAN(cleanup_free) char *text = NULL;

                if (!is_sensitive(name))
                        continue;
                text = xasprintf("Provider vault config cannot persist sensitive field: %s", name);
                check_custom(c, key, text);
        }
}

/* ^[a-z]{2}(-gov)?-[a-z]+-\d+$ */
static bool is_region(const char *s)
{
        if (!islower((unsigned char)s[0]) || !islower((unsigned char)s[1]))
                return false;
        s += 2;
        if (str_starts(s, "-gov-"))
                s += 4;
        if (*s++ != '-' || !islower((unsigned char)*s))
                return false;
        while (islower((unsigned char)*s))
                s++;
        if (*s++ != '-' || !isdigit((unsigned char)*s))
                return false;
        while (isdigit((unsigned char)*s))
                s++;
        return *s == '\0';
}

/* ^[a-z][a-z0-9-]{4,127}$ */
static bool is_project(const char *s)
{
        size_t n = strlen(s);

        if (n < 5 || n > 128 || !islower((unsigned char)*s))
                return false;
        for (; *s; s++)
                if (!islower((unsigned char)*s) && !isdigit((unsigned char)*s) && *s != '-')
                        return false;
        return true;
}

static bool is_host_char(char c)
{
        return isalnum((unsigned char)c) || c == '.' || c == '-' || c == '_';
}

/* http(s)://host[:port] and an optional slash, in lower case without it; NULL for anything else. */
static char *origin_of(const char *url)
{
        size_t scheme = strncasecmp(url, "http://", 7) == 0    ? 7
                        : strncasecmp(url, "https://", 8) == 0 ? 8
                                                               : 0;
        const char *p = url + scheme;
        char *origin;

        if (!scheme)
                return NULL;
        if (*p == '[') {
                p += strspn(p, "[0123456789abcdefABCDEF:.");
                if (*p++ != ']')
                        return NULL;
        } else {
                if (!is_host_char(*p))
                        return NULL;
                while (is_host_char(*p))
                        p++;
        }
        if (*p == ':') {
                p++;
                if (!isdigit((unsigned char)*p))
                        return NULL;
                while (isdigit((unsigned char)*p))
                        p++;
        }
        if (*p && !streq(p, "/"))
                return NULL;
        origin = xstrndup(url, (size_t)(p - url));
        for (char *q = origin; *q; q++)
                *q = (char)tolower((unsigned char)*q);
        return origin;
}

static void put(json_t *out, const char *key, const char *value)
{
        if (value)
                json_object_set_new(out, key, json_string(value));
}

static void short_text(struct check *c, const char *key, size_t max, json_t *out)
{
        put(out, key, check_string(c, key, CHECK_NULLABLE | CHECK_TRIM, 1, max));
}

static void check_local(struct check *c, json_t *config, json_t *out)
{
        if (check_has(c, "backupReminderAcknowledged"))
                json_object_set_new(out, "backupReminderAcknowledged",
                                    json_boolean(check_bool(c, "backupReminderAcknowledged",
                                                            CHECK_OPTIONAL, false)));
        check_unknown(c, (const char *[]){ "backupReminderAcknowledged", NULL });
}

static void check_aws(struct check *c, json_t *config, json_t *out)
{
        const char *region = check_string(c, "region", CHECK_REQUIRED | CHECK_TRIM, 1, SHORT_MAX);

        if (region && !is_region(region))
                check_invalid_string(c, "region", "regex", "Invalid AWS region");
        put(out, "region", region);
        short_text(c, "namespace", SHORT_MAX, out);
        short_text(c, "secretNamePrefix", SHORT_MAX, out);
        short_text(c, "kmsKeyId", KMS_MAX, out);
        short_text(c, "ownerTag", SHORT_MAX, out);
        short_text(c, "environmentTag", SHORT_MAX, out);
        check_unknown(c, (const char *[]){ "region", "namespace", "secretNamePrefix", "kmsKeyId",
                                           "ownerTag", "environmentTag", NULL });
}

static void check_gcp(struct check *c, json_t *config, json_t *out)
{
        const char *project = check_string(c, "projectId", CHECK_NULLABLE | CHECK_TRIM, 1, 0);

        if (project && !is_project(project))
                check_invalid_string(c, "projectId", "regex", "Invalid GCP project id");
        put(out, "projectId", project);
        short_text(c, "location", SHORT_MAX, out);
        short_text(c, "namespace", SHORT_MAX, out);
        short_text(c, "secretNamePrefix", SHORT_MAX, out);
        check_unknown(c, (const char *[]){ "projectId", "location", "namespace", "secretNamePrefix",
                                           NULL });
}

static void check_hashi(struct check *c, json_t *config, json_t *out)
{
        const char *address = check_string(c, "address", CHECK_NULLABLE | CHECK_TRIM, 1, 0);
        CLEAN(cleanup_free) char *origin = address ? origin_of(address) : NULL;

        if (address && !origin)
                check_custom(c, "address", ORIGIN_ONLY);
        put(out, "address", origin);
        short_text(c, "namespace", SHORT_MAX, out);
        short_text(c, "mountPath", SHORT_MAX, out);
        short_text(c, "secretPathPrefix", SHORT_MAX, out);
        check_unknown(c, (const char *[]){ "address", "namespace", "mountPath", "secretPathPrefix",
                                           NULL });
}

void vault_check_config(struct check *c, const char *key, const char *provider, json_t *config,
                        json_t **ret)
{
        json_t *out = json_object();
        struct check n;

        refuse_sensitive(c, key, config);
        check_nested(&n, c, key, config);
        if (streq(provider, VAULT_LOCAL))
                check_local(&n, config, out);
        else if (streq(provider, VAULT_AWS))
                check_aws(&n, config, out);
        else if (streq(provider, VAULT_GCP))
                check_gcp(&n, config, out);
        else
                check_hashi(&n, config, out);
        *ret = out;
}

void vault_check_any_config(struct check *c, const char *key, json_t *config)
{
        const char *address = json_get_string(config, "address");
        CLEAN(cleanup_free) char *origin = address ? origin_of(address) : NULL;
        struct check n;

        refuse_sensitive(c, key, config);
        check_nested(&n, c, key, config);
        if (address && !origin)
                check_custom(&n, "address", ORIGIN_ONLY);
}
