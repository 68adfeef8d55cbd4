/* The walk of a scan: entries in order, files hashed by several threads. */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <sodium.h>
#include <stdatomic.h>
#include <stdio.h>
#include <time.h>

#include "workspace/scan_dir.h"

/* One thread, the caller's, walks: it reads directories, looks at names, asks the cache, and puts
 * what it finds into a ring of slots in the order of the paths. Files that must be read wait in
 * their slot; helpers take the oldest first, and so does the caller whenever there is no room to
 * walk on. Entries leave the ring at its other end, in order. So the ring bounds memory, and
 * MAX_JOBS the descriptors. */

#define WINDOW      256
#define MAX_JOBS    48
#define MAX_THREADS 4
#define HELP_JOBS   4 /* so many files to read, or so many bytes, are worth a thread */
#define HELP_BYTES  ((uint64_t)1 << 20)
#define SETTLE_NS   INT64_C(2000000000)
#define NS_PER_S    INT64_C(1000000000)
#define WAIT_NS     (20 * INT64_C(1000000))
#define CHECK_EVERY 64

enum slot_state { SLOT_READY, SLOT_WAITING, SLOT_RUNNING };

struct slot {
        enum slot_state state;
        struct tree_entry entry;
        char *path;
        size_t path_room, name_at;
        char *target;
        struct dir *dir; /* of a file that is to be read */
        struct file_id id;
        bool remember; /* put it into the cache */
        bool gone;
};

struct scan {
        struct tree_source source;
        struct scan_options options;
        uint64_t max_entries;
        struct cache_reader *known;
        struct cache_writer *learned;
        struct scan_skipped skipped;
        uint8_t *chunk;
        uint64_t ticks, count;
        bool has_current, ended;
        int failed;

        /* the walk */
        struct dir *stack[TREE_MAX_DEPTH + 1];
        size_t path_len[TREE_MAX_DEPTH + 1];
        unsigned depth; /* 0: the walk is over */
        char path[TREE_MAX_PATH + 1];

        /* the ring, and all below: under the lock once helpers run */
        pthread_mutex_t lock;
        pthread_cond_t work, done;
        struct slot slots[WINDOW];
        uint64_t head, tail, next_job;
        unsigned jobs; /* waiting or running */
        uint64_t job_bytes, bytes_read;
        int job_failed;
        struct err job_err;
        atomic_bool stop;
        pthread_t helpers[MAX_THREADS];
        unsigned n_helpers, max_helpers;
};

static struct slot *slot_at(struct scan *s, uint64_t i)
{
        return &s->slots[i % WINDOW];
}

static int check_scan(void *ctx, struct err *err)
{
        struct scan *s = ctx;

        return s->options.check ? s->options.check(s->options.ctx, err) : 0;
}

/* Reading files */

static int64_t now_ns(const struct scan *s)
{
        struct timespec t;

        if (s->options.now_ns)
                return s->options.now_ns;
        clock_gettime(CLOCK_REALTIME, &t);
        return (int64_t)t.tv_sec * NS_PER_S + t.tv_nsec;
}

/* A slot that this thread has taken; no other thread touches it. */
static int read_slot(struct scan *s, struct slot *slot, const struct file_reader *how,
                     uint64_t *ret_bytes, struct err *err)
{
        const int64_t begun = now_ns(s);
        struct file_content content;
        int r = file_hash(dir_fd(slot->dir), slot->path + slot->name_at, how, &content, err);

        *ret_bytes = content.bytes;
        if (r)
                return r;
        slot->gone = content.look.seen == SEEN_NOTHING;
        if (content.look.seen != SEEN_FILE) {
                slot->entry = (struct tree_entry){ .path = slot->path, .kind = TREE_UNKNOWN };
                return 0;
        }
        slot->id = content.look.id;
        slot->entry.mode = content.look.mode;
        slot->entry.size = content.look.id.size;
        slot->entry.mtime_ns = content.look.id.mtime_ns;
        memcpy(slot->entry.hash, content.hash, TREE_HASH);
        slot->remember = content.steady && slot->id.ctime_ns <= begun - SETTLE_NS;
        return 0;
}

static struct slot *take_job(struct scan *s)
{
        s->next_job = MAX(s->next_job, s->head);
        for (; s->next_job < s->tail; s->next_job++) {
                struct slot *slot = slot_at(s, s->next_job);

                if (slot->state != SLOT_WAITING)
                        continue;
                slot->state = SLOT_RUNNING;
                s->next_job++;
                return slot;
        }
        return NULL;
}

