"""Cache of tool declarations: each process keeps a project's for a few seconds."""

import threading
from collections.abc import Mapping, Sequence
from time import monotonic
from types import MappingProxyType
from typing import Any, Final, NamedTuple
from uuid import UUID

from ledger.models import Tool
from ledger.states import (
    DEFAULT_DEADLINE_S,
    DEFAULT_MAX_ATTEMPTS,
    DEFAULT_MAX_PROBES,
    DEFAULT_REQUEST_LIFETIME_S,
    REVERSIBILITIES,
    TOOL_CLASSES,
)
from ledger.tools.raises import (
    NOTHING_RAISED,
    RaiseCondition,
    RaisedSeverity,
    compile_raises,
    evaluate_raises,
)
from ledger.verdicts.table import PROBEABLE_CLASSES, ToolProperties

CACHE_S: Final = 5.0
_lock = threading.Lock()
_kept: dict[UUID, tuple[float, dict[str, "CachedDeclaration"]]] = {}


class CachedDeclaration(NamedTuple):
    """The declaration of a tool, or with `raised` that of one call of it."""

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
    telling: Sequence[str] = ()
    fields: Mapping[str, str] = MappingProxyType({})
    raises: tuple[RaiseCondition, ...] = ()
    shell: Sequence[str] = ()  # usage lines of the shell commands that are its calls
    raised: RaisedSeverity = NOTHING_RAISED  # what the arguments of the call raised

    def raise_by_arguments(self, arguments: Any) -> "CachedDeclaration":
        """Return the declaration of a call with these arguments; None if they are not known.

        Only raises: the worse of the declared and the raised word counts.
        """
        if not self.raises:
            return self
        return apply_raised(self, evaluate_raises(self.raises, arguments))

    @property
    def raises_class(self) -> bool:
        """True if arguments can raise the class, which decides what a crash may safely do."""
        return any(key == "class" for condition in self.raises for key, _ in condition.words)

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
_COLUMNS: Final = tuple(name for name in CachedDeclaration._fields if name != "raised")


def apply_raised(declaration: CachedDeclaration, raised: RaisedSeverity) -> CachedDeclaration:
    """Return the declaration of a call whose arguments raised `raised`."""
    if raised is NOTHING_RAISED:
        return declaration
    values: dict[str, Any] = {"raised": raised}
    if raised.reversibility:
        values["reversibility"] = max(
            declaration.reversibility, raised.reversibility, key=REVERSIBILITIES.index
        )
    if raised.tool_class and is_laxer_class(declaration.tool_class, raised.tool_class):
        values["tool_class"] = raised.tool_class
        if raised.tool_class == "opaque":  # neither a probe nor an undo: a person decides
            values |= {"probe": False, "undo": "", "key_window_s": 0}
    return declaration._replace(**values)


def load_tool(project: UUID, name: str) -> CachedDeclaration:
    """Return the declaration, at most five seconds old, or UNDECLARED."""
    return load_tools(project).get(name, UNDECLARED)


def load_tools(project: UUID) -> Mapping[str, CachedDeclaration]:
    """Return all declarations of a project by name, at most five seconds old."""
    now = monotonic()
    kept = _kept.get(project)
    if kept is None or now - kept[0] > CACHE_S:
        rows = Tool.objects.filter(project=project).values_list("name", *_COLUMNS)
        kept = (now, {name: _compile_columns(columns) for name, *columns in rows})
        with _lock:
            _kept[project] = kept
    return kept[1]


def build_declaration(tool: Tool) -> CachedDeclaration:
    """Return the declaration in a row that was just read."""
    return _compile_columns([getattr(tool, name) for name in _COLUMNS])


def _compile_columns(columns: Sequence[Any]) -> CachedDeclaration:
    declaration = CachedDeclaration(*columns)
    return declaration._replace(raises=compile_raises(declaration.raises))  # type: ignore[arg-type]  # as stored


def clear_tool_cache() -> None:
    """Clear the cache."""
    with _lock:
        _kept.clear()


def is_laxer_class(claimed: str, declared: str) -> bool:
    """True if a claimed class promises more about recovery than the declared one."""
    return TOOL_CLASSES.index(claimed) < TOOL_CLASSES.index(declared)
