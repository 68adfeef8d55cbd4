"""Issues: made, found, changed, taken and given back; who may write; comments and documents."""

import json
import threading
import unittest

from worktest import MISSING, RUN_A, RUN_B, WorkTest

BUSY = "Issue is checked out by another agent"
FOREIGN = "Agent cannot mutate another agent's issue"


class IssueTest(WorkTest):
    def test_a_new_issue(self):
        issue = self.issue("First task", description="d")
        self.assertEqual((issue["identifier"], issue["issueNumber"], issue["status"], issue["priority"],
                          issue["workMode"], issue["originKind"], issue["createdByUserId"]),
                         ("ACM-1", 1, "backlog", "medium", "standard", "manual", "local-board"))
        ada = self.agent(self.acme)
        second = self.issue("s", assigneeAgentId=ada["id"], priority="high", requestDepth=2, billingCode="b")
        self.assertEqual((second["identifier"], second["status"], second["requestDepth"], second["billingCode"]),
                         ("ACM-2", "todo", 2, "b"))
        third = self.agent_ok(ada, "POST", self.issues, {"title": "t"}, status=201)
        self.assertEqual((third["createdByAgentId"], third["createdByUserId"]), (ada["id"], None))
        for reference in (issue["id"], "ACM-1", "acm-1", issue["id"].upper()):
            self.assertEqual(self.ok("GET", f"/api/issues/{reference}")["id"], issue["id"])
        self.assertEqual(self.ok("GET", f"/api/companies/{self.acme['id']}")["issueCounter"], 3)
        entry = self.ok("GET", f"/api/issues/{third['id']}/activity")[0]
        self.assertEqual((entry["action"], entry["agentId"], entry["runId"]), ("issue.created", ada["id"], RUN_A))

    def test_what_create_refuses(self):
        other = self.company("Other")
        theirs = self.ok("POST", f"/api/companies/{other['id']}/issues", {"title": "x"}, status=201)
        stranger, gone = self.agent(other), self.agent(self.acme, "Gone")
        project = self.ok("POST", f"/api/companies/{other['id']}/projects", {"name": "p"}, status=201)
        self.ok("POST", f"/api/agents/{gone['id']}/terminate")
        ada = self.agent(self.acme)
        for body, status, text in (
                ({}, 400, "Validation error"),
                ({"title": ""}, 400, "Validation error"),
                ({"title": "t", "status": "open"}, 400, "Validation error"),
                ({"title": "t", "goalId": MISSING}, 400, "Validation error"),
                ({"title": "t", "executionWorkspaceSettings": {"x": 1}}, 400, "Validation error"),
                ({"title": "t", "status": "in_progress"}, 422, "in_progress issues require an assignee"),
                ({"title": "t", "assigneeAgentId": ada["id"], "assigneeUserId": "u"}, 422,
                 "Issue can only have one assignee"),
                ({"title": "t", "assigneeAgentId": MISSING}, 404, "Assignee agent not found"),
                ({"title": "t", "assigneeAgentId": stranger["id"]}, 422, "Assignee must belong to same company"),
                ({"title": "t", "assigneeAgentId": gone["id"]}, 409, "Cannot assign work to terminated agents"),
                ({"title": "t", "projectId": project["id"]}, 422, "Project must belong to same company"),
                ({"title": "t", "parentId": theirs["id"]}, 422, "Parent issue must belong to same company"),
                ({"title": "t", "blockedByIssueIds": [theirs["id"]]}, 422,
                 "Blocked-by issues must belong to the same company")):
            with self.subTest(body=body):
                self.assert_error(self.req("POST", self.issues, body), status, text)
        self.assertEqual(self.ok("GET", self.issues), [])
        self.assertEqual(self.issue()["identifier"], "ACM-1")  # a failure takes no number
        self.assert_error(self.req("GET", "/api/issues"), 400,
                          "Missing companyId in path. Use /api/companies/{companyId}/issues.")
        for reference in (MISSING, "ACM-99", "nonsense"):
            self.assert_error(self.req("GET", f"/api/issues/{reference}"), 404, "Issue not found")

    def test_numbers_are_given_once(self):
        seen = []
        threads = [threading.Thread(target=lambda: seen.extend(
            self.daemon.req("POST", self.issues, {"title": "x"}).json["identifier"] for _ in range(10)))
            for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(seen, key=lambda i: int(i[4:])), [f"ACM-{n}" for n in range(1, 41)])

    def test_lists(self):
        ada = self.agent(self.acme)
        project = self.ok("POST", self.projects, {"name": "p"}, status=201)
        top = self.issue("top", priority="low")
        mid = self.issue("mid 100%", parentId=top["id"], assigneeAgentId=ada["id"])
        low = self.issue("low", parentId=mid["id"], priority="critical", projectId=project["id"])
        hers = self.agent_ok(ada, "POST", self.issues, {"title": "hers", "description": "find me"}, status=201)
        self.ok("POST", f"/api/issues/{top['id']}/comments", {"body": "x"}, status=201)
        self.agent_ok(ada, "POST", f"/api/issues/{top['id']}/comments", {"body": "x"}, status=201)

        def titles(query):
            return sorted(i["title"].split()[0] for i in self.ok("GET", f"{self.issues}?{query}"))

        self.assertEqual([i["title"].split()[0] for i in self.ok("GET", self.issues)], ["low", "hers", "mid", "top"])
        for query, expected in (
                ("status=todo", ["mid"]), ("status=backlog,todo", ["hers", "low", "mid", "top"]), ("status=done", []),
                (f"assigneeAgentId={ada['id']}", ["mid"]), (f"participantAgentId={ada['id']}", ["hers", "mid", "top"]),
                (f"projectId={project['id']}", ["low"]), (f"parentId={top['id']}", ["mid"]),
                (f"descendantOf={top['id']}", ["low", "mid"]), ("originKind=manual", ["hers", "low", "mid", "top"]),
                ("originKind=x", []), ("q=FIND", ["hers"]), ("q=100%25", ["mid"]), ("q=acm-1", ["top"]), ("q=_", []),
                (f"labelId={MISSING}", []), (f"executionWorkspaceId={MISSING}", []), ("limit=2&offset=1", ["hers", "mid"])):
            with self.subTest(query=query):
                self.assertEqual(titles(query), expected)
        self.assertEqual([i["id"] for i in self.agent_ok(ada, "GET", self.issues + "?assigneeAgentId=me")], [mid["id"]])
        for query in ("limit=0", "limit=1001", "limit=x"):
            self.assert_error(self.req("GET", f"{self.issues}?{query}"), 400,
                              "limit must be a positive integer up to 1000")
        self.assert_error(self.req("GET", self.issues + "?offset=-1"), 400, "offset must be a non-negative integer")
        self.ok("PATCH", f"/api/issues/{hers['id']}", {"hiddenAt": "2026-01-01T00:00:00.000Z"})
        self.assertNotIn("hers", titles(""))
        self.assertEqual(self.row(low)["id"], low["id"])

    def test_detail_and_context(self):
        ada = self.agent(self.acme)
        project = self.ok("POST", self.projects, {"name": "p"}, status=201)
        top = self.issue("top", projectId=project["id"])
        blocker = self.issue("blocker")
        child = self.ok("POST", f"/api/issues/{top['identifier']}/children",
                        {"title": "child", "assigneeAgentId": ada["id"], "blockedByIssueIds": [blocker["id"]]}, status=201)
        self.assertEqual((child["parentId"], child["projectId"]), (top["id"], project["id"]))
        detail = self.row(child)
        self.assertEqual([a["identifier"] for a in detail["ancestors"]], ["ACM-1"])
        self.assertEqual([b["identifier"] for b in detail["blockedBy"]], ["ACM-2"])
        self.assertEqual([b["id"] for b in self.row(blocker)["blocks"]], [child["id"]])
        self.assertEqual((detail["project"]["name"], detail["goal"], detail["workProducts"],
                          detail["currentExecutionWorkspace"]), ("p", None, [], None))
        context = self.agent_ok(ada, "GET", f"/api/issues/{child['id']}/heartbeat-context")
        self.assertEqual(set(context), {"issue", "ancestors", "project", "goal", "commentCursor", "wakeComment",
                                        "attachments", "continuationSummary", "currentExecutionWorkspace"})
        self.assertEqual(set(context["issue"]), {
            "id", "identifier", "title", "description", "status", "workMode", "priority", "projectId", "goalId",
            "parentId", "blockedBy", "blocks", "assigneeAgentId", "assigneeUserId", "originKind", "originId", "updatedAt"})
        self.assertEqual(context["ancestors"], [{"id": top["id"], "identifier": "ACM-1", "title": "top",
                                                 "status": "backlog", "priority": "medium"}])
        self.assertEqual(context["commentCursor"], {"totalComments": 0, "latestCommentId": None, "latestCommentAt": None})
        comment = self.ok("POST", f"/api/issues/{child['id']}/comments", {"body": "hi"}, status=201)
        context = self.ok("GET", f"/api/issues/{child['id']}/heartbeat-context?wakeCommentId={comment['id']}")
        self.assertEqual(context["commentCursor"]["latestCommentId"], comment["id"])
        self.assertEqual(context["wakeComment"], comment)
        self.assertIsNone(self.ok("GET", f"/api/issues/{child['id']}/heartbeat-context?wakeCommentId={MISSING}")
                          ["wakeComment"])

    def test_inbox(self):
        ada = self.agent(self.acme)
        blocker = self.issue("blocker")
        work = self.issue("work", assigneeAgentId=ada["id"], blockedByIssueIds=[blocker["id"]])
        self.issue("over", assigneeAgentId=ada["id"], status="done")
        row, = self.agent_ok(ada, "GET", "/api/agents/me/inbox-lite")
        self.assertEqual(set(row), {"id", "identifier", "title", "status", "priority", "projectId", "goalId", "parentId",
                                    "updatedAt", "activeRun", "dependencyReady", "unresolvedBlockerCount",
                                    "unresolvedBlockerIssueIds"})
        self.assertEqual((row["id"], row["dependencyReady"], row["unresolvedBlockerCount"],
                          row["unresolvedBlockerIssueIds"]), (work["id"], False, 1, [blocker["id"]]))
        self.ok("PATCH", f"/api/issues/{blocker['id']}", {"status": "done"})
        self.assertTrue(self.agent_ok(ada, "GET", "/api/agents/me/inbox-lite")[0]["dependencyReady"])
        self.assertEqual([i["id"] for i in self.agent_ok(ada, "GET", "/api/agents/me/inbox/mine")], [work["id"]])
        for path in ("/api/agents/me/inbox-lite", "/api/agents/me/inbox/mine"):
            self.assert_error(self.req("GET", path), 401, "Agent authentication required")

    def test_changing(self):
        ada = self.agent(self.acme)
        issue = self.issue("old")
        path = f"/api/issues/{issue['identifier']}"
        changed = self.ok("PATCH", path, {"title": "new", "status": "in_progress", "assigneeAgentId": ada["id"],
                                          "comment": "started"})
        self.assertEqual((changed["title"], changed["status"], changed["comment"]["body"]),
                         ("new", "in_progress", "started"))
        self.assertIsNotNone(changed["startedAt"])
        done = self.ok("PATCH", path, {"status": "done"})
        self.assertNotIn("comment", done)
        self.assertIsNotNone(done["completedAt"])
        again = self.ok("PATCH", path, {"comment": "no", "reopen": True})
        self.assertEqual((again["status"], again["completedAt"]), ("todo", None))
        entry = next(a for a in self.ok("GET", path + "/activity") if a["action"] == "issue.updated")
        self.assertEqual(entry["details"], {"identifier": "ACM-1", "changedFields": ["comment"], "status": "todo",
                                            "previousStatus": "done"})
        a, b = self.issue("a"), self.issue("b")
        self.ok("PATCH", f"/api/issues/{a['id']}", {"blockedByIssueIds": [b["id"]]})
        for what, body, text in (
                (b, {"blockedByIssueIds": [a["id"]]}, "Blocking relations cannot contain cycles"),
                (b, {"blockedByIssueIds": [b["id"]]}, "Issue cannot be blocked by itself"),
                (a, {"status": "in_progress", "assigneeAgentId": ada["id"]}, "Issue is blocked by unresolved blockers"),
                (a, {"parentId": a["id"]}, "Issue cannot be beneath itself"),
                (issue, {"status": "in_progress", "assigneeAgentId": None}, "in_progress issues require an assignee")):
            with self.subTest(text=text):
                self.assert_error(self.req("PATCH", f"/api/issues/{what['id']}", body), 422, text)
        self.ok("PATCH", f"/api/issues/{b['id']}", {"parentId": a["id"]})
        self.assert_error(self.req("PATCH", f"/api/issues/{a['id']}", {"parentId": b["id"]}), 422,
                          "Issue cannot be beneath itself")
        self.assert_error(self.req("PATCH", f"/api/issues/{MISSING}", {}), 404, "Issue not found")

    def test_assigning(self):
        ada, bob = self.agent(self.acme), self.agent(self.acme, "Bob")
        self.ok("PATCH", f"/api/agents/{ada['id']}/permissions", {"canCreateAgents": False, "canAssignTasks": False})
        refused = "Missing permission: tasks:assign"
        self.assert_error(self.as_agent(ada, "POST", self.issues, {"title": "x", "assigneeAgentId": bob["id"]}), 403,
                          refused)
        issue = self.issue()
        self.assert_error(self.as_agent(ada, "PATCH", f"/api/issues/{issue['id']}", {"assigneeAgentId": ada["id"]}),
                          403, refused)
        viewer = self.board_user(self.acme, "vic", role="viewer")["token"]
        self.assert_error(self.req("PATCH", f"/api/issues/{issue['id']}", {"title": "x"}, token=viewer), 403,
                          "Viewer access is read-only")
        self.ok("GET", f"/api/issues/{issue['id']}", token=viewer)
        given = self.agent_ok(bob, "PATCH", f"/api/issues/{issue['id']}", {"assigneeAgentId": ada["id"]})
        self.assertEqual(given["assigneeAgentId"], ada["id"])

    def test_review(self):
        ada = self.agent(self.acme)
        issue = self.issue(assigneeAgentId=ada["id"])
        path = f"/api/issues/{issue['id']}"
        refused = self.as_agent(ada, "PATCH", path, {"status": "in_review"})
        self.assertEqual(refused.status, 422)
        self.assertTrue(refused.error.startswith("invalid_issue_disposition:"), refused.error)
        self.assertEqual(refused.json["details"]["code"], "invalid_issue_disposition")
        moved = self.agent_ok(ada, "PATCH", path, {"status": "in_review", "assigneeAgentId": None,
                                                   "assigneeUserId": "local-board"})
        self.assertEqual((moved["status"], moved["assigneeUserId"]), ("in_review", "local-board"))


