/* Reads an agent's output line by line and gathers the fields that its descriptor names. */
#include "core/adapters/adapter_parse.h"

#include <math.h>

#define TOKENS_MAX 9007199254740991.0 /* the largest number that a JSON reader counts exactly */

/* Append, and drop the beginning so that at least the last `max` bytes stay, and at most twice as
 * many. adapter_parser_finish() cuts off the excess. */
static void adapter_keep_tail(struct buf *b, const char *data, size_t len, size_t max)
{
        if (len > max) {
                data += len - max;
                len = max;
        }
        /* Only now and then: each time moves all bytes that stay. */
        if (b->len + len > 2 * max)
                buf_consume(b, b->len + len - max);
        buf_append(b, data, len);
}

static void cut_tail(struct buf *b, size_t max)
{
        if (b->len > max)
                buf_consume(b, b->len - max);
}

static void cut_tails(struct adapter_parser *p)
{
        struct buf *const said[] = { &p->text,    &p->session, &p->model,
                                     &p->summary, &p->error,   &p->failure };

        for (size_t i = 0; i < ARRAY_LEN(said); i++)
                cut_tail(said[i], ADAPTER_TEXT_MAX);
        cut_tail(&p->trouble, ADAPTER_TROUBLE_MAX);
        cut_tail(&p->out.tail, ADAPTER_EXCERPT_MAX);
        cut_tail(&p->err.tail, ADAPTER_EXCERPT_MAX);
}

/* Fields of an event */

static void add_separated(struct buf *b, const char *s, size_t len)
{
        if (len == 0)
                return;
        if (b->len > 0)
                adapter_keep_tail(b, "\n\n", 2, ADAPTER_TEXT_MAX);
        adapter_keep_tail(b, s, len, ADAPTER_TEXT_MAX);
}

/* The target of one field of `set` or `add`. */
struct field {
        struct adapter_parser *p;
        const char *name;
        bool add;
        bool found;
};

static struct buf *text_field(struct adapter_parser *p, const char *name)
{
        const struct {
                const char *name;
                struct buf *buf;
        } all[] = { { "session", &p->session }, { "model", &p->model }, { "summary", &p->summary },
                    { "error", &p->error },     { "text", &p->text },   { "delta", &p->text },
                    { "failure", &p->failure } };

        for (size_t i = 0; i < ARRAY_LEN(all); i++)
                if (streq(all[i].name, name))
                        return all[i].buf;
        return NULL;
}

double *adapter_counter(struct adapter_parser *p, const char *name)
{
        const struct {
                const char *name;
                double *number;
        } all[] = { { "input", &p->input },
                    { "cached", &p->cached },
                    { "output", &p->output_tokens },
                    { "reasoning", &p->reasoning },
                    { "cost", &p->cost } };

        for (size_t i = 0; i < ARRAY_LEN(all); i++)
                if (streq(all[i].name, name))
                        return all[i].number;
        return NULL;
}

static void take_number(struct field *f, double *to, const json_t *value)
{
        double n = json_number_value(value);

        if (!json_is_number(value) || !isfinite(n) || n < 0)
                return;
        *to = MIN(f->add ? *to + n : n, TOKENS_MAX);
        f->found = true;
        if (streq(f->name, "cost"))
                f->p->has_cost = true;
        else
                f->p->has_usage = true;
}

static void take_text(struct field *f, struct buf *to, const json_t *value)
{
        const char *s = json_string_value(value);
        size_t n = json_string_length(value);

        if (!adapter_is_set(value) || !s)
                return;
        f->found = true;
        if (!f->add)
                buf_clear(to);
        if (f->add && streq(f->name, "delta"))
                adapter_keep_tail(to, s, n, ADAPTER_TEXT_MAX);
        else
                add_separated(to, s, n);
}

static void take_question(struct field *f, const json_t *value)
{
        if (!adapter_is_set(value))
                return;
        json_decref(f->p->question);
        f->p->question = json_deep_copy(value);
        f->found = true;
}

static void take_value(void *ctx, const json_t *value)
{
        struct field *f = ctx;
        double *number;
        struct buf *text;

        if (streq(f->name, "question")) {
                take_question(f, value);
                return;
        }
        number = adapter_counter(f->p, f->name);
        text = text_field(f->p, f->name);
        if (number)
                take_number(f, number, value);
        else if (text)
                take_text(f, text, value);
}

