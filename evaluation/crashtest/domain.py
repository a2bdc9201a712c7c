"""What the agents are to do, and the words in which agent and substrate speak with each other."""

from dataclasses import dataclass
from typing import Any, Final, Protocol

LIFETIME_S: Final = 120  # how long a request may be under way
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
HARMLESS: Final = frozenset({"read_only", "idempotent"})  # done twice is as done once


@dataclass(frozen=True)
class Case:
    """One kind of work: a tool, how its remote behaves, and what is special about it."""

    name: str
    tool: str
    remote: str  # the class that the remote really has
    preconditions: bool = False
    away_s: int = 0  # how long nobody works after a crash

    @property
    def repeatable(self) -> bool:
        """Whether to ask for it again does no harm: it sets what is set, or the remote knows our
        key."""
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
UNDECIDABLE: Final = frozenset({"opaque", "undeclared"})  # the cases of which nobody can know


@dataclass(frozen=True)
class Step:
    """One effect that the work asks for. `name` is the business; `key` what it is called in the
    book."""

    name: str
    key: str
    case: Case

    def undone(self, attempt: int) -> "Step":
        """The effect that undoes an attempt of it."""
        return Step(
            self.name,
            f"{self.key}-undo-{attempt}",
            Case(self.case.name, "rig.cancel", "idempotent"),
        )


@dataclass(frozen=True)
class Verdict:
    """What may be done now. `view` is all that the substrate knows of the effect, for the checker."""

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
    """The word to act: which attempt this is, and the key to hand to the remote."""

    attempt: int
    remote_key: str


class Refused(Exception):
    """The substrate did not release the effect: look again."""


class Substrate(Protocol):
    """Where an agent keeps what it must not forget. One object is one process of the agent."""

    def open(self) -> None:
        """Begin, or take up what an earlier process left."""

    def safe(self) -> bool | None:
        """Whether it says that the work can go on without a person; None where it has no word for
        that."""

    def look(self, step: Step) -> Verdict:
        """What may be done with this step now; a step it has not heard of is written down where it
        writes ahead."""

    def release(self, step: Step, verdict: Verdict) -> Release:
        """Let the agent act. Raises Refused."""

    def settled(self, step: Step, release: Release, reference: str) -> None:
        """It happened."""

    def failed(self, step: Step, release: Release, reason: str) -> None:
        """`rejected`: it did not happen; `timeout`: nobody knows."""

    def probed(self, step: Step, verdict: Verdict, reference: str | None, began_us: int) -> None:
        """Somebody looked it up in the remote."""

    def undo(self, step: Step, undone: Step) -> Verdict:
        """Write down that `step` is to be undone, by `undone`; what may be done with that now."""

    def checkpoint(self, summary: dict[str, Any]) -> None:
        """Keep what helps the next process to begin."""