class CheckoutTest(WorkTest):
    def setUp(self):
        super().setUp()
        self.ada, self.bob = self.agent(self.acme), self.agent(self.acme, "Bob")

    def try_checkout(self, issue, agent, run=RUN_A, expected=("todo",), as_agent=None):
        return self.as_agent(agent, "POST", f"/api/issues/{issue['id']}/checkout",
                             {"agentId": (as_agent or agent)["id"], "expectedStatuses": list(expected)}, run)

    def test_taking(self):
        issue = self.issue(status="todo")
        taken = self.checkout(issue, self.ada)
        self.assertEqual((taken["status"], taken["assigneeAgentId"], taken["checkoutRunId"], taken["executionRunId"]),
                         ("in_progress", self.ada["id"], RUN_A, RUN_A))
        self.assertIsNotNone(taken["startedAt"])
        self.assertEqual(self.checkout(issue, self.ada), taken)  # again: nothing happens
        self.assertEqual(self.actions(entityType="issue", entityId=issue["id"]).count("issue.checked_out"), 1)
        refused = self.try_checkout(issue, self.bob, RUN_B, ("todo", "in_progress"))
        self.assert_error(refused, 409, "Issue checkout conflict")
        self.assertEqual(refused.json["details"], {"issueId": issue["id"], "status": "in_progress",
                                                   "assigneeAgentId": self.ada["id"], "checkoutRunId": RUN_A,
                                                   "executionRunId": RUN_A})

    def test_who_and_when(self):
        issue = self.issue(status="todo")
        self.assert_error(self.try_checkout(issue, self.ada, as_agent=self.bob), 403,
                          "Agent can only checkout as itself")
        self.assert_error(self.try_checkout(issue, self.ada, run=None), 401, "Agent run id required")
        self.assert_error(self.try_checkout(issue, self.ada, expected=("blocked",)), 409, "Issue checkout conflict")
        self.assert_error(self.try_checkout(issue, self.ada, expected=()), 400, "Validation error")
        self.assert_error(self.try_checkout(issue, self.ada, expected=("x",)), 400, "Validation error")
        hers = self.issue(assigneeAgentId=self.bob["id"])
        self.assert_error(self.try_checkout(hers, self.ada), 409, "Issue checkout conflict")
        blocked = self.issue(status="todo", blockedByIssueIds=[issue["id"]])
        self.assert_error(self.try_checkout(blocked, self.ada), 422, "Issue is blocked by unresolved blockers")
        project = self.ok("POST", self.projects, {"name": "p", "pausedAt": "2026-01-01T00:00:00.000Z"}, status=201)
        resting = self.issue(status="todo", projectId=project["id"])
        self.assert_error(self.try_checkout(resting, self.ada), 409, "Project is paused")
        for each in (issue, hers, blocked, resting):
            self.assertEqual(self.row(each)["status"], "todo")
        # The board takes for anybody; there is no run then.
        taken = self.ok("POST", f"/api/issues/{issue['id']}/checkout", {"agentId": self.ada["id"],
                                                                        "expectedStatuses": ["todo"]})
        self.assertEqual((taken["assigneeAgentId"], taken["checkoutRunId"]), (self.ada["id"], None))
        self.assertEqual(self.checkout(issue, self.ada, RUN_B)["checkoutRunId"], RUN_B)

    def test_a_run_is_its_agents(self):
        issue = self.issue(status="todo")
        self.insert_run(self.bob, RUN_B)
        self.assert_error(self.try_checkout(issue, self.ada, RUN_B), 403,
                          "X-Paperclip-Run-Id names a run of another agent")

    def test_a_lock_holds_while_its_run_lives(self):
        issue = self.issue(status="todo")
        self.insert_run(self.ada, RUN_A)
        self.checkout(issue, self.ada, RUN_A)
        self.assert_error(self.try_checkout(issue, self.ada, RUN_B, ("in_progress",)), 409, "Issue checkout conflict")
        self.insert_run(self.ada, RUN_A, "failed")
        self.assertEqual(self.checkout(issue, self.ada, RUN_B)["checkoutRunId"], RUN_B)

    def test_of_many_one_takes_it(self):
        issue = self.issue(status="todo")
        agents = [self.agent(self.acme, f"A{n}") for n in range(6)]
        answers = []
        threads = [threading.Thread(target=lambda a=a: answers.append(self.try_checkout(issue, a).status))
                   for a in agents]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(answers), [200, 409, 409, 409, 409, 409])

    def test_releasing(self):
        issue = self.issue(status="todo")
        self.checkout(issue, self.ada)
        path = f"/api/issues/{issue['id']}/release"
        self.assert_error(self.as_agent(self.bob, "POST", path, {}), 409, BUSY)
        free = self.agent_ok(self.ada, "POST", path)
        self.assertEqual((free["status"], free["assigneeAgentId"], free["checkoutRunId"], free["executionRunId"]),
                         ("todo", None, None, None))
        self.assertEqual(self.actions(entityType="issue", entityId=issue["id"])[0], "issue.released")
        # What is done stays done.
        self.checkout(issue, self.ada)
        self.agent_ok(self.ada, "PATCH", f"/api/issues/{issue['id']}", {"status": "done"})
        kept = self.agent_ok(self.ada, "POST", path)
        self.assertEqual((kept["status"], kept["assigneeAgentId"]), ("done", self.ada["id"]))

    def test_force_release(self):
        issue = self.issue(status="todo")
        self.insert_run(self.ada, RUN_A)
        self.checkout(issue, self.ada)
        path = f"/api/issues/{issue['id']}/admin/force-release"
        self.assert_error(self.as_agent(self.ada, "POST", path), 403, "Board access required")
        answer = self.ok("POST", path)
        self.assertEqual((answer["previous"]["checkoutRunId"], answer["issue"]["checkoutRunId"],
                          answer["issue"]["assigneeAgentId"]), (RUN_A, None, self.ada["id"]))
        answer = self.ok("POST", path + "?clearAssignee=true")
        self.assertEqual((answer["issue"]["assigneeAgentId"], answer["issue"]["status"]), (None, "todo"))

    # http-api 8.91, 8.92
    def test_foreign_agents_write_nothing(self):
        issue = self.issue(status="todo")
        path = f"/api/issues/{issue['id']}"
        self.checkout(issue, self.ada)
        writes = (("PATCH", path, {"title": "x"}), ("POST", path + "/comments", {"body": "x"}),
                  ("PUT", path + "/documents/plan", {"format": "markdown", "body": "x"}), ("POST", path + "/release", {}))
        for status, code, text in (("in_progress", 409, BUSY), ("todo", 403, FOREIGN), ("blocked", 403, FOREIGN)):
            self.ok("PATCH", path, {"status": status})
            before = self.row(issue)
            for method, where, body in writes:
                with self.subTest(status=status, method=method, where=where):
                    self.assert_error(self.as_agent(self.bob, method, where, body, RUN_B), code, text)
            self.assertEqual(self.row(issue), before)
            self.assertEqual(self.ok("GET", path + "/comments"), [])

    # http-api 8.93
    def test_the_owner_and_the_board_may(self):
        issue = self.issue(status="todo")
        path = f"/api/issues/{issue['id']}"
        self.insert_run(self.ada, RUN_A)
        self.checkout(issue, self.ada)
        self.assertEqual(self.agent_ok(self.ada, "PATCH", path, {"title": "mine"})["title"], "mine")
        self.assert_error(self.as_agent(self.ada, "PATCH", path, {"title": "x"}, run=None), 401, "Agent run id required")
        refused = self.as_agent(self.ada, "PATCH", path, {"title": "x"}, RUN_B)
        self.assert_error(refused, 409, "Issue run ownership conflict")
        self.assertEqual(refused.json["details"]["checkoutRunId"], RUN_A)
        self.assertEqual(self.ok("PATCH", path, {"title": "ours"})["title"], "ours")
        self.assertEqual(self.row(issue)["checkoutRunId"], RUN_A)

    # http-api 8.94
    def test_after_the_run_ended(self):
        issue = self.issue(status="todo")
        path = f"/api/issues/{issue['id']}"
        self.insert_run(self.ada, RUN_A)
        self.checkout(issue, self.ada)
        self.insert_run(self.ada, RUN_A, "succeeded")
        self.assertEqual(self.agent_ok(self.ada, "PATCH", path, {"title": "later"}, RUN_B)["checkoutRunId"], RUN_B)
        self.insert_run(self.ada, RUN_B, "cancelled")
        self.assertEqual(self.agent_ok(self.ada, "POST", path + "/release", run=RUN_A)["status"], "todo")

    def test_who_else_may(self):
        boss = self.agent(self.acme, "Boss")
        self.ok("PATCH", f"/api/agents/{self.ada['id']}", {"reportsTo": boss["id"]})
        maker = self.agent(self.acme, "Maker", permissions={"canCreateAgents": True})
        keeper = self.agent(self.acme, "Keeper", grants=("tasks:manage_active_checkouts",))
        issue = self.issue(status="todo")
        self.checkout(issue, self.ada)
        for who in (boss, maker, keeper):
            with self.subTest(who=who["name"]):
                self.agent_ok(who, "PATCH", f"/api/issues/{issue['id']}", {"title": who["name"]}, RUN_B)
        self.assertEqual(self.row(issue)["assigneeAgentId"], self.ada["id"])

    def test_other_companies(self):
        issue = self.issue(status="todo")
        stranger = self.agent(self.company("Other"))
        path = f"/api/issues/{issue['identifier']}"
        for method, where, body in (("GET", path, None), ("PATCH", path, {"title": "x"}), ("GET", self.issues, None),
                                    ("POST", path + "/comments", {"body": "x"}), ("GET", path + "/documents", None),
                                    ("POST", path + "/checkout", {"agentId": stranger["id"], "expectedStatuses": ["todo"]}),
                                    ("GET", path + "/heartbeat-context", None), ("POST", self.issues, {"title": "x"}),
                                    ("GET", self.projects, None), ("POST", self.projects, {"name": "x"})):
            with self.subTest(method=method, where=where):
                self.assert_error(self.as_agent(stranger, method, where, body), 403,
                                  "Agent key cannot access another company")
        user = self.board_user(self.company("Third"), role="owner")["token"]
        self.assert_error(self.req("GET", path, token=user), 403, "User does not have access to this company")


