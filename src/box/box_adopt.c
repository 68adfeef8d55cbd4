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
#include "box/box.h"

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
        off_t data;

        if (fstat(s->file, &st) < 0)
                return;
        s->written = (uint64_t)st.st_size;
        /* What was let go is a hole at the start; it must never be sent as zeros. */
        data = lseek(s->file, 0, SEEK_DATA);
        s->stored = data >= 0 ? (uint64_t)data : s->written;
        s->punched = s->stored;
}

static bool read_exit(struct box *b, struct exec *e)
{
        uint8_t record[BOX_EXIT_RECORD + 1];
        char path[64];
        ssize_t n;

        snprintf(path, sizeof(path), "%s/exit", e->name);
        CLEAN(cleanup_fd) int fd = openat(b->spool_fd, path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);

        if (fd < 0)
                return false;
        n = read(fd, record, sizeof(record));
        return n > 0 && frame_exit_record_parse(record, (size_t)n, &e->exit, NULL) == 0;
}

static void adopt(struct box *b, const char *name, const uint8_t id[FRAME_UUID])
{
        struct exec *e = exec_new(b, id);
        char target[8];

        if (!e)
                return;
        e->state = EXEC_ENDED;
        if (readlinkat(b->spool_fd, name, target, sizeof(target)) > 0)
                e->flags |= BOX_START_SHARED;
        if (!spool_reopen(b, e)) {
                e->exit.flags = BOX_EXIT_INCOMPLETE;
        } else {
                adopt_stream(&e->out[0]);
                adopt_stream(&e->out[1]);
                e->started_ms = birth_ms(e->out[0].file);
        }
        spool_close(e);
        if (read_exit(b, e))
                return;
        e->exit = (struct box_exit){
                .code = -1,
                .flags = BOX_EXIT_INCOMPLETE,
                .ended_ms = (uint64_t)(clock_wall_us() / US_PER_MS),
                .stdout_len = e->out[0].written,
                .stderr_len = e->out[1].written,
        };
        e->adopted = true;
}

void spool_adopt(struct box *b)
{
        int fd = openat(b->spool_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        DIR *dir = fd >= 0 ? fdopendir(fd) : NULL;
        struct dirent *entry;
        bool any = false;

        if (!dir)
                return;
        while ((entry = readdir(dir))) {
                uint8_t id[FRAME_UUID];

                if (frame_uuid_bytes(entry->d_name, id))
                        adopt(b, entry->d_name, id);
        }
        closedir(dir);
        for (int i = 0; i < b->n_execs; i++)
                any = any || b->execs[i].adopted;
        if (!any)
                return;
        tree_kill_adopted(b);
        for (int i = 0; i < b->n_execs; i++) {
                if (b->execs[i].adopted)
                        spool_write_exit(b, &b->execs[i]);
                b->execs[i].adopted = false;
        }
}

void spool_remove_all(struct box *b)
{
        for (int i = 0; i < b->n_execs; i++)
                if (b->execs[i].state != EXEC_FREE)
                        spool_remove(b, &b->execs[i]);
        if (b->sandbox) /* the rest is for who buries it: it says where its cgroups are */
                return;
        (void)unlinkat(b->dir_fd, "spool", AT_REMOVEDIR);
        (void)unlinkat(b->dir_fd, "box.sock", 0);
        (void)unlinkat(b->dir_fd, "pid", 0);
        (void)unlinkat(b->dir_fd, "cgroup", 0);
        (void)unlinkat(b->dir_fd, "box.lock", 0);
        (void)rmdir(b->dir);
}
