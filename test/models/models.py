"""A model server for tests: the streaming APIs that agent programs speak, answered from a script.

    with ModelServer() as models:
        models.script(Shell("echo hi > note"), Say("Done."))     # each request of the agent's own loop takes one step
        run_the_program(base_url=models.url)
        models.turns[0].prompt                                   # what the program asked, as it came

Spoken are Anthropic Messages (POST .../v1/messages), OpenAI Responses (.../responses) and Chat Completions
(.../chat/completions), and Gemini (.../models/NAME:streamGenerateContent and :generateContent). Standard library only.

A request that offers the program's shell tool is a turn and takes the next step of the script; every other one (titles,
summaries, counting tokens, lists of models, JSON by a schema) is answered by itself, costs no tokens, and is in `requests`
only. A step with `always` is never used up. When the script is at its end, the answer is Say("Nothing more to do.").
"""

import contextlib
import dataclasses
import http.server
import json
import re
import ssl
import threading
import time

USAGE = {"input": 100, "cached": 40, "output": 20}  # tokens of each turn; `cached` is a part of `input`
NOTHING = {"input": 0, "cached": 0, "output": 0}

# The names under which programs offer a shell, and the arguments that each wants for a command line.
SHELLS = {
    "Bash": lambda command: {"command": command, "description": "Runs a command"},
    "bash": lambda command: {"command": command, "description": "Runs a command"},
    "exec_command": lambda command: {"cmd": command},
    "run_shell_command": lambda command: {"command": command, "description": "Runs a command"},
    "shell": lambda command: {"command": ["bash", "-lc", command]},
    "shell_command": lambda command: {"command": command},
}


@dataclasses.dataclass
class Say:
    """The end of the agent's work: a text and nothing to do."""
    text: str
    usage: dict = dataclasses.field(default_factory=lambda: dict(USAGE))
    always: bool = False


@dataclasses.dataclass
class Shell:
    """A command line for the program's shell tool."""
    command: str
    usage: dict = dataclasses.field(default_factory=lambda: dict(USAGE))
    always: bool = False


@dataclasses.dataclass
class Fail:
    """An HTTP error, with the body that the API in question has for it. `after`: seconds until a limit is
    reset, for those who say so."""
    status: int
    message: str = ""
    after: int = 0
    always: bool = True
    headers: dict = dataclasses.field(default_factory=dict)


@dataclasses.dataclass
class Stall:
    """A stream that begins and then says nothing until resume() or the end of the server."""
    always: bool = False


@dataclasses.dataclass
class Cut:
    """A stream that begins and is cut off in the middle."""
    always: bool = False


@dataclasses.dataclass
class Request:
    api: str  # anthropic, responses, chat, gemini, or "" for everything else
    method: str
    path: str
    headers: dict
    body: dict
    turn: bool = False

    @property
    def tools(self):
        return tool_names(self.api, self.body)

    @property
    def model(self):
        found = re.search(r"/models/([^:/]+):", self.path)
        return found[1] if found else self.body.get("model")

    @property
    def key(self):
        """What the program showed to be let in."""
        headers = {name.lower(): value for name, value in self.headers.items()}
        bearer = headers.get("authorization", "").removeprefix("Bearer ")
        return headers.get("x-api-key") or headers.get("x-goog-api-key") or bearer or None

    @property
    def text(self):
        """Everything that was sent, to look for words in."""
        return json.dumps(self.body, ensure_ascii=False)


def tool_names(api, body):
    tools = body.get("tools") or []
    if api == "gemini":
        return [f["name"] for t in tools for f in t.get("functionDeclarations", t.get("function_declarations", []))]
    if api == "chat":
        return [t["function"]["name"] for t in tools if t.get("function")]
    return [t.get("name") or t.get("type") for t in tools]


def schema_of(body):
    """The schema that an answer has to follow, or None."""
    gemini = body.get("generationConfig") or {}
    return (gemini.get("responseJsonSchema") or gemini.get("responseSchema")
            or (body.get("response_format") or {}).get("json_schema", {}).get("schema")
            or ((body.get("text") or {}).get("format") or {}).get("schema"))


def by_schema(schema):
    """Something that follows it. Of a choice the last: those who ask for the next speaker are told that it is the user."""
    kind = str(schema.get("type", "")).lower()
    if kind == "object":
        return {name: by_schema(of) for name, of in schema.get("properties", {}).items()}
    if schema.get("enum"):
        return schema["enum"][0 if "user" == schema["enum"][0] else -1]
    return {"integer": 1, "number": 1, "boolean": False, "array": []}.get(kind, "x")


