/* Which places and files are leaked, missing or uncertain, and an operator's decisions on them. */
#include "core/leases/leaks.h"

#include <dirent.h>
#include <errno.h>
#include <unistd.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "base/uuid.h"
#include "core/access/audit.h"
#include "core/leases/lease.h"
#include "core/places/place.h"
#include "core/workspaces/workspace.h"
#include "core/workspaces/worktree.h"
#include "store/executions.h"

/* One thing that exists, as a kind listed it. */
struct found {
        const char *provider, *tag, *description;
        bool says_node; /* that it is ours */
        bool named;     /* a living row names it */
};

struct world {
        struct arena *arena;
        const char *node;
        struct found *things;
        size_t n, room;
};

struct survey {
        struct op *op;
        struct runtime *rt;
        struct world world;
        struct leaks *ret;
};

static void add_leak(struct survey *s, struct leak leak)
{
        struct leaks *l = s->ret;

        l->at = arena_more(s->op->arena, l->at, l->n, &l->room, sizeof(*l->at));
        l->at[l->n++] = leak;
}

static bool is_not_listable(const struct survey *s, const char *name)
{
        for (size_t i = 0; i < s->ret->n_not_listable; i++)
                if (streq(s->ret->not_listable[i], name))
                        return true;
        return false;
}

static void note_not_listable(struct survey *s, const char *name)
{
        struct leaks *l = s->ret;

        if (is_not_listable(s, name))
                return;
        l->not_listable = arena_more(s->op->arena, l->not_listable, l->n_not_listable,
                                     &l->room_not_listable, sizeof(*l->not_listable));
        l->not_listable[l->n_not_listable++] = name;
}

/* What a kind is called in the list of those that cannot list. */
static const char *name_of(const struct kind *kind)
{
        return kind->provider ? kind->provider : kind->driver;
}

static struct found *find_thing(struct world *w, const char *tag)
{
        for (size_t i = 0; i < w->n; i++)
                if (streq(w->things[i].tag, tag))
                        return &w->things[i];
        return NULL;
}

/* Another node accounts for what it made itself. A host that two environments use lists its boxes
 * twice. */
static int note_thing(void *ctx, const struct kind_thing *thing)
{
        struct world *w = ctx;

        if ((thing->node && !streq(thing->node, w->node)) || find_thing(w, thing->owner_tag))
                return 0;
        w->things = arena_more(w->arena, w->things, w->n, &w->room, sizeof(*w->things));
        w->things[w->n++] =
                (struct found){ arena_strdup(w->arena, thing->provider),
                                arena_strdup(w->arena, thing->owner_tag),
                                arena_strdup(w->arena, thing->description), thing->node, false };
        return 0;
}

/* A kind whose provider does not answer must not hide what the others have: it counts as one that
 * cannot list now, and the report names it. */
static int list_world(struct survey *s, struct world *w, struct err *err)
{
        for (const struct kind *const *k = s->rt->kinds; *k; k++) {
                int r;

                if (!(*k)->list || (*k)->list(s->op, s->rt, *k, note_thing, w, err) >= 0)
                        continue;
                r = op_check(s->op, err);
                if (r < 0)
                        return r;
                log_warn("a driver could not list what it runs", LOG_S("driver", name_of(*k)),
                         LOG_S("error", err ? err->msg : ""));
                note_not_listable(s, name_of(*k));
                err_clear(err);
        }
        return 0;
}

