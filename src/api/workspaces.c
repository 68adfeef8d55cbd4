/* Workspaces of leases: staged, looked at, brought home. */
#include "api/encode.h"
#include "api/lease_call.h"
#include "api/workspace_call.h"
#include "base/clock.h"
#include "codec/check.h"
#include "core/workspaces/workspace_host.h"

#define PATH_MAX_CHARS 4096
#define EXCLUDES_MAX   1000

/* Trees are large: the time of an ordinary operation does not count. */
void call_take_time(struct call *c)
{
        c->op->deadline_ms =
                MAX(c->op->deadline_ms, clock_mono_ms() + c->rt->settings.workspace_timeout_ms);
}

/* The lease of the path, usable. */
static int usable_lease(struct call *c, struct lease_record *ret, struct err *err)
{
        const struct kind *kind;
        int r = call_lease(c, LEASE_USE, ret, err);

        return r < 0 ? r : lease_load_usable(c->op, c->rt, c->params[0], ret, &kind, err);
}

/* Staging */

static const char *const *take_patterns(struct arena *arena, const json_t *list)
{
        const char **patterns = arena_alloc(arena, (json_array_size(list) + 1) * sizeof(char *));
        json_t *item;
        size_t i;

        json_array_foreach(list, i, item)
        {
                patterns[i] = arena_strdup(arena, json_string_value(item));
        }
        return patterns;
}

static int check_stage(struct call *c, struct stage_request *ret, struct err *err)
{
        static const char *const isolations[] = { "overlay", "copy", NULL };
        CLEAN(check_done) struct check k = { 0 };
        struct arena *a = c->op->arena;

        check_init(&k, c->body);
        ret->local_path =
                arena_strdup(a, check_string(&k, "localPath", CHECK_REQUIRED, 1, PATH_MAX_CHARS));
        json_t *exclude = check_strings(&k, "exclude", CHECK_OPTIONAL, 1);
        check_array_size(&k, "exclude", exclude, 0, EXCLUDES_MAX);
        ret->exclude = take_patterns(a, exclude);
        ret->isolation = arena_strdup(a, check_enum(&k, "isolation", CHECK_OPTIONAL, isolations));
        check_unknown(&k, (const char *[]){ "localPath", "exclude", "isolation", NULL });
        return check_end(&k, err);
}

static int stage_workspace(struct call *c, struct err *err)
{
        int64_t began = clock_mono_ms();
        struct stage_request req = { 0 };
        struct lease_record record;
        struct workspace_row row;
        int r = usable_lease(c, &record, err);

        if (r >= 0)
                r = check_stage(c, &req, err);
        if (r < 0)
                return r;
        call_take_time(c);
        r = workspace_stage(c->op, c->rt, &record, &req, &row, err);
        if (r < 0)
                return r;
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "cwd", row.cwd);
        jw_kint(w, "files", row.files);
        jw_kint(w, "bytes", row.bytes);
        jw_kint(w, "sentBytes", row.sent_bytes);
        jw_kint(w, "durationMs", clock_mono_ms() - began);
        jw_kstring(w, "way", row.way);
        jw_kstring(w, "workspaceId", row.id);
        jw_object_end(w);
        return 0;
}

/* Restoring */

int call_local_path(struct call *c, const char **ret, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };

        check_init(&k, c->body);
        *ret = arena_strdup(c->op->arena,
                            check_string(&k, "localPath", CHECK_NULLABLE, 1, PATH_MAX_CHARS));
        check_unknown(&k, (const char *[]){ "localPath", NULL });
        return check_end(&k, err);
}

int answer_restored(struct call *c, const struct restore_report *report)
{
        restore_report_encode(call_json(c), report);
        return 0;
}

static int restore_workspace(struct call *c, struct err *err)
{
        struct restore_report report;
        struct lease_record record;
        const char *local_path;
        int r = usable_lease(c, &record, err);

        if (r >= 0)
                r = call_local_path(c, &local_path, err);
        if (r < 0)
                return r;
        call_take_time(c);
        r = workspace_restore(c->op, c->rt, &record, local_path, &report, err);
        return r < 0 ? r : answer_restored(c, &report);
}

static int show_workspace_diff(struct call *c, struct err *err)
{
        struct lease_record record;
        int r = usable_lease(c, &record, err);

        if (r < 0)
                return r;
        call_take_time(c);
        return workspace_diff(c->op, c->rt, &record, call_query_flag(c, "text"), &c->out, err);
}

/* Looking */

static void encode_progress(struct jw *w, struct workspace_host *host, const char *id)
{
        struct workspace_work work;

        jw_key(w, "progress");
        if (!workspace_work_look(host, id, &work)) {
                jw_null(w);
                return;
        }
        jw_object(w);
        jw_kstring(w, "phase", work.phase);
        jw_kint(w, "done", (int64_t)work.done);
        jw_kint(w, "total", (int64_t)work.total);
        jw_object_end(w);
}

static void encode_workspace(struct call *c, const struct workspace_row *row)
{
        struct jw *w = call_json(c);

        jw_object(w);
        encode_members(w, &workspace_table, row);
        encode_progress(w, c->rt->workspaces, row->id);
        jw_object_end(w);
}

static int show_workspace(struct call *c, struct err *err)
{
        struct lease_record record;
        struct workspace_row row;
        int r = call_lease(c, LEASE_KEEP, &record, err);

        if (r >= 0)
                r = workspace_get(c->op, c->rt, record.lease.id, &row, err);
        if (r >= 0)
                encode_workspace(c, &row);
        return r;
}

static int discard_workspace(struct call *c, struct err *err)
{
        CLEAN(check_done) struct check k = { 0 };
        struct lease_record record;
        struct workspace_row row;
        int r = call_lease(c, LEASE_KEEP, &record, err);

        check_init(&k, c->body);
        if (r < 0)
                return r;
        check_unknown(&k, (const char *[]){ NULL });
        r = check_end(&k, err);
        if (r >= 0)
                r = workspace_discard(c->op, c->rt, &record, &row, err);
        if (r >= 0)
                encode_workspace(c, &row);
        return r;
}

const struct route routes_workspaces[] = {
        { "GET", "/api/environment-leases/:id/workspace", .fn = show_workspace },
        { "GET", "/api/environment-leases/:id/workspace/diff", .fn = show_workspace_diff,
          .flags = ROUTE_WAITS },
        { "POST", "/api/environment-leases/:id/workspace/stage", .fn = stage_workspace,
          .flags = ROUTE_WAITS },
        { "POST", "/api/environment-leases/:id/workspace/restore", .fn = restore_workspace,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS },
        { "POST", "/api/environment-leases/:id/workspace/discard", .fn = discard_workspace,
          .flags = ROUTE_BODY_FREE | ROUTE_WAITS | ROUTE_WHEN_FULL },
        { 0 },
};
