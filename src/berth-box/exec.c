/* The life of an execution.
 *
 *   START -> STARTING -> RUNNING -> ENDED -> FORGET
 *                 \-> FAILED (told, then gone)
 *
 * While it lives, `ending` says that its tree is being killed: because the command has ended,
 * because of SIGNAL 9, STOP or a failing spool, or because the grace after a time limit is over.
 * Ending goes in steps, one per turn and never blocking: kill, look again, and when a whole look
 * finds nothing, spool what is left in the pipes and write the exit record. A process that survives
 * SIGKILL (it hangs in the kernel) delays that by BOX_GIVE_UP_MS at most.
 *
 * A pid is only signalled while the process is unreaped (`alive`), so it cannot be another's. */
#define _GNU_SOURCE
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "berth-box/box.h"

#define STEP_PAUSE_MAX_MS 20

struct exec *exec_find(struct box *b, const uint8_t id[FRAME_UUID])
{
        for (int i = 0; i < b->n_execs; i++)
                if (b->execs[i].state != EXEC_FREE && memcmp(b->execs[i].id, id, FRAME_UUID) == 0)
                        return &b->execs[i];
        return NULL;
}

struct exec *exec_by_channel(struct box *b, uint32_t channel)
{
        for (int i = 0; i < b->n_execs; i++)
                if (b->execs[i].state != EXEC_FREE && b->execs[i].channel == channel)
                        return &b->execs[i];
        return NULL;
}

struct exec *exec_by_pid(struct box *b, pid_t pid)
{
        for (int i = 0; i < b->n_execs; i++)
                if (b->execs[i].alive && b->execs[i].pid == pid)
                        return &b->execs[i];
        return NULL;
}

bool exec_is_live(const struct exec *e)
{
        return e->state == EXEC_STARTING || e->state == EXEC_RUNNING;
}

struct exec *exec_new(struct box *b, const uint8_t id[FRAME_UUID])
{
        int i = 0;

        while (i < b->n_execs && b->execs[i].state != EXEC_FREE)
                i++;
        if (i == BOX_MAX_EXECS)
                return NULL;
        b->n_execs = MAX(b->n_execs, i + 1);
        b->in_use++;
        struct exec *e = &b->execs[i];
        *e = (struct exec){
                .state = EXEC_STARTING, .status_pipe = -1, .keep_tty = -1, .stdin_fd = -1
        };
        for (int k = 0; k < 2; k++)
                e->out[k].pipe = e->out[k].file = -1;
        memcpy(e->id, id, FRAME_UUID);
        frame_uuid_text(id, e->name);
        return e;
}

void exec_free(struct box *b, struct exec *e)
{
        spool_close(e);
        spool_redact(e, NULL);
        for (int i = 0; i < 2; i++)
                buf_wipe(&e->out[i].held);
        e->state = EXEC_FREE;
        e->channel = 0;
        e->say = 0;
        e->alive = false;
        b->in_use--;
        while (b->n_execs > 0 && b->execs[b->n_execs - 1].state == EXEC_FREE)
                b->n_execs--;
}

/* Everything that connects us to its processes. */
static void close_process_side(struct box *b, struct exec *e)
{
        for (int i = 0; i < 2; i++) {
                if (e->out[i].pipe >= 0)
                        close(e->out[i].pipe);
                e->out[i].pipe = -1;
                e->out[i].polled = false;
        }
        stdin_close(b, e);
        if (e->keep_tty >= 0)
                close(e->keep_tty);
        if (e->status_pipe >= 0)
                close(e->status_pipe);
        e->keep_tty = e->status_pipe = -1;
}

/* A START that came to nothing leaves nothing. Its process, if there was one, has said its last
 * word, so waiting for it is short. */
void exec_fail(struct box *b, struct exec *e, uint16_t code, const char *what, int errno_value)
{
        e->fail_code = code;
        snprintf(e->fail_text, sizeof(e->fail_text), "%s: %s", what, strerror(errno_value));
        if (e->alive) {
                kill(e->pid, SIGKILL);
                while (waitpid(e->pid, NULL, 0) < 0 && errno == EINTR)
                        ;
                e->alive = false;
        }
        close_process_side(b, e);
        if (e->kill_method == BOX_KILL_CGROUP)
                cgroup_remove(b, e->name);
        spool_discard(b, e);
        e->state = EXEC_FAILED;
        if (!e->channel)
                exec_free(b, e);
}

static void exec_started(struct box *b, struct exec *e)
{
        e->state = EXEC_RUNNING;
        close(e->status_pipe);
        e->status_pipe = -1;
        if (e->channel && !(e->say & SAY_STATE))
                e->say |= SAY_STARTED;
        if (e->channel && e->stdin_open)
                e->say |= SAY_TAKEN;
        spool_poll(b, e, 0);
        spool_poll(b, e, 1);
        for (int i = 1; i <= 64; i++)
                if (e->signals & UINT64_C(1) << (i - 1))
                        exec_signal(b, e, i);
}

/* The child's word on exec: nothing when it succeeded, the reason when it did not. */
void exec_status(struct box *b, struct exec *e)
{
        int word[2]; /* error code, errno */
        char what[120];

        if (e->state != EXEC_STARTING || e->status_pipe < 0)
                return;
        ssize_t n = read(e->status_pipe, word, sizeof(word));
        if (n < 0 && (errno == EAGAIN || errno == EINTR))
                return;
        if (n != (ssize_t)sizeof(word)) {
                exec_started(b, e);
                return;
        }
        if (word[0] == BOX_ERR_CWD)
                snprintf(what, sizeof(what), "cannot enter the working directory");
        else
                snprintf(what, sizeof(what), "cannot run '%s'", e->command);
        exec_fail(b, e, (uint16_t)word[0], what, word[1]);
}

