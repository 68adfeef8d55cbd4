/* Loads, makes, rotates and finds the master keys. */
#include "secret/master_key.h"

#include <ctype.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "base/uuid.h"
#include "secret/value.h"

#define KEY_FILE_MAX 4096
#define NEXT_SUFFIX  ".next"

struct held_key {
        struct secret_value bytes;
        char id[MASTER_KEY_ID_LEN + 1];
};

/* `lock` is held for moments only: a transaction may ask for a key. Code that works on files holds
 * `change` instead. */
static struct {
        pthread_mutex_t lock, change;
        struct held_key current, other;
        bool other_is_retired; /* nothing new may be stored under it */
        bool other_is_given;   /* the operator's: kept, to open what may yet be brought over */
        char *variable;        /* NULL: the key is in a file */
        char *file;
        bool is_ours;
        char *problem; /* why there is no current key */
        int problem_code;
} ring = { .lock = PTHREAD_MUTEX_INITIALIZER, .change = PTHREAD_MUTEX_INITIALIZER };

/* Decoding */

/* 32 bytes are 43 digits of either alphabet; the one padding character is optional. */
static bool decode_base64(const char *text, size_t len, unsigned char *ret)
{
        char digits[43];
        size_t n;

        if (len == 44 && text[43] == '=')
                len = 43;
        if (len != sizeof(digits))
                return false;
        for (size_t i = 0; i < len; i++)
                digits[i] = text[i] == '-' ? '+' : text[i] == '_' ? '/' : text[i];
        int r = sodium_base642bin(ret, MASTER_KEY_BYTES, digits, len, NULL, &n, NULL,
                                  sodium_base64_VARIANT_ORIGINAL_NO_PADDING);
        sodium_memzero(digits, sizeof(digits));
        return r == 0 && n == MASTER_KEY_BYTES;
}

bool master_key_decode(const char *text, size_t len, unsigned char ret[MASTER_KEY_BYTES])
{
        size_t n;

        while (len > 0 && isspace((unsigned char)text[len - 1]))
                len--;
        while (len > 0 && isspace((unsigned char)*text)) {
                text++;
                len--;
        }
        if (len == 2 * MASTER_KEY_BYTES)
                return sodium_hex2bin(ret, MASTER_KEY_BYTES, text, len, NULL, &n, NULL) == 0;
        if (decode_base64(text, len, ret))
                return true;
        if (len != MASTER_KEY_BYTES)
                return false;
        memcpy(ret, text, len);
        return true;
}

/* Keys */

static void name_key(const unsigned char *bytes, char ret[MASTER_KEY_ID_LEN + 1])
{
        static const char purpose[] = "berth master key id";
        unsigned char hash[crypto_generichash_BYTES_MIN];

        crypto_generichash(hash, sizeof(hash), (const unsigned char *)purpose, sizeof(purpose) - 1,
                           bytes, MASTER_KEY_BYTES);
        sodium_bin2hex(ret, MASTER_KEY_ID_LEN + 1, hash, MASTER_KEY_ID_LEN / 2);
}

static int hold(struct held_key *key, const unsigned char *bytes, struct err *err)
{
        secret_value_done(&key->bytes);
        name_key(bytes, key->id);
        return secret_value_set(&key->bytes, (const char *)bytes, MASTER_KEY_BYTES, err);
}

static void let_go(struct held_key *key)
{
        secret_value_done(&key->bytes);
        key->id[0] = '\0';
}

static int copy_out(const struct held_key *key, struct master_key *ret, struct err *err)
{
        struct secret_value copy;
        int r = secret_value_set(&copy, key->bytes.data, key->bytes.len, err);

        if (r < 0)
                return r;
        ret->bytes = (unsigned char *)copy.data;
        memcpy(ret->id, key->id, sizeof(ret->id));
        return 0;
}

void master_key_done(struct master_key *key)
{
        struct secret_value copy = { (char *)key->bytes, MASTER_KEY_BYTES };

        if (key->bytes)
                secret_value_done(&copy);
        *key = (struct master_key){ 0 };
}

