/* Decides which variables a run's command gets, and which of them the event shows. */
#define _GNU_SOURCE
#include <strings.h>

#include "codec/redact.h"
#include "core/adapters/adapter_internal.h"

#define WAKE_MAX ((size_t)96 << 10)

/* The agent's own variables */

static const json_t *own_env(const struct adapter_input *in)
{
        return json_get_object(in->config, "env");
}

/* A text, or the value of {"type": "plain", "value"}; NULL for a secret. */
static const char *plain_value(const json_t *variable)
{
        const char *type = json_get_string(variable, "type");

        if (json_is_string(variable))
                return json_string_value(variable);
        return type && streq(type, "plain") ? json_get_string(variable, "value") : NULL;
}

static bool agent_sets(const struct adapter_input *in, const char *name)
{
        return json_object_get(own_env(in), name) != NULL;
}

json_t *adapter_env_scope(const struct adapter_input *in)
{
        json_t *env = json_object(), *variable;
        const char *name;

        json_object_foreach((json_t *)own_env(in), name, variable)
        {
                const char *value = plain_value(variable);

                json_object_set_new(env, name, value ? json_string(value) : json_true());
        }
        return env;
}

/* The run's variables. A variable that the agent sets itself is not set here: the executor adds it,
 * and a value set here would win. */

struct writer {
        const struct adapter_draft *draft;
        json_t *env;
};

static void put(struct writer *w, const char *name, const char *value)
{
        if (value && *value && !agent_sets(w->draft->in, name))
                json_object_set_new(w->env, name, json_string(value));
}

static void put_path(struct writer *w, const char *name, const char *const *paths)
{
        for (; *paths; paths++) {
                const char *value = adapter_path_string(w->draft->in->context, *paths);

                if (value && *value) {
                        put(w, name, value);
                        return;
                }
        }
}

static void put_json(struct writer *w, const char *name, const json_t *value)
{
        if (adapter_is_set(value) && (json_is_object(value) || json_is_array(value)))
                put(w, name, json_to_arena(w->draft->arena, value));
}

static void put_issue_ids(struct writer *w)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        size_t i;
        json_t *id;

        json_array_foreach(json_object_get(w->draft->in->context, "issueIds"), i, id)
        {
                if (adapter_is_set(id) && json_is_string(id))
                        buf_appendf(&b, "%s%s", b.len ? "," : "", json_string_value(id));
        }
        put(w, "PAPERCLIP_LINKED_ISSUE_IDS", buf_str(&b));
}

/* The kernel limits the length of one variable. A payload that is too long goes without the texts,
 * which the agent can ask for: others must not keep the agent from running by writing long texts to
 * it. */
static const json_t *wake_that_fits(const struct adapter_draft *draft, const json_t *wake)
{
        static const char *const long_ones[] = { "comments", "payload" };
        json_t *copy;

        if (!json_is_object(wake) || strlen(json_to_arena(draft->arena, wake)) <= WAKE_MAX)
                return wake;
        copy = adapter_keep(draft->arena, json_copy((json_t *)wake));
        json_object_set_new(copy, "fallbackFetchNeeded", json_true());
        for (size_t i = 0; i < ARRAY_LEN(long_ones); i++) {
                json_object_del(copy, long_ones[i]);
                if (strlen(json_to_arena(draft->arena, copy)) <= WAKE_MAX)
                        break;
        }
        return copy;
}

static void put_wake(struct writer *w)
{
        static const struct {
                const char *name, *paths[4]; /* in the run's context; the first that is there */
        } all[] = {
                { "PAPERCLIP_TASK_ID", { "taskId", "issueId" } },
                { "PAPERCLIP_ISSUE_WORK_MODE",
                  { "issueWorkMode", "paperclipIssue.workMode", "paperclipWake.issue.workMode" } },
                { "PAPERCLIP_WAKE_REASON", { "wakeReason" } },
                { "PAPERCLIP_WAKE_COMMENT_ID", { "wakeCommentId", "commentId" } },
                { "PAPERCLIP_APPROVAL_ID", { "approvalId" } },
                { "PAPERCLIP_APPROVAL_STATUS", { "approvalStatus" } },
        };

        for (size_t i = 0; i < ARRAY_LEN(all); i++)
                put_path(w, all[i].name, all[i].paths);
        put_issue_ids(w);
        put_json(w, "PAPERCLIP_WAKE_PAYLOAD_JSON",
                 wake_that_fits(w->draft, json_object_get(w->draft->in->context, "paperclipWake")));
}

/* A hint keeps its directory only where it means something: the directory of the work becomes the
 * one in the place, and other directories exist only on this machine. */
static json_t *remote_hints(const struct adapter_draft *draft, const json_t *hints)
{
        const char *local = draft->in->target.local_cwd;
        json_t *copy = json_deep_copy(hints), *hint;
        size_t i;

        json_array_foreach(copy, i, hint)
        {
                const char *cwd = json_get_string(hint, "cwd");

                if (cwd && local && streq(cwd, local))
                        json_object_set_new(hint, "cwd", json_string(draft->cwd));
                else
                        json_object_del(hint, "cwd");
        }
        return adapter_keep(draft->arena, copy);
}

