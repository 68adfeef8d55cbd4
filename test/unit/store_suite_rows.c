/* Every function on every table at least once, with its edge. Ids are short names here; a list is
 * compared as its ids in a row. What breaks a constraint is a write of its own, because a back end
 * may give up the transaction it happens in. */
#include "store_suite.h"

#include "store/activity.h"
#include "store/agents.h"
#include "store/companies.h"
#include "store/environments.h"
#include "store/identity.h"
#include "store/leases.h"
#include "store/places.h"
#include "store/settings.h"

COLLECT(company)
COLLECT(place)
COLLECT(lease)
COLLECT(agent)
COLLECT(agent_key)
COLLECT(activity)
COLLECT(membership)
COLLECT(board_key)

static int stop_at_lease(void *ctx, const struct lease *row)
{
        add_id(ctx, row->id);
        return ERR_CANCELLED;
}

static void expect_conflict(struct store_fixture *f, store_fn fn, void *arg)
{
        assert_int_equal(store_write(&f->op, f->store, fn, arg, &f->err), ERR_CONFLICT);
}

/* A write function that inserts the row that it gets. */
#define INSERTER(type, function)                                                                   \
        static int insert_##type(struct db *db, void *arg, struct err *err)                        \
        {                                                                                          \
                return function(db, arg, err);                                                     \
        }

INSERTER(company, companies_insert)
INSERTER(environment, environments_insert)
INSERTER(place, places_insert)
INSERTER(lease, leases_insert)
INSERTER(agent, agents_insert)
INSERTER(agent_key, agent_keys_insert)
INSERTER(board_key, board_keys_insert)

static struct company a_company(const char *id, int64_t at)
{
        return (struct company){ .id = id,
                                 .name = id,
                                 .status = "active",
                                 .issue_prefix = id,
                                 .created_at = at,
                                 .updated_at = at };
}

static struct environment an_environment(const char *id, const char *driver, int64_t at)
{
        return (struct environment){ .id = id,
                                     .company_id = "c1",
                                     .name = id,
                                     .driver = driver,
                                     .status = "active",
                                     .config = "{}",
                                     .created_at = at,
                                     .updated_at = at };
}

static struct lease a_lease(const char *id, int64_t at)
{
        return (struct lease){ .id = id,
                               .company_id = "c1",
                               .environment_id = "e1",
                               .place_id = "p1",
                               .status = "active",
                               .policy = "ephemeral",
                               .acquired_at = at,
                               .last_used_at = at,
                               .created_at = at,
                               .updated_at = at };
}

static struct place a_place(const char *id, const char *state, int64_t at)
{
        return (struct place){ .id = id,
                               .company_id = "c1",
                               .environment_id = "e1",
                               .driver = "sandbox",
                               .config = "{}",
                               .policy = "ephemeral",
                               .state = state,
                               .epoch = 1,
                               .owner_node = "n",
                               .owner_boot = "b",
                               .owner_instance = "i",
                               .created_at = at,
                               .updated_at = at };
}

static struct agent an_agent(const char *id, int64_t at)
{
        return (struct agent){ .id = id,
                               .company_id = "c1",
                               .name = id,
                               .url_key = id,
                               .role = "general",
                               .status = "idle",
                               .adapter_type = "process",
                               .adapter_config = "{}",
                               .runtime_config = "{}",
                               .permissions = "{}",
                               .created_at = at,
                               .updated_at = at };
}

/* Companies */

static int company_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct company full = { .id = "c1",
                                .name = "One",
                                .description = "First",
                                .status = "active",
                                .issue_prefix = "ONE",
                                .brand_color = "#123456",
                                .issue_counter = 2,
                                .budget_monthly_cents = 3,
                                .spent_monthly_cents = 4,
                                .attachment_max_bytes = 5,
                                .require_board_approval = true,
                                .created_at = 20,
                                .updated_at = 21 };
        struct company older = a_company("c2", 10), same_time = a_company("c0", 20), got;
        struct membership m = { .id = "m1",
                                .company_id = "c2",
                                .principal_type = "user",
                                .principal_id = "u1",
                                .role = "owner",
                                .status = "active",
                                .created_at = 1,
                                .updated_at = 1 };
        int64_t n;

        CHECK(companies_insert(db, &full, err) == 1);
        CHECK(companies_get(db, "c1", a, &got, err) == 0);
        CHECK(same(got.name, "One") && same(got.description, "First") &&
              same(got.status, "active") && same(got.issue_prefix, "ONE") &&
              same(got.brand_color, "#123456") && got.issue_counter == 2 &&
              got.budget_monthly_cents == 3 && got.spent_monthly_cents == 4 &&
              got.attachment_max_bytes == 5 && got.require_board_approval && got.created_at == 20 &&
              got.updated_at == 21);
        CHECK(companies_get(db, "none", a, &got, err) == ERR_NOT_FOUND);
        CHECK(same(err->msg, "Company not found"));

        CHECK(companies_insert(db, &older, err) == 1 && companies_insert(db, &same_time, err) == 1);
        CHECK_LIST("c2 c0 c1", companies_list(db, NULL, a, collect_company, &ids, err));
        CHECK_LIST("", companies_list(db, "u1", a, collect_company, &ids, err));
        CHECK(memberships_put(db, &m, err) == 1);
        CHECK_LIST("c2", companies_list(db, "u1", a, collect_company, &ids, err));
        m.status = "suspended";
        CHECK(memberships_put(db, &m, err) == 1);
        CHECK_LIST("", companies_list(db, "u1", a, collect_company, &ids, err));

        CHECK(companies_prefix_taken(db, "ONE") && !companies_prefix_taken(db, "TWO"));
        full.name = "Other";
        full.description = NULL;
        full.brand_color = NULL;
        full.require_board_approval = false;
        full.budget_monthly_cents = 33;
        full.updated_at = 30;
        full.issue_prefix = "IGNORED";
        CHECK(companies_update(db, &full, err) == 1);
        CHECK(companies_get(db, "c1", a, &got, err) == 0);
        CHECK(same(got.name, "Other") && !got.description && !got.brand_color &&
              !got.require_board_approval && got.budget_monthly_cents == 33 &&
              got.updated_at == 30 && same(got.issue_prefix, "ONE") && got.created_at == 20);
        full.id = "none";
        CHECK(companies_update(db, &full, err) == 0);

        CHECK(companies_count_blockers(db, "c1", &n, err) >= 0 && n == 0);
        return 0;
}

