/* Which connection serves a place, and which operation logs in when it is down. */
#include "core/kinds/ssh/ssh_conn.h"

#include <stdio.h>

#include "base/clock.h"
#include "core/kinds/ssh/ssh_config.h"

#define WAIT_MS  5
#define PLAIN_MS 60000

/* The registry */

struct ssh_conn *ssh_conn_find(struct ssh_hosts *h, const char *key)
{
        pthread_mutex_lock(&h->lock);
        struct ssh_conn *c = h->conns;
        while (c && !streq(c->key, key))
                c = c->next;
        pthread_mutex_unlock(&h->lock);
        return c;
}

static struct ssh_conn *find_or_add(struct ssh_hosts *h, const struct place *place,
                                    const char *config)
{
        CLEAN(cleanup_free) char *key = xasprintf("%s %s", place->environment_id, config);
        struct ssh_conn *c = ssh_conn_find(h, key);

        if (c)
                return c;
        pthread_mutex_lock(&h->lock);
        c = h->conns;
        while (c && !streq(c->key, key))
                c = c->next;
        if (!c) {
                c = xcalloc(1, sizeof(*c));
                c->hosts = h;
                c->key = xstrdup(key);
                c->company_id = xstrdup(place->company_id);
                c->environment_id = xstrdup(place->environment_id);
                c->config = xstrdup(config);
                c->next = h->conns;
                h->conns = c;
        }
        pthread_mutex_unlock(&h->lock);
        return c;
}

int ssh_conn_of(struct ssh_hosts *h, const struct place *place, struct ssh_conn **ret,
                struct err *err)
{
        CLEAN(json_decrefp) json_t *document = NULL;
        CLEAN(cleanup_free) char *text = NULL;

        (void)json_parse(place->config, strlen(place->config), &document, NULL);
        const json_t *config = json_get_object(document, "ssh");
        if (!config || !place->environment_id)
                return err_set(err, ERR_CORRUPT, "the place does not say which ssh host it is on");
        text = json_to_text(config);
        *ret = find_or_add(h, place, text);
        return 0;
}

void ssh_conn_use(struct ssh_conn *c, const struct place *place)
{
        struct kept_place *kept = kept_place_new(place), *old = NULL;
        struct ssh_user *u;

        pthread_mutex_lock(&c->hosts->lock);
        for (u = c->users; u && !streq(u->kept->place.id, place->id);)
                u = u->next;
        if (!u) {
                u = xcalloc(1, sizeof(*u));
                u->next = c->users;
                c->users = u;
        }
        old = u->kept;
        u->kept = kept;
        pthread_mutex_unlock(&c->hosts->lock);
        kept_place_free(old);
}

void ssh_conn_leave(struct ssh_conn *c, const char *place_id)
{
        struct ssh_user **at, *gone = NULL;

        pthread_mutex_lock(&c->hosts->lock);
        for (at = &c->users; *at; at = &(*at)->next) {
                if (streq((*at)->kept->place.id, place_id)) {
                        gone = *at;
                        *at = gone->next;
                        break;
                }
        }
        pthread_mutex_unlock(&c->hosts->lock);
        if (!gone)
                return;
        kept_place_free(gone->kept);
        free(gone);
        ssh_carrier_tick(c);
}

void ssh_conn_set(struct ssh_conn *c, enum conn_state state, int code, const char *why)
{
        pthread_mutex_lock(&c->hosts->lock);
        c->state = state;
        c->attempts++;
        c->code = code;
        snprintf(c->error, sizeof(c->error), "%s", why ? why : "");
        if (state == CONN_PLAIN)
                c->plain_until_ms = clock_mono_ms() + PLAIN_MS;
        pthread_mutex_unlock(&c->hosts->lock);
}

/* Logging in */

static int log_in(struct op *op, struct ssh_conn *c, const struct secret_context *context,
                  struct err *err)
{
        struct runtime *rt = c->hosts->rt;
        CLEAN(cleanup_free) char *record = ssh_hosts_record(c->hosts, c->environment_id);
        struct ssh_call call = SSH_CALL_INIT;
        struct ssh_target target;
        json_t *config = NULL, *resolved = NULL;
        bool plain = false;
        int r = json_parse(c->config, strlen(c->config), &config, err);

        if (r >= 0)
                r = ssh_config_resolve(op, rt, c->company_id, c->environment_id, config, context,
                                       &target, &resolved, err);
        if (r >= 0)
                r = ssh_call_stream(op, ssh_hosts_setup(c->hosts), &target, record, &call, err);
        json_decref(resolved);
        json_decref(config);
        if (r >= 0) {
                plain = call.hello.state == HELLO_PLAIN;
                pthread_mutex_lock(&c->hosts->lock);
                ssh_hello_done(&c->hello);
                c->hello = call.hello;
                pthread_mutex_unlock(&c->hosts->lock);
                call.hello = (struct ssh_hello){ 0 };
        }
        if (r >= 0 && !plain)
                r = ssh_call_go(op, &call, err);
        if (r >= 0 && !plain)
                r = ssh_carrier_start(op, c, &call, err);
        ssh_call_done(op, &call);
        if (r >= 0 && plain)
                ssh_conn_set(c, CONN_PLAIN, 0, NULL);
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

/* Begin the login, unless there is no need. `seen`: how many logins had ended when this operation
 * came; one that ended since and failed is its answer too. */
static enum look look_at_host(struct ssh_conn *c, bool waited, unsigned seen,
                              struct ssh_hello *ret_hello, struct err *err)
{
        enum look l = LOOK_WAIT;

        pthread_mutex_lock(&c->hosts->lock);
        if (c->state == CONN_PLAIN && c->plain_until_ms < clock_mono_ms())
                c->state = CONN_DOWN;
        if (c->state == CONN_UP || c->state == CONN_PLAIN) {
                l = LOOK_DONE;
                if (ret_hello)
                        copy_hello(&c->hello, ret_hello);
        } else if (c->state == CONN_DOWN && waited && c->attempts != seen && c->code < 0) {
                l = LOOK_FAILED;
                (void)err_set(err, c->code, "%s", c->error);
        } else if (c->state == CONN_DOWN) {
                c->state = CONN_LOGIN;
                l = LOOK_OURS;
        }
        pthread_mutex_unlock(&c->hosts->lock);
        return l;
}

static unsigned attempts_of(struct ssh_conn *c)
{
        pthread_mutex_lock(&c->hosts->lock);
        unsigned n = c->attempts;
        pthread_mutex_unlock(&c->hosts->lock);
        return n;
}

int ssh_conn_reach(struct op *op, struct ssh_conn *c, const struct secret_context *context,
                   struct ssh_hello *ret_hello, struct err *err)
{
        unsigned seen = attempts_of(c);
        CLEAN(err_done) struct err why = { 0 };
        bool waited = false;
        int r;

        for (;;) {
                switch (look_at_host(c, waited, seen, ret_hello, err)) {
                case LOOK_DONE:
                        return 0;
                case LOOK_FAILED:
                        return c->code;
                case LOOK_OURS:
                        r = log_in(op, c, context, &why);
                        if (r < 0) {
                                ssh_conn_set(c, CONN_DOWN, r, why.msg);
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
