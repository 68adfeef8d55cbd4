/* `berth lease exec|output|signal`: commands in a lease. How they are followed is in
 * remote.h. */
#include <signal.h>
#include <stdio.h>

#include "base/uuid.h"
#include "cli/cmd_lease.h"
#include "cli/output.h"
#include "cli/remote.h"
#include "cli/signals.h"

/* -- exec ------------------------------------------------------------------------------------- */

/* After remote_follow(): say what a status alone does not, and how to exit. */
static int finish(struct cli *c, struct remote *m)
{
        remote_explain(m);
        if (m->gave_up)
                remote_say_how_to_look(m);
        if (m->signal == SIGINT && m->interrupted && !m->gave_up)
                c->end_by_signal = SIGINT;
        return remote_status(m);
}

static int start_and_follow(struct cli *c, struct remote *m, bool detach, struct err *err)
{
        int r = remote_start(m, err), status = r < 0 ? remote_refusal_status(err) : 0;

        if (status) {
                out_error(err->msg);
                return status;
        }
        if (r < 0)
                return r;
        if (detach) {
                puts(m->id);
                return 0;
        }
        r = remote_follow(m, err);
        if (r < 0 && !m->has_end)
                remote_say_how_to_look(m);
        return r < 0 ? r : finish(c, m);
}

int cmd_lease_exec(struct cli *c, const struct args *a, struct err *err)
{
        struct remote_spec spec;
        struct remote m;
        bool detach = args_flag(a, "detach");
        int r = remote_options(c, a, 1, "env", &spec, err);

        if (r >= 0 && detach && (args_flag(a, "tty") || args_flag(a, "interactive")))
                r = err_set(err, ERR_USAGE, "--detach leaves nobody to type: not with -t or -i");
        if (detach)
                spec.forward_stdin = false;
        if (r >= 0)
                r = lease_id(c, a->words[0], &spec.lease_id, err);
        if (r >= 0)
                r = remote_agent(c, a, &spec, err);
        if (r >= 0 && !detach)
                r = signals_catch(err);
        if (r < 0)
                return r;
        r = remote_init(&m, c, &spec, err);
        if (r >= 0)
                r = start_and_follow(c, &m, detach, err);
        remote_done(&m);
        return r;
}

/* -- output ----------------------------------------------------------------------------------- */

/* The execution meant by words[1] in the lease meant by words[0]: its whole id. */
static int find_execution(struct cli *c, const struct args *a, const char **ret_lease,
                          const char **ret_id, struct err *err)
{
        json_t *executions, *e, *named = cli_keep(c, json_array());
        size_t i;
        int r = lease_id(c, a->words[0], ret_lease, err);

        if (r < 0)
                return r;
        *ret_id = a->words[1];
        if (uuid_is_valid(*ret_id))
                return 0;
        r = cli_call_list(
                c, cli_printf(c, "/api/environment-leases/%s/executions?limit=500", *ret_lease),
                &executions, err);
        if (r < 0)
                return r;
        json_array_foreach(executions, i, e)
                json_array_append_new(named, json_pack("{s:s}", "id", cli_text(e, "execId")));
        r = cli_pick(&(const struct cli_kind){ .what = "execution" }, named, a->words[1], &e, err);
        if (r >= 0)
                *ret_id = cli_text(e, "id");
        return r;
}

/* Without -f: up to what there is now. */
static int set_limit(struct cli *c, struct remote *m, int stream, bool follow, struct err *err)
{
        json_t *e;
        int r = cli_call(
                c, "GET",
                cli_printf(c, "/api/environment-leases/%s/executions/%s", m->spec.lease_id, m->id),
                NULL, &e, err);

        if (r < 0)
                return r;
        m->stop_at = UINT64_MAX;
        if (!follow)
                m->stop_at = (uint64_t)json_integer_value(
                        json_object_get(e, stream == 0 ? "stdoutBytes" : "stderrBytes"));
        return 0;
}

int cmd_lease_output(struct cli *c, const struct args *a, struct err *err)
{
        struct remote_spec spec = { .watch_only = true };
        int stream = args_flag(a, "stderr") ? 1 : 0;
        const char *id;
        struct remote m;
        int r = find_execution(c, a, &spec.lease_id, &id, err);

        if (r < 0)
                return r;
        r = remote_init(&m, c, &spec, err);
        if (r >= 0) {
                (void)snprintf(m.id, sizeof(m.id), "%s", id);
                /* To standard output, whichever it is; the other one is not even asked for. */
                m.out[stream].fd = STDOUT_FILENO;
                m.out[stream].plain = out_is_terminal() && !args_flag(a, "raw");
                m.out[1 - stream].fd = -1;
                m.out[1 - stream].at = INT64_MAX;
                m.watched = stream;
                r = set_limit(c, &m, stream, args_flag(a, "follow"), err);
        }
        if (r >= 0)
                r = remote_follow(&m, err);
        if (r >= 0 && m.write_failed)
                r = 1;
        remote_done(&m);
        return r;
}

/* -- signal ----------------------------------------------------------------------------------- */

int cmd_lease_signal(struct cli *c, const struct args *a, struct err *err)
{
        int number = signals_number(a->words[2]);
        const char *lease, *id;
        json_t *answer;
        int r;

        if (!number)
                return err_set(err, ERR_USAGE, "'%s' is no signal; say TERM, SIGTERM or 15",
                               a->words[2]);
        r = find_execution(c, a, &lease, &id, err);
        if (r < 0)
                return r;
        r = cli_call(c, "POST",
                     cli_printf(c, "/api/environment-leases/%s/executions/%s/signal", lease, id),
                     json_pack("{s:s}", "signal", signals_name(number)), &answer, err);
        if (r >= 0 && c->json)
                out_json(answer);
        return r;
}
