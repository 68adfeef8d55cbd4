/* Writes the journal of a merge, and cleans up after one that died. */
#define _GNU_SOURCE
#include "workspace/merge_journal.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/file.h>

#include "base/fault.h"
#include "base/fd.h"
#include "base/uuid.h"

#define TEMP       ".berth-tmp-"
#define LOCK_PAUSE 20 /* ms */
#define MAX_BYTES  ((size_t)64 << 20)

static int wait_for_lock(struct op *op, int fd, struct err *err)
{
        while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
                int r;

                if (errno != EWOULDBLOCK && errno != EINTR)
                        return err_sys(err, ERR_IO, errno, "lock");
                r = op_wait_fd(op, -1, 0, LOCK_PAUSE, err);
                if (r < 0)
                        return err_wrap(err, r, "wait for another merge of this workspace");
        }
        return 0;
}

/* A file too long to be one of ours tells nothing; its locks still work. */
static int read_before(struct merge_journal *j, struct err *err)
{
        char block[8192];
        ssize_t n;

        buf_init(&j->before, MAX_BYTES);
        while ((n = read(j->fd, block, sizeof(block))) != 0) {
                if (n < 0 && errno == EINTR)
                        continue;
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "read");
                buf_append(&j->before, block, (size_t)n);
        }
        if (buf_failed(&j->before))
                buf_clear(&j->before);
        return 0;
}

int merge_journal_open(struct op *op, struct merge_journal *j, const char *path, struct err *err)
{
        j->fd = open(path, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0600);
        if (j->fd < 0)
                return err_sys(err, ERR_IO, errno, "open %s", path);
        int r = wait_for_lock(op, j->fd, err);
        if (r >= 0)
                r = read_before(j, err);
        if (r < 0)
                return err_wrap(err, r, "%s", path);
        random_hex(j->id, MERGE_ID / 2);
        return 0;
}

void merge_journal_close(struct merge_journal *j)
{
        buf_done(&j->before);
        if (j->fd >= 0)
                close(j->fd);
        j->fd = -1;
}

/* Writing */

static int append(struct merge_journal *j, char letter, const char *a, const char *b,
                  struct err *err)
{
        CLEAN(buf_done) struct buf record = BUF_INIT;
        off_t end = lseek(j->fd, 0, SEEK_END);

        buf_putc(&record, letter);
        buf_append(&record, a, strlen(a) + 1);
        if (b)
                buf_append(&record, b, strlen(b) + 1);
        int r = fd_write_all(j->fd, record.data, record.len, err);
        if (r >= 0)
                return 0;
        (void)!ftruncate(j->fd, end); /* half a record would spoil those behind it */
        return err_wrap(err, r, "write the journal of a merge");
}

int merge_journal_sync(struct merge_journal *j, struct err *err)
{
        if (!j->begun || fdatasync(j->fd) == 0)
                return 0;
        return err_sys(err, ERR_IO, errno, "sync the journal of a merge");
}

static int begin_journal(struct merge_journal *j, struct err *err)
{
        if (j->begun)
                return 0;
        int r = append(j, 'B', j->id, NULL, err);
        if (r < 0)
                return r;
        j->begun = true;
        FAULT("workspace.merge.begun");
        return merge_journal_sync(j, err);
}

int merge_journal_temp(struct merge_journal *j, const char *dir, char ret[64], struct err *err)
{
        bool is_first = !j->begun;
        int r = begin_journal(j, err);

        if (r >= 0 && (is_first || !streq(j->last_dir, dir)))
                r = append(j, 'D', dir, NULL, err);
        if (r < 0)
                return r;
        snprintf(j->last_dir, sizeof(j->last_dir), "%s", dir);
        snprintf(ret, 64, TEMP "%s-%u", j->id, j->temps++);
        return 0;
}

int merge_journal_kept(struct merge_journal *j, const char *path, const char *kept, struct err *err)
{
        int r = begin_journal(j, err);

        if (r >= 0)
                r = append(j, 'C', path, kept, err);
        if (r >= 0)
                j->has_kept = true;
        return r;
}

void merge_journal_give_up(struct merge_journal *j)
{
        if (j->begun && !j->has_kept)
                (void)!ftruncate(j->fd, (off_t)j->before.len);
}

int merge_journal_end(struct merge_journal *j, struct err *err)
{
        if (!j->begun && j->before.len == 0)
                return 0;
        if (ftruncate(j->fd, 0) < 0 || fdatasync(j->fd) < 0)
                return err_sys(err, ERR_IO, errno, "clear the journal of a merge");
        return 0;
}

/* Reading what is left of others. Texts are taken only where their NUL is there too. */

static const char *text_at(const struct merge_journal *j, const char *at)
{
        const char *end = buf_str(&j->before) + j->before.len;

        return at < end && memchr(at, '\0', (size_t)(end - at)) ? at : NULL;
}

static const char *skip(const char *text)
{
        return text + strlen(text) + 1;
}

/* The next record behind `at`, or NULL: its letter is *at, its first text at + 1. */
static const char *record_from(const struct merge_journal *j, const char *at, char letter)
{
        const char *end = buf_str(&j->before) + j->before.len;

        while (at && at < end) {
                const char *text = text_at(j, at + 1), *second;

                if (!text)
                        return NULL;
                second = *at == 'C' ? text_at(j, skip(text)) : text;
                if (!second)
                        return NULL;
                if (*at == letter)
                        return at;
                at = skip(second);
        }
        return NULL;
}

static const char *next_text(const struct merge_journal *j, const char *last, char letter)
{
        const char *at = buf_str(&j->before);

        if (last)
                at = letter == 'C' ? skip(skip(last)) : skip(last);
        at = record_from(j, at, letter);
        return at ? at + 1 : NULL;
}

bool merge_journal_owns(const struct merge_journal *j, const char *name)
{
        const char *id = NULL;

        if (!str_starts(name, TEMP))
                return false;
        name += strlen(TEMP);
        while ((id = next_text(j, id, 'B')) != NULL)
                if (strlen(id) == MERGE_ID && str_starts(name, id) && name[MERGE_ID] == '-')
                        return true;
        return false;
}

const char *merge_journal_next_dir(const struct merge_journal *j, const char *last)
{
        return next_text(j, last, 'D');
}

const char *merge_journal_next_kept(const struct merge_journal *j, const char *last,
                                    const char **ret_kept)
{
        const char *path = next_text(j, last, 'C');

        if (path)
                *ret_kept = skip(path);
        return path;
}
