/* What one name stands for, and the hash of one file. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "workspace/owner.h"
#include "workspace/scan_internal.h"

#define READ_TRIES 3

static int64_t nanoseconds(const struct statx_timestamp *t)
{
        return (int64_t)((uint64_t)t->tv_sec * UINT64_C(1000000000) + t->tv_nsec);
}

static enum seen seen_by_mode(unsigned mode)
{
        if (S_ISREG(mode))
                return SEEN_FILE;
        if (S_ISDIR(mode))
                return SEEN_DIR;
        return S_ISLNK(mode) ? SEEN_LINK : SEEN_SPECIAL;
}

bool out_of_means(int errno_value)
{
        return errno_value == EMFILE || errno_value == ENFILE || errno_value == ENOMEM;
}

/* What an errno says about a name; below 0 when it says nothing. */
static int seen_by_errno(const char *name, struct look *ret, struct err *err)
{
        if (out_of_means(errno))
                return err_sys(err, ERR_IO, errno, "look at %s", name);
        ret->seen = errno == ENOENT ? SEEN_NOTHING : SEEN_UNKNOWN;
        return 0;
}

int look_at(int dir, const char *name, struct look *ret, struct err *err)
{
        const unsigned want =
                STATX_TYPE | STATX_MODE | STATX_INO | STATX_SIZE | STATX_MTIME | STATX_CTIME;
        const int flags = AT_SYMLINK_NOFOLLOW | AT_NO_AUTOMOUNT | (*name ? 0 : AT_EMPTY_PATH);
        struct statx st;

        *ret = (struct look){ 0 };
        if (statx(dir, name, flags, want, &st) < 0)
                return seen_by_errno(name, ret, err);
        ret->seen = seen_by_mode(st.stx_mode);
        if (*name && (st.stx_attributes & st.stx_attributes_mask & STATX_ATTR_MOUNT_ROOT))
                ret->seen = SEEN_UNKNOWN;
        ret->mode = st.stx_mode & 0777;
        ret->id = (struct file_id){
                .dev = (uint64_t)st.stx_dev_major << 32 | st.stx_dev_minor,
                .ino = st.stx_ino,
                .size = st.stx_size,
                .mtime_ns = nanoseconds(&st.stx_mtime),
                .ctime_ns = nanoseconds(&st.stx_ctime),
        };
        return 0;
}

size_t read_target(int dir, const char *name, char target[TREE_MAX_TARGET + 1])
{
        ssize_t n = readlinkat(dir, name, target, TREE_MAX_TARGET + 1);

        if (n <= 0 || n > TREE_MAX_TARGET)
                return 0;
        target[n] = '\0';
        return (size_t)n;
}

/* Reads no more than the file had when it was opened, so that one that grows comes to an end. */
static int hash_bytes(int fd, uint64_t size, const struct file_reader *how,
                      struct file_content *ret, uint64_t *ret_size, struct err *err)
{
        crypto_generichash_state state;
        uint64_t total = 0;

        crypto_generichash_init(&state, NULL, 0, TREE_HASH);
        while (total < size) {
                int r = how->check ? how->check(how->ctx, err) : 0;
                ssize_t n;

                if (r)
                        return r;
                n = read(fd, how->chunk, (size_t)MIN(size - total, (uint64_t)FILE_CHUNK));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return seen_by_errno("a file", &ret->look, err);
                if (n == 0)
                        break;
                crypto_generichash_update(&state, how->chunk, (size_t)n);
                total += (uint64_t)n;
                ret->bytes += (uint64_t)n;
        }
        crypto_generichash_final(&state, ret->hash, TREE_HASH);
        *ret_size = total;
        return 0;
}

static bool same_version(const struct file_id *a, const struct file_id *b)
{
        return a->size == b->size && a->mtime_ns == b->mtime_ns && a->ctime_ns == b->ctime_ns;
}

/* One try. A name that changed its kind since it was looked at is unknown this time. */
static int hash_once(int dir, const char *name, const struct file_reader *how,
                     struct file_content *ret, struct err *err)
{
        CLEAN(cleanup_fd)
        int fd = owner_openat(how->owner, dir, name,
                              O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
        struct look after;
        uint64_t size = 0;

        if (fd < 0)
                return seen_by_errno(name, &ret->look, err);
        int r = look_at(fd, "", &ret->look, err);
        if (r < 0)
                return r;
        if (ret->look.seen != SEEN_FILE || ret->look.id.size > TREE_MAX_SIZE) {
                ret->look.seen = SEEN_UNKNOWN;
                return 0;
        }
        r = hash_bytes(fd, ret->look.id.size, how, ret, &size, err);
        if (r || ret->look.seen != SEEN_FILE)
                return r;
        r = look_at(fd, "", &after, err);
        if (r < 0)
                return r;
        ret->steady = size == ret->look.id.size && same_version(&ret->look.id, &after.id);
        ret->look.id.size = size;
        return 0;
}

int hashing_ready(struct err *err)
{
        return sodium_init() < 0 ? err_set(err, ERR_INTERNAL, "libsodium does not start") : 0;
}

int file_hash(int dir, const char *name, const struct file_reader *how, struct file_content *ret,
              struct err *err)
{
        int r = 0;

        *ret = (struct file_content){ 0 };
        for (int i = 0; i < READ_TRIES && !ret->steady; i++) {
                r = hash_once(dir, name, how, ret, err);
                if (r || ret->look.seen != SEEN_FILE)
                        break;
        }
        return r;
}
