"""The table of docs/agent-keys.md, tried: every field, by every kind of agent, on itself and on others, inside a sandbox and
outside. A unit test compares the page with the table that the daemon's checks read."""

import itertools
import json
import pathlib
import re
import unittest
import uuid

from worktest import WorkTest

MODES = ("shared_workspace", "isolated_workspace", "operator_branch")
PAGE = pathlib.Path(__file__).parents[2] / "docs" / "agent-keys.md"
ROW = re.compile(r"^\| (.+?) \| (?:`(.+?)`|(anything else)) \| (.+?)(?:; `(.+?)` everybody)? \|$", re.M)

OPEN = "an agent that may change the object"
OTHERS = OPEN + ", but for itself"
RIGHT = OTHERS + "; what gives a right (`ceo`, `true`) a CEO, and only what it has"
PLACE = "an agent that manages environments, but for itself, and an isolated place"
ISOLATED = OPEN + ", in an isolated place"
NOBODY, MEMBERS = "no agent", "by member"

ROLES = {"plain": {}, "ceo": {"role": "ceo"}, "creator": {"permissions": {"canCreateAgents": True}},
         "both": {"role": "ceo", "permissions": {"canCreateAgents": True}}}
SSH = {"host": "127.0.0.1", "username": "u", "remoteWorkspacePath": "/srv"}


def rows(thing):
    """Field, rule and the value that everybody may choose."""
    found = [(field or "unheardOf", rule, safe) for of, field, _, rule, safe in ROW.findall(PAGE.read_text()) if of == thing]
    assert found, thing
    return found


