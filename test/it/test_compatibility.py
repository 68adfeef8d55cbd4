"""docs/compatibility.md says what is so: every command of Paperclip's published command line that speaks to a server, and
every route of paperclip-routes.txt, are tried against Berth. One that reaches a route which does not exist is missing,
unless it is left out on purpose. `scripts/compatibility-table` writes the table."""
# slow: some four hundred commands
# share 6: 7 s of processor time

import json
import os
import pathlib
import re
import subprocess
import unittest

from paperclipcli import Driver, PaperclipCliTest

ROOT = pathlib.Path(__file__).resolve().parents[2]
ROUTES = pathlib.Path(__file__).with_name("paperclip-routes.txt")
MISSING = "00000000-0000-4000-8000-000000000000"

# Not for a server: they install, start and repair Paperclip itself, ask on a terminal, or wait for a person.
LOCAL = re.compile(r"(install|uninstall|update|onboard|doctor|env|channels|configure|db:backup|allowed-hostname|service .*|"
                   r"context .*|connect|worktree.*|env-lab .*|plugin (init|target)|auth (login|logout|bootstrap-ceo)|"
                   r"agent prompt|agent-prompt|board prompt|company (import|export)|routines .*|feedback .*|heartbeat run)$")
# What Berth does not have, and why. The rest of Paperclip's tracker is not Berth's.
LEFT_OUT = (
    (r"(cost|finance|budget) ", "no accounting"),
    (r"(pipelines|teams|skills|available-skill|goal|approval|routine|invite|join|sidebar|inbox|board-claim|openclaw|asset|llm) ",
     "another part of Paperclip"),
    (r"(profile (get|update|company-user)|admin user|member (update|role|archive|user-directory)|org (svg|png))", "people are managed by keys"),
    (r"skill (?!list)", "skills are directories of the operator's"),
    (r"adapter (?!list|get|models|model-profiles|detect-model|test-environment|config-schema)", "adapters are files of the operator's"),
    (r"agent (claude-login|instructions-(bundle|file))", "instructions are a file that the agent's command is given"),
    (r"issue (delete|comment:delete|document:(delete|lock|unlock|restore)|approval|read|unread|archive|unarchive|recovery|tree|"
     r"work-product|interaction|attachment|label|feedback)", "the rest of the tracker"),
    (r"company (branding|import|export:api|feedback)|instance database-backup|cost issue", "another part of Paperclip"),
    (r"plugin (webhook|local-folder)", "no providers use them"),
    (r"secrets (declarations|migrate-inline-env)", "whole exports of companies"),
    (r"\w+ /companies/:companyId/(costs|sidebar-badges|invites|labels)", "another part of Paperclip"),
    (r"(POST|DELETE) /(issues/:id(/interactions|/work-products|/read|/comments/:commentId|/documents/:key)?|companies/:companyId/approvals)$",
     "the rest of the tracker"),
    (r"GET /agents/:id/instructions-bundle", "instructions are a file that the agent's command is given"),
)
# They stop at a thing that Berth never has, before they call anything else.
NEVER = re.compile(r"skills (?!list|agent list)|(goal|approval) get")
# There is a route, and it refuses.
DIFFERS = (
    r"(project-)?workspace runtime-", r"secrets provider-config:discovery-preview", r"plugin bridge:stream",
    r"POST /(execution-workspaces|projects)/.*runtime-", r"GET /plugins/:pluginId/bridge/stream",
)


