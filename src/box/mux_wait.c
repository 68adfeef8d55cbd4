/* Asking a host from an operation: the question goes to the loop, the answer comes back as a
 * promise.
 */
#include <stdatomic.h>

#include "base/clock.h"
#include "box/mux.h"
#include "rt/pool.h"

/* A relay that answers pings and no questions is not waited for. */
#define ASK_MS 60000

struct asking {
        struct letter letter;
        struct mux_question question;
        struct mux *(*find)(void *owner, const char *key);
        void *owner;
        char *key;
        char **exec_ids;
        struct promise *promise;
        struct asked *answer;
};

/* Shared by both sides; freed by the last. */
struct asked {
        _Atomic int refs;
        int value;
};

static void asked_unref(struct asked *a)
{
        if (atomic_fetch_sub(&a->refs, 1) == 1)
                free(a);
}

static void asking_done(struct mux_question *q, int code, const char *text)
{
        struct asking *a = container_of(q, struct asking, question);

        a->answer->value = code;
        promise_keep(a->promise, MIN(code, 0), text);
        promise_unref(a->promise);
        asked_unref(a->answer);
        strv_free(a->exec_ids);
        free(a->key);
        free(a);
}

static void ask_on_loop(struct letter *letter)
{
        struct asking *a = container_of(letter, struct asking, letter);
        struct mux *m = a->find(a->owner, a->key);

        if (m)
                mux_ask(m, &a->question);
        else
                asking_done(&a->question, ERR_BUSY, "the host cannot be reached now");
}

int mux_ask_wait(struct op *op, struct mail *mail,
                 struct mux *(*find)(void *owner, const char *key), void *owner, const char *key,
                 enum mux_want want, const char *box_id, const char *const *exec_ids,
                 struct err *err)
{
        struct promise *promise = promise_new(err);
        struct op limited = *op;
        struct asked *answer;
        struct asking *a;
        int r;

        if (!promise)
                return ERR_BUSY;
        pool_needs_seat(op, "a relay");
        answer = xcalloc(1, sizeof(*answer));
        atomic_init(&answer->refs, 2);
        a = xcalloc(1, sizeof(*a));
        a->find = find;
        a->owner = owner;
        a->key = xstrdup(key);
        a->exec_ids = xstrv_copy(exec_ids);
        a->promise = promise_ref(promise);
        a->answer = answer;
        a->question = (struct mux_question){ .want = want,
                                             .exec_ids = (const char *const *)a->exec_ids,
                                             .done = asking_done };
        memcpy(a->question.box_id, box_id, UUID_LEN + 1);
        mail_post(mail, &a->letter, ask_on_loop);
        limited.deadline_ms = MIN(op->deadline_ms, clock_mono_ms() + ASK_MS);
        r = promise_wait(promise, &limited, err);
        if (r >= 0)
                r = answer->value;
        promise_unref(promise);
        asked_unref(answer);
        return r;
}
