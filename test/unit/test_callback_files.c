/* What a place says about requests of its queue, as bytes and back. All of it may be made up. */
#include "test.h"

#include "core/callbacks/callback_files.h"

#define ID    "01a1e081-7509-462e-bab4-24c064404a28"
#define TOKEN "token-of-the-channel"

static struct arena arena;

static int setup(void **state)
{
        (void)state;
        arena_init(&arena);
        return 0;
}

static int teardown(void **state)
{
        (void)state;
        arena_done(&arena);
        return 0;
}

static struct queue_turn read_printed(const char *printed)
{
        struct queue_turn turn = { .ret_id = "before", .ret_text = "before", .ret_len = 6 };

        queue_read_printed(&arena, printed, &turn);
        return turn;
}

static void test_a_request(void **state)
{
        struct queue_turn turn = read_printed("noise\nberth-queue:" ID ".json e30=\r\nmore\n");

        (void)state;
        assert_string_equal(turn.ret_id, ID);
        assert_int_equal(turn.ret_len, 2);
        assert_string_equal(turn.ret_text, "{}");
        /* Its file says nothing; the request gets an answer all the same. */
        turn = read_printed("berth-queue:" ID ".json !!\n");
        assert_string_equal(turn.ret_id, ID);
        assert_null(turn.ret_text);
}

/* The name becomes that of a file which is written. */
static void test_names_that_are_none(void **state)
{
        static const char *const printed[] = {
                "",
                "berth-queue:none\n",
                "berth-queue:" ID ".json",
                "berth-queue:" ID " e30=\n",
                "berth-queue:" ID ".JSON e30=\n",
                "berth-queue:01A1E081-7509-462E-BAB4-24C064404A28.json e30=\n",
                "berth-queue:" ID "0.json e30=\n",
                "berth-queue:../../../../../../../../../etc/cron.json e30=\n",
                "berth-queue:x1a1e081-7509-462e-bab4-24c064404a28.json e30=\n",
                "berth-queue:01a1e0810-7509-462e-bab4-4c064404a28.json e30=\n",
                ID ".json e30=\n",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(printed); i++) {
                struct queue_turn turn = read_printed(printed[i]);

                if (turn.ret_id || turn.ret_text)
                        print_message("taken: %s\n", printed[i]);
                assert_null(turn.ret_id);
                assert_null(turn.ret_text);
        }
}

static void assert_request(const char *text, const char *expected)
{
        CLEAN(buf_done) struct buf bytes = BUF_INIT;
        int r = queue_request_bytes(text, strlen(text), TOKEN, &bytes, NULL);

        assert_int_equal(r, expected ? 0 : ERR_INVALID);
        if (expected)
                assert_string_equal(buf_str(&bytes), expected);
}

/* Who it is from, the channel says, and only a few headers count. */
static void test_headers(void **state)
{
        (void)state;
        assert_request(
                "{\"method\":\"POST\",\"path\":\"/api/x\",\"query\":\"?a=b\",\"body\":\"{}\","
                "\"headers\":{\"authorization\":\"Bearer mine\",\"host\":\"evil\","
                "\"x-paperclip-run-id\":\"other\",\"content-length\":\"99\","
                "\"transfer-encoding\":\"chunked\",\"accept\":\"a/b\\r\\nX: y\","
                "\"content-type\":\"application/json\",\"if-match\":\"*\"}}",
                "POST /api/x?a=b HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                "Authorization: Bearer " TOKEN "\r\ncontent-type: application/json\r\n"
                "if-match: *\r\nContent-Length: 2\r\n\r\n{}");
        assert_request("{\"method\":\"GET\",\"path\":\"/api/x\",\"body\":\"smuggled\"}",
                       "GET /api/x HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\n"
                       "Authorization: Bearer " TOKEN "\r\n\r\n");
}

static void test_no_requests(void **state)
{
        (void)state;
        assert_request("[]", NULL);
        assert_request("{\"path\":\"/api/x\"}", NULL);
        assert_request("{\"method\":\"GET\"}", NULL);
        assert_request("{\"method\":\"get\",\"path\":\"/api/x\"}", NULL);
        assert_request("{\"method\":\"GET\",\"path\":\"/api/../x\"}", NULL);
        assert_request("{\"method\":\"GET\",\"path\":\"/api/x HTTP/1.1\\r\\nX: y\"}", NULL);
        assert_request("{\"method\":\"GET\",\"path\":\"/api/x\",\"query\":\"a=b\"}", NULL);
        assert_request("{\"method\":\"GET\",\"path\":\"/api/x\",\"query\":\"?a b\"}", NULL);
        assert_request("{\"method\":\"GET\",\"path\":\"/api/x\",\"query\":\"?\\r\\nX: y\"}", NULL);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test_setup_teardown(test_a_request, setup, teardown),
                cmocka_unit_test_setup_teardown(test_names_that_are_none, setup, teardown),
                cmocka_unit_test_setup_teardown(test_headers, setup, teardown),
                cmocka_unit_test_setup_teardown(test_no_requests, setup, teardown),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