/* With the lock held, which it gives up while it reads. */
static void run_job(struct scan *s, struct slot *slot, const struct file_reader *how)
{
        CLEAN(err_done) struct err err = { 0 };
        uint64_t bytes = 0;

        pthread_mutex_unlock(&s->lock);
        int r = read_slot(s, slot, how, &bytes, &err);
        dir_unref(take_ptr(&slot->dir));
        pthread_mutex_lock(&s->lock);
        slot->state = SLOT_READY;
        s->jobs--;
        s->bytes_read += bytes;
        if (r && !s->job_failed) {
                s->job_failed = r;
                err_move(&s->job_err, &err);
        }
        pthread_cond_signal(&s->done);
}

static int check_stop(void *ctx, struct err *err)
{
        const struct scan *s = ctx;

        return atomic_load(&s->stop) ? err_set(err, ERR_CANCELLED, "stopped") : 0;
}

static void *help(void *arg)
{
        struct scan *s = arg;
        CLEAN(cleanup_free) uint8_t *chunk = xcalloc(1, FILE_CHUNK);
        const struct file_reader how = { chunk, check_stop, s, s->options.owner };

        pthread_mutex_lock(&s->lock);
        while (!atomic_load(&s->stop)) {
                struct slot *slot = take_job(s);

                if (slot)
                        run_job(s, slot, &how);
                else
                        pthread_cond_wait(&s->work, &s->lock);
        }
        pthread_mutex_unlock(&s->lock);
        return NULL;
}

/* Helpers get no signals: those are for threads that the program knows. */
static void start_helpers(struct scan *s)
{
        sigset_t all, old;

        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &old);
        while (s->n_helpers < s->max_helpers &&
               pthread_create(&s->helpers[s->n_helpers], NULL, help, s) == 0)
                s->n_helpers++;
        s->max_helpers = s->n_helpers;
        pthread_sigmask(SIG_SETMASK, &old, NULL);
}

/* Filling the ring */

static struct slot *new_slot(struct scan *s, enum tree_kind kind)
{
        struct slot *slot = slot_at(s, s->tail);
        size_t len = strlen(s->path);
        char *path = slot->path;
        size_t room = slot->path_room;

        if (room < len + 1) {
                room = MAX(len + 1, (size_t)128);
                path = xrealloc(path, room);
        }
        memcpy(path, s->path, len + 1);
        *slot = (struct slot){
                .path = path,
                .path_room = room,
                .name_at = s->path_len[s->depth - 1],
                .entry = { .path = path, .kind = kind },
        };
        return slot;
}

static void publish(struct scan *s, const struct slot *slot)
{
        bool help_wanted = false;

        pthread_mutex_lock(&s->lock);
        s->tail++;
        if (slot->state == SLOT_WAITING) {
                s->jobs++;
                s->job_bytes += slot->id.size;
                help_wanted = s->jobs >= HELP_JOBS || s->job_bytes >= HELP_BYTES;
                pthread_cond_signal(&s->work);
        }
        pthread_mutex_unlock(&s->lock);
        if (help_wanted && s->n_helpers < s->max_helpers)
                start_helpers(s);
}

static void add_unknown(struct scan *s)
{
        publish(s, new_slot(s, TREE_UNKNOWN));
}

static int add_dir(struct scan *s, const char *name, const struct look *look, struct err *err)
{
        struct dir *d = NULL;
        enum seen seen;
        int r = dir_open(s->options.owner, dir_fd(s->stack[s->depth - 1]), name, &d, &seen, err);

        if (r < 0 || seen == SEEN_NOTHING)
                return r;
        if (seen == SEEN_DIR)
                r = dir_read(d, s->max_entries, err);
        if (r <= 0)
                dir_unref(d);
        if (r < 0)
                return r;
        if (r == 0) {
                add_unknown(s);
                return 0;
        }
        struct slot *slot = new_slot(s, TREE_DIR);
        slot->entry.mode = look->mode;
        publish(s, slot);
        s->path_len[s->depth] = strlen(s->path) + 1;
        s->stack[s->depth++] = d;
        return 0;
}

static void add_link(struct scan *s, const char *name)
{
        char target[TREE_MAX_TARGET + 1];

        if (read_target(dir_fd(s->stack[s->depth - 1]), name, target) == 0) {
                add_unknown(s);
                return;
        }
        struct slot *slot = new_slot(s, TREE_LINK);
        slot->target = xstrdup(target);
        slot->entry.target = slot->target;
        publish(s, slot);
}

