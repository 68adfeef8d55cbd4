"""Crash at every step: for each operation, kill the daemon at every crash point that the operation passes, at the
first time and at the following ones, start it again, and see from outside that nothing was lost and nothing is
left over.

A stage is set once per operation. One run without a crash records which points are passed (BERTH_FAULT_TRACE); then
each of them gets a run on a copy of the stage. A point that no operation reaches fails the test, so that a new point
needs an operation here. BERTH_WALK_ONLY=substring walks single operations, TEST_SHARE a share of the points.
"""

# sqlite: copies data directories with their record

import collections
import concurrent.futures
import os
import signal
import subprocess
import threading
import time
import traceback
import unittest

from berthtest import BINARIES, wait_until
from crashworld import Died, World
from share import CRASH_PARTS, in_share

# slow: several hundred daemons
RUN_A = "00000000-0000-4000-8000-00000000000a"
RUN_B = "00000000-0000-4000-8000-00000000000b"
TIMES_MAX = 4  # of a point that is passed more often, the first few are enough
SECRETS = ("secret.", "vault.", "vault_fake.", "master_key.", "env_secrets.")
# test_run_crash.py, test_exec_kill.py, test_exec_far.py, test_plugin_box.py, test_sandbox_crash.py, test_images_crash.py, test_secret_walk.py, test_plugin_crash.py (registry),
# test_provider_crash.py, test_kind_podman.py (command), test_project_runs.py (worktree) and test_erase.py crash at each of those
ELSEWHERE = ("command.", "exec.", "image.", "plugin_box.", "sandbox.", "workspace.", "registry.", "provider.", "run.", "runlog.", "worktree.",
             "erase.", "fork.", *SECRETS)
OPERATIONS = []


class Operation:
    """stage() sets the scene, act() is what crashes, check() runs after the daemon came back and settled.

    In check(), w.done tells what the client was told before the crash: that must have lasted. Then the operation is
    repeated, as a client would."""

    env = {}

    def __init_subclass__(cls, base=False):
        if not base:
            OPERATIONS.append(cls)

    def stage(self, w):
        pass

    def mend(self, w):
        """Before the daemon comes back."""
        w.untell()

    def check(self, w):
        pass


def require(condition, text):
    if not condition:
        raise AssertionError(text)


# The instance and its companies


class FirstStart(Operation):
    def act(self, w):
        w.expect(200, "GET", "/api/health")

    def check(self, w):
        versions = w.sql("SELECT version FROM schema_migrations")
        require(len(versions) == len({v["version"] for v in versions}) > 0, f"migrations: {versions}")
        require(w.expect(200, "GET", "/api/cli-auth/me")["isInstanceAdmin"], "the operator is not there")


class InCompany(Operation, base=True):
    def stage(self, w):
        w.facts["company"] = w.company()


class CompanyCreate(Operation):
    def act(self, w):
        w.do("made", "POST", "/api/companies", {"name": "New"})

    def check(self, w):
        named = [c["id"] for c in w.expect(200, "GET", "/api/companies") if c["name"] == "New"]
        if "made" in w.done:
            require(named == [w.done["made"]["id"]], f"told {w.done['made']['id']}, found {named}")
        require(len(named) <= 1, f"made twice: {named}")
        for company in named:  # whole, or not at all
            require(w.expect(200, "GET", f"/api/companies/{company}/members")["members"], "a company without members")
        w.expect(201, "POST", "/api/companies", {"name": "New"})


class CompanyUpdate(InCompany):
    def act(self, w):
        w.do("changed", "PATCH", f"/api/companies/{w.facts['company']}", {"name": "Renamed"})

    def check(self, w):
        name = w.expect(200, "GET", f"/api/companies/{w.facts['company']}")["name"]
        require(name == "Renamed" or (name == "Acme" and "changed" not in w.done), name)
        self.act(w)


class CompanyDelete(InCompany):
    def act(self, w):
        w.do("deleted", "DELETE", f"/api/companies/{w.facts['company']}")

    def check(self, w):
        status = w.ask("GET", f"/api/companies/{w.facts['company']}").status
        require(status == 404 or (status == 200 and "deleted" not in w.done), status)
        if status == 200:
            self.act(w)


class MemberPermissions(InCompany):
    def act(self, w):
        company = w.facts["company"]
        member = w.expect(200, "GET", f"/api/companies/{company}/members")["members"][0]["id"]
        w.do("granted", "PATCH", f"/api/companies/{company}/members/{member}/permissions",
             {"grants": [{"permissionKey": "agents:create"}]})

    def check(self, w):
        member = w.expect(200, "GET", f"/api/companies/{w.facts['company']}/members")["members"][0]
        keys = [g["permissionKey"] for g in member["grants"]]
        require(keys == ["agents:create"] or "granted" not in w.done, keys)
        self.act(w)


