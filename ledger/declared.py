"""Cache of tool declarations: each process keeps a project's for a few seconds."""

import threading
from time import monotonic
from typing import Final, NamedTuple
from uuid import UUID

from ledger.models_tools import Tool
from ledger.states import (
    DEFAULT_DEADLINE_S,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_PROBES,
    DEFAULT_REQUEST_LIFETIME_S,
    TOOL_CLASSES,
)
from ledger.verdicts import CAN_BE_LOOKED_UP, Means

KEPT_S: Final = 5.0
_lock = threading.Lock()
_kept: dict[UUID, tuple[float, dict[str, "Declared"]]] = {}


class Declared(NamedTuple):
    """The declaration of a tool."""

    tool_class: str
    deadline_s: int
    reversibility: str
    breaker_failures: int | None = None
    breaker_pause_s: int | None = None
    request_lifetime_s: int = DEFAULT_REQUEST_LIFETIME_S
    key_window_s: int = 0
    probe: bool = False
    undo: str = ""
    max_attempts: int = DEFAULT_MAX_ATTEMPTS
    max_probes: int = DEFAULT_MAX_PROBES

    @property
    def means(self) -> Means:
        """The inputs of verdicts; by default our key undoes a compensable tool."""
        return Means(
            tool_class=self.tool_class,
            request_lifetime_s=self.request_lifetime_s,
            key_window_s=self.key_window_s,
            probe=self.probe or self.tool_class in CAN_BE_LOOKED_UP,
            cancel_by=self.undo or ("key" if self.tool_class == "compensable" else ""),
            max_attempts=self.max_attempts,
            max_probes=self.max_probes,
        )

    @property
    def judged_as(self) -> str:
        """The tool class as rules see it and effects store it."""
        return f"{self.tool_class}/{self.reversibility}"


UNDECLARED: Final = Declared("opaque", DEFAULT_DEADLINE_S, "irreversible")


def tool(project: UUID, name: str) -> Declared:
    """Return the declaration, at most five seconds old, or UNDECLARED."""
    now = monotonic()
    kept = _kept.get(project)
    if kept is None or now - kept[0] > KEPT_S:
        rows = Tool.objects.filter(project=project).values_list("name", *Declared._fields)
        kept = (now, {name: Declared(*columns) for name, *columns in rows})
        with _lock:
            _kept[project] = kept
    return kept[1].get(name, UNDECLARED)


def forget() -> None:
    """Clear the cache."""
    with _lock:
        _kept.clear()


def is_laxer(claimed: str, declared: str) -> bool:
    """True if a claimed class promises more about recovery than the declared one."""
    return TOOL_CLASSES.index(claimed) < TOOL_CLASSES.index(declared)
