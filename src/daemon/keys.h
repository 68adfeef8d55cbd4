/* Where the master key of the secrets comes from (secret/master_key.h), and the secret for run
 * tokens, if the operator gave one (core/access/run_token.h). A key in the environment is moved to
 * pages of its own and wiped there, so that neither our children nor /proc have it. */
#pragma once

#include "base/arena.h"
#include "secret/master_key.h"
#include "secret/value.h"

struct daemon_keys {
        struct secret_value text, old_text, run_secret;
        struct master_key_source source; /* borrows from the others and from the arena */
};

/* `key_file` is the setting's, or NULL. Before any other thread is started. */
int keys_take(const char *data_dir, const char *key_file, struct arena *arena,
              struct daemon_keys *ret, struct err *err);
void keys_done(struct daemon_keys *keys);
