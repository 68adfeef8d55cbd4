/* The events of a company: as server-sent events, and over a WebSocket (docs/events.md).
 *
 * It is a reader of the ring (core/live/live.h). While the client is behind, the events wait in the
 * ring, not here. */
#include <stdio.h>

#include "api/feed.h"

#define MESSAGE_MAX 4096 /* of a client; they are skipped */

static int live_check_company(struct op *op, struct runtime *rt, const struct actor *actor,
                              const char *company_id, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : access_company(db, actor, company_id, false, err);
}

static int live_feed_may(struct feed *f, struct op *op, struct err *err)
{
        return live_check_company(op, f->api->rt, op->actor, f->company_id, err);
}

/* Where it starts: a client that is cut off before the first event can come back with this number.
 */
static void live_feed_begin(struct feed *f)
{
        if (f->frame != FEED_EVENTS)
                return;
        buf_puts(&f->out, "retry: 1500\n");
        if (f->last_id == LIVE_NOW)
                buf_appendf(&f->out, "id: %lld\n", (long long)(f->reader.at - 1));
        buf_putc(&f->out, '\n');
}

static enum feed_step live_feed_next(struct feed *f)
{
        CLEAN(live_event_done)
        struct live_event *e = live_reader_take(f->api->rt->live, &f->reader);
        char id[24];

        if (!e)
                return FEED_WAIT;
        snprintf(id, sizeof(id), "%lld", (long long)e->id);
        feed_put(f, id, e->type, e->text, e->len);
        return FEED_MORE;
}

static void live_feed_free(struct feed *f)
{
        free(f);
}

static const struct feed_kind live_kind = {
        .max_message = MESSAGE_MAX,
        .may = live_feed_may,
        .begin = live_feed_begin,
        .next = live_feed_next,
        .woken = feed_pump,
        .free = live_feed_free,
};

/* The number after which to go on: of the header, which browsers send by themselves, or the query.
 */
static int read_last_id(struct call *c, int64_t *ret, struct err *err)
{
        const char *text = c->last_event_id;

        if (!text || !*text)
                text = call_query(c, "lastEventId");
        *ret = LIVE_NOW;
        if (text && !feed_position(text, ret))
                return err_set(err, ERR_INVALID, "Last-Event-ID must be the id of an event");
        return 0;
}

static int open_events(struct call *c, enum feed_frame frame, struct err *err)
{
        const char *company = c->params[0];
        int64_t last_id;
        int r = read_last_id(c, &last_id, err);

        if (r >= 0)
                r = live_check_company(c->op, c->rt, &c->actor, company, err);
        if (r < 0)
                return r;
        feed_open(xcalloc(1, sizeof(struct feed)), c, &live_kind, frame, company, last_id);
        return 0;
}

static int get_events(struct call *c, struct err *err)
{
        return open_events(c, FEED_EVENTS, err);
}

static int get_socket(struct call *c, struct err *err)
{
        return open_events(c, FEED_SOCKET, err);
}

const struct route routes_live[] = {
        { "GET", "/api/companies/:companyId/events", .fn = get_events },
        { "GET", "/api/companies/:companyId/events/ws", .fn = get_socket, .flags = ROUTE_SOCKET },
        { 0 },
};
