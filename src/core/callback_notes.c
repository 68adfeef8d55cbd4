/* The requests of a run as events of type `callback`: {method, path, status, ms}. They are gathered
 * on the loop and written together a little later, so that no request waits for it. What a crash
 * loses of them is only what nobody saw yet. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/access.h"
#include "core/callback_internal.h"
#include "store/run_events.h"

#define FINISH_MS 2000

void callback_note_add(struct channel *c, const char *method, const char *path, int status,
                       int64_t started_us)
{
        struct callback_host *host = c->host;
        struct note *n;

        if (c->noted >= CALLBACK_NOTES_MAX)
                return;
        c->noted++;
        n = xcalloc(1, sizeof(*n));
        memcpy(n->run_id, c->run_id, sizeof(n->run_id));
        memcpy(n->agent_id, c->agent_id, sizeof(n->agent_id));
        memcpy(n->company_id, c->company_id, sizeof(n->company_id));
        snprintf(n->method, sizeof(n->method), "%s", method);
        snprintf(n->path, sizeof(n->path), "%s", path);
        n->status = status;
        n->at = clock_now_us();
        n->took_us = clock_mono_us() - started_us;
        *host->notes_tail = n;
        host->notes_tail = &n->next;
        callback_stir(host);
}

static void describe(const struct note *n, struct buf *payload)
{
        struct jw w;

        jw_init(&w, payload);
        jw_object(&w);
        jw_kstring(&w, "method", n->method);
        jw_kstring(&w, "path", n->path);
        jw_kint(&w, "status", n->status);
        jw_key(&w, "ms");
        buf_appendf(payload, "%lld.%03lld", (long long)(n->took_us / US_PER_MS),
                    (long long)(n->took_us % US_PER_MS));
        jw_object_end(&w);
}

static int write_note(struct db *db, const struct note *n, struct err *err)
{
        CLEAN(buf_done) struct buf payload = BUF_INIT;
        char message[NOTE_PATH_MAX + 32];
        struct uuid id = uuid_new();
        struct run_event event = {
                .id = id.s,
                .company_id = n->company_id,
                .run_id = n->run_id,
                .agent_id = n->agent_id,
                .event_type = "callback",
                .level = n->status >= 400 ? "warn" : "info",
                .message = message,
                .created_at = n->at,
        };

        snprintf(message, sizeof(message), "%s %s %d", n->method, n->path, n->status);
        describe(n, &payload);
        event.payload = buf_str(&payload);
        return run_events_insert(db, &event, err);
}

/* One run that is gone meanwhile takes no other's events with it. */
static int write_notes(struct db *db, void *arg, struct err *err)
{
        for (const struct note *n = arg; n; n = n->next)
                if (write_note(db, n, err) < 0)
                        log_debug("a callback could not be recorded", LOG_S("run", n->run_id));
        return 0;
}

static void write_list(struct op *op, struct runtime *rt, struct note *list)
{
        CLEAN(err_done) struct err err = { 0 };

        if (list && store_write(op, rt->store, write_notes, list, &err) < 0)
                log_warn("callbacks could not be recorded", LOG_S("run", list->run_id),
                         LOG_S("error", err.msg));
}

static void free_list(struct note *list)
{
        struct note *next;

        for (; list; list = next) {
                next = list->next;
                free(list);
        }
}

static struct note *take_list(struct callback_host *host)
{
        struct note *list = take_ptr(&host->notes);

        host->notes_tail = &host->notes;
        return list;
}

static void job_run(struct pool_job *job, struct op *op)
{
        struct callback_host *host = container_of(job, struct callback_host, job);

        op->actor = &actor_system;
        write_list(op, host->rt, host->writing);
}

static void job_done(struct pool_job *job)
{
        struct callback_host *host = container_of(job, struct callback_host, job);

        free_list(take_ptr(&host->writing));
        host->job_running = false;
}

void callback_notes_flush(struct callback_host *host)
{
        if (!host->notes || host->job_running || !host->rt->pool)
                return;
        host->job = (struct pool_job){ .run = job_run, .done = job_done };
        host->writing = host->notes;
        host->job_running = pool_submit(host->rt->pool, &host->job, NULL) >= 0;
        if (host->job_running)
                (void)take_list(host);
        else
                host->writing = NULL; /* the timer comes again */
}

void callback_notes_finish(struct callback_host *host)
{
        struct arena arena;
        struct op op = { .arena = &arena,
                         .deadline_ms = clock_mono_ms() + FINISH_MS,
                         .actor = &actor_system };
        struct note *list = take_list(host);

        arena_init(&arena);
        write_list(&op, host->rt, list);
        arena_done(&arena);
        free_list(list);
}