def api_of(path):
    path = path.split("?")[0]
    for pattern, api in ((r"/messages$", "anthropic"), (r"/responses$", "responses"), (r"/chat/completions$", "chat"),
                         (r":(streamG|g)enerateContent$", "gemini")):
        if re.search(pattern, path):
            return api
    return ""


# What each API says: a list of (event name or None, object) for a text or a call.

def stream_anthropic(number, model, call, text, usage):
    block = {"type": "tool_use", "id": f"toolu_{number:04}", "name": call[0], "input": {}} if call else {
        "type": "text", "text": ""}
    delta = {"type": "input_json_delta", "partial_json": json.dumps(call[1])} if call else {
        "type": "text_delta", "text": text}
    counted = {"input_tokens": usage["input"] - usage["cached"], "cache_read_input_tokens": usage["cached"],
               "cache_creation_input_tokens": 0, "output_tokens": 1}
    events = [
        {"type": "message_start", "message": {"id": f"msg_{number:04}", "type": "message", "role": "assistant",
                                              "model": model, "content": [], "stop_reason": None,
                                              "stop_sequence": None, "usage": counted}},
        {"type": "content_block_start", "index": 0, "content_block": block},
        {"type": "content_block_delta", "index": 0, "delta": delta},
        {"type": "content_block_stop", "index": 0},
        {"type": "message_delta", "delta": {"stop_reason": "tool_use" if call else "end_turn", "stop_sequence": None},
         "usage": {"output_tokens": usage["output"]}},
        {"type": "message_stop"}]
    return [(e["type"], e) for e in events]


def whole_anthropic(number, model, text):
    return {"id": f"msg_{number:04}", "type": "message", "role": "assistant", "model": model, "stop_reason": "end_turn",
            "stop_sequence": None, "content": [{"type": "text", "text": text}],
            "usage": {"input_tokens": 0, "output_tokens": 0}}


def stream_responses(number, model, call, text, usage):
    if call:
        item = {"type": "function_call", "id": f"fc_{number:04}", "call_id": f"call_{number:04}", "name": call[0],
                "arguments": json.dumps(call[1]), "status": "completed"}
        middle = [{"type": "response.function_call_arguments.delta", "item_id": item["id"], "output_index": 0,
                   "delta": item["arguments"]},
                  {"type": "response.function_call_arguments.done", "item_id": item["id"], "output_index": 0,
                   "arguments": item["arguments"]}]
        begun = {**item, "arguments": "", "status": "in_progress"}
    else:
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": f"msg_{number:04}", "role": "assistant", "status": "completed",
                "content": [part]}
        at = {"item_id": item["id"], "output_index": 0, "content_index": 0}
        middle = [{"type": "response.content_part.added", **at, "part": {**part, "text": ""}},
                  {"type": "response.output_text.delta", **at, "delta": text},
                  {"type": "response.output_text.done", **at, "text": text},
                  {"type": "response.content_part.done", **at, "part": part}]
        begun = {**item, "content": [], "status": "in_progress"}
    counted = {"input_tokens": usage["input"], "input_tokens_details": {"cached_tokens": usage["cached"]},
               "output_tokens": usage["output"], "output_tokens_details": {"reasoning_tokens": 0},
               "total_tokens": usage["input"] + usage["output"]}
    response = {"id": f"resp_{number:04}", "object": "response", "created_at": 1700000000, "model": model,
                "status": "in_progress", "output": []}
    events = [{"type": "response.created", "response": response},
              {"type": "response.output_item.added", "output_index": 0, "item": begun}, *middle,
              {"type": "response.output_item.done", "output_index": 0, "item": item},
              {"type": "response.completed", "response": {**response, "status": "completed", "output": [item],
                                                          "usage": counted}}]
    return [(e["type"], {**e, "sequence_number": n}) for n, e in enumerate(events)]


def whole_responses(number, model, text):
    return stream_responses(number, model, None, text, NOTHING)[-1][1]["response"]


def stream_chat(number, model, call, text, usage):
    def chunk(delta, reason=None):
        return (None, {"id": f"chatcmpl-{number:04}", "object": "chat.completion.chunk", "created": 1700000000,
                       "model": model, "choices": [{"index": 0, "delta": delta, "finish_reason": reason}]})
    if call:
        said = {"role": "assistant", "tool_calls": [{"index": 0, "id": f"call_{number:04}", "type": "function",
                                                     "function": {"name": call[0], "arguments": json.dumps(call[1])}}]}
    else:
        said = {"role": "assistant", "content": text}
    last = chunk({})[1]
    last.update(choices=[], usage={"prompt_tokens": usage["input"], "completion_tokens": usage["output"],
                                   "total_tokens": usage["input"] + usage["output"],
                                   "prompt_tokens_details": {"cached_tokens": usage["cached"]}})
    return [chunk(said), chunk({}, "tool_calls" if call else "stop"), (None, last), (None, "[DONE]")]


