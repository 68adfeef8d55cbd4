/* Decides the text of an agent's prompt: sections with a blank line between them (remote-execution
 * 6.1). */
#include "base/embedded.h"
#include "core/adapters/adapter_internal.h"

#define INSTRUCTIONS_MAX  ((size_t)1 << 20)
#define WAKE_COMMENTS_MAX 12
#define WAKE_COMMENT_MAX  4000 /* bytes */

#define DEFAULT_TEMPLATE                                                                           \
        "You are agent {{agent.id}} ({{agent.name}}). Continue your Paperclip work."

static void add_section(struct buf *b, const char *text, size_t len)
{
        while (len > 0 && strchr(" \t\r\n", text[0])) {
                text++;
                len--;
        }
        while (len > 0 && strchr(" \t\r\n", text[len - 1]))
                len--;
        if (len == 0)
                return;
        if (b->len > 0)
                buf_puts(b, "\n\n");
        buf_append(b, text, len);
}

static void add_text(struct buf *b, const char *text)
{
        if (text)
                add_section(b, text, strlen(text));
}

/* Instructions */

/* The file's text, with the directory that its references are relative to. NULL: none, which is
 * noted. */
static const char *read_instructions(struct adapter_draft *draft, const char *path)
{
        const struct adapter_target *target = &draft->in->target;
        const char *workspace = adapter_is_local(target) ? draft->cwd : target->local_cwd;
        const char *slash = strrchr(path, '/');
        CLEAN(buf_done) struct buf text = BUF_INIT;
        CLEAN(err_done) struct err why = { 0 };

        if (adapter_read_file(draft->in, path, workspace, INSTRUCTIONS_MAX, &text, &why) < 0) {
                json_array_append_new(draft->notes,
                                      json_string(arena_printf(draft->arena,
                                                               "The instructions %s are left out: "
                                                               "%s",
                                                               path, why.msg)));
                return NULL;
        }
        return arena_printf(draft->arena,
                            "%s\n\nThe agent instructions above were read from %s. Resolve "
                            "relative file references from %.*s/.",
                            buf_str(&text), path, (int)(slash - path), path);
}

static const char *instructions_path(const struct adapter_draft *draft)
{
        return adapter_trimmed(draft->arena,
                               json_object_get(draft->in->config, "instructionsFilePath"));
}

const char *adapter_instructions(struct adapter_draft *draft)
{
        const char *path = instructions_path(draft);

        return path ? read_instructions(draft, path) : NULL;
}

static void add_instructions(struct adapter_draft *draft)
{
        const char *path = instructions_path(draft);
        const char *text = path ? read_instructions(draft, path) : NULL;

        if (!text)
                return;
        json_object_set_new(draft->scope, "instructions",
                            adapter_is_local(&draft->in->target)
                                    ? json_pack("{s:s, s:s}", "text", text, "file", path)
                                    : json_pack("{s:s}", "text", text));
}

/* The wake section */

static void add_fact(struct buf *b, const char *what, const char *value)
{
        if (value && *value)
                buf_appendf(b, "- %s: %s\n", what, value);
}

static void add_comment(struct buf *b, const json_t *comment, size_t number)
{
        const char *body = json_get_string(comment, "body");
        const char *id = json_get_string(comment, "id");
        bool cut = json_is_true(json_object_get(comment, "truncated"));
        size_t n;

        if (!body)
                return;
        n = strlen(body);
        if (n > WAKE_COMMENT_MAX) {
                n = WAKE_COMMENT_MAX;
                while (n > 0 && ((unsigned char)body[n] & 0xc0) == 0x80)
                        n--;
        }
        buf_appendf(b, "\n%zu. comment %s\n", number, id ? id : "");
        buf_append(b, body, n);
        buf_puts(b, body[n] || cut ? "\n[cut here: fetch the comment for the rest]\n" : "\n");
}

