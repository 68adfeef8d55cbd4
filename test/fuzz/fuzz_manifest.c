/* Whatever a plugin says about itself: refused with a text, or turned into a document that is
 * accepted again and comes out the same. */
#include "plugin/manifest.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(err_done) struct err e = { 0 };
        CLEAN(json_decrefp) json_t *given = NULL;
        CLEAN(json_decrefp) json_t *kept = NULL;
        CLEAN(json_decrefp) json_t *again = NULL;
        CLEAN(json_decrefp) json_t *warnings = json_array();
        CLEAN(json_decrefp) json_t *none = NULL;

        if (json_parse((const char *)data, size, &given, NULL) < 0)
                return 0;
        if (manifest_check(given, PLUGIN_HOST_VERSION, warnings, &kept, &e) < 0) {
                if (e.code != ERR_INVALID || !*e.msg || kept)
                        abort();
                return 0;
        }
        if (manifest_check(kept, PLUGIN_HOST_VERSION, NULL, &again, NULL) < 0 ||
            !json_equal(kept, again) || !json_get_string(kept, "id"))
                abort();
        none = manifest_new_capabilities(kept, again);
        if (json_array_size(none) != 0)
                abort();
        return 0;
}
