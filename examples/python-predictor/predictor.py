#!/usr/bin/env python3
"""A predictor of the next tool for riglm, in Python without dependencies.

riglm writes one request to each line of standard input and reads one response from each line of
standard output (schema riglm.predictor/1, docs/external-predictors.md). Use it with

    [prediction]
    predictor = { command = ["python3", "examples/python-predictor/predictor.py"] }

With --port N it serves the same over HTTP on 127.0.0.1 instead, for predictor = { url = ... }.

The scores come from the counts that riglm learned: how often each tool followed the last two calls,
the last call, or anything, the shorter context filling what the longer one leaves (Witten and Bell
1991, method C). Messages belong on standard error.
"""

import argparse
import json
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SCHEMA = "riglm.predictor/1"


def interpolate(counts, prior):
    """Returns the shares of the counts, mixed with a prior distribution."""
    total = sum(counts)
    kinds = sum(1 for count in counts if count > 0)
    if total + kinds == 0:
        return prior
    return [(count + kinds * p) / (total + kinds) for count, p in zip(counts, prior)]


def scores(request):
    """Returns one score for each tool of a request."""
    tools = request["tools"]
    if not tools:
        return []
    p = [1 / len(tools)] * len(tools)
    contexts = ["calls", "after_last", "after_last_two"]
    if request["session"]["n_calls"] == 0:
        contexts = ["calls", "first_calls"]
    for context in contexts:
        p = interpolate([tool["counts"][context] for tool in tools], p)
    return p


def reasons(request, p):
    """Returns a reason for the three most likely tools."""
    tools = request["tools"]
    best = sorted(range(len(p)), key=lambda at: -p[at])[:3]
    texts = {}
    for at in best:
        after = tools[at]["counts"]["after_last"]
        if after >= 1:
            texts[str(at)] = f"followed the last call about {round(after)} times"
    return texts


def answer(line):
    """Returns the response to a request."""
    response = {"schema": SCHEMA, "id": 0}
    try:
        request = json.loads(line)
        response["id"] = request["id"]
        if request["schema"] != SCHEMA:
            raise ValueError(f"unknown schema {request['schema']!r}")
        response["scores"] = scores(request)
        response["reasons"] = reasons(request, response["scores"])
    except (ValueError, KeyError, TypeError) as error:
        response["error"] = f"{type(error).__name__}: {error}"
    return json.dumps(response)


class Handler(BaseHTTPRequestHandler):
    """Answers each POST with the response to its body."""

    protocol_version = "HTTP/1.1"
    # Otherwise the system may hold back the end of a response for 40 ms.
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        response = answer(body).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(response)))
        self.end_headers()
        self.wfile.write(response)

    def log_message(self, *arguments):
        pass


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--port", type=int, help="serve HTTP on 127.0.0.1 (0: any free port)")
    port = parser.parse_args().port
    if port is not None:
        server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()
    for line in sys.stdin:
        print(answer(line), flush=True)


if __name__ == "__main__":
    main()
