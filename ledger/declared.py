"""What the operator declared of tools, read often: each process keeps a project's declarations for a few seconds."""

import threading
from time import monotonic
from typing import Final, NamedTuple
from uuid import UUID

from ledger.models import Tool
from ledger.states import DEFAULT_DEADLINE_S, TOOL_CLASSES

KEPT_S: Final = 5.0
_lock = threading.Lock()
_kept: dict[UUID, tuple[float, dict[str, "Declared"]]] = {}


class Declared(NamedTuple):
    """The declaration of one tool."""

    tool_class: str
    deadline_s: int
    reversibility: str

    @property
    def judged_as(self) -> str:
        """What rules see of it, as an effect keeps it: another declaration asks for another judgement."""
        return f"{self.tool_class}/{self.reversibility}"


UNDECLARED: Final = Declared("opaque", DEFAULT_DEADLINE_S, "irreversible")


def tool(project: UUID, name: str) -> Declared:
    """The declaration in force (at most five seconds old); an undeclared tool is opaque and mutating."""
    now = monotonic()
    kept = _kept.get(project)
    if kept is None or now - kept[0] > KEPT_S:
        rows = Tool.objects.filter(project=project).values_list("name", "tool_class", "deadline_s", "reversibility")
        kept = (now, {row[0]: Declared(row[1], row[2], row[3]) for row in rows})
        with _lock:
            _kept[project] = kept
    return kept[1].get(name, UNDECLARED)


def forget() -> None:
    """Read declarations anew at the next question."""
    with _lock:
        _kept.clear()


def is_laxer(claimed: str, declared: str) -> bool:
    """True when a claimed class promises more about recovery than the declared one: not to be believed."""
    return TOOL_CLASSES.index(claimed) < TOOL_CLASSES.index(declared)