static int block_company(struct db *db, void *arg, struct err *err)
{
        struct agent g = an_agent("g1", 1);
        int64_t n;

        CHECK(agents_insert(db, &g, err) == 1);
        CHECK(companies_count_blockers(db, "c1", &n, err) >= 0 && n == 1);
        CHECK(db_exec(db,
                      "INSERT INTO heartbeat_runs (id, company_id, agent_id, created_at, "
                      "updated_at) VALUES ('r1', 'c1', 'g1', 1, 1)",
                      DB_NO_ARGS, err) == 1);
        CHECK(db_exec(db,
                      "INSERT INTO company_secrets (id, company_id, key, name, created_at, "
                      "updated_at) VALUES ('s1', 'c1', 'k', 'n', 1, 1)",
                      DB_NO_ARGS, err) == 1);
        CHECK(db_exec(db,
                      "INSERT INTO company_secret_bindings (id, company_id, secret_id, "
                      "target_type, target_id, config_path, created_at, updated_at) "
                      "VALUES ('b1', 'c1', 's1', 'agent', 'g1', 'x', 1, 1)",
                      DB_NO_ARGS, err) == 1);
        CHECK(companies_count_blockers(db, "c1", &n, err) >= 0 && n == 4);
        CHECK(companies_count_blockers(db, "c2", &n, err) >= 0 && n == 0);
        return 0;
}

static int delete_company(struct db *db, void *arg, struct err *err)
{
        return companies_delete(db, arg, err);
}

static int delete_free_company(struct db *db, void *arg, struct err *err)
{
        struct company c = a_company("c9", 1);
        struct environment e = an_environment("e9", "local", 1);
        int64_t n;

        e.company_id = "c9";
        CHECK(companies_insert(db, &c, err) == 1 && environments_insert(db, &e, err) == 1);
        CHECK(companies_delete(db, "c9", err) == 1);
        CHECK(companies_delete(db, "c9", err) == 0);
        /* What belongs to it goes with it. */
        CHECK(db_number(db, "SELECT COUNT(*) FROM environments WHERE id = 'e9'", DB_NO_ARGS, &n,
                        err) >= 0 &&
              n == 0);
        return 0;
}

static void test_companies(void **state)
{
        struct store_fixture *f = *state;
        struct company twice = a_company("c5", 1);

        store_suite_write(f, company_rows, &f->arena);
        twice.issue_prefix = "ONE";
        expect_conflict(f, insert_company, &twice);
        store_suite_write(f, block_company, NULL);
        expect_conflict(f, delete_company, TEXT("c1"));
        store_suite_write(f, delete_free_company, NULL);
}

/* Environments */

static int environment_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct environment full = { .id = "e2",
                                    .company_id = "c1",
                                    .name = "Two",
                                    .description = "Second",
                                    .driver = "ssh",
                                    .status = "archived",
                                    .config = "{\"a\":1}",
                                    .metadata = "{\"b\":2}",
                                    .created_at = 5,
                                    .updated_at = 6 };
        struct environment local = an_environment("e3", "local", 7), got;

        CHECK(environments_insert(db, &full, err) == 1);
        CHECK(environments_get(db, "e2", a, &got, err) == 0);
        CHECK(same(got.company_id, "c1") && same(got.name, "Two") &&
              same(got.description, "Second") && same(got.driver, "ssh") &&
              same(got.status, "archived") && same(got.config, "{\"a\":1}") &&
              same(got.metadata, "{\"b\":2}") && got.created_at == 5 && got.updated_at == 6);
        CHECK(environments_get(db, "none", a, &got, err) == ERR_NOT_FOUND);
        CHECK(same(err->msg, "Environment not found"));

        CHECK(environments_get_local(db, "c1", a, &got, err) == ERR_NOT_FOUND);
        CHECK(environments_insert_local(db, &local, err) == 1);
        local.id = "e4";
        CHECK(environments_insert_local(db, &local, err) == 0);
        CHECK(environments_get_local(db, "c1", a, &got, err) == 0 && same(got.id, "e3"));

        CHECK_LIST("e3 e2 e1",
                   ROWS(environment, environments_list(db, "c1", NULL, NULL, a, &found, err)));
        CHECK_LIST("e3 e1",
                   ROWS(environment, environments_list(db, "c1", "active", NULL, a, &found, err)));
        CHECK_LIST("e2",
                   ROWS(environment, environments_list(db, "c1", NULL, "ssh", a, &found, err)));
        CHECK_LIST("",
                   ROWS(environment, environments_list(db, "c1", "active", "ssh", a, &found, err)));
        CHECK_LIST("", ROWS(environment, environments_list(db, "c2", NULL, NULL, a, &found, err)));

        full.name = "Renamed";
        full.metadata = NULL;
        full.updated_at = 9;
        CHECK(environments_update(db, &full, 5, err) == 0);
        CHECK(environments_get(db, "e2", a, &got, err) == 0 && same(got.name, "Two"));
        CHECK(environments_update(db, &full, 6, err) == 1);
        CHECK(environments_get(db, "e2", a, &got, err) == 0 && same(got.name, "Renamed") &&
              !got.metadata && got.updated_at == 9 && got.created_at == 5);
        CHECK_LIST("e2 e3 e1",
                   ROWS(environment, environments_list(db, "c1", NULL, NULL, a, &found, err)));
        CHECK(environments_delete(db, "e2", err) == 1);
        CHECK(environments_delete(db, "e2", err) == 0);
        return 0;
}

#define MENTIONS(id) "'{\"environmentId\":\"" id "\",\"x\":1}'"

