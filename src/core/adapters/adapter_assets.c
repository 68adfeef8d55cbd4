/* Decides which assets of a descriptor one run gets. */
#include "core/adapters/adapter_internal.h"

const char *adapter_key(const char *type)
{
        const struct adapter_descriptor *d = adapter_find(type);

        return d ? d->key : NULL;
}

static bool is_listed(const json_t *list, const char *text)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)list, i, one)
        {
                if (streq(json_string_value(one), text))
                        return true;
        }
        return false;
}

static bool is_due(const struct adapter_draft *draft, const json_t *asset)
{
        const json_t *on = json_object_get(asset, "on"), *when = json_object_get(asset, "when");

        if (on && !is_listed(on, adapter_target_name(&draft->in->target)))
                return false;
        return !when || adapter_holds(when, draft->scope);
}

/* A file that is made of a variable is left out without the variable. */
static json_t *parts(const struct adapter_draft *draft, const json_t *from)
{
        const json_t *env = json_object_get(draft->scope, "env");
        json_t *kept = json_array(), *one;
        size_t i;

        json_array_foreach((json_t *)from, i, one)
        {
                const char *variable = json_get_string(one, "variable");

                if (!json_object_get(one, "keyFile") ||
                    adapter_is_set(json_object_get(env, variable)))
                        json_array_append(kept, one);
        }
        return kept;
}

static bool has_instructions(const json_t *from)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)from, i, one)
        {
                if (json_object_get(one, "instructions"))
                        return true;
        }
        return false;
}

static json_t *one_asset(struct adapter_draft *draft, const json_t *described)
{
        json_t *asset = json_copy((json_t *)described);
        const json_t *from = json_object_get(described, "from");
        const char *copy_to = json_get_string(described, "copyTo");
        const json_t *home = json_object_get(adapter_env(draft), "HOME");

        json_object_del(asset, "on");
        json_object_del(asset, "when");
        json_object_set_new(asset, "from", parts(draft, from));
        if (!adapter_is_local(&draft->in->target))
                json_object_set_new(
                        asset, "dir",
                        json_string(arena_printf(draft->arena, "%s/%s", adapter_runtime(draft),
                                                 json_get_string(asset, "key"))));
        if (copy_to)
                json_object_set_new(
                        asset, "copyTo",
                        json_string(adapter_fill_arena(draft->arena, copy_to, draft->scope)));
        if (has_instructions(from)) {
                const char *text = adapter_instructions(draft);

                if (text)
                        json_object_set_new(asset, "instructions", json_string(text));
        }
        if (home)
                json_object_set(asset, "home", (json_t *)home);
        return asset;
}

const json_t *adapter_assets(struct op *op, const struct adapter_input *input)
{
        struct adapter_draft draft = { .arena = op->arena,
                                       .d = adapter_find(input->type),
                                       .in = input,
                                       .notes = adapter_keep(op->arena, json_array()),
                                       .metrics = adapter_keep(op->arena, json_object()) };
        json_t *due = adapter_keep(op->arena, json_array()), *one;
        size_t i;

        if (!draft.d || !json_object_get(draft.d->json, "assets"))
                return due;
        adapter_draft_begin(&draft);
        json_array_foreach(json_object_get(draft.d->json, "assets"), i, one)
        {
                if (is_due(&draft, one))
                        json_array_append_new(due, one_asset(&draft, one));
        }
        return due;
}
