#include "test.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "daemon/config.h"

static const char *const variables[] = {
        "BERTH_DATA",
        "BERTH_LISTEN",
        "BERTH_DATABASE",
        "BERTH_LOG_LEVEL",
        "BERTH_LOG_FORMAT",
        "BERTH_OP_THREADS",
        "BERTH_OP_QUEUE",
        "BERTH_DEPLOYMENT_MODE",
        "PAPERCLIP_DEPLOYMENT_MODE",
        "BERTH_DEPLOYMENT_EXPOSURE",
        "PAPERCLIP_DEPLOYMENT_EXPOSURE",
        "BERTH_PUBLIC_URL",
        "PAPERCLIP_PUBLIC_URL",
        "BERTH_ALLOWED_HOSTNAMES",
        "PAPERCLIP_ALLOWED_HOSTNAMES",
        "BERTH_WORKSPACE_ROOTS",
        "BERTH_ALLOW_FAKE_PROVIDER",
        "BERTH_FAKE_WORLD",
        "BERTH_SWEEP_INTERVAL_MS",
        "BERTH_IDLE_PLACE_TTL_MS",
        "BERTH_ADHOC_TTL_MS",
        "BERTH_OPERATION_TIMEOUT_MS",
        "XDG_DATA_HOME",
};

struct fixture {
        char data[SCRATCH_PATH_MAX];
        struct cli_serve_options flags;
        struct arena arena;
        struct config config;
        struct err err;
};

static int setup(void **state)
{
        struct fixture *f = xcalloc(1, sizeof(*f));

        for (size_t i = 0; i < ARRAY_LEN(variables); i++)
                unsetenv(variables[i]);
        make_scratch(f->data);
        f->flags.data = f->data;
        arena_init(&f->arena);
        *state = f;
        return 0;
}

static void remove_file(struct fixture *f)
{
        char path[SCRATCH_PATH_MAX + 16];

        snprintf(path, sizeof(path), "%s/berth.toml", f->data);
        unlink(path);
}

static int teardown(void **state)
{
        struct fixture *f = *state;

        remove_file(f);
        rmdir(f->data);
        arena_done(&f->arena);
        err_done(&f->err);
        free(f);
        return 0;
}

static void write_file(struct fixture *f, const char *text)
{
        char path[SCRATCH_PATH_MAX + 16];
        FILE *file;

        snprintf(path, sizeof(path), "%s/berth.toml", f->data);
        file = fopen(path, "we");
        assert_non_null(file);
        fputs(text, file);
        fclose(file);
}

static int load(struct fixture *f)
{
        return config_load(&f->flags, &f->arena, &f->config, &f->err);
}

static void load_well(struct fixture *f)
{
        if (load(f) < 0)
                fail_msg("%s", f->err.msg);
}

/* It fails, and the text names all of these. */
static void refuses(struct fixture *f, const char *origin, const char *value)
{
        assert_int_equal(load(f), ERR_INVALID);
        if (!strstr(f->err.msg, origin) || !strstr(f->err.msg, value))
                fail_msg("'%s' does not name '%s' and '%s'", f->err.msg, origin, value);
}

static void test_defaults(void **state)
{
        struct fixture *f = *state;
        const struct settings *s = &f->config.settings;

        load_well(f);
        assert_string_equal(f->config.data_dir, f->data);
        assert_string_equal(f->config.listen, "127.0.0.1:3100");
        assert_string_equal(f->config.database, arena_printf(&f->arena, "%s/berth.db", f->data));
        assert_int_equal(f->config.log_level, LOG_LEVEL_INFO);
        assert_int_equal(f->config.log_format, LOG_FORMAT_TEXT);
        assert_int_equal(f->config.op_threads, 16);
        assert_int_equal(f->config.op_queue, 1024);
        assert_int_equal(f->config.peer_threads, 32);
        assert_int_equal(f->config.peer_threads_each, 8);
        assert_int_equal(f->config.peer_queue, 256);
        assert_int_equal(f->config.settings.peer_silence_ms, 60000);
        assert_int_equal(s->mode, MODE_LOCAL_TRUSTED);
        assert_int_equal(s->exposure, EXPOSURE_PRIVATE);
        assert_null(s->public_url);
        assert_null(s->allowed_hostnames);
        assert_null(s->fake_world);
        assert_false(s->allow_fake_provider);
        assert_string_equal(s->listen_host, "127.0.0.1");
        assert_int_equal(s->sweep_interval_ms, 5000);
        assert_int_equal(s->idle_place_ttl_ms, 3600000);
        assert_int_equal(s->adhoc_ttl_ms, 3600000);
        assert_int_equal(s->operation_timeout_ms, 120000);
        assert_non_null(strchr(s->workspace_roots, ':'));
}

