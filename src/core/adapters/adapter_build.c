/* Builds a command line from a descriptor and an agent's configuration. */
#include <stdio.h>

#include "core/adapters/adapter_internal.h"
#include "core/kinds/kind.h"

#define ARGS_MAX           1024
#define GRACE_DEFAULT_S    20
#define SANDBOX_DEFAULT_S  (4 * 3600)
#define SECONDS_MAX        (INT64_C(366) * 24 * 3600)
#define INSTALL_DEFAULT_MS 300000
#define RUNTIME_DIR        ".paperclip-runtime"

json_t *adapter_keep(struct arena *arena, json_t *take_value)
{
        arena_defer(arena, (void (*)(void *))json_decref, take_value);
        return take_value;
}

const char *adapter_shown_url(struct arena *arena, const char *url)
{
        const char *scheme = strstr(url, "://");
        const char *host = scheme ? scheme + 3 : url;
        const char *end = host + strcspn(host, "?#");
        const char *at = memchr(host, '@', strcspn(host, "/?#"));

        for (const char *next = at; next; next = memchr(at + 1, '@', strcspn(at + 1, "/?#")))
                at = next;
        return arena_printf(arena, "%.*s%.*s", (int)(host - url), url,
                            (int)(end - (at ? at + 1 : host)), at ? at + 1 : host);
}

const char *adapter_trimmed(struct arena *arena, const json_t *value)
{
        return arena_strtrim(arena, json_string_value(value));
}

bool adapter_is_local(const struct adapter_target *target)
{
        return target->kind && target->kind->runs_on_host;
}

const char *adapter_target_name(const struct adapter_target *target)
{
        return target->kind ? target->kind->driver : "none";
}

static bool is_disposable(const struct adapter_draft *draft)
{
        const struct kind *kind = draft->in->target.kind;

        return kind && kind->is_disposable;
}

/* Lists of {when, is}: the first whose condition holds; NULL: none. In the arena. */
static const char *adapter_choose_in(const json_t *list, const json_t *scope, struct arena *arena)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)list, i, one)
        {
                const json_t *when = json_object_get(one, "when");
                const char *is = json_get_string(one, "is");

                if (is && (!when || adapter_holds(when, scope)))
                        return adapter_fill_arena(arena, is, scope);
        }
        return NULL;
}

static const char *adapter_choose(const struct adapter_descriptor *d, const char *member,
                                  const json_t *scope, struct arena *arena)
{
        return adapter_choose_in(json_object_get(d->json, member), scope, arena);
}

/* The scope */

/* {id, provider, name}: a model `provider/name` in parts. A new reference. */
static json_t *adapter_model(const char *id)
{
        const char *slash = strchr(id, '/');

        if (!slash)
                return json_pack("{s:s, s:s}", "id", id, "name", id);
        return json_pack("{s:s, s:s%, s:s}", "id", id, "provider", id, (size_t)(slash - id), "name",
                         slash + 1);
}

static json_t *model_scope(const struct adapter_draft *draft)
{
        const char *id = adapter_trimmed(draft->arena, json_object_get(draft->in->config, "model"));

        if (!id)
                id = json_get_string(draft->d->json, "defaultModel");
        return id ? adapter_model(id) : json_object();
}

/* The session directory of an agent that keeps its sessions in files of our choice: with the user
 * on this machine, beside the work elsewhere. */
static const char *sessions_dir(const struct adapter_draft *draft, const char *runtime)
{
        const char *home = getenv("HOME");

        if (adapter_is_local(&draft->in->target) && home && *home == '/')
                return arena_printf(draft->arena, "%s/.%s/paperclips", home, draft->d->key);
        return arena_printf(draft->arena, "%s/sessions", runtime);
}

const char *adapter_runtime(const struct adapter_draft *draft)
{
        const char *apart = draft->in->target.apart;

        return arena_printf(draft->arena, "%s/" RUNTIME_DIR "/%s%s%s",
                            streq(draft->cwd, "/") ? "" : draft->cwd, draft->d->key,
                            apart ? "/" : "", apart ? apart : "");
}

static json_t *target_scope(const struct adapter_draft *draft)
{
        const struct adapter_target *t = &draft->in->target;
        const char *runtime = adapter_runtime(draft);
        json_t *target =
                json_pack("{s:s, s:s, s:s, s:s, s:b, s:b}", "kind", adapter_target_name(t), "cwd",
                          draft->cwd, "runtime", runtime, "home", t->home ? t->home : runtime,
                          "isRoot", t->is_root, "isolated", t->kind && t->kind->isolated);

        json_object_set_new(target, "sessions", json_string(sessions_dir(draft, runtime)));
        return target;
}

