#!/usr/bin/env python3
"""Runs real agent programs without a terminal, with a stub model, in front of riglm.

    tests/real-agents/run.py                          # all agents in all modes
    tests/real-agents/run.py codex opencode           # two of them
    tests/real-agents/run.py --mode http --store empty codex
    tests/real-agents/run.py --slow 4 codex           # the server takes 4 seconds to start

It needs Python 3, Node with npm, Linux, and a built riglm (`--riglm`, by default
target/debug/riglm). Agents that are missing are installed with npm at the versions of agents.py
into `--folder` (by default target/agents, about 2.3 GB for all); with `--no-install`, they are
left out. Nothing else is asked from outside: each agent has an empty home, an environment of its
own, a dummy key, and a model on loopback that follows a script (stub_model.py). Its only MCP
server is riglm, which stands in front of one server of 120 tools (many_tools.py).

| Mode | What the agent has |
| --- | --- |
| `direct` | the server itself: how much its definitions cost, and how the agent names itself |
| `http` | the address of `riglm serve` |
| `connect` | the program `riglm connect`, in front of a running `riglm serve` |
| `stdio` | the program `riglm serve --stdio` |

Each mode but the first runs with an empty store and with a warm one, which has seen a session.
The model searches for a hidden tool, calls it with `call_tool`, and ends. Each run checks that

- riglm's tools are in the first request to the model that has tools, with their definitions, or
  by name if the agent loads tools on demand;
- the model found the hidden tool with one search and called it with one `call_tool` (or, if the
  agent loads tools on demand and has the tool by name, with one call of the tool), and the server
  got that call once, with its arguments;
- the agent refused no call itself, so that both results are the words of riglm and the server;
- what the search found, and the answer of the tool, are in the model's input exactly once;
- the agent named itself as agents.py says, ended by itself in time with exit code 0, and left no
  process of riglm or of the server behind.

It prints a table in Markdown, and names what is wrong. The exit code is 0 if nothing is. All
that a run wrote is kept under FOLDER/runs: the home of the agent, its output, each request to the
model, and the log of the server.
"""

import argparse
import contextlib
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request

sys.dont_write_bytecode = True

import many_tools  # noqa: E402
from agents import AGENTS  # noqa: E402
from stub_model import CALL, FORWARDERS, SEARCH, StubModel, named  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PROMPT = f"Please {many_tools.HIDDEN_WORDS}: {many_tools.HIDDEN_ARGUMENTS['telescope_id']}."
MODES = ("direct", "http", "connect", "stdio")
STORES = ("empty", "warm")
# The client of the session that makes a store warm.
VISITOR = "first-visitor"
COLUMNS = (
    "agent",
    "version",
    "clientInfo",
    "revision",
    "mode",
    "store",
    "tools in the first request",
    "tokens of definitions, direct",
    "through riglm",
    "seconds to the first request",
    "seconds in all",
    "result that the model got",
    "checks",
)


class Wrong(Exception):
    """A check that failed, or a part that could not start."""


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def environment(home, more):
    """All that a program gets to know. What wants to leave this machine finds a closed door."""
    closed = "http://127.0.0.1:9"
    return {
        "PATH": os.environ.get("PATH", "/usr/bin:/bin"),
        "HOME": str(home),
        "LANG": "C.UTF-8",
        "TERM": "dumb",
        "HTTP_PROXY": closed,
        "HTTPS_PROXY": closed,
        "NO_PROXY": "127.0.0.1,localhost",
        **more,
    }


def leftovers(home):
    """The processes of a run. Its home is its own, so it marks all that the run starts."""
    wanted, found = f"HOME={home}".encode(), []
    for folder in pathlib.Path("/proc").glob("[0-9]*"):
        # A process that ends meanwhile, or of somebody else, is none of ours.
        with contextlib.suppress(OSError):
            if wanted in (folder / "environ").read_bytes().split(b"\0"):
                found.append(int(folder.name))
    return found


