"""What can go wrong, each with a sentence that says what was done and what was not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gatebook_client.values import Performed, Verdict


class GatebookError(Exception):
    """Whatever this package raises, but `Rejected`, which is yours to raise."""


class LedgerAway(GatebookError):
    """Gatebook did not answer for as long as we had patience, or answered that it cannot take anything.

    `reason` is what the last try met. `undone` says what was therefore not done, `acted` is true only when the act
    itself had happened and just the report of it is missing; it is sent again by the session's next call.
    """

    def __init__(self, reason: str, undone: str = "", *, acted: bool = False) -> None:
        super().__init__(f"{reason} {undone}".strip())
        self.reason = reason
        self.undone = undone
        self.acted = acted

    def about(self, undone: str) -> LedgerAway:
        """The same, with a sentence on what was not done because of it."""
        return LedgerAway(self.reason, undone, acted=self.acted)


class Refused(GatebookError):
    """Gatebook answered no. `code` is its stable word, `problem` its whole answer."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        self.code = str(problem.get("code") or "refused")
        self.reason = str(problem.get("reason") or "")
        self.sentence = str(problem.get("detail") or problem.get("title") or "Refused").rstrip(".")
        where = f" at {problem['pointer']}" if problem.get("pointer") else ""
        super().__init__(f"{self.sentence} ({self.code}{where}, HTTP {status})")


class NoLeave(GatebookError):
    """People, their clock, the policy or the table of verdicts said no; nothing was begun.

    `effect` is its id, `status` the word for it, `message` what a person wrote.
    """

    def __init__(self, effect: str, status: str, message: str = "") -> None:
        sentence = WHY_NOT.get(status, f"there is no leave ({status})")
        super().__init__(f"{sentence}: “{message}”" if message else sentence)
        self.effect = effect
        self.status = status
        self.message = message


WHY_NOT = {
    "refused": "the policy refuses it",
    "denied": "denied",
    "denied_final": "denied for the rest of this session",
    "returned": "sent back",
    "expired": "nobody answered in time, and that is a no",
    "lapsed": "approved, and not begun before the leave ran out",
    "revoked": "the leave was taken back before it was used",
    "cancelled": "the request was withdrawn",
    "requirement_changed": "the policy asks for more now than when it was approved",
    "quorum_lost": "of those who approved it, too few may still rule",
    "superseded": "it was withdrawn; plan it under another key if it is wanted again",
    "attempts_spent": "it was rejected as often as it may be tried",
}


class NeedsPerson(GatebookError):
    """Nobody but a person can say what happened to an effect; it was not done again. `verdict` says why."""

    def __init__(self, verdict: Verdict, because: str = "") -> None:
        sentence = because or verdict.sentence or "Nobody can know whether it happened; a person decides."
        super().__init__(f"{verdict.handle or verdict.effect}: {sentence}")
        self.verdict = verdict
        self.effect = verdict.effect


class NotYet(GatebookError):
    """What was waited for did not come within the time given; nothing was begun. Ask again later."""

    def __init__(self, sentence: str, effect: str = "") -> None:
        super().__init__(sentence)
        self.effect = effect


class LeaseHeld(GatebookError):
    """Another process holds the lease of the session and is alive. `lease` is what Gatebook says of it."""

    def __init__(self, lease: dict[str, Any]) -> None:
        super().__init__(
            f"Another process holds this session until {lease.get('expires_at_us')} (µs); nothing was done."
        )
        self.lease = lease


class LeaseLost(GatebookError):
    """The lease of the session is another's now; this process must stop. `performed` is what it had just done."""

    def __init__(self, sentence: str = "", performed: Performed | None = None) -> None:
        super().__init__(sentence or "The lease of this session was lost; nothing was begun. Stop here.")
        self.performed = performed


class SessionEnded(GatebookError):
    """The session has ended and takes no new intentions; nothing was begun. `status` is how it ended, where known.

    What it did can still be read: `perform` returns what is done under its name, as ever.
    """

    def __init__(self, status: str = "") -> None:
        how = f" ({status})" if status else ""
        super().__init__(f"This session has ended{how}; nothing was begun. Open one under another key.")
        self.status = status


class OpenWork(UserWarning):
    """A session was left open at the end of its `with`, because effects of it are not over."""


class Forked(GatebookError):
    """The session was opened before a fork. A child has no lease and no name of its own: it opens its own session."""

    def __init__(self) -> None:
        super().__init__("This session was opened before a fork; open one of its own in the child.")


class Closed(GatebookError):
    """The session object was left; open the session again."""

    def __init__(self) -> None:
        super().__init__("This session was left; open it again.")


class Rejected(Exception):
    """Raise it in an act when the other side said no and nothing happened; the text is what it said."""
