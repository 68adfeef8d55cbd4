/* `berth env`: the environments of a company. The daemon decides what a configuration may hold; the
 * commands put it together. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "cli/child.h"
#include "cli/command.h"
#include "cli/output.h"

static void print_environment(struct cli *c, const json_t *environment)
{
        fields_print(c, environment,
                     FIELDS({ "Id", "id", COLUMN_ID }, { "Name", "name" },
                            { "Description", "description" }, { "Driver", "driver" },
                            { "Isolation", "isolation" }, { "Status", "status", COLUMN_STATE },
                            { "Created", "createdAt", COLUMN_TIME },
                            { "Updated", "updatedAt", COLUMN_TIME }));
        if (json_is_true(json_object_get(environment, "configRedacted")))
                out_label("Config", COLUMN_TEXT, "(hidden: needs environments:manage)");
        else
                out_label_json("Config", json_object_get(environment, "config"));
        if (!json_is_null(json_object_get(environment, "metadata")))
                out_label_json("Metadata", json_object_get(environment, "metadata"));
}

const struct cli_kind kind_environment = {
        .what = "environment",
        .command = "env",
        .path = "/api/environments",
        .list = "/api/companies/{company}/environments",
        .name = "name",
        .print = print_environment,
};

static void print_probe(struct cli *c, const json_t *probe)
{
        out_label("Result", COLUMN_STATE,
                  json_is_true(json_object_get(probe, "ok")) ? "ok" : "failed");
        fields_print(c, probe,
                     FIELDS({ "Summary", "summary" }, { "Hint", "hint", .optional = true }));
        if (json_object_size(json_object_get(probe, "details")) > 0)
                out_label_json("Details", json_object_get(probe, "details"));
}

/* The probe itself is a success of the API also when the environment does not work; for the user
 * who typed it, it is not. */
static int probe_status(const json_t *probe)
{
        return json_is_true(json_object_get(probe, "ok")) ? 0 : 1;
}

/* -- create ssh [USER@]HOST[:PORT][/PATH] ----------------------------------------------------- */

#define DEFAULT_PATH "/~/berth"
#define KEY_MAX      ((size_t)64 << 10)

/* What the configuration says already wins over the address. */
static void set_once(json_t *config, const char *key, json_t *take_value)
{
        json_object_update_missing_new(config, json_pack("{s:o}", key, take_value));
}

static int set_port(json_t *config, const char *text, size_t len, struct err *err)
{
        char digits[8] = "";
        char *end;

        if (len == 0 || len >= sizeof(digits))
                return err_set(err, ERR_USAGE, "a port is a number from 1 to 65535");
        memcpy(digits, text, len);
        long port = strtol(digits, &end, 10);
        if (*end || port < 1 || port > 65535)
                return err_set(err, ERR_USAGE, "a port is a number from 1 to 65535, not '%s'",
                               digits);
        set_once(config, "port", json_integer(port));
        return 0;
}

/* [USER@]HOST[:PORT][/PATH]; an address of version 6 stands in brackets. */
static int read_address(const char *word, json_t *config, struct err *err)
{
        const char *at = strchr(word, '@'), *slash = strchr(word, '/'), *host, *end;
        const char *user = getenv("USER");
        size_t len;

        if (at && slash && slash < at)
                at = NULL;
        host = at ? at + 1 : word;
        if (at)
                set_once(config, "username", json_stringn(word, (size_t)(at - word)));
        else
                set_once(config, "username", json_string(user && *user ? user : "root"));
        if (*host == '[') {
                host++;
                len = strcspn(host, "]");
                end = host + len + (host[len] == ']');
        } else {
                len = strcspn(host, ":/");
                end = host + len;
        }
        if (len == 0)
                return err_set(err, ERR_USAGE, "'%s' names no host: USER@HOST[:PORT][/PATH]", word);
        set_once(config, "host", json_stringn(host, len));
        if (*end == ':') {
                size_t n = strcspn(++end, "/");
                int r = set_port(config, end, n, err);

                if (r < 0)
                        return r;
                end += n;
        }
        set_once(config, "remoteWorkspacePath", json_string(*end ? end : DEFAULT_PATH));
        return 0;
}

