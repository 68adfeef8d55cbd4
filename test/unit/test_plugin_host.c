/* threads: callers, the thread of a worker, and its end. */
/* The plugin host with real processes: test/workers/told.py does what each call tells it to. */
#define _GNU_SOURCE
#include "test.h"

#include <fcntl.h>
#include <ftw.h>
#include <pthread.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/path.h"
#include "plugin/env.h"
#include "plugin/host.h"
#include "plugin/secret_set.h"

#define ID      "11111111-1111-4111-8111-111111111111"
#define COMPANY "22222222-2222-4222-8222-222222222222"
#define SECRET  "tok_verysecret"

static struct {
        struct arena arena;
        struct op op;
        struct plugin_host *host;
        char dir[SCRATCH_PATH_MAX];
        pthread_mutex_t lock;
        struct buf log; /* under lock */
        struct buf output;
        char states[256];
        int late; /* 1: with a result, 2: without */
} t;

static void on_log(void *ctx, const char *key, const char *level, const char *message,
                   const char *meta)
{
        pthread_mutex_lock(&t.lock);
        buf_appendf(&t.log, "%s %s %s %s\n", key, level, message, meta ? meta : "");
        pthread_mutex_unlock(&t.lock);
}

static void on_changed(void *ctx, const char *id, const struct worker_view *view)
{
        pthread_mutex_lock(&t.lock);
        snprintf(t.states + strlen(t.states), sizeof(t.states) - strlen(t.states), "%s ",
                 worker_state_name(view->state));
        pthread_mutex_unlock(&t.lock);
}

static bool was_logged(const char *text)
{
        bool found;

        pthread_mutex_lock(&t.lock);
        found = strstr(buf_str(&t.log), text) != NULL;
        pthread_mutex_unlock(&t.lock);
        return found;
}

/* Until the condition holds; the test's own time limit ends a wait in vain. */
#define WAIT_FOR(condition)                                                                        \
        while (!(condition))                                                                       \
        usleep(2000)

static void write_file(const char *name, const char *text)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/%s", t.dir, name);

        assert_int_equal(file_write_at(AT_FDCWD, path, text, strlen(text), 0600, NULL), 0);
}

static off_t starts(void)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/starts", t.dir);
        struct stat st;

        return stat(path, &st) < 0 ? 0 : st.st_size;
}

static int make_host(struct worker_times times)
{
        struct plugin_host_config config = {
                .instance_id = "inst-1",
                .host_version = "2026.512.0",
                .times = times,
                .log = on_log,
                .changed = on_changed,
        };

        return plugin_host_new(&config, &t.host, NULL);
}

static int start(struct err *err)
{
        json_t *manifest = json_pack("{s:s, s:i}", "id", "told", "apiVersion", 1);
        struct plugin_env_spec env = { .plugin_id = ID, .plugin_key = "told" };
        char root[4096];
        struct worker_spec spec = {
                .plugin_id = ID,
                .plugin_key = "told",
                .entry = TOLD_WORKER,
                .root = realpath(TOLD_WORKER "/..", root) ? root : "/",
                .manifest = manifest,
                .env = plugin_env(&env, &t.arena),
                .private_dir = t.dir,
        };
        int r = plugin_host_start(&t.op, t.host, &spec, err);

        json_decref(manifest);
        return r;
}

static void started(struct worker_times times)
{
        CLEAN(err_done) struct err err = { 0 };

        assert_int_equal(make_host(times), 0);
        if (start(&err) < 0)
                fail_msg("%s", err.msg);
}

static int setup(void **state)
{
        arena_init(&t.arena);
        t.op = (struct op){ .arena = &t.arena, .deadline_ms = OP_NO_DEADLINE };
        pthread_mutex_init(&t.lock, NULL);
        make_scratch(t.dir);
        return 0;
}

static int remove_one(const char *path, const struct stat *st, int type, struct FTW *ftw)
{
        return remove(path);
}

