/* Forking: several leases whose places start with the same files. The kind says how these are kept
 * (kind.h); each lease is acquired like any other, so every one of them is intended before it
 * exists.
 *
 *   fork   the kind keeps the files | each: intended | opened | held | the kind is told that it is
 * over
 *
 * When one of them fails, those made before it are released. A caller whose answer was lost asks
 * again with the same key: what was made is found, and what is missing is made of the same files.
 */
#include "base/fault.h"
#include "core/leases/lease.h"
#include "core/places/place.h"

/* Of one of them: a key counts for one source. */
static const char *fork_key(struct op *op, const char *source, const struct lease_request *req,
                            size_t i)
{
        return req->idempotency_key ? arena_printf(op->arena, "fork:%s:%s:%zu", source,
                                                   req->idempotency_key, i + 1)
                                    : NULL;
}

/* The configuration of one that an earlier request has made; NULL: there is none. */
static int find_made(struct op *op, struct runtime *rt, const struct environment *env,
                     const char *source, size_t n, const struct lease_request *req,
                     const char **ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct lease lease;
        struct place place;
        int r = req->idempotency_key ? store_read_begin(op, rt->store, &db, err) : 0;

        *ret = NULL;
        for (size_t i = 0; r >= 0 && req->idempotency_key && i < n && !*ret; i++) {
                r = leases_by_key(db, env->id, fork_key(op, source, req, i), op->arena, &lease,
                                  err);
                if (r >= 0)
                        r = places_get(db, lease.place_id, op->arena, &place, err);
                if (r >= 0)
                        *ret = place.config;
                if (r == ERR_NOT_FOUND) {
                        err_clear(err);
                        r = 0;
                }
        }
        return r;
}

static void release_made(struct op *op, struct runtime *rt, const struct lease_record *made,
                         size_t n)
{
        struct op shield = op_shield(op, rt->settings.close_timeout_ms);
        struct lease_record record;

        for (size_t i = 0; i < n; i++)
                if (!made[i].existed)
                        (void)lease_release(&shield, rt, made[i].lease.id, LEASE_RELEASED, &record,
                                            NULL);
}

int lease_acquire_many(struct op *op, struct runtime *rt, const struct environment *env,
                       const char *source, size_t n, const struct lease_request *req,
                       struct lease_record *ret, struct err *err)
{
        int r = 0;

        for (size_t i = 0; r >= 0 && i < n; i++) {
                struct lease_request one = *req;

                one.idempotency_key = fork_key(op, source, req, i);
                r = lease_acquire(op, rt, env, &one, &ret[i], err);
                FAULT("fork.one.after");
                if (r < 0)
                        release_made(op, rt, ret, i);
        }
        return r;
}

int lease_fork(struct op *op, struct runtime *rt, const struct lease_record *source, size_t n,
               const struct lease_request *req, struct lease_record *ret, struct err *err)
{
        struct lease_request with_files = *req;
        const struct kind *kind;
        bool kept = false;
        int r = lease_kind(rt, source, &kind, err);

        if (r >= 0 && !kind->fork)
                r = kind_unsupported(kind, "forks", err);
        if (r >= 0 && kind_of_environment(rt, &source->env) != kind)
                r = err_set(err, ERR_CONFLICT,
                            "The environment has another provider than the lease by now.");
        if (r >= 0)
                r = find_made(op, rt, &source->env, source->lease.id, n, req, &with_files.config,
                              err);
        if (r >= 0 && !with_files.config) {
                FAULT("fork.files.before");
                r = kind->fork(op, rt, source, &with_files.config, err);
                FAULT("fork.files.after");
                kept = r >= 0;
        }
        if (r >= 0)
                r = lease_acquire_many(op, rt, &source->env, source->lease.id, n, &with_files, ret,
                                       err);
        if (kept) {
                struct op shield = op_shield(op, rt->settings.close_timeout_ms);

                /* What fails here is the sweeper's. */
                (void)kind->fork_end(&shield, rt, with_files.config, NULL);
        }
        return r;
}
