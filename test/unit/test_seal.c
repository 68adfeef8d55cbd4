#include "test.h"

#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "codec/json.h"
#include "secret/seal.h"
#include "secret/vault.h"

static const struct seal_place here = { "company", "secret", 1 };

struct world {
        char dir[SCRATCH_PATH_MAX];
        char file[SCRATCH_PATH_MAX + 16], next[SCRATCH_PATH_MAX + 24];
        struct arena arena;
        struct err err;
};

static int load(struct world *w, bool has_sealed)
{
        struct master_key_source source = { .file = w->file, .is_ours = true };

        return master_key_load(&source, has_sealed, &w->err);
}

static int setup(void **state)
{
        struct world *w = xcalloc(1, sizeof(*w));

        assert_true(sodium_init() >= 0);
        make_scratch(w->dir);
        snprintf(w->file, sizeof(w->file), "%s/master.key", w->dir);
        snprintf(w->next, sizeof(w->next), "%s.next", w->file);
        arena_init(&w->arena);
        assert_int_equal(load(w, false), 0);
        *state = w;
        return 0;
}

static int teardown(void **state)
{
        struct world *w = *state;

        master_key_unload();
        (void)remove(w->file);
        (void)remove(w->next);
        assert_int_equal(remove(w->dir), 0);
        arena_done(&w->arena);
        err_done(&w->err);
        free(w);
        return 0;
}

static const char *sealed(struct world *w, const char *text)
{
        struct secret_value value;
        const char *material = NULL;

        assert_int_equal(secret_value_set(&value, text, strlen(text), NULL), 0);
        assert_int_equal(seal(&w->arena, &here, &value, &material, NULL), 0);
        secret_value_done(&value);
        return material;
}

static void opens(const struct seal_place *place, const char *material, const char *text)
{
        struct secret_value value;
        struct err e = { 0 };

        if (seal_open(place, material, &value, &e) < 0)
                fail_msg("%s", e.msg);
        assert_int_equal(value.len, strlen(text));
        assert_string_equal(value.data, text);
        secret_value_done(&value);
}

static void refused(const struct seal_place *place, const char *material, int code,
                    const char *part)
{
        struct secret_value value;
        struct err e = { 0 };

        assert_int_equal(seal_open(place, material, &value, &e), code);
        if (!strstr(e.msg, part))
                fail_msg("'%s' does not contain '%s'", e.msg, part);
        assert_null(value.data);
        err_done(&e);
}

static void test_there_and_back(void **state)
{
        struct world *w = *state;
        const char *material = sealed(w, "hunter2");

        assert_null(strstr(material, "hunter2"));
        opens(&here, material, "hunter2");
        opens(&here, sealed(w, ""), "");
        assert_string_not_equal(material, sealed(w, "hunter2"));
}

static void test_a_row_that_was_moved_does_not_open(void **state)
{
        struct world *w = *state;
        const char *material = sealed(w, "hunter2");

        refused(&(struct seal_place){ "other", "secret", 1 }, material, ERR_UNPROCESSABLE,
                "damaged");
        refused(&(struct seal_place){ "company", "other", 1 }, material, ERR_UNPROCESSABLE,
                "damaged");
        refused(&(struct seal_place){ "company", "secret", 2 }, material, ERR_UNPROCESSABLE,
                "damaged");
}

/* Every bit of every digit counts, or is not taken for one. */
static void test_no_flipped_bit_is_taken(void **state)
{
        struct world *w = *state;
        const char *material = sealed(w, "hunter2");
        size_t n = strlen(material);

        for (size_t i = 0; i < n; i++)
                for (int bit = 0; bit < 8; bit++) {
                        char *copy = xstrdup(material);
                        struct secret_value value;

                        copy[i] = (char)(copy[i] ^ (1 << bit));
                        if (seal_open(&here, copy, &value, NULL) >= 0)
                                fail_msg("opened with bit %d of byte %zu flipped", bit, i);
                        free(copy);
                }
}

static void test_foreign_material(void **state)
{
        static const char *const foreign[] = {
                "",
                "{}",
                "[]",
                "null",
                "{\"scheme\":\"other\"}",
                "{\"scheme\":\"berth_sealed_v1\",\"key\":\"x\",\"nonce\":\"AA==\",\"box\":\"\"}",
                "{\"scheme\":\"local_encrypted_v1\",\"iv\":\"AA==\",\"tag\":\"\"}",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(foreign); i++)
                refused(&here, foreign[i], ERR_INVALID, "Invalid local_encrypted secret material");
}

