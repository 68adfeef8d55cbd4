#include "test.h"

#include "codec/json.h"
#include "codec/toml.h"

static void assert_reads(const char *text, const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *v = NULL;
        char *got;

        if (toml_parse("berth.toml", text, strlen(text), &v, &e) < 0)
                fail_msg("%s: %s", text, e.msg);
        got = json_to_text(v);
        assert_string_equal(got, expected);
        free(got);
        json_decref(v);
}

static void assert_refused(const char *text, const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *v = NULL;

        assert_int_equal(toml_parse("berth.toml", text, strlen(text), &v, &e), ERR_INVALID);
        assert_null(v);
        if (!str_starts(e.msg, expected))
                fail_msg("%s: \"%s\" does not start with \"%s\"", text, e.msg, expected);
}

static void test_empty(void **state)
{
        (void)state;
        assert_reads("", "{}");
        assert_reads("\n \t\n# nothing\n#", "{}");
        assert_reads("\xef\xbb\xbf# a mark\n", "{}");
        assert_reads("[a]\n", "{}");
}

static void test_values(void **state)
{
        (void)state;
        assert_reads("a = \"x\"", "{\"a\":\"x\"}");
        assert_reads("a=true # yes\r\nb = false\r\n", "{\"a\":true,\"b\":false}");
        assert_reads("a = 17\nb = -17\nc = +17\nd = 1_000\ne = 0x1F\nf = 0o17\ng = 0b101\nh = 0\n"
                     "i = -0",
                     "{\"a\":17,\"b\":-17,\"c\":17,\"d\":1000,\"e\":31,\"f\":15,\"g\":5,\"h\":0,"
                     "\"i\":0}");
        assert_reads("a = []\nb = [1]\nc = [ \"x\" , true, 'y', ]\n",
                     "{\"a\":[],\"b\":[1],\"c\":[\"x\",true,\"y\"]}");
        assert_reads("a = [ # one\n  1,\n\n  2 # two\n  ,\n  3\n]\nb = 4",
                     "{\"a\":[1,2,3],\"b\":4}");
}

static void test_strings(void **state)
{
        (void)state;
        assert_reads("a = \"\\b\\t\\n\\f\\r\\\"\\\\\"", "{\"a\":\"\\b\\t\\n\\f\\r\\\"\\\\\"}");
        assert_reads("a = \"\\u00e9\\u20AC\\U0001F600\"",
                     "{\"a\":\"\xc3\xa9\xe2\x82\xac\xf0\x9f\x98\x80\"}");
        assert_reads("a = 'C:\\new \"x\" # no'", "{\"a\":\"C:\\\\new \\\"x\\\" # no\"}");
        assert_reads("a = \"\"\nb = ''", "{\"a\":\"\",\"b\":\"\"}");
        assert_reads("a = \"\xc3\xa9\t#\"", "{\"a\":\"\xc3\xa9\\t#\"}");
}

static void test_keys_are_flattened(void **state)
{
        (void)state;
        assert_reads("top = 1\n[store]\npath = 'p'\nlog.level = 'x'\n[ net . http ]\nport=2\n",
                     "{\"top\":1,\"store.path\":\"p\",\"store.log.level\":\"x\","
                     "\"net.http.port\":2}");
        assert_reads("a . b = 1\n\"q r\".'s' = 2\n1-_x = 3", "{\"a.b\":1,\"q r.s\":2,\"1-_x\":3}");
        assert_reads("[a.b]\nx=1\n[a]\ny=2\n[a.c]\nz=3\n", "{\"a.b.x\":1,\"a.y\":2,\"a.c.z\":3}");
        assert_reads("a.b.x = 1\na.b.y = 2\na.c = 3\n[a.d]\nz=4",
                     "{\"a.b.x\":1,\"a.b.y\":2,\"a.c\":3,\"a.d.z\":4}");
}

