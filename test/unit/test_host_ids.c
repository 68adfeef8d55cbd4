#include "test.h"

#include "core/sandboxes/host_ids.h"

static void assert_range(const char *text, const char *name, uid_t uid, int64_t first,
                         int64_t count)
{
        struct id_range found;

        assert_int_equal(subid_largest(text, strlen(text), name, uid, &found), count > 0);
        assert_int_equal(found.count, count);
        if (count > 0)
                assert_int_equal(found.first, first);
}

static void test_subids(void **state)
{
        (void)state;
        assert_range("ann:100000:65536\n", "ann", 1000, 100000, 65536);
        assert_range("ann:100000:65536", "ann", 1000, 100000, 65536);
        assert_range("bob:1:2\nann:100000:65536\n", "ann", 1000, 100000, 65536);
        assert_range("1000:100000:10\n", "ann", 1000, 100000, 10);
        assert_range("1000:100000:10\n", NULL, 1000, 100000, 10);
        assert_range("ann:1000:10\nann:5000:30\nann:9000:20\n", "ann", 1, 5000, 30);
        assert_range("", "ann", 1000, 0, 0);
        assert_range("annie:1:2\n", "ann", 1000, 0, 0);
        assert_range("ann:1\n", "ann", 1000, 0, 0);
        assert_range("ann:1:\n", "ann", 1000, 0, 0);
        assert_range("ann::5\n", "ann", 1000, 0, 0);
        assert_range("ann:1:5:6\n", "ann", 1000, 0, 0);
        assert_range("ann:1:5x\n", "ann", 1000, 0, 0);
        assert_range("ann:-1:5\n", "ann", 1000, 0, 0);
        assert_range("ann:0:5\n", "ann", 1000, 0, 0); /* nobody gets root */
        assert_range("ann:4294967290:10\n", "ann", 1000, 0, 0);
        assert_range("ann:99999999999999999999:10\n", "ann", 1000, 0, 0);
}

static void test_common(void **state)
{
        struct id_range r =
                id_range_common((struct id_range){ 100, 50 }, (struct id_range){ 120, 100 });

        (void)state;
        assert_int_equal(r.first, 120);
        assert_int_equal(r.count, 30);
        r = id_range_common((struct id_range){ 100, 50 }, (struct id_range){ 150, 50 });
        assert_int_equal(r.count, 0);
}

static void test_slices(void **state)
{
        (void)state;
        assert_int_equal(host_ids_slice((struct id_range){ HOST_IDS_FIRST, HOST_IDS_COUNT }),
                         65536);
        assert_int_equal(host_ids_slice((struct id_range){ 100000, 65536 }), 2048);
}

static void test_accounts(void **state)
{
        CLEAN(err_done) struct err err = { 0 };
        struct id_range r;

        (void)state;
        if (geteuid() != 0)
                skip();
        assert_int_equal(host_ids_find(HOST_IDS_FIRST, HOST_IDS_COUNT, &r, NULL), 0);
        assert_int_equal(r.first, HOST_IDS_FIRST);
        assert_int_equal(host_ids_find(1, 100000, &r, &err), ERR_UNPROCESSABLE);
        assert_non_null(strstr(err.msg, "sandbox_uid_first"));
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_subids),
                cmocka_unit_test(test_common),
                cmocka_unit_test(test_slices),
                cmocka_unit_test(test_accounts),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
