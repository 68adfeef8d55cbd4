"""Answers have the shape that Paperclip's published types declare (paperclip-shapes.json, made by scripts/paperclip-shapes):
every member that a type requires is there, and has a JSON type that it allows. What differs on purpose is listed here; a
difference that is not there any more has to go from the list."""
# slow: an agent's run, a plugin and a git repository

import json
import pathlib

from providertest import ProviderTest
from runtest import RunTest

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
        plugin = ProviderTest.install_provider(self, ProviderTest.worker)
        workspace = self.ok("GET", f"/api/issues/{issue['id']}")["executionWorkspaceId"]
        return {"company": company, "project": project["id"], "agent": agent["id"], "talker": talker["id"], "env": env["id"], "issue": issue["id"],
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
    )

    def test_shapes(self):
        self.require_sandboxes()
        world, found, empty = self.world(), {}, []
        for route, name, *body in self.ROUTES:
            method, path = route.split()
            answer = self.req(method, "/api" + path.format(**world), body[0] if body else None)
            self.assertIn(answer.status, (200, 201), (route, answer.text))
            rows = answer.json if isinstance(name, list) else [answer.json]
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
