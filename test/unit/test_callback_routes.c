#include "test.h"

#include "core/callbacks/callback_routes.h"

struct pair {
        const char *method, *path;
};

/* remote-execution 8.34, and the later additions */
static const struct pair allowed[] = {
        { "GET", "/api/agents/me" },
        { "GET", "/api/agents/me/inbox-lite" },
        { "GET", "/api/agents/me/inbox/mine" },
        { "GET", "/api/agents/agent-1" },
        { "GET", "/api/agents/agent-1/skills" },
        { "POST", "/api/agents/agent-1/skills/sync" },
        { "PATCH", "/api/agents/agent-1/instructions-path" },
        { "GET", "/api/companies/company-1" },
        { "GET", "/api/companies/company-1/dashboard" },
        { "GET", "/api/companies/company-1/agents" },
        { "GET", "/api/companies/company-1/issues" },
        { "GET", "/api/companies/company-1/projects" },
        { "GET", "/api/companies/company-1/goals" },
        { "GET", "/api/companies/company-1/org" },
        { "GET", "/api/companies/company-1/approvals" },
        { "GET", "/api/companies/company-1/routines" },
        { "GET", "/api/companies/company-1/skills" },
        { "POST", "/api/companies/company-1/issues" },
        { "POST", "/api/companies/company-1/approvals" },
        { "POST", "/api/companies/company-1/routines" },
        { "GET", "/api/projects/project-1" },
        { "GET", "/api/goals/goal-1" },
        { "GET", "/api/issues/issue-1" },
        { "GET", "/api/issues/issue-1/heartbeat-context" },
        { "GET", "/api/issues/issue-1/comments" },
        { "GET", "/api/issues/issue-1/comments/comment-1" },
        { "GET", "/api/issues/issue-1/documents" },
        { "GET", "/api/issues/issue-1/documents/plan" },
        { "GET", "/api/issues/issue-1/documents/plan/revisions" },
        { "GET", "/api/issues/issue-1/approvals" },
        { "GET", "/api/issues/issue-1/interactions" },
        { "GET", "/api/issues/issue-1/interactions/i-1" },
        { "POST", "/api/issues/issue-1/comments" },
        { "POST", "/api/issues/issue-1/checkout" },
        { "POST", "/api/issues/issue-1/release" },
        { "POST", "/api/issues/issue-1/interactions" },
        { "POST", "/api/issues/issue-1/interactions/i-1/accept" },
        { "POST", "/api/issues/issue-1/interactions/i-1/reject" },
        { "POST", "/api/issues/issue-1/interactions/i-1/respond" },
        { "PUT", "/api/issues/issue-1/documents/plan" },
        { "PATCH", "/api/issues/issue-1" },
        { "GET", "/api/approvals/approval-1" },
        { "GET", "/api/approvals/approval-1/issues" },
        { "GET", "/api/approvals/approval-1/comments" },
        { "POST", "/api/approvals/approval-1/comments" },
        { "GET", "/api/execution-workspaces/ws-1" },
        { "POST", "/api/execution-workspaces/ws-1/runtime-services/start" },
        { "POST", "/api/execution-workspaces/ws-1/runtime-services/stop" },
        { "POST", "/api/execution-workspaces/ws-1/runtime-services/restart" },
        { "GET", "/api/routines/routine-1" },
        { "GET", "/api/routines/routine-1/runs" },
        { "POST", "/api/routines/routine-1/run" },
        { "POST", "/api/routines/routine-1/triggers" },
        { "PATCH", "/api/routines/routine-1" },
        { "PATCH", "/api/routine-triggers/trigger-1" },
        { "DELETE", "/api/routine-triggers/trigger-1" },
        /* 57 and on: what came later */
        { "GET", "/api/issues/issue-1/work-products" },
        { "POST", "/api/issues/issue-1/work-products" },
        { "PATCH", "/api/work-products/wp-1" },
        { "POST", "/api/issues/issue-1/interactions/i-1/verdicts" },
        { "POST", "/api/issues/issue-1/interactions/i-1/withdraw" },
        { "GET", "/llms/agent-configuration.txt" },
        { "GET", "/llms/agent-configuration/codex_local.txt" },
        { "GET", "/llms/agent-icons.txt" },
        { "GET", "/api/companies/company-1/agent-configurations" },
        { "POST", "/api/companies/company-1/agent-hires" },
        { "POST", "/api/issues/issue-1/approvals" },
};

