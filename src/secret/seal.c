/* Seals values with the master key, and opens them. */
#include "secret/seal.h"

#include <sodium.h>
#include <stdio.h>

#include "codec/json.h"

#define NONCE_BYTES crypto_aead_xchacha20poly1305_ietf_NPUBBYTES
#define TAG_BYTES   crypto_aead_xchacha20poly1305_ietf_ABYTES
#define BOX_MAX     (SECRET_VALUE_MAX + TAG_BYTES)
#define AD_MAX      256

#define FOREIGN "Invalid local_encrypted secret material"

/* Keys for one purpose each, so that no two uses share one. */
enum purpose { FOR_SEALING = 1, FOR_MARKS = 2 };

static void derive(const struct master_key *master, enum purpose purpose,
                   unsigned char ret[crypto_kdf_KEYBYTES])
{
        (void)crypto_kdf_derive_from_key(ret, crypto_kdf_KEYBYTES, (uint64_t)purpose, "berthsec",
                                         master->bytes);
}

/* Lengths are fixed by the form of ids, and the separators cannot stand in one: no two places give
 * the same bytes. */
static size_t describe_place(const struct seal_place *place, char ret[AD_MAX])
{
        int n = snprintf(ret, AD_MAX, "%s\n%s\n%s\n%lld", SEAL_SCHEME, place->company_id,
                         place->secret_id, (long long)place->version);

        return MIN((size_t)n, (size_t)AD_MAX - 1);
}

static char *base64(struct arena *arena, const unsigned char *bytes, size_t len)
{
        size_t size = sodium_base64_encoded_len(len, sodium_base64_VARIANT_ORIGINAL);
        char *text = arena_alloc(arena, size);

        sodium_bin2base64(text, size, bytes, len, sodium_base64_VARIANT_ORIGINAL);
        return text;
}

int seal(struct arena *arena, const struct seal_place *place, const struct secret_value *value,
         const char **ret, struct err *err)
{
        CLEAN(master_key_done) struct master_key master = { 0 };
        unsigned char key[crypto_kdf_KEYBYTES], nonce[NONCE_BYTES];
        size_t len = value->len + TAG_BYTES;
        char ad[AD_MAX];
        int r = master_key_current(&master, err);

        if (r < 0)
                return r;
        unsigned char *box = arena_alloc(arena, len);
        size_t ad_len = describe_place(place, ad);
        randombytes_buf(nonce, sizeof(nonce));
        derive(&master, FOR_SEALING, key);
        (void)crypto_aead_xchacha20poly1305_ietf_encrypt(
                box, NULL, (const unsigned char *)value->data, value->len,
                (const unsigned char *)ad, ad_len, NULL, nonce, key);
        sodium_memzero(key, sizeof(key));
        *ret = arena_printf(
                arena,
                "{\"scheme\":\"" SEAL_SCHEME "\",\"key\":\"%s\",\"nonce\":\"%s\",\"box\":\"%s\"}",
                master.id, base64(arena, nonce, sizeof(nonce)), base64(arena, box, len));
        return 0;
}

/* Opening */

/* The bytes of a base64 member; strict, so that one value has one form. */
static bool member_bytes(const json_t *material, const char *name, size_t max, struct buf *ret)
{
        const char *text = json_get_string(material, name);
        size_t len, n;

        if (!text)
                return false;
        len = strlen(text);
        if (len > max / 3 * 4 + 8 || !buf_reserve(ret, len + 1))
                return false;
        if (sodium_base642bin((unsigned char *)ret->data, ret->cap, text, len, NULL, &n, NULL,
                              sodium_base64_VARIANT_ORIGINAL) != 0)
                return false;
        buf_grew(ret, n);
        return n <= max;
}

static int damaged(struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE,
                       "it is damaged, or belongs to another secret: the sealed value does not "
                       "open");
}

static int open_ours(const struct seal_place *place, const json_t *material,
                     struct secret_value *ret, struct err *err)
{
        CLEAN(master_key_done) struct master_key master = { 0 };
        CLEAN(buf_done) struct buf nonce = BUF_INIT;
        CLEAN(buf_done) struct buf box = BUF_INIT;
        const char *id = json_get_string(material, "key");
        unsigned char key[crypto_kdf_KEYBYTES];
        char ad[AD_MAX];

        if (!id || !member_bytes(material, "nonce", NONCE_BYTES, &nonce) ||
            nonce.len != NONCE_BYTES || !member_bytes(material, "box", BOX_MAX, &box) ||
            box.len < TAG_BYTES)
                return err_set(err, ERR_INVALID, FOREIGN);
        int r = master_key_find(id, &master, err);
        if (r < 0) {
                err->code = ERR_UNPROCESSABLE;
                return ERR_UNPROCESSABLE;
        }
        r = secret_value_alloc(ret, box.len - TAG_BYTES, err);
        if (r < 0)
                return r;
        size_t ad_len = describe_place(place, ad);
        derive(&master, FOR_SEALING, key);
        r = crypto_aead_xchacha20poly1305_ietf_decrypt(
                (unsigned char *)ret->data, NULL, NULL, (const unsigned char *)box.data, box.len,
                (const unsigned char *)ad, ad_len, (const unsigned char *)nonce.data, key);
        sodium_memzero(key, sizeof(key));
        if (r == 0)
                return 0;
        secret_value_done(ret);
        return damaged(err);
}

