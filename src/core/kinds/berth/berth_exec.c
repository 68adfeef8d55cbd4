/* Commands in a sandbox. Their environment is built from zero: a few variables that fit the inside,
 * the proxy's where there is one, what the configuration sets, and what the request sets. */
#include "core/exec/egress.h"
#include "core/exec/exec_request.h"
#include "core/kinds/berth/berth.h"
#include "core/places/place.h"

#define INNER_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

static void set_variable(json_t *variables, const char *name, const char *value)
{
        json_object_set_new(variables, name, json_string(value));
}

static void set_base(json_t *variables, const json_t *config, bool terminal)
{
        const char *user = json_get_string(config, "user");
        bool root = user && streq(user, "root");

        set_variable(variables, "PATH", INNER_PATH);
        set_variable(variables, "HOME", root ? "/root" : "/home/agent");
        set_variable(variables, "USER", root ? "root" : "agent");
        set_variable(variables, "LOGNAME", root ? "root" : "agent");
        set_variable(variables, "SHELL", "/bin/sh");
        set_variable(variables, "LANG", "C.UTF-8");
        if (terminal)
                set_variable(variables, "TERM", "xterm-256color");
}

static void set_proxy(struct op *op, json_t *variables, const json_t *config)
{
        for (const char *const *v = egress_env(config); *v; v++) {
                size_t n = strcspn(*v, "=");

                set_variable(variables, arena_strndup(op->arena, *v, n), *v + n + 1);
        }
}

/* The user id of the sandbox's supervisor on this machine, which must be known before the first
 * byte of output. */
int berth_admit_command(struct db *db, const struct place *place, struct arena *arena,
                        uid_t *ret_writer, struct err *err)
{
        struct sandbox_spec ids = { 0 };
        struct sandbox_row row;
        int r = sandboxes_get(db, place->id, arena, &row, err);

        if (r < 0)
                return r;
        if (row.is_paused)
                return err_set(err, ERR_CONFLICT, "The lease is paused; resume it first.");
        ids.first_id = (uint32_t)row.first_id;
        ids.n_ids = (uint32_t)row.n_ids;
        *ret_writer = sandbox_host_id(&ids, SANDBOX_SUPERVISOR);
        return 0;
}

int berth_prepare_exec(struct op *op, struct runtime *rt, const struct lease_record *record,
                       struct exec_request *ret, struct err *err)
{
        struct place place;
        CLEAN(json_decrefp) json_t *variables = json_object();
        json_t *config = NULL;
        int r = place_load(op, rt, record->lease.place_id, &place, err);

        if (r >= 0)
                r = kind_place_config(op, &place, &config, err);
        if (r < 0)
                return r;
        set_base(variables, config, ret->terminal);
        set_proxy(op, variables, config);
        exec_variables_update(variables, json_get_object(config, "env"));
        exec_variables_update(variables, ret->own_env);
        if (!ret->cwd)
                ret->cwd = BERTH_WORKSPACE;
        if (!ret->timeout_ms)
                ret->timeout_ms = json_integer_value(json_object_get(config, "timeoutMs"));
        return exec_request_set_env(op, variables, ret, err);
}
