"""Where an interrupted check stopped: a file that the next run goes on from."""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import orjson

from rebuild.checking import BatchResult, DifferingBatches, difference_to_json
from rebuild.row_comparison import NOT_RESTORED

_FORM: Final = 2  # of the file. A run begins again where another version wrote another form
MAX_KEPT_DIFFERENCES: Final = 1_000  # differences that are listed; all are counted


@dataclass(slots=True)
class RunState:
    """What a run has done so far. `scope` names project and tables, which must not change."""

    scope: str
    after: UUID | None = None
    rows: Counter[str] = field(default_factory=Counter)
    differences: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0
    not_restored: int = 0  # differences of a kind that no run restores
    unknown: Counter[tuple[str, str, str]] = field(default_factory=Counter)
    differing: DifferingBatches = field(default_factory=DifferingBatches)

    def add(self, result: BatchResult) -> None:
        """Add the result of a batch."""
        self.rows += result.rows
        self.count += len(result.differences)
        kinds = [difference.kind for difference in result.differences]
        self.not_restored += sum(kind in NOT_RESTORED for kind in kinds)
        room = MAX_KEPT_DIFFERENCES - len(self.differences)
        self.differences += map(difference_to_json, result.differences[:room])
        self.unknown += result.unknown
        self.differing.add(result)
        self.after = result.last or self.after

    def write_file(self, path: Path) -> None:
        """Write the file, replacing the former one."""
        document = {
            "form": _FORM,
            "scope": self.scope,
            "after": self.after,
            "rows": self.rows,
            "differences": self.differences,
            "count": self.count,
            "not_restored": self.not_restored,
            "unknown": [[*key, number] for key, number in self.unknown.items()],
            "differing": [
                [unit, project, sorted(sessions)]
                for (unit, project), sessions in self.differing.parts.items()
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
    if document.get("form") != _FORM or document["scope"] != scope:
        return None
    state = RunState(
        scope, document["after"] and UUID(document["after"]), Counter(document["rows"])
    )
    state.differences, state.count = document["differences"], document["count"]
    state.not_restored = document["not_restored"]
    state.unknown = Counter({(a, b, c): number for a, b, c, number in document["unknown"]})
    state.differing.parts = {
        (unit, project and UUID(project)): {UUID(session) for session in sessions}
        for unit, project, sessions in document["differing"]
    }
    return state
