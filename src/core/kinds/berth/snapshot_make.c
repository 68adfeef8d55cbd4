/* Making a snapshot. See snapshot.h for what is committed before what happens. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/fd.h"
#include "base/log.h"
#include "core/access/audit.h"
#include "core/kinds/berth/berth.h"
#include "core/kinds/berth/snapshot_internal.h"
#include "core/places/place.h"
#include "core/sandboxes/sandbox_host.h"
#include "core/sandboxes/tool.h"

struct making {
        struct op *op;
        struct runtime *rt;
        const struct lease_record *record;
        struct place place;
        struct sandbox_row sandbox;
        struct snapshot row;
};

/* The intent */

static int check_storage(const struct making *m, struct err *err)
{
        json_t *config = NULL;
        const char *storage;
        bool on_disk;

        (void)json_parse(m->place.config, strlen(m->place.config), &config, NULL);
        storage = json_get_string(config, "storage");
        on_disk = storage && streq(storage, "disk");
        json_decref(config);
        if (!on_disk)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Only a sandbox with storage \"disk\" can be kept as a snapshot.");
        return 0;
}

static int intend(struct db *db, void *arg, struct err *err)
{
        struct making *m = arg;
        json_t *config = NULL;
        int r = places_get(db, m->record->lease.place_id, m->op->arena, &m->place, err);

        if (r >= 0)
                r = sandboxes_get(db, m->place.id, m->op->arena, &m->sandbox, err);
        if (r == ERR_NOT_FOUND || (r >= 0 && !streq(m->place.state, PLACE_HELD)))
                return err_set(err, ERR_UNPROCESSABLE,
                               "Only leases of the built-in sandbox can be kept as a snapshot.");
        if (r >= 0)
                r = check_storage(m, err);
        if (r < 0)
                return r;
        m->row.parent_id = m->sandbox.snapshot_id;
        m->row.place_id = m->place.id;
        m->row.first_id = m->sandbox.first_id;
        (void)json_parse(m->place.config, strlen(m->place.config), &config, NULL);
        m->row.rootfs = arena_strdup(m->op->arena, json_get_string(config, "rootfs"));
        json_decref(config);
        r = snapshots_insert(db, &m->row, err);
        if (r == ERR_CONFLICT)
                return err_set(err, ERR_CONFLICT, "There is a snapshot \"%s\" already.",
                               m->row.name);
        return r;
}

/* The copy */

static int freeze(struct making *m, struct err *err)
{
        CLEAN(cleanup_free) char *box = berth_box_dir(m->rt, m->place.id);
        int r;

        FAULT("sandbox.snapshot_freeze.before");
        r = sandbox_freeze(m->op, box, m->place.id, err);
        FAULT("sandbox.snapshot_freeze.after");
        if (r == ERR_NOT_FOUND)
                return err_set(err, ERR_CONFLICT, "The sandbox of the lease has ended.");
        return r;
}

struct paused_request {
        struct op *op;
        const char *place_id;
        struct sandbox_row row;
        struct place place;
};

static int read_paused(struct db *db, void *arg, struct err *err)
{
        struct paused_request *q = arg;
        int r = sandboxes_get(db, q->place_id, q->op->arena, &q->row, err);

        return r < 0 ? r : places_get(db, q->place_id, q->op->arena, &q->place, err);
}

