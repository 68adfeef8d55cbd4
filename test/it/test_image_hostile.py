"""A registry that cuts, lies, redirects and asks for credentials: what src/image makes of it."""

import base64
import json
import os

import imagetest
from imagetest import INDEX, Image, ImageTest, digest, layer

BIG = os.urandom(600_000)


def image():
    return Image(layer({"etc/name": b"one", "big": BIG}), layer({"etc/name": b"two"}), User="1000", WorkingDir="/w",
                 Env=["A=b", "ALONE"], Cmd=["sh"], Entrypoint=["/e"], ExposedPorts={"80/tcp": {}, "443/tcp": {}})


class ContentTest(ImageTest):
    def setUp(self):
        super().setUp()
        self.reg, self.image = self.registry(), image()
        self.reg.add(self.image)
        self.big = f"/v2/x/blobs/{self.image.layers[0]}"

    def assert_root(self):
        self.assertEqual((self.root / "etc/name").read_text(), "two")
        self.assertEqual((self.root / "big").read_bytes(), BIG)

    def test_a_pull(self):
        answer = self.pulled(self.reg)
        self.assert_root()
        self.assertEqual(answer["digest"], self.image.digest)
        self.assertEqual((answer["user"], answer["workingDir"], answer["env"]), ("1000", "/w", ["A=b", "ALONE="]))
        self.assertEqual((answer["cmd"], answer["entrypoint"], answer["ports"]), (["sh"], ["/e"], ["443/tcp", "80/tcp"]))
        self.assertEqual(answer["verified"], 2)
        self.assertGreaterEqual(answer["told"], 4)

    def test_a_cut_layer_goes_on_where_it_was_cut(self):
        self.reg.rules[self.big] = lambda h, n: n == 1 and h.send(
            200, self.reg.paths[self.big][:200_000], length=len(self.reg.paths[self.big]))
        self.pulled(self.reg)
        self.assert_root()
        asked = self.reg.asked(self.big)
        self.assertNotIn("Range", asked[0])
        # What curl had handed over when the connection broke: at most what was sent.
        self.assertRegex(asked[1]["Range"], r"^bytes=[1-9]\d*-$")

    def test_a_server_without_ranges_is_asked_for_all_of_it(self):
        data = self.reg.paths[self.big]
        self.reg.rules[self.big] = lambda h, n: h.send(200, data[:200_000], length=len(data)) if n == 1 else h.send(200, data)
        self.pulled(self.reg)
        self.assert_root()

    def test_the_beginning_that_an_earlier_attempt_left(self):
        data = self.reg.paths[self.big]
        for left, first in ((data[:1000], "bytes=1000-"), (b"x" * 1000, "bytes=1000-"), (b"x" * len(data), None),
                            (data + b"more", None)):
            self.reg.seen.clear()
            into = self.dir / f"left{len(left)}{left[:1].hex()}"
            into.mkdir()
            (into / "0").write_bytes(left)
            self.pulled(self.reg, into=into)
            self.assert_root()
            self.assertEqual(self.reg.asked(self.big)[0].get("Range"), first)
        into = self.dir / "whole"
        into.mkdir()
        (into / "0").write_bytes(data)
        self.reg.seen.clear()
        self.pulled(self.reg, into=into)
        self.assertEqual(self.reg.asked(self.big), [])

    def test_wrong_content(self):
        data = self.reg.paths[self.big]
        for wrong, words in ((data[:-1] + b"\1", "something else"), (data + b"\0", "more than it should"),
                             (data[:-1], "only a part")):
            self.reg.paths[self.big] = wrong
            self.refused("provider", words, answer=self.pull(self.reg))
        self.assertFalse((self.into / "root").exists())

    def test_documents_that_are_not_what_was_asked_for(self):
        config = f"/v2/x/blobs/{digest(self.image.config)}"
        self.reg.paths[config] = self.image.config.replace(b"1000", b"0000")
        self.refused("provider", "something else", answer=self.pull(self.reg))
        self.reg.paths[config] = self.image.config
        by_digest = f"/v2/x/manifests/{self.image.digest}"
        self.reg.paths[by_digest] += b" "
        self.refused("provider", "something else", answer=self.drive(
            "pull", f"{self.reg.host}/x@{self.image.digest}", rules=f"http://{self.reg.host}"))
        tagged = "/v2/x/manifests/latest"
        for sent, kind, code, words in (
                (b"<html>", None, "provider", "document"), (b"[" * 5_000_000, None, "provider", "more than it should"),
                (b"{}", "application/vnd.docker.distribution.manifest.v1+prettyjws", "unprocessable", "schema 1"),
                (self.image.manifest, INDEX, "provider", "different media types"),
                (self.image.manifest.replace(b"tar+gzip", b"tar+xz"), imagetest.MANIFEST, "unprocessable", "unknown media"),
                (self.image.manifest.replace(b"sha256:", b"sha512:"), imagetest.MANIFEST, "provider", "64 digits")):
            self.reg.paths[tagged], self.reg.types[tagged] = sent, kind or "application/json"
            self.refused(code, words, answer=self.pull(self.reg))

    def test_the_platform_of_an_index(self):
        self.image = Image(layer({"one": b""}), architecture="amd64")
        other = Image(layer({"other": b""}), architecture="arm64")
        self.reg.add(self.image, tag="one")
        self.reg.add(other, tag="other")
        entries = [{"mediaType": imagetest.MANIFEST, "digest": i.digest, "size": len(i.manifest),
                    "platform": {"os": "linux", "architecture": a}} for i, a in ((other, "arm64"), (self.image, "amd64"))]
        entries.insert(0, {"mediaType": "application/vnd.example+json", "digest": "x", "size": 1})
        self.reg.paths["/v2/x/manifests/latest"] = json.dumps({"schemaVersion": 2, "manifests": entries}).encode()
        self.reg.types["/v2/x/manifests/latest"] = INDEX
        self.assertEqual(self.pulled(self.reg, platform="linux/amd64")["digest"], self.image.digest)
        self.assertEqual(self.pulled(self.reg, platform="linux/arm64/v8")["digest"], other.digest)
        self.refused("unprocessable", "linux/riscv64", "linux/arm64, linux/amd64",
                     answer=self.pull(self.reg, platform="linux/riscv64"))

    def test_statuses(self):
        tagged = "/v2/x/manifests/latest"
        answers = iter([503, 503, 200])
        self.reg.rules[tagged] = lambda h, n: h.send(status) if (status := next(answers)) != 200 else False
        self.pulled(self.reg)
        self.reg.rules[tagged] = lambda h, n: h.send(429, headers={"Retry-After": "0"}) if n == 1 else False
        self.reg.seen.clear()
        self.pulled(self.reg)
        for status, headers, code, words in (
                (429, {"Retry-After": "3600"}, "throttled", ["3600 seconds"]), (429, {}, "throttled", ["later"]),
                (401, {}, "unauthorized", ["docker login"]), (403, {}, "forbidden", ["credentials"]),
                (503, {}, "unreachable", ["503"]), (418, {}, "provider", ["418"])):
            self.reg.rules[tagged] = lambda h, n: h.send(status, headers=headers)
            self.refused(code, self.reg.host, *words, answer=self.pull(self.reg))
        del self.reg.rules[tagged]
        self.refused("not_found", "no image nothing", "it says: not here", answer=self.pull(self.reg, "nothing"))

    def test_silence_ends_with_the_operation(self):
        self.reg.rules[self.big] = lambda h, n: (h.send(200, b"x", length=len(self.reg.paths[self.big])),
                                                 h.connection.recv(1))
        self.refused("timeout", answer=self.pull(self.reg, ms=700))


