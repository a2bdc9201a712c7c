"""Importers of recorded trajectories: one module per format, a neutral model, an API client.

`READERS` maps the name of a format to a function from a path to the trajectories in that file.
Every reader reads the whole file, raises `reading.BadInputError` for other formats, and sends
nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ingest.importers import (
    claude_code,
    intercode,
    mini_swe_agent,
    openhands,
    pi,
    swe_agent,
    tau_bench,
)
from ingest.importers.reading import Trajectories

READERS: dict[str, Callable[[Path], Trajectories]] = {
    module.FORMAT: module.read
    for module in (claude_code, pi, mini_swe_agent, swe_agent, openhands, tau_bench, intercode)
}
