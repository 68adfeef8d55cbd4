/* Cron lines, and the times that follow from them. */
#include "codec/cron.h"

#define NOW INT64_C(1800000000000000)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        char *text = xstrndup((const char *)data, size);
        struct cron cron;

        if (cron_parse(text, &cron, NULL) >= 0) {
                int64_t next = cron_next(&cron, NOW);

                if (next && (next <= NOW || cron_last(&cron, next) != next ||
                             cron_last(&cron, next - 1) > NOW))
                        __builtin_trap();
        }
        free(text);
        return 0;
}
