/* The hub's tables, watches and small services; see exec.h. */
#define _GNU_SOURCE
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/fd.h"
#include "base/hash.h"
#include "base/log.h"
#include "base/path.h"
#include "core/exec/box_route_test.h"
#include "core/exec/exec_internal.h"
#include "core/sandboxes/sandbox_host.h"

/* Tables */

static size_t bucket_of(const char *id)
{
        return (size_t)(hash_text(id) % EXEC_BUCKETS);
}

struct exec *exec_find(struct exec_hub *hub, const char *id)
{
        struct exec *e = hub->table[bucket_of(id)];

        while (e && !streq(e->view.id, id))
                e = e->next;
        return e;
}

struct exec *exec_add(struct exec_hub *hub, const char *id)
{
        struct exec *e = xcalloc(1, sizeof(*e));
        size_t at = bucket_of(id);

        e->hub = hub;
        e->phase = EXEC_INTENDED;
        memcpy(e->view.id, id, UUID_LEN + 1);
        e->view.status = EXEC_STARTING;
        (void)frame_uuid_bytes(id, e->id);
        e->stdin_tail = &e->stdin_head;
        pthread_mutex_lock(&hub->lock);
        e->next = hub->table[at];
        hub->table[at] = e;
        pthread_mutex_unlock(&hub->lock);
        return e;
}

void exec_join_box(struct exec *e, struct box *box)
{
        e->box = box;
        e->phase = EXEC_QUEUED;
        e->box_next = box->execs;
        box->execs = e;
        intended_remove(e->hub, e->view.id);
}

void exec_drop_ended(struct exec *e, const char *status)
{
        pthread_mutex_lock(&e->hub->lock);
        if (status)
                e->view.status = status;
        e->view.ended = true;
        pthread_mutex_unlock(&e->hub->lock);
        exec_changed(e);
        exec_drop(e);
}

void exec_set_lengths(struct exec *e, uint64_t out, uint64_t errors)
{
        pthread_mutex_lock(&e->hub->lock);
        e->view.stdout_len = out;
        e->view.stderr_len = errors;
        pthread_mutex_unlock(&e->hub->lock);
}

void exec_drop_start(struct exec *e)
{
        if (e->start_memory)
                explicit_bzero(e->start_memory, e->start_size);
        free(e->start_memory);
        free(e->start);
        e->start_memory = NULL;
        e->start = NULL;
}

void exec_drop(struct exec *e)
{
        struct exec_hub *hub = e->hub;
        struct exec **at;

        if (e->box) {
                at = e->phase == EXEC_INTENDED ? &e->box->arrived : &e->box->execs;
                while (*at != e)
                        at = &(*at)->box_next;
                *at = e->box_next;
        }
        intended_remove(hub, e->view.id);
        pthread_mutex_lock(&hub->lock);
        for (at = &hub->table[bucket_of(e->view.id)]; *at != e; at = &(*at)->next)
                ;
        *at = e->next;
        pthread_mutex_unlock(&hub->lock);
        stdin_fail(e);
        if (e->box) {
                box_tell_quiet(e->box);
                box_forget_if_over(e->box);
        }
        free(e->remote_who);
        exec_remote_free(e->remote_run);
        exec_spool_drop(e);
        exec_drop_start(e);
        free(e);
}

/* Intended */

void intended_add(struct exec_hub *hub, const char *id)
{
        struct intended *i = xcalloc(1, sizeof(*i));

        memcpy(i->id, id, UUID_LEN + 1);
        pthread_mutex_lock(&hub->lock);
        i->next = hub->intended;
        hub->intended = i;
        pthread_mutex_unlock(&hub->lock);
}

void intended_remove(struct exec_hub *hub, const char *id)
{
        struct intended **at, *found;

        pthread_mutex_lock(&hub->lock);
        for (at = &hub->intended; *at && !streq((*at)->id, id); at = &(*at)->next)
                ;
        found = *at;
        if (found)
                *at = found->next;
        pthread_mutex_unlock(&hub->lock);
        free(found);
}

bool intended_has(struct exec_hub *hub, const char *id)
{
        struct intended *i;

        pthread_mutex_lock(&hub->lock);
        for (i = hub->intended; i && !streq(i->id, id); i = i->next)
                ;
        pthread_mutex_unlock(&hub->lock);
        return i != NULL;
}

/* Boxes */

static void box_closed(uv_handle_t *handle)
{
        struct box *b = container_of((uv_timer_t *)handle, struct box, retry);

        promise_unref(b->stop); /* a box that had not answered when the daemon ended */
        promise_unref(b->quiet);
        kept_place_free(b->kept);
        free(b);
}

