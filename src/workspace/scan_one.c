/* Scans a single path. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "base/fd.h"
#include "workspace/scan_internal.h"

/* The directory that the last part of `path` is in: 1 with a descriptor (-1: dir_fd itself), 0 when
 * it is not there or no directory. */
static int open_parent(int dir_fd, const char *path, int *ret_fd, const char **ret_name,
                       struct err *err)
{
        CLEAN(cleanup_fd) int at = -1;
        const char *part = path, *slash;

        while ((slash = strchr(part, '/')) != NULL) {
                char name[TREE_MAX_NAME + 1];
                int next;

                memcpy(name, part, (size_t)(slash - part));
                name[slash - part] = '\0';
                next = openat(at < 0 ? dir_fd : at, name,
                              O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                if (next < 0 && (errno == ENOENT || errno == ENOTDIR || errno == ELOOP))
                        return 0;
                if (next < 0)
                        return err_sys(err, ERR_IO, errno, "open the directory of %s", path);
                cleanup_fd(&at);
                at = next;
                part = slash + 1;
        }
        *ret_fd = take_fd(&at);
        *ret_name = part;
        return 1;
}

static int hash_one(int at, const char *name, struct look *look, uint8_t hash[TREE_HASH],
                    struct err *err)
{
        CLEAN(cleanup_free) uint8_t *chunk = xcalloc(1, FILE_CHUNK);
        const struct file_reader how = { .chunk = chunk };
        struct file_content content;
        int r = hashing_ready(err);

        if (r < 0)
                return r;
        r = file_hash(at, name, &how, &content, err);
        *look = content.look;
        memcpy(hash, content.hash, TREE_HASH);
        return r;
}

static void fill_entry(struct tree_entry *e, const struct look *look)
{
        e->kind = TREE_UNKNOWN;
        if (look->seen == SEEN_LINK && e->target)
                e->kind = TREE_LINK;
        if (look->seen != SEEN_DIR && look->seen != SEEN_FILE)
                return;
        e->kind = look->seen == SEEN_DIR ? TREE_DIR : TREE_FILE;
        e->mode = look->mode;
        if (look->seen == SEEN_FILE) {
                e->size = look->id.size;
                e->mtime_ns = look->id.mtime_ns;
        }
}

int scan_one(int dir_fd, const char *path, bool with_hash, struct tree_entry *ret,
             char target[TREE_MAX_TARGET + 1], struct err *err)
{
        CLEAN(cleanup_fd) int parent = -1;
        struct look look;
        const char *name = path;

        if (!tree_path_ok(path))
                return err_set(err, ERR_INVALID, "not a path of a workspace: %s", path);
        int r = open_parent(dir_fd, path, &parent, &name, err);
        if (r <= 0)
                return r;
        int at = parent < 0 ? dir_fd : parent;
        r = look_at(at, name, &look, err);
        if (r < 0)
                return r;
        *ret = (struct tree_entry){ .path = path };
        if (look.seen == SEEN_FILE && with_hash)
                r = hash_one(at, name, &look, ret->hash, err);
        else if (look.seen == SEEN_LINK && read_target(at, name, target) > 0)
                ret->target = target;
        if (r < 0 || look.seen == SEEN_NOTHING)
                return r;
        fill_entry(ret, &look);
        return 1;
}
