/* Which connection serves a place, and which operation opens it when it is down. */
#include <fcntl.h>
#include <sodium.h>
#include <stdio.h>

#include "base/clock.h"
#include "base/fd.h"
#include "core/carriers/carrier_internal.h"

#define WAIT_MS  5
#define PLAIN_MS 60000
#define BOX_MAX  ((size_t)16 << 20)

/* The boxes that can be brought */

/* A box that is not installed is brought to no host. */
static void hash_box(struct ssh_box *box)
{
        CLEAN(buf_done) struct buf program = { .max = BOX_MAX };
        unsigned char digest[crypto_hash_sha256_BYTES];

        if (file_read_at(AT_FDCWD, box->path, BOX_MAX, &program, NULL) < 0)
                return;
        (void)crypto_hash_sha256(digest, (unsigned char *)program.data, program.len);
        (void)sodium_bin2hex(box->hash, sizeof(box->hash), digest, sizeof(digest));
}

/* The box of this machine is berth-box itself; those of others lie beside it with their name. */
static void find_boxes(struct carriers *all, const char *program)
{
        static const char *const machines[SSH_N_BOXES] = { "x86_64", "aarch64" };
#ifdef __x86_64__
        const size_t own = 0;
#else
        const size_t own = 1;
#endif

        for (size_t i = 0; i < SSH_N_BOXES; i++) {
                struct ssh_box *box = &all->setup.boxes[i];

                all->box_paths[i] =
                        i == own ? xstrdup(program) : xasprintf("%s-%s", program, machines[i]);
                *box = (struct ssh_box){ .machine = machines[i], .path = all->box_paths[i] };
        }
}

/* Reading the boxes takes longer than all the rest of a start, so only operations that need one
 * wait for it. */
const struct ssh_setup *carriers_setup(struct carriers *all)
{
        pthread_mutex_lock(&all->hash_lock);
        for (size_t i = 0; i < SSH_N_BOXES && !all->has_hashes; i++)
                hash_box(&all->setup.boxes[i]);
        all->has_hashes = true;
        pthread_mutex_unlock(&all->hash_lock);
        return &all->setup;
}

/* The registry */

int carriers_new(struct runtime *rt, uv_loop_t *loop, const char *data_dir, const char *box_program,
                 struct carriers **ret)
{
        struct carriers *all = xcalloc(1, sizeof(*all));

        all->rt = rt;
        all->loop = loop;
        pthread_mutex_init(&all->lock, NULL);
        pthread_mutex_init(&all->hash_lock, NULL);
        all->run_dir = xasprintf("%s/ssh/run", data_dir);
        all->setup.trampoline = rt->settings.trampoline;
        all->setup.run_dir = all->run_dir;
        all->setup.timeout_ms = rt->settings.ssh_timeout_ms;
        find_boxes(all, box_program);
        ssh_rundir_sweep(all->run_dir);
        *ret = all;
        return 0;
}

void carriers_close(struct carriers *all)
{
        if (!all)
                return;
        all->closing = true;
        for (struct carrier *c = all->list; c; c = c->next)
                carrier_close(c);
        while (all->processes > 0 || all->removals > 0) /* the processes were killed */
                uv_run(all->loop, UV_RUN_ONCE);
}

void carrier_free(struct carrier *c)
{
        struct carrier_user *u;

        while ((u = c->users)) {
                c->users = u->next;
                kept_place_free(u->kept);
                free(u);
        }
        kept_place_free(c->first);
        ssh_hello_done(&c->hello);
        free(c->key);
        free(c);
}

void carriers_free(struct carriers *all)
{
        struct carrier *c;

        if (!all)
                return;
        for (size_t i = 0; i < SSH_N_BOXES; i++)
                free(all->box_paths[i]);
        while ((c = all->list)) {
                all->list = c->next;
                carrier_free(c);
        }
        pthread_mutex_destroy(&all->hash_lock);
        pthread_mutex_destroy(&all->lock);
        free(all->run_dir);
        free(all);
}

/* Under the lock. */
static struct carrier *lookup(struct carriers *all, const char *key)
{
        struct carrier *c = all->list;

        while (c && !streq(c->key, key))
                c = c->next;
        if (c)
                c->refs++;
        return c;
}

struct carrier *carrier_find(struct carriers *all, const char *key)
{
        pthread_mutex_lock(&all->lock);
        struct carrier *c = lookup(all, key);
        pthread_mutex_unlock(&all->lock);
        return c;
}

struct carrier *carrier_get(struct carrier *c)
{
        pthread_mutex_lock(&c->all->lock);
        c->refs++;
        pthread_mutex_unlock(&c->all->lock);
        return c;
}

