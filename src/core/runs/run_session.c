/* Keeps the files of a session that was made away from this machine, so that the agent's next run
 * can go on with it wherever that is: most places end with their run. An archive of each session
 * lies in `<data>/companies/<id>/sessions/<agent>`; plain commands bring it there and back, so any
 * kind of place will do. A session without its files begins anew: none of this ever fails a run.
 *
 * All isolated places share their sessions; of the others, each machine has its own, in
 * `<agent>@<hash of the machine>`. A session says what was asked and allowed, so one that an
 * isolated place wrote would steer a program that may do more, and that of a machine would tell the
 * next place what was said there. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/path.h"
#include "codec/shell.h"
#include "core/exec/exec_transfer.h"
#include "core/runs/run_internal.h"
#include "core/runs/run_wait.h"

#define ARCHIVE_MAX ((size_t)12 << 20) /* as base64 */
#define COMMAND_MS  120000
#define KEEP_S      (INT64_C(30) * 24 * 3600)
#define KEEP_BYTES  (INT64_C(128) << 20) /* of all sessions in one directory */

static const char *sessions_path(const struct run_task *t)
{
        const char *path = arena_printf(t->op->arena, "%s/companies/%s/sessions/%s",
                                        t->rt->data_dir, t->run.company_id, t->agent.id);
        CLEAN(json_decrefp) json_t *machine = json_copy((json_t *)t->input.target.identity);

        if (!machine || kind_is_isolated(t->rt, &t->record.env))
                return path;
        json_object_del(machine, "remoteCwd");
        json_object_del(machine, "leaseId");
        return arena_printf(t->op->arena, "%s@%016llx", path,
                            (unsigned long long)hash_text(json_to_arena(t->op->arena, machine)));
}

/* Names of sessions are the program's: a hash of one is a file's name. */
static const char *archive_path(const struct run_task *t, const char *session_id)
{
        const char *slash = strrchr(session_id, '/');
        /* Of one that is a file only its name stays the same from place to place. */
        uint64_t h = hash_text(slash ? slash + 1 : session_id);

        return arena_printf(t->op->arena, "%s/%s-%016llx", sessions_path(t), t->agent.adapter_type,
                            (unsigned long long)h);
}

bool run_session_is_kept(const struct run_task *t, const json_t *session)
{
        const char *id = json_get_string(session, "sessionId");

        return id && access(archive_path(t, id), R_OK) == 0;
}

static void put_dir(struct buf *s, const char *dir)
{
        buf_puts(s, "d=");
        if (strncmp(dir, "~/", 2) == 0) {
                buf_puts(s, "${HOME:?}/");
                dir += 2;
        }
        shell_quote(s, dir);
        buf_puts(s, "\n");
}

/* The session's name as $s; of a session that is a file, the file's. Both are the program's words.
 */
static void put_session(struct buf *s, const char *session_id)
{
        const char *slash = strrchr(session_id, '/');

        buf_puts(s, "s=");
        shell_quote(s, slash ? slash + 1 : session_id);
        buf_puts(s, "\np=$(printf %.8s \"$s\")\n");
}

/* A name of the descriptor as a word for the shell: `*` is any name, `{session}` the session's,
 * `{session:8}` how that begins. */
static void put_pattern(struct buf *s, const char *name)
{
        static const struct {
                const char *word, *shell;
        } holes[] = { { "*", "*" }, { "{session}", "\"$s\"" }, { "{session:8}", "\"$p\"" } };

        while (*name) {
                size_t n = strcspn(name, "*{"), i;

                if (n > 0)
                        shell_quote_n(s, name, n);
                name += n;
                for (i = 0; i < ARRAY_LEN(holes) && !str_starts(name, holes[i].word);)
                        i++;
                if (i < ARRAY_LEN(holes)) {
                        buf_puts(s, holes[i].shell);
                        name += strlen(holes[i].word);
                } else if (*name) {
                        buf_puts(s, "\\{");
                        name++;
                }
        }
}

/* The head of a loop with each of the session's files that is in the working directory as $f. */
static void put_loop(struct buf *s, const json_t *names)
{
        size_t i;
        json_t *name;

        buf_puts(s, "for f in");
        json_array_foreach((json_t *)names, i, name)
        {
                buf_puts(s, " ./");
                put_pattern(s, json_string_value(name));
        }
        buf_puts(s, "; do [ -e \"$f\" ] || continue\n");
}

/* Most programs look for a session under the directory that it was made in, $old; the descriptor's
 * script makes it one of the directory of this run, $new. */
static void put_move(struct buf *s, const struct run_task *t)
{
        const char *old = json_get_string(t->input.session, "cwd");

        buf_puts(s, "old=");
        shell_quote(s, old ? old : "");
        buf_puts(s, "\nnew=");
        shell_quote(s, t->command.cwd);
        buf_appendf(s, "\n%s\n", t->command.session_move);
}

static int run_there(struct run_task *t, const char *what, const char *script,
                     const struct buf *input, struct run_command_end *end, struct err *err)
{
        struct exec_request req = {
                .command = run_shell(t),
                .args = (const char *[]){ "-c", script, NULL },
                .cwd = "/",
                .timeout_ms = COMMAND_MS,
                .idempotency_key = arena_printf(t->op->arena, "%s:%s", what, t->run.id),
                .stdin_text = input ? buf_str(input) : NULL,
                .stdin_len = input ? input->len : 0,
        };

        return run_command_wait(t->op, t->rt, &t->record, &req, end, err);
}

