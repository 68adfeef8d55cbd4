/* threads: readers of the clock on several threads. */
#include "test.h"

#include <pthread.h>

#include "base/clock.h"

static const char *iso(int64_t us)
{
        static char text[ISO_TIME_LEN + 1];

        clock_iso(us, text);
        return text;
}

/* http-api, section 1.3: ISO-8601 UTC with milliseconds and Z. */
static void test_iso(void **state)
{
        (void)state;
        assert_string_equal(iso(0), "1970-01-01T00:00:00.000Z");
        assert_string_equal(iso(INT64_C(1778407200123456)), "2026-05-10T10:00:00.123Z");
        assert_string_equal(iso(999), "1970-01-01T00:00:00.000Z");
        assert_string_equal(iso(-1), "1969-12-31T23:59:59.999Z");
        assert_string_equal(iso(INT64_C(951782400) * US_PER_S), "2000-02-29T00:00:00.000Z");
}

static void test_iso_at_the_ends_of_its_range(void **state)
{
        const int64_t last = INT64_C(253402300799999999);
        const int64_t first = INT64_C(-62167219200) * US_PER_S;

        (void)state;
        assert_string_equal(iso(last), "9999-12-31T23:59:59.999Z");
        assert_string_equal(iso(last + 1), "9999-12-31T23:59:59.999Z");
        assert_string_equal(iso(INT64_MAX), "9999-12-31T23:59:59.999Z");
        assert_string_equal(iso(first), "0000-01-01T00:00:00.000Z");
        assert_string_equal(iso(first - 1), "0000-01-01T00:00:00.000Z");
        assert_string_equal(iso(INT64_MIN), "0000-01-01T00:00:00.000Z");
}

static void test_parse(void **state)
{
        static const struct {
                const char *text;
                const char *as;
        } good[] = {
                { "2026-05-10T10:00:00Z", "2026-05-10T10:00:00.000Z" },
                { "2026-05-10T10:00:00.5Z", "2026-05-10T10:00:00.500Z" },
                { "2026-05-10T10:00:00.123456789Z", "2026-05-10T10:00:00.123Z" },
                { "2026-05-10T10:00:00+02:30", "2026-05-10T07:30:00.000Z" },
                { "2026-05-10T10:00:00.250-00:30", "2026-05-10T10:30:00.250Z" },
                { "2024-02-29T00:00:00Z", "2024-02-29T00:00:00.000Z" },
                { "2000-02-29T00:00:00Z", "2000-02-29T00:00:00.000Z" },
        };
        int64_t us;

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++) {
                assert_true(clock_parse_iso(good[i].text, &us));
                assert_string_equal(iso(us), good[i].as);
        }
        assert_true(clock_parse_iso("1970-01-01T00:00:00.123456Z", &us));
        assert_int_equal(us, 123456);
}

static void test_parse_refuses(void **state)
{
        static const char *const bad[] = {
                "",
                "2026-05-10",
                "2026-05-10T10:00:00",
                "2026-05-10T10:00:00.Z",
                "2026-05-10T10:00:00Zx",
                "2026-05-10 10:00:00Z",
                "2026-05-10T10:00:00+0230",
                "2026-05-10T10:00:00+24:00",
                "2026-05-10T10:00:00+02:60",
                "2026-05-10T24:00:00Z",
                "2026-05-10T10:60:00Z",
                "2026-05-10T10:00:61Z",
                "2026-13-10T10:00:00Z",
                "2026-00-10T10:00:00Z",
                "2026-05-00T10:00:00Z",
                "2026-05-32T10:00:00Z",
                "2026-02-29T10:00:00Z",
                "1900-02-29T10:00:00Z",
                "2026-04-31T10:00:00Z",
                "x026-05-10T10:00:00Z",
        };
        int64_t us = 42;

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                assert_false(clock_parse_iso(bad[i], &us));
        assert_int_equal(us, 42);
}

#define N_THREADS 4
#define N_READS   20000

static void *read_clock(void *arg)
{
        int64_t *seen = arg;

        for (size_t i = 0; i < N_READS; i++)
                seen[i] = clock_now_us();
        return NULL;
}

static int by_value(const void *a, const void *b)
{
        int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;

        return x < y ? -1 : x > y;
}

static void test_no_instant_twice(void **state)
{
        static int64_t seen[N_THREADS * N_READS];
        pthread_t threads[N_THREADS];

        (void)state;
        for (size_t i = 0; i < N_THREADS; i++)
                assert_int_equal(pthread_create(&threads[i], NULL, read_clock, seen + i * N_READS),
                                 0);
        for (size_t i = 0; i < N_THREADS; i++) {
                pthread_join(threads[i], NULL);
                for (size_t j = 1; j < N_READS; j++)
                        assert_true(seen[i * N_READS + j] > seen[i * N_READS + j - 1]);
        }
        qsort(seen, ARRAY_LEN(seen), sizeof(seen[0]), by_value);
        for (size_t i = 1; i < ARRAY_LEN(seen); i++)
                assert_true(seen[i] > seen[i - 1]);
}

static void test_monotonic(void **state)
{
        int64_t before = clock_mono_us();

        (void)state;
        assert_true(clock_mono_us() >= before);
        assert_true(clock_mono_ms() >= before / 1000);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_iso),
                cmocka_unit_test(test_iso_at_the_ends_of_its_range),
                cmocka_unit_test(test_parse),
                cmocka_unit_test(test_parse_refuses),
                cmocka_unit_test(test_no_instant_twice),
                cmocka_unit_test(test_monotonic),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