def whole_chat(number, model, text):
    return {"id": f"chatcmpl-{number:04}", "object": "chat.completion", "created": 1700000000, "model": model,
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": text}}],
            "usage": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0}}


def whole_gemini(number, model, text, call=None, usage=None):
    usage = usage or NOTHING
    part = {"functionCall": {"id": f"call_{number:04}", "name": call[0], "args": call[1]}} if call else {"text": text}
    return {"responseId": f"r{number:04}", "modelVersion": model,
            "candidates": [{"index": 0, "finishReason": "STOP", "content": {"role": "model", "parts": [part]}}],
            "usageMetadata": {"promptTokenCount": usage["input"], "cachedContentTokenCount": usage["cached"],
                              "candidatesTokenCount": usage["output"],
                              "totalTokenCount": usage["input"] + usage["output"]}}


def stream_gemini(number, model, call, text, usage):
    first = whole_gemini(number, model, text, call, usage)
    if not call:  # a text comes in two pieces, so that one can be cut off
        first["candidates"][0].pop("finishReason")
        first.pop("usageMetadata")
        return [(None, first), (None, whole_gemini(number, model, "", None, usage))]
    return [(None, first)]


STREAMS = {"anthropic": stream_anthropic, "responses": stream_responses, "chat": stream_chat, "gemini": stream_gemini}
WHOLES = {"anthropic": whole_anthropic, "responses": whole_responses, "chat": whole_chat, "gemini": whole_gemini}

# status: (Anthropic's type, OpenAI's code, Google's status, the text when the script has none)
ERRORS = {
    400: ("invalid_request_error", "invalid_request", "INVALID_ARGUMENT", "The request is not valid."),
    401: ("authentication_error", "invalid_api_key", "UNAUTHENTICATED", "Invalid API key."),
    403: ("permission_error", "forbidden", "PERMISSION_DENIED", "This key may not do that."),
    404: ("not_found_error", "model_not_found", "NOT_FOUND", "There is no such model."),
    429: ("rate_limit_error", "rate_limit_exceeded", "RESOURCE_EXHAUSTED", "This request would exceed your rate limit."),
    500: ("api_error", "server_error", "INTERNAL", "Something went wrong."),
    503: ("api_error", "server_error", "UNAVAILABLE", "The service is unavailable."),
    529: ("overloaded_error", "server_error", "UNAVAILABLE", "Overloaded"),
}


def error_of(api, fail):
    """Headers and body of an error. The time in which to try again is where each API has that of a limit that is used up;
    the Retry-After of a short one is something that programs wait for by themselves, an hour too."""
    kind, code, status, text = ERRORS.get(fail.status, ERRORS[500])
    text = fail.message or text
    headers = dict(fail.headers)
    if api == "anthropic":
        if fail.after:
            headers["Retry-After"] = str(fail.after)
            headers["anthropic-ratelimit-unified-status"] = "rejected"
            headers["anthropic-ratelimit-unified-reset"] = str(int(time.time()) + fail.after)
        return headers, {"type": "error", "error": {"type": kind, "message": text}}
    if api == "gemini":
        details = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": f"{fail.after}s"}]
        return headers, {"error": {"code": fail.status, "message": text, "status": status,
                                   **({"details": details} if fail.after else {})}}
    error = {"message": text, "type": kind, "code": code, "param": None}
    if fail.after and api == "responses":
        error.update(type="usage_limit_reached", plan_type="plus", resets_in_seconds=fail.after,
                     resets_at=int(time.time()) + fail.after)
    elif fail.after:
        error["message"] += f" Please try again in {fail.after}s."
    return headers, {"error": error}


