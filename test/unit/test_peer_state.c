/* The table of what a peer may say: what it promises about itself, and the bounds at and past each
 * limit. */
#include "test.h"

#include "codec/peer_state.h"
#include "codec/sync_wire.h"

static bool is_worker(uint64_t phases)
{
        uint64_t workers = 0;

        for (int p = WORKER_GREETING; p < PEER_N_PHASES; p++)
                workers |= PEER_IN(p);
        return phases & workers;
}

/* "Once" is the phase that follows: there it is not allowed. */
static void test_once_is_once(void **state)
{
        for (const struct peer_rule *r = peer_rules; r->phases; r++) {
                for (int p = 0; p < PEER_N_PHASES; p++) {
                        enum peer_phase phase = (enum peer_phase)p;
                        unsigned asked = 1;

                        if (!(r->phases & PEER_IN(p)))
                                continue;
                        assert_int_equal(peer_move(&phase, r->type, &asked, NULL), 0);
                        assert_int_equal(phase, r->next == PEER_SAME ? p : r->next);
                        assert_int_equal(asked, r->often != PEER_ASKED);
                        if (r->often == PEER_ONCE && phase != CHANNEL_OVER && phase != CONN_OVER &&
                            phase != STREAM_OVER)
                                assert_true(peer_move(&phase, r->type, NULL, NULL) < 0);
                }
        }
}

/* Two rows for one frame in one phase would hide the second. */
static void test_no_row_is_hidden(void **state)
{
        for (const struct peer_rule *r = peer_rules; r->phases; r++) {
                assert_true(is_worker(r->phases) || peer_frame_name(r->type));
                for (const struct peer_rule *o = r + 1; o->phases; o++)
                        assert_false(o->type == r->type && o->phases & r->phases);
        }
}

static void test_unasked(void **state)
{
        CLEAN(err_done) struct err err = { 0 };
        enum peer_phase phase = LINK_READY;
        unsigned asked = 0;

        assert_int_equal(peer_move(&phase, FRAME_PONG, &asked, &err), ERR_INVALID);
        assert_string_equal(err.msg, "the box sent PONG that nobody asked for");
        phase = CHANNEL_ENDED;
        assert_int_equal(peer_move(&phase, FRAME_STARTED, NULL, &err), ERR_INVALID);
        assert_string_equal(err.msg, "the box sent STARTED of an execution that has ended");
        assert_int_equal(phase, CHANNEL_ENDED);
        phase = WORKER_MOVING;
        assert_int_equal(peer_move(&phase, SYNC_FINISHED, &asked, &err), ERR_INVALID);
        assert_string_equal(err.msg, "The file worker sent FINISHED that was not asked for");
}

static int exit_fits(const struct box_exit *e)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        struct frame_out f;

        frame_begin(&f, &b, FRAME_EXIT, 1);
        frame_put_exit(&f, e);
        frame_end(&f);
        assert_false(buf_failed(&b));
        return peer_frame_fits(
                &(struct frame_header){ .len = (uint32_t)b.len - FRAME_HEADER, .type = FRAME_EXIT },
                b.data + FRAME_HEADER, NULL);
}

static void test_bounds(void **state)
{
        const struct box_exit good = { .code = -1,
                                       .signal = 64,
                                       .flags = 7,
                                       .ended_ms = PEER_MAX_TIME,
                                       .stdout_len = PEER_MAX_LENGTH,
                                       .stderr_len = PEER_MAX_LENGTH };
        struct box_exit e = good;

        assert_int_equal(exit_fits(&e), 0);
        e.code = -2;
        assert_true(exit_fits(&e) < 0);
        e = good;
        e.signal = 65;
        assert_true(exit_fits(&e) < 0);
        e = good;
        e.flags = 32;
        assert_true(exit_fits(&e) < 0);
        e = good;
        e.ended_ms++;
        assert_true(exit_fits(&e) < 0);
        e = good;
        e.stdout_len++;
        assert_true(exit_fits(&e) < 0);
        e = good;
        e.stderr_len = UINT64_MAX;
        assert_true(exit_fits(&e) < 0);
        e = (struct box_exit){ .code = INT32_MAX };
        assert_int_equal(exit_fits(&e), 0);
}

/* Nothing fits that only a host sends, that does not exist, or that is cut off anywhere. */
static void test_types_and_sizes(void **state)
{
        static const char zeros[128];

        for (int type = 0; type < 256; type++) {
                struct frame_header h = { .type = (uint8_t)type };
                unsigned n = 0;

                for (h.len = 0; h.len <= sizeof(zeros); h.len++)
                        n += peer_frame_fits(&h, zeros, NULL) == 0;
                if (!peer_frame_name((uint8_t)type))
                        assert_int_equal(n, 0);
                else if (type == FRAME_BYTES)
                        assert_int_equal(n, sizeof(zeros) - 8);
                else if (type == FRAME_PING || type == FRAME_EXIT || type == FRAME_STOPPED)
                        assert_int_equal(n, 1);
                else if (type == FRAME_START || type == FRAME_ASK || type == FRAME_DATA)
                        assert_int_equal(n, 0); /* ours; or a stream 0 */
        }
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_once_is_once),    cmocka_unit_test(test_no_row_is_hidden),
                cmocka_unit_test(test_unasked),         cmocka_unit_test(test_bounds),
                cmocka_unit_test(test_types_and_sizes),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