static int choose_keys(const struct args *a, json_t *config, struct err *err)
{
        CLEAN(buf_wipe) struct buf text = { .max = KEY_MAX };
        const char *path = args_value(a, "key");

        if (args_flag(a, "accept-host-key"))
                json_object_set_new(config, "strictHostKeyChecking", json_false());
        if (!path) {
                if (!json_object_get(config, "privateKey") &&
                    !json_object_get(config, "privateKeySecretRef"))
                        set_once(config, "useSshConfig", json_true());
                return 0;
        }
        int r = file_read_at(AT_FDCWD, path, KEY_MAX, &text, err);
        if (r < 0)
                return err_wrap(err, r, "--key");
        if (json_object_set_new(config, "privateKey", json_stringn(text.data, text.len)) < 0)
                return err_set(err, ERR_USAGE, "--key %s: not a text file", path);
        return 0;
}

static int try_environment(struct cli *c, const char *path, json_t *take_body, struct err *err)
{
        json_t *probe;
        int r = cli_call(c, "POST", path, take_body, &probe, err);

        if (r < 0 || json_is_true(json_object_get(probe, "ok")))
                return r;
        return err_set(err, ERR_PROVIDER, "%s %s", cli_text(probe, "summary"),
                       cli_text(probe, "hint"));
}

/* Complete the configuration and try it; *ret_name is what the environment is called. */
static int complete_ssh_config(struct cli *c, const struct args *a, const char *company,
                               json_t *config, const char **ret_name, struct err *err)
{
        int r = read_address(a->words[1], config, err);

        if (r >= 0)
                r = choose_keys(a, config, err);
        if (r < 0)
                return r;
        *ret_name = args_value(a, "name") ? args_value(a, "name") : cli_text(config, "host");
        out_note("trying %s@%s …", cli_text(config, "username"), cli_text(config, "host"));
        return try_environment(
                c, cli_printf(c, "/api/companies/%s/environments/probe-config", company),
                json_pack("{s:s, s:O}", "driver", "ssh", "config", config), err);
}

/* -- create and update ------------------------------------------------------------------------ */

static const char *const drivers[] = { "local", "ssh", "sandbox", "plugin", NULL };

/* `create NAME --driver D` and the shorthand `create D NAME`. */
static int read_env_names(const struct args *a, const char **ret_driver, const char **ret_name,
                          struct err *err)
{
        const char *driver = args_value(a, "driver");

        if (a->n_words == 2) {
                if (driver)
                        return err_set(err, ERR_USAGE, "the driver is given twice: '%s' and '%s'",
                                       a->words[0], driver);
                *ret_driver = a->words[0];
                *ret_name = a->words[1];
                return cli_one_of("driver", a->words[0], drivers, err);
        }
        if (!driver && a->n_words == 1 && streq(a->words[0], "ssh"))
                return err_set(err, ERR_USAGE,
                               "say where: berth env create ssh USER@HOST[:PORT][/PATH]");
        if (!driver)
                return err_set(err, ERR_USAGE,
                               "say which driver: --driver local, ssh, sandbox or plugin");
        *ret_driver = driver;
        *ret_name = a->words[0];
        return cli_one_of("--driver", driver, drivers, err);
}

/* -- create sandbox NAME --for TYPE ----------------------------------------------------------- */

#define REGISTRY_MAX ((size_t)4 << 10)

/* The program in /usr or /opt, which a sandbox has from this machine; NULL: it is not there. A link
 * into a home directory leads nowhere in the sandbox. */
static const char *find_in_system(struct cli *c, const char *command)
{
        static const char *const dirs[] = { "/usr/local/bin", "/usr/bin", "/bin" };

        for (size_t i = 0; i < ARRAY_LEN(dirs); i++) {
                const char *path = cli_printf(c, "%s/%s", dirs[i], command);
                CLEAN(cleanup_free) char *real = realpath(path, NULL);

                if (real && (str_starts(real, "/usr/") || str_starts(real, "/opt/")) &&
                    access(real, X_OK) == 0)
                        return path;
        }
        return NULL;
}

/* The address from which npm fetches packages on this machine; NULL: npm does not say. */
static const char *npm_registry(struct cli *c)
{
        const char *argv[] = { "npm", "config", "get", "registry", "--loglevel=error", NULL };
        CLEAN(buf_done) struct buf out = { .max = REGISTRY_MAX };
        int status;

        if (child_capture("npm", argv, STDOUT_FILENO, &out, &status) != 0 || status != 0 ||
            !strstr(buf_str(&out), "://"))
                return NULL;
        return cli_printf(c, "%.*s", (int)strcspn(buf_str(&out), "\r\n"), buf_str(&out));
}

