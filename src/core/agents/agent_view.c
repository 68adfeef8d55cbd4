/* An agent with its managers and its rights. */
#include "core/agents/agent_internal.h"

#define CHAIN_MAX  64
#define GRANTS_MAX 64

struct view {
        struct op *op;
        const char *id;
        struct agent_detail *detail;
};

static int read_chain(struct db *db, struct op *op, struct agent_detail *d, struct err *err)
{
        const char *next = d->agent.reports_to;

        d->chain = arena_alloc(op->arena, CHAIN_MAX * sizeof(*d->chain));
        while (next && d->n_chain < CHAIN_MAX) {
                struct agent *manager = &d->chain[d->n_chain];
                int r = agents_get(db, next, op->arena, manager, err);

                if (r == ERR_NOT_FOUND)
                        break;
                if (r < 0)
                        return r;
                d->n_chain++;
                next = manager->reports_to;
        }
        return 0;
}

static int note_grant(void *ctx, const char *permission_key, const char *scope)
{
        struct agent_detail *d = ctx;

        if (d->n_grants < GRANTS_MAX)
                d->grants[d->n_grants++] = (struct agent_grant){ permission_key, scope };
        return 0;
}

static int read_rights(struct db *db, struct op *op, struct agent_detail *d, struct err *err)
{
        const struct agent *g = &d->agent;
        json_t *permissions = NULL;
        bool granted, creates;
        int r = memberships_get(db, g->company_id, "agent", g->id, op->arena, &d->membership, err);

        if (r < 0 && r != ERR_NOT_FOUND)
                return r;
        if (r < 0)
                d->membership = (struct membership){ 0 };
        d->grants = arena_alloc(op->arena, GRANTS_MAX * sizeof(*d->grants));
        r = grants_list(db, g->company_id, "agent", g->id, op->arena, note_grant, d, err);
        if (r >= 0)
                r = grants_has(db, g->company_id, "agent", g->id, "tasks:assign", &granted, err);
        if (r >= 0)
                r = json_parse(g->permissions, strlen(g->permissions), &permissions, err);
        if (r < 0)
                return r;
        creates = json_is_true(json_object_get(permissions, "canCreateAgents"));
        json_decref(permissions);
        d->can_assign_tasks = granted || creates || streq(g->role, "ceo");
        d->assign_source = streq(g->role, "ceo") ? "ceo_role"
                           : creates             ? "agent_creator"
                           : granted             ? "explicit_grant"
                                                 : "none";
        return 0;
}

static int read_detail(struct db *db, void *arg, struct err *err)
{
        struct view *v = arg;
        int r = read_chain(db, v->op, v->detail, err);

        return r < 0 ? r : read_rights(db, v->op, v->detail, err);
}

int agent_get_detail(struct op *op, struct runtime *rt, const char *id, struct agent_detail *ret,
                     struct err *err)
{
        struct view v = { op, id, ret };
        int r;

        *ret = (struct agent_detail){ 0 };
        r = agent_get(op, rt, id, &ret->agent, &ret->full, err);
        return r < 0 ? r : store_read(op, rt->store, read_detail, &v, err);
}
