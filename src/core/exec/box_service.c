/* Streams to services of boxes.
 *
 * The operation makes a pair of sockets, keeps one end and sends the other to the loop. There it
 * waits in its box until the box has a link, and is then joined to a connection of the tunnel. The
 * end of either ends the other; closing the operation's end ends the worker. */
#define _GNU_SOURCE
#include "core/exec/box_service.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/socket.h>

#include "base/clock.h"
#include "base/fd.h"
#include "core/exec/exec_internal.h"
#include "core/kinds/kind.h"
#include "core/places/place.h"
#include "core/places/place_state.h"
#include "rt/pool.h"
#include "rt/stream_pump.h"

#define MAX_DEATHS 3 /* of the box, before it was reached */

struct service {
        struct service *next;
        struct box *box;
        uint8_t kind;
        int fd;                  /* the loop's end, while it waits; then the socket's */
        struct promise *promise; /* NULL once it is connected */
        unsigned deaths;
        struct byte_stream *far; /* NULL: it waits */
        struct socket_stream near;
        struct stream_pump *pump;
};

static void service_settle(struct service *s, int code, const char *text)
{
        if (!s->promise)
                return;
        promise_keep(s->promise, code, text);
        promise_unref(s->promise);
        s->promise = NULL;
}

static void service_freed(void *arg)
{
        struct service *s = arg;

        free(s);
}

static void service_end(struct service *s)
{
        struct box *box = s->box;
        struct service **at;

        for (at = &box->services; *at != s; at = &(*at)->next)
                ;
        *at = s->next;
        if (!s->far) {
                close(s->fd);
                free(s);
        } else {
                stream_pump_free(s->pump);
                stream_close(s->far, NULL, NULL);
                stream_close(&s->near.stream, service_freed, s);
        }
}

static void service_over(void *arg)
{
        struct service *s = arg;
        struct box *box = s->box;

        service_end(s);
        box_forget_if_over(box);
}

static void service_fail(struct service *s, int code, const char *text)
{
        service_settle(s, code, text);
        service_end(s);
}

static void service_begin(struct service *s)
{
        struct box *box = s->box;

        if (!box->has_files) {
                service_fail(s, ERR_UNPROCESSABLE,
                             "The box of the place is of a version that moves no files.");
                return;
        }
        s->far = box_tunnel(box) ? tunnel_connect(box->tunnel, s->kind) : NULL;
        if (!s->far) {
                service_fail(s, ERR_BUSY, "The box of the place has too many connections.");
                return;
        }
        if (socket_stream_init(&s->near, box->hub->config.loop, take_fd(&s->fd)) < 0) {
                stream_on_ready(s->far, NULL, NULL);
                stream_close(take_ptr(&s->far), NULL, NULL);
                s->fd = -1;
                service_fail(s, ERR_INTERNAL, "event loop");
                return;
        }
        s->pump = stream_pump_new(&s->near.stream, s->far, service_over, s);
        service_settle(s, 0, NULL);
}

void box_services_up(struct box *box)
{
        struct service *s, *next;

        for (s = box->services; s; s = next) {
                next = s->next;
                if (!s->far)
                        service_begin(s);
        }
}

bool box_services_wait(struct box *box)
{
        struct service *s, *next;
        bool any = false;

        for (s = box->services; s; s = next) {
                next = s->next;
                if (s->far)
                        continue;
                if (++s->deaths >= MAX_DEATHS)
                        service_fail(s, ERR_UNREACHABLE, "The box of the place has ended.");
                else
                        any = true;
        }
        return any;
}

void box_services_end(struct box *box)
{
        while (box->services)
                service_fail(box->services, ERR_CANCELLED, "The daemon is stopping.");
}

/* From the operation */

struct service_letter {
        struct letter letter;
        struct exec_hub *hub;
        struct kept_place *place;
        struct service *service;
};

static void open_on_loop(struct letter *letter)
{
        struct service_letter *l = container_of(letter, struct service_letter, letter);
        struct box *box = box_add(l->hub, l->place);
        struct service *s = l->service;

        s->box = box;
        s->next = box->services;
        box->services = s;
        if (box->phase == BOX_READY)
                service_begin(s);
        else
                box_reach(box);
        free(l);
}

struct wanted {
        struct op *op;
        struct runtime *rt;
        const char *place_id;
        struct place place;
};

static int look_at_place(struct db *db, struct wanted *w, struct err *err)
{
        int r = places_get(db, w->place_id, w->op->arena, &w->place, err);

        if (r < 0)
                return r;
        /* Closing is allowed: changes are saved before the place goes. */
        if (!streq(w->place.state, PLACE_HELD) && !streq(w->place.state, PLACE_CLOSING))
                return err_set(err, ERR_CONFLICT, "The place of the lease is %s.", w->place.state);
        return 0;
}

