/* The ssh layer without a host: what is put on a command line, what is sent to a shell, what is
 * made of what a host says. */
#include "test.h"

#include <sodium.h>
#include <stdio.h>

#include "core/kinds/ssh/ssh_env.h"
#include "ssh/command.h"
#include "ssh/explain.h"
#include "ssh/hello.h"
#include "ssh/hostkey.h"
#include "ssh/script.h"
#include "ssh/text.h"

static const struct ssh_target plain = {
        .host = "h", .username = "u", .port = 2222, .path = "/w", .strict = true
};

/* Words */

static int check_with(const char *host, const char *user, const char *path)
{
        struct ssh_target t = plain;

        t.host = host;
        t.username = user;
        t.path = path;
        return ssh_target_check(&t, NULL);
}

static void test_words_that_are_refused(void **state)
{
        static const char *const hosts[] = { "",     "-o",  "a b", "a\nb", "a'b", "a\"b",
                                             "$(x)", "a;b", "a|b", "a\\b", "a@b", "a/b" };
        static const char *const users[] = { "",     "-l",  "a b", "a\nb", "a'b", "a\"b",
                                             "$(x)", "a;b", "a|b", "a\\b", "`x`", "%u" };
        static const char *const paths[] = { "", "w", "/a\nb", "/a\x01", "/\xff", "/a\x7f" };

        for (size_t i = 0; i < ARRAY_LEN(hosts); i++)
                assert_int_equal(check_with(hosts[i], "u", "/w"), ERR_UNPROCESSABLE);
        for (size_t i = 0; i < ARRAY_LEN(users); i++)
                assert_int_equal(check_with("h", users[i], "/w"), ERR_UNPROCESSABLE);
        for (size_t i = 0; i < ARRAY_LEN(paths); i++)
                assert_int_equal(check_with("h", "u", paths[i]), ERR_UNPROCESSABLE);
        assert_int_equal(check_with("::1%eth0", "a.b@corp", "/~/a 'b' \"c\" $d"), 0);
}

/* Option by option: -o X takes one word; whatever follows `--` is host and command. */
static void test_a_command_line(void **state)
{
        struct ssh_target t = plain;
        struct ssh_files files = { .known_hosts = "/k", .agent = "/a" };
        const char *const *words;
        struct arena arena;
        size_t n = 0;
        bool strict = false, agent = false, known = false;

        arena_init(&arena);
        words = ssh_command(&t, &files, "remote words", &arena);
        assert_string_equal(words[1], "-F");
        assert_string_equal(words[2], "none");
        for (; !streq(words[n], "--"); n++) {
                strict = strict || streq(words[n], "StrictHostKeyChecking=yes");
                agent = agent || streq(words[n], "IdentityAgent=/a");
                known = known || streq(words[n], "UserKnownHostsFile=/k");
        }
        assert_true(strict && agent && known);
        assert_string_equal(words[n - 4], "-p");
        assert_string_equal(words[n - 3], "2222");
        assert_string_equal(words[n - 2], "-l");
        assert_string_equal(words[n - 1], "u");
        assert_string_equal(words[n + 1], "h");
        assert_string_equal(words[n + 2], "remote words");
        assert_null(words[n + 3]);
        arena_done(&arena);
}

static bool has_word(const char *const *words, const char *word)
{
        for (; *words; words++)
                if (streq(*words, word))
                        return true;
        return false;
}

static void test_nothing_of_the_operators_unless_told(void **state)
{
        struct ssh_target t = plain;
        struct ssh_files files = { 0 };
        const char *const *words;
        struct arena arena;

        arena_init(&arena);
        words = ssh_command(&t, &files, "x", &arena);
        assert_true(has_word(words, "-F"));
        assert_true(has_word(words, "IdentityAgent=none"));
        assert_true(has_word(words, "IdentityFile=none"));
        assert_false(has_word(ssh_environment(&t, &arena), "SSH_AUTH_SOCK=/s"));
        t.use_ssh_config = true;
        setenv("SSH_AUTH_SOCK", "/s", 1);
        words = ssh_command(&t, &files, "x", &arena);
        assert_false(has_word(words, "-F"));
        assert_false(has_word(words, "IdentityFile=none"));
        assert_true(has_word(ssh_environment(&t, &arena), "SSH_AUTH_SOCK=/s"));
        t.strict = false;
        assert_true(
                has_word(ssh_command(&t, &files, "x", &arena), "StrictHostKeyChecking=accept-new"));
        arena_done(&arena);
}

