/* Brings git objects into a repository of ours, and from there into the host's as one pack. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "workspace/apply.h"
#include "workspace/content.h"
#include "workspace/git_internal.h"

/* Objects on their way: the place's files, our repository, the host's. */

#define MAX_SHALLOW ((size_t)1 << 20)

static int make_at(struct git_import *g, const char *path, struct err *err)
{
        if (mkdirat(g->scratch_fd, path, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "create %s/%s", g->scratch, path);
        return 0;
}

/* Where the host's history ends, it ends for us too. */
static int copy_shallow(struct git_import *g, struct err *err)
{
        CLEAN(cleanup_fd) int from = -1;
        CLEAN(cleanup_free) char *text = NULL;

        int r = content_open(g->host_fd, "shallow", &from, err);
        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        text = xcalloc(1, MAX_SHALLOW);
        ssize_t n = pread(from, text, MAX_SHALLOW, 0);
        if (n < 0 || (size_t)n == MAX_SHALLOW)
                return err_set(err, ERR_PROVIDER, "%s/shallow cannot be read", g->host);
        return file_write_at(g->scratch_fd, "repo/shallow", text, (size_t)n, 0600, err);
}

void git_clear(const struct git_import *g)
{
        struct apply a;

        if (!g->owner.uid)
                return;
        int fd = openat(g->host_fd, GIT_IMPORT, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (fd >= 0) {
                apply_init(&a, fd);
                (void)apply_clear(&a, NULL);
                apply_done(&a);
        }
        (void)unlinkat(g->host_fd, GIT_IMPORT, fd >= 0 ? AT_REMOVEDIR : 0);
}

/* 1, or 0 when the owner cannot have one there. */
static int make_owners(struct git_import *g, const char **ret_note, struct err *err)
{
        static const char *const args[] = { "init", "-q", "--bare", "--template=", NULL };
        const char *said;
        int status, r;

        git_clear(g); /* what a crash left */
        r = git_run(g, &(struct git_run){ .args = args }, NULL, &status, &said, err);
        if (r >= 0 && status != 0)
                *ret_note = arena_printf(g->op->arena,
                                         "git does not run as the owner of the repository, user "
                                         "%u; commits are not brought home: %s",
                                         (unsigned)g->owner.uid, said);
        return r < 0 ? r : status == 0;
}

int git_prepare(struct git_import *g, const char **ret_note, struct err *err)
{
        static const char *const dirs[] = { "repo", "repo/refs", "repo/objects",
                                            "repo/objects/pack", "packs" };
        static const char config[] = "[core]\n\trepositoryformatversion = 0\n\tbare = true\n";
        static const char head[] = "ref: refs/heads/none\n";
        int r = 0;

        for (size_t i = 0; i < ARRAY_LEN(dirs) && r >= 0; i++)
                r = make_at(g, dirs[i], err);
        if (r >= 0)
                r = file_write_at(g->scratch_fd, "repo/config", config, strlen(config), 0600, err);
        if (r >= 0)
                r = file_write_at(g->scratch_fd, "repo/HEAD", head, strlen(head), 0600, err);
        if (r >= 0)
                r = copy_shallow(g, err);
        if (r < 0)
                return r;
        return g->owner.uid ? make_owners(g, ret_note, err) : 1;
}

/* Reading in */

static int each_name(struct git_import *g, const char *path,
                     int (*fn)(struct git_import *g, const char *name, void *ctx, struct err *err),
                     void *ctx, struct err *err)
{
        int r, fd = openat(g->scratch_fd, path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
        const struct dirent *e;

        if (!dir)
                return err_sys(err, ERR_IO, errno, "read %s/%s", g->scratch, path);
        for (r = 1; r > 0 && (e = readdir(dir)) != NULL;)
                if (e->d_name[0] != '.' && !streq(e->d_name, "new"))
                        r = fn(g, e->d_name, ctx, err);
        closedir(dir);
        return r;
}

struct listing {
        struct buf *out;
        const char *prefix;
};

static int list_one(struct git_import *g, const char *name, void *ctx, struct err *err)
{
        const struct listing *l = ctx;

        buf_appendf(l->out, "%s%s\n", l->prefix, name);
        return 1;
}

static int list_folder(struct git_import *g, const char *name, void *ctx, struct err *err)
{
        char path[32];

        snprintf(path, sizeof(path), "loose/%.8s", name);
        return each_name(g, path, list_one, &(struct listing){ ctx, name }, err);
}

/* git takes a pack apart, and computes the name of every object in it. 1, or 0 when it refuses. */
static int index_pack(struct git_import *g, int fd, const char *objects, const char **ret_note,
                      struct err *err)
{
        const char *args[] = { "index-pack", "--stdin", "--fix-thin", "--fsck-objects", NULL };
        const char *said;
        int status, r;

        if (lseek(fd, 0, SEEK_SET) < 0)
                return err_sys(err, ERR_IO, errno, "seek");
        if (objects) /* our own pack: complete, and looked through already */
                args[2] = NULL;
        r = git_run(g, &(struct git_run){ .args = args, .objects = objects, .in_fd = fd }, NULL,
                    &status, &said, err);
        if (r < 0)
                return r;
        if (status != 0)
                *ret_note = arena_printf(g->op->arena, "objects were refused: %s", said);
        return status == 0;
}

static int ingest_loose(struct git_import *g, const char **ret_note, struct err *err)
{
        static const char *const args[] = { "pack-objects", "--stdout", "-q", "--window=0", NULL };
        CLEAN(buf_done) struct buf names = BUF_INIT;
        CLEAN(cleanup_fd) int pack = -1;
        const char *objects = arena_printf(g->op->arena, "%s/loose", g->scratch), *said;
        int status, r = each_name(g, "loose", list_folder, &names, err);

        if (r < 0 || names.len == 0)
                return r < 0 ? r : 1;
        if (buf_failed(&names))
                return err_set(err, ERR_TOO_LARGE, "too many objects");
        pack = openat(g->scratch_fd, "loose.pack", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (pack < 0)
                return err_sys(err, ERR_IO, errno, "create %s/loose.pack", g->scratch);
        r = git_run(g,
                    &(struct git_run){ .args = args,
                                       .objects = objects,
                                       .alone = true,
                                       .input = names.data,
                                       .out_fd = pack },
                    NULL, &status, &said, err);
        if (r < 0)
                return r;
        if (status != 0) {
                *ret_note = arena_printf(g->op->arena, "objects are damaged: %s", said);
                return 0;
        }
        return index_pack(g, pack, NULL, ret_note, err);
}

static int ingest_pack(struct git_import *g, const char *name, void *ctx, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        char path[TREE_MAX_NAME + 16];

        snprintf(path, sizeof(path), "packs/%s", name);
        fd = openat(g->scratch_fd, path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
                return err_sys(err, ERR_IO, errno, "open %s/%s", g->scratch, path);
        return index_pack(g, fd, NULL, ctx, err);
}

int git_ingest(struct git_import *g, const char **ret_note, struct err *err)
{
        int r = each_name(g, "packs", ingest_pack, ret_note, err);

        return r <= 0 ? r : ingest_loose(g, ret_note, err);
}

/* Writing out */

static void add_host_tips(const struct git_import *g, struct buf *out)
{
        const char *line = buf_str(&g->host_refs);

        for (; *line; line += strcspn(line, "\n") + 1)
                buf_appendf(out, "^%.*s\n", GIT_HEX, line);
}

/* What is reachable from the commits and not from the host's refs, as a pack. 1; 0: *ret_note; or 2
 * when that is nothing. */
static int pack_new(struct git_import *g, const char *tips, int *ret_fd, const char **ret_note,
                    struct err *err)
{
        static const char *const args[] = { "pack-objects",        "--revs", "--stdout", "-q",
                                            "--delta-base-offset", NULL };
        CLEAN(buf_done) struct buf revs = BUF_INIT;
        CLEAN(cleanup_fd) int pack = -1;
        const char *said;
        int status, r;

        buf_puts(&revs, tips);
        add_host_tips(g, &revs);
        pack = openat(g->scratch_fd, "new.pack", O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        if (pack < 0)
                return err_sys(err, ERR_IO, errno, "create %s/new.pack", g->scratch);
        r = git_run(g, &(struct git_run){ .args = args, .input = buf_str(&revs), .out_fd = pack },
                    NULL, &status, &said, err);
        if (r < 0)
                return r;
        if (status != 0) {
                *ret_note = arena_printf(g->op->arena, "the history is not complete: %s", said);
                return 0;
        }
        if (lseek(pack, 0, SEEK_END) <= GIT_PACK_EMPTY)
                return 2;
        *ret_fd = take_fd(&pack);
        return 1;
}

int git_take_new(struct git_import *g, const char *tip, const char **ret_note, struct err *err)
{
        CLEAN(cleanup_fd) int pack = -1;
        int r = pack_new(g, arena_printf(g->op->arena, "%s\n", tip), &pack, ret_note, err);

        return r != 1 ? MIN(r, 1) : index_pack(g, pack, NULL, ret_note, err);
}

int git_transfer(struct git_import *g, const char *tips, const char **ret_note, struct err *err)
{
        CLEAN(cleanup_fd) int pack = -1;
        int r = pack_new(g, tips, &pack, ret_note, err);

        if (r != 1)
                return MIN(r, 1);
        FAULT("workspace.git.objects.before");
        r = index_pack(g, pack, arena_printf(g->op->arena, "%s/objects", g->host_of_git), ret_note,
                       err);
        FAULT("workspace.git.objects.after");
        return r;
}
