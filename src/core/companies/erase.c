/* Deletes companies and agents with their history: the order of its steps, and what has to be over
 * before rows go. */
#include "core/companies/erase.h"

#include <stdatomic.h>

#include "base/clock.h"
#include "base/fault.h"
#include "base/log.h"
#include "core/access/audit.h"
#include "core/agents/agent.h"
#include "core/images/image.h"
#include "core/kinds/berth/snapshot.h"
#include "core/leases/environment_delete.h"
#include "core/runs/run_internal.h"
#include "core/secrets/agent_env.h"
#include "core/workspaces/workspace.h"
#include "core/workspaces/worktree.h"
#include "plugin/tree.h"
#include "store/companies.h"
#include "store/identity.h"
#include "store/salvages.h"
#include "store/snapshots.h"

#define RUNS_AT_ONCE 500
#define POLL_MS      50
#define SWEEP_MS     5000 /* what one pass of the sweeper may take for one thing */

/* The admin who confirmed it need not be a member of the company. */
static const struct actor eraser = {
        .type = ACTOR_BOARD,
        .source = SOURCE_LOCAL_IMPLICIT,
        .user_id = LOCAL_BOARD_USER,
        .is_instance_admin = true,
};

/* One at a time: two that work on the same thing would take each other for failures. */
static atomic_flag erasing = ATOMIC_FLAG_INIT;

struct erasure {
        struct op op; /* as the eraser */
        struct runtime *rt;
        const char *company_id;
        const char *agent_id; /* NULL: the whole company */
        const char *name;
};

/* Texts that are collected before anything is done about them. */
struct ids {
        struct arena *arena;
        const char **at;
        size_t n, room;
};

static void ids_add(struct ids *ids, const char *id)
{
        ids->at = arena_more(ids->arena, ids->at, ids->n, &ids->room, sizeof(*ids->at));
        ids->at[ids->n++] = arena_strdup(ids->arena, id);
}

static int add_agent(void *ctx, const struct agent *row)
{
        ids_add(ctx, row->id);
        return 0;
}

static int add_secret(void *ctx, const struct secret *row)
{
        ids_add(ctx, row->id);
        return 0;
}

static int add_snapshot(void *ctx, const struct snapshot *row)
{
        ids_add(ctx, row->id);
        return 0;
}

static int add_salvage(void *ctx, const struct salvage *row)
{
        ids_add(ctx, row->id);
        return 0;
}

/* -- The intent ---------------------------------------------------------------------------------
 */

struct asking {
        struct op *op;
        struct runtime *rt;
        const char *id, *confirm;
        struct erasure *e;
};

static int end_agent(struct db *db, struct asking *q, const char *id, bool is_erased,
                     struct err *err)
{
        struct agent g;
        int r = agents_get(db, id, q->op->arena, &g, err);

        if (r >= 0 && !streq(g.status, "terminated"))
                r = agent_move(db, q->op, q->rt, &g, "terminated", err);
        return r < 0 || !is_erased ? r : agents_set_erasing(db, id, clock_now_us(), err);
}

static int check_confirmed(const struct asking *q, const char *const *names, struct err *err)
{
        for (; *names; names++)
                if (streq(*names, q->confirm))
                        return 0;
        return err_set(err, ERR_UNPROCESSABLE,
                       "confirm has to be the name or the id of what is deleted");
}

static int ask_for_company(struct db *db, void *arg, struct err *err)
{
        struct asking *q = arg;
        struct ids agents = { .arena = q->op->arena };
        struct company c;
        int r = companies_get(db, q->id, q->op->arena, &c, err);

        if (r >= 0)
                r = check_confirmed(q, (const char *const[]){ c.name, c.issue_prefix, c.id, NULL },
                                    err);
        if (r >= 0)
                r = agents_list(db, c.id, q->op->arena, add_agent, &agents, err);
        for (size_t i = 0; r >= 0 && i < agents.n; i++)
                r = end_agent(db, q, agents.at[i], false, err);
        if (r < 0)
                return r;
        q->e->company_id = c.id;
        q->e->name = c.name;
        c.status = "archived";
        c.erasing_at = c.updated_at = clock_now_us();
        r = companies_update(db, &c, err);
        return r < 0 ? r
                     : audit(db, q->op, c.id, "company.delete_confirmed", "company", c.id,
                             json_pack("{s:s}", "name", c.name), err);
}

