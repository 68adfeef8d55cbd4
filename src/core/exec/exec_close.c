/* Ending the commands in a place, with or without its box: operations ask, the loop does it. */
#include <signal.h>

#include "base/clock.h"
#include "core/exec/exec_internal.h"

#define CLOSE_WAIT_MS 20000

struct place_letter {
        struct letter letter;
        struct exec_hub *hub;
        struct kept_place *place;
        struct promise *promise;
};

static void stop_on_loop(struct letter *letter)
{
        struct place_letter *s = container_of(letter, struct place_letter, letter);
        struct box *box = box_add(s->hub, s->place);

        if (box->stop) {
                /* Two closers of one place: both may look again when the first is done. */
                promise_keep(s->promise, ERR_CONFLICT, "The place is being closed already.");
                promise_unref(s->promise);
        } else {
                box->stop = s->promise;
                box->stopping = true;
                if (box->phase == BOX_READY && !box->listing)
                        box_link_stop(box->link, STOP_GRACE_MS);
                else
                        box_reach(box);
        }
        free(s);
}

static void post_to_box(struct runtime *rt, const struct place *place, struct promise *promise,
                        void (*fn)(struct letter *))
{
        struct place_letter *s = xcalloc(1, sizeof(*s));

        s->hub = rt->hub;
        s->place = kept_place_new(place);
        s->promise = promise_ref(promise);
        mail_post(rt->hub->config.mail, &s->letter, fn);
}

/* Ask the box for something; an answer either way, or none in time. Then `give_up` runs, if there
 * is one. */
static int ask_box(struct op *op, struct runtime *rt, const struct place *place,
                   void (*fn)(struct letter *), void (*give_up)(struct letter *), struct err *err)
{
        struct promise *promise = promise_new(err);
        struct op limited = *op;

        if (!promise)
                return ERR_BUSY;
        post_to_box(rt, place, promise, fn);
        limited.deadline_ms = MIN(op->deadline_ms, clock_mono_ms() + CLOSE_WAIT_MS);
        int r = promise_wait(promise, &limited, err);
        if (give_up && (r == ERR_TIMEOUT || r == ERR_CANCELLED))
                post_to_box(rt, place, promise, give_up);
        promise_unref(promise);
        return r;
}

int exec_close_place(struct op *op, struct runtime *rt, const struct place *place, struct err *err)
{
        const struct box_route *route = box_route_of(rt, place);
        int r;

        if (!rt->hub)
                return 0;
        if (route->is_alive(op, rt, place, NULL) > 0) {
                r = ask_box(op, rt, place, stop_on_loop, NULL, err);
                if (r == ERR_CANCELLED || r == ERR_BUSY)
                        return r;
        }
        /* Whatever the box answered: nothing of it may be left, and every row must have its end. */
        err_clear(err);
        r = exec_settle_place(op, rt->hub, place, true, err);
        exec_output_took(rt->hub, place->id, -INT64_MAX); /* nothing is started in it any more */
        return r;
}

/* Ending the commands, and keeping the box */

static void end_all_on_loop(struct letter *letter)
{
        struct place_letter *s = container_of(letter, struct place_letter, letter);
        struct box *box = box_add(s->hub, s->place);

        if (box->quiet) {
                promise_keep(s->promise, ERR_CONFLICT, "The place is being parked already.");
                promise_unref(s->promise);
        } else {
                box->quiet = s->promise;
                for (struct exec *e = box->execs; e; e = e->box_next)
                        if (box->link && e->channel)
                                box_link_signal(box->link, e->channel, SIGKILL);
                box_tell_quiet(box);
        }
        free(s);
}

/* The caller has stopped waiting: the next caller must not be told that another one waits. */
static void give_up_on_loop(struct letter *letter)
{
        struct place_letter *s = container_of(letter, struct place_letter, letter);
        struct box *box = box_find(s->hub, s->place->place.id);

        if (box && box->quiet == s->promise) {
                promise_unref(box->quiet);
                box->quiet = NULL;
                box_forget_if_over(box);
        }
        promise_unref(s->promise);
        kept_place_free(s->place);
        free(s);
}

static int count_open(void *ctx, const struct execution *row)
{
        ++*(unsigned *)ctx;
        return 0;
}

int exec_end_all(struct op *op, struct runtime *rt, const struct place *place, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        unsigned n = 0;
        int r = rt->hub ? store_read_begin(op, rt->store, &db, err) : 0;

        if (db)
                r = executions_open(db, place->id, op->arena, count_open, &n, err);
        store_read_end(&db);
        if (r < 0 || n == 0)
                return r;
        return ask_box(op, rt, place, end_all_on_loop, give_up_on_loop, err);
}

/* Reaching a box, without waiting for it */

static void reach_on_loop(struct letter *letter)
{
        struct place_letter *s = container_of(letter, struct place_letter, letter);

        box_reach(box_add(s->hub, s->place));
        free(s);
}

void exec_reach_place(struct runtime *rt, const struct place *place)
{
        struct place_letter *s;

        if (!rt->hub)
                return;
        s = xcalloc(1, sizeof(*s));
        s->hub = rt->hub;
        s->place = kept_place_new(place);
        mail_post(rt->hub->config.mail, &s->letter, reach_on_loop);
}
