/* LD_PRELOAD: the allocation number FAIL_AT of the process fails, and every one after it when
 * FAIL_ON is set. Without FAIL_AT they are counted, and the count is written to the file COUNT_TO
 * at the end. A program can leave parts of itself out by failalloc_count().
 *
 * libuv ends the program without a word where it has no memory for its table of descriptors. The
 * policy is ours as well (base/util.h), and so that it is not taken for a crash, it is said here.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <malloc.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

void failalloc_count(int on);

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);

static _Atomic long seen;
static long fail_at;
static pid_t whole; /* the process that is counted; its children are not */
static _Atomic bool is_on;
static bool goes_on;

__attribute__((constructor)) static void begin(void)
{
        const char *at = getenv("FAIL_AT");

        fail_at = at ? strtol(at, NULL, 10) : 0;
        goes_on = getenv("FAIL_ON") != NULL;
        whole = getpid();
        unsetenv("LD_PRELOAD"); /* only this process: what it starts has memory */
        is_on = true;
}

__attribute__((destructor)) static void end(void)
{
        const char *path = getenv("COUNT_TO");
        char text[32];
        int fd, len;

        is_on = false;
        if (!path || getpid() != whole)
                return;
        len = snprintf(text, sizeof(text), "%ld\n", atomic_load(&seen));
        fd = open(path, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (fd >= 0 && write(fd, text, (size_t)len) == len)
                close(fd);
}

void failalloc_count(int on)
{
        is_on = on;
}

static bool fails(void)
{
        long n;

        if (!is_on)
                return false;
        n = atomic_fetch_add(&seen, 1) + 1;
        if (!fail_at || n < fail_at || (n > fail_at && !goes_on))
                return false;
        errno = ENOMEM;
        return true;
}

void *malloc(size_t size)
{
        return fails() ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
        return fails() ? NULL : __libc_calloc(n, size);
}

void *realloc(void *p, size_t size)
{
        return fails() ? NULL : __libc_realloc(p, size);
}

void *memalign(size_t align, size_t size)
{
        return fails() ? NULL : __libc_memalign(align, size);
}

void *aligned_alloc(size_t align, size_t size)
{
        return fails() ? NULL : __libc_memalign(align, size);
}

int posix_memalign(void **ret, size_t align, size_t size)
{
        void *p = fails() ? NULL : __libc_memalign(align, size);

        if (!p)
                return ENOMEM;
        *ret = p;
        return 0;
}

void abort(void)
{
        static const char text[] = "libuv: out of memory\n";
        void (*real)(void) = dlsym(RTLD_NEXT, "abort");
        Dl_info caller;

        if (dladdr(__builtin_return_address(0), &caller) && strstr(caller.dli_fname, "libuv"))
                (void)!write(STDERR_FILENO, text, sizeof(text) - 1);
        real();
        _exit(134);
}
