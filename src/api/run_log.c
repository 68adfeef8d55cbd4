/* The log of a run (docs/events.md): page by page, and followed until the run is over and its log
 * is whole. */
#include "core/runs/run_log.h"

#include <stdio.h>

#include "api/feed.h"
#include "core/adapters/adapter_run.h"
#include "core/runs/run_view.h"

#define BYTES_DEFAULT 256000
#define BYTES_MAX     1048576
#define PAGE_MAX      ((int64_t)256 * 1024)
#define LOOK_MS       1000 /* while a run that has ended is being put in order */

/* The output was read to its end before the outcome was recorded. A run that was cancelled is
 * terminal before that. */
static bool run_log_is_whole(const struct run *run)
{
        return run_is_terminal(run) &&
               (streq(run->step, STEP_RELEASING) || streq(run->step, STEP_DONE));
}

/* Following: record by record as server-sent events, or as the lines of the file.
 *
 * The records are read from the file, where they are before any client is told of them; the live
 * events of the run only say when to look again. So nothing is lost to a client that is slow or
 * comes back: it is an offset in a file. */

struct log_feed {
        struct feed feed;
        char run_id[UUID_LEN + 1];
        int64_t at;
        bool stale; /* there may be more than was read last */
        bool spoke;

        /* what load() found */
        bool loaded, failed;
        struct buf page;
        int64_t next;
        bool is_whole, is_terminal;
        char status[24];
        int64_t exit_code;
};

static struct log_feed *log_feed_of(struct feed *f)
{
        return container_of(f, struct log_feed, feed);
}

static int log_feed_may(struct feed *f, struct op *op, struct err *err)
{
        struct run_view view;

        return run_view_get(op, f->api->rt, log_feed_of(f)->run_id, &view, err);
}

static int log_feed_read(struct log_feed *l, struct op *op, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct arena arena;
        struct run run;
        int r = store_read_begin(op, l->feed.api->rt->store, &db, err);

        arena_init(&arena);
        if (r >= 0)
                r = runs_get(db, l->run_id, &arena, &run, err);
        store_read_end(&db);
        if (r >= 0) {
                /* The row first: what it calls whole is whole when it is read after that. */
                l->is_terminal = run_is_terminal(&run);
                l->is_whole = run_log_is_whole(&run);
                snprintf(l->status, sizeof(l->status), "%s", run.status);
                l->exit_code = run.exit_code;
                l->next = l->at;
                r = run_log_read(l->feed.api->rt, run.log_ref, l->at, PAGE_MAX, &l->page, &l->next,
                                 err);
                if (r == ERR_NOT_FOUND)
                        r = 0; /* there is none yet, or none at all */
        }
        arena_done(&arena);
        return r;
}

static void log_feed_load(struct feed *f, struct op *op)
{
        struct log_feed *l = log_feed_of(f);

        l->failed = log_feed_read(l, op, NULL) < 0;
        l->loaded = true;
}

static void log_feed_put(struct log_feed *l, const char *type, const char *data, size_t len)
{
        char id[24];

        snprintf(id, sizeof(id), "%lld", (long long)l->at);
        feed_put(&l->feed, id, type, data, len);
}

static void log_feed_put_records(struct log_feed *l)
{
        const char *p = l->page.data, *nl;

        if (l->feed.frame == FEED_BYTES) {
                log_feed_put(l, NULL, p, l->page.len);
                return;
        }
        l->at = l->next - (int64_t)l->page.len;
        for (; *p; p = nl + 1) {
                nl = strchr(p, '\n');
                l->at += nl + 1 - p;
                log_feed_put(l, "log", p, (size_t)(nl - p));
        }
}

static void log_feed_put_end(struct log_feed *l)
{
        CLEAN(buf_done) struct buf data = BUF_INIT;
        struct jw w;

        if (l->feed.frame != FEED_EVENTS)
                return;
        jw_init(&w, &data);
        jw_object(&w);
        jw_kstring(&w, "runId", l->run_id);
        jw_kstring(&w, "status", l->status);
        if (l->exit_code >= 0)
                jw_kint(&w, "exitCode", l->exit_code);
        else
                jw_knull(&w, "exitCode");
        jw_object_end(&w);
        log_feed_put(l, "end", data.data, data.len);
}

static enum feed_step log_feed_next(struct feed *f)
{
        struct log_feed *l = log_feed_of(f);
        bool more = l->page.len > 0;