def end(process, grace=5.0):
    """Ends a process that was started in a group of its own, and the group."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(grace)


def sweep(home, patience=3.0):
    """Ends what a run left behind by process id, and returns the names of these programs."""
    deadline, names = time.monotonic() + patience, []
    while leftovers(home) and time.monotonic() < deadline:
        time.sleep(0.1)
    for pid in leftovers(home):
        with contextlib.suppress(OSError):
            names.append(pathlib.Path(f"/proc/{pid}/comm").read_text(encoding="utf-8").strip())
            os.kill(pid, signal.SIGKILL)
    return names


class Riglm:
    """riglm in front of the server of many tools, with a store and a log of its own."""

    def __init__(self, program, folder, slow=0.0):
        self.program, self.folder = program, folder
        self.folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "riglm.toml"
        self.data = folder / "store"
        self.log = folder / "server.jsonl"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self.process = None
        script = str(HERE / "many_tools.py")
        self.server = [sys.executable, script, str(self.log), str(slow)]
        self.config.write_text(
            f'data_dir = "{self.data}"\n'
            f'[listen]\naddress = "127.0.0.1:{self.port}"\n'
            f'[control]\naddress = "off"\n'
            f'[filtering]\nstrategy = "prediction"\n'
            f"[upstreams.county]\ncommand = {json.dumps(self.server)}\n",
            encoding="utf-8",
        )

    def command(self, *words):
        return [str(self.program), *words, "--config", str(self.config)]

    def start(self):
        with open(self.folder / "riglm.log", "ab") as log:
            self.process = subprocess.Popen(
                self.command("serve"),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.folder,
                env=environment(self.folder, {}),
                start_new_session=True,
            )
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline and self.process.poll() is None:
            with contextlib.suppress(OSError):
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            time.sleep(0.02)
        self.stop()
        raise Wrong("riglm does not listen")

    def stop(self):
        if self.process is not None:
            end(self.process)
            self.process = None

    def sessions(self):
        """What riglm recorded about its sessions, the newest last."""
        done = subprocess.run(
            self.command("sessions", "--json"),
            capture_output=True,
            cwd=self.folder,
            env=environment(self.folder, {}),
            timeout=60,
            check=False,
        )
        return json.loads(done.stdout) if done.returncode == 0 else []


def post(url, message, session=None):
    """A request to riglm over HTTP, for the session that makes a store warm."""
    headers = {"Content-Type": "application/json"}
    headers["Accept"] = "application/json, text/event-stream"
    if session:
        headers["Mcp-Session-Id"] = session
    request = urllib.request.Request(url, json.dumps(message).encode(), headers)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=30) as reply:
        reply.read()
        return reply.headers.get("Mcp-Session-Id")


def warm_store(program, folder):
    """A store that has seen one session: a list, and two calls. Returns its folder."""
    riglm = Riglm(program, folder)
    riglm.start()
    try:
        who = {"name": VISITOR, "version": "1.0.0"}
        params = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": who}
        hello = {"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params}
        session = post(riglm.url, hello)
        post(riglm.url, {"jsonrpc": "2.0", "method": "notifications/initialized"}, session)
        post(riglm.url, {"jsonrpc": "2.0", "id": 2, "method": "tools/list"}, session)
        for number, thing in enumerate(("ferry", "canal"), 3):
            arguments = {f"{thing}_id": "1"}
            call = {"name": f"list_{thing}", "arguments": arguments}
            asked = {"jsonrpc": "2.0", "id": number, "method": "tools/call", "params": call}
            post(riglm.url, asked, session)
    finally:
        riglm.stop()
    return riglm.data


def install(agent, name, folder, allowed):
    """The path of the agent's program, installed first if `allowed`; None if it is missing."""
    place = folder / "packages" / name
    program = place / "node_modules" / ".bin" / agent.program
    manifest = place / "node_modules" / agent.package / "package.json"
    with contextlib.suppress(OSError, ValueError):
        if json.loads(manifest.read_text(encoding="utf-8"))["version"] == agent.version:
            return program
    if not allowed:
        return None
    place.mkdir(parents=True, exist_ok=True)
    (place / "package.json").write_text("{}\n", encoding="utf-8")
    done = subprocess.run(
        ["npm", "install", "--no-audit", "--no-fund", f"{agent.package}@{agent.version}"],
        cwd=place,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    if done.returncode != 0:
        raise Wrong(f"npm install: {done.stderr.strip()[-300:]}")
    return program


def write_files(agent, server, port, home):
    """The configuration of the agent, in its home."""
    for path, content in agent.files(server).items():
        text = content if isinstance(content, str) else json.dumps(content, indent=2)
        target = home / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text.replace("{port}", str(port)), encoding="utf-8")