class SettingsPatch(Operation):
    path = "/api/instance/settings/general"

    def stage(self, w):
        settings = w.expect(200, "GET", self.path)
        key = next(k for k, v in sorted(settings.items()) if isinstance(v, bool))
        w.facts["patch"] = {key: not settings[key]}

    def act(self, w):
        w.do("patched", "PATCH", self.path, w.facts["patch"])

    def check(self, w):
        now = w.expect(200, "GET", self.path)
        require(w.facts["patch"].items() <= now.items() or "patched" not in w.done, now)
        self.act(w)
        require(w.facts["patch"].items() <= w.expect(200, "GET", self.path).items(), "not patched")


# Keys


class KeyCreate(Operation):
    def act(self, w):
        w.do("key", "POST", "/api/board-api-keys", {"name": "k"})

    def check(self, w):
        if "key" in w.done:
            w.expect(200, "GET", "/api/cli-auth/me", token=w.done["key"]["token"])
        self.act(w)
        w.expect(200, "GET", "/api/cli-auth/me", token=w.done["key"]["token"])


class KeyRevoke(Operation):
    def stage(self, w):
        w.facts["key"] = w.do("key", "POST", "/api/board-api-keys", {"name": "k"})

    def act(self, w):
        w.do("revoked", "DELETE", f"/api/board-api-keys/{w.facts['key']['id']}")

    def check(self, w):
        status = w.ask("GET", "/api/cli-auth/me", token=w.facts["key"]["token"]).status
        require(status == 401 or (status == 200 and "revoked" not in w.done), status)
        if status == 200:
            self.act(w)
            w.expect(401, "GET", "/api/cli-auth/me", token=w.facts["key"]["token"])


class AgentCreate(InCompany):
    def act(self, w):
        w.do("agent", "POST", f"/api/companies/{w.facts['company']}/agents", {"name": "Ada"})

    def check(self, w):
        ids = [a["id"] for a in w.expect(200, "GET", f"/api/companies/{w.facts['company']}/agents")]
        if "agent" in w.done:
            require(ids == [w.done["agent"]["id"]], ids)
        require(len(ids) <= 1, f"made twice: {ids}")
        self.act(w)
        w.do("key", "POST", f"/api/agents/{w.done['agent']['id']}/keys", {"name": "k"})
        w.expect(200, "GET", "/api/agents/me", token=w.done["key"]["token"])


class AgentKeyCreate(InCompany):
    def stage(self, w):
        super().stage(w)
        w.facts["agent"] = w.do("agent", "POST", f"/api/companies/{w.facts['company']}/agents", {"name": "A"})["id"]

    def act(self, w):
        w.do("key", "POST", f"/api/agents/{w.facts['agent']}/keys", {"name": "k"})

    def check(self, w):
        if "key" in w.done:
            w.expect(200, "GET", "/api/agents/me", token=w.done["key"]["token"])
        self.act(w)
        w.expect(200, "GET", "/api/agents/me", token=w.done["key"]["token"])


class AgentKeyRevoke(AgentKeyCreate):
    def stage(self, w):
        super().stage(w)
        w.facts["key"] = w.do("key", "POST", f"/api/agents/{w.facts['agent']}/keys", {"name": "k"})

    def act(self, w):
        w.do("revoked", "DELETE", f"/api/agents/{w.facts['agent']}/keys/{w.facts['key']['id']}")

    def check(self, w):
        status = w.ask("GET", "/api/agents/me", token=w.facts["key"]["token"]).status
        require(status == 401 or (status == 200 and "revoked" not in w.done), status)
        if status == 200:
            self.act(w)


class AgentTimer(AgentKeyCreate):
    """An agent gets a schedule: it begins once, and wakes nobody before its time."""

    def act(self, w):
        w.do("timed", "PATCH", f"/api/agents/{w.facts['agent']}",
             {"runtimeConfig": {"heartbeat": {"enabled": True, "intervalSec": 3600}}})
        wait_until(lambda: not w.alive() or self.rows(w), "its schedule begins")

    def check(self, w):
        self.act(w)
        require(len(self.rows(w)) == 1, self.rows(w))
        require(not w.sql("SELECT id FROM heartbeat_runs"), "woken too early")

    def rows(self, w):
        return w.sql("SELECT last_due_at FROM agent_schedules")