/* {key: that member of each asset}. */
static json_t *assets_scope(const json_t *assets, const char *member)
{
        json_t *scope = json_object(), *asset;
        const char *key;

        json_object_foreach((json_t *)assets, key, asset)
                json_object_set(scope, key, json_object_get(asset, member));
        return scope;
}

static void make_scope(struct adapter_draft *draft)
{
        const struct adapter_input *in = draft->in;
        json_t *scope = adapter_keep(draft->arena, json_object());

        if (in->config)
                json_object_set(scope, "config", (json_t *)in->config);
        if (in->context)
                json_object_set(scope, "context", (json_t *)in->context);
        json_object_set_new(scope, "agent",
                            json_pack("{s:s, s:s}", "id", in->agent->id, "name", in->agent->name));
        json_object_set_new(scope, "run",
                            json_pack("{s:s, s:s}", "id", in->run_id, "stamp",
                                      adapter_stamp(draft->arena, in->run_at)));
        json_object_set_new(scope, "target", target_scope(draft));
        json_object_set_new(scope, "model", model_scope(draft));
        json_object_set_new(scope, "env", adapter_env_scope(in));
        json_object_set_new(scope, "assets", assets_scope(in->assets, "dir"));
        json_object_set_new(scope, "said", assets_scope(in->assets, "says"));
        draft->scope = scope;
}

/* A session that is a file beside the work of another directory is brought beside this one. */
static const char *session_file_here(const struct adapter_draft *draft, const char *id)
{
        const char *slash = strrchr(id, '/'), *old = json_get_string(draft->in->session, "cwd");

        if (!slash || !old || streq(old, draft->cwd))
                return id;
        return arena_printf(draft->arena, "%s%s", sessions_dir(draft, adapter_runtime(draft)),
                            slash);
}

static void choose_session(struct adapter_draft *draft, bool fresh)
{
        const json_t *session = json_get_object(draft->d->json, "session");
        const json_t *fresh_when = json_object_get(session, "freshWhen");
        const char *template = json_get_string(session, "new"), *id = NULL;

        if (!session || (fresh_when && adapter_holds(fresh_when, draft->scope)))
                fresh = true;
        if (!fresh)
                id = adapter_session_resume(draft->in, draft->cwd, draft->arena);
        if (id && json_object_get(session, "header"))
                id = session_file_here(draft, id);
        draft->session_id = id;
        if (!id && template)
                id = adapter_fill_arena(draft->arena, template, draft->scope);
        if (id)
                json_object_set_new(draft->scope, "session", json_pack("{s:s}", "id", id));
}

/* The directory of the run; the agent's configured one when the run has none of its own. */
static const char *choose_cwd(const struct adapter_input *in, struct arena *arena)
{
        const char *configured = adapter_trimmed(arena, json_object_get(in->config, "cwd"));
        const char *source = adapter_path_string(in->context, "paperclipWorkspace.source");

        if (adapter_is_local(&in->target) && configured && *configured == '/' && source &&
            streq(source, "agent_home"))
                return configured;
        return in->target.cwd;
}

void adapter_draft_begin(struct adapter_draft *draft)
{
        draft->cwd = choose_cwd(draft->in, draft->arena);
        make_scope(draft);
}

/* Arguments */

struct argv {
        struct arena *arena;
        const char *list[ARGS_MAX + 1];
        size_t n;
        bool full;
};

static void push(struct argv *v, const char *arg)
{
        if (v->n == ARGS_MAX)
                v->full = true;
        else
                v->list[v->n++] = arg;
}

/* Push the first list that is not empty. */
static void push_list(struct argv *v, const json_t *paths, const json_t *scope)
{
        const json_t *list = NULL;
        size_t i;
        json_t *one;

        if (json_is_string(paths))
                list = adapter_path_last(scope, json_string_value(paths));
        json_array_foreach((json_t *)paths, i, one)
        {
                if (!adapter_is_set(list))
                        list = adapter_path_last(scope, json_string_value(one));
        }
        json_array_foreach((json_t *)list, i, one)
        {
                if (json_is_string(one))
                        push(v, arena_strdup(v->arena, json_string_value(one)));
        }
}

static void push_filled(struct argv *v, const json_t *args, const json_t *scope)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)args, i, one)
                push(v, adapter_fill_arena(v->arena, json_string_value(one), scope));
}