class ModelServer:
    """Listens from the start; url has no slash at its end. `address`: where, 127.0.0.1 unless told; `certificate`: a file
    with a chain and its key, for TLS."""

    def __init__(self, address="127.0.0.1", certificate=None):
        self.requests = []
        self.steps = []
        self.lock = threading.Lock()
        self.resumed = threading.Event()
        self.stalled = threading.Event()
        models = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self):
                models.answer(self)

            do_GET = do_HEAD = do_POST

            def log_message(self, *_):
                pass

        context = None
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)

        class Server(http.server.ThreadingHTTPServer):
            daemon_threads = True
            request_queue_size = 64

            def finish_request(self, request, client):
                if context:  # on the connection's own thread
                    request = context.wrap_socket(request, server_side=True)
                super().finish_request(request, client)

            def handle_error(self, *_):  # a program that ends in the middle of an answer is no error of ours
                pass

        self.server = Server((address, 0), Handler)
        self.host, self.port = self.server.server_address[:2]
        self.url = f"{'https' if certificate else 'http'}://{self.host}:{self.port}"
        self.thread = threading.Thread(target=self.server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True)
        self.thread.start()

    def script(self, *steps):
        """What is answered from now on; what was left of an earlier script is forgotten, and the record too."""
        with self.lock:
            self.steps = list(steps)
            self.requests = []
        self.resumed.set()
        self.resumed = threading.Event()
        self.stalled.clear()

    def resume(self):
        """A stalled stream goes on to its end."""
        self.resumed.set()

    def close(self):
        self.resumed.set()
        self.server.shutdown()
        self.server.server_close()
        self.thread.join()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    # Looking.

    @property
    def turns(self):
        with self.lock:
            return [r for r in self.requests if r.turn]

    @property
    def left(self):
        """The steps that nobody has come for."""
        with self.lock:
            return [s for s in self.steps if not s.always]

    # Answering.

    def next_step(self):
        if not self.steps:
            return Say("Nothing more to do.")
        return self.steps[0] if self.steps[0].always else self.steps.pop(0)

    def answer(self, handler):
        length = int(handler.headers.get("Content-Length") or 0)
        raw = handler.rfile.read(length)
        if "chunked" in handler.headers.get("Transfer-Encoding", ""):
            raw = read_chunks(handler.rfile)
        try:
            body = json.loads(raw) if raw else {}
        except ValueError:
            body = {"undecoded": raw.decode("utf-8", "replace")}
        api = api_of(handler.path) if handler.command == "POST" else ""
        request = Request(api, handler.command, handler.path, dict(handler.headers), body)
        request.turn = bool(api) and any(name in SHELLS for name in request.tools)
        with self.lock:
            self.requests.append(request)
            number = len(self.requests)
            # A server that is down or does not know the key is so for every request.
            first = self.steps[0] if self.steps else None
            aside = Say(json.dumps(by_schema(schema_of(body))) if schema_of(body) else "Task", NOTHING)
            step = self.next_step() if request.turn else first if isinstance(first, Fail) and api else aside
            resumed = self.resumed
        with contextlib.suppress(ConnectionError):
            if not api:
                return self.answer_other(handler, request)
            if isinstance(step, Fail):
                headers, error = error_of(api, step)
                return send(handler, step.status, error, headers)
            call = None
            if isinstance(step, Shell):
                tool = next(name for name in request.tools if name in SHELLS)
                call = (tool, SHELLS[tool](step.command))
            text = step.text if isinstance(step, Say) else "I look into it."
            streaming = body.get("stream") or "streamGenerateContent" in handler.path
            if not streaming:
                return send(handler, 200, WHOLES[api](number, request.model, text))
            usage = getattr(step, "usage", USAGE)
            self.stream(handler, STREAMS[api](number, request.model, call, text, usage), step, resumed)

    def stream(self, handler, events, step, resumed):
        handler.send_response(200)
        handler.send_header("Content-Type", "text/event-stream")
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        cut_at = max(1, len(events) // 2)
        for n, (name, event) in enumerate(events):
            if n == cut_at and isinstance(step, Cut):
                handler.close_connection = True
                return
            if n == cut_at and isinstance(step, Stall):
                self.stalled.set()
                resumed.wait()
            data = event if isinstance(event, str) else json.dumps(event)
            piece = (f"event: {name}\n" if name else "") + f"data: {data}\n\n"
            raw = piece.encode()
            handler.wfile.write(b"%x\r\n%s\r\n" % (len(raw), raw))
            handler.wfile.flush()
        handler.wfile.write(b"0\r\n\r\n")

    def answer_other(self, handler, request):
        """What is no conversation."""
        path = request.path.split("?")[0]
        if path.endswith("/count_tokens"):
            return send(handler, 200, {"input_tokens": USAGE["input"]})
        if path.endswith(":countTokens"):
            return send(handler, 200, {"totalTokens": USAGE["input"]})
        if path.endswith("/models"):
            return send(handler, 200, {"object": "list", "data": []})
        return send(handler, 404, {"error": {"message": f"{request.method} {path} is not served here"}})


def read_chunks(stream):
    raw = b""
    while size := int(stream.readline().split(b";")[0], 16):
        raw += stream.read(size)
        stream.readline()
    stream.readline()
    return raw


def send(handler, status, body, headers=None):
    raw = json.dumps(body).encode()
    handler.send_response(status)
    handler.send_header("Content-Type", "application/json")
    handler.send_header("Content-Length", str(len(raw)))
    for name, value in (headers or {}).items():
        handler.send_header(name, value)
    handler.end_headers()
    if handler.command != "HEAD":
        handler.wfile.write(raw)
