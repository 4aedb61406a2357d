#!/usr/bin/env bash
# @modelcontextprotocol/server-everything 2026.8.31 over standard input answers a second `initialize` on
# the same process. It has added tools for the capabilities of its first client (sampling, roots,
# elicitation), and lists them to a second client that declares none.
# A process that goes from client to client must stay with one set of capabilities.
# Expected before the run: as many tools as for the same client with a process of its own, since the
# list is made from the newest handshake, as it is when capabilities are added. Seen on 2026-11-29
# with Node.js 20: 13 tools with a process of its own, 16 after the other client.
set -euo pipefail
folder="$(mktemp -d)"
trap 'rm -rf "$folder"' EXIT
npm install --prefix "$folder" --no-audit --no-fund --loglevel error \
  "@modelcontextprotocol/server-everything@2026.8.31" > /dev/null
cat > "$folder/ask.py" <<'PYTHON'
import json
import subprocess
import sys

FULL = {"roots": {"listChanged": True}, "sampling": {}, "elicitation": {"form": {}}}


def tools(*handshakes):
    """Returns the tools after handshakes with these capabilities on one process."""
    program = sys.argv[1] + "/node_modules/@modelcontextprotocol/server-everything/dist/index.js"
    server = subprocess.Popen(["node", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.DEVNULL, text=True)

    def send(message):
        server.stdin.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        server.stdin.flush()

    def ask(number, method, params):
        send({"id": number, "method": method, "params": params})
        for line in server.stdout:
            message = json.loads(line)
            if message.get("id") == number and "method" not in message:
                return message["result"]
            if "method" in message and "id" in message:  # a question of the server
                send({"id": message["id"], "result": {"roots": []}})

    for number, capabilities in enumerate(handshakes):
        ask(number, "initialize", {"protocolVersion": "2025-11-25", "capabilities": capabilities,
                                   "clientInfo": {"name": "client", "version": "1"}})
        send({"method": "notifications/initialized"})
        listed = ask(100 + number, "tools/list", {})["tools"]
    server.kill()
    server.wait()
    return sorted(tool["name"] for tool in listed)


own, added, kept = (len(tools(*handshakes)) for handshakes in [({},), ({}, FULL), (FULL, {})])
print(f"own process: {own}; capabilities added: {added}; capabilities gone: {kept}")
PYTHON
seen="$(python3 "$folder/ask.py" "$folder")"
echo "$seen"
[[ "$seen" == "own process: 13; capabilities added: 16; capabilities gone: 16" ]]
