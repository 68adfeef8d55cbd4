/* The spool: the output of a command, on disk before the host is told about it.
 *
 * DIR/spool/<uuid> is a directory with `stdout`, `stderr` and, at the end, `exit`; for a shared
 * spool it is a symbolic link to the host's directory, so that a box that was killed finds both
 * kinds again (spool_adopt). Files keep the offsets of the stream for ever; bytes that an own spool
 * no longer needs are punched out of them in steps of PUNCH bytes, so their start is a hole.
 *
 * Bytes go from the pipe to the file by splice(), in the kernel; a terminal, and file systems that
 * cannot do that, take the way through a buffer. When the host does not take what is there
 * (written - stored reaches the limit), the pipe is no longer read, and the command blocks. At the
 * end what is left in the pipe is stored in any case: that is bounded by the pipe itself.
 *
 * A disk without room makes the command block as well, and is tried again every BOX_ROOM_MS; after
 * the time that START named (exec_turn) the command is killed. The output of an execution that
 * ended by itself meanwhile waits as long. Bytes that splice() could not take stay in the pipe;
 * those that went through a buffer are held.
 *
 * What is kept of an execution, and of all executions of the place, may be bounded too. Then the
 * command blocks in the same way, for a bounded time (exec_turn), or the oldest bytes of a shared
 * spool are punched out; of an own one the host does that to its copy. That bound is never passed,
 * at the end neither. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fd.h"
#include "berth-box/sandbox.h"

#define PUNCH       ((uint64_t)1 << 20)
#define BUSY        32768                /* bytes in one move; a pipe has room for 65536 */
#define BOX_FULL_MS 60000                /* that a full disk is waited for, unless START says so */
#define DRAIN_MAX   ((uint64_t)16 << 20) /* a command may have enlarged its pipe */

static const char *const file_names[] = { "stdout", "stderr" };

static void file_path(char ret[64], const struct exec *e, const char *name)
{
        snprintf(ret, 64, "%s/%s", e->name, name);
}

static bool is_shared(const struct exec *e)
{
        return e->flags & BOX_START_SHARED;
}

/* Where <execution>/<file> is. A sandbox cannot follow a path of the host: it was given the
 * directory that shared spools are in. */
static int base_fd(const struct box *b, const struct exec *e)
{
        return b->sandbox && is_shared(e) ? b->sandbox->output_fd : b->spool_fd;
}

/* A directory that holds the output of something else is not written over. */
static int create_files(struct box *b, struct exec *e)
{
        char path[64];
        struct stat st;

        file_path(path, e, "exit");
        if (faccessat(base_fd(b, e), path, F_OK, 0) == 0) {
                errno = EEXIST;
                return -1;
        }
        for (int i = 0; i < 2; i++) {
                file_path(path, e, file_names[i]);
                e->out[i].file = openat(
                        base_fd(b, e), path,
                        O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK, 0600);
                if (e->out[i].file < 0 || fstat(e->out[i].file, &st) < 0)
                        return -1;
                if (!S_ISREG(st.st_mode) || st.st_size > 0) {
                        errno = EEXIST;
                        return -1;
                }
        }
        return 0;
}

int spool_create(struct box *b, struct exec *e, const char *shared_dir)
{
        if (shared_dir && b->sandbox) {
                /* <output directory>/<execution id>, which the host has made for us. */
                const char *dir = b->sandbox->spec.output_dir;
                size_t n = dir ? strlen(dir) : 0;

                if (n == 0 || strncmp(shared_dir, dir, n) != 0 || shared_dir[n] != '/' ||
                    !streq(shared_dir + n + 1, e->name)) {
                        errno = EACCES;
                        return -1;
                }
                return create_files(b, e);
        }
        if (!shared_dir) {
                if (mkdirat(b->spool_fd, e->name, 0700) < 0)
                        return -1;
                e->spool_made = true;
                return create_files(b, e);
        }
        if (mkdir(shared_dir, 0700) < 0 && errno != EEXIST)
                return -1;
        if (symlinkat(shared_dir, b->spool_fd, e->name) < 0)
                return -1;
        e->spool_made = true;
        return create_files(b, e);
}

