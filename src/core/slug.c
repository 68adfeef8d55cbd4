/* Turns names into slugs for addresses. */
#include "core/slug.h"

#include <ctype.h>

const char *slug(const char *name, struct arena *arena)
{
        char *out = arena_alloc(arena, strlen(name) + 1);
        size_t n = 0;

        for (; *name; name++) {
                if (isalnum((unsigned char)*name))
                        out[n++] = (char)tolower((unsigned char)*name);
                else if (n > 0 && out[n - 1] != '-')
                        out[n++] = '-';
        }
        while (n > 0 && out[n - 1] == '-')
                n--;
        out[n] = '\0';
        return out;
}
