/* [schema, document]: whatever both are, the check ends, and every error names a field and a text.
 */
#include "codec/jsonschema.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(json_decrefp) json_t *pair = NULL;
        CLEAN(json_decrefp) json_t *errors = json_array();
        json_t *e;
        size_t i;
        int r;

        if (json_parse((const char *)data, size, &pair, NULL) < 0 || json_array_size(pair) != 2)
                return 0;
        r = jsonschema_check(json_array_get(pair, 0), json_array_get(pair, 1), errors, NULL);
        if (r < 0 && r != ERR_TOO_LARGE)
                abort();
        if (r >= 0 && (size_t)r < json_array_size(errors))
                abort();
        json_array_foreach(errors, i, e)
        {
                const char *field = json_get_string(e, "field");

                if (!field || *field != '/' || !json_get_string(e, "message"))
                        abort();
        }
        return 0;
}
