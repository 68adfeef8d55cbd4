/* Tables of columns against the schema that all migrations make, and the SQL that is made of them.
 */
#include "store_read.h"
#include "test.h"

#include <unistd.h>

#include "store/activity.h"
#include "store/agent_state.h"
#include "store/agents.h"
#include "store/clock_marks.h"
#include "store/companies.h"
#include "store/environments.h"
#include "store/execution_workspaces.h"
#include "store/executions.h"
#include "store/home.h"
#include "store/identity.h"
#include "store/images.h"
#include "store/issue_comments.h"
#include "store/issue_documents.h"
#include "store/issues.h"
#include "store/leases.h"
#include "store/places.h"
#include "store/plugins.h"
#include "store/project_workspaces.h"
#include "store/projects.h"
#include "store/row.h"
#include "store/run_commands.h"
#include "store/run_decisions.h"
#include "store/run_events.h"
#include "store/runs.h"
#include "store/salvages.h"
#include "store/sandboxes.h"
#include "store/secret_bindings.h"
#include "store/secrets.h"
#include "store/snapshots.h"
#include "store/store.h"
#include "store/vault_configs.h"
#include "store/wakeups.h"
#include "store/workspaces.h"

static const struct row_type *const described[] = {
        &activity_table,
        &agent_config_revision_table,
        &agent_key_table,
        &agent_runtime_state_table,
        &agent_table,
        &agent_task_session_table,
        &board_key_table,
        &cli_challenge_table,
        &clock_mark_table,
        &company_table,
        &environment_table,
        &execution_table,
        &execution_workspace_table,
        &home_table,
        &image_layer_table,
        &image_table,
        &issue_comment_table,
        &issue_document_revision_table,
        &issue_document_table,
        &issue_table,
        &lease_table,
        &membership_table,
        &output_to_remove_table,
        &place_table,
        &plugin_config_table,
        &plugin_install_table,
        &plugin_table,
        &project_table,
        &project_workspace_table,
        &run_command_table,
        &run_decision_table,
        &run_event_table,
        &run_table,
        &salvage_table,
        &sandbox_table,
        &secret_binding_table,
        &secret_event_table,
        &secret_table,
        &secret_version_table,
        &snapshot_table,
        &user_table,
        &vault_table,
        &wakeup_table,
        &workspace_table,
};

/* What has no column in a struct; without a name, the whole table. */
static const struct {
        const char *table, *column, *why;
} left_out[] = {
        { "agent_api_keys", "last_used_at", "nothing writes it" },
        { "company_secret_versions", "rotation_job_id", "nothing writes it" },
        { "agent_schedules", NULL, "read together with the agent (wakeups.c)" },
        { "disk_reserve", NULL, "one row that only takes room" },
        { "image_parts", NULL, "which layers an image has, read as the layers" },
        { "instance_settings", NULL, "documents by name, of two kinds (settings.c)" },
        { "issue_blockers", NULL, "pairs of ids, read as the issues" },
        { "permission_grants", NULL, "read as pairs of a name and a scope" },
        { "schema_migrations", NULL, "migrate.c has it to itself" },
};

static bool is_left_out(const char *table, const char *column)
{
        for (size_t i = 0; i < ARRAY_LEN(left_out); i++)
                if (streq(left_out[i].table, table) &&
                    (!left_out[i].column || (column && streq(left_out[i].column, column))))
                        return true;
        return false;
}

static const struct row_type *find_type(const char *table)
{
        for (size_t i = 0; i < ARRAY_LEN(described); i++)
                if (streq(described[i]->table, table))
                        return described[i];
        return NULL;
}

static const struct column *find_column(const struct row_type *type, const char *name)
{
        for (size_t i = 0; i < type->n_columns; i++) {
                const struct column *c = &type->columns[i];

                if (streq(c->sql ? c->sql : c->member, name))
                        return c;
        }
        return NULL;
}

struct schema {
        struct arena arena;
        size_t n_columns, n_wrong;
};

static void wrong(struct schema *s, const char *table, const char *column, const char *what)
{
        print_error("%s.%s: %s\n", table, column, what);
        s->n_wrong++;
}

static void compare(struct schema *s, const char *table, const char *name, bool is_text,
                    bool may_be_null)
{
        const struct row_type *type = find_type(table);
        const struct column *c = type ? find_column(type, name) : NULL;

        s->n_columns++;
        if (!c && !is_left_out(table, name))
                wrong(s, table, name, "has no column in a struct, and is not listed as left out");
        if (c && is_left_out(table, name))
                wrong(s, table, name, "is listed as left out, and is not");
        if (!c)
                return;
        if (is_text != (c->type == COLUMN_TEXT || c->type == COLUMN_DOCUMENT))
                wrong(s, table, name, "text here, a number there");
        /* A NULL that reads as 0 would be written as 0. */
        if (may_be_null &&
            (c->type == COLUMN_NUMBER || c->type == COLUMN_TIME || c->type == COLUMN_FLAG))
                wrong(s, table, name, "may be NULL in the database only");
        if (!may_be_null && (c->type == COLUMN_NUMBER_OR_NULL || c->type == COLUMN_TIME_OR_NULL ||
                             c->type == COLUMN_CODE))
                wrong(s, table, name, "may be NULL in the struct only");
}

