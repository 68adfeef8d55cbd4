/* The tables of what agents work on: every write that compares before it sets, with its edge. */
#include "store_suite.h"

#include "store/agent_state.h"
#include "store/agents.h"
#include "store/issue_comments.h"
#include "store/issue_documents.h"
#include "store/issues.h"
#include "store/projects.h"

COLLECT(issue)
COLLECT(issue_comment)
COLLECT(issue_document)
COLLECT(issue_document_revision)
COLLECT(project)
COLLECT(agent_config_revision)

static struct agent an_agent(const char *id, const char *url_key)
{
        return (struct agent){ .id = id,
                               .company_id = "c1",
                               .name = id,
                               .url_key = url_key,
                               .role = "general",
                               .status = "idle",
                               .adapter_type = "process",
                               .adapter_config = "{}",
                               .runtime_config = "{}",
                               .permissions = "{}",
                               .created_at = 1,
                               .updated_at = 1 };
}

static int insert_agent(struct db *db, const char *id, const char *url_key, struct err *err)
{
        struct agent g = an_agent(id, url_key);

        return agents_insert(db, &g, err);
}

static struct issue an_issue(const char *id, int64_t number, const char *identifier)
{
        return (struct issue){ .id = id,
                               .company_id = "c1",
                               .identifier = identifier,
                               .title = id,
                               .status = "todo",
                               .work_mode = "standard",
                               .priority = "medium",
                               .origin_kind = "manual",
                               .number = number,
                               .created_at = number,
                               .updated_at = number };
}

static int insert_issue(struct db *db, const char *id, int64_t number, const char *identifier,
                        const char *parent, struct err *err)
{
        struct issue i = an_issue(id, number, identifier);

        i.parent_id = parent;
        return issues_insert(db, &i, err);
}

/* Every member comes back, and the write compares all four that say whose it is. */
static int issue_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct issue i = an_issue("i1", 1, "X-1"), seen, got, other;
        int64_t n;
        const char *identifier;

        CHECK(insert_agent(db, "g1", "a", err) == 1);
        CHECK(issues_next_number(db, "c1", a, &n, &identifier, err) >= 0 && n == 1);
        CHECK(issues_next_number(db, "c1", a, &n, &identifier, err) >= 0 && n == 2);
        CHECK(issues_next_number(db, "none", a, &n, &identifier, err) == ERR_NOT_FOUND);
        i.description = "d";
        i.assignee_agent_id = "g1";
        i.checkout_run_id = "r1";
        i.execution_run_id = "r2";
        i.created_by_user_id = "u";
        i.billing_code = "b";
        i.execution_policy = "{\"p\":1}";
        i.execution_workspace_settings = "{\"s\":1}";
        i.request_depth = 3;
        i.started_at = 4;
        i.hidden_at = 5;
        CHECK(issues_insert(db, &i, err) == 1);
        CHECK(issues_get(db, "x-1", a, &got, err) == 0 && same(got.id, "i1"));
        CHECK(issues_get(db, "none", a, &got, err) == ERR_NOT_FOUND);
        CHECK(same(err->msg, "Issue not found"));
        CHECK(issues_get(db, "i1", a, &seen, err) == 0);
        CHECK(same(seen.description, "d") && same(seen.assignee_agent_id, "g1") &&
              same(seen.checkout_run_id, "r1") && same(seen.execution_run_id, "r2") &&
              same(seen.created_by_user_id, "u") && same(seen.billing_code, "b") &&
              same(seen.execution_policy, "{\"p\":1}") &&
              same(seen.execution_workspace_settings, "{\"s\":1}") && seen.request_depth == 3 &&
              seen.started_at == 4 && seen.hidden_at == 5 && seen.number == 1);
        got = seen;
        got.title = "new";
#define REFUSED(member, value)                                                                     \
        do {                                                                                       \
                other = seen;                                                                      \
                other.member = value;                                                              \
                CHECK(issues_update(db, &got, &other, err) == 0);                                  \
        } while (0)
        REFUSED(status, "done");
        REFUSED(assignee_agent_id, NULL);
        REFUSED(assignee_user_id, "u");
        REFUSED(checkout_run_id, NULL);
        REFUSED(execution_run_id, "r1");