static void push_described(struct argv *v, const struct adapter_draft *draft, const json_t *list)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)list, i, one)
        {
                const json_t *when = json_object_get(one, "when");

                if (json_is_string(one)) {
                        push(v, adapter_fill_arena(v->arena, json_string_value(one), draft->scope));
                        continue;
                }
                if (when && !adapter_holds(when, draft->scope))
                        continue;
                push_filled(v, json_object_get(one, "args"), draft->scope);
                push_list(v, json_object_get(one, "list"), draft->scope);
        }
}

static int make_argv(const struct adapter_draft *draft, const char *command, const json_t *args,
                     const char ***ret, struct err *err)
{
        struct argv *v = arena_new(draft->arena, struct argv);

        v->arena = draft->arena;
        push_described(v, draft, json_object_get(draft->d->json, "wrap"));
        push(v, command);
        push_described(v, draft, args);
        if (v->full)
                return err_set(err, ERR_UNPROCESSABLE, "%s has more than %d arguments",
                               draft->in->type, ARGS_MAX);
        *ret = v->list;
        return 0;
}

static int make_acp(const struct adapter_draft *draft, struct adapter_command *c, struct err *err)
{
        const json_t *list = json_object_get(draft->d->json, "acp");
        struct argv *v;

        if (!list)
                return 0;
        v = arena_new(draft->arena, struct argv);
        v->arena = draft->arena;
        push_described(v, draft, list);
        if (v->full)
                return err_set(err, ERR_UNPROCESSABLE, "%s has more than %d options of ACP",
                               draft->in->type, ARGS_MAX);
        c->acp = v->list;
        return 0;
}

static int make_args(const struct adapter_draft *draft, const char *command,
                     struct adapter_command *c, struct err *err)
{
        const json_t *list = json_get_object(draft->d->json, "modelList");
        const json_t *seconds =
                json_object_get(list, is_disposable(draft) ? "sandboxSeconds" : "seconds");
        const char **argv;
        int r = make_argv(draft, command, json_object_get(draft->d->json, "args"), &argv, err);

        if (r < 0)
                return r;
        c->command = argv[0];
        c->args = argv + 1;
        r = make_acp(draft, c, err);
        if (r < 0 || !list)
                return r;
        c->list_timeout_ms = 1000 * MIN(seconds ? json_integer_value(seconds) : 20, SECONDS_MAX);
        return make_argv(draft, command, json_object_get(list, "args"), &c->list_argv, err);
}

/* Limits */

static int64_t whole_seconds(const json_t *value, bool *ret_given)
{
        double s = json_is_number(value) ? json_number_value(value) : 0;

        *ret_given = json_is_number(value) && s != 0;
        if (!(s > 0))
                return 0;
        return s >= (double)SECONDS_MAX ? SECONDS_MAX : (int64_t)s;
}

/* A value below zero means no limit and counts as configured; no value and zero mean the default of
 * the place. */
static void set_timeout(const struct adapter_draft *draft, struct adapter_command *c)
{
        const struct adapter_target *t = &draft->in->target;
        bool given;
        int64_t s = whole_seconds(json_object_get(draft->in->config, "timeoutSec"), &given);

        c->timeout_source = given ? "configured" : "default";
        c->timeout_ms = s * 1000;
        if (given)
                return;
        if (is_disposable(draft))
                c->timeout_ms = SANDBOX_DEFAULT_S * 1000;
        else if (t->timeout_ms > 0)
                c->timeout_ms = t->timeout_ms;
}

static void set_grace(const struct adapter_draft *draft, struct adapter_command *c)
{
        const json_t *fallback = json_object_get(draft->d->json, "graceSec");
        bool given;
        int64_t s = whole_seconds(json_object_get(draft->in->config, "graceSec"), &given);

        if (!given)
                s = fallback ? json_integer_value(fallback) : GRACE_DEFAULT_S;
        c->grace_ms = s * 1000;
}

/* What the event shows */

static const char *or_else(const char *s, const char *fallback)
{
        return s && *s ? s : fallback;
}

static const char *resolved_command(const struct adapter_draft *draft, const char *command)
{
        const struct kind *kind = draft->in->target.kind;
        const json_t *id = draft->in->target.identity;

        if (!json_get_string(id, "transport"))
                return command;
        if (kind && kind->address)
                return arena_printf(draft->arena, "%s://%s%s :: %s", kind->driver,
                                    kind->address(draft->arena, id), draft->cwd, command);
        return arena_printf(draft->arena, "sandbox://%s/%s%s :: %s",
                            or_else(json_get_string(id, "providerKey"), "provider"),
                            or_else(json_get_string(id, "leaseId"), "lease"), draft->cwd, command);
}

/* Characters, as they are counted in texts for people. */
static size_t count_chars(const char *s)
{
        size_t n = 0;

        for (; *s; s++)
                n += ((unsigned char)*s & 0xc0) != 0x80;
        return n;
}

