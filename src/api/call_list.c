/* Answers that are lists, in pages or whole. A whole list is sent in parts of PART_ROWS (api.h). */
#include <stdio.h>

#include "api/api.h"

#define PART_ROWS 500
/* The channel of a run has answers of one piece only. */
#define CHANNEL_ROWS 5000

struct jw *call_list(struct call *c)
{
        struct jw *w = call_json(c);

        jw_array(w);
        return w;
}

int call_list_end(struct call *c, int r)
{
        jw_array_end(&c->json);
        return r;
}

int call_cursor(struct call *c, struct call_page *p, struct err *err)
{
        const char *cursor = call_query(c, "cursor");
        char *end;

        if (p->limit == 0) {
                p->whole = true;
                p->limit = c->is_channel ? CHANNEL_ROWS : PART_ROWS;
        }
        if (c->part.begun) {
                p->before_us = c->part.last_us;
                p->before_id = c->part.last_id;
                return 0;
        }
        if (!cursor)
                return 0;
        p->before_us = strtoll(cursor, &end, 10);
        if (p->before_us <= 0 || *end != '.' || !uuid_is_valid(end + 1))
                return err_set(err, ERR_INVALID, "cursor must be a value of X-Next-Cursor");
        p->before_id = end + 1;
        return 0;
}

int call_page(struct call *c, struct call_page *p, int64_t fallback, int64_t max, struct err *err)
{
        int r = call_query_int(c, "limit", fallback, 1, max, &p->limit, err);

        return r < 0 ? r : call_cursor(c, p, err);
}

int64_t call_page_rows(const struct call_page *p)
{
        return p->limit + 1;
}

void call_page_begin(struct call *c, struct call_page *p)
{
        if (!c->part.begun) {
                p->w = call_list(c);
                return;
        }
        p->w = call_json(c);
        p->w->comma = true; /* the list goes on */
}

bool call_page_has_room(struct call_page *p, int64_t us, const char *id)
{
        if (p->shown == p->limit) {
                p->more = true;
                return false;
        }
        p->shown++;
        p->last_us = us;
        p->last_id = id;
        return true;
}

/* -- Parts ------------------------------------------------------------------------------------- */

static void part_gone(struct call *c)
{
        http_set_data(c->x, NULL);
        http_stream_end(c->x);
        call_free(c);
}

/* The client has read everything: the handler makes the next part. The caller's identity is looked
 * up again, so a key that was revoked meanwhile ends the list. */
static void part_read(struct http_exchange *x)
{
        struct call *c = http_data(x);

        if (!c || !c->part.waiting)
                return;
        c->part.waiting = false;
        call_continue(c, NULL);
}

static void part_send(struct call *c)
{
        if (c->gone) { /* while the part was made: on_abort() does not come again */
                if (c->part.begun)
                        part_gone(c);
                else
                        call_finish(c);
                return;
        }
        if (!c->part.begun) {
                call_field(c, "Content-Type", "application/json; charset=utf-8");
                call_field(c, "X-Content-Type-Options", "nosniff");
                http_stream_begin(c->x, 200, c->fields, c->n_fields);
                http_stream_on_drained(c->x, part_read);
                c->part.begun = true;
        }
        c->part.waiting = true;
        c->on_gone = part_gone;
        http_stream_write(c->x, buf_str(&c->out), c->out.len);
        buf_clear(&c->out);
}

void call_parts_end(struct call *c)
{
        http_set_data(c->x, NULL);
        if (c->status) { /* the part that was sent must not look like the whole list */
                http_drop(c->x);
        } else {
                http_stream_write(c->x, buf_str(&c->out), c->out.len);
                http_stream_end(c->x);
        }
        call_free(c);
}

int call_page_end(struct call *c, struct call_page *p, int r, struct err *err)
{
        if (r >= 0 && p->more && p->whole) {
                if (c->is_channel)
                        return err_set(err, ERR_TOO_LARGE,
                                       "The list has more than %d entries; ask for less with limit",
                                       CHANNEL_ROWS);
                c->part.last_us = p->last_us;
                snprintf(c->part.last_id, sizeof(c->part.last_id), "%s", p->last_id);
                c->on_loop = part_send;
                return r;
        }
        r = call_list_end(c, r);
        if (r >= 0 && p->more)
                call_field(c, "X-Next-Cursor",
                           arena_printf(&c->arena, "%lld.%s", (long long)p->last_us, p->last_id));
        return r;
}