static int teardown(void **state)
{
        plugin_host_free(t.host);
        buf_done(&t.log);
        buf_done(&t.output);
        arena_done(&t.arena);
        assert_int_equal(nftw(t.dir, remove_one, 16, FTW_DEPTH | FTW_PHYS), 0);
        memset(&t, 0, sizeof(t));
        return 0;
}

/* Call `method` with these steps (JSON). */
static int call_steps(const char *method, const char *steps, int64_t timeout_ms, json_t **ret,
                      struct err *err)
{
        CLEAN(cleanup_free)
        char *text = steps ? xasprintf("{\"do\":%s}", steps) : xasprintf("{}");
        static const char *const secrets[] = { SECRET, NULL };
        struct plugin_call call = {
                .plugin_id = ID,
                .method = method,
                .company_id = COMPANY,
                .timeout_ms = timeout_ms,
                .redact = secrets,
        };
        json_t *params = NULL;
        int r;

        assert_int_equal(json_parse(text, strlen(text), &params, NULL), 0);
        call.params = params;
        r = plugin_call(&t.op, t.host, &call, ret, err);
        json_decref(params);
        return r;
}

static void assert_answers(const char *steps, const char *expected)
{
        CLEAN(err_done) struct err err = { 0 };
        CLEAN(cleanup_free) char *text = NULL;
        json_t *result = NULL;

        if (call_steps("m", steps, 0, &result, &err) < 0)
                fail_msg("%s", err.msg);
        text = json_to_text(result);
        json_decref(result);
        assert_string_equal(text, expected);
}

static void assert_refused(const char *steps, int code, const char *text, const char *details)
{
        CLEAN(err_done) struct err err = { 0 };
        json_t *result = NULL;

        assert_int_equal(call_steps("m", steps, 0, &result, &err), code);
        if (!strstr(err.msg, text))
                fail_msg("'%s' is not in '%s'", text, err.msg);
        assert_string_equal(err.details, details);
}

/* Talking */

static void test_call(void **state)
{
        started((struct worker_times){ 0 });
        assert_true(plugin_host_is_running(t.host, ID));
        assert_true(plugin_host_supports(t.host, ID, "environmentExecute"));
        assert_false(plugin_host_supports(t.host, ID, "environmentProbe"));
        assert_answers(NULL, "{\"method\":\"m\"}");
        assert_answers("[[\"answer\", null]]", "null");
        assert_int_equal(plugin_host_stop(&t.op, t.host, ID, NULL), 0);
        assert_string_equal(t.states, "starting running stopping stopped ");
        assert_refused(NULL, ERR_PROVIDER, "No worker registered for plugin \"" ID "\"",
                       "{\"code\":-32000}");
}

/* plugin-protocol 6.3.3 */
static void test_log_before_initialize(void **state)
{
        write_file("behave", "{\"first\":[[\"log\",{\"level\":\"warn\",\"message\":\"early\"}]]}");
        started((struct worker_times){ 0 });
        assert_true(was_logged("told warn early"));
}

/* plugin-protocol 6.3.4, and other lines that are none */
static void test_stray_lines(void **state)
{
        started((struct worker_times){ 0 });
        assert_answers(
                "[[\"print\",\"hello\\n\\n\\r\\n{}\\n[1]\\n{\\\"jsonrpc\\\":\\\"2.0\\\"}\\n\"],"
                "[\"print\",\"{\\\"jsonrpc\\\":\\\"2.0\\\",\\\"id\\\":999,"
                "\\\"result\\\":1}\\n\"],[\"answer\",1]]",
                "1");
        assert_true(was_logged("unparseable message from worker: hello"));
        assert_true(was_logged("unknown message type from worker"));
        assert_true(was_logged("received response for unknown request id"));
}

static void *call_held(void *arg)
{
        json_t *result = NULL;

        assert_int_equal(call_steps(arg, "[[\"hold\",0]]", 0, &result, NULL), 0);
        assert_string_equal(json_get_string(result, "method"), arg);
        json_decref(result);
        return NULL;
}