/* Paperclip's form does not say which key it needs: the current one is tried, then the other. */
static int try_seed(int (*get)(struct master_key *ret, struct err *err), const struct buf *iv,
                    const struct buf *box, struct secret_value *ret, struct err *err)
{
        CLEAN(master_key_done) struct master_key master = { 0 };
        int r = get(&master, err);

        if (r < 0)
                return r;
        if (crypto_aead_aes256gcm_decrypt((unsigned char *)ret->data, NULL, NULL,
                                          (const unsigned char *)box->data, box->len, NULL, 0,
                                          (const unsigned char *)iv->data, master.bytes) == 0)
                return 0;
        return err_set(err, ERR_UNPROCESSABLE,
                       "it is damaged, or was sealed by Paperclip with another master key than "
                       "this daemon has; give that one as BERTH_SECRETS_OLD_KEY");
}

static int open_seed(const json_t *material, struct secret_value *ret, struct err *err)
{
        CLEAN(buf_done) struct buf iv = BUF_INIT;
        CLEAN(buf_done) struct buf tag = BUF_INIT;
        CLEAN(buf_done) struct buf box = BUF_INIT;

        if (!member_bytes(material, "iv", crypto_aead_aes256gcm_NPUBBYTES, &iv) ||
            iv.len != crypto_aead_aes256gcm_NPUBBYTES ||
            !member_bytes(material, "tag", crypto_aead_aes256gcm_ABYTES, &tag) ||
            tag.len != crypto_aead_aes256gcm_ABYTES ||
            !member_bytes(material, "ciphertext", SECRET_VALUE_MAX, &box))
                return err_set(err, ERR_INVALID, FOREIGN);
        if (!crypto_aead_aes256gcm_is_available())
                return err_set(err, ERR_UNPROCESSABLE,
                               "it was sealed by Paperclip with AES-256-GCM, and this processor "
                               "lacks the AES instructions that are needed to open that; bring it "
                               "over on a machine that has them");
        int r = secret_value_alloc(ret, box.len, err);
        if (r < 0)
                return r;
        buf_append(&box, tag.data, tag.len);
        r = try_seed(master_key_current, &iv, &box, ret, err);
        if (r == ERR_UNPROCESSABLE && try_seed(master_key_other, &iv, &box, ret, NULL) >= 0) {
                err_clear(err);
                r = 0;
        }
        if (r < 0)
                secret_value_done(ret);
        return r;
}

int seal_open(const struct seal_place *place, const char *material, struct secret_value *ret,
              struct err *err)
{
        struct err local = { 0 };
        struct err *why = err ? err : &local;
        json_t *doc = NULL;
        int r;

        *ret = (struct secret_value){ 0 };
        if (json_parse(material, strlen(material), &doc, NULL) < 0)
                return err_set(err, ERR_INVALID, FOREIGN);
        const char *scheme = json_get_string(doc, "scheme");
        if (scheme && streq(scheme, SEAL_SCHEME))
                r = open_ours(place, doc, ret, why);
        else if (scheme && streq(scheme, SEAL_SEED_SCHEME))
                r = open_seed(doc, ret, why);
        else
                r = err_set(why, ERR_INVALID, FOREIGN);
        json_decref(doc);
        err_done(&local);
        return r;
}

int seal_mark(const struct seal_place *place, const struct secret_value *value,
              char ret[SEAL_MARK_LEN + 1], struct err *err)
{
        CLEAN(master_key_done) struct master_key master = { 0 };
        unsigned char key[crypto_kdf_KEYBYTES], hash[SEAL_MARK_LEN / 2];
        crypto_generichash_state state;
        int r = master_key_current(&master, err);

        if (r < 0)
                return r;
        derive(&master, FOR_MARKS, key);
        crypto_generichash_init(&state, key, sizeof(key), sizeof(hash));
        crypto_generichash_update(&state, (const unsigned char *)place->secret_id,
                                  strlen(place->secret_id) + 1);
        crypto_generichash_update(&state, (const unsigned char *)value->data, value->len);
        crypto_generichash_final(&state, hash, sizeof(hash));
        sodium_bin2hex(ret, SEAL_MARK_LEN + 1, hash, sizeof(hash));
        sodium_memzero(key, sizeof(key));
        sodium_memzero(&state, sizeof(state));
        return 0;
}

bool seal_key_of(const char *material, char ret[MASTER_KEY_ID_LEN + 1])
{
        json_t *doc = NULL;
        bool known = false;

        if (json_parse(material, strlen(material), &doc, NULL) < 0)
                return false;
        const char *scheme = json_get_string(doc, "scheme");
        const char *id = json_get_string(doc, "key");
        ret[0] = '\0';
        if (scheme && streq(scheme, SEAL_SEED_SCHEME))
                known = true;
        else if (scheme && streq(scheme, SEAL_SCHEME) && id && strlen(id) == MASTER_KEY_ID_LEN)
                known = true, memcpy(ret, id, MASTER_KEY_ID_LEN + 1);
        json_decref(doc);
        return known;
}
