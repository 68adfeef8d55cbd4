/* Files by way of commands: the commands really run, on this machine. */
#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <ftw.h>
#include <sodium.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/fd.h"
#include "codec/shell.h"
#include "core/exec/exec_transfer.h"
#include "plugin/tree.h"

static struct {
        struct arena arena;
        struct op op;
        struct exec_transfer transfer;
        char dir[SCRATCH_PATH_MAX];
        int commands;   /* how many there were */
        int fail_at;    /* the command that fails without having run; 0: none */
        int lose_at;    /* the one whose end is not known */
        size_t longest; /* argument */
        char last_shell[16];
        const char *says; /* what every command prints instead of running */
} t;

static void take_output(int fd, struct buf *b)
{
        char part[65536];
        ssize_t n;

        assert_true(lseek(fd, 0, SEEK_SET) == 0);
        while ((n = read(fd, part, sizeof(part))) > 0)
                buf_append(b, part, (size_t)n);
        close(fd);
}

static void really_run(const char *const *argv, struct exec_transfer_answer *ret)
{
        int out = memfd_create("out", 0), err = memfd_create("err", 0), status = 0;
        pid_t pid = fork();

        if (pid == 0) {
                int null = open("/dev/null", O_RDONLY);

                if (dup2(null, 0) < 0 || dup2(out, 1) < 0 || dup2(err, 2) < 0 || chdir("/") < 0)
                        _exit(125);
                execvp(argv[0], (char *const *)argv);
                _exit(126);
        }
        assert_true(pid > 0 && waitpid(pid, &status, 0) == pid);
        ret->exit_code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
        take_output(out, &ret->out);
        take_output(err, &ret->err);
}

static int run(struct op *op, void *ctx, const char *const *argv, int64_t timeout_ms,
               struct exec_transfer_answer *ret, struct err *err)
{
        t.commands++;
        assert_string_equal(argv[1], "-c");
        assert_null(argv[3]);
        snprintf(t.last_shell, sizeof(t.last_shell), "%s", argv[0]);
        t.longest = MAX(t.longest, strlen(argv[2]));
        if (t.commands == t.lose_at)
                return err_set(err, ERR_UNCERTAIN, "lost");
        if (t.commands == t.fail_at) {
                ret->exit_code = 7;
                buf_puts(&ret->err, "\n no space \n");
        } else if (t.says) {
                ret->exit_code = 0;
                buf_puts(&ret->out, t.says);
        } else {
                really_run(argv, ret);
        }
        return 0;
}

static int setup(void **state)
{
        memset(&t, 0, sizeof(t));
        arena_init(&t.arena);
        t.op = (struct op){ .arena = &t.arena, .deadline_ms = OP_NO_DEADLINE };
        t.transfer = (struct exec_transfer){ .run = run };
        make_scratch(t.dir);
        return sodium_init() < 0 ? -1 : 0;
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
        return remove(path);
}

static int teardown(void **state)
{
        (void)nftw(t.dir, remove_one, 8, FTW_DEPTH | FTW_PHYS);
        arena_done(&t.arena);
        return 0;
}

static const char *in_dir(const char *name)
{
        return arena_printf(&t.arena, "%s/%s", t.dir, name);
}

static unsigned char *noise(size_t n)
{
        unsigned char *bytes = arena_alloc(&t.arena, n + 1);

        randombytes_buf(bytes, n);
        return bytes;
}

static int file_of(const void *bytes, size_t n)
{
        int fd = memfd_create("file", 0);

        assert_int_equal(fd_write_all(fd, bytes, n, NULL), 0);
        assert_true(lseek(fd, 0, SEEK_SET) == 0);
        return fd;
}

static int put(const char *path, const void *bytes, size_t n, struct err *err)
{
        CLEAN(cleanup_fd) int fd = file_of(bytes, n);

        return exec_transfer_write(&t.op, &t.transfer, path, fd, 0640, err);
}

static void assert_file(const char *path, const void *bytes, size_t n)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        assert_int_equal(file_read_at(AT_FDCWD, path, n + 1, &b, NULL), 0);
        assert_int_equal(b.len, n);
        assert_memory_equal(buf_str(&b), bytes, n);
}

static int add_name(void *ctx, const char *name)
{
        buf_appendf(ctx, "%s\n", name);
        return 0;
}

/* Nothing but the named file is in the directory. */
static void assert_alone(const char *dir, const char *name)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        assert_int_equal(tree_each(dir, add_name, &b, NULL), 0);
        assert_string_equal(buf_str(&b), name ? arena_printf(&t.arena, "%s\n", name) : "");
}

