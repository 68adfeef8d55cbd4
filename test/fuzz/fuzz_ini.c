/* A value is a view inside the text, without line ends and without blanks around it; a section that
 * has a setting is a section. */
#include "codec/ini.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        CLEAN(err_done) struct err e = { 0 };
        const char *text = (const char *)data, *value = NULL;
        size_t n = 0;
        int r = ini_find(text, size, "profile work", "aws_access_key_id", &value, &n, &e);

        if (r < 0 && r != ERR_INVALID && r != ERR_TOO_LARGE)
                abort();
        if (r <= 0)
                return 0;
        if (value < text || n > size || value + n > text + size || memchr(value, '\n', n))
                abort();
        if (n > 0 && (value[0] == ' ' || value[n - 1] == ' ' || value[n - 1] == '\r'))
                abort();
        return 0;
}
