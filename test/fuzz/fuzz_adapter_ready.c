/* What a place says before an agent starts there: the beginning of a session file, and a list of
 * models. Whatever it is, what is told of it can be stored. */
#include "base/utf8.h"
#include "core/adapters/adapter_run.h"
#include "core/kinds/provision.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const char *argv[] = { "opencode", "models", NULL };
        struct adapter_command command = { .list_argv = argv, .billing = { .model = "a/b" } };
        struct adapter_input in = { .type = "opencode_local" };
        struct arena arena = { 0 };
        char *text = xstrndup((const char *)data, size);
        struct provision_end how = { .has_code = true, .code = size % 3 == 0, .out = text };
        json_t *header = json_pack("{s:s}", "type", "session");
        const char *fault;

        how.err = text;
        (void)adapter_session_fits(header, (const char *)data, size);
        fault = adapter_model_fault(&arena, &in, &command, &how);
        if (fault && !utf8_is_valid(fault, strlen(fault)))
                __builtin_trap();
        json_decref(header);
        free(text);
        arena_done(&arena);
        return 0;
}
