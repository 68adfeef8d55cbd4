/* Any changes at all, merged into a small workspace with links that lead out of it: whatever they
 * say, nothing outside of it changes and nothing of the merge's own stays behind. The bytes are
 * those of a bundle's changes (fuzz_bundle.c); content is zeros. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <ftw.h>
#include <sodium.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "workspace/change_file.h"
#include "workspace/merge.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_CONTENT 4096

struct source {
        struct change_set set;
        struct change_decoder decoder;
};

static char root[64], lock[80];
static int root_fd = -1;

static int next_change(struct change_set *s, struct change *ret, struct err *err)
{
        return change_decode_next(&container_of(s, struct source, set)->decoder, ret, err);
}

static int open_zeros(struct change_set *s, const struct change *c, int *ret_fd, struct err *err)
{
        int fd;

        (void)s;
        if (c->now.size > MAX_CONTENT)
                return err_set(err, ERR_TOO_LARGE, "too large");
        fd = memfd_create("zeros", MFD_CLOEXEC);
        if (fd < 0 || ftruncate(fd, (off_t)c->now.size) < 0)
                abort();
        *ret_fd = fd;
        return 0;
}

static int remove_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
        (void)st;
        (void)type;
        (void)where;
        return remove(path);
}

static void remove_root(void)
{
        nftw(root, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

static void make_file(const char *name)
{
        int fd = openat(root_fd, name, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);

        if (fd < 0 || write(fd, "x", 1) != 1)
                abort();
        close(fd);
}

static void make_world(void)
{
        snprintf(root, sizeof(root), "/dev/shm/berth-fuzz-XXXXXX");
        if (sodium_init() < 0 || !mkdtemp(root))
                abort();
        snprintf(lock, sizeof(lock), "%s/lock", root);
        root_fd = open(root, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (mkdirat(root_fd, "out", 0755) < 0)
                abort();
        make_file("out/f");
        atexit(remove_root);
}

static int make_workspace(void)
{
        char path[80];

        snprintf(path, sizeof(path), "%s/ws", root);
        nftw(path, remove_entry, 16, FTW_DEPTH | FTW_PHYS);
        if (mkdirat(root_fd, "ws", 0755) < 0 || mkdirat(root_fd, "ws/d", 0755) < 0 ||
            symlinkat("../out", root_fd, "ws/l") < 0 || symlinkat("../out/f", root_fd, "ws/m") < 0)
                abort();
        make_file("ws/f");
        make_file("ws/d/f");
        return openat(root_fd, "ws", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static unsigned seen;

static int count_entry(const char *path, const struct stat *st, int type, struct FTW *where)
{
        (void)type;
        (void)where;
        if (strstr(path, ".berth-tmp-") || (st->st_mode & 06000))
                abort();
        if (!str_starts(path + strlen(root), "/ws"))
                seen++;
        return 0;
}

/* The root, the lock, out and out/f. */
static void check_world(void)
{
        struct stat st;

        seen = 0;
        nftw(root, count_entry, 16, FTW_PHYS);
        if (seen != 4 || fstatat(root_fd, "out/f", &st, AT_SYMLINK_NOFOLLOW) < 0 ||
            !S_ISREG(st.st_mode) || st.st_size != 1 || (st.st_mode & 07777) != 0644)
                abort();
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        static struct source s;
        struct merge_options options = { .lock_path = lock, .stamp = "now", .umask = 022 };
        struct merge_report report;
        struct arena arena;
        struct op op = { .arena = &arena, .deadline_ms = OP_NO_DEADLINE };
        int ws;

        if (root_fd < 0)
                make_world();
        ws = make_workspace();
        arena_init(&arena);
        s.set = (struct change_set){ .next = next_change, .open = open_zeros };
        change_decode_init(&s.decoder);
        change_decode_feed(&s.decoder, data, size);
        (void)merge_apply(&op, ws, &s.set, &options, &report, NULL);
        check_world();
        change_decode_done(&s.decoder);
        arena_done(&arena);
        close(ws);
        return 0;
}