        if (!l->loaded) {
                if (!l->stale)
                        return FEED_WAIT;
                l->stale = false;
                return FEED_LOAD;
        }
        l->loaded = false;
        if (l->failed) /* a client that comes back hears if the run is gone, and goes on if not */
                return FEED_LOST;
        if (more)
                log_feed_put_records(l);
        else if (!l->spoke)
                feed_put_comment(f); /* a client that came back knows that it is heard */
        l->spoke = true;
        l->at = l->next;
        buf_clear(&l->page);
        if (!more && l->is_whole) {
                log_feed_put_end(l);
                return FEED_DONE;
        }
        if (l->is_terminal)
                feed_pump_in(f, LOOK_MS);
        l->stale = l->stale || more;
        return FEED_MORE;
}

static void log_feed_tick(struct feed *f)
{
        log_feed_of(f)->stale = true;
}

/* Events of this run, and those that the reader itself gets, say that there may be more. */
static void log_feed_woken(struct feed *f)
{
        struct log_feed *l = log_feed_of(f);
        struct live_event *e;

        while ((e = live_reader_take(f->api->rt->live, &f->reader))) {
                if (streq(e->type, "missed") ||
                    (str_starts(e->type, "heartbeat.run.") && strstr(e->text, l->run_id)))
                        l->stale = true;
                live_event_done(&e);
        }
        feed_pump(f);
}

static void log_feed_free(struct feed *f)
{
        struct log_feed *l = log_feed_of(f);

        buf_done(&l->page);
        free(l);
}

static const struct feed_kind log_kind = {
        .content_type = "application/x-ndjson; charset=utf-8",
        .may = log_feed_may,
        .next = log_feed_next,
        .load = log_feed_load,
        .woken = log_feed_woken,
        .tick = log_feed_tick,
        .free = log_feed_free,
};

/* Where to go on: after the record whose id the browser remembers, or at an offset. */
static int log_feed_position(struct call *c, int64_t *ret, struct err *err)
{
        if (!c->last_event_id || !*c->last_event_id)
                return call_query_int(c, "offset", 0, 0, INT64_MAX, ret, err);
        if (!feed_position(c->last_event_id, ret))
                return err_set(err, ERR_INVALID, "Last-Event-ID must be an id of this stream");
        return 0;
}

static int follow_log(struct call *c, enum feed_frame frame, struct err *err)
{
        struct run_view view;
        struct log_feed *l;
        int64_t at;
        int r = log_feed_position(c, &at, err);

        if (r >= 0)
                r = run_view_get(c->op, c->rt, c->params[0], &view, err);
        if (r < 0)
                return r;
        l = xcalloc(1, sizeof(*l));
        l->at = at;
        l->stale = true;
        snprintf(l->run_id, sizeof(l->run_id), "%s", c->params[0]);
        feed_open(&l->feed, c, &log_kind, frame, view.run.company_id, LIVE_NOW);
        return 0;
}

static int get_log_stream(struct call *c, struct err *err)
{
        return follow_log(c, FEED_EVENTS, err);
}

/* A page has whole records only. */
struct log_page {
        struct run_view view;
        struct buf content;
        int64_t offset, next;
        bool eof; /* nothing follows, and nothing will */
};

static void log_page_done(struct log_page *p)
{
        buf_done(&p->content);
}

/* The page that the query asks for. */
static int read_log_page(struct call *c, int64_t limit_default, struct log_page *ret,
                         struct err *err)
{
        const struct run *run = &ret->view.run;
        int64_t limit;
        int r = call_query_int(c, "offset", 0, 0, INT64_MAX, &ret->offset, err);

        if (r >= 0)
                r = call_query_int(c, "limitBytes", limit_default, 1, INT64_MAX, &limit, err);
        if (r >= 0)
                r = run_view_get(c->op, c->rt, c->params[0], &ret->view, err);
        if (r < 0)
                return r;
        if (!run->log_ref)
                return err_set(err, ERR_NOT_FOUND, "Run log not found");
        /* Asked before reading: bytes that are written after this show as more to come. */
        bool whole = run_log_is_whole(run);
        r = run_log_read(c->rt, run->log_ref, ret->offset, MIN(limit, BYTES_MAX), &ret->content,
                         &ret->next, err);
        ret->eof = whole && ret->next >= run->log_bytes;
        return r;
}

/* `nextOffset` is there unless this is the end: then `eof` is. */
static int get_log(struct call *c, struct err *err)
{
        CLEAN(log_page_done) struct log_page p = { 0 };
        const char *accept = http_header(c->x, "accept");

        if (call_query_flag(c, "follow"))
                return follow_log(
                        c, accept && strstr(accept, "text/event-stream") ? FEED_EVENTS : FEED_BYTES,
                        err);
        int r = read_log_page(c, BYTES_DEFAULT, &p, err);
        if (r < 0)
                return r;
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "runId", p.view.run.id);
        jw_kstring(w, "store", "local_file");
        jw_kstring(w, "logRef", p.view.run.log_ref);
        jw_key(w, "content");
        jw_string_n(w, p.content.data ? p.content.data : "", p.content.len);
        if (p.view.run.is_incomplete)
                jw_kbool(w, "incomplete", true);
        if (p.eof)
                jw_kbool(w, "eof", true);
        else
                jw_kint(w, "nextOffset", p.next);
        jw_object_end(w);
        return 0;
}

