/* `berth env`: the environments of a company. What create and update put together is in
 * cmd_env_write.c, deleting in cmd_env_delete.c. */
#include "cli/cmd_env.h"

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
          "Make an environment", "berth env create sandbox box -o memoryMb=512", .words = 1,
          .max_words = 2,
          .notes = CONFIG_NOTES
          "\nA sandbox without a provider is the built-in one, `berth`. Without any "
          "company yet, one\nnamed \"Default\" is made.\n"
          "An ssh host is tried at once, and nothing is saved when it does not work. Without "
          "--key your\nown ssh configuration, agent and keys are used; without a PATH the work "
          "is done in ~/berth there.",
          .options =
                  OPTIONS({ "driver", "DRIVER", "local, ssh, sandbox or plugin" }, CONFIG_OPTIONS,
                          { "description", "TEXT", "what it is for" },
                          { "name", "NAME", "ssh: another name than the host's" },
                          { "key", "FILE", "ssh: the private key; without, your own ssh set-up" },
                          { "accept-host-key", NULL, "ssh: record the host's key now" }),
          .run = cmd_env_create },
        { "show", "ENV", "Show one environment", "berth env show Local", .words = 1,
          .act = { &kind_environment } },
        { "update", "ENV [OPTION]...", "Change an environment",
          "berth env update box --status archived", .words = 1,
          .notes = CONFIG_NOTES "\nThe configuration given is merged over the one that is there.",
          .options = OPTIONS(
                  { "name", "NAME", "a new name" }, { "description", "TEXT", "a new description" },
                  { "status", "STATUS", "active or archived" },
                  { "move-to", "ENV", "what works in it works there from now on" }, CONFIG_OPTIONS),
          .run = cmd_env_update },
        { "delete", "ENV [--close-leases] [--move-to ENV] [--yes]", "Delete an environment",
          "berth env delete box --yes", .words = 1,
          .notes =
                  "Says first what uses it, and refuses while leases live, or while agents, "
                  "projects, issues,\nworkspaces or the company's default name it: --move-to moves "
                  "these.",
          .options = OPTIONS({ "close-leases", NULL, "end its living leases first" },
                             { "move-to", "ENV", "what works in it works there from now on" },
                             { "yes", NULL, "do not ask", 'y' }),
          .run = cmd_env_delete },
        { "probe", "ENV", "Try whether an environment works", "berth env probe Local", .words = 1,
          .notes = "Exit status 1 when it does not.",
          .act = { &kind_environment, "POST", "/probe", .print = print_probe,
                   .status = probe_status } },
        { 0 },
};
