/* How many descriptors are kept for ending things, and when they are lent. */
#define _GNU_SOURCE
#include "rt/reserve.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/stat.h>

#define HELD_MAX   32 /* descriptors that are held */
#define LOAN       8  /* of them, for one operation: a tool with its pipes, a directory, a lock */
#define MARGIN_MAX 64 /* free descriptors with which nothing new is begun */
#define MEMORY     ((size_t)4 << 20)

static struct {
        pthread_mutex_t lock;
        int fds[HELD_MAX];
        unsigned n, wanted;
} held = { .lock = PTHREAD_MUTEX_INITIALIZER };

static rlim_t descriptor_limit(void)
{
        struct rlimit limit;

        return getrlimit(RLIMIT_NOFILE, &limit) < 0 ? 1024 : limit.rlim_cur;
}

/* Before Linux 6.2 the directory does not say how many entries it has. One that cannot be opened
 * says enough. */
static rlim_t count_entries(void)
{
        DIR *dir = opendir("/proc/self/fd");
        rlim_t n = 0;

        if (!dir)
                return errno == EMFILE || errno == ENFILE ? RLIM_INFINITY : 0;
        while (readdir(dir))
                n++;
        closedir(dir);
        return n - 3; /* `.`, `..` and its own */
}

static rlim_t descriptors_open(void)
{
        struct stat st;

        return stat("/proc/self/fd", &st) == 0 && st.st_size > 0 ? (rlim_t)st.st_size
                                                                 : count_entries();
}

/* Whether fewer are free than are to be; those that are held are free. */
static bool is_short(rlim_t *ret_open, rlim_t *ret_limit)
{
        rlim_t limit = descriptor_limit(), n = descriptors_open();
        rlim_t margin = MIN(limit / 8, (rlim_t)MARGIN_MAX);

        *ret_open = n;
        *ret_limit = limit;
        return n >= limit || limit - n < margin;
}

/* Under the lock. */
static void hold_descriptors(unsigned n)
{
        while (n > 0 && held.n < held.wanted) {
                int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);

                if (fd < 0)
                        return;
                held.fds[held.n++] = fd;
                n--;
        }
}

void reserve_init(void)
{
        pthread_mutex_lock(&held.lock);
        held.wanted = (unsigned)MIN(descriptor_limit() / 16, (rlim_t)HELD_MAX);
        hold_descriptors(held.wanted);
        pthread_mutex_unlock(&held.lock);
        memory_reserve(MEMORY);
}

void reserve_done(void)
{
        pthread_mutex_lock(&held.lock);
        while (held.n > 0)
                close(held.fds[--held.n]);
        held.wanted = 0;
        pthread_mutex_unlock(&held.lock);
        memory_reserve(0);
}

int reserve_check(struct err *err)
{
        rlim_t n_open, limit;

        if (is_short(&n_open, &limit))
                return err_set(
                        err, ERR_BUSY,
                        "The daemon has %llu of %llu descriptors open and keeps the rest for "
                        "ending things. Release leases, or raise its limit (LimitNOFILE).",
                        (unsigned long long)n_open, (unsigned long long)limit);
        if (memory_is_short())
                return err_set(
                        err, ERR_BUSY,
                        "The daemon keeps the memory that is left for ending things. Release "
                        "leases, or give it more.");
        return 0;
}

unsigned reserve_borrow(void)
{
        rlim_t n_open, limit;
        unsigned n = 0;

        if (!is_short(&n_open, &limit))
                return 0;
        pthread_mutex_lock(&held.lock);
        while (held.n > 0 && n < LOAN) {
                close(held.fds[--held.n]);
                n++;
        }
        pthread_mutex_unlock(&held.lock);
        return n;
}

void reserve_return(const unsigned *loan)
{
        if (*loan == 0)
                return;
        pthread_mutex_lock(&held.lock);
        hold_descriptors(*loan);
        pthread_mutex_unlock(&held.lock);
}

void reserve_refill(void)
{
        rlim_t n_open, limit;

        pthread_mutex_lock(&held.lock);
        if (held.n < held.wanted && !is_short(&n_open, &limit))
                hold_descriptors(held.wanted);
        pthread_mutex_unlock(&held.lock);
        if (memory_is_short())
                memory_reserve(MEMORY);
}
