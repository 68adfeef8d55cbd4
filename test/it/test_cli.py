"""The command line against a real daemon, as a person uses it: every command, what it prints, what it says
when something is wrong, and how it exits."""

import json
import os
import pathlib
import re
import shutil
import subprocess
import tempfile
import unittest

from berthtest import BINARIES, BUILD, SOURCE, BerthTest

BERTH = BINARIES["normal"]
RUN = "7b2f0a52-8a53-4c8e-9d4e-0a4e3f6f6a11"
MISSING = "00000000-0000-4000-8000-000000000000"
ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\x7f\u202e\u2066end"
UUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"


class CliTest(BerthTest):
    def run_ok(self, *args, **more):
        status, out, err = self.cli(*args, **more)
        self.assertEqual(status, 0, err)
        return out

    def json(self, *args, **more):
        """What --json printed. It must be the whole of standard output."""
        return json.loads(self.run_ok("--json", *args, **more))

    def fails(self, status, *args, says=None, **more):
        """Returns standard error, which must begin with our name and hold `says`."""
        found, out, err = self.cli(*args, **more)
        self.assertEqual(found, status, out + err)
        self.assertTrue(err.startswith("berth: ") or "\nberth: " in err, err)
        for part in [says] if isinstance(says, str) else says or []:
            self.assertIn(part, err)
        return err

    def labels(self, text):
        return {m[1]: m[2] for m in re.finditer(r"^(\S[^:\n]*?) {2,}(.*)$", text, re.M)}


class CompanyTest(CliTest):
    def test_life(self):
        self.assertEqual(self.run_ok("company", "list"), "no companies\n")
        made = self.labels(self.run_ok("company", "create", "Acme", "--description", "the first"))
        self.assertRegex(made["Id"], f"^{UUID}$")
        self.assertEqual((made["Name"], made["Description"], made["Status"], made["Issue prefix"]),
                         ("Acme", "the first", "active", "ACM"))
        for given in ("Acme", "acme", "ACM", made["Id"], made["Id"].upper(), made["Id"][-6:]):
            self.assertEqual(self.json("company", "show", given)["id"], made["Id"])
        self.assertIn(made["Id"], self.run_ok("company", "list"))
        self.assertEqual([c["id"] for c in self.json("company", "list")], [made["Id"]])
        self.assertEqual(self.run_ok("company", "delete", "Acme", "--yes"), "deleted Acme\n")
        self.fails(5, "company", "show", "Acme", says="there is no company 'Acme'")
        self.fails(5, "company", "show", MISSING, says="Company not found")

    def test_the_same_again(self):
        """A block of commands that is pasted twice makes nothing twice, and says what to do."""
        make = {"company": [], "project": [], "agent": ["-o", "command=true"], "env": ["--driver", "sandbox", "-o", "provider=fake"]}
        for group, options in make.items():
            with self.subTest(group=group):
                self.run_ok(group, "create", "Twice", *options)
                self.fails(1, group, "create", "twice", *options,
                           says=["'twice' already exists", f"'berth {group} show twice'", "--allow-duplicate"])
                found = [x for x in self.json(group, "list") if x["name"].lower() == "twice"]
                self.assertEqual(len(found), 1)
        self.run_ok("project", "create", "Twice", "--allow-duplicate")
        self.assertEqual(len(self.json("project", "list")), 2)
        self.run_ok("company", "create", "Twice", "--allow-duplicate")
        self.assertEqual(len(self.json("company", "list")), 2)

    def test_what_is_not_there_can_be_listed(self):
        self.run_ok("company", "create", "Acme")
        for list_, *command in (("plugin", "plugin", "sandbox-check"), ("plugin", "plugin", "show"), ("snapshot", "snapshot", "delete"),
                                ("env", "env", "show"), ("lease", "lease", "show"), ("agent", "agent", "show"),
                                ("runs", "runs", "show"), ("issue", "issue", "show"), ("project", "project", "show"),
                                ("secret", "secret", "show"), ("vault", "vault", "show"), ("key", "key", "revoke"),
                                ("workspace salvaged", "workspace", "salvaged", "show"), ("company", "company", "show")):
            for given in ("nosuch", MISSING):
                with self.subTest(command=command, given=given):
                    self.fails(5, *command, given, says=f"'berth {list_} list' shows those there are")
            self.run_ok(*list_.split(), "list")

    def test_several(self):
        for name in ("Acme", "Beta"):
            self.run_ok("company", "create", name)
        err = self.fails(2, "env", "list", says=["several companies", "--company", "Acme", "Beta"])
        self.assertEqual(len(re.findall(UUID, err)), 2)
        ids = {c["name"]: c["id"] for c in self.json("company", "list")}
        self.json("env", "create", "sandbox", "of-beta", "-o", "provider=fake", "--company", "Beta")
        for given in ("Beta", ids["Beta"], ids["Beta"][-8:]):
            self.assertIn("of-beta", self.run_ok("env", "list", "-C", given))
            self.assertIn("of-beta", self.run_ok("env", "list", env={"BERTH_COMPANY_ID": given}))
            self.assertIn("of-beta", self.run_ok("env", "list", env={"PAPERCLIP_COMPANY_ID": given}))
        self.assertNotIn("of-beta", self.run_ok("env", "list", "-C", "Acme", env={"BERTH_COMPANY_ID": "Beta"}))
        self.fails(5, "env", "list", "-C", "Gamma", says="there is no company 'Gamma'")
        self.fails(5, "env", "list", "-C", MISSING, says="Company not found")

    def test_deleting_asks_on_a_terminal(self):
        self.run_ok("company", "create", "Acme")
        status, seen = self.terminal("company", "delete", "Acme", typed=b"n\n")
        self.assertEqual(status, 1)
        self.assertIn("Delete company 'Acme' with everything in it? [y/N]", seen)
        self.assertIn("nothing was done", seen)
        self.assertEqual(len(self.json("company", "list")), 1)
        self.assertEqual(self.terminal("company", "delete", "Acme", typed=b"y\n")[0], 0)
        self.assertEqual(self.json("company", "list"), [])


