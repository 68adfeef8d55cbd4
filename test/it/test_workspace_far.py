"""A workspace over a line that is cut again and again."""

import os
import random

from berthtest import ident
from relaytest import FarTest


class CutTest(FarTest):
    # remote-execution 8.2, 8.4
    def test_a_line_that_is_cut(self):
        dice = random.Random(7)
        local = self.temp_dir()
        for i in range(100):
            (local / f"f{i}").write_bytes(dice.randbytes(20000))
        (local / "large").write_bytes(dice.randbytes(5 << 20))
        left = [6]  # cuts

        def cut_after():
            if left[0] == 0:
                return None
            left[0] -= 1
            return dice.randrange(100, 3000)

        self.way.cut_after = cut_after
        path = f"/api/environment-leases/{ident(self.held)}/workspace"
        staged = self.ok("POST", f"{path}/stage", {"localPath": str(local), "isolation": "copy"})
        there = staged["cwd"]
        for name in sorted(os.listdir(local)):
            with open(f"{there}/{name}", "rb") as f:
                self.assertEqual(f.read(), (local / name).read_bytes(), name)
        for i in range(50):
            with open(f"{there}/f{i}", "ab") as f:
                f.write(b"more")
        with open(f"{there}/new", "wb") as f:
            f.write(dice.randbytes(3 << 20))
        left[0] = 5
        self.way.cut_after = lambda: None if left[0] == 0 else (left.__setitem__(0, left[0] - 1)
                                                                or dice.randrange(1000, 600000))
        self.way.cut()
        report = self.ok("POST", f"{path}/restore", {})
        self.assertEqual((report["changed"], report["added"], report["conflicts"]), (50, 1, []))
        with open(f"{there}/new", "rb") as f:
            self.assertEqual((local / "new").read_bytes(), f.read())
        self.assertGreater(self.way.cuts, 3)


if __name__ == "__main__":
    import unittest
    unittest.main()
