/* The log of a run, page by page. A page has whole records only. `nextOffset` is there unless this
 * is the end, and nothing will follow: then `eof` is. */
#include "core/runs/run_log.h"

#include "api/run_call.h"
#include "core/runs/run_view.h"

#define MISSING       "Heartbeat run not found"
#define BYTES_DEFAULT 256000
#define BYTES_MAX     1048576

/* The output was read to its end before the outcome was recorded. A run that was cancelled is
 * terminal before that. */
bool run_log_is_whole(const struct run *run)
{
        return run_is_terminal(run) &&
               (streq(run->step, STEP_RELEASING) || streq(run->step, STEP_DONE));
}

static void encode_page(struct call *c, const struct run *run, const struct buf *content,
                        int64_t next, bool eof)
{
        struct jw w;

        jw_init(&w, &c->out);
        jw_object(&w);
        jw_kstring(&w, "runId", run->id);
        jw_kstring(&w, "store", "local_file");
        jw_kstring(&w, "logRef", run->log_ref);
        jw_key(&w, "content");
        jw_string_n(&w, content->data ? content->data : "", content->len);
        if (run->is_incomplete)
                jw_kbool(&w, "incomplete", true);
        if (eof)
                jw_kbool(&w, "eof", true);
        else
                jw_kint(&w, "nextOffset", next);
        jw_object_end(&w);
}

static int get_log(struct call *c, struct err *err)
{
        CLEAN(buf_done) struct buf content = { 0 };
        int64_t offset, limit, next;
        struct run_view view;
        const char *id;
        bool whole;
        int r = call_uuid(c, 0, MISSING, &id, err);

        if (r >= 0 && call_query_flag(c, "follow"))
                return run_log_follow(c, err);
        if (r >= 0)
                r = call_query_int(c, "offset", 0, 0, INT64_MAX, &offset, err);
        if (r >= 0)
                r = call_query_int(c, "limitBytes", BYTES_DEFAULT, 1, INT64_MAX, &limit, err);
        if (r >= 0)
                r = run_view_get(c->op, c->rt, id, &view, err);
        if (r < 0)
                return r;
        if (!view.run.log_ref)
                return err_set(err, ERR_NOT_FOUND, "Run log not found");
        /* Asked before reading: what is written after this shows as more to come. */
        whole = run_log_is_whole(&view.run);
        r = run_log_read(c->rt, view.run.log_ref, offset, MIN(limit, BYTES_MAX), &content, &next,
                         err);
        if (r < 0)
                return r;
        encode_page(c, &view.run, &content, next, whole && next >= view.run.log_bytes);
        return 0;
}

const struct route routes_run_log[] = {
        { "GET", "/api/heartbeat-runs/:id/log", get_log, 0 },
        { NULL, NULL, NULL, 0 },
};
