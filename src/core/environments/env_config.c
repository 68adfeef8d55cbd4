#include "core/environments/env_config.h"

#include "base/arena.h"
#include "codec/check.h"
#include "core/exec/exec_output.h"
#include "core/kinds/sandbox.h"
#include "core/kinds/ssh/ssh_config.h"

#define SANDBOX_TIMEOUT_MAX 86400000

bool env_config_is_key(const char *s)
{
        for (const char *p = s; *p; p++) {
                bool alnum = (*p >= 'a' && *p <= 'z') || (*p >= '0' && *p <= '9');

                if (!alnum && (p == s || (*p != '.' && *p != '_' && *p != '-')))
                        return false;
        }
        return *s != '\0';
}

/* ssh */

static json_t *check_secret_ref(struct check *c, const char *key)
{
        json_t *ref = check_record(c, key, CHECK_NULLABLE);
        json_t *version = ref ? json_object_get(ref, "version") : NULL;
        struct check n;
        const char *id;

        if (!ref)
                return json_null();
        check_nested(&n, c, key, ref);
        check_literal(&n, "type", CHECK_REQUIRED, "secret_ref");
        id = check_uuid(&n, "secretId", CHECK_REQUIRED);
        if (version && !(json_is_string(version) && streq(json_string_value(version), "latest")) &&
            !(json_is_integer(version) && json_integer_value(version) > 0))
                check_custom(&n, "version", "Invalid input");
        check_unknown(&n, (const char *[]){ "type", "secretId", "version", NULL });
        return json_pack("{s:s, s:s, s:o}", "type", "secret_ref", "secretId", id ? id : "",
                         "version", version ? json_incref(version) : json_string("latest"));
}

static const char *required(struct check *c, const char *key, const char *text)
{
        check_text(c, text);
        return check_string(c, key, CHECK_REQUIRED | CHECK_TRIM, 1, 0);
}

static const char *blank_is_null(const char *s)
{
        return s && *s ? s : NULL;
}

static bool is_in_place(struct check *c)
{
        static const char *const modes[] = { SSH_MODE_PER_RUN, SSH_MODE_IN_PLACE, NULL };
        const char *mode = check_enum(c, "workspaceMode", CHECK_OPTIONAL, modes);

        return mode && streq(mode, SSH_MODE_IN_PLACE);
}

static int normalize_ssh(json_t *config, enum config_form form, json_t **ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *host, *username, *path, *key = NULL, *hosts;
        json_t *ref, *result;
        static const char *const output_full[] = { "wait", "drop", NULL };
        bool has_port, strict, own_config, in_place;
        int64_t port;
        int r;

        check_init(&c, config);
        host = required(&c, "host", "SSH environments require a host.");
        port = check_int(&c, "port", CHECK_COERCE, 1, 65535, &has_port);
        username = required(&c, "username", "SSH environments require a username.");
        path = required(&c, "remoteWorkspacePath",
                        "SSH environments require a remote workspace path.");
        if (path && *path != '/')
                check_custom(&c, "remoteWorkspacePath",
                             "SSH remote workspace path must be absolute.");
        if (form == CONFIG_STORED)
                check_null(&c, "privateKey");
        else
                key = blank_is_null(
                        check_string(&c, "privateKey", CHECK_NULLABLE | CHECK_TRIM, 0, 0));
        ref = check_secret_ref(&c, "privateKeySecretRef");
        hosts = blank_is_null(check_string(&c, "knownHosts", CHECK_NULLABLE | CHECK_TRIM, 0, 0));
        strict = check_bool(&c, "strictHostKeyChecking", CHECK_OPTIONAL, true);
        own_config = check_bool(&c, "useSshConfig", CHECK_OPTIONAL, false);
        in_place = is_in_place(&c);
        (void)check_int(&c, "outputMb", CHECK_OPTIONAL, 1, OUTPUT_MB_MAX, NULL);
        (void)check_int(&c, "outputPlaceMb", CHECK_OPTIONAL, 1, OUTPUT_MB_MAX, NULL);
        (void)check_enum(&c, "outputFull", CHECK_OPTIONAL, output_full);
        check_unknown(&c,
                      (const char *[]){ "host", "port", "username", "remoteWorkspacePath",
                                        "privateKey", "privateKeySecretRef", "knownHosts",
                                        "strictHostKeyChecking", "useSshConfig", "workspaceMode",
                                        "outputMb", "outputPlaceMb", "outputFull", NULL });
        if (check_failed(&c))
                result = NULL;
        else
                result = json_pack("{s:s, s:I, s:s, s:s, s:o, s:O, s:o, s:b}", "host", host, "port",
                                   (json_int_t)(has_port ? port : 22), "username", username,
                                   "remoteWorkspacePath", path, "privateKey",
                                   json_string_or_null(key), "privateKeySecretRef", ref,
                                   "knownHosts", json_string_or_null(hosts),
                                   "strictHostKeyChecking", strict);
        json_decref(ref);
        r = check_end_config(&c, err);
        if (r < 0)
                return r;
        /* Ours, so only there when they say something. */
        if (own_config)
                json_object_set_new(result, "useSshConfig", json_true());
        if (in_place)
                json_object_set_new(result, "workspaceMode", json_string(SSH_MODE_IN_PLACE));
        exec_output_keep(config, result);
        *ret = result;
        return 0;
}

