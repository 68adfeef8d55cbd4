/* The log of a run: every byte of the output once, whatever is cut, and whole records to read
 * (http-api, section 3.9; http-api 9: 8). */
#define _GNU_SOURCE
#include "runtime.h"

#include <fcntl.h>
#include <ftw.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/utf8.h"
#include "codec/image_data.h"
#include "core/exec/exec_internal.h"
#include "core/live/live.h"
#include "core/runs/run_log.h"

#define AGENT "a0000000-0000-4000-8000-000000000001"
#define RUN   "b0000000-0000-4000-8000-000000000001"
#define EXEC  "e0000000-0000-4000-8000-000000000001"
#define AGAIN "e1111111-0000-4000-8000-000000000001"

static struct test_runtime *t;
static struct exec_hub hub;
static char path[SCRATCH_PATH_MAX * 2];
static const struct run run = { .id = RUN, .company_id = TEST_COMPANY, .agent_id = AGENT };

static int start(void **state)
{
        (void)state;
        t = test_runtime_new(NULL);
        t->rt.data_dir = t->dir;
        t->rt.hub = &hub;
        hub.output_dir = xasprintf("%s/output", t->dir);
        snprintf(path, sizeof(path), "%s/run-logs/" TEST_COMPANY "/" AGENT "/" RUN ".ndjson",
                 t->dir);
        return 0;
}

static int remove_one(const char *at, const struct stat *st, int flag, struct FTW *ftw)
{
        (void)st;
        (void)flag;
        return ftw->level == 0 ? 0 : remove(at);
}

