/* `berth issue comment|comments|document`. */
#include <fcntl.h>

#include "base/fd.h"
#include "cli/cmd_issue.h"

#define DOCUMENT_MAX ((size_t)4 << 20)

/* -- Comments --------------------------------------------------------------------------------- */

static void print_comment(struct cli *c, const json_t *comment)
{
        const char *author = cli_text(comment, "authorAgentId");

        out_line("%s %s", cli_text(comment, "createdAt"),
                 *author ? cli_printf(c, "agent %s", cli_named(c, "/api/agents", author))
                         : cli_printf(c, "user %s", cli_text(comment, "authorUserId")));
        text_print("  ", cli_text(comment, "body"));
}

static int run_comments(struct cli *c, const struct args *a, struct err *err)
{
        json_t *list, *item;
        size_t i;
        int r = cli_call_list(c, issue_path(c, a->words[0], "/comments?order=asc"), &list, err);

        if (r < 0)
                return r;
        if (c->json) {
                out_json(list);
                return 0;
        }
        json_array_foreach(list, i, item) print_comment(c, item);
        if (json_array_size(list) == 0)
                out_line("no comments");
        return 0;
}

static int run_comment(struct cli *c, const struct args *a, struct err *err)
{
        json_t *comment, *body = cli_keep(c, json_object());
        int r = body_set(body, "body", a->words[1], err);

        if (args_flag(a, "reopen"))
                json_object_set_new(body, "reopen", json_true());
        if (r >= 0)
                r = cli_call(c, "POST", issue_path(c, a->words[0], "/comments"), json_incref(body),
                             &comment, err);
        if (r < 0)
                return r;
        if (c->json)
                out_json(comment);
        else
                print_comment(c, comment);
        return 0;
}

/* -- Documents -------------------------------------------------------------------------------- */

static int read_document(const char *path, json_t **ret, struct err *err)
{
        CLEAN(buf_done) struct buf b = BUF_INIT;
        int r = file_read_at(AT_FDCWD, streq(path, "-") ? "/dev/stdin" : path, DOCUMENT_MAX, &b,
                             err);

        if (r < 0)
                return r;
        *ret = json_stringn(buf_str(&b), b.len);
        return *ret ? 0 : err_set(err, ERR_USAGE, "%s is not UTF-8 text", path);
}

static int put_document(struct cli *c, const struct args *a, const char *path, struct err *err)
{
        json_t *body = cli_keep(c, json_pack("{s:s}", "format", "markdown")), *text, *document;
        int r = read_document(args_value(a, "file"), &text, err);

        if (r < 0)
                return r;
        json_object_set_new(body, "body", text);
        r = body_set(body, "title", args_value(a, "title"), err);
        if (r >= 0)
                r = body_set(body, "baseRevisionId", args_value(a, "base"), err);
        if (r >= 0)
                r = cli_call(c, "PUT", path, json_incref(body), &document, err);
        if (r < 0)
                return r;
        if (c->json)
                out_json(document);
        else
                out_line("revision %lld, %s",
                         (long long)json_integer_value(
                                 json_object_get(document, "latestRevisionNumber")),
                         cli_text(document, "latestRevisionId"));
        return 0;
}

static int run_document(struct cli *c, const struct args *a, struct err *err)
{
        static const struct field columns[] = {
                { "KEY", COLUMN_TEXT, "key" },
                { "REVISION", COLUMN_TEXT, "latestRevisionNumber" },
                { "UPDATED", COLUMN_TIME, "updatedAt" },
                { "TITLE", COLUMN_TEXT, "title" },
        };
        const char *all = issue_path(c, a->words[0], "/documents"), *path;
        json_t *document;
        int r;

        if (a->n_words < 2)
                return list_print(c, all, columns, ARRAY_LEN(columns), "no documents", err);
        path = cli_printf(c, "%s/%s", all, cli_escape(c, a->words[1]));
        if (args_value(a, "file"))
                return put_document(c, a, path, err);
        r = cli_call(c, "GET", path, NULL, &document, err);
        if (r < 0)
                return r;
        if (c->json)
                out_json(document);
        else
                text_print("", cli_text(document, "body"));
        return 0;
}

static const struct cli_option comment_options[] = {
        { "reopen", 0, OPTION_FLAG, NULL, "to do again, when it was done or cancelled" },
        { 0 },
};

static const struct cli_option document_options[] = {
        { "file", 0, OPTION_VALUE, "FILE", "write what is in this file (- is standard input)" },
        { "title", 0, OPTION_VALUE, "TEXT", "with --file: its title" },
        { "base", 0, OPTION_VALUE, "REVISION", "with --file: only if this is the newest" },
        { 0 },
};

const struct cli_command cmd_issue_comment = {
        .name = "comment",
        .synopsis = "ISSUE TEXT [--reopen]",
        .summary = "Say something about an issue",
        .example = "berth issue comment ACM-1 'see the log'",
        .options = comment_options,
        .run = run_comment,
        .min_words = 2,
        .max_words = 2,
};

const struct cli_command cmd_issue_comments = {
        .name = "comments",
        .synopsis = "ISSUE",
        .summary = "Show what was said about an issue, oldest first",
        .example = "berth issue comments ACM-1",
        .run = run_comments,
        .min_words = 1,
        .max_words = 1,
};

const struct cli_command cmd_issue_document = {
        .name = "document",
        .synopsis = "ISSUE [KEY] [--file FILE [--title TEXT] [--base REVISION]]",
        .summary = "List the documents of an issue, print one, or write one",
        .notes = "A KEY is made of a-z, 0-9, - and _. Older revisions are kept.",
        .example = "berth issue document ACM-1 plan",
        .options = document_options,
        .run = run_document,
        .min_words = 1,
        .max_words = 2,
};