/* Flag, BERTH_, PAPERCLIP_, file, default: each wins over all behind it. */
static void test_who_wins(void **state)
{
        struct fixture *f = *state;

        write_file(f, "mode = \"authenticated\"\nlisten = \"127.0.0.1:1\"\n");
        load_well(f);
        assert_int_equal(f->config.settings.mode, MODE_AUTHENTICATED);
        assert_string_equal(f->config.listen, "127.0.0.1:1");
        setenv("PAPERCLIP_DEPLOYMENT_MODE", "local_trusted", 1);
        load_well(f);
        assert_int_equal(f->config.settings.mode, MODE_LOCAL_TRUSTED);
        setenv("BERTH_DEPLOYMENT_MODE", "authenticated", 1);
        setenv("BERTH_LISTEN", "127.0.0.1:2", 1);
        load_well(f);
        assert_int_equal(f->config.settings.mode, MODE_AUTHENTICATED);
        assert_string_equal(f->config.listen, "127.0.0.1:2");
        f->flags.mode = "local_trusted";
        f->flags.listen = "127.0.0.1:3";
        load_well(f);
        assert_int_equal(f->config.settings.mode, MODE_LOCAL_TRUSTED);
        assert_string_equal(f->config.listen, "127.0.0.1:3");
        /* An empty variable is none. */
        f->flags = (struct cli_serve_options){ .data = f->data };
        setenv("BERTH_DEPLOYMENT_MODE", "", 1);
        setenv("BERTH_LISTEN", "", 1);
        load_well(f);
        assert_int_equal(f->config.settings.mode, MODE_LOCAL_TRUSTED);
        assert_string_equal(f->config.listen, "127.0.0.1:1");
}

static void test_every_key_of_the_file(void **state)
{
        struct fixture *f = *state;
        const struct settings *s = &f->config.settings;

        write_file(f,
                   "listen = \"[::1]:7\"\ndatabase = \"/x/y.db\"\nmode = \"authenticated\"\n"
                   "exposure = \"public\"\nallowed_hostnames = [\"a.example\", \"b.example\"]\n"
                   "public_url = \"https://c.example\"\nsweep_interval_ms = 10\n"
                   "idle_place_ttl_ms = 1\nadhoc_ttl_ms = 2\nworkspace_roots = [\"/a\", \"/b\"]\n"
                   "op_threads = 256\nop_queue = 100000\noperation_timeout_ms = 100\n"
                   "[log]\nlevel = \"debug\"\nformat = \"json\"\n");
        load_well(f);
        assert_string_equal(f->config.listen, "[::1]:7");
        assert_string_equal(s->listen_host, "::1");
        assert_string_equal(f->config.database, "/x/y.db");
        assert_int_equal(s->mode, MODE_AUTHENTICATED);
        assert_int_equal(s->exposure, EXPOSURE_PUBLIC);
        assert_string_equal(s->allowed_hostnames, "a.example,b.example");
        assert_string_equal(s->public_url, "https://c.example");
        assert_int_equal(s->sweep_interval_ms, 10);
        assert_int_equal(s->idle_place_ttl_ms, 1);
        assert_int_equal(s->adhoc_ttl_ms, 2);
        assert_string_equal(s->workspace_roots, "/a:/b");
        assert_int_equal(f->config.op_threads, 256);
        assert_int_equal(f->config.op_queue, 100000);
        assert_int_equal(s->operation_timeout_ms, 100);
        assert_int_equal(f->config.log_level, LOG_LEVEL_DEBUG);
        assert_int_equal(f->config.log_format, LOG_FORMAT_JSON);
        setenv("BERTH_ALLOWED_HOSTNAMES", "d.example", 1);
        load_well(f);
        assert_string_equal(s->allowed_hostnames, "d.example");
}

