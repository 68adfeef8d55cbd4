/* The commands that write, read and remove files in a place, and what their failures mean. */
#define _GNU_SOURCE
#include "core/exec/exec_transfer.h"

#include <errno.h>
#include <inttypes.h>
#include <sodium.h>
#include <stdio.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/uuid.h"
#include "codec/shell.h"
#include "workspace/runtime_dir.h"

#define ARG_MAX_BYTES 131071 /* of the kernel, without the NUL */
#define CLEAN_UP_MS   10000
#define SAID_MAX      500 /* of an action and of standard error in an error */
#define SIZE_TEXT_MAX 64
#define READ_TEXT_MAX                                                                              \
        (EXEC_TRANSFER_READ_CHUNK / 3 * 4 * 2) /* base64 and its line ends, generously */
#define TRUNCATED_MARK "...[truncated]\n"

/* Commands */

static void answer_done(struct exec_transfer_answer *a)
{
        buf_done(&a->out);
        buf_done(&a->err);
}

static const char *shell_of(const struct exec_transfer *t)
{
        return t->shell && streq(t->shell, "bash") ? "bash" : "sh";
}

/* Without white space around it; of a long text the end. */
static void add_stderr(struct buf *b, const struct buf *text)
{
        const char *from = buf_str(text), *to = from + text->len;

        while (from < to && strchr(" \t\r\n", *from))
                from++;
        while (from < to && strchr(" \t\r\n", to[-1]))
                to--;
        if (from == to)
                return;
        buf_puts(b, ": ");
        if (to - from > SAID_MAX) {
                from = to - SAID_MAX;
                buf_puts(b, TRUNCATED_MARK);
        }
        buf_append(b, from, (size_t)(to - from));
}

/* A shell says "I/O error" for both, node "ENOSPC: no space left on device". */
bool exec_transfer_tells_of_want(const char *errors)
{
        static const char *const signs[] = { "No space left on device", "Disk quota exceeded",
                                             "I/O error", "Input/output error" };

        for (size_t i = 0; i < ARRAY_LEN(signs); i++)
                if (strcasestr(errors, signs[i]))
                        return true;
        return false;
}

/* A script may hold a whole piece of a file; its beginning says what it was. */
static int failed(const char *action, const struct exec_transfer_answer *a, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        size_t n = strlen(action);

        buf_append(&text, action, MIN(n, SAID_MAX));
        buf_puts(&text, n > SAID_MAX ? "... failed with exit code " : " failed with exit code ");
        if (a->exit_code < 0 || a->timed_out)
                buf_puts(&text, "null");
        else
                buf_appendf(&text, "%d", a->exit_code);
        add_stderr(&text, &a->err);
        (void)err_set(err, ERR_PROVIDER, "%s", buf_str(&text));
        if (exec_transfer_tells_of_want(buf_str(&a->err)))
                err_mark_transient(err);
        return ERR_PROVIDER;
}

/* `out_max` bounds what is kept of standard output; a command that prints more fails. */
static int run_script(struct op *op, const struct exec_transfer *t, const char *action,
                      const char *script, int64_t timeout_ms, size_t out_max, struct buf *ret_out,
                      struct err *err)
{
        CLEAN(answer_done)
        struct exec_transfer_answer a = { .exit_code = -1,
                                          .out = { .max = out_max ? out_max : (size_t)64 << 10 },
                                          .err = { .max = (size_t)64 << 10 } };
        const char *const argv[] = { shell_of(t), "-c", script, NULL };
        int r = op_check(op, err);

        if (timeout_ms <= 0)
                timeout_ms = t->timeout_ms > 0 ? t->timeout_ms : EXEC_TRANSFER_TIMEOUT_MS;
        if (r >= 0)
                r = t->run(op, t->ctx, argv, timeout_ms, &a, err);
        if (r < 0)
                return r;
        if (a.exit_code != 0 || a.timed_out)
                return failed(action ? action : script, &a, err);
        if (ret_out && buf_failed(&a.out))
                return err_set(err, ERR_PROVIDER, "a command in the place prints too much");
        if (ret_out) {
                *ret_out = a.out;
                a.out = BUF_INIT;
        }
        return 0;
}

static int run_buf(struct op *op, const struct exec_transfer *t, const struct buf *script,
                   struct err *err)
{
        if (buf_failed(script) || script->len > ARG_MAX_BYTES)
                return err_set(err, ERR_TOO_LARGE, "a command for the place is too long");
        return run_script(op, t, NULL, buf_str(script), 0, 0, NULL, err);
}

static int check_path(const char *path, struct err *err)
{
        size_t n = strlen(path);
        bool good = *path == '/' && n <= EXEC_TRANSFER_PATH_MAX && !strstr(path, "/../") &&
                    !(n >= 3 && streq(path + n - 3, "/.."));

        return good ? 0
                    : err_set(err, ERR_INVALID, "not an absolute path in the place: %.200s", path);
}

