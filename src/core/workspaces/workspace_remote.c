/* Reading from a lease where its directory is. */
#include "core/workspaces/workspace_remote.h"

#include "codec/json.h"

struct reading {
        struct op *op;
        const char *id;
        struct lease *lease;
        bool is_first; /* of its run in its environment */
};

static int read_lease(struct db *db, void *arg, struct err *err)
{
        struct reading *q = arg;
        int r = leases_get(db, q->id, q->op->arena, q->lease, err);

        return r < 0 ? r : leases_is_first_of_run(db, q->lease, &q->is_first, err);
}

static const char *text(struct op *op, const json_t *object, const char *key)
{
        return arena_strtrim(op->arena, json_get_string(object, key));
}

int workspace_remote_find(struct op *op, struct runtime *rt, const char *lease_id,
                          struct workspace_remote *ret, struct err *err)
{
        struct reading reading = { op, lease_id, &ret->lease, false };
        json_t *metadata = NULL;
        const char *mode;
        int r = store_read(op, rt->store, read_lease, &reading, err);

        if (r < 0)
                return r;
        if (ret->lease.metadata)
                (void)json_parse(ret->lease.metadata, strlen(ret->lease.metadata), &metadata, NULL);
        ret->run = reading.is_first ? ret->lease.heartbeat_run_id : ret->lease.id;
        ret->cwd = text(op, json_get_object(metadata, "providerMetadata"), "remoteCwd");
        if (!ret->cwd)
                ret->cwd = text(op, metadata, "remoteCwd");
        mode = text(op, metadata, "workspaceMode");
        ret->in_place = mode && streq(mode, "in_place");
        json_decref(metadata);
        if (!ret->cwd || ret->cwd[0] != '/')
                return err_set(err, ERR_UNPROCESSABLE,
                               "The lease names no directory for a workspace.");
        return 0;
}