static void add_file(struct scan *s, const struct look *look)
{
        struct slot *slot = new_slot(s, TREE_FILE);

        slot->entry.mode = look->mode;
        slot->entry.size = look->id.size;
        slot->entry.mtime_ns = look->id.mtime_ns;
        slot->id = look->id;
        if (look->id.size == 0) {
                crypto_generichash(slot->entry.hash, TREE_HASH, NULL, 0, NULL, 0);
        } else if (cache_find(s->known, slot->path, &look->id, slot->entry.hash)) {
                slot->remember = true;
        } else {
                slot->state = SLOT_WAITING;
                slot->dir = dir_ref(s->stack[s->depth - 1]);
        }
        publish(s, slot);
}

/* s->path becomes the name's; false when there is no room for it, or it is left out. */
static bool make_path(struct scan *s, const char *name)
{
        size_t base = s->path_len[s->depth - 1], len = strlen(name);

        if (base + len > TREE_MAX_PATH || len > TREE_MAX_NAME || s->depth > TREE_MAX_DEPTH) {
                s->skipped.too_long++;
                return false;
        }
        if (base > 0)
                s->path[base - 1] = '/';
        memcpy(s->path + base, name, len + 1);
        return !excludes_match(s->options.excludes, s->path);
}

static int add_name(struct scan *s, const char *name, struct err *err)
{
        struct look look;
        int r = look_at(dir_fd(s->stack[s->depth - 1]), name, &look, err);

        if (r < 0)
                return r;
        if (look.seen != SEEN_NOTHING &&
            excludes_never(s->options.excludes, (struct tree_id){ look.id.dev, look.id.ino }))
                look.seen = SEEN_UNKNOWN;
        switch (look.seen) {
        case SEEN_NOTHING:
                break;
        case SEEN_DIR:
                return add_dir(s, name, &look, err);
        case SEEN_FILE:
                add_file(s, &look);
                break;
        case SEEN_LINK:
                add_link(s, name);
                break;
        case SEEN_SPECIAL:
                s->skipped.special++;
                break;
        case SEEN_UNKNOWN:
                add_unknown(s);
                break;
        }
        return 0;
}

static int walk_step(struct scan *s, struct err *err)
{
        const char *name = dir_next(s->stack[s->depth - 1]);
        int r = ++s->ticks % CHECK_EVERY == 0 ? check_scan(s, err) : 0;

        if (r)
                return r;
        if (!name) {
                s->depth--;
                dir_unref(take_ptr(&s->stack[s->depth]));
                return 0;
        }
        return make_path(s, name) ? add_name(s, name, err) : 0;
}

/* Emptying it */

static void release_head(struct scan *s)
{
        struct slot *slot = slot_at(s, s->head);

        free(take_ptr(&slot->target));
        pthread_mutex_lock(&s->lock);
        s->head++;
        pthread_mutex_unlock(&s->lock);
        s->has_current = false;
}

static int emit(struct scan *s, struct slot *slot, struct tree_entry *ret, struct err *err)
{
        if (++s->count > s->max_entries)
                return err_set(err, ERR_TOO_LARGE, "more than %llu files and directories",
                               (unsigned long long)s->max_entries);
        if (slot->entry.kind == TREE_UNKNOWN && s->skipped.unreadable++ == 0)
                snprintf(s->skipped.first_unreadable, sizeof(s->skipped.first_unreadable), "%s",
                         slot->path);
        if (slot->remember)
                cache_add(s->learned, slot->path, &slot->id, slot->entry.hash);
        s->has_current = true;
        *ret = slot->entry;
        return 1;
}

static void wait_for_helpers(struct scan *s)
{
        struct timespec t;

        clock_gettime(CLOCK_REALTIME, &t);
        t.tv_nsec += WAIT_NS;
        if (t.tv_nsec >= NS_PER_S) {
                t.tv_nsec -= NS_PER_S;
                t.tv_sec++;
        }
        (void)pthread_cond_timedwait(&s->done, &s->lock, &t);
}

/* Until the oldest slot is ready: 1, or 0 when there is none; with the lock held. */
static int await_head(struct scan *s, struct err *err)
{
        const struct file_reader how = { s->chunk, check_scan, s, s->options.owner };
        struct slot *slot;
        int r;

        while (s->head < s->tail && slot_at(s, s->head)->state != SLOT_READY && !s->job_failed) {
                slot = take_job(s);
                if (slot)
                        run_job(s, slot, &how);
                else
                        wait_for_helpers(s);
                r = check_scan(s, err);
                if (r)
                        return r;
        }
        if (s->job_failed) {
                err_move(err, &s->job_err);
                return s->job_failed;
        }
        return s->head < s->tail;
}

