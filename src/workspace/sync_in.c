/* Receiving large files: sync_file.h. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>

#include "base/fd.h"
#include "workspace/sync_file.h"

#define PART_PREFIX   "part-"
#define MAX_PARTS     4096
#define COPY_SIZE     ((size_t)256 << 10)
#define OLD_MORE_THAN ((uint64_t)256 << 20) /* of an old file so much more than of the new one */

static int write_at(int fd, const char *p, size_t len, uint64_t offset, struct err *err)
{
        while (len > 0) {
                ssize_t n = pwrite(fd, p, len, (off_t)offset);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "write a file");
                p += n;
                len -= (size_t)n;
                offset += (uint64_t)n;
        }
        return 0;
}

static int copy_plain(int from_fd, uint64_t from, int to_fd, uint64_t to, uint64_t len,
                      struct err *err)
{
        CLEAN(cleanup_free) char *buf = xcalloc(1, COPY_SIZE);
        int r = 0;

        while (len > 0 && r >= 0) {
                ssize_t n = pread(from_fd, buf, (size_t)MIN(len, (uint64_t)COPY_SIZE), (off_t)from);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read a file");
                if (n == 0)
                        break; /* the hash will tell */
                r = write_at(to_fd, buf, (size_t)n, to, err);
                from += (uint64_t)n;
                to += (uint64_t)n;
                len -= (uint64_t)n;
        }
        return r;
}

int sync_copy(int from_fd, uint64_t from_offset, int to_fd, uint64_t to_offset, uint64_t len,
              struct err *err)
{
        loff_t from = (loff_t)from_offset, to = (loff_t)to_offset;

        while (len > 0) {
                ssize_t n = copy_file_range(from_fd, &from, to_fd, &to,
                                            (size_t)MIN(len, (uint64_t)1 << 30), 0);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0 && (errno == ENOSPC || errno == EDQUOT || errno == EIO))
                        return err_sys(err, ERR_IO, errno, "copy a file");
                if (n <= 0) /* file systems differ in what they can */
                        return copy_plain(from_fd, (uint64_t)from, to_fd, (uint64_t)to, len, err);
                len -= (uint64_t)n;
        }
        return 0;
}

void sync_in_name(struct sync_in *in, const struct sync_msg *big, bool twin)
{
        int n = snprintf(in->name, sizeof(in->name), PART_PREFIX);

        for (int i = 0; i < TREE_HASH; i++)
                n += snprintf(in->name + n, sizeof(in->name) - (size_t)n, "%02x", big->hash[i]);
        if (twin)
                (void)snprintf(in->name + n, sizeof(in->name) - (size_t)n, "-%u", big->slot);
}

int sync_in_begin(struct sync_in *in, int parts_fd, const struct sync_msg *big, bool twin,
                  struct err *err)
{
        struct stat st;

        sync_in_name(in, big, twin);
        in->dir_fd = parts_fd;
        in->whole = big->flags & SYNC_WHOLE;
        in->all_chunks = in->whole;
        in->size = big->size;
        in->due = in->whole ? in->size : 0;
        in->fd = openat(parts_fd, in->name, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK,
                        0600);
        if (in->fd < 0 || fstat(in->fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "create a part of a file");
        if (!S_ISREG(st.st_mode))
                return err_set(err, ERR_IO, "a part of a file is none");
        in->had_part = st.st_size > 0;
        if (in->whole && st.st_size > 0 && ftruncate(in->fd, 0) < 0)
                return err_sys(err, ERR_IO, errno, "write a file");
        in->state = xaligned(_Alignof(crypto_generichash_state), sizeof(*in->state));
        (void)crypto_generichash_init(in->state, NULL, 0, TREE_HASH);
        return 0;
}

int sync_in_chunks(struct sync_in *in, const struct sync_msg *m, struct err *err)
{
        struct frame_in f;
        int r = 0;

        if (in->fd < 0 || in->all_chunks)
                return err_set(err, ERR_INVALID, "chunks that were not asked for");
        frame_in_init(&f, m->blob.p, m->blob.len);
        while (f.left > 0 && r >= 0) {
                struct chunk c = { .offset = in->listed, .len = frame_get_u64(&f) };

                memcpy(c.id, f.p, TREE_HASH);
                f.p += TREE_HASH;
                f.left -= TREE_HASH;
                if (c.len == 0 || c.len > in->size - in->listed)
                        return err_set(err, ERR_INVALID, "chunks that are not the file's");
                in->listed += c.len;
                r = chunk_list_add(&in->chunks, &c, SYNC_MAX_CHUNKS, err);
        }
        if (r < 0 || !(m->flags & SYNC_LAST))
                return r;
        if (in->listed != in->size)
                return err_set(err, ERR_INVALID, "chunks that are not the file's");
        in->all_chunks = true;
        return 1;
}

/* Whether the part has the chunk already, at its place. A hole is nothing that came: reading it
 * would take as long as the sender says that it is. */
static int part_has(struct sync_io *io, const struct sync_in *in, const struct chunk *c,
                    struct err *err)
{
        uint8_t id[TREE_HASH];
        uint64_t len;

