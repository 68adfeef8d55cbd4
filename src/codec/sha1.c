/* SHA-1 of a text. */
#include "codec/sha1.h"

#define BLOCK 64

static uint32_t rotate_left(uint32_t x, unsigned n)
{
        return x << n | x >> (32 - n);
}

static void expand_block(const uint8_t block[BLOCK], uint32_t w[80])
{
        for (size_t i = 0; i < 16; i++)
                w[i] = (uint32_t)block[4 * i] << 24 | (uint32_t)block[4 * i + 1] << 16 |
                       (uint32_t)block[4 * i + 2] << 8 | block[4 * i + 3];
        for (size_t i = 16; i < 80; i++)
                w[i] = rotate_left(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
}

static uint32_t mix_words(size_t round, uint32_t b, uint32_t c, uint32_t d)
{
        switch (round / 20) {
        case 0:
                return ((b & c) | (~b & d)) + 0x5a827999;
        case 1:
                return (b ^ c ^ d) + 0x6ed9eba1;
        case 2:
                return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
        default:
                return (b ^ c ^ d) + 0xca62c1d6;
        }
}

static void add_block(uint32_t h[5], const uint8_t block[BLOCK])
{
        uint32_t a = h[0], b = h[1], c = h[2], d = h[3], e = h[4];
        uint32_t w[80];

        expand_block(block, w);
        for (size_t i = 0; i < 80; i++) {
                uint32_t next = rotate_left(a, 5) + mix_words(i, b, c, d) + e + w[i];

                e = d;
                d = c;
                c = rotate_left(b, 30);
                b = a;
                a = next;
        }
        h[0] += a;
        h[1] += b;
        h[2] += c;
        h[3] += d;
        h[4] += e;
}

void sha1(const void *data, size_t len, uint8_t ret[SHA1_BYTES])
{
        uint32_t h[5] = { 0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0 };
        const uint8_t *p = data;
        uint8_t last[2 * BLOCK] = { 0 };
        uint64_t bits = (uint64_t)len * 8;
        size_t rest = len % BLOCK, padded = rest + 9 > BLOCK ? 2 * BLOCK : BLOCK;

        for (size_t at = 0; at + BLOCK <= len; at += BLOCK)
                add_block(h, p + at);
        if (rest)
                memcpy(last, p + len - rest, rest);
        last[rest] = 0x80;
        for (size_t i = 0; i < 8; i++)
                last[padded - 1 - i] = (uint8_t)(bits >> (8 * i));
        for (size_t at = 0; at < padded; at += BLOCK)
                add_block(h, last + at);
        for (size_t i = 0; i < SHA1_BYTES; i++)
                ret[i] = (uint8_t)(h[i / 4] >> (24 - 8 * (i % 4)));
}
