/* A new version of a secret.
 *
 * Its number is one more than the highest that exists, whatever became of that version. A second
 * caller finds the number taken, or the secret changed, and gets a conflict. A vault outside is
 * asked only after the number is taken; the new version counts from one transaction on, and until
 * then the old one does. */
#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/access/audit.h"
#include "core/secrets/secret_draft.h"

#define CLEANUP_MS 10000
#define NOTHING    "{}" /* material of a version before its vault has answered */

struct rotation {
        struct op *op;
        struct runtime *rt;
        const char *id;
        const struct secret_rotation *wanted;

        struct secret secret;
        struct secret_version current, next;
        struct vault_choice vault;
        struct vault_material material;
        bool is_gone; /* for undo */
};

static int rotation_check_rules(const struct rotation *q, struct err *err)
{
        bool external = streq(q->secret.managed_mode, SECRET_EXTERNAL);

        if (!streq(q->secret.status, SECRET_ACTIVE))
                return err_set(err, ERR_UNPROCESSABLE, "Cannot rotate a non-active secret");
        if (!external && q->wanted->external_ref)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Managed secrets cannot override externalRef");
        if (!external && !q->wanted->value)
                return err_set(err, ERR_UNPROCESSABLE, "Managed secrets require value");
        if (external && (q->wanted->external_ref || q->wanted->has_config))
                return secret_may_link(q->rt, q->op, err);
        return 0;
}

static int rotation_lost(struct err *err)
{
        return err_set(err, ERR_CONFLICT,
                       "The secret is being rotated by somebody else; read it again.");
}

static int rotation_insert(struct db *db, struct rotation *q, struct err *err)
{
        int r = secret_versions_insert(db, &q->next, err);

        return r == ERR_CONFLICT ? rotation_lost(err) : r;
}

static int find_reserved(void *ctx, const struct secret_version *v)
{
        bool *found = ctx;

        *found = *found || (v->reserved_by && !streq(v->reserved_by, SECRET_ABANDONED));
        return 0;
}

static int rotation_reserve(struct db *db, void *arg, struct err *err)
{
        struct rotation *q = arg;
        bool busy = false;
        int r = secret_versions_list(db, q->id, q->op->arena, find_reserved, &busy, err);

        if (r >= 0 && busy)
                return rotation_lost(err);
        q->next.reserved_by = q->rt->node.instance.s;
        return r < 0 ? r : rotation_insert(db, q, err);
}

static void rotation_take_material(struct rotation *q)
{
        q->next.material = q->material.material;
        q->next.value_mark = q->material.value_mark;
        q->next.fingerprint = q->material.fingerprint;
        q->next.version_ref = q->material.version_ref;
}

static int rotation_record(struct db *db, void *arg, struct err *err)
{
        return secret_versions_update(db, &((struct rotation *)arg)->next, err);
}

static int rotation_ask_vault(struct rotation *q, struct err *err)
{
        struct vault_subject subject = secret_subject(&q->secret, q->next.version);
        struct vault_material current = secret_material(&q->secret, &q->current);
        const struct vault_provider *p = q->vault.provider;

        if (streq(q->secret.managed_mode, SECRET_EXTERNAL))
                return p->link(q->op, &q->vault.config, &subject,
                               q->wanted->external_ref ? q->wanted->external_ref
                                                       : q->secret.external_ref,
                               q->wanted->version_ref, &q->material, err);
        return p->create_version(q->op, &q->vault.config, &subject, &current, q->wanted->value,
                                 &q->material, err);
}

static int rotation_promote(struct db *db, struct rotation *q, struct err *err)
{
        struct secret s;
        int r = secret_load(db, q->op, q->id, true, false, &s, err);

        db_keep(db, &q->secret, sizeof(q->secret));
        if (r >= 0)
                r = rotation_check_rules(q, err);
        if (r >= 0 && s.updated_at != q->secret.updated_at)
                r = rotation_lost(err);
        if (r >= 0)
                r = secret_versions_demote(db, q->id, err);
        if (r < 0)
                return r;
        s.latest_version = q->next.version;
        s.external_ref = q->material.external_ref;
        if (q->wanted->has_config)
                s.provider_config_id = q->wanted->config_id;
        s.last_rotated_at = clock_now_us();
        r = secret_store(db, &s, err);
        if (r >= 0)
                r = audit(db, q->op, s.company_id, "secret.rotated", "secret", s.id,
                          json_pack("{s:I}", "version", (json_int_t)q->next.version), err);
        q->secret = s;
        return r;
}

/* The number was taken before: the version comes into force. */
static int rotation_promote_reserved(struct db *db, void *arg, struct err *err)
{
        struct rotation *q = arg;
        struct secret_version next = q->next;
        int r = rotation_promote(db, q, err);

        next.status = VERSION_CURRENT;
        next.reserved_by = NULL;
        return r < 0 ? r : secret_versions_update(db, &next, err);
}

