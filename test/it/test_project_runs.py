"""What the project of an issue gives its runs: variables, and where they work."""
# slow: runs with git repositories and sandboxes

import os
import pathlib
import shutil
import subprocess
import unittest

from berthtest import wait_until
from runtest import RunTest


class ProjectRuns(RunTest):
    def project(self, **body):
        return self.ok("POST", f"/api/companies/{self.acme['id']}/projects", {"name": "Site", **body}, status=201)

    def issue(self, agent, project, title="task", **body):
        return self.ok("POST", f"/api/companies/{self.acme['id']}/issues", {
            "title": title, "projectId": project["id"], "assigneeAgentId": agent["id"], "status": "todo", **body}, status=201)

    def run_of(self, issue):
        """The run that the issue's assignment began."""
        return self.daemon.sql("SELECT * FROM heartbeat_runs WHERE issue_id = ? ORDER BY created_at", (issue["id"],))[-1]


class VariablesTest(ProjectRuns):
    def test_variables(self):
        secrets = f"/api/companies/{self.acme['id']}/secrets"
        one, two = (self.ok("POST", secrets, {"name": n, "value": f"value-of-{n}"}, status=201)["id"] for n in ("one", "two"))
        def ref(id):
            return {"type": "secret_ref", "secretId": id}
        project = self.project(env={"PLAIN": "p", "BOTH": "project", "HIDDEN": ref(one), "TAKEN": ref(two),
                                    "PAPERCLIP_WAKE_REASON": "mine"})
        agent = self.runner('echo "$PLAIN $BOTH $TAKEN $PAPERCLIP_WAKE_REASON $HIDDEN"; test "$HIDDEN" = value-of-one',
                            adapter={"env": {"BOTH": "agent", "TAKEN": "agent"}})
        run = self.finished(self.run_of(self.issue(agent, project)))
        self.assertEqual(run["status"], "succeeded", run["error"])
        # The agent's own win; the project's win over the adapter's; a secret's value is in no output.
        self.assertIn("p agent agent mine ***REDACTED***", self.log_text(run))
        self.assertNotIn("value-of-one", self.log_text(run))
        used = [(e["consumerType"], e["consumerId"], e["configPath"], e["outcome"])
                for id in (one, two) for e in self.ok("GET", f"/api/secrets/{id}/access-events")]
        self.assertEqual(used, [("project", project["id"], "env.HIDDEN", "success")])
        # Without the project there is nothing of it.
        bare = self.finished(self.wake(agent))
        self.assertEqual(bare["status"], "failed")