        if (!in->had_part ||
            lseek(in->fd, (off_t)c->offset, SEEK_HOLE) < (off_t)(c->offset + c->len))
                return 0;
        int r = chunk_hash(in->fd, c->offset, c->len, id, &len, io->check, io->ctx, err);
        return r < 0 ? r : len == c->len && memcmp(id, c->id, TREE_HASH) == 0;
}

/* The map borrows the list. */
static int look_at_old(struct sync_io *io, const struct sync_in *in, int old_fd,
                       struct chunk_list *list, struct chunk_map **ret, struct err *err)
{
        struct stat st;

        if (old_fd < 0 || fstat(old_fd, &st) < 0 || !S_ISREG(st.st_mode))
                return 0;
        int r = chunk_file(old_fd, MIN((uint64_t)st.st_size, 2 * in->size + OLD_MORE_THAN),
                           chunk_average(in->size), list, NULL, io->check, io->ctx, err);
        if (r >= 0)
                *ret = chunk_map_new(list);
        return r;
}

static void free_map(struct chunk_map **m)
{
        chunk_map_free(*m);
}

int sync_in_want(struct sync_io *io, struct sync_in *in, int old_fd, struct buf *ret_bitmap,
                 struct err *err)
{
        CLEAN(chunk_list_done) struct chunk_list list = { 0 };
        CLEAN(free_map) struct chunk_map *old = NULL;
        size_t size = (in->chunks.n + 7) / 8;
        int r = look_at_old(io, in, old_fd, &list, &old, err);

