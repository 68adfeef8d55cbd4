"""Answers have the shape that Paperclip's published types declare (paperclip-shapes.json, made by scripts/paperclip-shapes):
every member that a type requires is there, and has a JSON type that it allows. A route of paperclip-routes.txt that works is
compared here, or is named in paperclip-uncompared.txt. What differs on purpose is listed here; a
difference that is not there any more has to go from the list."""
# slow: an agent's run, a plugin and a git repository

import json
import pathlib
import re

from providertest import ProviderTest
from runtest import RunTest
from test_compatibility import MISSING as NOBODY, ROUTES as ROUTES_FILE, verdict

AGENT = pathlib.Path(__file__).resolve().parents[1] / "agents" / "acp-agent"
SHAPES = json.loads(pathlib.Path(__file__).with_name("paperclip-shapes.json").read_text())

DIFFERS = {
    "HeartbeatRunEvent.id": "an id as everything else has one; seq is the number",
    "PluginConfig.companyId": "a plugin has one configuration for the instance",
    "DashboardSummary.budgets": "no accounting", "DashboardSummary.runActivity": "runs are not counted by day",
    **{f"InstanceExperimentalSettings.{name}": "a switch of another part of Paperclip" for name in (
        "enableApps enableBetaSkills enableBuiltInAgents enableCases enableClassicTaskInterface enableConferenceRoomChat "
        "enableDecisions enableExperimentalFileViewer enableExternalObjects enableGoalsSidebarLink enableIssuePlanDecompositions "
        "enableOwnerInstanceAdmin enablePipelines enableServerInfoDebugView enableSimplifiedEnglishInteractions enableSmokeLab "
        "enableStatusCards enableStreamlinedLeftNavigation enableSummaries enableTaskWatchdogs "
        "enableWorkspaceBranchReconcileForward enableWorkspaceDirtyQuarantineRepair enableWorktreeRunExecution "
        "worktreeRunExecutionActivatedAt worktreeRunExecutionActivationInstanceId").split()},
}


def kind_of(value):
    return {type(None): "null", bool: "boolean", str: "string", dict: "object", list: "array"}.get(type(value), "number")


def differences(members, value, at):
    """Of an object whose type has these members: (where, what)."""
    for name, shape in members.items():
        here = f"{at}.{name}"
        if name not in value:
            if not shape.get("optional"):
                yield here, "missing"
            continue
        yield from compare(shape, value[name], here)


def compare(shape, value, at):
    kind = kind_of(value)
    if "any" in shape["kinds"]:
        return
    if kind not in shape["kinds"]:
        yield at, f"{kind} where {' or '.join(shape['kinds'])} is declared"
    elif kind == "object" and "members" in shape and "object" in shape["kinds"]:
        yield from differences(shape["members"], value, at)
    elif kind == "array" and "items" in shape:
        for one in value:
            yield from compare(shape["items"], one, f"{at}[]")


