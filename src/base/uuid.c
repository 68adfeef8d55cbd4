/* Making and reading UUIDs, and random bytes. */
#include "base/uuid.h"

#include <ctype.h>
#include <errno.h>
#include <sys/random.h>

#include "base/clock.h"

static const char digits[] = "0123456789abcdef";

void random_bytes(void *p, size_t n)
{
        char *at = p;

        while (n > 0) {
                ssize_t got = getrandom(at, n, 0);

                if (got < 0) {
                        if (errno == EINTR)
                                continue;
                        abort();
                }
                at += got;
                n -= (size_t)got;
        }
}

void random_hex(char *ret, size_t n)
{
        unsigned char raw[64];

        if (n > sizeof(raw))
                abort();
        random_bytes(raw, n);
        for (size_t i = 0; i < n; i++) {
                ret[2 * i] = digits[raw[i] >> 4];
                ret[2 * i + 1] = digits[raw[i] & 15];
        }
        ret[2 * n] = '\0';
        explicit_bzero(raw, sizeof(raw));
}

/* One system call serves many ids: getrandom() costs more than everything else in uuid_new(). */
static void pooled_random(unsigned char out[16])
{
        static _Thread_local unsigned char pool[512];
        static _Thread_local size_t left;

        if (left < 16) {
                random_bytes(pool, sizeof(pool));
                left = sizeof(pool);
        }
        left -= 16;
        memcpy(out, pool + left, 16);
}

static struct uuid version_4(unsigned char b[16])
{
        struct uuid u;
        char *p = u.s;

        b[6] = (unsigned char)((b[6] & 0x0f) | 0x40);
        b[8] = (unsigned char)((b[8] & 0x3f) | 0x80);
        for (int i = 0; i < 16; i++) {
                if (i == 4 || i == 6 || i == 8 || i == 10)
                        *p++ = '-';
                *p++ = digits[b[i] >> 4];
                *p++ = digits[b[i] & 15];
        }
        *p = '\0';
        return u;
}

struct uuid uuid_new(void)
{
        uint64_t ms = (uint64_t)(clock_wall_us() / US_PER_MS);
        unsigned char b[16];

        pooled_random(b);
        for (int i = 0; i < 6; i++)
                b[i] = (unsigned char)(ms >> (40 - 8 * i));
        return version_4(b);
}

struct uuid uuid_new_run(void)
{
        unsigned char b[16];

        pooled_random(b);
        return version_4(b);
}

bool uuid_parse(const char *text, struct uuid *ret)
{
        struct uuid u;

        for (int i = 0; i < UUID_LEN; i++) {
                unsigned char c = (unsigned char)text[i];

                if (i == 8 || i == 13 || i == 18 || i == 23) {
                        if (c != '-')
                                return false;
                } else if (!isxdigit(c)) {
                        return false;
                }
                u.s[i] = (char)tolower(c);
        }
        if (text[UUID_LEN] != '\0')
                return false;
        u.s[UUID_LEN] = '\0';
        *ret = u;
        return true;
}

bool uuid_is_valid(const char *text)
{
        struct uuid u;

        return uuid_parse(text, &u);
}