def run_agent(agent, program, folder, server, model):
    """Runs the agent to its end. Returns its exit code (None if it was ended), and leftovers."""
    home, work = folder / "home", folder / "work"
    home.mkdir(parents=True)
    work.mkdir()
    write_files(agent, server, model.port, home)
    words = {"{port}": str(model.port), "{home}": str(home), "{prompt}": PROMPT}

    def filled(text):
        for word, value in words.items():
            text = text.replace(word, value)
        return text

    more = {name: filled(value) for name, value in agent.environment.items()}
    with open(folder / "output.txt", "wb") as output:
        model.started = time.monotonic()
        process = subprocess.Popen(
            [str(program), *map(filled, agent.command)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=work,
            env=environment(home, more),
            start_new_session=True,
        )
        try:
            code = process.wait(agent.limit)
        except subprocess.TimeoutExpired:
            code = None
        finally:
            seconds = time.monotonic() - model.started
            left = []
            if process.poll() is None:
                end(process)
                sweep(home, 0)
            else:
                left = sweep(home)
    return code, seconds, left


def messages(log):
    """The messages that the server got."""
    if not log.exists():
        return []
    lines = log.read_text(encoding="utf-8").splitlines()
    return [entry["message"] for entry in map(json.loads, lines) if "message" in entry]


def called(step):
    """The name of the tool that a step called, also through a client's own forwarder."""
    if step.name in FORWARDERS and isinstance(step.arguments, dict):
        return str(step.arguments.get("name"))
    return step.name


def conversation(request):
    """All that the model reads besides the definitions of tools."""
    left_out = ("tools", "tool_choice", "toolConfig")
    kept = {key: value for key, value in request.body.items() if key not in left_out}
    return json.dumps(kept, ensure_ascii=False)


OWN = (SEARCH, CALL, "set_context")
SERVERS = [tool["name"] for tool in many_tools.tools()]


def from_server(request):
    """The tools of a request that are from the MCP server, not of the agent itself."""
    names = (*OWN, *SERVERS)
    tools = (named(request.tools, name) for name in names)
    return [tool for tool in tools if tool is not None]


def form_of(text):
    """Which parts of the tool's answer are in a text."""
    parts = []
    if many_tools.ANSWER_STRUCTURE["workshop"] in text:
        parts.append("structured")
    if many_tools.ANSWER_TEXT in text:
        parts.append("text")
    return "both" if len(parts) == 2 else "".join(parts) or "none"


def check(agent, mode, requests, log):
    """What is wrong with the requests to the model and to the server."""
    asked = [request for request in requests if request.tools]
    if not asked:
        return ["the model got no request with tools"]
    wrong, steps, text = [], asked[-1].steps, conversation(asked[-1])
    if mode != "direct":
        needed = (SEARCH,) if agent.on_demand else (SEARCH, CALL)
        missing = [name for name in needed if not named(asked[0].tools, name)]
        if agent.on_demand:
            missing = [name for name in missing if name not in conversation(asked[0])]
        if missing:
            wrong.append(f"not in the first request: {', '.join(missing)}")
        ways = (CALL, many_tools.HIDDEN) if agent.on_demand else CALL
        for name in (SEARCH, ways):
            count = sum(called(step).endswith(name) for step in steps)
            if count != 1:
                wrong.append(f"{count} calls of {name}")
        count = text.count(many_tools.HIDDEN_SENTENCE)
        if count != 1:
            wrong.append(f"the found tool is told {count} times")
    for step in steps:
        if called(step).endswith(SEARCH) and many_tools.HIDDEN not in step.result:
            wrong.append(f"the search was answered with: {step.result[:200]}")
        if called(step).endswith((CALL, many_tools.HIDDEN)) and form_of(step.result) == "none":
            wrong.append(f"the call was answered with: {step.result[:200]}")
    for part in (many_tools.ANSWER_TEXT, many_tools.ANSWER_STRUCTURE["workshop"]):
        if text.count(part) > 1:
            wrong.append(f"the answer is told {text.count(part)} times: {part}")
    got = [entry["params"] for entry in messages(log) if entry.get("method") == "tools/call"]
    expected = (many_tools.HIDDEN, many_tools.HIDDEN_ARGUMENTS)
    if [(params.get("name"), params.get("arguments")) for params in got] != [expected]:
        wrong.append(f"the server got the calls {json.dumps(got)[:200]}")
    return wrong


def first_contact(mode, riglm, log):
    """How the agent names itself, and the revision of the protocol, as riglm or the server saw."""
    if mode == "direct":
        for entry in messages(log):
            if entry.get("method") == "initialize":
                params = entry["params"]
                return params["clientInfo"]["name"], params["protocolVersion"]
        return "", ""
    for session in reversed(riglm.sessions()):
        if session["client"] != VISITOR:
            return session["client"], session["protocol"]
    return "", ""


def run_case(name, program, mode, store, options, warm):
    """One run of one agent. Returns the row of the table; `checks` has what is wrong."""
    agent = AGENTS[name]
    folder = options.folder / "runs" / "-".join(filter(None, (name, mode, store)))
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    riglm = Riglm(options.riglm, folder / "riglm", options.slow)
    if store == "warm":
        shutil.copytree(warm, riglm.data)
    log = riglm.log
    server = {
        "direct": riglm.server,
        "http": riglm.url,
        "connect": riglm.command("connect"),
        "stdio": riglm.command("serve", "--stdio"),
    }[mode]
    model = StubModel(
        many_tools.HIDDEN, many_tools.HIDDEN_WORDS, many_tools.HIDDEN_ARGUMENTS, folder
    )
    try:
        if mode in ("http", "connect"):
            riglm.start()
        code, seconds, left = run_agent(agent, program, folder, server, model)
        wrong = check(agent, mode, model.requests, log)
        if code is None:
            wrong.append(f"ended after {agent.limit} seconds")
        elif code != 0:
            wrong.append(f"exit code {code}")
        wrong += [f"left running: {kind}" for kind in left if kind in ("riglm", "python3")]
    finally:
        model.close()
        riglm.stop()
        sweep(riglm.folder, 0)
    client, revision = first_contact(mode, riglm, log)
    if client != agent.client_name:
        wrong.append(f"clientInfo is {client!r}, not {agent.client_name!r}")
    asked = [request for request in model.requests if request.tools]
    tools = from_server(asked[0]) if asked else []
    tokens = sum(tool.characters for tool in tools) // 4
    return {
        "agent": name,
        "version": agent.version,
        "clientInfo": client,
        "revision": revision,
        "mode": mode,
        "store": store or "-",
        "tools in the first request": len(tools),
        "tokens of definitions, direct": tokens if mode == "direct" else "",
        "through riglm": "" if mode == "direct" else tokens,
        "seconds to the first request": f"{asked[0].seconds:.1f}" if asked else "-",
        "seconds in all": f"{seconds:.1f}",
        "result that the model got": form_of(conversation(asked[-1])) if asked else "-",
        "checks": "; ".join(wrong) or "ok",
    }


def table(rows):
    """The rows in Markdown."""
    lines = [COLUMNS, ["---"] * len(COLUMNS)]
    lines += [[str(row[column]).replace("|", "\\|") for column in COLUMNS] for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("agents", nargs="*", metavar="AGENT", help=", ".join(AGENTS))
    parser.add_argument("--folder", type=pathlib.Path, default=ROOT / "target" / "agents")
    parser.add_argument("--riglm", type=pathlib.Path, default=ROOT / "target/debug/riglm")
    parser.add_argument("--mode", action="append", choices=MODES, help="default: all")
    parser.add_argument("--store", action="append", choices=STORES, help="default: both")
    parser.add_argument(
        "--slow", type=float, default=0.0, metavar="SECONDS", help="time that the server needs"
    )
    parser.add_argument("--no-install", action="store_true")
    options = parser.parse_args()
    options.folder, options.riglm = options.folder.resolve(), options.riglm.resolve()
    for name in options.agents:
        if name not in AGENTS:
            parser.error(f"unknown agent {name}; known are {', '.join(AGENTS)}")
    if not options.riglm.exists():
        parser.error(f"there is no {options.riglm}: build riglm, or name it with --riglm")
    return options


def main():
    options = arguments()
    # A signal ends the run like an error: what it started is ended, too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    started, rows, wrong = time.monotonic(), [], []
    cases = [(mode, store) for mode in MODES[1:] for store in STORES]
    cases = [("direct", None), *cases]
    cases = [
        (mode, store)
        for mode, store in cases
        if (not options.mode or mode in options.mode)
        and (not options.store or store is None or store in options.store)
    ]
    warm = options.folder / "runs" / "warm"
    shutil.rmtree(warm, ignore_errors=True)
    warm = warm_store(options.riglm, warm)
    for name in options.agents or AGENTS:
        try:
            program = install(AGENTS[name], name, options.folder, not options.no_install)
        except (Wrong, OSError, subprocess.TimeoutExpired) as problem:
            wrong.append(f"{name}: cannot be installed: {problem}")
            continue
        if program is None:
            print(f"{name}: not installed, left out", file=sys.stderr)
            continue
        direct = ""
        for mode, store in cases:
            label = " ".join(filter(None, (name, mode, store)))
            try:
                row = run_case(name, program, mode, store, options, warm)
            except (Wrong, OSError) as problem:
                wrong.append(f"{label}: {problem}")
                continue
            print(f"{label}: {row['checks']}", file=sys.stderr, flush=True)
            # The cost without riglm stands beside the cost with it.
            direct = row["tokens of definitions, direct"] = (
                row["tokens of definitions, direct"] if mode == "direct" else direct
            )
            rows.append(row)
            if row["checks"] != "ok":
                wrong.append(f"{label}: {row['checks']}")
    print(table(rows))
    print(f"\n{len(rows)} runs in {time.monotonic() - started:.0f} seconds.")
    for line in wrong:
        print(f"WRONG: {line}")
    if not rows:
        print("WRONG: no agent ran")
    sys.exit(1 if wrong or not rows else 0)


if __name__ == "__main__":
    main()