/* The transcript: what the adapter makes of the lines of standard output (docs/adapters.md), and
 * everything else as it is. A line may be in several records of the log; a page ends after a record
 * that ends a line, so that the next page begins with a whole one. */

struct transcript {
        const char *type;
        json_t *records;
        struct buf line;   /* of standard output, not ended yet */
        size_t n_whole;    /* records that belong to whole lines */
        int64_t at, whole; /* the offset after the record, and after the last that ended a line */
        bool is_long;      /* the line is too long to be an event */
};

static void stamp_records(struct transcript *t, size_t from, const char *ts)
{
        for (size_t i = from; i < json_array_size(t->records); i++)
                json_object_set_new(json_array_get(t->records, i), "ts", json_string_or_null(ts));
}

static void take_stdout(struct transcript *t, const char *text, size_t len)
{
        while (len > 0) {
                const char *end = memchr(text, '\n', len);
                size_t n = end ? (size_t)(end - text) : len;

                t->is_long = t->is_long || t->line.len + n > ADAPTER_LINE_MAX;
                if (!t->is_long)
                        buf_append(&t->line, text, n);
                if (end) {
                        if (t->line.len > 0 && !t->is_long)
                                adapter_transcript(t->type, buf_str(&t->line), t->line.len,
                                                   t->records);
                        buf_clear(&t->line);
                        t->is_long = false;
                        n++;
                }
                text += n;
                len -= n;
        }
}

static void take_log_record(struct transcript *t, const char *text, size_t len)
{
        CLEAN(json_decrefp) json_t *record = NULL;
        size_t from = json_array_size(t->records);

        t->at += (int64_t)len + 1;
        if (json_parse_lenient(text, len, &record, NULL) < 0)
                return;
        const char *stream = json_get_string(record, "stream");
        const json_t *chunk = json_object_get(record, "chunk");
        if (stream && json_is_string(chunk)) {
                if (streq(stream, "stdout"))
                        take_stdout(t, json_string_value(chunk), json_string_length(chunk));
                else
                        json_array_append_new(t->records,
                                              json_pack("{s:s, s:s, s:O}", "kind", "output",
                                                        "stream", stream, "text", chunk));
        }
        stamp_records(t, from, json_get_string(record, "ts"));
        if (t->line.len == 0 && !t->is_long) {
                t->whole = t->at;
                t->n_whole = json_array_size(t->records);
        }
}

static int get_transcript(struct call *c, struct err *err)
{
        CLEAN(log_page_done) struct log_page p = { 0 };
        int r = read_log_page(c, BYTES_MAX, &p, err);

        if (r < 0)
                return r;
        struct transcript t = { .type = p.view.adapter_type ? p.view.adapter_type : "",
                                .records = json_array(),
                                .at = p.next - (int64_t)p.content.len,
                                .whole = p.offset };
        for (const char *at = buf_str(&p.content); *at;) {
                size_t n = strcspn(at, "\n");

                take_log_record(&t, at, n);
                at += n + (at[n] == '\n');
        }
        if ((p.eof || t.whole == p.offset) && t.line.len > 0) { /* no more will end that line */
                take_stdout(&t, "\n", 1);
                t.n_whole = json_array_size(t.records);
                t.whole = p.next;
        }
        while (json_array_size(t.records) > t.n_whole)
                (void)json_array_remove(t.records, t.n_whole);
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "runId", p.view.run.id);
        jw_kstring(w, "adapterType", p.view.adapter_type);
        jw_kbool(w, "readable", adapter_has_transcript(t.type));
        jw_kvalue(w, "records", t.records);
        jw_kint(w, "nextOffset", p.eof ? p.next : t.whole);
        jw_kbool(w, "eof", p.eof);
        jw_object_end(w);
        json_decref(t.records);
        buf_done(&t.line);
        return 0;
}

const struct route routes_run_log[] = {
        { "GET", "/api/heartbeat-runs/:id/transcript", .fn = get_transcript },
        { "GET", "/api/heartbeat-runs/:id/log", .fn = get_log },
        { "GET", "/api/heartbeat-runs/:id/stream", .fn = get_log_stream },
        { 0 },
};