static json_t *shown_args(const struct adapter_draft *draft, const struct adapter_command *c)
{
        json_t *args = json_array();
        char text[64];

        for (const char *const *arg = c->args; *arg; arg++) {
                if (draft->prompt && *draft->prompt && streq(*arg, draft->prompt)) {
                        (void)snprintf(text, sizeof(text), "<prompt %zu chars>",
                                       count_chars(draft->prompt));
                        json_array_append_new(args, json_string(text));
                } else {
                        json_array_append_new(args, json_string(*arg));
                }
        }
        if (c->stdin_text && json_is_true(json_object_get(draft->d->json, "showStdin"))) {
                (void)snprintf(text, sizeof(text), "<stdin prompt %zu chars>",
                               count_chars(draft->prompt));
                json_array_append_new(args, json_string(text));
        }
        return args;
}

static void describe(const struct adapter_draft *draft, const char *command,
                     struct adapter_command *c)
{
        const char *resolved = resolved_command(draft, command);
        json_t *event = json_pack("{s:s, s:s, s:s, s:o, s:O, s:o}", "adapterType", draft->in->type,
                                  "command", resolved, "cwd", c->cwd, "commandArgs",
                                  shown_args(draft, c), "commandNotes", draft->notes, "env",
                                  adapter_env_shown(draft, c->env, resolved));

        if (draft->prompt) {
                json_object_set_new(event, "prompt", json_string(draft->prompt));
                json_object_set(event, "promptMetrics", draft->metrics);
        }
        if (draft->in->context)
                json_object_set(event, "context", (json_t *)draft->in->context);
        c->invocation = adapter_keep(draft->arena, event);
        c->redact_env = adapter_env_hidden(draft);
}

/* Requests */

static int build_request(const struct adapter_draft *draft, struct adapter_command *c,
                         struct err *err)
{
        const json_t *config = draft->in->config;
        const char *url = adapter_trimmed(draft->arena, json_object_get(config, "url"));
        const char *method = adapter_trimmed(draft->arena, json_object_get(config, "method"));
        const json_t *headers = json_get_object(config, "headers");
        const json_t *template = json_get_object(config, "payloadTemplate");
        const json_t *timeout = json_object_get(config, "timeoutMs");
        json_t *body;

        if (!url)
                return err_set(err, ERR_UNPROCESSABLE, "%s",
                               adapter_text(draft->d, "missing", "missing url"));
        method = method ? method : "POST";
        body = template ? json_deep_copy(template) : json_object();
        json_object_set_new(body, "agentId", json_string(draft->in->agent->id));
        json_object_set_new(body, "runId", json_string(draft->in->run_id));
        json_object_set_new(body, "context",
                            draft->in->context ? json_incref((json_t *)draft->in->context)
                                               : json_object());
        c->request = adapter_keep(
                draft->arena,
                json_pack("{s:s, s:s, s:o, s:o}", "method", method, "url", url, "headers",
                          headers ? json_deep_copy(headers) : json_object(), "body", body));
        c->is_http = true;
        c->args = arena_alloc(draft->arena, sizeof(*c->args));
        c->timeout_ms = json_is_integer(timeout) && json_integer_value(timeout) > 0
                                ? MIN(json_integer_value(timeout), SECONDS_MAX * 1000)
                                : 0;
        c->timeout_source = c->timeout_ms ? "configured" : "default";
        c->command = method;
        describe(draft,
                 arena_printf(draft->arena, "%s %s", method, adapter_shown_url(draft->arena, url)),
                 c);
        return 0;
}

/* Commands */

static int check_required(const struct adapter_draft *draft, struct err *err)
{
        size_t i;
        json_t *one;

        json_array_foreach(json_object_get(draft->d->json, "require"), i, one)
        {
                if (!adapter_holds(json_object_get(one, "that"), draft->scope))
                        return err_set(err, ERR_UNPROCESSABLE, "%s", json_get_string(one, "error"));
        }
        return 0;
}

static void make_prompt(struct adapter_draft *draft, struct adapter_command *c)
{
        const char *way = adapter_text(draft->d, "prompt", "none");

        if (streq(way, "none"))
                return;
        adapter_prompt(draft);
        json_object_set_new(draft->scope, "prompt", json_string(draft->prompt));
        if (streq(way, "stdin")) {
                c->stdin_text = draft->prompt;
                c->stdin_len = strlen(draft->prompt);
        }
}

/* Only in disposable places, and only for the descriptor's own command. */
static void make_setup(const struct adapter_draft *draft, const char *command,
                       struct adapter_command *c)
{
        const char *own = json_get_string(draft->d->json, "command");