static int ask_for_agent(struct db *db, void *arg, struct err *err)
{
        struct asking *q = arg;
        struct agent g;
        int r = agents_get(db, q->id, q->op->arena, &g, err);

        if (r >= 0)
                r = check_confirmed(q, (const char *const[]){ g.name, g.url_key, g.id, NULL }, err);
        if (r >= 0)
                r = end_agent(db, q, g.id, true, err);
        if (r < 0)
                return r;
        q->e->company_id = g.company_id;
        q->e->agent_id = g.id;
        q->e->name = g.name;
        return audit(db, q->op, g.company_id, "agent.delete_confirmed", "agent", g.id,
                     json_pack("{s:s}", "name", g.name), err);
}

/* -- Closing ------------------------------------------------------------------------------------
 */

static int count_open(struct erasure *e, int64_t *ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(&e->op, e->rt->store, &db, err);

        return r < 0 ? r : runs_count_open_of(db, e->company_id, e->agent_id, ret, err);
}

/* Their commands end and their changes come home, as with every cancelled run. */
static int end_runs(struct erasure *e, struct err *err)
{
        int64_t open = 1;
        int r = 0;

        run_host_kick(e->rt->runs);
        while (r >= 0 && open > 0) {
                r = count_open(e, &open, err);
                if (r >= 0 && open > 0)
                        r = op_wait_fd(&e->op, -1, 0, POLL_MS, err);
        }
        return r;
}

static int list_of_company(struct erasure *e, struct ids *environments, struct ids *secrets,
                           struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        struct arena *a = e->op.arena;
        struct environment *all = NULL;
        int n = 0, r = store_read_begin(&e->op, e->rt->store, &db, err);

        environments->arena = secrets->arena = a;
        if (r >= 0)
                r = n = environments_list(db, e->company_id, NULL, NULL, a, &all, err);
        for (int i = 0; i < n; i++)
                ids_add(environments, all[i].id);
        return r < 0 ? r : secrets_of_company(db, e->company_id, a, add_secret, secrets, err);
}

static int list_images(struct erasure *e, struct image_row **ret, struct err *err)
{
        CLEAN(store_read_end) struct db *db = NULL;
        int r = store_read_begin(&e->op, e->rt->store, &db, err);

        return r < 0 ? r : images_of(db, e->company_id, e->op.arena, ret, err);
}

/* Saved things, newest first: what stands on another is newer than that. */
static int drop_saved(struct erasure *e, struct err *err)
{
        struct ids snapshots = { .arena = e->op.arena }, salvages = { .arena = e->op.arena };
        struct snapshot snapshot;
        struct salvage salvage;
        struct image_row *images, image;
        int n, r = snapshot_list(&e->op, e->rt, e->company_id, 0, NULL, INT64_MAX, add_snapshot,
                                 &snapshots, err);

        /* What forks stood on lies between them. */
        for (size_t i = 0; r >= 0 && i < snapshots.n; i++) {
                r = snapshot_sweep(&e->op, e->rt, err);
                if (r >= 0)
                        r = snapshot_delete(&e->op, e->rt, e->company_id, snapshots.at[i],
                                            &snapshot, err);
        }
        if (r >= 0)
                r = snapshot_sweep(&e->op, e->rt, err);
        if (r >= 0)
                r = salvage_list(&e->op, e->rt, e->company_id, 0, NULL, INT64_MAX, add_salvage,
                                 &salvages, err);
        n = r < 0 ? r : list_images(e, &images, err);
        for (int i = 0; r >= 0 && i < n; i++)
                r = image_remove(&e->op, e->rt, e->company_id, images[i].id, &image, err);
        r = MIN(r, n);
        for (size_t i = 0; r >= 0 && i < salvages.n; i++)
                r = salvage_drop(&e->op, e->rt, salvages.at[i], &salvage, err);
        return r;
}