/* How the program gets into the sandbox: from this machine's /usr, or by npm before the first run,
 * for which the sandbox may reach npm's registry and is kept. */
static void bring_program(struct cli *c, const json_t *adapter, json_t *config, json_t *hosts)
{
        const char *command = cli_text(adapter, "command"), *package, *registry, *host;

        package = cli_text(adapter, "npmPackage");
        if (!*package || json_object_get(config, "rootfs") || json_object_get(config, "snapshot"))
                return;
        if (find_in_system(c, command)) {
                out_note("%s in the sandbox is this machine's %s", command,
                         find_in_system(c, command));
                return;
        }
        registry = find_in_system(c, "npm") ? npm_registry(c) : NULL;
        if (!registry) {
                out_note("there will be no %s in the sandbox: this machine has neither %s nor npm "
                         "in /usr. Install Node 20 or newer with npm for all users, then create "
                         "the environment anew; or run: sudo npm install -g %s",
                         command, command, package);
                return;
        }
        host = strstr(registry, "://") + 3;
        host = strchr(host, '@') ? strchr(host, '@') + 1 : host;
        json_array_append_new(hosts, json_stringn(host, strcspn(host, "/?#")));
        set_once(config, "reuseLease", json_true());
        set_once(config, "env", json_object());
        set_once(json_object_get(config, "env"), "npm_config_registry", json_string(registry));
        out_note("npm will install %s in the sandbox before the first run; the sandbox is kept for "
                 "the next ones",
                 command);
}

/* A network to the hosts that the adapter's program needs, and the program. */
static int suit_adapter(struct cli *c, const char *type, json_t *config, struct err *err)
{
        json_t *adapter, *hosts = json_object_get(config, "allowedHosts");

        if (!config || !streq(cli_text(config, "provider"), "berth"))
                return err_set(err, ERR_USAGE, "--for is for the built-in sandbox");
        int r = cli_call(c, "GET", cli_printf(c, "/api/adapters/%s", type), NULL, &adapter, err);
        if (r < 0)
                return r;
        hosts = json_is_array(hosts) ? json_incref(hosts) : json_array();
        json_array_extend(hosts, json_object_get(adapter, "hosts"));
        bring_program(c, adapter, config, hosts);
        json_object_set_new(config, "allowedHosts", hosts);
        json_object_set_new(config, "network", json_string("allowlist"));
        return 0;
}

/* -- create ----------------------------------------------------------------------------------- */

static int cmd_env_create(struct cli *c, const struct args *a, struct err *err)
{
        json_t *config = NULL, *environment, *body = cli_keep(c, json_object());
        const char *driver = NULL, *name = NULL, *company;
        bool is_address; /* the words are `ssh ADDRESS`, not `ssh NAME` with a configuration */
        int r = read_env_names(a, &driver, &name, err);

        if (r >= 0 && args_value(a, "for") && !streq(driver, "sandbox"))
                return err_set(err, ERR_USAGE, "--for is for the built-in sandbox");
        if (r >= 0)
                r = cli_config(a, &config, err);
        (void)cli_keep(c, config);
        if (r >= 0)
                r = cli_company(c, true, &company, err);
        if (r < 0)
                return r;
        is_address = streq(driver, "ssh") && a->n_words == 2 && !json_object_get(config, "host") &&
                     (!config || strchr(a->words[1], '@'));
        if (!config && (is_address || streq(driver, "sandbox")))
                config = cli_keep(c, json_object());
        if (streq(driver, "sandbox"))
                set_once(config, "provider", json_string("berth"));
        if (is_address)
                r = complete_ssh_config(c, a, company, config, &name, err);
        if (r >= 0)
                r = cli_check_new(c, a, &kind_environment, name, err);
        if (r >= 0 && args_value(a, "for"))
                r = suit_adapter(c, args_value(a, "for"), config, err);
        if (r >= 0)
                r = body_set(body, "name", name, err);
        if (r >= 0)
                r = cli_fill(c, a,
                             MEMBERS({ "driver", .otherwise = driver },
                                     { "description", "description" }),
                             body, err);
        if (r >= 0 && config)
                json_object_set(body, "config", config);
        if (r >= 0)
                r = cli_call(c, "POST", cli_printf(c, "/api/companies/%s/environments", company),
                             json_incref(body), &environment, err);
        /* Connect once more, so that the host's key is recorded now. */
        if (r >= 0 && is_address && args_flag(a, "accept-host-key"))
                r = try_environment(
                        c, cli_printf(c, "/api/environments/%s/probe", cli_text(environment, "id")),
                        json_object(), err);
        if (r >= 0)
                cli_show(c, &kind_environment, environment);
        return r;
}