void spool_close(struct exec *e)
{
        for (int i = 0; i < 2; i++) {
                if (e->out[i].file >= 0)
                        close(e->out[i].file);
                e->out[i].file = -1;
        }
}

bool spool_redact(struct exec *e, char *const *values)
{
        bool too_much = false;
        size_t n = 0;

        for (int i = 0; i < 2; i++) {
                if (e->out[i].redact)
                        redact_done(e->out[i].redact);
                free(e->out[i].redact);
                e->out[i].redact = NULL;
        }
        redactor_free(e->redactor);
        e->redactor = NULL;
        while (values && values[n])
                n++;
        if (n > 0)
                e->redactor = redactor_new((const char *const *)values, n, &too_much);
        for (int i = 0; i < 2 && e->redactor; i++) {
                e->out[i].redact = xcalloc(1, sizeof(*e->out[i].redact));
                redact_begin(e->out[i].redact, e->redactor);
        }
        return !too_much;
}

/* Open the files of an ended execution again, for a host that came back. */
bool spool_reopen(struct box *b, struct exec *e)
{
        for (int i = 0; i < 2; i++) {
                char path[64];

                if (e->out[i].file >= 0)
                        continue;
                file_path(path, e, file_names[i]);
                e->out[i].file = openat(base_fd(b, e), path,
                                        O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NOCTTY | O_NONBLOCK);
                if (e->out[i].file < 0)
                        return false;
        }
        return true;
}

static void remove_entry(struct box *b, const struct exec *e, bool files)
{
        char path[64];

        for (int i = 0; i < 2 && files; i++) {
                file_path(path, e, file_names[i]);
                (void)unlinkat(base_fd(b, e), path, 0);
        }
        if (files) {
                file_path(path, e, "exit");
                (void)unlinkat(base_fd(b, e), path, 0);
        }
        if (b->sandbox && is_shared(e)) /* the directory is the host's */
                return;
        if (unlinkat(b->spool_fd, e->name, 0) < 0)
                (void)unlinkat(b->spool_fd, e->name, AT_REMOVEDIR);
}

/* In a host's directory only what is empty, and therefore ours, is taken away. */
void spool_discard(struct box *b, struct exec *e)
{
        struct stat st;
        bool ours = true;

        for (int i = 0; i < 2; i++)
                ours = ours && e->out[i].file >= 0 && fstat(e->out[i].file, &st) == 0 &&
                       st.st_size == 0;
        spool_close(e);
        if (e->spool_made || (b->sandbox && ours))
                remove_entry(b, e, ours || !is_shared(e));
}

void spool_remove(struct box *b, struct exec *e)
{
        spool_close(e);
        remove_entry(b, e, !is_shared(e));
}

/* Moving */

static bool lacks_room(int errno_value)
{
        return errno_value == ENOSPC || errno_value == EDQUOT;
}

static int write_out(struct stream *s, const char *data, size_t len)
{
        while (len > 0) {
                ssize_t w = pwrite(s->file, data, len, (off_t)s->written);

                if (w < 0 && errno == EINTR)
                        continue;
                if (w < 0 && lacks_room(errno)) {
                        buf_append(&s->held, data, len);
                        errno = ENOMEM;
                        return buf_failed(&s->held) ? -1 : 0;
                }
                if (w <= 0) {
                        if (w == 0 || errno == EAGAIN)
                                errno = EIO;
                        return -1;
                }
                s->written += (uint64_t)w;
                data += w;
                len -= (size_t)w;
        }
        return 0;
}

/* Write the output without the values that are not to be seen. NULL: the end of it. */
static int write_redacted(struct stream *s, const char *data, size_t len)
{
        CLEAN(buf_wipe) struct buf shown = BUF_INIT;

        if (data)
                redact_feed(s->redact, data, len, &shown);
        else
                redact_end(s->redact, &shown);
        if (buf_failed(&shown)) {
                errno = ENOMEM;
                return -1;
        }
        return write_out(s, buf_str(&shown), shown.len);
}

