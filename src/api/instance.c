/* Routes of the instance: whether it is healthy, its settings, and its scheduler. */
#include "core/access/instance.h"
#include "api/api.h"
#include "base/clock.h"

/* Paperclip's version string: its clients compare it. */
#define PAPERCLIP_VERSION "0.3.1"

/* Which jobs work and which wait, to tell a slow provider from a slow machine. */
static void write_load(struct jw *w, const struct pool_stats *pool)
{
        jw_key(w, "operations");
        jw_object(w);
        jw_kint(w, "busy", pool->busy);
        jw_kint(w, "queued", pool->queued);
        jw_kint(w, "withPeers", pool->seats[LANE_PEERS]);
        jw_kint(w, "waitingForPeers", pool->waiting[LANE_PEERS]);
        jw_kint(w, "longestWaitMs", pool->longest_wait_ms);
        jw_object_end(w);
}

static int get_health(struct call *c, struct err *err)
{
        const struct settings *s = &c->rt->settings;
        bool trusted = s->mode == MODE_LOCAL_TRUSTED, anonymous = c->actor.type == ACTOR_NONE;
        struct pool_stats pool;

        pool_stats(c->api->pool, &pool);

        struct jw *w = call_json(c);
        jw_object(w);
        if (!store_healthy(c->rt->store)) {
                c->status = 503;
                jw_kstring(w, "status", "unhealthy");
                jw_kstring(w, "version", PAPERCLIP_VERSION);
                jw_kstring(w, "error", "database_unreachable");
                if (!anonymous && store_is_damaged(c->rt->store))
                        jw_kstring(w, "message",
                                   "The database file is damaged; `berth db check` tells more.");
                jw_object_end(w);
                return 0;
        }
        jw_kstring(w, "status", "ok");
        if (!anonymous)
                jw_kstring(w, "version", PAPERCLIP_VERSION);
        jw_kstring(w, "deploymentMode", trusted ? "local_trusted" : "authenticated");
        if (!anonymous) {
                jw_kstring(w, "deploymentExposure",
                           s->exposure == EXPOSURE_PRIVATE ? "private" : "public");
                jw_kbool(w, "authReady", true);
        }
        jw_kstring(w, "bootstrapStatus", "ready");
        jw_kbool(w, "bootstrapInviteActive", false);
        if (!anonymous) {
                jw_key(w, "features");
                jw_object(w);
                jw_kbool(w, "companyDeletionEnabled", true);
                jw_object_end(w);
                jw_kstring(w, "berthVersion", BERTH_VERSION);
                jw_kbool(w, "saturated", pool_is_saturated(&pool));
                write_load(w, &pool);
        }
        jw_object_end(w);
        return 0;
}

static int get_settings(struct call *c, struct err *err)
{
        return instance_get(c->op, c->rt, (enum instance_section)c->route->arg, &c->out, err);
}

static int patch_settings(struct call *c, struct err *err)
{
        return instance_patch(c->op, c->rt, (enum instance_section)c->route->arg, c->body, &c->out,
                              err);
}

/* Agents with timers come with the scheduler; until then there are none. */
static int get_scheduler(struct call *c, struct err *err)
{
        int r = access_admin(&c->actor, "Instance admin access required", err);

        if (r >= 0)
                buf_puts(&c->out, "[]");
        return r;
}

const struct route routes_instance[] = {
        { "GET", "/api/health", .fn = get_health, .flags = ROUTE_INLINE | ROUTE_OPEN },
        { "GET", "/api/instance/settings/general", .fn = get_settings, .arg = INSTANCE_GENERAL },
        { "PATCH", "/api/instance/settings/general", .fn = patch_settings,
          .arg = INSTANCE_GENERAL },
        { "GET", "/api/instance/settings/experimental", .fn = get_settings,
          .arg = INSTANCE_EXPERIMENTAL },
        { "PATCH", "/api/instance/settings/experimental", .fn = patch_settings,
          .arg = INSTANCE_EXPERIMENTAL },
        { "GET", "/api/instance/scheduler-heartbeats", .fn = get_scheduler },
        { 0 },
};
