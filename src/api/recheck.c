#include "api/recheck.h"

#include <stdio.h>

#include "core/access/auth.h"

struct right {
        const struct actor *actor;
        const char *company_id;
        bool needs_board;
};

static int look_up(struct db *db, void *arg, struct err *err)
{
        const struct right *r = arg;

        if (r->needs_board)
                return access_manage_environments(db, r->actor, r->company_id, err);
        return access_company(db, r->actor, r->company_id, false, err);
}

int recheck_company(struct op *op, struct runtime *rt, const struct actor *actor,
                    const char *company_id, bool needs_board, struct err *err)
{
        struct right right = { actor, company_id, needs_board };
        int r = needs_board ? access_board(actor, err) : 0;

        return r < 0 ? r : store_read(op, rt->store, look_up, &right, err);
}

static void job_run(struct pool_job *job, struct op *op)
{
        struct recheck *k = container_of(job, struct recheck, job);
        struct runtime *rt = k->api->rt;
        struct actor actor = { 0 };
        int r = auth_actor(op, rt, k->authorization, k->is_operator, &actor, NULL);

        if (r >= 0)
                r = recheck_company(op, rt, &actor, k->company_id, k->needs_board, NULL);
        k->refused = r == ERR_UNAUTHORIZED || r == ERR_FORBIDDEN || r == ERR_NOT_FOUND;
}

static void job_done(struct pool_job *job)
{
        struct recheck *k = container_of(job, struct recheck, job);

        k->running = false;
        k->done(k);
}

void recheck_init(struct recheck *r, struct call *c, const char *company_id, bool needs_board,
                  void (*done)(struct recheck *r))
{
        *r = (struct recheck){ .api = c->api,
                               .is_operator = c->is_operator,
                               .needs_board = needs_board,
                               .done = done };
        r->authorization = c->authorization ? xstrdup(c->authorization) : NULL;
        snprintf(r->company_id, sizeof(r->company_id), "%s", company_id);
}

void recheck_release(struct recheck *r)
{
        if (r->authorization)
                explicit_bzero(r->authorization, strlen(r->authorization));
        free(take_ptr(&r->authorization));
}

void recheck_start(struct recheck *r)
{
        if (r->running)
                return;
        r->job = (struct pool_job){ .run = job_run, .done = job_done };
        r->running = pool_submit(r->api->pool, &r->job, NULL) >= 0;
}