class CommentTest(WorkTest):
    def test_writing(self):
        ada = self.agent(self.acme)
        issue = self.issue(status="todo")
        path = f"/api/issues/{issue['identifier']}/comments"
        mine = self.ok("POST", path, {"body": "hi", "presentation": {"a": 1}, "metadata": {"b": 2}}, status=201)
        self.assertEqual((mine["authorType"], mine["authorUserId"], mine["issueId"], mine["presentation"],
                          mine["metadata"]), ("user", "local-board", issue["id"], {"a": 1}, {"b": 2}))
        hers = self.agent_ok(ada, "POST", path, {"body": "ho"}, status=201)
        self.assertEqual((hers["authorType"], hers["authorAgentId"], hers["authorUserId"], hers["createdByRunId"]),
                         ("agent", ada["id"], None, RUN_A))
        self.assertEqual(self.ok("GET", f"{path}/{hers['id']}"), hers)
        self.assert_error(self.req("GET", f"{path}/{MISSING}"), 404, "Comment not found")
        self.assert_error(self.req("GET", f"/api/issues/{self.issue()['id']}/comments/{hers['id']}"), 404,
                          "Comment not found")
        self.assert_error(self.req("POST", path, {"body": ""}), 400, "Validation error")
        for member in ("presentation", "metadata"):
            self.assert_error(self.as_agent(ada, "POST", path, {"body": "x", member: {}}), 403,
                              "Only board users may set structured comment presentation or metadata")
        self.assert_error(self.as_agent(ada, "POST", path, {"body": "x", "interrupt": True}), 403,
                          "Only board users can interrupt active runs from issue comments")
        self.assertEqual(self.actions(entityType="issue", entityId=issue["id"])[0], "issue.comment_added")

    def test_reopening(self):
        issue = self.issue(status="done")
        path = f"/api/issues/{issue['id']}"
        self.ok("POST", path + "/comments", {"body": "thanks"}, status=201)
        self.assertEqual(self.row(issue)["status"], "done")
        self.ok("POST", path + "/comments", {"body": "no", "reopen": True}, status=201)
        self.assertEqual(self.row(issue)["status"], "todo")

    # The anchor itself is not shown again.
    def test_paging(self):
        path = f"/api/issues/{self.issue()['id']}/comments"
        ids = [self.ok("POST", path, {"body": str(n)}, status=201)["id"] for n in range(5)]

        def page(query):
            return [ids.index(c["id"]) for c in self.ok("GET", f"{path}?{query}")]

        self.assertEqual(page(""), [4, 3, 2, 1, 0])
        self.assertEqual(page("order=asc"), [0, 1, 2, 3, 4])
        self.assertEqual(page(f"order=asc&after={ids[1]}"), [2, 3, 4])
        self.assertEqual(page(f"order=asc&afterCommentId={ids[1]}&limit=2"), [2, 3])
        self.assertEqual(page(f"after={ids[2]}"), [1, 0])
        self.assertEqual(page("limit=1"), [4])
        self.assertEqual(page(f"after={MISSING}"), [])


