/* Renewing, pausing, resuming and realizing leases. */
#include "core/leases/lease.h"

#include "base/clock.h"
#include "base/fault.h"
#include "core/access/audit.h"

json_t *lease_activity_details(const struct lease_record *record, bool released)
{
        const struct lease *l = &record->lease;
        json_t *d = json_pack("{s:s, s:s, s:s, s:o, s:o, s:o}", "environmentId", l->environment_id,
                              "driver", record->env.driver, "leasePolicy", l->policy, "provider",
                              json_string_or_null(l->provider), "executionWorkspaceId",
                              json_string_or_null(l->execution_workspace_id), "issueId",
                              json_string_or_null(l->issue_id));

        if (released) {
                json_object_set_new(d, "status", json_string(l->status));
                json_object_set_new(d, "cleanupStatus", json_string_or_null(l->cleanup_status));
                json_object_set_new(d, "failureReason", json_string_or_null(l->failure_reason));
        }
        return d;
}

/* Renewing */

struct renewal {
        struct op *op;
        const char *id;
        struct lease_record *record;
        int64_t ttl_ms;
};

static int write_renewal(struct db *db, void *arg, struct err *err)
{
        struct renewal *q = arg;
        int64_t now = clock_steady_us();
        int r = lease_record_get(db, q->id, q->op->arena, q->record, err);

        if (r < 0)
                return r;
        r = leases_renew(db, q->id, now, now + q->ttl_ms * US_PER_MS, clock_now_us(), err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "The lease has ended and cannot be renewed.");
        return r < 0 ? r : lease_record_get(db, q->id, q->op->arena, q->record, err);
}

int lease_renew(struct op *op, struct runtime *rt, const char *lease_id, int64_t ttl_ms,
                struct lease_record *ret, struct err *err)
{
        struct renewal q = { op, lease_id, ret, ttl_ms };

        *ret = (struct lease_record){ 0 };
        FAULT("lease.renew.before");
        int r = store_write(op, rt->store, write_renewal, &q, err);
        FAULT("lease.renew.after");
        return r;
}

/* Using */

int lease_set_paused(struct op *op, struct runtime *rt, const char *lease_id, bool paused,
                     json_t **ret, struct err *err)
{
        const struct kind *kind;
        struct lease_record record;
        int r = lease_load_usable(op, rt, lease_id, &record, &kind, err);

        if (r < 0)
                return r;
        if (paused ? !kind->pause_lease : !kind->resume_lease)
                return kind_unsupported(kind, paused ? "lease pause" : "lease resume", err);
        return (paused ? kind->pause_lease : kind->resume_lease)(op, rt, &record.lease, ret, err);
}

struct metadata_update {
        struct op *op;
        const char *lease_id;
        json_t *realization;
};

static int record_realization(struct db *db, void *arg, struct err *err)
{
        struct metadata_update *u = arg;
        struct lease lease;
        int r = leases_get(db, u->lease_id, u->op->arena, &lease, err);

        if (r < 0)
                return r;
        json_t *metadata = json_from_text(u->op->arena, lease.metadata);
        if (!metadata)
                metadata = json_keep(u->op->arena, json_object());
        json_object_set(metadata, "workspaceRealization", u->realization);
        return leases_set_metadata(db, u->lease_id, json_to_arena(u->op->arena, metadata),
                                   clock_now_us(), err);
}

int lease_realize(struct op *op, struct runtime *rt, const char *lease_id, json_t *workspace,
                  json_t **ret, struct err *err)
{
        struct metadata_update u = { .op = op, .lease_id = lease_id };
        const struct kind *kind;
        struct lease_record record;
        int r = lease_load_usable(op, rt, lease_id, &record, &kind, err);

        if (r < 0)
                return r;
        if (!kind->realize)
                return kind_unsupported(kind, "workspace realization", err);
        r = kind->realize(op, rt, &record.env, &record.lease, workspace, ret, err);
        if (r < 0)
                return r;
        u.realization = json_get_object(json_get_object(*ret, "metadata"), "workspaceRealization");
        return json_object_size(u.realization) > 0
                       ? store_write(op, rt->store, record_realization, &u, err)
                       : 0;
}