/* Take the value of the first path that finds one. */
static void take_field(struct field *f, const json_t *event, const json_t *paths)
{
        size_t i;
        json_t *path;

        if (json_is_string(paths)) {
                adapter_path_each(event, json_string_value(paths), take_value, f);
                return;
        }
        json_array_foreach((json_t *)paths, i, path)
        {
                if (!f->found)
                        adapter_path_each(event, json_string_value(path), take_value, f);
        }
}

static void take_fields(struct adapter_parser *p, const json_t *event, const json_t *fields,
                        bool add)
{
        const char *name;
        json_t *paths;

        json_object_foreach((json_t *)fields, name, paths)
        {
                struct field f = { .p = p, .name = name, .add = add };

                take_field(&f, event, paths);
        }
}

/* Events */

static bool value_matches(const json_t *wanted, const json_t *value)
{
        size_t i;
        json_t *one;

        if (json_is_false(wanted) || json_is_null(wanted))
                return !adapter_is_set(value);
        if (!json_is_array(wanted))
                return json_equal(wanted, value);
        json_array_foreach((json_t *)wanted, i, one)
        {
                if (json_equal(one, value))
                        return true;
        }
        return false;
}

bool adapter_event_matches(const json_t *match, const json_t *event)
{
        const char *path;
        json_t *wanted;

        json_object_foreach((json_t *)match, path, wanted)
        {
                if (!value_matches(wanted, adapter_path_last(event, path)))
                        return false;
        }
        return true;
}

static void take_event(struct adapter_parser *p, const json_t *event, size_t len)
{
        size_t i, k;
        json_t *rule, *name;

        json_array_foreach(json_object_get(p->output, "events"), i, rule)
        {
                const json_t *when = json_object_get(rule, "when");

                if (!adapter_event_matches(json_object_get(rule, "match"), event) ||
                    (when && !adapter_holds(when, event)))
                        continue;
                json_array_foreach(json_object_get(rule, "clear"), k, name)
                {
                        struct buf *text = text_field(p, json_string_value(name));

                        if (text)
                                buf_clear(text);
                }
                take_fields(p, event, json_object_get(rule, "set"), false);
                take_fields(p, event, json_object_get(rule, "add"), true);
                p->said_last = p->said_last || json_is_true(json_object_get(rule, "end"));
                if (json_is_true(json_object_get(rule, "keep")) && len <= ADAPTER_EVENT_MAX) {
                        json_decref(p->event);
                        p->event = json_incref((json_t *)event);
                }
        }
}

/* Lines */

static void note_trouble(struct adapter_parser *p, const char *line, size_t len)
{
        if (len == 0)
                return;
        adapter_keep_tail(&p->trouble, line, len, ADAPTER_TROUBLE_MAX);
        adapter_keep_tail(&p->trouble, "\n", 1, ADAPTER_TROUBLE_MAX);
}

static size_t skip_blanks(const char *line, size_t len, size_t at)
{
        while (at < len && (line[at] == ' ' || line[at] == '\t'))
                at++;
        return at;
}

size_t adapter_line_begin(const json_t *output, const char *line, size_t len)
{
        size_t begin = skip_blanks(line, len, 0), i;
        json_t *prefix;

        json_array_foreach(json_object_get(output, "prefixes"), i, prefix)
        {
                size_t n = json_string_length(prefix);

                if (n <= len - begin && memcmp(line + begin, json_string_value(prefix), n) == 0)
                        return skip_blanks(line, len, begin + n);
        }
        return begin;
}

static bool take_json(struct adapter_parser *p, const char *line, size_t len)
{
        CLEAN(json_decrefp) json_t *event = NULL;
        size_t skip = adapter_line_begin(p->output, line, len);

        line += skip;
        len -= skip;
        if (len == 0 || *line != '{' || json_parse(line, len, &event, NULL) < 0)
                return false;
        take_event(p, event, len);
        return true;
}

static void take_out_line(struct adapter_parser *p, const char *line, size_t len)
{
        if (!take_json(p, line, len))
                note_trouble(p, line, len);
}

static void take_err_line(struct adapter_parser *p, const char *line, size_t len)
{
        note_trouble(p, line, len);
        if (p->first_error.len == 0 &&
            !adapter_like_any(json_object_get(p->output, "ignore"), line, len))
                buf_append(&p->first_error, line, MIN(len, (size_t)1024));
}