struct tunnel *box_tunnel(struct box *box)
{
        if (!box->tunnel && tunnel_new(box->hub->config.loop, &box->tunnel, NULL) >= 0 &&
            box->has_tunnel)
                tunnel_up(box->tunnel, box->link);
        return box->tunnel;
}

void box_set_egress(struct box *box, struct egress_policy *take_policy)
{
        CLEAN(err_done) struct err err = { 0 };
        struct exec_hub *hub = box->hub;
        int r = 0;

        if (!take_policy || box->egress) {
                egress_policy_free(take_policy);
                return;
        }
        if (!hub->resolver)
                r = resolver_new(hub->config.loop, &hub->resolver, &err);
        if (r >= 0 && !box_tunnel(box))
                r = err_set(&err, ERR_BUSY, "no tunnel");
        if (r < 0) {
                log_error("no way out for an environment", LOG_S("place", box->place_id),
                          LOG_S("error", err.msg));
                egress_policy_free(take_policy);
                return;
        }
        box->egress = egress_new(hub->config.loop, hub->resolver, hub->config.rt, box->tunnel,
                                 box->place_id, take_policy);
}

/* Let go of what is served through it. */
static void box_close_tunnel(struct box *box)
{
        egress_free(take_ptr(&box->egress));
        box_services_end(box);
        box_callbacks_end(box);
        tunnel_free(take_ptr(&box->tunnel));
}

void box_forget_if_over(struct box *box)
{
        struct box **at;

        if (!box->dead || box->execs || box->arrived || box->link || box->job_running ||
            box->stop || box->quiet || box->services || box->hub->closing)
                return;
        for (at = &box->hub->boxes; *at != box; at = &(*at)->next)
                ;
        *at = box->next;
        box_close_tunnel(box);
        uv_close((uv_handle_t *)&box->retry, box_closed);
}

struct box *box_find(struct exec_hub *hub, const char *place_id)
{
        struct box *b = hub->boxes;

        while (b && !streq(b->place_id, place_id))
                b = b->next;
        return b;
}

void box_tell_quiet(struct box *box)
{
        if (!box->quiet || box->execs)
                return;
        promise_keep(box->quiet, 0, NULL);
        promise_unref(box->quiet);
        box->quiet = NULL;
}

char *box_dir(const struct exec_hub *hub, const char *place_id)
{
        const struct sandbox_host *sandbox = hub->config.rt->sandbox;

        if (sandbox) {
                CLEAN(cleanup_free) char *own = xasprintf("%s/%s", sandbox->dir, place_id);

                /* A directory that cannot be looked at does not count as missing. */
                if (file_life_at(AT_FDCWD, own) != LIFE_NO)
                        return xasprintf("%s/box", own);
        }
        return xasprintf("%s/%s", hub->boxes_dir, place_id);
}

struct box *box_add(struct exec_hub *hub, struct kept_place *take_place)
{
        const struct place *place = &take_place->place;
        struct box *b = box_find(hub, place->id);

        if (!b) {
                b = xcalloc(1, sizeof(*b));
                b->hub = hub;
                memcpy(b->place_id, place->id, UUID_LEN + 1);
                b->next_channel = 1;
                uv_timer_init(hub->config.loop, &b->retry);
                b->next = hub->boxes;
                hub->boxes = b;
        }
        b->dead = false;
        b->epoch = MAX(b->epoch, (uint64_t)place->epoch);
        /* A job that checks the box still reads the place it was given. */
        if (b->job_running) {
                kept_place_free(take_place);
                return b;
        }
        b->route = box_route_of(hub->config.rt, place);
        kept_place_free(b->kept);
        b->kept = take_place;
        return b;
}

/* Watching */

void exec_changed(struct exec *e)
{
        struct exec_watch *w, *next;

        pthread_mutex_lock(&e->hub->lock);
        struct exec_view view = e->view;
        pthread_mutex_unlock(&e->hub->lock);
        for (w = e->watches; w; w = next) {
                next = w->next; /* it may remove itself */
                w->changed(w, &view);
        }
}

bool exec_watch_add(struct exec_hub *hub, const char *id, struct exec_watch *watch)
{
        /* The operation that started it may have been faster than its letter. */
        mail_catch_up(hub->config.mail);
        struct exec *e = exec_find(hub, id);
        if (!e)
                return false;
        watch->next = e->watches;
        e->watches = watch;
        return true;
}

void exec_watch_remove(struct exec_hub *hub, const char *id, struct exec_watch *watch)
{
        struct exec *e = exec_find(hub, id);
        struct exec_watch **at;

        if (!e)
                return;
        for (at = &e->watches; *at; at = &(*at)->next) {
                if (*at == watch) {
                        *at = watch->next;
                        return;
                }
        }
}

