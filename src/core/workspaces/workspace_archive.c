/* Workspaces in places that only run commands: an archive in and out (remote-execution 2.5, 2.6),
 * by way of core/exec/exec_transfer.h.
 *
 * There: <cwd> is the workspace, <cwd>/.paperclip-runtime/berth has the archives while they are
 * moved. Here, in workspaces/<id>: `baseline` and `bundle` as in workspace_sync.c,
 * `extracted` while it is compared. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "codec/shell.h"
#include "core/exec/exec_transfer.h"
#include "core/kinds/kind.h"
#include "core/workspaces/workspace.h"
#include "core/workspaces/workspace_internal.h"
#include "workspace/archive.h"
#include "workspace/owner.h"

#define EXTRACTED  "extracted"
#define DOWNLOAD   ((uint64_t)16 << 30) /* an archive may have at most so many bytes */
#define COMMAND_MS 600000

struct moving {
        struct op *op;
        struct runtime *rt;
        const struct place *place;
        const struct workspace *w;
        struct workspace_remote remote;
        struct exec_transfer transfer;
        const char *base, *upload, *download; /* there */
        int dir_fd, local_fd, archive_fd;
};

static void moving_done(struct moving *m)
{
        cleanup_fd(&m->dir_fd);
        cleanup_fd(&m->local_fd);
        cleanup_fd(&m->archive_fd);
}

