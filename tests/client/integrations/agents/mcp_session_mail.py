"""Run the program of docs/how-to/mcp-session.md with a scripted model: see scripted_mail.py."""

import asyncio
import ctypes
import os
import signal
import sys
from typing import Any

from mcp import StdioServerParameters
from scripted_mail import Script, load_program, report

PR_SET_PDEATHSIG = 1


async def ask_model(messages: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the next turn of the script."""
    call_ids = [call["id"] for message in messages for call in message.get("calls", [])]
    results = [result for message in messages for result in message.get("results", [])]
    return Script().next_turn(call_ids, results)


program = load_program()
if sys.argv[1:] == ["serve"]:
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    program.server.run()
else:
    program.ask_model = ask_model
    program.parameters = StdioServerParameters(
        command=sys.executable, args=[__file__, "serve"], env=dict(os.environ)
    )
    report(asyncio.run(program.work(*sys.argv[1:3])))