static void add_wake(struct buf *b, const json_t *wake, bool resumed)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        const json_t *issue = json_get_object(wake, "issue");
        size_t i;
        json_t *comment;

        if (!adapter_is_set(wake) || !json_is_object(wake))
                return;
        buf_appendf(&text, "## Paperclip %s\n\n%s\n\n", resumed ? "Resume Delta" : "Wake Payload",
                    resumed ? "You are resuming a session. This is what is new; act on it first."
                            : "This is why you were woken; act on it before anything else.");
        add_fact(&text, "reason", json_get_string(wake, "reason"));
        add_fact(&text, "issue", json_get_string(issue, "identifier"));
        add_fact(&text, "issue id", json_get_string(issue, "id"));
        add_fact(&text, "title", json_get_string(issue, "title"));
        add_fact(&text, "status", json_get_string(issue, "status"));
        add_fact(&text, "priority", json_get_string(issue, "priority"));
        add_fact(&text, "what to do",
                 json_get_string(json_get_object(wake, "payload"), "instruction"));
        if (json_is_true(json_object_get(wake, "checkedOutByHarness")))
                buf_puts(&text, "- the issue is checked out for this run already\n");
        if (json_is_true(json_object_get(wake, "fallbackFetchNeeded")))
                buf_puts(&text, "- not everything is here: fetch the issue's comments\n");
        json_array_foreach(json_object_get(wake, "comments"), i, comment)
        {
                if (i < WAKE_COMMENTS_MAX)
                        add_comment(&text, comment, i + 1);
        }
        add_section(b, buf_str(&text), text.len);
}

/* The task */

static bool is_among(const json_t *comments, const char *id)
{
        size_t i;
        json_t *one;

        json_array_foreach((json_t *)comments, i, one)
        {
                const char *other = json_get_string(one, "id");

                if (id && other && streq(id, other))
                        return true;
        }
        return false;
}

/* The issue, and what was said about it before the agent was woken. A resumed session knows it. */
static const char *task_text(const struct adapter_draft *draft)
{
        const json_t *context = draft->in->context;
        const json_t *issue = json_get_object(context, "paperclipIssue");
        const json_t *told = json_object_get(json_get_object(context, "paperclipWake"), "comments");
        const char *identifier = json_get_string(issue, "identifier");
        const char *title = json_get_string(issue, "title");
        const char *description =
                adapter_trimmed(draft->arena, json_object_get(issue, "description"));
        CLEAN(buf_done) struct buf b = BUF_INIT;
        size_t i, n = 0;
        json_t *comment;

        if (!title)
                return NULL;
        buf_appendf(&b, "## Your task: %s%s%s\n", identifier ? identifier : "",
                    identifier ? ", " : "", title);
        if (description)
                buf_appendf(&b, "\n%s\n", description);
        if (json_is_true(json_object_get(issue, "descriptionTruncated")))
                buf_puts(&b, "[cut here: fetch the issue for the rest]\n");
        json_array_foreach(json_object_get(issue, "comments"), i, comment)
        {
                if (is_among(told, json_get_string(comment, "id")))
                        continue;
                if (n == 0)
                        buf_puts(&b, "\nSaid about it so far, the latest last:\n");
                add_comment(&b, comment, ++n);
        }
        return arena_strndup(draft->arena, buf_str(&b), b.len);
}

/* How an agent talks to people: texts/contract.md. A test of a program has no run to talk about. */
static const char *contract_text(const struct adapter_draft *draft)
{
        const struct embedded_file *f = agent_texts;

        while (!streq(f->name, "contract.md"))
                f++;
        return draft->in->context ? f->data : NULL;
}

/* All of it */