static int add_references(struct db *db, struct err *err)
{
        CHECK(db_exec(db,
                      "INSERT INTO projects (id, company_id, name, execution_workspace_policy, "
                      "created_at, updated_at) VALUES ('j1', 'c1', 'j', " MENTIONS("e1") ", 1, 1)",
                      DB_NO_ARGS, err) == 1);
        CHECK(db_exec(db,
                      "INSERT INTO issues (id, company_id, identifier, title, "
                      "execution_workspace_settings, created_at, updated_at) "
                      "VALUES ('i1', 'c1', 'C-1', 't', " MENTIONS(
                              "e1") ", 1, 1), "
                                    "('i2', 'c1', 'C-2', 't', " MENTIONS("e12") ", 1, 1)",
                      DB_NO_ARGS, err) == 2);
        CHECK(db_exec(db,
                      "INSERT INTO execution_workspaces (id, company_id, project_id, mode, "
                      "strategy_type, name, last_used_at, opened_at, metadata, created_at, "
                      "updated_at) VALUES ('x1', 'c1', 'j1', 'm', 's', 'n', 1, 1, "
                      "'{\"config\":{\"environmentId\":\"e1\"}}', 1, 1), "
                      /* where it was in the past does not count */
                      "('x2', 'c1', 'j1', 'm', 's', 'n', 1, 1, "
                      "'{\"config\":{},\"workspaceRealization\":{\"environmentId\":\"e1\"}}', 1, 1)",
                      DB_NO_ARGS, err) == 2);
        CHECK(db_exec(db, "UPDATE companies SET default_environment_id = 'e1' WHERE id = 'c1'",
                      DB_NO_ARGS, err) == 1);
        CHECK(db_exec(db,
                      "INSERT INTO company_secrets (id, company_id, key, name, created_at, "
                      "updated_at) VALUES ('s1', 'c1', 'k', 'n', 1, 1)",
                      DB_NO_ARGS, err) == 1);
        CHECK(db_exec(db,
                      "INSERT INTO company_secret_bindings (id, company_id, secret_id, "
                      "target_type, target_id, config_path, created_at, updated_at) "
                      "VALUES ('b1', 'c1', 's1', 'environment', 'e1', 'x', 1, 1), "
                      "('b2', 'c1', 's1', 'agent', 'e1', 'x', 1, 1)",
                      DB_NO_ARGS, err) == 2);
        return 0;
}

static int add_living(struct db *db, struct err *err)
{
        static const char *const states[] = { "ready", "closing", "closing", "held", "gone" };
        static const char *const statuses[] = { "active", "retained", "released" };
        struct agent g = an_agent("g1", 1);

        g.default_environment_id = "e1";
        CHECK(agents_insert(db, &g, err) == 1);
        for (size_t i = 0; i < ARRAY_LEN(states); i++) {
                struct place p = a_place((char[]){ 'p', (char)('1' + i), '\0' }, states[i], 1);

                CHECK(places_insert(db, &p, err) == 1);
        }
        for (size_t i = 0; i < ARRAY_LEN(statuses); i++) {
                struct lease l = a_lease((char[]){ 'l', (char)('1' + i), '\0' }, 1);

                l.status = statuses[i];
                CHECK(leases_insert(db, &l, err) == 1);
        }
        return 0;
}

static int reference_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct environment e = an_environment("e1", "sandbox", 1);
        struct environment other = an_environment("e7", "sandbox", 1);
        struct environment_references refs;
        struct agent g;
        int64_t n;

        CHECK(environments_references(db, &e, &refs, err) >= 0);
        CHECK(refs.agents + refs.execution_workspaces + refs.issues + refs.projects +
                      refs.companies + refs.secret_bindings + refs.active_leases +
                      refs.living_places + refs.closing_places + refs.idle_places ==
              0);
        CHECK(add_references(db, err) >= 0 && add_living(db, err) >= 0);
        CHECK(environments_references(db, &e, &refs, err) >= 0);
        CHECK(refs.agents == 1 && refs.execution_workspaces == 1 && refs.issues == 1 &&
              refs.projects == 1 && refs.companies == 1 && refs.pointing == 5 &&
              refs.secret_bindings == 1);
        CHECK(refs.active_leases == 2 && refs.living_places == 4 && refs.closing_places == 2 &&
              refs.idle_places == 1);

        CHECK(environments_delete(db, "e1", err) == ERR_CONFLICT); /* the default of the company */
        CHECK(environments_insert(db, &other, err) == 1);
        CHECK(environments_move_references(db, &e, "e7", 9, err) >= 0);
        CHECK(environments_clear_bindings(db, &e, err) >= 0);
        CHECK(environments_references(db, &e, &refs, err) >= 0);
        CHECK(refs.pointing == 0 && refs.secret_bindings == 0);
        CHECK(environments_references(db, &other, &refs, err) >= 0);
        CHECK(refs.pointing == 5);
        CHECK(db_number(db,
                        "SELECT COUNT(*) FROM issues WHERE execution_workspace_settings "
                        "= '{\"environmentId\":\"e7\",\"x\":1}'",
                        DB_NO_ARGS, &n, err) >= 0 &&
              n == 1);
        CHECK(db_number(db, "SELECT COUNT(*) FROM company_secret_bindings", DB_NO_ARGS, &n, err) >=
                      0 &&
              n == 1);

        /* Leases go with the environment; places stay until closed. */
        CHECK(environments_delete(db, "e1", err) == 1);
        CHECK(agents_get(db, "g1", a, &g, err) == 0 && same(g.default_environment_id, "e7"));
        CHECK_LIST("", leases_list(db, "e1", NULL, 0, NULL, 0, a, collect_lease, &ids, err));
        CHECK_LIST("p1 p2 p3 p4", places_living(db, NULL, a, collect_place, &ids, err));
        return 0;
}

static void test_environments(void **state)
{
        struct store_fixture *f = *state;
        struct environment second = an_environment("e9", "local", 1);
        struct environment lost = an_environment("e8", "ssh", 1);

        store_suite_write(f, store_suite_company, NULL);
        store_suite_write(f, environment_rows, &f->arena);
        expect_conflict(f, insert_environment, &second);
        lost.company_id = "none";
        expect_conflict(f, insert_environment, &lost);
        /* Only `local` is one of a kind. */
        second.driver = "sandbox";
        store_suite_write(f, insert_environment, &second);
}

static void test_references(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, store_suite_company, NULL);
        store_suite_write(f, reference_rows, &f->arena);
}

/* Places */

