/* Life of a proxied connection: its deadline, its end, and refusals. */
#include "net/proxy_internal.h"

#include <stdio.h>

#include "base/hash.h"
#include "base/log.h"

#define FORBIDDEN 403

static unsigned or_default(unsigned value, unsigned otherwise)
{
        return value ? value : otherwise;
}

struct proxy *proxy_new(const struct proxy_config *config)
{
        struct proxy *p = xcalloc(1, sizeof(*p));

        p->config = *config;
        p->config.max_connections = or_default(config->max_connections, 256);
        p->config.head_timeout_ms = or_default(config->head_timeout_ms, 10000);
        p->config.resolve_timeout_ms = or_default(config->resolve_timeout_ms, 10000);
        p->config.connect_timeout_ms = or_default(config->connect_timeout_ms, 10000);
        p->config.idle_timeout_ms = or_default(config->idle_timeout_ms, 300000);
        p->name = xstrdup(config->name);
        p->patterns = xcalloc(config->n_patterns + 1, sizeof(*p->patterns));
        if (config->n_patterns)
                memcpy(p->patterns, config->patterns, config->n_patterns * sizeof(*p->patterns));
        p->config.patterns = p->patterns;
        p->conns.prev = p->conns.next = &p->conns;
        p->refs = 1;
        return p;
}

static void proxy_unref(struct proxy *p)
{
        if (--p->refs > 0)
                return;
        free(p->name);
        free(p->patterns);
        free(p);
}

void proxy_free(struct proxy *p)
{
        if (!p)
                return;
        while (p->conns.next != &p->conns)
                proxy_conn_close(p->conns.next);
        proxy_unref(p);
}

void proxy_serve(struct proxy *p, struct byte_stream *take_stream)
{
        struct proxy_conn *c;

        if (p->n_conns >= p->config.max_connections) {
                stream_close(take_stream, NULL, NULL);
                return;
        }
        c = xcalloc(1, sizeof(*c));
        c->proxy = p;
        c->client = take_stream;
        (void)uv_timer_init(p->config.loop, &c->timer);
        c->prev = p->conns.prev;
        c->next = &p->conns;
        c->prev->next = c->next->prev = c;
        p->n_conns++;
        p->refs++;
        proxy_conn_start(c);
}

/* Closing */

static void done_with_flow(struct proxy_flow *f)
{
        buf_done(&f->in);
        buf_done(&f->out);
}

static void on_timer_closed(uv_handle_t *handle)
{
        struct proxy_conn *c = container_of((uv_timer_t *)handle, struct proxy_conn, timer);
        struct proxy *p = c->proxy;

        free(c);
        proxy_unref(p);
}

void proxy_conn_close(struct proxy_conn *c)
{
        if (c->phase == PROXY_CLOSED)
                return;
        c->phase = PROXY_CLOSED;
        c->prev->next = c->next;
        c->next->prev = c->prev;
        c->proxy->n_conns--;
        stream_close(take_ptr(&c->client), NULL, NULL);
        proxy_drop_upstream(c);
        if (c->lookup)
                lookup_abandon(take_ptr(&c->lookup));
        done_with_flow(&c->up);
        done_with_flow(&c->down);
        uv_close((uv_handle_t *)&c->timer, on_timer_closed);
}

static void on_deadline(uv_timer_t *timer)
{
        proxy_conn_expired(container_of(timer, struct proxy_conn, timer));
}

void proxy_deadline(struct proxy_conn *c, unsigned ms)
{
        (void)uv_timer_start(&c->timer, on_deadline, ms, 0);
}

/* Refusing */

static const char *reason_of(int status)
{
        switch (status) {
        case 400:
                return "Bad Request";
        case FORBIDDEN:
                return "Forbidden";
        case 408:
                return "Request Timeout";
        case 502:
                return "Bad Gateway";
        case 504:
                return "Gateway Timeout";
        default:
                return "Refused";
        }
}

static void answer_in_words(struct proxy_conn *c, int status, const char *text)
{
        struct buf *out = &c->down.out;

        proxy_drop_upstream(c);
        if (c->answered || c->phase == PROXY_LINGER) {
                proxy_conn_close(c);
                return;
        }
        buf_clear(out);
        c->down.out_sent = 0;
        buf_appendf(out,
                    "HTTP/1.1 %d %s\r\nContent-Type: text/plain; charset=utf-8\r\n"
                    "Content-Length: %zu\r\nConnection: close\r\n\r\n",
                    status, reason_of(status), c->is_head ? (size_t)0 : strlen(text));
        if (!c->is_head)
                buf_puts(out, text);
        proxy_conn_linger(c);
}

static void refuse_v(struct proxy_conn *c, int status, const char *fmt, va_list ap)
{
        char text[1024];

        (void)vsnprintf(text, sizeof(text) - 1, fmt, ap);
        size_t n = strlen(text);
        text[n] = '\n';
        text[n + 1] = '\0';
        answer_in_words(c, status, text);
}

void proxy_refuse(struct proxy_conn *c, int status, const char *fmt, ...)
{
        va_list ap;

        va_start(ap, fmt);
        refuse_v(c, status, fmt, ap);
        va_end(ap);
}

void proxy_fail(struct proxy_conn *c, int status, const char *fmt, ...)
{
        va_list ap;

        atomic_fetch_add(&c->proxy->config.counters->failed, 1);
        va_start(ap, fmt);
        refuse_v(c, status, fmt, ap);
        va_end(ap);
}

/* Once per host and port, as far as the table remembers; the log itself bounds the rest. */
static bool is_news(struct proxy *p, const struct host_target *t)
{
        uint64_t h = hash_add(hash_text(t->name), t->port);

        for (unsigned i = 0; i < PROXY_LOGGED; i++)
                if (p->logged[i] == h)
                        return false;
        p->logged[p->next_logged++ % PROXY_LOGGED] = h;
        return true;
}

void proxy_forbid(struct proxy_conn *c, const char *fmt, ...)
{
        char text[768];
        va_list ap;

        va_start(ap, fmt);
        (void)vsnprintf(text, sizeof(text), fmt, ap);
        va_end(ap);
        atomic_fetch_add(&c->proxy->config.counters->refused, 1);
        if (is_news(c->proxy, &c->target)) {
                log_warn("an environment was refused a connection", LOG_S("place", c->proxy->name),
                         LOG_S("host", c->target.name), LOG_I("port", c->target.port),
                         LOG_S("why", text));
                if (c->proxy->config.on_refused)
                        c->proxy->config.on_refused(c->proxy->config.ctx, c->target.name,
                                                    c->target.port, text);
        }
        proxy_refuse(c, FORBIDDEN, "%s", text);
}
