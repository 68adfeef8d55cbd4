#include "secret/value.h"

#include <errno.h>
#include <sodium.h>
#include <sys/mman.h>

static size_t pages(size_t len)
{
        size_t page = (size_t)sysconf(_SC_PAGESIZE);

        return (len + 1 + page - 1) / page * page;
}

int secret_value_alloc(struct secret_value *value, size_t len, struct err *err)
{
        size_t size = pages(len);
        void *p = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

        if (p == MAP_FAILED)
                return err_sys(err, ERR_INTERNAL, errno, "memory for a value");
        (void)mlock(p, size);
        (void)madvise(p, size, MADV_DONTDUMP);
        *value = (struct secret_value){ p, len };
        return 0;
}

int secret_value_set(struct secret_value *value, const char *data, size_t len, struct err *err)
{
        int r;

        if (len > SECRET_VALUE_MAX)
                return err_set(err, ERR_TOO_LARGE, "The value is larger than 64 KiB.");
        r = secret_value_alloc(value, len, err);
        if (r == 0)
                memcpy(value->data, data, len);
        return r;
}

void secret_value_done(struct secret_value *value)
{
        if (value->data) {
                sodium_memzero(value->data, value->len);
                (void)munmap(value->data, pages(value->len));
        }
        *value = (struct secret_value){ 0 };
}
