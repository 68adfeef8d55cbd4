"""The model server of test/models: what it streams is what each of the four APIs streams, and it does what its script says."""

import http.client
import json
import pathlib
import sys
import unittest

sys.path.append(str(pathlib.Path(__file__).resolve().parents[1] / "models"))

from models import Cut, Fail, ModelServer, Say, Shell, Stall  # noqa: E402

# api: path, how it offers a shell tool under a name, what is streamed for a text, what for a call
APIS = {
    "anthropic": ("/v1/messages?beta=true", "Bash", lambda n: {"stream": True, "model": "m", "tools": [{"name": n}]}),
    "responses": ("/v1/responses", "exec_command", lambda n: {"stream": True, "model": "m", "tools": [
        {"type": "function", "name": n}, {"type": "web_search"}]}),
    "chat": ("/v1/chat/completions", "bash", lambda n: {"stream": True, "model": "m", "tools": [
        {"type": "function", "function": {"name": n}}]}),
    "gemini": ("/v1beta/models/m:streamGenerateContent?alt=sse", "run_shell_command", lambda n: {"tools": [
        {"functionDeclarations": [{"name": n}]}]}),
}


def said(api, events):
    """The text and the calls of a stream, put together as a client does."""
    text, calls = "", []
    for event in events:
        if api == "anthropic":
            if event.get("content_block", {}).get("type") == "tool_use":
                calls.append([event["content_block"]["name"], ""])
            delta = event.get("delta", {})
            text += delta.get("text", "")
            if "partial_json" in delta:
                calls[-1][1] += delta["partial_json"]
        elif api == "responses":
            text += event["delta"] if event["type"] == "response.output_text.delta" else ""
            if event["type"] == "response.output_item.done" and event["item"]["type"] == "function_call":
                calls.append([event["item"]["name"], event["item"]["arguments"]])
        elif api == "chat":
            for choice in event["choices"]:
                text += choice["delta"].get("content", "")
                calls += [[c["function"]["name"], c["function"]["arguments"]] for c in
                          choice["delta"].get("tool_calls", [])]
        else:
            for part in event["candidates"][0]["content"]["parts"]:
                text += part.get("text", "")
                if "functionCall" in part:
                    calls.append([part["functionCall"]["name"], json.dumps(part["functionCall"]["args"])])
    return text, [(name, json.loads(args)) for name, args in calls]


def usage(api, events):
    """Tokens in, of them cached, and out."""
    if api == "anthropic":
        first = events[0]["message"]["usage"]
        return (first["input_tokens"] + first["cache_read_input_tokens"], first["cache_read_input_tokens"],
                events[-2]["usage"]["output_tokens"])
    if api == "responses":
        found = events[-1]["response"]["usage"]
        return found["input_tokens"], found["input_tokens_details"]["cached_tokens"], found["output_tokens"]
    if api == "chat":
        found = events[-1]["usage"]
        return found["prompt_tokens"], found["prompt_tokens_details"]["cached_tokens"], found["completion_tokens"]
    found = events[-1]["usageMetadata"]
    return found["promptTokenCount"], found["cachedContentTokenCount"], found["candidatesTokenCount"]


class ModelsTest(unittest.TestCase):
    def setUp(self):
        self.models = ModelServer()
        self.addCleanup(self.models.close)

    def ask(self, path, body, headers=None):
        connection = http.client.HTTPConnection(self.models.host, self.models.port, timeout=60)
        self.addCleanup(connection.close)
        connection.request("POST", path, json.dumps(body), headers or {})
        return connection.getresponse()

    def turn(self, api):
        path, tool, body = APIS[api]
        answer = self.ask(path, body(tool))
        return answer.status, [json.loads(line[6:]) for line in answer.read().decode().splitlines()
                               if line.startswith("data: ") and line != "data: [DONE]"]

    def test_words_and_calls(self):
        for api, (_, tool, _) in APIS.items():
            with self.subTest(api):
                self.models.script(Shell("ls -l"), Say("done", usage={"input": 7, "cached": 2, "output": 3}))
                _, events = self.turn(api)
                text, ((name, args),) = said(api, events)
                self.assertEqual((text, name), ("", tool))
                self.assertIn("ls -l", args.values())
                _, events = self.turn(api)
                self.assertEqual(said(api, events), ("done", []))
                self.assertEqual(usage(api, events), (7, 2, 3))
                self.assertEqual(said(api, self.turn(api)[1]), ("Nothing more to do.", []))
                self.assertEqual([r.api for r in self.models.turns], [api] * 3)

    def test_requests_beside_the_work_take_no_step(self):
        for api, (path, _, body) in APIS.items():
            with self.subTest(api):
                self.models.script(Say("for the agent"))
                self.assertNotIn(b"for the agent", self.ask(path, body("Read")).read())
                self.assertEqual(len(self.models.left), 1)
                self.assertEqual(said(api, self.turn(api)[1])[0], "for the agent")

    def test_errors(self):
        for api in APIS:
            for status in (401, 429, 503, 529):
                with self.subTest(api, status=status):
                    self.models.script(Fail(status, "so it is", after=30), Say("never"))
                    for _ in range(2):  # until the script changes
                        path, tool, body = APIS[api]
                        answer = self.ask(path, body(tool))
                        text = answer.read().decode()
                        self.assertEqual(answer.status, status)
                        self.assertIn("so it is", json.loads(text)["error"]["message"])
                        self.assertIn("30", answer.headers["Retry-After"] if api == "anthropic" else text)
        self.models.script(Fail(503, always=False), Say("up again"))
        self.assertEqual(self.turn("chat")[0], 503)
        self.assertEqual(said("chat", self.turn("chat")[1])[0], "up again")

    def test_a_stream_that_is_cut(self):
        for api, (path, tool, body) in APIS.items():
            with self.subTest(api):
                self.models.script(Cut())
                answer = self.ask(path, body(tool))
                with self.assertRaises(http.client.IncompleteRead) as cut:
                    answer.read()
                self.assertIn(b"data: {", cut.exception.partial)

    def test_a_stream_that_stalls(self):
        for api, (path, tool, body) in APIS.items():
            with self.subTest(api):
                self.models.script(Stall())
                answer = self.ask(path, body(tool))
                self.assertTrue(answer.readline())
                self.assertTrue(self.models.stalled.wait(60))
                self.models.resume()
                self.assertIn(b"data: {", answer.read())

    def test_what_was_asked_is_kept(self):
        path, tool, body = APIS["gemini"]
        self.ask(path, {**body(tool), "contents": [{"parts": [{"text": "hello"}]}]}, {"x-goog-api-key": "k"}).read()
        (turn,) = self.models.turns
        self.assertEqual((turn.model, turn.key, turn.tools), ("m", "k", [tool]))
        self.assertIn("hello", turn.text)


if __name__ == "__main__":
    unittest.main()
