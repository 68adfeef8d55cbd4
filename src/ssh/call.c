/* One login from the known host key to its end: what is tried, and what its failure means. */
#define _GNU_SOURCE
#include "ssh/call.h"

#include <fcntl.h>
#include <pwd.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "rt/pool.h"
#include "ssh/command.h"
#include "ssh/hostkey.h"
#include "ssh/text.h"

#define KNOWN_MAX  ((size_t)1 << 20)
#define BOX_MAX    ((size_t)16 << 20)
#define MAX_NEEDS  4
#define SCRIPT_MAX ((size_t)4 << 20)
#define UPLOAD_MS  180000 /* a box, over a slow line */

/* Who the host is */

static int read_known(const char *path, struct buf *out, struct err *err)
{
        int r = path ? file_read_at(AT_FDCWD, path, KNOWN_MAX, out, err) : ERR_NOT_FOUND;

        return r == ERR_NOT_FOUND ? 0 : r;
}

/* A copy in the private directory: ssh adds to it what it finds new, and we keep it when we got in.
 */
static int write_known(struct ssh_call *c, const struct ssh_target *t, const char *record,
                       struct ssh_files *files, struct err *err)
{
        CLEAN(buf_done) struct buf text = { .max = 2 * KNOWN_MAX };
        int r = read_known(record, &text, err);

        if (r < 0)
                return err_wrap(err, r, "read the recorded host keys");
        if (t->known_hosts) {
                buf_puts(&text, t->known_hosts);
                buf_puts(&text, "\n");
        }
        if (text.len == 0 && t->strict)
                return 0;
        c->known = xstrdup(buf_str(&text));
        c->known_path = xasprintf("%s/known_hosts", c->dir.path);
        c->record = record && !t->strict ? xstrdup(record) : NULL;
        files->known_hosts = c->known_path;
        files->also_own = !t->known_hosts;
        return file_write_at(AT_FDCWD, c->known_path, buf_str(&text), text.len, 0600, err);
}

/* We are in, so what ssh added is the host's key. */
static int keep_known(struct ssh_call *c, struct err *err)
{
        CLEAN(buf_done) struct buf text = { .max = 2 * KNOWN_MAX };
        CLEAN(cleanup_free) char *parent = NULL;

        if (!c->record)
                return 0;
        int r = read_known(c->known_path, &text, err);
        if (r < 0 || text.len == 0 || streq(buf_str(&text), c->known))
                return r;
        parent = xstrndup(c->record, (size_t)(strrchr(c->record, '/') - c->record));
        r = path_make_dirs(parent, 0700, err);
        return r < 0 ? r : file_write_at(AT_FDCWD, c->record, buf_str(&text), text.len, 0600, err);
}

/* Whether ssh looks into it without being told to. */
static bool is_known_to_ssh(const char *path)
{
        CLEAN(cleanup_free) char *own = NULL;
        struct passwd entry, *user = NULL;
        char text[4096];

        if (streq(path, "/etc/ssh/ssh_known_hosts"))
                return true;
        if (getpwuid_r(getuid(), &entry, text, sizeof(text), &user) != 0 || !user)
                return false;
        own = xasprintf("%s/.ssh/known_hosts", user->pw_dir);
        return streq(path, own);
}

/* What to look lines up in, for the fingerprint that was known: "Offending ... key in FILE:3". The
 * host has a hand in what ssh says, so its word opens no other file. */
static const char *compared_with(struct ssh_call *c, struct buf *own)
{
        const char *at = strstr(buf_str(&c->session.errors), "Offending "), *end;
        CLEAN(cleanup_free) char *path = NULL;

        if (c->known_path && strstr(buf_str(&c->session.errors), c->known_path))
                return c->known;
        at = at ? strstr(at, " key in /") : NULL;
        if (!at)
                return NULL;
        at += strlen(" key in ");
        end = at + strcspn(at, ":\r\n");
        path = xstrndup(at, (size_t)(end - at));
        if (!is_known_to_ssh(path))
                return NULL;
        return file_read_at(AT_FDCWD, path, KNOWN_MAX, own, NULL) < 0 ? NULL : buf_str(own);
}

/* Failing */