/* Scripts */

/* Every shell that anybody logs in with reads this line the same way. */
static void test_the_launcher_is_plain(void **state)
{
        CLEAN(buf_done) struct buf line = BUF_INIT;

        ssh_script_launcher(12345, &line);
        assert_null(strpbrk(buf_str(&line), "\n\\!`~*?[]{}&;|#%^\t"));
        assert_non_null(strstr(buf_str(&line), "count=12345"));
}

static void test_quoting(void **state)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;

        ssh_text_quote("it's $HOME `x`\n", &out);
        assert_string_equal(buf_str(&out), "'it'\"'\"'s $HOME `x`\n'");
}

static void test_a_script_names_no_values(void **state)
{
        static const char *const names[] = { "A", "TOKEN", NULL };
        CLEAN(buf_done) struct buf out = BUF_INIT;

        ssh_script_command(names, &out);
        assert_non_null(strstr(buf_str(&out), "TOKEN=$berth_TOKEN; export TOKEN"));
        assert_non_null(strstr(buf_str(&out), "exec \"$@\""));
}

/* What strangers say */

static void test_a_stranger_s_line(void **state)
{
        CLEAN(buf_done) struct buf line = BUF_INIT, lines = BUF_INIT;
        static const char said[] = "  a\x1b[31m\r\n\tb\xff \xc3\xbc\x7f c\n\n";

        ssh_text_line(said, sizeof(said) - 1, 100, &line);
        assert_string_equal(buf_str(&line), "a [31m b? \xc3\xbc c");
        ssh_text_clean(said, sizeof(said) - 1, 100, &lines);
        assert_string_equal(buf_str(&lines), "a [31m\nb? \xc3\xbc c");
        buf_clear(&line);
        ssh_text_line("abcdef", 6, 4, &line);
        assert_true(line.len <= 4);
}

static void say(struct ssh_hello *h, const char *line, int code)
{
        assert_int_equal(ssh_hello_line(h, line, NULL), code);
}

static void test_what_a_host_says(void **state)
{
        struct ssh_hello h = { 0 };

        say(&h, "start", 0);
        say(&h, "machine Linux x86_64", 0);
        say(&h, "var PATH /bin:/usr/bin", 0);
        say(&h, "var LANG", 0);
        say(&h, "var LD_PRELOAD /evil", 0);
        say(&h, "cwd /home/a b", 0);
        say(&h, "ready /home/.cache/berth", 0);
        assert_string_equal(h.machine, "x86_64");
        assert_string_equal(h.vars[0], "/bin:/usr/bin");
        assert_string_equal(h.cwd, "/home/a b");
        assert_int_equal(h.state, HELLO_READY);
        say(&h, "cwd relative", ERR_PROVIDER);
        say(&h, "cwd /a\x01", ERR_PROVIDER);
        say(&h, "ready", ERR_PROVIDER);
        say(&h, "", ERR_PROVIDER);
        say(&h, "shutdown now", ERR_PROVIDER);
        assert_string_equal(h.cwd, "/home/a b");
        ssh_hello_done(&h);
}

/* Host keys */

#define KEY "AAAAC3NzaC1lZDI1NTE5AAAAIBWobbEpzdtz1FtXS3D6425+7zesHvZQGOQQOGJRZgQC"

static void test_fingerprints(void **state)
{
        char out[FINGERPRINT_MAX], other[FINGERPRINT_MAX];
        static const char line[] = "[127.0.0.1]:22 ssh-ed25519 " KEY " me@here";
        static const char marked[] = "@cert-authority * ssh-ed25519 " KEY "\r";

        assert_true(hostkey_fingerprint(line, sizeof(line) - 1, out));
        assert_int_equal(strlen(out), strlen("SHA256:") + 43);
        assert_true(hostkey_fingerprint(marked, sizeof(marked) - 1, other));
        assert_string_equal(out, other);
        assert_false(hostkey_fingerprint("# x y " KEY, 70, out));
        assert_false(hostkey_fingerprint("h ssh-ed25519 !!!", 17, out));
        assert_false(hostkey_fingerprint("", 0, out));
}

static void explained(const char *errors, const char *known, const char *part)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;

        ssh_explain(ssh_trouble_of(errors), errors, &plain, known, &out);
        if (!strstr(buf_str(&out), part))
                fail_msg("'%s' lacks '%s'", buf_str(&out), part);
        assert_null(strchr(buf_str(&out), '\n'));
}

