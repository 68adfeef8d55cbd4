/* A layer from somebody hostile, unpacked for real: first as the lower directory of an overlay,
 * then over that, flat. Nothing beside the directory changes, and it can be removed again. */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "codec/tar.h"
#include "image/layer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static char path[] = "/dev/shm/berth-fuzz-XXXXXX";
static int beside = -1;

static void leave(void)
{
        struct arena arena;
        struct op op = { .arena = &arena, .deadline_ms = OP_NO_DEADLINE };

        arena_init(&arena);
        (void)layer_remove(&op, AT_FDCWD, path, NULL);
        arena_done(&arena);
}

static void begin(void)
{
        if (sodium_init() < 0 || !mkdtemp(path) ||
            (beside = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
            file_write_at(beside, "witness", "mine", 4, 0600, NULL) < 0)
                abort();
        (void)atexit(leave);
}

static void check_beside(void)
{
        struct stat st;
        char text[8];
        CLEAN(cleanup_fd) int fd = openat(beside, "witness", O_RDONLY | O_CLOEXEC);
        DIR *dir = fdopendir(openat(beside, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        int n = 0;

        while (dir && readdir(dir))
                n++;
        if (!dir || closedir(dir) != 0 || n != 4 || fd < 0 || fstat(fd, &st) < 0 ||
            st.st_nlink != 1 || (st.st_mode & 07777) != 0600 || read(fd, text, sizeof(text)) != 4 ||
            memcmp(text, "mine", 4) != 0)
                abort();
}

/* The sums of headers are put right: they would keep the fuzzer from everything behind them. */
static void put_layer(int fd, const uint8_t *data, size_t size)
{
        CLEAN(buf_done) struct buf copy = BUF_INIT;

        buf_append(&copy, data, size);
        for (size_t at = 0; at + TAR_BLOCK <= size; at += TAR_BLOCK) {
                char *h = copy.data + at;
                unsigned sum = 0;

                if (memcmp(h + 257, "ustar", 5) != 0)
                        continue;
                memset(h + 148, ' ', 8);
                for (int i = 0; i < TAR_BLOCK; i++)
                        sum += (uint8_t)h[i];
                snprintf(h + 148, 8, "%06o", sum);
        }
        if (fd_write_all(fd, buf_str(&copy), copy.len, NULL) < 0)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct arena arena;
        struct op op = { .arena = &arena, .deadline_ms = OP_NO_DEADLINE };
        struct layer_result result;
        CLEAN(cleanup_fd) int fd = memfd_create("layer", MFD_CLOEXEC);
        CLEAN(cleanup_fd) int dir = -1;

        if (beside < 0)
                begin();
        arena_init(&arena);
        put_layer(fd, data, size);
        if (mkdirat(beside, "tree", 0755) < 0 ||
            (dir = openat(beside, "tree", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0)
                abort();
        struct layer_spec spec = { .from = { .fd = fd, .size = size },
                                   .media = IMAGE_MEDIA_TAR,
                                   .dir_fd = dir,
                                   .form = LAYER_OVERLAY,
                                   .owners = LAYER_OWNERS_CALLER,
                                   .limits = { .bytes = 1 << 20, .entries = 200, .depth = 16 } };
        (void)layer_unpack(&op, &spec, &result, NULL);
        spec.form = LAYER_FLAT;
        (void)layer_unpack(&op, &spec, &result, NULL);
        check_beside();
        if (layer_remove(&op, beside, "tree", NULL) < 0)
                abort();
        arena_done(&arena);
        return 0;
}
