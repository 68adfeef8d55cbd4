/* WWW-Authenticate from somebody hostile: what comes out is printable and bounded. */
#include "image/challenge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_text(const char text[CHALLENGE_TEXT])
{
        size_t len = strnlen(text, CHALLENGE_TEXT);

        if (len == CHALLENGE_TEXT)
                abort();
        for (size_t i = 0; i < len; i++)
                if (text[i] < ' ' || text[i] > '~')
                        abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        const char *text = (const char *)data;
        struct challenge c = { 0 };
        size_t half = size / 2;

        challenge_add(&c, text, half);
        challenge_add(&c, text + half, size - half);
        check_text(c.realm);
        check_text(c.service);
        check_text(c.scope);
        if (c.kind == CHALLENGE_BEARER && !*c.realm)
                abort();
        return 0;
}
