/* `berth kind`: the kinds of places that descriptors make, and checking a descriptor for real. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/action.h"
#include "cli/cli.h"
#include "cli/command.h"
#include "cli/output.h"
#include "cli/private.h"

#define FILE_MAX ((size_t)1 << 20)

static const struct field kind_columns[] = {
        { "NAME", "name" },
        { "SOURCE", "source" },
        { "ISOLATED", "isolated" },
        { "DESCRIPTION", "description" },
        { 0 },
};

static int cmd_kind_show(struct cli *c, const struct args *a, struct err *err)
{
        CLEAN(cleanup_free) char *text = NULL;
        json_t *kind;
        int r = cli_call(c, "GET", cli_printf(c, "/api/kinds/%s", cli_escape(c, a->words[0])), NULL,
                         &kind, err);

        if (r < 0)
                return r;
        text = json_dumps(json_object_get(kind, "descriptor"), JSON_INDENT(2));
        out_line("%s", text ? text : "");
        return 0;
}

/* -- check ------------------------------------------------------------------------------------ */

/* A check of one descriptor, in a daemon of its own. */
struct checking {
        struct cli *c;
        const char *name, *company, *environment, *lease, *ref, *tag;
        json_t *config;
        const char *dir, *home;
        unsigned ok, failed;
        struct err err;
};

static bool passed(struct checking *k, const char *step)
{
        k->ok++;
        out_line("ok      %s", step);
        return true;
}

static bool failed(struct checking *k, const char *step, const char *why, const char *advice)
{
        k->failed++;
        out_line("failed  %s: %s", step, why ? why : "");
        if (advice)
                out_line("        %s", advice);
        err_clear(&k->err);
        return false;
}

static int ask(struct checking *k, const char *method, const char *path, json_t *take_body,
               json_t **ret)
{
        *ret = NULL;
        err_clear(&k->err);
        return cli_call(k->c, method, path, take_body, ret, &k->err);
}

static int try_step(struct checking *k, const char *step, json_t **ret)
{
        return ask(k, "POST",
                   cli_printf(k->c, "/api/environment-leases/%s/kind/%s", k->lease, step), NULL,
                   ret);
}

static bool check_loaded(struct checking *k)
{
        json_t *answer, *refused, *one;
        size_t i;

        if (ask(k, "GET", "/api/refused-kinds", NULL, &refused) < 0)
                return failed(k, "descriptor", k->err.msg, NULL);
        json_array_foreach(refused, i,
                           one) return failed(k, "descriptor", json_string_value(one),
                                              "docs/kinds.md says what a descriptor may have");
        if (ask(k, "GET", cli_printf(k->c, "/api/kinds/%s", cli_escape(k->c, k->name)), NULL,
                &answer) < 0)
                return failed(k, "descriptor", k->err.msg, NULL);
        return passed(k, "descriptor");
}

static json_t *environment_body(struct checking *k, const char *name, const char *more)
{
        json_t *config = json_deep_copy(k->config);

        json_object_set_new(config, "provider", json_string(k->name));
        if (more)
                json_object_set_new(config, more, json_string("x"));
        return json_pack("{s:s, s:s, s:o}", "name", name, "driver", "sandbox", "config", config);
}

static bool check_environment(struct checking *k)
{
        json_t *answer;
        const char *path;

        if (ask(k, "POST", "/api/companies", json_pack("{s:s}", "name", "Check"), &answer) < 0)
                return failed(k, "configuration", k->err.msg, NULL);
        k->company = json_get_string(answer, "id");
        path = cli_printf(k->c, "/api/companies/%s/environments", k->company);
        if (ask(k, "POST", path, environment_body(k, "place", NULL), &answer) < 0)
                return failed(k, "configuration", k->err.msg,
                              "give options with -o KEY=VALUE or --config JSON");
        k->environment = json_get_string(answer, "id");
        passed(k, "configuration");
        if (ask(k, "POST", path, environment_body(k, "wrong", "noSuchOption"), &answer) >= 0)
                return failed(k, "wrong option", "it was accepted", NULL);
        return passed(k, "wrong option");
}

static bool check_probe(struct checking *k)
{
        json_t *answer;

        if (ask(k, "POST", cli_printf(k->c, "/api/environments/%s/probe", k->environment),
                json_object(), &answer) < 0)
                return failed(k, "probe", k->err.msg, NULL);
        if (!json_is_true(json_object_get(answer, "ok")))
                return failed(k, "probe", json_get_string(answer, "summary"),
                              json_get_string(answer, "hint"));
        return passed(k, "probe");
}

