/* The requests of a run as events of type `callback`: {method, path, status, ms}. They are gathered
 * on the loop and written together a little later, so that no request waits for it. A crash loses
 * only events that no reader has seen yet. */
#include <stdio.h>

#include "base/clock.h"
#include "base/log.h"
#include "core/access/access.h"
#include "core/callbacks/callback_internal.h"
#include "core/live/run_event.h"

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
        n->took_us = clock_mono_us() - started_us;
        *host->notes_tail = n;
        host->notes_tail = &n->next;
        callback_stir(host);
}

static int write_note(struct db *db, struct runtime *rt, const struct note *n, struct err *err)
{
        const struct run run = { .id = n->run_id,
                                 .company_id = n->company_id,
                                 .agent_id = n->agent_id };
        char message[NOTE_PATH_MAX + 32];

        snprintf(message, sizeof(message), "%s %s %d", n->method, n->path, n->status);
        return run_event_add(db, rt, &run, "callback", n->status >= 400 ? "warn" : "info", message,
                             json_pack("{s:s, s:s, s:i, s:f}", "method", n->method, "path", n->path,
                                       "status", n->status, "ms",
                                       (double)n->took_us / (double)US_PER_MS),
                             err);
}

struct writing {
        struct runtime *rt;
        const struct note *list;
};

/* A run that is gone meanwhile does not lose the events of other runs. */
static int write_notes(struct db *db, void *arg, struct err *err)
{
        const struct writing *w = arg;

        for (const struct note *n = w->list; n; n = n->next)
                if (write_note(db, w->rt, n, err) < 0)
                        log_debug("a callback could not be recorded", LOG_S("run", n->run_id));
        return 0;
}

static void write_list(struct op *op, struct runtime *rt, struct note *list)
{
        CLEAN(err_done) struct err err = { 0 };
        struct writing w = { rt, list };

        if (list && store_write(op, rt->store, write_notes, &w, &err) < 0)
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
