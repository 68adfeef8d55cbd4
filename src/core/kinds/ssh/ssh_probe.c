/* Logging in for a probe and turning the outcome into its result. */
#include "core/kinds/ssh/ssh_probe.h"

#include "core/kinds/ssh/ssh_config.h"
#include "core/kinds/ssh/ssh_hosts.h"

static void describe(const json_t *config, json_t *details)
{
        static const char *const shown[] = { "host", "port", "username", "remoteWorkspacePath" };

        for (size_t i = 0; i < ARRAY_LEN(shown); i++)
                json_object_set(details, shown[i], json_object_get(config, shown[i]));
}

static void failed(const json_t *config, const struct ssh_report *report, struct probe_result *ret)
{
        buf_appendf(&ret->summary, "SSH probe failed for %s@%s.",
                    json_get_string(config, "username"), json_get_string(config, "host"));
        json_object_set_new(
                ret->details, "error",
                json_string(report->error.len ? buf_str(&report->error) : "SSH probe failed."));
        json_object_set_new(ret->details, "code",
                            report->code >= 0 ? json_integer(report->code) : json_null());
        buf_puts(&ret->hint, buf_str(&report->hint));
}

static void passed(const json_t *config, const struct ssh_hello *hello, struct probe_result *ret)
{
        buf_appendf(&ret->summary, "Connected to %s@%s and verified the remote workspace path.",
                    json_get_string(config, "username"), json_get_string(config, "host"));
        json_object_set_new(ret->details, "remoteCwd", json_string(hello->cwd));
}

/* A configuration with a key in it is unsaved. */
static int find_target(struct op *op, struct runtime *rt, const struct probe_target *probed,
                       json_t *config, struct ssh_target *ret, json_t **ret_resolved,
                       struct err *err)
{
        if (!probed->environment_id && json_get_string(config, "privateKey")) {
                *ret_resolved = json_incref(config);
                ssh_config_read(config, ret);
                return 0;
        }
        return ssh_config_resolve(op, rt, probed->company_id, probed->environment_id, config, NULL,
                                  ret, ret_resolved, err);
}

int ssh_probe(struct op *op, struct runtime *rt, const struct probe_target *probed, json_t *config,
              struct probe_result *ret, struct err *err)
{
        CLEAN(cleanup_free) char *record = ssh_hosts_record(rt->ssh, probed->environment_id);
        CLEAN(err_done) struct err why = { 0 };
        struct ssh_call call = SSH_CALL_INIT;
        struct ssh_target target;
        json_t *resolved = NULL;
        int r = ssh_config_may(op, rt, config, err);

        if (r >= 0)
                r = find_target(op, rt, probed, config, &target, &resolved, err);
        if (r < 0)
                return r;
        r = ssh_call_ready(op, ssh_hosts_setup(rt->ssh), &target, record, &call, &why);
        json_decref(resolved);
        describe(config, ret->details);
        ret->ok = r >= 0;
        if (r >= 0)
                passed(config, &call.hello, ret);
        else
                failed(config, &call.report, ret);
        ssh_call_done(op, &call);
        if (r == ERR_CANCELLED) {
                err_move(err, &why);
                return r;
        }
        return 0;
}
