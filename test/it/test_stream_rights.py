"""Who was let into a stream stays only while it may: every kind of stream, and every way to lose the right to it."""
# threads: streams that are read while rights are taken away

import http.client
import threading
import unittest

from berthtest import PATIENCE, ident, wait_until
from runtest import HOLD, RunTest
from websockettest import PING_MS, WebSocket


class Follower(threading.Thread):
    """Opens a stream, reads it to its end and keeps how it ended in `end`: `whole` or `cut` for an answer, the status
    and reason of its close for a WebSocket."""

    def __init__(self, test, path, token):
        super().__init__(daemon=True)
        self.path, self.socket, self.end = path, None, None
        if path.partition("?")[0].endswith("/ws"):
            self.socket = WebSocket(test.daemon, path, token=token)
            test.addCleanup(self.socket.close)
        else:
            self.connection = http.client.HTTPConnection(*test.daemon.address, timeout=30 * PATIENCE)
            test.addCleanup(self.connection.close)
            self.connection.request("GET", path, headers={"Authorization": f"Bearer {token}"})
            self.answer = self.connection.getresponse()
            test.assertEqual(self.answer.status, 200)
        self.start()

    def run(self):
        if self.socket:
            while self.socket.next() is not None:
                pass
            self.end = (self.socket.status, self.socket.reason)
            self.socket.close()  # as a client does
            return
        try:
            self.answer.read()
            self.end = "whole"
        except http.client.IncompleteRead:
            self.end = "cut"
        except OSError:  # nothing was heard for too long
            self.end = None

    def ended(self):
        return not self.is_alive()


class StreamTest(RunTest):
    daemon_flags = ("--mode", "authenticated")
    daemon_env = {**RunTest.daemon_env, **PING_MS}

    def req(self, method, path, body=None, headers=None, token=None):
        """Who has no token is the operator."""
        if token is None:
            return self.daemon.req_unix(method, path, body, headers)
        return self.daemon.req(method, path, body, headers, token)

    def make_lease(self):
        super().make_lease()
        local = next(e for e in self.ok("GET", f"/api/companies/{self.acme['id']}/environments")
                     if e["driver"] == "local")
        self.held = self.acquire(local)
        self.command = self.detach("echo up; exec sleep 1000")
        self.log = self.wake(self.runner(HOLD))
        self.up(self.log)

    # What is followed, and how it ends for who may no longer: an answer without a last word of its own is cut, so
    # that it does not look whole.

    def lease_streams(self):
        below = self.path(self.command)
        return {f"{below}/events": "whole", f"{below}/output?follow=1": "cut",
                f"/api/environment-leases/{ident(self.held)}/terminal/ws?keep=1": (1008, "forbidden")}

    def company_streams(self):
        company, run = f"/api/companies/{self.acme['id']}", f"/api/heartbeat-runs/{ident(self.log)}"
        return {f"{company}/events": "whole", f"{company}/events/ws": (1008, "forbidden"),
                f"{run}/stream": "whole", f"{run}/log?follow=1": "cut"}

    def check(self, lose, streams, spared=(), **rights):
        """Ann loses a right and her streams; Bob, who may the same, stays in his, and she in those spared."""
        ann, bob = (self.board_user(self.acme, name, grants=["environments:manage"], **rights)
                    for name in ("ann", "bob"))
        cut = {path: Follower(self, path, ann["token"]) for path in streams}
        stay = [Follower(self, path, token) for paths, token in ((streams, bob["token"]), (spared, ann["token"]))
                for path in paths]
        lose(ann)
        for path, follower in cut.items():
            with self.subTest(path):
                wait_until(follower.ended, "the stream ends")
                self.assertEqual(follower.end, streams[path])
        self.assertEqual([f.path for f in stay if f.ended()], [])
        for key in (ann, bob):
            self.revoke_key(key)
        wait_until(lambda: all(f.ended() for f in stay), "the others end with their keys")
        self.signal(self.command, "SIGKILL")
        self.release_held()
        self.finished(self.log)

    def revoke_key(self, who):
        self.operator("DELETE", f"/api/board-api-keys/{who['id']}")


class Members(StreamTest):
    daemon_env = {**StreamTest.daemon_env, "BERTH_LOCAL_FOR_OWNERS": "1"}  # the lease is of this machine

    def member(self, who):
        return self.daemon.sql("SELECT m.id FROM company_memberships m JOIN board_api_keys k ON k.user_id = m.principal_id "
                               "WHERE k.id = ?", (who["id"],))[0]["id"]

    def take_membership(self, who):
        self.edit("DELETE FROM company_memberships WHERE id = ?", (self.member(who),))

    def take_grant(self, who):
        self.operator("PATCH", f"/api/companies/{self.acme['id']}/members/{self.member(who)}/permissions",
                      {"grants": []})

    def test_a_key_that_is_revoked(self):
        self.check(self.revoke_key, {**self.lease_streams(), **self.company_streams()})

    def test_a_membership_that_is_taken_away(self):
        self.check(self.take_membership, {**self.lease_streams(), **self.company_streams()})

    def test_a_grant_that_is_taken_away(self):
        self.check(self.take_grant, self.lease_streams(), self.company_streams())


class Admins(StreamTest):
    """Only instance admins may use leases of this machine."""

    def take_admin(self, who):
        self.edit("UPDATE users SET is_instance_admin = 0 "
                  "WHERE id = (SELECT user_id FROM board_api_keys WHERE id = ?)", (who["id"],))

    def test_an_admin_who_is_one_no_longer(self):
        self.check(self.take_admin, self.lease_streams(), self.company_streams(), admin=True)


if __name__ == "__main__":
    unittest.main()
