/* What a worker says besides its answers: bounded, rate-limited, redacted. */
#include <stdio.h>

#include "base/clock.h"
#include "base/utf8.h"
#include "plugin/worker.h"

#define MESSAGE_MAX 2000
#define META_MAX    2000
#define ABOUT_MAX   200

/* At most `max` bytes, ending between two characters. */
static size_t cut_length(const char *s, size_t n, size_t max)
{
        if (n <= max)
                return n;
        while (max > 0 && ((unsigned char)s[max] & 0xc0) == 0x80)
                max--;
        return max;
}

static bool may_log(struct worker *w)
{
        int64_t now = clock_mono_ms();

        if (now - w->log_window_ms >= WORKER_LOG_WINDOW) {
                w->log_window_ms = now;
                w->log_count = 0;
        }
        if (w->log_count++ < WORKER_LOG_BURST)
                return true;
        w->log_suppressed++;
        return false;
}

/* Redact first and cut afterwards: a cut value would not be known again. */
static char *clean(struct worker *w, const char *text, size_t len, size_t max)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;

        pthread_mutex_lock(&w->lock);
        secret_set_put(&w->secrets, &b, text, MIN(len, 8 * max));
        pthread_mutex_unlock(&w->lock);
        if (b.len > max) {
                b.len = cut_length(b.data, b.len, max);
                b.data[b.len] = '\0';
        }
        return b.data ? buf_take(&b) : xstrdup("");
}

static void say(struct worker *w, const char *level, const char *message, const char *meta)
{
        if (!w->config->log)
                return;
        if (w->log_suppressed) {
                char text[64];

                snprintf(text, sizeof(text), "%u lines of the plugin were left out",
                         w->log_suppressed);
                w->log_suppressed = 0;
                w->config->log(w->config->ctx, w->key, "warn", text, NULL);
        }
        w->config->log(w->config->ctx, w->key, level, message, meta);
}

static const char *known_level(const char *level)
{
        static const char *const levels[] = { "debug", "info", "warn", "error" };

        for (size_t i = 0; level && i < ARRAY_LEN(levels); i++)
                if (streq(levels[i], level))
                        return levels[i];
        return "info";
}

void worker_log(struct worker *w, const char *level, const char *message, const json_t *meta)
{
        CLEAN(cleanup_free) char *text = NULL, *extra = NULL;

        if (!message || !may_log(w))
                return;
        text = clean(w, message, strlen(message), MESSAGE_MAX);
        if (json_is_object(meta) && json_object_size(meta) > 0) {
                CLEAN(cleanup_free) char *all = json_to_text(meta);

                extra = clean(w, all, strlen(all), META_MAX);
        }
        say(w, known_level(level), text, extra);
}

void worker_note(struct worker *w, const char *message, const char *about, size_t len)
{
        CLEAN(cleanup_free) char *text = NULL, *shown = NULL;

        if (!may_log(w))
                return;
        shown = clean(w, about, len, ABOUT_MAX);
        text = xasprintf("%s%s%s", message, *shown ? ": " : "", shown);
        say(w, "warn", text, NULL);
}

int worker_take_stderr(void *ctx, const char *line, size_t len)
{
        struct worker *w = ctx;

        buf_append(&w->stderr_tail, line, len);
        buf_putc(&w->stderr_tail, '\n');
        if (w->stderr_tail.len > WORKER_STDERR_KEPT)
                buf_consume(&w->stderr_tail, w->stderr_tail.len - WORKER_STDERR_KEPT);
        if (may_log(w)) {
                CLEAN(cleanup_free) char *shown = clean(w, line, len, MESSAGE_MAX);
                CLEAN(cleanup_free) char *text = xasprintf("[plugin stderr] %s", shown);

                say(w, "warn", text, NULL);
        }
        return 0;
}

void worker_redact(struct worker *w, const char *text, char *ret, size_t size)
{
        CLEAN(cleanup_free) char *said = clean(w, text, strlen(text), size - 1);

        snprintf(ret, size, "%s", said);
}

void worker_explain(struct worker *w, const char *text, char *ret, size_t size)
{
        CLEAN(cleanup_free) char *tail = NULL;
        const char *intro = "\n\nWorker stderr:\n", *from;
        size_t used, room;

        worker_redact(w, text, ret, size);
        used = strlen(ret);
        tail = clean(w, buf_str(&w->stderr_tail), w->stderr_tail.len, WORKER_STDERR_KEPT);
        room = size - 1 - used;
        if (!*tail || room < strlen(intro) + 40 || strstr(ret, tail))
                return;
        room -= strlen(intro);
        from = tail + (strlen(tail) > room ? strlen(tail) - room : 0);
        while (((unsigned char)*from & 0xc0) == 0x80)
                from++;
        snprintf(ret + used, size - used, "%s%s", intro, from);
}
