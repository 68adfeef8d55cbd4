#include "test.h"

#include <stdalign.h>

#include "base/arena.h"

static void test_memory_is_zeroed_aligned_and_apart(void **state)
{
        struct arena a;
        unsigned char *p[200];

        (void)state;
        arena_init(&a);
        for (size_t i = 0; i < ARRAY_LEN(p); i++) {
                p[i] = arena_alloc(&a, i * 7 + 1);
                assert_int_equal((uintptr_t)p[i] % alignof(max_align_t), 0);
                for (size_t j = 0; j < i * 7 + 1; j++)
                        assert_int_equal(p[i][j], 0);
                memset(p[i], (int)i, i * 7 + 1);
        }
        for (size_t i = 0; i < ARRAY_LEN(p); i++)
                for (size_t j = 0; j < i * 7 + 1; j++)
                        assert_int_equal(p[i][j], i);
        arena_done(&a);
}

/* Around the size of a chunk, where an off-by-one would write past it (the sanitizer sees it). */
static void test_large_blocks(void **state)
{
        struct arena a;

        (void)state;
        arena_init(&a);
        for (size_t size = 4000; size < 4200; size++)
                memset(arena_alloc(&a, size), 1, size);
        memset(arena_alloc(&a, 1 << 20), 1, 1 << 20);
        assert_non_null(arena_alloc(&a, 0));
        arena_done(&a);
        arena_done(&a);
}

static void test_strings(void **state)
{
        struct arena a;
        char raw[3] = { 'a', 'b', 'c' };

        (void)state;
        arena_init(&a);
        assert_null(arena_strdup(&a, NULL));
        assert_string_equal(arena_strdup(&a, "hello"), "hello");
        assert_string_equal(arena_strndup(&a, "hello", 2), "he");
        assert_string_equal(arena_strndup(&a, "hello", 100), "hello");
        assert_string_equal(arena_strndup(&a, raw, 3), "abc");
        assert_string_equal(arena_printf(&a, "%s-%d", "x", 5), "x-5");
        assert_int_equal(strlen(arena_printf(&a, "%9000d", 5)), 9000);
        arena_done(&a);
}

static void test_an_array_grows_and_keeps_its_elements(void **state)
{
        struct arena a;
        int *at = NULL;
        size_t room = 0;

        (void)state;
        arena_init(&a);
        for (size_t n = 0; n < 1000; n++) {
                size_t before = room;
                int *grown = arena_more(&a, at, n, &room, sizeof(*at));

                assert_true(room > n);
                if (n < before)
                        assert_ptr_equal(grown, at);
                at = grown;
                at[n] = (int)n;
        }
        for (size_t n = 0; n < 1000; n++)
                assert_int_equal(at[n], n);
        arena_done(&a);
}

static void test_heap_strings_stop_where_the_string_stops(void **state)
{
        char *s = xstrndup("hello", 100);

        (void)state;
        assert_string_equal(s, "hello");
        free(s);
        s = xstrndup("hello", 0);
        assert_string_equal(s, "");
        free(s);
}

static char order[600];
static size_t n_order;

static void note(void *arg)
{
        order[n_order++] = *(char *)arg;
}

static void test_deferred_calls_run_in_reverse(void **state)
{
        struct arena a;

        (void)state;
        arena_init(&a);
        n_order = 0;
        for (size_t i = 0; i < sizeof(order); i++) {
                char *c = arena_alloc(&a, 1);

                *c = (char)('a' + i % 26);
                arena_defer(&a, note, c);
        }
        arena_done(&a);
        assert_int_equal(n_order, sizeof(order));
        for (size_t i = 0; i < sizeof(order); i++)
                assert_int_equal(order[i], 'a' + (sizeof(order) - 1 - i) % 26);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_memory_is_zeroed_aligned_and_apart),
                cmocka_unit_test(test_large_blocks),
                cmocka_unit_test(test_strings),
                cmocka_unit_test(test_an_array_grows_and_keeps_its_elements),
                cmocka_unit_test(test_heap_strings_stop_where_the_string_stops),
                cmocka_unit_test(test_deferred_calls_run_in_reverse),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
