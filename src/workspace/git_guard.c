/* Which directories of a workspace git takes for a repository, and what must not come into them.
 *
 * git takes a directory for a repository when it has `HEAD` and either `objects` and `refs` or
 * `commondir`, whatever its name is: whoever runs git in it, or anywhere beneath it, runs what its
 * configuration says. So the merge keeps two things apart: what makes a directory a repository (a
 * mark), and what makes git run a program (a danger).
 *
 *   - A danger does not come into a directory that has a HEAD, on the host or from the place. In
 * the order of the paths HEAD comes before `config`, so a bare repository that was made in a place
 *     comes home whole but for its dangers.
 *   - A mark does not come when it would complete a repository in which there is a danger already:
 *     one that was on the host, that an earlier restore brought when it was none, or that came
 *     before HEAD because it is spelled otherwise.
 *   - In a directory called `.git` nothing dangerous comes in any case.
 *
 * What a change deletes is taken to be there still. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "workspace/git_internal.h"

enum {
        HAS_HEAD = 1,        /* with this very name */
        HAS_HEAD_FOLDED = 2, /* with one that some file systems take for it */
        HAS_OBJECTS = 4,
        HAS_REFS = 8,
        HAS_COMMONDIR = 16,
        HAS_DANGER = 32,
        LOOKED = 64, /* what the host has is among them */
};

static const char *const dangers[] = {
        "config",
        "config.worktree",
        "hooks",
        "remotes", /* where fetch and push go, when the configuration does not say */
        "branches",
        "commondir",
        "gitdir",
        "worktrees",
        "modules",
        "info/attributes",
        "info/grafts",
        "refs/replace",
        "objects/info/alternates",
        "objects/info/http-alternates",
        /* What they list is run by `git rebase --continue` and its like. */
        "rebase-merge",
        "rebase-apply",
        "sequencer",
};

/* Names of git's own: behind a link there, git would read and write elsewhere. */
static const char *const own_names[] = { "head", "objects", "refs",        "logs",
                                         "info", "index",   "packed-refs", "shallow" };

static size_t part_len(const char *path)
{
        return strcspn(path, "/");
}

/* Part by part, in any spelling. */
static bool is_or_in(const char *path, const char *name)
{
        for (;;) {
                size_t n = part_len(name), len = part_len(path);
                char part[32];

                memcpy(part, name, n);
                part[n] = '\0';
                if (!git_part_is(path, len, part))
                        return false;
                if (name[n] == '\0')
                        return true;
                if (path[len] == '\0')
                        return false;
                name += n + 1;
                path += len + 1;
        }
}

bool git_is_dangerous(const char *inside)
{
        for (size_t i = 0; i < ARRAY_LEN(dangers); i++)
                if (is_or_in(inside, dangers[i]))
                        return true;
        return false;
}

static bool is_repository(unsigned has)
{
        return (has & (HAS_HEAD | HAS_HEAD_FOLDED)) &&
               ((has & HAS_COMMONDIR) || ((has & HAS_OBJECTS) && (has & HAS_REFS)));
}

/* What a change in a directory brings to it; `rest` is its path from there on. A HEAD that is a
 * directory is none. */
static unsigned marks_of(const struct change *c, const char *rest)
{
        size_t len = part_len(rest);

        if (git_part_is(rest, len, "head") && rest[len] == '\0' && c->now.kind != TREE_DIR)
                return len == 4 && memcmp(rest, "HEAD", 4) == 0 ? HAS_HEAD : HAS_HEAD_FOLDED;
        if (git_part_is(rest, len, "objects"))
                return HAS_OBJECTS;
        if (git_part_is(rest, len, "refs"))
                return HAS_REFS;
        return git_part_is(rest, len, "commondir") ? HAS_COMMONDIR : 0;
}

/* The host's side */