void exec_signal(struct box *b, struct exec *e, int signal)
{
        if (!exec_is_live(e) || e->ending)
                return;
        if (signal == SIGKILL) {
                exec_kill(b, e, 0);
                return;
        }
        if (e->state == EXEC_STARTING) /* before exec it would hit us, not the command */
                e->signals |= UINT64_C(1) << (signal - 1);
        else if (e->alive)
                (void)kill(-e->pid, signal);
}

/* SIGCONT after it: a stopped process would not hear the first one. */
void exec_terminate(struct box *b, struct exec *e, uint8_t why, int64_t grace_ms)
{
        e->end_flags |= why;
        if (e->ending)
                return;
        tree_signal(b, e, SIGTERM);
        tree_signal(b, e, SIGCONT);
        e->limit_at = 0;
        e->kill_at = e->kill_at ? MIN(e->kill_at, b->now + grace_ms) : b->now + grace_ms;
}

void exec_kill(struct box *b, struct exec *e, uint8_t why)
{
        if (!exec_is_live(e))
                return;
        e->end_flags |= why;
        e->limit_at = e->kill_at = 0;
        if (e->ending)
                return;
        e->ending = true;
        e->step_at = b->now;
        e->step_pause_ms = 1;
        e->give_up_at = b->now + BOX_GIVE_UP_MS;
}

/* The orphans of all executions end up here too; only main processes are of interest. */
void exec_reap(struct box *b)
{
        bool any = false;
        int status;
        pid_t pid;

        while ((pid = waitpid(-1, &status, WNOHANG)) > 0) {
                struct exec *e = exec_by_pid(b, pid);

                any = true;
                if (!e) {
                        service_reaped(b, pid);
                        continue;
                }
                e->alive = false; /* from here on the pid is free for others */
                e->status = status;
                e->ended_itself = !e->ending;
                exec_status(b, e); /* its word on exec may not have been read yet */
                exec_kill(b, e, 0);
        }
        if (!any)
                return;
        for (int i = 0; i < b->n_execs; i++)
                if (b->execs[i].ending && exec_is_live(&b->execs[i]))
                        b->execs[i].step_at = b->now;
}

/* False when it has to wait. */
static bool end_exec(struct box *b, struct exec *e)
{
        bool is_full = false, known = !e->alive;

        e->room_at = 0;
        for (int i = 0; i < 2; i++) {
                int r = spool_drain(b, e, i);

                is_full = is_full || r > 0;
                if (r < 0)
                        e->end_flags |= BOX_EXIT_INCOMPLETE;
        }
        /* The output of an execution that ended by itself waits for room on the disk, unless the
         * place is given up. */
        if (is_full && e->ended_itself && !b->stopping && b->now < e->room_until)
                return false;
        if (is_full)
                e->end_flags |= BOX_EXIT_DISK_FULL | BOX_EXIT_INCOMPLETE;
        close_process_side(b, e);
        e->exit = (struct box_exit){
                .code = known && WIFEXITED(e->status) ? WEXITSTATUS(e->status) : -1,
                .signal = (uint8_t)(known && WIFSIGNALED(e->status) ? WTERMSIG(e->status) : 0),
                .flags = e->end_flags,
                .ended_ms = (uint64_t)(clock_wall_us() / US_PER_MS),
                .stdout_len = e->out[0].written,
                .stderr_len = e->out[1].written,
        };
        e->alive = false; /* if it still is, it is reaped like any orphan */
        e->ending = false;
        e->state = EXEC_ENDED;
        spool_write_exit(b, e);
        if (e->channel)
                e->say |= SAY_EXIT;
        else
                spool_close(e);
        return true;
}

void exec_turn(struct box *b, struct exec *e, int64_t *nearest)
{
        if (!exec_is_live(e))
                return;
        if (e->limit_at && b->now >= e->limit_at)
                exec_terminate(b, e, BOX_EXIT_TIMED_OUT, e->grace_ms);
        if (e->full_until && b->now >= e->full_until) {
                bool waits = !e->ending && spool_output_room(b, e) == 0;

                /* A command that has printed exactly what it may, and no more, waits for nothing.
                 */
                e->full_until = 0;
                if (waits && spool_is_pending(e))
                        exec_kill(b, e, BOX_EXIT_OUTPUT | BOX_EXIT_INCOMPLETE);
                else if (waits)
                        e->full_until = b->now + e->output.wait_ms;
        }
        if (e->kill_at && b->now >= e->kill_at)
                exec_kill(b, e, 0);
        if (!e->ending && e->room_at && b->now >= e->room_at) {
                if (b->now >= e->room_until)
                        exec_kill(b, e, BOX_EXIT_DISK_FULL | BOX_EXIT_INCOMPLETE);
                else
                        spool_retry(b, e);
        }
        if (e->ending && b->now >= e->step_at) {
                e->is_dead = e->is_dead || tree_kill_step(b, e);
                if (!exec_is_live(e))
                        return;
                if (e->is_dead || b->now >= e->give_up_at) {
                        if (!e->is_dead)
                                e->end_flags |= BOX_EXIT_INCOMPLETE;
                        if (end_exec(b, e))
                                return;
                        e->step_pause_ms = BOX_ROOM_MS;
                }
                e->step_at = b->now + e->step_pause_ms;
                e->step_pause_ms = MIN(e->step_pause_ms * 2, STEP_PAUSE_MAX_MS);
        }
        box_deadline(nearest, e->limit_at);
        box_deadline(nearest, e->kill_at);
        box_deadline(nearest, e->full_until);
        if (!e->ending)
                box_deadline(nearest, e->room_at);
        if (e->ending)
                box_deadline(nearest, e->step_at);
}