static int place_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct place full = { .id = "p1",
                              .company_id = "c1",
                              .environment_id = "e1",
                              .driver = "d",
                              .provider = "v",
                              .provider_lease_id = "vl",
                              .config = "{\"x\":1}",
                              .policy = "reuse_by_environment",
                              .state = "held",
                              .epoch = 7,
                              .has_world = true,
                              .holder_run_id = "r",
                              .request_key = "k",
                              .owner_node = "n",
                              .owner_boot = "b",
                              .owner_instance = "i",
                              .deadline_at = 1,
                              .attempts = 2,
                              .next_attempt_at = 3,
                              .note = "note",
                              .created_at = 4,
                              .updated_at = 5 };
        struct place got, to, p;

        CHECK(places_insert(db, &full, err) == 1);
        CHECK(places_get(db, "p1", a, &got, err) == 0);
        CHECK(same(got.company_id, "c1") && same(got.environment_id, "e1") &&
              same(got.driver, "d") && same(got.provider, "v") &&
              same(got.provider_lease_id, "vl") && same(got.config, "{\"x\":1}") &&
              same(got.policy, "reuse_by_environment") && same(got.state, "held") &&
              got.epoch == 7 && got.has_world && same(got.holder_run_id, "r") &&
              same(got.request_key, "k") && same(got.owner_node, "n") &&
              same(got.owner_boot, "b") && same(got.owner_instance, "i") && got.deadline_at == 1 &&
              got.attempts == 2 && got.next_attempt_at == 3 && same(got.note, "note") &&
              got.created_at == 4 && got.updated_at == 5);
        CHECK(places_get(db, "none", a, &got, err) == ERR_NOT_FOUND);
        CHECK(same(err->msg, "Place not found"));

        /* Compare-and-set: state and epoch have to be the ones that were seen. */
        to = full;
        to.state = "closing";
        to.epoch = 8;
        to.note = NULL;
        to.next_attempt_at = 0;
        to.updated_at = 50;
        full.epoch = 6;
        CHECK(places_replace(db, &full, &to, err) == 0);
        full.epoch = 7;
        full.state = "ready";
        CHECK(places_replace(db, &full, &to, err) == 0);
        CHECK(places_get(db, "p1", a, &got, err) == 0 && same(got.state, "held") && got.epoch == 7);
        full.state = "held";
        CHECK(places_replace(db, &full, &to, err) == 1);
        CHECK(places_replace(db, &full, &to, err) == 0);
        CHECK(places_get(db, "p1", a, &got, err) == 0 && same(got.state, "closing") &&
              got.epoch == 8 && !got.note && got.next_attempt_at == 0 && got.updated_at == 50);

        p = a_place("p2", "ready", 20);
        CHECK(places_insert(db, &p, err) == 1);
        p = a_place("p3", "ready", 10);
        p.environment_id = "e2";
        CHECK(places_insert(db, &p, err) == 1);
        p = a_place("p4", "gone", 15);
        CHECK(places_insert(db, &p, err) == 1);
        CHECK_LIST("p3 p2 p1", places_living(db, NULL, a, collect_place, &ids, err));
        CHECK_LIST("p3 p2", places_living(db, "ready", a, collect_place, &ids, err));
        CHECK_LIST("", places_living(db, "gone", a, collect_place, &ids, err));
        CHECK_LIST("p1 p2", ROWS(place, places_of_environment(db, "e1", a, &found, err)));

        CHECK(places_by_request(db, "e1", "key", a, &got, err) == ERR_NOT_FOUND);
        p = a_place("p5", "intended", 1);
        p.request_key = "key";
        CHECK(places_insert(db, &p, err) == 1);
        CHECK(places_by_request(db, "e1", "key", a, &got, err) == 0 && same(got.id, "p5"));
        CHECK(places_by_request(db, "e2", "key", a, &got, err) == ERR_NOT_FOUND);
        return 0;
}

static int request_is_over(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct place from, to, again = a_place("p6", "intended", 1);

        CHECK(places_get(db, "p5", a, &from, err) == 0);
        to = from;
        to.state = "held";
        to.epoch = 2;
        CHECK(places_replace(db, &from, &to, err) == 1);
        CHECK(places_by_request(db, "e1", "key", a, &from, err) == ERR_NOT_FOUND);
        again.request_key = "key";
        CHECK(places_insert(db, &again, err) == 1);
        return 0;
}

static void test_places(void **state)
{
        struct store_fixture *f = *state;
        struct place second = a_place("p6", "intended", 1);

        store_suite_write(f, store_suite_company, NULL);
        store_suite_write(f, place_rows, &f->arena);
        second.request_key = "key";
        expect_conflict(f, insert_place, &second);
        second.environment_id = "e2"; /* a key is an environment's own */
        second.id = "p7";
        store_suite_write(f, insert_place, &second);
        store_suite_write(f, request_is_over, &f->arena);
}

/* Leases */

static int lease_fields(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct lease full = { .id = "l1",
                              .company_id = "c1",
                              .environment_id = "e1",
                              .place_id = "p1",
                              .execution_workspace_id = "x",
                              .issue_id = "i",
                              .heartbeat_run_id = "r",
                              .status = "active",
                              .policy = "ephemeral",
                              .provider = "v",
                              .provider_lease_id = "vl",
                              .acquired_at = 1,
                              .last_used_at = 2,
                              .expires_at = 3,
                              .released_at = 4,
                              .failure_reason = "f",
                              .cleanup_status = "pending",
                              .metadata = "{}",
                              .idempotency_key = "k",
                              .created_at = 5,
                              .updated_at = 6 };
        struct lease got;

        CHECK(leases_insert(db, &full, err) == 1);
        CHECK(leases_get(db, "l1", a, &got, err) == 0);
        CHECK(same(got.company_id, "c1") && same(got.environment_id, "e1") &&
              same(got.place_id, "p1") && same(got.execution_workspace_id, "x") &&
              same(got.issue_id, "i") && same(got.heartbeat_run_id, "r") &&
              same(got.status, "active") && same(got.policy, "ephemeral") &&
              same(got.provider, "v") && same(got.provider_lease_id, "vl") &&
              got.acquired_at == 1 && got.last_used_at == 2 && got.expires_at == 3 &&
              got.released_at == 4 && same(got.failure_reason, "f") &&
              same(got.cleanup_status, "pending") && same(got.metadata, "{}") &&
              same(got.idempotency_key, "k") && got.created_at == 5 && got.updated_at == 6);
        CHECK(leases_get(db, "none", a, &got, err) == ERR_NOT_FOUND);
        CHECK(same(err->msg, "Environment lease not found"));
        CHECK(leases_by_key(db, "e1", "k", a, &got, err) == 0 && same(got.id, "l1"));
        CHECK(leases_by_key(db, "e2", "k", a, &got, err) == ERR_NOT_FOUND);
        CHECK(leases_by_key(db, "e1", NULL, a, &got, err) == ERR_NOT_FOUND);
        return 0;
}