# Commands that look at what they are given before they ask.
EXTRA = {
    "company delete": ("--confirm", MISSING), "issue document:put": ("--body", "x"), "secrets create": ("--value", "v"),
    "secrets rotate": ("--value", "v"), "secrets delete": ("--confirm", MISSING), "agent instructions-file:put": ("--content", "x"),
    "approval create": ("--type", "hire_agent", "--payload", "{}"), "skills agent sync": ("--skill", "x"),
    "pipelines case resolve-suggestion": ("--accept",), "pipelines case review": ("--approve",),
    "issue label:create": ("--color", "#ffffff"), "issue interaction:respond": ("--answers-json", "[]"),
    "issue recovery:resolve": ("--outcome", "restored", "--source-issue-status", "todo"),
    **{f"auth challenge {what}": ("--token", "x") for what in ("get", "approve", "cancel")},
    **{name: ("--payload-json", json.dumps(payload)) for name, payload in {
        "issue child:create": {"title": "x"}, "agent create": {"name": "x", "adapterType": "process"},
        "agent permissions:update": {"canCreateAgents": True, "canAssignTasks": True},
        "agent instructions-path:update": {"path": "/x"}, "issue tree-preview": {"mode": "pause"},
        "issue tree-hold:create": {"mode": "pause"},
        "issue feedback:vote": {"targetType": "issue_comment", "targetId": MISSING, "vote": "up"},
        "issue work-product:create": {"type": "document", "provider": "paperclip", "title": "x"},
        "issue interaction:create": {"kind": "request_confirmation", "payload": {"version": 1, "prompt": "x"}}}.items()},
}


def verdict(name, reached):
    """How a command or a route stands."""
    if any(re.match(p, name) for p in DIFFERS):
        return "differs"
    if reached and not NEVER.match(name):
        return "works"
    return "left out" if any(re.match(p, name) for p, _ in LEFT_OUT) else "missing"


class CompatibilityTest(PaperclipCliTest):
    daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1"}

    def test_the_table(self):
        self.acme = self.company()
        self.c = self.acme["id"]
        results = [*self.commands(), *self.routes()]
        kept = os.environ.get("TEST_COMPATIBILITY_RESULTS")
        path = pathlib.Path(kept) if kept else self.temp_dir() / "results"
        path.write_text("".join(json.dumps(r) + "\n" for r in results))
        if not kept:
            done = subprocess.run([ROOT / "scripts/compatibility-table", "--check", path], capture_output=True, text=True)
            self.assertEqual(done.returncode, 0, done.stdout + done.stderr)

    # What to ask with.

    def value(self, name):
        known = {"company": self.c, "type": "process", "key": "plan", "action": "start", "file": self.file, "path": "AGENTS.md",
                 "decision": "continue", "mode": "add", "version": "1", "url": "http://127.0.0.1:1/", "json": "{}",
                 "userId": "local-board", "user-id": "local-board", "out": str(self.home / "out")}
        for part, value in known.items():
            if part.lower() in name.lower():
                return value
        return MISSING if name.lower().endswith(("id", "ref", "agent")) else "x"

    def commands(self):
        self.file = str(self.home / "file")
        pathlib.Path(self.file).write_text("{}")
        driver, env = Driver.get(self.dist), self.pc_env()
        for command in driver.ask(list=True)["commands"]:
            name = " ".join(command["path"])
            if LOCAL.match(name):
                continue
            harmful = re.search(r"delete|archive|terminate|revoke|uninstall|remove", name)
            argv = [*command["path"], *(MISSING if harmful else self.value(a) for a in command["args"])]
            for option in {*command["options"], *({"--company-id"} & set(command["known"]))}:
                argv += [option, self.value(option.lstrip("-"))]
            argv += [o for o in ("--yes", "--json") if o in command["known"]]
            answer = driver.ask(argv=[*argv, *EXTRA.get(name, ())], env=env, limitMs=8000)
            reached = bool(answer["calls"]) and all(c["isRoute"] for c in answer["calls"])
            yield {"kind": "command", "group": command["path"][0], "name": name,
                   "verdict": verdict(name + " ", reached) if answer["calls"] else "untried"}

    def routes(self):
        for line in ROUTES.read_text().splitlines():
            if line.startswith("#"):
                continue
            method, path = line.split()
            company = MISSING if method == "DELETE" or path.endswith("/archive") else self.c
            asked = re.sub(r":(\w+)", lambda m: {"companyId": company, "type": "process", "key": "plan", "action": "start",
                                                 "channel": "c"}.get(m[1], MISSING), path)
            answer = self.req(method, "/api" + asked, {} if method in ("POST", "PUT", "PATCH") else None)
            yield {"kind": "route", "group": re.sub(r"^companies/:companyId/", "", path.strip("/")).split("/")[0],
                   "name": line, "verdict": verdict(line, "API route not found" not in answer.text)}


if __name__ == "__main__":
    unittest.main()
