/* Which configurations of an SSH environment are valid. */
#include "ssh/target.h"

#include <stdio.h>

#include "base/utf8.h"

#define HOST_MAX 255
#define USER_MAX 255
#define PATH_LEN 3000

static bool is_alnum(char c)
{
        return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

/* Names, addresses of both families, and the aliases people put into ~/.ssh/config. */
static bool is_host(const char *s)
{
        if (*s == '-' || *s == '\0' || strlen(s) > HOST_MAX)
                return false;
        for (; *s; s++)
                if (!is_alnum(*s) && !strchr("._-:%", *s))
                        return false;
        return true;
}

/* Whatever a directory service may call people, without what a shell, a proxy command of the
 * operator or a %-expansion would read as something else. */
static bool is_user(const char *s)
{
        if (*s == '-' || *s == '\0' || strlen(s) > USER_MAX)
                return false;
        for (; *s; s++)
                if (!is_alnum(*s) && !strchr("._-+@=,", *s) && !((unsigned char)*s & 0x80))
                        return false;
        return true;
}

static bool is_path(const char *s)
{
        if (*s != '/' || strlen(s) > PATH_LEN || !utf8_is_valid(s, strlen(s)))
                return false;
        for (; *s; s++)
                if ((unsigned char)*s < ' ' || *s == 0x7f)
                        return false;
        return true;
}

int ssh_target_check(const struct ssh_target *t, struct err *err)
{
        if (!is_host(t->host))
                return err_set(err, ERR_UNPROCESSABLE,
                               "The SSH host is neither a host name nor an address.");
        if (!is_user(t->username))
                return err_set(err, ERR_UNPROCESSABLE, "The SSH username is not a user name.");
        if (!is_path(t->path))
                return err_set(err, ERR_UNPROCESSABLE,
                               "The SSH remote workspace path is not a path that can be used.");
        return 0;
}
