/* Which bytes are a UTF-8 character, and how many are skipped when they are none. */
#include "base/utf8.h"

/* The first byte decides which second bytes are valid: that is where overlong forms, surrogates and
 * too large code points are caught. Every later byte is 80..BF. */
static size_t lead(unsigned char c, unsigned char *ret_low, unsigned char *ret_high)
{
        *ret_low = c == 0xe0 ? 0xa0 : c == 0xf0 ? 0x90 : 0x80;
        *ret_high = c == 0xed ? 0x9f : c == 0xf4 ? 0x8f : 0xbf;
        if (c < 0x80)
                return 1;
        if (c >= 0xc2 && c <= 0xdf)
                return 2;
        if (c >= 0xe0 && c <= 0xef)
                return 3;
        return c >= 0xf0 && c <= 0xf4 ? 4 : 0;
}

bool utf8_next(const char *s, size_t n, size_t *ret_len, uint32_t *ret_point)
{
        const unsigned char *u = (const unsigned char *)s;
        unsigned char low, high;
        size_t need = lead(u[0], &low, &high);

        *ret_len = 1;
        if (need == 0)
                return false;
        uint32_t point = need == 1 ? u[0] : u[0] & (0x7fU >> need);
        for (size_t i = 1; i < need; i++) {
                if (i >= n || u[i] < low || u[i] > high) {
                        *ret_len = i;
                        return false;
                }
                point = point << 6 | (u[i] & 0x3fU);
                low = 0x80;
                high = 0xbf;
        }
        *ret_len = need;
        if (ret_point)
                *ret_point = point;
        return true;
}

bool utf8_is_valid(const char *s, size_t n)
{
        size_t len;

        for (; n > 0; s += len, n -= len)
                if (!utf8_next(s, n, &len, NULL))
                        return false;
        return true;
}

size_t utf8_unfinished(const char *s, size_t n)
{
        for (size_t back = 1; back <= 3 && back <= n; back++) {
                const char *at = s + n - back;
                unsigned char low, high;
                size_t len;

                if (((unsigned char)*at & 0xc0) == 0x80)
                        continue;
                return lead((unsigned char)*at, &low, &high) > back &&
                                       !utf8_next(at, back, &len, NULL) && len == back
                               ? back
                               : 0;
        }
        return 0;
}

size_t utf8_bytes(uint32_t point, char ret[4])
{
        unsigned char u[4];
        size_t n = point < 0x80 ? 1 : point < 0x800 ? 2 : point < 0x10000 ? 3 : 4;

        for (size_t i = n - 1; i > 0; i--) {
                u[i] = (unsigned char)(0x80 | (point & 0x3f));
                point >>= 6;
        }
        u[0] = (unsigned char)(n == 1 ? point : (0xf00U >> n & 0xf0U) | point);
        memcpy(ret, u, n);
        return n;
}
