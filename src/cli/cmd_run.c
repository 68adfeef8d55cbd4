/* `berth run`: lease, stage, run, restore, release, in one line.
 *
 * The lease is short and renewed while we are there, so that it ends soon when we are killed. From
 * the moment it is acquired every way out of here releases it (--keep aside); signals go to
 * the command, and its end is the way out. */
#include <berth/berth.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>

#include "base/clock.h"
#include "cli/image.h"
#include "cli/output.h"
#include "cli/private.h"
#include "cli/remote.h"
#include "cli/run_workspace.h"
#include "cli/signals.h"
#include "client/handle.h"

#define LEASE_TTL_MS   (5 * 60 * 1000)
#define KEEP_TTL_MS    (60 * 60 * 1000)
#define RELEASE_MS     10000
#define RELEASE_PAUSE  100
#define RELEASE_ANSWER 30000
#define SANDBOX_NAME   "Sandbox"

struct run {
        struct cli *c;
        const struct args *a;
        struct remote_spec spec;
        struct remote remote;
        bool has_remote;
        bool is_private; /* the data directory's daemon, which we may have started */
        const json_t *environment;
        struct berth_lease lease;
        struct run_workspace workspace;
        json_t *execution; /* with --json */
        int64_t began_us, ready_us, leased_us, staged_us, restored_us, released_us;
};

static double ms_since(const struct run *run, int64_t us)
{
        return us ? (double)(us - run->began_us) / (double)US_PER_MS : 0;
}

/* Before the lease */

/* An active one of the built-in sandbox by the name that we give it: the oldest, should two have
 * been made at once. */
static const json_t *find_sandbox(const json_t *list)
{
        const json_t *found = NULL;
        json_t *item;
        size_t i;

        json_array_foreach(list, i, item)
        {
                if (streq(cli_text(item, "name"), SANDBOX_NAME) &&
                    streq(cli_text(item, "driver"), "sandbox") &&
                    streq(cli_text(item, "status"), "active") &&
                    (!found ||
                     strcmp(cli_text(item, "createdAt"), cli_text(found, "createdAt")) < 0))
                        found = item;
        }
        return found;
}

/* --sandbox: the environment for it is made when it is first needed. */
static int choose_sandbox(struct run *run, struct err *err)
{
        json_t *list, *made;
        int r = cli_environments(run->c, &list, err);

        if (r < 0)
                return r;
        run->environment = find_sandbox(list);
        if (run->environment)
                return 0;
        r = cli_call(run->c, "POST",
                     cli_printf(run->c, "/api/companies/%s/environments", run->c->company),
                     json_pack("{s:s, s:s, s:s, s:{s:s}}", "name", SANDBOX_NAME, "description",
                               "Made by `berth run --sandbox`.", "driver", "sandbox", "config",
                               "provider", "berth"),
                     &made, err);
        if (r >= 0)
                run->environment = made;
        return r;
}

/* Without words, what the image starts by itself. */
static int take_command_of(struct run *run, const json_t *image, struct err *err)
{
        static const char *const lists[] = { "entrypoint", "cmd" };
        const json_t *config = json_object_get(image, "config");
        size_t n = 0, room = 0;
        const char **words = NULL;

        if (run->spec.command)
                return 0;
        for (size_t i = 0; i < ARRAY_LEN(lists); i++) {
                const json_t *list = json_object_get(config, lists[i]);

                for (size_t k = 0; k < json_array_size(list); k++) {
                        words = arena_more(&run->c->arena, words, n, &room, sizeof(*words));
                        words[n++] = json_string_value(json_array_get(list, k));
                }
        }
        if (n == 0)
                return err_set(err, ERR_USAGE, "the image has no command of its own; give one");
        run->spec.command = words[0];
        run->spec.args = words + 1;
        run->spec.n_args = n - 1;
        return 0;
}