static int no_key(struct err *err)
{
        return err_set(err, ring.problem ? ring.problem_code : ERR_UNPROCESSABLE, "%s",
                       ring.problem ? ring.problem : "There is no master key for secrets");
}

int master_key_current(struct master_key *ret, struct err *err)
{
        pthread_mutex_lock(&ring.lock);
        int r = ring.current.bytes.data ? copy_out(&ring.current, ret, err) : no_key(err);
        pthread_mutex_unlock(&ring.lock);
        return r;
}

int master_key_find(const char *id, struct master_key *ret, struct err *err)
{
        int r;

        pthread_mutex_lock(&ring.lock);
        if (!ring.current.bytes.data)
                r = no_key(err);
        else if (streq(id, ring.current.id))
                r = copy_out(&ring.current, ret, err);
        else if (ring.other.bytes.data && streq(id, ring.other.id))
                r = copy_out(&ring.other, ret, err);
        else
                r = err_set(err, ERR_NOT_FOUND,
                            "it was sealed with master key %s, and this daemon has %s", id,
                            ring.current.id);
        pthread_mutex_unlock(&ring.lock);
        return r;
}

int master_key_other(struct master_key *ret, struct err *err)
{
        pthread_mutex_lock(&ring.lock);
        int r = ring.other.bytes.data ? copy_out(&ring.other, ret, err)
                                      : err_set(err, ERR_NOT_FOUND, "there is one master key only");
        pthread_mutex_unlock(&ring.lock);
        return r;
}

bool master_key_is_current(const char *id)
{
        pthread_mutex_lock(&ring.lock);
        bool yes = ring.current.bytes.data &&
                   (streq(id, ring.current.id) ||
                    (ring.other.bytes.data && !ring.other_is_retired && streq(id, ring.other.id)));
        pthread_mutex_unlock(&ring.lock);
        return yes;
}

/* Files */

static char *next_file(void)
{
        return xasprintf("%s" NEXT_SUFFIX, ring.file);
}

static int read_key_file(const char *path, struct held_key *key, struct err *err)
{
        CLEAN(buf_wipe) struct buf text = BUF_INIT;
        unsigned char bytes[MASTER_KEY_BYTES];

        buf_init(&text, KEY_FILE_MAX);
        (void)buf_reserve(&text, KEY_FILE_MAX - 1); /* it must not move: that would leave a copy */
        int r = file_read_at(AT_FDCWD, path, KEY_FILE_MAX - 1, &text, err);
        if (r < 0)
                return r;
        if (!master_key_decode(buf_str(&text), text.len, bytes))
                return err_set(err, ERR_INVALID, "Invalid secrets master key at %s", path);
        r = hold(key, bytes, err);
        sodium_memzero(bytes, sizeof(bytes));
        return r;
}

/* Whole or not at all, and never over one that is there: link(2) fails when it exists. */
static int write_key_file(const char *path, struct err *err)
{
        CLEAN(cleanup_free) char *temporary = NULL;
        unsigned char bytes[MASTER_KEY_BYTES];
        char text[sodium_base64_ENCODED_LEN(MASTER_KEY_BYTES, sodium_base64_VARIANT_ORIGINAL) + 1];
        char suffix[17];

        random_hex(suffix, 8);
        temporary = xasprintf("%s.%s.tmp", path, suffix);
        randombytes_buf(bytes, sizeof(bytes));
        sodium_bin2base64(text, sizeof(text) - 1, bytes, sizeof(bytes),
                          sodium_base64_VARIANT_ORIGINAL);
        text[sizeof(text) - 2] = '\n'; /* where the NUL of the digits was */
        int r = file_write_at(AT_FDCWD, temporary, text, sizeof(text) - 1, 0600, err);
        sodium_memzero(bytes, sizeof(bytes));
        sodium_memzero(text, sizeof(text));
        if (r < 0)
                return r;
        if (link(temporary, path) < 0 && errno != EEXIST)
                r = err_sys(err, ERR_IO, errno, "make %s", path);
        if (unlink(temporary) < 0 && r >= 0)
                r = err_sys(err, ERR_IO, errno, "remove %s", temporary);
        return r;
}