/* A host that cannot be reached now may be later; what it refuses, it goes on refusing. */
static int code_of_trouble(enum ssh_trouble trouble)
{
        return trouble == SSH_UNREACHABLE || trouble == SSH_UNRESOLVED || trouble == SSH_SILENT ||
                               trouble == SSH_CUT
                       ? ERR_UNREACHABLE
                       : ERR_PROVIDER;
}

/* ssh says 255, and mostly why, when the connection ends; a shell that was killed there says more
 * than 128. */
static bool was_cut(const struct ssh_session *s)
{
        return s->ended && s->errors.len == 0 && (s->status.signal || s->status.exit_code > 128);
}

static int give_report(struct ssh_call *c, const struct ssh_target *t, int code, struct err *err)
{
        CLEAN(buf_done) struct buf own = { .max = KNOWN_MAX };
        struct ssh_report *rep = &c->report;
        const char *errors = buf_str(&c->session.errors);

        buf_clear(&rep->error);
        buf_clear(&rep->hint);
        rep->trouble = ssh_trouble_of(errors);
        rep->code = c->session.ended ? c->session.status.exit_code : -1;
        ssh_text_clean(errors, strlen(errors), 4000, &rep->error);
        if (code == ERR_TIMEOUT && rep->trouble == SSH_OTHER)
                rep->trouble = SSH_SILENT;
        if (was_cut(&c->session))
                rep->trouble = SSH_CUT;
        ssh_explain(rep->trouble, errors, t, compared_with(c, &own), &rep->hint);
        if (rep->error.len == 0)
                buf_puts(&rep->error,
                         err && code != ERR_NOT_FOUND ? err->msg : buf_str(&rep->hint));
        code = err_set(err, code == ERR_TIMEOUT ? code : code_of_trouble(rep->trouble), "%s",
                       buf_str(&rep->hint));
        if (rep->trouble == SSH_NO_SPACE)
                err_mark_transient(err);
        return code;
}

static int call_fail(struct ssh_call *c, const struct ssh_target *t, int code, struct err *err)
{
        if (code == ERR_NOT_FOUND || code == ERR_TIMEOUT)
                return give_report(c, t, code, err);
        buf_clear(&c->report.error);
        buf_clear(&c->report.hint);
        if (err) {
                buf_puts(&c->report.error, err->msg);
                buf_puts(&c->report.hint, err->msg);
        }
        return code;
}

static int other_fail(struct ssh_call *c, int code, struct err *err)
{
        const char *said = buf_str(&c->session.errors);

        buf_clear(&c->report.error);
        ssh_text_clean(said, strlen(said), 4000, &c->report.error);
        c->report.code = c->session.ended ? c->session.status.exit_code : -1;
        if (code != ERR_NOT_FOUND)
                return code;
        return err_set(err, ERR_UNREACHABLE, "%s",
                       c->report.error.len ? buf_str(&c->report.error) : "it ended without a word");
}

/* Getting in */

static void close_door(const struct op *op, struct ssh_call *c)
{
        ssh_agent_end(op, &c->agent);
        ssh_rundir_remove(&c->dir);
}

static int call_begin(struct op *op, const struct ssh_setup *setup, const struct ssh_target *given,
                      const char *record, size_t script_len, struct ssh_call *c, struct err *err)
{
        CLEAN(buf_done) struct buf launcher = BUF_INIT;
        struct ssh_target target = *given, *t = &target;
        struct ssh_files files = { 0 };
        int r = ssh_target_check(t, err);

        if (r >= 0)
                r = ssh_rundir_make(setup->run_dir, &c->dir, err);
        if (r >= 0)
                r = write_known(c, t, record, &files, err);
        if (r >= 0 && t->private_key)
                r = ssh_agent_start(op, setup->trampoline, c->dir.path, t->private_key, &c->agent,
                                    err);
        if (r < 0)
                return r;
        t->patience_s = (int)MAX(setup->timeout_ms / 2000, 1);
        files.agent = c->agent.socket;
        ssh_script_launcher(script_len, &launcher);
        return ssh_session_start(setup->trampoline,
                                 ssh_command(t, &files, buf_str(&launcher), op->arena),
                                 ssh_environment(t, op->arena), &c->session, err);
}