static int lease_pages(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;

        /* b, c and d were used at one instant; then the one made last comes first, whatever its id.
         */
        static const struct {
                const char *id, *status;
                int64_t used, made;
        } rows[] = {
                { "a", "released", 10, 1 }, { "b", "active", 20, 4 }, { "c", "released", 20, 3 },
                { "d", "active", 20, 2 },   { "e", "active", 30, 5 },
        };

        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                struct lease l = a_lease(rows[i].id, rows[i].made);

                l.status = rows[i].status;
                l.last_used_at = rows[i].used;
                CHECK(leases_insert(db, &l, err) == 1);
        }
        CHECK_LIST("e b c d a",
                   leases_list(db, "e1", NULL, 0, NULL, 0, a, collect_lease, &ids, err));
        CHECK_LIST("e b", leases_list(db, "e1", NULL, 0, NULL, 2, a, collect_lease, &ids, err));
        CHECK_LIST("c d", leases_list(db, "e1", NULL, 20, "b", 2, a, collect_lease, &ids, err));
        CHECK_LIST("a", leases_list(db, "e1", NULL, 20, "d", 2, a, collect_lease, &ids, err));
        CHECK_LIST("", leases_list(db, "e1", NULL, 10, "a", 2, a, collect_lease, &ids, err));
        CHECK_LIST("e b d",
                   leases_list(db, "e1", "active", 0, NULL, 0, a, collect_lease, &ids, err));
        CHECK_LIST("", leases_list(db, "e2", NULL, 0, NULL, 0, a, collect_lease, &ids, err));
        return 0;
}

static int lease_stop(struct db *db, void *arg, struct err *err)
{
        struct ids ids = { "" };

        CHECK(leases_list(db, "e1", NULL, 0, NULL, 0, arg, stop_at_lease, &ids, err) ==
              ERR_CANCELLED);
        CHECK(same(ids.text, "e"));
        return 0;
}

static int lease_selections(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct lease l;
        struct agent g = an_agent("g1", 1);
        static const struct {
                const char *id, *status, *run, *place;
                int64_t expires;
        } rows[] = {
                { "a", "active", "r-ended", "p1", 100 },  { "b", "active", "r-going", "p1", 0 },
                { "c", "retained", "r-ended", "p2", 50 }, { "d", "released", "r-ended", "p1", 50 },
                { "e", "active", NULL, "p3", 101 },       { "f", "active", "r-unknown", "p3", 99 },
        };
        int64_t n;

        CHECK(agents_insert(db, &g, err) == 1);
        CHECK(db_exec(db,
                      "INSERT INTO heartbeat_runs (id, company_id, agent_id, status, created_at, "
                      "updated_at) VALUES ('r-ended', 'c1', 'g1', 'failed', 1, 1), "
                      "('r-going', 'c1', 'g1', 'running', 1, 1)",
                      DB_NO_ARGS, err) == 2);
        for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
                l = a_lease(rows[i].id, (int64_t)i + 1);
                l.status = rows[i].status;
                l.heartbeat_run_id = rows[i].run;
                l.place_id = rows[i].place;
                l.expires_at = rows[i].expires;
                CHECK(leases_insert(db, &l, err) == 1);
        }
        CHECK_LIST("a", ROWS(lease, leases_active_of_run(db, "r-ended", a, &found, err)));
        CHECK_LIST("", ROWS(lease, leases_active_of_run(db, "none", a, &found, err)));
        CHECK_LIST("a b c e f",
                   ROWS(lease, leases_living_of_environment(db, "e1", a, &found, err)));
        CHECK_LIST("f a", ROWS(lease, leases_expired(db, 100, a, &found, err)));
        CHECK_LIST("", ROWS(lease, leases_expired(db, 98, a, &found, err)));
        CHECK_LIST("a", ROWS(lease, leases_of_ended_runs(db, true, a, &found, err)));
        CHECK_LIST("", ROWS(lease, leases_of_ended_runs(db, false, a, &found, err)));
        CHECK(leases_count_living(db, "p1", NULL, &n, err) >= 0 && n == 2);
        CHECK(leases_count_living(db, "p1", "a", &n, err) >= 0 && n == 1);
        CHECK(leases_count_living(db, "p2", NULL, &n, err) >= 0 && n == 1);
        CHECK(leases_count_living(db, "none", NULL, &n, err) >= 0 && n == 0);
        CHECK(leases_shift_expiry(db, -10, err) == 3);
        CHECK_LIST("f a", ROWS(lease, leases_expired(db, 90, a, &found, err)));
        CHECK(leases_get(db, "b", a, &l, err) == 0 && l.expires_at == 0);
        CHECK(leases_get(db, "c", a, &l, err) == 0 && l.expires_at == 50);
        return 0;
}

static int add_status(void *ctx, const char *status, int64_t n)
{
        char text[64];

        snprintf(text, sizeof(text), "%s=%d", status, (int)n);
        return add_id(ctx, text);
}

static int lease_counts(struct db *db, void *arg, struct err *err)
{
        struct ids ids = { "" };

        CHECK(leases_count_by_status(db, arg, add_status, &ids, err) >= 0);
        CHECK(same(ids.text, "active=4 retained=1") || same(ids.text, "retained=1 active=4"));
        return 0;
}

static int lease_moves(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct lease l = a_lease("l1", 10), got;
        struct lease end = { .status = "released",
                             .released_at = 20,
                             .cleanup_status = "pending",
                             .updated_at = 21 };

        l.failure_reason = "kept";
        CHECK(leases_insert(db, &l, err) == 1);
        /* Renewing: while it is active and its time is not up. */
        CHECK(leases_renew(db, "l1", 11, 100, 11, err) == 1);
        CHECK(leases_get(db, "l1", a, &got, err) == 0 && got.expires_at == 100 &&
              got.last_used_at == 11 && got.updated_at == 11);
        CHECK(leases_renew(db, "l1", 100, 200, 100, err) == 0);
        CHECK(leases_renew(db, "l1", 99, 200, 99, err) == 1);
        CHECK(leases_renew(db, "none", 99, 200, 99, err) == 0);
        CHECK(leases_set_metadata(db, "l1", "{\"n\":1}", 12, err) == 1);
        CHECK(leases_set_metadata(db, "none", "{}", 12, err) == 0);
        CHECK(leases_get(db, "l1", a, &got, err) == 0 && same(got.metadata, "{\"n\":1}"));
        /* Nothing to clean up while it is in use. */
        CHECK(leases_set_cleanup(db, "p1", "success", 13, err) == 0);

        /* Ending: once, and by who saw the status it has. */
        CHECK(leases_end(db, "l1", "retained", &end, err) == 0);
        CHECK(leases_end(db, "l1", "active", &end, err) == 1);
        CHECK(leases_end(db, "l1", "active", &end, err) == 0);
        CHECK(leases_get(db, "l1", a, &got, err) == 0 && same(got.status, "released") &&
              got.released_at == 20 && got.updated_at == 21 && got.last_used_at == 21 &&
              same(got.failure_reason, "kept") && same(got.cleanup_status, "pending"));
        CHECK(leases_renew(db, "l1", 30, 300, 30, err) == 0);

        CHECK(leases_set_cleanup(db, "p2", "failed", 30, err) == 0);
        CHECK(leases_set_cleanup(db, "p1", "failed", 30, err) == 1);
        CHECK(leases_set_cleanup(db, "p1", "success", 31, err) == 1);
        CHECK(leases_set_cleanup(db, "p1", "failed", 32, err) == 0);
        CHECK(leases_get(db, "l1", a, &got, err) == 0 && same(got.cleanup_status, "success") &&
              got.updated_at == 31);
        return 0;
}