static void put_workspace(struct writer *w)
{
        static const struct {
                const char *name, *member;
        } all[] = {
                { "PAPERCLIP_WORKSPACE_SOURCE", "source" },
                { "PAPERCLIP_WORKSPACE_STRATEGY", "strategy" },
                { "PAPERCLIP_WORKSPACE_ID", "workspaceId" },
                { "PAPERCLIP_WORKSPACE_REPO_URL", "repoUrl" },
                { "PAPERCLIP_WORKSPACE_REPO_REF", "repoRef" },
                { "PAPERCLIP_WORKSPACE_BRANCH", "branchName" },
                { "AGENT_HOME", "agentHome" },
        };
        const struct adapter_draft *draft = w->draft;
        const json_t *workspace = json_get_object(draft->in->context, "paperclipWorkspace");
        const json_t *hints = json_object_get(draft->in->context, "paperclipWorkspaces");
        bool local = adapter_is_local(&draft->in->target);

        put(w, "PAPERCLIP_WORKSPACE_CWD", draft->cwd);
        for (size_t i = 0; i < ARRAY_LEN(all); i++)
                put(w, all[i].name, json_get_string(workspace, all[i].member));
        if (local)
                put(w, "PAPERCLIP_WORKSPACE_WORKTREE_PATH",
                    json_get_string(workspace, "worktreePath"));
        if (json_is_array(hints))
                put_json(w, "PAPERCLIP_WORKSPACES_JSON",
                         local ? hints : remote_hints(draft, hints));
}

static void put_services(struct writer *w)
{
        const json_t *context = w->draft->in->context;

        if (!json_is_true(json_object_get(w->draft->d->json, "services")))
                return;
        put_json(w, "PAPERCLIP_RUNTIME_SERVICE_INTENTS_JSON",
                 json_object_get(context, "paperclipRuntimeServiceIntents"));
        put_json(w, "PAPERCLIP_RUNTIME_SERVICES_JSON",
                 json_object_get(context, "paperclipRuntimeServices"));
        put(w, "PAPERCLIP_RUNTIME_PRIMARY_URL",
            json_get_string(context, "paperclipRuntimePrimaryUrl"));
}

/* The agent's own variables that name the directory of the work on this machine. */
static void rewrite_own(struct writer *w)
{
        static const char suffix[] = "_WORKSPACE_CWD";
        const struct adapter_input *in = w->draft->in;
        const char *local = in->target.local_cwd, *name;
        json_t *variable;

        if (adapter_is_local(&in->target) || !local)
                return;
        json_object_foreach((json_t *)own_env(in), name, variable)
        {
                const char *value = plain_value(variable);
                size_t n = strlen(name);

                if (value && streq(value, local) && n > strlen(suffix) &&
                    streq(name + n - strlen(suffix), suffix))
                        json_object_set_new(w->env, name, json_string(w->draft->cwd));
        }
}

static void put_described(struct writer *w)
{
        const struct adapter_draft *draft = w->draft;
        size_t i;
        json_t *one;

        json_array_foreach(json_object_get(draft->d->json, "env"), i, one)
        {
                const char *name = json_get_string(one, "name");
                const json_t *when = json_object_get(one, "when");
                const char *value;

                if (when && !adapter_holds(when, draft->scope))
                        continue;
                value = adapter_fill_arena(draft->arena, json_get_string(one, "value"),
                                           draft->scope);
                if (json_is_true(json_object_get(one, "force")))
                        json_object_set_new(w->env, name, json_string(value));
                else
                        put(w, name, value);
        }
}

json_t *adapter_env(const struct adapter_draft *draft)
{
        const struct adapter_input *in = draft->in;
        struct writer w = { draft, adapter_keep(draft->arena, json_object()) };

        put(&w, "PAPERCLIP_AGENT_ID", in->agent->id);
        put(&w, "PAPERCLIP_COMPANY_ID", in->agent->company_id);
        put(&w, "PAPERCLIP_RUN_ID", in->run_id);
        put_wake(&w);
        put_workspace(&w);
        put_services(&w);
        put_described(&w);
        rewrite_own(&w);
        return w.env;
}

/* Showing */

static bool is_hidden(const char *name)
{
        static const char *const parts[] = { "key",    "token",         "secret", "password",
                                             "passwd", "authorization", "cookie" };

        for (size_t i = 0; i < ARRAY_LEN(parts); i++)
                if (strcasestr(name, parts[i]))
                        return true;
        return false;
}

json_t *adapter_env_shown(const struct adapter_draft *draft, const json_t *env,
                          const char *resolved_command)
{
        json_t *shown = json_object(), *value;
        const char *name;

        json_object_foreach((json_t *)env, name, value) json_object_set_new(
                shown, name, is_hidden(name) ? json_string(REDACTED) : json_incref(value));
        json_object_foreach((json_t *)own_env(draft->in), name, value)
        {
                const char *plain = is_hidden(name) ? NULL : plain_value(value);

                if (!json_object_get(shown, name))
                        json_object_set_new(shown, name, json_string(plain ? plain : REDACTED));
        }
        json_object_set_new(shown, "PAPERCLIP_RESOLVED_COMMAND", json_string(resolved_command));
        return shown;
}

const char *const *adapter_env_hidden(const struct adapter_draft *draft)
{
        const json_t *own = own_env(draft->in);
        const char **names =
                arena_alloc(draft->arena, (json_object_size(own) + 1) * sizeof(*names));
        const char *name;
        json_t *variable;
        size_t n = 0;

        json_object_foreach((json_t *)own, name, variable)
        {
                if (is_hidden(name) || !plain_value(variable))
                        names[n++] = arena_strdup(draft->arena, name);
        }
        return names;
}