/* --image: one environment for each, found by its configuration. */
static int choose_image(struct run *run, const char *reference, struct err *err)
{
        json_t *list, *item, *made, *image;
        size_t i;
        int r = image_need(run->c, reference, &image, err);

        if (r >= 0)
                r = take_command_of(run, image, err);
        if (r >= 0)
                r = cli_environments(run->c, &list, err);
        if (r < 0)
                return r;
        const char *name = cli_printf(run->c, "Image %s", reference);
        json_array_foreach(list, i, item)
        {
                if (streq(cli_text(item, "name"), name) &&
                    streq(cli_text(item, "status"), "active") &&
                    streq(cli_text(json_object_get(item, "config"), "image"), reference)) {
                        run->environment = item;
                        return 0;
                }
        }
        r = cli_call(run->c, "POST",
                     cli_printf(run->c, "/api/companies/%s/environments", run->c->company),
                     json_pack("{s:s, s:s, s:s, s:{s:s, s:s}}", "name", name, "description",
                               "Made by `berth run --image`.", "driver", "sandbox", "config",
                               "provider", "berth", "image", reference),
                     &made, err);
        if (r >= 0)
                run->environment = made;
        return r;
}

/* The one named, or this machine: the user could run the command there without us. A note says so,
 * so that the user does not take it for a sandbox; with --env Local there is no note. */
static int choose_environment(struct run *run, struct err *err)
{
        const char *company, *given = args_value(run->a, "env");
        const char *image = args_value(run->a, "image");
        json_t *found = NULL, *list, *item;
        size_t i;

        int r = cli_company(run->c, true, &company, err);
        if (r < 0)
                return r;
        run->c->company = company;
        if ((given != NULL) + (image != NULL) + args_flag(run->a, "sandbox") > 1)
                return err_set(err, ERR_USAGE, "give one of --env, --sandbox and --image");
        if (image)
                return choose_image(run, image, err);
        if (args_flag(run->a, "sandbox"))
                return choose_sandbox(run, err);
        if (given) {
                r = cli_find(run->c, &kind_environment, given, &found, err);
                run->environment = found;
                return r;
        }
        r = cli_environments(run->c, &list, err);
        if (r < 0)
                return r;
        json_array_foreach(list, i, item)
        {
                if (!found && streq(cli_text(item, "driver"), "local") &&
                    streq(cli_text(item, "status"), "active"))
                        found = item;
        }
        if (!found)
                return err_set(err, ERR_NOT_FOUND,
                               "there is no local environment in use; say which with --env");
        run->environment = found;
        out_note("berth: runs on %s; --sandbox keeps it apart", cli_text(found, "isolation"));
        return 0;
}

static int acquire_lease(struct run *run, struct err *err)
{
        struct berth_acquire_options o = { .ttl_ms = LEASE_TTL_MS };
        struct berth_error error;

        if (berth_acquire(run->c->api, cli_text(run->environment, "id"), &o, &run->lease, &error) <
            0)
                return cli_api_error(&error, err);
        run->leased_us = clock_mono_us();
        run->spec.lease_id = run->lease.id;
        run->spec.renew_ms = LEASE_TTL_MS;
        if (isatty(STDERR_FILENO))
                out_note("leased %s (%.0f ms)", cli_text(run->environment, "name"),
                         ms_since(run, run->leased_us));
        return 0;
}

/* Where it runs */

/* The workspace, or where we are; --cwd from there on. */
static int find_directory(struct run *run, struct err *err)
{
        const char *workspace = args_value(run->a, "workspace"), *base = NULL;
        const char *given = run->spec.cwd;
        CLEAN(cleanup_free) char *here = NULL;
        int r = 0;

        if (workspace) {
                run->workspace = (struct run_workspace){
                        .c = run->c,
                        .a = run->a,
                        .lease_id = run->lease.id,
                        .renew_ms = LEASE_TTL_MS,
                        .revive = run->is_private ? private_revive : NULL,
                };
                r = run_workspace_stage(&run->workspace, workspace, &base, err);
                if (r >= 0)
                        run->staged_us = clock_mono_us();
        } else if (streq(cli_text(run->environment, "driver"), "local")) {
                here = getcwd(NULL, 0);
                base = here ? cli_printf(run->c, "%s", here) : NULL;
        }
        if (!given)
                run->spec.cwd = base;
        else if (base && *given != '/')
                run->spec.cwd = cli_printf(run->c, "%s/%s", base, given);
        return r;
}

/* The command */

