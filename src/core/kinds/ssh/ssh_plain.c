/* Running, following and killing a command on a host without a box. */
#include "core/kinds/ssh/ssh_plain.h"

#include "base/clock.h"
#include "core/access/access.h"
#include "core/kinds/ssh/ssh_config.h"
#include "core/kinds/ssh/ssh_hosts.h"

#define GRACE_S   5
#define KILL_MS   60000
#define LINGER_MS 10000

struct ssh_plain {
        struct ssh_plain *next; /* in the registry, under its lock */
        struct runtime *rt;
        int64_t call;
        pthread_t thread;
        bool is_over; /* under the lock: the thread only has to be joined */
        struct op_cancel cancel;
        struct kept_place *kept;
        char *exec_id, *cwd, *command, *input;
        char **args, **env;
        size_t input_len;
        int64_t timeout_ms;
        exec_output_fn output;
        exec_done_fn done;
        void *ctx;
};

/* Its copy of the request: there may be secrets among the variables and in the input. */

static void plain_free(struct ssh_plain *p)
{
        if (p->input)
                explicit_bzero(p->input, p->input_len);
        free(p->input);
        strv_wipe(p->args);
        strv_wipe(p->env);
        free(p->exec_id);
        free(p->cwd);
        free(p->command);
        kept_place_free(p->kept);
        op_cancel_done(&p->cancel);
        free(p);
}

/* Its thread */

struct login {
        struct ssh_target target;
        json_t *resolved;
        char *record;
};

static int open_login(struct op *op, struct runtime *rt, const struct place *place,
                      struct login *ret, struct err *err)
{
        const struct secret_context context = { .for_cleanup = true };
        json_t *document;
        int r = kind_place_config(op, place, &document, err);

        *ret = (struct login){ 0 };
        if (r >= 0)
                r = ssh_config_resolve(op, rt, place->company_id, place->environment_id,
                                       json_get_object(document, "ssh"), &context, &ret->target,
                                       &ret->resolved, err);
        if (r >= 0)
                ret->record = ssh_hosts_record(rt->ssh, place->environment_id);
        return r;
}

static void close_login(struct login *l)
{
        json_decref(l->resolved);
        free(l->record);
}

static int kill_there(struct op *op, struct runtime *rt, const struct place *place,
                      const char *name, const char *id, struct err *err)
{
        struct op shield = op_shield(op, KILL_MS);
        struct login l;
        int r = open_login(&shield, rt, place, &l, err);

        if (r >= 0)
                r = ssh_call_kill(&shield, carriers_setup(rt->carriers), &l.target, l.record, name,
                                  id, GRACE_S, err);
        close_login(&l);
        return r;
}

/* Follow the command to its end, to its time limit, or until it is killed. */
static int plain_follow(struct op *op, struct ssh_plain *p, struct ssh_call *call,
                        bool *ret_timed_out, struct err *err)
{
        CLEAN(err_done) struct err why = { 0 };
        struct op limited = *op;

        if (p->timeout_ms > 0)
                limited.deadline_ms = clock_mono_ms() + p->timeout_ms;
        int r = ssh_session_follow(&limited, &call->session, p->input, p->input_len, p->output,
                                   p->ctx, &why);
        if (r >= 0)
                return 0;
        *ret_timed_out = r == ERR_TIMEOUT;
        int killed = kill_there(op, p->rt, &p->kept->place, "BERTH_EXEC", p->exec_id, err);
        if (killed >= 0) {
                struct op shield = op_shield(op, LINGER_MS);

                killed = ssh_session_follow(&shield, &call->session, NULL, 0, p->output, p->ctx,
                                            err);
        }
        return killed;
}

static int plain_run(struct op *op, struct ssh_plain *p, json_t **ret_result, struct err *err)
{
        struct ssh_plain_command command = {
                .exec_id = p->exec_id,
                .place_id = p->kept->place.id,
                .cwd = p->cwd,
                .command = p->command,
                .args = (const char *const *)p->args,
                .env = (const char *const *)p->env,
        };
        struct ssh_call call = SSH_CALL_INIT;
        bool timed_out = false;
        struct login l;
        int r = open_login(op, p->rt, &p->kept->place, &l, err);

        if (r >= 0)
                r = ssh_call_plain(op, carriers_setup(p->rt->carriers), &l.target, l.record,
                                   &command, &call, err);
        close_login(&l);
        if (r == ERR_TIMEOUT)
                r = ERR_UNREACHABLE; /* it has not begun */
        if (r >= 0)
                r = plain_follow(op, p, &call, &timed_out, err);
        if (r >= 0 && call.session.status.exit_code == 255 && !timed_out &&
            !op_check(op, NULL)) { /* ssh's own: it has lost the host, or never had it */
                r = err_set(err, ERR_UNCERTAIN,
                            "The connection was lost while the command ran, or the command ended "
                            "with 255; without a box nobody can tell.");
        }
        if (r >= 0 && timed_out)
                *ret_result = json_pack("{s:n, s:s, s:b}", "exitCode", "signal", "SIGTERM",
                                        "timedOut", true);
        else if (r >= 0)
                *ret_result = json_pack("{s:i, s:n, s:b}", "exitCode",
                                        call.session.status.exit_code, "signal", "timedOut", false);
        ssh_call_done(op, &call);
        return r;
}

