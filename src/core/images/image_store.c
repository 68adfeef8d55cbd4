/* Removing images and layers: by name, those that nothing uses, what is too much, and what an
 * earlier daemon left. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/access/audit.h"
#include "core/images/image.h"
#include "core/sandboxes/sandbox_host.h"
#include "image/layer.h"

#define FAILED_KEPT_US (INT64_C(24) * 3600 * US_PER_S) /* a failed image, with what came of it */
#define CUT            "The daemon ended while the image was made. Try it again."

int image_get_row(struct op *op, struct runtime *rt, const char *company_id, const char *name,
                  struct image_row *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        char text[IMAGE_REF_SIZE];
        struct image_ref ref;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = images_find(db, company_id, name, op->arena, ret, err);
        if (r != ERR_NOT_FOUND || image_ref_parse(name, &ref, NULL) < 0)
                return r;
        err_clear(err);
        image_ref_format(&ref, text);
        return images_find(db, company_id, text, op->arena, ret, err);
}

/* Layers */

struct layer_change {
        struct image_layer_row from, to;
        bool moved;
};

static int move_layer(struct db *db, void *arg, struct err *err)
{
        struct layer_change *c = arg;
        int r = image_layers_move(db, &c->from, &c->to, err);

        c->moved = r > 0;
        return r;
}

/* An image may have taken it since it was found without one. */
static int claim_removal(struct db *db, void *arg, struct err *err)
{
        struct layer_change *c = arg;
        struct image_layer_row *loose;
        struct arena arena;
        int n;

        arena_init(&arena);
        n = image_layers_loose(db, &arena, &loose, err);
        c->moved = false;
        for (int i = 0; i < n && !c->moved; i++)
                c->moved = streq(loose[i].id, c->from.id);
        arena_done(&arena);
        return n < 0 || !c->moved ? MIN(n, 0) : move_layer(db, c, err);
}

static int forget_layer(struct db *db, void *arg, struct err *err)
{
        const struct image_layer_row *row = arg;

        return image_layers_delete(db, row->id, LAYER_DELETING, err);
}

