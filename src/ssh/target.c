/* Which configurations of an SSH environment are valid. */
#include "ssh/target.h"

#include <stdio.h>

#include "base/utf8.h"

#define NAME_MAX_LEN 255
#define PATH_LEN     3000

/* Letters, digits and what else is named; `other` says whether bytes above ASCII may be in it. */
static bool is_name(const char *s, const char *extra, bool other)
{
        if (*s == '-' || *s == '\0' || strlen(s) > NAME_MAX_LEN)
                return false;
        for (; *s; s++)
                if (!((*s >= 'a' && *s <= 'z') || (*s >= 'A' && *s <= 'Z') ||
                      (*s >= '0' && *s <= '9') || strchr(extra, *s) ||
                      (other && (unsigned char)*s & 0x80)))
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
        /* Names, addresses of both families, and the aliases people put into ~/.ssh/config. */
        if (!is_name(t->host, "._-:%", false))
                return err_set(err, ERR_UNPROCESSABLE,
                               "The SSH host is neither a host name nor an address.");
        /* Whatever a directory service may call people, without what a shell, a proxy command of
         * the operator or a %-expansion would read as something else. */
        if (!is_name(t->username, "._-+@=,", true))
                return err_set(err, ERR_UNPROCESSABLE, "The SSH username is not a user name.");
        if (!is_path(t->path))
                return err_set(err, ERR_UNPROCESSABLE,
                               "The SSH remote workspace path is not a path that can be used.");
        return 0;
}