class EnvTest(CliTest):
    def setUp(self):
        super().setUp()
        self.run_ok("company", "create", "Acme", "--default-environment", "none")

    def box(self, name="box"):
        return self.json("env", "create", "sandbox", name, "-o", "provider=fake")

    def test_life(self):
        made = self.labels(self.run_ok("env", "create", "box", "--driver", "sandbox", "-o", "provider=fake",
                                       "--description", "for tests"))
        self.assertEqual((made["Name"], made["Driver"], made["Status"], made["Description"]),
                         ("box", "sandbox", "active", "for tests"))
        shown = self.run_ok("env", "show", "box")
        self.assertIn('"provider": "fake"', shown)
        self.assertEqual(self.labels(shown)["Id"], made["Id"])
        self.assertEqual(self.json("env", "show", made["Id"])["name"], "box")
        listed = self.run_ok("env", "list")
        self.assertRegex(listed, rf"(?m)^{made['Id']} +box +sandbox +active +\d{{4}}-")
        self.assertEqual([e["name"] for e in self.json("env", "list", "--driver", "sandbox")], ["box"])
        changed = self.json("env", "update", "box", "--name", "crate", "--description", "new", "--status", "archived")
        self.assertEqual((changed["name"], changed["description"], changed["status"]), ("crate", "new", "archived"))
        self.assertEqual([e["name"] for e in self.json("env", "list", "--status", "archived")], ["crate"])
        self.assertEqual(self.run_ok("env", "list", "--status", "archived", "--driver", "local"), "no environments\n")
        status, out, err = self.cli("env", "delete", "crate", "--yes")
        self.assertEqual((status, out), (0, "deleted crate\n"))
        self.assertIn("nothing uses 'crate'", err)
        self.fails(5, "env", "show", "crate", says="there is no environment 'crate'; 'berth env list' shows those there are")
        self.fails(1, "env", "create", "sandbox", "crate", "-o", "memoryMb=banana", says="memoryMb: Expected number")
        self.fails(5, "env", "show", MISSING, says="Environment not found")

    def test_a_company_is_made_when_there_is_none(self):
        self.run_ok("company", "delete", "Acme", "--yes")
        self.fails(5, "env", "list", says="berth company create NAME")
        for make, *clean in ((("env", "create", "sandbox", "here", "-o", "provider=fake"), ("company", "delete", "Default")),
                             (("agent", "create", "Ada", "-o", "command=true"), ("agent", "delete", "Ada"),
                              ("company", "delete", "Default")),
                             (("lease", "acquire", "Local"),)):
            status, _, err = self.cli(*make)
            self.assertEqual(status, 0, err)
            self.assertIn('made a company named "Default"', err)
            for words in clean:
                self.run_ok(*words)

    def test_config(self):
        config = self.temp_dir() / "config.json"
        config.write_text('{"provider": "fake", "image": "one"}')
        made = self.json("env", "create", "sandbox", "a", "--config", f"@{config}", "-o", "image=two")
        self.assertEqual(made["config"]["image"], "two")
        made = self.json("env", "create", "sandbox", "b", "--config", "@-", stdin='{"provider": "fake"}')
        self.assertEqual(made["config"]["provider"], "fake")
        made = self.json("env", "update", "b", "-o", "image=@" + str(config))
        self.assertEqual(made["config"]["image"], config.read_text())
        self.fails(2, "env", "create", "sandbox", "c", "--config", "{", says="--config")
        self.fails(5, "env", "create", "sandbox", "c", "--config", "@/nonexistent", says="/nonexistent")
        self.fails(2, "env", "update", "b", says="nothing to change")

    def test_validation_is_readable(self):
        err = self.fails(1, "env", "create", "ssh", "far", "-o", "port=x")
        self.assertNotIn("{", err)
        self.assertIn("\n  ", err, "each issue has a line")
        self.assertIn("host", err)
        self.fails(1, "env", "create", "local", "second", says="A local environment already exists for this company.")
        self.fails(1, "env", "create", "sandbox", "", "-o", "provider=fake", says=["Validation error", "  name: "])
        self.box()
        self.fails(1, "env", "update", "box", "--status", "broken", says=["Validation error", "  status: ", "archived"])

    def test_probe(self):
        self.box()
        out = self.labels(self.run_ok("env", "probe", "box"))
        self.assertEqual(out["Result"], "ok")
        self.assertTrue(self.json("env", "probe", "box")["ok"])
        self.json("env", "create", "far", "--driver", "ssh", "-o", "host=127.0.0.1", "-o", "port=1", "-o", "username=x",
                  "-o", "remoteWorkspacePath=/srv")
        status, out, _ = self.cli("env", "probe", "far")
        self.assertEqual(status, 1, out)
        self.assertEqual(self.labels(out)["Result"], "failed")
        self.assertTrue(self.labels(out)["Summary"])
        status, out, _ = self.cli("--json", "env", "probe", "far")
        self.assertEqual((status, json.loads(out)["ok"]), (1, False))
        self.fails(5, "env", "probe", "nowhere")

    def test_deleting_what_is_in_use(self):
        self.box()
        lease = self.json("lease", "acquire", "box")["lease"]
        err = self.fails(1, "env", "delete", "box", "--yes", says=["leases in use: 1", "--close-leases"])
        self.assertIn("what hangs on 'box'", err)
        self.assertEqual(self.json("lease", "show", lease["id"])["status"], "active")
        self.assertEqual(self.json("env", "delete", "box", "--yes", "--close-leases").get("id"),
                         lease["environmentId"])
        self.fails(5, "env", "show", "box")

    def test_ids_may_be_cut_at_either_end(self):
        boxes = [self.box(f"box{i}") for i in range(5)]
        ids = [b["id"] for b in boxes]
        self.assertEqual(len({i[:6] for i in ids}), 1, "ids made together begin alike")
        for box in boxes:
            self.assertEqual(self.json("env", "show", box["id"][-12:])["id"], box["id"])
            self.assertEqual(self.json("env", "show", box["id"][-12:].upper())["id"], box["id"])
            self.assertEqual(self.json("env", "show", box["id"][:35])["id"], box["id"])
        err = self.fails(2, "env", "show", ids[0][:6], says="fits more than one environment")
        for box in boxes:
            self.assertIn(box["id"], err)
            self.assertIn(box["name"], err)
        self.fails(5, "env", "show", ids[0][-3:], says="there is no environment")
        self.fails(5, "env", "show", ids[0][9:20], says="there is no environment")
        self.fails(5, "env", "show", ids[0] + "0")
        # A name wins over a part of an id.
        named = self.box(ids[0][-5:])
        self.assertEqual(self.json("env", "show", ids[0][-5:])["id"], named["id"])

    def test_terminals_get_whole_ids(self):
        box = self.box()
        for args in (["env", "list"], ["activity", "list"], ["company", "list"]):
            status, seen = self.terminal(*args)
            self.assertEqual(status, 0, seen)
            self.assertRegex(seen, UUID)
        self.assertIn(box["id"], self.terminal("activity", "list", "-n", "1")[1])