static int begin_other(struct op *op, const struct ssh_setup *setup, const struct ssh_other *other,
                       size_t script_len, struct ssh_call *c, struct err *err)
{
        CLEAN(buf_done) struct buf login = BUF_INIT;
        CLEAN(buf_done) struct buf sh = BUF_INIT;
        const char *const *args;
        int r;

        ssh_script_launcher(script_len, &login);
        ssh_script_argument(script_len, &sh);
        r = other->args(other->ctx, buf_str(&sh), buf_str(&login), &args, err);
        return r < 0 ? r : ssh_session_start(setup->trampoline, args, other->env, &c->session, err);
}

/* The next thing the script says. The first word of it means that we are in. */
static int call_hear(struct op *op, struct ssh_call *c, struct err *err)
{
        const char *line;
        int r = ssh_session_line(op, &c->session, &line, err);

        if (r < 0)
                return r;
        if (!c->is_in) {
                c->is_in = true;
                r = keep_known(c, err);
                close_door(op, c);
        }
        return r < 0 ? r : ssh_hello_line(&c->hello, line, err);
}

static const struct ssh_box *find_box(const struct ssh_setup *setup, const char *machine)
{
        for (size_t i = 0; i < SSH_N_BOXES; i++)
                if (setup->boxes[i].hash[0] && streq(setup->boxes[i].machine, machine))
                        return &setup->boxes[i];
        return NULL;
}

static int send_box(struct op *op, const struct ssh_setup *setup, struct ssh_call *c,
                    struct err *err)
{
        const struct ssh_box *box = find_box(setup, c->hello.need);
        CLEAN(buf_done) struct buf program = { .max = BOX_MAX };
        char line[32];

        if (!box)
                return err_set(err, ERR_PROVIDER, "The host asks for a box that there is not.");
        int r = file_read_at(AT_FDCWD, box->path, BOX_MAX, &program, err);
        if (r < 0)
                return r;
        op->deadline_ms = MIN(c->deadline_ms, clock_mono_ms() + UPLOAD_MS);
        snprintf(line, sizeof(line), "%zu\n", program.len);
        r = ssh_session_send(op, &c->session, line, strlen(line), err);
        return r < 0 ? r : ssh_session_send(op, &c->session, program.data, program.len, err);
}

static int call_converse(struct op *op, const struct ssh_setup *setup, struct ssh_call *c,
                         struct err *err)
{
        int needs = 0, r;

        for (;;) {
                c->hello.state = HELLO_BEGUN;
                r = call_hear(op, c, err);
                if (r < 0)
                        return r;
                if (c->hello.state == HELLO_NEED) {
                        if (++needs > MAX_NEEDS)
                                return err_set(err, ERR_PROVIDER, "The host keeps asking.");
                        r = send_box(op, setup, c, err);
                        if (r < 0)
                                return r;
                } else if (c->hello.state != HELLO_BEGUN) {
                        break;
                }
        }
        if (!c->hello.cwd)
                return err_set(err, ERR_PROVIDER, "The host did not say where the workspace is.");
        if (c->hello.state == HELLO_READY)
                return 0;
        return ssh_session_finish(op, &c->session, NULL, err);
}

/* A script, once its mark is known. */
struct writer {
        void (*write)(const struct writer *w, const char *mark, struct buf *out);
        const struct ssh_setup *setup;
        const struct ssh_target *target;
        const struct ssh_other *other; /* instead of a target */
        const struct ssh_plain_command *command;
        const char *name, *id;
        unsigned grace_s;
};

static void write_ready(const struct writer *w, const char *mark, struct buf *out)
{
        ssh_script_ready(mark, w->target->path, w->setup->boxes, out);
}

static void write_stream(const struct writer *w, const char *mark, struct buf *out)
{
        ssh_script_stream(mark, w->target->path, w->setup->boxes, out);
}

static void write_other(const struct writer *w, const char *mark, struct buf *out)
{
        ssh_script_own_stream(mark, w->other->path, w->other->owner, w->setup->boxes, out);
}

static void write_plain(const struct writer *w, const char *mark, struct buf *out)
{
        ssh_script_plain(mark, w->command, out);
}

static void write_kill(const struct writer *w, const char *mark, struct buf *out)
{
        ssh_script_kill(mark, w->name, w->id, w->grace_s, out);
}

typedef int (*talk_fn)(struct op *op, const struct ssh_setup *setup, struct ssh_call *c,
                       struct err *err);

