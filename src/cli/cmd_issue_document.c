/* `berth issue document`. */
#include <fcntl.h>

#include "base/fd.h"
#include "cli/cmd_issue.h"

#define DOCUMENT_MAX ((size_t)4 << 20)

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
        r = cli_fill(c, a, MEMBERS({ "title", "title" }, { "baseRevisionId", "base" }), body, err);
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

static const struct cli_action list_documents = {
        &kind_issue,
        "GET",
        "/documents",
        .columns = FIELDS({ "KEY", "key" }, { "REVISION", "latestRevisionNumber" },
                          { "UPDATED", "updatedAt", COLUMN_TIME }, { "TITLE", "title" }),
        .none = "no documents",
};

int cmd_issue_document(struct cli *c, const struct args *a, struct err *err)
{
        const char *path;
        json_t *document;
        int r;

        if (a->n_words < 2)
                return cli_act(c, a, &list_documents, err);
        path = cli_printf(c, "%s/%s", issue_path(c, a->words[0], "/documents"),
                          cli_escape(c, a->words[1]));
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