/* Write the bytes that were held, before anything else. */
static int write_held(struct stream *s)
{
        CLEAN(buf_wipe) struct buf held = s->held;

        s->held = (struct buf){ 0 };
        return write_out(s, buf_str(&held), held.len);
}

/* Like splice(), for what it does not take. The buffer is static: there is one loop. */
static ssize_t copy_some(struct stream *s, size_t max)
{
        static char buffer[65536];
        ssize_t n = read(s->pipe, buffer, MIN(max, sizeof(buffer)));

        if (n < 0 && errno == EIO)
                return 0; /* a terminal that no process has open */
        if (n <= 0)
                return n;
        int r = s->redact ? write_redacted(s, buffer, (size_t)n) : write_out(s, buffer, (size_t)n);
        return r < 0 ? r : n;
}

static ssize_t move_some(struct exec *e, struct stream *s, size_t max)
{
        loff_t at = (loff_t)s->written;
        ssize_t n;

        if (s->held.len > 0 && write_held(s) < 0)
                return -1;
        if (s->held.len > 0) {
                errno = ENOSPC;
                return -1;
        }
        if (!(e->flags & BOX_START_TERMINAL) && !e->no_splice && !s->redact) {
                n = splice(s->pipe, NULL, s->file, &at, max, SPLICE_F_MOVE | SPLICE_F_NONBLOCK);
                s->written += n > 0 ? (uint64_t)n : 0;
                if (n >= 0 || errno != EINVAL)
                        return n;
                e->no_splice = true;
        }
        return copy_some(s, max);
}

/* The disk takes nothing: nothing is moved until it is tried again. */
static void note_full(const struct box *b, struct exec *e)
{
        e->room_at = b->now + BOX_ROOM_MS;
        if (!e->room_until)
                e->room_until =
                        b->now + (e->flags & BOX_START_OUTPUT ? e->output.wait_ms : BOX_FULL_MS);
}

/* At most max bytes: how many, 0 when there are none for now, or no more at all, or no room on the
 * disk; below for an error of the disk. */
static ssize_t move_up_to(const struct box *b, struct exec *e, struct stream *s, size_t max)
{
        ssize_t n = move_some(e, s, max);

        if ((n < 0 && lacks_room(errno)) || s->held.len > 0) {
                note_full(b, e);
                return 0;
        }
        if (n > 0) {
                e->room_until = 0;
                return n;
        }
        if (n == 0) {
                close(s->pipe);
                s->pipe = -1;
                s->polled = false;
                return 0;
        }
        if (errno == EAGAIN || errno == EINTR)
                return 0;
        /* The pipe stays open: the command is to die by SIGKILL, not wonder about SIGPIPE. */
        snprintf(e->fail_text, sizeof(e->fail_text), "the spool failed: %s", strerror(errno));
        e->say |= e->channel ? SAY_ERROR : 0;
        s->broken = true;
        return -1;
}

uint64_t spool_kept(const struct exec *e)
{
        uint64_t kept = 0;

        for (int i = 0; i < 2; i++)
                kept += e->out[i].written - (is_shared(e) ? e->out[i].punched : 0);
        return kept;
}

static uint64_t left_of(uint64_t limit, uint64_t taken)
{
        return limit == 0 ? UINT64_MAX : limit > taken ? limit - taken : 0;
}

uint64_t spool_output_room(const struct box *b, const struct exec *e)
{
        uint64_t place = b->output_taken;

        if (!(e->flags & BOX_START_OUTPUT) || (e->output.full == BOX_OUTPUT_DROP && !is_shared(e)))
                return UINT64_MAX;
        for (int i = 0; b->output_limit && i < b->n_execs; i++)
                if (b->execs[i].state != EXEC_FREE)
                        place += spool_kept(&b->execs[i]);
        return MIN(left_of(e->output.limit, spool_kept(e)), left_of(b->output_limit, place));
}