/* sandbox */

static int normalize_fake(json_t *config, json_t **ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *image;
        bool reuse;
        int r;

        check_init(&c, config);
        check_literal(&c, "provider", CHECK_OPTIONAL, PROVIDER_FAKE);
        check_text(&c, "Fake sandbox environments require an image.");
        image = check_string(&c, "image", CHECK_TRIM, 1, 0);
        reuse = check_bool(&c, "reuseLease", CHECK_OPTIONAL, false);
        check_unknown(&c, (const char *[]){ "provider", "image", "reuseLease", NULL });
        if (!check_failed(&c))
                *ret = json_pack("{s:s, s:s, s:b}", "provider", PROVIDER_FAKE, "image",
                                 image ? image : "ubuntu:24.04", "reuseLease", reuse);
        r = check_end_config(&c, err);
        return r;
}

/* Every member that the provider will look at stays as it was sent. */
static int normalize_provided(json_t *config, json_t **ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *provider, *key;
        int64_t timeout;
        bool has_timeout, reuse;
        json_t *result, *value;

        check_init(&c, config);
        provider = required(&c, "provider", "Sandbox provider is required.");
        if (provider && !env_config_is_key(provider))
                check_invalid_string(
                        &c, "provider", "regex",
                        "Sandbox provider key must start with a lowercase alphanumeric and "
                        "contain only lowercase letters, digits, dots, hyphens, or "
                        "underscores");
        timeout = check_int(&c, "timeoutMs", CHECK_COERCE, 1, SANDBOX_TIMEOUT_MAX, &has_timeout);
        reuse = check_bool(&c, "reuseLease", CHECK_OPTIONAL, false);
        if (check_failed(&c))
                return check_end_config(&c, err);

        result = json_pack("{s:s}", "provider", provider);
        if (has_timeout)
                json_object_set_new(result, "timeoutMs", json_integer(timeout));
        json_object_set_new(result, "reuseLease", json_boolean(reuse));
        json_object_foreach(config, key, value)
        {
                if (!json_object_get(result, key) && !streq(key, "timeoutMs"))
                        json_object_set(result, key, value);
        }
        *ret = result;
        return 0;
}

static int normalize_sandbox(json_t *config, json_t **ret, struct err *err)
{
        const struct provider *p;
        struct arena arena;

        arena_init(&arena);
        p = provider_lookup(provider_key_of(config, &arena));
        arena_done(&arena);
        if (p && p->normalize)
                return p->normalize(config, ret, err);
        return p ? normalize_fake(config, ret, err) : normalize_provided(config, ret, err);
}

/* plugin */

static int normalize_plugin(json_t *config, json_t **ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *plugin, *driver;
        json_t *inner;

        check_init(&c, config);
        plugin = check_string(&c, "pluginKey", CHECK_REQUIRED, 1, 0);
        driver = check_string(&c, "driverKey", CHECK_REQUIRED, 1, 0);
        if (driver && !env_config_is_key(driver))
                check_invalid_string(
                        &c, "driverKey", "regex",
                        "Environment driver key must start with a lowercase alphanumeric "
                        "and contain only lowercase letters, digits, dots, hyphens, or "
                        "underscores");
        inner = check_record(&c, "driverConfig", CHECK_OPTIONAL);
        check_unknown(&c, (const char *[]){ "pluginKey", "driverKey", "driverConfig", NULL });
        if (check_failed(&c))
                return check_end_config(&c, err);
        *ret = json_pack("{s:s, s:s, s:o}", "pluginKey", plugin, "driverKey", driver,
                         "driverConfig", inner ? json_copy(inner) : json_object());
        return 0;
}

int env_config_normalize(const char *driver, json_t *config, enum config_form form, json_t **ret,
                         struct err *err)
{
        json_t *empty = json_is_object(config) ? NULL : json_object();
        json_t *given = empty ? empty : config;
        int r;

        if (streq(driver, "local")) {
                *ret = json_copy(given);
                r = 0;
        } else if (streq(driver, "ssh")) {
                r = normalize_ssh(given, form, ret, err);
        } else if (streq(driver, "sandbox")) {
                r = normalize_sandbox(given, ret, err);
        } else if (streq(driver, "plugin")) {
                r = normalize_plugin(given, ret, err);
        } else {
                r = err_set(err, ERR_UNPROCESSABLE, "Unsupported environment driver \"%s\".",
                            driver);
        }
        json_decref(empty);
        return r;
}
