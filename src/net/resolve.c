/* A lookup waits, runs on its thread, and comes back under the lock as finished. The resolver lives
 * until the loop has let go of its handle and the last thread has ended, whichever comes later. */
#define _GNU_SOURCE
#include "net/resolve.h"

#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <sys/socket.h>

#define STACK_SIZE ((size_t)512 << 10)

struct lookup {
        struct lookup *next;     /* waiting or finished */
        struct lookup *run_next; /* running; the loop's, while its thread may set `next` */
        struct resolver *resolver;
        const void *owner;
        char *name;
        struct lookup_answer answer;
        void (*done)(void *arg, const struct lookup_answer *answer); /* NULL: abandoned */
        void *arg;
};

struct resolver {
        uv_async_t wake;
        struct lookup *waiting; /* loop thread */
        struct lookup *running; /* loop thread */
        unsigned n_running;     /* loop thread */
        pthread_mutex_t lock;
        struct lookup *finished; /* under lock */
        unsigned n_threads;      /* under lock */
        bool closed;             /* under lock; the handle is gone */
};

static void free_lookup(struct lookup *l)
{
        free(l->name);
        free(l);
}

static void free_resolver(struct resolver *r)
{
        struct lookup *l;

        while ((l = r->finished)) {
                r->finished = l->next;
                free_lookup(l);
        }
        pthread_mutex_destroy(&r->lock);
        free(r);
}

static bool take_address(const struct sockaddr *from, struct net_addr *ret)
{
        *ret = (struct net_addr){ .is_v6 = from->sa_family == AF_INET6 };
        if (from->sa_family == AF_INET)
                memcpy(ret->bytes, &((const struct sockaddr_in *)(const void *)from)->sin_addr, 4);
        else if (from->sa_family == AF_INET6)
                memcpy(ret->bytes, &((const struct sockaddr_in6 *)(const void *)from)->sin6_addr,
                       16);
        else
                return false;
        return true;
}

static void ask_resolver(struct lookup *l)
{
        struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_ADDRCONFIG };
        struct addrinfo *found = NULL;
        int r = getaddrinfo(l->name, NULL, &hints, &found);

        if (r != 0)
                l->answer.error = gai_strerror(r);
        for (struct addrinfo *a = found; a && l->answer.n < RESOLVE_ADDRS; a = a->ai_next)
                if (take_address(a->ai_addr, &l->answer.addrs[l->answer.n]))
                        l->answer.n++;
        if (r == 0 && l->answer.n == 0)
                l->answer.error = "it has no address";
        if (found)
                freeaddrinfo(found);
}

static void *thread_main(void *arg)
{
        struct lookup *l = arg;
        struct resolver *r = l->resolver;

        ask_resolver(l);
        pthread_mutex_lock(&r->lock);
        l->next = r->finished;
        r->finished = l;
        r->n_threads--;
        bool last = r->closed && r->n_threads == 0;
        if (!r->closed)
                (void)uv_async_send(&r->wake);
        pthread_mutex_unlock(&r->lock);
        if (last)
                free_resolver(r);
        return NULL;
}

static bool start_thread(struct lookup *l)
{
        struct resolver *r = l->resolver;
        pthread_attr_t attr;
        pthread_t thread;

        pthread_mutex_lock(&r->lock);
        r->n_threads++;
        pthread_mutex_unlock(&r->lock);
        (void)pthread_attr_init(&attr);
        (void)pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
        (void)pthread_attr_setstacksize(&attr, STACK_SIZE);
        bool ok = pthread_create(&thread, &attr, thread_main, l) == 0;
        (void)pthread_attr_destroy(&attr);
        if (!ok) {
                pthread_mutex_lock(&r->lock);
                r->n_threads--;
                pthread_mutex_unlock(&r->lock);
        }
        return ok;
}

static unsigned running_of(const struct resolver *r, const void *owner)
{
        unsigned n = 0;

        for (const struct lookup *l = r->running; l; l = l->run_next)
                n += l->owner == owner;
        return n;
}

static void finish_lookup(struct lookup *l)
{
        if (l->done)
                l->done(l->arg, &l->answer);
        free_lookup(l);
}

static void start_waiting(struct resolver *r)
{
        struct lookup **at = &r->waiting, *l;

        while ((l = *at) && r->n_running < RESOLVE_MAX) {
                if (l->done && running_of(r, l->owner) >= RESOLVE_MAX_OWNER) {
                        at = &l->next;
                        continue;
                }
                *at = l->next;
                if (!l->done) {
                        free_lookup(l);
                } else if (start_thread(l)) {
                        l->run_next = r->running;
                        r->running = l;
                        r->n_running++;
                } else {
                        l->answer.error = "out of threads";
                        finish_lookup(l);
                        at = &r->waiting; /* it may have asked for more, or abandoned some */
                }
        }
}

static void on_wake(uv_async_t *wake)
{
        struct resolver *r = container_of(wake, struct resolver, wake);
        struct lookup *list, *l;

        pthread_mutex_lock(&r->lock);
        list = r->finished;
        r->finished = NULL;
        pthread_mutex_unlock(&r->lock);
        while ((l = list)) {
                struct lookup **at = &r->running;

                list = l->next;
                while (*at != l)
                        at = &(*at)->run_next;
                *at = l->run_next;
                r->n_running--;
                finish_lookup(l);
        }
        start_waiting(r);
}

struct lookup *resolver_look_up(struct resolver *r, const void *owner, const char *name,
                                void (*done)(void *arg, const struct lookup_answer *answer),
                                void *arg)
{
        struct lookup *l = xcalloc(1, sizeof(*l)), **at = &r->waiting;

        l->resolver = r;
        l->owner = owner;
        l->name = xstrdup(name);
        l->done = done;
        l->arg = arg;
        while (*at)
                at = &(*at)->next;
        *at = l;
        (void)uv_async_send(&r->wake);
        return l;
}

void lookup_abandon(struct lookup *l)
{
        l->done = NULL;
}

int resolver_new(uv_loop_t *loop, struct resolver **ret, struct err *err)
{
        struct resolver *r = xcalloc(1, sizeof(*r));
        int code = uv_async_init(loop, &r->wake, on_wake);

        if (code < 0) {
                free(r);
                return err_set(err, ERR_INTERNAL, "event loop: %s", uv_strerror(code));
        }
        pthread_mutex_init(&r->lock, NULL);
        *ret = r;
        return 0;
}

static void on_closed(uv_handle_t *handle)
{
        struct resolver *r = container_of((uv_async_t *)handle, struct resolver, wake);
        struct lookup *l;

        while ((l = r->waiting)) {
                r->waiting = l->next;
                free_lookup(l);
        }
        pthread_mutex_lock(&r->lock);
        r->closed = true;
        bool last = r->n_threads == 0;
        pthread_mutex_unlock(&r->lock);
        if (last)
                free_resolver(r);
}

void resolver_free(struct resolver *r)
{
        if (!r)
                return;
        for (struct lookup *l = r->waiting; l; l = l->next)
                l->done = NULL;
        for (struct lookup *l = r->running; l; l = l->run_next)
                l->done = NULL;
        uv_close((uv_handle_t *)&r->wake, on_closed);
}
