/* Which directories of a workspace git takes for a repository, and what must not come into them.
 *
 * git takes a directory for a repository when it has `HEAD` and either `objects` and `refs` or
 * `commondir`, whatever its name is: git that runs in it, or anywhere beneath it, runs what its
 * configuration says, and writes where its links lead. So the merge keeps two things apart: what
 * makes a directory a repository (a mark), and what makes git run a program, or read and write
 * elsewhere (a danger, or any link: git makes none itself).
 *
 *   - `verdicts` below says what becomes of a danger or a link in a directory that has a HEAD, is a
 *     repository, or is called `.git`. In the order of the paths HEAD comes before `config`, so a
 *     bare repository that was made in a place comes home whole but for its dangers.
 *   - A mark does not come when it would complete a repository in which there is a danger or a link
 *     already: one that was on the host, that an earlier restore brought when it was none, or that
 *     came before HEAD (`FETCH_HEAD`, or `head` in another spelling).
 *   - Two files are judged by what is in them, wherever they are: an `index`, and `packed-refs`.
 *
 * What a change deletes is taken to be there still. */
#define _GNU_SOURCE
#include <ctype.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/path.h"
#include "codec/git_index.h"
#include "workspace/content.h"
#include "workspace/git_internal.h"

#define MAX_LOOKED_AT                                                                              \
        20000 /* entries of a directory of the host's that would become a repository */
#define MAX_CHECKED ((off_t)64 << 20)

enum {
        HAS_HEAD = 1,        /* with this very name */
        HAS_HEAD_FOLDED = 2, /* with one that some file systems take for it */
        HAS_OBJECTS = 4,
        HAS_REFS = 8,
        HAS_COMMONDIR = 16,
        HAS_DANGER = 32, /* or a link, however deep */
        LOOKED = 64,     /* the host's files are among them */
};

static const char *const dangers[] = {
        "config", /* names programs */
        "config.worktree",
        "hooks",
        "remotes", /* where fetch and push go, when the configuration does not say */
        "branches",
        "commondir", /* another directory's configuration and hooks */
        "gitdir",
        "worktrees", /* directories with all of these */
        "modules",
        "info/attributes", /* which filters are run */
        "info/grafts",     /* another history */
        "refs/replace",    /* other objects */
        "reftable",        /* refs in a form that is not looked into */
        "objects/info/alternates",
        "objects/info/http-alternates",
        "rebase-merge", /* what `git rebase --continue` and its like run */
        "rebase-apply",
        "sequencer",
        "MERGE_RR", /* files that `git commit` copies into rr-cache, wherever they are */
        "rr-cache",
};

/* What a change is, for a directory that it is in or beneath, and what that directory is. */
enum what { PLAIN, DANGER, LINK, LINK_DEEP, N_WHATS };
enum where { ORDINARY, WITH_HEAD, REPOSITORY, DOT_GIT, N_WHERES };

/* A project may have a file HEAD and links in its folders: those come, until it is a repository. */
static const bool verdicts[N_WHATS][N_WHERES] = {
        /* clang-format off */
        /* refused in:  ORDINARY  WITH_HEAD  REPOSITORY  DOT_GIT */
        [PLAIN]     = { false,    false,     false,      false },
        [DANGER]    = { false,    true,      true,       true },
        [LINK]      = { false,    true,      true,       true }, /* in it, or in one of own_dirs */
        [LINK_DEEP] = { false,    false,     true,       true },
        /* clang-format on */
};

static const char *const own_dirs[] = { "objects", "refs", "logs", "info" };

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

                for (size_t i = 0; i < n; i++)
                        part[i] = (char)tolower((unsigned char)name[i]);
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

static enum what what_is(const struct change *c, const char *rest)
{
        const size_t len = part_len(rest);

