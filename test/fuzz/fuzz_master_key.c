/* What is taken for a key has a form that is documented, and decodes the same with white space
 * around it. */
#include "secret/master_key.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        unsigned char key[MASTER_KEY_BYTES] = { 0 }, again[MASTER_KEY_BYTES] = { 0 };
        CLEAN(cleanup_free) char *padded = xcalloc(1, size + 3);
        bool taken = master_key_decode((const char *)data, size, key);

        padded[0] = ' ';
        memcpy(padded + 1, data, size);
        padded[size + 1] = '\n';
        if (master_key_decode(padded, size + 2, again) != taken)
                abort();
        if (taken && memcmp(key, again, sizeof(key)) != 0)
                abort();
        if (taken && size < MASTER_KEY_BYTES)
                abort();
        return 0;
}
