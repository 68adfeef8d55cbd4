/* `berth env create` and `berth env update`. The daemon decides what a configuration may hold; here
 * it is only put together. */
#include "cli/cmd_env.h"

static const char *const drivers[] = { "local", "ssh", "sandbox", "plugin", NULL };

/* `create NAME --driver D` and the shorthand `create D NAME`. */
static int read_names(const struct args *a, const char **ret_driver, const char **ret_name,
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

/* The built-in sandbox, unless another is named. */
static void choose_provider(json_t **config)
{
        if (!*config)
                *config = json_object();
        if (!json_object_get(*config, "provider"))
                json_object_set_new(*config, "provider", json_string("berth"));
}

int cmd_env_create(struct cli *c, const struct args *a, struct err *err)
{
        const char *driver = NULL, *name = NULL, *company;
        json_t *body, *config, *environment;
        bool is_address;
        int r;

        r = read_names(a, &driver, &name, err);
        if (r >= 0)
                r = cli_config(a, &config, err);
        if (r < 0)
                return r;
        r = cli_company(c, true, &company, err);
        if (r < 0) {
                json_decref(config);
                return r;
        }
        if (streq(driver, "sandbox"))
                choose_provider(&config);
        is_address = env_is_address(a, driver, config);
        if (is_address)
                r = env_ssh_config(c, a, company, &config, &name, err);
        if (r < 0) {
                json_decref(config);
                return r;
        }
        body = json_pack("{s:s, s:s}", "name", name, "driver", driver);
        r = body_set(body, "description", args_value(a, "description"), err);
        if (r < 0) {
                json_decref(body);
                json_decref(config);
                return r;
        }
        if (config)
                json_object_set_new(body, "config", config);
        r = cli_call(c, "POST", cli_printf(c, "/api/companies/%s/environments", company), body,
                     &environment, err);
        if (r >= 0 && is_address)
                r = env_ssh_record(c, a, environment, err);
        if (r < 0)
                return r;
        cli_show(c, &kind_environment, environment);
        return 0;
}

int cmd_env_update(struct cli *c, const struct args *a, struct err *err)
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
        if (r >= 0)
                r = cli_call(c, "PATCH",
                             cli_printf(c, "/api/environments/%s", cli_text(environment, "id")),
                             json_incref(body), &environment, err);
        if (r >= 0)
                cli_show(c, &kind_environment, environment);
        return r;
}
