/* Keys that lie on this machine: in the environment, or in the files that AWS's tools share. */
#include "secret/aws.h"

#include <fcntl.h>

#include "base/fd.h"
#include "codec/ini.h"

int aws_credentials_set(struct aws_credentials *c, const char *id, size_t id_len,
                        const char *secret, size_t secret_len, const char *token, size_t token_len,
                        struct err *err)
{
        if (id_len == 0 || id_len > AWS_KEY_ID_MAX || secret_len == 0)
                return err_set(err, ERR_INVALID, "an access key without its id or its secret");
        for (size_t i = 0; i < id_len; i++)
                if (id[i] <= ' ' || id[i] == '/' || id[i] == ',' || id[i] > '~')
                        return err_set(err, ERR_INVALID, "the id of an access key makes no sense");
        memcpy(c->access_key_id, id, id_len);
        c->access_key_id[id_len] = '\0';
        int r = secret_value_set(&c->secret, secret, secret_len, err);
        if (r == 0 && token_len > 0)
                r = secret_value_set(&c->token, token, token_len, err);
        if (r < 0)
                aws_credentials_done(c);
        return r;
}

int aws_from_environment(struct aws_credentials *ret, struct err *err)
{
        const char *id = aws_env_plain("AWS_ACCESS_KEY_ID");
        const char *secret = aws_env_plain("AWS_SECRET_ACCESS_KEY");
        const char *token = aws_env_plain("AWS_SESSION_TOKEN");

        if (!id || !secret)
                return 0;
        int r = aws_credentials_set(ret, id, strlen(id), secret, strlen(secret), token,
                                    token ? strlen(token) : 0, err);
        return r < 0 ? r : 1;
}

/* ---- shared files ---- */

/* The file's text, or nothing when it is not there. */
static int read_shared(struct op *op, const char *variable, const char *name, struct buf *ret,
                       struct err *err)
{
        const char *path = aws_env_plain(variable), *home = aws_env_plain("HOME");

        if (!path && !home)
                return 0;
        if (!path)
                path = arena_printf(op->arena, "%s/.aws/%s", home, name);
        int r = file_read_at(AT_FDCWD, path, INI_MAX_BYTES, ret, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        return r < 0 ? err_wrap(err, r, "AWS shared file %s", name) : 0;
}

struct profile {
        const struct buf *file;
        const char *section;
        const char *name; /* of the file, for texts */
        struct err *err;
};

static int profile_get(const struct profile *p, const char *key, const char **ret, size_t *ret_len)
{
        *ret = NULL;
        *ret_len = 0;
        if (!p->file->data)
                return 0;
        int r = ini_find(p->file->data, p->file->len, p->section, key, ret, ret_len, p->err);
        if (r < 0)
                return err_wrap(p->err, r, "AWS shared file %s", p->name);
        return r > 0 && *ret_len > 0 ? 1 : 0;
}

static int from_profile(const struct profile *p, struct aws_credentials *ret)
{
        const char *id, *secret, *token;
        size_t id_len, secret_len, token_len;
        int r = profile_get(p, "aws_access_key_id", &id, &id_len);

        if (r <= 0)
                return r;
        r = profile_get(p, "aws_secret_access_key", &secret, &secret_len);
        if (r <= 0)
                return r;
        r = profile_get(p, "aws_session_token", &token, &token_len);
        if (r < 0)
                return r;
        r = aws_credentials_set(ret, id, id_len, secret, secret_len, token, token_len, p->err);
        return r < 0 ? r : 1;
}

int aws_from_files(struct op *op, struct aws_credentials *ret, struct err *err)
{
        CLEAN(buf_wipe) struct buf credentials = BUF_INIT, config = BUF_INIT;
        const char *chosen = aws_env_plain("AWS_PROFILE"), *name = chosen ? chosen : "default";
        /* In config all but the default have "profile" before their name. */
        const char *section =
                streq(name, "default") ? name : arena_printf(op->arena, "profile %s", name);

        int r = read_shared(op, "AWS_SHARED_CREDENTIALS_FILE", "credentials", &credentials, err);
        if (r == 0)
                r = read_shared(op, "AWS_CONFIG_FILE", "config", &config, err);
        if (r == 0)
                r = from_profile(&(struct profile){ &credentials, name, "credentials", err }, ret);
        if (r == 0)
                r = from_profile(&(struct profile){ &config, section, "config", err }, ret);
        if (r == 0 && chosen)
                return err_set(err, ERR_INVALID,
                               "the AWS profile '%.100s' has no access key; profiles with "
                               "role_arn, sso_* or credential_process are not used",
                               chosen);
        return r;
}
