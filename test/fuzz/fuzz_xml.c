/* What is found is a view inside the text that has no markup in it. */
#include "codec/xml.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(err_done) struct err e = { 0 };
        const char *text = (const char *)data, *value = NULL;
        size_t n = 0;
        int r = xml_find(text, size, "C", &value, &n, &e);

        if (r < 0 && r != ERR_INVALID)
                abort();
        if (r <= 0)
                return 0;
        if (value < text || n > size || value + n > text + size || memchr(value, '<', n) ||
            memchr(value, '&', n))
                abort();
        return 0;
}
