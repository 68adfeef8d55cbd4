/* Reads the refs of the host's repository, and decides which of them may be written. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "workspace/git_internal.h"

static const char zero[] = "0000000000000000000000000000000000000000";

/* One line of output, in the arena; "" when it failed. */
static int ask_git(struct git_import *g, const char *const *args, const char **ret, struct err *err)
{
        CLEAN(buf_done) struct buf out = BUF_INIT;
        const char *said, *text;
        int status;
        int r = git_run(g, &(struct git_run){ .args = args, .on_host = true }, &out, &status, &said,
                        err);

        if (r < 0)
                return r;
        text = status == 0 ? buf_str(&out) : "";
        *ret = arena_strndup(g->op->arena, text, strcspn(text, "\n"));
        return 0;
}

int git_host_refs(struct git_import *g, struct err *err)
{
        static const char *const list[] = { "for-each-ref", "--format=%(objectname) %(refname)",
                                            NULL };
        static const char *const head[] = { "rev-parse", "-q", "--verify", "HEAD^{commit}", NULL };
        static const char *const branch[] = { "symbolic-ref", "-q", "HEAD", NULL };
        const char *said, *commit, *name;
        int status, r;

        buf_clear(&g->host_refs);
        r = git_run(g, &(struct git_run){ .args = list, .on_host = true }, &g->host_refs, &status,
                    &said, err);
        if (r < 0)
                return r;
        if (status != 0)
                return err_set(err, ERR_PROVIDER, "git for-each-ref: %s", said);
        r = ask_git(g, head, &commit, err);
        if (r >= 0)
                r = ask_git(g, branch, &name, err);
        if (r < 0)
                return r;
        if (*commit)
                buf_appendf(&g->host_refs, "%s HEAD\n", commit);
        g->host_branch = *name ? name : NULL;
        return 0;
}

void git_host_ref(const struct git_import *g, const char *name, char ret[GIT_HEX + 1])
{
        const char *line = buf_str(&g->host_refs), *end = line + g->host_refs.len, *next;
        size_t n = strlen(name);

        ret[0] = '\0';
        for (; line < end; line = next + 1) {
                next = memchr(line, '\n', (size_t)(end - line));
                if (!next)
                        return;
                if ((size_t)(next - line) == GIT_HEX + 1 + n &&
                    memcmp(line + GIT_HEX + 1, name, n) == 0) {
                        memcpy(ret, line, GIT_HEX);
                        ret[GIT_HEX] = '\0';
                        return;
                }
        }
}

/* Another user who owns a part of a repository could replace it by a link while git works on it
 * with our rights. */
static bool is_own(const struct git_import *g, const struct stat *st)
{
        return g->owner.uid || st->st_uid == geteuid() || st->st_uid == 0;
}

bool git_is_own_dir(const struct git_import *g, const char *name)
{
        struct stat st;

        return fstatat(g->host_fd, name, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
               is_own(g, &st);
}

/* Whether all that is there of a path beneath the host's `.git` are directories, and at its end a
 * file: git follows links. */
static bool is_plain(const struct git_import *g, const char *folder, const char *name)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s%s", folder, name);

        for (size_t i = 0;; i++) {
                char saved = path[i];
                struct stat st;

                if (saved != '/' && saved != '\0')
                        continue;
                path[i] = '\0';
                if (fstatat(g->host_fd, path, &st, AT_SYMLINK_NOFOLLOW) < 0)
                        return errno == ENOENT || errno == ENOTDIR;
                if (!is_own(g, &st) || (!S_ISDIR(st.st_mode) && (saved || !S_ISREG(st.st_mode))))
                        return false;
                if (!saved)
                        return true;
                path[i] = saved;
        }
}

bool git_is_readable(const struct git_import *g)
{
        static const char *const names[] = { "HEAD", "config", "packed-refs", "shallow",
                                             "objects/info/alternates" };

        for (size_t i = 0; i < ARRAY_LEN(names); i++)
                if (!is_plain(g, "", names[i]))
                        return false;
        return true;
}

bool git_may_write(const struct git_import *g, const char *ref)
{
        return is_plain(g, "", ref) && is_plain(g, "logs/", ref) && is_plain(g, "logs/", "HEAD");
}

int git_swap(struct git_import *g, const char *ref, const char *to, const char *from,
             const char **ret_said, struct err *err)
{
        const char *const args[] = { "update-ref",          "--no-deref", "-m",
                                     "berth: brought home", ref,          to,
                                     *from ? from : zero,   NULL };
        int status, r;

        if (!git_may_write(g, ref)) {
                *ret_said = "a link, or something of another user's, is in its way";
                return 0;
        }
        r = git_run(g, &(struct git_run){ .args = args, .on_host = true }, NULL, &status, ret_said,
                    err);
        return r < 0 ? r : status == 0;
}

int git_is_ancestor(struct git_import *g, const char *a, const char *b, bool *ret, struct err *err)
{
        const char *const args[] = { "merge-base", "--is-ancestor", a, b, NULL };
        const char *said;
        int status;
        int r = git_run(g, &(struct git_run){ .args = args }, NULL, &status, &said, err);

        if (r < 0)
                return r;
        if (status != 0 && status != 1)
                return err_set(err, ERR_PROVIDER, "git merge-base: %s", said);
        *ret = status == 0;
        return 0;
}

int git_is_new(struct git_import *g, const char *oid, bool *ret, struct err *err)
{
        static const char *const args[] = { "rev-list", "--max-count=1", "--stdin", NULL };
        CLEAN(buf_done) struct buf revs = BUF_INIT;
        CLEAN(buf_done) struct buf out = BUF_INIT;
        const char *line = buf_str(&g->host_refs), *said;
        int status, r;

        buf_appendf(&revs, "%s\n", oid);
        for (; *line; line += strcspn(line, "\n") + 1)
                buf_appendf(&revs, "^%.*s\n", GIT_HEX, line);
        r = git_run(g, &(struct git_run){ .args = args, .input = buf_str(&revs) }, &out, &status,
                    &said, err);
        if (r < 0)
                return r;
        if (status != 0)
                return err_set(err, ERR_PROVIDER, "git rev-list: %s", said);
        *ret = out.len > 0;
        return 0;
}
