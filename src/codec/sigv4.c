/* Builds the canonical request of Signature Version 4 and signs it. */
#include "codec/sigv4.h"

#include <sodium.h>
#include <stdio.h>

#include "base/clock.h"

#define ALGORITHM   "AWS4-HMAC-SHA256"
#define TERMINATOR  "aws4_request"
#define DAY_LEN     8
#define KEY_LEN     crypto_auth_hmacsha256_BYTES
#define MAX_REQUEST ((size_t)64 << 10) /* of the text that is signed, which has no body in it */

void sigv4_date(int64_t us, char ret[SIGV4_DATE_LEN + 1])
{
        char iso[ISO_TIME_LEN + 1];
        size_t n = 0;

        /* 2015-08-30T12:36:00.000Z without punctuation and fraction. */
        clock_iso(us, iso);
        for (const char *c = iso; *c != '.'; c++)
                if (*c != '-' && *c != ':')
                        ret[n++] = *c;
        ret[n++] = 'Z';
        ret[n] = '\0';
}

void sigv4_hash(const void *data, size_t len, char ret[SIGV4_HASH_LEN + 1])
{
        unsigned char digest[crypto_hash_sha256_BYTES];

        (void)crypto_hash_sha256(digest, data, len);
        sodium_bin2hex(ret, SIGV4_HASH_LEN + 1, digest, sizeof(digest));
}

static void hmac(const void *key, size_t key_len, const char *data, size_t len,
                 unsigned char ret[KEY_LEN])
{
        crypto_auth_hmacsha256_state state;

        (void)crypto_auth_hmacsha256_init(&state, key, key_len);
        (void)crypto_auth_hmacsha256_update(&state, (const unsigned char *)data, len);
        (void)crypto_auth_hmacsha256_final(&state, ret);
        sodium_memzero(&state, sizeof(state));
}

/* The key for one day, region and service. */
static void derive(const struct sigv4_key *key, const char *date, unsigned char ret[KEY_LEN])
{
        CLEAN(buf_wipe) struct buf whole = BUF_INIT;
        unsigned char first[KEY_LEN];
        size_t len = strlen(key->secret);

        /* In one step: a buffer that grows leaves a copy behind. */
        if (!buf_reserve(&whole, len + sizeof("AWS4")))
                memory_exhausted();
        buf_puts(&whole, "AWS4");
        buf_append(&whole, key->secret, len);
        hmac(whole.data, whole.len, date, DAY_LEN, first);
        hmac(first, sizeof(first), key->region, strlen(key->region), ret);
        hmac(ret, KEY_LEN, key->service, strlen(key->service), first);
        hmac(first, sizeof(first), TERMINATOR, strlen(TERMINATOR), ret);
        sodium_memzero(first, sizeof(first));
}

static bool is_date(const char *date)
{
        static const char shape[] = "ddddddddTddddddZ";

        if (strlen(date) != SIGV4_DATE_LEN)
                return false;
        for (size_t i = 0; i < SIGV4_DATE_LEN; i++)
                if (shape[i] == 'd' ? date[i] < '0' || date[i] > '9' : date[i] != shape[i])
                        return false;
        return true;
}

static int check_header(const struct sigv4_header *h, struct err *err)
{
        if (!*h->name || strpbrk(h->name, "\r\n:; ABCDEFGHIJKLMNOPQRSTUVWXYZ"))
                return err_set(err, ERR_INVALID, "a header's name cannot be signed");
        if (strpbrk(h->value, "\r\n"))
                return err_set(err, ERR_INVALID, "the header %.100s cannot be signed", h->name);
        return 0;
}

/* Sort by name; n is small. */
static int sort_headers(const struct sigv4_request *q, struct sigv4_header *ret, struct err *err)
{
        for (size_t i = 0; i < q->n_headers; i++) {
                struct sigv4_header h = q->headers[i];
                size_t at = i;
                int r = check_header(&h, err);

                if (r < 0)
                        return r;
                for (; at > 0 && strcmp(ret[at - 1].name, h.name) > 0; at--)
                        ret[at] = ret[at - 1];
                ret[at] = h;
                if (at > 0 && streq(ret[at - 1].name, h.name))
                        return err_set(err, ERR_INVALID, "the header %.100s is there twice",
                                       h.name);
        }
        return 0;
}

/* Without blanks at the ends, and one blank for a run of them. */
static void put_value(struct buf *out, const char *value)
{
        bool blank = false;

        value += strspn(value, " \t");
        for (; *value; value++) {
                if (*value == ' ' || *value == '\t') {
                        blank = true;
                        continue;
                }
                if (blank)
                        buf_putc(out, ' ');
                blank = false;
                buf_putc(out, *value);
        }
}

static void put_names(struct buf *out, const struct sigv4_header *headers, size_t n)
{
        for (size_t i = 0; i < n; i++)
                buf_appendf(out, "%s%s", i ? ";" : "", headers[i].name);
}

static void put_canonical(struct buf *out, const struct sigv4_request *q,
                          const struct sigv4_header *headers)
{
        char hash[SIGV4_HASH_LEN + 1];

        buf_appendf(out, "%s\n%s\n\n", q->method, *q->path ? q->path : "/");
        for (size_t i = 0; i < q->n_headers; i++) {
                buf_appendf(out, "%s:", headers[i].name);
                put_value(out, headers[i].value);
                buf_putc(out, '\n');
        }
        buf_putc(out, '\n');
        put_names(out, headers, q->n_headers);
        sigv4_hash(q->body, q->body_len, hash);
        buf_appendf(out, "\n%s", hash);
}

int sigv4_sign(const struct sigv4_request *request, const struct sigv4_key *key, const char *date,
               struct buf *ret_authorization, struct err *err)
{
        CLEAN(buf_wipe) struct buf canonical = { .max = MAX_REQUEST };
        CLEAN(buf_done) struct buf scope = BUF_INIT, to_sign = BUF_INIT;
        struct sigv4_header headers[SIGV4_HEADERS_MAX];
        unsigned char signing_key[KEY_LEN], mac[KEY_LEN];
        char hash[SIGV4_HASH_LEN + 1], signature[SIGV4_HASH_LEN + 1];
        int r;

        if (request->n_headers > SIGV4_HEADERS_MAX)
                return err_set(err, ERR_INVALID, "too many headers to sign");
        if (!is_date(date))
                return err_set(err, ERR_INVALID, "the date cannot be signed");
        r = sort_headers(request, headers, err);
        if (r < 0)
                return r;
        put_canonical(&canonical, request, headers);
        if (buf_failed(&canonical))
                return err_set(err, ERR_INVALID, "the request is too large to sign");

        buf_appendf(&scope, "%.*s/%s/%s/" TERMINATOR, DAY_LEN, date, key->region, key->service);
        sigv4_hash(canonical.data, canonical.len, hash);
        buf_appendf(&to_sign, ALGORITHM "\n%s\n%s\n%s", date, buf_str(&scope), hash);
        derive(key, date, signing_key);
        hmac(signing_key, sizeof(signing_key), buf_str(&to_sign), to_sign.len, mac);
        sodium_bin2hex(signature, sizeof(signature), mac, sizeof(mac));
        sodium_memzero(signing_key, sizeof(signing_key));

        buf_appendf(ret_authorization,
                    ALGORITHM " Credential=%s/%s, SignedHeaders=", key->access_key_id,
                    buf_str(&scope));
        put_names(ret_authorization, headers, request->n_headers);
        buf_appendf(ret_authorization, ", Signature=%s", signature);
        return buf_failed(ret_authorization)
                       ? err_set(err, ERR_INVALID, "the request is too large to sign")
                       : 0;
}