static int make_key_file(const char *path, struct err *err)
{
        CLEAN(cleanup_free) char *parent = xstrdup(path);
        char *slash = strrchr(parent, '/');
        int r = 0;

        if (slash && slash != parent) {
                *slash = '\0';
                r = path_make_durable_dirs(parent, 0700, err);
        }
        FAULT("master_key.make.before");
        if (r >= 0)
                r = write_key_file(path, err);
        if (r >= 0)
                r = file_sync_parent(AT_FDCWD, path, err);
        FAULT("master_key.make.after");
        return r;
}

/* Loading */

static int load_text(const char *text, const char *variable, struct held_key *key, struct err *err)
{
        unsigned char bytes[MASTER_KEY_BYTES];

        if (!master_key_decode(text, strlen(text), bytes))
                return err_set(err, ERR_INVALID,
                               "Invalid %s (expected 32-byte base64, 64-char hex, or raw 32-char "
                               "string)",
                               variable);
        int r = hold(key, bytes, err);
        sodium_memzero(bytes, sizeof(bytes));
        return r;
}

/* A change of the key that was begun: the newer file seals, the older one opens. */
static int load_next(struct err *err)
{
        CLEAN(cleanup_free) char *next = next_file();
        struct held_key newer = { 0 };
        int r = read_key_file(next, &newer, err);

        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        pthread_mutex_lock(&ring.lock);
        let_go(&ring.other);
        ring.other = ring.current;
        ring.other_is_retired = ring.other_is_given = false;
        ring.current = newer;
        pthread_mutex_unlock(&ring.lock);
        return 0;
}

static int load_file(bool has_sealed, struct err *err)
{
        struct stat st;

        if (!ring.file)
                return err_set(err, ERR_UNPROCESSABLE, "There is no master key for secrets");
        if (stat(ring.file, &st) == 0 && (st.st_mode & 077))
                (void)chmod(ring.file, 0600);
        int r = read_key_file(ring.file, &ring.current, err);

        if (r == ERR_NOT_FOUND && ring.is_ours && !has_sealed) {
                err_clear(err);
                r = make_key_file(ring.file, err);
                if (r >= 0)
                        r = read_key_file(ring.file, &ring.current, err);
        } else if (r == ERR_NOT_FOUND) {
                r = err_set(err, ERR_UNPROCESSABLE,
                            "The master key of the secrets is missing: %s. Restore the file from a "
                            "backup; a new one would not open what is there",
                            ring.file);
        }
        return r < 0 ? r : load_next(err);
}

static void forget(void)
{
        let_go(&ring.current);
        let_go(&ring.other);
        free(ring.variable);
        free(ring.file);
        free(ring.problem);
        ring.variable = ring.file = ring.problem = NULL;
        ring.other_is_retired = ring.other_is_given = false;
}

static int load_key(const struct master_key_source *source, bool has_sealed, struct err *err)
{
        int r = source->text ? load_text(source->text, source->variable, &ring.current, err)
                             : load_file(has_sealed, err);

        if (r >= 0 && source->old_text && !ring.other.bytes.data) {
                r = load_text(source->old_text, source->old_variable, &ring.other, err);
                ring.other_is_given = true;
        }
        if (r >= 0 && streq(ring.current.id, ring.other.id))
                let_go(&ring.other);
        return r;
}

int master_key_load(const struct master_key_source *source, bool has_sealed, struct err *err)
{
        CLEAN(err_done) struct err why = { 0 };

        pthread_mutex_lock(&ring.change);
        forget();
        ring.variable = source->text ? xstrdup(source->variable) : NULL;
        ring.file = source->file ? xstrdup(source->file) : NULL;
        ring.is_ours = source->is_ours;
        int r = load_key(source, has_sealed, &why);
        if (r < 0) {
                let_go(&ring.current);
                let_go(&ring.other);
                ring.problem = xstrdup(why.msg);
                ring.problem_code = r == ERR_INVALID ? ERR_INVALID : ERR_UNPROCESSABLE;
                err_move(err, &why);
        }
        pthread_mutex_unlock(&ring.change);
        return r;
}