static void test_names_clash(void **state)
{
        (void)state;
        assert_refused("a = 1\nb = 2\na = 3", "berth.toml line 3: this key is set already");
        assert_refused("[a]\nx=1\n[b]\n[a]\n", "berth.toml line 4: this table was begun before");
        assert_refused("a = 1\n[a]", "berth.toml line 2: this name is a value already");
        assert_refused("a = 1\n[a.b]", "berth.toml line 2: the front of this name is a value");
        assert_refused("a = 1\na.b = 2", "berth.toml line 2: the front of this name is a value");
        assert_refused("a.b = 1\na = 2", "berth.toml line 2: this name is a table already");
        assert_refused("[a.b]\n[a]\nb = 1", "berth.toml line 3: this name is a table already");
        assert_refused("a.b = 1\n[a]", "berth.toml line 2: this table was begun before");
        assert_refused("[a.b]\n[a]\nb.c = 1", "berth.toml line 3: the front of this key has a ");
}

static void test_refusals_say_what_to_do(void **state)
{
        static const struct {
                const char *text, *error;
        } cases[] = {
                { "a = 1.5", "only whole numbers are supported" },
                { "a = 1e5", "only whole numbers are supported" },
                { "a = inf", "only whole numbers are supported" },
                { "a = -nan", "only whole numbers are supported" },
                { "a = 1979-05-27", "dates and times are not supported; put quotes around it" },
                { "a = 07:32:00", "a number must not start with 0" },
                { "a = 01", "a number must not start with 0" },
                { "a = 1__0", "a digit is missing" },
                { "a = 1_", "a digit is missing" },
                { "a = 0x", "a digit is missing" },
                { "a = -", "a digit is missing" },
                { "a = 0b2", "a digit is missing" },
                { "a = \"\"\"x\"\"\"", "multi-line strings are not supported" },
                { "a = '''x'''", "multi-line strings are not supported" },
                { "a = {b = 1}", "inline tables are not supported; write key.name = value" },
                { "a = [[1]]", "an array in an array is not supported" },
                { "[[a]]", "[[arrays of tables]] are not supported; write [table]" },
                { "a = x", "a value is expected" },
                { "a =", "a value is expected" },
                { "a = \n1", "a value is expected" },
                { "a = TRUE", "a value is expected" },
                { "a", "an = is missing" },
                { "a b = 1", "an = is missing" },
                { "= 1", "a key is missing" },
                { "a. = 1", "a key is missing" },
                { ".a = 1", "a key is missing" },
                { "\"\" = 1", "a key is missing" },
                { "\xc3\xa9 = 1", "a key is missing" },
                { "\"a.b\" = 1", "a quoted key with a dot" },
                { "[]", "a key is missing" },
                { "[a", "the table's name has no closing ]" },
                { "[a] b = 1", "something follows the value" },
                { "a = 1 b = 2", "something follows the value" },
                { "a = true1", "something follows the value" },
                { "a = [1 2]", "a , or the closing ] of the array is missing" },
                { "a = [1", "a , or the closing ] of the array is missing" },
                { "a = [,]", "a value is expected" },
                { "a = \"x", "the string has no closing \"" },
                { "a = 'x", "the string has no closing '" },
                { "a = \"x\ny\"", "the string has no closing \"" },
                { "a = \"\\q\"", "unknown escape" },
                { "a = \"\\", "unknown escape" },
                { "a = \"\\u12\"", "\\u wants 4 hexadecimal digits" },
                { "a = \"\\u0000\"", "\\u wants a Unicode character" },
                { "a = \"\\ud800\"", "\\u wants a Unicode character" },
                { "a = \"\\U00110000\"", "\\u wants a Unicode character" },
                { "a = \"\x01\"", "a control character" },
                { "# \x7f", "a control character" },
                { "a = 1\rb = 2", "a carriage return without a line feed" },
                { "a = \"\xff\"", "not valid UTF-8" },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
                CLEAN(buf_done) struct buf text = BUF_INIT, expected = BUF_INIT;

                buf_appendf(&text, "# one\nk = [\n1]\n%s", cases[i].text);
                buf_appendf(&expected, "berth.toml line 4: %s", cases[i].error);
                assert_refused(buf_str(&text), buf_str(&expected));
        }
        assert_refused("a = [\n1,\nx]", "berth.toml line 3: a value is expected");
}

