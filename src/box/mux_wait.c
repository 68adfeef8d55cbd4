/* Asking a host from an operation: the question goes to the loop, the answer comes back as a
 * promise.
 */
#include <stdatomic.h>

#include "base/clock.h"
#include "box/mux.h"
#include "rt/pool.h"

/* A relay that answers pings and no questions is not waited for. */
#define ASK_MS     60000
#define LIST_PARTS 64 /* answers to one question for all boxes */

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
        char *text; /* of a list */
};

static void asked_unref(struct asked *a)
{
        if (atomic_fetch_sub(&a->refs, 1) != 1)
                return;
        free(a->text);
        free(a);
}

static void asking_done(struct mux_question *q, int code, const char *text)
{
        struct asking *a = container_of(q, struct asking, question);

        a->answer->value = code;
        if (code >= 0 && q->want == MUX_LIST)
                a->answer->text = xstrdup(text);
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

/* *ret_text is the caller's; NULL: not wanted. */
static int ask_and_wait(struct op *op, struct mail *mail,
                        struct mux *(*find)(void *owner, const char *key), void *owner,
                        const char *key, enum mux_want want, const char *box_id,
                        const char *const *exec_ids, char **ret_text, struct err *err)
{
        struct promise *promise = promise_new(err);
        struct op limited = *op;
        struct asked *answer;
        struct asking *a;

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
        int r = promise_wait(promise, &limited, err);
        if (r >= 0)
                r = answer->value;
        if (r >= 0 && ret_text)
                *ret_text = take_ptr(&answer->text);
        promise_unref(promise);
        asked_unref(answer);
        return r;
}

int mux_ask_wait(struct op *op, struct mail *mail,
                 struct mux *(*find)(void *owner, const char *key), void *owner, const char *key,
                 enum mux_want want, const char *box_id, const char *const *exec_ids,
                 struct err *err)
{
        return ask_and_wait(op, mail, find, owner, key, want, box_id, exec_ids, NULL, err);
}

/* Ids come in their order, each after the one before: a relay that does otherwise would be asked
 * without end. */
static int take_list(char *text, struct uuid *last, mux_box_fn fn, void *ctx, struct err *err)
{
        char *save = NULL;
        int r = 0;

        for (char *line = strtok_r(text, "\n", &save); line && r >= 0;
             line = strtok_r(NULL, "\n", &save)) {
                char *node = strchr(line, ' ');
                struct uuid id, of;

                if (node)
                        *node++ = '\0';
                if (!node || !uuid_parse(line, &id) || strcmp(id.s, last->s) <= 0)
                        return err_set(err, ERR_PROVIDER, "the relay's list makes no sense");
                *last = id;
                r = fn(ctx, id.s, uuid_parse(node, &of) ? of.s : NULL);
        }
        return r;
}

int mux_list_wait(struct op *op, struct mail *mail,
                  struct mux *(*find)(void *owner, const char *key), void *owner, const char *key,
                  mux_box_fn fn, void *ctx, struct err *err)
{
        struct uuid last = { "00000000-0000-0000-0000-000000000000" };
        bool more = true;
        int r = 0;

        for (int i = 0; r >= 0 && more; i++) {
                CLEAN(cleanup_free) char *text = NULL;
                char before[UUID_LEN + 1];

                if (i == LIST_PARTS)
                        return err_set(err, ERR_TOO_LARGE, "the host has too many boxes to list");
                memcpy(before, last.s, sizeof(before));
                r = ask_and_wait(op, mail, find, owner, key, MUX_LIST, last.s, NULL, &text, err);
                more = r > 0;
                if (r >= 0 && text)
                        r = take_list(text, &last, fn, ctx, err);
                if (r >= 0 && more && streq(before, last.s))
                        r = err_set(err, ERR_PROVIDER, "the relay's list makes no sense");
        }
        return MIN(r, 0);
}
