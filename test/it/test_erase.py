"""Deleting a company or an agent with its history: everything of it goes, the audit trail stays, nothing living is
forgotten, and a crash in the middle only delays it."""

# sqlite: asks SQLite for its tables

import subprocess
import unittest

from berthtest import BINARIES
from runtest import HOLD, RunTest, wait_until


class EraseTest(RunTest):
    def erase(self, thing, confirm, kind="companies", **more):
        return self.req("DELETE", f"/api/{kind}/{thing['id']}?confirm={confirm}", **more)

    def fill(self):
        """A run that is over, one that works, a secret in use, a leased place, an issue."""
        secret = self.ok("POST", f"/api/companies/{self.acme['id']}/secrets", {"name": "s", "value": "hidden-1"}, 201)
        self.acquire(self.environment(self.acme, name="fake", config={"provider": "fake", "image": "x"}))
        self.over = self.finished(self.wake(self.runner("echo x", "Over", adapter={
            "cwd": None, "env": {"S": {"type": "secret_ref", "secretId": secret["id"]}}})))
        self.ok("POST", f"/api/companies/{self.acme['id']}/issues", {"title": "t"}, 201)
        self.held = self.wake(self.runner(HOLD, "Held"))
        self.up(self.held)
        self.assertTrue(self.files_of(self.over["agentId"]))

    def left(self, column, value):
        """The tables that still know it."""
        tables = [r["name"] for r in self.daemon.sql("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return sorted(t for t in tables if column in {c["name"] for c in self.daemon.sql(f"PRAGMA table_info({t})")}
                      and self.daemon.sql(f"SELECT 1 FROM {t} WHERE {column} = ?", (value,)))

    def files_of(self, name):
        return [p for p in self.daemon.data.rglob(f"*{name}*")]

    def gone(self, company):
        wait_until(lambda: not self.daemon.sql("SELECT 1 FROM companies WHERE id = ?", (company["id"],)), "it is gone", 60)
        # Places that are closed stay for the leak report; they name nothing that exists.
        self.assertEqual(self.left("company_id", company["id"]), ["activity_log", "places"])
        self.assertEqual(self.daemon.sql("SELECT 1 FROM places WHERE state <> 'gone'"), [])
        self.assertEqual(self.files_of(company["id"]), [])
        self.assertEqual(self.files_of(self.over["agentId"]), [])
        told = [row["action"] for row in self.ok("GET", f"/api/companies/{company['id']}/activity")]
        self.assertEqual(told[0], "company.deleted")
        self.assertIn("company.delete_confirmed", told)
        self.assertIn("company.created", told)


class CompanyTest(EraseTest):
    def test_with_everything(self):
        other = self.company("Other")
        self.fill()
        self.assertTrue(self.files_of(self.acme["id"]))
        path = f"/api/companies/{self.acme['id']}"
        self.assert_error(self.req("DELETE", path), 409, contains="living leases")
        self.assert_error(self.erase(self.acme, "Other"), 422, contains="confirm has to be the name")
        owner = self.board_user(self.acme, user="ann", role="owner")["token"]
        self.assert_error(self.erase(self.acme, "ACM", token=owner), 403, "Instance admin required")
        self.assertEqual(self.run_row(self.held)["status"], "running")
        self.assertEqual(self.ok("DELETE", path + "?confirm=ACM"), {"ok": True})
        self.gone(self.acme)
        self.assert_error(self.req("DELETE", path + "?confirm=ACM"), 404, "Company not found")
        self.assertEqual([c["id"] for c in self.ok("GET", "/api/companies")], [other["id"]])
        self.ok("GET", f"/api/companies/{other['id']}/activity")


class AgentTest(EraseTest):
    def test_with_its_runs(self):
        self.fill()
        held, others = {"id": self.held["agentId"]}, self.files_of(self.over["agentId"])
        self.assertTrue(self.files_of(held["id"]))
        self.assert_error(self.req("DELETE", f"/api/agents/{held['id']}"), 409, contains="delete it with them: confirm=held")
        self.assertEqual(self.ok("DELETE", f"/api/agents/{held['id']}?confirm=held"), {"ok": True})
        self.assertEqual(self.left("agent_id", held["id"]), ["activity_log"])
        self.assertEqual((self.files_of(held["id"]), self.files_of(self.over["agentId"])), ([], others))
        self.assertEqual(self.run_row(self.over)["status"], "succeeded")
        actions = [row["action"] for row in self.ok("GET", f"/api/companies/{self.acme['id']}/activity")]
        self.assertEqual(actions[:2].count("agent.deleted") + actions.count("agent.delete_confirmed"), 2)


class CrashTest(EraseTest):
    daemon_binary = "faults"

    def test_at_every_point(self):
        listed = subprocess.run([BINARIES["faults"], "faults"], capture_output=True, text=True, check=True).stdout.split()
        points = [point for point in listed if point.startswith("erase.")]
        self.assertEqual(len(points), 6)
        for point in points:
            with self.subTest(point):
                self.acme = self.company()
                self.fill()
                self.crash_at(point, lambda: self.erase(self.acme, self.acme["id"]))
                if point == "erase.intend.before":  # nothing has happened yet
                    self.assertEqual(self.erase(self.acme, self.acme["id"]).status, 200)
                self.gone(self.acme)


if __name__ == "__main__":
    unittest.main()
