/* A loop of its own, on the caller's thread, with one link and one timer on it. */
#include "box/ask.h"

#include <stdio.h>

#include "base/clock.h"
#include "base/uuid.h"
#include "box/launch.h"
#include "box/link.h"

#define CHANNEL  1
#define ALL      (UINT64_C(1) << 40)
#define GRACE_MS 1000
#define LATE_MS  5000 /* for the box, after the command's own limit */
#define LOOK_MS  20

struct asking {
        uv_loop_t loop;
        uv_timer_t timer;
        struct box_link *link;
        const struct op *op;
        const struct box_question *question;
        struct buf *out;
        struct box_exit *exit;
        uint64_t seen[3];
        int64_t until_ms;
        bool over;
        int code;
        struct err *err;
};

static void finish_asking(struct asking *a, int code)
{
        a->code = code;
        a->over = true;
        uv_stop(&a->loop);
}

static void on_welcome(void *ctx, const struct box_welcome *welcome)
{
        struct asking *a = ctx;
        const struct box_question *q = a->question;
        struct box_start start = {
                .timeout_ms = q->timeout_ms,
                .grace_ms = GRACE_MS,
                .cwd = q->cwd,
                .spool_dir = "",
                .command = q->command,
                .args = q->args,
                .env = q->env,
        };

        (void)frame_uuid_bytes(uuid_new().s, start.id);
        box_link_start(a->link, CHANNEL, &start);
}

static void on_started(void *ctx, uint32_t channel, uint32_t pid, uint64_t started_ms,
                       uint8_t kill_method)
{
        struct asking *a = ctx;

        box_link_ack(a->link, CHANNEL, BOX_STDOUT, 0, ALL);
        box_link_ack(a->link, CHANNEL, BOX_STDERR, 0, ALL);
}

static int on_data(void *ctx, uint32_t channel, uint8_t stream, uint64_t offset, const char *data,
                   size_t len, struct err *err)
{
        struct asking *a = ctx;

        if (offset != a->seen[stream])
                return err_set(err, ERR_INVALID, "the box sent output with a gap");
        buf_append(a->out, data, len);
        a->seen[stream] = offset + len;
        box_link_ack(a->link, CHANNEL, stream, a->seen[stream], ALL);
        return 0;
}

static void on_failed(void *ctx, uint32_t channel, uint16_t code, const char *text)
{
        struct asking *a = ctx;

        finish_asking(a, err_set(a->err, ERR_PROVIDER, "the command did not start: %s", text));
}

static void on_exit_frame(void *ctx, uint32_t channel, const struct box_exit *e)
{
        struct asking *a = ctx;

        *a->exit = *e;
        box_link_forget(a->link, CHANNEL);
        finish_asking(a, 0);
}

static void on_closed(void *ctx, const char *why, bool is_breach)
{
        struct asking *a = ctx;

        a->link = NULL;
        if (!a->over)
                finish_asking(a, err_set(a->err, ERR_UNREACHABLE, "the box went away: %s", why));
}

static const struct box_link_events events = {
        .on_welcome = on_welcome,
        .on_started = on_started,
        .on_data = on_data,
        .on_failed = on_failed,
        .on_exit = on_exit_frame,
        .on_closed = on_closed,
};

static void look_at_answer(uv_timer_t *timer)
{
        struct asking *a = timer->data;
        int r = op_check(a->op, a->err);

        if (r >= 0 && clock_mono_ms() > a->until_ms)
                r = err_set(a->err, ERR_UNREACHABLE, "the box does not answer");
        if (r < 0)
                finish_asking(a, r);
}

static void close_handles(struct asking *a)
{
        box_link_close(a->link);
        uv_close((uv_handle_t *)&a->timer, NULL);
        (void)uv_run(&a->loop, UV_RUN_DEFAULT);
        (void)uv_loop_close(&a->loop);
}

int box_ask(struct op *op, const char *dir, const struct box_question *question, struct buf *out,
            struct box_exit *ret, struct err *err)
{
        struct asking a = { .op = op, .question = question, .out = out, .exit = ret, .err = err };
        uint8_t node[FRAME_UUID] = { 0 };
        int fd, r = box_connect(dir, &fd, err);

        if (r < 0)
                return r;
        if (uv_loop_init(&a.loop) < 0) {
                close(fd);
                return err_set(err, ERR_BUSY, "no event loop");
        }
        a.until_ms = clock_mono_ms() + question->timeout_ms + LATE_MS;
        uv_timer_init(&a.loop, &a.timer);
        a.timer.data = &a;
        uv_timer_start(&a.timer, look_at_answer, LOOK_MS, LOOK_MS);
        r = box_link_open(&a.loop, fd, node, 1, &events, &a, &a.link, err);
        if (r >= 0) {
                (void)uv_run(&a.loop, UV_RUN_DEFAULT);
                r = a.code;
        }
        close_handles(&a);
        return r;
}
