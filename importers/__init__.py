"""Importers of recorded trajectories: format readers, neutral model, client.

`READERS` maps the name of a format to a function from a path to the trajectories in that file.
Every reader reads the whole file, raises `files.BadInputError` for other formats, and sends
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from importers import (
    claude_code,
    codex,
    gemini,
    intercode,
    mini_swe_agent,
    openhands,
    pi,
    swe_agent,
    tau_bench,
)
from importers.files import Trajectories

READERS: dict[str, Callable[[Path], Trajectories]] = {
    claude_code.FORMAT: claude_code.read_claude_code,
    codex.FORMAT: codex.read_codex,
    gemini.FORMAT: gemini.read_gemini,
    pi.FORMAT: pi.read_pi,
    mini_swe_agent.FORMAT: mini_swe_agent.read_mini_swe_agent,
    swe_agent.FORMAT: swe_agent.read_swe_agent,
    openhands.FORMAT: openhands.read_openhands,
    tau_bench.FORMAT: tau_bench.read_tau_bench,
    intercode.FORMAT: intercode.read_intercode,
}
