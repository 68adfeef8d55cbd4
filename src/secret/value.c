/* Pages of their own, so that locking and keeping out of core dumps touch nothing else, and a stray
 * pointer into the heap cannot reach a value. Locking is best effort: the usual limit is a few
 * megabytes, and a value that could be swapped is better than none. */
#include "secret/value.h"

#include <errno.h>
#include <sodium.h>
#include <sys/mman.h>

static size_t pages_for(size_t len)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE);

        return (len + 1 + page - 1) / page * page;
}

int secret_value_room(struct secret_value *value, size_t len, struct err *err)
{
        size_t size = pages_for(len);

        *value = (struct secret_value){ 0 };
        char *data = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (data == MAP_FAILED)
                return err_sys(err, ERR_INTERNAL, errno, "memory for a secret");
        (void)mlock(data, size);
        (void)madvise(data, size, MADV_DONTDUMP);
        (void)madvise(data, size, MADV_WIPEONFORK);
        value->data = data;
        value->len = len;
        return 0;
}

int secret_value_alloc(struct secret_value *value, size_t len, struct err *err)
{
        *value = (struct secret_value){ 0 };
        if (len > SECRET_VALUE_MAX)
                return err_set(err, ERR_TOO_LARGE, "A secret may have at most %zu bytes",
                               SECRET_VALUE_MAX);
        return secret_value_room(value, len, err);
}

int secret_value_set(struct secret_value *value, const char *data, size_t len, struct err *err)
{
        int r = secret_value_alloc(value, len, err);

        if (r >= 0 && len > 0)
                memcpy(value->data, data, len);
        return r;
}

void secret_value_done(struct secret_value *value)
{
        if (!value->data)
                return;
        size_t size = pages_for(value->len);
        sodium_memzero(value->data, size);
        (void)munlock(value->data, size);
        (void)munmap(value->data, size);
        *value = (struct secret_value){ 0 };
}