class AgentUpdate(AgentKeyCreate):
    def stage(self, w):
        super().stage(w)
        w.facts["secret"] = w.do("secret", "POST", f"/api/companies/{w.facts['company']}/secrets",
                                 {"name": "key", "value": "v"})["id"]

    def act(self, w):
        env = {"A": {"type": "secret_ref", "secretId": w.facts["secret"]}}
        w.do("bound", "PATCH", f"/api/agents/{w.facts['agent']}", {"adapterConfig": {"env": env}})

    def check(self, w):
        """The row and the binding came together."""
        config = w.expect(200, "GET", f"/api/agents/{w.facts['agent']}")["adapterConfig"]
        require(("env" in config) == len(self.bindings(w)), (config, self.bindings(w)))
        require("env" in config or "bound" not in w.done, "the variable was lost")
        self.act(w)
        require(self.bindings(w) == ["env.A"], self.bindings(w))

    def bindings(self, w):
        return [b["configPath"] for b in w.expect(200, "GET", f"/api/secrets/{w.facts['secret']}/usage")["bindings"]]


class AgentDelete(AgentUpdate):
    def stage(self, w):
        super().stage(w)
        super().act(w)

    def act(self, w):
        w.do("deleted", "DELETE", f"/api/agents/{w.facts['agent']}")

    def check(self, w):
        status = w.ask("GET", f"/api/agents/{w.facts['agent']}").status
        require(len(self.bindings(w)) == (status == 200), (status, self.bindings(w)))
        require(status == 404 or "deleted" not in w.done, status)
        if status == 200:
            self.act(w)


class AgentTerminate(AgentDelete):
    """Status, keys and bindings end together."""

    def act(self, w):
        w.do("ended", "POST", f"/api/agents/{w.facts['agent']}/terminate", {})

    def check(self, w):
        status = w.expect(200, "GET", f"/api/agents/{w.facts['agent']}")["status"]
        require(self.bindings(w) == ([] if status == "terminated" else ["env.A"]), (status, self.bindings(w)))
        require(status == "terminated" or "ended" not in w.done, status)
        self.act(w)
        require(self.bindings(w) == [], "a terminated agent with secrets")


# Work


class InProject(InCompany, base=True):
    def stage(self, w):
        super().stage(w)
        w.facts["issues"] = f"/api/companies/{w.facts['company']}/issues"
        w.facts["projects"] = f"/api/companies/{w.facts['company']}/projects"
        w.facts["agent"] = w.do("agent", "POST", f"/api/companies/{w.facts['company']}/agents", {
            "name": "A", "runtimeConfig": {"heartbeat": {"wakeOnDemand": False}}})["id"]
        w.facts["issue"] = f"/api/issues/{w.do('first', 'POST', w.facts['issues'], {'title': 'first'})['id']}"


class IssueCreate(InProject):
    def act(self, w):
        w.do("issue", "POST", w.facts["issues"], {"title": "second"})

    def check(self, w):
        self.act(w)
        numbers = sorted(i["issueNumber"] for i in w.expect(200, "GET", w.facts["issues"]))
        require(numbers == list(range(1, len(numbers) + 1)), f"numbers lost or given twice: {numbers}")


class IssueUpdate(InProject):
    """The change and its comment come together."""

    def act(self, w):
        w.do("changed", "PATCH", w.facts["issue"], {"title": "new", "comment": "why"})

    def check(self, w):
        changed = w.expect(200, "GET", w.facts["issue"])["title"] == "new"
        require(len(w.expect(200, "GET", w.facts["issue"] + "/comments")) == changed, "half a change")
        require(changed or "changed" not in w.done, "lost")
        self.act(w)


class IssueCheckout(InProject):
    def act(self, w):
        w.do("taken", "POST", w.facts["issue"] + "/checkout",
             {"agentId": w.facts["agent"], "expectedStatuses": ["backlog"]})

    def check(self, w):
        issue = w.expect(200, "GET", w.facts["issue"])
        require((issue["status"], issue["assigneeAgentId"]) in (("in_progress", w.facts["agent"]), ("backlog", None)), issue)
        require(issue["status"] == "in_progress" or "taken" not in w.done, issue)
        self.act(w)  # again is no conflict


class IssueRelease(IssueCheckout):
    def stage(self, w):
        super().stage(w)
        super().act(w)

    def act(self, w):
        w.do("free", "POST", w.facts["issue"] + "/release", {})

    def check(self, w):
        issue = w.expect(200, "GET", w.facts["issue"])
        require((issue["status"], issue["assigneeAgentId"]) in (("in_progress", w.facts["agent"]), ("todo", None)), issue)
        require(issue["status"] == "todo" or "free" not in w.done, issue)
        self.act(w)


class IssueComment(InProject):
    def act(self, w):
        w.do("said", "POST", w.facts["issue"] + "/comments", {"body": "x"})

    def check(self, w):
        n = len(w.expect(200, "GET", w.facts["issue"] + "/comments"))
        require(n == 1 or (n == 0 and "said" not in w.done), n)
        self.act(w)