static unsigned pending(void)
{
        struct worker_view view;

        return plugin_host_view(t.host, ID, &view) ? view.pending : 0;
}

/* plugin-protocol 6.3.5 */
static void test_reverse_order(void **state)
{
        pthread_t threads[3];
        char names[3][8] = { "a", "b", "c" };

        started((struct worker_times){ 0 });
        for (size_t i = 0; i < 3; i++) {
                pthread_create(&threads[i], NULL, call_held, names[i]);
                WAIT_FOR(pending() == i + 1);
        }
        assert_answers("[[\"release\",0],[\"answer\",1]]", "1");
        for (size_t i = 0; i < 3; i++)
                pthread_join(threads[i], NULL);
}

/* plugin-protocol 6.3.6 and what the host answers */
static void test_request_with_our_id(void **state)
{
        started((struct worker_times){ 0 });
        assert_answers("[[\"ask\",\"config.get\"],[\"answer\",1]]", "1"); /* id 2 */
        assert_answers("[[\"ask\",\"secrets.resolve\"],[\"answer\",1]]", "1");
        assert_answers("[[\"ask\",\"state.get\"],[\"answer\",1]]", "1");
        assert_answers("[[\"ask\",\"log\"],[\"answer\",1]]", "1");
        assert_answers(
                "[[\"told\",0]]",
                "{\"2\":{},\"3\":{\"code\":-32603,\"message\":\"Plugin secret references are "
                "disabled until company-scoped plugin config lands\"},\"4\":{\"code\":-32601,"
                "\"message\":\"Host does not handle method \\\"state.get\\\"\"},\"5\":null}");
}

/* plugin-protocol 6.3.7, environment-runtime 7.114 */
static void test_error_codes(void **state)
{
        started((struct worker_times){ 0 });
        assert_refused("[[\"error\",{\"code\":-32601,\"message\":\"Unknown method: m\"}]]",
                       ERR_PROVIDER, "Unknown method: m", "{\"code\":-32601}");
        assert_refused("[[\"error\",{\"code\":-32002,\"message\":\"no " SECRET "!\"}]]",
                       ERR_PROVIDER, "no ***REDACTED***!", "{\"code\":-32002}");
        assert_refused("[[\"error\",{\"code\":-32004,\"message\":\"environmentExecute is not "
                       "implemented by this plugin\"}]]",
                       ERR_NOT_IMPLEMENTED, "environmentExecute is not implemented by this plugin",
                       "{\"code\":-32004}");
        assert_refused("[[\"error\",{\"code\":404,\"message\":\"gone\"}]]", ERR_PROVIDER, "gone",
                       "{\"code\":404}");
}

/* plugin-protocol 6.3.8 and 6.3.9 */
static void test_large_answer(void **state)
{
        json_t *result = NULL;

        started((struct worker_times){ 0 });
        assert_int_equal(call_steps("m", "[[\"big\",20000000]]", 0, &result, NULL), 0);
        assert_int_equal(json_string_length(json_object_get(result, "text")), 20000000);
        json_decref(result);
}

static void test_line_too_long(void **state)
{
        started((struct worker_times){ .backoff = 1 });
        assert_refused("[[\"big\",70000000]]", ERR_UNCERTAIN, "a line has more than",
                       "{\"code\":-32000}");
        WAIT_FOR(plugin_host_is_running(t.host, ID));
        assert_answers("[[\"answer\",1]]", "1");
}

/* Dying */