static void test_the_mark_tells_nothing_without_the_key(void **state)
{
        struct world *w = *state;
        char one[SEAL_MARK_LEN + 1], again[SEAL_MARK_LEN + 1], plain[65];
        unsigned char hash[32];
        struct secret_value value;

        assert_int_equal(secret_value_set(&value, "hunter2", 7, NULL), 0);
        assert_int_equal(seal_mark(&here, &value, one, NULL), 0);
        assert_int_equal(
                seal_mark(&(struct seal_place){ "company", "secret", 9 }, &value, again, NULL), 0);
        assert_string_equal(one, again);
        crypto_hash_sha256(hash, (const unsigned char *)"hunter2", 7);
        sodium_bin2hex(plain, sizeof(plain), hash, sizeof(hash));
        assert_string_not_equal(one, plain); /* H27 */
        assert_int_equal(remove(w->file), 0);
        assert_int_equal(load(w, false), 0);
        assert_int_equal(seal_mark(&here, &value, again, NULL), 0);
        assert_string_not_equal(one, again);
        secret_value_done(&value);
}

static void test_decoding_keys(void **state)
{
        static const char hex[] =
                "000102030405060708090a0b0c0d0e0f101112131415161718191a1B1C1D1E1F";
        static const char base64[] = " AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=\n";
        unsigned char a[MASTER_KEY_BYTES], b[MASTER_KEY_BYTES];

        (void)state;
        assert_true(master_key_decode(hex, strlen(hex), a));
        assert_true(master_key_decode(base64, strlen(base64), b));
        assert_memory_equal(a, b, sizeof(a));
        assert_true(master_key_decode(base64, strlen(base64) - 2, b)); /* no padding */
        assert_memory_equal(a, b, sizeof(a));
        assert_true(master_key_decode("0123456789abcdef0123456789abcdef", 32, a));
        assert_memory_equal(a, "0123456789abcdef0123456789abcdef", 32);
        assert_false(master_key_decode(hex, 63, a));
        assert_false(master_key_decode("", 0, a));
        assert_false(master_key_decode(base64, 20, a));
        assert_false(
                master_key_decode("zz0102030405060708090a0b0c0d0e0f101112131415161718191a1B1C1D"
                                  "1E1F",
                                  64, a));
}

/* H29 */
static void test_a_missing_key_is_not_made_anew(void **state)
{
        struct world *w = *state;
        const char *material = sealed(w, "hunter2");
        struct stat st;

        assert_int_equal(stat(w->file, &st), 0);
        assert_int_equal(st.st_mode & 07777, 0600);
        assert_int_equal(remove(w->file), 0);
        assert_int_equal(load(w, true), ERR_UNPROCESSABLE);
        refused(&here, material, ERR_UNPROCESSABLE, "is missing");
        assert_int_equal(stat(w->file, &st), -1);
}

static void test_a_wrong_key_is_named(void **state)
{
        struct world *w = *state;
        const char *material = sealed(w, "hunter2");

        assert_int_equal(remove(w->file), 0);
        assert_int_equal(load(w, false), 0);
        refused(&here, material, ERR_UNPROCESSABLE, "it was sealed with master key");
}

static void test_a_truncated_key(void **state)
{
        struct world *w = *state;

        assert_int_equal(file_write_at(AT_FDCWD, w->file, "AAEC", 4, 0600, NULL), 0);
        assert_int_equal(load(w, true), ERR_INVALID);
        assert_non_null(strstr(w->err.msg, "Invalid secrets master key at "));
        refused(&here,
                "{\"scheme\":\"berth_sealed_v1\",\"key\":\"0011223344556677\",\"nonce\":"
                "\"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\",\"box\":"
                "\"AAAAAAAAAAAAAAAAAAAAAA==\"}",
                ERR_UNPROCESSABLE, "Invalid secrets master key at ");
}

static void test_changing_the_key(void **state)
{
        struct world *w = *state;
        const char *old = sealed(w, "hunter2"), *newer;
        char id[MASTER_KEY_ID_LEN + 1];

        assert_int_equal(master_key_begin_change(NULL), 0);
        assert_true(master_key_is_changing());
        newer = sealed(w, "hunter3");
        opens(&here, old, "hunter2");
        /* a crash here: both files are there, and both keys known again */
        master_key_unload();
        assert_int_equal(load(w, true), 0);
        opens(&here, old, "hunter2");
        opens(&here, newer, "hunter3");
        assert_true(seal_key_of(old, id));
        assert_true(master_key_is_current(id));
        assert_false(master_key_retire_other(id)); /* that is the old one */
        assert_true(seal_key_of(newer, id));
        assert_true(master_key_retire_other(id));
        assert_true(seal_key_of(old, id));
        assert_false(master_key_is_current(id)); /* it still opens, but nothing may be stored */
        opens(&here, old, "hunter2");
        assert_int_equal(master_key_end_change(NULL), 0);
        refused(&here, old, ERR_UNPROCESSABLE, "it was sealed with master key");
        opens(&here, newer, "hunter3");
        master_key_unload();
        assert_int_equal(load(w, true), 0);
        opens(&here, newer, "hunter3");
        assert_false(master_key_is_changing());
}