static void test_lease_fields_and_keys(void **state)
{
        struct store_fixture *f = *state;
        struct lease twice = a_lease("l2", 1);
        struct environment other = an_environment("e2", "ssh", 1);

        store_suite_write(f, store_suite_company, NULL);
        store_suite_write(f, lease_fields, &f->arena);
        twice.idempotency_key = "k";
        expect_conflict(f, insert_lease, &twice);
        twice.environment_id = "none";
        expect_conflict(f, insert_lease, &twice);
        store_suite_write(f, insert_environment, &other);
        twice.environment_id = "e2";
        store_suite_write(f, insert_lease, &twice);
}

static void test_lease_pages(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, store_suite_company, NULL);
        store_suite_write(f, lease_pages, &f->arena);
        store_suite_write(f, lease_stop, &f->arena);
}

static void test_lease_selections(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, store_suite_company, NULL);
        store_suite_write(f, lease_selections, &f->arena);
        store_suite_write(f, lease_counts, &f->arena);
}

static void test_lease_moves(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, store_suite_company, NULL);
        store_suite_write(f, lease_moves, &f->arena);
}

/* Activity */

static int activity_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct activity row = { .company_id = "c1",
                                .actor_type = "user",
                                .actor_id = "u",
                                .action = "did",
                                .entity_type = "thing",
                                .entity_id = "t1",
                                .details = "{}" };

        for (int i = 0; i < 4; i++) {
                row.id = (char[]){ (char)('a' + i), '\0' };
                row.created_at = i < 2 ? 10 : 20;
                row.agent_id = i % 2 ? "g1" : NULL;
                row.entity_type = i == 3 ? "other" : "thing";
                row.entity_id = i == 0 ? "t0" : "t1";
                CHECK(activity_insert(db, &row, err) == 1);
        }
        CHECK_LIST("d c b a", activity_list(db, "c1", NULL, NULL, NULL, NULL, 10, a,
                                            collect_activity, &ids, err));
        CHECK_LIST("d c", activity_list(db, "c1", NULL, NULL, NULL, NULL, 2, a, collect_activity,
                                        &ids, err));
        CHECK_LIST("d b", activity_list(db, "c1", "g1", NULL, NULL, NULL, 10, a, collect_activity,
                                        &ids, err));
        CHECK_LIST("c b a", activity_list(db, "c1", NULL, "thing", NULL, NULL, 10, a,
                                          collect_activity, &ids, err));
        CHECK_LIST("b", activity_list(db, "c1", "g1", "thing", "t1", NULL, 10, a, collect_activity,
                                      &ids, err));
        CHECK_LIST("", activity_list(db, "c2", NULL, NULL, NULL, NULL, 10, a, collect_activity,
                                     &ids, err));
        return 0;
}

static void test_activity(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, store_suite_company, NULL);
        store_suite_write(f, activity_rows, &f->arena);
}

/* Agents */

static int agent_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct agent full = { .id = "g1",
                              .company_id = "c1",
                              .name = "n",
                              .url_key = "u",
                              .role = "r",
                              .title = "t",
                              .icon = "i",
                              .status = "s",
                              .reports_to = "b",
                              .capabilities = "c",
                              .adapter_type = "a",
                              .adapter_config = "{\"a\":1}",
                              .runtime_config = "{\"b\":1}",
                              .permissions = "{\"c\":1}",
                              .default_environment_id = "e1",
                              .budget_monthly_cents = 1,
                              .spent_monthly_cents = 2,
                              .pause_reason = "p",
                              .paused_at = 3,
                              .last_heartbeat_at = 4,
                              .metadata = "{\"d\":1}",
                              .created_at = 50,
                              .updated_at = 60 };
        struct agent older = an_agent("g2", 10), got;
        struct agent_key k = { .id = "k1",
                               .agent_id = "g1",
                               .company_id = "c1",
                               .name = "key",
                               .token_sha256 = "t1",
                               .created_at = 2 };
        struct agent_key key;

        CHECK(agents_insert(db, &full, err) == 1 && agents_insert(db, &older, err) == 1);
        CHECK(agents_get(db, "g1", a, &got, err) == 0);
        CHECK(same(got.company_id, "c1") && same(got.name, "n") && same(got.url_key, "u") &&
              same(got.role, "r") && same(got.title, "t") && same(got.icon, "i") &&
              same(got.status, "s") && same(got.reports_to, "b") && same(got.capabilities, "c") &&
              same(got.adapter_type, "a") && same(got.adapter_config, "{\"a\":1}") &&
              same(got.runtime_config, "{\"b\":1}") && same(got.permissions, "{\"c\":1}") &&
              same(got.default_environment_id, "e1") && got.budget_monthly_cents == 1 &&
              got.spent_monthly_cents == 2 && same(got.pause_reason, "p") && got.paused_at == 3 &&
              got.last_heartbeat_at == 4 && same(got.metadata, "{\"d\":1}") &&
              got.created_at == 50 && got.updated_at == 60);
        CHECK(agents_get(db, "none", a, &got, err) == ERR_NOT_FOUND);
        CHECK(same(err->msg, "Agent not found"));
        CHECK_LIST("g2 g1", agents_list(db, "c1", a, collect_agent, &ids, err));
        CHECK_LIST("", agents_list(db, "c2", a, collect_agent, &ids, err));
        CHECK(agents_set_permissions(db, "g1", "{}", 61, err) == 1);
        CHECK(agents_set_permissions(db, "none", "{}", 61, err) == 0);
        CHECK(agents_get(db, "g1", a, &got, err) == 0 && same(got.permissions, "{}") &&
              got.updated_at == 61);

        CHECK(agent_keys_insert(db, &k, err) == 1);
        k.id = "k0";
        k.token_sha256 = "t0";
        CHECK(agent_keys_insert(db, &k, err) == 1);
        CHECK_LIST("k0 k1", agent_keys_list(db, "g1", a, collect_agent_key, &ids, err));
        CHECK_LIST("", agent_keys_list(db, "g2", a, collect_agent_key, &ids, err));
        CHECK(agent_keys_by_token(db, "t1", a, &key, err) == 0);
        CHECK(same(key.id, "k1") && same(key.agent_id, "g1") && same(key.company_id, "c1") &&
              same(key.name, "key") && key.revoked_at == 0 && key.created_at == 2);
        CHECK(agent_keys_by_token(db, "none", a, &key, err) == ERR_NOT_FOUND);
        CHECK(agent_keys_revoke(db, "g2", "k1", 70, err) == 0);
        CHECK(agent_keys_by_token(db, "t1", a, &key, err) == 0);
        CHECK(agent_keys_revoke(db, "g1", "k1", 70, err) == 1);
        CHECK(agent_keys_by_token(db, "t1", a, &key, err) == ERR_NOT_FOUND);
        CHECK(agent_keys_by_token(db, "t0", a, &key, err) == 0);
        CHECK_LIST("k0 k1", agent_keys_list(db, "g1", a, collect_agent_key, &ids, err));
        return 0;
}

