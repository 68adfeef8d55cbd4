/* Running the commands of a file transfer by environmentExecute. */
#include "core/kinds/plugin/plugin_transfer.h"

static json_t *params_of(const struct plugin_lease *l, const char *const *argv, int64_t timeout_ms)
{
        json_t *args = json_array();

        for (const char *const *a = argv + 1; *a; a++)
                json_array_append_new(args, json_string(*a));
        return json_pack("{s:o, s:s, s:o, s:s, s:I, s:b}", "lease", plugin_lease_ref(l), "command",
                         argv[0], "args", args, "cwd", "/", "timeoutMs", (json_int_t)timeout_ms,
                         "bypassSession", 1);
}

static int take_answer(const struct plugin_lease *l, const json_t *answer,
                       struct exec_transfer_answer *ret, struct err *err)
{
        const json_t *code = json_object_get(answer, "exitCode");
        const json_t *out = json_object_get(answer, "stdout");
        const json_t *errors = json_object_get(answer, "stderr");

        if (!json_is_object(answer) || (code && !json_is_integer(code) && !json_is_null(code)))
                return err_set(err, ERR_UNCERTAIN,
                               "Plugin \"%s\" answered with something that is no end of a command.",
                               l->target.plugin_key);
        ret->timed_out = json_is_true(json_object_get(answer, "timedOut"));
        ret->exit_code = json_is_integer(code) && json_integer_value(code) >= 0 &&
                                         json_integer_value(code) <= INT32_MAX
                                 ? (int)json_integer_value(code)
                                 : -1;
        if (json_is_string(out))
                buf_append(&ret->out, json_string_value(out), json_string_length(out));
        if (json_is_string(errors))
                buf_append(&ret->err, json_string_value(errors), json_string_length(errors));
        return 0;
}

/* A transfer has many commands, so each has an arena of its own, and its answer is not kept. */
static int run_by_worker(struct op *op, void *ctx, const char *const *argv, int64_t timeout_ms,
                         struct exec_transfer_answer *ret, struct err *err)
{
        const struct plugin_transfer *p = ctx;
        const struct plugin_lease *l = p->lease;
        struct op one = *op;
        struct arena arena;
        json_t *answer = NULL;
        int r;

        arena_init(&arena);
        one.arena = &arena;
        r = plugin_request(&one, p->rt,
                           &(struct plugin_request){
                                   .target = &l->target,
                                   .scope = &l->scope,
                                   .method = "environmentExecute",
                                   .config = l->config,
                                   .take_params = params_of(l, argv, timeout_ms),
                                   .limit_ms = plugin_limit_execute(timeout_ms, l->config),
                                   .redact_member = "stderr", /* it ends up in errors */
                           },
                           &answer, err);
        if (r >= 0)
                r = take_answer(l, answer, ret, err);
        arena_done(&arena);
        return r;
}

void plugin_transfer_init(struct plugin_transfer *p, struct runtime *rt,
                          const struct plugin_lease *lease, struct exec_transfer *ret)
{
        *p = (struct plugin_transfer){ rt, lease };
        *ret = (struct exec_transfer){
                .run = run_by_worker,
                .ctx = p,
                .shell = json_get_string(plugin_lease_said(lease), "shellCommand"),
        };
}

int plugin_transfer_of(struct op *op, struct runtime *rt, const struct lease *lease,
                       struct exec_transfer *ret, struct err *err)
{
        struct plugin_transfer *p = arena_new(op->arena, struct plugin_transfer);
        struct plugin_lease *l = arena_new(op->arena, struct plugin_lease);
        int r = plugin_lease_load(op, rt, lease, l, err);

        if (r >= 0)
                plugin_transfer_init(p, rt, l, ret);
        return r;
}