class WorktreeTest(ProjectRuns):
    """Issues that are worked on in a worktree each."""

    daemon_binary = "faults"

    def setUp(self):
        super().setUp()
        self.ok("PATCH", "/api/instance/settings/experimental", {"enableIsolatedWorkspaces": True})
        self.repo = self.temp_dir()
        self.git("init", "-q", "-b", "main")
        self.git("config", "user.name", "Op")
        self.git("config", "user.email", "op@example.org")
        # A repository that runs something on every checkout, if git is let.
        self.git("config", "filter.evil.smudge", f"touch {self.work}/evil; cat")
        (self.repo / ".gitattributes").write_text("* filter=evil\n")
        (self.repo / "base.txt").write_text("base\n")
        self.commit("first")
        (self.repo / ".git/hooks/post-checkout").write_text(f"#!/bin/sh\ntouch {self.work}/evil\n")
        (self.repo / ".git/hooks/post-checkout").chmod(0o755)

    def git(self, *args, where=None, ok=True):
        done = subprocess.run(["git", *args], cwd=where or self.repo, capture_output=True, text=True, timeout=60)
        if ok:
            self.assertEqual(done.returncode, 0, f"{args}: {done.stderr}")
        return done.stdout.strip() if ok else done

    def commit(self, message, where=None):
        self.git("add", "-A", where=where)
        self.git("commit", "-qm", message, where=where)

    def worker(self, more="", name="Ada", wait=None, **body):
        """Commits a file that is named after its issue, and waits for `go` in the test's directory."""
        wait = f"while [ ! -e {self.work}/go ]; do sleep 0.02; done" if wait is None else wait
        return self.runner('git branch --show-current; echo "$PAPERCLIP_TASK_ID" > "$PAPERCLIP_TASK_ID.txt"; ' + more +
                           'git add -A; git commit -qm done; ' + wait, name=name, **body)

    def isolated(self, mode="isolated_workspace", **strategy):
        return self.project(workspace={"cwd": str(self.repo), "repoRef": "main"}, executionWorkspacePolicy={
            "enabled": True, "defaultMode": mode, "workspaceStrategy": strategy})

    def workspace(self, issue):
        id = self.ok("GET", f"/api/issues/{issue['id']}")["executionWorkspaceId"]
        return self.ok("GET", f"/api/execution-workspaces/{id}")

    def readiness(self, workspace):
        return self.ok("GET", f"/api/execution-workspaces/{workspace['id']}/close-readiness")

    def archive(self, workspace, status=200):
        answer = self.req("PATCH", f"/api/execution-workspaces/{workspace['id']}", {"status": "archived"})
        self.assert_status(answer, status)
        return answer.json

    def done(self, issue, status="succeeded"):
        run = self.finished(self.run_of(issue))
        self.assertEqual(run["status"], status, run["error"])
        return run

    def test_three_at_once(self):
        project = self.isolated(branchTemplate="work/{{issue.identifier}}-{{slug}}", teardownCommand="echo down > down.txt",
                                provisionCommand='test "$PAPERCLIP_WORKSPACE_BRANCH" && echo up > up.txt')
        agent = self.worker("cat base.txt up.txt; ")
        issues = [self.issue(agent, project, f"Task {i}!") for i in range(3)]
        for issue in issues:
            self.up(self.run_of(issue))
        places = [self.workspace(issue) for issue in issues]
        self.assertEqual(len({w["cwd"] for w in places}), 3)
        (self.work / "go").touch()
        for n, (issue, w) in enumerate(zip(issues, places)):
            self.assertIn(f"work/{issue['identifier']}-task-{n}", self.log_text(self.done(issue)))
            self.assertEqual((w["mode"], w["strategyType"], w["branchName"], w["baseRef"]),
                             ("isolated_workspace", "git_worktree", f"work/{issue['identifier']}-task-{n}", "main"))
            self.assertEqual((pathlib.Path(w["cwd"]) / "down.txt").read_text(), "down\n")
        self.assertFalse((self.work / "evil").exists())
        self.assertEqual(self.git("status", "--porcelain"), "")  # the repository around them sees none of it
        self.assertEqual(len(self.git("for-each-ref", "refs/heads/work").splitlines()), 3)
        # What is in no commit is not destroyed.
        for w in places:
            ready = self.readiness(w)
            self.assertEqual((ready["state"], ready["git"]["untrackedEntryCount"], ready["git"]["aheadCount"]), ("blocked", 1, 1))
            self.assertEqual(self.archive(w, 409)["closeReadiness"]["blockingReasons"],
                             ["1 new file(s) of the worktree are in no commit."])
            (pathlib.Path(w["cwd"]) / "down.txt").unlink()
        ready = self.readiness(places[0])
        self.assertEqual((ready["state"], ready["deliveryState"], ready["git"]["isMergedIntoBase"]),
                         ("ready_with_warnings", "unmerged", False))
        self.assertIn("1 commit(s) are not merged; their branch stays.", ready["warnings"])
        # All of them merged home.
        for w in places:
            self.git("merge", "-q", "--no-edit", w["branchName"])
        for issue, w in zip(issues, places):
            self.assertEqual((self.repo / f"{issue['id']}.txt").read_text(), issue["id"] + "\n")
            self.ok("PATCH", f"/api/issues/{issue['id']}", {"status": "done"})
            ready = self.readiness(w)
            self.assertEqual((ready["state"], ready["deliveryState"]), ("ready", "merged_by_ancestry"))
            self.assertEqual([a["kind"] for a in ready["plannedActions"]], ["archive_record", "git_worktree_remove"])
            self.assertEqual(self.archive(w)["status"], "archived")
            self.assertFalse(pathlib.Path(w["cwd"]).exists())
            self.git("rev-parse", "--verify", w["branchName"])
        self.ok("DELETE", f"/api/projects/{project['id']}")

    def test_two_that_conflict(self):
        """Both go on with a branch of the operator's; the second that comes home is kept beside the first."""
        self.git("branch", "release")
        project = self.isolated("operator_branch", branchTemplate="release")
        agent = self.worker('echo "$PAPERCLIP_TASK_ID" > base.txt; ')
        issues = [self.issue(agent, project, f"T{i}") for i in range(2)]
        for issue in issues:
            self.up(self.run_of(issue))
        (self.work / "go").touch()
        for issue in issues:
            self.done(issue)
        refs = self.git("for-each-ref", "--format=%(refname)", "refs/heads/release", "refs/berth").splitlines()
        self.assertEqual([r.split("/")[-1] for r in refs], ["release", "release"])
        self.assertEqual({self.git("show", f"{r}:base.txt") for r in refs}, {i["id"] for i in issues})
        self.assertEqual(self.git("merge-tree", "--write-tree", *refs, ok=False).returncode, 1)
        for issue in issues:  # neither is lost by removing the directories
            self.assertEqual(self.archive(self.workspace(issue))["status"], "archived")

    def test_killed_in_the_middle(self):
        project = self.isolated()
        agent = self.worker()
        (self.work / "go").touch()
        for n, point in enumerate(("worktree.make.before", "worktree.fill.after", "worktree.publish.before", "worktree.publish.after")):
            with self.subTest(point=point):
                self.crash_at(point, lambda: self.issue(agent, project, f"Round {n}"))
                issue = self.ok("GET", f"/api/companies/{self.acme['id']}/issues?projectId={project['id']}")
                issue = next(i for i in issue if i["title"] == f"Round {n}")
                self.done(issue)
                w = self.workspace(issue)
                self.assertEqual(self.git("show", f"{w['branchName']}:{issue['id']}.txt"), issue["id"])
                self.assertFalse(pathlib.Path(w["cwd"] + ".making").exists())
        self.crash_at("worktree.remove.before", lambda: self.archive(w))
        self.until_gone(w)

    def until_gone(self, w):
        wait_until(lambda: not pathlib.Path(w["cwd"]).exists(), "the sweeper removes the worktree")
        wait_until(lambda: self.daemon.sql("SELECT 1 FROM execution_workspaces WHERE id = ? AND worktree_path IS NULL",
                                           (w["id"],)), "and its row forgets it")

    def test_rows_and_directories(self):
        """A directory without a row and a row without its directory are leaks; a company goes with its worktrees, but for
        what is in no commit."""
        project = self.isolated()
        agent = self.worker(wait="true")
        issues = [self.issue(agent, project, f"T{i}") for i in range(3)]
        for issue in issues:
            self.done(issue)
        clean, dirty, lost = (pathlib.Path(self.workspace(i)["cwd"]) for i in issues)
        self.assertEqual(self.ok("GET", "/api/leaks")["total"], 0)
        (dirty / "precious.txt").write_text("in no commit\n")
        shutil.rmtree(lost)
        (missing,) = self.ok("GET", "/api/leaks")["missing"]
        self.assertEqual((missing["provider"], missing["description"], missing["ownerTag"]),
                         ("worktree", str(lost), self.workspace(issues[2])["id"]))
        self.assert_status(self.req("DELETE", f"/api/companies/{self.acme['id']}?confirm={self.acme['name']}"), 200)
        self.assertEqual([p.exists() for p in (clean, dirty, lost)], [False, True, False])
        self.assertEqual((dirty / "precious.txt").read_text(), "in no commit\n")
        self.assertEqual(len(self.git("for-each-ref", "refs/heads").splitlines()), 4)  # their commits are at home
        leaks = self.ok("GET", "/api/leaks")
        self.assertEqual([(u["provider"], u["description"]) for u in leaks["unknown"]], [("worktree", str(dirty))])
        shutil.rmtree(dirty)
        self.assertEqual(self.ok("GET", "/api/leaks")["total"], 0)

    def test_a_run_without_an_issue(self):
        """Prepared twice it works in the same worktree."""
        project = self.isolated()
        agent = self.runner(f"git branch --show-current; while [ ! -e {self.work}/go ]; do sleep 0.02; done",
                            runtimeConfig={"heartbeat": {"maxConcurrentRuns": 1}})
        first, run = self.wake_several(agent, 2)
        self.edit("UPDATE heartbeat_runs SET context_snapshot = json_set(context_snapshot, '$.projectId', ?) WHERE id = ?",
                  (project["id"], run["id"]))
        self.crash_at("worktree.make.before", self.release_held)
        self.assertEqual(self.finished(run)["status"], "succeeded")
        self.assertIn(f"run-{run['id']}", self.log_text(run))
        self.assertEqual([r["id"] for r in self.daemon.sql("SELECT id FROM execution_workspaces")], [run["id"]])

    @unittest.skipUnless(os.geteuid() == 0, "needs another user's repository")
    def test_of_another_user(self):
        project = self.isolated()
        subprocess.run(["chown", "-R", "4321", self.repo], check=True)
        run = self.done(self.issue(self.worker(wait="true"), project), "failed")
        self.assertIn("it belongs to user 4321, and the daemon is user 0.", run["error"])
        self.assertIn("or use the mode shared_workspace", run["error"])

    def test_in_a_sandbox(self):
        """The worktree is a repository there too, and its commits come home."""
        project = self.isolated()
        agent = self.worker(environment=self.sandbox(), wait="true")
        issue = self.issue(agent, project, "Inside")
        self.done(issue)
        w = self.workspace(issue)
        self.assertEqual(self.git("show", f"{w['branchName']}:{issue['id']}.txt"), issue["id"])

    def test_who_decides(self):
        """The issue over its project, unless the project says otherwise; the project over the agent."""
        project = self.isolated(branchTemplate="p")
        agent = self.worker(adapter={"workspaceStrategy": {"type": "git_worktree", "branchTemplate": "a"}})
        (self.work / "go").touch()
        shared = self.issue(agent, project, executionWorkspaceSettings={"mode": "shared_workspace"})
        self.done(shared)
        self.assertEqual((self.workspace(shared)["cwd"], self.workspace(shared)["mode"]), (str(self.repo), "shared_workspace"))
        own = self.issue(agent, project, executionWorkspaceSettings={"workspaceStrategy": {"branchTemplate": "i"}})
        self.done(own)
        self.assertEqual(self.workspace(own)["branchName"], "i")
        self.ok("PATCH", f"/api/projects/{project['id']}", {"executionWorkspacePolicy": {
            **project["executionWorkspacePolicy"], "allowIssueOverride": False}})
        refused = self.issue(agent, project, executionWorkspaceSettings={"mode": "shared_workspace"})
        self.done(refused)
        self.assertEqual(self.workspace(refused)["branchName"], "p")
        self.ok("PATCH", f"/api/projects/{project['id']}", {"executionWorkspacePolicy": {"enabled": True, "defaultMode": "adapter_default"}})
        default = self.issue(agent, project)
        self.done(default)
        self.assertEqual((self.workspace(default)["mode"], self.workspace(default)["branchName"]), ("agent_default", "a"))
        # Without a directory there is nothing to make one from.
        bare = self.project(name="Bare", executionWorkspacePolicy={"enabled": True, "defaultMode": "isolated_workspace"})
        run = self.done(self.issue(agent, bare), "failed")
        self.assertEqual(run["errorCode"], "workspace_realization_failed")
        self.assertIn("has no workspace with a directory", run["error"])


if __name__ == "__main__":
    unittest.main()