class IssueDocument(InProject):
    """A document has the revision that it names."""

    def act(self, w):
        w.do("put", "PUT", w.facts["issue"] + "/documents/plan", {"format": "markdown", "body": "x"})

    def check(self, w):
        documents = w.expect(200, "GET", w.facts["issue"] + "/documents")
        require(len(documents) == 1 or "put" not in w.done, "lost")
        self.act(w)
        revisions = w.expect(200, "GET", w.facts["issue"] + "/documents/plan/revisions")
        require(len(revisions) == len(documents) + 1, revisions)


class ProjectCreate(InProject):
    def act(self, w):
        w.do("project", "POST", w.facts["projects"], {"name": "p"})

    def check(self, w):
        n = len(w.expect(200, "GET", w.facts["projects"]))
        require(n == 1 or (n == 0 and "project" not in w.done), n)
        self.act(w)


class ProjectUpdate(InProject):
    def stage(self, w):
        super().stage(w)
        w.facts["project"] = f"/api/projects/{w.do('project', 'POST', w.facts['projects'], {'name': 'p'})['id']}"

    def act(self, w):
        w.do("changed", "PATCH", w.facts["project"], {"name": "new"})

    def check(self, w):
        name = w.expect(200, "GET", w.facts["project"])["name"]
        require(name == "new" or "changed" not in w.done, name)
        self.act(w)


class ProjectDelete(ProjectUpdate):
    def act(self, w):
        w.do("deleted", "DELETE", w.facts["project"])

    def check(self, w):
        n = len(w.expect(200, "GET", w.facts["projects"]))
        require(n == 0 or "deleted" not in w.done, n)
        if n:
            self.act(w)


class ProjectWorkspace(ProjectUpdate):
    def act(self, w):
        made = w.do("made", "POST", w.facts["project"] + "/workspaces", {"cwd": "/srv"})
        w.do("gone", "DELETE", f"{w.facts['project']}/workspaces/{made['id']}")

    def check(self, w):
        n = len(w.expect(200, "GET", w.facts["project"])["workspaces"])
        require(n == 0 or "gone" not in w.done, n)
        self.act(w)


class ChallengeCreate(Operation):
    def act(self, w):
        w.do("challenge", "POST", "/api/cli-auth/challenges", {"command": "berth login"})

    def check(self, w):
        if "challenge" not in w.done:
            self.act(w)
        made = w.done["challenge"]
        w.do("approved", "POST", f"/api/cli-auth/challenges/{made['id']}/approve", {"token": made["token"]})
        w.expect(200, "GET", "/api/cli-auth/me", token=made["boardApiToken"])


class ChallengeApprove(Operation):
    def stage(self, w):
        w.facts["made"] = w.do("made", "POST", "/api/cli-auth/challenges", {"command": "berth login"})

    def act(self, w):
        made = w.facts["made"]
        w.do("approved", "POST", f"/api/cli-auth/challenges/{made['id']}/approve", {"token": made["token"]})

    def check(self, w):
        token = w.facts["made"]["boardApiToken"]
        status = w.ask("GET", "/api/cli-auth/me", token=token).status
        require(status == 200 or (status == 401 and "approved" not in w.done), status)
        self.act(w)  # approving again changes nothing
        w.expect(200, "GET", "/api/cli-auth/me", token=token)
        require(len(w.sql("SELECT id FROM board_api_keys")) == 1, "one approval, several keys")


# Environments


class EnvironmentCreate(InCompany):
    def act(self, w):
        w.facts["environment"] = w.environment(w.facts["company"], "new")

    def check(self, w):
        listed = w.expect(200, "GET", f"/api/companies/{w.facts['company']}/environments")
        named = [e["id"] for e in listed if e["name"] == "new"]
        if "environment new" in w.done:
            require(named == [w.done["environment new"]["id"]], named)
        require(len(named) <= 1, named)
        if not named:
            self.act(w)


class InEnvironment(InCompany, base=True):
    """An environment whose places are used once (reuse = False) or again."""

    reuse = False

    def stage(self, w):
        super().stage(w)
        w.facts["env"] = w.environment(w.facts["company"], reuseLease=self.reuse)

    def act(self, w):
        w.acquire(w.facts["env"])

    def check(self, w):
        if "lease" in w.done:
            self.check_lasted(w)
        w.acquire(w.facts["env"], name="again", heartbeatRunId=RUN_B)
        w.release_all()

    def check_lasted(self, w):
        lease = w.lease(w.done["lease"]["lease"]["id"])
        require(lease["status"] == "active", lease)
        place = w.leases(f"id = '{lease['id']}'")[0]["place_id"]
        require(place in w.things(), "a lease without a thing in the world")