static int open_dir(const struct git_guard *g, const char *path, const char *rest)
{
        char dir[TREE_MAX_PATH + 1];
        int fd = -1;

        if (rest == path)
                return openat(g->root, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
        memcpy(dir, path, (size_t)(rest - path - 1));
        dir[rest - path - 1] = '\0';
        return path_open_plain(g->root, dir, O_PATH | O_DIRECTORY, 0, &fd, NULL) < 0 ? -1 : fd;
}

static unsigned look(struct git_guard *g, size_t depth, const char *path, const char *rest)
{
        static const struct {
                const char *name;
                unsigned bit;
        } marks[] = { { "objects", HAS_OBJECTS },
                      { "refs", HAS_REFS },
                      { "commondir", HAS_COMMONDIR } };
        uint8_t *has = &g->has[depth];
        struct stat st;

        if (*has & LOOKED)
                return *has;
        CLEAN(cleanup_fd) int dir = open_dir(g, path, rest);

        *has |= LOOKED;
        if (dir < 0)
                return *has;
        if (fstatat(dir, "HEAD", &st, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISDIR(st.st_mode))
                *has |= HAS_HEAD;
        for (size_t i = 0; i < ARRAY_LEN(marks); i++)
                if (fstatat(dir, marks[i].name, &st, AT_SYMLINK_NOFOLLOW) == 0)
                        *has = (uint8_t)(*has | marks[i].bit);
        return *has;
}

static bool host_has_danger(const struct git_guard *g, const char *path, const char *rest)
{
        CLEAN(cleanup_fd) int dir = open_dir(g, path, rest);
        struct stat st;

        if (dir < 0)
                return false;
        for (size_t i = 0; i < ARRAY_LEN(dangers); i++)
                if (fstatat(dir, dangers[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
                        return true;
        for (size_t i = 0; i < ARRAY_LEN(own_names); i++)
                if (fstatat(dir, own_names[i], &st, AT_SYMLINK_NOFOLLOW) == 0 &&
                    S_ISLNK(st.st_mode))
                        return true;
        return false;
}

/* One directory on the way */

static bool link_is_refused(const struct change *c, const char *rest, unsigned has)
{
        bool own = false;

        if (marks_of(c, rest) & (HAS_HEAD | HAS_HEAD_FOLDED))
                return str_starts(c->now.target, "refs/"); /* any other makes no repository */
        for (size_t i = 0; i < ARRAY_LEN(own_names) && !own; i++)
                own = git_part_is(rest, part_len(rest), own_names[i]);
        return is_repository(has) || ((has & HAS_HEAD) && own);
}

/* In the directory that path names up to rest, the `depth`th on the way. */
static bool is_refused_in(struct git_guard *g, const struct change *c, size_t depth,
                          const char *rest)
{
        const char *path = c->now.path;
        const unsigned marks = marks_of(c, rest);
        const bool dangerous = git_is_dangerous(rest), is_link = c->now.kind == TREE_LINK;
        unsigned has;

        if (!marks && !dangerous && !is_link)
                return false;
        has = look(g, depth, path, rest);
        if (dangerous)
                return (has & HAS_HEAD) || is_repository(has);
        if (is_link && link_is_refused(c, rest, has))
                return true;
        return is_repository(has | marks) && !is_repository(has) &&
               ((has & HAS_DANGER) || host_has_danger(g, path, rest));
}

/* In a directory called `.git`: git makes no links in it itself. */
static bool is_refused_in_git(const struct change *c, const char *rest)
{
        return git_is_dangerous(rest) || c->now.kind == TREE_LINK;
}

/* Directories that the last path went through and this one does not are over. */
static void follow(struct git_guard *g, const char *path)
{
        size_t depth = 0, i = 0;

        for (; path[i] && path[i] == g->last[i]; i++)
                depth += path[i] == '/';
        memset(&g->has[depth + 1], 0, sizeof(g->has) - depth - 1);
        memcpy(g->last, path, strlen(path) + 1);
}

bool git_guard_refuses(struct git_guard *g, const struct change *c)
{
        const char *path = c->now.path, *rest = path;

        if (!tree_path_ok(path))
                return false; /* the merge says so */
        follow(g, path);
        if (c->is_delete)
                return false;
        for (size_t depth = 0;; depth++) {
                size_t len = part_len(rest);
                bool is_git = git_part_is(rest, len, ".git");

                if (is_refused_in(g, c, depth, rest))
                        return true;
                if (is_git &&
                    (rest[len] ? is_refused_in_git(c, rest + len + 1) : c->now.kind != TREE_DIR))
                        return true;
                if (rest[len] == '\0')
                        break;
                rest += len + 1;
        }
        rest = path;
        for (size_t depth = 0;; depth++) {
                size_t len = part_len(rest);

                g->has[depth] = (uint8_t)(g->has[depth] | marks_of(c, rest) |
                                          (git_is_dangerous(rest) ? HAS_DANGER : 0));
                if (rest[len] == '\0')
                        return false;
                rest += len + 1;
        }
}