static void test_explanations(void **state)
{
        char known[FINGERPRINT_MAX];
        static const char line[] = "[h]:2222 ssh-ed25519 " KEY;

        assert_true(hostkey_fingerprint(line, sizeof(line) - 1, known));
        explained(
                "@@@\nWARNING: REMOTE HOST IDENTIFICATION HAS CHANGED!\nThe fingerprint for the ED25519 key sent by "
                "the remote host is\nSHA256:sentsentsent.\nOffending ED25519 key in /x/known_hosts:2\n",
                "# comment\n[h]:2222 ssh-ed25519 " KEY "\n", known);
        explained("REMOTE HOST IDENTIFICATION HAS CHANGED SHA256:sentsentsent.\n", NULL,
                  "SHA256:sentsentsent. ");
        explained("ssh: connect to host h port 2222: Connection refused", NULL,
                  "does not answer on port 2222");
        explained("u@h: Permission denied (publickey).", NULL, "No key is configured");
        explained("No ED25519 host key is known for h", NULL, "ssh-keyscan -p 2222 h");
        explained("cat: write error: No space left on device\ncannot write to /w", NULL,
                  "no space left");
        explained("tar is not installed", NULL, "no tar");
        explained("one\n  two \x1b[0m  \n", NULL, "two [0m");
        explained("", NULL, "without a word");
}

/* Variables */

static void test_sanitizing(void **state)
{
        json_t *env = json_pack("{s:s, s:s, s:s, s:s}", "PATH", "/daemon/bin", "HOME", "/elsewhere",
                                "home", "/daemon", "KEY", "/daemon"),
               *kept;

        setenv("PATH", "/daemon/bin", 1);
        setenv("HOME", "/daemon", 1);
        kept = exec_variables_sanitize(env);
        /* remote-execution 8.38, 8.42, 8.63 */
        assert_null(json_object_get(kept, "PATH"));
        assert_null(json_object_get(kept, "home"));
        assert_string_equal(json_get_string(kept, "HOME"), "/elsewhere");
        assert_string_equal(json_get_string(kept, "KEY"), "/daemon");
        json_decref(kept);
        json_decref(env);
}

static void test_wrapping(void **state)
{
        static const char *const env[] = { "TOKEN=v", "PATH=/mine", NULL };
        static const char *const login[] = { "PATH=/theirs", "HOME=/h", NULL };
        static const char *const args[] = { "-l", "a b", NULL };
        struct exec_request in = { .command = "ls", .args = args, .env = env, .login = login }, out;
        struct arena arena;

        arena_init(&arena);
        ssh_env_wrap(&arena, &in, &out);
        assert_string_equal(out.command, "/bin/sh");
        assert_string_equal(out.args[0], "-c");
        assert_null(strstr(out.args[1], "mine"));
        assert_string_equal(out.args[3], "ls");
        assert_string_equal(out.args[5], "a b");
        assert_null(out.args[6]);
        assert_true(has_word(out.env, "HOME=/h"));
        assert_true(has_word(out.env, "PATH=/mine"));
        assert_false(has_word(out.env, "PATH=/theirs"));
        arena_done(&arena);
}

/* remote-execution 8.68 */
static void test_names_of_variables(void **state)
{
        CLEAN(err_done) struct err err = { 0 };
        json_t *env = json_pack("{s:s}", "BAD KEY", "x");

        assert_int_equal(ssh_env_check(env, &err), ERR_UNPROCESSABLE);
        assert_string_equal(err.msg, "Invalid SSH environment variable key: BAD KEY");
        json_decref(env);
        assert_int_equal(ssh_env_check(NULL, NULL), 0);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_words_that_are_refused),
                cmocka_unit_test(test_a_command_line),
                cmocka_unit_test(test_nothing_of_the_operators_unless_told),
                cmocka_unit_test(test_the_launcher_is_plain),
                cmocka_unit_test(test_quoting),
                cmocka_unit_test(test_a_script_names_no_values),
                cmocka_unit_test(test_a_stranger_s_line),
                cmocka_unit_test(test_what_a_host_says),
                cmocka_unit_test(test_fingerprints),
                cmocka_unit_test(test_explanations),
                cmocka_unit_test(test_sanitizing),
                cmocka_unit_test(test_wrapping),
                cmocka_unit_test(test_names_of_variables),
        };

        return sodium_init() < 0 ? 1 : cmocka_run_group_tests(tests, NULL, NULL);
}
