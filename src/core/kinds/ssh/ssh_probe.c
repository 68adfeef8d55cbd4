#include "core/kinds/ssh/ssh_probe.h"

#include "core/kinds/ssh/ssh_config.h"
#include "core/kinds/ssh/ssh_hosts.h"

static void describe(const json_t *config, json_t *details)
{
        static const char *const shown[] = { "host", "port", "username", "remoteWorkspacePath" };

        for (size_t i = 0; i < ARRAY_LEN(shown); i++)
                json_object_set(details, shown[i], json_object_get(config, shown[i]));
}

static void failed(const json_t *config, const struct ssh_report *report, struct buf *summary,
                   json_t *details, struct buf *hint)
{
        buf_appendf(summary, "SSH probe failed for %s@%s.", json_get_string(config, "username"),
                    json_get_string(config, "host"));
        json_object_set_new(
                details, "error",
                json_string(report->error.len ? buf_str(&report->error) : "SSH probe failed."));
        json_object_set_new(details, "code",
                            report->code >= 0 ? json_integer(report->code) : json_null());
        buf_puts(hint, buf_str(&report->hint));
}

static void passed(const json_t *config, const struct ssh_hello *hello, struct buf *summary,
                   json_t *details)
{
        buf_appendf(summary, "Connected to %s@%s and verified the remote workspace path.",
                    json_get_string(config, "username"), json_get_string(config, "host"));
        json_object_set_new(details, "remoteCwd", json_string(hello->cwd));
}

/* With a key in it, nobody saved it. */
static int find_target(struct op *op, struct runtime *rt, const char *company_id,
                       const char *environment_id, json_t *config, struct ssh_target *ret,
                       json_t **ret_resolved, struct err *err)
{
        if (!environment_id && json_get_string(config, "privateKey")) {
                *ret_resolved = json_incref(config);
                ssh_config_read(config, ret);
                return 0;
        }
        return ssh_config_resolve(op, rt, company_id, environment_id, config, NULL, ret,
                                  ret_resolved, err);
}

int ssh_probe(struct op *op, struct runtime *rt, const char *company_id, const char *environment_id,
              json_t *config, bool *ret_ok, struct buf *summary, json_t *details, struct buf *hint,
              struct err *err)
{
        CLEAN(cleanup_free) char *record = ssh_hosts_record(rt->ssh, environment_id);
        CLEAN(err_done) struct err why = { 0 };
        struct ssh_call call = SSH_CALL_INIT;
        struct ssh_target target;
        json_t *resolved = NULL;
        int r = ssh_config_may(op, config, err);

        if (r >= 0)
                r = find_target(op, rt, company_id, environment_id, config, &target, &resolved,
                                err);
        if (r < 0)
                return r;
        r = ssh_call_ready(op, ssh_hosts_setup(rt->ssh), &target, record, &call, &why);
        json_decref(resolved);
        describe(config, details);
        *ret_ok = r >= 0;
        if (r >= 0)
                passed(config, &call.hello, summary, details);
        else
                failed(config, &call.report, summary, details, hint);
        ssh_call_done(op, &call);
        if (r == ERR_CANCELLED) {
                err_move(err, &why);
                return r;
        }
        return 0;
}
