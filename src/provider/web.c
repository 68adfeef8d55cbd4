/* One request of a provider by libcurl: its limits, and what is known when it fails. */
#define _GNU_SOURCE
#include "provider/web.h"

#include <ctype.h>
#include <pthread.h>
#include <stdio.h>
#include <strings.h>
#include <time.h>

#include "base/clock.h"
#include "rt/libcurl.h"

#define MAX_IDLE   8
#define POLL_MS    1000
#define CONNECT_MS 15000L

static CURLM *idle[MAX_IDLE];
static pthread_mutex_t idle_lock = PTHREAD_MUTEX_INITIALIZER;

static CURLM *take_multi(void)
{
        CURLM *found = NULL;

        pthread_mutex_lock(&idle_lock);
        for (size_t i = 0; !found && i < MAX_IDLE; i++)
                found = take_ptr(&idle[i]);
        pthread_mutex_unlock(&idle_lock);
        return found ? found : libcurl.multi_init();
}

static void give_multi(CURLM *take)
{
        pthread_mutex_lock(&idle_lock);
        for (size_t i = 0; take && i < MAX_IDLE; i++)
                if (!idle[i])
                        idle[i] = take_ptr(&take);
        pthread_mutex_unlock(&idle_lock);
        if (take)
                (void)libcurl.multi_cleanup(take);
}

struct running {
        const struct web_request *q;
        struct web_answer *a;
        struct err *err;
        CURLM *multi;
        CURL *easy;
        struct curl_slist *headers;
        int failed; /* by a callback */
        int64_t last_ms;
};

static void running_done(struct running *r)
{
        if (r->easy && r->multi)
                (void)libcurl.multi_remove_handle(r->multi, r->easy);
        if (r->easy)
                libcurl.easy_cleanup(r->easy);
        if (r->multi)
                give_multi(r->multi);
        libcurl.slist_free_all(r->headers);
}

void web_answer_done(struct web_answer *a)
{
        buf_wipe(&a->body);
}

/* What comes */

static const char *header_value(const char *line, size_t len, const char *name, char *ret,
                                size_t size)
{
        size_t n = strlen(name), used = 0;

        if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':')
                return NULL;
        for (size_t i = n + 1; i < len && used + 1 < size; i++)
                if (isprint((unsigned char)line[i]) && (used > 0 || line[i] != ' '))
                        ret[used++] = line[i];
        ret[used] = '\0';
        return ret;
}

/* The milliseconds of a Retry-After header (seconds or a date), -1 when it makes no sense. */
static int64_t retry_after_ms(const char *value, int64_t now_s)
{
        char *end;
        struct tm when = { 0 };
        long long s = strtoll(value, &end, 10);

        if (end != value && *end == '\0')
                return s >= 0 && s < INT32_MAX ? s * 1000 : -1;
        end = strptime(value, "%a, %d %b %Y %H:%M:%S GMT", &when);
        if (!end || *end)
                return -1;
        return MAX((int64_t)timegm(&when) - now_s, 0) * 1000;
}

static size_t on_header(char *line, size_t size, size_t n, void *arg)
{
        struct running *r = arg;
        char value[128];

        r->last_ms = clock_mono_ms();
        if (strncmp(line, "HTTP/", MIN(size * n, 5)) == 0 && size * n > 5)
                *r->a = (struct web_answer){ .retry_after_ms = -1, .body = r->a->body };
        if (header_value(line, size * n, "retry-after", value, sizeof(value)))
                r->a->retry_after_ms = retry_after_ms(value, (int64_t)time(NULL));
        (void)header_value(line, size * n, "x-next-token", r->a->next_token,
                           sizeof(r->a->next_token));
        (void)header_value(line, size * n, "content-type", r->a->content_type,
                           sizeof(r->a->content_type));
        if (size * n == 2 && line[0] == '\r') {
                long status = 0;

                (void)libcurl.easy_getinfo(r->easy, CURLINFO_RESPONSE_CODE, &status);
                r->a->status = (int)status;
                r->a->begun = status >= 200;
        }
        return size * n;
}

static size_t on_body(char *data, size_t size, size_t n, void *arg)
{
        struct running *r = arg;
        bool good = r->a->status >= 200 && r->a->status < 300;
        size_t len = size * n;

        r->last_ms = clock_mono_ms();
        if (good && r->q->on_data)
                r->failed = r->q->on_data(r->q->ctx, data, len, r->err);
        else if (good && r->a->body.len + len > WEB_ANSWER_MAX)
                r->failed = err_set(r->err, ERR_TOO_LARGE, "the answer is larger than %zu MiB",
                                    WEB_ANSWER_MAX >> 20);
        else if (good)
                buf_append(&r->a->body, data, len);
        else
                buf_append(&r->a->body, data,
                           MIN(len, WEB_FAILED_MAX - MIN(r->a->body.len, WEB_FAILED_MAX)));
        return r->failed < 0 ? 0 : len;
}

/* What goes */

