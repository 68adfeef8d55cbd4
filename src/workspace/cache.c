/* The cache of hashes that a scan reads and writes. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/file.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "workspace/scan_internal.h"

/* The file: a header, then blocks of records, each with the checksum of its bytes: a file that a
 * power cut left half written ends at the first block that is not whole. Records are in the order
 * of their paths and share its beginning with the one before. Only read where it was written, so
 * numbers are as the machine has them.
 *
 * A new one is written beside it under a fixed name and a lock. A scan that finds the lock taken
 * saves nothing: it is only a cache. */

static const char header[16] = "berth cache 1\n";

#define BLOCK_MAX ((size_t)128 << 10)
#define BLOCK_SUM 16

struct block {
        uint32_t len;
        uint8_t sum[BLOCK_SUM];
};

struct record {
        struct file_id id;
        uint8_t hash[TREE_HASH];
        uint16_t shared, rest;
};

static void sum_block(const struct buf *b, uint8_t ret[BLOCK_SUM])
{
        crypto_generichash(ret, BLOCK_SUM, (const uint8_t *)b->data, b->len, NULL, 0);
}

/* Reading */

struct cache_reader {
        int fd;
        struct buf block;
        size_t used;
        bool there; /* record and path are the next ones */
        struct record record;
        char path[TREE_MAX_PATH + 1];
};

static bool read_fully(int fd, void *to, size_t len)
{
        char *at = to;

        while (len > 0) {
                ssize_t n = read(fd, at, len);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n <= 0)
                        return false;
                at += n;
                len -= (size_t)n;
        }
        return true;
}

static bool read_block(struct cache_reader *c)
{
        uint8_t sum[BLOCK_SUM];
        struct block head;

        buf_clear(&c->block);
        c->used = 0;
        if (!read_fully(c->fd, &head, sizeof(head)) || head.len == 0 || head.len > BLOCK_MAX ||
            !buf_reserve(&c->block, head.len) || !read_fully(c->fd, c->block.data, head.len))
                return false;
        buf_grew(&c->block, head.len);
        sum_block(&c->block, sum);
        return memcmp(sum, head.sum, BLOCK_SUM) == 0;
}

/* The checksum says that we wrote it; that it makes sense is checked all the same. */
static bool read_record(struct cache_reader *c)
{
        char next[TREE_MAX_PATH + 1];
        struct record *r = &c->record;

        if (c->used == c->block.len && !read_block(c))
                return false;
        if (c->block.len - c->used < sizeof(*r))
                return false;
        memcpy(r, c->block.data + c->used, sizeof(*r));
        c->used += sizeof(*r);
        if (c->block.len - c->used < r->rest || r->shared > strlen(c->path) ||
            (size_t)r->shared + r->rest > TREE_MAX_PATH)
                return false;
        memcpy(next, c->path, r->shared);
        memcpy(next + r->shared, c->block.data + c->used, r->rest);
        next[r->shared + r->rest] = '\0';
        c->used += r->rest;
        if (tree_compare(c->path, next) >= 0)
                return false;
        memcpy(c->path, next, (size_t)r->shared + r->rest + 1);
        return true;
}

struct cache_reader *cache_open(const char *path)
{
        CLEAN(cleanup_fd) int fd = path ? open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY) : -1;
        char found[sizeof(header)];
        struct cache_reader *c;

        if (fd < 0 || !read_fully(fd, found, sizeof(found)) ||
            memcmp(found, header, sizeof(header)) != 0)
                return NULL;
        c = xcalloc(1, sizeof(*c));
        c->fd = take_fd(&fd);
        c->there = read_record(c);
        return c;
}

bool cache_find(struct cache_reader *c, const char *path, const struct file_id *id,
                uint8_t ret_hash[TREE_HASH])
{
        int order = -1;

        while (c && c->there && (order = tree_compare(c->path, path)) < 0)
                c->there = read_record(c);
        if (!c || !c->there || order != 0 || memcmp(&c->record.id, id, sizeof(*id)) != 0)
                return false;
        memcpy(ret_hash, c->record.hash, TREE_HASH);
        return true;
}

void cache_close(struct cache_reader *c)
{
        if (!c)
                return;
        close(c->fd);
        buf_done(&c->block);
        free(c);
}

/* Writing */

struct cache_writer {
        int fd;
        char *path, *beside;
        struct buf block;
        bool failed;
        char last[TREE_MAX_PATH + 1];
};

static void writer_free(struct cache_writer *c)
{
        if (c->fd >= 0)
                close(c->fd);
        buf_done(&c->block);
        free(c->path);
        free(c->beside);
        free(c);
}

/* Whether what we have locked is still what has the name: the one before us may have renamed it. */
static bool still_named(int fd, const char *path)
{
        struct stat ours, named;

        return fstat(fd, &ours) == 0 && lstat(path, &named) == 0 && ours.st_ino == named.st_ino &&
               ours.st_dev == named.st_dev;
}

struct cache_writer *cache_create(const char *path)
{
        struct cache_writer *c;

        if (!path)
                return NULL;
        c = xcalloc(1, sizeof(*c));
        c->path = xstrdup(path);
        c->beside = xasprintf("%s.new", path);
        c->fd = open(c->beside, O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (c->fd < 0 || flock(c->fd, LOCK_EX | LOCK_NB) < 0 || !still_named(c->fd, c->beside) ||
            ftruncate(c->fd, 0) < 0 || fd_write_all(c->fd, header, sizeof(header), NULL) < 0) {
                writer_free(c);
                return NULL;
        }
        return c;
}

static void write_block(struct cache_writer *c)
{
        struct block head = { .len = (uint32_t)c->block.len };

        if (c->block.len == 0 || c->failed)
                return;
        sum_block(&c->block, head.sum);
        if (buf_failed(&c->block) || fd_write_all(c->fd, &head, sizeof(head), NULL) < 0 ||
            fd_write_all(c->fd, c->block.data, c->block.len, NULL) < 0)
                c->failed = true;
        buf_clear(&c->block);
}

void cache_add(struct cache_writer *c, const char *path, const struct file_id *id,
               const uint8_t hash[TREE_HASH])
{
        size_t len = strlen(path), shared = 0;
        struct record r;

        if (!c || c->failed)
                return;
        if (c->block.len + sizeof(r) + len > BLOCK_MAX)
                write_block(c);
        while (path[shared] && path[shared] == c->last[shared])
                shared++;
        memset(&r, 0, sizeof(r)); /* the padding goes to disk too */
        r.id = *id;
        memcpy(r.hash, hash, TREE_HASH);
        r.shared = (uint16_t)shared;
        r.rest = (uint16_t)(len - shared);
        buf_append(&c->block, &r, sizeof(r));
        buf_append(&c->block, path + shared, len - shared);
        memcpy(c->last, path, len + 1);
}

void cache_finish(struct cache_writer *c, bool keep)
{
        if (!c)
                return;
        write_block(c);
        if (!keep || c->failed || rename(c->beside, c->path) < 0)
                (void)unlink(c->beside);
        writer_free(c);
}