static void *thread_main(void *arg)
{
        struct ssh_plain *p = arg;
        struct ssh_hosts *h = p->rt->ssh;
        CLEAN(err_done) struct err err = { 0 };
        json_t *result = NULL;
        struct arena arena;
        struct op op = { .arena = &arena,
                         .deadline_ms = OP_NO_DEADLINE,
                         .cancel = &p->cancel,
                         .actor = &actor_system };

        arena_init(&arena);
        int r = plain_run(&op, p, &result, &err);
        p->done(p->ctx, r, result, &err);
        json_decref(result);
        arena_done(&arena);
        pthread_mutex_lock(&h->lock);
        p->is_over = true;
        pthread_mutex_unlock(&h->lock);
        return NULL;
}

/* The registry */

/* Join the threads of commands that are over, each time a new command begins; or of all. */
static void plain_reap(struct ssh_hosts *h, bool all)
{
        struct ssh_plain *gone = NULL, *p, **at;

        pthread_mutex_lock(&h->lock);
        for (at = &h->plain; *at;) {
                p = *at;
                if (!all && !p->is_over) {
                        at = &p->next;
                        continue;
                }
                *at = p->next;
                p->next = gone;
                gone = p;
        }
        pthread_mutex_unlock(&h->lock);
        while ((p = gone)) {
                gone = p->next;
                if (all)
                        op_cancel_set(&p->cancel);
                (void)pthread_join(p->thread, NULL);
                plain_free(p);
        }
}

static int plain_begin(struct runtime *rt, const struct execution *row,
                       const struct exec_request *req, exec_output_fn output, exec_done_fn done,
                       void *ctx, int64_t *ret_call, struct err *err)
{
        struct ssh_hosts *h = rt->ssh;
        struct ssh_plain *p = xcalloc(1, sizeof(*p));
        int r = op_cancel_init(&p->cancel, err);

        plain_reap(h, false);
        if (r < 0) {
                free(p);
                return r;
        }
        p->rt = rt;
        p->kept = kept_place_new(req->remote->call);
        p->exec_id = xstrdup(row->id);
        p->cwd = xstrdup(req->cwd);
        p->command = xstrdup(req->command);
        p->args = xstrv_copy(req->args);
        p->env = xstrv_copy(req->env);
        if (req->stdin_text) {
                p->input = xstrndup(req->stdin_text, req->stdin_len);
                p->input_len = req->stdin_len;
        }
        p->timeout_ms = req->timeout_ms;
        p->output = output;
        p->done = done;
        p->ctx = ctx;
        pthread_mutex_lock(&h->lock);
        *ret_call = p->call = ++h->last_call;
        r = pthread_create(&p->thread, NULL, thread_main, p);
        if (r == 0) {
                p->next = h->plain;
                h->plain = p;
        }
        pthread_mutex_unlock(&h->lock);
        if (r == 0)
                return 0;
        plain_free(p);
        return err_sys(err, ERR_BUSY, r, "start a thread for the command");
}

static void plain_abandon(struct runtime *rt, const char *who, int64_t call)
{
        pthread_mutex_lock(&rt->ssh->lock);
        for (struct ssh_plain *p = rt->ssh->plain; p; p = p->next)
                if (p->call == call)
                        op_cancel_set(&p->cancel);
        pthread_mutex_unlock(&rt->ssh->lock);
}

const struct exec_runner ssh_plain_runner = { .begin = plain_begin, .abandon = plain_abandon };

int ssh_plain_end_place(struct op *op, struct runtime *rt, const struct place *place,
                        struct err *err)
{
        return kill_there(op, rt, place, "BERTH_PLACE", place->id, err);
}

void ssh_plain_stop(struct ssh_hosts *h)
{
        plain_reap(h, true);
}
