/* Reading, deleting, finishing and using snapshots; snapshot_make.c makes them. */
#include "core/kinds/berth/snapshot.h"

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/access/access.h"
#include "core/access/audit.h"
#include "core/kinds/berth/berth.h"
#include "core/kinds/berth/snapshot_internal.h"
#include "core/sandboxes/sandbox_host.h"

char *snapshot_path(const struct runtime *rt, const char *id, const char *suffix)
{
        return xasprintf("%s/%s%s", rt->sandbox->snapshots_dir, id, suffix);
}

/* Reading */

struct reading {
        struct op *op;
        const char *company_id, *name, *before_id;
        int64_t before_us, limit;
        snapshot_fn fn;
        void *ctx;
        struct snapshot *row;
};

static int find_one(struct db *db, const struct reading *q, struct err *err)
{
        int r;

        if (!uuid_is_valid(q->name))
                return snapshots_by_name(db, q->company_id, q->name, q->op->arena, q->row, err);
        r = snapshots_get(db, q->name, q->op->arena, q->row, err);
        if (r >= 0 && !streq(q->row->company_id, q->company_id))
                r = err_set(err, ERR_NOT_FOUND, "Snapshot not found");
        return r;
}

static int read_one(struct db *db, void *arg, struct err *err)
{
        struct reading *q = arg;
        int r = access_manage_environments(db, q->op->actor, q->company_id, err);

        return r < 0 ? r : find_one(db, q, err);
}

static int read_all(struct db *db, void *arg, struct err *err)
{
        struct reading *q = arg;
        int r = access_manage_environments(db, q->op->actor, q->company_id, err);

        if (r < 0)
                return r;
        return snapshots_list(db, q->company_id, q->before_us, q->before_id, q->limit, q->op->arena,
                              q->fn, q->ctx, err);
}

int snapshot_list(struct op *op, struct runtime *rt, const char *company_id, int64_t before_us,
                  const char *before_id, int64_t limit, snapshot_fn fn, void *ctx, struct err *err)
{
        struct reading q = {
                .op = op,
                .company_id = company_id,
                .before_us = before_us,
                .before_id = before_id,
                .limit = limit,
                .fn = fn,
                .ctx = ctx,
        };

        return store_read(op, rt->store, read_all, &q, err);
}

int snapshot_get(struct op *op, struct runtime *rt, const char *company_id, const char *name,
                 struct snapshot *ret, struct err *err)
{
        struct reading q = { .op = op, .company_id = company_id, .name = name, .row = ret };

        return store_read(op, rt->store, read_one, &q, err);
}

/* Deleting */

struct deletion {
        struct reading reading;
        struct runtime *rt;
};

static int begin_delete(struct db *db, void *arg, struct err *err)
{
        struct deletion *d = arg;
        struct snapshot *row = d->reading.row, to;
        int64_t users;
        int r = read_one(db, &d->reading, err);

        if (r >= 0)
                r = snapshots_count_users(db, row->id, &users, err);
        if (r < 0)
                return r;
        if (users > 0)
                return err_set(err, ERR_CONFLICT,
                               "Snapshot \"%s\" is in use by %lld sandboxes or snapshots that "
                               "started from it.",
                               row->name, (long long)users);
        if (streq(row->state, SNAPSHOT_MAKING))
                return err_set(err, ERR_CONFLICT, "Snapshot \"%s\" is still being made.",
                               row->name);
        to = *row;
        to.state = SNAPSHOT_DELETING;
        to.owner_instance = d->rt->node.instance.s;
        to.updated_at = clock_now_us();
        r = snapshots_move(db, row->id, row->state, &to, err);
        if (r >= 0)
                r = audit(db, d->reading.op, row->company_id, "environment.snapshot_deleted",
                          "environment_snapshot", row->id, json_pack("{s:s}", "name", row->name),
                          err);
        return r;
}

static int end_delete(struct db *db, void *arg, struct err *err)
{
        const struct snapshot *row = arg;

        return snapshots_delete(db, row->id, row->state, err);
}

/* Remove its files, then the row. May be called again, with the same result. */
int snapshot_remove(struct op *op, struct runtime *rt, struct snapshot *row, struct err *err)
{
        CLEAN(cleanup_free) char *path = snapshot_path(rt, row->id, "");
        CLEAN(cleanup_free) char *copy = snapshot_path(rt, row->id, ".new");
        int r;

        FAULT("sandbox.snapshot_remove.before");
        r = berth_remove_tree(op, copy, err);
        if (r >= 0)
                r = berth_remove_tree(op, path, err);
        if (r >= 0)
                r = file_sync_removal(path, err);
        FAULT("sandbox.snapshot_remove.after");
        return r < 0 ? r : store_write(op, rt->store, end_delete, row, err);
}

int snapshot_delete(struct op *op, struct runtime *rt, const char *company_id, const char *name,
                    struct snapshot *ret, struct err *err)
{
        struct deletion d = {
                .reading = { .op = op, .company_id = company_id, .name = name, .row = ret },
                .rt = rt,
        };
        struct op shield;
        int r;

