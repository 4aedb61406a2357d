"""An MCP server of 120 small tools on standard input and output. It logs every message.

    many_tools.py LOGFILE [SECONDS]

With SECONDS, it takes that long before it reads its first message, as servers that are installed
when they start do.
Each line of the log is a JSON object: `time`, and `start` or the `message` that came in.
"""

import json
import sys
import threading
import time

DOERS = "list fetch create adjust remove count audit export repair rename".split()
THINGS = (
    "lighthouse ferry orchard beehive vineyard telescope glacier sawmill bakery canal "
    "windmill quarry"
).split()

# The one tool that the stub model looks for. Its description and both parts of its answer are
# sentences that stand nowhere else, so that they can be counted in a request to the model.
HIDDEN = "repair_telescope"
HIDDEN_WORDS = "repair a telescope mirror"
HIDDEN_SENTENCE = "Repair the cracked mirror of a telescope."
HIDDEN_ARGUMENTS = {"telescope_id": "tele-4711", "urgent": True}
ANSWER_TEXT = "The mirror of the observatory is whole again."
ANSWER_STRUCTURE = {"workshop": "receipt-number-90210"}


def tools():
    """The catalogue. Every tool has the same small schema, with the name of its thing."""
    found = []
    for doer in DOERS:
        for thing in THINGS:
            name = f"{doer}_{thing}"
            text = f"{doer.capitalize()} the {thing} records of the county."
            if name == HIDDEN:
                text = HIDDEN_SENTENCE
            properties = {
                f"{thing}_id": {"type": "string", "description": f"Which {thing}"},
                "urgent": {"type": "boolean", "description": "Whether it has to be today"},
            }
            schema = {"type": "object", "properties": properties, "required": [f"{thing}_id"]}
            found.append({"name": name, "description": text, "inputSchema": schema})
    return found


def call(params):
    """The answer of a tool. The hidden one has a text and a structure that differ."""
    if params.get("name") == HIDDEN:
        content = [{"type": "text", "text": ANSWER_TEXT}]
        return {"content": content, "structuredContent": ANSWER_STRUCTURE}
    return {"content": [{"type": "text", "text": f"{params.get('name')}: done"}]}


def answer(method, params):
    """The result of a request, or None if the method is unknown."""
    if method == "initialize":
        known = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25")
        asked = params.get("protocolVersion")
        return {
            "protocolVersion": asked if asked in known else known[-1],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "county", "version": "1.0.0"},
        }
    if method == "tools/list":
        return {"tools": tools()}
    if method == "tools/call":
        return call(params)
    return {} if method == "ping" else None


def main():
    lock = threading.Lock()
    with open(sys.argv[1], "a", encoding="utf-8") as log:

        def note(**entry):
            with lock:
                log.write(json.dumps({"time": time.time(), **entry}) + "\n")
                log.flush()

        note(start=True)
        time.sleep(float(sys.argv[2]) if len(sys.argv) > 2 else 0)
        for line in sys.stdin:
            # Some clients write headers before they write lines. They are no messages.
            try:
                message = json.loads(line)
            except ValueError:
                continue
            note(message=message)
            if not isinstance(message, dict) or "id" not in message or "method" not in message:
                continue
            result = answer(message["method"], message.get("params") or {})
            reply = {"jsonrpc": "2.0", "id": message["id"]}
            if result is None:
                reply["error"] = {"code": -32601, "message": "Method not found"}
            else:
                reply["result"] = result
            print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
