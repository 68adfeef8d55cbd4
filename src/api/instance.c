/* Routes of the instance: its general and experimental settings, and its scheduler. */
#include "core/access/instance.h"

#include "api/api.h"

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
