"""A terminal in a lease, over a WebSocket: what is typed and printed, its size, its end, and who may."""
# threads: sockets that write and read one shell

import unittest

from berthtest import BerthTest, ident, new_company, wait_until
from exectest import ExecTest, marked
from sandboxtest import SandboxTest
from websockettest import PING_MS, Refused, WebSocket


class TerminalTest:
    def terminal(self, query="", **more):
        socket = WebSocket(self.daemon, f"/api/environment-leases/{ident(self.held)}/terminal/ws{query}", **more)
        self.addCleanup(socket.close)
        self.ready = socket.next()
        self.assertEqual(self.ready["type"], "ready")
        return socket

    def type_in(self, socket, text):
        socket.send_json({"type": "input", "data": text})

    def until(self, socket, text):
        """Read until `text` was printed; what was."""
        printed = ""
        while text not in printed:
            message = socket.next()
            self.assertEqual(message["type"], "output", message)
            printed += message["data"]
            self.offset = message["nextOffset"]
        return printed

    def closing(self, socket):
        """Everything up to the last word."""
        while (message := socket.next())["type"] == "output":
            pass
        self.assertEqual(message["type"], "closed")
        self.assertIsNone(socket.next())
        self.assertEqual(socket.status, 1000)
        return message

    def gone(self, exec_id):
        wait_until(lambda: self.execution(exec_id)["status"] not in ("starting", "running") and not marked([exec_id]),
                   "the shell is gone")

    def execution(self, exec_id):
        return self.ok("GET", f"/api/environment-leases/{ident(self.held)}/executions/{exec_id}")

    def test_typing_printing_and_the_end(self):
        socket = self.terminal("?cols=100&rows=30")
        self.type_in(socket, "stty -echo; PS1=; stty size; echo \"[$TERM]\"; tty | cut -c1-5; printf 'h\\303\\251\\n'\n")
        printed = self.until(socket, "hé")
        self.assertIn("30 100\r\n", printed)
        self.assertIn("[xterm-256color]\r\n", printed)
        self.assertIn("/dev/", printed)
        socket.send_json({"type": "resize", "cols": 132, "rows": 43})
        self.type_in(socket, "until [ \"$(stty size)\" = '43 132' ]; do :; done; echo size is $((43+1))\n")
        self.until(socket, "size is 44")
        self.assertTrue(self.execution(self.ready["execId"])["tty"])
        self.type_in(socket, "exit 7\n")
        self.assertEqual(self.closing(socket), {"type": "closed", "reason": "exited", "exitCode": 7, "signal": None})

    def test_a_size_that_comes_before_the_shell(self):
        socket = self.terminal()
        socket.send_json({"type": "resize", "cols": 132, "rows": 43})
        self.type_in(socket, "until [ \"$(stty size)\" = '43 132' ]; do :; done; echo size is $((43+1))\n")
        self.until(socket, "size is 44")

    def test_the_shell_goes_with_the_socket(self):
        socket = self.terminal()
        self.type_in(socket, "trap '' TERM; echo 'up'-$((1+1)); sleep 1000\n")
        self.until(socket, "up-2")
        socket.close()
        self.gone(self.ready["execId"])

    def test_one_that_ignores_the_hangup(self):
        socket = self.terminal()
        self.type_in(socket, "trap '' HUP TERM; echo 'up'-$((1+1)); while :; do sleep 1000; done\n")
        self.until(socket, "up-2")
        socket.close()
        self.gone(self.ready["execId"])

    def test_kept_and_taken_up_again(self):
        socket = self.terminal("?keep=1")
        exec_id = self.ready["execId"]
        self.type_in(socket, "X=41; echo 'set'-$((1+1))\n")
        self.until(socket, "set-2")
        socket.close()
        self.daemon.restart()
        again = self.terminal(f"?execId={exec_id}&keep=1")
        self.assertEqual(self.ready["execId"], exec_id)
        self.until(again, "set-2")  # what was printed is there again
        self.type_in(again, "echo X=$((X+1))\n")
        self.until(again, "X=42")
        again.close()
        again = self.terminal(f"?execId={exec_id}&keep=1&offset={self.offset}")
        self.type_in(again, "echo X=$((X+2))\n")
        printed = self.until(again, "X=43")  # and only what came after it
        self.assertNotIn("set-2", printed)
        self.assertNotIn("X=42", printed)
        again.send_json({"type": "close"})
        self.gone(exec_id)

    def test_stopping_leaves_the_shell_alone(self):
        socket = self.terminal()
        exec_id = self.ready["execId"]
        self.type_in(socket, "echo 'up'-$((1+1))\n")
        self.until(socket, "up-2")
        reading = socket.end_in_background()
        self.daemon.restart()
        reading.join()
        self.assertEqual((socket.status, socket.reason), (1001, "the daemon stops"))
        self.assertEqual(self.execution(exec_id)["status"], "running")
        again = self.terminal(f"?execId={exec_id}")
        self.type_in(again, "exit\n")
        self.assertEqual(self.closing(again)["reason"], "exited")
        # One that has ended already says so.
        self.assertEqual(self.closing(self.terminal(f"?execId={exec_id}"))["reason"], "exited")


