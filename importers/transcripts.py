"""What readers of transcripts have in common: files to which a coding agent adds records.

A reader takes one record after another, so that the same reader serves a complete file and one
that grows.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

from importers.files import BadInputError, Trajectories, open_values
from importers.trajectory import Json, Trajectory


class TranscriptReader(Protocol):
    """What reads a transcript record by record."""

    def add(self, line: int, record: Json) -> None:
        """Read the next record. Raises BadInputError."""

    def list_trajectories(self) -> list[Trajectory]:
        """Return the sessions with at least one call, as far as they were read."""

    @property
    def has_session(self) -> bool:
        """Return whether a record has named its session."""


def read_transcript(path: Path, reader: TranscriptReader, nothing: str) -> Trajectories:
    """Return the sessions of a complete file. Raises BadInputError.

    `nothing` is the reason for a file in which no record names a session.
    """
    values = open_values(path)
    for line, record in values:
        reader.add(line, record)
    if not reader.has_session:
        raise BadInputError(1, nothing)
    trajectories = Trajectories(reader.list_trajectories())
    trajectories.torn = values.torn
    return trajectories


def require_record(line: int, record: Json, source: str) -> tuple[dict[str, Json], str]:
    """Return a record and its type. Raises BadInputError for a value without a type."""
    if not isinstance(record, dict) or not isinstance(record.get("type"), str):
        raise BadInputError(line, f"not a {source} record: no type")
    return record, record["type"]


def list_trajectories_with_calls(sessions: Mapping[str, Trajectory]) -> list[Trajectory]:
    """Return the sessions with at least one call, in the order of their first records."""
    return [trajectory for trajectory in sessions.values() if trajectory.calls]
