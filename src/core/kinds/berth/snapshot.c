/* Making, reading, deleting, finishing and using snapshots. See snapshot.h for what is committed
 * before what happens. */
#define _GNU_SOURCE
#include "core/kinds/berth/snapshot.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <stdio.h>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/access/access.h"
#include "core/access/audit.h"
#include "core/kinds/berth/berth.h"
#include "core/places/place.h"
#include "core/sandboxes/sandbox_host.h"
#include "core/sandboxes/tool.h"

/* <data>/snapshots/<id><suffix> */
static char *snapshot_path(const struct runtime *rt, const char *id, const char *suffix)
{
        return xasprintf("%s/%s%s", rt->sandbox->snapshots_dir, id, suffix);
}

/* Reading */

/* By name or id, for an actor that manages the company's environments. */
static int snapshot_find(struct db *db, const struct op *op, const char *company_id,
                         const char *name, struct snapshot *ret, struct err *err)
{
        int r = access_manage_environments(db, op->actor, company_id, err);

        if (r < 0)
                return r;
        if (!uuid_is_valid(name))
                return snapshots_by_name(db, company_id, name, op->arena, ret, err);
        r = snapshots_get(db, name, op->arena, ret, err);
        if (r >= 0 && (ret->fork_by || !streq(ret->company_id, company_id)))
                r = err_set(err, ERR_NOT_FOUND, "Snapshot not found");
        return r;
}

int snapshot_list(struct op *op, struct runtime *rt, const char *company_id, int64_t before_us,
                  const char *before_id, int64_t limit, snapshot_fn fn, void *ctx, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = access_manage_environments(db, op->actor, company_id, err);
        return r < 0 ? r
                     : snapshots_list(db, company_id, before_us, before_id, limit, op->arena, fn,
                                      ctx, err);
}

int snapshot_get(struct op *op, struct runtime *rt, const char *company_id, const char *name,
                 struct snapshot *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(op, rt->store, &db, err);

        return r < 0 ? r : snapshot_find(db, op, company_id, name, ret, err);
}

/* Deleting */

struct deletion {
        struct op *op;
        struct runtime *rt;
        const char *company_id, *name;
        struct snapshot *row;
};

static int snapshot_begin_delete(struct db *db, void *arg, struct err *err)
{
        struct deletion *d = arg;
        struct snapshot *row = d->row, to;
        int64_t users;
        int r = snapshot_find(db, d->op, d->company_id, d->name, row, err);

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
        return r < 0 ? r
                     : audit(db, d->op, row->company_id, "environment.snapshot_deleted",
                             "environment_snapshot", row->id, json_pack("{s:s}", "name", row->name),
                             err);
}

static int snapshot_end_delete(struct db *db, void *arg, struct err *err)
{
        const struct snapshot *row = arg;

        return snapshots_delete(db, row->id, row->state, err);
}

/* Remove its files, then the row. May be called again, with the same result. */
static int snapshot_remove(struct op *op, struct runtime *rt, struct snapshot *row, struct err *err)
{
        CLEAN(cleanup_free) char *path = snapshot_path(rt, row->id, "");
        CLEAN(cleanup_free) char *copy = snapshot_path(rt, row->id, ".new");

        FAULT("sandbox.snapshot_remove.before");
        int r = berth_remove_tree(op, copy, err);
        if (r >= 0)
                r = berth_remove_tree(op, path, err);
        if (r >= 0)
                r = file_sync_removal(path, err);
        FAULT("sandbox.snapshot_remove.after");
        return r < 0 ? r : store_write(op, rt->store, snapshot_end_delete, row, err);
}

int snapshot_delete(struct op *op, struct runtime *rt, const char *company_id, const char *name,
                    struct snapshot *ret, struct err *err)
{
        struct deletion d = { op, rt, company_id, name, ret };

        FAULT("sandbox.snapshot_delete.before");
        int r = store_write(op, rt->store, snapshot_begin_delete, &d, err);
        FAULT("sandbox.snapshot_delete.after");
        if (r < 0)
                return r;
        ret->state = SNAPSHOT_DELETING;
        struct op shield = op_shield(op, rt->settings.close_timeout_ms);
        return snapshot_remove(&shield, rt, ret, err);
}

