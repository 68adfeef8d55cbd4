/* A descriptor of a kind made by commands, and what its `list` prints, may be anything. The input
 * is both, divided by a NUL: the descriptor is checked, its commands are put together with its own
 * defaults, and the rest is read as its list. */
#include "core/kinds/command/command_descriptor.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static int see(void *ctx, const struct command_thing *thing)
{
        if (strlen(thing->tag) != 36)
                abort();
        return 0;
}

/* Values for all options: what a configuration that names each would have. */
static json_t *options_of(const json_t *descriptor)
{
        json_t *values = json_object();
        const json_t *option;
        const char *key;

        json_object_foreach(json_object_get(descriptor, "options"), key, option)
        {
                json_t *value = json_object_get(option, "default");

                if (value)
                        json_object_set(values, key, value);
        }
        return values;
}

static void use(struct arena *arena, const json_t *d, const char *list, size_t len)
{
        CLEAN(json_decrefp) json_t *options = options_of(d);
        struct command_vars vars = { .options = options };
        const char **args, *input, *hint;

        for (int i = 0; i < WORD_N; i++)
                vars.words[i] = "word";
        for (int v = 0; v < COMMAND_N_VERBS; v++) {
                const json_t *c = command_of(d, (enum command_verb)v);

                if (!c)
                        continue;
                if (command_fill_args(arena, json_object_get(c, "run"), &vars, &args, NULL) >= 0)
                        for (size_t n = 0; args[n]; n++)
                                if (n >= COMMAND_ARGS_MAX)
                                        abort();
                (void)command_fill_input(arena, json_object_get(c, "input"), &vars, &input, NULL);
        }
        (void)command_read_list(arena, command_of(d, COMMAND_LIST), list, len, see, NULL, NULL);
        (void)command_failure_of(arena, d, list, &hint);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const char *text = (const char *)data, *nul = size ? memchr(data, '\0', size) : NULL;
        size_t len = nul ? (size_t)(nul - text) : size;
        json_t *descriptor = NULL;
        struct arena arena;

        if (json_parse(text, len, &descriptor, NULL) < 0)
                return 0;
        arena_init(&arena);
        if (command_descriptor_check(descriptor, NULL) >= 0) {
                CLEAN(cleanup_free)
                char *list = xstrndup(nul ? nul + 1 : "", nul ? size - len - 1 : 0);

                use(&arena, descriptor, list, strlen(list));
        }
        arena_done(&arena);
        json_decref(descriptor);
        return 0;
}