class Local(TerminalTest, ExecTest):
    def test_much_both_ways(self):
        socket = self.terminal()
        self.type_in(socket, "stty -echo raw; PS1=; echo ready-$((1+1)); head -c 600000 | wc -c; "
                             "seq 1 20000; echo 'the'-end; stty sane\n")
        self.until(socket, "ready-2")
        for _ in range(6):
            self.type_in(socket, "x" * 100000)
        printed = self.until(socket, "the-end")
        self.assertIn("600000", printed)
        self.assertIn("\n".join(map(str, range(19000, 20001))), printed.replace("\r", ""))

    def test_bad_messages(self):
        for bad in ("x", "[]", '{"type":"what"}', '{"type":"input"}', '{"type":"resize","cols":0,"rows":5}',
                    '{"type":"resize","cols":10000,"rows":5}'):
            socket = self.terminal()
            socket.send(bad)
            while socket.next() is not None:
                pass
            self.assertEqual(socket.status, 1008, bad)
            self.gone(self.ready["execId"])

    def refused(self, query="", lease=None, **more):
        with self.assertRaises(Refused) as refused:
            WebSocket(self.daemon, f"/api/environment-leases/{ident(lease or self.held)}/terminal/ws{query}", **more)
        return refused.exception.response.status

    def test_refused(self):
        self.assertEqual(self.refused("?cols=0"), 400)
        self.assertEqual(self.refused("?execId=nothing"), 403)
        self.assertEqual(self.refused(lease="00000000-0000-4000-8000-000000000000"), 403)
        self.assertEqual(self.refused(headers={"Origin": "http://evil.example"}), 403)
        agent = self.agent(self.local["companyId"], grants=["environments:manage"])
        self.assertEqual(self.refused(token=agent["token"]), 403)
        self.assertEqual(self.refused("?token=" + agent["token"]), 403)
        plain = self.detach("sleep 1000")
        self.assertEqual(self.refused(f"?execId={plain}"), 409)
        self.assertEqual(self.daemon.sql("SELECT id FROM executions WHERE is_terminal"), [])


class Sandbox(TerminalTest, SandboxTest):
    pass


class Revoked(BerthTest):
    daemon_flags = ("--mode", "authenticated")
    daemon_env = {**PING_MS, "BERTH_LOCAL_FOR_OWNERS": "1"}  # the terminal is on this machine

    def revoke_key(self, company, board):
        self.operator("DELETE", f"/api/board-api-keys/{board['id']}")

    def revoke_grant(self, company, board):
        members = f"/api/companies/{company['id']}/members"
        member = next(m for m in self.operator("GET", members)["members"] if m["membershipRole"] == "operator")
        self.operator("PATCH", f"{members}/{member['id']}/permissions", {"grants": []})

    def test_a_revoked_key_ends_it(self):
        self.check(self.revoke_key)

    def test_a_revoked_right_ends_it(self):
        self.check(self.revoke_grant)

    def check(self, revoke):
        company = self.operator("POST", "/api/companies", new_company(), 201)
        env = next(e for e in self.operator("GET", f"/api/companies/{company['id']}/environments")
                   if e["driver"] == "local")
        lease = self.operator("POST", f"/api/environments/{env['id']}/leases", {}, 201)
        board = self.board_user(company, "ann", grants=["environments:manage"])
        socket = WebSocket(self.daemon, f"/api/environment-leases/{ident(lease)}/terminal/ws?keep=1",
                           token=board["token"])
        self.addCleanup(socket.close)
        exec_id = socket.next()["execId"]
        reading = socket.end_in_background()
        revoke(company, board)
        reading.join()
        self.assertEqual((socket.status, socket.reason), (1008, "forbidden"))
        wait_until(lambda: not marked([exec_id]), "the shell is gone")
        self.operator("POST", f"/api/environment-leases/{ident(lease)}/release", {})


if __name__ == "__main__":
    unittest.main()
