/* The queue of letters to the loop thread, and promises. */
#include "rt/mail.h"

#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/eventfd.h>

struct mail {
        uv_async_t wake;
        pthread_mutex_t lock;
        struct letter *head, **tail;
};

void mail_catch_up(struct mail *m)
{
        struct letter *letter, *next;

        pthread_mutex_lock(&m->lock);
        letter = m->head;
        m->head = NULL;
        m->tail = &m->head;
        pthread_mutex_unlock(&m->lock);
        for (; letter; letter = next) {
                next = letter->next;
                letter->fn(letter);
        }
}

static void deliver_mail(uv_async_t *handle)
{
        mail_catch_up(container_of(handle, struct mail, wake));
}

int mail_new(uv_loop_t *loop, struct mail **ret, struct err *err)
{
        struct mail *m = xcalloc(1, sizeof(*m));
        int r = uv_async_init(loop, &m->wake, deliver_mail);

        if (r < 0) {
                free(m);
                return err_set(err, ERR_INTERNAL, "event loop: %s", uv_strerror(r));
        }
        pthread_mutex_init(&m->lock, NULL);
        m->tail = &m->head;
        *ret = m;
        return 0;
}

static void mailbox_closed(uv_handle_t *handle)
{
        struct mail *m = container_of((uv_async_t *)handle, struct mail, wake);

        pthread_mutex_destroy(&m->lock);
        free(m);
}

void mail_free(struct mail *m)
{
        if (m)
                uv_close((uv_handle_t *)&m->wake, mailbox_closed);
}

void mail_post(struct mail *m, struct letter *letter, void (*fn)(struct letter *))
{
        letter->fn = fn;
        letter->next = NULL;
        pthread_mutex_lock(&m->lock);
        *m->tail = letter;
        m->tail = &letter->next;
        uv_async_send(&m->wake);
        pthread_mutex_unlock(&m->lock);
}

/* Promises */

struct promise {
        _Atomic int refs;
        _Atomic bool kept;
        int fd, code;
        char text[512];
};

struct promise *promise_new(struct err *err)
{
        struct promise *p = xcalloc(1, sizeof(*p));

        atomic_init(&p->refs, 1);
        p->fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
        if (p->fd < 0) {
                (void)err_sys(err, ERR_BUSY, errno, "eventfd");
                free(p);
                return NULL;
        }
        return p;
}

struct promise *promise_ref(struct promise *p)
{
        atomic_fetch_add(&p->refs, 1);
        return p;
}

void promise_unref(struct promise *p)
{
        if (p && atomic_fetch_sub(&p->refs, 1) == 1) {
                close(p->fd);
                free(p);
        }
}

void promise_keep(struct promise *p, int code, const char *text)
{
        uint64_t one = 1;

        if (atomic_load(&p->kept))
                return;
        p->code = code;
        strncpy(p->text, text ? text : "", sizeof(p->text) - 1);
        atomic_store(&p->kept, true);
        (void)!write(p->fd, &one, sizeof(one));
}

int promise_wait(struct promise *p, const struct op *op, struct err *err)
{
        int r = op_wait_fd(op, p->fd, POLLIN, -1, err);
        /* In any case: it is what puts the keeper's writes before our reads. */
        bool kept = atomic_load(&p->kept);

        if (r < 0 && !kept)
                return r;
        return p->code < 0 ? err_set(err, p->code, "%s", p->text) : 0;
}