/* Making */

static int dir_has_prefix(const char *path, const char *prefix, bool *ret, struct err *err)
{
        DIR *dir = opendir(path);
        struct dirent *entry;
        int code = errno;

        *ret = false;
        if (!dir)
                return err_sys(err, code == ENOENT ? ERR_CONFLICT : ERR_IO, code,
                               "read the sandbox's directory");
        while (!*ret && (errno = 0, entry = readdir(dir)))
                *ret = str_starts(entry->d_name, prefix);
        code = errno;
        closedir(dir);
        return code ? err_sys(err, ERR_IO, code, "read the sandbox's directory") : 0;
}

struct making {
        struct op *op;
        struct runtime *rt;
        const struct lease_record *record;
        struct place place;
        struct sandbox_row sandbox;
        struct snapshot row;
        bool has_workspace; /* one is shown over the sandbox's own */
};

/* The intent */

static int snapshot_intend(struct db *db, void *arg, struct err *err)
{
        struct making *m = arg;
        int r = places_get(db, m->record->lease.place_id, m->op->arena, &m->place, err);

        if (r >= 0)
                r = sandboxes_get(db, m->place.id, m->op->arena, &m->sandbox, err);
        if (r == ERR_NOT_FOUND || (r >= 0 && !streq(m->place.state, PLACE_HELD)))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Only leases of the built-in sandbox can be kept as a snapshot.");
        if (r < 0)
                return r;
        const json_t *config = json_from_text(m->op->arena, m->place.config);
        const char *storage = json_get_string(config, "storage");
        bool on_disk = storage && streq(storage, "disk");
        if (!on_disk && !m->row.fork_by)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Only a sandbox with storage \"disk\" can be kept as a snapshot.");
        if (!on_disk && (berth_has_base(config) || m->sandbox.image_id))
                return err_set(err, ERR_UNPROCESSABLE,
                               "A sandbox with a root of its own can be forked only with storage "
                               "\"disk\".");
        /* What is not on disk is read as its processes see it, with all that it stands on. */
        m->row.is_whole = m->row.fork_by && (!on_disk || m->has_workspace);
        m->row.parent_id = on_disk ? m->sandbox.snapshot_id : NULL;
        if (m->row.fork_by && !on_disk)
                m->row.fork_by = FORK_BY_COPY;
        m->row.place_id = m->place.id;
        m->row.first_id = m->sandbox.first_id;
        m->row.rootfs = json_get_string(config, "rootfs");
        m->row.image_id = m->sandbox.image_id;
        r = snapshots_insert(db, &m->row, err);
        if (r == ERR_CONFLICT)
                return err_set(err, ERR_CONFLICT, "There is a snapshot \"%s\" already.",
                               m->row.name);
        return r;
}

/* The copy */

static int freeze_source(struct making *m, struct err *err)
{
        CLEAN(cleanup_free) char *box = berth_box_dir(m->rt, m->place.id);

        FAULT("sandbox.snapshot_freeze.before");
        int r = sandbox_freeze(m->op, box, m->place.id, err);
        FAULT("sandbox.snapshot_freeze.after");
        if (r == ERR_NOT_FOUND)
                return err_set(err, ERR_CONFLICT, "The sandbox of the lease has ended.");
        return r;
}

/* Thaw a sandbox that was frozen to be copied, unless its lease is paused or over. */
static void snapshot_thaw_source(struct op *op, struct runtime *rt, const char *place_id)
{
        struct op shield = op_shield(op, rt->settings.close_timeout_ms);
        CLEAN(cleanup_free) char *box = berth_box_dir(rt, place_id);
        CLEAN(store_read_end) struct db *db = NULL;
        struct sandbox_row row;
        struct place place;
        int r = store_read_begin(&shield, rt->store, &db, NULL);

        if (r >= 0)
                r = sandboxes_get(db, place_id, op->arena, &row, NULL);
        if (r >= 0)
                r = places_get(db, place_id, op->arena, &place, NULL);
        store_read_end(&db);
        if (r < 0 || row.is_paused || !streq(place.state, PLACE_HELD))
                return;
        FAULT("sandbox.snapshot_thaw.before");
        (void)sandbox_thaw(&shield, box, place_id, NULL);
        FAULT("sandbox.snapshot_thaw.after");
}

