/* Matching paths. Segments compare without regard to case, a trailing slash is ignored, and a
 * parameter is percent-decoded once. */
#include <strings.h>

#include "api/api.h"
#include "base/uuid.h"
#include "codec/http1.h"

#define SEGMENTS_MAX 12

/* clang-format off: one a line */
static const struct route *const tables[] = {
        routes_access,       routes_activity,     routes_adapters,
        routes_agent_config, routes_agents,       routes_callback_test,
        routes_companies,    routes_environments, routes_execution_workspaces,
        routes_executions,   routes_instance,     routes_issues,
        routes_kinds,        routes_leases,       routes_live,
        routes_openapi,      routes_overview,     routes_plugin_bridge,
        routes_plugins,      routes_projects,     routes_run_log,
        routes_runs,         routes_salvages,     routes_secrets,
        routes_snapshots,    routes_images,       routes_terminal,
        routes_vaults,       routes_watch,        routes_workspaces,
};
/* clang-format on */

struct segment {
        const char *at;
        size_t len;
};

/* Split at '/'; empty segments stay, except one at the end. -1 when there are too many, or it is no
 * path at all. */
static int split(const char *path, struct segment *segments)
{
        int n = 0;

        if (*path != '/')
                return -1;

        while (*path == '/') {
                size_t len = strcspn(path + 1, "/");

                if (n == SEGMENTS_MAX)
                        return -1;
                if (len == 0 && path[1] == '\0')
                        break;
                segments[n++] = (struct segment){ path + 1, len };
                path += 1 + len;
        }
        return n;
}

static bool matches(const char *pattern, const struct segment *segments, int n)
{
        struct segment want[SEGMENTS_MAX];
        int m = split(pattern, want);

        if (m != n)
                return false;
        for (int i = 0; i < n; i++) {
                if (want[i].at[0] == ':') {
                        if (segments[i].len == 0)
                                return false;
                } else if (want[i].len != segments[i].len ||
                           strncasecmp(want[i].at, segments[i].at, want[i].len) != 0) {
                        return false;
                }
        }
        return true;
}

/* One parameter, decoded; NULL when it is not decodable: then no such thing exists. */
static const char *take_param(struct call *c, const struct segment *segment)
{
        CLEAN(buf_done) struct buf decoded = BUF_INIT;
        struct uuid id;

        if (http1_percent_decode(segment->at, segment->len, &decoded, NULL) < 0)
                return NULL;
        return arena_strdup(&c->arena,
                            uuid_parse(buf_str(&decoded), &id) ? id.s : buf_str(&decoded));
}

static bool take_params(struct call *c, const char *pattern, const struct segment *segments)
{
        struct segment want[SEGMENTS_MAX];
        int m = split(pattern, want);
        size_t n = 0;

        for (int i = 0; i < m; i++) {
                if (want[i].at[0] != ':')
                        continue;
                c->params[n] = take_param(c, &segments[i]);
                if (!c->params[n++])
                        return false;
        }
        return true;
}

const struct route *route_find(struct call *c, const char *method, const char *path,
                               struct buf *ret_allowed)
{
        const char *wanted = streq(method, "HEAD") ? "GET" : method;
        struct segment segments[SEGMENTS_MAX] = { 0 };
        int n = split(path, segments);

        for (size_t t = 0; n >= 0 && t < ARRAY_LEN(tables); t++) {
                for (const struct route *r = tables[t]; r->method; r++) {
                        if (!matches(r->pattern, segments, n))
                                continue;
                        if (streq(r->method, wanted))
                                return take_params(c, r->pattern, segments) ? r : NULL;
                        buf_appendf(ret_allowed, "%s%s", ret_allowed->len ? ", " : "", r->method);
                        if (streq(r->method, "GET"))
                                buf_puts(ret_allowed, ", HEAD");
                }
        }
        return NULL;
}

static const struct route *end_of(const struct route *table)
{
        while (table->method)
                table++;
        return table;
}

const struct route *route_next(const struct route *route)
{
        size_t t = 0;

        if (route && (++route)->method)
                return route;
        if (route) {
                while (t < ARRAY_LEN(tables) && end_of(tables[t]) != route)
                        t++;
                t++;
        }
        while (t < ARRAY_LEN(tables) && !tables[t]->method)
                t++;
        return t < ARRAY_LEN(tables) ? tables[t] : NULL;
}