static void test_limits_of_numbers(void **state)
{
        static const struct {
                const char *variable;
                const char *least, *below, *most, *above;
        } numbers[] = {
                { "BERTH_OP_THREADS", "1", "0", "256", "257" },
                { "BERTH_OP_QUEUE", "1", "0", "100000", "100001" },
                { "BERTH_SWEEP_INTERVAL_MS", "10", "9", "3600000", "3600001" },
                { "BERTH_IDLE_PLACE_TTL_MS", "1", "0", "31622400000", "31622400001" },
                { "BERTH_ADHOC_TTL_MS", "1", "-1", "31622400000", "31622400001" },
                { "BERTH_OPERATION_TIMEOUT_MS", "100", "99", "86400000", "86400001" },
        };
        struct fixture *f = *state;

        for (size_t i = 0; i < ARRAY_LEN(numbers); i++) {
                setenv(numbers[i].variable, numbers[i].least, 1);
                load_well(f);
                setenv(numbers[i].variable, numbers[i].most, 1);
                load_well(f);
                setenv(numbers[i].variable, numbers[i].below, 1);
                refuses(f, numbers[i].variable, numbers[i].below);
                setenv(numbers[i].variable, numbers[i].above, 1);
                refuses(f, numbers[i].variable, numbers[i].above);
                setenv(numbers[i].variable, "12x", 1);
                refuses(f, numbers[i].variable, "12x");
                setenv(numbers[i].variable, "99999999999999999999", 1);
                refuses(f, numbers[i].variable, "99999999999999999999");
                unsetenv(numbers[i].variable);
        }
}

static void test_errors_name_where_it_came_from(void **state)
{
        struct fixture *f = *state;

        setenv("BERTH_LOG_LEVEL", "loud", 1);
        refuses(f, "BERTH_LOG_LEVEL", "debug or info or warn or error");
        unsetenv("BERTH_LOG_LEVEL");
        setenv("PAPERCLIP_DEPLOYMENT_MODE", "open", 1);
        refuses(f, "PAPERCLIP_DEPLOYMENT_MODE", "'open'");
        unsetenv("PAPERCLIP_DEPLOYMENT_MODE");
        f->flags.mode = "open";
        refuses(f, "--mode on the command line", "'open' is not local_trusted or authenticated");
        f->flags.mode = NULL;
        setenv("BERTH_ALLOW_FAKE_PROVIDER", "yes", 1);
        refuses(f, "BERTH_ALLOW_FAKE_PROVIDER", "'yes'");
        unsetenv("BERTH_ALLOW_FAKE_PROVIDER");
        write_file(f, "op_threads = 0\n");
        refuses(f, "op_threads in berth.toml", "'0'");
        write_file(f, "op_threads = \"many\"\n");
        refuses(f, "op_threads in berth.toml", "'many'");
        write_file(f, "disk_reserve_mb = \"\"\n"); /* nothing is not 0 */
        refuses(f, "disk_reserve_mb in berth.toml", "a whole number from 0 to 6");
        write_file(f, "sandbox_uid_first = 4294967000\nsandbox_uid_count = 4096\n");
        refuses(f, "sandbox_uid_count: '4096'", "up to 295");
        write_file(f, "[log]\nlevel = \"loud\"\n");
        refuses(f, "log.level in berth.toml", "'loud'");
        write_file(f, "allowed_hostnames = [1]\n");
        refuses(f, "allowed_hostnames in berth.toml", "list of strings");
        write_file(f, "no_such_thing = 1\n");
        refuses(f, "berth.toml", "no_such_thing");
        write_file(f, "allow_fake_provider = true\n"); /* for tests only, so never in a file */
        refuses(f, "berth.toml", "allow_fake_provider");
        write_file(f, "listen = \n");
        assert_true(load(f) < 0);
        assert_non_null(strstr(f->err.msg, "berth.toml"));
}