/* The caller is not told where the daemon keeps its files. */
static int sync_tree(const char *path, struct err *err)
{
        CLEAN(cleanup_fd) int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

        if (fd < 0 || syncfs(fd) < 0)
                return err_sys(err, ERR_IO, errno, "sync the snapshot");
        return 0;
}

/* What forks stand on */

static const struct {
        const char *name, *path; /* in the storage, and inside */
} parts[] = {
        { "upper", "/home" },
        { "workspace", BERTH_WORKSPACE },
        { "tmp", "/tmp" },
};

static int copy_part(struct making *m, size_t i, const char *copy, struct err *err)
{
        CLEAN(cleanup_free) char *dir = berth_dir(m->rt, m->place.id);
        CLEAN(cleanup_free) char *box = berth_box_dir(m->rt, m->place.id);
        CLEAN(cleanup_free) char *store = xasprintf("%s/store/%s", dir, parts[i].name);
        CLEAN(cleanup_free) char *to = xasprintf("%s/%s", copy, parts[i].name);
        /* Without a root of its own the written layer is /home. */
        bool from_store = file_life_at(AT_FDCWD, store) == LIFE_YES && (i == 0 || !m->row.is_whole);
        const char *argv[] = { "berth-box", "--copy", from_store ? store : parts[i].path,
                               "--dir",     to,       from_store ? NULL : "--inside",
                               box,         NULL };

        return run_tool(m->op, m->rt->sandbox->box_program, argv, "take the sandbox's files", NULL,
                        err);
}

/* Root of a fork must be able to search the directory. It is not synced: forks do not outlive this
 * machine's running, and a snapshot of one of them syncs all that it stands on with itself. */
static int copy_place(struct making *m, const char *copy, struct err *err)
{
        uid_t owner = (uid_t)m->sandbox.first_id;
        int r = 0;

        FAULT("sandbox.fork_copy.before");
        if (mkdir(copy, 0700) < 0 || chown(copy, owner, owner) < 0 || chmod(copy, 0755) < 0)
                return err_sys(err, ERR_IO, errno, "make a directory for the forks' files");
        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(parts); i++) {
                r = copy_part(m, i, copy, err);
                FAULT("sandbox.fork_copy.part");
        }
        FAULT("sandbox.fork_copy.after");
        return r;
}

/* The source is frozen, but commands can be started in it, and the lease can be resumed. */
static int copy_upper(struct making *m, const char *copy, struct err *err)
{
        CLEAN(cleanup_free) char *dir = berth_dir(m->rt, m->place.id);
        CLEAN(cleanup_free) char *upper = xasprintf("%s/store/upper", dir);
        const char *argv[] = { "berth-box", "--copy", upper, "--dir", copy, NULL };

        FAULT("sandbox.snapshot_copy.before");
        int r = run_tool(m->op, m->rt->sandbox->box_program, argv, "copy what the sandbox wrote",
                         NULL, err);
        FAULT("sandbox.snapshot_copy.after");
        return r < 0 ? r : sync_tree(copy, err);
}

static int put_in_place(struct making *m, const char *copy, struct err *err)
{
        CLEAN(cleanup_free) char *path = snapshot_path(m->rt, m->row.id, "");
        int r = 0;

        FAULT("sandbox.snapshot_rename.before");
        if (rename(copy, path) < 0)
                r = err_sys(err, ERR_IO, errno, "put the snapshot in place");
        if (r >= 0 && !m->row.fork_by)
                r = sync_tree(m->rt->sandbox->snapshots_dir, err);
        FAULT("sandbox.snapshot_rename.after");
        return r;
}

/* How much it is on the disk; a number for people, so 0 will do when it is unknown. */
static int64_t measure_snapshot(struct making *m)
{
        CLEAN(cleanup_free) char *path = snapshot_path(m->rt, m->row.id, "");
        CLEAN(buf_done) struct buf out = BUF_INIT;
        const char *argv[] = { "du", "-s", "--block-size=1", "--", path, NULL };

        if (run_tool(m->op, "/usr/bin/du", argv, "measure the snapshot", &out, NULL) < 0)
                return 0;
        return strtoll(buf_str(&out), NULL, 10);
}

