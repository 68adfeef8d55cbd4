/* Opening the channel of a run: which way the agent's requests take, what must exist for that way,
 * and the port at which they are served. Operation threads. */
#include <stdio.h>

#include "base/clock.h"
#include "core/callbacks/callback_files.h"
#include "core/callbacks/callback_internal.h"
#include "core/exec/box_service.h"
#include "core/kinds/plugin/plugin_box.h"
#include "store/agents.h"
#include "store/run_events.h"

#define OPEN_LIMIT_MS 30000

struct opening {
        struct op *op;
        struct runtime *rt;
        const struct run *run;
        const char *place_id;
        struct agent agent;
        struct place place;
        unsigned noted;
};

static int count_note(void *ctx, const struct run_event *row)
{
        if (streq(row->event_type, "callback"))
                ++*(unsigned *)ctx;
        return 0;
}

static int read_opening(struct opening *o, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(o->op, o->rt->store, &db, err);

        if (r >= 0)
                r = agents_get(db, o->run->agent_id, o->op->arena, &o->agent, err);
        if (r >= 0)
                r = places_get(db, o->place_id, o->op->arena, &o->place, err);
        if (r >= 0) /* there are some after a restart of the daemon */
                r = run_events_list(db, o->run->id, 0, 0, o->op->arena, count_note, &o->noted, err);
        return r;
}

static struct channel *new_channel(const struct opening *o)
{
        struct channel *c = xcalloc(1, sizeof(*c));

        snprintf(c->run_id, sizeof(c->run_id), "%s", o->run->id);
        snprintf(c->agent_id, sizeof(c->agent_id), "%s", o->run->agent_id);
        snprintf(c->company_id, sizeof(c->company_id), "%s", o->run->company_id);
        c->identity = (struct callback_identity){ c->run_id, c->agent_id, c->company_id };
        c->noted = o->noted;
        atomic_init(&c->count, o->noted);
        c->tokens = CALLBACK_BURST;
        c->tokens_at = clock_mono_us();
        return c;
}

static int post_opening(const struct opening *o, struct channel *take_channel,
                        const struct place *place, struct err *err)
{
        struct op limited = *o->op;
        struct promise *promise = promise_new(err);

        if (!promise) {
                callback_channel_free(take_channel);
                return ERR_BUSY;
        }
        callback_post_open(o->rt->callbacks, take_channel, place, promise);
        limited.deadline_ms = MIN(limited.deadline_ms, clock_mono_ms() + OPEN_LIMIT_MS);
        int r = promise_wait(promise, &limited, err);
        promise_unref(promise);
        return r;
}

/* To our own port, with a run token. */
static int open_straight(const struct opening *o, struct callback_address *ret, struct err *err)
{
        CLEAN(buf_wipe) struct buf token = BUF_INIT;
        struct channel *c = new_channel(o);
        int r = run_token_mint(o->rt, o->run, o->agent.adapter_type, &token, err);

        if (r < 0) {
                callback_channel_free(c);
                return r;
        }
        c->straight = true;
        r = post_opening(o, c, NULL, err);
        if (r < 0)
                return r;
        snprintf(ret->url, sizeof(ret->url), "%s", o->rt->api_url);
        snprintf(ret->key, sizeof(ret->key), "%s", buf_str(&token));
        return 0;
}

static int read_port(const struct opening *o, uint16_t *ret, struct err *err)
{
        struct callback_host *host = o->rt->callbacks;

        pthread_mutex_lock(&host->lock);
        const struct channel *c = callback_find(host, o->run->id);
        *ret = c ? c->port : 0;
        pthread_mutex_unlock(&host->lock);
        return *ret ? 0
                    : err_set(err, ERR_BUSY,
                              "The box of the place cannot be reached just now; try again.");
}

static int open_channel(struct opening *o, struct callback_address *ret, struct err *err)
{
        struct channel *c = new_channel(o);

        run_channel_token(o->rt, o->run->id, c->token);
        snprintf(ret->key, sizeof(ret->key), "%s", c->token);
        snprintf(c->place_id, sizeof(c->place_id), "%s", o->place.id);
        c->listener.port = (uint16_t)o->run->callback_port;
        (void)frame_uuid_bytes(o->run->id, c->listener.id);
        int r = post_opening(o, c, &o->place, err);
        if (r >= 0)
                r = read_port(o, &ret->port, err);
        snprintf(ret->url, sizeof(ret->url), "http://127.0.0.1:%u", ret->port);
        ret->mode = "tunnel_v1";
        return r;
}

/* The gateway comes first: it keeps requests until the thread looks for them. */
static int start_queue(const struct opening *o, const struct lease_record *record,
                       struct callback_address *ret, struct err *err)
{
        const char *adapter = o->agent.adapter_type;
        struct plugin_lease l;
        struct queue_paths paths;
        bool uploaded;
        int r = plugin_lease_load(o->op, o->rt, &record->lease, &l, err);

        if (r >= 0)
                r = queue_paths_of(o->op, &l, adapter, o->run->id, &paths, err);
        if (r >= 0)
                r = queue_sync_program(o->op, o->rt, &l, &paths, &uploaded, err);
        if (r >= 0)
                r = queue_start(o->op, o->rt, &l, &paths, ret->key, (uint16_t)o->run->callback_port,
                                &ret->port, err);
        if (r < 0)
                return err_wrap(err, r, "callback bridge");
        struct channel *c = new_channel(o);
        memcpy(c->token, ret->key, sizeof(c->token));
        c->straight = true;
        c->listener.port = ret->port;
        c->has_files = true;
        c->queue = queue_new(o->rt, o->run->id, record->lease.id, adapter);
        r = post_opening(o, c, NULL, err);
        if (r < 0)
                (void)queue_stop(o->op, o->rt, &l, &paths, NULL);
        return r;
}

/* By files. */
static int open_queue(const struct opening *o, const struct lease_record *record,
                      struct callback_address *ret, struct err *err)
{
        int r = 0;

        run_channel_token(o->rt, o->run->id, ret->key);
        if (read_port(o, &ret->port, NULL) < 0)
                r = start_queue(o, record, ret, err);
        snprintf(ret->url, sizeof(ret->url), "http://127.0.0.1:%u", ret->port);
        ret->mode = "queue_v1";
        return r;
}

static bool goes_straight(const struct opening *o)
{
        return o->rt->api_url && !o->rt->settings.callback_always_channel &&
               !o->run->callback_port && kind_runs_on_host(o->rt, o->place.driver);
}

/* No box, but commands that move files. */
static bool only_has_commands(const struct opening *o)
{
        const struct kind *kind = kind_of_place(o->rt, &o->place);

        return kind && kind->transfer && !kind->route(&o->place);
}

int callback_open(struct op *op, struct runtime *rt, const struct run *run,
                  const struct lease_record *record, struct callback_address *ret, struct err *err)
{
        struct opening o = { .op = op, .rt = rt, .run = run, .place_id = record->lease.place_id };

        *ret = (struct callback_address){ 0 };
        if (!rt->callbacks || !rt->hub || !rt->run_keys)
                return err_set(err, ERR_BUSY, "The daemon is stopping.");
        int r = read_opening(&o, err);
        if (r < 0)
                return r;
        if (goes_straight(&o))
                return open_straight(&o, ret, err);
        r = box_bring(op, rt, &record->lease, &o.place, err);
        if (r >= 0 && only_has_commands(&o))
                return open_queue(&o, record, ret, err);
        if (r >= 0)
                r = box_ensure(op, rt, o.place_id, &o.place, err);
        return r < 0 ? r : open_channel(&o, ret, err);
}
