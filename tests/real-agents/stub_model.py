"""A model without any intelligence, for the wire formats of four providers.

It serves Anthropic Messages, OpenAI Responses, OpenAI Chat Completions and Gemini
generateContent on loopback, as one message or as a stream, and plays one short part: search for
the hidden tool, call it, end with a text. What comes next depends only on the conversation in the
request, so that requests that are repeated do no harm. Every request is kept.
"""

import json
import re
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SEARCH, CALL = "search_available_tools", "call_tool"
# Tools with which a client loads definitions of other tools on demand.
LOADERS = ("ToolSearch", "tool_search")
# The tool with which such a client may call a tool that it has not loaded.
FORWARDERS = ("tool_call",)
END = "The telescope is repaired."


class Tool:
    """A tool as a request defines it."""

    def __init__(self, name, definition, namespace=None):
        self.name = name
        self.namespace = namespace
        self.definition = definition
        self.characters = len(json.dumps(definition, ensure_ascii=False))


class Step:
    """A call in the conversation, with its result as the model reads it."""

    def __init__(self, name, arguments):
        self.name = name
        self.arguments = arguments
        self.result = ""


def text_of(value):
    """All that a model reads in a part of a request, as text."""
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


def parsed(value):
    """Arguments come as an object or as its JSON."""
    try:
        return json.loads(value) if isinstance(value, str) else value
    except ValueError:
        return value


def tools_of(body):
    """All tools that are defined in a request."""
    found = []

    def add(entry, namespace=None):
        inner = entry.get("functionDeclarations") or entry.get("function_declarations")
        if inner is None and entry.get("type") == "namespace":
            inner, namespace = entry.get("tools", []), entry.get("name")
        if inner is not None:
            for tool in inner:
                add(tool, namespace)
            return
        name = entry.get("function", entry).get("name") or entry.get("type", "")
        found.append(Tool(name, entry, namespace))

    for entry in body.get("tools") or []:
        add(entry)
    # A client that loads tools on demand brings them as a part of the conversation.
    for item in body.get("input") if isinstance(body.get("input"), list) else []:
        for entry in item.get("tools") or [] if "search" in item.get("type", "") else []:
            add(entry)
    return found


class Anthropic:
    """Anthropic Messages."""

    path = "/messages"

    @staticmethod
    def steps(body):
        steps = {}
        for message in body.get("messages", []):
            blocks = message.get("content")
            for block in blocks if isinstance(blocks, list) else []:
                if block.get("type") == "tool_use":
                    steps[block["id"]] = Step(block["name"], block.get("input"))
                if block.get("type") == "tool_result" and block.get("tool_use_id") in steps:
                    steps[block["tool_use_id"]].result = text_of(block.get("content"))
        return list(steps.values())

    @staticmethod
    def reply(number, body, call, text):
        block = {"type": "text", "text": text}
        if call:
            name, _, arguments = call
            block = {"type": "tool_use", "id": f"toolu_{number}", "name": name, "input": arguments}
        usage = {"input_tokens": 9, "output_tokens": 9}
        message = {
            "id": f"msg_{number}",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [block],
            "stop_reason": "tool_use" if call else "end_turn",
            "stop_sequence": None,
            "usage": usage,
        }
        if not body.get("stream"):
            return message
        started = {**message, "content": [], "stop_reason": None}
        empty, delta = {**block, "text": ""}, {"type": "text_delta", "text": text}
        if call:
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
            empty = {**block, "input": {}}
        ended = {"stop_reason": message["stop_reason"], "stop_sequence": None}
        events = [
            {"type": "message_start", "message": started},
            {"type": "content_block_start", "index": 0, "content_block": empty},
            {"type": "content_block_delta", "index": 0, "delta": delta},
            {"type": "content_block_stop", "index": 0},
            {"type": "message_delta", "delta": ended, "usage": usage},
            {"type": "message_stop"},
        ]
        return [(event["type"], event) for event in events]


