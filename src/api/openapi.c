/* GET /openapi.json: every route there is, made from the tables that requests are matched with. It
 * says what exists; docs/api.md says what the members mean. */
#include "api/api.h"

/* "/api/agents/:id" is "/api/agents/{id}" there. */
static const char *path_of(struct call *c, const char *pattern)
{
        const char *path = "";

        while (*pattern) {
                size_t plain = strcspn(pattern, ":"), name;

                path = arena_printf(&c->arena, "%s%.*s", path, (int)plain, pattern);
                pattern += plain;
                if (*pattern != ':')
                        continue;
                name = strcspn(++pattern, "/");
                path = arena_printf(&c->arena, "%s{%.*s}", path, (int)name, pattern);
                pattern += name;
        }
        return path;
}

static void write_parameters(struct call *c, struct jw *w, const char *pattern)
{
        jw_key(w, "parameters");
        jw_array(w);
        while ((pattern = strchr(pattern, ':'))) {
                size_t name = strcspn(++pattern, "/");

                jw_object(w);
                jw_kstring(w, "name", arena_printf(&c->arena, "%.*s", (int)name, pattern));
                jw_kstring(w, "in", "path");
                jw_kbool(w, "required", true);
                jw_kraw(w, "schema", "{\"type\":\"string\"}");
                jw_object_end(w);
        }
        jw_array_end(w);
}

static void write_method(struct jw *w, const struct route *r)
{
        char name[8] = { 0 };

        for (size_t i = 0; i < sizeof(name) - 1 && r->method[i]; i++)
                name[i] = (char)(r->method[i] | 0x20); /* methods are capital letters */
        jw_key(w, name);
        jw_raw(w, "{\"responses\":{\"default\":{\"description\":\"See docs/api.md\"}}}");
}

static void write_path(struct call *c, struct jw *w, const char *pattern)
{
        jw_key(w, path_of(c, pattern));
        jw_object(w);
        write_parameters(c, w, pattern);
        for (const struct route *r = NULL; (r = route_next(r));)
                if (streq(r->pattern, pattern))
                        write_method(w, r);
        jw_object_end(w);
}

/* Each path once, where its first method is. */
static bool is_first(const struct route *route)
{
        const struct route *r = route_next(NULL);

        while (!streq(r->pattern, route->pattern))
                r = route_next(r);
        return r == route;
}

static int get_openapi(struct call *c, struct err *err)
{
        int r = access_authenticated(&c->actor, err);

        if (r < 0)
                return r;
        struct jw *w = call_json(c);
        jw_object(w);
        jw_kstring(w, "openapi", "3.1.0");
        jw_kraw(w, "info", "{\"title\":\"Berth\",\"version\":\"" BERTH_VERSION "\"}");
        jw_key(w, "paths");
        jw_object(w);
        for (const struct route *at = NULL; (at = route_next(at));)
                if (str_starts(at->pattern, "/api/") && is_first(at))
                        write_path(c, w, at->pattern);
        jw_object_end(w);
        jw_object_end(w);
        return 0;
}

const struct route routes_openapi[] = {
        { "GET", "/api/openapi.json", .fn = get_openapi },
        { 0 },
};