int exec_transfer_run(struct op *op, const struct exec_transfer *t, const char *script,
                      int64_t timeout_ms, struct err *err)
{
        return run_script(op, t, NULL, script, timeout_ms, 0, NULL, err);
}

int exec_transfer_remove(struct op *op, const struct exec_transfer *t, const char *path,
                         struct err *err)
{
        CLEAN(buf_done) struct buf script = BUF_INIT;
        CLEAN(cleanup_free) char *action = xasprintf("remove %s", path);
        int r = check_path(path, err);

        if (r < 0)
                return r;
        buf_puts(&script, "rm -rf ");
        shell_quote(&script, path);
        return run_script(op, t, action, buf_str(&script), 0, 0, NULL, err);
}

/* Writing */

static int begin_upload(struct op *op, const struct exec_transfer *t, const char *path,
                        const char *temp, struct err *err)
{
        CLEAN(buf_done) struct buf script = BUF_INIT;
        size_t n = (size_t)(strrchr(path, '/') - path);
        CLEAN(cleanup_free) char *parent = xstrndup(path, MAX(n, 1));

        buf_puts(&script, "mkdir -p ");
        shell_quote(&script, parent);
        buf_puts(&script, " && (umask 077 && : > ");
        shell_quote(&script, temp);
        buf_puts(&script, ")");
        return run_buf(op, t, &script, err);
}

static int send_piece(struct op *op, const struct exec_transfer *t, const char *temp,
                      const unsigned char *bytes, size_t len, struct err *err)
{
        CLEAN(buf_done) struct buf script = BUF_INIT;
        size_t size = sodium_base64_ENCODED_LEN(len, sodium_base64_VARIANT_ORIGINAL);

        buf_puts(&script, "printf '%s' '");
        char *at = buf_reserve(&script, size);
        if (at) {
                sodium_bin2base64(at, size, bytes, len, sodium_base64_VARIANT_ORIGINAL);
                buf_grew(&script, size - 1);
        }
        buf_puts(&script, "' | base64 -d >> ");
        shell_quote(&script, temp);
        return run_buf(op, t, &script, err);
}

/* A full piece, unless the file ends. */
static int read_piece(int fd, unsigned char *bytes, size_t size, size_t *ret_len, struct err *err)
{
        size_t len = 0;

        while (len < size) {
                ssize_t n = read(fd, bytes + len, size - len);

                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read what is to be sent");
                if (n == 0)
                        break;
                len += (size_t)n;
        }
        *ret_len = len;
        return 0;
}

static int send_all(struct op *op, const struct exec_transfer *t, const char *temp, int fd,
                    uint64_t *ret_size, struct err *err)
{
        CLEAN(cleanup_free) unsigned char *bytes = xcalloc(1, EXEC_TRANSFER_WRITE_CHUNK);
        uint64_t size = 0;
        size_t len;
        int r;

        do {
                r = read_piece(fd, bytes, EXEC_TRANSFER_WRITE_CHUNK, &len, err);
                if (r >= 0 && len > 0)
                        r = send_piece(op, t, temp, bytes, len, err);
                if (r < 0)
                        return r;
                size += len;
        } while (len == EXEC_TRANSFER_WRITE_CHUNK);
        *ret_size = size;
        return 0;
}

/* Only a file that arrived whole gets its name. A directory of that name would swallow it. */
static int finish_upload(struct op *op, const struct exec_transfer *t, const char *temp,
                         const char *path, uint64_t size, mode_t mode, struct err *err)
{
        CLEAN(buf_done) struct buf script = BUF_INIT;

        buf_puts(&script, "n=$(wc -c < ");
        shell_quote(&script, temp);
        buf_appendf(&script,
                    ") && if [ $n -ne %" PRIu64 " ]; then echo \"$n of %" PRIu64
                    " bytes arrived\" >&2; exit 1; fi && if [ -d ",
                    size, size);
        shell_quote(&script, path);
        buf_appendf(&script, " ]; then echo 'it is a directory' >&2; exit 1; fi && chmod %o ",
                    (unsigned)mode & 07777);
        shell_quote(&script, temp);
        buf_puts(&script, " && mv -f ");
        shell_quote(&script, temp);
        buf_putc(&script, ' ');
        shell_quote(&script, path);
        return run_buf(op, t, &script, err);
}

int exec_transfer_write(struct op *op, const struct exec_transfer *t, const char *path, int fd,
                        mode_t mode, struct err *err)
{
        CLEAN(cleanup_free) char *temp = NULL;
        struct op shield = op_shield(op, CLEAN_UP_MS);
        uint64_t size = 0;
        int r = check_path(path, err);

        if (r < 0)
                return r;
        temp = xasprintf("%s%s%s", path, EXEC_TRANSFER_TEMP_SUFFIX, uuid_new().s);
        r = begin_upload(op, t, path, temp, err);
        if (r >= 0)
                r = send_all(op, t, temp, fd, &size, err);
        if (r >= 0)
                r = finish_upload(op, t, temp, path, size, mode, err);
        if (r < 0)
                (void)exec_transfer_remove(&shield, t, temp, NULL);
        return r;
}

