/* Sees to it that an agent's program is in its place before the run's command starts there. */
#define _GNU_SOURCE
#include "base/fault.h"
#include "core/adapters/adapter_internal.h"
#include "core/runs/run_internal.h"
#include "core/runs/run_wait.h"
#include "store/run_events.h"

#define INSTALL_EVENT "install"
#define LINES_MAX     200
#define OUTPUT_MAX    ((size_t)1 << 20)

/* The lines of the installation become events while it runs; of very many the first ones and the
 * last. */
struct setup {
        struct run_task *t;
        const char *text;  /* the output so far */
        size_t begin, end; /* the whole lines in it that were not looked at yet */
        bool is_last;      /* no more will follow */
        int64_t n;         /* lines before `begin` that are shown */
        int64_t recorded;  /* by an earlier attempt at the run */
};

static int count_line(void *ctx, const struct run_event *row)
{
        struct setup *s = ctx;

        s->recorded += streq(row->event_type, INSTALL_EVENT);
        return 0;
}

static int count_recorded(struct setup *s, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct run_task *t = s->t;
        int r = store_read_begin(t->op, t->rt->store, &db, err);

        return r < 0 ? r : run_events_list(db, t->run.id, 0, 0, t->op->arena, count_line, s, err);
}

static bool is_shown(const char *line)
{
        return !strchr("\n", line[strspn(line, " \t\r")]) && !str_starts(line, ADAPTER_FOUND);
}

static int add_lines(struct db *db, void *arg, struct err *err)
{
        const struct setup *s = arg;
        int64_t n = s->n;
        int r = 0;

        for (size_t at = s->begin; r >= 0 && at < s->end;) {
                const char *line = s->text + at;

                at += strcspn(line, "\n") + 1;
                if (!is_shown(line) || ++n <= s->recorded)
                        continue;
                if (n <= LINES_MAX || (s->is_last && at >= s->end))
                        r = run_event_add(db, s->t->rt, &s->t->run, INSTALL_EVENT, "info",
                                          adapter_first_line(s->t->op->arena, line), NULL, err);
        }
        return r;
}

static int take_lines(struct setup *s, const struct buf *output, struct err *err)
{
        const char *last;
        int r;

        s->text = buf_str(output);
        last = output->len ? memrchr(s->text, '\n', output->len) : NULL;
        s->end = s->is_last ? output->len : last ? (size_t)(last + 1 - s->text) : 0;
        if (s->end <= s->begin)
                return 0;
        r = store_write(s->t->op, s->t->rt->store, add_lines, s, err);
        for (; r >= 0 && s->begin < s->end; s->begin += strcspn(s->text + s->begin, "\n") + 1)
                s->n += is_shown(s->text + s->begin);
        return r;
}

/* What fails here fails again at the end. */
static void look(void *arg, const char *id)
{
        CLEAN(buf_done) struct buf output = BUF_INIT;
        struct setup *s = arg;

        if (exec_read_output(s->t->rt, id, false, OUTPUT_MAX, &output, NULL, NULL) >= 0)
                (void)take_lines(s, &output, NULL);
}

/* The last line that is not empty, nor where npm keeps its own log; NULL: none. */
static const char *last_line(struct arena *arena, const char *text)
{
        const char *end = text + strlen(text), *begin, *line;

        do {
                while (end > text && strchr(" \t\r\n", end[-1]))
                        end--;
                for (begin = end; begin > text && begin[-1] != '\n';)
                        begin--;
                line = end > begin ? adapter_first_line(arena, begin) : NULL;
                end = begin;
        } while (line && strstr(line, "A complete log of this run can be found"));
        return line;
}

/* A program outside the search path is started by its path, unless something else is started in its
 * place. */
static void use_program(struct adapter_command *c, const char *path)
{
        const char *slash = strrchr(path, '/');

        if (!slash || !streq(slash + 1, c->command))
                return;
        if (c->list_argv && streq(c->list_argv[0], c->command))
                c->list_argv[0] = path;
        c->command = path;
}

int run_setup(struct run_task *t, struct err *err)
{
        struct setup s = { .t = t };
        CLEAN(run_command_end_done)
        struct run_command_end end = { .max = OUTPUT_MAX, .look = look, .arg = &s };
        struct adapter_command *c = &t->command;
        struct exec_request req = {
                .command = run_shell(t),
                .args = (const char *[]){ "-c", c->setup, NULL },
                .cwd = c->cwd,
                .timeout_ms = MAX(c->setup_timeout_ms, 0),
                .idempotency_key = arena_printf(t->op->arena, "setup:%s", t->run.id),
        };
        const char *said;
        int r;

        if (!c->setup)
                return 0;
        r = count_recorded(&s, err);
        if (r < 0)
                return r;
        FAULT("run.setup.before");
        r = run_command_wait(t->op, t->rt, &t->record, &req, &end, err);
        FAULT("run.setup.after");
        if (r == ERR_CANCELLED)
                return r;
        if (r < 0) { /* the place could not be asked: the command will say what is missing */
                err_clear(err);
                return 0;
        }
        said = last_line(t->op->arena, buf_str(&end.out));
        if (said && str_starts(said, ADAPTER_FOUND))
                use_program(c, said + strlen(ADAPTER_FOUND));
        s.is_last = true;
        r = take_lines(&s, &end.out, err);
        if (r < 0 || (!end.how.timed_out && end.how.has_code && end.how.code == 0))
                return r;
        if (end.how.timed_out)
                said = arena_printf(t->op->arena, "it took longer than %llds",
                                    (long long)(c->setup_timeout_ms / 1000));
        t->failure_code = "adapter_install_failed";
        return err_set(err, ERR_UNPROCESSABLE, "%s%s%s", c->setup_error, said ? ": " : "",
                       said ? said : "");
}
