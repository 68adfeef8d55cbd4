/* Pulling: the other side's manifest becomes `next`; files that differ from the baseline are asked
 * for and go into the bundle. Changes wait in a queue, in order, until their content is there; some
 * hundred are asked for at a time, of large files a few. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>

#include "base/fd.h"
#include "workspace/apply.h"
#include "workspace/sync_file.h"
#include "workspace/sync_session.h"

#define MAX_TRIES 4

/* ASKED: nothing came yet. COMING: a large one. CHUNKS: they are known, and what we lack is to be
 * said. AGAIN: other bytes came than were announced. READY: the bundle has it. */
enum wait_state { WAIT_READY, WAIT_ASKED, WAIT_COMING, WAIT_CHUNKS, WAIT_AGAIN, WAIT_GONE };

struct waiting {
        enum wait_state state;
        bool large;
        struct change change; /* paths and targets are ours */
        uint32_t mode;        /* as it came */
        uint64_t paid;        /* bytes of it that were taken from the budget */
        struct sync_in in;
        int tries;
};

struct pull {
        struct sync_session s;
        struct bundle_writer *into;
        struct apply base; /* the local workspace; reads only */
        int parts_fd;      /* borrowed */
        struct waiting queue[SYNC_MAX_GETS];
        unsigned first, n; /* of the queue, a ring; the slot of one is its index */
        unsigned n_large;
        struct sync_fixes fixes;
};

static char *copy_text(const char *s)
{
        return s ? xstrdup(s) : NULL;
}

static void entry_copy(struct tree_entry *to, const struct tree_entry *from)
{
        *to = *from;
        to->path = copy_text(from->path);
        to->target = copy_text(from->target);
}

static void entry_done(struct tree_entry *e)
{
        free((char *)e->path);
        free((char *)e->target);
        e->path = e->target = NULL;
}

static void waiting_done(struct pull *p, struct waiting *w)
{
        sync_in_done(&w->in, false);
        entry_done(&w->change.now);
        entry_done(&w->change.was);
        if (w->large)
                p->n_large--;
        *w = (struct waiting){ .in.fd = -1 };
}

/* Content */

/* It is in the bundle, with this hash: what the manifest said, or what it became since. */
static void arrived(struct pull *p, struct waiting *w, const uint8_t hash[TREE_HASH], uint64_t size)
{
        struct tree_entry *now = &w->change.now;

        if (now->size != size || now->mode != w->mode || memcmp(now->hash, hash, TREE_HASH) != 0) {
                now->size = size;
                now->mode = w->mode;
                memcpy(now->hash, hash, TREE_HASH);
                sync_fixes_add(&p->fixes, now->path, now);
        }
        w->state = WAIT_READY;
        p->s.progress.files++;
        p->s.progress.bytes += size;
}

/* Before anything is made of a size that the other side says. */
static int pay(struct pull *p, struct waiting *w, uint64_t size, struct err *err)
{
        int r = 0;

        if (size > w->paid) {
                r = budget_take(p->s.options->budget, 0, size - w->paid, w->change.now.path, err);
                w->paid = size;
        }
        return r;
}

/* Content from memory, or from a descriptor. */
static int pull_keep(struct pull *p, const char *content, int from_fd, uint64_t size,
                     const uint8_t hash[TREE_HASH], struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;

        if (bundle_has(p->into, hash))
                return 0;
        int r = bundle_new_file(p->into, &fd, err);
        if (r >= 0)
                r = from_fd >= 0 ? sync_copy(from_fd, 0, fd, 0, size, err)
                                 : fd_write_all(fd, content, (size_t)size, err);
        return r < 0 ? r : bundle_keep(p->into, take_fd(&fd), hash, size, err);
}

static int on_small(struct pull *p, struct waiting *w, const struct sync_msg *m, struct err *err)
{
        int r = pay(p, w, m->blob.len, err);

        if (r >= 0)
                r = pull_keep(p, m->blob.p, -1, m->blob.len, m->hash, err);
        if (r < 0)
                return r;
        w->mode = m->mode;
        arrived(p, w, m->hash, m->blob.len);
        return 0;
}

static bool has_twin(const struct pull *p, const struct sync_msg *big)
{
        struct sync_in probe = { .fd = -1 };

        sync_in_name(&probe, big, false);
        for (unsigned i = 0; i < SYNC_MAX_GETS; i++)
                if (p->queue[i].in.fd >= 0 && streq(p->queue[i].in.name, probe.name))
                        return true;
        return false;
}

/* The part has the name of what is expected, so that the next try finds it. */
static int on_big(struct pull *p, struct waiting *w, const struct sync_msg *m, struct err *err)
{
        struct sync_msg big = *m;
        int r = pay(p, w, m->size, err);

        if (r < 0)
                return r;
        memcpy(big.hash, w->change.now.hash, TREE_HASH);
        w->state = WAIT_COMING;
        w->mode = m->mode;
        if (!w->large) { /* it was small when it was seen */
                w->large = true;
                p->n_large++;
        }
        return sync_in_begin(&w->in, p->parts_fd, &big, has_twin(p, &big), err);
}