/* A box is about to exist: record that closing the place has to look for it. */
static int note_world(struct db *db, void *arg, struct err *err)
{
        struct wanted *w = arg;
        int r = look_at_place(db, w, err);

        if (r < 0 || w->place.has_world)
                return r;
        if (!streq(w->place.state, PLACE_HELD))
                return err_set(err, ERR_CONFLICT, "The place of the lease is %s.", w->place.state);
        w->place.has_world = true;
        return place_move(db, w->rt, &w->place, PLACE_HELD, err);
}

static int read_place(struct wanted *w, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(w->op, w->rt->store, &db, err);

        return r < 0 ? r : look_at_place(db, w, err);
}

static int ensure_box_of(struct wanted *w, struct err *err)
{
        struct box_locks *locks = &w->rt->hub->locks;
        int r = read_place(w, err);

        if (r >= 0 && !w->place.has_world)
                r = store_write(w->op, w->rt->store, note_world, w, err);
        if (r < 0)
                return r;
        if (!box_route_has_box(w->rt, &w->place))
                return err_set(err, ERR_UNPROCESSABLE, "No box runs in places of this kind.");
        const struct box_route *route = box_route_of(w->rt, &w->place);
        if (route->is_alive(w->op, w->rt, &w->place, NULL) > 0)
                return 0;
        r = box_locks_take(w->op, locks, w->place.id, err);
        if (r < 0)
                return r;
        r = read_place(w, err);
        if (r >= 0)
                r = route->ensure(w->op, w->rt, &w->place, err);
        box_locks_give(locks, w->place.id);
        return r;
}

int box_ensure(struct op *op, struct runtime *rt, const char *place_id, struct place *ret,
               struct err *err)
{
        struct wanted w = { .op = op, .rt = rt, .place_id = place_id };
        int r = rt->hub ? ensure_box_of(&w, err)
                        : err_set(err, ERR_BUSY, "The daemon is stopping.");

        if (r >= 0)
                *ret = w.place;
        return r;
}

int box_bring(struct op *op, struct runtime *rt, const struct lease *lease, struct place *place,
              struct err *err)
{
        const struct kind *kind = kind_of_place(rt, place);

        if (!kind || !kind->bring_box)
                return 0;
        int r = kind->bring_box(op, rt, lease, err);
        return r < 0 ? r : place_load(op, rt, place->id, place, err);
}

static int post(struct wanted *w, uint8_t kind, int take_loop_end, struct err *err)
{
        CLEAN(cleanup_fd) int loop_end = take_loop_end;
        struct promise *promise = promise_new(err);
        struct op limited = *w->op;
        struct service_letter *l;

        if (!promise)
                return ERR_BUSY;
        pool_needs_seat(w->op, "a service of a box");
        l = xcalloc(1, sizeof(*l));
        l->hub = w->rt->hub;
        l->place = kept_place_new(&w->place);
        l->service = xcalloc(1, sizeof(*l->service));
        l->service->kind = kind;
        l->service->fd = take_fd(&loop_end);
        l->service->promise = promise_ref(promise);
        mail_post(w->rt->hub->config.mail, &l->letter, open_on_loop);
        if (w->rt->settings.peer_silence_ms > 0)
                limited.deadline_ms =
                        MIN(limited.deadline_ms, clock_mono_ms() + w->rt->settings.peer_silence_ms);
        int r = promise_wait(promise, &limited, err);
        if (r == ERR_TIMEOUT && op_check(w->op, NULL) >= 0)
                r = err_set(err, ERR_PROVIDER, "The box of the place does not answer.");
        promise_unref(promise);
        return r;
}

int box_service_open(struct op *op, struct runtime *rt, const char *place_id,
                     enum box_service service, int *ret_fd, struct err *err)
{
        struct wanted w = { .op = op, .rt = rt, .place_id = place_id };
        CLEAN(cleanup_fd) int ours = -1;
        int pair[2], r;

        if (!rt->hub)
                return err_set(err, ERR_BUSY, "The daemon is stopping.");
        r = ensure_box_of(&w, err);
        if (r < 0)
                return r;
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
                return err_sys(err, ERR_BUSY, errno, "connect to a box");
        ours = pair[0];
        (void)fcntl(pair[1], F_SETFL, O_NONBLOCK);
        r = post(&w, (uint8_t)service, pair[1], err);
        if (r < 0)
                return r;
        *ret_fd = take_fd(&ours);
        return 0;
}
