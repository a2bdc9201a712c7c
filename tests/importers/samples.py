"""Input of the importers' tests: small samples, and recorded data where the machine has it."""

import json
from pathlib import Path
from typing import Any

import pytest

FILES = Path(__file__).parent / "files"
# Real recordings are next to a working copy, not in it; a clone passes without them.
RECORDED = Path(__file__).resolve().parents[3] / "shared" / "data"

FORMAT_OF_FOLDER = {
    "claude-code-spotter": "claude-code",
    "pi-coding-agent": "pi",
    "mini-swe-agent": "mini-swe-agent",
    "swe-agent": "swe-agent",
    "openhands": "openhands",
    "tau-bench": "tau-bench",
    "intercode": "intercode",
}

needs_recordings = pytest.mark.skipif(
    not (RECORDED / "COUNTS.json").exists(),
    reason="the recorded data is not next to this working copy",
)


def recorded_counts() -> dict[str, dict[str, Any]]:
    """Return the expected counts of each recorded file of an importable format, by path."""
    if not (RECORDED / "COUNTS.json").exists():
        return {}
    counts: dict[str, dict[str, Any]] = json.loads((RECORDED / "COUNTS.json").read_text())
    return {
        name: numbers for name, numbers in counts.items() if name.split("/")[0] in FORMAT_OF_FOLDER
    }


def format_of(name: str) -> str:
    """Return the importer's format of a recorded file."""
    return FORMAT_OF_FOLDER[name.split("/")[0]]


def json_lines(path: Path) -> list[Any]:
    """Return the JSON values of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text("utf-8").split("\n") if line.strip()]


def write_lines(path: Path, values: list[Any]) -> Path:
    """Write `values` as JSON lines to `path` and return it."""
    path.write_text("".join(json.dumps(value) + "\n" for value in values), "utf-8")
    return path