class EnvironmentUpdate(InEnvironment):
    def act(self, w):
        w.do("changed", "PATCH", f"/api/environments/{w.facts['env']}", {"name": "Renamed"})

    def check(self, w):
        name = w.expect(200, "GET", f"/api/environments/{w.facts['env']}")["name"]
        require(name == "Renamed" or (name == "box" and "changed" not in w.done), name)
        self.act(w)


class EnvironmentDelete(InEnvironment):
    """With one lease in use and one idle place."""

    reuse = True

    def stage(self, w):
        super().stage(w)
        idle = w.acquire(w.facts["env"], heartbeatRunId=RUN_A)["id"]
        w.acquire(w.facts["env"], heartbeatRunId=RUN_B)
        w.release(idle)

    def act(self, w):
        w.do("deleted", "DELETE", f"/api/environments/{w.facts['env']}?closeLeases=true")

    def check(self, w):
        status = w.ask("GET", f"/api/environments/{w.facts['env']}").status
        require(status == 404 or (status == 200 and "deleted" not in w.done), status)
        if status == 200:
            self.act(w)
        require(not w.things() and not w.places(), "something outlived its environment")


# Acquiring


class AcquireEphemeral(InEnvironment):
    pass


class AcquireWithKey(InEnvironment):
    def act(self, w):
        w.acquire(w.facts["env"], idempotencyKey="k")

    def check(self, w):
        told = w.done.get("lease")
        again = w.acquire(w.facts["env"], idempotencyKey="k")
        require(told is None or told["lease"]["id"] == again["id"], "the key gave another lease")
        require(again["status"] == "active", again["status"])
        require(len(w.leases("idempotency_key = 'k'")) == 1 and len(w.things()) == 1, "two for one key")
        w.release_all()


class AcquireLocal(InCompany):
    def stage(self, w):
        super().stage(w)
        listed = w.expect(200, "GET", f"/api/companies/{w.facts['company']}/environments")
        w.facts["env"] = next(e["id"] for e in listed if e["driver"] == "local")

    def act(self, w):
        w.acquire(w.facts["env"], idempotencyKey="k")

    def check(self, w):
        told = w.done.get("lease")
        again = w.acquire(w.facts["env"], idempotencyKey="k")
        require(told is None or told["lease"]["id"] == again["id"], "the key gave another lease")
        require(len(w.leases()) == 1, "two for one key")
        w.release_all()


class AcquireReusable(InEnvironment):
    """Nothing is there yet."""

    reuse = True

    def act(self, w):
        w.acquire(w.facts["env"], heartbeatRunId=RUN_A, idempotencyKey="k")

    def check(self, w):
        if "lease" in w.done:
            self.check_lasted(w)
        w.acquire(w.facts["env"], name="again", heartbeatRunId=RUN_A, idempotencyKey="k")
        require(len(w.leases()) == 1 and len(w.things()) == 1, "two for one key")
        w.release_all()
        require([p["state"] for p in w.places()] == ["ready"], "a reusable place was not kept")


class AcquireReady(InEnvironment):
    """An idle place is taken up."""

    reuse = True

    def stage(self, w):
        super().stage(w)
        w.release(w.acquire(w.facts["env"], heartbeatRunId=RUN_A)["id"])
        w.facts["thing"] = w.things().pop()

    def act(self, w):
        w.acquire(w.facts["env"], heartbeatRunId=RUN_B, idempotencyKey="k")

    def check(self, w):
        if "lease" in w.done and w.leases("idempotency_key = 'k'"):
            self.check_lasted(w)
        w.acquire(w.facts["env"], heartbeatRunId=RUN_B, idempotencyKey="k")
        require(w.things() == {w.facts["thing"]}, "the idle place was not taken up again")
        w.release_all()


class AcquireJoined(InEnvironment):
    """The same run takes a second lease: both use one place."""

    reuse = True

    def stage(self, w):
        super().stage(w)
        w.facts["first"] = w.acquire(w.facts["env"], heartbeatRunId=RUN_A)["id"]

    def act(self, w):
        w.acquire(w.facts["env"], name="joined", heartbeatRunId=RUN_A)

    def check(self, w):
        require(w.lease(w.facts["first"])["status"] == "active", "the first lease was lost")
        if "joined" in w.done:
            require(w.lease(w.done["joined"]["lease"]["id"])["status"] == "active", "the second lease was lost")
        w.acquire(w.facts["env"], name="joined again", heartbeatRunId=RUN_A)
        require(len(w.things()) == 1, "the run has two places")
        w.do("all", "POST", f"/api/heartbeat-runs/{RUN_A}/release-leases", {})
        require(not w.leases() and [p["state"] for p in w.places()] == ["ready"], "not given back")


