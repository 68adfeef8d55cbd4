/* Answers that are lists, whole or in pages (api.h). */
#include "api/api.h"

void call_list(struct call *c, struct jw *w)
{
        jw_init(w, &c->out);
        jw_array(w);
}

int call_list_end(struct jw *w, int r)
{
        jw_array_end(w);
        return r;
}

int call_cursor(struct call *c, struct call_page *p, struct err *err)
{
        const char *cursor = call_query(c, "cursor");
        char *end;

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
        return p->limit ? p->limit + 1 : 0;
}

void call_page_begin(struct call *c, struct call_page *p)
{
        call_list(c, &p->w);
}

bool call_page_has_room(struct call_page *p, int64_t us, const char *id)
{
        if (p->limit && p->shown == p->limit) {
                p->more = true;
                return false;
        }
        p->shown++;
        p->last_us = us;
        p->last_id = id;
        return true;
}

int call_page_end(struct call *c, struct call_page *p, int r)
{
        r = call_list_end(&p->w, r);
        if (r >= 0 && p->more)
                call_field(c, "X-Next-Cursor",
                           arena_printf(&c->arena, "%lld.%s", (long long)p->last_us, p->last_id));
        return r;
}
