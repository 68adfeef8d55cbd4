"""The checker of the soak finds each kind of violation in a history that has it, and none in one that has not."""

import pathlib
import sys
import tempfile
import unittest

from berthtest import SOURCE

sys.path.insert(0, str(SOURCE / "test" / "soak"))
from checker import RULES, check  # noqa: E402
from history import History, load  # noqa: E402

SHA, OTHER = "a" * 64, "b" * 64


class Story(History):
    """A history whose operations end at once."""

    def __init__(self, directory):
        self.path = pathlib.Path(directory) / "history"
        super().__init__(self.path)

    def do(self, kind, result="ok", told=None, **asked):
        self.end(self.begin(kind, **asked), result, **(told or {}))
        return self

    def look(self, what, **members):
        self.see(what, **members)
        return self

    def broken(self, kind, **members):
        self.fault(kind, "begin", **members)
        return self

    def mended(self, kind):
        self.fault(kind, "end")
        return self

    # What most stories are made of.

    def leased(self, ident="L", **more):
        return self.do("acquire", told={"lease": ident}, place="sandbox", **more)

    def ran(self, result="ok", token="T", key="K", lease="L", told=None, **more):
        answer = {"execution": "E", "code": 0, "size": 4, "sha": SHA} if result == "ok" else {}
        return self.do("execute", result, {**answer, **(told or {})}, lease=lease, token=token, key=key, code=0, size=4,
                       sha=SHA, **more)

    def execution(self, **more):
        return self.look("execution", **{"id": "E", "found": True, "status": "exited", "code": 0, "size": 4, "sha": SHA,
                                         "incomplete": False, "reason": None, "lease": "L", "place": "sandbox",
                                         "place_id": "P", **more})

    def effects(self, count, complete=True, token="T", **more):
        return self.look("effects", token=token, count=count, complete=complete, **more)

    def woken(self, run="R", **more):
        return self.do("wake", told={"run": run}, **{"place": "local", "agent": "A", "key": run, "size": 4, "sha": SHA, **more})

    def run_is(self, status, **more):
        return self.look("run", **{"id": "R", "found": True, "status": status, "spawned": True, "size": 4, "sha": SHA, **more})

    def lease_is(self, status, **more):
        return self.look("lease", **{"id": "L", "found": True, "status": status, "place": "sandbox", "place_id": "P", **more})