class AcquireCannotResume(AcquireReady):
    """The idle place is broken: it goes, and a new one is opened."""

    def act(self, w):
        w.tell("fail-resume")
        super().act(w)

    def check(self, w):
        if "lease" in w.done:
            self.check_lasted(w)
        w.acquire(w.facts["env"], heartbeatRunId=RUN_B, idempotencyKey="k")
        require(len(w.things()) == 1, w.things())
        w.release_all()


class AcquireRefused(InEnvironment):
    """The provider says no."""

    def act(self, w):
        w.tell("fail-open")
        w.expect(502, "POST", f"/api/environments/{w.facts['env']}/leases", {"idempotencyKey": "k"})
        require(not w.things(), "refused, and still there")

    def check(self, w):
        require(not w.places(), w.places())
        w.acquire(w.facts["env"], idempotencyKey="k")
        w.release_all()


class AcquireAnswerLost(AcquireRefused):
    """The provider made it, but nobody heard."""

    def act(self, w):
        w.tell("lose-open")
        w.expect(502, "POST", f"/api/environments/{w.facts['env']}/leases", {"idempotencyKey": "k"})


class AcquireTooLate(InEnvironment):
    """The environment is archived while the provider works."""

    hold, run = "hold-open", None

    def act(self, w):
        outcome = []
        w.tell(self.hold)

        def acquire():
            try:
                outcome.append(w.ask("POST", f"/api/environments/{w.facts['env']}/leases",
                                     {"heartbeatRunId": self.run}).status)
            except Died:
                outcome.append(None)

        thread = threading.Thread(target=acquire)
        thread.start()
        try:
            wait_until(lambda: outcome or self.under_way(w), "the provider is asked")
            w.do("archived", "PATCH", f"/api/environments/{w.facts['env']}", {"status": "archived"})
        finally:
            w.untell(self.hold)
            thread.join()
        require(outcome[0] in (None, 422), outcome)

    def under_way(self, w):
        return w.places("state = 'intended'")

    def check(self, w):
        require(not w.leases(), "a lease in an archived environment")
        w.do("active", "PATCH", f"/api/environments/{w.facts['env']}", {"status": "active"})
        w.acquire(w.facts["env"], heartbeatRunId=RUN_B)
        w.release_all()


class AcquireReadyTooLate(AcquireTooLate):
    reuse, hold, run = True, "hold-resume", RUN_B

    def stage(self, w):
        super().stage(w)
        w.release(w.acquire(w.facts["env"], heartbeatRunId=RUN_A)["id"])

    def under_way(self, w):
        return w.places("state = 'held'")


# Releasing, renewing, expiring


class Release(InEnvironment):
    body, status, policy_keeps = {}, "released", False

    def stage(self, w):
        super().stage(w)
        w.facts["lease"] = w.acquire(w.facts["env"], heartbeatRunId=RUN_A)["id"]

    def act(self, w):
        require(w.release(w.facts["lease"], **self.body)["status"] == self.status, "wrong status")

    def check(self, w):
        if "release" in w.done:
            require(w.lease(w.facts["lease"])["status"] == self.status, "the release was lost")
        again = w.release(w.facts["lease"], **self.body)
        require(again["status"] == self.status and again["releasedAt"], again)
        w.settle()
        kept = [p["state"] for p in w.places()]
        require(kept == (["ready"] if self.policy_keeps else []), kept)
        require(w.lease(w.facts["lease"])["cleanupStatus"] == "success", "clean-up was not recorded")
        released = w.sql("SELECT id FROM activity_log WHERE action = 'environment.lease_released'")
        require(len(released) == 1, f"released {len(released)} times")


class ReleaseReusable(Release):
    reuse = policy_keeps = True


class ReleaseFailed(Release):
    reuse, body, status = True, {"status": "failed"}, "failed"


class ReleaseRun(Release):
    def stage(self, w):
        super().stage(w)
        for _ in range(2):
            w.acquire(w.facts["env"], heartbeatRunId=RUN_A)
        w.facts["other"] = w.acquire(w.facts["env"], heartbeatRunId=RUN_B)["id"]

    def act(self, w):
        w.do("all", "POST", f"/api/heartbeat-runs/{RUN_A}/release-leases", {})

    def check(self, w):
        again = w.expect(200, "POST", f"/api/heartbeat-runs/{RUN_A}/release-leases", {})
        require(not again or "all" not in w.done, "told that all were released")
        w.settle()
        require([lease["id"] for lease in w.leases()] == [w.facts["other"]], "not exactly the run's leases")