/* plugin-protocol 6.3.10: what is said, and that it comes back */
static void test_killed_during_a_call(void **state)
{
        struct worker_view view;

        started((struct worker_times){ .backoff = 1 });
        assert_refused("[[\"stderr\",\"it hurts " SECRET "\\n\"],[\"kill\",9]]", ERR_UNCERTAIN,
                       "Worker process exited (code=null, signal=SIGKILL)\n\nWorker stderr:\nit "
                       "hurts ***REDACTED***",
                       "{\"code\":-32000}");
        WAIT_FOR(plugin_host_is_running(t.host, ID));
        assert_answers("[[\"answer\",1]]", "1");
        assert_refused("[[\"exit\",3]]", ERR_UNCERTAIN,
                       "Worker process exited (code=3, signal=null)", "{\"code\":-32000}");
        WAIT_FOR(plugin_host_is_running(t.host, ID));
        assert_true(plugin_host_view(t.host, ID, &view));
        assert_int_equal(view.consecutive_crashes, 2);
        assert_int_equal(view.total_crashes, 2);
        assert_int_equal(starts(), 3);
}

/* An answer that was written before the end counts. */
static void test_answer_and_exit(void **state)
{
        started((struct worker_times){ .backoff = 1 });
        assert_answers("[[\"answer\",1],[\"exit\",0]]", "1");
}

/* plugin-protocol 6.3.11 */
static void test_exit_before_initialize(void **state)
{
        CLEAN(err_done) struct err err = { 0 };
        struct worker_view view;

        write_file("behave", "{\"first\":[[\"stderr\",\"no licence\\n\"],[\"exit\",4]]}");
        assert_int_equal(make_host((struct worker_times){ .backoff = 1 }), 0);
        assert_int_equal(start(&err), ERR_PROVIDER);
        assert_non_null(strstr(err.msg, "Worker initialize failed for \"" ID
                                        "\": Worker process exited (code=4, signal=null)"));
        assert_non_null(strstr(err.msg, "no licence"));
        WAIT_FOR(plugin_host_view(t.host, ID, &view) && view.state == WORKER_CRASHED &&
                 view.gave_up);
        assert_int_equal(starts(), 1); /* not started again by itself */
        assert_refused(NULL, ERR_PROVIDER, "Cannot call \"m\" — worker for \"" ID "\" is crashed",
                       "{\"code\":-32000}");
}

/* plugin-protocol 6.3.12 */
static void test_silent_initialize(void **state)
{
        CLEAN(err_done) struct err err = { 0 };

        write_file("behave", "{\"silent\":true}");
        assert_int_equal(make_host((struct worker_times){ .initialize = 50 }), 0);
        assert_int_equal(start(&err), ERR_PROVIDER);
        assert_non_null(strstr(err.msg, "RPC call \"initialize\" timed out after 50ms"));
}

static void test_initialize_says_no(void **state)
{
        CLEAN(err_done) struct err err = { 0 };

        write_file("behave", "{\"ok\":false}");
        assert_int_equal(make_host((struct worker_times){ 0 }), 0);
        assert_int_equal(start(&err), ERR_PROVIDER);
        assert_non_null(strstr(err.msg, "Worker initialize returned ok=false"));
}

static void test_crash_budget(void **state)
{
        struct worker_view view;

        started((struct worker_times){ .backoff = 1, .backoff_max = 2, .crash_budget = 3 });
        write_file("behave", "{\"first\":[[\"exit\",5]]}"); /* from the next start on */
        assert_refused("[[\"exit\",5]]", ERR_UNCERTAIN, "code=5", "{\"code\":-32000}");
        WAIT_FOR(plugin_host_view(t.host, ID, &view) && view.state == WORKER_CRASHED &&
                 view.gave_up);
        assert_int_equal(view.consecutive_crashes, 4);
        assert_non_null(strstr(view.reason, "code=5"));
        assert_int_equal(starts(), 4);
        /* By hand it is started again. */
        write_file("behave", "{}");
        assert_int_equal(start(NULL), 0);
        assert_answers("[[\"answer\",1]]", "1");
}

