/* One request as the handler sees it. The head is copied once, behind the struct and its table of
 * fields, and cut into C strings where its separators stood; the whole is a single allocation of
 * bounded size. */
#define _GNU_SOURCE
#include <strings.h>

#include "net/http_internal.h"

static bool same_name(struct http1_slice a, struct http1_slice b)
{
        return a.len == b.len && strncasecmp(a.p, b.p, a.len) == 0;
}

static size_t first_of_name(const struct http1_head *head, size_t i)
{
        size_t first = 0;

        while (!same_name(head->headers[first].name, head->headers[i].name))
                first++;
        return first;
}

/* All values of the name that first occurs at `first`, written to *spare, which moves on. */
static const char *join_values(const struct http1_head *head, size_t first, char **spare)
{
        char *start = *spare, *at = start;

        for (size_t i = first; i < head->n_headers; i++) {
                const struct http1_header *h = &head->headers[i];

                if (!same_name(h->name, head->headers[first].name))
                        continue;
                if (i != first)
                        at = mempcpy(at, ", ", 2);
                at = mempcpy(at, h->value.p, h->value.len);
        }
        *at++ = '\0';
        *spare = at;
        return start;
}

/* Turn a slice of the original head into a C string in our copy of it. The byte behind a slice is a
 * separator that is no longer needed. */
static const char *cut_string(char *copy, const char *original, struct http1_slice s)
{
        char *at = copy + (s.p - original);

        at[s.len] = '\0';
        return at;
}

struct http_exchange *http_exchange_new(struct http_conn *c, const struct http1_request *req,
                                        const char *head)
{
        const struct http1_head *h = &req->head;
        size_t fields_size = h->n_headers * sizeof(struct http_field), spare_size = 0;
        struct http_exchange *x;
        bool repeats = false;

        /* Fields of the same name become one, joined with ", ": what this can take at most. */
        for (size_t i = 0; i < h->n_headers; i++) {
                repeats = repeats || first_of_name(h, i) != i;
                spare_size += h->headers[i].value.len + 2;
        }
        x = xcalloc(1, sizeof(*x) + fields_size + h->len + (repeats ? spare_size : 0));
        char *copy = (char *)(x + 1) + fields_size, *spare = copy + h->len;
        x->conn = c;
        x->peer = c->peer;
        x->fields = (struct http_field *)(x + 1);
        memcpy(copy, head, h->len);
        x->method = cut_string(copy, head, req->method_text);
        x->path = cut_string(copy, head, req->path);
        x->query = cut_string(copy, head, req->query);
        for (size_t i = 0; i < h->n_headers; i++) {
                struct http_field *f = &x->fields[x->n_fields];

                if (repeats && first_of_name(h, i) != i)
                        continue;
                f->name = cut_string(copy, head, h->headers[i].name);
                f->value = repeats ? join_values(h, i, &spare)
                                   : cut_string(copy, head, h->headers[i].value);
                x->n_fields++;
        }
        x->framing = h->framing;
        x->body_left = h->content_length;
        x->body_done = h->framing == HTTP1_NO_BODY ||
                       (h->framing == HTTP1_BODY_LENGTH && h->content_length == 0);
        x->is_head = req->method == HTTP1_HEAD;
        x->is_old = h->minor == 0;
        x->is_absolute = req->is_absolute;
        x->keep_alive = h->keep_alive;
        return x;
}

void http_exchange_free(struct http_exchange *x)
{
        buf_wipe(&x->body); /* it may have held a secret */
        free(x);
}

const char *http_method(const struct http_exchange *x)
{
        return x->method;
}

const char *http_path(const struct http_exchange *x)
{
        return x->path;
}

bool http_is_absolute(const struct http_exchange *x)
{
        return x->is_absolute;
}

const char *http_query(const struct http_exchange *x)
{
        return x->query;
}

const char *http_header(const struct http_exchange *x, const char *name)
{
        for (size_t i = 0; i < x->n_fields; i++)
                if (strcasecmp(x->fields[i].name, name) == 0)
                        return x->fields[i].value;
        return NULL;
}

const char *http_body(const struct http_exchange *x, size_t *ret_len)
{
        if (ret_len)
                *ret_len = x->body.len;
        return buf_str(&x->body);
}

bool http_has_body(const struct http_exchange *x)
{
        return x->framing != HTTP1_NO_BODY;
}

bool http_body_follows(const struct http_exchange *x)
{
        return x->body_streamed && !x->body_done;
}

const struct http_peer *http_peer(const struct http_exchange *x)
{
        return &x->peer;
}

bool http_is_gone(const struct http_exchange *x)
{
        return !x->conn;
}

void http_set_data(struct http_exchange *x, void *data)
{
        x->data = data;
}

void *http_data(const struct http_exchange *x)
{
        return x->data;
}

void http_body_pause(struct http_exchange *x)
{
        x->body_paused = true;
}

void http_body_resume(struct http_exchange *x)
{
        if (!x->body_paused)
                return;
        x->body_paused = false;
        if (x->conn)
                http_conn_due(x->conn);
}
