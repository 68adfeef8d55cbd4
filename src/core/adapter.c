#include "core/adapter.h"

#include "core/provider.h"

const char *const adapter_types[] = {
        "process",     "http",         "acpx_local",       "claude_local",
        "codex_local", "cursor_cloud", "gemini_local",     "opencode_local",
        "pi_local",    "cursor",       "openclaw_gateway", NULL
};

static const char *const remote_capable[] = { "acpx_local",   "claude_local",
                                              "codex_local",  "cursor",
                                              "gemini_local", "opencode_local",
                                              "pi_local",     NULL };

static bool contains(const char *const *list, const char *s)
{
        for (; *list; list++)
                if (streq(*list, s))
                        return true;
        return false;
}

bool adapter_is_known(const char *type)
{
        return contains(adapter_types, type);
}

bool adapter_is_remote_capable(const char *type)
{
        return contains(remote_capable, type);
}

static const char *word(bool supported)
{
        return supported ? "supported" : "unsupported";
}

static void write_drivers(struct jw *w, bool remote)
{
        jw_key(w, "drivers");
        jw_object(w);
        jw_kstring(w, "local", word(true));
        jw_kstring(w, "ssh", word(remote));
        jw_kstring(w, "sandbox", word(remote));
        jw_kstring(w, "plugin", word(false));
        jw_object_end(w);
}

static void write_adapter(struct jw *w, const char *type)
{
        bool remote = adapter_is_remote_capable(type);

        jw_object(w);
        jw_kstring(w, "adapterType", type);
        write_drivers(w, remote);
        jw_key(w, "sandboxProviders");
        jw_object(w);
        for (const struct provider *const *p = builtin_providers; *p; p++)
                jw_kstring(w, (*p)->key, word(remote && (*p)->supports_run_execution));
        jw_object_end(w);
        jw_object_end(w);
}

static void write_schema(struct jw *w, const struct provider *p)
{
        json_t *schema = p->schema ? p->schema() : NULL;

        if (schema)
                jw_kvalue(w, "configSchema", schema);
        json_decref(schema);
}

static void write_provider(struct jw *w, const struct provider *p)
{
        jw_key(w, p->key);
        jw_object(w);
        jw_kstring(w, "status", word(p->supports_run_execution));
        jw_kbool(w, "supportsSavedProbe", true);
        jw_kbool(w, "supportsUnsavedProbe", true);
        jw_kbool(w, "supportsRunExecution", p->supports_run_execution);
        jw_kbool(w, "supportsReusableLeases", true);
        jw_kstring(w, "displayName", p->display_name);
        if (p->description)
                jw_kstring(w, "description", p->description);
        jw_kstring(w, "source", "builtin");
        write_schema(w, p);
        jw_object_end(w);
}

void adapter_write_capabilities(struct buf *b)
{
        struct jw w;

        jw_init(&w, b);
        jw_object(&w);
        jw_key(&w, "adapters");
        jw_array(&w);
        for (const char *const *t = adapter_types; *t; t++)
                write_adapter(&w, *t);
        jw_array_end(&w);
        write_drivers(&w, true);
        jw_key(&w, "sandboxProviders");
        jw_object(&w);
        for (const struct provider *const *p = builtin_providers; *p; p++)
                write_provider(&w, *p);
        jw_object_end(&w);
        jw_object_end(&w);
}
