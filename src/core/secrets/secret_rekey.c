/* Changing the master key during operation.
 *
 * The new key is on disk before it is used, and both are known until nothing is left under the old
 * one. Versions are opened and sealed anew a few at a time, each replaced only if it did not change
 * since it was read. From the last look, which finds nothing under the old key, that key is
 * refused: a value that was sealed with it and not yet stored is sealed again when it is stored
 * (secret_draft_commit()). A crash anywhere leaves both keys, and the next pass goes on. */
#include <pthread.h>

#include "base/fault.h"
#include "base/log.h"
#include "core/secrets/secret_draft.h"
#include "secret/seal.h"

#define BATCH 32

struct resealed {
        struct sealed_version old;
        const char *material;
        char mark[SEAL_MARK_LEN + 1];
};

struct pass {
        struct op *op;
        struct runtime *rt;
        const char *after; /* the last id that was looked at */
        char current[MASTER_KEY_ID_LEN + 1];
        struct resealed batch[BATCH];
        size_t n_batch, n_seen;
        int64_t n_left;
};

static bool is_stale(const struct pass *p, const char *material)
{
        char id[MASTER_KEY_ID_LEN + 1];

        return seal_key_of(material, id) && !streq(id, p->current);
}

static int collect_stale(void *ctx, const struct sealed_version *row)
{
        struct pass *p = ctx;

        p->after = row->id;
        p->n_seen++;
        if (is_stale(p, row->material))
                p->batch[p->n_batch++].old = *row;
        return 0;
}

static int reseal(struct pass *p, struct resealed *v, struct err *err)
{
        CLEAN(secret_value_done) struct secret_value value = { 0 };
        struct seal_place place = { v->old.company_id, v->old.secret_id, v->old.version };
        int r = seal_open(&place, v->old.material, &value, err);

        if (r >= 0)
                r = seal(p->op->arena, &place, &value, &v->material, err);
        if (r >= 0)
                r = seal_mark(&place, &value, v->mark, err);
        if (r < 0)
                return err_wrap(err, r, "Secret \"%s\" (version %lld) cannot be opened",
                                v->old.secret_name, (long long)v->old.version);
        return 0;
}

/* A row that changed meanwhile was removed, or sealed anew by another writer. */
static int write_resealed(struct db *db, void *arg, struct err *err)
{
        struct pass *p = arg;
        int r = 0;

        for (size_t i = 0; r >= 0 && i < p->n_batch; i++) {
                const struct resealed *v = &p->batch[i];

                r = secret_versions_reseal(db, v->old.id, v->old.material, v->material, v->mark,
                                           err);
        }
        return r;
}

static int reseal_batch(struct pass *p, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(p->op, p->rt->store, &db, err);

        p->n_batch = p->n_seen = 0;
        if (r >= 0)
                r = secret_versions_of_provider(db, VAULT_LOCAL, p->after, BATCH, p->op->arena,
                                                collect_stale, p, err);
        store_read_end(&db);
        for (size_t i = 0; r >= 0 && i < p->n_batch; i++)
                r = reseal(p, &p->batch[i], err);
        if (r >= 0 && p->n_batch > 0) {
                FAULT("secret.reseal.before");
                r = store_write(p->op, p->rt->store, write_resealed, p, err);
                FAULT("secret.reseal.after");
        }
        return r;
}

static int count_stale(void *ctx, const struct sealed_version *row)
{
        struct pass *p = ctx;

        p->n_left += is_stale(p, row->material);
        return 0;
}

/* The last look. It runs in the writer's own turn, so nothing can be stored meanwhile. */
static int retire_old_key(struct db *db, void *arg, struct err *err)
{
        struct pass *p = arg;

        p->n_left = 0;
        int r = secret_versions_of_provider(db, VAULT_LOCAL, "", INT64_MAX, p->op->arena,
                                            count_stale, p, err);
        if (r >= 0 && p->n_left == 0 && !master_key_retire_other(p->current))
                r = err_set(err, ERR_CONFLICT, "the master key was changed by somebody else");
        return r;
}

static int reseal_all(struct pass *p, int64_t *ret_count, struct err *err)
{
        struct master_key current = { 0 };
        int r = master_key_current(&current, err);

        if (r < 0)
                return r;
        memcpy(p->current, current.id, sizeof(p->current));
        master_key_done(&current);
        do {
                p->after = "";
                do {
                        r = reseal_batch(p, err);
                        if (r >= 0)
                                *ret_count += (int64_t)p->n_batch;
                        if (r >= 0)
                                r = op_check(p->op, err);
                } while (r >= 0 && p->n_seen == BATCH);
                if (r >= 0)
                        r = store_write(p->op, p->rt->store, retire_old_key, p, err);
        } while (r >= 0 && p->n_left > 0);
        return r;
}

/* One pass at a time: the old key of one pass is the new key of another. */
static pthread_mutex_t busy = PTHREAD_MUTEX_INITIALIZER;

static int rekey_finish(struct op *op, struct runtime *rt, int64_t *ret_count, struct err *err)
{
        struct pass *p = xcalloc(1, sizeof(*p));

        *p = (struct pass){ .op = op, .rt = rt };
        *ret_count = 0;
        int r = reseal_all(p, ret_count, err);
        if (r >= 0)
                r = master_key_end_change(err);
        if (r >= 0)
                log_info("the master key was changed", LOG_I("versions", *ret_count));
        free(p);
        return r;
}

int secret_rekey_finish(struct op *op, struct runtime *rt, struct err *err)
{
        int64_t count;
        int r = 0;

        if (pthread_mutex_trylock(&busy) != 0)
                return 0;
        if (master_key_is_changing())
                r = rekey_finish(op, rt, &count, err);
        pthread_mutex_unlock(&busy);
        return r;
}

int secret_rekey(struct op *op, struct runtime *rt, int64_t *ret_count, struct err *err)
{
        int r = access_admin(op->actor, "Instance admin required", err);

        if (r < 0)
                return r;
        if (pthread_mutex_trylock(&busy) != 0)
                return err_set(err, ERR_CONFLICT, "The master key is being changed already.");
        r = master_key_begin_change(err);
        if (r >= 0)
                r = rekey_finish(op, rt, ret_count, err);
        pthread_mutex_unlock(&busy);
        return r;
}