bool exec_snapshot(struct exec_hub *hub, const char *id, struct exec_view *ret)
{
        pthread_mutex_lock(&hub->lock);
        struct exec *e = exec_find(hub, id);
        if (e)
                *ret = e->view;
        pthread_mutex_unlock(&hub->lock);
        return e != NULL;
}

static int exec_reachable(struct exec_hub *hub, const char *id, struct exec **ret, struct err *err)
{
        struct exec *e = *ret = exec_find(hub, id);

        if (!e || !e->box)
                return err_set(err, ERR_CONFLICT, "The execution has ended or has not begun.");
        if (e->box->link && e->channel)
                return 0;
        if (e->box->breaches)
                return err_set(
                        err, ERR_BUSY,
                        "The supervisor of the command does not keep to the protocol, and "
                        "its connection was ended; it is opened again. The daemon's log says "
                        "what it did.");
        return err_set(err, ERR_BUSY,
                       "The supervisor of the command cannot be reached just now; try again.");
}

int exec_signal(struct exec_hub *hub, const char *id, int signal, struct err *err)
{
        struct exec *e = exec_find(hub, id);

        if (e && e->runner) {
                exec_remote_abandon(e);
                return 0;
        }
        int r = exec_reachable(hub, id, &e, err);
        if (r >= 0)
                box_link_signal(e->box->link, e->channel, (uint8_t)signal);
        return r;
}

int exec_resize(struct exec_hub *hub, const char *id, uint16_t columns, uint16_t rows,
                struct err *err)
{
        struct exec *e;
        int r = exec_reachable(hub, id, &e, err);

        if (r >= 0)
                box_link_resize(e->box->link, e->channel, columns, rows);
        return r;
}

/* Life cycle */

int exec_hub_new(const struct exec_hub_config *config, struct exec_hub **ret, struct err *err)
{
        struct exec_hub *hub = xcalloc(1, sizeof(*hub));

        hub->config = *config;
        hub->boxes_dir = xasprintf("%s/" BOXES_DIR, config->data_dir);
        hub->output_dir = xasprintf("%s/" OUTPUT_DIR, config->data_dir);
        (void)frame_uuid_bytes(config->rt->node.id.s, hub->node);
        uv_timer_init(config->loop, &hub->record_timer);
        uv_timer_init(config->loop, &hub->adopt_timer);
        uv_timer_init(config->loop, &hub->beat_timer);
        hub->record_timer.data = hub->adopt_timer.data = hub->beat_timer.data = hub;
        hub->timers_open = 3;
        pthread_mutex_init(&hub->lock, NULL);
        box_locks_init(&hub->locks);
        int r = path_make_durable_dirs(hub->boxes_dir, 0700, err);
        if (r >= 0)
                r = path_make_durable_dirs(hub->output_dir, 0700, err);
        if (r < 0) {
                exec_hub_free(hub);
                return r;
        }
        config->rt->hub = hub;
        *ret = hub;
        return 0;
}

/* All timers have to be closed, in whatever order the loop gets to it. */
static void timer_closed(uv_handle_t *handle)
{
        struct exec_hub *hub = handle->data;

        if (--hub->timers_open > 0)
                return;
        box_locks_done(&hub->locks);
        free(hub->boxes_dir);
        free(hub->output_dir);
        while (hub->intended)
                intended_remove(hub, hub->intended->id);
        pthread_mutex_destroy(&hub->lock);
        free(hub);
}

void exec_hub_free(struct exec_hub *hub)
{
        struct box *b, *next;

        if (!hub)
                return;
        hub->closing = true;
        /* exec_drop() takes what it frees out of these lists, which the analyser does not see. */
        /* NOLINTBEGIN(clang-analyzer-unix.Malloc) */
        for (b = hub->boxes; b; b = next) {
                next = b->next;
                while (b->execs)
                        exec_drop(b->execs);
                while (b->arrived)
                        exec_drop(b->arrived);
                box_close_tunnel(b);
                box_link_close(b->link);
                uv_close((uv_handle_t *)&b->retry, box_closed);
        }
        for (size_t i = 0; i < EXEC_BUCKETS; i++)
                while (hub->table[i])
                        exec_drop(hub->table[i]);
        /* NOLINTEND(clang-analyzer-unix.Malloc) */
        hub->config.rt->hub = NULL;
        box_route_test_done();
        resolver_free(hub->resolver);
        exec_output_free(hub);
        uv_close((uv_handle_t *)&hub->record_timer, timer_closed);
        uv_close((uv_handle_t *)&hub->adopt_timer, timer_closed);
        uv_close((uv_handle_t *)&hub->beat_timer, timer_closed);
}