/* One that dies at once after each start uses its budget up; only a stable time gives it back. */
static void test_stable_time_resets(void **state)
{
        struct worker_view view;

        started((struct worker_times){ .backoff = 1, .stable = 1, .crash_budget = 1 });
        for (int i = 0; i < 4; i++) {
                usleep(3000); /* more than the stable time of this test */
                assert_refused("[[\"exit\",5]]", ERR_UNCERTAIN, "code=5", "{\"code\":-32000}");
                WAIT_FOR(plugin_host_is_running(t.host, ID));
        }
        assert_true(plugin_host_view(t.host, ID, &view));
        assert_int_equal(view.consecutive_crashes, 1);
        assert_int_equal(view.total_crashes, 4);
}

/* plugin-protocol 6.3.13 */
static void test_shutdown_ignored(void **state)
{
        started((struct worker_times){ .shutdown = 10, .leave = 10, .term = 10 });
        assert_answers("[[\"ignore-term\",0],[\"answer\",1]]", "1");
        assert_int_equal(plugin_host_stop(&t.op, t.host, ID, NULL), 0);
}

static void *call_answered(void *steps)
{
        assert_answers(steps, "1");
        return NULL;
}

static void *stop_it(void *arg)
{
        assert_int_equal(plugin_host_stop(&t.op, t.host, ID, NULL), 0);
        return NULL;
}

static bool state_is(enum worker_state state)
{
        struct worker_view view;

        return plugin_host_view(t.host, ID, &view) && view.state == state;
}

static void test_stop_waits_for_calls(void **state)
{
        CLEAN(cleanup_free) char *steps = xasprintf("[[\"wait\",\"%s/go\"],[\"answer\",1]]", t.dir);
        pthread_t caller, stopper;

        started((struct worker_times){ 0 });
        pthread_create(&caller, NULL, call_answered, steps);
        WAIT_FOR(pending() == 1);
        pthread_create(&stopper, NULL, stop_it, NULL);
        WAIT_FOR(state_is(WORKER_STOPPING));
        write_file("go", "");
        pthread_join(caller, NULL);
        pthread_join(stopper, NULL);
}

/* Giving up */

static void on_late(void *ctx, const json_t *result)
{
        pthread_mutex_lock(&t.lock);
        t.late = result ? 1 : 2;
        pthread_mutex_unlock(&t.lock);
}

static int late(void)
{
        int value;

        pthread_mutex_lock(&t.lock);
        value = t.late;
        pthread_mutex_unlock(&t.lock);
        return value;
}

static void time_out(const char *steps)
{
        CLEAN(cleanup_free) char *text = xasprintf("{\"do\":%s}", steps);
        CLEAN(err_done) struct err err = { 0 };
        struct plugin_call call = {
                .plugin_id = ID, .method = "m", .timeout_ms = 30, .late = on_late
        };
        json_t *params = NULL, *result = NULL;

        assert_int_equal(json_parse(text, strlen(text), &params, NULL), 0);
        call.params = params;
        assert_int_equal(plugin_call(&t.op, t.host, &call, &result, &err), ERR_TIMEOUT);
        assert_string_equal(err.msg, "RPC call \"m\" timed out after 30ms");
        assert_string_equal(err.details, "{\"code\":-32003}");
        json_decref(params);
}

/* plugin-protocol 6.3.14 */
static void test_late_answer(void **state)
{
        started((struct worker_times){ .backoff = 1 });
        time_out("[[\"hold\",0]]");
        assert_int_equal(late(), 0);
        assert_answers("[[\"release\",0],[\"answer\",1]]", "1");
        WAIT_FOR(late() == 1);
        /* None that comes late: its worker died. */
        time_out("[[\"hold\",0]]");
        t.late = 0;
        assert_refused("[[\"exit\",0]]", ERR_UNCERTAIN, "code=0", "{\"code\":-32000}");
        WAIT_FOR(late() == 2);
}

static void *cancel_soon(void *arg)
{
        WAIT_FOR(pending() == 1);
        op_cancel_set(arg);
        return NULL;
}