/* May be called again, with the same result. */
static int remove_layer(struct op *op, struct runtime *rt, const struct image_layer_row *row,
                        struct err *err)
{
        struct layer_change c = { .from = *row, .to = *row };
        CLEAN(cleanup_fd)
        int dir = open(rt->sandbox->images_dir, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        int r = 0;

        if (dir < 0)
                return err_sys(err, ERR_IO, errno, "open the store of images");
        c.to.state = LAYER_DELETING;
        c.to.owner_instance = rt->node.instance.s;
        c.to.updated_at = clock_now_us();
        FAULT("image.layer_delete.before");
        if (!streq(row->state, LAYER_DELETING)) {
                r = store_write(op, rt->store, claim_removal, &c, err);
                if (r < 0 || !c.moved)
                        return r;
        }
        FAULT("image.layer_delete.after");
        r = layer_remove(op, dir, row->id, err);
        if (r >= 0 && fsync(dir) < 0)
                r = err_sys(err, ERR_IO, errno, "sync the store of images");
        FAULT("image.layer_remove.after");
        return r < 0 ? r : store_write(op, rt->store, forget_layer, &c.to, err);
}

static int remove_loose_layers(struct op *op, struct runtime *rt, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct image_layer_row *rows;
        int n = store_read_begin(op, rt->store, &db, err), r = 0;

        if (n >= 0)
                n = image_layers_loose(db, op->arena, &rows, err);
        store_read_end(&db);
        for (int i = 0; r >= 0 && i < n; i++)
                r = remove_layer(op, rt, &rows[i], err);
        return MIN(n, r);
}

/* Images */

struct removal {
        struct op *op;
        struct runtime *rt;
        const char *id;
        bool unless_used; /* not an error then */
        bool is_kept;     /* for that reason */
        struct image_row row;
};

static int image_begin_delete(struct db *db, void *arg, struct err *err)
{
        struct removal *d = arg;
        int64_t users;
        int r = images_get(db, d->id, d->op->arena, &d->row, err);

        if (r >= 0)
                r = images_count_users(db, d->id, &users, err);
        if (r < 0)
                return r;
        d->is_kept = users > 0 && d->unless_used;
        if (d->is_kept)
                return 0;
        if (users > 0)
                return err_set(err, ERR_CONFLICT,
                               "The image %s is in use by %lld sandboxes or snapshots that stand "
                               "on it.",
                               d->row.reference, (long long)users);
        if (streq(d->row.state, IMAGE_PULLING) &&
            streq(d->row.owner_instance, d->rt->node.instance.s))
                return err_set(err, ERR_CONFLICT, "The image %s is still being pulled.",
                               d->row.reference);
        struct image_row to = d->row;
        to.state = IMAGE_DELETING;
        to.owner_instance = d->rt->node.instance.s;
        to.updated_at = clock_now_us();
        r = images_move(db, d->id, d->row.state, &to, err);
        if (r > 0 && d->row.company_id && streq(d->row.state, IMAGE_READY))
                r = audit(db, d->op, d->row.company_id, "environment.image_deleted",
                          "environment_image", d->id,
                          json_pack("{s:s}", "reference", d->row.reference), err);
        d->row.state = IMAGE_DELETING;
        return MIN(r, 0);
}

static int image_end_delete(struct db *db, void *arg, struct err *err)
{
        return images_delete(db, arg, IMAGE_DELETING, err);
}

static int remove_image(struct op *op, struct runtime *rt, struct removal *d, struct err *err)
{
        FAULT("image.delete.before");
        int r = store_write(op, rt->store, image_begin_delete, d, err);
        FAULT("image.delete.after");
        if (r < 0 || d->is_kept)
                return r;
        struct op shield = op_shield(op, rt->settings.close_timeout_ms);

        r = store_write(&shield, rt->store, image_end_delete, (void *)d->id, err);
        FAULT("image.deleted.after");
        return r < 0 ? r : remove_loose_layers(&shield, rt, err);
}

int image_remove(struct op *op, struct runtime *rt, const char *company_id, const char *name,
                 struct image_row *ret, struct err *err)
{
        struct removal d = { .op = op, .rt = rt };
        int r = image_get_row(op, rt, company_id, name, ret, err);

        if (r >= 0)
                r = image_may(op, rt, ret->company_id, true, err);
        if (r < 0)
                return r;
        d.id = ret->id;
        r = remove_image(op, rt, &d, err);
        if (r >= 0)
                *ret = d.row;
        return r;
}

static bool same_owner(const char *a, const char *b)
{
        return a == b || (a && b && streq(a, b));
}

static int store_bytes(struct op *op, struct runtime *rt, int64_t *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : image_layers_bytes(db, ret, err);
}

/* Those that nothing stands on, the least recently used first, then those that failed. */
static int removable(struct op *op, struct runtime *rt, struct image_row **ret_unused, int *ret_n,
                     struct image_row **ret_open, int *ret_n_open, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = *ret_n = images_unused(db, op->arena, ret_unused, err);
        if (r >= 0)
                r = *ret_n_open = images_open(db, op->arena, ret_open, err);
        return r;
}

static int remove_one(struct op *op, struct runtime *rt, const char *id, int64_t *count,
                      struct err *err)
{
        struct removal d = { .op = op, .rt = rt, .id = id, .unless_used = true };
        int r = remove_image(op, rt, &d, err);

