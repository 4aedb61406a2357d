"""A session of the official Python SDK with the server of the npm package server-everything.

Arguments: `stdio COMMAND ARGS..`, `http URL` or `sse URL`. Prints what it saw as one JSON object.
"""

import json
import os
import sys
from contextlib import asynccontextmanager
from datetime import timedelta

import anyio
from mcp import ClientSession, McpError, StdioServerParameters, types
from mcp.client.sse import sse_client
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamablehttp_client

LONG = "trigger-long-running-operation"


@asynccontextmanager
async def connect(kind, target, rest):
    if kind == "stdio":
        server = StdioServerParameters(command=target, args=rest, env=dict(os.environ))
        async with stdio_client(server) as (read, write):
            yield read, write
    elif kind == "http":
        async with streamablehttp_client(target) as (read, write, _):
            yield read, write
    else:
        async with sse_client(target) as (read, write):
            yield read, write


async def sample(_context, _params):
    content = types.TextContent(type="text", text="a sampled answer")
    return types.CreateMessageResult(model="canned", role="assistant", content=content)


async def elicit(_context, _params):
    return types.ElicitResult(action="accept", content={"name": "Ada", "check": True})


async def roots(_context):
    return types.ListRootsResult(roots=[types.Root(uri="file:///srv/data", name="data")])


def plain(model):
    return model.model_dump(mode="json", by_alias=True)


async def look(session):
    seen = {"server": plain(await session.initialize())}
    seen["tools"] = plain(await session.list_tools())
    seen["prompts"] = plain(await session.list_prompts())
    seen["resources"] = plain(await session.list_resources())
    seen["echo"] = plain(await session.call_tool("echo", {"message": "héllo"}))
    place = {"location": "Chicago"}
    seen["structured"] = plain(await session.call_tool("get-structured-content", place))

    seen["progress"] = []

    async def on_progress(progress, total, message):
        seen["progress"].append([progress, total, message])

    pace = {"duration": 0.3, "steps": 3}
    result = await session.call_tool(LONG, pace, progress_callback=on_progress)
    seen["long"] = plain(result)
    seen["sampling"] = plain(await session.call_tool("trigger-sampling-request", {"prompt": "p"}))
    seen["elicitation"] = plain(await session.call_tool("trigger-elicitation-request", {}))

    # The SDK has no call to cancel a request: it gives up on it, and says so here by hand.
    pace = {"duration": 2, "steps": 10}
    given_up = timedelta(milliseconds=400)
    number = session._request_id
    try:
        await session.call_tool(LONG, pace, read_timeout_seconds=given_up)
        seen["cancelled"] = "answered"
    except McpError:
        seen["cancelled"] = "cancelled"
    params = types.CancelledNotificationParams(requestId=number, reason="enough")
    notification = types.CancelledNotification(method="notifications/cancelled", params=params)
    await session.send_notification(types.ClientNotification(notification))
    seen["after"] = plain(await session.call_tool("echo", {"message": "after"}))
    return seen


async def main():
    kind, target, *rest = sys.argv[1:]
    async with connect(kind, target, rest) as (read, write):
        callbacks = {
            "sampling_callback": sample,
            "elicitation_callback": elicit,
            "list_roots_callback": roots,
        }
        async with ClientSession(read, write, **callbacks) as session:
            seen = await look(session)
    print(json.dumps(seen, sort_keys=True))


anyio.run(main)