static int judge_place(struct survey *s, const struct place *p, struct err *err)
{
        const struct kind *kind = kind_of_place(s->rt, p);
        struct found *thing = find_thing(&s->world, p->id);
        bool can_list = kind && kind_can_find(s->rt, p) && !is_not_listable(s, name_of(kind)) &&
                        (!kind->is_only_rows || !kind->is_only_rows(s->rt));
        struct place now;
        int r = 0;

        if (thing)
                thing->named = true;
        if (p->has_world && !can_list)
                note_not_listable(s, p->provider ? p->provider : p->driver);
        if (place_is_foreign(s->rt, p)) {
                add_leak(s, (struct leak){
                                    .list = LEAKS_UNCERTAIN,
                                    .place = p,
                                    .next = arena_printf(
                                            s->op->arena,
                                            "it is node %s's: leave it alone. When that one is "
                                            "gone for good: `berth leaks close --take-over` ends "
                                            "it, `berth leaks forget` drops the record",
                                            p->owner_node) });
        } else if (streq(p->state, PLACE_UNCERTAIN)) {
                add_leak(s, (struct leak){ .list = LEAKS_UNCERTAIN,
                                           .place = p,
                                           .next = "look at the provider; then `berth leaks close` "
                                                   "or `berth leaks forget`" });
        } else if (streq(p->state, PLACE_CLOSING) && p->attempts > 0) {
                add_leak(s, (struct leak){ .list = LEAKS_DUE,
                                           .place = p,
                                           .next = "it is tried again by itself; `berth leaks "
                                                   "close` tries now" });
        } else if (p->has_world && can_list && !thing && !kind->makes_world_lazily &&
                   (streq(p->state, PLACE_HELD) || streq(p->state, PLACE_READY))) {
                /* The row was read first and the world afterwards. If the row is still the same,
                 * the thing is missing although it should exist. */
                r = place_load(s->op, s->rt, p->id, &now, err);
                if (r >= 0 && now.epoch == p->epoch)
                        add_leak(s, (struct leak){ .list = LEAKS_MISSING,
                                                   .place = p,
                                                   .next = "release its lease; nothing is left to "
                                                           "clean up" });
        }
        return r == ERR_NOT_FOUND ? 0 : r;
}

/* A thing without a living row: its row may have come after our snapshot, or gone together with the
 * thing since. Only a thing that still exists, and that still no row names, is unknown. */
static int check_unknown(struct survey *s, const struct found *thing, struct err *err)
{
        struct world again = { .arena = s->op->arena, .node = s->rt->node.id.s };
        struct place now;
        int r = place_load(s->op, s->rt, thing->tag, &now, err);

        if (r >= 0 && !streq(now.state, PLACE_GONE))
                return 0;
        if (r >= 0 || r == ERR_NOT_FOUND)
                r = list_world(s, &again, err);
        if (r >= 0 && find_thing(&again, thing->tag))
                add_leak(s, (struct leak){
                                    .list = LEAKS_UNKNOWN,
                                    .provider = thing->provider,
                                    .tag = thing->tag,
                                    .description = thing->description,
                                    .next = thing->says_node
                                                    ? "nothing here names it; remove it at the "
                                                      "provider"
                                                    : "nothing here names it, and it does not say "
                                                      "which node had it made: leave it alone "
                                                      "unless no other daemon uses the host" });
        return r;
}

/* -- Directories of rows ------------------------------------------------------------------------
 */

const struct row_files row_files[N_ROW_FILES] = {
        { ROWS_EXECUTIONS, "output", NULL },
        { ROWS_SNAPSHOTS, "snapshots", "a snapshot's files are not there" },
        { ROWS_SALVAGES, "salvage", "saved changes are not there" },
        { ROWS_IMAGE_LAYERS, "images", "a layer of an image is not there" },
};

int row_files_list(const struct row_files *files, const char *data_dir, struct arena *arena,
                   char ***ret, struct err *err)
{
        const char *path = arena_printf(arena, "%s/%s", data_dir, files->dir);
        DIR *dir = opendir(path);
        struct dirent *entry;
        char **names = NULL;
        size_t n = 0, room = 0;
        int code = errno;

        if (!dir && code != ENOENT)
                return err_sys(err, ERR_IO, code, "list %s", path);
        while (dir && (errno = 0, entry = readdir(dir))) {
                if (!uuid_is_valid(entry->d_name))
                        continue;
                names = arena_more(arena, names, n, &room, sizeof(*names));
                names[n++] = arena_strdup(arena, entry->d_name);
        }
        code = dir ? errno : 0;
        if (dir)
                closedir(dir);
        if (code)
                return err_sys(err, ERR_IO, code, "list %s", path);
        names = arena_more(arena, names, n, &room, sizeof(*names));
        names[n] = NULL;
        *ret = names;
        return 0;
}