static void test_agents(void **state)
{
        struct store_fixture *f = *state;
        struct agent lost = an_agent("g9", 1);
        struct agent_key twice = { .id = "k9",
                                   .agent_id = "g1",
                                   .company_id = "c1",
                                   .name = "key",
                                   .token_sha256 = "t1",
                                   .created_at = 1 };

        store_suite_write(f, store_suite_company, NULL);
        store_suite_write(f, agent_rows, &f->arena);
        expect_conflict(f, insert_agent_key, &twice);
        lost.default_environment_id = "none";
        expect_conflict(f, insert_agent, &lost);
}

/* Identity */

static int user_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct user u = { .id = "u1",
                          .name = "Ann",
                          .email = "a@example.org",
                          .is_instance_admin = true,
                          .created_at = 10,
                          .updated_at = 11 };
        struct user got;

        CHECK(users_put(db, &u, err) == 1);
        u.name = "Anna";
        u.email = "ignored";
        u.is_instance_admin = false;
        u.created_at = 99;
        u.updated_at = 12;
        CHECK(users_put(db, &u, err) == 1);
        CHECK(users_get(db, "u1", a, &got, err) == 0);
        CHECK(same(got.name, "Anna") && same(got.email, "a@example.org") &&
              !got.is_instance_admin && got.created_at == 10 && got.updated_at == 12);
        u = (struct user){ .id = "u0", .name = "Anna", .created_at = 5, .updated_at = 5 };
        CHECK(users_put(db, &u, err) == 1);
        CHECK(users_find_by_name(db, "Anna", a, &got, err) == 0 && same(got.id, "u0"));
        CHECK(users_find_by_name(db, "anna", a, &got, err) == ERR_NOT_FOUND);
        CHECK(users_get(db, "none", a, &got, err) == ERR_NOT_FOUND);
        CHECK(same(err->msg, "User not found"));
        return 0;
}

static int membership_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct membership m = { .id = "m1",
                                .company_id = "c1",
                                .principal_type = "user",
                                .principal_id = "u1",
                                .role = "owner",
                                .status = "active",
                                .created_at = 20,
                                .updated_at = 20 };
        struct membership got;

        CHECK(memberships_put(db, &m, err) == 1);
        m.id = "ignored";
        m.role = "member";
        m.status = "suspended";
        m.updated_at = 21;
        CHECK(memberships_put(db, &m, err) == 1);
        CHECK(memberships_get(db, "c1", "user", "u1", a, &got, err) == 0);
        CHECK(same(got.id, "m1") && same(got.role, "member") && same(got.status, "suspended") &&
              got.created_at == 20 && got.updated_at == 21);
        CHECK(memberships_get(db, "c1", "agent", "u1", a, &got, err) == ERR_NOT_FOUND);
        CHECK(memberships_by_id(db, "c1", "m1", a, &got, err) == 0 && same(got.principal_id, "u1"));
        CHECK(memberships_by_id(db, "c2", "m1", a, &got, err) == ERR_NOT_FOUND);
        m = (struct membership){ .id = "m2",
                                 .company_id = "c1",
                                 .principal_type = "user",
                                 .principal_id = "u2",
                                 .role = "member",
                                 .status = "active",
                                 .created_at = 10,
                                 .updated_at = 10 };
        CHECK(memberships_put(db, &m, err) == 1);
        m.id = "m3";
        m.principal_type = "agent";
        CHECK(memberships_put(db, &m, err) == 1);
        CHECK_LIST("m2 m3 m1", memberships_of_company(db, "c1", a, collect_membership, &ids, err));
        CHECK_LIST("m2", memberships_of_user(db, "u2", a, collect_membership, &ids, err));
        CHECK_LIST("", memberships_of_user(db, "none", a, collect_membership, &ids, err));
        return 0;
}

static int add_grant(void *ctx, const char *permission, const char *scope)
{
        char text[64];

        snprintf(text, sizeof(text), "%s:%s", permission, scope ? scope : "-");
        return add_id(ctx, text);
}

static int grant_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        bool has = true;

        CHECK(grants_put(db, "c1", "user", "u2", "b", NULL, 1, err) == 1);
        CHECK(grants_put(db, "c1", "user", "u2", "a", "{}", 1, err) == 1);
        CHECK(grants_put(db, "c1", "user", "u2", "b", "{\"x\":1}", 2, err) == 1);
        CHECK(grants_put(db, "c1", "user", "u1", "a", NULL, 1, err) == 1);
        CHECK_LIST("a:{} b:{\"x\":1}",
                   grants_list(db, "c1", "user", "u2", a, add_grant, &ids, err));
        CHECK(grants_has(db, "c1", "user", "u2", "a", &has, err) == 0 && has);
        CHECK(grants_has(db, "c1", "user", "u2", "none", &has, err) == 0 && !has);
        /* u1 is suspended, and nobody is a member of another company. */
        CHECK(grants_has(db, "c1", "user", "u1", "a", &has, err) == 0 && !has);
        CHECK(grants_has(db, "c2", "user", "u2", "a", &has, err) == 0 && !has);
        CHECK(grants_clear(db, "c1", "user", "u2", err) == 2);
        CHECK(grants_clear(db, "c1", "user", "u2", err) == 0);
        CHECK_LIST("", grants_list(db, "c1", "user", "u2", a, add_grant, &ids, err));
        CHECK_LIST("a:-", grants_list(db, "c1", "user", "u1", a, add_grant, &ids, err));
        return 0;
}

