/* Provisional: the process adapter. */
#include "core/adapter_run.h"

struct adapter_parser {
        int dummy;
};

int adapter_build(struct op *op, struct runtime *rt UNUSED, const struct adapter_input *input,
                  bool fresh UNUSED, struct adapter_command *ret, struct err *err)
{
        const char *command = json_get_string(input->config, "command");
        json_t *args = json_object_get(input->config, "args"), *a;
        const json_t *t = json_object_get(input->config, "timeoutSec");
        const char **list = arena_alloc(op->arena, (json_array_size(args) + 1) * sizeof(*list));
        size_t i;

        if (!command)
                return err_set(err, ERR_UNPROCESSABLE, "Process adapter missing command");
        json_array_foreach(args, i, a) list[i] = json_string_value(a);
        *ret = (struct adapter_command){
                .command = command,
                .args = list,
                .env = json_pack("{s:s, s:s, s:s}", "PAPERCLIP_AGENT_ID", input->agent->id,
                                 "PAPERCLIP_COMPANY_ID", input->agent->company_id,
                                 "PAPERCLIP_RUN_ID", input->run_id),
                .timeout_ms = t ? (int64_t)(json_number_value(t) * 1000) : 0,
                .timeout_source = t ? "configured" : "default",
                .grace_ms = 15000,
                .invocation =
                        json_pack("{s:s, s:s}", "adapterType", input->type, "command", command),
        };
        return 0;
}

int adapter_parser_new(struct runtime *rt UNUSED, const struct adapter_input *input UNUSED,
                       const struct adapter_command *command UNUSED, struct adapter_parser **ret,
                       struct err *err UNUSED)
{
        *ret = xcalloc(1, sizeof(**ret));
        return 0;
}

void adapter_parser_feed(struct adapter_parser *p UNUSED, bool is_stderr UNUSED,
                         const char *data UNUSED, size_t len UNUSED)
{
}

void adapter_parser_finish(struct adapter_parser *p UNUSED, const struct adapter_exit *exit,
                           struct arena *arena, struct adapter_result *ret)
{
        *ret = (struct adapter_result){ .exit_code = exit->code };
        if (exit->code > 0)
                ret->error_message =
                        arena_printf(arena, "Process exited with code %lld", (long long)exit->code);
}

void adapter_parser_free(struct adapter_parser *p)
{
        free(p);
}