static int cmd_env_update(struct cli *c, const struct args *a, struct err *err)
{
        json_t *body = cli_keep(c, json_object()), *environment, *other;
        const char *move_to = args_value(a, "move-to");
        int r = cli_fill(c, a,
                         MEMBERS({ "name", "name" }, { "description", "description" },
                                 { "status", "status" }, { "config", .type = MEMBER_CONFIG }),
                         body, err);

        if (r >= 0 && json_object_size(body) == 0)
                return err_set(err, ERR_USAGE,
                               "nothing to change: give --name, --description, --status, --config "
                               "or -o");
        if (r >= 0)
                r = cli_find(c, &kind_environment, a->words[0], &environment, err);
        if (r >= 0 && move_to)
                r = cli_place(c, move_to, &other, err);
        if (r >= 0 && move_to)
                r = body_set(body, "moveTo", cli_text(other, "id"), err);
        if (r < 0)
                return r;
        return cli_send(c, "PATCH",
                        cli_printf(c, "/api/environments/%s", cli_text(environment, "id")),
                        json_incref(body), &kind_environment, err);
}

/* -- delete ----------------------------------------------------------------------------------- */

static long long count_of(const json_t *object, const char *key)
{
        return (long long)json_integer_value(json_object_get(object, key));
}

/* Each count that is not zero. */
static void print_radius(const char *name, const json_t *radius)
{
        static const struct {
                const char *group; /* NULL: at the top */
                const char *key;
                const char *text;
        } lines[] = {
                { "activeRuntimeUse", "activeLeaseCount", "leases in use" },
                { NULL, "pendingCleanupLeaseCount", "leases whose clean-up is due" },
                { NULL, "reusableSandboxLeaseCount", "idle places kept for reuse" },
                { "staticReferences", "agentDefaultCount", "agents that use it by default" },
                { "staticReferences", "projectSelectionCount", "projects that select it" },
                { "staticReferences", "issueSelectionCount", "issues that select it" },
                { "staticReferences", "executionWorkspaceSelectionCount",
                  "workspaces that select it" },
                { "staticReferences", "secretBindingCount", "secrets bound to it" },
        };
        bool any = json_is_true(
                json_object_get(json_object_get(radius, "staticReferences"), "isCompanyDefault"));

        if (any) {
                out_note("what hangs on '%s':", name);
                out_note("  it is the default environment of its company");
        }
        for (size_t i = 0; i < ARRAY_LEN(lines); i++) {
                const json_t *from =
                        lines[i].group ? json_object_get(radius, lines[i].group) : radius;
                long long n = count_of(from, lines[i].key);

                if (n == 0)
                        continue;
                if (!any)
                        out_note("what hangs on '%s':", name);
                any = true;
                out_note("  %s: %lld", lines[i].text, n);
        }
        if (!any)
                out_note("nothing uses '%s'", name);
}

static int cmd_env_delete(struct cli *c, const struct args *a, struct err *err)
{
        const char *move_to = args_value(a, "move-to"), *name, *path;
        bool close_leases = args_flag(a, "close-leases");
        json_t *environment, *radius, *answer, *other;
        int r = cli_find(c, &kind_environment, a->words[0], &environment, err);

        if (r >= 0 && move_to)
                r = cli_place(c, move_to, &other, err);
        if (r < 0)
                return r;
        name = cli_text(environment, "name");
        path = cli_printf(c, "/api/environments/%s", cli_text(environment, "id"));
        r = cli_call(c, "GET", cli_printf(c, "%s/delete-blast-radius", path), NULL, &radius, err);
        if (r < 0)
                return r;
        print_radius(name, radius);
        if (!close_leases &&
            count_of(json_object_get(radius, "activeRuntimeUse"), "activeLeaseCount") +
                            count_of(radius, "pendingCleanupLeaseCount") >
                    0)
                return err_set(err, ERR_CONFLICT,
                               "'%s' has living leases; release them, or end them together with it "
                               "by --close-leases",
                               name);
        if (!args_flag(a, "yes"))
                r = cli_confirm(cli_printf(c, "Delete environment '%s'?", name), err);
        if (r >= 0)
                r = cli_call(c, "DELETE",
                             cli_printf(c, "%s?closeLeases=%s%s%s", path,
                                        close_leases ? "true" : "false", move_to ? "&moveTo=" : "",
                                        move_to ? cli_text(other, "id") : ""),
                             NULL, &answer, err);
        if (r >= 0)
                cli_answer(c, answer, "deleted %s", name);
        return r;
}

