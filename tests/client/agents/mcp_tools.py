"""An MCP server, made with the real SDK, whose tools leave marks in files.

`mcp_tools.py stdio`, or `mcp_tools.py PORT` for streamable HTTP. `mcp_tools.py copies SOCKET` runs
a copy of itself for each copied_tools.py: to import the SDK takes a second of a processor.
"""

import asyncio
import os
import select
import signal
import socket
import sys
from contextlib import suppress
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
async def late(path: str) -> str:
    """Answer when the file is there, and append a line to it."""
    while not Path(path).exists():
        await asyncio.sleep(0.05)
    append(path, "answered")
    return "late"


@server.tool()
def die(path: str) -> str:
    """Append a line and end the process."""
    append(path, "died")
    os._exit(3)


@server.tool()
def show_meta(ctx: Context) -> str:
    """Return the _meta that arrived."""
    return str(dict(ctx.request_context.meta or {}))


def serve_copies(path: str) -> None:
    """Run the server in a copy of this process for each connection, until this process is killed."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for those who watch
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(f"{path}.new")
        listening.listen()
        Path(f"{path}.new").rename(path)  # who sees it can connect
        while True:
            connection = listening.accept()[0]
            if not os.fork():
                listening.close()
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                watch_copy(connection)
            connection.close()


def watch_copy(connection: socket.socket) -> None:
    """Run a copy on the streams that the connection sends; end it when the connection ends."""
    _, streams, _, _ = socket.recv_fds(connection, 1, 3)
    copy = os.fork()
    if not copy:
        connection.close()
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        server.run("stdio")
        os._exit(0)
    for stream in streams:
        os.close(stream)
    for number in (0, 1, 2):
        os.close(number)
    ended = os.pidfd_open(copy)
    if ended not in select.select([connection.fileno(), ended], [], [])[0]:
        os.kill(copy, signal.SIGKILL)
    code = os.waitstatus_to_exitcode(os.waitpid(copy, 0)[1])
    with suppress(OSError):  # the program was killed
        connection.sendall(str(code).encode())
    os._exit(0)


if __name__ == "__main__":
    if sys.argv[1] == "copies":
        serve_copies(sys.argv[2])
    elif sys.argv[1] == "stdio":
        server.run("stdio")
    else:
        server.run("streamable-http", host="127.0.0.1", port=int(sys.argv[1]))