static int moving_begin(struct moving *m, struct err *err)
{
        int r;

        m->dir_fd = m->local_fd = m->archive_fd = -1;
        r = workspace_remote_find(m->op, m->rt, m->w->lease_id, &m->remote, err);
        if (r >= 0)
                r = kind_of_place(m->rt, m->place)
                            ->transfer(m->op, m->rt, &m->remote.lease, &m->transfer, err);
        if (r < 0)
                return r;
        m->base = arena_printf(m->op->arena, "%s/.paperclip-runtime/berth",
                               streq(m->remote.cwd, "/") ? "" : m->remote.cwd);
        m->upload = arena_printf(m->op->arena, "%s/workspace-upload.tar", m->base);
        m->download = arena_printf(m->op->arena, "%s/workspace-download.tar", m->base);
        if (mkdir(m->w->dir, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_IO, errno, "create %s", m->w->dir);
        r = workspace_open_dir(m->w->dir, &m->dir_fd, err);
        if (r >= 0)
                r = workspace_open_local(m->rt, m->w, &m->local_fd, err);
        if (r < 0)
                return r;
        m->archive_fd = openat(m->dir_fd, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        return m->archive_fd < 0 ? err_sys(err, ERR_IO, errno, "create an archive") : 0;
}

static int scan_dir(struct moving *m, int take_fd_, const struct owner *owner, struct scan **ret,
                    struct err *err)
{
        const struct scan_options options = { .excludes = &m->w->excludes, .owner = owner };

        return scan_open(take_fd_, &options, ret, err);
}

/* In */

static int extract_there(struct moving *m, struct err *err)
{
        const char *const *kept = m->w->excludes.patterns;
        CLEAN(buf_done) struct buf s = BUF_INIT;

        buf_puts(&s, "set -e\n");
        runtime_script(&s, m->base);
        buf_puts(&s, "d=");
        shell_quote(&s, m->remote.cwd);
        buf_puts(&s, "\na=");
        shell_quote(&s, m->upload);
        buf_puts(&s, "\nmkdir -p \"$d\"\n"
                     "for f in \"$d\"/* \"$d\"/.*; do case \"${f##*/}\" in "
                     ".|..|.paperclip-runtime");
        /* An excluded direct child stays; patterns with several parts or asterisks cannot be
         * matched there. */
        for (; kept && *kept; kept++)
                if (**kept && !strpbrk(*kept, "/*")) {
                        buf_putc(&s, '|');
                        shell_quote(&s, *kept);
                }
        buf_puts(&s, ") ;; *) if [ -e \"$f\" ] || [ -L \"$f\" ]; then rm -rf \"$f\"; fi ;; esac; "
                     "done\ntar -xpf \"$a\" -C \"$d\"\nrm -f \"$a\"\n");
        return exec_transfer_run(m->op, &m->transfer, buf_str(&s), COMMAND_MS, err);
}

static int archive_pack_here(struct moving *m, struct stage_result *ret, struct err *err)
{
        const struct owner *owner;
        struct owner store;
        struct scan *scan = NULL;
        int fd = fcntl(m->local_fd, F_DUPFD_CLOEXEC, 3);
        int r = fd < 0 ? err_sys(err, ERR_IO, errno, "open the workspace")
                       : owner_find(fd, &store, &owner, err);

        if (r >= 0)
                r = scan_dir(m, take_fd(&fd), owner, &scan, err);
        cleanup_fd(&fd);
        if (r < 0)
                return r;
        r = archive_pack(m->op, m->local_fd, scan_source(scan), m->archive_fd, m->dir_fd,
                         WORKSPACE_BASELINE, &ret->files, &ret->bytes, err);
        scan_close(scan);
        if (r >= 0 && lseek(m->archive_fd, 0, SEEK_SET) < 0)
                r = err_sys(err, ERR_IO, errno, "read an archive");
        return r;
}

static int archive_stage(struct op *op, struct runtime *rt, const struct place *place,
                         const struct workspace *w, workspace_progress_fn progress, void *ctx,
                         struct stage_result *ret, struct err *err)
{
        CLEAN(moving_done) struct moving m = { .op = op, .rt = rt, .place = place, .w = w };
        struct stat st;
        int r = moving_begin(&m, err);

        *ret = (struct stage_result){ 0 };
        if (r >= 0)
                r = archive_pack_here(&m, ret, err);
        if (r >= 0)
                r = exec_transfer_write(op, &m.transfer, m.upload, m.archive_fd, 0600, err);
        if (r >= 0)
                r = extract_there(&m, err);
        if (r < 0)
                return r;
        ret->cwd = m.remote.cwd;
        ret->sent_bytes = fstat(m.archive_fd, &st) == 0 ? (uint64_t)st.st_size : 0;
        return 0;
}

/* Out */

static int archive_fetch(struct moving *m, struct err *err)
{
        CLEAN(buf_done) struct buf s = BUF_INIT;
        uint64_t size;
        int r;

        buf_puts(&s, "set -e\nmkdir -p ");
        shell_quote(&s, m->base);
        buf_puts(&s, "\ntar -cf ");
        shell_quote(&s, m->download);
        buf_puts(&s, " -C ");
        shell_quote(&s, m->remote.cwd);
        /* 1: a file changed meanwhile, and the archive is whole. */
        buf_puts(&s, " --exclude ./.paperclip-runtime --exclude './._*' . || [ $? -eq 1 ]\n");
        r = exec_transfer_run(m->op, &m->transfer, buf_str(&s), COMMAND_MS, err);
        if (r >= 0)
                r = exec_transfer_read(m->op, &m->transfer, m->download, DOWNLOAD, m->archive_fd,
                                       &size, err);
        (void)exec_transfer_remove(m->op, &m->transfer, m->download, NULL);
        return r;
}

static int archive_compare(struct moving *m, int extracted_fd, struct err *err)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/" WORKSPACE_FETCHING, m->w->dir);
        struct bundle_writer *into = NULL;
        struct scan *scan = NULL;
        int fd = fcntl(extracted_fd, F_DUPFD_CLOEXEC, 3);
        int r = fd < 0 ? err_sys(err, ERR_IO, errno, "open what was fetched")
                       : scan_dir(m, fd, NULL, &scan, err);

        if (r < 0)
                return r;
        r = bundle_remove(m->op, path, err);
        if (r >= 0)
                r = bundle_create(path, &into, err);
        if (r >= 0)
                r = manifest_write(m->dir_fd, WORKSPACE_FETCHING "/" WORKSPACE_NEXT,
                                   scan_source(scan), NULL, NULL, err);
        scan_close(scan);
        if (r >= 0)
                r = archive_changes(m->op, m->dir_fd, WORKSPACE_BASELINE,
                                    WORKSPACE_FETCHING "/" WORKSPACE_NEXT, extracted_fd, into, err);
        if (r >= 0)
                r = bundle_finish(into, err);
        if (into)
                bundle_close(into);
        return r;
}

static int unpack_and_compare(struct moving *m, struct err *err)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/" EXTRACTED, m->w->dir);
        struct budget budget = workspace_budget(m->rt);
        CLEAN(cleanup_fd) int fd = -1;
        int r = workspace_remove_dir(m->op, path, err);

        if (r >= 0 && mkdir(path, 0700) < 0)
                r = err_sys(err, ERR_IO, errno, "create %s", path);
        if (r >= 0)
                r = workspace_open_dir(path, &fd, err);
        if (r >= 0)
                r = archive_unpack(m->op, m->archive_fd, fd, &budget, err);
        if (r == ERR_INVALID)
                r = err_wrap(err, ERR_PROVIDER, "What the place sent back");
        if (r >= 0)
                r = archive_compare(m, fd, err);
        (void)workspace_remove_dir(m->op, path, NULL);
        return r;
}

static int archive_collect(struct op *op, struct runtime *rt, const struct place *place,
                           const struct workspace *w, workspace_progress_fn progress, void *ctx,
                           struct change_set **ret, uint32_t *ret_umask, struct err *err)
{
        CLEAN(moving_done) struct moving m = { .op = op, .rt = rt, .place = place, .w = w };
        int r = moving_begin(&m, err);

        *ret_umask = 0; /* modes were kept */
        if (r >= 0)
                r = archive_fetch(&m, err);
        if (r >= 0)
                r = unpack_and_compare(&m, err);
        return r < 0 ? r : workspace_keep_fetched(op, w, m.dir_fd, ret, err);
}

static bool archive_usable(const struct runtime *rt, const struct place *place,
                           const char **ret_why)
{
        const struct kind *kind = kind_of_place(rt, place);

        if (kind && kind->transfer)
                return true;
        *ret_why = "there is no way to move files";
        return false;
}

const struct workspace_way workspace_archive = {
        .name = "archive",
        .usable = archive_usable,
        .stage = archive_stage,
        .collect = archive_collect,
        .settle = workspace_settle_fetched,
        .needs_world = true,
};
