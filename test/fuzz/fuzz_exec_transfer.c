/* What commands in a place answer, cut at 0x1e: whatever they say, no more is written than they
 * announced, and what is taken for a whole file is one. */
#define _GNU_SOURCE
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/fd.h"
#include "core/exec/exec_transfer.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_FILE 100000

struct script {
        const char *at, *end;
};

/* The first byte says how it ended, the rest is what it printed. */
static int answer(struct op *op, void *ctx, const char *const *argv, int64_t timeout_ms,
                  struct exec_transfer_answer *ret, struct err *err)
{
        struct script *s = ctx;
        const char *end = memchr(s->at, 0x1e, (size_t)(s->end - s->at));

        (void)op;
        (void)argv;
        (void)timeout_ms;
        if (s->at == s->end)
                return err_set(err, ERR_UNCERTAIN, "gone");
        end = end ? end : s->end;
        ret->exit_code = end > s->at && *s->at == '!' ? 1 : 0;
        if (end > s->at) {
                buf_append(&ret->out, s->at + 1, (size_t)(end - s->at - 1));
                buf_append(&ret->err, s->at + 1, (size_t)(end - s->at - 1));
        }
        s->at = end < s->end ? end + 1 : s->end;
        return 0;
}

static void read_file(struct op *op, struct exec_transfer *t)
{
        CLEAN(err_done) struct err err = { 0 };
        CLEAN(cleanup_fd) int fd = memfd_create("out", 0);
        uint64_t got = 0;
        struct stat st;
        int r = exec_transfer_read(op, t, "/x", MAX_FILE, fd, &got, &err);

        if (fstat(fd, &st) < 0 || st.st_size > MAX_FILE || (r >= 0 && got != (uint64_t)st.st_size))
                abort();
}

static void write_file(struct op *op, struct exec_transfer *t)
{
        CLEAN(err_done) struct err err = { 0 };
        CLEAN(cleanup_fd) int fd = memfd_create("in", 0);

        if (ftruncate(fd, MAX_FILE) == 0)
                (void)exec_transfer_write(op, t, "/a/b", fd, 0600, &err);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
        struct script s = { (const char *)data, (const char *)data + size };
        struct exec_transfer t = { .run = answer, .ctx = &s };
        struct op op = { .deadline_ms = OP_NO_DEADLINE };

        if (size == 0)
                return 0;
        read_file(&op, &t);
        s.at = (const char *)data;
        write_file(&op, &t);
        return 0;
}