class DocumentTest(WorkTest):
    def test_revisions(self):
        ada = self.agent(self.acme)
        issue = self.issue(status="todo")
        path = f"/api/issues/{issue['identifier']}/documents"
        body = {"format": "markdown", "body": "one", "title": "Plan"}
        first = self.ok("PUT", path + "/plan", body, status=201)
        self.assertEqual((first["key"], first["title"], first["body"], first["latestRevisionNumber"]),
                         ("plan", "Plan", "one", 1))
        second = self.agent_ok(ada, "PUT", path + "/plan", {
            "format": "markdown", "body": "two", "changeSummary": "why", "baseRevisionId": first["latestRevisionId"]})
        self.assertEqual((second["title"], second["latestRevisionNumber"], second["updatedByAgentId"]),
                         ("Plan", 2, ada["id"]))
        stale = self.req("PUT", path + "/plan", {**body, "baseRevisionId": first["latestRevisionId"]})
        self.assert_error(stale, 409, "Document was updated by someone else")
        self.assertEqual(stale.json["details"], {"currentRevisionId": second["latestRevisionId"]})
        self.assertEqual(self.ok("GET", path + "/plan"), second)
        self.assertEqual(self.ok("GET", path), [second])
        newest, oldest = self.ok("GET", path + "/plan/revisions")
        self.assertEqual((newest["revisionNumber"], newest["body"], newest["changeSummary"], newest["createdByRunId"]),
                         (2, "two", "why", RUN_A))
        self.assertEqual((oldest["body"], oldest["createdByUserId"], oldest["key"]), ("one", "local-board", "plan"))
        detail = self.row(issue)
        self.assertEqual(detail["planDocument"]["body"], "two")
        self.assertEqual([d["key"] for d in detail["documentSummaries"]], ["plan"])
        self.assertNotIn("body", detail["documentSummaries"][0])
        self.assertEqual(self.actions(entityType="issue", entityId=issue["id"])[:2],
                         ["issue.document_updated", "issue.document_created"])

    def test_limits(self):
        path = f"/api/issues/{self.issue()['id']}/documents"
        body = {"format": "markdown", "body": "x"}
        for key in ("Plan", "-x", "a.b", "a" * 65):
            self.assert_error(self.req("PUT", f"{path}/{key}", body), 400, "Invalid document key")
        self.ok("PUT", f"{path}/{'a' * 64}", body, status=201)
        self.ok("PUT", path + "/big", {**body, "body": "x" * 524288}, status=201)
        self.assert_error(self.req("PUT", path + "/bigger", {**body, "body": "x" * 524289}), 400, "Validation error")
        self.assert_error(self.req("PUT", path + "/x", {"body": "x"}), 400, "Validation error")
        self.assert_error(self.req("PUT", path + "/x", {**body, "format": "html"}), 400, "Validation error")
        self.assert_error(self.req("PUT", path + "/x", {**body, "baseRevisionId": MISSING}), 409,
                          "Document does not exist yet")
        self.assert_error(self.req("GET", path + "/x"), 404, "Document not found")
        self.assert_error(self.req("GET", path + "/x/revisions"), 404, "Document not found")


