/* Stages the directory of `berth run --workspace`, and brings its changes home. */
#include "cli/run_workspace.h"

#include <errno.h>

#include "base/clock.h"
#include "cli/long_call.h"
#include "cli/output.h"

#define RETRY_FOR_MS   20000
#define RETRY_PAUSE_MS 200

char *run_workspace_body(const struct args *a, const char *path)
{
        const char *isolation = args_value(a, "isolation"), *pattern;
        json_t *exclude = json_array(), *body;

        for (size_t i = 0; (pattern = args_item(a, "exclude", i)); i++)
                json_array_append_new(exclude, json_string(pattern));
        body = json_pack("{s:s, s:o}", "localPath", path, "exclude", exclude);
        if (isolation)
                json_object_set_new(body, "isolation", json_string(isolation));
        char *text = json_to_text(body);
        json_decref(body);
        return text;
}

/* Both can be asked for again: a stage replaces the one before, and a restore that was cut off goes
 * on. While the daemon takes up what it left, it says "conflict". */
static int call_insisting(struct run_workspace *w, struct long_call *t, json_t **ret,
                          struct err *err)
{
        int64_t until = clock_mono_ms() + RETRY_FOR_MS;
        bool was_lost = false;
        int signal = 0, r;

        for (;;) {
                r = long_call_run(w->c, t, ret, &signal, err);
                if (r == ERR_CANCELLED)
                        w->c->end_by_signal = signal;
                was_lost = was_lost || r == ERR_UNCERTAIN || r == ERR_UNREACHABLE;
                if (r >= 0 || clock_mono_ms() > until || !was_lost ||
                    (r != ERR_UNCERTAIN && r != ERR_UNREACHABLE && r != ERR_CONFLICT))
                        return r;
                if (w->revive)
                        w->revive(w->c);
                (void)usleep(RETRY_PAUSE_MS * 1000);
                err_clear(err);
        }
}

int run_workspace_stage(struct run_workspace *w, const char *dir, const char **ret_cwd,
                        struct err *err)
{
        CLEAN(cleanup_free) char *path = realpath(dir, NULL);
        CLEAN(cleanup_free) char *body = NULL;
        struct long_call t = { .what = "staging",
                               .lease_id = w->lease_id,
                               .renew_ms = w->renew_ms };
        json_t *answer;

        if (!path)
                return err_sys(err, ERR_USAGE, errno, "--workspace %s", dir);
        body = run_workspace_body(w->a, path);
        t.body = body;
        t.path = cli_printf(w->c, "/api/environment-leases/%s/workspace/stage", w->lease_id);
        int r = call_insisting(w, &t, &answer, err);
        if (r < 0)
                return r;
        w->staged = true;
        w->stage = answer;
        *ret_cwd = cli_text(answer, "cwd");
        return 0;
}

static void say_restored(const json_t *report)
{
        json_int_t added = json_integer_value(json_object_get(report, "added"));
        json_int_t changed = json_integer_value(json_object_get(report, "changed"));
        json_int_t deleted = json_integer_value(json_object_get(report, "deleted"));

        long_call_report(report);
        if (isatty(STDERR_FILENO) && added + changed + deleted > 0)
                out_note("brought home: %lld added, %lld changed, %lld deleted", (long long)added,
                         (long long)changed, (long long)deleted);
}

int run_workspace_restore(struct run_workspace *w, struct err *err)
{
        struct long_call t = {
                .what = "restoring",
                .body = "{}",
                .lease_id = w->lease_id,
                .renew_ms = w->renew_ms,
                .insist = true,
        };
        json_t *answer;

        if (!w->staged)
                return 0;
        t.path = cli_printf(w->c, "/api/environment-leases/%s/workspace/restore", w->lease_id);
        int r = call_insisting(w, &t, &answer, err);
        if (r < 0) {
                out_note("berth: the changes could not be brought home: %s", err->msg);
                out_note("they are kept when the lease ends: berth workspace salvaged list");
                return r;
        }
        w->restore = answer;
        say_restored(answer);
        return 0;
}