static void test_allowed(void **state)
{
        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(allowed); i++) {
                assert_null(callback_path_problem(allowed[i].path));
                if (!callback_route_allowed(allowed[i].method, allowed[i].path))
                        fail_msg("denied: %s %s", allowed[i].method, allowed[i].path);
        }
}

static void test_denied(void **state)
{
        static const struct pair denied[] = {
                { "DELETE", "/api/execution-workspaces/ws-1/runtime-services/start" },
                { "POST", "/api/execution-workspaces/ws-1/runtime-services/delete" },
                { "POST", "/api/companies/company-1/agents" },
                { "POST", "/api/agents/agent-1/pause" },
                { "GET", "/api/companies/company-1/secrets" },
                { "DELETE", "/api/secrets" },
                { "GET", "/api/environments/e" },
                { "GET", "/api/heartbeat-runs/r" },
                { "GET", "/api/plugins" },
                { "GET", "/api/health" },
                { "GET", "/" },
                { "GET", "/api" },
                { "GET", "/api/agents" },
                { "GET", "/api/agents/" },
                { "GET", "/api/agents/a/" },
                { "GET", "/api/agents/a/skills/" },
                { "GET", "/api/agents/a/skills/sync" },
                { "GET", "/api/agents/other/inbox-lite" },
                { "GET", "/API/agents/me" },
                { "GET", "/api/Agents/me" },
                { "get", "/api/agents/me" },
                { "HEAD", "/api/agents/me" },
                { "OPTIONS", "/api/agents/me" },
                { "GET", "/api/companies/c/dashboard|agents" },
                { "GET", "/api/companies/c/dash" },
                { "GET", "/api/companies/c/(dashboard" },
                { "GET", "/api/companies/c/agent" },
                { "GET", "/api/issues/i/documents/plan/revisions/1" },
                { "GET", "/llms/agent-configuration/.txt" },
                { "GET", "/llms/agent-configuration/codex" },
                { "GET", "/xapi/agents/me" },
                { "GET", "/api/%61gents/me" },
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(denied); i++)
                if (callback_route_allowed(denied[i].method, denied[i].path))
                        fail_msg("allowed: %s %s", denied[i].method, denied[i].path);
}

static void test_spelling(void **state)
{
        static const char *const good[] = {
                "/",
                "/api/agents/me",
                "/api/agents/me/",
                "/api/issues/ACM-1",
                "/api/issues/a%20b",
                "/api/issues/%C3%A4",
                "/api/issues/...",
                "/api/issues/.a",
                "/api/issues/a.",
                "/api/issues/a..b",
                "/api/issues/~:@!$&'()*+,;=",
        };
        static const char *const bad[] = {
                "",
                "*",
                "api/agents/me",
                "http://127.0.0.1/api/agents/me",
                "//api/agents/me",
                "/api//agents/me",
                "/api/agents/me//",
                "/api/./agents/me",
                "/api/agents/.",
                "/api/agents/..",
                "/api/agents/../secrets",
                "/..",
                "/api/agents/%2e%2e/secrets",
                "/api/agents/%2E",
                "/api/agents/.%2e/x",
                "/api/agents/a%2fb",
                "/api/agents/a%2Fb",
                "/api/agents/a%5cb",
                "/api/agents/a%5Cb",
                "/api/agents/a\\b",
                "/api/agents/a%00",
                "/api/agents/a%0a",
                "/api/agents/a%0D",
                "/api/agents/a%1f",
                "/api/agents/a%7f",
                "/api/agents/a%252e",
                "/api/agents/a%",
                "/api/agents/a%2",
                "/api/agents/a%zz",
                "/api/agents/a%+1",
                "/api/agents/a b",
                "/api/agents/a\tb",
                "/api/agents/a\nb",
                "/api/agents/a\x7f",
                "/api/agents/\xc3\xa4",
                "/api/agents/a?b",
                "/api/agents/a#b",
        };

        (void)state;
        for (size_t i = 0; i < ARRAY_LEN(good); i++)
                if (callback_path_problem(good[i]))
                        fail_msg("%s: %s", good[i], callback_path_problem(good[i]));
        for (size_t i = 0; i < ARRAY_LEN(bad); i++)
                if (!callback_path_problem(bad[i]))
                        fail_msg("fine: %s", bad[i]);
}

int main(void)
{
        const struct CMUnitTest tests[] = {
                cmocka_unit_test(test_allowed),
                cmocka_unit_test(test_denied),
                cmocka_unit_test(test_spelling),
        };

        return cmocka_run_group_tests(tests, NULL, NULL);
}
