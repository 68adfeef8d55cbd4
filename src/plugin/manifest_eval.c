/* A manifest is a program. It is run by node in a process that has a scratch directory, the package
 * to read and nothing else, for a few seconds; its output is noise, except for one line that begins
 * with a number it cannot have known when it was written. It may forge that line, and gains what it
 * could have exported anyway. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "base/fd.h"
#include "base/path.h"
#include "base/uuid.h"
#include "plugin/files.h"
#include "plugin/package.h"
#include "rt/tool.h"

#define NOISE_MAX  ((size_t)1 << 20)
#define ERRORS_MAX 2000
#define MARK_BYTES 16

/* %s: the file and the mark, as JSON. JSON.stringify and the rest are taken before the module can
 * change them. */
static const char script[] =
        "import { writeSync } from 'node:fs';\n"
        "import { pathToFileURL } from 'node:url';\n"
        "const file = %s, mark = %s, print = JSON.stringify, exit = process.exit;\n"
        "let answer;\n"
        "try {\n"
        "  const m = await import(pathToFileURL(file).href);\n"
        "  answer = print({ manifest: m.default ?? m });\n"
        "} catch (e) {\n"
        "  answer = print({ error: String(e?.message ?? e).slice(0, 2000) });\n"
        "}\n"
        "let bytes = Buffer.from('\\n' + mark + answer + '\\n');\n"
        "while (bytes.length) bytes = bytes.subarray(writeSync(1, bytes));\n"
        "exit(0);\n";

struct eval {
        struct op *op;
        const struct plugin_tools *tools;
        const char *dir, *script; /* the scratch directory and the script in it */
        const char *copies;       /* of files that its user may not read */
        const char *mark;
        struct buf errors; /* the last lines of standard error */
};

static const char *quoted(struct arena *a, const char *text)
{
        CLEAN(json_decrefp) json_t *v = json_string(text);

        return v ? json_to_arena(a, v) : "\"\"";
}

static int write_script(struct eval *e, const char *file, struct err *err)
{
        struct arena *a = e->op->arena;
        struct uuid id = uuid_new();
        char mark[2 * MARK_BYTES + 1];
        const char *text;
        int r;

        random_hex(mark, MARK_BYTES);
        e->mark = arena_strdup(a, mark);
        e->dir = arena_printf(a, "%s/manifest-%s", e->tools->scratch_dir, id.s);
        e->script = arena_printf(a, "%s/eval.mjs", e->dir);
        e->copies = arena_printf(a, "%s.copies", e->dir);
        text = arena_printf(a, script, quoted(a, file), quoted(a, mark));
        r = path_make_dirs(e->dir, 0700, err);
        if (r >= 0)
                r = file_write_at(AT_FDCWD, e->script, text, strlen(text), 0600, err);
        return r;
}

static void keep_error(void *ctx, const char *line)
{
        struct eval *e = ctx;

        buf_appendf(&e->errors, "%s%s", e->errors.len ? "\n" : "", line);
        if (e->errors.len > ERRORS_MAX)
                buf_consume(&e->errors, e->errors.len - ERRORS_MAX);
}

/* The answer is after the last mark at the beginning of a line. */
static const char *find_answer(const struct eval *e, const struct buf *out, size_t *ret_len)
{
        const char *at = buf_str(out), *found = NULL;
        size_t len = strlen(e->mark);

        /* The output may hold NULs; the answer is behind them. */
        for (const char *end = at + out->len; at < end;) {
                const char *line_end = memchr(at, '\n', (size_t)(end - at));
                size_t n = (size_t)((line_end ? line_end : end) - at);

                if (line_end && n > len && memcmp(at, e->mark, len) == 0) {
                        found = at + len;
                        *ret_len = n - len;
                }
                at += n + 1;
        }
        return found;
}

static int read_answer(struct eval *e, const struct buf *out, const struct proc_status *status,
                       json_t **ret, struct err *err)
{
        CLEAN(json_decrefp) json_t *answer = NULL;
        size_t len = 0;
        const char *text = find_answer(e, out, &len);
        json_t *manifest;

        if (!text && e->errors.len > 0)
                return err_set(err, ERR_INVALID, "%s", buf_str(&e->errors));
        if (!text)
                return err_set(err, ERR_INVALID, "node ended without an answer (%s %d)",
                               status->signal ? "signal" : "status",
                               status->signal ? status->signal : status->exit_code);
        if (len > MANIFEST_MAX_BYTES)
                return err_set(err, ERR_INVALID, "the manifest is larger than %zu bytes",
                               MANIFEST_MAX_BYTES);
        if (json_parse(text, len, &answer, err) < 0)
                return err_wrap(err, ERR_INVALID, "the manifest is not plain data");
        if (json_get_string(answer, "error"))
                return err_set(err, ERR_INVALID, "%s", json_get_string(answer, "error"));
        manifest = json_object_get(answer, "manifest");
        if (!manifest)
                return err_set(err, ERR_INVALID, "the module exports nothing that is data");
        *ret = json_incref(manifest);
        return 0;
}

