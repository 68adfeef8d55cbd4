/* Two directories, a file worker in a process of its own, and a line between that can be cut: for
 * tests of workspace/sync.h. */
#pragma once

#include "test.h"

#include "workspace/sync.h"

struct world {
        char root[SCRATCH_PATH_MAX];
        char remote[SCRATCH_PATH_MAX + 16], parts[SCRATCH_PATH_MAX + 16];
        char hashes[SCRATCH_PATH_MAX + 16];
        int root_fd, local_fd, remote_fd, state_fd;
        struct arena arena;
        struct op op;
        struct sync_options options;
        struct sync_progress moved;
        /* The next connection ends after so many bytes in each direction; 0: it does not. */
        uint64_t cut_after;
        int cut_direction; /* 0: what the worker is sent; 1: what it sends */
};

int world_setup(void **state);
int world_teardown(void **state);

/* In `local` or `remote`: content of `len` bytes from a seed, or a text. */
void put_bytes(int dir_fd, const char *path, size_t len, unsigned seed);
void put_text(int dir_fd, const char *path, const char *text);
void patch_byte(int dir_fd, const char *path, off_t at);
bool has_text(int dir_fd, const char *path, const char *text);
bool is_there(int dir_fd, const char *path);

/* A line to a new worker; line_close() also waits for it. */
struct line {
        int fd;
        int pid;
        void *relay;
};
void line_open(struct world *w, struct line *l);
void line_close(struct line *l);

int push(struct world *w, struct err *err);
void assert_pushed(struct world *w);
/* Both trees are equal, but for what is excluded. */
void assert_same_trees(struct world *w);