static bool went_well(const struct run_command_end *end)
{
        return !end->how.timed_out && end->how.has_code && end->how.code == 0;
}

/* The archive that was used least recently, and the size of all. */
static int64_t look_for_oldest(DIR *dir, char ret_name[NAME_MAX + 1], int64_t *ret_used)
{
        const struct dirent *entry;
        int64_t total = 0;
        struct stat st;

        *ret_used = INT64_MAX;
        rewinddir(dir);
        while ((entry = readdir(dir))) {
                if (*entry->d_name == '.' || fstatat(dirfd(dir), entry->d_name, &st, 0) < 0)
                        continue;
                total += st.st_size;
                if (st.st_mtim.tv_sec < *ret_used) {
                        *ret_used = st.st_mtim.tv_sec;
                        snprintf(ret_name, NAME_MAX + 1, "%s", entry->d_name);
                }
        }
        return total;
}

/* Archives that were not used for long go, and the oldest of those that are too large together: a
 * program can name a new session in every run. */
static void trim(const char *path)
{
        DIR *dir = opendir(path);
        int64_t now = clock_now_us() / US_PER_S, used;
        char name[NAME_MAX + 1];

        while (dir && (look_for_oldest(dir, name, &used) > KEEP_BYTES || used < now - KEEP_S))
                if (unlinkat(dirfd(dir), name, 0) < 0)
                        break;
        if (dir)
                closedir(dir);
}

void run_session_save(struct run_task *t, const char *session_id)
{
        CLEAN(run_command_end_done) struct run_command_end end = { .max = ARCHIVE_MAX + 1 };
        CLEAN(buf_done) struct buf script = BUF_INIT;
        CLEAN(err_done) struct err why = { 0 };
        int r;

        if (!t->command.session_dir || !session_id)
                return;
        put_dir(&script, t->command.session_dir);
        put_session(&script, session_id);
        buf_puts(&script, "cd \"$d\" 2>/dev/null || exit 0\nset --\n");
        put_loop(&script, t->command.session_files);
        buf_puts(&script, "set -- \"$@\" \"$f\"; done\n"
                          "[ $# -gt 0 ] || exit 0\ntar -cf - \"$@\" | gzip -n | base64\n");
        r = run_there(t, "session-save", buf_str(&script), NULL, &end, &why);
        if (r >= 0 && (!went_well(&end) || end.out.len > ARCHIVE_MAX))
                r = err_set(&why, ERR_PROVIDER, "%s",
                            end.out.len > ARCHIVE_MAX ? "its files are too large"
                                                      : "its files cannot be read");
        if (r >= 0 && end.out.len > 0)
                r = path_make_dirs(sessions_path(t), 0700, &why);
        if (r >= 0 && end.out.len > 0)
                r = file_write_at(AT_FDCWD, archive_path(t, session_id), buf_str(&end.out),
                                  end.out.len, 0600, &why);
        trim(sessions_path(t));
        if (r < 0 && r != ERR_CANCELLED)
                log_warn("a session is not kept", LOG_S("run", t->run.id), LOG_S("error", why.msg));
}

bool run_session_bring(struct run_task *t)
{
        CLEAN(run_command_end_done) struct run_command_end end = { 0 };
        CLEAN(buf_done) struct buf script = BUF_INIT, archive = BUF_INIT;
        CLEAN(err_done) struct err why = { 0 };
        const char *path = archive_path(t, t->command.session_id);
        int r = file_read_at(AT_FDCWD, path, ARCHIVE_MAX, &archive, &why);

        if (r < 0)
                return false;
        runtime_script(&script, t->command.session_dir);
        put_dir(&script, t->command.session_dir);
        put_session(&script, t->command.session_id);
        /* An earlier place made the archive, so it may hold anything: it is unpacked aside, and
         * only the files of the session are taken from there. */
        buf_puts(&script, "umask 077\nmkdir -p \"$d\" && cd \"$d\" || exit 1\nd=$PWD\n"
                          "n=$d/.berth-sessions.$$\nrm -rf \"$n\"\nmkdir \"$n\" || exit 1\n"
                          "trap 'rm -rf \"$n\"' EXIT\n"
                          "cd \"$n\" && base64 -d | gzip -d | tar -xf - || exit 1\n"
                          "find . ! -type f ! -type d -exec rm -f {} + || exit 1\n");
        put_loop(&script, t->command.session_files);
        buf_puts(&script, "mkdir -p \"$d/${f%/*}\" || exit 1\n"
                          "if [ -d \"$f\" ]; then mkdir -p \"$d/$f\" && cp -R \"$f/.\" \"$d/$f/\"\n"
                          "else mv \"$f\" \"$d/$f\"; fi || exit 1\ndone\ncd \"$d\" || exit 1\n");
        if (t->command.session_move)
                put_move(&script, t);
        r = run_there(t, "session-bring", buf_str(&script), &archive, &end, &why);
        (void)utimensat(AT_FDCWD, path, NULL, 0);
        return r >= 0 && went_well(&end);
}
