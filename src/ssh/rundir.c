/* Makes and removes the private directory of a login, and sweeps those left behind. */
#define _GNU_SOURCE
#include "ssh/rundir.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/path.h"

#define BASE_MAX 80 /* a socket address has room for 107 bytes */

static bool is_plain(const char *path)
{
        if (*path != '/' || strlen(path) > BASE_MAX)
                return false;
        return path[strspn(path, "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789"
                                 "/._-")] == '\0';
}

int ssh_rundir_make(const char *base, struct ssh_rundir *ret, struct err *err)
{
        char *path;

        if (base && is_plain(base) && path_make_dirs(base, 0700, err) >= 0)
                path = xasprintf("%s/XXXXXX", base);
        else
                path = xstrdup("/tmp/berth-ssh-XXXXXX");
        if (!mkdtemp(path)) {
                int number = errno;

                free(path);
                return err_sys(err, ERR_IO, number, "make a directory for ssh");
        }
        ret->path = path;
        return 0;
}

static void empty_directory(const char *path)
{
        struct dirent *entry;
        DIR *dir = opendir(path);

        while (dir && (entry = readdir(dir)))
                if (!streq(entry->d_name, ".") && !streq(entry->d_name, ".."))
                        (void)unlinkat(dirfd(dir), entry->d_name, 0);
        if (dir)
                closedir(dir);
        (void)rmdir(path);
}

void ssh_rundir_remove(struct ssh_rundir *d)
{
        if (d->path)
                empty_directory(d->path);
        free(take_ptr(&d->path));
}

void ssh_rundir_sweep(const char *base)
{
        struct dirent *entry;
        DIR *dir = opendir(base);

        while (dir && (entry = readdir(dir))) {
                CLEAN(cleanup_free) char *path = NULL;

                if (entry->d_name[0] == '.')
                        continue;
                path = xasprintf("%s/%s", base, entry->d_name);
                empty_directory(path);
        }
        if (dir)
                closedir(dir);
}
