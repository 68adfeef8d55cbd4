/* Reads the head and the body of an HTTP answer step by step. */
#include "client/answer.h"

void answer_init(struct answer_reader *r, bool for_head, http_sink_fn *sink, void *arg)
{
        *r = (struct answer_reader){ .for_head = for_head, .sink = sink, .arg = arg };
}

void answer_done(struct answer_reader *r)
{
        buf_done(&r->in);
}

/* Media types compare without case and without parameters. */
static bool has_content_type(const struct http1_head *head, const char *type)
{
        const struct http1_header *h = http1_find(head, "Content-Type");

        if (!h)
                return false;
        struct http1_slice s = h->value;
        const char *end = memchr(s.p, ';', s.len);
        if (end)
                s.len = (size_t)(end - s.p);
        while (s.len > 0 && s.p[s.len - 1] == ' ')
                s.len--;
        return http1_slice_is_case(s, type);
}

static int answer_over(struct answer_reader *r)
{
        r->state = ANSWER_OVER;
        r->answer.keep_alive = r->may_keep && r->in.len == 0;
        return 1;
}

static void take_head(struct answer_reader *r, const struct http1_response *response)
{
        static const enum answer_state states[] = {
                [HTTP1_NO_BODY] = ANSWER_OVER,
                [HTTP1_BODY_LENGTH] = ANSWER_LENGTH,
                [HTTP1_BODY_CHUNKED] = ANSWER_CHUNKED,
                [HTTP1_BODY_UNTIL_CLOSE] = ANSWER_UNTIL_CLOSE,
        };

        r->answer.is_event_stream = has_content_type(&response->head, "text/event-stream");
        r->seen = 0;
        if (response->status < 200) /* the real one follows */
                return;
        r->answer.status = response->status;
        r->may_keep = response->head.keep_alive;
        r->left = response->head.content_length;
        r->state = states[response->head.framing];
}

static int step_head(struct answer_reader *r, struct err *err)
{
        struct http1_refusal why = { 0 };
        struct http1_response response;
        enum http1_result result = http1_response_parse(r->in.data, r->in.len, HTTP_MAX_HEAD,
                                                        &r->seen, r->for_head, &response, &why);

        if (result == HTTP1_REFUSED)
                return err_set(err, ERR_PROVIDER, "what answers there is no Berth daemon: %s",
                               why.text);
        if (result == HTTP1_MORE)
                return 0;
        take_head(r, &response);
        buf_consume(&r->in, response.head.len);
        return 1;
}

static int give_body(struct answer_reader *r, const char *data, size_t len, struct err *err)
{
        return len > 0 ? r->sink(r->arg, &r->answer, data, len, err) : 0;
}

static int step_plain(struct answer_reader *r, struct err *err)
{
        bool until_close = r->state == ANSWER_UNTIL_CLOSE;
        size_t n = until_close ? r->in.len : (size_t)MIN((uint64_t)r->in.len, r->left);
        int result = give_body(r, r->in.data, n, err);

        if (result < 0)
                return result;
        buf_consume(&r->in, n);
        if (!until_close)
                r->left -= n;
        if (!until_close && r->left == 0)
                r->state = ANSWER_OVER;
        return r->state == ANSWER_OVER;
}

/* Everything that is there; the decoder hands out one run of body bytes at a time. */
static int step_chunked(struct answer_reader *r, struct err *err)
{
        size_t at = 0;
        int stop = 0;

        while (at < r->in.len && r->state == ANSWER_CHUNKED && stop >= 0) {
                struct http1_refusal why = { 0 };
                struct http1_slice data = { 0 };
                size_t used = 0;
                enum http1_result result = http1_chunked_feed(&r->chunked, r->in.data + at,
                                                              r->in.len - at, &used, &data, &why);

                if (result == HTTP1_REFUSED)
                        return err_set(err, ERR_PROVIDER, "the answer is broken: %s", why.text);
                stop = give_body(r, data.p, data.len, err);
                at += used;
                if (result == HTTP1_DONE)
                        r->state = ANSWER_OVER;
        }
        buf_consume(&r->in, at);
        return stop < 0 ? stop : r->state == ANSWER_OVER;
}

int answer_step(struct answer_reader *r, struct err *err)
{
        int result = 1;

        r->answer.begun = r->answer.begun || r->in.len > 0;
        while (result > 0 && r->state != ANSWER_OVER) {
                if (r->in.len == 0 && !(r->state == ANSWER_LENGTH && r->left == 0))
                        return 0;
                switch (r->state) {
                case ANSWER_HEAD:
                        result = step_head(r, err);
                        break;
                case ANSWER_CHUNKED:
                        result = step_chunked(r, err);
                        break;
                default:
                        result = step_plain(r, err);
                }
        }
        return result > 0 ? answer_over(r) : result;
}

int answer_closed(struct answer_reader *r, struct err *err)
{
        if (r->state == ANSWER_UNTIL_CLOSE) {
                r->may_keep = false;
                return answer_over(r);
        }
        return err_set(err, ERR_UNCERTAIN,
                       "the daemon closed the connection before its answer was complete");
}
