/* A disk that fails: fsync(), fdatasync(), pwrite() and write() to files beneath a directory give
 * EIO now and then.
 *
 * Preloaded into a daemon by the soak (test/soak/faults.py). FAULTY names a file of two numbers of
 * 32 bits that the soak changes while the daemon runs: of how many calls one fails (0: none), and a
 * seed. FAULTY_BENEATH names the directory. */
#undef _FILE_OFFSET_BITS /* pwrite() and pwrite64() are two names here */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

struct control {
        _Atomic uint32_t one_in, seed;
};

static struct control *control;
static const char *beneath;
static int (*real_fsync)(int fd);
static int (*real_fdatasync)(int fd);
static ssize_t (*real_write)(int fd, const void *data, size_t n);
static ssize_t (*real_pwrite64)(int fd, const void *data, size_t n, off64_t offset);

__attribute__((constructor)) static void faulty_init(void)
{
        const char *path = getenv("FAULTY");
        int fd = path ? open(path, O_RDWR | O_CLOEXEC) : -1;

        real_fsync = dlsym(RTLD_NEXT, "fsync");
        real_fdatasync = dlsym(RTLD_NEXT, "fdatasync");
        real_write = dlsym(RTLD_NEXT, "write");
        real_pwrite64 = dlsym(RTLD_NEXT, "pwrite64");
        beneath = getenv("FAULTY_BENEATH");
        if (fd < 0)
                return;
        control = mmap(NULL, sizeof(*control), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (control == MAP_FAILED)
                control = NULL;
        close(fd);
}

static int is_beneath(int fd)
{
        char link[64], path[4096];
        ssize_t n;

        (void)snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
        n = readlink(link, path, sizeof(path) - 1);
        if (n <= 0 || !beneath)
                return 0;
        path[n] = '\0';
        return strncmp(path, beneath, strlen(beneath)) == 0;
}

/* A number from the seed for each call: xorshift. */
static int fails(int fd)
{
        uint32_t one_in = control ? atomic_load(&control->one_in) : 0, x;
        int saved = errno;

        if (one_in == 0)
                return 0;
        x = atomic_fetch_add(&control->seed, 0x9e3779b9) | 1;
        x ^= x << 13;
        x ^= x >> 17;
        x ^= x << 5;
        if (x % one_in != 0 || !is_beneath(fd)) {
                errno = saved;
                return 0;
        }
        errno = EIO;
        return 1;
}

int fsync(int fd)
{
        return fails(fd) ? -1 : real_fsync(fd);
}

int fdatasync(int fd)
{
        return fails(fd) ? -1 : real_fdatasync(fd);
}

ssize_t write(int fd, const void *data, size_t n)
{
        return fails(fd) ? -1 : real_write(fd, data, n);
}

ssize_t pwrite64(int fd, const void *data, size_t n, off64_t offset)
{
        return fails(fd) ? -1 : real_pwrite64(fd, data, n, offset);
}

ssize_t pwrite(int fd, const void *data, size_t n, off_t offset)
{
        return fails(fd) ? -1 : real_pwrite64(fd, data, n, offset);
}