static void test_cancel(void **state)
{
        CLEAN(err_done) struct err err = { 0 };
        struct op_cancel cancel;
        pthread_t thread;
        json_t *result = NULL;

        started((struct worker_times){ 0 });
        assert_int_equal(op_cancel_init(&cancel, NULL), 0);
        t.op.cancel = &cancel;
        pthread_create(&thread, NULL, cancel_soon, &cancel);
        assert_int_equal(call_steps("m", "[[\"hold\",0]]", 0, &result, &err), ERR_CANCELLED);
        pthread_join(thread, NULL);
        t.op.cancel = NULL;
        op_cancel_done(&cancel);
        assert_answers("[[\"release\",0],[\"answer\",1]]", "1");
}

/* Saying */

static void on_output(void *ctx, bool is_stderr, const char *chunk, size_t len)
{
        pthread_mutex_lock(&t.lock);
        buf_appendf(&t.output, "%s:%.*s;", is_stderr ? "err" : "out", (int)len, chunk);
        pthread_mutex_unlock(&t.lock);
}

static void test_live_output(void **state)
{
        struct plugin_call call = { .plugin_id = ID,
                                    .method = "environmentExecute",
                                    .company_id = COMPANY,
                                    .output = on_output };
        const char *text = "{\"do\":[[\"output\",{\"stream\":\"stdout\",\"chunk\":\"a\"}],"
                           "[\"output\",{\"stream\":\"other\",\"chunk\":\"b\"}],"
                           "[\"output\",{\"stream\":\"stderr\",\"chunk\":\"c\"}],"
                           "[\"output\",{\"stream\":\"stdout\",\"chunk\":\"\"}],"
                           "[\"output\",{\"stream\":\"stdout\",\"chunk\":7}],[\"answer\",1]]}";
        json_t *params = NULL, *result = NULL;

        started((struct worker_times){ 0 });
        assert_int_equal(json_parse(text, strlen(text), &params, NULL), 0);
        call.params = params;
        assert_int_equal(plugin_call(&t.op, t.host, &call, &result, NULL), 0);
        assert_string_equal(buf_str(&t.output), "out:a;err:c;");
        json_decref(result);
        /* Of any other method it is dropped, whatever the worker claims. */
        call.method = "environmentProbe";
        assert_int_equal(plugin_call(&t.op, t.host, &call, &result, NULL), 0);
        assert_string_equal(buf_str(&t.output), "out:a;err:c;");
        json_decref(result);
        json_decref(params);
}

static void test_log_is_bounded_and_redacted(void **state)
{
        CLEAN(buf_done) struct buf steps = BUF_INIT;
        size_t lines = 0;

        started((struct worker_times){ 0 });
        assert_answers("[[\"log\",{\"level\":\"fatal\",\"message\":\"key " SECRET
                       "\",\"meta\":{\"k\":\"" SECRET "\"}}],[\"answer\",1]]",
                       "1");
        assert_true(was_logged("told info key ***REDACTED*** {\"k\":\"***REDACTED***\"}"));
        assert_false(was_logged(SECRET));
        buf_puts(&steps, "[");
        for (int i = 0; i < 500; i++)
                buf_puts(&steps, "[\"log\",{\"level\":\"info\",\"message\":\"flood\"}],");
        buf_puts(&steps, "[\"answer\",1]]");
        assert_answers(buf_str(&steps), "1");
        for (const char *p = buf_str(&t.log); (p = strstr(p, "flood")); p++)
                lines++;
        assert_in_range(lines, 1, 100);
}

/* Lines without end from one worker: answers still come, and nothing is stored up. */
static void test_flood_of_junk(void **state)
{
        CLEAN(buf_done) struct buf steps = BUF_INIT;

        started((struct worker_times){ 0 });
        buf_puts(&steps, "[[\"print\",\"");
        for (int i = 0; i < 3000; i++)
                buf_puts(&steps, "junk\\n");
        buf_puts(&steps, "\"],[\"answer\",1]]");
        assert_answers(buf_str(&steps), "1");
}