/* The end */

static int snapshot_record_ready(struct db *db, void *arg, struct err *err)
{
        struct making *m = arg;
        struct snapshot to = m->row;

        to.state = SNAPSHOT_READY;
        to.updated_at = clock_now_us();
        int r = snapshots_move(db, m->row.id, SNAPSHOT_MAKING, &to, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "The snapshot was removed meanwhile.");
        if (r >= 0)
                r = audit(db, m->op, m->row.company_id, "environment.snapshot_created",
                          "environment_snapshot", m->row.id,
                          json_pack("{s:s, s:s}", "name", m->row.name, "leaseId", m->row.lease_id),
                          err);
        return r;
}

static int snapshot_copy(struct making *m, struct err *err)
{
        CLEAN(cleanup_free) char *copy = snapshot_path(m->rt, m->row.id, ".new");
        int r = freeze_source(m, err);

        if (r >= 0)
                r = m->row.fork_by ? copy_place(m, copy, err) : copy_upper(m, copy, err);
        snapshot_thaw_source(m->op, m->rt, m->place.id);
        if (r >= 0)
                r = put_in_place(m, copy, err);
        if (r < 0 || m->row.fork_by)
                return r;
        m->row.bytes = measure_snapshot(m);
        FAULT("sandbox.snapshot_record.before");
        r = store_write(m->op, m->rt->store, snapshot_record_ready, m, err);
        FAULT("sandbox.snapshot_record.after");
        return r;
}

static struct making new_making(struct op *op, struct runtime *rt,
                                const struct lease_record *record)
{
        int64_t now = clock_now_us();

        return (struct making){
                .op = op,
                .rt = rt,
                .record = record,
                .row = { .id = arena_strdup(op->arena, uuid_new().s),
                         .company_id = record->lease.company_id,
                         .state = SNAPSHOT_MAKING,
                         .lease_id = record->lease.id,
                         .owner_instance = rt->node.instance.s,
                         .created_at = now,
                         .updated_at = now },
        };
}

static int make_row(struct making *m, struct err *err)
{
        FAULT("sandbox.snapshot_intend.before");
        int r = store_write(m->op, m->rt->store, snapshot_intend, m, err);
        FAULT("sandbox.snapshot_intend.after");
        if (r < 0)
                return r;
        r = snapshot_copy(m, err);
        if (r < 0) {
                struct op shield = op_shield(m->op, m->rt->settings.close_timeout_ms);

                (void)snapshot_remove(&shield, m->rt, &m->row, NULL);
        }
        return r;
}

int snapshot_make(struct op *op, struct runtime *rt, const struct lease_record *record,
                  const char *name, struct snapshot *ret, struct err *err)
{
        struct making m = new_making(op, rt, record);

        m.row.name = name;
        if (!sandbox_name_is_valid(name))
                return err_set(err, ERR_UNPROCESSABLE,
                               "A snapshot's name has 1 to 64 letters, digits, dots, hyphens or "
                               "underscores and begins with a letter or digit.");
        int r = make_row(&m, err);
        if (r < 0)
                return r;
        m.row.state = SNAPSHOT_READY;
        *ret = m.row;
        return 0;
}

/* Whether the file system shares the blocks of a copy with its original. */
static bool has_reflinks(const char *dir)
{
        CLEAN(cleanup_fd) int from = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
        CLEAN(cleanup_fd) int to = open(dir, O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);

        return from >= 0 && to >= 0 && ioctl(to, FICLONE, from) == 0;
}

int snapshot_make_base(struct op *op, struct runtime *rt, const struct lease_record *record,
                       struct snapshot *ret, struct err *err)
{
        struct making m = new_making(op, rt, record);
        CLEAN(cleanup_free) char *dir = berth_dir(rt, record->lease.place_id);

