/* The configuration of ssh environments: what is accepted and stored, and the target made of it. */
#include "core/kinds/ssh/ssh_config.h"

#include "codec/check.h"
#include "core/exec/exec_output.h"

/* Checking */

static json_t *check_secret_ref(struct check *c, const char *key)
{
        json_t *ref = check_record(c, key, CHECK_NULLABLE);
        json_t *version = ref ? json_object_get(ref, "version") : NULL;
        struct check n;

        if (!ref)
                return json_null();
        check_nested(&n, c, key, ref);
        check_literal(&n, "type", CHECK_REQUIRED, "secret_ref");
        const char *id = check_uuid(&n, "secretId", CHECK_REQUIRED);
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

int ssh_config_normalize(const struct kind *kind, json_t *config, enum config_form form,
                         json_t **ret, struct err *err)
{
        CLEAN(check_done) struct check c = { 0 };
        const char *host, *username, *path, *key = NULL, *hosts;
        json_t *ref, *result;
        static const char *const output_full[] = { "wait", "drop", NULL };
        bool has_port, strict, own_config, in_place;

        check_init(&c, config);
        host = required(&c, "host", "SSH environments require a host.");
        int64_t port = check_int(&c, "port", CHECK_COERCE, 1, 65535, &has_port);
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
        int r = check_end_config(&c, err);
        if (r < 0)
                return r;
        /* Members of our own, so only present when they are set. */
        if (own_config)
                json_object_set_new(result, "useSshConfig", json_true());
        if (in_place)
                json_object_set_new(result, "workspaceMode", json_string(SSH_MODE_IN_PLACE));
        exec_output_keep(config, result);
        *ret = result;
        return 0;
}

/* Reading */

void ssh_config_read(const json_t *config, struct ssh_target *ret)
{
        *ret = (struct ssh_target){
                .host = json_get_string(config, "host"),
                .username = json_get_string(config, "username"),
                .port = (int)json_integer_value(json_object_get(config, "port")),
                .path = json_get_string(config, "remoteWorkspacePath"),
                .private_key = json_get_string(config, "privateKey"),
                .known_hosts = json_get_string(config, "knownHosts"),
                .strict = !json_is_false(json_object_get(config, "strictHostKeyChecking")),
                .use_ssh_config = json_is_true(json_object_get(config, "useSshConfig")),
        };
}

int ssh_config_resolve(struct op *op, struct runtime *rt, const char *company_id,
                       const char *environment_id, json_t *config,
                       const struct secret_context *context, struct ssh_target *ret,
                       json_t **ret_resolved, struct err *err)
{
        int r = secret_resolve_config(op, rt, company_id, environment_id, &kind_ssh, config, NULL,
                                      context, ret_resolved, err);

        if (r >= 0)
                ssh_config_read(*ret_resolved, ret);
        return r;
}

int ssh_config_may(const struct op *op, const struct runtime *rt, const json_t *config,
                   struct err *err)
{
        if (!json_is_true(json_object_get(config, "useSshConfig")))
                return 0;
        return access_admin(op->actor,
                            "Only an instance admin may let an environment use the SSH keys and "
                            "configuration of the daemon's user (useSshConfig).",
                            err);
}