#undef REFUSED
        CHECK(issues_update(db, &got, &seen, err) == 1);
        CHECK(issues_get(db, "i1", a, &got, err) == 0 && same(got.title, "new"));
        return 0;
}

static int relation_rows(struct db *db, void *arg, struct err *err)
{
        struct issue_filter filter = { .company_id = "c1", .limit = 10 };
        struct arena *a = arg;
        bool reached;

        CHECK(insert_issue(db, "i1", 1, "X-1", NULL, err) == 1);
        CHECK(insert_issue(db, "i2", 2, "X-2", "i1", err) == 1);
        CHECK(insert_issue(db, "i3", 3, "X-3", "i2", err) == 1);
        CHECK_LIST("i2 i1", issues_ancestors(db, "i3", a, collect_issue, &ids, err));
        CHECK_LIST("", issues_ancestors(db, "i1", a, collect_issue, &ids, err));
        CHECK_LIST("i3 i2 i1", issues_list(db, &filter, a, collect_issue, &ids, err));
        filter.descendant_of = "i1";
        CHECK_LIST("i3 i2", issues_list(db, &filter, a, collect_issue, &ids, err));
        filter.text = "x\\_%";
        CHECK_LIST("", issues_list(db, &filter, a, collect_issue, &ids, err));
        CHECK(issue_blockers_put(db, "i1", "i2", 1, err) == 1);
        CHECK(issue_blockers_put(db, "i1", "i2", 1, err) == 0);
        CHECK(issue_blockers_put(db, "i2", "i3", 1, err) == 1);
        CHECK_LIST("i2", issue_blockers_list(db, "i1", false, a, collect_issue, &ids, err));
        CHECK_LIST("i1", issue_blockers_list(db, "i2", true, a, collect_issue, &ids, err));
        CHECK(issue_blockers_reach(db, "i1", "i3", &reached, err) >= 0 && reached);
        CHECK(issue_blockers_reach(db, "i3", "i1", &reached, err) >= 0 && !reached);
        CHECK(issue_blockers_clear(db, "i1", err) == 1);
        CHECK(issue_blockers_reach(db, "i1", "i3", &reached, err) >= 0 && !reached);
        return 0;
}

static int record_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct issue_comment c = { .id = "m1",
                                   .company_id = "c1",
                                   .issue_id = "i1",
                                   .author_type = "user",
                                   .body = "b",
                                   .created_at = 5,
                                   .updated_at = 5 };
        struct issue_comment got;
        struct issue_document d = { .id = "d1",
                                    .company_id = "c1",
                                    .issue_id = "i1",
                                    .key = "plan",
                                    .format = "markdown",
                                    .body = "one",
                                    .latest_revision_id = "v1",
                                    .latest_revision_number = 1,
                                    .created_at = 1,
                                    .updated_at = 1 };
        struct issue_document_revision v = {
                .id = "v1", .document_id = "d1", .number = 1, .format = "markdown", .body = "one"
        };
        int64_t n;

        CHECK(insert_issue(db, "i1", 1, "X-1", NULL, err) == 1);
        CHECK(insert_issue(db, "i2", 2, "X-2", NULL, err) == 1);
        CHECK(issue_comments_insert(db, &c, err) == 1);
        c.id = "m0"; /* the same time: the id decides */
        CHECK(issue_comments_insert(db, &c, err) == 1);
        CHECK_LIST("m0 m1", issue_comments_list(db, "i1", NULL, false, 9, a, collect_issue_comment,
                                                &ids, err));
        CHECK_LIST("m1", issue_comments_list(db, "i1", &c, false, 9, a, collect_issue_comment, &ids,
                                             err));
        CHECK_LIST("",
                   issue_comments_list(db, "i1", &c, true, 9, a, collect_issue_comment, &ids, err));
        CHECK(issue_comments_count(db, "i1", a, &n, &got, err) >= 0 && n == 2 &&
              same(got.id, "m1"));
        CHECK(issue_comments_get(db, "i2", "m1", a, &got, err) == ERR_NOT_FOUND);
        CHECK(issue_documents_insert(db, &d, err) == 1);
        CHECK(issue_document_revisions_insert(db, &v, err) == 1);
        d.latest_revision_id = "v2";
        d.latest_revision_number = 2;
        CHECK(issue_documents_update(db, &d, "v0", err) == 0);
        CHECK(issue_documents_update(db, &d, "v1", err) == 1);
        v.id = "v2";
        v.number = 2;
        CHECK(issue_document_revisions_insert(db, &v, err) == 1);
        CHECK_LIST("v2 v1", issue_document_revisions_list(
                                    db, "d1", a, collect_issue_document_revision, &ids, err));
        CHECK_LIST("d1", issue_documents_list(db, "i1", a, collect_issue_document, &ids, err));
        CHECK(issue_documents_get(db, "i2", "plan", a, &d, err) == ERR_NOT_FOUND);
        return 0;
}