int row_files_unnamed(struct db *db, const struct row_files *files, const char *data_dir,
                      char *const *names, struct arena *arena,
                      void (*fn)(void *ctx, const char *name), void *ctx, struct err *err)
{
        for (char *const *name = names; *name; name++) {
                bool has_row;
                int r = rows_has(db, files->kind, *name, &has_row, err);

                if (r < 0)
                        return r;
                if (!has_row &&
                    access(arena_printf(arena, "%s/%s/%s", data_dir, files->dir, *name), F_OK) == 0)
                        fn(ctx, *name);
        }
        return 0;
}

struct files_survey {
        struct survey *s;
        const struct row_files *files;
};

static void add_unnamed_files(void *ctx, const char *name)
{
        struct files_survey *f = ctx;

        add_leak(f->s, (struct leak){ .list = LEAKS_UNKNOWN,
                                      .provider = "files",
                                      .tag = name,
                                      .description =
                                              arena_printf(f->s->op->arena, "%s/%s/%s",
                                                           f->s->rt->data_dir, f->files->dir, name),
                                      .next = "no record names this directory; look into it, then "
                                              "remove it" });
}

static int add_failed_removal(void *ctx, const struct output_to_remove *row)
{
        if (row->attempts > 0)
                add_leak(ctx, (struct leak){ .list = LEAKS_DUE,
                                             .provider = "files",
                                             .tag = row->execution_id,
                                             .description = "output of a command that is no "
                                                            "longer recorded",
                                             .attempts = row->attempts,
                                             .note = row->note,
                                             .next = "it is tried again by itself" });
        return 0;
}

static int survey_files(struct survey *s, struct err *err)
{
        CLEAN(store_read_end) struct db *removals = NULL;
        struct op *op = s->op;
        int r = store_read_begin(op, s->rt->store, &removals, err);

        if (r >= 0)
                r = outputs_to_remove(removals, INT64_MAX, op->arena, add_failed_removal, s, err);
        store_read_end(&removals);
        for (size_t i = 0; r >= 0 && s->rt->data_dir && i < N_ROW_FILES; i++) {
                CLEAN(store_read_end) struct db *db = NULL;
                struct files_survey f = { s, &row_files[i] };
                char **names;

                if (row_files_list(f.files, s->rt->data_dir, op->arena, &names, err) < 0) {
                        log_warn("a directory of the data directory cannot be listed",
                                 LOG_S("error", err ? err->msg : ""));
                        err_clear(err);
                        note_not_listable(s, f.files->dir);
                        continue;
                }
                r = store_read_begin(op, s->rt->store, &db, err);
                if (r >= 0)
                        r = row_files_unnamed(db, f.files, s->rt->data_dir, names, op->arena,
                                              add_unnamed_files, &f, err);
        }
        return r;
}

static void add_worktree(void *ctx, bool is_missing, const char *id, const char *path)
{
        add_leak(ctx,
                 (struct leak){ .list = is_missing ? LEAKS_MISSING : LEAKS_UNKNOWN,
                                .provider = "worktree",
                                .tag = id,
                                .description = path,
                                .next = is_missing
                                                ? "the next run makes it again from its branch; to "
                                                  "end it, archive its execution workspace"
                                                : "no record names this worktree; look into it, "
                                                  "then remove it" });
}

int leaks_find(struct op *op, struct runtime *rt, struct leaks *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct survey s = { .op = op,
                            .rt = rt,
                            .world = { .arena = op->arena, .node = rt->node.id.s },
                            .ret = ret };
        struct place *places;
        int n, r = access_admin(op->actor, "Instance admin access required", err);

        *ret = (struct leaks){ 0 };
        if (r >= 0)
                r = store_read_begin(op, rt->store, &db, err);
        n = r < 0 ? r : places_of_environment(db, NULL, op->arena, &places, err);
        store_read_end(&db);
        r = n < 0 ? n : list_world(&s, &s.world, err);
        for (int i = 0; r >= 0 && i < n; i++)
                r = judge_place(&s, &places[i], err);
        for (size_t i = 0; r >= 0 && i < s.world.n; i++)
                if (!s.world.things[i].named)
                        r = check_unknown(&s, &s.world.things[i], err);
        if (r >= 0)
                r = survey_files(&s, err);
        return r < 0 ? r : worktree_survey(op, rt, add_worktree, &s, err);
}

