/* Which daemon, and one request at a time to it. */
#include <berth/berth.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/stat.h>

#include "cli/command.h"
#include "cli/private.h"

#define DEFAULT_PORT 3100
#define DEFAULT_URL  "http://127.0.0.1:3100"

const char *cli_env(const char *ours, const char *paperclips)
{
        const char *value = getenv(ours);

        if ((!value || !*value) && paperclips)
                value = getenv(paperclips);
        return value && *value ? value : NULL;
}

int cli_init(struct cli *c, const struct cli_hooks *hooks, const struct args *a, struct err *err)
{
        const char *url = args_value(a, "api-url");
        const char *key = args_value(a, "api-key");
        const char *company = args_value(a, "company");

        *c = (struct cli){
                .hooks = hooks,
                .json = args_flag(a, "json"),
                .api_url = url ? url : cli_env("BERTH_API_URL", "PAPERCLIP_API_URL"),
                .api_key = key ? key : cli_env("BERTH_API_KEY", "PAPERCLIP_API_KEY"),
                .company = company ? company : cli_env("BERTH_COMPANY_ID", "PAPERCLIP_COMPANY_ID"),
                .data_flag = args_value(a, "data"),
        };
        arena_init(&c->arena);
        const char *base = getenv("XDG_DATA_HOME"), *home = getenv("HOME");

        c->data = c->data_flag ? c->data_flag : cli_env("BERTH_DATA", NULL);
        c->data_given = c->data != NULL;
        if (c->data)
                return 0;
        if (base && base[0] == '/')
                c->data = cli_printf(c, "%s/berth", base);
        else if (home && home[0] == '/')
                c->data = cli_printf(c, "%s/.local/share/berth", home);
        else
                return err_set(err, ERR_USAGE, "HOME is not set; say where with --data DIR");
        return 0;
}

void cli_done(struct cli *c)
{
        berth_close(c->api);
        c->api = NULL;
        arena_done(&c->arena);
}

/* The API's text is for programs too, and names no command. */
static int not_found(const char *text, struct err *err)
{
        static const struct {
                const char *text, *command;
        } lists[] = {
                { "Adapter not found", "adapter list" },
                { "Agent not found", "agent list" },
                { "Company not found", "company list" },
                { "Environment not found", "env list" },
                { "Environment lease not found", "lease list" },
                { "Heartbeat run not found", "runs list" },
                { "Image not found", "image list" },
                { "Issue not found", "issue list" },
                { "Key not found", "key list" },
                { "Plugin not found", "plugin list" },
                { "Project not found", "project list" },
                { "Provider vault not found", "vault list" },
                { "Salvage not found", "workspace salvaged list" },
                { "Secret not found", "secret list" },
                { "Snapshot not found", "snapshot list" },
        };

        for (size_t i = 0; i < ARRAY_LEN(lists); i++)
                if (streq(lists[i].text, text))
                        return err_set(err, ERR_NOT_FOUND, "%s; 'berth %s' shows those there are",
                                       text, lists[i].command);
        return err_set(err, ERR_NOT_FOUND, "%s", text);
}

int cli_api_error(const struct berth_error *error, struct err *err)
{
        static const struct {
                int status;
                int code;
        } codes[] = {
                { 400, ERR_INVALID },       { 401, ERR_UNAUTHORIZED },    { 403, ERR_FORBIDDEN },
                { 404, ERR_NOT_FOUND },     { 409, ERR_CONFLICT },        { 413, ERR_TOO_LARGE },
                { 422, ERR_UNPROCESSABLE }, { 501, ERR_NOT_IMPLEMENTED }, { 503, ERR_BUSY },
                { 504, ERR_TIMEOUT },
        };
        int code = ERR_PROVIDER;

        switch (error->code) {
        case BERTH_UNREACHABLE:
                code = ERR_UNREACHABLE;
                break;
        case BERTH_TIMEOUT:
                code = ERR_TIMEOUT;
                break;
        case BERTH_LOST:
                code = ERR_UNCERTAIN;
                break;
        case BERTH_INVALID:
                code = ERR_USAGE;
                break;
        default:
                for (size_t i = 0; i < ARRAY_LEN(codes); i++)
                        if (codes[i].status == error->http_status)
                                code = codes[i].code;
        }
        if (code == ERR_NOT_FOUND)
                (void)not_found(error->text, err);
        else
                (void)err_set(err, code, "%s", error->text);
        if (err && error->code == BERTH_REFUSED && error->details[0])
                err_details(err, xstrdup(error->details));
        return code;
}