/* The last one to let go of a connection that is not needed any more has the loop look at it. */
static void carrier_put(struct carrier *c)
{
        pthread_mutex_lock(&c->all->lock);
        bool is_last = c->refs == 1 && c->type->is_of_place && !c->users;
        if (!is_last)
                c->refs--;
        pthread_mutex_unlock(&c->all->lock);
        if (is_last)
                carrier_put_last(c);
}

void carrier_putp(struct carrier **c)
{
        if (*c)
                carrier_put(*c);
}

int carrier_of(struct runtime *rt, const struct place *place, struct carrier **ret, struct err *err)
{
        const struct kind *kind = kind_of_place(rt, place);
        struct carriers *all = rt->carriers;
        CLEAN(cleanup_free) char *key = NULL;
        struct carrier *c;
        int r;

        *ret = NULL;
        if (!all || !kind || !kind->carrier)
                return err_set(err, ERR_CORRUPT, "no connection leads to this place");
        r = kind->carrier->key(place, &key, err);
        if (r < 0)
                return r;
        pthread_mutex_lock(&all->lock);
        c = lookup(all, key);
        if (!c) {
                c = xcalloc(1, sizeof(*c));
                c->all = all;
                c->refs = 1;
                c->type = kind->carrier;
                c->key = take_ptr(&key);
                c->first = kept_place_new(place);
                c->next = all->list;
                all->list = c;
        }
        pthread_mutex_unlock(&all->lock);
        *ret = c;
        return 0;
}

void carrier_use(struct carrier *c, const struct place *place)
{
        struct kept_place *kept = kept_place_new(place), *old = NULL;
        struct carrier_user *u;

        pthread_mutex_lock(&c->all->lock);
        for (u = c->users; u && !streq(u->kept->place.id, place->id);)
                u = u->next;
        if (!u) {
                u = xcalloc(1, sizeof(*u));
                u->next = c->users;
                c->users = u;
        }
        old = u->kept;
        u->kept = kept;
        pthread_mutex_unlock(&c->all->lock);
        kept_place_free(old);
}

bool carrier_has_users(struct carrier *c)
{
        pthread_mutex_lock(&c->all->lock);
        bool any = c->users != NULL;
        pthread_mutex_unlock(&c->all->lock);
        return any;
}

bool carrier_is_gone(struct runtime *rt, const struct place *place)
{
        struct carriers *all = rt->carriers;
        bool gone = false;

        if (!all || !place->id)
                return false;
        pthread_mutex_lock(&all->lock);
        for (unsigned i = 0; i < MIN(all->n_gone, CARRIER_GONE_MAX) && !gone; i++)
                gone = streq(all->gone[i], place->id);
        pthread_mutex_unlock(&all->lock);
        return gone;
}

bool carrier_is_shut(struct carrier *c)
{
        pthread_mutex_lock(&c->all->lock);
        bool shut = c->is_shut;
        pthread_mutex_unlock(&c->all->lock);
        return shut;
}

void carrier_set_shut(struct carrier *c, bool shut)
{
        pthread_mutex_lock(&c->all->lock);
        c->is_shut = shut;
        pthread_mutex_unlock(&c->all->lock);
}

void carrier_leave(struct runtime *rt, const struct place *place)
{
        CLEAN(carrier_putp) struct carrier *c = NULL;
        struct carrier_user **at, *gone = NULL;

        if (carrier_of(rt, place, &c, NULL) < 0)
                return;
        pthread_mutex_lock(&c->all->lock);
        for (at = &c->users; *at; at = &(*at)->next) {
                if (streq((*at)->kept->place.id, place->id)) {
                        gone = *at;
                        *at = gone->next;
                        break;
                }
        }
        pthread_mutex_unlock(&c->all->lock);
        if (!gone)
                return;
        kept_place_free(gone->kept);
        free(gone);
        carrier_tick(c);
}

void carrier_place_gone(struct runtime *rt, const struct place *place)
{
        struct carriers *all = rt->carriers;

        if (!all || carrier_is_gone(rt, place))
                return;
        pthread_mutex_lock(&all->lock);
        snprintf(all->gone[all->n_gone++ % CARRIER_GONE_MAX], sizeof(all->gone[0]), "%s",
                 place->id);
        pthread_mutex_unlock(&all->lock);
}

void carrier_set(struct carrier *c, enum carrier_state state, int code, const char *why)
{
        pthread_mutex_lock(&c->all->lock);
        c->state = state;
        c->attempts++;
        c->code = code;
        snprintf(c->error, sizeof(c->error), "%s", why ? why : "");
        if (state == CARRIER_PLAIN)
                c->plain_until_ms = clock_mono_ms() + PLAIN_MS;
        pthread_mutex_unlock(&c->all->lock);
}

