/* Nothing that was not sealed here opens; material that names its key names one of the right form.
 */
#include <sodium.h>

#include "secret/seal.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void load_key(void)
{
        static const struct master_key_source source = {
                .text = "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
                .variable = "fuzz",
        };

        if (sodium_init() < 0 || master_key_load(&source, true, NULL) < 0)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static const struct seal_place place = { "company", "secret", 1 };
        static bool loaded;
        CLEAN(cleanup_free) char *text = xstrndup((const char *)data, size);
        CLEAN(err_done) struct err e = { 0 };
        struct secret_value value;
        char id[MASTER_KEY_ID_LEN + 1];
        int r;

        if (!loaded)
                load_key();
        loaded = true;
        r = seal_open(&place, text, &value, &e);
        if (r >= 0 || value.data ||
            (r != ERR_INVALID && r != ERR_UNPROCESSABLE && r != ERR_TOO_LARGE))
                abort();
        if (seal_key_of(text, id) && *id && strlen(id) != MASTER_KEY_ID_LEN)
                abort();
        return 0;
}