class CheckerTest(unittest.TestCase):
    def setUp(self):
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.story = Story(directory.name)
        self.addCleanup(self.story.file.close)

    def found(self):
        return [violation.rule for violation in check(load(self.story.path))]

    def assert_found(self, *rules):
        self.assertEqual(self.found(), list(rules))

    def test_all_is_well(self):
        s = self.story
        s.leased().ran().ran("unknown", token="U").ran("refused", token="V", told={"started": False})
        s.effects(1).effects(0, token="U").effects(0, token="V").execution()
        s.do("release", told={"status": "released"}, lease="L").lease_is("released").lease_is("released")
        s.woken().run_is("succeeded").run_is("succeeded")
        s.do("comment", told={"comment": "C"}, issue="I", sha=SHA).look("comments", issue="I", comments={"C": SHA})
        s.do("rotate", secret="S", sha=SHA).look("secret", id="S", sha=SHA)
        s.do("restore", token="T", path="/f").look("file", path="/f", tokens=["T", "U"])
        self.assert_found()

    def test_every_rule_has_a_text(self):
        self.assertTrue(all(RULES.values()))

    # Commands.

    def test_a_command_runs_twice(self):
        self.story.leased().ran("unknown").effects(2, complete=False)
        self.assert_found("double-run")

    def test_an_effect_is_lost(self):
        self.story.leased().ran().effects(0)
        self.assert_found("lost-effect")

    def test_an_effect_that_a_power_cut_took(self):
        self.story.leased().ran().broken("power-cut").mended("power-cut").effects(0, inside=True)
        self.assert_found()
        self.story.effects(0)
        self.assert_found("lost-effect")

    def test_an_effect_that_went_with_its_place(self):
        self.story.leased().ran().effects(0, complete=False)
        self.assert_found()

    def test_it_ran_although_it_was_refused(self):
        self.story.leased().ran("refused", told={"started": False}).effects(1)
        self.assert_found("ran-although-refused")

    def test_an_answer_has_other_output(self):
        self.story.leased().ran(told={"sha": OTHER, "size": 3})
        self.assert_found("output-differs")

    def test_output_that_says_that_it_is_not_whole(self):
        self.story.leased().ran(told={"sha": OTHER, "size": 3, "incomplete": True})
        self.assert_found()

    def test_output_of_a_command_that_was_not_waited_for(self):
        self.story.leased().ran(told={"sha": None, "size": None}).execution(sha=OTHER, size=0)
        self.assert_found("output-differs")

    def test_output_changes_afterwards(self):
        """Also when it says by then that it is not whole."""
        self.story.leased().ran().execution(sha=OTHER, size=0, incomplete=True)
        self.assert_found("output-changed")

    def test_an_execution_ends_twice(self):
        self.story.leased().ran().execution().do("release", lease="L", told={}).execution(status="lost", code=None)
        self.assert_found("end-changed")

    def test_an_execution_vanishes(self):
        self.story.leased().ran().look("execution", id="E", found=False)
        self.assert_found("vanished")

    def test_one_key_two_executions(self):
        self.story.leased().ran().ran(told={"execution": "F"}, token="U")
        self.assert_found("key-used-twice")

    def test_a_command_is_ended_by_nobody(self):
        self.story.leased().ran(told={"sha": None}).execution(status="exited", code=None, signal="SIGKILL", sha=None)
        self.assert_found("ended-by-nobody")

    def test_a_command_is_ended_by_a_fault(self):
        for touched in ("E", "P", "sandbox", "*"):
            with self.subTest(touched):
                self.setUp()
                self.story.leased().ran(told={"sha": None}).broken("kill-box", touched=[touched])
                self.story.execution(status="lost", code=None, sha=None)
                self.assert_found()

    def test_a_command_that_met_a_full_disk_and_says_so(self):
        self.story.leased().broken("enospc").ran(told={"sha": None}).mended("enospc")
        self.story.execution(status="exited", code=None, signal="SIGKILL", reason="no room for its output", sha=None)
        self.assert_found()

    def test_a_full_disk_is_no_excuse_for_silence(self):
        self.story.leased().broken("enospc").ran(told={"sha": None}).mended("enospc")
        self.story.execution(status="exited", code=None, signal="SIGKILL", sha=None)
        self.assert_found("ended-by-nobody")

    def test_a_full_disk_is_no_excuse_later(self):
        self.story.leased().broken("enospc").mended("enospc").ran(told={"sha": None})
        self.story.execution(status="exited", code=None, signal="SIGKILL", reason="no room", sha=None)
        self.assert_found("ended-by-nobody")

    # Leases.

    def test_a_lease_vanishes(self):
        self.story.leased().look("lease", id="L", found=False)
        self.assert_found("vanished")

    def test_a_lease_is_ended_by_nobody(self):
        self.story.leased().broken("emfile").mended("emfile").lease_is("failed")
        self.assert_found("ended-by-nobody")

    def test_a_lease_whose_box_was_killed(self):
        self.story.leased().broken("kill-box", touched=["P"]).lease_is("failed")
        self.assert_found()

    def test_a_fault_that_was_over_before_it_began(self):
        self.story.broken("kill-all", touched=["*"]).mended("kill-all").leased().lease_is("failed")
        self.assert_found("ended-by-nobody")

    def test_a_lease_ends_twice(self):
        self.story.leased().do("release", "unknown", lease="L").lease_is("released").lease_is("failed")
        self.assert_found("end-changed")

    def test_one_key_two_leases(self):
        self.story.leased(key="K").leased("M", key="K")
        self.assert_found("key-used-twice")

    # Runs.

    def test_a_wake_up_vanishes(self):
        self.story.woken().look("run", id="R", found=False)
        self.assert_found("vanished")

    def test_a_wake_up_never_ran(self):
        self.story.woken().run_is("failed", spawned=False, error="process_lost", sha=None)
        self.assert_found("wake-up-not-run")

    def test_a_wake_up_that_was_cancelled(self):
        self.story.woken().do("cancel", run="R").run_is("cancelled", spawned=False, sha=None)
        self.assert_found()

    def test_a_retry_never_ran(self):
        self.story.woken().run_is("failed").look("run", id="Q", found=True, status="failed", spawned=False, retry_of="R")
        self.assert_found("wake-up-not-run")

    def test_a_wake_up_does_not_end(self):
        self.story.woken().run_is("queued", spawned=False)
        self.assert_found("wake-up-not-ended")

    def test_a_run_ends_twice(self):
        self.story.woken().run_is("succeeded").run_is("failed")
        self.assert_found("end-changed")

    def test_a_run_begins_twice(self):
        self.story.woken().run_is("succeeded").effects(2, token="run:R")
        self.assert_found("double-run")

    def test_the_log_of_a_run_is_short(self):
        self.story.woken().run_is("succeeded", sha=OTHER, size=2)
        self.assert_found("output-differs")

    def test_one_key_two_runs(self):
        self.story.woken(key="K").woken("Q", key="K")
        self.assert_found("key-used-twice")

    # Records.

    def test_comments(self):
        for seen, rules in (({}, ["vanished"]), ({"C": OTHER}, ["comment-changed", "comment-changed"]),
                            ({"C": SHA, "D": SHA}, ["comment-twice"]), ({"C": SHA, "D": OTHER}, ["comment-changed"])):
            with self.subTest(seen):
                self.setUp()
                self.story.do("comment", told={"comment": "C"}, issue="I", sha=SHA).look("comments", issue="I", comments=seen)
                self.assert_found(*rules)

    def test_secrets(self):
        for results, seen, rules in ((["ok", "ok"], 0, ["secret-differs"]), (["ok", "unknown"], 0, []),
                                     (["ok", "unknown"], 1, []), (["ok", "refused"], 1, ["secret-differs"]),
                                     (["unknown", "ok", "unknown"], 0, ["secret-differs"])):
            with self.subTest((results, seen)):
                self.setUp()
                for n, result in enumerate(results):
                    self.story.do("rotate", result, secret="S", sha=str(n))
                self.story.look("secret", id="S", sha=str(seen))
                self.assert_found(*rules)

    def test_a_change_that_came_home_is_lost(self):
        self.story.do("restore", token="T", path="/f").look("file", path="/f", tokens=["U"])
        self.assert_found("change-lost")

    def test_what_a_look_at_the_whole_finds(self):
        for rule in ("unsettled", "leak", "left-behind", "daemon-died", "not-started", "damaged", "grew"):
            self.story.look("trouble", rule=rule, text="x").look("trouble", rule=rule, text="x")
        self.assert_found("unsettled", "leak", "left-behind", "daemon-died", "not-started", "damaged", "grew")

    def test_every_rule_is_here(self):
        """A rule that no story breaks would be one that nobody has seen to work."""
        text = pathlib.Path(__file__).read_text()
        self.assertEqual([rule for rule in RULES if f'"{rule}"' not in text], [])


if __name__ == "__main__":
    unittest.main()
