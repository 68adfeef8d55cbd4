"""The built-in sandbox from acquire to release: what a command sees, what the lease says, what is left."""
# threads: sandboxes that are made and given up side by side

import os
import re
import shutil
import subprocess
import unittest

from sandboxtest import BERTH, SandboxTest, ident, process_state, wait_until


class CommandTest(SandboxTest):
    def test_a_command_sees_its_own_world(self):
        got = self.sh("id -un; pwd; echo $HOME; ls -A /workspace /home/agent; hostname")
        self.assertEqual(got["stdout"].splitlines()[:3], ["agent", "/workspace", "/home/agent"])
        self.assertEqual(got["exitCode"], 0)

    def test_the_environment_is_built_from_zero(self):
        os.environ["BERTH_TEST_LEAK"] = "1"
        self.addCleanup(os.environ.pop, "BERTH_TEST_LEAK")
        names = {line.partition("=")[0] for line in self.sh("env", env={"MINE": "x y"})["stdout"].splitlines()}
        self.assertLessEqual({"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "MINE"}, names)
        self.assertEqual(names - {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "MINE", "BERTH_EXEC", "PWD",
                                  "OLDPWD", "_", "SHLVL"}, set())

    def test_output_of_both_streams_and_the_status(self):
        got = self.sh("echo out; echo err >&2; exit 7")
        self.assertEqual((got["stdout"], got["stderr"], got["exitCode"]), ("out\n", "err\n", 7))

    def test_live_output(self):
        run = self.detach("echo one; read x; echo got $x", openStdin=True)
        self.output_is(run, b"one\n")
        self.assert_status(self.stdin(run, b"two\n", eof=True), 200)
        self.assertEqual(self.collect(run).stdout, b"one\ngot two\n")

    def test_input(self):
        self.assertEqual(self.sh("cat", stdin="hello")["stdout"], "hello")

    def test_a_terminal(self):
        got = self.sh("test -t 0 && test -t 1 && stty size; echo $TERM", tty={"columns": 100, "rows": 30})
        self.assertEqual(got["stdout"].split(), ["30", "100", "xterm-256color"])

    def test_a_signal(self):
        run = self.detach("trap 'echo caught; exit 3' TERM; echo up; while :; do sleep 0.05; done")
        self.output_is(run, b"up\n")
        self.signal(run, "SIGTERM")
        self.assertEqual(self.ended(run)["exitCode"], 3)

    def test_what_cannot_start(self):
        answer = self.execute("no-such-program")
        self.assert_status(answer, 422)
        self.assertEqual(answer.json["details"]["exitCode"], 127)

    def test_time_limit(self):
        got = self.sh("sleep 60", timeoutMs=200)
        self.assertTrue(got["timedOut"])

    def test_files_stay_between_commands_of_a_lease(self):
        self.sh("echo kept > note; echo home > ~/note")
        self.assertEqual(self.sh("cat note ~/note")["stdout"], "kept\nhome\n")

    def test_realizing_a_workspace_answers_the_inside(self):
        got = self.ok("POST", f"/api/environment-leases/{ident(self.held)}/realize-workspace",
                      {"workspace": {"localPath": str(self.temp_dir())}})
        self.assertEqual(got["cwd"], "/workspace")


class ConfiguredTest(SandboxTest):
    config = {"env": {"FROM": "config", "BOTH": "config"}, "timeoutMs": 300, "memoryMb": 64, "cpus": 0.5,
              "maxProcesses": 40, "maxOpenFiles": 100, "diskMb": 32, "wallTimeMs": 600000}

    def test_variables_of_the_configuration(self):
        got = self.sh("echo $FROM $BOTH", env={"BOTH": "request"})
        self.assertEqual(got["stdout"], "config request\n")

    def test_the_time_limit_of_the_configuration(self):
        self.assertTrue(self.sh("sleep 60")["timedOut"])
        self.assertFalse(self.sh("sleep 0.5", timeoutMs=20000)["timedOut"])

    def test_the_lease_says_what_holds_and_by_what(self):
        got = self.metadata()
        self.assertEqual(got["isolation"], "shared kernel")
        self.assertEqual(got["remoteCwd"], "/workspace")
        self.assertNotIn("env", got)  # values may be secrets
        limits = got["sandbox"]["limits"]
        self.assertEqual(set(limits), {"memoryMb", "cpus", "maxProcesses", "maxOpenFiles", "diskMb", "wallTimeMs"})
        for name, limit in limits.items():
            self.assertEqual(limit["value"], self.config[name])
            self.assertEqual(limit["enforced"], limit["by"] is not None and (name, limit["by"]) != ("memoryMb", "rlimit"))
        self.assertEqual(got["sandbox"]["notEnforced"], [n for n, one in limits.items() if not one["enforced"]])
        self.assertLess(got["sandbox"]["hostIds"]["root"], got["sandbox"]["hostIds"]["agent"])
        self.assertEqual(self.sh("ulimit -n")["stdout"], "100\n")
        self.assertIsNotNone(self.held["lease"]["expiresAt"])

    def test_the_provider_id(self):
        self.assertEqual(self.held["lease"]["provider"], "berth")
        self.assertEqual(self.held["lease"]["providerLeaseId"], f"sandbox://berth/{self.place()}")


class AllowListTest(SandboxTest):
    config = {"network": "allowlist", "allowedHosts": ["api.example.com", "*.example.org:8443"]}

    def ask_proxy(self, lines):
        return self.run_ok("/bin/bash", ["-c", f"exec 3<>/dev/tcp/127.0.0.1/3128; printf '{lines}' >&3; head -1 <&3"],
                           timeoutMs=20000)["stdout"]

    def test_programs_are_told_of_the_proxy(self):
        got = dict(line.partition("=")[::2] for line in self.sh("env")["stdout"].splitlines())
        self.assertIn("127.0.0.1:3128", got["HTTPS_PROXY"])
        self.assertEqual(got["https_proxy"], got["HTTPS_PROXY"])

    def test_it_refuses_what_is_not_listed(self):
        self.assertIn(" 403 ", self.ask_proxy(r"CONNECT other.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n"))
        self.assertIn(" 403 ", self.ask_proxy(r"CONNECT 127.0.0.1:22 HTTP/1.1\r\nHost: x\r\n\r\n"))

    def test_there_is_no_other_way_out(self):
        got = self.run_ok("/bin/bash", ["-c", "cat /proc/net/dev; exec 3<>/dev/tcp/192.0.2.1/80"], timeoutMs=20000)
        self.assertEqual([line.split(":")[0].strip() for line in got["stdout"].splitlines() if ":" in line], ["lo"])
        self.assertNotEqual(got["exitCode"], 0)

    def test_after_a_restart(self):
        self.sh("true")
        self.daemon.restart(crash=True)
        self.assertIn(" 403 ", self.ask_proxy(r"CONNECT other.example.com:443 HTTP/1.1\r\nHost: x\r\n\r\n"))


@unittest.skipUnless(os.geteuid() == 0, "storage on disk needs root")
class StorageTest(SandboxTest):
    def test_an_image_bounds_what_is_written(self):
        env = self.sandbox_environment(name="image", storage="image", diskMb=32)
        held = self.acquire(env)
        self.assertEqual(self.metadata(held)["sandbox"]["limits"]["diskMb"], {"value": 32, "enforced": True, "by": "image"})
        got = self.sh("head -c 64M /dev/zero > big; echo $?; stat -c %s big", lease=held)
        status, size = got["stdout"].split()
        self.assertNotEqual(status, "0")
        self.assertLess(int(size), 33 << 20)

    def test_a_directory_is_not_bounded_and_the_lease_says_so(self):
        held = self.acquire(self.sandbox_environment(name="disk", storage="disk"))
        self.assertEqual(self.metadata(held)["sandbox"]["notEnforced"], ["diskMb"])

    def test_what_is_deep_and_odd_is_removed(self):
        held = self.acquire(self.sandbox_environment(name="disk", storage="disk"))
        self.sh("i=0; while [ $i -lt 600 ]; do mkdir d-of-twenty-characters; cd d-of-twenty-characters; i=$((i+1)); done;"
                " cd /workspace; mkdir -m 0 closed; ln -s / root; mkfifo pipe; touch -- '-rf' 'a b'", lease=held)
        self.release(held)
        self.assertNotIn(self.place(held), self.sandboxes())


class RootfsTest(SandboxTest):
    """A system of a few files."""

    def rootfs(self, name="mini"):
        root = self.daemon.data / "rootfs" / name
        for folder in ("bin", "lib", "lib64", "etc", "proc", "dev", "tmp", "root", "home", "usr", "var"):
            (root / folder).mkdir(parents=True, exist_ok=True)
        for program in ("sh", "ls", "cat", "id", "touch", "rm"):
            real = shutil.which(program)
            shutil.copy2(real, root / "bin" / program)
            for library in re.findall(r"(/\S+)", subprocess.run(["ldd", real], capture_output=True, text=True).stdout):
                target = root / library[1:]
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(os.path.realpath(library), target)
        (root / "etc/passwd").write_text("root:x:0:0::/root:/bin/sh\nagent:x:1000:1000::/home/agent:/bin/sh\n")
        return root

    @unittest.skipUnless(os.geteuid() == 0, "files of root")
    def test_a_system_of_its_own_to_change(self):
        root = self.rootfs()
        held = self.acquire(self.sandbox_environment(name="system", rootfs=str(root), user="root"))
        got = self.sh("id -u; rm /bin/ls; touch /etc/new /bin/new && echo wrote; test -e /usr/bin/env; echo $?", lease=held)
        self.assertEqual(got["stdout"], "0\nwrote\n1\n")
        self.assertTrue((root / "bin/ls").exists())
        self.assertFalse((root / "etc/new").exists())
        probe = self.ok("POST", f"/api/environments/{self.lease(held)['environmentId']}/probe", {})
        self.assertTrue(probe["ok"], probe)

    def test_only_where_the_operator_allows(self):
        for path in ("/", "/etc", "/usr/../etc", str(self.daemon.data), str(self.daemon.data / "rootfs/none")):
            answer = self.req("POST", f"/api/companies/{ident(self.acme)}/environments",
                              {"name": "bad", "driver": "sandbox", "config": {**BERTH, "rootfs": path}})
            self.assert_error(answer, 422, contains="rootfs")
        inside = self.daemon.data / "rootfs"
        inside.mkdir(exist_ok=True)
        (inside / "link").symlink_to("/etc")
        answer = self.req("POST", f"/api/companies/{ident(self.acme)}/environments",
                          {"name": "bad", "driver": "sandbox", "config": {**BERTH, "rootfs": str(inside / "link")}})
        self.assert_error(answer, 422, contains="beneath the allowed ones")


class IdTest(SandboxTest):
    daemon_env = {"BERTH_SWEEP_INTERVAL_MS": "50", "BERTH_SANDBOX_UID_FIRST": "1900000000",
                  "BERTH_SANDBOX_UID_COUNT": "6144", "BERTH_SANDBOX_IDS_PER_BOX": "2048"}

    def setUp(self):
        if os.geteuid() != 0:
            self.skipTest("the range of ids is a setting of root's daemon")
        super().setUp()

    def test_every_living_sandbox_has_ids_of_its_own(self):
        others = [self.acquire(self.env) for _ in range(2)]
        firsts = {row["first_id"] for row in self.rows()}
        self.assertEqual(firsts, {1900000000, 1900002048, 1900004096})
        seen = {self.metadata(lease)["sandbox"]["hostIds"]["agent"] for lease in [self.held, *others]}
        self.assertEqual(len(seen), 3)
        answer = self.req("POST", f"/api/environments/{ident(self.env)}/leases", {})
        self.assert_error(answer, 503, contains="ranges of host ids are in use")
        self.release(others[0])
        self.acquire(self.env)
        self.assertEqual({row["first_id"] for row in self.rows()}, firsts)

    def test_ids_are_kept_over_a_restart(self):
        before = {row["place_id"]: row["first_id"] for row in self.rows()}
        self.daemon.restart(crash=True)
        self.acquire(self.env)
        now = {row["place_id"]: row["first_id"] for row in self.rows()}
        self.assertEqual(len(set(now.values())), 2)
        self.assertLessEqual(before.items(), now.items())


class RangeTest(SandboxTest):
    """A range in which somebody has an account."""

    daemon_env = {"BERTH_SANDBOX_UID_FIRST": "65000", "BERTH_SANDBOX_UID_COUNT": "65536"}
    daemon_autostart = False

    @unittest.skipUnless(os.geteuid() == 0, "root's setting")
    def test_it_is_refused_with_the_reason(self):
        self.daemon.start()
        env = self.environment(self.company(), config=BERTH)
        answer = self.req("POST", f"/api/environments/{ident(env)}/leases", {})
        self.assert_error(answer, 422, contains="which lies in the range that sandboxes get")
        self.daemon.stop()


class LifeTest(SandboxTest):
    def test_releasing_ends_everything_inside(self):
        run = self.detach("setsid sleep 1000 & sleep 1000")
        pid = self.init_pid()
        self.release(self.held)
        self.assertIn(process_state(pid), (None, "Z"))
        self.assertEqual(self.execution(run)["status"], "exited")
        self.assertEqual(self.sandboxes(), set())

    def test_destroying_ends_the_lease_as_failed(self):
        got = self.ok("POST", f"/api/environment-leases/{ident(self.held)}/destroy", {})
        self.assertEqual(got["lease"]["status"], "failed")
        self.assertEqual(self.sandboxes(), set())

    def test_pausing_and_resuming(self):
        run = self.detach("i=0; while :; do i=$((i+1)); echo $i; sleep 0.01; done")
        wait_until(lambda: self.output(run), "it prints")
        lease = f"/api/environment-leases/{ident(self.held)}"
        self.assertEqual(self.ok("POST", f"{lease}/pause", {})["paused"], True)
        before = self.output(run)
        self.assert_error(self.execute("true"), 409, "The lease is paused; resume it first.")
        self.assertEqual(self.output(run), before)
        self.daemon.restart(crash=True)
        self.assert_error(self.execute("true"), 409, "The lease is paused; resume it first.")
        self.assertEqual(self.ok("POST", f"{lease}/resume", {})["paused"], False)
        wait_until(lambda: len(self.output(run)) > len(before), "it goes on")
        self.assertEqual(self.sh("echo again")["stdout"], "again\n")

    def test_the_local_driver_cannot_pause(self):
        local = next(e for e in self.ok("GET", f"/api/companies/{ident(self.acme)}/environments")
                     if e["driver"] == "local")
        held = self.acquire(local)
        self.assert_error(self.req("POST", f"/api/environment-leases/{ident(held)}/pause", {}), 422,
                          'Environment driver "local" does not support lease pause.')

    def test_a_restart_adopts_it(self):
        run = self.detach("echo up; read x; echo $x", openStdin=True)
        self.output_is(run, b"up\n")
        pid = self.init_pid()
        self.daemon.restart(crash=True)
        self.assert_status(self.stdin(run, b"still here\n", eof=True), 200)
        self.assertEqual(self.ended(run)["exitCode"], 0)
        self.assertEqual(self.output(run), b"up\nstill here\n")
        self.assertEqual(self.init_pid(), pid)
        self.assertEqual(self.sh("echo again")["stdout"], "again\n")

    def test_a_box_that_dies_ends_its_lease(self):
        run = self.detach("sleep 1000")
        self.kill_box()
        wait_until(lambda: self.lease(self.held)["status"] == "failed", "the lease ends")
        self.assertEqual(self.ended(run)["status"], "lost")
        answer = self.execute("true")
        self.assert_status(answer, 409)

    def test_a_box_that_dies_while_the_daemon_is_away(self):
        run = self.detach("sleep 1000")
        self.daemon.kill()
        self.kill_box_of(run)
        self.daemon.start()
        wait_until(lambda: self.lease(self.held)["status"] == "failed", "the lease ends")
        self.assertEqual(self.ended(run)["status"], "lost")

    def kill_box_of(self, run):
        folder = self.daemon.data / "sandboxes" / self.daemon.sql(
            "SELECT place_id FROM executions WHERE id = ?", (run,))[0]["place_id"]
        pid = int((folder / "box" / "pid").read_text().split()[0])
        os.kill(pid, 9)
        wait_until(lambda: process_state(pid) in (None, "Z"), "the box is dead")

    def test_a_sandbox_that_nobody_names_is_a_leak(self):
        stray = self.daemon.data / "sandboxes" / "00000000-0000-4000-8000-000000000001"
        stray.mkdir()
        found = self.ok("GET", "/api/leaks")["unknown"]
        self.assertEqual([(f["provider"], f["ownerTag"]) for f in found], [("berth", stray.name)])
        stray.rmdir()

    def test_its_wall_time_ends_it(self):
        env = self.sandbox_environment(name="short", wallTimeMs=1000)
        held = self.acquire(env)
        wait_until(lambda: self.lease(held)["status"] in ("expired", "failed"), "its time is over")


class ProbeTest(SandboxTest):
    def test_a_saved_configuration(self):
        got = self.ok("POST", f"/api/environments/{ident(self.env)}/probe", {})
        self.assertTrue(got["ok"], got)
        points = {p["name"]: p for p in got["details"]["points"]}
        for name in ("start", "command", "capabilities", "no-new-privileges", "system-calls", "processes", "network",
                     "host-files", "system", "writable"):
            self.assertTrue(points[name]["ok"], points[name])
        self.assertEqual(got["details"]["isolation"], "shared kernel")
        self.assertEqual(len(self.sandboxes()), 1)  # of the lease

    def test_what_is_not_allowed_is_told(self):
        answer = self.req("POST", f"/api/companies/{ident(self.acme)}/environments/probe-config",
                          {"driver": "sandbox", "config": {**BERTH, "network": "host"}})
        self.assert_error(answer, 422, contains="local_trusted")

    def test_a_snapshot_that_is_not_there(self):
        got = self.ok("POST", f"/api/companies/{ident(self.acme)}/environments/probe-config",
                      {"driver": "sandbox", "config": {**BERTH, "snapshot": "none"}})
        self.assertFalse(got["ok"])
        self.assertIn("no snapshot", got["details"]["points"][-1]["found"])


class CommandLineTest(SandboxTest):
    def test_run_in_a_sandbox(self):
        status, out, err = self.cli("run", "--sandbox", "--", "sh", "-c", "id -un; pwd; exit 5")
        self.assertEqual((status, out), (5, "agent\n/workspace\n"), err)
        status, out, err = self.cli("run", "--sandbox", "--", "true")
        self.assertEqual(status, 0, err)
        status, out, _ = self.cli("env", "list", "--json")
        self.assertEqual(out.count('"Sandbox"'), 1)

    def test_either_an_environment_or_a_sandbox(self):
        status, _, err = self.cli("run", "--sandbox", "--env", "box", "--", "true")
        self.assertEqual(status, 2, err)

    def test_env_create_means_the_built_in_one(self):
        status, out, err = self.cli("env", "create", "sandbox", "mine", "-o", "memoryMb=128", "--json")
        self.assertEqual(status, 0, err)
        self.assertIn('"provider": "berth"', out)

    def test_pause_and_resume(self):
        lease = ident(self.held)
        self.assertEqual(self.cli("lease", "pause", lease)[0], 0)
        self.assertEqual(self.cli("lease", "resume", lease)[0], 0)
        self.assertEqual(self.cli("lease", "destroy", lease)[0], 0)


if __name__ == "__main__":
    unittest.main()