static int close_company(struct erasure *e, struct err *err)
{
        struct ids environments = { 0 }, secrets = { 0 };
        int r = worktree_drop_all(&e->op, e->rt, e->company_id, err);

        if (r >= 0)
                r = list_of_company(e, &environments, &secrets, err);
        for (size_t i = 0; r >= 0 && i < environments.n; i++)
                r = environment_give_up(&e->op, e->rt, environments.at[i], err);
        for (size_t i = 0; r >= 0 && i < secrets.n; i++)
                r = secret_remove(&e->op, e->rt, secrets.at[i], true, err);
        return r < 0 ? r : drop_saved(e, err);
}

/* -- Files --------------------------------------------------------------------------------------
 */

static int remove_files(struct erasure *e, const char *agent_id, struct err *err)
{
        struct arena *a = e->op.arena;
        const char *data = e->rt->data_dir;
        const char *const paths[] = {
                arena_printf(a, "%s/agents/%s", data, agent_id),
                arena_printf(a, "%s/run-logs/%s/%s", data, e->company_id, agent_id),
                arena_printf(a, "%s/companies/%s/sessions/%s", data, e->company_id, agent_id),
        };
        int r = 0;

        for (size_t i = 0; r >= 0 && i < ARRAY_LEN(paths); i++)
                r = tree_remove(&e->op, paths[i], err);
        return r;
}

static int remove_all_files(struct erasure *e, struct err *err)
{
        struct ids agents = { .arena = e->op.arena };
        CLEAN(store_read_end) struct db *db = NULL;
        struct arena *a = e->op.arena;
        int r;

        if (e->agent_id)
                return remove_files(e, e->agent_id, err);
        r = store_read_begin(&e->op, e->rt->store, &db, err);
        if (r >= 0)
                r = agents_list(db, e->company_id, a, add_agent, &agents, err);
        store_read_end(&db);
        for (size_t i = 0; r >= 0 && i < agents.n; i++)
                r = remove_files(e, agents.at[i], err);
        if (r >= 0)
                r = tree_remove(&e->op,
                                arena_printf(a, "%s/run-logs/%s", e->rt->data_dir, e->company_id),
                                err);
        return r < 0 ? r
                     : tree_remove(
                               &e->op,
                               arena_printf(a, "%s/companies/%s", e->rt->data_dir, e->company_id),
                               err);
}

/* -- Rows ---------------------------------------------------------------------------------------
 */

static int drop_runs(struct db *db, void *arg, struct err *err)
{
        const struct erasure *e = arg;

        return runs_delete_some(db, e->company_id, e->agent_id, RUNS_AT_ONCE, err);
}

static int drop_rows(struct db *db, void *arg, struct err *err)
{
        struct erasure *e = arg;
        const char *what = e->agent_id ? "agent" : "company";
        const char *id = e->agent_id ? e->agent_id : e->company_id;
        int64_t living = 0, open;
        int r = runs_count_open_of(db, e->company_id, e->agent_id, &open, err);

        if (r >= 0 && !e->agent_id)
                r = companies_count_places(db, e->company_id, &living, err);
        if (r >= 0 && open + living > 0)
                r = err_set(err, ERR_BUSY, "The %s has runs or places that are not over.", what);
        if (r >= 0 && e->agent_id)
                r = agent_drop(db, e->company_id, e->agent_id, err);
        else if (r >= 0)
                r = companies_delete_agents(db, e->company_id, err);
        if (r >= 0 && !e->agent_id)
                r = companies_delete(db, e->company_id, err);
        if (r == ERR_CONFLICT) /* something was made meanwhile */
                return err_set(err, ERR_BUSY, "The %s was used while it was deleted.", what);
        return r < 0 ? r
                     : audit(db, &e->op, e->company_id,
                             e->agent_id ? "agent.deleted" : "company.deleted", what, id,
                             json_pack("{s:s, s:b}", "name", e->name, "withHistory", 1), err);
}

