"""Cache of tool declarations: each process keeps a project's for a few seconds."""

import threading
from time import monotonic
from typing import Final, NamedTuple
from uuid import UUID

from ledger.models import Tool
from ledger.states import (
    DEFAULT_DEADLINE_S,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_PROBES,
    DEFAULT_REQUEST_LIFETIME_S,
    TOOL_CLASSES,
)
from ledger.verdicts.table import PROBEABLE_CLASSES, ToolProperties

CACHE_S: Final = 5.0
_lock = threading.Lock()
_kept: dict[UUID, tuple[float, dict[str, "CachedDeclaration"]]] = {}


class CachedDeclaration(NamedTuple):
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
    def means(self) -> ToolProperties:
        """The inputs of verdicts; by default our key undoes a compensable tool."""
        return ToolProperties(
            tool_class=self.tool_class,
            request_lifetime_s=self.request_lifetime_s,
            key_window_s=self.key_window_s,
            probe=self.probe or self.tool_class in PROBEABLE_CLASSES,
            cancel_by=self.undo or ("key" if self.tool_class == "compensable" else ""),
            max_attempts=self.max_attempts,
            max_probes=self.max_probes,
        )

    @property
    def policy_tool_class(self) -> str:
        """The tool class as rules see it and effects store it."""
        return f"{self.tool_class}/{self.reversibility}"


UNDECLARED: Final = CachedDeclaration("opaque", DEFAULT_DEADLINE_S, "irreversible")


def load_tool(project: UUID, name: str) -> CachedDeclaration:
    """Return the declaration, at most five seconds old, or UNDECLARED."""
    now = monotonic()
    kept = _kept.get(project)
    if kept is None or now - kept[0] > CACHE_S:
        rows = Tool.objects.filter(project=project).values_list("name", *CachedDeclaration._fields)
        kept = (now, {name: CachedDeclaration(*columns) for name, *columns in rows})
        with _lock:
            _kept[project] = kept
    return kept[1].get(name, UNDECLARED)


def clear_tool_cache() -> None:
    """Clear the cache."""
    with _lock:
        _kept.clear()


def is_laxer_class(claimed: str, declared: str) -> bool:
    """True if a claimed class promises more about recovery than the declared one."""
    return TOOL_CLASSES.index(claimed) < TOOL_CLASSES.index(declared)