/* Returns the status to exit with, or an error. */
static int run_in_lease(struct run *run, struct err *err)
{
        struct remote *m = &run->remote;
        int status, r = find_directory(run, err);

        if (r < 0)
                return r;
        run->spec.all_to_error = run->c->json;
        run->spec.revive = run->is_private ? private_revive : NULL;
        r = remote_init(m, run->c, &run->spec, err);
        run->has_remote = true;
        if (r >= 0)
                r = remote_start(m, err);
        status = r < 0 ? remote_refusal_status(err) : 0;
        if (status) {
                out_error(err->msg);
                return status;
        }
        if (r >= 0)
                r = remote_follow(m, err);
        if (r < 0)
                return r;
        remote_explain(m);
        if (run->c->json && m->id[0])
                (void)cli_call(run->c, "GET",
                               cli_printf(run->c, "/api/environment-leases/%s/executions/%s",
                                          run->lease.id, m->id),
                               NULL, &run->execution, NULL);
        if (m->signal == SIGINT && m->interrupted && !m->gave_up)
                run->c->end_by_signal = SIGINT;
        return remote_status(m);
}

/* After it */

static void keep_lease(struct run *run)
{
        struct berth_error error;
        struct berth_lease lease;

        if (berth_renew(run->c->api, run->lease.id, KEEP_TTL_MS, &lease, &error) < 0) {
                out_note("berth: lease %s is kept, but not for longer: %s", run->lease.id,
                         error.text);
                return;
        }
        out_note("kept lease %s until %s", lease.id, lease.expires_at);
        berth_lease_done(&run->lease);
        run->lease = lease;
}

/* A daemon that is just being started again gets some time; one that is gone does not get it
 * twice. */
static void release_lease(struct run *run, bool is_gone)
{
        int64_t until = clock_mono_ms() + (is_gone ? 0 : RELEASE_MS);
        struct berth_lease lease;
        struct berth_error error;
        int r;

        run->c->api->timeout_ms = RELEASE_ANSWER;
        for (;;) {
                r = berth_release(run->c->api, run->lease.id, NULL, &lease, &error);
                if ((r != BERTH_UNREACHABLE && r != BERTH_LOST) || clock_mono_ms() > until)
                        break;
                if (run->is_private)
                        private_revive(run->c);
                (void)usleep(RELEASE_PAUSE * 1000);
        }
        if (r < 0) {
                out_note("berth: could not release lease %s: %s", run->lease.id, error.text);
                out_note("it ends by itself at %s at the latest", run->lease.expires_at);
                return;
        }
        run->released_us = clock_mono_us();
        berth_lease_done(&run->lease);
        run->lease = lease;
}

/* Reporting */

static void print_moment(const struct run *run, const char *what, int64_t us, const char *note)
{
        if (us)
                out_note("  %-12s %9.1f ms  %s", what, ms_since(run, us), note);
}

static const char *end_text(struct cli *c, const struct remote *m)
{
        if (m->timed_out)
                return "time limit";
        if (m->exit_code < 0)
                return m->signal ? cli_printf(c, "%s", signals_name(m->signal)) : m->reason;
        return cli_printf(c, "status %d", m->exit_code);
}

static void print_timeline(struct run *run)
{
        const struct remote *m = &run->remote;

        out_note("timeline");
        print_moment(run, "daemon", run->ready_us, berth_address(run->c->api));
        print_moment(
                run, "lease", run->leased_us,
                cli_printf(run->c, "%s, %s", cli_text(run->environment, "name"), run->lease.id));
        print_moment(run, "stage", run->staged_us, cli_text(run->workspace.stage, "way"));
        if (run->has_remote) {
                print_moment(
                        run, "start", m->started_us,
                        cli_printf(run->c, "process %lld, execution %s", (long long)m->pid, m->id));
                print_moment(run, "first output", m->first_output_us, "");
                print_moment(run, "exit", m->ended_us, end_text(run->c, m));
        }
        print_moment(run, "restore", run->restored_us, "");
        print_moment(run, "release", run->released_us, "");
}

static json_t *time_json(const struct run *run, int64_t us)
{
        return us ? json_integer((us - run->began_us + US_PER_MS / 2) / US_PER_MS) : json_null();
}