static bool check_open(struct checking *k)
{
        const json_t *lease;
        json_t *answer;

        if (ask(k, "POST", cli_printf(k->c, "/api/environments/%s/leases", k->environment),
                json_object(), &answer) < 0)
                return failed(k, "create and reach", k->err.msg,
                              "run the commands of `create` and `reach` by hand, with the options "
                              "in their places");
        lease = json_object_get(answer, "lease");
        k->lease = json_get_string(lease, "id");
        k->ref = json_get_string(lease, "providerLeaseId");
        return passed(k, "create and reach");
}

static bool check_again(struct checking *k)
{
        const char *ref;
        json_t *answer;

        if (try_step(k, "create", &answer) < 0)
                return failed(k, "create again", k->err.msg,
                              "an error that says that it exists needs a pattern with "
                              "\"is\": \"exists\", or `create` needs \"listFirst\": true");
        ref = json_get_string(answer, "ref");
        k->tag = json_get_string(answer, "placeId");
        if (!ref || !k->ref || !streq(ref, k->ref))
                return failed(k, "create again",
                              cli_printf(k->c, "it made another place: %s, not %s", ref, k->ref),
                              "`create` needs \"listFirst\": true");
        return passed(k, "create again");
}

static bool check_list(struct checking *k, const char *step, int64_t wanted)
{
        json_t *answer;

        if (try_step(k, "list", &answer) < 0)
                return failed(k, step, k->err.msg,
                              "`columns` or `json` has to fit what the command prints");
        int64_t n = json_integer_value(json_object_get(answer, "found"));
        if (n != wanted)
                return failed(k, step,
                              cli_printf(k->c, "it names the place %lld times, not %lld",
                                         (long long)n, (long long)wanted),
                              "the tag is the place's id, or the name berth-ID");
        return passed(k, step);
}

static int execute(struct checking *k, const char *script, int64_t timeout_ms, json_t **ret)
{
        json_t *body = json_pack("{s:s, s:[s,s]}", "command", "sh", "args", "-c", script);

        if (timeout_ms)
                json_object_set_new(body, "timeoutMs", json_integer(timeout_ms));
        return ask(k, "POST", cli_printf(k->c, "/api/environment-leases/%s/execute", k->lease),
                   body, ret);
}

static bool check_command(struct checking *k)
{
        const char *printed;
        json_t *answer;

        if (execute(k, "echo $((6 * 7)); exit 3", 0, &answer) < 0)
                return failed(k, "command", k->err.msg, NULL);
        printed = json_get_string(answer, "stdout");
        if (!printed || !streq(printed, "42\n") ||
            json_integer_value(json_object_get(answer, "exitCode")) != 3)
                return failed(k, "command", "its output or status is not what it should be", NULL);
        passed(k, "command");
        if (execute(k, "sleep 600", 300, &answer) < 0)
                return failed(k, "time limit", k->err.msg, NULL);
        if (!json_is_true(json_object_get(answer, "timedOut")))
                return failed(k, "time limit", "the command was not ended", NULL);
        return passed(k, "time limit");
}

static bool check_files(struct checking *k)
{
        const char *path = cli_printf(k->c, "%s/work", k->home);
        const char *lease = cli_printf(k->c, "/api/environment-leases/%s/workspace/", k->lease);
        CLEAN(buf_done) struct buf text = BUF_INIT;
        json_t *answer;

        if (mkdir(path, 0700) < 0 ||
            file_write_at(AT_FDCWD, cli_printf(k->c, "%s/in", path), "in\n", 3, 0600, &k->err) < 0)
                return failed(k, "files", "cannot write a directory here", NULL);
        if (ask(k, "POST", cli_printf(k->c, "%sstage", lease),
                json_pack("{s:s}", "localPath", path), &answer) < 0)
                return failed(k, "files", k->err.msg, NULL);
        const char *cwd = json_get_string(answer, "cwd");
        json_t *body = json_pack("{s:s, s:[s,s], s:s}", "command", "sh", "args", "-c",
                                 "cat in >out; echo out >>out", "cwd", cwd ? cwd : "/");
        if (ask(k, "POST", cli_printf(k->c, "/api/environment-leases/%s/execute", k->lease), body,
                &answer) < 0 ||
            ask(k, "POST", cli_printf(k->c, "%srestore", lease), json_object(), &answer) < 0)
                return failed(k, "files", k->err.msg, NULL);
        if (file_read_at(AT_FDCWD, cli_printf(k->c, "%s/out", path), 100, &text, NULL) < 0 ||
            !streq(buf_str(&text), "in\nout\n"))
                return failed(k, "files", "what was changed there did not come home", NULL);
        return passed(k, "files");
}

