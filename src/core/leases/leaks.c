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
        size_t n;
};

struct survey {
        struct op *op;
        struct runtime *rt;
        struct world world;
        struct place *places;
        size_t n_places;
        json_t *unknown, *missing, *uncertain, *due, *not_listable;
};

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
        w->things = xrealloc(w->things, (w->n + 1) * sizeof(*w->things));
        w->things[w->n++] =
                (struct found){ arena_strdup(w->arena, thing->provider),
                                arena_strdup(w->arena, thing->owner_tag),
                                arena_strdup(w->arena, thing->description), thing->node, false };
        return 0;
}

static bool is_named(const json_t *names, const char *name)
{
        json_t *known;
        size_t i;

        json_array_foreach(names, i, known) if (streq(json_string_value(known), name)) return true;
        return false;
}

/* A kind whose provider does not answer must not hide what the others have: it counts as one that
 * cannot list now, and the report names it. */
static void note_silent_kind(struct survey *s, const struct kind *kind, const char *why)
{
        log_warn("a driver could not list what it runs", LOG_S("driver", kind->driver),
                 LOG_S("error", why));
        if (!is_named(s->not_listable, kind->driver))
                json_array_append_new(s->not_listable, json_string(kind->driver));
}

static int list_world(struct survey *s, struct world *w, struct err *err)
{
        for (const struct kind *const *k = s->rt->kinds; *k; k++) {
                int r;

                if (!(*k)->list || (*k)->list(s->op, s->rt, note_thing, w, err) >= 0)
                        continue;
                r = op_check(s->op, err);
                if (r < 0)
                        return r;
                note_silent_kind(s, *k, err ? err->msg : "");
                err_clear(err);
        }
        return 0;
}

static int add_place(void *ctx, const struct place *place)
{
        struct survey *s = ctx;

        s->places = xrealloc(s->places, (s->n_places + 1) * sizeof(*s->places));
        s->places[s->n_places++] = *place;
        return 0;
}

static int read_places(struct db *db, void *arg, struct err *err)
{
        struct survey *s = arg;

        return places_living(db, NULL, s->op->arena, add_place, s, err);
}

static json_t *describe_place(const struct place *p, const char *next)
{
        char since[ISO_TIME_LEN + 1];

        clock_iso(p->updated_at, since);
        return json_pack("{s:s, s:s, s:s, s:o, s:o, s:s, s:s, s:I, s:o, s:s}", "placeId", p->id,
                         "environmentId", p->environment_id, "driver", p->driver, "provider",
                         json_string_or_null(p->provider), "providerLeaseId",
                         json_string_or_null(p->provider_lease_id), "state", p->state, "since",
                         since, "attempts", (json_int_t)p->attempts, "note",
                         json_string_or_null(p->note), "nextStep", next);
}

/* Whether the world has to have something for the place. */
static bool must_exist(const struct survey *s, const struct place *p)
{
        const struct kind *kind = kind_of_place(s->rt, p);

        return p->has_world && kind && !kind->makes_world_lazily &&
               (streq(p->state, PLACE_HELD) || streq(p->state, PLACE_READY));
}

static bool can_list(const struct survey *s, const struct place *p)
{
        const struct kind *kind = kind_of_place(s->rt, p);

        if (!kind_can_find(s->rt, p) || is_named(s->not_listable, kind->driver))
                return false;
        return !kind->is_only_rows || !kind->is_only_rows(s->rt);
}

static void note_not_listable(struct survey *s, const struct place *p)
{
        const char *name = p->provider ? p->provider : p->driver;

        if (!is_named(s->not_listable, name))
                json_array_append_new(s->not_listable, json_string(name));
}

struct recheck {
        struct survey *s;
        const struct place *place;
        bool same;
};

static int read_again(struct db *db, void *arg, struct err *err)
{
        struct recheck *q = arg;
        struct place now;
        int r = places_get(db, q->place->id, q->s->op->arena, &now, err);

        q->same = r >= 0 && now.epoch == q->place->epoch;
        return r == ERR_NOT_FOUND ? 0 : r;
}

/* The row was read first and the world afterwards. If the row is still the same, the thing is
 * missing although it should exist. */