        m.row.name = m.row.id;
        m.row.fork_by = has_reflinks(rt->sandbox->snapshots_dir) ? FORK_BY_REFLINK : FORK_BY_COPY;
        int r = dir_has_prefix(dir, BERTH_WORKSPACE_PREFIX, &m.has_workspace, err);
        if (r >= 0)
                r = make_row(&m, err);
        if (r >= 0)
                *ret = m.row;
        return r;
}

static int base_record_ready(struct db *db, void *arg, struct err *err)
{
        const struct snapshot *row = arg;
        struct snapshot to = *row;

        to.state = SNAPSHOT_READY;
        to.updated_at = clock_now_us();
        return snapshots_move(db, row->id, SNAPSHOT_MAKING, &to, err);
}

struct base_end {
        struct runtime *rt;
        struct snapshot *row;
        bool ends;
};

static int base_begin_delete(struct db *db, void *arg, struct err *err)
{
        struct base_end *e = arg;
        struct snapshot to = *e->row;
        int64_t users;
        int r = snapshots_count_users(db, e->row->id, &users, err);

        e->ends = false;
        if (r < 0 || users > 0)
                return r;
        to.state = SNAPSHOT_DELETING;
        to.owner_instance = e->rt->node.instance.s;
        to.updated_at = clock_now_us();
        r = snapshots_move(db, e->row->id, SNAPSHOT_READY, &to, err);
        e->ends = r > 0;
        return r;
}

static int base_drop_unused(struct op *op, struct runtime *rt, struct snapshot *row,
                            struct err *err)
{
        struct base_end e = { rt, row, false };

        FAULT("sandbox.fork_drop.before");
        int r = store_write(op, rt->store, base_begin_delete, &e, err);
        FAULT("sandbox.fork_drop.after");
        if (r < 0 || !e.ends)
                return r;
        row->state = SNAPSHOT_DELETING;
        return snapshot_remove(op, rt, row, err);
}

int snapshot_end_base(struct op *op, struct runtime *rt, const char *id, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct snapshot row;
        int r = store_read_begin(op, rt->store, &db, err);

        if (r >= 0)
                r = snapshots_get(db, id, op->arena, &row, err);
        store_read_end(&db);
        FAULT("sandbox.fork_record.before");
        if (r >= 0)
                r = store_write(op, rt->store, base_record_ready, &row, err);
        FAULT("sandbox.fork_record.after");
        return r < 0 ? r : base_drop_unused(op, rt, &row, err);
}

/* Finishing */

/* A snapshot that this instance makes is left alone; one that it failed to delete is tried again.
 */
static bool is_abandoned(const struct runtime *rt, const struct snapshot *row)
{
        return !streq(row->owner_instance, rt->node.instance.s) ||
               (streq(row->state, SNAPSHOT_DELETING) &&
                row->updated_at + rt->settings.close_timeout_ms * US_PER_MS < clock_now_us());
}

/* What a fork stands on is whole: forks come after it. */
static int sweep_one(struct op *op, struct runtime *rt, struct snapshot *row, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int64_t users = 0;
        int r = 0;

        if (row->fork_by && streq(row->state, SNAPSHOT_MAKING)) {
                r = store_read_begin(op, rt->store, &db, err);
                if (r >= 0)
                        r = snapshots_count_users(db, row->id, &users, err);
                store_read_end(&db);
        }
        if (r < 0)
                return r;
        return users > 0 ? store_write(op, rt->store, base_record_ready, row, err)
                         : snapshot_remove(op, rt, row, err);
}

/* What the last fork has left. */
static int sweep_unused(struct op *op, struct runtime *rt, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct snapshot *rows;
        int n = store_read_begin(op, rt->store, &db, err);

        if (n >= 0)
                n = snapshots_unused(db, op->arena, &rows, err);
        store_read_end(&db);
        for (int i = 0; i < n; i++) {
                CLEAN(err_done) struct err one = { 0 };

                if (base_drop_unused(op, rt, &rows[i], &one) < 0)
                        log_warn("the files of forks could not be removed; it will be tried again",
                                 LOG_S("snapshot", rows[i].id), LOG_S("error", one.msg));
        }
        return MIN(n, 0);
}