/* What templates see: everything that descriptors see but for variables, and what follows. */
static json_t *template_scope(const struct adapter_draft *draft, const char *task)
{
        static const char *const shared[] = { "target", "model", "session", "assets",
                                              "instructions" };
        static const struct {
                const char *name, *member;
        } parts[] = { { "issue", "paperclipIssue" },
                      { "wake", "paperclipWake" },
                      { "workspace", "paperclipWorkspace" } };
        const struct adapter_input *in = draft->in;
        const struct agent *agent = in->agent;
        json_t *scope = json_pack(
                "{s:s, s:s, s:s, s:{s:s, s:o}, s:{s:s, s:s, s:s, s:s, s:o, s:o, s:o}, "
                "s:{s:s, s:s}, s:O?, s:s?, s:s?}",
                "agentId", agent->id, "companyId", agent->company_id, "runId", in->run_id,
                "company", "id", agent->company_id, "name", json_string_or_null(in->company_name),
                "agent", "id", agent->id, "companyId", agent->company_id, "name", agent->name,
                "adapterType", in->type, "role", json_string_or_null(agent->role), "title",
                json_string_or_null(agent->title), "capabilities",
                json_string_or_null(agent->capabilities), "run", "id", in->run_id, "source",
                "on_demand", "context", in->context, "task", task, "contract",
                contract_text(draft));

        for (size_t i = 0; i < ARRAY_LEN(shared); i++) {
                json_t *value = json_object_get(draft->scope, shared[i]);

                if (value)
                        json_object_set(scope, shared[i], value);
        }
        for (size_t i = 0; i < ARRAY_LEN(parts); i++) {
                json_t *value = json_object_get(in->context, parts[i].member);

                if (value)
                        json_object_set(scope, parts[i].name, value);
        }
        return scope;
}

static void add_template(struct buf *b, const char *template, const json_t *scope)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;

        if (!template)
                return;
        adapter_fill(&text, template, scope);
        add_section(b, buf_str(&text), text.len);
}

static bool wants_prefix(const struct adapter_draft *draft, bool woken)
{
        const char *way = adapter_text(draft->d, "instructions", "none");

        if (streq(way, "fresh-prefix"))
                return !(draft->session_id && woken);
        return streq(way, "prefix");
}

/* Whether a template has `{{ name }}` in it. */
static bool names(const char *template, const char *name)
{
        const size_t n = strlen(name);

        for (const char *at = template; at && (at = strstr(at, "{{")); at += 2) {
                const char *path = at + 2 + strspn(at + 2, " \t\r\n");

                if (strncmp(path, name, n) == 0 &&
                    str_starts(path + n + strspn(path + n, " \t\r\n"), "}}"))
                        return true;
        }
        return false;
}

static void measure(struct adapter_draft *draft, const char *name, size_t n)
{
        json_object_set_new(draft->metrics, name, json_integer((json_int_t)n));
}

void adapter_prompt(struct adapter_draft *draft)
{
        const json_t *config = draft->in->config, *context = draft->in->context;
        const json_t *wake = json_object_get(context, "paperclipWake");
        const char *template =
                adapter_trimmed(draft->arena, json_object_get(config, "promptTemplate"));
        const char *first = json_get_string(config, "bootstrapPromptTemplate");
        const char *task = task_text(draft);
        CLEAN(buf_done) struct buf b = BUF_INIT;
        CLEAN(json_decrefp) json_t *scope = NULL;
        bool woken = json_is_object(wake) && adapter_is_set(wake), fresh = !draft->session_id;
        size_t before;

        add_instructions(draft);
        scope = template_scope(draft, task);
        if (wants_prefix(draft, woken))
                add_text(&b, adapter_path_string(draft->scope, "instructions.text"));
        measure(draft, "instructionsChars", b.len);
        if (fresh)
                add_template(&b, first, scope);
        /* A template that has the text at a place of its choice is not given it twice. */
        if (fresh && !names(first, "contract") && !names(template, "contract"))
                add_text(&b, contract_text(draft));
        if (fresh && !names(first, "task") && !names(template, "task"))
                add_text(&b, task);
        before = b.len;
        add_wake(&b, wake, !fresh);
        measure(draft, "wakePromptChars", b.len - before);
        add_text(&b, json_get_string(context, "paperclipSessionHandoffMarkdown"));
        add_text(&b, json_get_string(context, "paperclipTaskMarkdown"));
        if (fresh || !woken)
                add_template(&b, template ? template : DEFAULT_TEMPLATE, scope);
        measure(draft, "promptChars", b.len);
        draft->prompt = arena_strndup(draft->arena, buf_str(&b), b.len);
}