static void test_write_sizes(void **state)
{
        static const size_t sizes[] = { 0,
                                        1,
                                        2,
                                        3,
                                        EXEC_TRANSFER_WRITE_CHUNK - 1,
                                        EXEC_TRANSFER_WRITE_CHUNK,
                                        EXEC_TRANSFER_WRITE_CHUNK + 1,
                                        3 * EXEC_TRANSFER_WRITE_CHUNK + 7 };
        const char *path = in_dir("deep/er/file");

        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                size_t n = sizes[i];
                unsigned char *bytes = noise(n);
                struct stat st;

                t.commands = 0;
                assert_int_equal(put(path, bytes, n, NULL), 0);
                assert_file(path, bytes, n);
                assert_int_equal(t.commands, 2 + (n + EXEC_TRANSFER_WRITE_CHUNK - 1) /
                                                             EXEC_TRANSFER_WRITE_CHUNK);
                assert_true(stat(path, &st) == 0 && (st.st_mode & 0777) == 0640);
                assert_alone(in_dir("deep/er"), "file");
        }
        assert_true(t.longest < 131072 - 4096); /* providers wrap it once more */
}

static void test_names(void **state)
{
        static const char *const names[] = { "it's 'quoted'", "-rf", "a b\n$(touch bad)`\\",
                                             "\"x\"", "\xc3\xa4 *?[a]" };

        for (size_t i = 0; i < ARRAY_LEN(names); i++) {
                const char *path = in_dir(names[i]);

                assert_int_equal(put(path, "content", 7, NULL), 0);
                assert_file(path, "content", 7);
                assert_int_equal(exec_transfer_remove(&t.op, &t.transfer, path, NULL), 0);
                assert_true(access(path, F_OK) < 0);
        }
        assert_alone(t.dir, NULL);
}

static void test_write_replaces_at_once(void **state)
{
        const char *path = in_dir("file");
        unsigned char *bytes = noise(200000);
        CLEAN(err_done) struct err err = { 0 };
        struct stat before, after;

        assert_int_equal(put(path, "old", 3, NULL), 0);
        assert_int_equal(stat(path, &before), 0);
        /* Each command in turn fails, or is lost: the old file stays, and nothing beside it. */
        for (int i = 1; i <= 5; i++) {
                t.commands = 0;
                t.fail_at = i;
                assert_int_equal(put(path, bytes, 200000, &err), ERR_PROVIDER);
                assert_non_null(strstr(err.msg, " failed with exit code 7: no space"));
                assert_file(path, "old", 3);
                assert_alone(t.dir, "file");
                t.commands = t.fail_at = 0;
                t.lose_at = i;
                assert_int_equal(put(path, bytes, 200000, NULL), ERR_UNCERTAIN);
                t.lose_at = 0;
                assert_file(path, "old", 3);
                assert_alone(t.dir, "file");
        }
        assert_int_equal(put(path, bytes, 200000, NULL), 0);
        assert_int_equal(stat(path, &after), 0);
        assert_true(before.st_ino != after.st_ino);
}

/* A piece that did not arrive is noticed before the file gets its name. */
static int lose_pieces(struct op *op, void *ctx, const char *const *argv, int64_t timeout_ms,
                       struct exec_transfer_answer *ret, struct err *err)
{
        if (strncmp(argv[2], "printf", 6) == 0 && ++t.commands == 2) {
                ret->exit_code = 0;
                return 0;
        }
        really_run(argv, ret);
        return 0;
}

static void test_write_checks_the_size(void **state)
{
        CLEAN(err_done) struct err err = { 0 };

        t.transfer.run = lose_pieces;
        assert_int_equal(put(in_dir("file"), noise(300000), 300000, &err), ERR_PROVIDER);
        assert_non_null(strstr(err.msg, "207840 of 300000 bytes arrived"));
        assert_alone(t.dir, NULL);
}

static void test_directory_in_the_way(void **state)
{
        CLEAN(err_done) struct err err = { 0 };

        assert_int_equal(mkdir(in_dir("taken"), 0700), 0);
        assert_int_equal(put(in_dir("taken"), "x", 1, &err), ERR_PROVIDER);
        assert_non_null(strstr(err.msg, "it is a directory"));
        assert_alone(in_dir("taken"), NULL);
        assert_alone(t.dir, "taken");
}

static int get(const char *path, uint64_t max, struct buf *ret, struct err *err)
{
        int fd = memfd_create("back", 0);
        uint64_t size = 0;
        int r = exec_transfer_read(&t.op, &t.transfer, path, max, fd, &size, err);

        take_output(fd, ret);
        if (r >= 0)
                assert_int_equal(size, ret->len);
        return r;
}