int snapshot_sweep(struct op *op, struct runtime *rt, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct snapshot *rows;
        int r;

        if (!rt->sandbox)
                return 0;
        int n = store_read_begin(op, rt->store, &db, err);
        if (n >= 0)
                n = snapshots_open(db, op->arena, &rows, err);
        store_read_end(&db);
        for (int i = 0; i < n; i++) {
                CLEAN(err_done) struct err one = { 0 };

                if (!is_abandoned(rt, &rows[i]))
                        continue;
                if (streq(rows[i].state, SNAPSHOT_MAKING))
                        snapshot_thaw_source(op, rt, rows[i].place_id);
                r = sweep_one(op, rt, &rows[i], &one);
                if (r < 0)
                        log_warn("a snapshot could not be removed; it will be tried again",
                                 LOG_S("snapshot", rows[i].id), LOG_S("error", one.msg));
        }
        return n < 0 ? n : sweep_unused(op, rt, err);
}

/* Using */

static bool same_text(const char *a, const char *b)
{
        return a == b || (a && b && streq(a, b));
}

int snapshot_claim(struct db *db, const struct place *place, struct arena *arena,
                   const char **ret_id, const char **ret_image_id, struct err *err)
{
        const json_t *config = json_from_text(arena, place->config);
        const char *name = json_get_string(config, "snapshot");
        const char *base = json_get_string(json_get_object(config, FORK_MEMBER), "base");
        struct snapshot row;

        *ret_id = *ret_image_id = NULL;
        if (base) {
                int r = snapshots_get(db, base, arena, &row, err);

                if (r == ERR_NOT_FOUND || (r >= 0 && streq(row.state, SNAPSHOT_DELETING)))
                        return err_set(err, ERR_CONFLICT,
                                       "The files that the fork would have stood on are gone.");
                if (r >= 0) {
                        *ret_id = row.id;
                        *ret_image_id = row.image_id;
                }
                return r;
        }
        if (!name)
                return 0;
        int r = snapshots_by_name(db, place->company_id, name, arena, &row, err);
        if (r == ERR_NOT_FOUND || (r >= 0 && !streq(row.state, SNAPSHOT_READY)))
                return err_set(err, ERR_UNPROCESSABLE,
                               "There is no snapshot \"%s\" to start from in this company.", name);
        if (r >= 0 && !same_text(row.rootfs, json_get_string(config, "rootfs")))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Snapshot \"%s\" was made on %s, and can only be used there.", name,
                               row.rootfs ? row.rootfs : "the host's own programs");
        if (r >= 0 && json_get_string(config, "image") && !row.image_id)
                return err_set(err, ERR_UNPROCESSABLE, "Snapshot \"%s\" was not made on an image.",
                               name);
        if (r >= 0) {
                *ret_id = row.id;
                *ret_image_id = row.image_id;
        }
        return r;
}

int snapshot_layers(struct op *op, struct runtime *rt, const char *id, struct sandbox_spec *spec,
                    struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        bool stands_on_all = true; /* workspace and /tmp, too */
        int r = id ? store_read_begin(op, rt->store, &db, err) : 0;

        for (spec->n_layers = 0; r >= 0 && id; spec->n_layers++) {
                struct sandbox_layer *layer = &spec->layers[spec->n_layers];
                struct snapshot row;

                if (spec->n_layers == SANDBOX_MAX_LAYERS)
                        return err_set(err, ERR_UNPROCESSABLE,
                                       "A snapshot stands on at most %d others.",
                                       SANDBOX_MAX_LAYERS - 1);
                r = snapshots_get(db, id, op->arena, &row, err);
                if (r < 0)
                        break;
                *layer = (struct sandbox_layer){
                        .path = arena_printf(op->arena, "%s/%s", rt->sandbox->snapshots_dir, id),
                        .first_id = (uint32_t)row.first_id,
                        .form = !row.fork_by    ? SANDBOX_LAYER_FILES
                                : stands_on_all ? SANDBOX_LAYER_PLACE
                                                : SANDBOX_LAYER_UPPER,
                };
                stands_on_all = stands_on_all && row.fork_by && !row.is_whole;
                id = row.parent_id;
        }
        return r;
}
