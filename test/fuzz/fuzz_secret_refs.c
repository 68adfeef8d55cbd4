/* Paths are found once each and within bounds, and a document that is written at one can be read
 * there. The input is a schema; it also serves as the document. */
#include "codec/secret_refs.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        json_t *schema = NULL, *paths, *doc, *path;
        size_t i;

        if (json_parse((const char *)data, size, &schema, NULL) < 0)
                return 0;
        paths = secret_ref_paths(schema);
        if (json_array_size(paths) > SECRET_REFS_MAX)
                abort();
        doc = json_is_object(schema) ? json_deep_copy(schema) : json_object();
        json_array_foreach(paths, i, path)
        {
                const char *p = json_string_value(path);

                json_path_set(doc, p, json_string("x"));
                if (!json_is_string(json_path_get(doc, p)))
                        abort();
                json_path_set(doc, p, NULL);
                if (json_path_get(doc, p))
                        abort();
        }
        json_decref(doc);
        json_decref(paths);
        json_decref(schema);
        return 0;
}
