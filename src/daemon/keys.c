/* Takes the master key and the secret for run tokens, and wipes keys from the environment. */
#include "daemon/keys.h"

#include <fcntl.h>

#include "base/fd.h"

#define KEY_FILE_MAX 4096

/* Copy the variable out and wipe it where it is, which is also what /proc/PID/environ shows. */
static int take_variable(const char *name, struct secret_value *ret, struct err *err)
{
        char *value = getenv(name);

        if (!value || value[strspn(value, " \t\r\n")] == '\0')
                return 0;
        int r = secret_value_set(ret, value, strlen(value), err);
        explicit_bzero(value, strlen(value));
        (void)unsetenv(name);
        return r < 0 ? r : 1;
}

/* The first of them that is there; the list ends with NULL. */
static int take_first(const char *const *names, struct secret_value *ret, const char **ret_name,
                      struct err *err)
{
        int r = 0;

        for (size_t i = 0; r == 0 && names[i]; i++) {
                r = take_variable(names[i], ret, err);
                if (r > 0)
                        *ret_name = names[i];
        }
        return r;
}

static int take_file(const char *path, struct secret_value *ret, struct err *err)
{
        CLEAN(buf_wipe) struct buf text = BUF_INIT;

        (void)buf_reserve(&text, KEY_FILE_MAX);
        int r = file_read_at(AT_FDCWD, path, KEY_FILE_MAX, &text, err);
        return r < 0 ? r : secret_value_set(ret, buf_str(&text), text.len, err);
}

static const char *credential(struct arena *arena)
{
        const char *dir = getenv("CREDENTIALS_DIRECTORY");
        const char *path = dir ? arena_printf(arena, "%s/" MASTER_KEY_CREDENTIAL, dir) : NULL;

        return path && file_life_at(AT_FDCWD, path) != LIFE_NO ? path : NULL;
}

static int take_old(struct daemon_keys *keys, struct err *err)
{
        const char *file = getenv("BERTH_SECRETS_OLD_KEY_FILE");
        int r = take_variable("BERTH_SECRETS_OLD_KEY", &keys->old_text, err);

        keys->source.old_variable = "BERTH_SECRETS_OLD_KEY";
        if (r == 0 && file && *file) {
                keys->source.old_variable = "BERTH_SECRETS_OLD_KEY_FILE";
                r = take_file(file, &keys->old_text, err);
        }
        keys->source.old_text = keys->old_text.data;
        return r;
}

int keys_take(const char *data_dir, const char *key_file, struct arena *arena,
              struct daemon_keys *ret, struct err *err)
{
        static const char *const names[] = { "BERTH_SECRETS_KEY", "PAPERCLIP_SECRETS_MASTER_KEY",
                                             NULL };
        static const char *const run_names[] = { "BERTH_AGENT_JWT_SECRET",
                                                 "PAPERCLIP_AGENT_JWT_SECRET", "BETTER_AUTH_SECRET",
                                                 NULL };
        const char *ignored;
        struct master_key_source *s = &ret->source;

        *ret = (struct daemon_keys){ 0 };
        int r = take_first(names, &ret->text, &s->variable, err);
        if (r >= 0)
                r = take_old(ret, err);
        if (r >= 0)
                r = take_first(run_names, &ret->run_secret, &ignored, err);
        s->text = ret->text.data;
        if (!s->text && key_file) {
                s->file = key_file;
                s->is_ours = true;
        } else if (!s->text && (s->file = credential(arena)) == NULL) {
                s->file = arena_printf(arena, "%s/secrets/master.key", data_dir);
                s->is_ours = true;
        }
        return r < 0 ? r : 0;
}

void keys_done(struct daemon_keys *keys)
{
        secret_value_done(&keys->text);
        secret_value_done(&keys->old_text);
        secret_value_done(&keys->run_secret);
}