static void test_read_sizes(void **state)
{
        static const size_t sizes[] = { 0,
                                        1,
                                        100,
                                        EXEC_TRANSFER_READ_CHUNK,
                                        EXEC_TRANSFER_READ_CHUNK + 1,
                                        2 * EXEC_TRANSFER_READ_CHUNK + 12345 };
        const char *path = in_dir("it's");

        for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
                CLEAN(buf_done) struct buf back = BUF_INIT;
                size_t n = sizes[i];
                unsigned char *bytes = noise(n);

                assert_int_equal(file_write_at(AT_FDCWD, path, bytes, n, 0600, NULL), 0);
                t.commands = 0;
                assert_int_equal(get(path, n, &back, NULL), 0);
                assert_int_equal(back.len, n);
                assert_memory_equal(buf_str(&back), bytes, n);
                assert_int_equal(t.commands,
                                 1 + (n + EXEC_TRANSFER_READ_CHUNK - 1) / EXEC_TRANSFER_READ_CHUNK);
        }
}

static void assert_unread(const char *path, uint64_t max, int code, const char *text)
{
        CLEAN(buf_done) struct buf back = BUF_INIT;
        CLEAN(err_done) struct err err = { 0 };

        assert_int_equal(get(path, max, &back, &err), code);
        assert_non_null(strstr(err.msg, text));
}

static void test_read_refusals(void **state)
{
        const char *path = in_dir("file");

        assert_unread(in_dir("none"), 10, ERR_PROVIDER, "failed with exit code ");
        assert_int_equal(file_write_at(AT_FDCWD, path, "12345", 5, 0600, NULL), 0);
        assert_unread(path, 4, ERR_TOO_LARGE, "has 5 bytes, more than 4");
        t.says = "many";
        assert_unread(path, 10, ERR_PROVIDER, "Could not determine remote file size for /");
        t.says = "";
        assert_unread(path, 10, ERR_PROVIDER, "Could not determine remote file size for /");
        t.says = "-3";
        assert_unread(path, 10, ERR_PROVIDER, "Could not determine remote file size for /");
        t.says = "99999999999999999999999999";
        assert_unread(path, 10, ERR_PROVIDER, "Could not determine remote file size for /");
        t.says = "5 6";
        assert_unread(path, 10, ERR_PROVIDER, "Could not determine remote file size for /");
}

/* Whoever is in the place decides what the commands print. */
static int lie(struct op *op, void *ctx, const char *const *argv, int64_t timeout_ms,
               struct exec_transfer_answer *ret, struct err *err)
{
        ret->exit_code = 0;
        buf_puts(&ret->out, strncmp(argv[2], "wc", 2) == 0 ? "5\n" : t.says);
        return 0;
}

static void test_read_lies(void **state)
{
        struct buf flood = BUF_INIT;

        t.transfer.run = lie;
        t.says = "MTIz\n";
        assert_unread("/x", 10, ERR_PROVIDER, "Remote file read was truncated for /x: 3/5 bytes");
        t.says = "MTIzNDU2Nzg=";
        assert_unread("/x", 10, ERR_PROVIDER, "Remote file read was truncated for /x: 8/5 bytes");
        t.says = "";
        assert_unread("/x", 10, ERR_PROVIDER, "Remote file read was truncated for /x: 0/5 bytes");
        t.says = "!!!!";
        assert_unread("/x", 10, ERR_PROVIDER, "Remote file read gave no base64 for /x");
        for (size_t i = 0; i < EXEC_TRANSFER_READ_CHUNK; i++)
                buf_puts(&flood, "AAAA");
        t.says = buf_str(&flood);
        assert_unread("/x", 10, ERR_PROVIDER, "prints too much");
        buf_done(&flood);
}

