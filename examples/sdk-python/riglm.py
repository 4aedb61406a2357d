"""A client of riglm for agents on the SDK of a model provider, with the standard library only."""

import json
import os
import urllib.error
import urllib.parse
import urllib.request
import uuid

# The longest time for a tool call; riglm itself ends calls after limits.call_timeout.
DEADLINE_S = 120


class Riglm:
    """The tools of one conversation."""

    def __init__(self, provider):
        url = os.environ.get("RIGLM_URL", "http://127.0.0.1:8642")
        self._base = f"{url.rstrip('/')}/sdk/{provider}"
        # Each conversation has a key of its own: its list of tools stays the same.
        self._headers = {"X-Riglm-Session": str(uuid.uuid4()), "Content-Type": "application/json"}
        if key := os.environ.get("RIGLM_KEY"):
            self._headers["Authorization"] = f"Bearer {key}"

    def tools(self, task):
        """Returns the `tools` of a request to the provider."""
        return self._send(f"?{urllib.parse.urlencode({'query': task})}")["tools"]

    def call(self, blocks):
        """Returns the results of the blocks with which a model searches and calls tools."""
        return self._send("/call", json.dumps(blocks).encode())

    def _send(self, path, body=None):
        request = urllib.request.Request(self._base + path, data=body, headers=self._headers)
        try:
            with urllib.request.urlopen(request, timeout=DEADLINE_S) as response:
                return json.load(response)
        except urllib.error.HTTPError as error:
            # Errors are problem details (RFC 9457), whose detail says what is wrong.
            is_problem = error.headers.get_content_type() == "application/problem+json"
            reason = json.load(error)["detail"] if is_problem else error.reason
            raise RuntimeError(f"riglm: {error.code} {reason}") from error
