/* `berth env create` and `berth env update`. What a configuration may hold is the daemon's
 * business; here it is only put together. */
#include "cli/cmd_env.h"

static const char *const drivers[] = { "local", "ssh", "sandbox", "plugin", NULL };

/* NULL and absent are different things to the API: only what was given is sent. */
static void set_given(json_t *body, const char *key, const char *value)
{
        if (value)
                json_object_set_new(body, key, json_string(value));
}

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

static int run_create(struct cli *c, const struct args *a, struct err *err)
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
        set_given(body, "description", args_value(a, "description"));
        if (config)
                json_object_set_new(body, "config", config);
        r = cli_call(c, "POST", cli_printf(c, "/api/companies/%s/environments", company), body,
                     &environment, err);
        if (r >= 0 && is_address)
                r = env_ssh_record(c, a, environment, err);
        if (r < 0)
                return r;
        env_print(c, environment);
        return 0;
}

static int run_update(struct cli *c, const struct args *a, struct err *err)
{
        const char *move_to = args_value(a, "move-to");
        json_t *body, *config, *environment, *other;
        int r;

        r = cli_config(a, &config, err);
        if (r < 0)
                return r;
        body = json_object();
        set_given(body, "name", args_value(a, "name"));
        set_given(body, "description", args_value(a, "description"));
        set_given(body, "status", args_value(a, "status"));
        if (config)
                json_object_set_new(body, "config", config);
        if (json_object_size(body) == 0) {
                json_decref(body);
                return err_set(err, ERR_USAGE,
                               "nothing to change: give --name, --description, --status, --config "
                               "or -o");
        }
        r = cli_environment(c, a->words[0], &environment, err);
        if (r >= 0 && move_to)
                r = cli_place(c, move_to, &other, err);
        if (r < 0) {
                json_decref(body);
                return r;
        }
        if (move_to)
                set_given(body, "moveTo", cli_text(other, "id"));
        r = cli_call(c, "PATCH", cli_printf(c, "/api/environments/%s", cli_text(environment, "id")),
                     body, &environment, err);
        if (r < 0)
                return r;
        env_print(c, environment);
        return 0;
}

#define CONFIG_OPTIONS                                                                             \
        { "config", 0, OPTION_VALUE, "JSON|@FILE", "the driver's configuration" },                 \
        {                                                                                          \
                "option", 'o', OPTION_LIST, "KEY=VALUE",                                           \
                        "one setting of it; also KEY=@FILE and KEY:=JSON"                          \
        }

static const struct cli_option create_options[] = {
        { "driver", 0, OPTION_VALUE, "DRIVER", "local, ssh, sandbox or plugin" },
        CONFIG_OPTIONS,
        { "description", 0, OPTION_VALUE, "TEXT", "what it is for" },
        { "name", 0, OPTION_VALUE, "NAME", "ssh: another name than the host's" },
        { "key", 0, OPTION_VALUE, "FILE", "ssh: the private key; without, your own ssh set-up" },
        { "accept-host-key", 0, OPTION_FLAG, NULL, "ssh: record the host's key now" },
        { 0 },
};

static const struct cli_option update_options[] = {
        { "name", 0, OPTION_VALUE, "NAME", "a new name" },
        { "description", 0, OPTION_VALUE, "TEXT", "a new description" },
        { "status", 0, OPTION_VALUE, "STATUS", "active or archived" },
        { "move-to", 0, OPTION_VALUE, "ENV", "what works in it works there from now on" },
        CONFIG_OPTIONS,
        { 0 },
};

#define CONFIG_NOTES                                                                               \
        "-o port=22 sets a number, -o reuseLease=true a truth value, anything else text; dots\n"   \
        "nest: -o driverConfig.image=x. KEY=@FILE takes the text of a file, so that a private\n"   \
        "key stays out of the process list."

const struct cli_command cmd_env_create = {
        .name = "create",
        .synopsis = "NAME --driver DRIVER [OPTION]... | DRIVER NAME [OPTION]... | ssh "
                    "[USER@]HOST[:PORT][/PATH] [OPTION]...",
        .summary = "Make an environment",
        .notes = CONFIG_NOTES
        "\nA sandbox without a provider is the built-in one, `berth`. Without any "
        "company yet, one\nnamed \"Default\" is made.\n"
        "An ssh host is tried at once, and nothing is saved when it does not work. Without "
        "--key your\nown ssh configuration, agent and keys are used; without a PATH the work "
        "is done in ~/berth there.",
        .example = "berth env create sandbox box -o memoryMb=512",
        .options = create_options,
        .run = run_create,
        .min_words = 1,
        .max_words = 2,
};

const struct cli_command cmd_env_update = {
        .name = "update",
        .synopsis = "ENV [OPTION]...",
        .summary = "Change an environment",
        .notes = CONFIG_NOTES "\nThe configuration given is merged over the one that is there.",
        .example = "berth env update box --status archived",
        .options = update_options,
        .run = run_update,
        .min_words = 1,
        .max_words = 1,
};
