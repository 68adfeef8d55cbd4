"""`berth agent`, `berth issue` and `berth project` against a daemon."""

import json
import re
import unittest

from berthtest import BerthTest

RUN = "00000000-0000-4000-8000-00000000000a"


class WorkCliTest(BerthTest):
    def setUp(self):
        super().setUp()
        self.acme = self.company()

    def run_ok(self, *args, **more):
        status, out, err = self.cli(*args, **more)
        self.assertEqual(status, 0, err)
        return out

    def json(self, *args, **more):
        return json.loads(self.run_ok(*args, "--json", **more))

    def fails(self, status, *args, says=""):
        got, _, err = self.cli(*args)
        self.assertEqual(got, status, err)
        self.assertIn(says, err)

    def labels(self, text):
        return dict(re.findall(r"(?m)^([A-Z][\w ]*?):? {2,}(.*)$", text))

    def test_agents(self):
        self.run_ok("agent", "create", "Boss", "--role", "ceo")
        made = self.json("agent", "create", "Ada", "--role", "engineer", "--title", "T", "--reports-to", "boss",
                         "--environment", "Local", "-o", "command=sh", "-o", 'args:=["-c"]', "--env", "A=b")
        self.assertEqual((made["role"], made["title"], made["adapterConfig"]),
                         ("engineer", "T", {"command": "sh", "args": ["-c"], "env": {"A": {"type": "plain", "value": "b"}}}))
        self.assertIsNotNone(made["defaultEnvironmentId"])
        changed = self.json("agent", "update", "Ada", "--name", "Ada L", "--title", "U", "-o", "command=bash")
        self.assertEqual((changed["urlKey"], changed["title"], changed["adapterConfig"]["command"],
                          changed["adapterConfig"]["env"]["A"]["value"]), ("ada-l", "U", "bash", "b"))
        shown = self.labels(self.run_ok("agent", "show", "ada-l"))
        self.assertEqual((shown["Role"], shown["A"]), ("engineer", "b"))
        self.assertEqual(self.json("agent", "pause", "ada-l", "--reason", "lunch")["pauseReason"], "lunch")
        self.assertEqual(self.labels(self.run_ok("agent", "resume", "ada-l"))["Status"], "idle")
        self.assertEqual(self.json("agent", "terminate", "ada-l")["status"], "terminated")
        self.fails(1, "agent", "resume", made["id"], says="Terminated agents cannot be resumed")
        self.fails(2, "agent", "update", "boss", says="say what to change")
        self.fails(1, "agent", "update", "boss", "--role", "king", says="role")

    def test_issues(self):
        ada = self.json("agent", "create", "Ada")
        self.ok("PATCH", f"/api/agents/{ada['id']}", {"runtimeConfig": {"heartbeat": {"wakeOnDemand": False}}})
        self.run_ok("project", "create", "Site")
        self.assertEqual(self.run_ok("issue", "list"), "no issues\n")
        made = self.labels(self.run_ok("issue", "create", "First", "--priority", "high", "--project", "site",
                                       "--description", "two\nlines"))
        self.assertEqual((made["Identifier"], made["Status"], made["Priority"]), ("ACM-1", "backlog", "high"))
        second = self.json("issue", "create", "Second", "--assignee", "Ada", "--parent", "ACM-1", "--blocked-by", "acm-1",
                           "--environment", "Local")
        self.assertEqual((second["status"], second["assigneeAgentId"]), ("todo", ada["id"]))
        shown = self.run_ok("issue", "show", "acm-2")
        self.assertIn("ACM-1 (backlog)", self.labels(shown)["Blocked by"])
        self.assertTrue(self.run_ok("issue", "show", "ACM-1").endswith("\n\ntwo\nlines\n"))
        self.assertRegex(self.run_ok("issue", "list"), r"(?m)^ACM-1 +backlog +high +\S+ +First$")
        for options, expected in ((["--status", "todo"], ["ACM-2"]), (["--assignee", "Ada"], ["ACM-2"]),
                                  (["--project", "Site"], ["ACM-1"]), (["--match", "sec"], ["ACM-2"])):
            self.assertEqual([i["identifier"] for i in self.json("issue", "list", *options)], expected)
        self.fails(1, "issue", "checkout", "ACM-2", "--agent", "Ada", says="blocked by unresolved blockers")
        self.assertEqual(self.json("issue", "update", "ACM-1", "--status", "done", "--comment", "ok")["comment"]["body"],
                         "ok")
        taken = self.json("issue", "checkout", "ACM-2", "--agent", "Ada")
        self.assertEqual((taken["status"], taken["assigneeAgentId"]), ("in_progress", ada["id"]))
        self.fails(1, "issue", "checkout", "ACM-1", "--agent", "Ada", "--expected", "todo", says="Issue checkout conflict")
        self.fails(2, "issue", "checkout", "ACM-1", says="say for whom: --agent AGENT")
        self.assertEqual(self.json("issue", "release", "ACM-2")["status"], "todo")
        self.assertEqual(self.json("issue", "release", "ACM-2", "--force")["previous"]["checkoutRunId"], None)
        self.assertEqual(self.json("issue", "update", "ACM-2", "--title", "New", "--unassign")["title"], "New")
        self.fails(5, "issue", "show", "ACM-9", says="Issue not found")
        self.fails(2, "issue", "update", "ACM-1", says="say what to change")
        self.fails(5, "issue", "list", "--project", "x", says="there is no project 'x'; 'berth project list'")

    def test_an_agents_own_issue(self):
        self.json("agent", "create", "Ada")
        token = self.run_ok("key", "create", "--agent", "Ada").strip()
        self.run_ok("issue", "create", "x")
        env = {"BERTH_API_KEY": token, "BERTH_RUN_ID": RUN, "BERTH_API_URL": self.daemon.url}
        self.assertEqual(self.json("issue", "checkout", "ACM-1", env=env)["checkoutRunId"], RUN)
        self.assertEqual(self.json("issue", "comment", "ACM-1", "hello", env=env)["createdByRunId"], RUN)
        self.assertRegex(self.run_ok("issue", "comments", "ACM-1"), r" agent Ada \(\S+\)\n  hello\n")

    def test_comments_and_documents(self):
        self.run_ok("issue", "create", "x")
        self.assertEqual(self.run_ok("issue", "comments", "ACM-1"), "no comments\n")
        self.assertRegex(self.run_ok("issue", "comment", "ACM-1", "one\ntwo"), r"^\S+ user local-board\n  one\n  two\n$")
        self.json("issue", "comment", "ACM-1", "three")
        self.assertEqual([c["body"] for c in self.json("issue", "comments", "ACM-1")], ["one\ntwo", "three"])
        self.run_ok("issue", "update", "ACM-1", "--status", "done")
        self.run_ok("issue", "comment", "ACM-1", "again", "--reopen")
        self.assertEqual(self.json("issue", "show", "ACM-1")["status"], "todo")
        self.assertEqual(self.run_ok("issue", "document", "ACM-1"), "no documents\n")
        first = self.json("issue", "document", "ACM-1", "plan", "--file", "-", "--title", "P", stdin="# Plan\n\nx\x1b[1m\n")
        self.assertEqual((first["title"], first["latestRevisionNumber"]), ("P", 1))
        self.assertEqual(self.run_ok("issue", "document", "ACM-1", "plan").splitlines()[:2], ["# Plan", ""])
        self.assertNotIn("\x1b", self.run_ok("issue", "document", "ACM-1", "plan"))
        self.assertRegex(self.run_ok("issue", "document", "ACM-1", "plan", "--file", "-", "--base",
                                     first["latestRevisionId"], stdin="new"), r"^revision 2, \S+\n$")
        self.fails(1, "issue", "document", "ACM-1", "plan", "--file", "/dev/null", "--base", first["latestRevisionId"],
                   says="updated by someone else")
        self.assertRegex(self.run_ok("issue", "document", "ACM-1"), r"(?m)^plan +2 +\S+ +P$")
        self.fails(5, "issue", "document", "ACM-1", "none", says="Document not found")

    def test_projects(self):
        self.assertEqual(self.run_ok("project", "list"), "no projects\n")
        made = self.json("project", "create", "My Site", "--description", "d", "--environment", "Local", "--directory",
                         "/srv/site", "--repo", "https://example.org/site.git", "--env", "A=1")
        self.assertTrue(made["executionWorkspacePolicy"]["environmentId"])
        self.assertEqual((made["primaryWorkspace"]["cwd"], made["env"]["A"]["value"]), ("/srv/site", "1"))
        for given in ("my-site", "My Site", made["id"]):
            shown = self.labels(self.run_ok("project", "show", given))
            self.assertEqual((shown["Name"], shown["Workspace"], shown["A"]), ("My Site", "site: /srv/site", "1"))
        self.assertRegex(self.run_ok("project", "list"), rf"(?m)^{made['id']} +My Site +backlog ")
        self.fails(2, "project", "update", "My Site", says="say what to change")
        changed = self.json("project", "update", "my-site", "--status", "planned", "--mode", "isolated_workspace",
                            "--unset", "A", "-e", "B=2")
        self.assertEqual((changed["status"], changed["executionWorkspacePolicy"]["defaultMode"], list(changed["env"])),
                         ("planned", "isolated_workspace", ["B"]))
        self.assertEqual(changed["executionWorkspacePolicy"]["environmentId"],
                         made["executionWorkspacePolicy"]["environmentId"])
        self.run_ok("project", "workspace", "add", "My Site", "--directory", "/srv/docs")
        self.run_ok("project", "workspace", "update", "My Site", "docs", "--primary", "--ref", "main")
        self.assertRegex(self.run_ok("project", "workspace", "list", "My Site"), r"(?m)^\S+ +docs +true +/srv/docs .*main")
        self.fails(5, "project", "workspace", "remove", "My Site", "x", says="there is no workspace 'x'")
        self.assertEqual(self.run_ok("project", "workspace", "remove", "My Site", "docs"), "removed docs\n")
        self.assertEqual(self.run_ok("project", "delete", "My Site", "--yes"), "deleted My Site\n")
        self.assertEqual(self.run_ok("project", "list"), "no projects\n")


if __name__ == "__main__":
    unittest.main()