static int on_big_end(struct pull *p, struct waiting *w, const struct sync_msg *m, struct err *err)
{
        int r = sync_in_end(&p->s.io, &w->in, m, err);

        if (r == 0)
                w->state = WAIT_AGAIN;
        if (r <= 0)
                return r;
        r = pull_keep(p, NULL, w->in.fd, m->size, m->hash, err);
        if (r < 0)
                return r;
        sync_in_done(&w->in, true);
        arrived(p, w, m->hash, m->size);
        return 0;
}

/* Noted, no more: nothing is sent from here. */
static int on_file(void *ctx, const struct sync_msg *m, struct err *err)
{
        struct pull *p = ctx;
        struct waiting *w = m->slot < SYNC_MAX_GETS ? &p->queue[m->slot] : NULL;
        enum peer_phase phase = PEER_QUIET;

        if (w && w->state == WAIT_ASKED)
                phase = GET_ASKED;
        else if (w && w->state == WAIT_COMING)
                phase = GET_COMING;
        int r = sync_slot_move(phase, m, err);
        if (r < 0 || !w)
                return r;
        switch (m->type) {
        case SYNC_FILE:
                return on_small(p, w, m, err);
        case SYNC_BIG:
                return on_big(p, w, m, err);
        case SYNC_GONE:
                w->state = WAIT_GONE;
                return 0;
        case SYNC_CHUNKS_ARE:
                r = sync_in_chunks(&w->in, m, err);
                if (r > 0)
                        w->state = WAIT_CHUNKS;
                return r;
        case SYNC_DATA:
                return sync_in_data(&w->in, m, err);
        default: /* BIG_END */
                return on_big_end(p, w, m, err);
        }
}

/* The queue */

static int pull_ask(struct pull *p, struct waiting *w, bool some, struct err *err)
{
        w->state = WAIT_ASKED;
        return sync_send(&p->s.io,
                         &(struct sync_msg){ .type = SYNC_GET,
                                             .slot = (uint32_t)(w - p->queue),
                                             .flags = some ? SYNC_HAVE_SOME : 0,
                                             .path = sync_text(w->change.now.path) },
                         err);
}

static int ask_again(struct pull *p, struct waiting *w, struct err *err)
{
        sync_in_done(&w->in, true);
        if (++w->tries > MAX_TRIES)
                return err_set(err, ERR_PROVIDER, "The file worker does not get %s right.",
                               w->change.now.path);
        return pull_ask(p, w, false, err);
}

static int say_wanted(struct pull *p, struct waiting *w, struct err *err)
{
        CLEAN(cleanup_fd) int old = apply_open(&p->base, w->change.now.path);
        CLEAN(buf_done) struct buf bitmap = BUF_INIT;
        int r = sync_in_want(&p->s.io, &w->in, old, &bitmap, err);

        if (r < 0)
                return r;
        w->state = WAIT_COMING;
        return sync_send(&p->s.io,
                         &(struct sync_msg){ .type = SYNC_WANT,
                                             .slot = (uint32_t)(w - p->queue),
                                             .blob = { buf_str(&bitmap), bitmap.len } },
                         err);
}

/* It was there when the tree was scanned and is not any more. */
static bool became_delete(struct pull *p, struct waiting *w)
{
        sync_fixes_add(&p->fixes, w->change.now.path, NULL);
        w->change.is_delete = true;
        return w->change.has_was;
}

/* Into the bundle with what is complete, as far as it is in order. */
static int pull_settle(struct pull *p, struct err *err)
{
        int r = 0;

        while (r >= 0 && p->n > 0) {
                struct waiting *w = &p->queue[p->first];

                if (w->state != WAIT_READY && w->state != WAIT_GONE)
                        break;
                if (w->state == WAIT_READY || became_delete(p, w))
                        r = bundle_add(p->into, &w->change, err);
                waiting_done(p, w);
                p->first = (p->first + 1) % SYNC_MAX_GETS;
                p->n--;
        }
        return r;
}

/* Whatever is due; *ret_some when something was. */
static int pull_answer(struct pull *p, bool *ret_some, struct err *err)
{
        int r = pull_settle(p, err);

        *ret_some = false;
        for (unsigned i = 0; i < p->n && r >= 0; i++) {
                struct waiting *w = &p->queue[(p->first + i) % SYNC_MAX_GETS];

                if (w->state != WAIT_CHUNKS && w->state != WAIT_AGAIN)
                        continue;
                *ret_some = true;
                r = w->state == WAIT_CHUNKS ? say_wanted(p, w, err) : ask_again(p, w, err);
        }
        return r;
}