static int check_missing(struct survey *s, const struct place *p, struct err *err)
{
        struct recheck q = { s, p, false };
        int r = store_read(s->op, s->rt->store, read_again, &q, err);

        if (r >= 0 && q.same)
                json_array_append_new(
                        s->missing, describe_place(p, "release its lease; nothing is left to clean "
                                                      "up"));
        return r;
}

static int judge_place(struct survey *s, const struct place *p, struct err *err)
{
        struct found *thing = find_thing(&s->world, p->id);

        if (thing)
                thing->named = true;
        if (p->has_world && !can_list(s, p))
                note_not_listable(s, p);
        if (place_is_foreign(s->rt, p))
                json_array_append_new(
                        s->uncertain,
                        describe_place(p, arena_printf(s->op->arena,
                                                       "it is node %s's: leave it alone. When that "
                                                       "one is gone for good: `berth leaks close "
                                                       "--take-over` ends it, `berth leaks forget` "
                                                       "drops the record",
                                                       p->owner_node)));
        else if (streq(p->state, PLACE_UNCERTAIN))
                json_array_append_new(s->uncertain,
                                      describe_place(p, "look at the provider; then `berth leaks "
                                                        "close` or `berth leaks forget`"));
        else if (streq(p->state, PLACE_CLOSING) && p->attempts > 0)
                json_array_append_new(s->due,
                                      describe_place(p, "it is tried again by itself; `berth leaks "
                                                        "close` tries now"));
        else if (must_exist(s, p) && !thing && can_list(s, p))
                return check_missing(s, p, err);
        return 0;
}

struct tag_check {
        struct survey *s;
        const char *tag;
        bool living;
};

static int read_tag(struct db *db, void *arg, struct err *err)
{
        struct tag_check *q = arg;
        struct place p;
        int r = places_get(db, q->tag, q->s->op->arena, &p, err);

        q->living = r >= 0 && !streq(p.state, PLACE_GONE);
        return r == ERR_NOT_FOUND ? 0 : r;
}

/* A thing without a living row: its row may have come after our snapshot, or gone together with the
 * thing since. Only a thing that still exists, and that still no row names, is unknown. */
static int check_unknown(struct survey *s, const struct found *thing, struct err *err)
{
        struct world again = { .arena = s->op->arena, .node = s->rt->node.id.s };
        struct tag_check q = { s, thing->tag, false };
        int r = store_read(s->op, s->rt->store, read_tag, &q, err);

        if (r >= 0 && !q.living)
                r = list_world(s, &again, err);
        if (r >= 0 && !q.living && find_thing(&again, thing->tag))
                json_array_append_new(
                        s->unknown,
                        json_pack("{s:s, s:s, s:s, s:s}", "provider", thing->provider, "ownerTag",
                                  thing->tag, "description", thing->description, "nextStep",
                                  thing->says_node
                                          ? "nothing here names it; remove it at the provider"
                                          : "nothing here names it, and it does not say which node "
                                            "had it made: leave it alone unless no other daemon "
                                            "uses the host"));
        free(again.things);
        return r;
}

/* -- Directories of rows ------------------------------------------------------------------------
 */

const struct row_files row_files[N_ROW_FILES] = {
        { ROWS_EXECUTIONS, "output", NULL },
        { ROWS_SNAPSHOTS, "snapshots", "a snapshot's files are not there" },
        { ROWS_SALVAGES, "salvage", "saved changes are not there" },
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
        char **names;
};

static void add_unnamed_files(void *ctx, const char *name)
{
        struct files_survey *f = ctx;
        const char *path =
                arena_printf(f->s->op->arena, "%s/%s/%s", f->s->rt->data_dir, f->files->dir, name);

        json_array_append_new(f->s->unknown,
                              json_pack("{s:s, s:s, s:s, s:s}", "provider", "files", "ownerTag",
                                        name, "description", path, "nextStep",
                                        "no record names this directory; look into it, then remove "
                                        "it"));
}

static int read_unnamed_files(struct db *db, void *arg, struct err *err)
{
        struct files_survey *f = arg;

        return row_files_unnamed(db, f->files, f->s->rt->data_dir, f->names, f->s->op->arena,
                                 add_unnamed_files, f, err);
}

