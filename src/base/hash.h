/* FNV-1a: for tables and for telling texts apart, never against somebody who chooses the texts. */
#pragma once

#include <stdint.h>

static inline uint64_t hash_text(const char *text)
{
        uint64_t h = UINT64_C(0xcbf29ce484222325);

        for (; *text; text++)
                h = (h ^ (uint64_t)(unsigned char)*text) * UINT64_C(0x100000001b3);
        return h;
}

static inline uint64_t hash_add(uint64_t h, uint64_t number)
{
        return (h ^ number) * UINT64_C(0x100000001b3);
}
