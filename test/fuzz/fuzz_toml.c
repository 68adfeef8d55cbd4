/* What is accepted is flat and holds nothing but the promised types; what is not is refused with
 * the file's name, and a line that the text has. */
#include <stdio.h>

#include "codec/toml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static bool is_scalar(const json_t *v)
{
        return json_is_string(v) || json_is_integer(v) || json_is_boolean(v);
}

static void verify(json_t *settings)
{
        const char *key;
        json_t *value;
        size_t i;

        json_object_foreach(settings, key, value)
        {
                if (strlen(key) == 0 || strlen(key) > TOML_MAX_KEY)
                        abort();
                if (!json_is_array(value) && !is_scalar(value))
                        abort();
                for (i = 0; i < json_array_size(value); i++)
                        if (!is_scalar(json_array_get(value, i)))
                                abort();
        }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *settings;
        size_t lines = 1;
        int r = toml_parse("t", (const char *)data, size, &settings, &e);

        if (r == 0) {
                verify(settings);
                json_decref(settings);
                return 0;
        }
        for (size_t i = 0; i < size; i++)
                lines += data[i] == '\n' ? 1 : 0;
        if (r == ERR_INVALID) {
                size_t line = 0;

                if (sscanf(e.msg, "t line %zu: ", &line) != 1 || line < 1 || line > lines)
                        abort();
        } else if (r != ERR_TOO_LARGE) {
                abort();
        }
        return 0;
}