/* The real path of node, for the trampoline, which looks nothing up. */
static const char *find_program(struct arena *a, const char *name)
{
        char real[PATH_MAX];
        const char *path = getenv("PATH");

        if (strchr(name, '/'))
                return realpath(name, real) ? arena_strdup(a, real) : NULL;
        while (path && *path) {
                size_t n = strcspn(path, ":");

                if (realpath(arena_printf(a, "%.*s/%s", (int)n, path, name), real) &&
                    access(real, X_OK) == 0)
                        return arena_strdup(a, real);
                path += n + (path[n] == ':');
        }
        return NULL;
}

static int run_node(struct eval *e, const char *const *reads, struct buf *out,
                    struct proc_status *ret, struct err *err)
{
        static const char *const env[] = { "NODE_ENV=production", "TZ=UTC",
                                           "NODE_OPTIONS=--max-old-space-size=256", NULL };
        const char *node = find_program(e->op->arena, e->tools->node);
        struct confine_policy *policy = e->tools->policy;
        const char *const argv[] = { "node", e->script, NULL };
        struct confinement c = {
                .program = node, .entry = e->script, .private_dir = e->dir, .offline = true
        };
        struct tool tool = {
                .path = policy ? policy->trampoline : node,
                .argv = argv,
                .env = env,
                .cwd = e->dir,
                .limit_ms = e->tools->manifest_ms,
                .out = out,
                .line = keep_error,
                .ctx = e,
        };
        int r = 0;

        if (!node)
                return err_set(err, ERR_INVALID,
                               "%s was not found; install node, or name it with the setting node",
                               e->tools->node);
        if (policy) {
                r = files_own_dir(e->op, policy, e->dir, e->dir, &c.uid, err);
                if (r >= 0)
                        r = files_for_reading(e->op, policy, c.uid, reads, e->copies, e->op->arena,
                                              &c.reads, err);
                if (r < 0)
                        return r;
                tool.argv = confine_argv(policy, &c, NULL, e->op->arena);
        }
        r = tool_run(e->op, &tool, ret, err);
        return r == ERR_TIMEOUT || r == ERR_TOO_LARGE ? ERR_INVALID : r;
}

static int eval_module(struct eval *e, const char *const *reads, const char *file, json_t **ret,
                       struct err *err)
{
        CLEAN(buf_done) struct buf out;
        struct proc_status status = { 0 };
        int r = write_script(e, file, err);

        buf_init(&out, MANIFEST_MAX_BYTES + NOISE_MAX);
        if (r >= 0)
                r = run_node(e, reads, &out, &status, err);
        if (r >= 0)
                r = read_answer(e, &out, &status, ret, err);
        return r;
}

static int read_json(const char *file, json_t **ret, struct err *err)
{
        CLEAN(buf_done) struct buf text = BUF_INIT;
        int r = file_read_at(AT_FDCWD, file, MANIFEST_MAX_BYTES, &text, err);

        if (r >= 0)
                r = json_parse(buf_str(&text), text.len, ret, err);
        return r < 0 ? ERR_INVALID : r;
}

static bool ends_with(const char *s, const char *end)
{
        size_t n = strlen(s), m = strlen(end);

        return n >= m && streq(s + n - m, end);
}

int manifest_eval(struct op *op, const struct plugin_tools *tools, const char *const *reads,
                  const char *file, json_t **ret, struct err *err)
{
        struct eval e = { .op = op, .tools = tools };
        struct op shield;
        int r;

        if (ends_with(file, ".json"))
                return read_json(file, ret, err);
        r = eval_module(&e, reads, file, ret, err);
        shield = op_shield(op, 10000);
        if (e.dir) {
                (void)tree_remove(&shield, e.dir, NULL);
                (void)tree_remove(&shield, e.copies, NULL);
        }
        buf_done(&e.errors);
        return r;
}
