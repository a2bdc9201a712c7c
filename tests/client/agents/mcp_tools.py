"""An MCP server, made with the real SDK, whose tools leave marks in files.

`mcp_tools.py stdio`, or `mcp_tools.py PORT` for streamable HTTP.
"""

import asyncio
import os
import sys
from pathlib import Path

from mcp.server.mcpserver import Context, MCPServer
from mcp_types import ToolAnnotations

server = MCPServer("Files & more")


@server.tool(
    annotations=ToolAnnotations(destructive_hint=True, idempotent_hint=False),
    structured_output=False,
)
def append(path: str, text: str) -> str:
    """Append a line to a file."""
    with Path(path).open("a") as file:
        file.write(f"{text}\n")
    return f"appended {text}"


@server.tool(annotations=ToolAnnotations(read_only_hint=True))
def read(path: str) -> str:
    """Return a file."""
    return Path(path).read_text()


@server.tool()
def fail(path: str) -> str:
    """Append a line, then fail."""
    append(path, "failed")
    raise ValueError("the disk is full")


@server.tool()
async def slow(path: str, seconds: float, ctx: Context) -> str:
    """Append a line, report progress, wait."""
    append(path, "slow")
    await ctx.report_progress(1, 2, "half")
    await asyncio.sleep(seconds)
    return "slept"


@server.tool()
def die(path: str) -> str:
    """Append a line and end the process."""
    append(path, "died")
    os._exit(3)


@server.tool()
def show_meta(ctx: Context) -> str:
    """Return the _meta that arrived."""
    return str(dict(ctx.request_context.meta or {}))


if __name__ == "__main__":
    if sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