void snapshot_thaw_source(struct op *op, struct runtime *rt, const char *place_id)
{
        struct op shield = op_shield(op, rt->settings.close_timeout_ms);
        struct paused_request q = { .op = op, .place_id = place_id };
        CLEAN(cleanup_free) char *box = berth_box_dir(rt, place_id);

        if (store_read(&shield, rt->store, read_paused, &q, NULL) < 0 || q.row.is_paused ||
            !streq(q.place.state, PLACE_HELD))
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

/* The source is frozen, but commands can be started in it, and the lease can be resumed. */
static int copy_upper(struct making *m, const char *copy, struct err *err)
{
        CLEAN(cleanup_free) char *dir = berth_dir(m->rt, m->place.id);
        CLEAN(cleanup_free) char *upper = xasprintf("%s/store/upper", dir);
        const char *argv[] = { "berth-box", "--copy", upper, "--dir", copy, NULL };
        int r;

        FAULT("sandbox.snapshot_copy.before");
        r = run_tool(m->op, m->rt->sandbox->box_program, argv, "copy what the sandbox wrote", NULL,
                     err);
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
        if (r >= 0)
                r = sync_tree(m->rt->sandbox->snapshots_dir, err);
        FAULT("sandbox.snapshot_rename.after");
        return r;
}

/* How much it is on the disk; a number for people, so 0 will do when it is unknown. */
static int64_t measure(struct making *m)
{
        CLEAN(cleanup_free) char *path = snapshot_path(m->rt, m->row.id, "");
        CLEAN(buf_done) struct buf out = BUF_INIT;
        const char *argv[] = { "du", "-s", "--block-size=1", "--", path, NULL };

        if (run_tool(m->op, "/usr/bin/du", argv, "measure the snapshot", &out, NULL) < 0)
                return 0;
        return strtoll(buf_str(&out), NULL, 10);
}

/* The end */

static int record_ready(struct db *db, void *arg, struct err *err)
{
        struct making *m = arg;
        struct snapshot to = m->row;
        int r;

        to.state = SNAPSHOT_READY;
        to.updated_at = clock_now_us();
        r = snapshots_move(db, m->row.id, SNAPSHOT_MAKING, &to, err);
        if (r == 0)
                return err_set(err, ERR_CONFLICT, "The snapshot was removed meanwhile.");
        if (r >= 0)
                r = audit(db, m->op, m->row.company_id, "environment.snapshot_created",
                          "environment_snapshot", m->row.id,
                          json_pack("{s:s, s:s}", "name", m->row.name, "leaseId", m->row.lease_id),
                          err);
        return r;
}

static int make(struct making *m, struct err *err)
{
        CLEAN(cleanup_free) char *copy = snapshot_path(m->rt, m->row.id, ".new");
        int r = freeze(m, err);

        if (r >= 0)
                r = copy_upper(m, copy, err);
        snapshot_thaw_source(m->op, m->rt, m->place.id);
        if (r >= 0)
                r = put_in_place(m, copy, err);
        if (r < 0)
                return r;
        m->row.bytes = measure(m);
        FAULT("sandbox.snapshot_record.before");
        r = store_write(m->op, m->rt->store, record_ready, m, err);
        FAULT("sandbox.snapshot_record.after");
        return r;
}

int snapshot_make(struct op *op, struct runtime *rt, const struct lease_record *record,
                  const char *name, struct snapshot *ret, struct err *err)
{
        int64_t now = clock_now_us();
        struct making m = {
                .op = op,
                .rt = rt,
                .record = record,
                .row = { .id = arena_strdup(op->arena, uuid_new().s),
                         .company_id = record->lease.company_id,
                         .name = name,
                         .state = SNAPSHOT_MAKING,
                         .lease_id = record->lease.id,
                         .owner_instance = rt->node.instance.s,
                         .created_at = now,
                         .updated_at = now },
        };
        int r;

        if (!sandbox_name_is_valid(name))
                return err_set(err, ERR_UNPROCESSABLE,
                               "A snapshot's name has 1 to 64 letters, digits, dots, hyphens or "
                               "underscores and begins with a letter or digit.");
        FAULT("sandbox.snapshot_intend.before");
        r = store_write(op, rt->store, intend, &m, err);
        FAULT("sandbox.snapshot_intend.after");
        if (r < 0)
                return r;
        r = make(&m, err);
        if (r < 0) {
                struct op shield = op_shield(op, rt->settings.close_timeout_ms);

                (void)snapshot_remove(&shield, rt, &m.row, NULL);
                return r;
        }
        m.row.state = SNAPSHOT_READY;
        *ret = m.row;
        return 0;
}
