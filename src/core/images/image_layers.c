/* Which layers an image shares with others, and making those that are missing: claimed in one
 * transaction, fetched side by side, unpacked beside their place, synced, renamed. */
#define _GNU_SOURCE
#include "core/images/image_layers.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/path.h"
#include "core/sandboxes/sandbox_host.h"

#define WAIT_MS 200 /* between two looks at a layer that another operation makes */

struct making {
        struct op *op;
        struct runtime *rt;
        const struct image_row *image;
        struct layer_work *at;
        struct layer_work *claimed; /* as the transaction leaves them; it may be repeated */
        size_t n;
        const struct layer_bringer *bringer;
};

static void say(struct making *m, struct layer_work *l, const char *what)
{
        pthread_mutex_lock(&m->rt->sandbox->images_lock);
        l->say = what;
        pthread_mutex_unlock(&m->rt->sandbox->images_lock);
}

static bool is_ready(const struct layer_work *l)
{
        return l->row.id && streq(l->row.state, LAYER_READY);
}

/* Claiming */

static int claim_new(struct db *db, struct making *m, struct layer_work *l, struct err *err)
{
        int64_t now = clock_now_us();

        l->row = (struct image_layer_row){
                .id = arena_strdup(m->op->arena, uuid_new().s),
                .diff_id = l->diff_id,
                .blob = l->what->digest,
                .state = LAYER_MAKING,
                .owner_instance = m->rt->node.instance.s,
                .created_at = now,
                .updated_at = now,
        };
        l->is_ours = true;
        return image_layers_insert(db, &l->row, err);
}

/* One that was cut, or that a daemon which is gone began. */
static int claim_cut(struct db *db, struct making *m, struct layer_work *l, struct err *err)
{
        struct image_layer_row to = l->row;

        to.state = LAYER_MAKING;
        to.blob = l->what->digest;
        to.owner_instance = m->rt->node.instance.s;
        to.updated_at = clock_now_us();
        int r = image_layers_move(db, &l->row, &to, err);
        if (r > 0) {
                l->row = to;
                l->is_ours = true;
        }
        return r;
}

static int claim_layer(struct db *db, struct making *m, size_t i, struct err *err)
{
        struct layer_work *l = &m->claimed[i];
        int r;

        if (is_ready(l))
                return 0;
        r = l->row.id ? image_layers_get(db, l->row.id, m->op->arena, &l->row, err)
                      : image_layers_find(db, m->image, l->diff_id, m->op->arena, &l->row, err);
        if (r < 0)
                return r;
        if (!l->row.id)
                r = claim_new(db, m, l, err);
        else if (streq(l->row.state, LAYER_CUT) ||
                 (streq(l->row.state, LAYER_MAKING) && !l->is_ours &&
                  !streq(l->row.owner_instance, m->rt->node.instance.s)))
                r = claim_cut(db, m, l, err);
        return r < 0 ? r : image_parts_set(db, m->image->id, (int64_t)i, l->row.id, err);
}

static int claim_layers(struct db *db, void *arg, struct err *err)
{
        struct making *m = arg;
        int r = 0;

        memcpy(m->claimed, m->at, m->n * sizeof(*m->at));
        for (size_t i = 0; r >= 0 && i < m->n; i++)
                r = claim_layer(db, m, i, err);
        return MIN(r, 0);
}

/* Making */

/* images/<id>; made when it is missing. */
static int open_layer(struct making *m, const struct layer_work *l, int *ret, struct err *err)
{
        CLEAN(cleanup_free) char *path = xasprintf("%s/%s", m->rt->sandbox->images_dir, l->row.id);
        int r = path_make_durable_dirs(path, 0700, err);

        if (r < 0)
                return r;
        *ret = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        return *ret < 0 ? err_sys(err, ERR_IO, errno, "open a layer's directory") : 0;
}

static int unpack_into(struct making *m, const struct layer_work *l, int dir, int blob,
                       struct layer_result *ret, struct err *err)
{
        bool root = geteuid() == 0;
        struct stat st;
        CLEAN(cleanup_fd) int to = -1;
        int r = layer_remove(m->op, dir, "new", err);

        if (r < 0)
                return r;
        if (mkdirat(dir, "new", 0755) < 0 ||
            (to = openat(dir, "new", O_RDONLY | O_DIRECTORY | O_CLOEXEC)) < 0 ||
            fchmod(to, 0755) < 0 || fstat(blob, &st) < 0)
                return err_sys(err, ERR_IO, errno, "make a layer's directory");
        struct layer_spec spec = {
                .from = { .fd = blob, .size = (uint64_t)st.st_size },
                .media = l->what->media,
                .diff_id = l->diff_id,
                .dir_fd = to,
                .form = LAYER_OVERLAY,
                .owners = root ? LAYER_OWNERS_KEPT : LAYER_OWNERS_CALLER,
                /* The directory above keeps everybody else out. */
                .keep_setid = root,
        };
        FAULT("image.unpack.before");
        r = layer_unpack(m->op, &spec, ret, err);
        FAULT("image.unpack.after");
        if (r >= 0 && syncfs(to) < 0)
                r = err_sys(err, ERR_IO, errno, "sync a layer");
        return r;
}

static int layer_record_ready(struct db *db, void *arg, struct err *err)
{
        const struct layer_work *l = arg;
        struct image_layer_row to = l->row;

        to.state = LAYER_READY;
        to.updated_at = clock_now_us();
        int r = image_layers_move(db, &l->row, &to, err);
        return r == 0 ? err_set(err, ERR_CONFLICT, "A layer was taken over meanwhile.") : r;
}