        if (r >= 0 && !d.is_kept)
                ++*count;
        return r == ERR_NOT_FOUND ? 0 : r;
}

int image_prune(struct op *op, struct runtime *rt, const char *company_id, int64_t *ret_images,
                int64_t *ret_bytes, struct err *err)
{
        struct image_row *unused, *open;
        int64_t before = 0, after = 0;
        int n, n_open, r = image_may(op, rt, company_id, true, err);

        *ret_images = *ret_bytes = 0;
        if (!rt->sandbox)
                return r;
        if (r >= 0)
                r = store_bytes(op, rt, &before, err);
        if (r >= 0)
                r = removable(op, rt, &unused, &n, &open, &n_open, err);
        for (int i = 0; r >= 0 && i < n; i++)
                if (same_owner(unused[i].company_id, company_id))
                        r = remove_one(op, rt, unused[i].id, ret_images, err);
        for (int i = 0; r >= 0 && i < n_open; i++)
                if (same_owner(open[i].company_id, company_id) &&
                    streq(open[i].state, IMAGE_FAILED))
                        r = remove_one(op, rt, open[i].id, ret_images, err);
        if (r >= 0)
                r = store_bytes(op, rt, &after, err);
        *ret_bytes = MAX(before - after, 0);
        return r;
}

/* Finishing */

static int fail_image(struct db *db, void *arg, struct err *err)
{
        struct image_row *to = arg;

        to->state = IMAGE_FAILED;
        to->error = CUT;
        to->updated_at = clock_now_us();
        return images_move(db, to->id, IMAGE_PULLING, to, err);
}

static int settle_image(struct op *op, struct runtime *rt, struct image_row *row, struct err *err)
{
        bool abandoned = !streq(row->owner_instance, rt->node.instance.s);
        int64_t count = 0;

        if (streq(row->state, IMAGE_PULLING) && abandoned)
                return store_write(op, rt->store, fail_image, row, err);
        if (streq(row->state, IMAGE_DELETING))
                return store_write(op, rt->store, image_end_delete, (void *)row->id, err);
        if (streq(row->state, IMAGE_FAILED) && row->updated_at + FAILED_KEPT_US < clock_now_us())
                return remove_one(op, rt, row->id, &count, err);
        return 0;
}

/* Those that a daemon which is gone was making: what is fetched stays, what is unpacked goes with
 * the next attempt. */
static int settle_layers(struct op *op, struct runtime *rt, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct image_layer_row *rows;
        int n = store_read_begin(op, rt->store, &db, err), r = 0;

        if (n >= 0)
                n = image_layers_open(db, op->arena, &rows, err);
        store_read_end(&db);
        for (int i = 0; r >= 0 && i < n; i++) {
                struct layer_change c = { .from = rows[i], .to = rows[i] };

                if (streq(rows[i].owner_instance, rt->node.instance.s))
                        continue;
                c.to.state = LAYER_CUT;
                c.to.updated_at = clock_now_us();
                FAULT("image.settle.before");
                r = store_write(op, rt->store, move_layer, &c, err);
                FAULT("image.settle.after");
        }
        return MIN(n, r);
}

static int keep_to_limit(struct op *op, struct runtime *rt, struct image_row *unused, int n,
                         struct err *err)
{
        int64_t limit = rt->settings.image_store_max_mb << 20, bytes = 0, count = 0;
        int r = limit ? store_bytes(op, rt, &bytes, err) : 0;

        for (int i = 0; r >= 0 && limit && bytes > limit && i < n; i++) {
                log_info("an image goes: the store is over its limit",
                         LOG_S("image", unused[i].reference));
                r = remove_one(op, rt, unused[i].id, &count, err);
                if (r >= 0)
                        r = store_bytes(op, rt, &bytes, err);
        }
        return r;
}

int image_sweep(struct op *op, struct runtime *rt, struct err *err)
{
        struct image_row *unused, *open;
        int n = 0, n_open = 0;
        int r = rt->sandbox ? removable(op, rt, &unused, &n, &open, &n_open, err) : 0;

        if (r < 0 || !rt->sandbox)
                return r;
        for (int i = 0; i < n_open; i++) {
                CLEAN(err_done) struct err one = { 0 };

                if (settle_image(op, rt, &open[i], &one) < 0)
                        log_warn("an image could not be settled; it will be tried again",
                                 LOG_S("image", open[i].id), LOG_S("error", one.msg));
        }
        r = settle_layers(op, rt, err);
        if (r >= 0)
                r = keep_to_limit(op, rt, unused, n, err);
        return r < 0 ? r : remove_loose_layers(op, rt, err);
}
