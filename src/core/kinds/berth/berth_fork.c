/* Forks: new places with the files of a living one, or of a snapshot.
 *
 * The files that the source has written, its workspace and its /tmp are taken once, while its
 * commands are frozen, whatever the number of forks: by reflinks where the file system has them,
 * else by a copy. Each fork is a stack of overlays on that, and of the layers that the source
 * itself stood on; nothing is copied for it. The source goes on or ends as it likes.
 *
 * A fork is an ordinary place whose configuration has a member more (FORK_MEMBER), so that the
 * intent says what it is made from. The rest is lease_fork.c's and, for the life of the files,
 * snapshot.h's.
 */
#include <stdio.h>
#include <unistd.h>

#include "core/kinds/berth/berth.h"
#include "core/kinds/berth/snapshot.h"
#include "core/places/lease_record.h"
#include "core/places/place.h"

/* Of the source's configuration: an idle place is not taken, and none is made in advance. */
static void clear_reuse(json_t *config)
{
        json_object_set_new(config, "reuseLease", json_false());
        json_object_set_new(config, "poolSize", json_integer(0));
}

int berth_fork(struct op *op, struct runtime *rt, const struct lease_record *source,
               const char **ret_config, struct err *err)
{
        struct place place;
        struct snapshot base;
        json_t *config = NULL;

        if (!rt->sandbox)
                return err_set(err, ERR_UNPROCESSABLE, "This daemon has no sandboxes.");
        if (geteuid() != 0)
                return err_set(err, ERR_UNPROCESSABLE,
                               "Only a daemon that is root can fork a sandbox: other users cannot "
                               "show the files of one with the owners of another.");
        int r = place_load(op, rt, source->lease.place_id, &place, err);
        if (r >= 0)
                r = kind_place_config(op, &place, &config, err);
        if (r >= 0)
                r = snapshot_make_base(op, rt, source, &base, err);
        if (r < 0)
                return r;
        clear_reuse(config);
        json_object_set_new(config, FORK_MEMBER,
                            json_pack("{s:s, s:s, s:s}", "base", base.id, "leaseId",
                                      source->lease.id, "filesBy", base.fork_by));
        *ret_config = json_to_arena(op->arena, config);
        return 0;
}

int berth_fork_end(struct op *op, struct runtime *rt, const char *config, struct err *err)
{
        const json_t *fork = json_get_object(json_from_text(op->arena, config), FORK_MEMBER);
        const char *base = json_get_string(fork, "base");

        return base ? snapshot_end_base(op, rt, base, err) : 0;
}

int berth_fork_snapshot(struct op *op, struct runtime *rt, const struct environment *env,
                        const char *name, const char **ret_config, struct err *err)
{
        const struct kind *kind = kind_of_environment(rt, env);
        struct snapshot snapshot;
        json_t *config = NULL;
        int r = kind_required(kind, env->driver, err);

        if (r >= 0 && kind != &kind_berth)
                r = kind_unsupported(kind, "snapshots", err);
        if (r >= 0)
                r = snapshot_get(op, rt, env->company_id, name, &snapshot, err);
        if (r >= 0)
                r = kind_config(op, kind, env, &config, err);
        if (r < 0)
                return r;
        clear_reuse(config);
        json_object_set_new(config, "snapshot", json_string(snapshot.name));
        *ret_config = json_to_arena(op->arena, config);
        return 0;
}
