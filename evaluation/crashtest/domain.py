"""The domain: cases, steps, verdicts, and the protocol between agent and substrate."""

from dataclasses import dataclass
from typing import Any, Final, Protocol

LIFETIME_S: Final = 120  # how long a request may be in flight
WINDOW_S: Final = 600  # how long a remote knows our key
DECLARED: Final[dict[str, dict[str, Any]]] = {
    "rig.read": {"class": "read_only"},
    "rig.put": {"class": "idempotent", "reversibility": "reversible"},
    "rig.pay": {"class": "idempotency_key", "key_window_s": WINDOW_S, "probe": True},
    "rig.commit": {"class": "transactional", "reversibility": "reversible"},
    "rig.push": {"class": "probeable"},
    "rig.gated": {"class": "probeable", "reversibility": "reversible"},
    "rig.book": {"class": "compensable", "undo": "key", "reversibility": "compensable"},
    "rig.order": {"class": "compensable", "undo": "reference", "reversibility": "compensable"},
    "rig.shell": {"class": "opaque"},
    "rig.cancel": {"class": "idempotent", "reversibility": "reversible"},
}
HARMLESS: Final = frozenset({"read_only", "idempotent"})  # repetition is harmless


@dataclass(frozen=True)
class Case:
    """One kind of work: a tool, how its remote behaves, and what is special about it."""

    name: str
    tool: str
    remote: str  # the class that the remote really has
    preconditions: bool = False
    away_s: int = 0  # seconds without a process after a crash

    @property
    def repeatable(self) -> bool:
        """Whether a repetition is harmless: the tool is idempotent, or the remote knows our key."""
        return self.remote in HARMLESS or (self.remote == "idempotency_key" and not self.away_s)


CASES: Final = (
    Case("read_only", "rig.read", "read_only"),
    Case("idempotent", "rig.put", "idempotent"),
    Case("idempotent, conditional", "rig.put", "idempotent", preconditions=True),
    Case("idempotency_key", "rig.pay", "idempotency_key"),
    Case("idempotency_key, window passed", "rig.pay", "idempotency_key", away_s=2 * WINDOW_S),
    Case("transactional", "rig.commit", "transactional"),
    Case("probeable", "rig.push", "probeable"),
    Case("probeable, with permission", "rig.gated", "probeable"),
    Case("compensable by key", "rig.book", "compensable"),
    Case("compensable by reference", "rig.order", "compensable"),
    Case("opaque", "rig.shell", "opaque"),
    Case("undeclared", "rig.unheard_of", "opaque"),
)
UNDECIDABLE: Final = frozenset({"opaque", "undeclared"})  # cases whose outcome cannot be determined


@dataclass(frozen=True)
class Step:
    """One effect of the work. `name` is the remote's name for it; `key` is its effect key."""

    name: str
    key: str
    case: Case

    def make_compensation(self, attempt: int) -> "Step":
        """Return the step that compensates an attempt."""
        return Step(
            self.name,
            f"{self.key}-undo-{attempt}",
            Case(self.case.name, "rig.cancel", "idempotent"),
        )


@dataclass(frozen=True)
class Verdict:
    """What the agent may do now. `view` is all that the substrate knows of the effect."""

    answer: str
    reason: str
    row: str = ""
    until_us: int | None = None
    attempt: int = 0
    remote_key: str = ""
    needs_permission: bool = False
    view: str = ""


@dataclass(frozen=True)
class Release:
    """Permission to act: the attempt number and the key for the remote."""

    attempt: int
    remote_key: str


class Refused(Exception):
    """The substrate refused the dispatch: get a new verdict."""


class Substrate(Protocol):
    """Storage of an agent's state. One object is one process of the agent."""

    def open(self) -> None:
        """Open the session, new or left by an earlier process."""

    def can_resume(self) -> bool | None:
        """Whether the work can resume without a person; None if the substrate cannot tell."""

    def get_verdict(self, step: Step) -> Verdict:
        """Return what the agent may do with the step; write-ahead substrates store a new step first."""

    def dispatch(self, step: Step, verdict: Verdict) -> Release:
        """Return the permission to act. Raises Refused."""

    def report_success(self, step: Step, release: Release, reference: str) -> None:
        """Store that the step happened."""

    def report_failure(self, step: Step, release: Release, reason: str) -> None:
        """Store a failure: `rejected` did not happen; `timeout` has an unknown outcome."""

    def report_probe(
        self, step: Step, verdict: Verdict, reference: str | None, began_us: int
    ) -> None:
        """Store the result of a probe of the remote."""

    def compensate(self, step: Step, undone: Step) -> Verdict:
        """Plan `undone` as compensation of `step`; return what the agent may do with it."""

    def checkpoint(self, summary: dict[str, Any]) -> None:
        """Store a summary for the next process."""
