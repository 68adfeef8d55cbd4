/* Checks in a place, before the command of a run starts there: whether the session can be resumed,
 * and whether the model is available. At this point nothing is open that would have to be
 * closed. */
#include <pthread.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/hash.h"
#include "core/runs/run_internal.h"
#include "core/runs/run_wait.h"

#define HELPER_MS     15000
#define MODELS_MAX    ((size_t)1 << 20)
#define KNOWN_MAX     64
#define KNOWN_MS      (INT64_C(24) * 3600 * 1000)
#define HEADER_SCRIPT "[ -f \"$1\" ] && head -c 65536 \"$1\" | head -n 1"
#define NEW_SCRIPT    "mkdir -p \"${1%/*}\" && : >>\"$1\""

/* -- Sessions that are files ------------------------------------------------------------------- */

static int run_script(struct run_task *t, const char *what, const char *script, const char *path,
                      struct run_command_end *end, struct err *err)
{
        struct exec_request req = {
                .command = "sh",
                .args = (const char *[]){ "-c", script, "sh", path, NULL },
                .cwd = t->command.cwd,
                .timeout_ms = HELPER_MS,
                .idempotency_key = arena_printf(t->op->arena, "%s:%s", what, t->run.id),
        };

        return run_command_wait(t->op, t->rt, &t->record, &req, end, err);
}

/* A file that cannot be read is not a session; only a place that cannot be asked is an error. */
static int read_header(struct run_task *t, bool *ret_fits, struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        int r;

        FAULT("run.session.before");
        r = run_script(t, "session", HEADER_SCRIPT, t->command.session_id, &end, err);
        FAULT("run.session.after");
        *ret_fits = r >= 0 &&
                    adapter_session_fits(t->command.session_header, buf_str(&end.out), end.out.len);
        return r;
}

static int make_file(struct run_task *t, struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        int r;

        FAULT("run.session.new.before");
        r = run_script(t, "session-new", NEW_SCRIPT, t->command.new_session_id, &end, err);
        FAULT("run.session.new.after");
        if (r >= 0 && (!end.how.has_code || end.how.code != 0))
                return err_set(err, ERR_PROVIDER, "The session file %s could not be made.",
                               t->command.new_session_id);
        return r;
}

int run_ready_session(struct run_task *t, struct err *err)
{
        bool fits;
        int r;

        /* In the place where it was made the files may still be there; no harm is done by bringing
         * them again. */
        if (t->command.session_id && t->command.session_dir && t->input.has_session_files &&
            !run_session_bring(t)) {
                r = run_build(t, true, err);
                if (r < 0)
                        return r;
        }
        if (!t->command.session_header)
                return 0;
        if (t->command.session_id) {
                r = read_header(t, &fits, err);
                if (r >= 0 && !fits)
                        r = run_build(t, true, err);
                if (r < 0 || fits)
                        return r;
        }
        return t->command.new_session_id ? make_file(t, err) : 0;
}

/* -- Models ------------------------------------------------------------------------------------ */

/* Asking takes a program seconds, so a good answer counts for a day: for the agent as it is
 * configured now, its environment and its model. The oldest is forgotten for a new one. Any
 * thread. */
static struct {
        pthread_mutex_t lock;
        struct {
                char agent[UUID_LEN + 1], environment[UUID_LEN + 1];
                uint64_t configuration;
                int64_t until_ms;
        } at[KNOWN_MAX];
        size_t next;
} known = { .lock = PTHREAD_MUTEX_INITIALIZER };

static bool is_model_known(const struct run_task *t)
{
        int64_t now = clock_mono_ms();
        bool found = false;

        (void)pthread_mutex_lock(&known.lock);
        for (size_t i = 0; i < KNOWN_MAX && !found; i++)
                found = known.at[i].until_ms > now && streq(known.at[i].agent, t->agent.id) &&
                        known.at[i].configuration == hash_text(t->agent.adapter_config) &&
                        streq(known.at[i].environment, t->record.env.id);
        (void)pthread_mutex_unlock(&known.lock);
        return found;
}

static void know_model(const struct run_task *t)
{
        (void)pthread_mutex_lock(&known.lock);
        (void)snprintf(known.at[known.next].agent, UUID_LEN + 1, "%s", t->agent.id);
        (void)snprintf(known.at[known.next].environment, UUID_LEN + 1, "%s", t->record.env.id);
        known.at[known.next].configuration = hash_text(t->agent.adapter_config);
        known.at[known.next].until_ms = clock_mono_ms() + KNOWN_MS;
        known.next = (known.next + 1) % KNOWN_MAX;
        (void)pthread_mutex_unlock(&known.lock);
}

int run_ready_model(struct run_task *t, struct err *err)
{
        CLEAN(run_command_end_done) struct run_command_end end = { .max = MODELS_MAX };
        const struct adapter_command *c = &t->command;
        struct exec_request req;
        const char *fault;
        int r;

        if (!c->list_argv || is_model_known(t))
                return 0;
        req = (struct exec_request){
                .command = c->list_argv[0],
                .args = c->list_argv + 1,
                .cwd = c->cwd,
                .own_env = c->env,
                .timeout_ms = c->list_timeout_ms,
                .idempotency_key = arena_printf(t->op->arena, "models:%s", t->run.id),
                .agent_id = t->agent.id,
        };
        FAULT("run.models.before");
        r = run_command_wait(t->op, t->rt, &t->record, &req, &end, err);
        FAULT("run.models.after");
        if (r < 0)
                return r;
        fault = adapter_model_fault(t->op->arena, &t->input, &t->command, &end.how);
        if (fault)
                return err_set(err, ERR_UNPROCESSABLE, "%s", fault);
        know_model(t);
        return 0;
}

/* -- The network ------------------------------------------------------------------------------- */

int run_ready_network(struct run_task *t, struct err *err)
{
        const char *fault = adapter_network_fault(t->op->arena, &t->input);

        if (!fault)
                return 0;
        t->failure_code = "adapter_no_network";
        return err_set(err, ERR_UNPROCESSABLE, "%s", fault);
}