/* Reading */

static int no_size(const char *path, struct err *err)
{
        return err_set(err, ERR_PROVIDER, "Could not determine remote file size for %s", path);
}

static int ask_size(struct op *op, const struct exec_transfer *t, const char *path, uint64_t *ret,
                    struct err *err)
{
        CLEAN(buf_done) struct buf script = BUF_INIT, out = BUF_INIT;
        char *end;

        buf_puts(&script, "wc -c < ");
        shell_quote(&script, path);
        int r = run_script(op, t, NULL, buf_str(&script), 0, SIZE_TEXT_MAX, &out, err);
        if (r < 0)
                return r;
        const char *digits = buf_str(&out) + strspn(buf_str(&out), " \t");
        errno = 0;
        *ret = strtoull(digits, &end, 10);
        if (*digits < '0' || *digits > '9' || errno != 0 || end[strspn(end, " \t\r\n")] != '\0')
                return no_size(path, err);
        return 0;
}

/* One piece, appended to fd. */
static int fetch_piece(struct op *op, const struct exec_transfer *t, const char *path,
                       uint64_t index, unsigned char *bytes, size_t *ret_len, struct err *err)
{
        CLEAN(buf_done) struct buf script = BUF_INIT, out = BUF_INIT;

        buf_puts(&script, "dd if=");
        shell_quote(&script, path);
        buf_appendf(&script, " bs=%zu skip=%" PRIu64 " count=1 2>/dev/null | base64",
                    EXEC_TRANSFER_READ_CHUNK, index);
        int r = run_script(op, t, NULL, buf_str(&script), 0, READ_TEXT_MAX, &out, err);
        if (r < 0)
                return r;
        if (sodium_base642bin(bytes, EXEC_TRANSFER_READ_CHUNK, buf_str(&out), out.len, " \t\r\n",
                              ret_len, NULL, sodium_base64_VARIANT_ORIGINAL) < 0)
                return err_set(err, ERR_PROVIDER, "Remote file read gave no base64 for %s", path);
        return 0;
}

int exec_transfer_read(struct op *op, const struct exec_transfer *t, const char *path, uint64_t max,
                       int fd, uint64_t *ret_size, struct err *err)
{
        CLEAN(cleanup_free) unsigned char *bytes = NULL;
        uint64_t size = 0, at = 0;
        int r = check_path(path, err);

        if (r >= 0)
                r = ask_size(op, t, path, &size, err);
        if (r < 0)
                return r;
        if (size > max)
                return err_set(err, ERR_TOO_LARGE, "%s has %" PRIu64 " bytes, more than %" PRIu64,
                               path, size, max);
        bytes = xcalloc(1, EXEC_TRANSFER_READ_CHUNK);
        for (uint64_t i = 0; at < size; i++) {
                size_t len = 0, due = (size_t)MIN(size - at, EXEC_TRANSFER_READ_CHUNK);

                r = fetch_piece(op, t, path, i, bytes, &len, err);
                if (r >= 0)
                        r = fd_write_all(fd, bytes, MIN(len, due), err);
                if (r < 0)
                        return r;
                at += len;
                if (len != due)
                        return err_set(err, ERR_PROVIDER,
                                       "Remote file read was truncated for %s: %" PRIu64 "/%" PRIu64
                                       " bytes",
                                       path, at, size);
        }
        *ret_size = size;
        return 0;
}

/* Directories below `.paperclip-runtime` */

static void put_ignore(struct buf *script, const char *dir)
{
        buf_puts(script, "p=");
        shell_quote(script, dir);
        buf_puts(script, "\nmkdir -p \"$p\"\np=$p/.gitignore\n"
                         "if [ -L \"$p\" ] || [ ! -s \"$p\" ]; then\n"
                         "rm -f \"$p\"\necho '*' >\"$p\"\nfi\n");
}

static char *until(const char *dir, const char *end)
{
        return end ? xstrndup(dir, (size_t)(end - dir)) : xstrdup(dir);
}

static void put_ignores(struct buf *script, const char *dir, const char *at)
{
        while (at) {
                const char *next = strchr(at + 1, '/');
                CLEAN(cleanup_free) char *part = until(dir, next);

                if (runtime_dir_is_within(at))
                        put_ignore(script, part);
                at = next;
        }
}

static void put_check(struct buf *script, const char *dir, const char *at)
{
        buf_puts(script, "for p in");
        while (at) {
                const char *next = strchr(at + 1, '/');
                CLEAN(cleanup_free) char *part = until(dir, next);

                buf_putc(script, ' ');
                shell_quote(script, part);
                at = next;
        }
        buf_puts(script, "; do if [ -L \"$p\" ]; then echo \"$p is a link\" >&2; exit 1; fi; "
                         "done\n");
}

void runtime_script(struct buf *script, const char *dir)
{
        const char *at = runtime_dir_in(dir);

        if (!at)
                return;
        put_check(script, dir, at);
        put_ignores(script, dir, at);
}