static int erase_all(struct erasure *e, struct err *err)
{
        int r = end_runs(e, err);

        if (r >= 0 && !e->agent_id)
                r = close_company(e, err);
        FAULT("erase.files.before");
        if (r >= 0)
                r = remove_all_files(e, err);
        FAULT("erase.rows.before");
        while (r >= 0 && (r = store_write(&e->op, e->rt->store, drop_runs, e, err)) > 0)
                ;
        FAULT("erase.rows.between");
        if (r >= 0)
                r = store_write(&e->op, e->rt->store, drop_rows, e, err);
        FAULT("erase.rows.after");
        return r;
}

static int erase(struct op *op, struct runtime *rt, const char *id, const char *confirm,
                 store_fn intend, struct err *err)
{
        struct erasure e = { .op = *op, .rt = rt };
        struct asking q = { op, rt, id, confirm, &e };
        int r = access_admin(op->actor, "Instance admin required", err);

        while (r >= 0 && atomic_flag_test_and_set(&erasing))
                r = op_wait_fd(op, -1, 0, POLL_MS, err);
        if (r < 0)
                return r;
        FAULT("erase.intend.before");
        r = store_write(op, rt->store, intend, &q, err);
        FAULT("erase.intend.after");
        if (r < 0) {
                atomic_flag_clear(&erasing);
                return r;
        }
        e.op.actor = &eraser;
        r = erase_all(&e, err);
        atomic_flag_clear(&erasing);
        return r < 0 ? err_wrap(err, ERR_BUSY,
                                "%s is being deleted, which goes on by itself; not over yet",
                                e.name)
                     : 0;
}

int erase_company(struct op *op, struct runtime *rt, const char *id, const char *confirm,
                  struct err *err)
{
        return erase(op, rt, id, confirm, ask_for_company, err);
}

int erase_agent(struct op *op, struct runtime *rt, const char *id, const char *confirm,
                struct err *err)
{
        return erase(op, rt, id, confirm, ask_for_agent, err);
}

/* -- Going on -----------------------------------------------------------------------------------
 */

struct begun {
        struct arena *arena;
        struct erasure *at;
        size_t n, room;
};

static void begun_add(struct begun *b, const char *company_id, const char *agent_id,
                      const char *name)
{
        b->at = arena_more(b->arena, b->at, b->n, &b->room, sizeof(*b->at));
        b->at[b->n++] =
                (struct erasure){ .company_id = company_id, .agent_id = agent_id, .name = name };
}

static int begun_company(void *ctx, const struct company *row)
{
        begun_add(ctx, row->id, NULL, row->name);
        return 0;
}

static int begun_agent(void *ctx, const struct agent *row)
{
        begun_add(ctx, row->company_id, row->id, row->name);
        return 0;
}

int erase_sweep(struct op *op, struct runtime *rt, struct err *err)
{
        struct begun begun = { .arena = op->arena };
        CLEAN(store_read_end) struct db *db = NULL;
        int r;

        if (atomic_flag_test_and_set(&erasing))
                return 0;
        r = store_read_begin(op, rt->store, &db, err);
        if (r >= 0)
                r = agents_erasing(db, op->arena, begun_agent, &begun, err);
        if (r >= 0)
                r = companies_erasing(db, op->arena, begun_company, &begun, err);
        store_read_end(&db);
        for (size_t i = 0; r >= 0 && i < begun.n; i++) {
                struct erasure *e = &begun.at[i];
                CLEAN(err_done) struct err why = { 0 };

                e->op = op_shield(op, SWEEP_MS);
                e->op.actor = &eraser;
                e->rt = rt;
                if (erase_all(e, &why) < 0)
                        log_warn("could not finish deleting yet", LOG_S("name", e->name),
                                 LOG_S("error", why.msg));
        }
        atomic_flag_clear(&erasing);
        return r;
}
