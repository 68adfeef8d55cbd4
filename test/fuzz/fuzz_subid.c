/* Lines of /etc/subuid. */
#include "codec/subid.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct id_range found;

        if (subid_largest((const char *)data, size, "ann", 1000, &found) &&
            (found.first <= 0 || found.count <= 0 || found.first + found.count > UINT32_MAX))
                __builtin_trap();
        return 0;
}