/* Number and version in one: nothing exists outside. */
static int rotation_promote_new(struct db *db, void *arg, struct err *err)
{
        struct rotation *q = arg;
        const struct vault_provider *p = q->vault.provider;
        int r = 0;

        if (p->may_store && !p->may_store(&q->material)) {
                r = rotation_ask_vault(q, err);
                rotation_take_material(q);
        }
        if (r >= 0)
                r = rotation_promote(db, q, err);
        q->next.status = VERSION_CURRENT;
        return r < 0 ? r : rotation_insert(db, q, err);
}

static int rotation_undo(struct db *db, void *arg, struct err *err)
{
        struct rotation *q = arg;

        if (q->is_gone)
                return secret_versions_delete(db, q->next.id, err);
        q->next.reserved_by = SECRET_ABANDONED;
        return secret_versions_update(db, &q->next, err);
}

/* Take the new version back, outside first. */
static void rotation_abandon(struct rotation *q)
{
        CLEAN(err_done) struct err err = { 0 };
        struct op shielded = op_shield(q->op, CLEANUP_MS);
        struct vault_subject subject = secret_subject(&q->secret, q->next.version);
        int r = q->vault.provider->remove(&shielded, &q->vault.config, &subject, &q->material,
                                          VAULT_ARCHIVE, &err);

        q->is_gone = r >= 0 || vault_failure_of(&err) == VAULT_NOT_FOUND;
        if (!q->is_gone)
                log_warn("a version that was not stored could not be removed from its vault; it "
                         "will be tried again",
                         LOG_S("secret", q->id), LOG_I("version", q->next.version),
                         LOG_S("error", err.msg));
        FAULT("secret.rotate_undo.before");
        (void)store_write(&shielded, q->rt->store, rotation_undo, q, NULL);
        FAULT("secret.rotate_undo.after");
}

/* Our database decides which version is current; a vault that has such a notion is told. */
static void rotation_tell_vault(struct rotation *q)
{
        CLEAN(err_done) struct err err = { 0 };
        struct vault_subject subject = secret_subject(&q->secret, q->next.version);

        if (q->vault.provider->promote &&
            q->vault.provider->promote(q->op, &q->vault.config, &subject, &q->material, &err) < 0)
                log_warn("a vault was not told which version is current", LOG_S("secret", q->id),
                         LOG_S("error", err.msg));
}

static int rotate_outside(struct rotation *q, struct err *err)
{
        FAULT("secret.rotate_reserve.before");
        int r = store_write(q->op, q->rt->store, rotation_reserve, q, err);
        FAULT("secret.rotate_reserve.after");
        if (r < 0)
                return r;
        r = rotation_ask_vault(q, err);
        if (r >= 0) {
                rotation_take_material(q);
                FAULT("secret.rotate_record.before");
                r = store_write(q->op, q->rt->store, rotation_record, q, err);
                FAULT("secret.rotate_record.after");
        }
        if (r >= 0) {
                FAULT("secret.rotate.before");
                r = store_write(q->op, q->rt->store, rotation_promote_reserved, q, err);
                FAULT("secret.rotate.after");
        }
        if (r < 0)
                rotation_abandon(q);
        else
                rotation_tell_vault(q);
        return r;
}

static int rotate_inside(struct rotation *q, struct err *err)
{
        int r = rotation_ask_vault(q, err);

        if (r < 0)
                return r;
        rotation_take_material(q);
        FAULT("secret.rotate.before");
        r = store_write(q->op, q->rt->store, rotation_promote_new, q, err);
        FAULT("secret.rotate.after");
        return r;
}

int secret_rotate(struct op *op, struct runtime *rt, const char *id,
                  const struct secret_rotation *wanted, struct secret *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct rotation q = { .op = op, .rt = rt, .id = id, .wanted = wanted };
        const struct secret *s = &q.secret;
        int64_t max = 0;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = secret_load(db, op, id, true, false, &q.secret, err);
        if (r >= 0)
                r = rotation_check_rules(&q, err);
        if (r >= 0)
                r = vault_choose(db, rt, op->arena, s->company_id, s->provider,
                                 wanted->has_config ? wanted->config_id : s->provider_config_id,
                                 &q.vault, err);
        if (r >= 0)
                r = secret_versions_get(db, id, s->latest_version, op->arena, &q.current, err);
        if (r >= 0)
                r = secret_versions_max(db, id, &max, err);
        store_read_end(&db);
        if (r < 0)
                return r;
        q.next = (struct secret_version){
                .id = arena_strdup(op->arena, uuid_new().s),
                .secret_id = s->id,
                .version = max + 1,
                .material = NOTHING,
                .value_mark = "",
                .fingerprint = "",
                .status = VERSION_DISABLED,
                .created_at = clock_now_us(),
        };
        secret_name_creator(op, &q.next.created_by_agent_id, &q.next.created_by_user_id);
        if (q.vault.provider->is_inside || streq(s->managed_mode, SECRET_EXTERNAL))
                r = rotate_inside(&q, err);
        else
                r = rotate_outside(&q, err);
        if (r >= 0)
                *ret = q.secret;
        return r;
}