/* The texts that callers of Paperclip know. */
static void test_errors(void **state)
{
        CLEAN(err_done) struct err err = { 0 };
        CLEAN(buf_done) struct buf longer = BUF_INIT;

        t.fail_at = 1;
        assert_int_equal(exec_transfer_make_dir(&t.op, &t.transfer, "/a'b", &err), ERR_PROVIDER);
        assert_string_equal(err.msg, "mkdir -p '/a'\"'\"'b' failed with exit code 7: no space");
        t.commands = 0;
        assert_int_equal(exec_transfer_remove(&t.op, &t.transfer, "/a'b", &err), ERR_PROVIDER);
        assert_string_equal(err.msg, "remove /a'b failed with exit code 7: no space");
        assert_int_equal(exec_transfer_run(&t.op, &t.transfer, "exit 3", 0, &err), ERR_PROVIDER);
        assert_string_equal(err.msg, "exit 3 failed with exit code 3");
        assert_false(err.is_transient);
        assert_int_equal(exec_transfer_run(&t.op, &t.transfer, "echo x >/dev/full", 0, &err),
                         ERR_PROVIDER);
        assert_true(err.is_transient);
        assert_int_equal(exec_transfer_run(&t.op, &t.transfer, "kill -9 $$", 0, &err),
                         ERR_PROVIDER);
        assert_string_equal(err.msg, "kill -9 $$ failed with exit code null");
        buf_puts(&longer, "exit 4 #");
        while (longer.len < 2000)
                buf_putc(&longer, 'x');
        assert_int_equal(exec_transfer_run(&t.op, &t.transfer, buf_str(&longer), 0, &err),
                         ERR_PROVIDER);
        assert_non_null(strstr(err.msg, "xxx... failed with exit code 4"));
        assert_int_equal(
                exec_transfer_run(&t.op, &t.transfer,
                                  "i=0; while [ $i -lt 200 ]; do echo line $i; i=$((i+1)); done "
                                  ">&2; exit 1",
                                  0, &err),
                ERR_PROVIDER);
        assert_non_null(strstr(err.msg, ": ...[truncated]\n"));
        assert_string_equal(err.msg + strlen(err.msg) - 8, "line 199");
}

static void test_paths(void **state)
{
        static const char *const bad[] = { "", "x", "./x", "../x", "/a/../b", "/a/.." };

        for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
                CLEAN(buf_done) struct buf back = BUF_INIT;

                assert_int_equal(exec_transfer_make_dir(&t.op, &t.transfer, bad[i], NULL),
                                 ERR_INVALID);
                assert_int_equal(exec_transfer_remove(&t.op, &t.transfer, bad[i], NULL),
                                 ERR_INVALID);
                assert_int_equal(put(bad[i], "x", 1, NULL), ERR_INVALID);
                assert_int_equal(get(bad[i], 1, &back, NULL), ERR_INVALID);
        }
        assert_int_equal(t.commands, 0);
        assert_int_equal(exec_transfer_make_dir(&t.op, &t.transfer, in_dir("a/..b/c"), NULL), 0);
}

/* remote-execution 8.50 */
static void test_shell(void **state)
{
        static const char *const declared[][2] = {
                { NULL, "sh" },  { "sh", "sh" },        { "bash", "bash" },
                { "zsh", "sh" }, { "/bin/bash", "sh" },
        };

        t.says = "";
        for (size_t i = 0; i < ARRAY_LEN(declared); i++) {
                t.transfer.shell = declared[i][0];
                assert_int_equal(exec_transfer_run(&t.op, &t.transfer, ":", 0, NULL), 0);
                assert_string_equal(t.last_shell, declared[i][1]);
        }
}

/* A cancelled operation starts nothing more, but what it began is taken away. */
static int cancel_soon(struct op *op, void *ctx, const char *const *argv, int64_t timeout_ms,
                       struct exec_transfer_answer *ret, struct err *err)
{
        if (++t.commands == 2)
                op_cancel_set(t.op.cancel);
        really_run(argv, ret);
        return 0;
}

static void test_cancel(void **state)
{
        struct op_cancel cancel;

        assert_int_equal(op_cancel_init(&cancel, NULL), 0);
        t.op.cancel = &cancel;
        t.transfer.run = cancel_soon;
        assert_int_equal(put(in_dir("file"), noise(300000), 300000, NULL), ERR_CANCELLED);
        assert_int_equal(t.commands, 3);
        assert_alone(t.dir, NULL);
        op_cancel_done(&cancel);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_write_sizes, setup, teardown),
                cmocka_unit_test_setup_teardown(test_names, setup, teardown),
                cmocka_unit_test_setup_teardown(test_write_replaces_at_once, setup, teardown),
                cmocka_unit_test_setup_teardown(test_write_checks_the_size, setup, teardown),
                cmocka_unit_test_setup_teardown(test_directory_in_the_way, setup, teardown),
                cmocka_unit_test_setup_teardown(test_read_sizes, setup, teardown),
                cmocka_unit_test_setup_teardown(test_read_refusals, setup, teardown),
                cmocka_unit_test_setup_teardown(test_read_lies, setup, teardown),
                cmocka_unit_test_setup_teardown(test_errors, setup, teardown),
                cmocka_unit_test_setup_teardown(test_paths, setup, teardown),
                cmocka_unit_test_setup_teardown(test_shell, setup, teardown),
                cmocka_unit_test_setup_teardown(test_cancel, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