static int stop(void **state)
{
        (void)state;
        store_close(t->rt.store);
        assert_int_equal(nftw(t->dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
        assert_int_equal(rmdir(t->dir), 0);
        free(hub.output_dir);
        arena_done(&t->arena);
        free(t);
        return 0;
}

/* What the command printed further. */
static void print_n(const char *execution, const char *stream, const void *text, size_t len)
{
        CLEAN(cleanup_free) char *dir = xasprintf("%s/%s", hub.output_dir, execution);
        CLEAN(cleanup_free) char *file = xasprintf("%s/%s", dir, stream);
        CLEAN(cleanup_fd) int fd = -1;

        (void)mkdir(hub.output_dir, 0700);
        (void)mkdir(dir, 0700);
        fd = open(file, O_WRONLY | O_CREAT | O_APPEND, 0600);
        assert_int_equal(fd_write_all(fd, text, len, NULL), 0);
}

static void print(const char *stream, const char *text)
{
        print_n(EXEC, stream, text, strlen(text));
}

static struct run_log *open_it(void)
{
        struct run_log *log = NULL;
        struct err e = { 0 };

        if (run_log_open(&t->rt, &run, &log, &e) < 0)
                fail_msg("%s", e.msg);
        return log;
}

static void pump(struct run_log *log, const char *execution, bool final)
{
        struct err e = { 0 };
        int r;

        do
                r = run_log_pump(log, execution, final, &e);
        while (r > 0);
        if (r < 0)
                fail_msg("%s", e.msg);
}

/* Pages of `limit` bytes; every one must parse record by record. Collects the chunks of a stream.
 */
static char *chunks(const char *stream, int64_t limit)
{
        CLEAN(buf_done) struct buf all = BUF_INIT;
        int64_t at = 0, next = 0;

        for (;; at = next) {
                CLEAN(buf_done) struct buf page = BUF_INIT;
                char *line, *rest;

                assert_int_equal(run_log_read(&t->rt, TEST_COMPANY "/" AGENT "/" RUN ".ndjson", at,
                                              limit, &page, &next, NULL),
                                 0);
                assert_int_equal(next, at + (int64_t)page.len);
                if (page.len == 0)
                        return buf_take(&all);
                assert_int_equal(page.data[page.len - 1], '\n');
                for (line = page.data; *line; line = rest + 1) {
                        json_t *v;

                        rest = strchr(line, '\n');
                        assert_int_equal(json_parse(line, (size_t)(rest - line), &v, NULL), 0);
                        assert_true(strlen(json_get_string(v, "chunk")) <= RUN_LOG_CHUNK_MAX);
                        if (streq(json_get_string(v, "stream"), stream))
                                buf_puts(&all, json_get_string(v, "chunk"));
                        json_decref(v);
                }
        }
}

static void assert_chunks(const char *stream, const char *expected)
{
        CLEAN(cleanup_free) char *got = chunks(stream, 100);

        assert_string_equal(got, expected);
}

static void test_streams_and_pages(void **state)
{
        struct run_log *log = open_it();
        struct run_log_state s;
        int64_t next;
        CLEAN(buf_done) struct buf page = BUF_INIT;

        (void)state;
        run_log_state(log, &s);
        assert_int_equal(s.bytes, 0);
        pump(log, EXEC, false); /* nothing there yet */
        assert_int_equal(run_log_system(log, "begins\n", NULL), 0);
        print("stdout", "one\n");
        print("stderr", "oh\n");
        pump(log, EXEC, false);
        pump(log, EXEC, false);
        print("stdout", "two\n");
        pump(log, EXEC, true);
        run_log_state(log, &s);
        assert_int_equal(s.records, 4);
        assert_string_equal(s.stream, "stdout");
        assert_true(s.first_at && s.last_at > s.first_at);
        run_log_close(log);
        assert_chunks("stdout", "one\ntwo\n");
        assert_chunks("stderr", "oh\n");
        assert_chunks("system", "begins\n");
        /* From the middle of a record: the next one. */
        assert_int_equal(
                run_log_read(&t->rt, run_log_ref(log = open_it()), 1, 1, &page, &next, NULL), 0);
        assert_non_null(strstr(page.data, "one"));
        assert_null(strstr(page.data, "begins"));
        run_log_close(log);
}

static void test_no_log(void **state)
{
        CLEAN(buf_done) struct buf page = BUF_INIT;
        struct err e = { 0 };
        char name[400] = { 0 };
        int64_t next;

        (void)state;
        assert_int_equal(run_log_read(&t->rt, "x/y/z.ndjson", 0, 100, &page, &next, &e),
                         ERR_NOT_FOUND);
        assert_string_equal(e.msg, "Run log not found");
        assert_int_equal(run_log_read(&t->rt, "../berth.db", 0, 100, &page, &next, NULL),
                         ERR_NOT_FOUND);
        /* What cannot be opened may well be there. */
        run_log_close(open_it());
        memset(name, 'x', sizeof(name) - 1);
        assert_int_equal(run_log_read(&t->rt, name, 0, 100, &page, &next, NULL), ERR_IO);
        assert_int_equal(run_log_read(&t->rt, NULL, 0, 100, &page, &next, NULL), ERR_NOT_FOUND);
}

static void test_characters_in_two(void **state)
{
        struct run_log *log = open_it();

        (void)state;
        print("stdout", "a\xe2\x82");
        pump(log, EXEC, false);
        assert_chunks("stdout", "a");
        print("stdout", "\xac"
                        "b\xff"
                        "c");
        print_n(EXEC, "stdout", "\0\xe2", 2);
        pump(log, EXEC, false);
        assert_chunks("stdout", "a\xe2\x82\xac"
                                "b\xef\xbf\xbd"
                                "c\xef\xbf\xbd");
        pump(log, EXEC, true);
        assert_chunks("stdout", "a\xe2\x82\xac"
                                "b\xef\xbf\xbd"
                                "c\xef\xbf\xbd\xef\xbf\xbd");
        run_log_close(log);
}

/* Cut the file at each byte, as a crash may: what is read in the end is the output, once. */
static void test_torn_anywhere(void **state)
{
        struct run_log *log = open_it();
        struct run_log_state s;

        (void)state;
        print("stdout", "first\n");
        print("stderr", "warn\n");
        pump(log, EXEC, false);
        print("stdout", "se\xc3\xa9"
                        "cond \"q\"\n");
        pump(log, EXEC, false);
        run_log_state(log, &s);
        run_log_close(log);
        for (int64_t cut = s.bytes; cut >= 0; cut--) {
                assert_int_equal(truncate(path, cut), 0);
                log = open_it();
                pump(log, EXEC, true);
                run_log_close(log);
                assert_chunks("stdout", "first\nse\xc3\xa9"
                                        "cond \"q\"\n");
                assert_chunks("stderr", "warn\n");
        }
        /* A block of zeros, as a file system may leave it. */
        assert_int_equal(truncate(path, s.bytes + 5000), 0);
        log = open_it();
        pump(log, EXEC, true);
        assert_chunks("stderr", "warn\n");
        run_log_close(log);
}

static void test_another_execution(void **state)
{
        struct run_log *log = open_it();

        (void)state;
        print("stdout", "once ");
        pump(log, EXEC, true);
        print_n(AGAIN, "stdout", "again", 5);
        pump(log, AGAIN, false);
        run_log_close(log);
        log = open_it();
        print_n(AGAIN, "stdout", " more", 5);
        pump(log, EXEC, true);
        pump(log, AGAIN, true);
        run_log_close(log);
        assert_chunks("stdout", "once again more");
}

static void test_long_output(void **state)
{
        struct run_log *log = open_it();
        CLEAN(buf_done) struct buf text = BUF_INIT;
        CLEAN(cleanup_free) char *got = NULL;
        struct run_log_state s, again;
        char hex[65];
        int64_t bytes;

        (void)state;
        for (int i = 0; i < 100000; i++)
                buf_appendf(&text, "line %d \xe2\x82\xac\n", i);
        for (int i = 0; i < 200000; i++)
                buf_puts(&text, "\x01\xf0\x9f\x98\x80");
        for (int i = 0; i < 300000; i++)
                buf_puts(&text, "no line ends ");
        assert_true(text.len > (size_t)5 << 20);
        print_n(EXEC, "stdout", text.data, text.len);
        assert_int_equal(run_log_pump(log, EXEC, true, NULL), 1);
        pump(log, EXEC, true);
        got = chunks("stdout", 1000000);
        assert_int_equal(strlen(got), text.len);
        assert_memory_equal(got, text.data, text.len);
        assert_int_equal(run_log_digest(log, hex, &bytes, NULL), 0);
        run_log_state(log, &s);
        assert_int_equal(bytes, s.bytes);
        assert_int_equal(strlen(hex), 64);
        run_log_close(log);
        /* Opened again it knows the same. */
        log = open_it();
        run_log_state(log, &again);
        assert_int_equal(again.bytes, s.bytes);
        assert_int_equal(again.records, s.records);
        assert_int_equal(again.first_at / 1000, s.first_at / 1000);
        print("stdout", "the end");
        assert_int_equal(run_log_system(log, "[berth] a line\n", NULL), 0);
        pump(log, EXEC, true);
        run_log_close(log);
        free(got);
        got = chunks("stdout", 1000000);
        assert_int_equal(strlen(got), text.len + 7);
        assert_string_equal(got + text.len, "the end");
}

static void test_limit(void **state)
{
        struct run_log *log;
        struct run_log_state before, after;
        CLEAN(cleanup_free) char *said = NULL;

        (void)state;
        t->rt.settings.run_log_max_bytes = 400;
        log = open_it();
        print("stdout", "kept\n");
        pump(log, EXEC, false);
        for (int i = 0; i < 100; i++)
                print("stdout", "0123456789");
        print("stderr", "never");
        pump(log, EXEC, false);
        run_log_state(log, &before);
        print("stdout", "0123456789");
        pump(log, EXEC, false);
        run_log_state(log, &after);
        assert_int_equal(before.bytes, after.bytes);
        run_log_close(log);
        log = open_it(); /* after a restart it is still full */
        pump(log, EXEC, false);
        pump(log, EXEC, true);
        pump(log, EXEC, true);
        run_log_close(log);
        log = open_it();
        pump(log, EXEC, true);
        run_log_close(log);
        assert_chunks("stdout", "kept\n");
        said = chunks("system", 100);
        assert_string_equal(said, "[berth] log limit of 400 bytes reached; output from here on is "
                                  "only counted\n[berth] 1010 bytes of stdout and 5 bytes of "
                                  "stderr were left out\n");
        t->rt.settings.run_log_max_bytes = 0;
}

static void test_images(void **state)
{
        struct run_log *log = open_it();

        (void)state;
        print("stdout", "see data:image/png;base");
        pump(log, EXEC, false);
        print("stdout", "64,iVBORw0KGgoAAAA");
        pump(log, EXEC, false);
        run_log_close(log);
        log = open_it();
        print("stdout", "AAAA+/==) and {\"data\": \"/9j/4AAQSkZJRg==\"} data:image/;base64,x ");
        print("stdout", "ddata:image/svg+xml;base64,QUJD\n");
        pump(log, EXEC, true);
        run_log_close(log);
        assert_chunks("stdout", "see data:image/png;base64,[image left out]) and "
                                "{\"data\": \"/9j/4[image left out]\"} data:image/;base64,x "
                                "ddata:image/svg+xml;base64,[image left out]\n");
}

/* remote-execution 8.62: a character that the limit cuts in two is left out. */
static void test_an_excerpt_ends_between_characters(void **state)
{
        CLEAN(cleanup_free) char *out = NULL, *errors = NULL;

        (void)state;
        print("stdout", "x");
        print("stderr", "xy");
        for (int i = 0; i < 2000; i++) {
                print("stdout", "\xe2\x82\xac");
                print("stderr", "\xe2\x82\xac");
        }
        assert_int_equal(run_log_excerpts(&t->rt, EXEC, &out, &errors, NULL), 0);
        assert_int_equal(strlen(out), 4096);
        assert_int_equal(strlen(errors), 4094);
        assert_true(utf8_is_valid(out, strlen(out)));
        assert_true(utf8_is_valid(errors, strlen(errors)));
        assert_null(strstr(errors, "\xef\xbf\xbd"));
}

static void test_excerpts(void **state)
{
        CLEAN(cleanup_free) char *out = NULL, *errors = NULL;

        (void)state;
        print("stdout", "hi\xff\n");
        for (int i = 0; i < 1000; i++)
                print("stderr", "0123456789");
        assert_int_equal(run_log_excerpts(&t->rt, EXEC, &out, &errors, NULL), 0);
        assert_string_equal(out, "hi\xef\xbf\xbd\n");
        assert_int_equal(strlen(errors), 4096);
        free(out);
        free(errors);
        assert_int_equal(run_log_excerpts(&t->rt, AGAIN, &out, &errors, NULL), 0);
        assert_null(out);
        assert_null(errors);
}

static void test_told_live(void **state)
{
        struct run_log *log = open_it();
        struct live_reader reader = { 0 };
        struct live_event *e;
        CLEAN(buf_done) struct buf text = BUF_INIT;
        json_t *v, *payload;
        uv_loop_t loop;

        (void)state;
        assert_int_equal(uv_loop_init(&loop), 0);
        assert_int_equal(live_new(&loop, &t->rt.live, NULL), 0);
        live_reader_add(t->rt.live, &reader, TEST_COMPANY, LIVE_NOW);
        buf_puts(&text, "\xe2\x82\xac");
        for (int i = 0; i < 8190; i++)
                buf_putc(&text, 'x');
        print("stdout", buf_str(&text));
        pump(log, EXEC, true);
        e = live_reader_take(t->rt.live, &reader);
        assert_non_null(e);
        assert_string_equal(e->type, "heartbeat.run.log");
        assert_int_equal(json_parse(e->text, e->len, &v, NULL), 0);
        payload = json_get_object(v, "payload");
        assert_string_equal(json_get_string(payload, "runId"), RUN);
        assert_string_equal(json_get_string(payload, "agentId"), AGENT);
        assert_string_equal(json_get_string(payload, "stream"), "stdout");
        assert_non_null(json_get_string(payload, "ts"));
        assert_true(json_is_true(json_object_get(payload, "truncated")));
        assert_int_equal(strlen(json_get_string(payload, "chunk")), 8190);
        json_decref(v);
        live_event_done(&e);
        live_reader_remove(&reader);
        run_log_close(log);
        live_free(t->rt.live);
        t->rt.live = NULL;
        uv_run(&loop, UV_RUN_DEFAULT);
        assert_int_equal(uv_loop_close(&loop), 0);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, start, stop)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_streams_and_pages),
                TEST(test_no_log),
                TEST(test_characters_in_two),
                TEST(test_torn_anywhere),
                TEST(test_another_execution),
                TEST(test_long_output),
                TEST(test_limit),
                TEST(test_images),
                TEST(test_an_excerpt_ends_between_characters),
                TEST(test_excerpts),
                TEST(test_told_live),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