static int agent_rows(struct db *db, void *arg, struct err *err)
{
        struct arena *a = arg;
        struct agent g, got;
        struct project p = {
                .id = "p1", .company_id = "c1", .name = "P", .url_key = "p", .status = "active"
        };
        struct agent_config_revision v = { .id = "v1",
                                           .company_id = "c1",
                                           .agent_id = "g1",
                                           .source = "patch",
                                           .changed_keys = "[]",
                                           .before_config = "{}",
                                           .after_config = "{}" };
        struct agent_runtime_state state;

        CHECK(insert_agent(db, "g1", "ada", err) == 1 && insert_agent(db, "g2", "ada", err) == 1);
        CHECK(agents_find(db, "c1", "ada", a, &got, err) == ERR_CONFLICT);
        CHECK(agents_get(db, "g2", a, &g, err) == 0);
        g.status = "terminated";
        CHECK(agents_update(db, &g, "paused", err) == 0);
        CHECK(agents_update(db, &g, "idle", err) == 1);
        CHECK(agents_find(db, "c1", "ada", a, &got, err) == 0 && same(got.id, "g1"));
        CHECK(agents_find(db, "c1", "bob", a, &got, err) == ERR_NOT_FOUND);
        CHECK(agent_runtime_state_get(db, "g1", a, &state, err) == ERR_NOT_FOUND);
        CHECK(agent_runtime_state_reset(db, "g1", NULL, 1, err) >= 0);
        CHECK(agent_config_revisions_insert(db, &v, err) == 1);
        CHECK_LIST("v1", agent_config_revisions_list(db, "g1", a, collect_agent_config_revision,
                                                     &ids, err));
        CHECK(agent_config_revisions_get(db, "g2", "v1", a, &v, err) == ERR_NOT_FOUND);
        CHECK(projects_insert(db, &p, err) == 1);
        p.id = "p2";
        CHECK(projects_insert(db, &p, err) == 1);
        CHECK(projects_find(db, "c1", "p", a, &p, err) == ERR_CONFLICT);
        p.id = "p2";
        p.url_key = "q";
        CHECK(projects_update(db, &p, err) == 1);
        CHECK(projects_find(db, "c1", "q", a, &p, err) == 0 && same(p.id, "p2"));
        CHECK_LIST("p1 p2", projects_list(db, "c1", a, collect_project, &ids, err));
        return 0;
}

static void run(void **state, store_fn fn)
{
        struct store_fixture *f = *state;

        store_suite_write(f, store_suite_company, NULL);
        store_suite_write(f, fn, &f->arena);
}

static void test_issues(void **state)
{
        run(state, issue_rows);
}

static void test_relations(void **state)
{
        run(state, relation_rows);
}

static void test_records(void **state)
{
        run(state, record_rows);
}

static void test_agents_and_projects(void **state)
{
        run(state, agent_rows);
}

#define WORK_TEST(name)                                                                            \
        cmocka_unit_test_setup_teardown(name, store_suite_setup, store_suite_teardown)

int store_suite_run_work(void)
{
        const struct CMUnitTest tests[] = {
                WORK_TEST(test_issues),
                WORK_TEST(test_relations),
                WORK_TEST(test_records),
                WORK_TEST(test_agents_and_projects),
        };

        return cmocka_run_group_tests_name("work", tests, NULL, NULL);
}