        if (!is_disposable(draft) || !own || !streq(own, command))
                return;
        c->setup =
                adapter_setup_script(draft->d, command, draft->in->target.is_offline, draft->arena);
        c->setup_error = adapter_setup_error(draft->arena, command, &draft->in->target);
        c->setup_timeout_ms = c->timeout_ms ? c->timeout_ms : INSTALL_DEFAULT_MS;
}

/* Note skills that the agent asks for and does not get. */
static void note_missing(struct adapter_draft *draft)
{
        const char *key;
        json_t *asset, *name;
        size_t i;

        json_object_foreach((json_t *)draft->in->assets, key, asset)
        {
                json_array_foreach(json_object_get(asset, "missing"), i, name)
                        json_array_append_new(
                                draft->notes,
                                json_string(arena_printf(draft->arena,
                                                         "The skill \"%s\" is not there and is "
                                                         "left out.",
                                                         json_string_value(name))));
        }
}

static int build_command(struct adapter_draft *draft, struct adapter_command *c, struct err *err)
{
        const char *command =
                adapter_trimmed(draft->arena, json_object_get(draft->in->config, "command"));
        int r;

        if (!command)
                command = adapter_choose(draft->d, "commands", draft->scope, draft->arena);
        if (!command)
                command = json_get_string(draft->d->json, "command");
        if (!command)
                return err_set(err, ERR_UNPROCESSABLE, "%s",
                               adapter_text(draft->d, "missing", "missing command"));
        r = check_required(draft, err);
        if (r < 0)
                return r;
        note_missing(draft);
        make_prompt(draft, c);
        r = make_args(draft, command, c, err);
        if (r < 0)
                return r;
        set_timeout(draft, c);
        set_grace(draft, c);
        make_setup(draft, command, c);
        c->env = adapter_env(draft);
        describe(draft, command, c);
        return 0;
}

static const json_t *fill_header(const struct adapter_draft *draft)
{
        const json_t *header =
                json_get_object(json_get_object(draft->d->json, "session"), "header");
        json_t *filled, *value;
        const char *name;

        if (!header)
                return NULL;
        filled = adapter_keep(draft->arena, json_object());
        json_object_foreach((json_t *)header, name, value)
        {
                const char *text =
                        adapter_fill_arena(draft->arena, json_string_value(value), draft->scope);

                json_object_set_new(filled, name, json_string(text));
        }
        return filled;
}

static struct adapter_billing describe_billing(const struct adapter_draft *draft)
{
        struct arena *a = draft->arena;

        return (struct adapter_billing){
                .provider = adapter_choose(draft->d, "provider", draft->scope, a),
                .biller = adapter_choose(draft->d, "biller", draft->scope, a),
                .type = adapter_choose(draft->d, "billing", draft->scope, a),
                .model = adapter_path_string(draft->scope, "model.id"),
        };
}

int adapter_build(struct op *op, struct runtime *rt, const struct adapter_input *input, bool fresh,
                  struct adapter_command *ret, struct err *err)
{
        struct adapter_draft draft = { .arena = op->arena,
                                       .d = adapter_find(input->type),
                                       .in = input,
                                       .notes = adapter_keep(op->arena, json_array()),
                                       .metrics = adapter_keep(op->arena, json_object()) };
        struct adapter_command c = { 0 };
        int r;

        (void)rt;
        if (!draft.d)
                return err_set(err, ERR_UNPROCESSABLE, "Unknown adapter type: %s", input->type);
        if (!draft.d->runs)
                return err_set(err, ERR_UNPROCESSABLE, "Adapter \"%s\" cannot run agents here",
                               input->type);
        adapter_draft_begin(&draft);
        c.cwd = draft.cwd;
        choose_session(&draft, fresh);
        r = draft.d->is_http ? build_request(&draft, &c, err) : build_command(&draft, &c, err);
        if (r < 0)
                return r;
        c.billing = describe_billing(&draft);
        c.session_header = fill_header(&draft);
        c.session_id = draft.session_id;
        c.session_totals =
                c.session_id ? json_get_object(input->session, ADAPTER_TOTALS_MEMBER) : NULL;
        if (!adapter_is_local(&input->target)) {
                const json_t *session = json_get_object(draft.d->json, "session");

                c.session_dir = adapter_choose_in(json_object_get(session, "dir"), draft.scope,
                                                  draft.arena);
                c.session_files = json_object_get(session, "files");
                c.session_move = json_get_string(session, "move");
        }
        if (!c.session_id)
                c.new_session_id = adapter_path_string(draft.scope, "session.id");
        *ret = c;
        return 0;
}