bool spool_is_pending(const struct exec *e)
{
        for (int i = 0; i < 2; i++) {
                int n = 0;

                if (e->out[i].pipe >= 0 && ioctl(e->out[i].pipe, FIONREAD, &n) == 0 && n > 0)
                        return true;
        }
        return false;
}

/* Where that was chosen, the oldest bytes of the stream that has most of them go. If they cannot,
 * the command waits like others. */
static void make_room(const struct box *b, struct exec *e)
{
        if (e->output.full != BOX_OUTPUT_DROP || !is_shared(e))
                return;
        while (spool_output_room(b, e) == 0) {
                struct stream *a = &e->out[0], *z = &e->out[1];
                struct stream *s = a->written - a->punched >= z->written - z->punched ? a : z;

                if (s->written - s->punched < PUNCH ||
                    fallocate(s->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              (off_t)s->punched, (off_t)PUNCH) < 0)
                        return;
                s->punched += PUNCH;
        }
}

/* A value that is not to be seen may be shorter than what stands for it. */
#define REDACTED_GROWS 4

static uint64_t stream_room(const struct box *b, const struct exec *e, const struct stream *s)
{
        uint64_t kept = s->written - s->stored, output = spool_output_room(b, e);

        if (s->redact && output != UINT64_MAX)
                output = output / REDACTED_GROWS + (output % REDACTED_GROWS != 0);
        return MIN(kept < b->spool_limit ? b->spool_limit - kept : 0, output);
}

/* A larger pipe means fewer turns of the loop. Only for streams that need it: a user has 64 MiB of
 * pipe memory, and past it every new pipe, also the command's own, gets the smallest size. */
static void enlarge_busy(const struct box *b, const struct exec *e, struct stream *s, ssize_t moved)
{
        if (s->enlarged || s->pipe < 0 || (moved < BUSY && stream_room(b, e, s) > 0))
                return;
        s->enlarged = true;
        for (int size = BOX_PIPE_SIZE; size > 65536; size /= 2)
                if (fcntl(s->pipe, F_SETPIPE_SZ, size) >= 0)
                        return;
}

int spool_move(struct box *b, struct exec *e, int stream)
{
        struct stream *s = &e->out[stream];
        ssize_t n = 0;

        if (s->pipe < 0 || s->file < 0 || s->broken)
                return 0;
        if (stream_room(b, e, s) > 0 && !e->room_at)
                n = move_up_to(b, e, s, (size_t)MIN(stream_room(b, e, s), (uint64_t)BOX_PIPE_SIZE));
        enlarge_busy(b, e, s, n);
        spool_poll(b, e, stream);
        return n < 0 ? -1 : 0;
}

/* Processes that still hold the other end of the pipe are not waited for. */
int spool_drain(struct box *b, struct exec *e, int stream)
{
        struct stream *s = &e->out[stream];
        uint64_t end = s->written + DRAIN_MAX;

        if (s->broken)
                return -1;
        while (s->pipe >= 0 && s->file >= 0) {
                uint64_t output;
                ssize_t n;

                make_room(b, e);
                output = spool_output_room(b, e);
                if (output == 0 && spool_is_pending(e)) {
                        e->end_flags |= BOX_EXIT_OUTPUT;
                        return -1;
                }
                n = output == 0 ? 0
                                : move_up_to(b, e, s, (size_t)MIN(output, (uint64_t)BOX_PIPE_SIZE));
                if (n < 0 || s->written >= end)
                        return -1;
                if (e->room_at)
                        return 1;
                if (n == 0)
                        break;
        }
        if (s->redact && !s->is_over && s->file >= 0) {
                s->is_over = true;
                if (write_redacted(s, NULL, 0) < 0)
                        return -1;
        }
        if (s->held.len > 0 && write_held(s) < 0)
                return -1;
        if (s->held.len > 0)
                note_full(b, e);
        return s->held.len > 0;
}

