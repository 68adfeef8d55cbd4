/* Reads the names of a directory in order, and shares its descriptor. */
#define _GNU_SOURCE
#include "workspace/scan_dir.h"
#include "workspace/owner.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>

struct dir {
        atomic_uint refs;
        int fd;
        char *bytes; /* the names, each with its NUL */
        size_t len, room;
        const char **names;
        size_t n, at;
};

struct dir *dir_new(int take_fd)
{
        struct dir *d = xcalloc(1, sizeof(*d));

        atomic_init(&d->refs, 1);
        d->fd = take_fd;
        return d;
}

struct dir *dir_ref(struct dir *d)
{
        atomic_fetch_add(&d->refs, 1);
        return d;
}

void dir_unref(struct dir *d)
{
        if (!d || atomic_fetch_sub(&d->refs, 1) != 1)
                return;
        close(d->fd);
        free(d->bytes);
        free(d->names);
        free(d);
}

int dir_fd(const struct dir *d)
{
        return d->fd;
}

int dir_open(const struct owner *owner, int at, const char *name, struct dir **ret,
             enum seen *ret_seen, struct err *err)
{
        int fd = owner_openat(owner, at, name, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);

        if (fd < 0 && out_of_means(errno))
                return err_sys(err, ERR_IO, errno, "open directory %s", name);
        *ret_seen = fd >= 0 ? SEEN_DIR : errno == ENOENT ? SEEN_NOTHING : SEEN_UNKNOWN;
        if (fd >= 0)
                *ret = dir_new(fd);
        return 0;
}

static void add_name(struct dir *d, const char *name)
{
        size_t len = strlen(name) + 1;

        if (d->room - d->len < len) {
                d->room = MAX(d->room * 2, (size_t)1024);
                d->bytes = xrealloc(d->bytes, d->room);
        }
        memcpy(d->bytes + d->len, name, len);
        d->len += len;
        d->n++;
}

static int compare_names(const void *a, const void *b)
{
        return strcmp(*(const char *const *)a, *(const char *const *)b);
}

static void sort_names(struct dir *d)
{
        const char *name = d->bytes;

        if (d->n == 0)
                return;
        d->names = xcalloc(d->n, sizeof(*d->names));
        for (size_t i = 0; i < d->n; i++) {
                d->names[i] = name;
                name += strlen(name) + 1;
        }
        qsort(d->names, d->n, sizeof(*d->names), compare_names);
}

int dir_read(struct dir *d, uint64_t limit, struct err *err)
{
        char entries[32 << 10] __attribute__((aligned(8)));
        ssize_t got;

        while ((got = getdents64(d->fd, entries, sizeof(entries))) > 0) {
                for (ssize_t i = 0; i < got;) {
                        const struct dirent64 *e = (const void *)(entries + i);

                        i += e->d_reclen;
                        if (streq(e->d_name, ".") || streq(e->d_name, ".."))
                                continue;
                        if (d->n >= limit)
                                return err_set(err, ERR_TOO_LARGE,
                                               "more than %llu files and directories",
                                               (unsigned long long)limit);
                        add_name(d, e->d_name);
                }
        }
        if (got < 0 && out_of_means(errno))
                return err_sys(err, ERR_IO, errno, "read a directory");
        if (got < 0)
                return 0;
        sort_names(d);
        return 1;
}

const char *dir_next(struct dir *d)
{
        return d->at < d->n ? d->names[d->at++] : NULL;
}