static int compare_schema(struct db *db, void *arg, struct err *err)
{
        CLEAN(stmt_end) struct stmt *q = NULL;
        struct schema *s = arg;
        int r = db_query(db,
                         "SELECT t.name, c.name, c.type, c.\"notnull\" OR c.pk > 0 "
                         "FROM sqlite_schema t, pragma_table_info(t.name) c "
                         "WHERE t.type = 'table' AND t.name NOT LIKE 'sqlite_%'",
                         DB_NO_ARGS, &q, err);

        while (r >= 0 && (r = stmt_step(q, err)) > 0)
                compare(s, stmt_text(q, 0, &s->arena), stmt_text(q, 1, &s->arena),
                        streq(stmt_text(q, 2, &s->arena), "TEXT"), stmt_number(q, 3) == 0);
        return r;
}

/* Every column of the schema is in a table with the right type, or left out for a reason. */
static void test_the_schema(void **state)
{
        char scratch[SCRATCH_PATH_MAX], path[SCRATCH_PATH_MAX + 16];
        struct schema s = { 0 };
        struct op op = { .arena = &s.arena, .deadline_ms = OP_NO_DEADLINE };
        struct store *store = NULL;
        struct err err = { 0 };

        (void)state;
        arena_init(&s.arena);
        make_scratch(scratch);
        snprintf(path, sizeof(path), "%s/berth.db", scratch);
        assert_int_equal(store_open(path, &store, &err), 0);
        assert_int_equal(store_read(&op, store, compare_schema, &s, &err), 0);
        store_close(store);
        unlink(path);
        assert_int_equal(rmdir(scratch), 0);
        arena_done(&s.arena);
        assert_true(s.n_columns > 400);
        assert_int_equal(s.n_wrong, 0);
}

/* A member without a column would always be read as 0. Members are 8 bytes each, but for flags. */
static void test_every_member_has_a_column(void **state)
{
        (void)state;
        for (size_t t = 0; t < ARRAY_LEN(described); t++)
                for (size_t at = 0; at < described[t]->size; at += 8) {
                        bool found = false;

                        for (size_t i = 0; i < described[t]->n_columns; i++)
                                found |= described[t]->columns[i].offset / 8 == at / 8;
                        if (!found)
                                fail_msg("%s: the member at %zu has no column", described[t]->table,
                                         at);
                }
}

static void test_a_column_stands_once(void **state)
{
        (void)state;
        for (size_t t = 0; t < ARRAY_LEN(described); t++)
                for (size_t i = 0; i < described[t]->n_columns; i++)
                        for (size_t j = 0; j < i; j++) {
                                const struct column *a = &described[t]->columns[i];
                                const struct column *b = &described[t]->columns[j];

                                assert_int_not_equal(a->offset, b->offset);
                                if (a->json && b->json)
                                        assert_string_not_equal(a->json, b->json);
                        }
}

/* -- SQL -------------------------------------------------------------------------------------- */

struct thing {
        const char *id, *name;
        int64_t uses, seen_at, code;
        bool is_old;
};

static const struct column columns[] = {
        TEXT(struct thing, id, "id", FIXED),
        TEXT(struct thing, name, "name", .sql = "label"),
        NUMBER(struct thing, uses, NULL, READ_ONLY, .sql = "(SELECT COUNT(*) FROM uses)"),
        TIME_OR_NULL(struct thing, seen_at),
        CODE(struct thing, code, NULL, OWN_GROUP),
        FLAG(struct thing, is_old),
};
static const struct row_type things = ROW_TYPE("things", struct thing, columns, "Thing not found");
static const struct row_type codes =
        ROW_TYPE("things", struct thing, columns, "Thing not found", .group = OWN_GROUP);

static void expect(const struct row_type *type, const char *text, size_t n_args, const char *sql)
{
        char *made = row_sql(type, text, n_args);

        assert_string_equal(made, sql);
        free(made);
}

static void test_sql(void **state)
{
        (void)state;
        expect(&things, "SELECT * FROM things WHERE id = ?1 AND (SELECT COUNT(*) FROM uses) > 1", 1,
               "SELECT id, label, (SELECT COUNT(*) FROM uses), seen_at, code, is_old FROM things "
               "WHERE id = ?1 AND (SELECT COUNT(*) FROM uses) > 1");
        expect(&things, "INSERT", 5,
               "INSERT INTO things (id, label, seen_at, code, is_old) VALUES (?1, ?2, ?3, ?4, ?5)");
        expect(&things, "INSERT INTO things (*) ON CONFLICT (id) DO UPDATE SET label = ?1", 6,
               "INSERT INTO things (id, label, seen_at, code, is_old) VALUES (?2, ?3, ?4, ?5, ?6) "
               "ON CONFLICT (id) DO UPDATE SET label = ?1");
        expect(&things, "UPDATE things SET * WHERE id = ?1 AND code = ?2", 5,
               "UPDATE things SET label = ?3, seen_at = ?4, is_old = ?5 "
               "WHERE id = ?1 AND code = ?2");
        expect(&codes, "UPDATE things SET *, seen_at = ?2 WHERE id = ?1", 3,
               "UPDATE things SET code = ?3, seen_at = ?2 WHERE id = ?1");
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_the_schema),
                cmocka_unit_test(test_every_member_has_a_column),
                cmocka_unit_test(test_a_column_stands_once),
                cmocka_unit_test(test_sql),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
