/* Only base64 is ever left out, and only behind something that announced a picture. */
#include "codec/image_data.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const char base64[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                     "0123456789+/=-_";
        struct image_data m = { 0 };
        bool was_inside = false;

        for (size_t i = 0; i < size; i++) {
                char c = (char)data[i];
                bool skips = image_data_skips(&m, c);

                if (skips && (!was_inside || c == '\0' || !strchr(base64, c)))
                        abort();
                if (was_inside && !skips && c != '\0' && strchr(base64, c))
                        abort();
                was_inside = m.inside;
        }
        return 0;
}