        if (r < 0)
                return r;
        in->wanted = xcalloc(1, size + 1);
        for (size_t i = 0; i < in->chunks.n; i++) {
                const struct chunk *c = &in->chunks.at[i], *have;

                r = part_has(io, in, c, err);
                if (r == 0) {
                        have = old ? chunk_map_find(old, c->id, c->len) : NULL;
                        if (have) {
                                r = sync_copy(old_fd, have->offset, in->fd, c->offset, c->len, err);
                        } else {
                                in->wanted[i / 8] = (uint8_t)(in->wanted[i / 8] | 1 << (i % 8));
                                in->due += c->len;
                        }
                }
                if (r < 0)
                        return r;
        }
        buf_append(ret_bitmap, in->wanted, size);
        in->had_part = true;
        return 0;
}

static bool is_wanted(const struct sync_in *in, size_t i)
{
        return in->wanted && in->wanted[i / 8] & 1 << (i % 8);
}

/* Whether so many bytes are due at this offset; then they are not due any more. They may reach over
 * the end of a chunk into the next, if that was asked for too. A sender whose file became shorter
 * leaves the rest of a chunk out. */
static bool take_due(struct sync_in *in, uint64_t offset, uint64_t len)
{
        if (in->whole) {
                if (offset != in->got || len > in->size - in->got)
                        return false;
                in->got += len;
                return true;
        }
        while (in->next_chunk < in->chunks.n) {
                const struct chunk *c = &in->chunks.at[in->next_chunk];
                uint64_t end = c->offset + c->len;

                if (is_wanted(in, in->next_chunk) && offset < end) {
                        uint64_t now = MIN(len, end - offset);

                        if (offset != MAX(in->next_offset, c->offset))
                                return false;
                        in->got += now;
                        offset += now;
                        len -= now;
                        in->next_offset = offset;
                        if (len == 0)
                                return true;
                }
                in->next_chunk++;
        }
        return false;
}

int sync_in_data(struct sync_in *in, const struct sync_msg *m, struct err *err)
{
        if (in->fd < 0 || !in->all_chunks || m->blob.len == 0 ||
            !take_due(in, m->offset, m->blob.len))
                return err_set(err, ERR_INVALID, "bytes that belong to no file");
        if (in->whole)
                (void)crypto_generichash_update(in->state, (const uint8_t *)m->blob.p, m->blob.len);
        return write_at(in->fd, m->blob.p, m->blob.len, m->offset, err);
}

/* Only content that came is looked at: content that was announced and did not come does not match
 * what the sender says. */
int sync_in_end(struct sync_io *io, struct sync_in *in, const struct sync_msg *end, struct err *err)
{
        uint8_t hash[TREE_HASH];
        uint64_t len = 0;

        if (in->fd < 0 || !in->all_chunks || end->size > in->size)
                return err_set(err, ERR_INVALID, "the end of a file that was not begun");
        if (in->whole) { /* a file that became shorter meanwhile ends where its bytes did */
                (void)crypto_generichash_final(in->state, hash, TREE_HASH);
                return end->size == in->got && memcmp(hash, end->hash, TREE_HASH) == 0;
        }
        if (in->got != in->due)
                return 0;
        if (ftruncate(in->fd, (off_t)end->size) < 0)
                return err_sys(err, ERR_IO, errno, "write a file");
        int r = chunk_hash(in->fd, 0, end->size, hash, &len, io->check, io->ctx, err);
        return r < 0 ? r : len == end->size && memcmp(hash, end->hash, TREE_HASH) == 0;
}

void sync_in_done(struct sync_in *in, bool remove)
{
        if (in->fd >= 0) {
                close(in->fd);
                if (remove)
                        (void)unlinkat(in->dir_fd, in->name, 0);
        }
        chunk_list_done(&in->chunks);
        free(in->wanted);
        free(in->state);
        *in = (struct sync_in){ .fd = -1 };
}

/* Parts that an earlier try left */

static bool part_hash(const char *name, uint8_t ret[TREE_HASH])
{
        size_t prefix = strlen(PART_PREFIX);

        if (!str_starts(name, PART_PREFIX) || strlen(name) != prefix + (size_t)2 * TREE_HASH)
                return false;
        for (size_t i = 0; i < TREE_HASH; i++) {
                int high = hex_digit(name[prefix + 2 * i]);
                int low = hex_digit(name[prefix + 2 * i + 1]);

                if (high < 0 || low < 0)
                        return false;
                ret[i] = (uint8_t)(high << 4 | low);
        }
        return true;
}

static void each_part(int parts_fd, struct buf *ret, bool remove)
{
        int fd = openat(parts_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
        uint8_t hash[TREE_HASH];
        struct dirent *d;

        if (!dir) {
                if (fd >= 0)
                        close(fd);
                return;
        }
        while ((d = readdir(dir))) {
                if (remove && str_starts(d->d_name, PART_PREFIX))
                        (void)unlinkat(parts_fd, d->d_name, 0);
                else if (!remove && part_hash(d->d_name, hash) &&
                         ret->len < (size_t)MAX_PARTS * TREE_HASH)
                        buf_append(ret, hash, TREE_HASH);
        }
        (void)closedir(dir);
}

void sync_parts_list(int parts_fd, struct buf *ret)
{
        each_part(parts_fd, ret, false);
}

void sync_parts_remove(int parts_fd)
{
        each_part(parts_fd, NULL, true);
}