class HostileTest(CliTest):
    """Names are made by others. None of them may steer the terminal of who looks."""

    def assert_tame(self, text, colours=False):
        if colours:
            text = re.sub(r"\x1b\[[0-9]*m", "", text)
        self.assertEqual(re.findall(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028-\u202e\u2066-\u2069]", text.replace("\r\n", "\n")), [])

    def setUp(self):
        super().setUp()
        self.acme = self.company(f"Acme{ESCAPES}")
        self.env = self.environment(self.acme, name=f"box{ESCAPES}", description=ESCAPES, metadata={ESCAPES: ESCAPES})
        self.ok("POST", f"/api/companies/{self.acme['id']}/agents", {"name": f"Ada{ESCAPES}"}, 201)
        self.ok("POST", "/api/board-api-keys", {"name": f"key{ESCAPES}"}, 201)
        self.held = self.acquire(self.env, idempotencyKey="k")["lease"]

    def test_everywhere(self):
        env, lease = self.env["id"], self.held["id"]
        for args in (["env", "list"], ["env", "show", env], ["env", "probe", env], ["company", "list"],
                     ["company", "show", self.acme["id"]], ["agent", "list"], ["key", "list"], ["activity", "list"],
                     ["lease", "list"], ["lease", "show", lease], ["leaks"], ["env", "show", f"x{ESCAPES}"],
                     ["env", "update", env, "--status", ESCAPES], ["env", "delete", env],
                     ["company", "delete", self.acme["id"]], ["--json", "env", "show", env], [ESCAPES],
                     ["lease", "acquire", env, "--ttl", ESCAPES]):
            with self.subTest(args=args):
                _, out, err = self.cli(*args)
                self.assert_tame(out + err)
                _, seen = self.terminal(*args, typed=b"n\n" if "delete" in args else b"")
                self.assert_tame(seen.replace("^[", ""), colours=True)
                self.assertNotIn("owned\x07", seen)

    def test_output_of_a_command_of_somebody_else(self):
        """On a terminal it does not steer it, unless that is asked for; in a pipe it is what was written."""
        local = next(e for e in self.ok("GET", f"/api/companies/{self.acme['id']}/environments") if e["driver"] == "local")
        lease = self.acquire(local)["lease"]["id"]
        self.addCleanup(self.req, "POST", f"/api/environment-leases/{lease}/release", {})
        said = f"one {ESCAPES}\ttwo \u00e4\n"
        done = self.ok("POST", f"/api/environment-leases/{lease}/execute",
                       {"command": "/bin/cat", "stdin": said, "cwd": "/"})
        self.assertEqual(self.cli("lease", "output", lease, done["execId"])[1], said)
        status, seen = self.terminal("lease", "output", lease, done["execId"])
        self.assertEqual((status, seen), (0, "one ]0;owned[2J31mend\ttwo \u00e4\r\n"))
        self.assertIn("\x1b[2J", self.terminal("lease", "output", lease, done["execId"], "--raw")[1])

    def test_nothing_is_lost_in_json(self):
        self.assertEqual(self.json("env", "show", self.env["id"])["name"], f"box{ESCAPES}")
        self.assertEqual(self.json("env", "show", self.env["id"])["metadata"], {ESCAPES: ESCAPES})


class LeaseTest(CliTest):
    def setUp(self):
        super().setUp()
        self.run_ok("company", "create", "Acme")
        self.box = self.json("env", "create", "sandbox", "box", "-o", "provider=fake")

    def test_life(self):
        self.assertEqual(self.run_ok("lease", "list"), "no leases in use (--all shows those that ended)\n")
        made = self.labels(self.run_ok("lease", "acquire", "box", "--ttl", "30m", "--run", RUN))
        self.assertEqual((made["Environment"], made["Status"], made["Provider"], made["Run"]),
                         ("box", "active", "fake", RUN))
        short = made["Id"][-8:]
        self.assertEqual(self.json("lease", "show", short)["id"], made["Id"])
        self.assertEqual(self.labels(self.run_ok("lease", "show", short))["Status"], "active")
        self.assertRegex(self.run_ok("lease", "list"), rf"(?m)^{made['Id']} +box +active ")
        self.assertIn(made["Id"], self.run_ok("lease", "list", "box"))
        self.assertEqual(self.run_ok("lease", "list", "Local", "--all"), "no leases\n")
        renewed = self.json("lease", "renew", short, "--ttl", "2d")["lease"]
        self.assertGreater(renewed["expiresAt"], made["Expires"])
        released = self.labels(self.run_ok("lease", "release", short))
        self.assertEqual(released["Status"], "released")
        self.assertEqual(self.json("lease", "release", short, "--status", "failed")["lease"]["status"], "released")
        self.assertEqual([x["id"] for x in self.json("lease", "list", "--all")], [made["Id"]])
        self.assertEqual([x["id"] for x in self.json("lease", "list", "--status", "released")], [made["Id"]])
        self.assertEqual(self.json("lease", "list", "--status", "active"), [])
        self.fails(1, "lease", "renew", short, "--ttl", "1m")

    def test_same_key_same_lease(self):
        one = self.json("lease", "acquire", "box", "--key", "k")["lease"]["id"]
        self.assertEqual(self.json("lease", "acquire", "box", "--key", "k")["lease"]["id"], one)
        self.assertNotEqual(self.json("lease", "acquire", "box")["lease"]["id"], one)

    def test_destroy_and_resume(self):
        """A driver that cannot says so, and the lease stays as it is."""
        one = self.json("lease", "acquire", "box")["lease"]["id"]
        for action in ("resume", "destroy"):
            self.fails(1, "lease", action, one[-8:], says=f'Environment driver "sandbox" does not support lease {action}')
        self.assertEqual(self.json("lease", "show", one)["status"], "active")

    def test_what_is_wrong(self):
        self.fails(5, "lease", "show", MISSING, says="Environment lease not found")
        self.fails(5, "lease", "release", "ffff", says="there is no lease 'ffff'")
        self.fails(5, "lease", "acquire", "nowhere", says="there is no environment 'nowhere'")
        self.fails(2, "lease", "release", MISSING, "--status", "gone", says="released, expired, failed")
        self.fails(2, "lease", "renew", MISSING, "--ttl", "0s")
        self.run_ok("env", "update", "box", "--status", "archived")
        self.fails(1, "lease", "acquire", "box")


class LeaksTest(CliTest):
    def setUp(self):
        self.world = self.temp_dir()
        self.daemon_env = {"BERTH_ALLOW_FAKE_PROVIDER": "1", "BERTH_FAKE_WORLD": str(self.world),
                           "BERTH_SWEEP_INTERVAL_MS": "3600000"}
        super().setUp()
        self.run_ok("company", "create", "Acme")
        self.run_ok("env", "create", "sandbox", "box", "-o", "provider=fake")

    def test_none(self):
        self.assertEqual(self.run_ok("leaks"), "no leaks\n")
        report = self.json("leaks")
        self.assertEqual((report["total"], report["unknown"]), (0, []))

    def row(self, kind):
        """The one line of the table, and its id."""
        status, out, err = self.cli("leaks")
        self.assertEqual(status, 1, err)
        lines = out.splitlines()
        self.assertEqual(len(lines), 2, out)
        self.assertTrue(lines[1].startswith(kind), out)
        return lines[1], re.search(UUID, lines[1])[0]

    def test_missing(self):
        lease = self.json("lease", "acquire", "box")["lease"]
        place = [p.name for p in self.world.iterdir()][0]
        (self.world / place).unlink()
        line, ident = self.row("missing")
        self.assertEqual(ident, place)
        self.assertIn(f"fake {lease['providerLeaseId']}", line)
        self.assertIn("release its lease", line)
        self.assertEqual(json.loads(self.cli("--json", "leaks")[1])["missing"][0]["placeId"], place)
        self.fails(1, "leaks", "forget", place[-8:], says="Release its lease instead")
        self.run_ok("lease", "release", lease["id"])
        self.assertEqual(self.run_ok("leaks"), "no leaks\n")

    def test_unknown(self):
        (self.world / MISSING).write_text("x")
        line, ident = self.row("unknown")
        self.assertEqual(ident, MISSING)
        self.assertIn("fake fake sandbox", line)
        self.assertIn("remove it at the provider", line)
        self.fails(5, "leaks", "close", MISSING)
        self.fails(5, "leaks", "close", MISSING[-8:], says="there is no place among the leaks")

    def test_clean_up_due(self):
        lease = self.json("lease", "acquire", "box")["lease"]
        (self.world / "fail-close").touch()
        self.cli("lease", "release", lease["id"])
        line, place = self.row("clean-up due")
        self.assertIn("berth leaks close", line)
        self.assertIn(lease["id"], self.run_ok("lease", "list"), "ended, but not cleaned up")
        self.fails(1, "leaks", "close", place[-8:])
        (self.world / "fail-close").unlink()
        self.assertEqual(self.run_ok("leaks", "close", place[-8:]), f"closed {place}\n")
        self.assertEqual(self.run_ok("leaks"), "no leaks\n")

    def test_uncertain(self):
        (self.world / "lose-open").touch()
        (self.world / "fail-close").touch()
        self.fails(1, "lease", "acquire", "box")
        status, out, _ = self.cli("leaks")
        self.assertEqual(status, 1, out)
        place = re.search(UUID, out)[0]
        self.assertRegex(out, r"(?m)^(uncertain|clean-up due) ")
        (self.world / place).unlink()
        self.assertEqual(self.run_ok("leaks", "forget", place), f"forgot {place}\n")
        self.assertEqual(self.run_ok("leaks"), "no leaks\n")


class KeyTest(CliTest):
    daemon_flags = ("--mode", "authenticated")

    def over_tcp(self, *args, token=None, **more):
        """As somebody who is not the operator: not through the socket."""
        env = {"BERTH_API_URL": self.daemon.url, **({"BERTH_API_KEY": token} if token else {}), **more}
        return self.cli(*args, env=env)

    def test_board_keys(self):
        self.run_ok("company", "create", "Acme")
        status, out, err = self.cli("key", "create", "--board", "--name", "laptop", "--ttl", "30")
        self.assertEqual(status, 0, err)
        self.assertRegex(out, r"^pcp_board_[0-9a-f]{48}\n$")
        self.assertIn("shown this once", err)
        token = out.strip()
        self.assertEqual(self.over_tcp("company", "list", token=token)[0], 0)
        self.assertEqual(self.over_tcp("--api-key", token, "company", "list")[0], 0)
        self.assertEqual(self.over_tcp("company", "list", PAPERCLIP_API_KEY=token)[0], 0)
        self.assertEqual(self.over_tcp("--api-key", token, "company", "list", token="pcp_board_wrong")[0], 0)
        listed = self.run_ok("key", "list")
        self.assertRegex(listed, rf"(?m)^{UUID} +laptop +active ")
        self.assertNotIn(token, listed + self.run_ok("--json", "key", "list"))
        self.assertRegex(self.run_ok("key", "revoke", "laptop"), rf"^revoked {UUID} \(laptop\)\n$")
        status, out, err = self.over_tcp("company", "list", token=token)
        self.assertEqual((status, out), (4, ""))
        self.assertIn("Unauthorized", err)
        self.assertRegex(self.run_ok("key", "list"), r"laptop +revoked")
        self.fails(5, "key", "revoke", "nothing", says="there is no key 'nothing'")

    def test_anonymous(self):
        status, out, err = self.over_tcp("company", "list")
        self.assertEqual((status, out), (4, ""))
        self.assertTrue(err.startswith("berth: "), err)

    def test_roles_and_grants(self):
        self.run_ok("company", "create", "Acme")
        self.run_ok("env", "create", "sandbox", "box", "-o", "provider=fake")
        key = self.json("key", "create", "--board", "--user", "mia", "--role", "operator")
        status, _, err = self.over_tcp("env", "probe", "box", token=key["token"])
        self.assertEqual(status, 4)
        self.assertIn("environments:manage", err)
        more = self.json("key", "create", "--board", "--user", "mia", "--role", "operator", "--grant",
                         "environments:manage")
        self.assertEqual(more["userId"], key["userId"])
        self.assertEqual(self.over_tcp("env", "probe", "box", token=key["token"])[0], 0)
        status, _, err = self.over_tcp("leaks", token=key["token"])
        self.assertEqual(status, 4)
        self.assertIn("Instance admin access required", err)
        admin = self.json("key", "create", "--board", "--user", "root", "--admin")
        self.assertEqual(self.over_tcp("leaks", token=admin["token"])[0], 0)
        self.fails(1, "key", "create", "--board", "--role", "god", says=["Validation error", "membershipRole", "owner"])
        self.fails(1, "key", "create", "--board", "--grant", "x:y", says=["grants[0].permissionKey"])
        self.fails(2, "key", "create", "--board", "--ttl", "soon", says="number of days")

    def test_agents_and_their_keys(self):
        self.run_ok("company", "create", "Acme")
        self.assertEqual(self.run_ok("agent", "list"), "no agents\n")
        made = self.labels(self.run_ok("agent", "create", "Ada Lovelace"))
        self.assertEqual((made["Name"], made["Adapter"], made["Status"]), ("Ada Lovelace", "process", "idle"))
        self.assertRegex(self.run_ok("agent", "list"), rf"(?m)^{made['Id']} +Ada Lovelace +general +process +idle$")
        self.fails(1, "agent", "create", "Bob", "--adapter", "nope", says="Unknown adapter type: nope")
        for given in ("Ada Lovelace", "ada-lovelace", made["Id"], made["Id"][-8:]):
            self.assertEqual(self.json("key", "create", "--agent", given, "--name", "k")["name"], "k")
        token = self.run_ok("key", "create", "--agent", "ada-lovelace", "--name", "last").strip()
        self.assertRegex(token, r"^pcp_[0-9a-f]{48}$")
        status, out, err = self.over_tcp("env", "list", token=token)
        self.assertEqual(status, 0, err)
        self.assertIn("Local", out)
        status, out, _ = self.over_tcp("env", "show", "Local", token=token)
        self.assertIn("needs environments:manage", out)
        self.assertEqual(self.over_tcp("lease", "acquire", "Local", token=token)[0], 4)
        self.fails(2, "key", "revoke", "k", "--agent", "ada-lovelace", says="fits more than one key")
        self.run_ok("key", "revoke", "last", "--agent", "ada-lovelace")
        self.assertEqual(self.over_tcp("env", "list", token=token)[0], 4)
        self.fails(5, "key", "list", "--agent", "nobody", says="there is no agent 'nobody'")
        self.fails(2, "key", "create", "--agent", "ada-lovelace", "--admin", says="go with --board")

    def test_a_key_that_no_header_may_hold(self):
        status, _, err = self.over_tcp("--api-key", "x\r\nX-Evil: 1", "company", "list")
        self.assertEqual(status, 2)
        self.assertIn("API key", err)


class ActivityTest(CliTest):
    def test_list(self):
        self.run_ok("company", "create", "Acme")
        box = self.json("env", "create", "sandbox", "box", "-o", "provider=fake")
        line = self.run_ok("activity", "list", "--limit", "1").splitlines()[1]
        self.assertRegex(line, rf"^\d{{4}}-\S+ +user:local-board +environment\.created +environment +{box['id']}$")
        self.assertEqual(len(self.json("activity", "list", "-n", "1")), 1)
        self.assertGreater(len(self.json("activity", "list")), 1)
        self.fails(2, "activity", "list", "--limit", "x", says="not a number")

    def test_the_run_is_noted(self):
        self.run_ok("company", "create", "Acme")
        box = self.json("env", "create", "sandbox", "box", "-o", "provider=fake", env={"BERTH_RUN_ID": RUN})
        entry = [e for e in self.json("activity", "list") if e["entityId"] == box["id"]][0]
        self.assertEqual(entry["runId"], RUN)
        self.fails(1, "env", "list", env={"BERTH_RUN_ID": "me"}, says="X-Paperclip-Run-Id must be a UUID")


class WhereTest(CliTest):
    def test_how_the_daemon_is_found(self):
        self.run_ok("company", "create", "Acme")
        unix = f"unix:{self.daemon.data}/berth.sock"
        elsewhere = str(self.temp_dir())
        for args, env in ((["--api-url", self.daemon.url], {}), (["--api-url", unix], {}), ([], {"BERTH_API_URL": unix}),
                          ([], {"PAPERCLIP_API_URL": self.daemon.url}), (["--data", str(self.daemon.data)], {}),
                          (["--api-url", self.daemon.url], {"BERTH_API_URL": "unix:/nonexistent"}),
                          (["--api-url", self.daemon.url + "/"], {})):
            with self.subTest(args=args, env=env):
                self.assertIn("Acme", self.run_ok(*args, "company", "list", env={"BERTH_DATA": elsewhere, **env}))

    def test_no_daemon(self):
        url = self.daemon.url
        self.daemon.stop()
        for args, env in ((["env", "list"], {"BERTH_API_URL": url}), (["leaks"], {"BERTH_API_URL": url}),
                          (["lease", "acquire", MISSING, "--key", "k"], {"BERTH_API_URL": url}),
                          (["--api-url", f"unix:{self.daemon.data}/berth.sock", "company", "list"], {})):
            with self.subTest(args=args):
                self.fails(3, *args, env=env, says="start one with: berth serve")

    def test_a_killed_daemon(self):
        self.daemon.kill()
        self.assertTrue((self.daemon.data / "berth.sock").exists(), "it leaves its socket")
        self.fails(3, "--api-url", f"unix:{self.daemon.data}/berth.sock", "company", "list",
                   says="start one with: berth serve")

    def test_serve_says_why_not(self):
        first = self.daemon
        port = first.address[1]
        taken = self.new_daemon(listen=f"127.0.0.1:{port}").spawn()
        self.assertEqual(taken.wait(), 1)
        self.assertRegex(taken.log(), "(?i)in use|already")
        same = self.new_daemon(data=first.data).spawn()
        self.assertEqual(same.wait(), 1)
        for daemon in (taken, same):
            daemon.killed = True
        self.assert_status(first.req("GET", "/api/health"), 200)


class DoctorTest(CliTest):
    def test_with_a_daemon(self):
        status, out, err = self.cli("doctor")
        report = json.loads(self.cli("doctor", "--json")[1])
        self.assertEqual(status, 0 if report["ok"] else 1, err)
        for check in report["checks"]:
            self.assertRegex(out, rf"(?m)^{check['status']} +{re.escape(check['name'])} ")
            self.assertEqual(check["fix"] is not None, check["status"] != "ok")
            if check["fix"]:
                self.assertIn(check["fix"], out)
        daemon = [c for c in report["checks"] if c["name"] == "daemon"][0]
        self.assertEqual(daemon["status"], "ok", daemon)
        data = [c for c in report["checks"] if c["name"] == "data directory"][0]
        self.assertEqual((data["status"], data["needed"]), ("ok", True))
        self.assertIn(str(self.daemon.data), data["detail"])

    def test_missing_programs(self):
        """What is not installed is missing with a remedy, and no reason to fail."""
        out = self.cli("doctor", "--json", env={"PATH": "/nonexistent"})
        report = json.loads(out[1])
        checks = {c["name"]: c for c in report["checks"]}
        for name in ("ssh", "node", "git"):
            self.assertEqual(checks[name]["status"], "missing", checks[name])
            self.assertTrue(checks[name]["fix"])
            self.assertFalse(checks[name]["needed"])
        self.assertEqual(out[0], 0 if report["ok"] else 1)

    @unittest.skipUnless(os.geteuid() == 0, "needs root")
    def test_a_user_without_subordinate_ids(self):
        with tempfile.TemporaryDirectory() as folder:
            os.chmod(folder, 0o711)
            if any(p.stat().st_mode & 0o001 == 0 for p in pathlib.Path(folder).parents):
                self.skipTest("the temporary directory is closed to other users")
            for name in ("berth", "berth-box"):
                shutil.copy2(BUILD / name, folder)
            shown = subprocess.run(["setpriv", "--reuid=58232", "--regid=58232", "--clear-groups", f"{folder}/berth", "doctor",
                                    "--json", "--data", f"{folder}/data"], capture_output=True, text=True, check=False)
        checks = {c["name"]: c["status"] for c in json.loads(shown.stdout)["checks"]}
        self.assertEqual((checks["sandbox"], shown.stderr), ("missing", ""))

    def test_without_one(self):
        self.daemon.stop()
        report = json.loads(self.cli("doctor", "--json")[1])
        daemon = [c for c in report["checks"] if c["name"] == "daemon"][0]
        self.assertEqual(daemon["status"], "missing")
        self.assertIn("berth serve", daemon["fix"])
        self.assertFalse(daemon["needed"])


class ManualTest(unittest.TestCase):
    """The manual names what there is, and nothing else."""

    @staticmethod
    def page(name):
        return (SOURCE / "man" / f"{name}.scd").read_text()

    def help(self, *path):
        return subprocess.run([BERTH, *path, "--help"], capture_output=True, text=True, timeout=60, check=True).stdout

    def commands(self, *path):
        section = re.search(r"^Commands:\n(.*?)\n\n", self.help(*path), re.S | re.M)
        return re.findall(r"^  ([a-z]+) ", section[1], re.M) if section else []

    def options(self, *path):
        section = re.search(r"^Options:\n(.*?)\n\n", self.help(*path), re.S | re.M)
        return re.findall(r"--([a-z-]+)", re.sub(r"  [^-\s].*", "", section[1])) if section else []

    def test_pages_are_well_formed(self):
        for path in sorted((SOURCE / "man").glob("*.scd")):
            with self.subTest(page=path.name), open(path, "rb") as source:
                done = subprocess.run(["scdoc"], stdin=source, capture_output=True, timeout=60)
                self.assertEqual((done.returncode, done.stderr), (0, b""))
                self.assertTrue(done.stdout.startswith(b".\\\" Generated by scdoc"))

    def test_every_command_has_its_place(self):
        top = self.page("berth.1")
        for name in self.commands():
            if name == "faults":
                continue
            with self.subTest(command=name):
                entry = re.search(rf"(?m)^\*{name}\*(.*)$", top)
                self.assertTrue(entry, "berth(1) does not name it")
                subs = self.commands(name)
                own = SOURCE / "man" / f"berth-{name}.1.scd"
                text = own.read_text() if own.exists() else top
                for sub in subs:
                    self.assertIn(sub, entry[1])
                    if own.exists():
                        self.assertIn(f"*berth {name} {sub}*", text)
                for path in ([name, s] for s in subs or [""]):
                    for option in self.options(*filter(None, path)):
                        if own.exists():
                            self.assertIn(f"--{option}", text, path)

    def test_every_setting_is_in_the_manual(self):
        """And in docs/settings.md, as the table says: names, what is allowed, defaults."""
        page = self.page("berth.toml.5")
        source = (SOURCE / "src/daemon/settings.c").read_text()
        rows = re.findall(r'(?m)^        \{ (?:"([a-z_.]+)"|NULL), "(BERTH_[A-Z_]+)"', source)
        self.assertGreater(len(rows), 40)
        documented = re.findall(r"(?m)^\*([a-z_.]+)\* \((.*)\)$", page)
        self.assertEqual(sorted(k for k, _ in documented), sorted(k for k, _ in rows if k))
        made = subprocess.run([SOURCE / "scripts/settings", "--check", BUILD], capture_output=True, text=True)
        self.assertEqual((made.returncode, made.stdout, made.stderr), (0, "", ""))

    def test_every_variable_is_in_the_manual(self):
        page = self.page("berth.toml.5")
        variables = {"BERTH_DATA"}
        for name in ("settings.c", "keys.c"):
            variables |= set(re.findall(r'"(BERTH_[A-Z_]+)"', (SOURCE / "src/daemon" / name).read_text()))
        aws = (SOURCE / "src/secret/aws_settings.c").read_text()
        variables |= {f"BERTH_{name}" for name in re.findall(r'aws_env\("([A-Z_]+)"\)', aws)}
        self.assertLessEqual({"BERTH_LISTEN", "BERTH_OPERATION_TIMEOUT_MS", "BERTH_FAKE_WORLD"}, variables)
        self.assertEqual(variables, set(re.findall(r"BERTH_[A-Z_]+", page)))

    def test_the_pages_were_built(self):
        built = {p.name for p in (BUILD / "man").rglob("*") if p.is_file()}
        for path in (SOURCE / "man").glob("*.scd"):
            self.assertTrue(any(path.stem in name for name in built), path.name)