/* plugin-protocol 6.3.16 */
static void test_environment(void **state)
{
        static const char *const known[] = { "PATH",
                                             "NODE_PATH",
                                             "PAPERCLIP_PLUGIN_ID",
                                             "NODE_ENV",
                                             "TZ",
                                             "PAPERCLIP_DEPLOYMENT_MODE",
                                             "PAPERCLIP_DEPLOYMENT_EXPOSURE" };
        json_t *result = NULL, *value;
        const char *name;
        size_t found = 0;

        setenv("BERTH_TEST_LEAK", "1", 1);
        started((struct worker_times){ 0 });
        assert_int_equal(call_steps("env", NULL, 0, &result, NULL), 0);
        assert_string_equal(json_get_string(result, "PAPERCLIP_PLUGIN_ID"), ID);
        json_object_foreach(result, name, value)
        {
                bool is_known = str_starts(name, "LC_CTYPE"); /* python's own doing */

                for (size_t i = 0; i < ARRAY_LEN(known); i++)
                        is_known = is_known || streq(known[i], name);
                if (!is_known)
                        fail_msg("%s got in", name);
                found++;
        }
        assert_true(found >= ARRAY_LEN(known));
        json_decref(result);
        unsetenv("BERTH_TEST_LEAK");
}

static void test_allowed_environment(void **state)
{
        struct plugin_env_spec spec = { .plugin_id = ID,
                                        .plugin_key = "acme.one",
                                        .private_dir = "/p",
                                        .allowed = " A_FOR_ALL , acme.one:A_FOR_ONE,acme.two:"
                                                   "A_FOR_TWO,,A_MISSING, TZ" };
        CLEAN(buf_done) struct buf all = BUF_INIT;
        const char *const *env;

        setenv("A_FOR_ALL", "1", 1);
        setenv("A_FOR_ONE", "2", 1);
        setenv("A_FOR_TWO", "3", 1);
        setenv("TZ", "", 1);
        for (env = plugin_env(&spec, &t.arena); *env; env++)
                buf_appendf(&all, "%s;", *env);
        assert_non_null(strstr(buf_str(&all), "A_FOR_ALL=1;A_FOR_ONE=2;"));
        assert_null(strstr(buf_str(&all), "A_FOR_TWO"));
        assert_null(strstr(buf_str(&all), "A_MISSING"));
        assert_non_null(strstr(buf_str(&all), "TZ=UTC;"));
        assert_non_null(strstr(buf_str(&all), "TMPDIR=/p/tmp;"));
        unsetenv("TZ");
}

static void test_secret_set(void **state)
{
        static const char *const values[] = { "abcd", "xyz", NULL };
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct secret_set set = { 0 };

        secret_set_add(&set, values);
        secret_set_add(&set, values);
        secret_set_put(&set, &b, "abcd xyz abc", 12);
        assert_string_equal(buf_str(&b), "***REDACTED*** xyz abc");
        assert_int_equal(set.next, 1);
        secret_set_done(&set);
}

#define TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                TEST(test_call),
                TEST(test_log_before_initialize),
                TEST(test_stray_lines),
                TEST(test_reverse_order),
                TEST(test_request_with_our_id),
                TEST(test_error_codes),
                TEST(test_large_answer),
                TEST(test_line_too_long),
                TEST(test_killed_during_a_call),
                TEST(test_answer_and_exit),
                TEST(test_exit_before_initialize),
                TEST(test_silent_initialize),
                TEST(test_initialize_says_no),
                TEST(test_crash_budget),
                TEST(test_stable_time_resets),
                TEST(test_shutdown_ignored),
                TEST(test_stop_waits_for_calls),
                TEST(test_late_answer),
                TEST(test_cancel),
                TEST(test_live_output),
                TEST(test_log_is_bounded_and_redacted),
                TEST(test_flood_of_junk),
                TEST(test_environment),
                TEST(test_allowed_environment),
                TEST(test_secret_set),
        };

        signal(SIGPIPE, SIG_IGN);
        if (access("/usr/bin/env", X_OK) < 0)
                return 77;
        return cmocka_run_group_tests(tests, NULL, NULL);
}