class Responses:
    """OpenAI Responses."""

    path = "/responses"

    @staticmethod
    def steps(body):
        steps = {}
        items = body.get("input")
        for item in items if isinstance(items, list) else []:
            kind = item.get("type", "")
            if kind.endswith("_call") and "call_id" in item:
                name = item.get("name") or kind.removesuffix("_call")
                steps[item["call_id"]] = Step(name, parsed(item.get("arguments")))
            elif kind.endswith("_output") and item.get("call_id") in steps:
                result = item.get("output") or item.get("tools")
                steps[item["call_id"]].result = text_of(result)
        return list(steps.values())

    @staticmethod
    def reply(number, body, call, text):
        part = {"type": "output_text", "text": text, "annotations": []}
        item = {"type": "message", "id": f"msg_{number}", "role": "assistant", "content": [part]}
        if call:
            name, namespace, arguments = call
            item = {"type": "function_call", "id": f"fc_{number}", "call_id": f"call_{number}"}
            item |= {"name": name, "arguments": json.dumps(arguments)}
            if namespace:
                item["namespace"] = namespace
            if name == "tool_search":
                item |= {"type": "tool_search_call", "execution": "client", "arguments": arguments}
        item["status"] = "completed"
        response = {
            "id": f"resp_{number}",
            "object": "response",
            "created_at": int(time.time()),
            "model": body.get("model"),
            "status": "completed",
            "output": [item],
            "usage": {
                "input_tokens": 9,
                "input_tokens_details": {"cached_tokens": 0},
                "output_tokens": 9,
                "output_tokens_details": {"reasoning_tokens": 0},
                "total_tokens": 18,
            },
        }
        if not body.get("stream"):
            return response
        opened = {**response, "status": "in_progress", "output": []}
        at = {"output_index": 0}
        events = [{"type": "response.created", "response": opened}]
        begun = {**item, "status": "in_progress"}
        if item["type"] == "message":
            begun["content"] = []
            inside = {**at, "item_id": item["id"], "content_index": 0}
            events += [
                {"type": "response.output_item.added", **at, "item": begun},
                {"type": "response.content_part.added", **inside, "part": {**part, "text": ""}},
                {"type": "response.output_text.delta", **inside, "delta": text},
                {"type": "response.output_text.done", **inside, "text": text},
                {"type": "response.content_part.done", **inside, "part": part},
            ]
        elif item["type"] == "function_call":
            begun["arguments"], inside = "", {**at, "item_id": item["id"]}
            whole, kind = item["arguments"], "response.function_call_arguments"
            events += [
                {"type": "response.output_item.added", **at, "item": begun},
                {"type": f"{kind}.delta", **inside, "delta": whole},
                {"type": f"{kind}.done", **inside, "arguments": whole, "name": item["name"]},
            ]
        else:
            events.append({"type": "response.output_item.added", **at, "item": begun})
        events += [
            {"type": "response.output_item.done", **at, "item": item},
            {"type": "response.completed", "response": response},
        ]
        return [(e["type"], {**e, "sequence_number": n}) for n, e in enumerate(events)]


class Chat:
    """OpenAI Chat Completions."""

    path = "/chat/completions"

    @staticmethod
    def steps(body):
        steps = {}
        for message in body.get("messages", []):
            for call in message.get("tool_calls") or []:
                function = call.get("function", {})
                steps[call["id"]] = Step(function.get("name"), parsed(function.get("arguments")))
            if message.get("role") == "tool" and message.get("tool_call_id") in steps:
                content = message.get("content")
                if isinstance(content, list):
                    content = "\n".join(part.get("text", text_of(part)) for part in content)
                steps[message["tool_call_id"]].result = text_of(content)
        return list(steps.values())

    @staticmethod
    def reply(number, body, call, text):
        message = {"role": "assistant", "content": None if call else text}
        if call:
            name, _, arguments = call
            function = {"name": name, "arguments": json.dumps(arguments)}
            message["tool_calls"] = [
                {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
            ]
        reason = "tool_calls" if call else "stop"
        usage = {"prompt_tokens": 9, "completion_tokens": 9, "total_tokens": 18}
        base = {"id": f"chatcmpl_{number}", "created": int(time.time()), "model": body.get("model")}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return {**base, "object": "chat.completion", "choices": [choice], "usage": usage}
        base["object"] = "chat.completion.chunk"
        first = {"index": 0, "delta": message, "finish_reason": None}
        last = {"index": 0, "delta": {}, "finish_reason": reason}
        chunks = [{**base, "choices": [choice]} for choice in (first, last)]
        chunks.append({**base, "choices": [], "usage": usage})
        return [(None, chunk) for chunk in chunks] + [(None, "[DONE]")]


class Gemini:
    """Gemini generateContent. Its calls have no identifiers: results come in their order."""

    path = "enerateContent"

    @staticmethod
    def steps(body):
        steps, waiting = [], []
        for content in body.get("contents", []):
            for part in content.get("parts", []):
                if "functionCall" in part:
                    step = Step(part["functionCall"]["name"], part["functionCall"].get("args"))
                    steps.append(step)
                    waiting.append(step)
                if "functionResponse" in part and waiting:
                    response = part["functionResponse"].get("response")
                    waiting.pop(0).result = text_of(response)
        return steps

    @staticmethod
    def reply(number, body, call, text):
        part = {"text": text}
        if call:
            part = {"functionCall": {"name": call[0], "args": call[2]}}
        candidate = {"index": 0, "content": {"role": "model", "parts": [part]}}
        candidate["finishReason"] = "STOP"
        usage = {"promptTokenCount": 9, "candidatesTokenCount": 9, "totalTokenCount": 18}
        value = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "stub"}
        value["responseId"] = f"r{number}"
        return [(None, value)] if body["stream"] else value


FORMATS = (Anthropic, Responses, Chat, Gemini)


def named(tools, name):
    """The tool whose name ends with `name`, behind the prefix of a client if it has one."""
    pattern = re.compile(r"(^|[^a-z])" + re.escape(name) + "$")
    return next((tool for tool in tools if pattern.search(tool.name)), None)


