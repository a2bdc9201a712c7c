"""Readers of recorded agent trajectories: one module a format, one neutral shape, one client of the API.

`READERS` maps a format's name to a function from a path to the trajectories in that file. Every reader reads the whole
file, raises `reading.BadInputError` for anything that is not its format, and sends nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ingest.importers import claude_code, intercode, mini_swe_agent, openhands, pi, swe_agent, tau_bench
from ingest.importers.reading import Trajectories

READERS: dict[str, Callable[[Path], Trajectories]] = {
    module.FORMAT: module.read
    for module in (claude_code, pi, mini_swe_agent, swe_agent, openhands, tau_bench, intercode)
}