static void test_a_nul_is_a_control_character(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        json_t *v = NULL;

        (void)state;
        assert_int_equal(toml_parse("f", "a = 1\n\0b = 2", 12, &v, &e), ERR_INVALID);
        assert_true(str_starts(e.msg, "f line 2: a control character"));
}

static void test_integers_at_their_limit_and_past_it(void **state)
{
        (void)state;
        assert_reads("a = 9223372036854775807", "{\"a\":9223372036854775807}");
        assert_reads("a = -9223372036854775808", "{\"a\":-9223372036854775808}");
        assert_reads("a = 0x7fffffffffffffff", "{\"a\":9223372036854775807}");
        assert_refused("a = 9223372036854775808", "berth.toml line 1: the number does not fit");
        assert_refused("a = -9223372036854775809", "berth.toml line 1: the number does not fit");
        assert_refused("a = 0x8000000000000000", "berth.toml line 1: the number does not fit");
        assert_refused("a = 99999999999999999999999", "berth.toml line 1: the number does not");
}

static void test_size_limit(void **state)
{
        CLEAN(err_done) struct err e = { 0 };
        char *text = xcalloc(1, TOML_MAX_BYTES + 2);
        json_t *v = NULL;

        (void)state;
        memset(text, '\n', TOML_MAX_BYTES + 1);
        assert_int_equal(toml_parse("berth.toml", text, TOML_MAX_BYTES, &v, &e), 0);
        json_decref(v);
        assert_int_equal(toml_parse("berth.toml", text, TOML_MAX_BYTES + 1, &v, &e), ERR_TOO_LARGE);
        assert_string_equal(e.msg, "berth.toml is larger than 262144 bytes");
        free(text);
}

/* One setting with a key of n bytes, `table_len` of them its table's name. */
static int parse_key_of(size_t n, size_t table_len, struct err *e)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        json_t *v = NULL;
        int r;

        if (table_len > 0) {
                buf_putc(&text, '[');
                for (size_t i = 0; i < table_len; i++)
                        buf_putc(&text, 't');
                buf_puts(&text, "]\n");
                n -= table_len + 1;
        }
        for (size_t i = 0; i < n; i++)
                buf_putc(&text, 'k');
        buf_puts(&text, " = 1");
        r = toml_parse("berth.toml", buf_str(&text), text.len, &v, e);
        if (r == 0)
                json_decref(v);
        return r;
}

static void test_key_limit(void **state)
{
        CLEAN(err_done) struct err e = { 0 };

        (void)state;
        assert_int_equal(parse_key_of(TOML_MAX_KEY, 0, &e), 0);
        assert_int_equal(parse_key_of(TOML_MAX_KEY + 1, 0, &e), ERR_INVALID);
        assert_string_equal(e.msg, "berth.toml line 1: the key is too long");
        assert_int_equal(parse_key_of(TOML_MAX_KEY, 100, &e), 0);
        assert_int_equal(parse_key_of(TOML_MAX_KEY + 1, 100, &e), ERR_INVALID);
        assert_int_equal(parse_key_of(TOML_MAX_KEY + 1, TOML_MAX_KEY - 1, &e), ERR_INVALID);
        assert_int_equal(parse_key_of(TOML_MAX_KEY + 2, TOML_MAX_KEY, &e), ERR_INVALID);
        assert_string_equal(e.msg, "berth.toml line 1: the table's name is too long");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_empty),
                cmocka_unit_test(test_values),
                cmocka_unit_test(test_strings),
                cmocka_unit_test(test_keys_are_flattened),
                cmocka_unit_test(test_names_clash),
                cmocka_unit_test(test_refusals_say_what_to_do),
                cmocka_unit_test(test_a_nul_is_a_control_character),
                cmocka_unit_test(test_integers_at_their_limit_and_past_it),
                cmocka_unit_test(test_size_limit),
                cmocka_unit_test(test_key_limit),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