class Renew(Release):
    def act(self, w):
        w.do("renewed", "POST", f"/api/environment-leases/{w.facts['lease']}/renew", {"ttlMs": 3600000})

    def check(self, w):
        told = w.done.get("renewed")
        require(not told or w.lease(w.facts["lease"])["expiresAt"] == told["lease"]["expiresAt"], "renewal lost")
        self.act(w)
        w.release_all()


class Expiry(Release):
    status = "expired"

    def act(self, w):
        w.do("renewed", "POST", f"/api/environment-leases/{w.facts['lease']}/renew", {"ttlMs": 1})
        wait_until(lambda: not w.alive() or w.lease(w.facts["lease"])["status"] == "expired", "it expires")

    def check(self, w):
        if "renewed" not in w.done and w.lease(w.facts["lease"])["expiresAt"] is None:
            self.act(w)
        wait_until(lambda: w.lease(w.facts["lease"])["status"] == "expired", "it expires")
        w.settle()
        require(not w.things(), "expired, and still there")


class ExpiryReusable(Expiry):
    reuse = True


class IdlePlace(Release):
    """Parked, and then closed by the sweeper because its time is up."""

    reuse = True
    env = {"BERTH_IDLE_PLACE_TTL_MS": "1"}

    def act(self, w):
        super().act(w)
        wait_until(lambda: not w.alive() or not w.things(), "the idle place is closed")

    def check(self, w):
        w.release(w.facts["lease"])
        wait_until(lambda: not w.things(), "the idle place is closed")


class UnwantedPlace(AcquireReady):
    """An idle place whose environment changed its configuration."""

    def act(self, w):
        w.do("changed", "PATCH", f"/api/environments/{w.facts['env']}",
             {"config": {"provider": "fake", "image": "other:1", "reuseLease": True}})
        wait_until(lambda: not w.alive() or not w.things(), "the idle place is closed")

    def check(self, w):
        self.act(w)
        w.settle()
        require(not w.places(), w.places())


# When the provider cannot let go


class CloseFails(Release):
    """The lease ends all the same, and the sweeper goes on until the place is gone."""

    def act(self, w):
        w.tell("fail-close")
        super().act(w)
        require(w.done["release"]["lease"]["cleanupStatus"] == "failed", w.done["release"])
        w.untell("fail-close")
        wait_until(lambda: not w.alive() or not w.things(), "the place is closed at last")


class LeftOver(InEnvironment, base=True):
    """A place that the last daemon left in some state, for an operator to decide on."""

    state, action, stays = "uncertain", "close", False

    def stage(self, w):
        super().stage(w)
        w.acquire(w.facts["env"], heartbeatRunId=RUN_A)
        w.facts["place"] = w.things().pop()
        w.daemon.stop()
        later = int(time.time() + 3600) * 1000000  # not yet the sweeper's
        w.edit("DELETE FROM environment_leases")
        w.edit("UPDATE places SET state = ?, next_attempt_at = ?", (self.state, later))

    def act(self, w):
        w.do("decided", "POST", f"/api/places/{w.facts['place']}/{self.action}", {})
        if self.stays:  # forgotten means forgotten: it is somebody else's now
            (w.path / w.facts["place"]).unlink()

    def mend(self, w):
        super().mend(w)
        if "decided" in w.done:
            require(not w.places(), "the decision was lost")
        else:  # due now
            w.edit("UPDATE places SET next_attempt_at = 0 WHERE state <> 'gone'")
        if self.stays and not w.places():
            (w.path / w.facts["place"]).unlink(missing_ok=True)


class LeaksClose(LeftOver):
    pass


class LeaksForget(LeftOver):
    action, stays = "forget", True


# Crashing again while the last crash is healed


class HealAfter(InEnvironment, base=True):
    """The stage is what a crash at `point` leaves; the operation is the start that heals it."""

    point, reuse, run = None, False, RUN_A

    def stage(self, w):
        super().stage(w)
        self.before(w)
        w.daemon.stop()
        w.daemon.env["BERTH_CRASH_AT"] = self.point
        require(w.start(), "crashed too early")
        try:
            self.crash(w)
        except Died:
            pass
        del w.daemon.env["BERTH_CRASH_AT"]
        require(w.crashed(), f"{self.point} was not reached")

    def before(self, w):
        pass

    def crash(self, w):
        w.acquire(w.facts["env"], heartbeatRunId=self.run)

    def act(self, w):
        pass

    def check(self, w):
        w.acquire(w.facts["env"], heartbeatRunId=RUN_B)
        w.release_all()


class HealIntended(HealAfter):
    point = "lease.open.after"


class HealClaimed(HealAfter):
    point, reuse, run = "lease.claim.after", True, RUN_B

    def before(self, w):
        w.release(w.acquire(w.facts["env"], heartbeatRunId=RUN_A)["id"])


