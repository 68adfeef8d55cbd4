"""What authors of providers are given: the example, the provider of docs/plugins.md, and the conformance tool."""
# share 6: 3 s of processor time

import json
import os
import re
import stat
import subprocess
import unittest

from berthtest import BINARIES, SOURCE
from plugintest import SDK, WORKER, PluginTest, need_node


class AuthorsTest(PluginTest):
    daemon_autostart = False

    def conformance(self, path, *args):
        done = subprocess.run([BINARIES["normal"], "plugin", "conformance", str(path), "--json", *args],
                              capture_output=True, text=True, timeout=120)
        report = json.loads(done.stdout) if done.stdout else None
        return done.returncode, report, done.stderr

    def results(self, report):
        return {c["name"]: c["result"] for c in report["checks"]}

    def assert_conforms(self, path, *args):
        status, report, err = self.conformance(path, *args)
        bad = [c for c in (report or {"checks": [err]})["checks"] if c["result"] == "failed"]
        self.assertEqual((status, bad), (0, []), err)
        return report

    def documented(self):
        """The package of docs/plugins.md, written to a directory."""
        path = self.temp_dir() / "tiny"
        path.mkdir()
        text = (SOURCE / "docs" / "plugins.md").read_text()
        files = re.findall(r"^```(?:json|python) (\S+)\n(.*?)^```", text, re.M | re.S)
        self.assertEqual([name for name, _ in files], ["package.json", "manifest.json", "worker.py"])
        for name, content in files:
            (path / name).write_text(content)
        (path / "worker.py").chmod(0o755)
        return path

    def test_the_documented_provider_conforms(self):
        report = self.assert_conforms(self.documented())
        self.assertEqual(report["skipped"], 1)  # it has no workspaces to realize
        self.assertEqual((report["plugin"], report["driver"]), ("example.tiny", "tiny"))

    def test_the_documented_provider_runs(self):
        path = self.documented()
        self.daemon.start()
        self.assertEqual(self.install(path)["status"], "ready")
        self.assertTrue(os.stat(path / "worker.py").st_mode & stat.S_IXUSR)
        providers = self.ok("GET", f"/api/companies/{self.company()['id']}/environments/capabilities")
        self.assertEqual(providers["sandboxProviders"]["tiny"]["pluginKey"], "example.tiny")

    def test_the_example_conforms(self):
        report = self.assert_conforms(self.example())
        self.assertEqual((report["skipped"], report["driver"]), (0, "fake-plugin"))
        self.assertEqual(SDK, json.loads((SOURCE / "examples/fake-sandbox-provider/package.json").read_text())
                         ["dependencies"]["@paperclipai/plugin-sdk"])

    def test_the_example_is_installed(self):
        path = self.example()
        self.daemon.start()
        plugin = self.install(path)
        self.assertEqual((plugin["pluginKey"], plugin["status"]), ("paperclip.fake-sandbox-provider", "ready"))
        self.assertEqual(self.logged(plugin), ["Fake sandbox provider plugin ready"])

    def test_a_table_for_people(self):
        need_node()
        done = subprocess.run([BINARIES["normal"], "plugin", "conformance", str(self.package())],
                              capture_output=True, text=True, timeout=120)
        self.assertEqual(done.returncode, 1)
        self.assertRegex(done.stdout, r"(?m)^the worker starts +ok +-$")
        self.assertRegex(done.stdout, r"(?m)^it has the methods of a provider +failed +supportedMethods does not list "
                                      r"environmentValidateConfig$")
        self.assertRegex(done.stdout, r"(?m)^\d+ passed, \d+ failed, \d+ skipped$")

    def test_bad_providers_are_found_out(self):
        need_node()
        provider = """Object.assign(answers, {
            health: () => ({ status: "ok" }),
            environmentValidateConfig: ({ config }) => ({ ok: true, normalizedConfig: config }),
            environmentProbe: () => ({ ok: true }),
            environmentAcquireLease: () => ({ providerLeaseId: "always-the-same" }),
            environmentExecute: () => ({ exitCode: 0, timedOut: false, stdout: "lies", stderr: "" }),
            environmentReleaseLease: () => null,
            environmentDestroyLease: () => { if (answers.gone) throw 1; answers.gone = true; return null; } });
            """
        status, report, _ = self.conformance(self.package(worker=WORKER.replace("//MORE", provider)))
        self.assertEqual(status, 1)
        found = self.results(report)
        for name in ("execute: arguments, input, variables, outputs, status", "duplicate: destroy twice",
                     "timeout: a command that takes too long is ended"):
            self.assertEqual(found[name], "failed", name)
        for name in ("probe", "acquire", "duplicate: release twice"):
            self.assertEqual(found[name], "ok", name)
        self.assertEqual(found["resume"], "skipped")

    def test_what_cannot_be_tested(self):
        need_node()
        status, report, err = self.conformance("/nowhere")
        self.assertEqual((status, report), (1, None))
        self.assertIn("berth: ", err)
        status, _, err = self.conformance(self.package(), "--driver", "other")
        self.assertEqual(status, 1)
        self.assertIn("declares no driver 'other'", err)


if __name__ == "__main__":
    unittest.main()
