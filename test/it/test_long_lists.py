"""Lists of all rows: complete and in order, sent in parts, in memory that does not grow with the list."""
# plain: the daemon's memory is measured

# sqlite: makes rows with functions of SQLite

import uuid

from berthtest import wait_until
from exectest import memory_tells
from worktest import WorkTest

PARTS = 1300  # rows: two full parts and a bit


class LongListTest(WorkTest):
    def setUp(self):
        super().setUp()
        self.ada = self.agent(self.acme)
        self.issue = self.ok("POST", f"/api/companies/{self.acme['id']}/issues", {"title": "Long"}, status=201)
        self.first = str(uuid.uuid4())
        self.insert_run(self.ada, self.first, "succeeded")
        self.path = f"/api/companies/{self.acme['id']}/heartbeat-runs"

    def multiply(self, table, where, n, **columns):
        """Copies of one row that differ in id and age."""
        names = [row["name"] for row in self.daemon.sql(f"SELECT name FROM pragma_table_info('{table}')")]
        columns.setdefault("id", "printf('%08x-0000-4000-8000-%012x', random() & 4294967295, i)")
        values = ", ".join(columns.get(name, name) for name in names)
        self.edit(f"WITH RECURSIVE n (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < {n}) "
                  f"INSERT INTO {table} ({', '.join(names)}) "
                  f"SELECT {values} FROM n, (SELECT * FROM {table} WHERE {where} LIMIT 1)", ())

    def many_runs(self, n, **columns):
        self.edit("UPDATE heartbeat_runs SET issue_id = ?, step = 'done', created_at = 1700000000000000 WHERE id = ?",
                  (self.issue["id"], self.first))
        # Every third has the same time as the one before it: then the id decides.
        self.multiply("heartbeat_runs", f"id = '{self.first}'", n, created_at="created_at - i + (i % 3 = 0)",
                      retry_of_run_id="NULL", wakeup_request_id="NULL", **columns)

    def expected(self):
        return [row["id"] for row in self.daemon.sql(
            "SELECT id FROM heartbeat_runs ORDER BY created_at DESC, id DESC")]

    def test_all_runs_of_a_company_an_agent_and_an_issue(self):
        self.many_runs(PARTS)
        for path in (self.path, f"{self.path}?agentId={self.ada['id']}", f"{self.path}?issueId={self.issue['id']}",
                     f"/api/issues/{self.issue['id']}/runs"):
            self.assertEqual([r["id"] for r in self.ok("GET", path)], self.expected(), path)
        self.assertEqual(self.ok("GET", f"{self.path}?agentId={uuid.uuid4()}"), [])

    def test_a_limit_still_makes_pages(self):
        self.many_runs(PARTS)
        seen, cursor = [], ""
        while True:
            answer = self.req("GET", f"{self.path}?limit=600{cursor}")
            seen += [r["id"] for r in answer.json]
            if "x-next-cursor" not in answer.headers:
                break
            cursor = f"&cursor={answer.headers['x-next-cursor']}"
        self.assertEqual(seen, self.expected())

    def test_all_leases_of_an_environment(self):
        local = next(e for e in self.ok("GET", f"/api/companies/{self.acme['id']}/environments")
                     if e["driver"] == "local")
        lease = self.acquire(local)
        self.release(lease)
        self.multiply("environment_leases", f"environment_id = '{local['id']}'", PARTS,
                      last_used_at="last_used_at - i / 2", idempotency_key="NULL")
        expected = [row["id"] for row in self.daemon.sql(
            "SELECT id FROM environment_leases ORDER BY last_used_at DESC, created_at DESC, id DESC")]
        path = f"/api/environments/{local['id']}/leases"
        self.assertEqual([r["id"] for r in self.ok("GET", path)], expected)
        self.assertEqual([r["id"] for r in self.ok("GET", f"{path}?status=released")], expected)
        self.assertEqual(self.ok("GET", f"{path}?status=failed"), [])
        self.edit("UPDATE environment_leases SET status = 'failed' WHERE id = ?", (expected[700],))
        self.assertEqual([r["id"] for r in self.ok("GET", f"{path}?status=failed")], [expected[700]])

    def test_a_key_that_is_revoked_ends_the_list_before_its_end(self):
        self.many_runs(20000, context_snapshot="'{\"pad\": \"" + 200 * "x" + "\"}'")
        key = self.operator("POST", "/api/board-api-keys",
                            {"name": "k", "user": "bob", "requestedCompanyId": self.acme["id"],
                             "membershipRole": "admin"}, status=201)
        with self.daemon.raw() as line:
            line.send(f"GET {self.path} HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {key['token']}\r\n\r\n"
                      .encode())
            head = line.sock.recv(1000)  # and no more: the rest waits in the daemon
            self.assertIn(b"200 OK", head)
            self.operator("DELETE", f"/api/board-api-keys/{key['id']}")
            rest = line.rest()
        self.assertFalse(rest.endswith(b"0\r\n\r\n"))

    def test_memory_does_not_grow_with_the_list(self):
        self.many_runs(30000, context_snapshot="'{\"pad\": \"" + 1000 * "x" + "\"}'")
        self.ok("GET", f"{self.path}?limit=500")
        before = self.daemon.rss_kb()
        answer = self.req("GET", self.path)
        self.assertEqual(len(answer.json), 30001)
        if memory_tells():
            self.assertLess(self.daemon.rss_kb() - before, 20000)

    def test_a_reader_that_goes_away_leaves_nothing(self):
        """Also when it goes while a part is made."""
        self.many_runs(20000)
        for parts in range(20):
            with self.daemon.raw() as line:
                line.send(f"GET {self.path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
                self.assertIn(b"200 OK", line.sock.recv(1000))
                for _ in range(parts * 10):
                    line.sock.recv(1 << 16)
        wait_until(lambda: self.daemon.tcp_connections() <= 1, "the connection is closed")
        self.assertEqual(len(self.ok("GET", f"{self.path}?limit=2")), 2)