void master_key_unload(void)
{
        pthread_mutex_lock(&ring.change);
        forget();
        pthread_mutex_unlock(&ring.change);
}

/* Changing */

static bool is_changing(void)
{
        return ring.other.bytes.data && !(ring.other_is_given && ring.other_is_retired);
}

bool master_key_is_changing(void)
{
        pthread_mutex_lock(&ring.lock);
        bool yes = is_changing();
        pthread_mutex_unlock(&ring.lock);
        return yes;
}

static int begin_key_change(struct err *err)
{
        CLEAN(cleanup_free) char *next = NULL;

        if (!ring.current.bytes.data)
                return no_key(err);
        if (is_changing())
                return 0;
        if (ring.variable || !ring.is_ours)
                return err_set(
                        err, ERR_UNPROCESSABLE,
                        "The master key comes from %s, which is not Berth's to change. Put the new "
                        "key there and the old one into BERTH_SECRETS_OLD_KEY, and restart: "
                        "everything is then sealed anew by itself.",
                        ring.variable ? ring.variable : ring.file);
        next = next_file();
        FAULT("master_key.next.before");
        int r = write_key_file(next, err);
        if (r >= 0)
                r = file_sync_parent(AT_FDCWD, next, err);
        FAULT("master_key.next.after");
        return r < 0 ? r : load_next(err);
}

int master_key_begin_change(struct err *err)
{
        pthread_mutex_lock(&ring.change);
        int r = begin_key_change(err);
        pthread_mutex_unlock(&ring.change);
        return r;
}

bool master_key_retire_other(const char *current)
{
        pthread_mutex_lock(&ring.lock);
        bool yes = streq(ring.current.id, current);
        if (yes)
                ring.other_is_retired = ring.other.bytes.data != NULL;
        pthread_mutex_unlock(&ring.lock);
        return yes;
}

/* The file of the old key is replaced by the one of the new key in one step. */
static int swap_files(struct err *err)
{
        CLEAN(cleanup_free) char *next = next_file();

        FAULT("master_key.swap.before");
        if (rename(next, ring.file) < 0 && errno != ENOENT)
                return err_sys(err, ERR_IO, errno, "rename %s", next);
        FAULT("master_key.swap.after");
        return file_sync_parent(AT_FDCWD, ring.file, err);
}

int master_key_end_change(struct err *err)
{
        int r = 0;

        pthread_mutex_lock(&ring.change);
        if (!ring.variable && ring.file && ring.is_ours)
                r = swap_files(err);
        if (r >= 0) {
                pthread_mutex_lock(&ring.lock);
                if (!ring.other_is_given) {
                        let_go(&ring.other);
                        ring.other_is_retired = false;
                }
                pthread_mutex_unlock(&ring.lock);
        }
        pthread_mutex_unlock(&ring.change);
        return r;
}

/* Looking */

/* What a restart would find. */
static void look_at_file(struct arena *arena, struct master_key_state *state)
{
        CLEAN(err_done) struct err err = { 0 };
        struct held_key found = { 0 };
        struct stat st;

        if (stat(state->file, &st) < 0) {
                state->is_missing = errno == ENOENT;
                state->problem =
                        arena_printf(arena, "cannot look at %s: %s", state->file, strerror(errno));
                return;
        }
        state->mode = st.st_mode & 07777;
        if (read_key_file(state->file, &found, &err) == ERR_INVALID)
                state->problem = arena_printf(arena, "Invalid key material in %s", state->file);
        else if (err.code)
                state->problem = arena_strdup(arena, err.msg);
        secret_value_done(&found.bytes);
}

void master_key_state(struct arena *arena, struct master_key_state *ret)
{

        *ret = (struct master_key_state){ 0 };
        pthread_mutex_lock(&ring.lock);
        ret->source = ring.variable ? "env" : "file";
        ret->variable = arena_strdup(arena, ring.variable);
        ret->file = arena_strdup(arena, ring.file);
        ret->problem = arena_strdup(arena, ring.problem);
        ret->is_changing = is_changing();
        pthread_mutex_unlock(&ring.lock);
        if (!ret->variable && ret->file)
                look_at_file(arena, ret);
}