class SelectionTest(WorkTest):
    # http-api 8.38; environment-runtime 7.119
    def test_issues_take_a_sandbox(self):
        box, ssh = self.sandbox()["id"], self.ssh()["id"]
        issue = self.issue(executionWorkspaceSettings={"mode": "isolated_workspace", "environmentId": box})
        self.assertEqual(issue["executionWorkspaceSettings"], {"mode": "isolated_workspace", "environmentId": box})
        for id in (ssh, box):
            changed = self.ok("PATCH", f"/api/issues/{issue['id']}", {"executionWorkspaceSettings": {"environmentId": id}})
            self.assertEqual(changed["executionWorkspaceSettings"], {"environmentId": id})
        cleared = self.ok("PATCH", f"/api/issues/{issue['id']}", {"executionWorkspaceSettings": None})
        self.assertIsNone(cleared["executionWorkspaceSettings"])

    # http-api 8.39, 8.40; environment-runtime 7.120, 7.121
    def test_what_issues_refuse(self):
        fake, strange = self.environment(self.acme)["id"], self.strange("unsupported_driver")["id"]
        issue = self.issue()
        for id, text in ((fake, 'Environment sandbox provider "fake" is not allowed here. The built-in fake provider is '
                          "probe-only and cannot execute runs."),
                         (strange, 'Environment driver "unsupported_driver" is not allowed here. Allowed drivers: '
                          "local, ssh, sandbox"),
                         (MISSING, "Environment not found.")):
            body = {"executionWorkspaceSettings": {"environmentId": id}}
            self.assert_error(self.req("POST", self.issues, {"title": "t", **body}), 422, text)
            self.assert_error(self.req("PATCH", f"/api/issues/{issue['id']}", body), 422, text)
        self.assertIsNone(self.row(issue)["executionWorkspaceSettings"])

    def test_the_workspace_is_told(self):
        box = self.sandbox()["id"]
        project = self.ok("POST", self.projects, {"name": "p"}, status=201)
        workspace = "00000000-0000-4000-8000-0000000000ff"
        self.edit("INSERT INTO execution_workspaces (id, company_id, project_id, mode, strategy_type, name, metadata, "
                  "last_used_at, opened_at, created_at, updated_at) VALUES (?, ?, ?, 'm', 's', 'n', ?, 1, 1, 1, 1)",
                  (workspace, self.acme["id"], project["id"], '{"x":1,"config":{"y":2}}'))
        issue = self.issue(executionWorkspaceId=workspace, executionWorkspacePreference="reuse_existing")
        path = f"/api/issues/{issue['id']}"
        self.ok("PATCH", path, {"executionWorkspaceSettings": {"environmentId": box, "workspaceStrategy": {
            "provisionCommand": "make"}}})
        row, = self.daemon.sql("SELECT metadata FROM execution_workspaces")
        self.assertEqual(json.loads(row["metadata"]),
                         {"x": 1, "config": {"y": 2, "environmentId": box, "provisionCommand": "make"}})
        # An agent does not take its work out of the workspace, nor the workspace to this machine.
        ada, refused = self.agent(self.acme), "Missing permission: environments:manage"
        for out in ({"executionWorkspacePreference": None}, {"executionWorkspaceId": None}):
            self.assert_error(self.as_agent(ada, "PATCH", path, out), 403, refused)
        self.edit("UPDATE issues SET execution_workspace_settings = NULL")
        self.agent_ok(ada, "PATCH", path, {"executionWorkspaceSettings": {"environmentId": None}})
        self.assertEqual(self.daemon.sql("SELECT metadata FROM execution_workspaces"), [row])
        self.ok("PATCH", path, {"executionWorkspacePreference": None})
        self.ok("PATCH", path, {"executionWorkspaceSettings": {"environmentId": None}})
        self.assertEqual(self.daemon.sql("SELECT metadata FROM execution_workspaces"), [row])
        self.assert_error(self.req("PATCH", path, {"executionWorkspaceId": MISSING}), 422, "Execution workspace not found")
        free = self.issue()
        self.assert_error(self.as_agent(ada, "PATCH", f"/api/issues/{free['id']}", {"executionWorkspaceId": workspace}),
                          403, refused)

    # An agent in a sandbox could otherwise move its own work out of it.
    def test_agents_do_not_choose(self):
        box = self.sandbox()["id"]
        ada = self.agent(self.acme)
        keeper = self.agent(self.acme, "Keeper", grants=("environments:manage",))
        settings = {"executionWorkspaceSettings": {"environmentId": box}}
        refused = "Missing permission: environments:manage"
        self.assert_error(self.as_agent(ada, "POST", self.issues, {"title": "t", **settings}), 403, refused)
        issue = self.issue(**settings)
        path = f"/api/issues/{issue['id']}"
        self.agent_ok(ada, "PATCH", path, {"executionWorkspaceSettings": {"environmentId": box, "mode": "operator_branch"}})
        local = next(e for e in self.ok("GET", f"/api/companies/{self.acme['id']}/environments") if e["driver"] == "local")
        refused = ("Agent keys choose isolated environments only (executionWorkspaceSettings.environmentId). Name one, "
                   "or ask the board")
        for who in (ada, keeper):
            self.assert_error(self.as_agent(who, "PATCH", path, {
                "executionWorkspaceSettings": {"environmentId": local["id"]}}), 403, refused)
        # Nor by leaving it out: then it would be the agent's own, or this machine.
        for less in (None, {"environmentId": None}, {"mode": "inherit"}):
            self.assert_error(self.as_agent(ada, "PATCH", path, {"executionWorkspaceSettings": less}), 403, refused)
        second = self.sandbox(name="second")["id"]
        self.agent_ok(keeper, "PATCH", path, {"executionWorkspaceSettings": {"environmentId": second}})
        self.assert_error(self.as_agent(ada, "PATCH", path, {"executionWorkspaceSettings": {
            "workspaceStrategy": {"provisionCommand": "x"}}}), 403,
            "Agent keys cannot modify host-executed workspace commands "
            "(executionWorkspaceSettings.workspaceStrategy.provisionCommand).")


if __name__ == "__main__":
    unittest.main()
