"""An agent on the OpenAI SDK whose tools come from riglm.

    pip install openai
    OPENAI_API_KEY=... python openai_agent.py "What changed in the last release?"

RIGLM_URL and RIGLM_KEY name the proxy and a key of [auth.keys]; MODEL names the model, gpt-5.4 or
later.
"""

import os
import sys

from openai import OpenAI
from riglm import Riglm

MAX_TURNS = 20
CALLS = ("function_call", "tool_search_call")


def main(task):
    riglm = Riglm("openai")
    client = OpenAI()
    items = [{"role": "user", "content": task}]
    for _ in range(MAX_TURNS):
        response = client.responses.create(
            model=os.environ.get("MODEL", "gpt-5.4"),
            tools=riglm.tools(task),
            input=items,
        )
        output = [item.model_dump(mode="json", exclude_none=True) for item in response.output]
        items += output
        if not any(item["type"] in CALLS for item in output):
            print(response.output_text)
            return
        # Searches and calls alike: riglm knows which is which.
        items += riglm.call(output)
    sys.exit(f"no answer after {MAX_TURNS} turns")


if __name__ == "__main__":
    main(sys.argv[1])
