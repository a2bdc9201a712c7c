"""Errors of the client. Each message states what was done and what was not."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from gatebook_client.types import EffectResult, Verdict


class GatebookError(Exception):
    """Base class of all errors of this package except `Rejected`, which your act raises."""


class ServerUnavailable(GatebookError):
    """Gatebook did not answer within `patience_s`, or cannot accept requests.

    `reason` is the failure of the last try. `undone` states what was therefore not done. `acted`
    is true only if the act itself happened and just its report is missing; the session's next call
    sends it.
    """

    def __init__(self, reason: str, undone: str = "", *, acted: bool = False) -> None:
        super().__init__(f"{reason} {undone}".strip())
        self.reason = reason
        self.undone = undone
        self.acted = acted

    def with_consequence(self, undone: str) -> ServerUnavailable:
        """Return the same error with a sentence that states what was not done."""
        return ServerUnavailable(self.reason, undone, acted=self.acted)


class Refused(GatebookError):
    """Gatebook refused the request. `code` is the stable code, `problem` the whole answer."""

    def __init__(self, status: int, problem: dict[str, Any]) -> None:
        self.status = status
        self.problem = problem
        self.code = str(problem.get("code") or "refused")
        self.reason = str(problem.get("reason") or "")
        self.sentence = str(problem.get("detail") or problem.get("title") or "Refused").rstrip(".")
        # When to ask again, on this machine's clock.
        pause_s = float(problem.get("retry_after_s") or 0)
        self.retry_at_us = int((time.time() + pause_s) * 1_000_000) if pause_s else None
        where = f" at {problem['pointer']}" if problem.get("pointer") else ""
        super().__init__(f"{self.sentence} ({self.code}{where}, HTTP {status})")


class PermissionRefused(GatebookError):
    """People, a deadline, the policy or the verdict table refused; nothing was begun.

    `effect` is its id, `status` the kind of refusal, `message` what a person wrote with the answer,
    `comments` what people wrote on the request before.
    """

    def __init__(
        self, effect: str, status: str, message: str = "", comments: tuple[str, ...] = ()
    ) -> None:
        sentence = REFUSAL_SENTENCES.get(status, f"permission was refused ({status})")
        super().__init__(f"{sentence}: “{message}”" if message else sentence)
        self.effect = effect
        self.status = status
        self.message = message
        self.comments = comments


REFUSAL_SENTENCES = {
    "refused": "the policy refuses it",
    "denied": "denied",
    "denied_session": "denied for the rest of this session",
    "changes_requested": "changes were requested",
    "expired": "the approval request expired",
    "expired_unused": "approved, but the permission expired before it was used",
    "revoked": "the permission was revoked before it was used",
    "cancelled": "the request was withdrawn",
    "requirement_changed": "the policy has become stricter since the approval",
    "quorum_lost": "not enough of its approvers may still vote",
    "superseded": "it was withdrawn; plan it under another key to perform it again",
    "attempts_spent": "all its attempts are used up",
}


class HumanDecisionRequired(GatebookError):
    """A person must state what happened to an effect; it was not repeated.

    `verdict` gives the reason.
    """

    def __init__(self, verdict: Verdict, because: str = "") -> None:
        sentence = (
            because
            or verdict.sentence
            or "It is unknown whether it happened; a person must decide."
        )
        super().__init__(f"{verdict.handle or verdict.effect}: {sentence}")
        self.verdict = verdict
        self.effect = verdict.effect


class WaitTimeout(GatebookError):
    """The wait took longer than allowed; nothing was begun. Try again later."""

    def __init__(self, sentence: str, effect: str = "") -> None:
        super().__init__(sentence)
        self.effect = effect


class NotYet(WaitTimeout):
    """Permission is not there yet, or an earlier request may still be under way; nothing was begun.

    `reason` says what is waited for: `people` (a gate), `stop`, `in_flight_window`, `pace`,
    `breaker`, `lease`, `probe`. `until_us` is when that ends at the latest, on the server's clock,
    if it is known: for `people` the gate expires then. `gate` is the id of the gate, `gate_url` its
    page, `effect` the id of the effect, if there is one. `comments` are what people wrote on it.
    """

    def __init__(
        self,
        sentence: str,
        effect: str = "",
        *,
        reason: str,
        until_us: int | None = None,
        gate: str = "",
        gate_url: str = "",
        comments: tuple[str, ...] = (),
    ) -> None:
        super().__init__(sentence, effect)
        self.reason = reason
        self.until_us = until_us
        self.gate = gate
        self.gate_url = gate_url
        self.comments = comments


class LeaseHeld(GatebookError):
    """Another live process has the lease of the session.

    `lease` is the lease as Gatebook returns it.
    """

    def __init__(self, lease: dict[str, Any]) -> None:
        super().__init__(
            "Another process has the lease of this session until "
            f"{lease.get('expires_at_us')} (µs); nothing was done. "
            "Wait for its end, or pass takeover=True if that process is dead."
        )
        self.lease = lease


class LeaseLost(GatebookError):
    """Another process has the lease of the session; this process must stop.

    `performed` is the effect that this process had just performed, if any.
    """

    def __init__(self, sentence: str = "", performed: EffectResult | None = None) -> None:
        super().__init__(sentence or "The lease of this session was lost; nothing was begun. Stop.")
        self.performed = performed


class SessionEnded(GatebookError):
    """The session has ended and accepts no new effects; nothing was begun.

    `status` is how it ended, if known. Recorded results are still readable: `perform` returns the
    result recorded under the effect's key.
    """

    def __init__(self, status: str = "") -> None:
        how = f" ({status})" if status else ""
        super().__init__(
            f"This session has ended{how}; nothing was begun. Open a session under another key."
        )
        self.status = status


class OpenWork(UserWarning):
    """A `with` block left its session open because effects of it are open."""


class ForkError(GatebookError):
    """The session was opened before a fork.

    A child process has no lease and must open its own session.
    """

    def __init__(self) -> None:
        super().__init__("This session was opened before a fork. Open a session in the child.")


class SessionClosed(GatebookError):
    """The session object was closed; open the session again."""

    def __init__(self) -> None:
        super().__init__("This session object is closed. Open the session again.")


class Rejected(Exception):
    """Raise it in an act if the remote refused and nothing happened; the text is its reason."""