        if (git_is_dangerous(rest))
                return DANGER;
        if (c->now.kind != TREE_LINK)
                return PLAIN;
        if (rest[len] == '\0')
                return LINK;
        for (size_t i = 0; i < ARRAY_LEN(own_dirs); i++)
                if (git_part_is(rest, len, own_dirs[i]))
                        return LINK;
        return LINK_DEEP;
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

static unsigned look_at_level(struct git_guard *g, size_t depth, const char *path, const char *rest)
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

/* Takes dir. Whether a link is in it or beneath; also when there is more than we look at. */
static bool host_has_link(int take_dir, unsigned depth, unsigned *left)
{
        DIR *d = fdopendir(take_dir);
        const struct dirent *e;
        bool found = false;

        if (!d) {
                cleanup_fd(&take_dir);
                return true;
        }
        while (!found && (e = readdir(d)) != NULL) {
                struct stat st;
                int below;

                if (streq(e->d_name, ".") || streq(e->d_name, ".."))
                        continue;
                if (*left == 0 || fstatat(dirfd(d), e->d_name, &st, AT_SYMLINK_NOFOLLOW) < 0) {
                        found = true;
                        break;
                }
                --*left;
                found = S_ISLNK(st.st_mode);
                if (!S_ISDIR(st.st_mode))
                        continue;
                below = depth == 0 ? -1
                                   : openat(dirfd(d), e->d_name,
                                            O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
                found = below < 0 || host_has_link(below, depth - 1, left);
        }
        closedir(d);
        return found;
}

static bool host_has_danger(const struct git_guard *g, const char *path, const char *rest)
{
        CLEAN(cleanup_fd) int dir = open_dir(g, path, rest);
        unsigned left = MAX_LOOKED_AT;
        struct stat st;

        if (dir < 0)
                return false;
        for (size_t i = 0; i < ARRAY_LEN(dangers); i++)
                if (fstatat(dir, dangers[i], &st, AT_SYMLINK_NOFOLLOW) == 0)
                        return true;
        int again = openat(dir, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return again < 0 || host_has_link(again, TREE_MAX_DEPTH, &left);
}

/* One directory on the way */

/* In the directory that path names up to rest, the `depth`th on the way. */
static bool is_refused_in(struct git_guard *g, const struct change *c, size_t depth,
                          const char *rest, enum what what)
{
        const char *path = c->now.path;
        const unsigned marks = marks_of(c, rest);

        if (!marks && what == PLAIN)
                return false;
        /* The old kind of HEAD. A link to anything else makes no repository. */
        if (what == LINK && (marks & (HAS_HEAD | HAS_HEAD_FOLDED)) &&
            str_starts(c->now.target, "refs/"))
                return true;
        unsigned has = look_at_level(g, depth, path, rest);
        if (verdicts[what][is_repository(has) ? REPOSITORY
                           : (has & HAS_HEAD) ? WITH_HEAD
                                              : ORDINARY])
                return true;
        if (!is_repository(has | marks) || is_repository(has))
                return false;
        if (what != PLAIN || (has & HAS_DANGER))
                return true;
        if (!host_has_danger(g, path, rest))
                return false;
        g->has[depth] |= HAS_DANGER; /* it is not looked for again */
        return true;
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
        uint8_t brings[TREE_MAX_DEPTH + 1];
        bool in_git = false;
        size_t depth = 0;

        if (!tree_path_ok(path))
                return false; /* the merge says so */
        follow(g, path);
        if (c->is_delete)
                return false;
        for (;; depth++) {
                const size_t len = part_len(rest);
                const enum what what = what_is(c, rest);

                if ((in_git && verdicts[what][DOT_GIT]) || is_refused_in(g, c, depth, rest, what))
                        return true;
                brings[depth] = (uint8_t)(marks_of(c, rest) | (what != PLAIN ? HAS_DANGER : 0));
                in_git = git_part_is(rest, len, ".git");
                if (rest[len] == '\0')
                        break;
                rest += len + 1;
        }
        if (in_git && c->now.kind != TREE_DIR)
                return true; /* `.git` itself, as a file or a link to elsewhere */
        for (size_t i = 0; i <= depth; i++)
                g->has[i] |= brings[i];
        return false;
}

/* The content of a file */

/* Whether the repository that an index is in has object names of another length: git would read
 * the index otherwise than we do. */
static bool host_has_other_hashes(const struct git_guard *g, const char *path)
{
        const char *slash = strrchr(path, '/');
        CLEAN(cleanup_fd) int dir = open_dir(g, path, slash ? slash + 1 : path);
        CLEAN(cleanup_fd) int fd = -1;
        char text[65536];

        if (dir < 0)
                return false;
        int r = content_open(dir, "config", &fd, NULL);
        if (r < 0)
                return r != ERR_NOT_FOUND;
        ssize_t n = pread(fd, text, sizeof(text) - 1, 0);
        if (n < 0 || (size_t)n == sizeof(text) - 1)
                return true;
        text[n] = '\0';
        return strlen(text) < (size_t)n || strcasestr(text, "objectformat");
}

enum form { FORM_ANY, FORM_INDEX, FORM_PACKED_REFS };

static enum form form_of(const char *path)
{
        static const char shared[] = "sharedindex."; /* the rest of a split index */
        const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
        const size_t len = strlen(name);

        if (git_part_is(name, len, "index") || strncasecmp(name, shared, sizeof(shared) - 1) == 0)
                return FORM_INDEX;
        return git_part_is(name, len, "packed-refs") ? FORM_PACKED_REFS : FORM_ANY;
}

static bool content_ok(const struct git_guard *g, const char *path, const uint8_t *bytes,
                       size_t len)
{
        if (form_of(path) == FORM_PACKED_REFS)
                return !memmem(bytes, len, "refs/replace/", strlen("refs/replace/"));
        if (len < 4 || memcmp(bytes, "DIRC", 4) != 0)
                return true; /* none of git's */
        return git_index_ok(bytes, len) && !host_has_other_hashes(g, path);
}

int git_guard_open(struct git_guard *g, struct op *op, const char *path, int *fd, struct err *err)
{
        CLEAN(cleanup_fd) int copy = -1;
        struct stat st;

        if (form_of(path) == FORM_ANY)
                return 1;
        if (fstat(*fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "look at %s", path);
        if (st.st_size == 0)
                return 1;
        if (st.st_size > MAX_CHECKED)
                return 0;
        /* The writer of the file may still be writing: the merge gets the bytes that were
         * checked. */
        copy = memfd_create("berth-checked", MFD_CLOEXEC);
        if (copy < 0)
                return err_sys(err, ERR_IO, errno, "memory for %s", path);
        int r = content_copy(op, *fd, copy, (uint64_t)st.st_size, NULL, err);
        if (r < 0)
                return r;
        void *bytes = mmap(NULL, (size_t)st.st_size, PROT_READ, MAP_PRIVATE, copy, 0);
        if (bytes == MAP_FAILED)
                return err_sys(err, ERR_IO, errno, "map %s", path);
        bool ok = content_ok(g, path, bytes, (size_t)st.st_size);
        (void)munmap(bytes, (size_t)st.st_size);
        if (!ok)
                return 0;
        cleanup_fd(fd);
        *fd = take_fd(&copy);
        return 1;
}