class PlacesTest(ImageTest):
    """Which hosts are asked, and what they are told."""

    def setUp(self):
        super().setUp()
        self.reg, self.other, self.image = self.registry(), self.registry(), image()
        self.reg.add(self.image)
        self.big = f"/v2/x/blobs/{self.image.layers[0]}"
        self.both = f"http://{self.reg.host},http://{self.other.host}"

    def test_only_what_the_operator_names(self):
        self.refused("forbidden", "not public (loopback)", "image_registries",
                     answer=self.drive("pull", f"{self.reg.host}/x"))
        self.refused("unreachable", answer=self.drive("pull", f"{self.reg.host}/x", rules=self.reg.host))
        self.assertEqual(self.reg.seen, [])

    def test_redirects(self):
        self.other.paths["/there"] = self.reg.paths[self.big]
        self.reg.rules[self.big] = lambda h, n: h.send(307, headers={"Location": f"http://{self.other.host}/there?sig=1"})
        self.refused("forbidden", "not encrypted", f"http://{self.other.host}", answer=self.pull(self.reg))
        self.assertEqual(self.other.seen, [])
        # Named without http://, it is a host with TLS.
        self.refused("forbidden", "not encrypted",
                     answer=self.pull(self.reg, rules=f"http://{self.reg.host},{self.other.host}"))
        self.pulled(self.reg, rules=self.both)
        self.assertEqual(len(self.other.asked("/there")), 1)
        for location, code in ((f"https://{self.other.host}/there", "forbidden"), ("file:///etc/passwd", "provider"),
                               ("http://[::ffff:127.0.0.1]:1/", "forbidden"), ("https://169.254.169.254/latest", "forbidden"),
                               (self.big, "provider"), ("https://localhost:1/", "forbidden"), ("", "provider")):
            self.reg.rules[self.big] = lambda h, n: h.send(302, headers={"Location": location})
            self.refused(code, answer=self.pull(self.reg))

    def test_credentials_stay_where_they_belong(self):
        basic = "Basic " + base64.b64encode(b"ann:pa:ss").decode()
        needs = lambda h, n: False if h.headers.get("Authorization") == basic else h.send(
            401, headers={"WWW-Authenticate": 'Basic realm="r"'})
        self.reg.rules["*"] = needs
        self.refused("unauthorized", "docker login", answer=self.pull(self.reg))
        self.refused("unauthorized", "refuses the credentials", answer=self.pull(self.reg, user="ann", password="wrong"))
        self.pulled(self.reg, user="ann", password="pa:ss")
        self.other.paths["/there"] = self.reg.paths[self.big]
        self.reg.rules[self.big] = lambda h, n: needs(h, n) is not False or h.send(
            307, headers={"Location": f"http://{self.other.host}/there"})
        self.pulled(self.reg, user="ann", password="pa:ss", rules=self.both)
        self.assertNotIn("Authorization", self.other.asked("/there")[0])

    def token_realm(self, realm_host):
        self.reg.rules["*"] = lambda h, n: False if h.headers.get("Authorization") == "Bearer t0ken" else h.send(
            401, headers={"WWW-Authenticate": f'Bearer realm="http://{realm_host}/token",service="a b",scope="repository:x:pull"'})
        self.other.paths["/token"] = b'{"token": "t0ken"}'

    def test_tokens(self):
        self.token_realm(self.other.host)
        self.refused("forbidden", "not encrypted", answer=self.pull(self.reg))
        self.pulled(self.reg, rules=self.both)
        asked = self.other.seen[0]
        self.assertEqual(asked[2].path, "/token?client_id=berth&service=a%20b&scope=repository%3Ax%3Apull")
        self.assertNotIn("Authorization", asked[1])
        self.pulled(self.reg, rules=self.both, user="ann", password="pass")
        self.assertEqual(self.other.seen[1][1]["Authorization"], "Basic " + base64.b64encode(b"ann:pass").decode())
        self.pulled(self.reg, rules=self.both, token="identity/token")
        self.assertIn("refresh_token=identity%2Ftoken", self.other.seen[2][2].body)
        self.other.paths["/there"] = self.reg.paths[self.big]
        needs = self.reg.rules["*"]
        self.reg.rules[self.big] = lambda h, n: needs(h, n) is not False or h.send(
            307, headers={"Location": f"http://{self.other.host}/there"})
        self.pulled(self.reg, rules=self.both)
        self.assertNotIn("Authorization", self.other.asked("/there")[0])
        for wrong, code in ((b"{}", "provider"), (b'{"token": "a\\r\\nX: y"}', "provider"), (b"no", "provider")):
            self.other.paths["/token"] = wrong
            self.refused(code, "no token", answer=self.pull(self.reg, rules=self.both))
        del self.other.paths["/token"]
        self.refused("not_found", answer=self.pull(self.reg, rules=self.both))

    def test_mirrors(self):
        mirror, rules = self.other, f"http://{self.reg.host},{self.reg.host}=http://{self.other.host}"
        mirror.add(self.image)
        self.pulled(self.reg, rules=rules, user="ann", password="pass")
        self.assertEqual(self.reg.seen, [])
        self.assertTrue(all("Authorization" not in headers for _, headers, _ in mirror.seen))
        # Without the layer, without the image, without an answer that makes sense.
        del mirror.paths[self.big]
        self.pulled(self.reg, rules=rules)
        self.assertEqual([path for path, *_ in self.reg.seen], [self.big])
        mirror.paths.clear()
        self.pulled(self.reg, rules=rules)
        mirror.rules["*"] = lambda h, n: h.send(401, headers={"WWW-Authenticate": "Basic"})
        self.pulled(self.reg, rules=rules, user="ann", password="pass")
        self.assertTrue(all("Authorization" not in headers for _, headers, _ in mirror.seen))

    def test_credentials_of_docker(self):
        """config.json: entries, and the programs that it names."""
        tools = self.dir / "bin"
        tools.mkdir()
        helper = tools / "docker-credential-good"
        helper.write_text('#!/bin/sh\nread server\n[ "$1" = get ] && printf \'{"Username":"ann","Secret":"%s"}\' "$server"\n')
        (tools / "docker-credential-none").write_text('#!/bin/sh\necho "credentials not found in native keychain"; exit 1\n')
        (tools / "docker-credential-bad").write_text("#!/bin/sh\necho secret; echo it broke >&2; exit 3\n")
        (tools / "docker-credential-flood").write_text("#!/bin/sh\nexec yes secret\n")
        for tool in tools.iterdir():
            tool.chmod(0o755)
        env = {"PATH": f"{tools}:{os.environ['PATH']}"}
        host, auth = self.reg.host, base64.b64encode(b"ann:pass").decode()
        seen = []
        self.reg.rules["*"] = lambda h, n: False if seen.append(h.headers.get("Authorization")) or seen[-1] else h.send(
            401, headers={"WWW-Authenticate": "Basic"})

        def with_file(content):
            (self.dir / "config.json").write_text(content if isinstance(content, str) else json.dumps(content))
            seen.clear()
            answer = self.pull(self.reg, config=self.dir / "config.json", env=env)
            return answer, base64.b64decode(seen[-1].split()[1]).decode() if seen and seen[-1] else None

        for content, expected in (
                ({"auths": {host: {"auth": auth}}}, "ann:pass"),
                ({"auths": {f"https://{host}/v1/": {"auth": auth.rstrip("=")}}}, "ann:pass"),
                ({"auths": {host: {"username": "a", "password": "b"}, f"{host}/x": {"auth": auth}}}, "ann:pass"),
                ({"auths": {f"{host}/y": {"auth": auth}, f"{host}0": {"auth": auth}}}, None),
                ({"credHelpers": {host: "good"}, "auths": {host: {"auth": auth}}}, f"ann:{host}"),
                ({"credsStore": "good"}, f"ann:{host}"),
                ({"credsStore": "none", "auths": {host: {"auth": auth}}}, "ann:pass")):
            self.assertEqual(with_file(content)[1], expected, content)
        for content, code, words in (
                ({"credHelpers": {host: "../bin/good"}}, "invalid", "name cannot be"),
                ({"credHelpers": {host: "bad"}}, "provider", "it broke"),
                ({"credHelpers": {host: "flood"}}, "too_large", "docker-credential-flood"),
                ({"auths": {host: {"auth": "!"}}}, "invalid", "base64"), ("[]", "invalid", "object"), ("{", "invalid", "file")):
            answer, _ = with_file(content)
            self.refused(code, words, answer=answer)
            self.assertNotIn("secret", answer["text"])
