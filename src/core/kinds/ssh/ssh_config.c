#include "core/kinds/ssh/ssh_config.h"

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
        int r = secret_resolve_config(op, rt, company_id, environment_id, "ssh", config, NULL,
                                      context, ret_resolved, err);

        if (r >= 0)
                ssh_config_read(*ret_resolved, ret);
        return r;
}

int ssh_config_may(const struct op *op, const json_t *config, struct err *err)
{
        if (!json_is_true(json_object_get(config, "useSshConfig")))
                return 0;
        return access_admin(op->actor,
                            "Only an instance admin may let an environment use the SSH keys and "
                            "configuration of the daemon's user (useSshConfig).",
                            err);
}
