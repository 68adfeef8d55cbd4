/* Whether a workspace is read with the rights of its owner, and which groups the owner has. */
#include <errno.h>
#include <grp.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/util.h"
#include "workspace/owner.h"

#define NO_GROUP 65534 /* of a user that the machine does not know */

/* The groups that the owner has at sign-in, as in rt/become.c. */
static void find_groups(struct owner *o)
{
        char text[16384];
        struct passwd user, *found = NULL;

        o->gid = NO_GROUP;
        o->n_groups = 0;
        if (getpwuid_r(o->uid, &user, text, sizeof(text), &found) != 0 || !found)
                return;
        o->gid = user.pw_gid;
        o->n_groups = OWNER_GROUPS;
        if (getgrouplist(user.pw_name, user.pw_gid, o->groups, &o->n_groups) < 0)
                o->n_groups = MIN(o->n_groups, OWNER_GROUPS);
}

int owner_find(int dir_fd, struct owner *store, const struct owner **ret, struct err *err)
{
        struct stat st;

        *ret = NULL;
        if (fstat(dir_fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "look at the workspace");
        if (geteuid() != 0 || st.st_uid == 0)
                return 0;
        store->uid = st.st_uid;
        find_groups(store);
        store->n_our_groups = getgroups(OWNER_GROUPS, store->our_groups);
        if (store->n_our_groups < 0)
                return err_sys(err, ERR_IO, errno, "look at our own groups");
        *ret = store;
        return 0;
}