static int add_failed_removal(void *ctx, const struct output_to_remove *row)
{
        struct survey *s = ctx;

        if (row->attempts > 0)
                json_array_append_new(
                        s->due,
                        json_pack("{s:s, s:s, s:s, s:I, s:o, s:s}", "provider", "files", "ownerTag",
                                  row->execution_id, "description",
                                  "output of a command that is no longer recorded", "attempts",
                                  (json_int_t)row->attempts, "note", json_string_or_null(row->note),
                                  "nextStep", "it is tried again by itself"));
        return 0;
}

static int read_failed_removals(struct db *db, void *arg, struct err *err)
{
        struct survey *s = arg;

        return outputs_to_remove(db, INT64_MAX, s->op->arena, add_failed_removal, s, err);
}

static int survey_files(struct survey *s, struct err *err)
{
        int r = store_read(s->op, s->rt->store, read_failed_removals, s, err);

        for (size_t i = 0; r >= 0 && s->rt->data_dir && i < N_ROW_FILES; i++) {
                struct files_survey f = { s, &row_files[i], NULL };

                if (row_files_list(f.files, s->rt->data_dir, s->op->arena, &f.names, err) >= 0) {
                        r = store_read(s->op, s->rt->store, read_unnamed_files, &f, err);
                        continue;
                }
                log_warn("a directory of the data directory cannot be listed",
                         LOG_S("error", err ? err->msg : ""));
                err_clear(err);
                json_array_append_new(s->not_listable, json_string(f.files->dir));
        }
        return r;
}

static int run_survey(struct survey *s, struct err *err)
{
        int r = store_read(s->op, s->rt->store, read_places, s, err);

        if (r >= 0)
                r = list_world(s, &s->world, err);
        for (size_t i = 0; r >= 0 && i < s->n_places; i++)
                r = judge_place(s, &s->places[i], err);
        for (size_t i = 0; r >= 0 && i < s->world.n; i++)
                if (!s->world.things[i].named)
                        r = check_unknown(s, &s->world.things[i], err);
        return r < 0 ? r : survey_files(s, err);
}

static void write_report(struct buf *b, const struct survey *s)
{
        size_t total = json_array_size(s->unknown) + json_array_size(s->missing) +
                       json_array_size(s->uncertain) + json_array_size(s->due);
        struct jw w;

        jw_init(&w, b);
        jw_object(&w);
        jw_ktime(&w, "checkedAt", clock_wall_us());
        jw_kint(&w, "total", (int64_t)total);
        jw_kvalue(&w, "unknown", s->unknown);
        jw_kvalue(&w, "missing", s->missing);
        jw_kvalue(&w, "uncertain", s->uncertain);
        jw_kvalue(&w, "cleanupDue", s->due);
        jw_kvalue(&w, "notListable", s->not_listable);
        jw_object_end(&w);
}

int leaks_report(struct op *op, struct runtime *rt, struct buf *ret_json, struct err *err)
{
        struct survey s = {
                .op = op,
                .rt = rt,
                .world = { .arena = op->arena, .node = rt->node.id.s },
                .unknown = json_array(),
                .missing = json_array(),
                .uncertain = json_array(),
                .due = json_array(),
                .not_listable = json_array(),
        };
        int r = access_admin(op->actor, "Instance admin access required", err);

        if (r >= 0)
                r = run_survey(&s, err);
        if (r >= 0)
                write_report(ret_json, &s);
        json_decref(s.unknown);
        json_decref(s.missing);
        json_decref(s.uncertain);
        json_decref(s.due);
        json_decref(s.not_listable);
        free(s.places);
        free(s.world.things);
        return r;
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

static int decide(struct db *db, void *arg, struct err *err)
{
        struct decision *d = arg;
        const struct kind *kind;
        bool ready;
        int r = places_get(db, d->id, d->op->arena, &d->place, err);

        if (r < 0)
                return r;
        ready = streq(d->place.state, PLACE_READY) && streq(d->to, PLACE_CLOSING);
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
                if (!d->place.provider_lease_id && kind && kind->closes_by_id)
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
                r = store_write(op, rt->store, decide, &d, err);
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
        r = store_write(op, rt->store, decide, &d, err);
        FAULT("leaks.forget.after");
        return r;
}
