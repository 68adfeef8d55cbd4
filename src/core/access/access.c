/* Decides what an actor may do: access to companies, permissions, and the rights of roles. */
#include "core/access/access.h"

#include "store/agents.h"
#include "store/companies.h"
#include "store/identity.h"

const struct actor actor_system = { .type = ACTOR_SYSTEM, .source = SOURCE_SYSTEM };

const char *actor_source_name(enum actor_source source)
{
        static const char *const names[] = {
                [SOURCE_NONE] = "none",           [SOURCE_LOCAL_IMPLICIT] = "local_implicit",
                [SOURCE_BOARD_KEY] = "board_key", [SOURCE_AGENT_KEY] = "agent_key",
                [SOURCE_AGENT_JWT] = "agent_jwt", [SOURCE_SYSTEM] = "system",
        };

        return names[source];
}

int access_authenticated(const struct actor *a, struct err *err)
{
        return a->type == ACTOR_NONE ? err_set(err, ERR_UNAUTHORIZED, "Unauthorized") : 0;
}

int access_board(const struct actor *a, struct err *err)
{
        return a->type == ACTOR_BOARD ? 0 : err_set(err, ERR_FORBIDDEN, "Board access required");
}

static int note_active(void *ctx, const struct membership *m)
{
        bool *any = ctx;

        *any = *any || streq(m->status, "active");
        return 0;
}

int access_board_org(struct db *db, const struct actor *a, struct err *err)
{
        CLEAN(arena_done) struct arena arena = { 0 };
        bool any = false;
        int r = access_board(a, err);

        if (r < 0 || a->is_instance_admin)
                return r;
        r = memberships_of_user(db, a->user_id, &arena, note_active, &any, err);
        if (r < 0 || any)
                return r;
        return err_set(err, ERR_FORBIDDEN, "Company membership or instance admin access required");
}

int access_admin(const struct actor *a, const char *text, struct err *err)
{
        int r = access_board(a, err);

        if (r < 0)
                return r;
        return a->is_instance_admin ? 0 : err_set(err, ERR_FORBIDDEN, "%s", text);
}

int access_company(struct db *db, const struct actor *a, const char *company_id, bool write,
                   struct err *err)
{
        CLEAN(arena_done) struct arena arena = { 0 };
        struct company ignored;
        struct membership m;
        int r = access_authenticated(a, err);

        if (r < 0)
                return r;
        if (a->type == ACTOR_AGENT)
                return streq(a->company_id, company_id)
                               ? 0
                               : err_set(err, ERR_FORBIDDEN,
                                         "Agent key cannot access another company");
        if (a->source == SOURCE_LOCAL_IMPLICIT || a->type == ACTOR_SYSTEM)
                return companies_get(db, company_id, &arena, &ignored, err);
        r = memberships_get(db, company_id, "user", a->user_id, &arena, &m, err);
        if (r == ERR_NOT_FOUND || (r >= 0 && !write && !streq(m.status, "active")))
                return err_set(err, ERR_FORBIDDEN, "User does not have access to this company");
        if (r >= 0 && !streq(m.status, "active"))
                return err_set(err, ERR_FORBIDDEN, "User does not have active company access");
        if (r >= 0 && write && streq(m.role, "viewer"))
                return err_set(err, ERR_FORBIDDEN, "Viewer access is read-only");
        return r;
}

/* What a role allows without a grant of its own. Unlike in Paperclip, the roles that run a company
 * may run its environments. */
static bool role_has(const char *role, const char *permission)
{
        bool owner = streq(role, "owner");
        bool admin = owner || streq(role, "admin");

        if (streq(permission, PERM_USERS_PERMISSIONS))
                return owner;
        if (streq(permission, PERM_ENVIRONMENTS) || streq(permission, PERM_AGENTS_CREATE) ||
            streq(permission, "users:invite") || streq(permission, "joins:approve"))
                return admin;
        if (streq(permission, "tasks:assign"))
                return admin || streq(role, "operator");
        return false;
}

int access_has(struct db *db, const struct actor *a, const char *company_id, const char *permission,
               bool *ret, struct err *err)
{
        CLEAN(arena_done) struct arena arena = { 0 };
        struct membership m;
        int r;

        *ret = true;
        if (a->type == ACTOR_SYSTEM || a->source == SOURCE_LOCAL_IMPLICIT ||
            (a->type == ACTOR_BOARD && a->is_instance_admin))
                return 0;
        *ret = false;
        if (a->type == ACTOR_BOARD) {
                r = memberships_get(db, company_id, "user", a->user_id, &arena, &m, err);
                *ret = r >= 0 && streq(m.status, "active") && role_has(m.role, permission);
                if (*ret || (r < 0 && r != ERR_NOT_FOUND))
                        return r;
                return grants_has(db, company_id, "user", a->user_id, permission, ret, err);
        }
        if (a->type != ACTOR_AGENT || !streq(a->company_id, company_id))
                return 0;
        return grants_has(db, company_id, "agent", a->agent_id, permission, ret, err);
}

int access_manage_environments(struct db *db, const struct actor *a, const char *company_id,
                               struct err *err)
{
        bool allowed;
        int r = access_company(db, a, company_id, true, err);

        if (r < 0)
                return r;
        r = access_has(db, a, company_id, PERM_ENVIRONMENTS, &allowed, err);
        if (r < 0)
                return r;
        if (!allowed && !(a->type == ACTOR_AGENT && a->can_create_agents))
                return err_set(err, ERR_FORBIDDEN, "Missing permission: " PERM_ENVIRONMENTS);
        return 0;
}

int access_manage_agents(struct db *db, const struct actor *a, const char *company_id,
                         struct err *err)
{
        bool allowed;
        int r = access_company(db, a, company_id, true, err);

        if (r < 0)
                return r;
        if (a->type == ACTOR_AGENT)
                return a->can_create_agents ? 0
                                            : err_set(err, ERR_FORBIDDEN,
                                                      "Missing permission: can create agents");
        r = access_has(db, a, company_id, PERM_AGENTS_CREATE, &allowed, err);
        if (r < 0)
                return r;
        return allowed ? 0 : err_set(err, ERR_FORBIDDEN, "Missing permission: " PERM_AGENTS_CREATE);
}

int access_is_ceo(struct db *db, const struct op *op, bool *ret, struct err *err)
{
        struct agent self;
        int r = agents_get(db, op->actor->agent_id, op->arena, &self, err);

        *ret = r >= 0 && streq(self.role, "ceo");
        return r;
}

bool access_may_use_host(const struct runtime *rt, const struct actor *actor)
{
        return actor->type == ACTOR_SYSTEM ||
               (actor->type == ACTOR_BOARD &&
                (actor->is_instance_admin || rt->settings.local_for_owners));
}
