/* An index that somebody else wrote: it is taken or not, and nothing beyond its end is read. One
 * that names `.git` where an entry's path would begin is not taken. */
#include "codec/git_index.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const char evil[] = ".git/x";
        const size_t path = 12 + 62;

        if (git_index_ok(data, size) && data[7] < 4 && data[11] > 0 && size > path + sizeof(evil) &&
            memcmp(data + path, evil, sizeof(evil)) == 0)
                abort();
        return 0;
}