static bool has_room(struct scan *s)
{
        pthread_mutex_lock(&s->lock);
        bool room = s->tail - s->head < WINDOW && s->jobs < MAX_JOBS;
        pthread_mutex_unlock(&s->lock);
        return room;
}

static int next_entry(struct scan *s, struct tree_entry *ret, struct err *err)
{
        int r = 0;

        for (;;) {
                while (r == 0 && s->depth > 0 && has_room(s))
                        r = walk_step(s, err);
                if (r)
                        return r;
                pthread_mutex_lock(&s->lock);
                r = await_head(s, err);
                pthread_mutex_unlock(&s->lock);
                if (r <= 0 && (r < 0 || s->depth == 0))
                        return r;
                if (r == 0)
                        continue;
                if (!slot_at(s, s->head)->gone)
                        return emit(s, slot_at(s, s->head), ret, err);
                release_head(s);
                r = 0;
        }
}

static int scan_next(struct tree_source *source, struct tree_entry *ret, struct err *err)
{
        struct scan *s = container_of(source, struct scan, source);

        if (s->failed)
                return err_set(err, s->failed, "the scan failed before");
        if (s->has_current)
                release_head(s);
        int r = s->ended ? 0 : next_entry(s, ret, err);
        if (r < 0)
                s->failed = r;
        s->ended |= r == 0;
        return r;
}

/* Life */

static unsigned threads_wanted(unsigned asked)
{
        long n = asked > 0 ? (long)asked : sysconf(_SC_NPROCESSORS_ONLN);

        return (unsigned)MAX(1, MIN(n, (long)MAX_THREADS));
}

int scan_open(int take_dir_fd, const struct scan_options *options, struct scan **ret,
              struct err *err)
{
        static const struct scan_options none = { 0 };
        struct scan *s = xcalloc(1, sizeof(*s));

        s->source.next = scan_next;
        s->options = options ? *options : none;
        s->max_entries = s->options.max_entries ? s->options.max_entries : TREE_MAX_COUNT;
        s->max_helpers = threads_wanted(s->options.threads) - 1;
        s->chunk = xcalloc(1, FILE_CHUNK);
        pthread_mutex_init(&s->lock, NULL);
        pthread_cond_init(&s->work, NULL);
        pthread_cond_init(&s->done, NULL);
        s->stack[0] = dir_new(take_dir_fd);
        s->depth = 1;
        int r = hashing_ready(err);
        if (r >= 0)
                r = dir_read(s->stack[0], s->max_entries, err);
        if (r <= 0) {
                scan_close(s);
                return r < 0 ? r : err_set(err, ERR_IO, "the directory cannot be read");
        }
        s->known = cache_open(s->options.cache_path);
        s->learned = cache_create(s->options.cache_path);
        *ret = s;
        return 0;
}

struct tree_source *scan_source(struct scan *s)
{
        return &s->source;
}

const struct scan_skipped *scan_skipped(const struct scan *s)
{
        return &s->skipped;
}

uint64_t scan_count(const struct scan *s)
{
        return s->count;
}

uint64_t scan_bytes_read(struct scan *s)
{
        pthread_mutex_lock(&s->lock);
        uint64_t bytes = s->bytes_read;
        pthread_mutex_unlock(&s->lock);
        return bytes;
}

static void stop_helpers(struct scan *s)
{
        pthread_mutex_lock(&s->lock);
        atomic_store(&s->stop, true);
        pthread_cond_broadcast(&s->work);
        pthread_mutex_unlock(&s->lock);
        for (unsigned i = 0; i < s->n_helpers; i++)
                pthread_join(s->helpers[i], NULL);
}

void scan_close(struct scan *s)
{
        if (!s)
                return;
        stop_helpers(s);
        cache_finish(s->learned, s->ended);
        cache_close(s->known);
        for (unsigned i = 0; i < s->depth; i++)
                dir_unref(s->stack[i]);
        for (size_t i = 0; i < WINDOW; i++) {
                dir_unref(s->slots[i].dir);
                free(s->slots[i].path);
                free(s->slots[i].target);
        }
        err_done(&s->job_err);
        pthread_cond_destroy(&s->work);
        pthread_cond_destroy(&s->done);
        pthread_mutex_destroy(&s->lock);
        free(s->chunk);
        free(s);
}
