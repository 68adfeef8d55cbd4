/* Pushing: the local tree and the other side's manifest are walked side by side once. Whatever
 * differs is sent as it is met, so nothing grows with the tree; the baseline is written by the same
 * walk. Large files wait in slots for the answer to their chunks while the walk goes on. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "base/fd.h"
#include "workspace/apply.h"
#include "workspace/owner.h"
#include "workspace/sync_file.h"
#include "workspace/sync_session.h"

#define MAX_TRIES 4

enum slot_state { SLOT_FREE, SLOT_OFFERED, SLOT_WANTED, SLOT_SENT };

struct push_slot {
        enum slot_state state;
        struct sync_out out;
        struct buf wanted;
        char *path;
        struct tree_entry entry; /* as the baseline says; path is the one above */
        int tries;
        bool answered, again;
};

struct push {
        struct sync_session s;
        struct tree_source walk; /* the source that the baseline is written from */
        struct tree_source *local;
        struct sync_manifest remote;
        struct tree_entry r;
        bool r_valid, r_begun, over;
        struct apply reader; /* of the local tree; reads only */
        struct owner owner;
        struct push_slot slots[SYNC_SLOTS];
        struct sync_fixes fixes;
        char *removed[TREE_MAX_DEPTH + 1]; /* directories that go once they are empty */
        int n_removed;
};

/* Slots */

static void slot_done(struct push_slot *k)
{
        sync_out_done(&k->out);
        buf_done(&k->wanted);
        free(k->path);
        *k = (struct push_slot){ .out.fd = -1 };
}

/* May come at any moment, also in the middle of sending: noted, no more. */
static int on_file(void *ctx, const struct sync_msg *m, struct err *err)
{
        struct push *p = ctx;
        struct push_slot *k = m->slot < SYNC_SLOTS ? &p->slots[m->slot] : NULL;
        enum peer_phase phase = PEER_QUIET;

        if (k && k->state == SLOT_OFFERED)
                phase = PUT_OFFERED;
        else if (k && k->state == SLOT_SENT && !k->answered)
                phase = PUT_SENT;
        int r = sync_slot_move(phase, m, err);
        if (r < 0 || !k)
                return r;
        if (m->type == SYNC_WANT) {
                buf_append(&k->wanted, m->blob.p, m->blob.len);
                k->state = SLOT_WANTED;
        } else {
                k->answered = true;
                k->again = m->flags & SYNC_AGAIN;
        }
        return 0;
}