static void print_json(struct run *run)
{
        const struct remote *m = &run->remote;
        json_t *record = NULL;

        (void)json_parse(run->lease.json, strlen(run->lease.json), &record, NULL);
        out_json(cli_keep(
                run->c,
                json_pack("{s:O?,s:O?,s:O?,s:O?,s:{s:o,s:o,s:o,s:o,s:o,s:o,s:o,s:o}}", "lease",
                          json_object_get(record, "lease"), "execution", run->execution, "stage",
                          run->workspace.stage, "restore", run->workspace.restore, "timeline",
                          "daemonMs", time_json(run, run->ready_us), "leaseMs",
                          time_json(run, run->leased_us), "stageMs", time_json(run, run->staged_us),
                          "startMs", time_json(run, m->started_us), "firstOutputMs",
                          time_json(run, m->first_output_us), "exitMs", time_json(run, m->ended_us),
                          "restoreMs", time_json(run, run->restored_us), "releaseMs",
                          time_json(run, run->released_us))));
        json_decref(record);
}

/* Whatever became of the command, its changes come home. Its status counts, unless it went well and
 * they did not. */
static int bring_home(struct run *run, int r)
{
        CLEAN(err_done) struct err failure = { 0 };

        if (r == ERR_UNREACHABLE || !run->workspace.staged)
                return r;
        int restored = run_workspace_restore(&run->workspace, &failure);
        if (restored >= 0)
                run->restored_us = clock_mono_us();
        return restored < 0 && r == 0 ? 1 : r;
}

static int with_lease(struct run *run, struct err *err)
{
        int r = bring_home(run, run_in_lease(run, err));

        if (args_flag(run->a, "keep"))
                keep_lease(run);
        else
                release_lease(run, r == ERR_UNREACHABLE);
        if (args_flag(run->a, "verbose"))
                print_timeline(run);
        if (run->c->json)
                print_json(run);
        return r;
}

int cmd_run(struct cli *c, const struct args *a, struct err *err)
{
        struct run run = { .c = c, .a = a, .began_us = clock_mono_us() };
        int r = remote_options(c, a, 0, "variable", &run.spec, err);

        if (r >= 0 && a->n_words == 0 && !args_value(a, "image"))
                r = err_set(err, ERR_USAGE, "usage: berth run [OPTION]... -- COMMAND [ARG]...");
        if (r >= 0)
                r = signals_catch(err);
        run.is_private = !c->api_url;
        if (r >= 0 && run.is_private)
                r = private_ensure(c, err);
        run.ready_us = clock_mono_us();
        if (r >= 0)
                r = choose_environment(&run, err);
        if (r >= 0)
                r = remote_agent(c, a, &run.spec, err);
        if (r >= 0)
                r = acquire_lease(&run, err);
        if (r >= 0)
                r = with_lease(&run, err);
        if (run.has_remote)
                remote_done(&run.remote);
        berth_lease_done(&run.lease);
        return r;
}

const struct cli_option run_options[] = {
        { "env", "NAME|ID", "the environment to lease (this machine, not isolated)" },
        { "image", "IMAGE", "in a sandbox made of this image (debian:12, ghcr.io/org/name:tag)" },
        { "sandbox", NULL, "in a sandbox of its own on this machine", 's' },
        { "workspace", "DIR", "bring this directory in, and its changes home", 'w' },
        { "exclude", "PATTERN", "leave this out of the workspace, both ways", 'x', true },
        { "isolation", "KIND", "how the workspace is shielded: overlay, copy" },
        { "cwd", "DIR", "working directory, from the workspace on" },
        { "variable", "K=V", "a variable; K alone takes the value it has here", 'e', true },
        { "agent", "NAME|ID", "for this agent: with its variables" },
        { "timeout", "TIME", "end it after this time (30s, 5m, 2h, 1d)" },
        { "tty", NULL, "on a terminal", 't' },
        { "interactive", NULL, "forward input also when it is typed", 'i' },
        { "keep", NULL, "do not release the lease at the end" },
        { "verbose", NULL, "show a timeline at the end", 'v' },
        { 0 },
};