static bool check_close(struct checking *k)
{
        json_t *answer;

        if (ask(k, "POST", cli_printf(k->c, "/api/environment-leases/%s/release", k->lease),
                json_object(), &answer) < 0)
                return failed(k, "destroy", k->err.msg, NULL);
        if (ask(k, "GET", "/api/leaks", NULL, &answer) < 0)
                return failed(k, "destroy", k->err.msg, NULL);
        const json_t *due = json_array_get(json_object_get(answer, "cleanupDue"), 0);
        if (due)
                return failed(k, "destroy", json_get_string(due, "note"),
                              "the place may exist still: look at the provider");
        passed(k, "destroy");
        if (try_step(k, "destroy", &answer) < 0)
                return failed(k, "destroy again", k->err.msg,
                              "what is not there is no error: give what it says a pattern with "
                              "\"is\": \"gone\"");
        passed(k, "destroy again");
        return check_list(k, "list is empty", 0);
}

static void run_steps(struct checking *k)
{
        if (!check_loaded(k) || !check_environment(k) || !check_probe(k) || !check_open(k))
                return;
        (void)check_again(k);
        (void)check_list(k, "list", 1);
        if (check_command(k))
                (void)check_files(k);
        (void)check_close(k);
}

/* A directory with nothing but the descriptor, and one for the daemon. */
static int prepare(struct checking *k, const char *file, struct err *err)
{
        CLEAN(buf_done) struct buf text = { .max = FILE_MAX };
        const char *base = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
        char *home = cli_printf(k->c, "%s/berth-kind-XXXXXX", base);
        json_t *descriptor = NULL;
        int r = file_read_at(AT_FDCWD, file, FILE_MAX, &text, err);

        if (r < 0)
                return r;
        r = json_parse(buf_str(&text), text.len, &descriptor, err);
        if (r < 0)
                return err_wrap(err, r, "%s", file);
        k->name = json_get_string(cli_keep(k->c, descriptor), "name");
        if (!k->name)
                return err_set(err, ERR_INVALID, "%s: a descriptor has a `name`", file);
        if (!mkdtemp(home))
                return err_sys(err, ERR_IO, errno, "make a directory in %s", base);
        k->home = home;
        k->dir = cli_printf(k->c, "%s/kinds", home);
        if (mkdir(k->dir, 0700) < 0)
                return err_sys(err, ERR_IO, errno, "make %s", k->dir);
        return file_write_at(AT_FDCWD, cli_printf(k->c, "%s/%s.json", k->dir, "checked"),
                             buf_str(&text), text.len, 0600, err);
}

static int cmd_kind_check(struct cli *c, const struct args *a, struct err *err)
{
        struct checking k = { .c = c };
        json_t *config = NULL;
        int r = cli_config(a, &config, err);

        if (r >= 0)
                r = prepare(&k, a->words[0], err);
        if (r < 0) {
                json_decref(config);
                return r;
        }
        k.config = cli_keep(c, config ? config : json_object());
        c->api_url = NULL;
        c->data = cli_printf(c, "%s/data", k.home);
        (void)setenv("BERTH_KINDS_DIR", k.dir, 1);
        (void)setenv("BERTH_DATA", c->data, 1);
        (void)unsetenv("BERTH_API_URL");
        r = private_ensure(c, err);
        if (r >= 0)
                run_steps(&k);
        err_done(&k.err);
        if (r < 0)
                return r;
        out_line("%u ok, %u failed; the daemon of the check had its files in %s", k.ok, k.failed,
                 k.home);
        return k.failed ? 1 : 0;
}

const struct cli_command kind_commands[] = {
        { "list", "", "List the kinds of places that descriptors make", "berth kind list",
          .act = { .method = "GET",
                   .path = "/api/kinds",
                   .columns = kind_columns,
                   .none = "no kinds" } },
        { "show", "NAME", "Print a descriptor", "berth kind show podman", .words = 1,
          .run = cmd_kind_show },
        { "check", "FILE [-o KEY=VALUE]... [--config JSON|@FILE]",
          "Try a descriptor for real, step by step",
          "berth kind check ./crate.json -o image=debian:12", .words = 1,
          .notes =
                  "Makes a place with it, in a daemon of its own, runs commands there, moves files "
                  "and removes the place\nagain. Each step is a line, with what to do where one "
                  "failed. Exit status 1 when a step failed.",
          .options = OPTIONS({ "config", "JSON|@FILE", "the options of the environment" },
                             { "option", "KEY=VALUE", "one of them; also KEY=@FILE and KEY:=JSON",
                               'o', true }),
          .run = cmd_kind_check },
        { 0 },
};