/* The socket is preferred to the port: it can only be this user's daemon, with this data. */
int cli_endpoint(struct cli *c, struct berth_options *ret, struct err *err)
{
        const char *path = cli_printf(c, "%s/berth.sock", c->data);
        struct stat st;

        *ret = (struct berth_options){
                .url = c->api_url ? c->api_url : DEFAULT_URL,
                .api_key = c->api_key,
                .run_id = cli_env("BERTH_RUN_ID", "PAPERCLIP_RUN_ID"),
        };
        if (!c->api_url && (c->data_given || (stat(path, &st) == 0 && S_ISSOCK(st.st_mode))))
                ret->socket_path = path;
        if (c->api_url || ret->socket_path)
                return 0;
        int r = cli_check_port(DEFAULT_PORT, err);
        return r < 0 ? r : 0;
}

static int connect_to(struct cli *c, const struct berth_options *options, struct err *err)
{
        struct berth_error error;

        return berth_open(options, &c->api, &error) < 0 ? cli_api_error(&error, err) : 0;
}

/* Without an address: the daemon of the data directory, or, where no directory was named either,
 * the one on the default port; else one is started. */
static int connect_here(struct cli *c, struct err *err)
{
        struct berth_options options = { .url = DEFAULT_URL, .api_key = c->api_key };
        int r = 0;

        if (private_join(c))
                return 0;
        if (!c->data_given)
                r = cli_check_port(DEFAULT_PORT, err);
        if (r <= 0)
                return r < 0 ? r : private_ensure(c, err);
        options.run_id = cli_env("BERTH_RUN_ID", "PAPERCLIP_RUN_ID");
        return connect_to(c, &options, err);
}

int cli_connect(struct cli *c, struct berth **ret, struct err *err)
{
        struct berth_options options;
        int r = 0;

        if (!c->api && !c->api_url)
                r = connect_here(c, err);
        else if (!c->api)
                r = cli_endpoint(c, &options, err);
        if (r >= 0 && !c->api)
                r = connect_to(c, &options, err);
        if (r >= 0)
                *ret = c->api;
        return r;
}

static void decref_json(void *value)
{
        json_decref(value);
}

json_t *cli_keep(struct cli *c, json_t *take_value)
{
        if (take_value)
                arena_defer(&c->arena, decref_json, take_value);
        return take_value;
}

char *cli_printf(struct cli *c, const char *fmt, ...)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        va_list ap;

        va_start(ap, fmt);
        buf_appendv(&b, fmt, ap);
        va_end(ap);
        return arena_strdup(&c->arena, buf_str(&b));
}

const char *cli_escape(struct cli *c, const char *text)
{
        static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
                                    "0123456789-._~";
        CLEAN(buf_done) struct buf b = BUF_INIT;

        for (; *text; text++) {
                if (strchr(plain, *text))
                        buf_putc(&b, *text);
                else
                        buf_appendf(&b, "%%%02X", (unsigned)(unsigned char)*text);
        }
        return arena_strdup(&c->arena, buf_str(&b));
}

int cli_call(struct cli *c, const char *method, const char *path, json_t *take_body, json_t **ret,
             struct err *err)
{
        CLEAN(berth_response_done) struct berth_response response = { 0 };
        CLEAN(cleanup_free) char *text = take_body ? json_to_text(take_body) : NULL;
        struct berth_error error;
        json_t *value = NULL;
        struct berth *api;

        json_decref(take_body);
        int r = cli_connect(c, &api, err);
        if (r < 0)
                return r;
        if (berth_request(api, method, path, text, &response, &error) < 0 ||
            berth_refusal(&response, &error) < 0)
                return cli_api_error(&error, err);
        if (response.len > 0 && json_parse(response.body, response.len, &value, err) < 0)
                return err_wrap(err, ERR_PROVIDER, "%s answered something else than JSON",
                                berth_address(api));
        (void)cli_keep(c, value);
        if (ret)
                *ret = value;
        return 0;
}

int cli_call_list(struct cli *c, const char *path, json_t **ret, struct err *err)
{
        json_t *list = NULL;
        int r = cli_call(c, "GET", path, NULL, &list, err);

        if (r < 0)
                return r;
        if (!json_is_array(list))
                return err_set(err, ERR_PROVIDER, "GET %s: the answer is no list", path);
        *ret = list;
        return 0;
}
