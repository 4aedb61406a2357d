"""An agent on the Anthropic SDK whose tools come from riglm.

    pip install anthropic
    ANTHROPIC_API_KEY=... python anthropic_agent.py "What changed in the last release?"

RIGLM_URL and RIGLM_KEY name the proxy and a key of [auth.keys]; MODEL names the model.
"""

import os
import sys

from anthropic import Anthropic
from riglm import Riglm

MAX_TURNS = 20


def main(task):
    riglm = Riglm("anthropic")
    client = Anthropic()
    messages = [{"role": "user", "content": task}]
    for _ in range(MAX_TURNS):
        response = client.messages.create(
            model=os.environ.get("MODEL", "claude-sonnet-4-5"),
            max_tokens=4096,
            tools=riglm.tools(task),
            messages=messages,
        )
        content = [block.model_dump(mode="json", exclude_none=True) for block in response.content]
        messages.append({"role": "assistant", "content": content})
        if response.stop_reason != "tool_use":
            print("".join(block.text for block in response.content if block.type == "text"))
            return
        # Searches and calls alike: riglm knows which is which.
        messages.append({"role": "user", "content": riglm.call(content)})
    sys.exit(f"no answer after {MAX_TURNS} turns")


if __name__ == "__main__":
    main(sys.argv[1])