static int call_run(struct op *caller, const struct writer *w, const char *record, talk_fn talk,
                    struct ssh_call *c, struct err *err)
{
        struct op limited = *caller, *op = &limited;
        CLEAN(err_done) struct err own = { 0 };
        CLEAN(buf_wipe) struct buf text = { .max = SCRIPT_MAX };
        char mark[sizeof(c->session.mark)];
        int r;

        pool_needs_seat(caller, "an ssh host");
        c->deadline_ms = caller->deadline_ms;
        op->deadline_ms = MIN(caller->deadline_ms, clock_mono_ms() + w->setup->timeout_ms);
        /* The mark has a fixed length, so how long the text is is known before it is. */
        memset(mark, 'x', sizeof(mark));
        mark[SESSION_MARK_LEN] = '\0';
        w->write(w, mark, &text);
        if (buf_failed(&text))
                r = err_set(&own, ERR_TOO_LARGE,
                            "The command is too long for a host without a box.");
        else if (w->other)
                r = begin_other(op, w->setup, w->other, text.len, c, &own);
        else
                r = call_begin(op, w->setup, w->target, record, text.len, c, &own);
        if (r >= 0) {
                if (w->command)
                        c->session.errors_max = SESSION_BURST_MAX;
                buf_clear(&text);
                w->write(w, c->session.mark, &text);
                r = ssh_session_send(op, &c->session, text.data, text.len, &own);
        }
        if (r >= 0)
                r = talk(op, w->setup, c, &own);
        close_door(op, c);
        if (r < 0)
                r = w->other ? other_fail(c, r, &own) : call_fail(c, w->target, r, &own);
        if (r < 0)
                err_move(err, &own);
        return r;
}

/* Only that it has begun. */
static int hear_start(struct op *op, const struct ssh_setup *setup, struct ssh_call *c,
                      struct err *err)
{
        int r = call_hear(op, c, err);

        return r < 0 ? r : ssh_session_begin_errors(op, &c->session, err);
}

int ssh_call_ready(struct op *op, const struct ssh_setup *setup, const struct ssh_target *t,
                   const char *record, struct ssh_call *call, struct err *err)
{
        struct writer w = { .write = write_ready, .setup = setup, .target = t };

        return call_run(op, &w, record, call_converse, call, err);
}

int ssh_call_stream(struct op *op, const struct ssh_setup *setup, const struct ssh_target *t,
                    const char *record, struct ssh_call *call, struct err *err)
{
        struct writer w = { .write = write_stream, .setup = setup, .target = t };

        return call_run(op, &w, record, call_converse, call, err);
}

int ssh_call_other(struct op *op, const struct ssh_setup *setup, const struct ssh_other *other,
                   struct ssh_call *call, struct err *err)
{
        struct writer w = { .write = write_other, .setup = setup, .other = other };

        return call_run(op, &w, NULL, call_converse, call, err);
}

int ssh_call_plain(struct op *op, const struct ssh_setup *setup, const struct ssh_target *t,
                   const char *record, const struct ssh_plain_command *command,
                   struct ssh_call *call, struct err *err)
{
        struct writer w = { .write = write_plain, .setup = setup, .target = t, .command = command };

        return call_run(op, &w, record, hear_start, call, err);
}

int ssh_call_kill(struct op *op, const struct ssh_setup *setup, const struct ssh_target *t,
                  const char *record, const char *name, const char *id, unsigned grace_s,
                  struct err *err)
{
        struct ssh_call call = SSH_CALL_INIT;
        struct writer w = { .write = write_kill,
                            .setup = setup,
                            .target = t,
                            .name = name,
                            .id = id,
                            .grace_s = grace_s };
        int r = call_run(op, &w, record, call_converse, &call, err);

        ssh_call_done(op, &call);
        return r;
}

int ssh_call_go(struct op *op, struct ssh_call *call, struct err *err)
{
        return ssh_session_send(op, &call->session, "go\n", 3, err);
}

void ssh_call_done(const struct op *op, struct ssh_call *c)
{
        close_door(op, c);
        ssh_session_done(op, &c->session);
        ssh_hello_done(&c->hello);
        buf_done(&c->report.error);
        buf_done(&c->report.hint);
        free(c->known);
        free(c->known_path);
        free(c->record);
        *c = SSH_CALL_INIT;
}
