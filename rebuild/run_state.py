"""Where an interrupted check stopped: a file that the next run goes on from.

The file has the results of sessions only. Who can write it can claim any: so a run that goes on
from it says what it took from there, and checks all else itself.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import orjson

from db.clock import now_us
from rebuild.checking import BatchResult, DifferingBatches, difference_to_json
from rebuild.row_comparison import NOT_RESTORED

_FORM: Final = 3  # of the file. A run begins again where another version wrote another form
MAX_KEPT_DIFFERENCES: Final = 1_000  # differences that are listed; all are counted


@dataclass(slots=True)
class Findings:
    """What some batches had."""

    rows: Counter[str] = field(default_factory=Counter)
    differences: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    not_restored: int = 0  # differences of a kind that no run restores
    unknown: Counter[tuple[str, str, str]] = field(default_factory=Counter)

    def add(self, result: BatchResult) -> None:
        """Add the result of a batch."""
        self.rows += result.rows
        self.count += len(result.differences)
        kinds = [difference.kind for difference in result.differences]
        self.not_restored += sum(kind in NOT_RESTORED for kind in kinds)
        room = MAX_KEPT_DIFFERENCES - len(self.differences)
        self.differences += map(difference_to_json, result.differences[:room])
        self.unknown += result.unknown


@dataclass(frozen=True, slots=True)
class EarlierRun:
    """What a run did not check itself, as the file of an earlier run says."""

    after: UUID  # the last session that the earlier run checked
    saved_at_us: int
    rows: int


@dataclass(slots=True)
class RunState:
    """What a run has done so far. `scope` names project and tables, which must not change."""

    scope: str
    after: UUID | None = None
    sessions: Findings = field(default_factory=Findings)
    others: Findings = field(default_factory=Findings)  # of projects and the installation
    relations: Findings = field(default_factory=Findings)  # of what rows refer to
    storage: Findings = field(default_factory=Findings)  # of how the database stores rows
    differing: DifferingBatches = field(default_factory=DifferingBatches)
    earlier: EarlierRun | None = None

    @property
    def rows(self) -> Counter[str]:
        """Return the numbers of compared rows by table."""
        return self.sessions.rows + self.others.rows + self.relations.rows

    @property
    def count(self) -> int:
        """Return the number of differences."""
        parts = (self.sessions, self.others, self.relations, self.storage)
        return sum(part.count for part in parts)

    @property
    def not_restored(self) -> int:
        """Return the number of differences that no run restores."""
        parts = (self.sessions, self.others, self.relations, self.storage)
        return sum(part.not_restored for part in parts)

    @property
    def unknown(self) -> Counter[tuple[str, str, str]]:
        """Return the numbers of values that could not be compared."""
        return self.sessions.unknown + self.others.unknown + self.storage.unknown

    def add(self, result: BatchResult) -> None:
        """Add the result of a batch."""
        parts = {
            "session": self.sessions,
            "relations": self.relations,
            "storage": self.storage,
        }
        parts.get(result.unit, self.others).add(result)
        self.differing.add(result)
        self.after = result.last or self.after

    def write_file(self, path: Path) -> None:
        """Write the file, replacing the former one."""
        of_sessions = self.sessions
        document = {
            "form": _FORM,
            "scope": self.scope,
            "after": self.after,
            "saved_at_us": now_us(),
            "rows": of_sessions.rows,
            "differences": of_sessions.differences,
            "count": of_sessions.count,
            "not_restored": of_sessions.not_restored,
            "unknown": [[*key, number] for key, number in of_sessions.unknown.items()],
            "differing": [
                [project, sorted(sessions)]
                for (unit, project), sessions in self.differing.parts.items()
                if unit == "session"
            ],
        }
        partial = path.with_suffix(".partial")
        partial.write_bytes(orjson.dumps(document))
        partial.replace(path)


def load_run_state(path: Path, scope: str) -> RunState | None:
    """Return the state of an interrupted run of the same scope, or None."""
    if not path.exists():
        return None
    document = orjson.loads(path.read_bytes())
    if document.get("form") != _FORM or document["scope"] != scope or not document["after"]:
        return None
    state = RunState(scope, UUID(document["after"]))
    of_sessions = state.sessions
    of_sessions.rows = Counter(document["rows"])
    of_sessions.differences, of_sessions.count = document["differences"], document["count"]
    of_sessions.not_restored = document["not_restored"]
    of_sessions.unknown = Counter({(a, b, c): number for a, b, c, number in document["unknown"]})
    state.differing.parts = {
        ("session", project and UUID(project)): {UUID(session) for session in sessions}
        for project, sessions in document["differing"]
    }
    rows = sum(of_sessions.rows.values())
    state.earlier = EarlierRun(UUID(document["after"]), document["saved_at_us"], rows)
    return state