def next_call(wanted, words, arguments, tools, steps, conversation):
    """What the model does now: a call (name, namespace, arguments), or None for the end."""

    def reach(name, inner):
        """A call of a tool of the server, with the means of a client that loads on demand."""
        tool = named(tools, name)
        if tool:
            return tool.name, tool.namespace, inner
        loader = next((tool for tool in tools if tool.name in LOADERS), None)
        mentioned = re.search(r"mcp__\w+__" + re.escape(name) + r"\b", conversation)
        if loader is None or mentioned is None:
            return None
        if any(step.name == loader.name and name in text_of(step.arguments) for step in steps):
            forwarder = next((tool for tool in tools if tool.name in FORWARDERS), None)
            if forwarder is None:
                return None
            return forwarder.name, None, {"name": mentioned.group(), "arguments": inner}
        return loader.name, loader.namespace, {"query": f"select:{mentioned.group()}"}

    def made(name):
        """The steps that called `name`, also through a forwarder."""
        pattern = re.compile(r"(^|[^a-z])" + re.escape(name) + "$")

        def called(step):
            if step.name in FORWARDERS and isinstance(step.arguments, dict):
                return str(step.arguments.get("name"))
            return step.name

        return [step for step in steps if pattern.search(called(step))]

    if made(CALL) or made(wanted):
        return None
    searches = made(SEARCH)
    if not searches:
        return reach(SEARCH, {"query": words}) or reach(wanted, arguments)
    # The name is taken from the answer of the search, as a model would do it.
    found = re.search(r"[\w.-]*" + re.escape(wanted), searches[-1].result)
    if found is None:
        return None
    # A client that loads on demand may list all tools, and then call_tool is not needed.
    named_call = {"name": found.group(), "arguments": arguments}
    return reach(CALL, named_call) or reach(wanted, arguments)


class Request:
    """A request to the model, as it is kept."""

    def __init__(self, seconds, path, body, tools, steps):
        self.seconds = seconds
        self.path = path
        self.body = body
        self.tools = tools
        self.steps = steps


class StubModel:
    """The server. `requests` has all that it was asked, also those for a title, without tools."""

    def __init__(self, wanted, words, arguments, folder=None):
        self.wanted, self.words, self.arguments = wanted, words, arguments
        self.folder = folder
        self.requests = []
        self.unknown = []
        self.started = time.monotonic()
        self.lock = threading.Lock()
        model = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                """Nothing: the requests are kept instead."""

            def do_HEAD(self):
                self.send({})

            def do_GET(self):
                names = ("stub", "gpt-5", "claude-sonnet-4-5", "gemini-2.5-pro")
                data = [{"id": name, "object": "model", "owned_by": "stub"} for name in names]
                model.unknown.append(self.path)
                self.send({"object": "list", "data": data, "models": []})

            def do_POST(self):
                value = model.answer(self.path, self.payload())
                self.send_stream(value) if isinstance(value, list) else self.send(value)

            def payload(self):
                if "chunked" not in self.headers.get("Transfer-Encoding", ""):
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                data = b""
                while size := int(self.rfile.readline().split(b";")[0], 16):
                    data += self.rfile.read(size)
                    self.rfile.readline()
                self.rfile.readline()
                return data

            def send(self, value):
                data = json.dumps(value).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(data)

            def send_stream(self, events):
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream")
                self.send_header("Connection", "close")
                self.end_headers()
                for name, value in events:
                    head = f"event: {name}\n" if name else ""
                    data = value if isinstance(value, str) else json.dumps(value)
                    self.wfile.write(f"{head}data: {data}\n\n".encode())
                self.close_connection = True

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_port
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def answer(self, target, payload):
        """The value to send, or a list of events for a stream."""
        path = target.split("?")[0]
        try:
            body = json.loads(payload or b"{}")
        except ValueError:
            body = {}
        if path.endswith(("count_tokens", ":countTokens")):
            return {"input_tokens": len(payload) // 4, "totalTokens": len(payload) // 4}
        form = next((form for form in FORMATS if path.endswith(form.path)), None)
        if form is None:
            # Telemetry and the like.
            self.unknown.append(target)
            return {}
        if form is Gemini:
            body["stream"] = "streamGenerateContent" in path
        tools, steps = tools_of(body), form.steps(body)
        keys = ("system", "instructions", "systemInstruction", "messages", "input", "contents")
        conversation = text_of([body.get(key) for key in keys])
        call = None
        if tools:
            call = next_call(
                self.wanted, self.words, self.arguments, tools, steps, conversation
            )
        with self.lock:
            seconds = time.monotonic() - self.started
            self.requests.append(Request(seconds, path, body, tools, steps))
            number = len(self.requests)
        if self.folder:
            with open(f"{self.folder}/request-{number:03}.json", "w", encoding="utf-8") as file:
                kept = {"seconds": seconds, "path": path, "call": call, "body": body}
                json.dump(kept, file, indent=1)
        return form.reply(number, body, call, END if tools else "A title")

    def close(self):
        self.server.shutdown()
        self.server.server_close()