static void end_line(struct adapter_parser *p, struct adapter_lines *lines)
{
        const char *line = buf_str(&lines->line);
        size_t len = lines->line.len, begin;

        while (len > 0 && (line[len - 1] == '\r' || line[len - 1] == ' ' || line[len - 1] == '\t'))
                len--;
        begin = skip_blanks(line, len, 0);
        if (!lines->skipping && begin < len) {
                if (lines == &p->err)
                        take_err_line(p, line + begin, len - begin);
                else
                        take_out_line(p, line + begin, len - begin);
        }
        buf_clear(&lines->line);
        lines->skipping = false;
}

static void add_to_line(struct adapter_lines *lines, const char *data, size_t len)
{
        if (lines->skipping)
                return;
        if (lines->line.len + len > ADAPTER_LINE_MAX) {
                lines->skipping = true;
                buf_clear(&lines->line);
                return;
        }
        buf_append(&lines->line, data, len);
}

void adapter_parser_feed(struct adapter_parser *p, bool is_stderr, const char *data, size_t len)
{
        struct adapter_lines *lines = is_stderr ? &p->err : &p->out;
        const char *format = json_get_string(p->output, "format");

        adapter_keep_tail(&lines->tail, data, len, ADAPTER_EXCERPT_MAX);
        if (!format || !streq(format, "json-lines"))
                return;
        while (len > 0) {
                const char *end = memchr(data, '\n', len);
                size_t n = end ? (size_t)(end - data) : len;

                add_to_line(lines, data, n);
                if (end)
                        end_line(p, lines);
                n += end != NULL;
                data += n;
                len -= n;
        }
}

/* The last line has no end. */
static void end_streams(struct adapter_parser *p)
{
        end_line(p, &p->out);
        end_line(p, &p->err);
}

void adapter_parser_finish(struct adapter_parser *p, const struct adapter_exit *exit,
                           struct arena *arena, struct adapter_result *ret)
{
        end_streams(p);
        cut_tails(p);
        adapter_outcome(p, exit, arena, ret);
}

/* Life */

static json_t *copy_kept(struct arena *arena, const json_t *value)
{
        return value ? adapter_keep(arena, json_deep_copy(value)) : NULL;
}

static struct adapter_billing copy_billing(struct arena *a, const struct adapter_billing *b)
{
        return (struct adapter_billing){
                .provider = arena_strdup(a, b->provider),
                .biller = arena_strdup(a, b->biller),
                .type = arena_strdup(a, b->type),
                .model = arena_strdup(a, b->model),
        };
}

static void remember(struct adapter_parser *p, const struct adapter_input *in,
                     const struct adapter_command *command)
{
        struct arena *a = &p->arena;

        p->in.type = p->d->type;
        p->in.context = copy_kept(a, in->context);
        p->in.assets = copy_kept(a, in->assets);
        p->in.target.identity = copy_kept(a, in->target.identity);
        p->billing = copy_billing(a, &command->billing);
        p->cwd = arena_strdup(a, command->cwd ? command->cwd : in->target.cwd);
        p->resumed_id = arena_strdup(a, command->session_id);
        p->new_id = arena_strdup(a, command->new_session_id);
        p->totals = copy_kept(a, command->session_totals);
        p->timeout_ms = command->timeout_ms;
        p->is_http = command->is_http;
        p->method = arena_strdup(a, json_get_string(command->request, "method"));
        if (command->is_http)
                p->url = adapter_shown_url(a, json_get_string(command->request, "url"));
}

int adapter_parser_new(struct runtime *rt, const struct adapter_input *input,
                       const struct adapter_command *command, struct adapter_parser **ret,
                       struct err *err)
{
        const struct adapter_descriptor *d = adapter_find(input->type);
        struct adapter_parser *p;

        (void)rt;
        if (!d)
                return err_set(err, ERR_UNPROCESSABLE, "Unknown adapter type: %s", input->type);
        p = xcalloc(1, sizeof(*p));
        p->d = d;
        p->output = json_get_object(d->json, "output");
        remember(p, input, command);
        *ret = p;
        return 0;
}

void adapter_parser_free(struct adapter_parser *p)
{
        if (!p)
                return;
        buf_done(&p->out.line);
        buf_done(&p->out.tail);
        buf_done(&p->err.line);
        buf_done(&p->err.tail);
        buf_done(&p->text);
        buf_done(&p->trouble);
        buf_done(&p->session);
        buf_done(&p->model);
        buf_done(&p->summary);
        buf_done(&p->error);
        buf_done(&p->failure);
        buf_done(&p->first_error);
        json_decref(p->event);
        json_decref(p->question);
        arena_done(&p->arena);
        free(p);
}