void spool_retry(struct box *b, struct exec *e)
{
        e->room_at = 0;
        spool_poll(b, e, 0);
        spool_poll(b, e, 1);
}

/* Watch the pipe exactly while there is room for what it has. */
void spool_poll(struct box *b, struct exec *e, int stream)
{
        struct stream *s = &e->out[stream];

        make_room(b, e);
        /* Begin to wait for room, or stop it. */
        if (spool_output_room(b, e) > 0)
                e->full_until = 0;
        else if (!e->full_until && !e->ending)
                e->full_until = b->now + e->output.wait_ms;
        bool want = s->pipe >= 0 && !s->broken && !e->room_at && stream_room(b, e, s) > 0 &&
                    e->state == EXEC_RUNNING;
        if (want == s->polled)
                return;
        if (!want && s->pipe >= 0)
                box_unwatch(b, s->pipe);
        if (want &&
            box_watch(b, s->pipe, EPOLLIN, stream ? EV_STDERR : EV_STDOUT, box_index(b, e)) < 0)
                return;
        s->polled = want;
}

void spool_stored(struct box *b, struct exec *e, int stream, uint64_t stored)
{
        struct stream *s = &e->out[stream];

        if (stored <= s->stored)
                return;
        s->stored = stored;
        if (!is_shared(e) && stored - s->punched >= PUNCH && s->file >= 0) {
                uint64_t upto = stored - stored % PUNCH;

                if (upto > s->punched &&
                    fallocate(s->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                              (off_t)s->punched, (off_t)(upto - s->punched)) == 0)
                        s->punched = upto;
        }
        spool_poll(b, e, stream);
}

/* The exit record. A fresh file, so that a half-written one is known by its length or checksum. On
 * a full disk it is tried again; a host hears how it ended all the same. */
void spool_write_exit(struct box *b, struct exec *e)
{
        uint8_t record[BOX_EXIT_RECORD];
        char path[64];

        frame_exit_record(&e->exit, record);
        file_path(path, e, "exit");
        (void)unlinkat(base_fd(b, e), path, 0);
        CLEAN(cleanup_fd)
        int fd = openat(base_fd(b, e), path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0600);

        errno = fd < 0 ? errno : 0;
        e->has_record = fd >= 0 && fd_write_all(fd, record, sizeof(record), NULL) >= 0;
        if (!e->has_record && !lacks_room(errno))
                e->exit.flags |= BOX_EXIT_INCOMPLETE; /* all that can still be said */
        e->sync_at = b->now + BOX_SYNC_MS;
}

/* A host that listens makes the output safe, writes the end down itself and says so (FORGET) sooner
 * than a disk could. With one that is slow the record has to be safe here, without one the output
 * too. */
void spool_sync_turn(struct box *b, struct exec *e, int64_t *nearest)
{
        char path[64];

        if (!e->sync_at || e->state == EXEC_FREE)
                return;
        if ((b->host || !e->has_record) && b->now < e->sync_at) {
                box_deadline(nearest, e->sync_at);
                return;
        }
        if (!e->has_record) {
                spool_write_exit(b, e);
                if (!e->has_record) {
                        box_deadline(nearest, e->sync_at);
                        return;
                }
        }
        e->sync_at = 0;
        for (int i = 0; i < 2 && !b->host; i++) {
                file_path(path, e, file_names[i]);
                if (e->out[i].written > 0)
                        (void)file_sync(base_fd(b, e), path, NULL);
        }
        file_path(path, e, "exit");
        (void)file_sync(base_fd(b, e), path, NULL);
        if (b->host)
                return;
        /* Its own name, and that of its directory; the link of a shared spool leads to the host's.
         */
        (void)file_sync(base_fd(b, e), e->name, NULL);
        file_path(path, e, "..");
        (void)file_sync(base_fd(b, e), path, NULL);
        if (!(b->sandbox && is_shared(e)))
                (void)fsync(b->spool_fd);
}