/* Whatever else is wrong, and however it is said: a name that nobody reads is a mistake. */
static void test_a_setting_that_is_none(void **state)
{
        struct fixture *f = *state;

        write_file(f, "op_threads = 0\nsweep_interval = 5\n[log]\nlevel = \"warn\"\n");
        refuses(f, "berth.toml", "'sweep_interval'");
        write_file(f, "[log]\nlevels = \"warn\"\n");
        refuses(f, "berth.toml", "'log.levels'");
        /* One that a flag or a variable overrules is a setting all the same. */
        write_file(f, "listen = \"127.0.0.1:1\"\nop_threads = 3\nallowed_hostnames = [\"a\"]\n");
        f->flags.listen = "127.0.0.1:2";
        setenv("BERTH_OP_THREADS", "4", 1);
        setenv("BERTH_ALLOWED_HOSTNAMES", "b", 1);
        load_well(f);
        assert_int_equal(f->config.op_threads, 4);
}

static void test_switches(void **state)
{
        static const struct {
                const char *text;
                bool on;
        } values[] = {
                { "1", true }, { "true", true }, { "0", false }, { "false", false }, { "", false }
        };
        struct fixture *f = *state;

        for (size_t i = 0; i < ARRAY_LEN(values); i++) {
                setenv("BERTH_ALLOW_FAKE_PROVIDER", values[i].text, 1);
                load_well(f);
                assert_int_equal(f->config.settings.allow_fake_provider, values[i].on);
        }
}

static void test_trust_needs_loopback(void **state)
{
        static const char *const near[] = { "localhost:1", "127.0.0.1:1", "127.9.9.9:1",
                                            "[::1]:1" };
        static const char *const far[] = { "0.0.0.0:1",
                                           "192.0.2.1:1",
                                           "[::]:1",
                                           "example.org:1",
                                           "127.0.0.1.example.org:1",
                                           "localhost.example.org:1" };
        struct fixture *f = *state;

        for (size_t i = 0; i < ARRAY_LEN(near); i++) {
                f->flags.listen = near[i];
                load_well(f);
        }
        for (size_t i = 0; i < ARRAY_LEN(far); i++) {
                f->flags.listen = far[i];
                f->flags.mode = NULL;
                assert_int_equal(load(f), ERR_INVALID);
                f->flags.mode = "authenticated";
                load_well(f);
        }
        f->flags = (struct cli_serve_options){ .data = f->data };
        setenv("BERTH_DEPLOYMENT_EXPOSURE", "public", 1);
        refuses(f, "local_trusted", "private");
}

static void test_data_directory(void **state)
{
        struct fixture *f = *state;
        char *nested = arena_printf(&f->arena, "%s/a/b", f->data);
        struct stat st;

        f->flags.data = nested;
        load_well(f);
        assert_int_equal(stat(nested, &st), 0);
        assert_int_equal(st.st_mode & 0777, 0700);
        rmdir(nested);
        f->flags.data = NULL;
        setenv("BERTH_DATA", nested, 1);
        load_well(f);
        assert_string_equal(f->config.data_dir, nested);
        rmdir(nested);
        unsetenv("BERTH_DATA");
        setenv("XDG_DATA_HOME", arena_printf(&f->arena, "%s/a", f->data), 1);
        load_well(f);
        assert_string_equal(f->config.data_dir, arena_printf(&f->arena, "%s/a/berth", f->data));
        rmdir(f->config.data_dir);
        rmdir(arena_printf(&f->arena, "%s/a", f->data));
        f->flags.data = "/proc/nonexistent";
        assert_true(load(f) < 0);
        assert_non_null(strstr(f->err.msg, "data directory"));
        f->flags.data = f->data;
}

#define CONFIG_TEST(name) cmocka_unit_test_setup_teardown(name, setup, teardown)

int main(void)
{
        const struct CMUnitTest tests[] = {
                CONFIG_TEST(test_defaults),
                CONFIG_TEST(test_who_wins),
                CONFIG_TEST(test_every_key_of_the_file),
                CONFIG_TEST(test_limits_of_numbers),
                CONFIG_TEST(test_errors_name_where_it_came_from),
                CONFIG_TEST(test_a_setting_that_is_none),
                CONFIG_TEST(test_switches),
                CONFIG_TEST(test_trust_needs_loopback),
                CONFIG_TEST(test_data_directory),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