static int board_key_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct board_key k = { .id = "k1",
                               .user_id = "u1",
                               .name = "key",
                               .token_sha256 = "t1",
                               .expires_at = 100,
                               .created_at = 2 };
        struct board_key got;

        CHECK(board_keys_insert(db, &k, err) == 1);
        k = (struct board_key){
                .id = "k2", .user_id = "u0", .name = "key", .token_sha256 = "t2", .created_at = 1
        };
        CHECK(board_keys_insert(db, &k, err) == 1);
        CHECK_LIST("k2 k1", board_keys_list(db, NULL, a, collect_board_key, &ids, err));
        CHECK_LIST("k1", board_keys_list(db, "u1", a, collect_board_key, &ids, err));
        CHECK(board_keys_by_token(db, "t1", 99, a, &got, err) == 0);
        CHECK(same(got.id, "k1") && same(got.user_id, "u1") && same(got.name, "key") &&
              got.expires_at == 100 && got.created_at == 2);
        CHECK(board_keys_by_token(db, "t1", 100, a, &got, err) == ERR_NOT_FOUND);
        CHECK(board_keys_by_token(db, "t2", INT64_MAX, a, &got, err) == 0);
        CHECK(board_keys_by_token(db, "none", 1, a, &got, err) == ERR_NOT_FOUND);
        CHECK(board_keys_revoke(db, "k2", "u1", 50, err) == 0);
        CHECK(board_keys_revoke(db, "k2", NULL, 50, err) == 1);
        CHECK(board_keys_revoke(db, "k1", "u1", 50, err) == 1);
        CHECK(board_keys_revoke(db, "none", NULL, 50, err) == 0);
        CHECK(board_keys_by_token(db, "t2", 51, a, &got, err) == ERR_NOT_FOUND);
        return 0;
}

static struct cli_challenge a_challenge(const char *id, int64_t expires_at)
{
        return (struct cli_challenge){ .id = id,
                                       .secret_sha256 = "s",
                                       .board_token_sha256 = "t",
                                       .command = "berth login",
                                       .client_name = "cli",
                                       .requested_access = "board",
                                       .requested_company_id = "c1",
                                       .expires_at = expires_at,
                                       .created_at = 1 };
}

static int challenge_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct cli_challenge c, got;
        int64_t n;

        for (int i = 0; i < 3; i++) {
                c = a_challenge((char[]){ (char)('a' + i), '\0' }, 100 + i);
                CHECK(challenges_insert(db, &c, err) == 1);
        }
        CHECK(challenges_get(db, "a", a, &got, err) == 0);
        CHECK(same(got.secret_sha256, "s") && same(got.board_token_sha256, "t") &&
              same(got.command, "berth login") && same(got.client_name, "cli") &&
              same(got.requested_access, "board") && same(got.requested_company_id, "c1") &&
              !got.board_api_key_id && !got.approved_by_user_id && got.approved_at == 0 &&
              got.cancelled_at == 0 && got.expires_at == 100 && got.created_at == 1);
        CHECK(challenges_get(db, "none", a, &got, err) == ERR_NOT_FOUND);
        CHECK(same(err->msg, "CLI auth challenge not found"));

        /* Pending to approved or cancelled, once, and only in time. */
        CHECK(challenges_approve(db, "a", "u1", "k1", 100, err) == 0);
        CHECK(challenges_approve(db, "a", "u1", "k1", 99, err) == 1);
        CHECK(challenges_approve(db, "a", "u1", "k1", 99, err) == 0);
        CHECK(challenges_cancel(db, "a", 99, err) == 0);
        CHECK(challenges_get(db, "a", a, &got, err) == 0 && got.approved_at == 99 &&
              same(got.approved_by_user_id, "u1") && same(got.board_api_key_id, "k1"));
        CHECK(challenges_cancel(db, "b", 101, err) == 0);
        CHECK(challenges_cancel(db, "b", 100, err) == 1);
        CHECK(challenges_approve(db, "b", "u1", "k1", 100, err) == 0);
        CHECK(challenges_get(db, "b", a, &got, err) == 0 && got.cancelled_at == 100);

        CHECK(challenges_count_open(db, 101, &n, err) >= 0 && n == 1);
        CHECK(challenges_prune(db, 101, err) == 1);
        CHECK(challenges_get(db, "a", a, &got, err) == ERR_NOT_FOUND);
        CHECK(challenges_get(db, "b", a, &got, err) == 0);
        return 0;
}

static void test_identity(void **state)
{
        struct store_fixture *f = *state;
        struct board_key twice = {
                .id = "k9", .user_id = "u1", .name = "key", .token_sha256 = "t1", .created_at = 1
        };

        store_suite_write(f, store_suite_company, NULL);
        store_suite_write(f, user_rows, &f->arena);
        store_suite_write(f, membership_rows, &f->arena);
        store_suite_write(f, grant_rows, &f->arena);
        store_suite_write(f, board_key_rows, &f->arena);
        expect_conflict(f, insert_board_key, &twice);
        twice.token_sha256 = "t9";
        twice.user_id = "none";
        expect_conflict(f, insert_board_key, &twice);
        store_suite_write(f, challenge_rows, &f->arena);
}

/* Settings */

static int settings_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct instance_settings s;

        CHECK(settings_get(db, a, &s, err) == 0 && same(s.general, "{}") &&
              same(s.experimental, "{}"));
        s = (struct instance_settings){ "{\"a\":1}", "{\"b\":2}" };
        CHECK(settings_put(db, &s, 1, err) == 1);
        s.general = "{\"a\":3}";
        CHECK(settings_put(db, &s, 2, err) == 1);
        CHECK(settings_get(db, a, &s, err) == 0 && same(s.general, "{\"a\":3}") &&
              same(s.experimental, "{\"b\":2}"));
        return 0;
}

static void test_settings(void **state)
{
        struct store_fixture *f = *state;

        store_suite_write(f, settings_rows, &f->arena);
        assert_int_equal(store_suite_count(f, "SELECT COUNT(*) FROM instance_settings"), 1);
}

#define ROW_TEST(name)                                                                             \
        cmocka_unit_test_setup_teardown(name, store_suite_setup, store_suite_teardown)

int store_suite_run_rows(void)
{
        const struct CMUnitTest tests[] = {
                ROW_TEST(test_companies),
                ROW_TEST(test_environments),
                ROW_TEST(test_references),
                ROW_TEST(test_places),
                ROW_TEST(test_lease_fields_and_keys),
                ROW_TEST(test_lease_pages),
                ROW_TEST(test_lease_selections),
                ROW_TEST(test_lease_moves),
                ROW_TEST(test_activity),
                ROW_TEST(test_agents),
                ROW_TEST(test_identity),
                ROW_TEST(test_settings),
        };

        return cmocka_run_group_tests_name("rows", tests, NULL, NULL);
}
