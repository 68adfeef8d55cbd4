#include "test.h"

#include "codec/xml.h"

static void assert_found(const char *text, const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };
        const char *got = NULL;
        size_t n = 0;

        if (xml_find(text, strlen(text), "Id", &got, &n, &e) != 1)
                fail_msg("%s: %s", text, e.msg);
        assert_int_equal(n, strlen(expected));
        assert_memory_equal(got, expected, n);
}

static void assert_not_found(const char *text, int expected)
{
        const char *got = NULL;
        size_t n = 0;

        assert_int_equal(xml_find(text, strlen(text), "Id", &got, &n, NULL), expected);
        assert_null(got);
}

static void test_found(void **state)
{
        (void)state;
        assert_found("<Answer><Result><Id>abc</Id></Result></Answer>", "abc");
        assert_found("<?xml version=\"1.0\"?>\n<!-- <Answer> -->\n"
                     "<Answer xmlns=\"https://a/>b\">\n <Empty/>\n <Identity>no</Identity>\n"
                     " <Result a='1' >\n  <Id>a+b/=</Id>",
                     "a+b/=");
        assert_found("<Id></Id>", "");
}

static void test_absent(void **state)
{
        (void)state;
        assert_not_found("", 0);
        assert_not_found("nothing", 0);
        assert_not_found("<Answer><Result><Id/></Result></Answer>", 0);
        assert_not_found("<Answer><Result><Id2>x</Id2></Result></Answer>", 0);
        assert_not_found("<Id", 0);
}

static void test_refused(void **state)
{
        (void)state;
        assert_not_found("<Id>a&amp;b</Id>", ERR_INVALID);
        assert_not_found("<Id>a<b/></Id>", ERR_INVALID);
        assert_not_found("<Id>a</Ids>", ERR_INVALID);
        assert_not_found("<Id>abc", ERR_INVALID);
        assert_not_found("<Id>abc<", ERR_INVALID);
        assert_not_found("<Id>abc</Id", ERR_INVALID);
        assert_not_found("<Id>a</Id><Id>b</Id>", ERR_INVALID);
        assert_not_found("<!-- <Id>a</Id> --><Id>b</Id>", ERR_INVALID);
        assert_not_found("<Id>b</Id><![CDATA[<Id>a</Id>]]>", ERR_INVALID);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_found),
                cmocka_unit_test(test_absent),
                cmocka_unit_test(test_refused),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
