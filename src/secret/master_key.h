/* The master key, under which the values of secrets are sealed.
 *
 * The process has one ring of at most two keys. The current one seals; the other one only opens
 * what was sealed before the key was changed, and goes when nothing is left that needs it
 * (core/secrets/secret_rekey.c); one that the operator gave stays as long as the process. Which key
 * a sealed value needs is told by the key's id, a hash of it.
 *
 * Where the key comes from, first that is there: BERTH_SECRETS_KEY (or Paperclip's name for it), a
 * file that the settings name, the systemd credential `berth-secrets-key`, and else a file in the
 * data directory, which is made on the first start and never again: a daemon that cannot find its
 * key must say so, not seal with a new one what the old one no longer opens.
 *
 * A new key is written beside the old one, as FILE.next, before it is used. While both files are
 * there both keys are known, whenever the daemon is started; when FILE.next has become FILE, the
 * old one is gone.
 *
 * Any thread after master_key_load(). */
#pragma once

#include "base/arena.h"
#include "base/err.h"

#define MASTER_KEY_BYTES      32
#define MASTER_KEY_ID_LEN     16
#define MASTER_KEY_CREDENTIAL "berth-secrets-key"

struct master_key_source {
        const char *text;     /* the key itself; NULL: not given so */
        const char *variable; /* where the text came from, for messages */
        const char *file;     /* never NULL when text is NULL */
        bool is_ours;         /* the file is ours to make and to change */
        const char *old_text; /* the key of earlier days, only to open with; NULL: none */
        const char *old_variable;
};

/* A key in use: a copy in pages of its own. */
struct master_key {
        unsigned char *bytes; /* MASTER_KEY_BYTES */
        char id[MASTER_KEY_ID_LEN + 1];
};

/* Take up the keys. `has_sealed`: there are sealed values already, so a missing file is a fault and
 * is not made anew. Without a usable key the daemon starts all the same, says why in the health of
 * the provider and with each use, and can be mended. Strings of `source` are copied. */
int master_key_load(const struct master_key_source *source, bool has_sealed, struct err *err);
/* Wipe and forget everything. */
void master_key_unload(void);

/* The key that seals; the reason when there is none. master_key_done() wipes the copy. */
int master_key_current(struct master_key *ret, struct err *err);
/* The key with this id; ERR_NOT_FOUND. */
int master_key_find(const char *id, struct master_key *ret, struct err *err);
/* The other key of the ring; ERR_NOT_FOUND when there is one only. */
int master_key_other(struct master_key *ret, struct err *err);
void master_key_done(struct master_key *key);
/* Whether what was sealed under this id may still be stored. */
bool master_key_is_current(const char *id);

/* The steps of changing the key. */

/* Write a new key beside the one in use and seal with it from now on; goes on with one that was
 * begun. ERR_UNPROCESSABLE, with what to do instead, when the key does not come from a file of
 * ours. */
int master_key_begin_change(struct err *err);
/* From now on nothing may be stored that the other key sealed. Called inside the transaction that
 * saw that everything is sealed with `current`; false when that is not the key that seals. */
bool master_key_retire_other(const char *current);
/* Nothing needs the other key any more: drop it, here and on disk. */
int master_key_end_change(struct err *err);
bool master_key_is_changing(void);

/* 64 hexadecimal digits, base64 of 32 bytes, or a text of 32 bytes, white space around it aside. */
bool master_key_decode(const char *text, size_t len, unsigned char ret[MASTER_KEY_BYTES]);

struct master_key_state {
        const char *source; /* "env" or "file" */
        const char *variable, *file;
        bool is_missing;     /* the file is not there */
        const char *problem; /* NULL: the key works */
        unsigned mode;       /* of the file */
        bool is_changing;
};

/* The present state: looks at the file again. Strings are in the arena. */
void master_key_state(struct arena *arena, struct master_key_state *ret);