class FieldTest(WorkTest):
    def setUp(self):
        super().setUp()
        self.boxes = itertools.cycle([self.sandbox(name=f"box{i}")["id"] for i in range(2)])
        self.local = next(e for e in self.ok("GET", f"/api/companies/{self.acme['id']}/environments")
                          if e["driver"] == "local")["id"]
        self.count = itertools.count()
        self.everybody = {}
        for role, body in ROLES.items():
            for place in ("inside", "outside"):
                self.everybody[role, place] = self.made(f"{role}-{place}", place, **body)

    def made(self, name, place, **body):
        return self.agent(self.acme, f"{name}-{next(self.count)}", adapterType="process", **body,
                          defaultEnvironmentId=next(self.boxes) if place == "inside" else self.local)

    def fresh(self, field):
        """A value that is not there yet."""
        n = next(self.count)
        special = {"env": {"A": f"v{n}"}, "args": [f"v{n}"], "extraArgs": [f"v{n}"], "headers": {"X": f"v{n}"}, "timeoutSec": n,
                   "heartbeat": {"enabled": False, "wakeOnDemand": False, "intervalSec": 60 + n}, "metadata": {"n": n},
                   "paperclipSkillSync": {"desiredSkills": [f"v{n}"]}, "desiredSkills": [f"v{n}"], "budgetMonthlyCents": n,
                   "role": "ceo", "status": "paused", "adapterType": "codex_local", "canCreateAgents": True,
                   "canAssignTasks": True, "mode": MODES[n % 3], "defaultMode": MODES[n % 3],
                   "workspaceStrategy": {"type": "project_primary", "baseRef": f"v{n}"}, "enabled": bool(n % 2), "allowIssueOverride": bool(n % 2),
                   "defaultProjectWorkspaceId": str(uuid.uuid4()), "desiredState": ("running", "stopped")[n % 2],
                   "serviceStates": {"a": {"n": n}}, "network": "host", "allowedHosts": [f"h{n}.example"],
                   "nestedSandbox": True, "user": "root"}
        for record in ("branchPolicy", "pullRequestPolicy", "runtimePolicy", "cleanupPolicy",
                       "workspaceRuntime", "payloadTemplate"):
            special[record] = {"n": n}
        return special.get(field, f"v{n}")

    def expect(self, answer, allowed, **about):
        with self.subTest(**about):
            if allowed:
                self.assertIn(answer.status, (200, 201), answer.body[:500])
            else:
                self.assertEqual(answer.status, 403, answer.body[:500])

    # Agents.

    def ask(self, who, target, thing, field, place):
        path = f"/api/agents/{target['id']}"
        value = self.fresh(field)
        if field == "defaultEnvironmentId":
            value = next(self.boxes) if place == "inside" else self.local
            if self.ok("GET", path)["defaultEnvironmentId"] == value:
                self.ok("PATCH", path, {"defaultEnvironmentId": next(self.boxes) if place == "inside" else None})
        if field == "role" and target["role"] == "ceo":
            value = "engineer"
        if field == "reportsTo":
            value = self.made("manager", "inside")["id"]
        if thing == "permissions":
            old = {"canCreateAgents": False, "canAssignTasks": False} if field != "unheardOf" else {}
            self.ok("PATCH", path + "/permissions", {"canCreateAgents": False, "canAssignTasks": False})
            answer = self.as_agent(who, "PATCH", path + "/permissions", {**old, field: value})
        elif field == "keys":
            answer = self.as_agent(who, "POST", path + "/keys", {})
        else:
            answer = self.as_agent(who, "PATCH", path, {field: value} if thing == "agent" else {thing: {field: value}})
        # As it was, for the next.
        if thing == "permissions" or field in ("role", "adapterType", "defaultEnvironmentId"):
            self.ok("PATCH", path, {"role": target["role"], "adapterType": "process",
                                    "defaultEnvironmentId": target["defaultEnvironmentId"]})
            self.ok("PATCH", path + "/permissions", {
                "canCreateAgents": target["permissions"]["canCreateAgents"], "canAssignTasks": True})
        return answer

    def is_allowed(self, role, own, place, field, rule):
        if not own and role == "plain":
            return False  # it may not change others
        if field in ("canCreateAgents", "canAssignTasks") and role not in ("ceo", "both"):
            return False  # nor is it a CEO, who alone manages rights
        return {OPEN: True, OTHERS: not own, PLACE: not own and place == "inside" and role in ("creator", "both"),
                RIGHT: not own and (role == "both" or (role == "ceo" and field != "canCreateAgents")),
                ISOLATED: place == "inside", NOBODY: False}[rule]

    def try_agents(self, thing):
        others = {place: self.made("other", place) for place in ("inside", "outside")}
        for (field, rule, _), (role, place), own in itertools.product(rows(thing), self.everybody, (True, False)):
            if rule == MEMBERS or (thing in ("agent", "permissions") and field == "unheardOf"):
                continue  # ignored, or refused as unknown
            who = self.everybody[role, place]
            # What counts is where the target works.
            target = who if own else others[place]
            self.expect(self.ask(who, target, thing, field, place),
                        self.is_allowed(role, own, place, field, rule), thing=thing, field=field, role=role, own=own, place=place)

    def test_agents(self):
        self.try_agents("agent")

    def test_permissions(self):
        self.try_agents("permissions")

    def test_adapter_config(self):
        self.try_agents("adapterConfig")

    def test_runtime_config(self):
        self.try_agents("runtimeConfig")

    def test_hires(self):
        """New agents: what each field says about another, from the start."""
        for thing, role, place in itertools.product(("agent", "permissions", "adapterConfig", "runtimeConfig"), ROLES,
                                                    ("inside", "outside")):
            who = self.everybody[role, "inside"]
            for field, rule, _ in rows(thing):
                if rule == MEMBERS or field in ("keys", "status") or (thing in ("agent", "permissions") and field == "unheardOf"):
                    continue
                value = self.made("manager", "inside")["id"] if field == "reportsTo" else self.fresh(field)
                body = {"name": f"new{next(self.count)}",
                        "defaultEnvironmentId": next(self.boxes) if place == "inside" else self.local}
                if field not in ("name", "defaultEnvironmentId", "canAssignTasks"):
                    body |= {field: value} if thing == "agent" else {thing: {field: value}}
                # Every new one has a place, and only creators make any.
                allowed = role in ("creator", "both") and place == "inside" and rule != NOBODY
                allowed = allowed and (rule != RIGHT or role == "both" or field == "canAssignTasks")
                self.expect(self.as_agent(who, "POST", self.agents, body), allowed, thing=thing, field=field, role=role,
                            place=place)

    # Work.

    def chosen(self, place):
        """An environment that is chosen nowhere yet, unless there is only one of its kind."""
        if place == "inside":
            return self.sandbox(name=f"box-{next(self.count)}")["id"]
        return self.local if place == "outside" else None

    def try_documents(self, thing, write, managers=("creator", "both")):
        """write(role, field, value): what an agent of that role is told. Environments of two kinds, or none."""
        for (field, rule, safe), role in itertools.product(rows(thing), ROLES):
            if rule == MEMBERS or field == "unheardOf":
                continue
            for place in ("inside", "outside", "nowhere") if rule == PLACE else ("",):
                value = self.chosen(place) if place else self.fresh(field)
                allowed = {OPEN: True, PLACE: place == "inside" and role in managers, NOBODY: False}[rule]
                self.expect(write(role, field, value), allowed, thing=thing, field=field, role=role, place=place)

    def test_projects(self):
        box = next(self.boxes)
        path = "/api/projects/" + self.ok("POST", self.projects, {"name": "p", "executionWorkspacePolicy": {
            "enabled": True, "environmentId": box}}, status=201)["id"]

        def project(role, field, value):
            return self.as_agent(self.everybody[role, "inside"], "PATCH", path, {field: value})

        def policy(role, field, value):
            before = self.ok("GET", path)["executionWorkspacePolicy"]
            return project(role, "executionWorkspacePolicy", {**before, field: value})

        self.try_documents("project", project)
        self.try_documents("executionWorkspacePolicy", policy)

    def workspace(self, environment):
        id, project = str(uuid.uuid4()), self.ok("POST", self.projects, {"name": "p"}, status=201)["id"]
        self.edit("INSERT INTO execution_workspaces (id, company_id, project_id, mode, strategy_type, name, cwd, last_used_at, opened_at, "
                  "metadata, created_at, updated_at) VALUES (?, ?, ?, 'shared_workspace', 'project_primary', 'w', '/srv', 1, 1, ?, 1, 1)",
                  (id, self.acme["id"], project, json.dumps({"config": {"environmentId": environment}})))
        return id

    def test_issues(self):
        issue = self.issue(executionWorkspaceSettings={"environmentId": next(self.boxes)},
                           executionWorkspaceId=self.workspace(next(self.boxes)),
                           executionWorkspacePreference="reuse_existing")
        path = f"/api/issues/{issue['id']}"

        def settings(role, field, value):
            before = self.ok("GET", path)["executionWorkspaceSettings"]
            return self.as_agent(self.everybody[role, "inside"], "PATCH", path,
                                 {"executionWorkspaceSettings": {**before, field: value}})

        self.try_documents("executionWorkspaceSettings", settings)
        self.assertEqual({f for f, rule, _ in rows("issue") if rule == PLACE},
                         {"executionWorkspaceId", "executionWorkspacePreference"})
        for role, place in itertools.product(ROLES, ("inside", "outside", "nowhere")):
            workspace = self.workspace(self.chosen(place)) if place != "nowhere" else None
            allowed = place == "inside" and role in ("creator", "both")
            self.expect(self.as_agent(self.everybody[role, "inside"], "PATCH", path, {"executionWorkspaceId": workspace}),
                        allowed, field="executionWorkspaceId", role=role, place=place)
            new = {"title": "t", "executionWorkspaceId": workspace, "executionWorkspacePreference": "reuse_existing"}
            self.expect(self.as_agent(self.everybody[role, "inside"], "POST", self.issues, new),
                        allowed or place == "nowhere", field="executionWorkspaceId", role=role, place=place, new=True)
            other = self.issue(executionWorkspaceId=self.workspace(self.chosen(place)))
            self.expect(self.as_agent(self.everybody[role, "inside"], "PATCH", f"/api/issues/{other['id']}",
                                      {"executionWorkspacePreference": "reuse_existing"}),
                        allowed, field="executionWorkspacePreference", role=role, place=place)

    def test_execution_workspaces(self):
        path = f"/api/execution-workspaces/{self.workspace(next(self.boxes))}"

        def config(role, field, value):
            return self.as_agent(self.everybody[role, "inside"], "PATCH", path, {"config": {field: value}})

        def metadata(role, field, value):
            before = self.ok("GET", path)["config"]
            return self.as_agent(self.everybody[role, "inside"], "PATCH", path, {"metadata": {"config": {**before, field: value}}})

        for write in (config, metadata):
            self.try_documents("config of an execution workspace", write)

    # Environments.

    def test_environments(self):
        path = f"/api/companies/{self.acme['id']}/environments"
        inside = f"/api/environments/{self.sandbox(name='unused')['id']}"
        outside = f"/api/environments/{self.environment(self.acme, name='host', driver='ssh', config=SSH)['id']}"
        for role in ROLES:
            who, manages = self.everybody[role, "inside"], role in ("creator", "both")
            for where, isolated in ((inside, True), (outside, False)):
                self.expect(self.as_agent(who, "PATCH", where, {"name": f"n{next(self.count)}"}), manages, field="name", role=role)
                config = {"timeoutMs" if isolated else "port": 1000 + next(self.count)}
                self.expect(self.as_agent(who, "PATCH", where, {"config": config}),
                            manages and isolated, field="config", role=role, isolated=isolated)
                self.expect(self.as_agent(who, "PATCH", where, {"status": "archived"}), manages and isolated, field="status",
                            role=role, isolated=isolated)
                self.ok("PATCH", where, {"status": "active"})
            self.expect(self.as_agent(who, "POST", path, {"name": "s", "driver": "sandbox", "config": {"provider": "berth"}}),
                        manages, field="driver", role=role, driver="sandbox")
            self.expect(self.as_agent(who, "POST", path, {"name": "s", "driver": "ssh", "config": SSH}), False,
                        field="driver", role=role, driver="ssh")
            self.expect(self.as_agent(who, "PATCH", outside, {"driver": "sandbox", "config": {"provider": "berth"}}), False,
                        field="driver", role=role)
            for field, rule, safe in rows("config of an environment"):
                if rule != NOBODY:
                    continue
                config = {"provider": "berth", field: self.fresh(field)}
                if field in ("network", "allowedHosts"):
                    config |= {"network": "allowlist", "allowedHosts": ["h.example"]}
                if field == "user":
                    continue  # needs the root of a system
                self.expect(self.as_agent(who, "POST", path, {"name": "s", "driver": "sandbox", "config": config}), False,
                            field=field, role=role)
                config = {"provider": "berth", field: json.loads(safe)}
                self.expect(self.as_agent(who, "POST", path, {"name": "s", "driver": "sandbox", "config": config}), manages,
                            field=field, role=role, safe=True)

    def test_anywhere(self):
        """What no agent sets, wherever it stands, in a sandbox or not."""
        project = f"/api/projects/{self.ok('POST', self.projects, {'name': 'p'}, status=201)['id']}"
        issue = f"/api/issues/{self.issue()['id']}"
        for (field, rule, _), role in itertools.product(rows("any of them, at any depth"), ROLES):
            self.assertEqual(rule, NOBODY)
            who, deep = self.everybody[role, "inside"], {"deep": {"deeper": {field: self.fresh(field)}}}
            own = f"/api/agents/{who['id']}"
            for path, body in ((own, {"adapterConfig": {field: "x"}}), (own, {"adapterConfig": deep}),
                               (own, {"runtimeConfig": deep}),
                               (project, {"executionWorkspacePolicy": {"enabled": True, "runtimePolicy": deep}}),
                               (issue, {"executionWorkspaceSettings": {"workspaceStrategy": deep}})):
                self.expect(self.as_agent(who, "PATCH", path, body), False, field=field, role=role, path=path, body=body)


if __name__ == "__main__":
    unittest.main()
