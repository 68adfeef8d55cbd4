/* Questions about boxes; each that takes time is a process of its own. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "base/clock.h"
#include "base/fd.h"
#include "base/uuid.h"
#include "berth-box/box.h"
#include "berth-box/mains.h"
#include "berth-box/relay.h"
#include "box/launch.h"
#include "codec/exchange.h"

#define WORK_MS   20000
#define WORD_FD   3
#define NODE_NOTE "node"

/* In the process of its own */

/* Nothing of the relay stays open in it, or in a box that it starts: the carrier would never end.
 */
static void keep_only(int word_fd)
{
        int null = open("/dev/null", O_RDWR);

        for (int fd = 0; fd < 3; fd++)
                if (null < 0 || dup2(null, fd) < 0)
                        _exit(1);
        if (dup2(word_fd, WORD_FD) < 0)
                _exit(1);
        fd_close_from(WORD_FD + 1U);
        (void)fcntl(WORD_FD, F_SETFD, FD_CLOEXEC);
}

/* Start one and hear its word; it goes on by itself. */
static void spawn_box(const char *dir, const char *id, int lock, struct buf *word)
{
        const char *argv[] = { "berth-box", "--dir", dir, "--id", id, "--locked", NULL };
        int fds[2], status;

        if (pipe2(fds, O_CLOEXEC) < 0)
                return;
        pid_t pid = fork();
        if (pid == 0) {
                if (dup2(fds[1], 1) >= 0 && dup2(lock, BOX_LOCK_FD) >= 0 &&
                    fcntl(BOX_LOCK_FD, F_SETFD, 0) >= 0)
                        execv("/proc/self/exe", (char *const *)argv);
                _exit(1);
        }
        close(fds[1]);
        if (pid > 0)
                (void)fd_read_to_end(fds[0], word);
        close(fds[0]);
        while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR)
                ;
}

/* Write down which node wants the box before there is one, so that a later look can tell which node
 * the box belongs to. */
static int note_node(const char *dir, const char *node, struct err *err)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/" NODE_NOTE, dir);

        if (mkdir(dir, 0700) < 0 && errno != EEXIST)
                return err_sys(err, ERR_PROVIDER, errno, "make %s", dir);
        enum life life = file_life_at(AT_FDCWD, path);
        if (life == LIFE_UNKNOWN)
                return err_sys(err, ERR_BUSY, errno, "look at %s", path);
        return life == LIFE_YES ? 0 : file_write_at(AT_FDCWD, path, node, strlen(node), 0600, err);
}

static int ensure_box(const char *dir, const char *id, const char *node, struct err *err)
{
        CLEAN(buf_done) struct buf word = { .max = 4096 };
        CLEAN(cleanup_fd) int lock = -1;
        int r = node ? note_node(dir, node, err) : 0;

        if (r >= 0)
                r = box_check_alive(dir, err);
        if (r != 0)
                return MIN(r, 0);
        r = box_lock_take(dir, &lock, err);
        if (r == ERR_LOCKED && box_is_alive(dir) == LIFE_YES) {
                err_clear(err);
                return 0;
        }
        if (r < 0)
                return r;
        spawn_box(dir, id, lock, &word);
        if (str_starts(buf_str(&word), "ready "))
                return 0;
        const char *text =
                buf_str(&word) + (str_starts(buf_str(&word), "error ") ? strlen("error ") : 0);
        bool is_want = !word.len || str_starts(text, BOX_NOT_NOW);
        text += str_starts(text, BOX_NOT_NOW) ? strlen(BOX_NOT_NOW) : 0;
        if (!*text)
                text = "it ended without a word";
        (void)err_set(err, ERR_PROVIDER, "the supervisor did not start: %.*s",
                      (int)strcspn(text, "\n"), text);
        if (is_want)
                err_mark_transient(err);
        return ERR_PROVIDER;
}

static int bury_box(const char *dir, const char *id, const char *const *execs, struct err *err)
{
        struct op op = { .deadline_ms = clock_mono_ms() + WORK_MS };

        return box_bury(&op, dir, id, execs, err);
}

static int bury_named(const char *dir, const char *id, const struct relay_frame *f, struct err *err)
{
        CLEAN(cleanup_free) char *texts = xcalloc((size_t)f->n_execs + 1, UUID_LEN + 1);
        CLEAN(cleanup_free) const char **ids = xcalloc((size_t)f->n_execs + 1, sizeof(*ids));

        for (uint32_t i = 0; i < f->n_execs; i++) {
                char *text = texts + (size_t)i * (UUID_LEN + 1);

                frame_uuid_text(f->execs + (size_t)i * FRAME_UUID, text);
                ids[i] = text;
        }
        return bury_box(dir, id, ids, err);
}

static void answer_in_child(const struct relay *r, const struct relay_frame *f)
{
        CLEAN(err_done) struct err err = { 0 };
        char dir[4200], id[UUID_LEN + 1], node[UUID_LEN + 1] = "";

        (void)alarm(2 * WORK_MS / 1000);
        relay_box_dir(r, f->box, dir, sizeof(dir));
        frame_uuid_text(f->box, id);
        if (f->want == RELAY_ENSURE && f->n_execs > 0)
                frame_uuid_text(f->execs, node);
        int code = f->want == RELAY_BURY ? bury_named(dir, id, f, &err)
                                         : ensure_box(dir, id, *node ? node : NULL, &err);
        /* A word that ends well is "ok": a process that was killed says nothing. */
        (void)!dprintf(WORD_FD, "%s%s", code < 0 ? box_not_now(&err) : "ok",
                       code < 0 ? err.msg : "");
}

/* In the relay */

