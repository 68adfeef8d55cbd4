/* `berth runs logs`: what a run said. Pages of the log are asked for one after the other; where it
 * ends for now, we ask again, less often the longer nothing comes. */
#include <poll.h>
#include <stdio.h>
#include <unistd.h>

#include "base/clock.h"
#include "cli/cmd_runs.h"
#include "cli/output.h"

#define PAGE_BYTES 262144
#define PAUSE_MS   50
#define PAUSE_MAX  500
#define OUTAGE_MAX (60 * 1000) /* a daemon that is gone for longer is gone */

struct tail {
        struct cli *c;
        const char *run_id;
        int64_t offset;
        bool follow, over, news;
        int64_t unreachable_since; /* 0: it answers */
        char status[32];           /* of the run */
};

/* -- Printing --------------------------------------------------------------------------------- */

/* As it is in a pipe; on a terminal nothing that steers it. */
static void put_text(FILE *f, const char *text, size_t n)
{
        bool plain = !isatty(fileno(f));

        for (size_t i = 0; i < n; i++) {
                unsigned char ch = (unsigned char)text[i];

                if (plain || ch == '\n' || ch == '\t' || (ch >= 0x20 && ch != 0x7f))
                        (void)putc_unlocked(ch, f);
        }
}

static void put_record(const char *line, size_t n)
{
        json_t *record = NULL, *chunk;
        const char *stream;

        if (json_parse_lenient(line, n, &record, NULL) < 0)
                return;
        stream = json_get_string(record, "stream");
        chunk = json_object_get(record, "chunk");
        if (stream && json_is_string(chunk)) {
                FILE *f = streq(stream, "stdout") ? stdout : stderr;
                const char *text = json_string_value(chunk);
                size_t len = json_string_length(chunk);

                put_text(f, text, len);
                if (streq(stream, "system") && len > 0 && text[len - 1] != '\n')
                        (void)putc_unlocked('\n', f);
                (void)fflush(f);
        }
        json_decref(record);
}

static void put_page(struct tail *t, const json_t *page)
{
        const json_t *content = json_object_get(page, "content");
        const char *at = json_string_value(content);
        size_t left = json_string_length(content);

        if (t->c->json) {
                (void)fwrite(at, 1, left, stdout);
                (void)fflush(stdout);
                return;
        }
        while (left > 0) {
                const char *end = memchr(at, '\n', left);
                size_t n = end ? (size_t)(end - at) : left;

                put_record(at, n);
                n += end != NULL;
                at += n;
                left -= n;
        }
}

/* -- Asking ----------------------------------------------------------------------------------- */

static int ask_status(struct tail *t, struct err *err)
{
        json_t *run;
        int r = cli_call(t->c, "GET", cli_printf(t->c, "/api/heartbeat-runs/%s", t->run_id), NULL,
                         &run, err);

        if (r >= 0) {
                snprintf(t->status, sizeof(t->status), "%s", cli_text(run, "status"));
                t->over =
                        *cli_text(run, "finishedAt") && (streq(cli_text(run, "step"), "done") ||
                                                         streq(cli_text(run, "step"), "releasing"));
        }
        return r;
}

/* A page, or the end. Before a run begins there is no log; one that never began has none. */
static int ask(struct tail *t, struct err *err)
{
        json_t *page;
        bool over;
        int r = ask_status(t, err);

        if (r < 0)
                return r;
        over = t->over;
        t->over = false;
        r = cli_call(t->c, "GET",
                     cli_printf(t->c, "/api/heartbeat-runs/%s/log?offset=%lld&limitBytes=%d",
                                t->run_id, (long long)t->offset, PAGE_BYTES),
                     NULL, &page, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                t->over = over || !t->follow;
                return 0;
        }
        if (r < 0)
                return r;
        put_page(t, page);
        t->news = json_string_length(json_object_get(page, "content")) > 0;
        if (json_object_get(page, "nextOffset"))
                t->offset = json_integer_value(json_object_get(page, "nextOffset"));
        t->over = json_is_true(json_object_get(page, "eof")) || (!t->follow && !t->news);
        return 0;
}

/* Nobody there, an answer that broke off, or a daemon that is stopping: not a refusal. */
static bool is_outage(int code)
{
        return code == ERR_UNREACHABLE || code == ERR_UNCERTAIN || code == ERR_IO ||
               code == ERR_BUSY || code == ERR_PROVIDER || code == ERR_TIMEOUT;
}

/* One that is being restarted comes back. */
static int bear(struct tail *t, int code, struct err *err)
{
        int64_t now = clock_mono_ms();

        if (!is_outage(code) || !t->follow)
                return code;
        if (!t->unreachable_since)
                t->unreachable_since = now;
        if (now - t->unreachable_since > OUTAGE_MAX)
                return code;
        err_clear(err);
        return 0;
}

/* What one round took of memory goes with it: following may take days. */
static int round_of(struct tail *t, struct err *err)
{
        struct arena kept = t->c->arena;
        int r;

        arena_init(&t->c->arena);
        t->news = false;
        r = ask(t, err);
        arena_done(&t->c->arena);
        t->c->arena = kept;
        if (r < 0)
                return bear(t, r, err);
        t->unreachable_since = 0;
        return 0;
}

int runs_print_log(struct cli *c, const char *run_id, bool follow, const char **ret_status,
                   struct err *err)
{
        struct tail t = { .c = c, .run_id = run_id, .follow = follow };
        struct berth *api;
        int pause = PAUSE_MS;
        int r = cli_connect(c, &api, err); /* what it keeps is not the round's */

        while (r >= 0 && !t.over) {
                r = round_of(&t, err);
                if (r < 0 || t.over)
                        break;
                pause = t.news ? PAUSE_MS : MIN(2 * pause, PAUSE_MAX);
                if (!t.news)
                        (void)poll(NULL, 0, pause);
        }
        if (r >= 0 && ret_status)
                *ret_status = cli_printf(c, "%s", t.status);
        return r;
}

int runs_exit_status(const char *run_status)
{
        return streq(run_status, "succeeded") ? 0 : 1;
}

/* -- The command ------------------------------------------------------------------------------ */

static int run_logs(struct cli *c, const struct args *a, struct err *err)
{
        bool follow = args_flag(a, "follow");
        const char *status;
        json_t *run;
        int r = cli_run(c, a->words[0], &run, err);

        if (r >= 0)
                r = runs_print_log(c, cli_text(run, "id"), follow, &status, err);
        if (r < 0 || !follow)
                return r < 0 ? r : 0;
        if (!c->json)
                out_note("run %s %s", cli_text(run, "id"), status);
        return runs_exit_status(status);
}

static const struct cli_option logs_options[] = {
        { "follow", 'f', OPTION_FLAG, NULL, "until the run is over" },
        { 0 },
};

const struct cli_command cmd_runs_logs = {
        .name = "logs",
        .synopsis = "[-f] RUN",
        .summary = "Print what a run said",
        .notes =
                "What the agent wrote to standard error, and what Berth says, goes to standard\n"
                "error. With -f the exit status is 0 when the run succeeded and 1 when it did not.\n"
                "With --json the records are printed as they are stored.",
        .example = "berth runs logs -f 4f2a",
        .options = logs_options,
        .run = run_logs,
        .min_words = 1,
        .max_words = 1,
};
