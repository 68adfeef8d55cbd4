#include "test.h"

#include "codec/xml.h"

#define PATH "Answer/Result/Id"

static void assert_found(const char *text, const char *expected)
{
        CLEAN(err_done) struct err e = { 0 };
        const char *got = NULL;
        size_t n = 0;

        if (xml_find(text, strlen(text), PATH, &got, &n, &e) != 1)
                fail_msg("%s: %s", text, e.msg);
        assert_int_equal(n, strlen(expected));
        assert_memory_equal(got, expected, n);
}

static void assert_not_found(const char *text, int expected)
{
        const char *got = NULL;
        size_t n = 0;

        assert_int_equal(xml_find(text, strlen(text), PATH, &got, &n, NULL), expected);
        assert_null(got);
}

static void test_found(void **state)
{
        (void)state;
        assert_found("<Answer><Result><Id>abc</Id></Result></Answer>", "abc");
        assert_found("<?xml version=\"1.0\"?>\n<!-- <Answer> -->\n"
                     "<Answer xmlns=\"https://a/>b\">\n <Empty/>\n <Id>no</Id>\n"
                     " <Result a='1' >\n  <Other><Id>no</Id></Other>\n  <Id >a+b/=</Id>",
                     "a+b/=");
        assert_found("<Answer><Result><Id></Id></Result></Answer>", "");
}

static void test_absent(void **state)
{
        (void)state;
        assert_not_found("", 0);
        assert_not_found("nothing", 0);
        assert_not_found("<Answer><Id>x</Id></Answer>", 0);
        assert_not_found("<Answer><Result><Id/></Result></Answer>", 0);
        assert_not_found("<Result><Id>x</Id></Result>", 0);
        assert_not_found("<Answer><Result><Id2>x</Id2></Result></Answer>", 0);
        assert_not_found("<A><Answer><Result><Id>x</Id></Result></Answer></A>", 0);
}

static void test_refused(void **state)
{
        (void)state;
        assert_not_found("<Answer><Result></Answer>", ERR_INVALID);
        assert_not_found("</Answer>", ERR_INVALID);
        assert_not_found("<Answer", ERR_INVALID);
        assert_not_found("<Answer>", ERR_INVALID);
        assert_not_found("<>", ERR_INVALID);
        assert_not_found("<!DOCTYPE a [<!ENTITY x \"y\">]><Answer/>", ERR_INVALID);
        assert_not_found("<Answer><![CDATA[x]]></Answer>", ERR_INVALID);
        assert_not_found("<!-- ", ERR_INVALID);
        assert_not_found("<Answer><Result><Id>a&amp;b</Id></Result></Answer>", ERR_INVALID);
        assert_not_found("<Answer><Result><Id>a<b/></Id></Result></Answer>", ERR_INVALID);
        assert_not_found("<Answer><Result><Id>abc", ERR_INVALID);
        assert_not_found("<a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a><a>", ERR_INVALID);
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