/* Until at most so many wait. */
static int wait_until(struct pull *p, unsigned most, unsigned most_large, struct err *err)
{
        bool some;
        int r;

        while ((r = pull_answer(p, &some, err)) >= 0) {
                if (p->n <= most && p->n_large <= most_large)
                        break;
                if (!some)
                        r = sync_step(&p->s.io, err);
                sync_session_tell(&p->s);
                if (r < 0)
                        break;
        }
        return r;
}

/* What differs */

/* Something to begin with: an old version here, or a part of this one. */
static bool have_some(struct pull *p, const struct tree_entry *now)
{
        struct sync_msg big = { .type = SYNC_BIG };
        struct sync_in probe = { .fd = -1 };
        CLEAN(cleanup_fd) int fd = apply_open(&p->base, now->path);

        memcpy(big.hash, now->hash, TREE_HASH);
        sync_in_name(&probe, &big, false);
        return fd >= 0 || faccessat(p->parts_fd, probe.name, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

static int on_difference(void *ctx, const struct tree_entry *was, const struct tree_entry *now,
                         struct err *err)
{
        struct pull *p = ctx;
        bool large = now && now->kind == TREE_FILE && now->size > SYNC_SMALL;

        if (!was && !now)
                return 0;
        int r = wait_until(p, SYNC_MAX_GETS - 1, SYNC_SLOTS - (large ? 1 : 0), err);
        if (r < 0)
                return r;
        struct waiting *w = &p->queue[(p->first + p->n) % SYNC_MAX_GETS];
        p->n++;
        w->change.is_delete = now == NULL;
        w->change.has_was = was != NULL;
        if (was)
                entry_copy(&w->change.was, was);
        entry_copy(&w->change.now, now ? now : was);
        r = budget_take(p->s.options->budget, 1, 0, w->change.now.path, err);
        if (r >= 0 && now && now->kind == TREE_FILE)
                r = pay(p, w, now->size, err);
        if (r < 0)
                return r;
        if (!now || now->kind != TREE_FILE || bundle_has(p->into, now->hash))
                return 0;
        w->large = large;
        p->n_large += large;
        return pull_ask(p, w, large && have_some(p, now), err);
}

static int pull_changes(struct pull *p, int baseline_dir, const char *baseline_name,
                        const char *next_name, struct err *err)
{
        struct manifest_file *base = NULL, *next = NULL;
        int r = manifest_open(baseline_dir, baseline_name, &base, err);

        if (r >= 0)
                r = manifest_open(baseline_dir, next_name, &next, err);
        if (r >= 0)
                r = tree_diff(manifest_source(base), manifest_source(next), on_difference, p, err);
        if (r >= 0)
                r = wait_until(p, 0, 0, err);
        if (base)
                manifest_close(base);
        if (next)
                manifest_close(next);
        return r;
}

static int save_next(struct pull *p, int dir, const char *name, struct err *err)
{
        CLEAN(cleanup_free) struct sync_manifest *m = xcalloc(1, sizeof(*m));
        uint64_t count, bytes;
        int r = sync_session_wait(&p->s, &p->s.scanned, err);

        if (r < 0)
                return r;
        sync_manifest_init(m, &p->s);
        r = manifest_write(dir, name, &m->source, &count, &bytes, err);
        sync_manifest_done(m);
        return r;
}

static void pull_done(struct pull *p)
{
        for (unsigned i = 0; i < SYNC_MAX_GETS; i++)
                waiting_done(p, &p->queue[i]);
        sync_fixes_done(&p->fixes);
        apply_done(&p->base);
        sync_session_done(&p->s);
        free(p);
}

int sync_pull(struct op *op, int fd, int baseline_dir, const char *baseline_name,
              const char *next_name, int base_dir_fd, struct bundle_writer *into,
              const struct sync_options *options, uint32_t *ret_umask, struct sync_progress *ret,
              struct err *err)
{
        struct pull *p = xcalloc(1, sizeof(*p));

        p->into = into;
        p->parts_fd = baseline_dir;
        p->s.on_file = on_file;
        p->s.ctx = p;
        p->s.pulls = true;
        for (unsigned i = 0; i < SYNC_MAX_GETS; i++)
                p->queue[i].in.fd = -1;
        apply_init(&p->base, fcntl(base_dir_fd, F_DUPFD_CLOEXEC, 3));
        int r = sync_session_open(&p->s, op, fd, options, false, baseline_dir, err);
        if (r >= 0)
                r = save_next(p, baseline_dir, next_name, err);
        if (r >= 0)
                r = pull_changes(p, baseline_dir, baseline_name, next_name, err);
        if (r >= 0)
                r = sync_fixes_write(&p->fixes, baseline_dir, next_name, err);
        if (r >= 0) {
                sync_parts_remove(baseline_dir);
                sync_session_tell(&p->s);
                *ret_umask = p->s.umask;
                if (ret)
                        *ret = p->s.progress;
        }
        pull_done(p);
        return sync_result(r, err);
}