int exec_list_boxes(struct op *op, struct runtime *rt, const char *provider, kind_found_fn fn,
                    void *ctx, struct err *err)
{
        struct dirent *entry;
        int r = 0;

        if (!rt->hub)
                return 0;
        DIR *dir = opendir(rt->hub->boxes_dir);
        if (!dir)
                return err_sys(err, ERR_IO, errno, "read %s", rt->hub->boxes_dir);
        while (r >= 0 && (errno = 0, entry = readdir(dir)))
                if (uuid_is_valid(entry->d_name))
                        r = fn(ctx,
                               &(struct kind_thing){ provider, entry->d_name,
                                                     "supervisor of commands", rt->node.id.s });
        if (r >= 0 && errno)
                r = err_sys(err, ERR_IO, errno, "read %s", rt->hub->boxes_dir);
        closedir(dir);
        return r;
}

int exec_open_output(const struct runtime *rt, const char *id, bool want_stderr, int *ret_fd,
                     struct err *err)
{
        CLEAN(cleanup_free)
        char *path =
                xasprintf("%s/%s/%s", rt->hub->output_dir, id, want_stderr ? "stderr" : "stdout");

        *ret_fd = open(path, O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
        if (*ret_fd < 0)
                return err_sys(err, errno == ENOENT ? ERR_NOT_FOUND : ERR_IO, errno,
                               "The output is not available");
        (void)exec_output_from(*ret_fd, 0); /* where reading begins */
        return 0;
}

int exec_read_output(const struct runtime *rt, const char *id, bool want_stderr, size_t max,
                     struct buf *ret, bool *ret_truncated, struct err *err)
{
        CLEAN(cleanup_fd) int fd = -1;
        ssize_t n = 1;
        char one;
        int r = exec_open_output(rt, id, want_stderr, &fd, err);

        if (r == ERR_NOT_FOUND) {
                err_clear(err);
                return 0;
        }
        while (r >= 0 && n > 0 && ret->len < max) {
                size_t room = MIN(max - ret->len, (size_t)65536);
                char *at = buf_reserve(ret, room);

                n = at ? read(fd, at, room) : 0;
                if (n < 0)
                        return err_sys(err, ERR_IO, errno, "The output is not available");
                if (n > 0)
                        buf_grew(ret, (size_t)n);
        }
        if (r >= 0 && ret_truncated && n > 0 && read(fd, &one, 1) == 1)
                *ret_truncated = true;
        return r;
}

/* Files that followers read. Loop thread. */

int exec_file_get(struct runtime *rt, const char *id, bool want_stderr, struct exec_file **ret,
                  struct err *err)
{
        struct exec_file *f = rt->hub->files;
        int fd, r;

        while (f && (f->want_stderr != want_stderr || !streq(f->id, id)))
                f = f->next;
        if (!f) {
                r = exec_open_output(rt, id, want_stderr, &fd, err);
                if (r < 0)
                        return r;
                f = xcalloc(1, sizeof(*f));
                *f = (struct exec_file){ .next = rt->hub->files, .want_stderr = want_stderr };
                f->fd = fd;
                memcpy(f->id, id, UUID_LEN + 1);
                rt->hub->files = f;
        }
        f->users++;
        *ret = f;
        return 0;
}

int exec_file_fd(const struct exec_file *f)
{
        return f->fd;
}

void exec_file_put(struct runtime *rt, struct exec_file *f)
{
        struct exec_file **at;

        if (!f || --f->users > 0)
                return;
        for (at = rt->hub ? &rt->hub->files : NULL; at && *at; at = &(*at)->next)
                if (*at == f) {
                        *at = f->next;
                        break;
                }
        close(f->fd);
        free(f);
}

/* Names */

const char *kill_method_name(uint8_t method)
{
        switch (method) {
        case BOX_KILL_CGROUP:
                return "cgroup";
        case BOX_KILL_PIDNS:
                return "pid-namespace";
        case BOX_KILL_SUBREAPER:
                return "subreaper";
        default:
                return NULL;
        }
}

const char *signal_name(int number)
{
        static _Thread_local char name[32];
        const char *abbreviated = number > 0 ? sigabbrev_np(number) : NULL;

        if (!abbreviated)
                return NULL;
        snprintf(name, sizeof(name), "SIG%s", abbreviated);
        return name;
}

int signal_number(const char *name)
{
        for (int i = 1; i < NSIG; i++) {
                const char *own = signal_name(i);

                if (own && streq(own, name))
                        return i;
        }
        return 0;
}