/* As Paperclip writes it: AES-256-GCM under the master key itself, the tag apart. The bytes are
 * test case 14 of the specification of GCM: all zero, 16 of them. */
static void test_paperclips_form(void **state)
{
        static const char material[] =
                "{\"scheme\":\"local_encrypted_v1\",\"iv\":\"AAAAAAAAAAAAAAAA\",\"tag\":"
                "\"0NHIp5mZa/AmW5i11Iq5GQ==\",\"ciphertext\":\"zqdAPU1ga24HTsXTuvOdGA==\"}";
        static const char zero[16];
        struct world *w = *state;
        struct secret_value value;
        struct master_key_source source = {
                .text = "0000000000000000000000000000000000000000000000000000000000000000",
                .variable = "PAPERCLIP_SECRETS_MASTER_KEY",
        };

        if (!crypto_aead_aes256gcm_is_available())
                skip();
        refused(&here, material, ERR_UNPROCESSABLE, "BERTH_SECRETS_OLD_KEY");
        assert_int_equal(master_key_load(&source, true, NULL), 0);
        assert_int_equal(seal_open(&here, material, &value, NULL), 0);
        assert_int_equal(value.len, 16);
        assert_memory_equal(value.data, zero, 16);
        secret_value_done(&value);
        /* and with Paperclip's key as the old one, also after everything was sealed anew */
        source = (struct master_key_source){ .file = w->file,
                                             .is_ours = true,
                                             .old_text = source.text,
                                             .old_variable = "BERTH_SECRETS_OLD_KEY" };
        assert_int_equal(master_key_load(&source, true, NULL), 0);
        assert_true(master_key_is_changing());
        for (int i = 0; i < 2; i++) {
                char id[MASTER_KEY_ID_LEN + 1];

                assert_int_equal(seal_open(&here, material, &value, NULL), 0);
                secret_value_done(&value);
                assert_true(seal_key_of(sealed(w, "x"), id));
                assert_true(master_key_retire_other(id));
                assert_int_equal(master_key_end_change(NULL), 0);
                assert_false(master_key_is_changing());
        }
}

static void test_a_value_has_a_limit(void **state)
{
        char *large = xcalloc(1, SECRET_VALUE_MAX + 1);
        struct secret_value value;

        (void)state;
        assert_int_equal(secret_value_set(&value, large, SECRET_VALUE_MAX, NULL), 0);
        secret_value_done(&value);
        assert_int_equal(secret_value_set(&value, large, SECRET_VALUE_MAX + 1, NULL),
                         ERR_TOO_LARGE);
        assert_null(value.data);
        free(large);
}

static void test_failures_of_vaults(void **state)
{
        static const int codes[] = { ERR_CONFLICT,      ERR_NOT_FOUND, ERR_FORBIDDEN, ERR_THROTTLED,
                                     ERR_UNPROCESSABLE, ERR_BUSY,      ERR_PROVIDER };

        (void)state;
        for (int i = VAULT_CONFLICT; i <= VAULT_ERROR; i++) {
                struct err e = { 0 };

                assert_int_equal(vault_fail(&e, (enum vault_failure)i, "text"), codes[i]);
                assert_int_equal(vault_failure_of(&e), i);
                err_done(&e);
        }
        assert_int_equal(vault_failure_of(&(struct err){ 0 }), -1);
}

int main(void)
{
#define KEYED(test) cmocka_unit_test_setup_teardown(test, setup, teardown)
        const struct CMUnitTest tests[] = {
                KEYED(test_there_and_back),
                KEYED(test_a_row_that_was_moved_does_not_open),
                KEYED(test_no_flipped_bit_is_taken),
                KEYED(test_foreign_material),
                KEYED(test_the_mark_tells_nothing_without_the_key),
                cmocka_unit_test(test_decoding_keys),
                KEYED(test_a_missing_key_is_not_made_anew),
                KEYED(test_a_wrong_key_is_named),
                KEYED(test_a_truncated_key),
                KEYED(test_changing_the_key),
                KEYED(test_paperclips_form),
                cmocka_unit_test(test_a_value_has_a_limit),
                cmocka_unit_test(test_failures_of_vaults),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
