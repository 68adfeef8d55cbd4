/* Decides which range of host ids sandboxes get. */
#define _GNU_SOURCE
#include "core/sandboxes/host_ids.h"

#include <fcntl.h>
#include <grp.h>
#include <pwd.h>
#include <stdio.h>

#include "base/fd.h"
#include "box/sandbox.h"

#define WHOLE_SYSTEM   65536
#define PLENTY         64 /* slices of that size, so that there are enough of them */
#define FILE_MAX       ((size_t)1 << 20)
#define LINE_MAX_BYTES 16384

/* Root: the range of the settings, unless an account lies in it */

static bool has(struct id_range range, int64_t id)
{
        return id >= range.first && id < range.first + range.count;
}

static int refuse_account(const char *kind, const char *name, int64_t id, const char *whose,
                          const char *setting, struct err *err)
{
        return err_set(err, ERR_UNPROCESSABLE,
                       "%s '%s' has the id %lld, which lies in the range that %s get: set "
                       "%s_uid_first and %s_uid_count to one that is nobody's",
                       kind, name, (long long)id, whose, setting, setting);
}

/* Reads the files and not the name service: this must not walk through the directory of a whole
 * organisation. */
int host_ids_are_free(struct id_range range, const char *whose, const char *setting,
                      struct err *err)
{
        FILE *users = fopen("/etc/passwd", "re"), *groups = fopen("/etc/group", "re");
        struct passwd *pw, user;
        struct group *gr, group;
        char text[LINE_MAX_BYTES];
        int r = 0;

        while (users && r >= 0 && fgetpwent_r(users, &user, text, sizeof(text), &pw) == 0)
                if (has(range, pw->pw_uid))
                        r = refuse_account("user", pw->pw_name, pw->pw_uid, whose, setting, err);
        while (groups && r >= 0 && fgetgrent_r(groups, &group, text, sizeof(text), &gr) == 0)
                if (has(range, gr->gr_gid))
                        r = refuse_account("group", gr->gr_name, gr->gr_gid, whose, setting, err);
        if (users)
                (void)fclose(users);
        if (groups)
                (void)fclose(groups);
        return r;
}

/* Another user: the range that both files give to that user */

static int read_subids(const char *path, const char *name, uid_t uid, struct id_range *ret,
                       struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;

        (void)file_read_at(AT_FDCWD, path, FILE_MAX, &text, NULL);
        if (subid_largest(buf_str(&text), text.len, name, uid, ret))
                return 0;
        return err_set(err, ERR_UNPROCESSABLE,
                       "%s gives no ids to %s; as root: usermod --add-subuids 100000-165535 "
                       "--add-subgids 100000-165535 %s",
                       path, name ? name : "this user", name ? name : "USER");
}

static int find_subids(struct id_range *ret, struct err *err)
{
        uid_t uid = geteuid();
        const struct passwd *pw = getpwuid(uid);
        struct id_range uids, gids;
        int r = read_subids("/etc/subuid", pw ? pw->pw_name : NULL, uid, &uids, err);

        if (r >= 0)
                r = read_subids("/etc/subgid", pw ? pw->pw_name : NULL, uid, &gids, err);
        if (r < 0)
                return r;
        *ret = id_range_common(uids, gids);
        if (ret->count < SANDBOX_MIN_IDS)
                return err_set(err, ERR_UNPROCESSABLE,
                               "/etc/subuid and /etc/subgid have fewer than %u ids in common for "
                               "this user; give it the same range in both",
                               SANDBOX_MIN_IDS);
        return 0;
}

int host_ids_find(int64_t first, int64_t count, struct id_range *ret, struct err *err)
{
        struct id_range range = { first, count };

        if (geteuid() != 0)
                return find_subids(ret, err);
        int r = host_ids_are_free(range, "sandboxes", "sandbox", err);
        if (r >= 0)
                *ret = range;
        return r;
}

int64_t host_ids_slice(struct id_range range)
{
        return range.count / WHOLE_SYSTEM >= PLENTY ? WHOLE_SYSTEM : SANDBOX_MIN_IDS;
}