static void begin_child(struct relay *r, const struct relay_frame *f)
{
        struct relay_child *k = r->children;
        int fds[2];

        while (k < r->children + RELAY_MAX_CHILDREN && k->used)
                k++;

        if (k == r->children + RELAY_MAX_CHILDREN || pipe2(fds, O_CLOEXEC) < 0) {
                relay_answer(r, f->channel, RELAY_BUSY, 0, "too much at once");
                return;
        }
        *k = (struct relay_child){ .used = true, .channel = f->channel, .fd = fds[0] };
        k->word.max = 1024;
        k->pid = fork();
        if (k->pid == 0) {
                keep_only(fds[1]);
                answer_in_child(r, f);
                _exit(0);
        }
        close(fds[1]);
        if (k->pid < 0 || relay_watch(r, EPOLL_CTL_ADD, k->fd, EPOLLIN, RELAY_EV_CHILD,
                                      (int)(k - r->children)) < 0) {
                close(k->fd);
                k->used = false;
                relay_answer(r, f->channel, RELAY_BUSY, 0, "no process to do it");
        }
}

void relay_child_event(struct relay *r, struct relay_child *k)
{
        if (fd_read_some(k->fd, &k->word, 256) > 0)
                return;
        (void)waitpid(k->pid, NULL, 0);
        const char *text = k->word.len ? buf_str(&k->word) : BOX_NOT_NOW "it was killed";
        bool is_ok = streq(text, "ok");
        bool may_pass = str_starts(text, BOX_NOT_NOW);
        relay_answer(r, k->channel,
                     is_ok      ? RELAY_OK
                     : may_pass ? RELAY_BUSY
                                : RELAY_FAILED,
                     0, is_ok ? "" : text + (may_pass ? strlen(BOX_NOT_NOW) : 0));
        close(k->fd);
        buf_done(&k->word);
        k->used = false;
}

static int compare_ids(const void *a, const void *b)
{
        return memcmp(a, b, FRAME_UUID);
}

/* The boxes of the host, by their ids and from one on, so that any number of them can be told. */
static void list_boxes(struct relay *r, const struct relay_frame *f)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/boxes", r->base);
        CLEAN(cleanup_free) uint8_t(*ids)[FRAME_UUID] = NULL;
        CLEAN(buf_done) struct buf text = { .max = RELAY_LIST_MAX * (2 * UUID_LEN + 2) + 1 };
        DIR *dir = opendir(path);
        struct dirent *entry;
        size_t n = 0, room = 0;

        while (dir && (errno = 0, entry = readdir(dir))) {
                uint8_t id[FRAME_UUID];

                if (!frame_uuid_bytes(entry->d_name, id) || memcmp(id, f->box, FRAME_UUID) <= 0)
                        continue;
                if (n == room) {
                        room = room ? 2 * room : 64;
                        ids = xrealloc(ids, room * sizeof(*ids));
                }
                memcpy(ids[n++], id, FRAME_UUID);
        }
        if (!dir || errno) {
                relay_answer(r, f->channel, RELAY_BUSY, 0, strerror(errno));
                if (dir)
                        closedir(dir);
                return;
        }
        closedir(dir);
        if (n > 0)
                qsort(ids, n, sizeof(*ids), compare_ids);
        for (size_t i = 0; i < MIN(n, (size_t)RELAY_LIST_MAX); i++) {
                CLEAN(buf_done) struct buf node = { .max = 64 };
                char id[UUID_LEN + 1];
                uint8_t checked[FRAME_UUID];

                frame_uuid_text(ids[i], id);
                {
                        CLEAN(cleanup_free) char *note = xasprintf("%s/%s/" NODE_NOTE, path, id);

                        (void)file_read_at(AT_FDCWD, note, UUID_LEN, &node, NULL);
                }
                buf_appendf(&text, "%s %s\n", id,
                            frame_uuid_bytes(buf_str(&node), checked) ? buf_str(&node) : "-");
        }
        relay_answer(r, f->channel, RELAY_OK, n > RELAY_LIST_MAX, buf_str(&text));
}

void relay_ask(struct relay *r, const struct relay_frame *f)
{
        CLEAN(err_done) struct err err = { 0 };
        char dir[4200];

        if (f->want == RELAY_LIST) {
                list_boxes(r, f);
                return;
        }
        relay_box_dir(r, f->box, dir, sizeof(dir));
        int alive = f->want == RELAY_BURY ? 0 : box_check_alive(dir, &err);
        if (alive < 0)
                relay_answer(r, f->channel, RELAY_BUSY, 0, err.msg);
        else if (f->want == RELAY_ALIVE)
                relay_answer(r, f->channel, RELAY_OK, (uint8_t)alive, "");
        else if (alive)
                relay_answer(r, f->channel, RELAY_OK, 0, "");
        else
                begin_child(r, f);
}

/* From the command line */

int ask_main(const struct main_args *a)
{
        CLEAN(cleanup_free) char *dir = xasprintf("%s/boxes/%s", a->dir, a->id);
        CLEAN(err_done) struct err err = { 0 };
        int code = 0;

        if (relay_make_dirs(a->dir) < 0)
                code = err_sys(&err, ERR_PROVIDER, errno, "%s", a->dir);
        else if (streq(a->given, "ensure"))
                code = ensure_box(dir, a->id, NULL, &err);
        else if (streq(a->given, "bury"))
                code = bury_box(dir, a->id, a->words, &err);
        else if (streq(a->given, "alive"))
                code = box_check_alive(dir, &err);
        else
                return 2;
        printf(ASK_WORD "%s%s\n", code < 0 ? box_not_now(&err) : "",
               code < 0   ? err.msg
               : code > 0 ? "yes"
                          : "no");
        return code < 0 ? 1 : 0;
}