class ShapesTest(RunTest):
    maxDiff = None

    def world(self):
        """One of each thing, by the name of the parameter that stands for it in a path."""
        company = self.acme["id"]
        made = lambda path, body, status=201: self.ok("POST", path, body, status=status)
        self.ok("PATCH", "/api/instance/settings/experimental", {"enableIsolatedWorkspaces": True})
        project = made(f"/api/companies/{company}/projects", {"name": "Site", "workspace": {"cwd": str(self.work)}})
        env = self.sandbox_environment("box")
        agent = self.runner("echo done", environment=env)
        talker = self.agent(self.acme, "talker", adapterType="acp", adapterConfig={  # it has sessions
            "command": str(AGENT), "cwd": str(self.work), "env": {"HOME": str(self.work)}},
            runtimeConfig={"heartbeat": {"enabled": True, "intervalSec": 86400}})
        talked = self.finished(self.wake(talker, payload={"taskKey": "t"}))
        self.assertEqual(talked["status"], "succeeded", talked["error"])
        issue = made(f"/api/companies/{company}/issues", {"title": "t", "projectId": project["id"],
                                                          "assigneeAgentId": agent["id"], "status": "todo"})
        comment = made(f"/api/issues/{issue['id']}/comments", {"body": "hello"})
        self.ok("PUT", f"/api/issues/{issue['id']}/documents/plan", {"title": "Plan", "format": "markdown", "body": "x"}, status=201)
        (run,) = self.daemon.sql("SELECT id FROM heartbeat_runs WHERE issue_id = ?", (issue["id"],))
        self.assertEqual(self.finished(run, 60)["status"], "succeeded")
        lease = made(f"/api/environments/{env['id']}/leases", {})["lease"]
        self.addCleanup(self.req, "POST", f"/api/environment-leases/{lease['id']}/release", {})
        secret = made(f"/api/companies/{company}/secrets", {"name": "k", "value": "v"})
        vault = made(f"/api/companies/{company}/secret-provider-configs",
                     {"provider": "local_encrypted", "displayName": "Vault", "config": {}})
        self.ok("PATCH", f"/api/agents/{agent['id']}", {"adapterConfig": {"env": {
            "K": {"type": "secret_ref", "secretId": secret["id"], "version": "latest"}}}})
        again = self.finished(self.wake(agent))
        self.assertEqual(again["status"], "succeeded", again["error"])
        plugin = ProviderTest.install_provider(
            self, ProviderTest.worker, capabilities=["environment.drivers.register", "jobs.schedule"],
            jobs=[{"jobKey": "sync", "displayName": "Sync", "schedule": "0 * * * *"}])
        workspace = self.ok("GET", f"/api/issues/{issue['id']}")["executionWorkspaceId"]
        revision = self.ok("GET", f"/api/agents/{agent['id']}/config-revisions")[0]
        folder = self.ok("GET", f"/api/projects/{project['id']}/workspaces")[0]
        empty = made(f"/api/companies/{company}/projects", {"name": "Empty"})
        spare = self.sandbox_environment("unused")
        return {"company": company, "empty": empty["id"], "spare": spare["id"], "revision": revision["id"], "folder": folder["id"], "project": project["id"], "agent": agent["id"], "talker": talker["id"], "env": env["id"], "issue": issue["id"],
                "comment": comment["id"], "run": run["id"], "lease": lease["id"], "secret": secret["id"], "vault": vault["id"],
                "plugin": plugin.id, "workspace": workspace}

    # Method and path, the type, and the body of those that change something.
    ROUTES = (
        ("GET /instance/settings/general", "InstanceGeneralSettings"),
        ("GET /instance/settings/experimental", "InstanceExperimentalSettings"),
        ("GET /instance/scheduler-heartbeats", ["InstanceSchedulerHeartbeatAgent"]),
        ("GET /companies", ["Company"]), ("GET /companies/{company}", "Company"),
        ("PATCH /companies/{company}", "Company", {"description": "d"}),
        ("GET /companies/{company}/environments", ["Environment"]), ("GET /environments/{env}", "Environment"),
        ("PATCH /environments/{env}", "Environment", {"description": "d"}),
        ("POST /environments/{env}/probe", "EnvironmentProbeResult", {}),
        ("GET /environments/{env}/leases", ["EnvironmentLease"]), ("GET /environment-leases/{lease}", "EnvironmentLease"),
        ("GET /companies/{company}/secrets", ["CompanySecret"]),
        ("PATCH /secrets/{secret}", "CompanySecret", {"description": "d"}),
        ("POST /secrets/{secret}/rotate", "CompanySecret", {"value": "w"}),
        ("GET /secrets/{secret}/access-events", ["SecretAccessEvent"]),
        ("GET /companies/{company}/secret-providers", ["SecretProviderDescriptor"]),
        ("GET /companies/{company}/secret-provider-configs", ["CompanySecretProviderConfig"]),
        ("GET /secret-provider-configs/{vault}", "CompanySecretProviderConfig"),
        ("PATCH /secret-provider-configs/{vault}", "CompanySecretProviderConfig", {"displayName": "V"}),
        ("POST /secret-provider-configs/{vault}/health", "SecretProviderConfigHealthResponse", {}),
        ("GET /plugins", ["PluginRecord"]), ("GET /plugins/{plugin}", "PluginRecord"),
        ("POST /plugins/{plugin}/config", "PluginConfig", {"configJson": {}}),
        ("GET /plugins/{plugin}/config", "PluginConfig"),
        ("GET /companies/{company}/agents", ["Agent"]), ("GET /agents/{agent}", "AgentDetail"),
        ("PATCH /agents/{agent}", "Agent", {"title": "t"}),
        ("POST /agents/{agent}/pause", "Agent", {}), ("POST /agents/{agent}/resume", "Agent", {}),
        ("GET /agents/{agent}/config-revisions", ["AgentConfigRevision"]),
        ("GET /agents/{agent}/runtime-state", "AgentRuntimeState"),
        ("GET /agents/{talker}/task-sessions", ["AgentTaskSession"]),
        ("POST /agents/{agent}/keys", "AgentKeyCreated", {"name": "n"}),
        ("POST /companies/{company}/adapters/process/test-environment", "AdapterEnvironmentTestResult",
         {"adapterConfig": {"command": "true"}}),
        ("GET /companies/{company}/heartbeat-runs", ["HeartbeatRun"]), ("GET /heartbeat-runs/{run}", "HeartbeatRun"),
        ("GET /heartbeat-runs/{run}/events", ["HeartbeatRunEvent"]),
        ("GET /heartbeat-runs/{run}/workspace-operations", ["WorkspaceOperation"]),
        ("GET /companies/{company}/issues", ["Issue"]), ("GET /issues/{issue}", "Issue"),
        ("PATCH /issues/{issue}", "Issue", {"description": "d"}),
        ("POST /issues/{issue}/children", "Issue", {"title": "child"}),
        ("GET /issues/{issue}/comments", ["IssueComment"]), ("GET /issues/{issue}/comments/{comment}", "IssueComment"),
        ("GET /issues/{issue}/documents", ["IssueDocumentSummary"]), ("GET /issues/{issue}/documents/plan", "IssueDocument"),
        ("GET /issues/{issue}/documents/plan/revisions", ["DocumentRevision"]),
        ("GET /issues/{issue}/activity", ["ActivityEvent"]), ("GET /companies/{company}/activity", ["ActivityEvent"]),
        ("GET /companies/{company}/projects", ["Project"]), ("GET /projects/{project}", "Project"),
        ("PATCH /projects/{project}", "Project", {"description": "d"}),
        ("GET /projects/{project}/workspaces", ["ProjectWorkspace"]),
        ("GET /companies/{company}/execution-workspaces", ["ExecutionWorkspace"]),
        ("GET /execution-workspaces/{workspace}", "ExecutionWorkspace"),
        ("PATCH /execution-workspaces/{workspace}", "ExecutionWorkspace", {"name": "n"}),
        ("GET /execution-workspaces/{workspace}/close-readiness", "ExecutionWorkspaceCloseReadiness"),
        ("GET /execution-workspaces/{workspace}/workspace-operations", ["WorkspaceOperation"]),
        ("GET /companies/{company}/members", "CompanyMembersResponse"),
        ("GET /companies/{company}/dashboard", "DashboardSummary"),
        ("PATCH /instance/settings/general", "InstanceGeneralSettings", {}),
        ("PATCH /instance/settings/experimental", "InstanceExperimentalSettings", {}),
        ("GET /companies/{company}/environments/capabilities", "EnvironmentCapabilities"),
        ("POST /companies", "Company", {"name": "other"}),
        ("POST /companies/{company}/environments", "Environment", {"name": "spare", "driver": "sandbox", "config": {"provider": "berth"}}),
        ("POST /companies/{company}/environments/probe-config", "EnvironmentProbeResult", {"driver": "local", "config": {}}),
        ("POST /companies/{company}/secrets", "CompanySecret", {"name": "spare", "value": "v"}),
        ("GET /secrets/{secret}/usage", {"bindings": "CompanySecretUsageBinding"}),
        ("POST /companies/{company}/secret-provider-configs", "CompanySecretProviderConfig",
         {"provider": "local_encrypted", "displayName": "Spare", "config": {}}),
        ("POST /secret-provider-configs/{vault}/default", "CompanySecretProviderConfig", {}),
        ("GET /plugins/{plugin}/jobs", ["PluginJobRecord"]),
        ("POST /plugins/{plugin}/disable", "PluginRecord", {}), ("POST /plugins/{plugin}/enable", "PluginRecord", {}),
        ("POST /companies/{company}/agents", "Agent", {"name": "spare", "role": "engineer", "adapterType": "process"}),
        ("POST /companies/{company}/agent-hires", {"agent": "Agent"}, {"name": "hired", "role": "engineer", "adapterType": "process"}),
        ("GET /agents/{agent}/config-revisions/{revision}", "AgentConfigRevision"),
        ("POST /agents/{agent}/config-revisions/{revision}/rollback", "Agent", {}),
        ("GET /agents/{agent}/skills", "AgentSkillSnapshot"),
        ("POST /agents/{talker}/heartbeat/invoke", "HeartbeatRun", {}), ("POST /agents/{talker}/wakeup", "HeartbeatRun", {}),
        ("POST /heartbeat-runs/{run}/cancel", "HeartbeatRun", {}),
        ("POST /companies/{company}/issues", "Issue", {"title": "spare"}),
        ("POST /issues/{issue}/checkout", "Issue", {"agentId": "{agent}", "expectedStatuses": ["todo", "in_progress"]}),
        ("POST /issues/{issue}/release", "Issue", {}),
        ("POST /issues/{issue}/comments", "IssueComment", {"body": "again"}),
        ("PUT /issues/{issue}/documents/notes", "IssueDocument", {"title": "N", "format": "markdown", "body": "x"}),
        ("POST /companies/{company}/projects", "Project", {"name": "spare"}),
        ("POST /projects/{project}/workspaces", "ProjectWorkspace", {"name": "second", "repoUrl": "https://example.org/a.git"}),
        ("PATCH /projects/{project}/workspaces/{folder}", "ProjectWorkspace", {"name": "first"}),
        ("DELETE /projects/{project}/workspaces/{folder}", "ProjectWorkspace"),
        ("POST /companies/{company}/activity", "ActivityEvent", {"actorId": "x", "action": "a", "entityType": "issue", "entityId": "x"}),
        ("POST /issues/{issue}/admin/force-release", {"issue": "Issue"}, {}),
        ("PATCH /agents/{talker}/permissions", "AgentDetail", {"canCreateAgents": False, "canAssignTasks": False}),
        ("POST /agents/{talker}/runtime-state/reset-session", "AgentRuntimeState", {}),
        ("POST /agents/{talker}/skills/sync", "AgentSkillSnapshot", {"desiredSkills": []}),
        ("DELETE /environments/{spare}", "Environment"),
        ("DELETE /secret-provider-configs/{vault}", "CompanySecretProviderConfig"),
        ("POST /agents/{agent}/terminate", "Agent", {}),
        ("DELETE /projects/{empty}", "Project"),
        ("POST /companies/{company}/archive", "Company", {}),
    )
    # These work and are not compared.
    UNCOMPARED = frozenset(line for line in pathlib.Path(__file__).with_name("paperclip-uncompared.txt").read_text().splitlines()
                           if not line.startswith("#"))

    def uncompared(self):
        """The routes of Paperclip that work, and that ROUTES does not have."""
        generic = lambda route: re.sub(r"[:{]\w+}?|(?<=documents/)\w+|(?<=adapters/)\w+", "*", route)
        compared = {generic(route) for route, *_ in self.ROUTES}
        for route in ROUTES_FILE.read_text().splitlines():
            if route.startswith("#") or generic(route) in compared:
                continue
            method, path = route.split()
            asked = re.sub(r":(\w+)", lambda m: {"type": "process", "key": "plan", "action": "start", "channel": "c"}.get(m[1], NOBODY), path)
            answer = self.req(method, "/api" + asked, {} if method in ("POST", "PUT", "PATCH") else None)
            if verdict(route, "API route not found" not in answer.text) == "works":
                yield route

    def test_every_route_is_compared(self):
        self.assertEqual(set(self.uncompared()) ^ self.UNCOMPARED, set())

    def test_shapes(self):
        self.require_sandboxes()
        world, found, empty = self.world(), {}, []
        for route, name, *body in self.ROUTES:
            method, path = route.split()
            body = json.loads(re.sub(r'"\{(\w+)\}"', lambda m: json.dumps(world[m[1]]), json.dumps(body)))
            answer = self.req(method, "/api" + path.format(**world), body[0] if body else None)
            self.assertIn(answer.status, (200, 201, 202), (route, answer.text))
            if answer.status == 202:  # a run
                self.finished(answer.json)
            rows = answer.json if isinstance(name, list) else [answer.json]
            if isinstance(name, dict):  # in a member
                ((member, name),) = name.items()
                rows = answer.json[member]
                rows = rows if isinstance(rows, list) else [rows]
            name = name[0] if isinstance(name, list) else name
            if not rows:
                empty.append(route)
            for row in rows:
                self.assertIsInstance(row, dict, route)
                for at, what in differences(SHAPES[name], row, name):
                    found.setdefault(at, (what, route))
        self.assertEqual({at: f for at, f in found.items() if at not in DIFFERS}, {})
        self.assertEqual([at for at in DIFFERS if at not in found], [], "these do not differ any more")
        self.assertEqual(empty, ["GET /instance/scheduler-heartbeats"])  # Berth's own schedule is no list of agents
