/* What the files of the scan share: looking at one name, reading one file (scan_file.c), and the
 * cache of hashes (cache.c). As scan.h. */
#pragma once

#include "workspace/scan.h"

/* What tells one version of a file from another. */
struct file_id {
        uint64_t dev, ino, size;
        int64_t mtime_ns, ctime_ns;
};

/* What a name stands for. */
enum seen {
        SEEN_NOTHING,
        SEEN_DIR,
        SEEN_FILE,
        SEEN_LINK,
        SEEN_SPECIAL, /* a socket, FIFO or device */
        SEEN_UNKNOWN, /* cannot be looked at, or is a mount point */
};

struct look {
        enum seen seen;
        uint32_t mode; /* 0777 */
        struct file_id id;
};

/* Look at a name without opening it; at dir itself when name is "". Not below 0 but for errors that
 * say nothing of the name (out_of_means()). */
int look_at(int dir, const char *name, struct look *ret, struct err *err);

/* Whether the failure is a shortage on our side: then nothing is known, and nothing may be
 * concluded. */
bool out_of_means(int errno_value);

/* The target of a link: its length, 0 when it is none any more or does not fit. */
size_t read_target(int dir, const char *name, char target[TREE_MAX_TARGET + 1]);

#define FILE_CHUNK ((size_t)128 << 10)

struct file_reader {
        uint8_t *chunk; /* FILE_CHUNK bytes */
        /* Other than 0 ends the reading with it. */
        int (*check)(void *ctx, struct err *err);
        void *ctx;
        const struct owner *owner; /* scan_options.owner */
};

struct file_content {
        struct look look; /* .seen: SEEN_FILE, or NOTHING, or UNKNOWN */
        bool steady;      /* it did not change while it was read */
        uint64_t bytes;   /* that were read, in all tries */
        uint8_t hash[TREE_HASH];
};

int hashing_ready(struct err *err); /* once, before the first file_hash(); any number of times */
int file_hash(int dir, const char *name, const struct file_reader *how, struct file_content *ret,
              struct err *err);

/* The cache, in the order of the paths. A reader that has nothing, and a writer that cannot write,
 * are no errors. */
struct cache_reader;
struct cache_writer;

struct cache_reader *cache_open(const char *path);
/* Paths that were asked for must not be less than those before. */
bool cache_find(struct cache_reader *c, const char *path, const struct file_id *id,
                uint8_t ret_hash[TREE_HASH]);
void cache_close(struct cache_reader *c);

struct cache_writer *cache_create(const char *path);
void cache_add(struct cache_writer *c, const char *path, const struct file_id *id,
               const uint8_t hash[TREE_HASH]);
/* Frees it; the new cache takes the place of the old one when `keep`. */
void cache_finish(struct cache_writer *c, bool keep);
