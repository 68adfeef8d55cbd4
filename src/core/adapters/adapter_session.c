/* Decides whether a saved session may be resumed: it has to belong to the same directory in the
 * same place, or the agent would believe that it did here what was done elsewhere; or its files
 * can be brought here. */
#include "core/adapters/adapter_internal.h"

static const char *first_of(const json_t *object, const char *const *names, struct arena *arena)
{
        for (; *names; names++) {
                const char *s = adapter_trimmed(arena, json_object_get(object, *names));

                if (s)
                        return s;
        }
        return NULL;
}

/* Every member of the identity has to match; a local target only matches a session that was saved
 * without one. */
static bool same_place(const json_t *saved, const json_t *identity)
{
        const char *name;
        json_t *value;

        if (!identity)
                return !json_is_object(saved) || json_object_size(saved) == 0;
        if (!json_is_object(saved))
                return false;
        json_object_foreach((json_t *)identity, name, value)
        {
                if (!json_equal(value, json_object_get(saved, name)))
                        return false;
        }
        return true;
}

/* The key of the asset that a session depends on; NULL: none. */
static const char *bundle_key(const struct adapter_input *in)
{
        const struct adapter_descriptor *d = adapter_find(in->type);
        const json_t *session = d ? json_get_object(d->json, "session") : NULL;
        const char *asset = json_get_string(session, "bundle");

        return asset ? json_get_string(json_get_object(in->assets, asset), "key") : NULL;
}

/* With other instructions and skills, a resumed agent would still follow the earlier ones. */
static bool same_bundle(const struct adapter_input *in)
{
        const char *saved = json_get_string(in->session, "promptBundleKey");
        const char *now = bundle_key(in);

        return !saved || !*saved || (now && streq(saved, now));
}

const char *adapter_session_resume(const struct adapter_input *in, const char *cwd,
                                   struct arena *arena)
{
        static const char *const ids[] = { "sessionId", "session_id", "sessionID", "session",
                                           NULL };
        static const char *const dirs[] = { "cwd", "workdir", "folder", NULL };
        const char *id = first_of(in->session, ids, arena);
        const char *dir = first_of(in->session, dirs, arena);
        const struct adapter_descriptor *d = adapter_find(in->type);
        const json_t *session = d ? json_get_object(d->json, "session") : NULL;
        bool is_brought = in->has_session_files && in->target.identity;

        /* The name is the program's own word, from any place: as an argument it must not be an
         * option.
         */
        if (!id || *id == '-')
                return NULL;
        if (dir && !streq(dir, cwd) && !(is_brought && json_object_get(session, "move")))
                return NULL;
        if (!same_place(json_object_get(in->session, "remoteExecution"), in->target.identity) &&
            !is_brought)
                return NULL;
        return same_bundle(in) ? id : NULL;
}

json_t *adapter_session_params(const struct adapter_input *in, const char *cwd,
                               const char *session_id, json_t *totals)
{
        static const char *const kept[] = { "workspaceId", "repoUrl", "repoRef" };
        const json_t *workspace = json_get_object(in->context, "paperclipWorkspace");
        json_t *params = json_pack("{s:s, s:s}", "sessionId", session_id, "cwd", cwd);

        for (size_t i = 0; i < ARRAY_LEN(kept); i++) {
                const char *value = json_get_string(workspace, kept[i]);

                if (value && *value)
                        json_object_set_new(params, kept[i], json_string(value));
        }
        if (bundle_key(in))
                json_object_set_new(params, "promptBundleKey", json_string(bundle_key(in)));
        if (totals && json_object_size(totals) > 0)
                json_object_set(params, ADAPTER_TOTALS_MEMBER, totals);
        if (in->target.identity)
                json_object_set(params, "remoteExecution", (json_t *)in->target.identity);
        return params;
}