/* -- the table -------------------------------------------------------------------------------- */

#define CONFIG_OPTIONS                                                                             \
        OPTION("config", "JSON|@FILE", "the driver's configuration"),                              \
                OPTION("option", "KEY=VALUE", "one setting of it; also KEY=@FILE and KEY:=JSON",   \
                       'o', true)

#define CONFIG_NOTES                                                                               \
        "-o port=22 sets a number, -o reuseLease=true a truth value, anything else text; dots\n"   \
        "nest: -o driverConfig.image=x. KEY=@FILE takes the text of a file, so that a private\n"   \
        "key stays out of the process list."

const struct cli_command env_commands[] = {
        { "list", "[--status STATUS] [--driver DRIVER]", "List environments", "berth env list",
          .options = OPTIONS({ "status", "STATUS", "only active or archived ones" },
                             { "driver", "DRIVER", "only those of this driver" }),
          .act = { NULL, "GET", "/api/companies/{company}/environments",
                   .members = MEMBERS({ "status", "status" }, { "driver", "driver" }),
                   .columns = FIELDS({ "ID", "id", COLUMN_ID }, { "NAME", "name" },
                                     { "DRIVER", "driver" }, { "STATUS", "status", COLUMN_STATE },
                                     { "UPDATED", "updatedAt", COLUMN_TIME },
                                     { "ISOLATION", "isolation" }),
                   .none = "no environments" } },
        { "create",
          "NAME --driver DRIVER [OPTION]... | DRIVER NAME [OPTION]... | ssh "
          "[USER@]HOST[:PORT][/PATH] [OPTION]...",
          "Create an environment", "berth env create sandbox box -o memoryMb=512", .words = 1,
          .max_words = 2,
          .notes = CONFIG_NOTES
          "\nA sandbox without a provider is the built-in one, `berth`. Without any "
          "company yet, one\nnamed \"Default\" is made.\n"
          "An ssh host is tried at once, and nothing is saved when it does not work. Without "
          "--key your\nown ssh configuration, agent and keys are used; without a PATH the work "
          "is done in ~/berth there.",
          .options = OPTIONS(
                  { "driver", "DRIVER", "local, ssh, sandbox or plugin" }, CONFIG_OPTIONS,
                  { "description", "TEXT", "what it is for" },
                  { "for", "ADAPTER",
                    "sandbox: allow the hosts that this adapter's program needs" },
                  { "name", "NAME", "ssh: another name than the host's" },
                  { "key", "FILE", "ssh: the private key; without, your own ssh set-up" },
                  { "accept-host-key", NULL, "ssh: record the host's key now" }, ALLOW_DUPLICATE),
          .run = cmd_env_create },
        { "show", "ENV", "Show one environment", "berth env show Local", .words = 1,
          .act = { &kind_environment } },
        { "update", "ENV [OPTION]...", "Change an environment",
          "berth env update box --status archived", .words = 1,
          .notes = CONFIG_NOTES "\nThe configuration given is merged over the one that is there.",
          .options = OPTIONS(
                  { "name", "NAME", "a new name" }, { "description", "TEXT", "a new description" },
                  { "status", "STATUS", "active or archived" },
                  { "move-to", "ENV", "the environment that takes over what uses this one" },
                  CONFIG_OPTIONS),
          .run = cmd_env_update },
        { "delete", "ENV [--close-leases] [--move-to ENV] [--yes]", "Delete an environment",
          "berth env delete box --yes", .words = 1,
          .notes =
                  "Says first what uses it, and refuses while leases live, or while agents, "
                  "projects, issues,\nworkspaces or the company's default name it: --move-to moves "
                  "these.",
          .options = OPTIONS(
                  { "close-leases", NULL, "end its living leases first" },
                  { "move-to", "ENV", "the environment that takes over what uses this one" },
                  { "yes", NULL, "do not ask", 'y' }),
          .run = cmd_env_delete },
        { "probe", "ENV", "Test whether an environment works", "berth env probe Local", .words = 1,
          .notes = "Exit status 1 when it does not.",
          .act = { &kind_environment, "POST", "/probe", .print = print_probe,
                   .status = probe_status } },
        { 0 },
};
