/* A box that starts on the directory of one that was killed, and a box that takes its directory
 * away.
 *
 * Every execution that the dead box knew is still there as spool/<uuid>. With an exit record it has
 * ended as that says; without one its processes are killed, the bytes that were in its pipes are
 * lost, and it is listed as ended with BOX_EXIT_INCOMPLETE. The host decides what becomes of it. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "berth-box/box.h"

/* When a file was made is when its execution was started, where the file system remembers it. */
static uint64_t birth_ms(int fd)
{
        struct statx st;

        if (statx(fd, "", AT_EMPTY_PATH, STATX_BTIME, &st) < 0 || !(st.stx_mask & STATX_BTIME))
                return 0;
        return (uint64_t)st.stx_btime.tv_sec * 1000 + st.stx_btime.tv_nsec / 1000000;
}

static void adopt_stream(struct stream *s)
{
        struct stat st;

        if (fstat(s->file, &st) < 0)
                return;
        s->written = (uint64_t)st.st_size;
        /* Bytes that were given back are a hole at the start; it must never be sent as zeros. */
        off_t data = lseek(s->file, 0, SEEK_DATA);
        s->stored = data >= 0 ? (uint64_t)data : s->written;
        s->punched = s->stored;
}

/* 1, 0 when there is no record, or an error when that cannot be known now. */
static int read_exit(struct box *b, struct exec *e, struct err *err)
{
        uint8_t record[BOX_EXIT_RECORD + 1];
        char path[64];

        snprintf(path, sizeof(path), "%s/exit", e->name);
        CLEAN(cleanup_fd) int fd = openat(b->spool_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

        if (fd < 0 && errno == ENOENT)
                return 0;
        ssize_t n = fd < 0 ? -1 : read(fd, record, sizeof(record));
        if (n < 0)
                return err_sys(err, ERR_IO, errno, "read an exit record");
        return n > 0 && frame_exit_record_parse(record, (size_t)n, &e->exit, NULL) == 0;
}

static int adopt_exec(struct box *b, const char *name, const uint8_t id[FRAME_UUID],
                      struct err *err)
{
        struct exec *e = exec_new(b, id);
        char target[8];

        if (!e)
                return 0;
        e->state = EXEC_ENDED;
        if (readlinkat(b->spool_fd, name, target, sizeof(target)) > 0)
                e->flags |= BOX_START_SHARED;
        if (!spool_reopen(b, e)) {
                if (errno != ENOENT)
                        return err_sys(err, ERR_IO, errno, "open the output of an execution");
                e->exit.flags = BOX_EXIT_INCOMPLETE;
        } else {
                adopt_stream(&e->out[0]);
                adopt_stream(&e->out[1]);
                e->started_ms = birth_ms(e->out[0].file);
        }
        spool_close(e);
        int r = read_exit(b, e, err);
        if (r != 0)
                return MIN(r, 0);
        e->exit = (struct box_exit){
                .code = -1,
                .flags = BOX_EXIT_INCOMPLETE,
                .ended_ms = (uint64_t)(clock_wall_us() / US_PER_MS),
                .stdout_len = e->out[0].written,
                .stderr_len = e->out[1].written,
        };
        e->adopted = true;
        return 0;
}

/* A box that does not know an execution says to the host that it was never started: so an execution
 * that cannot be read now keeps the box from starting. */
int spool_adopt(struct box *b, struct err *err)
{
        int fd = openat(b->spool_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
        struct dirent *entry;
        bool any = false;
        int r = 0;

        if (!dir) {
                r = err_sys(err, ERR_IO, errno, "read the spool");
                cleanup_fd(&fd);
                return r;
        }
        while (r >= 0 && (entry = readdir(dir))) {
                uint8_t id[FRAME_UUID];

                if (frame_uuid_bytes(entry->d_name, id))
                        r = adopt_exec(b, entry->d_name, id, err);
        }
        closedir(dir);
        if (r < 0)
                return r;
        for (int i = 0; i < b->n_execs; i++)
                any = any || b->execs[i].adopted;
        if (!any)
                return 0;
        tree_kill_adopted(b);
        for (int i = 0; i < b->n_execs; i++) {
                if (b->execs[i].adopted)
                        spool_write_exit(b, &b->execs[i]);
                b->execs[i].adopted = false;
        }
        return 0;
}

void spool_remove_all(struct box *b)
{
        for (int i = 0; i < b->n_execs; i++)
                if (b->execs[i].state != EXEC_FREE)
                        spool_remove(b, &b->execs[i]);
        if (b->sandbox) /* box_bury() needs the rest: it says where its cgroups are */
                return;
        (void)unlinkat(b->dir_fd, "spool", AT_REMOVEDIR);
        (void)unlinkat(b->dir_fd, "box.sock", 0);
        (void)unlinkat(b->dir_fd, "pid", 0);
        (void)unlinkat(b->dir_fd, "cgroup", 0);
        (void)unlinkat(b->dir_fd, "node", 0);
        (void)unlinkat(b->dir_fd, "box.lock", 0);
        (void)rmdir(b->dir);
}
