/* A lease with its environment, as all readers see it, and its kind. */
#include "core/places/lease_record.h"

#include "base/clock.h"

bool lease_is_living(const struct lease *lease)
{
        return streq(lease->status, LEASE_ACTIVE) || streq(lease->status, LEASE_RETAINED);
}

void lease_record_fill(struct lease_record *record, struct arena *arena)
{
        record->workspace_mode = json_get_string(json_from_text(arena, record->lease.metadata),
                                                 "executionWorkspaceMode");
}

const char *lease_driver_key(const struct lease_record *record, struct arena *arena)
{
        const char *recorded =
                json_get_string(json_from_text(arena, record->lease.metadata), "driver");

        return recorded ? recorded : record->env.driver;
}

int lease_kind(const struct runtime *rt, const struct lease_record *record, const struct kind **ret,
               struct err *err)
{
        struct arena arena;

        arena_init(&arena);
        const char *driver = lease_driver_key(record, &arena);
        *ret = kind_find(rt, driver, record->lease.provider);
        int r = kind_required(*ret, driver, err);
        arena_done(&arena);
        return r;
}

const struct kind *lease_find_kind(const struct runtime *rt, const struct lease_record *record)
{
        const struct kind *found;

        (void)lease_kind(rt, record, &found, NULL);
        return found;
}

int lease_record_get(struct db *db, const char *lease_id, struct arena *arena,
                     struct lease_record *ret, struct err *err)
{
        int r = leases_get(db, lease_id, arena, &ret->lease, err);

        if (r >= 0)
                r = environments_get(db, ret->lease.environment_id, arena, &ret->env, err);
        if (r >= 0)
                lease_record_fill(ret, arena);
        return r;
}

int lease_load(struct op *op, struct runtime *rt, const char *lease_id, struct lease_record *ret,
               struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        *ret = (struct lease_record){ 0 };
        return r < 0 ? r : lease_record_get(db, lease_id, op->arena, ret, err);
}

int lease_load_usable(struct op *op, struct runtime *rt, const char *lease_id,
                      struct lease_record *ret, const struct kind **ret_kind, struct err *err)
{
        int r = lease_load(op, rt, lease_id, ret, err);

        if (r >= 0)
                r = lease_kind(rt, ret, ret_kind, err);
        if (r < 0)
                return r;
        if (!streq(ret->lease.status, LEASE_ACTIVE))
                return err_set(err, ERR_CONFLICT, "The lease is %s and cannot be used any more.",
                               ret->lease.status);
        if (ret->lease.expires_at && ret->lease.expires_at <= clock_steady_us())
                return err_set(err, ERR_CONFLICT,
                               "The lease has expired and cannot be used any more.");
        return 0;
}