class HealClosing(HealAfter):
    point = "fake.close.after"

    def crash(self, w):
        w.release(w.acquire(w.facts["env"], heartbeatRunId=RUN_A)["id"])


class HealParking(HealClosing):
    point, reuse = "lease.park.before", True


# The walk


class Walk:
    def __init__(self, operation):
        self.operation = operation()
        self.name = operation.__name__
        self.scene = World(env=operation.env)

    def set_stage(self):
        w = self.scene
        require(w.start(), "the stage crashed")
        self.operation.stage(w)
        if w.alive():
            w.daemon.stop()

    def copy(self, **env):
        w = World(copy_of=self.scene if self.operation.stage.__func__ is not Operation.stage else None,
                  env={**self.operation.env, **env})
        return w

    def act(self, w):
        """Until it is over, or the daemon is dead. True when it died."""
        try:
            if w.start():
                self.operation.act(w)
                w.settle("the operation comes to an end")
        except Died:
            pass
        except AssertionError:
            if not w.crashed():
                raise
        if w.crashed():
            return True
        # The point may lie behind what can be seen from outside; it may even come on the way down.
        status = w.daemon.stop(expect=None)
        require(status in (0, -signal.SIGKILL), f"ended with status {status}")
        return status != 0

    def trace(self):
        """Which points are passed, and how often."""
        file = self.scene.root / "trace"
        w = self.copy(BERTH_FAULT_TRACE=str(file))
        try:
            require(not self.act(w), "crashed without being told to")
            self.come_back(w)
            self.operation.check(w)
            w.settle()
            w.daemon.stop()
        finally:
            w.dispose()
        counts = collections.Counter(file.read_text().split()) if file.exists() else {}
        return [f"{point}:{n}" for point, count in sorted(counts.items())
                for n in range(1, min(count, TIMES_MAX) + 1)]

    def come_back(self, w):
        w.daemon.env.pop("BERTH_FAULT_TRACE", None)
        w.daemon.env.pop("BERTH_CRASH_AT", None)
        self.operation.mend(w)
        require(w.start(), "crashed without being told to")
        w.settle()

    def crash(self, point):
        """True when the point was reached."""
        w = self.copy(BERTH_CRASH_AT=point)
        try:
            hit = self.act(w)
            self.come_back(w)
            self.operation.check(w)
            w.settle()
            w.daemon.stop()
            return hit
        except BaseException:
            print(w.daemon.log_tail(30))
            raise
        finally:
            w.dispose()


class WalkTest(unittest.TestCase):
    def listed(self):
        """All points that the program has."""
        return set(subprocess.run([BINARIES["faults"], "faults"], capture_output=True, text=True, check=True)
                   .stdout.split())

    def walk(self, operations, listed):
        """Crash each operation at each point it passes; together they have to pass all that are listed."""
        only = os.environ.get("BERTH_WALK_ONLY", "")
        walks = [Walk(operation) for operation in operations if only.lower() in operation.__name__.lower()]
        for walk in walks:
            self.addCleanup(walk.scene.dispose)
        failures, hit, missed, crashes = [], set(), [], 0

        def guarded(what, function, *arguments):
            try:
                return function(*arguments)
            except Exception:  # reported below, with its place
                failures.append(f"{what}\n{traceback.format_exc()}")
                return None

        def prepare(walk):
            walk.set_stage()
            return walk.trace()

        with concurrent.futures.ThreadPoolExecutor(max_workers=4) as pool:
            traces = [pool.submit(guarded, walk.name, prepare, walk) for walk in walks]
            runs = []
            for walk, trace in zip(walks, traces):
                for point in trace.result() or []:
                    if in_share(f"{walk.name}:{point}", CRASH_PARTS):
                        runs.append((walk, point, pool.submit(guarded, f"{walk.name} at {point}", walk.crash, point)))
                    else:
                        hit.add(point.rpartition(":")[0])  # passed, and crashed at with another commit
            for walk, point, run in runs:
                if run.result():
                    crashes += 1
                    hit.add(point.rpartition(":")[0])
                else:
                    missed.append(f"{walk.name} at {point}")
        print(f"{len(walks)} operations, {crashes} crashes at {len(hit)} of {len(listed)} points, "
              f"{len(missed)} not reached, {len(failures)} failures")
        self.assertFalse(failures, f"{len(failures)} failures\n\n" + "\n".join(failures[:12]))
        if not only:
            self.assertEqual(listed - hit, set(), "points that no operation reaches")


class CrashWalk(WalkTest):
    def test_every_point_of_every_operation(self):
        self.walk(OPERATIONS, {point for point in self.listed() if not point.startswith(ELSEWHERE)})


if __name__ == "__main__":
    unittest.main()
