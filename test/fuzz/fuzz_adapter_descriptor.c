/* Whatever an operator writes: refused with a text that names the member, or a descriptor from
 * which a command line can be made, whatever it says. */
#include "core/adapters/adapter_internal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void use(const json_t *json)
{
        static const char *const texts[] = { "", "rate limit", "session 1 not found\nx" };
        size_t i;
        json_t *one;

        json_array_foreach(json_object_get(json, "errors"), i, one)
        {
                for (size_t t = 0; t < ARRAY_LEN(texts); t++)
                        (void)adapter_like_any(json_object_get(one, "like"), texts[t],
                                               strlen(texts[t]));
        }
        json_array_foreach(json_object_get(json, "assets"), i, one)
        {
                CLEAN(buf_done) struct buf b = BUF_INIT;
                const json_t *when = json_object_get(one, "when");
                const char *to = json_get_string(one, "copyTo");

                if (when)
                        (void)adapter_holds(when, json);
                if (to)
                        adapter_fill(&b, to, json);
        }
        json_array_foreach(json_object_get(json, "args"), i, one)
        {
                CLEAN(buf_done) struct buf b = BUF_INIT;
                const json_t *when = json_object_get(one, "when");

                if (when)
                        (void)adapter_holds(when, json);
                if (json_is_string(one))
                        adapter_fill(&b, json_string_value(one), json);
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(json_decrefp) json_t *json = NULL;

        if (json_parse((const char *)data, size, &json, NULL) < 0)
                return 0;
        if (adapter_descriptor_check(json, &e) < 0) {
                if (e.code != ERR_INVALID || !*e.msg)
                        abort();
                return 0;
        }
        use(json);
        return 0;
}