        FAULT("sandbox.snapshot_delete.before");
        r = store_write(op, rt->store, begin_delete, &d, err);
        FAULT("sandbox.snapshot_delete.after");
        if (r < 0)
                return r;
        ret->state = SNAPSHOT_DELETING;
        shield = op_shield(op, rt->settings.close_timeout_ms);
        return snapshot_remove(&shield, rt, ret, err);
}

/* Finishing */

struct half_done {
        struct op *op;
        struct snapshot *rows;
        size_t n;
};

static int add_open(void *ctx, const struct snapshot *row)
{
        struct half_done *h = ctx;

        h->rows = xrealloc(h->rows, (h->n + 1) * sizeof(*h->rows));
        h->rows[h->n++] = *row;
        return 0;
}

static int read_open(struct db *db, void *arg, struct err *err)
{
        struct half_done *h = arg;

        h->n = 0;
        return snapshots_open(db, h->op->arena, add_open, h, err);
}

/* A snapshot that this instance makes is left alone; one that it failed to delete is tried again.
 */
static bool is_abandoned(const struct runtime *rt, const struct snapshot *row)
{
        return !streq(row->owner_instance, rt->node.instance.s) ||
               (streq(row->state, SNAPSHOT_DELETING) &&
                row->updated_at + rt->settings.close_timeout_ms * US_PER_MS < clock_now_us());
}

static void finish(struct op *op, struct runtime *rt, struct snapshot *row)
{
        CLEAN(err_done) struct err err = { 0 };

        if (streq(row->state, SNAPSHOT_MAKING))
                snapshot_thaw_source(op, rt, row->place_id);
        if (snapshot_remove(op, rt, row, &err) < 0)
                log_warn("a snapshot could not be removed; it will be tried again",
                         LOG_S("snapshot", row->id), LOG_S("error", err.msg));
}

int snapshot_sweep(struct op *op, struct runtime *rt, struct err *err)
{
        struct half_done h = { .op = op };
        int r = rt->sandbox ? store_read(op, rt->store, read_open, &h, err) : 0;

        for (size_t i = 0; r >= 0 && i < h.n; i++)
                if (is_abandoned(rt, &h.rows[i]))
                        finish(op, rt, &h.rows[i]);
        free(h.rows);
        return r;
}

/* Using */

static const char *config_string(const struct place *place, const char *key, struct arena *arena)
{
        json_t *config = NULL;
        const char *value;

        (void)json_parse(place->config, strlen(place->config), &config, NULL);
        value = arena_strdup(arena, json_get_string(config, key));
        json_decref(config);
        return value;
}

static bool same_text(const char *a, const char *b)
{
        return a == b || (a && b && streq(a, b));
}

int snapshot_claim(struct db *db, const struct place *place, struct arena *arena,
                   const char **ret_id, struct err *err)
{
        const char *name = config_string(place, "snapshot", arena);
        struct snapshot row;
        int r;

        *ret_id = NULL;
        if (!name)
                return 0;
        r = snapshots_by_name(db, place->company_id, name, arena, &row, err);
        if (r == ERR_NOT_FOUND || (r >= 0 && !streq(row.state, SNAPSHOT_READY)))
                return err_set(err, ERR_UNPROCESSABLE,
                               "There is no snapshot \"%s\" to start from in this company.", name);
        if (r >= 0 && !same_text(row.rootfs, config_string(place, "rootfs", arena)))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Snapshot \"%s\" was made on %s, and can only be used there.", name,
                               row.rootfs ? row.rootfs : "the host's own programs");
        if (r >= 0)
                *ret_id = row.id;
        return r;
}

struct stack {
        struct op *op;
        const char *id;
        struct snapshot rows[SANDBOX_MAX_LAYERS];
        uint32_t n;
};

static int read_stack(struct db *db, void *arg, struct err *err)
{
        struct stack *s = arg;
        const char *id = s->id;
        int r = 0;

        for (s->n = 0; r >= 0 && id; id = s->rows[s->n++].parent_id) {
                if (s->n == SANDBOX_MAX_LAYERS)
                        return err_set(err, ERR_UNPROCESSABLE,
                                       "A snapshot stands on at most %d others.",
                                       SANDBOX_MAX_LAYERS - 1);
                r = snapshots_get(db, id, s->op->arena, &s->rows[s->n], err);
                if (r < 0)
                        break;
        }
        return r;
}

int snapshot_layers(struct op *op, struct runtime *rt, const char *id, struct sandbox_spec *spec,
                    struct err *err)
{
        struct stack s = { .op = op, .id = id };
        int r = id ? store_read(op, rt->store, read_stack, &s, err) : 0;

        for (uint32_t i = 0; r >= 0 && i < s.n; i++)
                spec->layers[i] = (struct sandbox_layer){
                        .path = arena_printf(op->arena, "%s/%s", rt->sandbox->snapshots_dir,
                                             s.rows[i].id),
                        .first_id = (uint32_t)s.rows[i].first_id,
                };
        spec->n_layers = s.n;
        return r;
}