#define SET(option, value)                                                                         \
        do {                                                                                       \
                if (libcurl.easy_setopt(r->easy, (option), (value)) != CURLE_OK)                   \
                        return err_set(r->err, ERR_INTERNAL, "libcurl refuses " #option);          \
        } while (0)

static int web_prepare(struct running *r)
{
        static const char *const removed[] = { "Expect:", NULL };

        r->multi = take_multi();
        r->easy = libcurl.easy_init();
        if (!r->multi || !r->easy)
                return err_set(r->err, ERR_INTERNAL, "libcurl cannot start");
        for (int pass = 0; pass < 2; pass++)
                for (const char *const *h = pass ? removed : r->q->headers; h && *h; h++) {
                        struct curl_slist *longer = libcurl.slist_append(r->headers, *h);

                        if (!longer || strpbrk(*h, "\r\n"))
                                return err_set(r->err, ERR_INVALID, "a header cannot be sent");
                        r->headers = longer;
                }
        SET(CURLOPT_URL, r->q->url);
        SET(CURLOPT_PROTOCOLS_STR, "http,https");
        SET(CURLOPT_FOLLOWLOCATION, 0L);
        SET(CURLOPT_SSL_VERIFYPEER, 1L);
        SET(CURLOPT_SSL_VERIFYHOST, 2L);
        SET(CURLOPT_NETRC, (long)CURL_NETRC_IGNORED);
        SET(CURLOPT_NOSIGNAL, 1L);
        SET(CURLOPT_HTTP_VERSION, (long)CURL_HTTP_VERSION_1_1);
        SET(CURLOPT_QUICK_EXIT, 1L);
        SET(CURLOPT_CONNECTTIMEOUT_MS, CONNECT_MS);
        SET(CURLOPT_USERAGENT, "berth/" BERTH_VERSION);
        if (r->q->body) {
                SET(CURLOPT_POSTFIELDS, r->q->body);
                SET(CURLOPT_POSTFIELDSIZE_LARGE, (curl_off_t)r->q->body_len);
        }
        SET(CURLOPT_CUSTOMREQUEST, r->q->method);
        SET(CURLOPT_HTTPHEADER, r->headers);
        SET(CURLOPT_HEADERFUNCTION, on_header);
        SET(CURLOPT_HEADERDATA, r);
        SET(CURLOPT_WRITEFUNCTION, on_body);
        SET(CURLOPT_WRITEDATA, r);
        return libcurl.multi_add_handle(r->multi, r->easy) == CURLM_OK
                       ? 0
                       : err_set(r->err, ERR_INTERNAL, "libcurl cannot start");
}

/* Until it has ended */

static bool was_sent(const struct running *r)
{
        long bytes = 0;

        (void)libcurl.easy_getinfo(r->easy, CURLINFO_REQUEST_SIZE, &bytes);
        return bytes > 0;
}

static int64_t next_limit(const struct running *r, int64_t began_ms)
{
        int64_t until = r->a->begun ? INT64_MAX : began_ms + r->q->begin_ms;

        if (r->q->total_ms > 0)
                until = MIN(until, began_ms + r->q->total_ms);
        if (r->q->silent_ms > 0 && r->a->begun)
                until = MIN(until, r->last_ms + r->q->silent_ms);
        return until;
}

static int web_drive(struct running *r)
{
        struct curl_waitfd cancel = { .fd = r->q->cancel_fd, .events = CURL_WAIT_POLLIN };
        int64_t began = clock_mono_ms(), left;
        int running = 1;

        for (;;) {
                if (libcurl.multi_perform(r->multi, &running) != CURLM_OK)
                        return err_set(r->err, ERR_INTERNAL, "libcurl failed");
                if (running == 0)
                        return 0;
                left = next_limit(r, began) - clock_mono_ms();
                if (left <= 0)
                        return err_set(r->err, was_sent(r) ? ERR_TIMEOUT : ERR_UNREACHABLE,
                                       "no answer in time");
                if (libcurl.multi_poll(r->multi, &cancel, cancel.fd >= 0 ? 1 : 0,
                                       (int)MIN(left, POLL_MS), NULL) != CURLM_OK)
                        return err_set(r->err, ERR_INTERNAL, "libcurl failed");
                if (cancel.fd >= 0 && cancel.revents)
                        return err_set(r->err, ERR_CANCELLED, "it was given up");
        }
}

static int web_finish(struct running *r)
{
        CURLcode result = CURLE_FAILED_INIT;
        const CURLMsg *message;
        int more;

        while ((message = libcurl.multi_info_read(r->multi, &more)))
                if (message->msg == CURLMSG_DONE)
                        result = message->data.result;
        if (r->failed < 0)
                return r->failed;
        if (result == CURLE_OK)
                return buf_failed(&r->a->body) ? err_set(r->err, ERR_TOO_LARGE, "out of memory")
                                               : 0;
        return err_set(r->err, was_sent(r) ? ERR_UNCERTAIN : ERR_UNREACHABLE, "%s",
                       libcurl.easy_strerror(result));
}

int web_run(const struct web_request *q, struct web_answer *ret, struct err *err)
{
        struct running r = { .q = q, .a = ret, .err = err, .last_ms = clock_mono_ms() };
        int e;

        *ret = (struct web_answer){ .retry_after_ms = -1 };
        buf_init(&ret->body, WEB_ANSWER_MAX + 1);
        if (!libcurl_load())
                return err_set(err, ERR_UNREACHABLE, "libcurl.so.4 is not installed");
        e = web_prepare(&r);
        if (e >= 0)
                e = web_drive(&r);
        if (e >= 0)
                e = web_finish(&r);
        running_done(&r);
        return e;
}

void web_escape(struct buf *b, const char *text)
{
        for (; *text; text++) {
                unsigned char c = (unsigned char)*text;

                if (isalnum(c) || strchr("-._~", c))
                        buf_putc(b, (char)c);
                else
                        buf_appendf(b, "%%%02X", c);
        }
}
