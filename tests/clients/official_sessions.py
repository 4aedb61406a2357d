"""Sessions of the official Python SDK, all begun at once, with the proxy in front of the official
servers.

Arguments and output are those of official-sessions.mjs.
"""

import json
import os
import sys

import anyio
from mcp import ClientSession, types
from mcp.client.streamable_http import streamablehttp_client

CALLS = json.loads(os.environ["RIGLM_TEST_CALLS"])
KINDS = {
    types.ToolListChangedNotification: "tools",
    types.PromptListChangedNotification: "prompts",
    types.ResourceListChangedNotification: "resources",
}


async def sample(_context, _params):
    content = types.TextContent(type="text", text="a sampled answer")
    return types.CreateMessageResult(model="canned", role="assistant", content=content)


async def elicit(_context, _params):
    return types.ElicitResult(action="decline")


async def roots(_context):
    return types.ListRootsResult(roots=[])


FULL = {
    "sampling_callback": sample,
    "elicitation_callback": elicit,
    "list_roots_callback": roots,
}


async def lists(session, asked):
    found = {}
    for kind in KINDS.values():
        asked.add(kind)
        listed = await getattr(session, f"list_{kind}")()
        found[kind] = sorted(entry.name for entry in getattr(listed, kind))
    return found


async def look(session, seen, asked):
    seen["first"] = await lists(session, asked)
    for name, given in CALLS:
        result = await session.call_tool(name, given)
        if result.isError:
            seen["failed"].append([name, str(result.content)])
    # Every server has answered by now, and what it had to say of its lists has been passed on.
    seen["last"] = await lists(session, asked)


async def leave(session):
    """Asks for a list, and does not wait for it."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(session.list_tools)
        # The request goes out when this task gives way.
        for _ in range(10):
            await anyio.lowlevel.checkpoint()
        tasks.cancel_scope.cancel()


async def session(url, word, outcomes):
    capable, end = word.split(":")
    none = dict.fromkeys(KINDS.values(), 0)
    seen = {"client": "python", "capable": capable, "end": end, "failed": []}
    seen |= {"told": dict(none), "early": dict(none)}
    asked = set()

    async def on_message(message):
        if isinstance(message, types.ServerNotification) and type(message.root) in KINDS:
            kind = KINDS[type(message.root)]
            seen["told"][kind] += 1
            seen["early"][kind] += kind not in asked

    callbacks = FULL if capable == "full" else {}
    has_left = False
    try:
        terminates = end != "disconnect"
        async with streamablehttp_client(url, terminate_on_close=terminates) as (read, write, _):
            async with ClientSession(read, write, message_handler=on_message, **callbacks) as open_session:
                await open_session.initialize()
                if end == "stay":
                    await look(open_session, seen, asked)
                else:
                    has_left = True
                    await leave(open_session)
    except Exception as error:
        # What the SDK reports of a request that it has given up itself is no answer of the proxy.
        if not has_left:
            seen["error"] = repr(error)
    outcomes.append(seen)


async def main():
    url, *words = sys.argv[1:]
    outcomes = []
    async with anyio.create_task_group() as tasks:
        for word in words:
            tasks.start_soon(session, url, word, outcomes)
    print(json.dumps(outcomes))


anyio.run(main)
