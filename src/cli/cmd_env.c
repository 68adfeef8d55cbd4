/* `berth env`: the environments of a company. Reading and probing are here, changing them in
 * cmd_env_write.c, deleting in cmd_env_delete.c. */
#include "cli/cmd_env.h"
#include "cli/output.h"

void env_print(struct cli *c, const json_t *environment)
{
        if (c->json) {
                out_json(environment);
                return;
        }
        out_label("Id", COLUMN_ID, cli_text(environment, "id"));
        out_label("Name", COLUMN_TEXT, cli_text(environment, "name"));
        out_label("Description", COLUMN_TEXT, cli_text(environment, "description"));
        out_label("Driver", COLUMN_TEXT, cli_text(environment, "driver"));
        out_label("Isolation", COLUMN_TEXT, cli_text(environment, "isolation"));
        out_label("Status", COLUMN_STATE, cli_text(environment, "status"));
        out_label("Created", COLUMN_TIME, cli_text(environment, "createdAt"));
        out_label("Updated", COLUMN_TIME, cli_text(environment, "updatedAt"));
        if (json_is_true(json_object_get(environment, "configRedacted")))
                out_label("Config", COLUMN_TEXT, "(hidden: needs environments:manage)");
        else
                out_label_json("Config", json_object_get(environment, "config"));
        if (!json_is_null(json_object_get(environment, "metadata")))
                out_label_json("Metadata", json_object_get(environment, "metadata"));
}

static int run_list(struct cli *c, const struct args *a, struct err *err)
{
        static const struct column columns[] = {
                { "ID", COLUMN_ID },        { "NAME", COLUMN_TEXT },
                { "DRIVER", COLUMN_TEXT },  { "STATUS", COLUMN_STATE },
                { "UPDATED", COLUMN_TIME }, { "ISOLATION", COLUMN_TEXT },
        };
        const char *status = args_value(a, "status"), *driver = args_value(a, "driver");
        CLEAN(table_done) struct table t;
        const char *company;
        json_t *list, *item;
        size_t i;
        int r;

        table_init(&t, columns, ARRAY_LEN(columns));
        r = cli_company(c, false, &company, err);
        if (r >= 0)
                r = cli_call_list(c,
                                  cli_printf(c, "/api/companies/%s/environments%s%s%s%s%s", company,
                                             status || driver ? "?" : "", status ? "status=" : "",
                                             status ? cli_escape(c, status) : "",
                                             driver ? (status ? "&driver=" : "driver=") : "",
                                             driver ? cli_escape(c, driver) : ""),
                                  &list, err);
        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item) table_row(
                &t, (const char *[]){ cli_text(item, "id"), cli_text(item, "name"),
                                      cli_text(item, "driver"), cli_text(item, "status"),
                                      cli_text(item, "updatedAt"), cli_text(item, "isolation") });
        table_print(&t, "no environments");
        return 0;
}

static int run_show(struct cli *c, const struct args *a, struct err *err)
{
        json_t *environment;
        int r = cli_environment(c, a->words[0], &environment, err);

        if (r < 0)
                return r;
        env_print(c, environment);
        return 0;
}

/* The probe itself is a success of the API also when the environment does not work; for whoever
 * typed it, it is not. */
static int run_probe(struct cli *c, const struct args *a, struct err *err)
{
        json_t *environment, *probe;
        bool ok;
        int r = cli_environment(c, a->words[0], &environment, err);

        if (r >= 0)
                r = cli_call(
                        c, "POST",
                        cli_printf(c, "/api/environments/%s/probe", cli_text(environment, "id")),
                        json_object(), &probe, err);
        if (r < 0)
                return r;
        ok = json_is_true(json_object_get(probe, "ok"));
        if (c->json) {
                out_json(probe);
                return ok ? 0 : 1;
        }
        out_label("Result", COLUMN_STATE, ok ? "ok" : "failed");
        out_label("Summary", COLUMN_TEXT, cli_text(probe, "summary"));
        if (*cli_text(probe, "hint"))
                out_label("Hint", COLUMN_TEXT, cli_text(probe, "hint"));
        if (json_object_size(json_object_get(probe, "details")) > 0)
                out_label_json("Details", json_object_get(probe, "details"));
        return ok ? 0 : 1;
}

static const struct cli_option list_options[] = {
        { "status", 0, OPTION_VALUE, "STATUS", "only active or archived ones" },
        { "driver", 0, OPTION_VALUE, "DRIVER", "only those of this driver" },
        { 0 },
};

static const struct cli_command list = {
        .name = "list",
        .synopsis = "[--status STATUS] [--driver DRIVER]",
        .summary = "List environments",
        .example = "berth env list",
        .options = list_options,
        .run = run_list,
};

static const struct cli_command show = {
        .name = "show",
        .synopsis = "ENV",
        .summary = "Show one environment",
        .example = "berth env show Local",
        .run = run_show,
        .min_words = 1,
        .max_words = 1,
};

static const struct cli_command probe = {
        .name = "probe",
        .synopsis = "ENV",
        .summary = "Try whether an environment works",
        .notes = "Exit status 1 when it does not.",
        .example = "berth env probe Local",
        .run = run_probe,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_env = {
        .name = "env",
        .synopsis = "",
        .summary = "List, make, change, try and delete environments",
        .notes = "ENV is a name, an id, or at least four characters with which exactly one id "
                 "begins "
                 "or ends.",
        .example = "berth env list",
        .sub = (const struct cli_command *const[]){ &list, &cmd_env_create, &show, &cmd_env_update,
                                                    &cmd_env_delete, &probe, NULL },
};
