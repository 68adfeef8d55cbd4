/* Cutting content into chunks where the content says so (a gear hash, as in FastCDC): a change in
 * the middle of a file changes the chunks around it and no others.
 *
 * Chunks are a quarter of the average to four times as long. The average grows with the file, so
 * that a file has a bounded number of them. Both sides of a transfer cut by the size of the new
 * file.
 *
 * Part of berth and of berth-box. Blocking; any thread. */
#pragma once

#include <sodium.h>

#include "codec/tree.h"

struct chunk {
        uint64_t offset, len;
        uint8_t id[TREE_HASH]; /* BLAKE2b-256 */
};

struct chunk_list {
        struct chunk *at;
        size_t n, cap;
};

void chunk_list_done(struct chunk_list *l);
/* ERR_TOO_LARGE past `max`. */
int chunk_list_add(struct chunk_list *l, const struct chunk *c, size_t max, struct err *err);

uint64_t chunk_average(uint64_t file_size);

/* Called between reads; anything but 0 ends the work. May be NULL. */
typedef int (*chunk_check_fn)(void *ctx, struct err *err);

/* Cut the first `size` bytes of the file; fewer when it is shorter by now. `ret_hash`, which may be
 * NULL, is the hash of all of them. */
int chunk_file(int fd, uint64_t size, uint64_t average, struct chunk_list *ret,
               uint8_t ret_hash[TREE_HASH], chunk_check_fn check, void *ctx, struct err *err);

/* Hash `len` bytes from `offset` on, or as many as there are. */
int chunk_hash(int fd, uint64_t offset, uint64_t len, uint8_t ret[TREE_HASH], uint64_t *ret_len,
               chunk_check_fn check, void *ctx, struct err *err);

/* Where a chunk is in a file: by id. */
struct chunk_map;
struct chunk_map *chunk_map_new(const struct chunk_list *of);
const struct chunk *chunk_map_find(const struct chunk_map *m, const uint8_t id[TREE_HASH],
                                   uint64_t len);
void chunk_map_free(struct chunk_map *m);