/* Other bytes arrived than were announced: the file changed while its chunks were sent. */
static int send_again(struct push *p, struct push_slot *k, struct err *err)
{
        struct sync_sent sent;
        struct stat st;

        if (++k->tries > MAX_TRIES)
                return err_set(err, ERR_PROVIDER, "The file worker does not get %s right.",
                               k->path);
        if (fstat(k->out.fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "read %s", k->path);
        k->entry.size = (uint64_t)st.st_size;
        k->answered = false;
        int r = sync_out_whole(&p->s.io, k->out.slot, k->out.fd, &k->entry, &sent, err);
        if (r < 0)
                return r;
        k->entry.size = sent.size;
        memcpy(k->entry.hash, sent.hash, TREE_HASH);
        sync_fixes_add(&p->fixes, k->path, &k->entry);
        return 0;
}

static int serve_slots(struct push *p, struct err *err)
{
        int r = 0;

        for (int i = 0; i < SYNC_SLOTS && r >= 0; i++) {
                struct push_slot *k = &p->slots[i];

                if (k->state == SLOT_WANTED) {
                        k->state = SLOT_SENT;
                        r = sync_out_wanted(
                                &p->s.io, &k->out,
                                (struct frame_bytes){ buf_str(&k->wanted), k->wanted.len }, err);
                } else if (k->state == SLOT_SENT && k->answered) {
                        if (k->again)
                                r = send_again(p, k, err);
                        else
                                slot_done(k);
                }
        }
        return r;
}

/* Answers that came while another slot was served. */
static bool something_due(const struct push *p)
{
        for (int i = 0; i < SYNC_SLOTS; i++)
                if (p->slots[i].state == SLOT_WANTED || p->slots[i].answered)
                        return true;
        return false;
}

static int slot_free(struct push *p, struct push_slot **ret, struct err *err)
{
        int r;

        while ((r = serve_slots(p, err)) >= 0) {
                for (int i = 0; i < SYNC_SLOTS; i++)
                        if (p->slots[i].state == SLOT_FREE) {
                                *ret = &p->slots[i];
                                return 0;
                        }
                if (!something_due(p))
                        r = sync_step(&p->s.io, err);
                if (r < 0)
                        break;
        }
        return r;
}

static int slots_wait(struct push *p, struct err *err)
{
        int r;

        while ((r = serve_slots(p, err)) >= 0) {
                bool busy = false;

                for (int i = 0; i < SYNC_SLOTS; i++)
                        busy = busy || p->slots[i].state != SLOT_FREE;
                if (!busy)
                        break;
                if (!something_due(p))
                        r = sync_step(&p->s.io, err);
                if (r < 0)
                        break;
        }
        return r;
}

/* Files */

static int send_big(struct push *p, int take_fd_, struct tree_entry *l, bool offer, struct err *err)
{
        CLEAN(cleanup_fd) int fd = take_fd_;
        struct sync_sent sent = { 0 };
        struct push_slot *k;
        int r = slot_free(p, &k, err);

        if (r < 0)
                return r;
        k->out.fd = take_fd(&fd);
        k->out.slot = (uint32_t)(k - p->slots);
        k->path = xstrdup(l->path);
        k->entry = *l;
        k->entry.path = k->path;
        k->state = offer ? SLOT_OFFERED : SLOT_SENT;
        if (offer) {
                r = sync_out_offer(&p->s.io, &k->out, &k->entry, err);
                sent.size = k->out.size;
                memcpy(sent.hash, k->out.hash, TREE_HASH);
        } else {
                r = sync_out_whole(&p->s.io, k->out.slot, k->out.fd, &k->entry, &sent, err);
        }
        l->size = k->entry.size = sent.size;
        memcpy(l->hash, sent.hash, TREE_HASH);
        memcpy(k->entry.hash, sent.hash, TREE_HASH);
        return r;
}

/* 1 sent, 0 when it is not there any more. */
static int send_file(struct push *p, struct tree_entry *l, bool has_old, struct err *err)
{
        CLEAN(cleanup_fd) int fd = apply_open(&p->reader, l->path);
        struct sync_sent sent;
        struct stat st;
        int r;

        if (fd < 0 && (errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == EIO))
                return err_sys(err, ERR_IO, errno, "open %s", l->path);
        if (fd < 0)
                return 0;
        if (fstat(fd, &st) < 0)
                return err_sys(err, ERR_IO, errno, "open %s", l->path);
        l->size = (uint64_t)st.st_size;
        p->s.progress.files++;
        if (l->size > SYNC_SMALL) {
                r = send_big(p, take_fd(&fd), l, has_old || sync_session_has_part(&p->s, l->hash),
                             err);
        } else {
                r = sync_out_small(&p->s.io, 0, fd, l, &sent, err);
                l->size = sent.size;
                memcpy(l->hash, sent.hash, TREE_HASH);
        }
        p->s.progress.bytes += l->size;
        sync_session_tell(&p->s);
        return r < 0 ? r : 1;
}

static int send_simple(struct push *p, uint8_t type, const char *path, uint32_t mode,
                       const char *target, struct err *err)
{
        return sync_send(&p->s.io,
                         &(struct sync_msg){ .type = type,
                                             .path = sync_text(path),
                                             .mode = mode,
                                             .target = sync_text(target ? target : "") },
                         err);
}

/* Make the path there what it is here: 1, or 0 when there is nothing here any more. */
static int send_entry(struct push *p, struct tree_entry *l, const struct tree_entry *r,
                      struct err *err)
{
        int ret;

        if (l->kind == TREE_DIR)
                ret = send_simple(p, SYNC_DIR, l->path, l->mode, NULL, err);
        else if (l->kind == TREE_LINK)
                ret = send_simple(p, SYNC_LINK, l->path, 0, l->target, err);
        else if (r && tree_same_content(l, r))
                ret = send_simple(p, SYNC_MODE, l->path, l->mode, NULL, err);
        else {
                ret = send_file(p, l, r && r->kind == TREE_FILE, err);
                if (ret == 0 && r && r->kind != TREE_DIR)
                        ret = send_simple(p, SYNC_REMOVE, l->path, 0, NULL, err);
                return ret;
        }
        return ret < 0 ? ret : 1;
}

/* The walk */

static int next_remote(struct push *p, struct err *err)
{
        int r = tree_next(&p->remote.source, &p->r, err);

        p->r_valid = r > 0;
        return r < 0 ? r : 0;
}

/* Directories that the walk has left. path NULL: all. */
static int leave_removed(struct push *p, const char *path, struct err *err)
{
        int r = 0;

        while (r >= 0 && p->n_removed > 0) {
                CLEAN(cleanup_free) char *dir = NULL;

                if (path && tree_beneath(path, p->removed[p->n_removed - 1]))
                        return 0;
                dir = p->removed[--p->n_removed];
                r = send_simple(p, SYNC_REMOVE, dir, 0, NULL, err);
        }
        return r;
}

static int remove_remote(struct push *p, struct err *err)
{
        int r = leave_removed(p, p->r.path, err);

        if (r < 0)
                return r;
        if (p->r.kind == TREE_DIR && p->n_removed < TREE_MAX_DEPTH)
                p->removed[p->n_removed++] = xstrdup(p->r.path);
        else
                r = send_simple(p, SYNC_REMOVE, p->r.path, 0, NULL, err);
        return r < 0 ? r : next_remote(p, err);
}

/* The path and what is beneath it: a file takes the place of a directory, and all goes with it; or
 * it is unknown what is here, and all stays. */
static int skip_remote(struct push *p, const char *path, struct err *err)
{
        int r = 0;

        while (r >= 0 && p->r_valid && (streq(p->r.path, path) || tree_beneath(p->r.path, path)))
                r = next_remote(p, err);
        return r;
}

/* Also the modes of directories, which tree_same() leaves alone. */
static bool same(const struct tree_entry *l, const struct tree_entry *r)
{
        return tree_same(l, r) && (l->kind != TREE_DIR || l->mode == r->mode);
}

/* 1 when the entry belongs to the baseline. */
static int match(struct push *p, struct tree_entry *l, struct err *err)
{
        bool here = p->r_valid && streq(p->r.path, l->path);
        int r = 1, r2 = 0;

        if (l->kind == TREE_UNKNOWN) {
                r2 = skip_remote(p, l->path, err);
                return r2 < 0 ? r2 : 1;
        }
        if (!here || !same(l, &p->r))
                r = send_entry(p, l, here ? &p->r : NULL, err);
        if (r < 0 || !here)
                return r;
        r2 = l->kind == TREE_DIR ? next_remote(p, err) : skip_remote(p, l->path, err);
        return r2 < 0 ? r2 : r;
}

static int push_finish(struct push *p, struct err *err)
{
        int r = leave_removed(p, NULL, err);

        if (r >= 0)
                r = slots_wait(p, err);
        if (r >= 0)
                r = sync_session_ask_end(&p->s, SYNC_FINISH, err);
        p->over = true;
        return r < 0 ? r : sync_session_wait(&p->s, &p->s.finished, err);
}

static int walk_next(struct tree_source *source, struct tree_entry *ret, struct err *err)
{
        struct push *p = container_of(source, struct push, walk);
        int r = 0;

        if (p->over)
                return 0;
        if (!p->r_begun) {
                p->r_begun = true;
                r = next_remote(p, err);
        }
        while (r >= 0) {
                bool more;

                r = tree_next(p->local, ret, err);
                if (r < 0)
                        return r;
                more = r > 0;
                while (r >= 0 && p->r_valid && (!more || tree_compare(p->r.path, ret->path) < 0))
                        r = remove_remote(p, err);
                if (r >= 0)
                        r = leave_removed(p, more ? ret->path : NULL, err);
                if (r >= 0)
                        r = serve_slots(p, err);
                if (r < 0 || !more)
                        break;
                r = match(p, ret, err);
                if (r != 0)
                        return r;
        }
        return r < 0 ? r : push_finish(p, err);
}

static int check_op(void *ctx, struct err *err)
{
        return op_check(ctx, err);
}

static int push_tree(struct push *p, int local_dir_fd, const char *cache_path, int baseline_dir,
                     const char *baseline_name, struct err *err)
{
        struct scan_options options = { .excludes = &p->s.excludes,
                                        .cache_path = cache_path,
                                        .owner = p->reader.owner,
                                        .check = check_op,
                                        .ctx = p->s.op };
        int fd = openat(local_dir_fd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        struct scan *scan = NULL;
        uint64_t count, bytes;
        int r = fd < 0 ? err_sys(err, ERR_IO, errno, "open the workspace")
                       : scan_open(fd, &options, &scan, err);

        if (r < 0)
                return r;
        p->local = scan_source(scan);
        r = sync_session_wait(&p->s, &p->s.scanned, err);
        if (r >= 0) {
                sync_manifest_init(&p->remote, &p->s);
                r = manifest_write(baseline_dir, baseline_name, &p->walk, &count, &bytes, err);
                sync_manifest_done(&p->remote);
        }
        scan_close(scan);
        return r < 0 ? r : sync_fixes_write(&p->fixes, baseline_dir, baseline_name, err);
}

static void push_done(struct push *p)
{
        for (int i = 0; i < SYNC_SLOTS; i++)
                slot_done(&p->slots[i]);
        while (p->n_removed > 0)
                free(p->removed[--p->n_removed]);
        sync_fixes_done(&p->fixes);
        apply_done(&p->reader);
        sync_session_done(&p->s);
        free(p);
}

int sync_push(struct op *op, int fd, int local_dir_fd, const char *cache_path, int baseline_dir,
              const char *baseline_name, const struct sync_options *options,
              struct sync_progress *ret, struct err *err)
{
        struct push *p = xcalloc(1, sizeof(*p));

        p->walk.next = walk_next;
        p->s.on_file = on_file;
        p->s.ctx = p;
        for (int i = 0; i < SYNC_SLOTS; i++)
                p->slots[i].out.fd = -1;
        apply_init(&p->reader, fcntl(local_dir_fd, F_DUPFD_CLOEXEC, 3));
        int r = owner_find(local_dir_fd, &p->owner, &p->reader.owner, err);
        if (r >= 0)
                r = sync_session_open(&p->s, op, fd, options, true, baseline_dir, err);
        if (r >= 0)
                r = push_tree(p, local_dir_fd, cache_path, baseline_dir, baseline_name, err);
        if (r >= 0 && ret) {
                sync_session_tell(&p->s);
                *ret = p->s.progress;
        }
        push_done(p);
        return sync_result(r, err);
}