static int layer_record_cut(struct db *db, void *arg, struct err *err)
{
        struct layer_work *l = arg;
        struct image_layer_row to = l->row;

        to.state = LAYER_CUT;
        to.updated_at = clock_now_us();
        return image_layers_move(db, &l->row, &to, err);
}

static int finish_layer(struct making *m, struct layer_work *l, int dir, int blob, struct err *err)
{
        struct layer_result done = { 0 };
        int r;

        say(m, l, "unpacking");
        r = unpack_into(m, l, dir, blob, &done, err);
        if (r < 0)
                return r;
        FAULT("image.rename.before");
        if (renameat(dir, "new", dir, "root") < 0 || fsync(dir) < 0)
                return err_sys(err, ERR_IO, errno, "put a layer in place");
        FAULT("image.rename.after");
        l->row.bytes = (int64_t)done.bytes;
        r = store_write(m->op, m->rt->store, layer_record_ready, l, err);
        FAULT("image.layer.after");
        if (r < 0)
                return r;
        (void)unlinkat(dir, "blob", 0);
        l->row.state = LAYER_READY;
        l->is_ours = false;
        say(m, l, "ready");
        return 0;
}

/* One that is there although its row says `making`: the daemon died between the two. */
static bool was_put_in_place(int dir)
{
        return file_life_at(dir, "root") == LIFE_YES;
}

struct open_layers {
        struct layer_work *work[IMAGE_MAX_LAYERS];
        int dirs[IMAGE_MAX_LAYERS], blobs[IMAGE_MAX_LAYERS];
        size_t n;
};

static void open_layers_done(struct open_layers *o)
{
        for (size_t i = 0; i < o->n; i++) {
                cleanup_fd(&o->dirs[i]);
                cleanup_fd(&o->blobs[i]);
        }
}

/* What a half-made layer has in `root` is complete, but how large it is went with the daemon. */
static int open_work(struct making *m, struct open_layers *o, struct layer_work *l, struct err *err)
{
        size_t i = o->n;

        o->work[i] = l;
        o->dirs[i] = o->blobs[i] = -1;
        o->n++;
        int r = open_layer(m, l, &o->dirs[i], err);
        if (r >= 0 && was_put_in_place(o->dirs[i]))
                r = layer_remove(m->op, o->dirs[i], "root", err);
        if (r < 0)
                return r;
        o->blobs[i] = openat(o->dirs[i], "blob", O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
        return o->blobs[i] < 0 ? err_sys(err, ERR_IO, errno, "make a layer's file") : 0;
}

static int make_ours(struct making *m, struct err *err)
{
        CLEAN(open_layers_done) struct open_layers o = { .n = 0 };
        int r = 0;

        for (size_t i = 0; r >= 0 && i < m->n; i++)
                if (m->at[i].is_ours)
                        r = open_work(m, &o, &m->at[i], err);
        FAULT("image.fetch.before");
        if (r >= 0 && o.n > 0)
                r = m->bringer->bring(m->bringer->ctx, m->op, o.work, o.blobs, o.n, err);
        FAULT("image.fetch.after");
        for (size_t i = 0; r >= 0 && i < o.n; i++) {
                r = finish_layer(m, o.work[i], o.dirs[i], o.blobs[i], err);
                /* What cannot be unpacked is not worth going on with. */
                if (r < 0 && r != ERR_CANCELLED && r != ERR_TIMEOUT && r != ERR_IO)
                        (void)!ftruncate(o.blobs[i], 0);
        }
        return r;
}

static bool all_ready(const struct making *m)
{
        for (size_t i = 0; i < m->n; i++)
                if (!is_ready(&m->at[i]))
                        return false;
        return true;
}

/* After a failure: what came of them is kept. */
static void give_up_ours(struct making *m)
{
        struct op shield = op_shield(m->op, m->rt->settings.close_timeout_ms);

        for (size_t i = 0; i < m->n; i++)
                if (m->at[i].is_ours)
                        (void)store_write(&shield, m->rt->store, layer_record_cut, &m->at[i], NULL);
}

int image_layers_make(struct op *op, struct runtime *rt, const struct image_row *image,
                      struct layer_work *at, size_t n, const struct layer_bringer *bringer,
                      struct err *err)
{
        struct making m = {
                .op = op, .rt = rt, .image = image, .at = at, .n = n, .bringer = bringer
        };
        int r = 0;

        m.claimed = arena_alloc(op->arena, n * sizeof(*m.claimed));

        while (r >= 0) {
                FAULT("image.claim.before");
                r = store_write(op, rt->store, claim_layers, &m, err);
                FAULT("image.claim.after");
                for (size_t i = 0; r >= 0 && i < n; i++) {
                        at[i].row = m.claimed[i].row;
                        at[i].is_ours = m.claimed[i].is_ours;
                }
                if (r >= 0)
                        r = make_ours(&m, err);
                for (size_t i = 0; r >= 0 && i < n; i++)
                        if (is_ready(&at[i]))
                                say(&m, &at[i], "ready");
                if (r >= 0 && all_ready(&m))
                        return 0;
                /* Others make the rest. */
                if (r >= 0)
                        r = op_wait_fd(op, -1, 0, WAIT_MS, err);
        }
        give_up_ours(&m);
        return r;
}