/* Decisions */

struct decision {
        struct op *op;
        struct runtime *rt;
        const char *id, *to, *action;
        bool take_over; /* also when it is another node's */
        struct place place;
};

/* Another node's place. Forgetting it ends its workspaces in the record: they will never be saved
 * from there. */
static int decide_foreign(struct db *db, struct decision *d, struct err *err)
{
        if (streq(d->to, PLACE_GONE))
                return workspace_end_worldless(db, d->rt, d->id, d->op->arena, err);
        if (!d->take_over)
                return err_set(err, ERR_CONFLICT,
                               "The place is node %s's, which this record was copied from and "
                               "which may be using it. Only when that one is gone for good: "
                               "`berth leaks close --take-over`.",
                               d->place.owner_node);
        place_take_over(d->rt, &d->place);
        return 0;
}

static int write_decision(struct db *db, void *arg, struct err *err)
{
        struct decision *d = arg;
        const struct kind *kind;
        int r = places_get(db, d->id, d->op->arena, &d->place, err);

        if (r < 0)
                return r;
        bool ready = streq(d->place.state, PLACE_READY) && streq(d->to, PLACE_CLOSING);
        if (!ready && !streq(d->place.state, PLACE_UNCERTAIN) &&
            !streq(d->place.state, PLACE_CLOSING))
                return err_set(
                        err, ERR_CONFLICT,
                        "The place is %s; only uncertain, closing and idle places can be closed "
                        "or written off. Release its lease instead.",
                        d->place.state);
        if (place_is_foreign(d->rt, &d->place)) {
                r = decide_foreign(db, d, err);
                if (r < 0)
                        return r;
        }
        if (streq(d->place.state, PLACE_UNCERTAIN) && streq(d->to, PLACE_CLOSING)) {
                kind = kind_of_place(d->rt, &d->place);
                if (!d->place.provider_lease_id && kind && kind->closes_by_id &&
                    !kind_can_find(d->rt, &d->place))
                        return err_set(
                                err, ERR_CONFLICT,
                                "The provider never said what it made, if anything, and cannot "
                                "list: look there, remove what you find, then `berth leaks forget`.");
                place_insist(&d->place);
        }
        d->place.next_attempt_at = place_closing_until(d->rt);
        r = place_move(db, d->rt, &d->place, d->to, err);
        if (r >= 0)
                r = audit(db, d->op, d->place.company_id, d->action, "environment_place", d->id,
                          json_pack("{s:s, s:s}", "environmentId", d->place.environment_id,
                                    "driver", d->place.driver),
                          err);
        return r;
}

int leaks_close(struct op *op, struct runtime *rt, const char *place_id, bool take_over,
                struct err *err)
{
        struct decision d = { .op = op,
                              .rt = rt,
                              .id = place_id,
                              .to = PLACE_CLOSING,
                              .action = "environment.place_closed",
                              .take_over = take_over };
        int r = access_admin(op->actor, "Instance admin access required", err);

        FAULT("leaks.close.before");
        if (r >= 0)
                r = store_write(op, rt->store, write_decision, &d, err);
        FAULT("leaks.close.after");
        return r < 0 ? r : lease_finish_closing(op, rt, &d.place, err);
}

int leaks_forget(struct op *op, struct runtime *rt, const char *place_id, struct err *err)
{
        struct decision d = { .op = op,
                              .rt = rt,
                              .id = place_id,
                              .to = PLACE_GONE,
                              .action = "environment.place_forgotten" };
        int r = access_admin(op->actor, "Instance admin access required", err);

        if (r < 0)
                return r;
        FAULT("leaks.forget.before");
        r = store_write(op, rt->store, write_decision, &d, err);
        FAULT("leaks.forget.after");
        return r;
}
