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
        char *origin = xstrndup(url, (size_t)(p - url));
        for (char *q = origin; *q; q++)
                *q = (char)tolower((unsigned char)*q);
        return origin;
}

/* The members of the configurations, in the order in which they are checked and stored. */
static const struct vault_field {
        const char *provider, *key;
        enum { FIELD_TEXT, FIELD_FLAG, FIELD_REGION, FIELD_PROJECT, FIELD_ORIGIN } type;
        size_t max; /* characters; 0: no limit */
} vault_fields[] = {
        { VAULT_LOCAL, "backupReminderAcknowledged", FIELD_FLAG, 0 },
        { VAULT_AWS, "region", FIELD_REGION, SHORT_MAX },
        { VAULT_AWS, "namespace", FIELD_TEXT, SHORT_MAX },
        { VAULT_AWS, "secretNamePrefix", FIELD_TEXT, SHORT_MAX },
        { VAULT_AWS, "kmsKeyId", FIELD_TEXT, KMS_MAX },
        { VAULT_AWS, "ownerTag", FIELD_TEXT, SHORT_MAX },
        { VAULT_AWS, "environmentTag", FIELD_TEXT, SHORT_MAX },
        { VAULT_GCP, "projectId", FIELD_PROJECT, 0 },
        { VAULT_GCP, "location", FIELD_TEXT, SHORT_MAX },
        { VAULT_GCP, "namespace", FIELD_TEXT, SHORT_MAX },
        { VAULT_GCP, "secretNamePrefix", FIELD_TEXT, SHORT_MAX },
        { VAULT_HASHI, "address", FIELD_ORIGIN, 0 },
        { VAULT_HASHI, "namespace", FIELD_TEXT, SHORT_MAX },
        { VAULT_HASHI, "mountPath", FIELD_TEXT, SHORT_MAX },
        { VAULT_HASHI, "secretPathPrefix", FIELD_TEXT, SHORT_MAX },
};

static void check_field(struct check *c, const struct vault_field *f, json_t *out)
{
        CLEAN(cleanup_free) char *origin = NULL;

        if (f->type == FIELD_FLAG) {
                if (check_has(c, f->key))
                        json_object_set_new(
                                out, f->key,
                                json_boolean(check_bool(c, f->key, CHECK_OPTIONAL, false)));
                return;
        }
        const char *text = check_string(
                c, f->key, CHECK_TRIM | (f->type == FIELD_REGION ? CHECK_REQUIRED : CHECK_NULLABLE),
                1, f->max);
        if (!text)
                return;
        if (f->type == FIELD_REGION && !is_region(text))
                check_invalid_string(c, f->key, "regex", "Invalid AWS region");
        if (f->type == FIELD_PROJECT && !is_project(text))
                check_invalid_string(c, f->key, "regex", "Invalid GCP project id");
        if (f->type == FIELD_ORIGIN) {
                origin = origin_of(text);
                if (!origin)
                        check_custom(c, f->key, ORIGIN_ONLY);
                text = origin;
        }
        if (text)
                json_object_set_new(out, f->key, json_string(text));
}

void vault_check_config(struct check *c, const char *key, const char *provider, json_t *config,
                        json_t **ret)
{
        const char *known[ARRAY_LEN(vault_fields) + 1] = { 0 };
        struct check n;
        size_t n_known = 0;

        *ret = json_object();
        refuse_sensitive(c, key, config);
        check_nested(&n, c, key, config);
        for (size_t i = 0; i < ARRAY_LEN(vault_fields); i++) {
                const struct vault_field *f = &vault_fields[i];

                if (!streq(f->provider, provider))
                        continue;
                known[n_known++] = f->key;
                check_field(&n, f, *ret);
        }
        check_unknown(&n, known);
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
