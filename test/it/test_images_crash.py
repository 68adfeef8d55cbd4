"""The daemon killed at every crash point of images (`image.*`) while one is pulled, imported, used, removed and pruned.
After the next start no half-made image is used, every layer on the disk has its row and every row its layer, and the
same work done again succeeds."""

import unittest

from crashtest import Operation as AnyOperation
from crashtest import PointWalk
from imagestore import ImagesTest, ident, layer, wait_until

# slow: a daemon for each point


class Operation(AnyOperation):
    def pull(self, name="tools", path=None):
        reference = f"{self.t.registry.host}/{name}:latest"
        body = {"reference": reference, **({"path": path, "format": "directory"} if path else {})}
        row = self.t.ask("POST", self.t.images() + ("/import" if path else ""), body)
        self.t.wait_while_alive(lambda: self.t.ask("GET", f"{self.t.images()}/{row['id']}")["state"] != "pulling")
        return ident(row)


class Pull(Operation):
    def act(self):
        self.pull()
        lease = self.t.ask("POST", f"/api/environments/{ident(self.t.env)}/leases", {})
        self.t.ask("POST", f"/api/environment-leases/{ident(lease)}/release", {})


class Import(Operation):
    def act(self):
        tree = self.t.temp_dir()
        (tree / "file").write_text("x")
        self.pull("tree", str(tree))


class Remove(Operation):
    def stage(self):
        self.image, self.other = self.pull(), self.pull("other")

    def act(self):
        self.t.ask("DELETE", f"{self.t.images()}/{self.image}")
        self.t.ask("POST", f"{self.t.images()}/prune", {})


class Settle(Operation):
    """What a daemon left that was killed while it unpacked."""

    def stage(self):
        self.t.daemon.stop()
        self.t.daemon.env["BERTH_CRASH_AT"] = "image.unpack.after"
        self.t.daemon.start()
        try:
            self.pull()
        except Exception:  # pylint: disable=broad-except
            pass
        self.t.daemon.process.wait(20)
        self.t.daemon.kill()
        del self.t.daemon.env["BERTH_CRASH_AT"]

    def act(self):
        self.t.wait_while_alive(lambda: not self.t.daemon.sql("SELECT id FROM image_layers WHERE state = 'making'"))


class CrashTest(PointWalk, ImagesTest):
    def prepare(self, cls):
        self.acme = self.company()
        self.require_sandboxes()
        reference = self.put("tools", layer({"etc/one": b"1"}))
        self.put("other", layer({"etc/two": b"2"}))
        self.env = self.sandbox_environment(image=reference)

    def check(self, operation):
        wait_until(lambda: not self.daemon.sql("SELECT id FROM images WHERE state IN ('pulling', 'deleting')"), "no image is half made")
        wait_until(lambda: not self.daemon.sql("SELECT id FROM image_layers WHERE state IN ('making', 'deleting')"), "nor a layer")
        wait_until(lambda: self.layer_dirs() <= {row["id"] for row in self.layer_rows()}, "each directory has its row")
        for row in self.layer_rows():
            root = self.daemon.data / "images" / row["id"] / "root"
            if row["state"] == "ready":
                self.assertTrue(root.is_dir())
        # A lease that was under way is closed by the sweeper; then the same again.
        self.held = self.acquire(self.env)
        self.assertEqual(self.sh("cat /etc/one")["stdout"], "1")
        self.release(self.held)
        for row in self.daemon.sql("SELECT id FROM environment_leases WHERE status = 'active'"):
            self.release(row["id"])
        wait_until(lambda: not self.places(), "every place is gone")
        self.no_image_left()
        self.assertEqual(self.operator("GET", "/api/leaks")["unknown"], [])
        self.nothing_left()

    def test_every_point(self):
        self.walk([Pull, Import, Remove, Settle], self.listed("image."))


if __name__ == "__main__":
    unittest.main()
