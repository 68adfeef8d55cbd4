#define _GNU_SOURCE
#include "workspace/change_diff.h"

#include <errno.h>

#include "base/fd.h"
#include "workspace/content.h"
#include "workspace/scan.h"
#include "workspace/textdiff.h"

#define MODE_FILE 0100000u
#define MODE_LINK 0120000u

struct side {
        bool is_there; /* as a file or a link */
        uint32_t mode; /* as git writes it */
        struct buf content;
};

static void side_done(struct side *s)
{
        buf_done(&s->content);
}

/* As much as can be shown; more is no text. */
static int read_content(struct op *op, int fd, struct side *s, struct err *err)
{
        char block[16384];
        ssize_t n;

        while (s->content.len <= TEXTDIFF_MAX_BYTES) {
                int r = op_check(op, err);

                if (r < 0)
                        return r;
                n = read(fd, block, sizeof(block));
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read");
                if (n == 0)
                        break;
                buf_append(&s->content, block, (size_t)n);
        }
        return 0;
}

static struct textdiff_side text_of(const struct side *s)
{
        return (struct textdiff_side){ buf_str(&s->content), s->content.len };
}

static void set_link(struct side *s, const char *target)
{
        s->is_there = true;
        s->mode = MODE_LINK;
        buf_puts(&s->content, target);
}

static void set_file(struct side *s, uint32_t mode)
{
        s->is_there = true;
        s->mode = MODE_FILE | (mode & 0100 ? 0755u : 0644u); /* git knows no other */
}

static int read_theirs(struct op *op, struct change_set *set, const struct change *c,
                       struct side *ret, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        int r;

        if (c->is_delete || c->now.kind == TREE_DIR)
                return 0;
        if (c->now.kind == TREE_LINK) {
                set_link(ret, c->now.target);
                return 0;
        }
        set_file(ret, c->now.mode);
        r = set->open(set, c, &fd, err);
        return r < 0 ? r : read_content(op, fd, ret, err);
}

static int read_ours(struct op *op, int workspace, const char *path, struct side *ret,
                     struct err *err)
{
        char target[TREE_MAX_TARGET + 1];
        CLEAN(cleanup_fd) int fd = -1;
        struct tree_entry e;
        int r = scan_one(workspace, path, false, &e, target, err);

        if (r <= 0)
                return r;
        if (e.kind == TREE_LINK)
                set_link(ret, target);
        if (e.kind != TREE_FILE)
                return 0;
        r = content_open(workspace, path, &fd, err);
        if (r == ERR_NOT_FOUND || r == ERR_FORBIDDEN || r == ERR_UNPROCESSABLE || r == ERR_CONFLICT)
                return 0; /* not any more */
        if (r < 0)
                return r;
        set_file(ret, e.mode);
        return read_content(op, fd, ret, err);
}

/* Names as git quotes them. */

static bool is_plain(unsigned char c)
{
        return c >= 0x20 && c < 0x7f && c != '"' && c != '\\';
}

static void put_name(struct buf *out, const char *prefix, const char *path)
{
        bool quoted = false;

        for (const char *p = path; *p; p++)
                quoted = quoted || !is_plain((unsigned char)*p);
        if (quoted)
                buf_putc(out, '"');
        buf_puts(out, prefix);
        for (const char *p = path; *p; p++) {
                if (*p == '"' || *p == '\\')
                        buf_appendf(out, "\\%c", *p);
                else if (is_plain((unsigned char)*p))
                        buf_putc(out, *p);
                else
                        buf_appendf(out, "\\%03o", (unsigned char)*p);
        }
        if (quoted)
                buf_putc(out, '"');
}

static void put_head(struct buf *out, const char *path, const struct side *ours,
                     const struct side *theirs)
{
        buf_puts(out, "diff --git ");
        put_name(out, "a/", path);
        buf_putc(out, ' ');
        put_name(out, "b/", path);
        buf_putc(out, '\n');
        if (!ours->is_there)
                buf_appendf(out, "new file mode %06o\n", theirs->mode);
        else if (!theirs->is_there)
                buf_appendf(out, "deleted file mode %06o\n", ours->mode);
        else if (ours->mode != theirs->mode)
                buf_appendf(out, "old mode %06o\nnew mode %06o\n", ours->mode, theirs->mode);
}

static void put_side(struct buf *out, const char *sign, const char *prefix, const char *path,
                     bool is_there)
{
        buf_puts(out, sign);
        if (is_there)
                put_name(out, prefix, path);
        else
                buf_puts(out, "/dev/null");
        /* A name with a space ends with a tab, or patch would take it for a time. */
        if (is_there && strchr(path, ' '))
                buf_putc(out, '\t');
        buf_putc(out, '\n');
}

static bool is_same_content(const struct side *a, const struct side *b)
{
        return a->content.len == b->content.len &&
               (a->content.len == 0 ||
                memcmp(a->content.data, b->content.data, a->content.len) == 0);
}

static void put_binary(struct buf *out, const char *path, const struct side *ours,
                       const struct side *theirs)
{
        buf_puts(out, "Binary files ");
        if (ours->is_there)
                put_name(out, "a/", path);
        else
                buf_puts(out, "/dev/null");
        buf_puts(out, " and ");
        if (theirs->is_there)
                put_name(out, "b/", path);
        else
                buf_puts(out, "/dev/null");
        buf_puts(out, " differ\n");
}

static void put_content(struct buf *out, const char *path, const struct side *ours,
                        const struct side *theirs)
{
        struct textdiff_side was = text_of(ours), now = text_of(theirs);

        if (!textdiff_is_text(&was) || !textdiff_is_text(&now)) {
                put_binary(out, path, ours, theirs);
                return;
        }
        if (is_same_content(ours, theirs))
                return;
        put_side(out, "--- ", "a/", path, ours->is_there);
        put_side(out, "+++ ", "b/", path, theirs->is_there);
        (void)textdiff(&was, &now, out);
}

/* What cannot be read whole may differ behind what was read. */
static bool is_same(const struct side *a, const struct side *b)
{
        if (a->is_there != b->is_there || !a->is_there)
                return a->is_there == b->is_there;
        return a->mode == b->mode && a->content.len <= TEXTDIFF_MAX_BYTES && is_same_content(a, b);
}

int change_diff(struct op *op, struct change_set *set, const struct change *c, int workspace_fd,
                struct buf *out, struct err *err)
{
        CLEAN(side_done) struct side ours = { 0 }, theirs = { 0 };
        int r = read_theirs(op, set, c, &theirs, err);

        if (r >= 0)
                r = read_ours(op, workspace_fd, c->now.path, &ours, err);
        if (r < 0)
                return err_wrap(err, r, "%s", c->now.path);
        if (is_same(&ours, &theirs))
                return 0;
        if (ours.is_there && theirs.is_there &&
            (ours.mode ^ theirs.mode) & (MODE_FILE ^ MODE_LINK)) {
                /* A kind cannot be changed in this format: one goes, the other comes. */
                struct side none = { 0 };

                put_head(out, c->now.path, &ours, &none);
                put_content(out, c->now.path, &ours, &none);
                put_head(out, c->now.path, &none, &theirs);
                put_content(out, c->now.path, &none, &theirs);
                return 1;
        }
        put_head(out, c->now.path, &ours, &theirs);
        put_content(out, c->now.path, &ours, &theirs);
        return buf_failed(out) ? err_set(err, ERR_TOO_LARGE, "the difference is too long") : 1;
}
