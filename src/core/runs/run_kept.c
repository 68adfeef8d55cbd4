/* The record of a command that is kept from its beginning to its end: what is needed to read its
 * output, and its input. The agent may change while the command works, even into another kind; the
 * started command stays as it was. */
#include "base/clock.h"
#include "core/runs/run_internal.h"
#include "store/run_commands.h"

static json_t *billing_json(const struct adapter_billing *b)
{
        return json_pack("{s:s*, s:s*, s:s*, s:s*}", "provider", b->provider, "biller", b->biller,
                         "type", b->type, "model", b->model);
}

static json_t *command_json(const struct run_task *t)
{
        const struct adapter_command *c = &t->command;

        return json_pack("{s:s, s:O*, s:s*, s:s*, s:s*, s:I, s:s*, s:I, s:o}", "type",
                         t->input.type, "identity", t->input.target.identity, "cwd", c->cwd,
                         "sessionId", c->session_id, "newSessionId", c->new_session_id, "timeoutMs",
                         (json_int_t)c->timeout_ms, "timeoutSource", c->timeout_source, "graceMs",
                         (json_int_t)c->grace_ms, "billing", billing_json(&c->billing));
}

int run_kept_put(struct db *db, struct run_task *t, const char *key, struct err *err)
{
        struct run_command row = {
                .run_id = t->run.id,
                .execution_key = key,
                .adapter = json_to_arena(t->op->arena, run_keep(t->op->arena, command_json(t))),
                .input = t->command.stdin_text,
                .created_at = clock_now_us(),
        };

        return run_commands_put(db, &row, err);
}

static int64_t number(const json_t *json, const char *name)
{
        return json_integer_value(json_object_get(json, name));
}

static void restore(struct run_task *t, const struct run_command *row)
{
        const json_t *json = run_parse(t->op->arena, row->adapter);
        const json_t *billing = json_get_object(json, "billing");

        t->input = (struct adapter_input){
                .type = json_get_string(json, "type"),
                .agent = &t->agent,
                .company_name = t->company_name,
                .run_id = t->run.id,
                .context = t->context,
                .assets = json_get_object(t->context, RUN_ASSETS_MEMBER),
                .target = { .identity = json_get_object(json, "identity") },
        };
        t->command = (struct adapter_command){
                .cwd = json_get_string(json, "cwd"),
                .stdin_text = row->input,
                .stdin_len = row->input ? strlen(row->input) : 0,
                .timeout_ms = number(json, "timeoutMs"),
                .timeout_source = json_get_string(json, "timeoutSource"),
                .grace_ms = number(json, "graceMs"),
                .session_id = json_get_string(json, "sessionId"),
                .new_session_id = json_get_string(json, "newSessionId"),
                .billing = { .provider = json_get_string(billing, "provider"),
                             .biller = json_get_string(billing, "biller"),
                             .type = json_get_string(billing, "type"),
                             .model = json_get_string(billing, "model") },
        };
        t->end_asked_at = row->end_asked_at;
}

int run_kept_get(struct run_task *t, const char *key, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct run_command row;
        int r = store_read_begin(t->op, t->rt->store, &db, err);

        if (r >= 0)
                r = run_commands_get(db, t->run.id, key, t->op->arena, &row, err);
        if (r > 0)
                restore(t, &row);
        return r;
}
