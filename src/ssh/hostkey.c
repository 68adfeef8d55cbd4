/* Fingerprints and lines of host keys. */
#include "ssh/hostkey.h"

#include <sodium.h>
#include <stdio.h>

#define KEY_MAX 16384

static const char *word(const char **at, const char *end, size_t *ret_len)
{
        while (*at < end && (**at == ' ' || **at == '\t'))
                (*at)++;
        const char *begin = *at;
        while (*at < end && **at != ' ' && **at != '\t')
                (*at)++;
        *ret_len = (size_t)(*at - begin);
        return begin;
}

/* [@marker] names type base64 [comment] */
bool hostkey_fingerprint(const char *line, size_t len, char out[FINGERPRINT_MAX])
{
        const char *at = line, *end = line + len, *key;
        unsigned char digest[crypto_hash_sha256_BYTES], raw[KEY_MAX];
        char text[sodium_base64_ENCODED_LEN(sizeof(digest),
                                            sodium_base64_VARIANT_ORIGINAL_NO_PADDING)];
        size_t n, n_raw;

        key = word(&at, end, &n);
        if (n == 0 || *key == '#')
                return false;
        if (*key == '@')
                (void)word(&at, end, &n);
        (void)word(&at, end, &n);
        key = word(&at, end, &n);
        if (n > 0 && key[n - 1] == '\r')
                n--;
        if (n == 0 || sodium_base642bin(raw, sizeof(raw), key, n, NULL, &n_raw, NULL,
                                        sodium_base64_VARIANT_ORIGINAL) < 0)
                return false;
        (void)crypto_hash_sha256(digest, raw, n_raw);
        (void)sodium_bin2base64(text, sizeof(text), digest, sizeof(digest),
                                sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
        snprintf(out, FINGERPRINT_MAX, "SHA256:%s", text);
        return true;
}

const char *hostkey_line(const char *text, size_t number, size_t *ret_len)
{
        for (size_t i = 1; *text; i++) {
                size_t n = strcspn(text, "\n");

                if (i == number) {
                        *ret_len = n;
                        return text;
                }
                text += n + (text[n] != '\0');
        }
        return NULL;
}