/* Opening */

static int log_in(struct op *op, struct carrier *c, const struct secret_context *context,
                  struct err *err)
{
        struct ssh_call call = SSH_CALL_INIT;
        bool plain = false;
        int r = c->type->open(op, c->all->rt, &c->first->place, context, &call, err);

        if (r >= 0) {
                plain = call.hello.state == HELLO_PLAIN;
                pthread_mutex_lock(&c->all->lock);
                ssh_hello_done(&c->hello);
                c->hello = call.hello;
                pthread_mutex_unlock(&c->all->lock);
                call.hello = (struct ssh_hello){ 0 };
        }
        if (r >= 0 && !plain)
                r = ssh_call_go(op, &call, err);
        if (r >= 0 && !plain)
                r = carrier_process_start(op, c, &call, err);
        ssh_call_done(op, &call);
        if (r >= 0 && plain)
                carrier_set(c, CARRIER_PLAIN, 0, NULL);
        return r;
}

static void copy_hello(const struct ssh_hello *from, struct ssh_hello *to)
{
        *to = (struct ssh_hello){ .state = from->state, .has_tar = from->has_tar };
        to->cwd = from->cwd ? xstrdup(from->cwd) : NULL;
        to->os = from->os ? xstrdup(from->os) : NULL;
        to->machine = from->machine ? xstrdup(from->machine) : NULL;
        to->base = from->base ? xstrdup(from->base) : NULL;
        to->why = from->why ? xstrdup(from->why) : NULL;
        for (size_t i = 0; i < HELLO_N_VARS; i++)
                to->vars[i] = from->vars[i] ? xstrdup(from->vars[i]) : NULL;
}

enum look { LOOK_DONE, LOOK_OURS, LOOK_WAIT, LOOK_FAILED };

/* Begin to open it, unless there is no need. `seen`: how many attempts had ended when this
 * operation came; one that ended since and failed is its answer too. */
static enum look look_at_carrier(struct carrier *c, bool waited, unsigned seen,
                                 struct ssh_hello *ret_hello, struct err *err)
{
        enum look l = LOOK_WAIT;

        pthread_mutex_lock(&c->all->lock);
        if (c->state == CARRIER_PLAIN && c->plain_until_ms < clock_mono_ms())
                c->state = CARRIER_DOWN;
        if (c->state == CARRIER_UP || c->state == CARRIER_PLAIN) {
                l = LOOK_DONE;
                if (ret_hello)
                        copy_hello(&c->hello, ret_hello);
        } else if (c->state == CARRIER_DOWN && waited && c->attempts != seen && c->code < 0) {
                l = LOOK_FAILED;
                (void)err_set(err, c->code, "%s", c->error);
        } else if (c->state == CARRIER_DOWN) {
                c->state = CARRIER_LOGIN;
                l = LOOK_OURS;
        }
        pthread_mutex_unlock(&c->all->lock);
        return l;
}

static unsigned attempts_of(struct carrier *c)
{
        pthread_mutex_lock(&c->all->lock);
        unsigned n = c->attempts;
        pthread_mutex_unlock(&c->all->lock);
        return n;
}

int carrier_open(struct op *op, struct carrier *c, const struct secret_context *context,
                 struct ssh_hello *ret_hello, struct err *err)
{
        unsigned seen = attempts_of(c);
        CLEAN(err_done) struct err why = { 0 };
        bool waited = false;
        int r;

        if (carrier_is_shut(c))
                return err_set(err, ERR_UNREACHABLE, "the place is paused");
        for (;;) {
                switch (look_at_carrier(c, waited, seen, ret_hello, err)) {
                case LOOK_DONE:
                        return 0;
                case LOOK_FAILED:
                        return c->code;
                case LOOK_OURS:
                        r = log_in(op, c, context, &why);
                        if (r < 0) {
                                carrier_set(c, CARRIER_DOWN, r, why.msg);
                                err_move(err, &why);
                                return r;
                        }
                        break;
                case LOOK_WAIT:
                        waited = true;
                        r = op_wait_fd(op, -1, 0, WAIT_MS, err);
                        if (r < 0)
                                return r;
                        break;
                }
        }
}

int carrier_reach(struct op *op, struct runtime *rt, const struct place *place,
                  const struct secret_context *context, struct ssh_hello *ret, struct err *err)
{
        CLEAN(carrier_putp) struct carrier *c = NULL;
        int r = carrier_of(rt, place, &c, err);

        if (r >= 0) {
                carrier_set_shut(c, false);
                r = carrier_open(op, c, context, ret, err);
        }
        if (r >= 0)
                carrier_use(c, place);
        return r;
}
