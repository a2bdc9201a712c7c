"""Waiting for people, for the in-flight window and for the end of a stop.

Every wait checks at intervals whether the session is still active.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from gatebook_client.errors import NotYet, PermissionRefused, Refused, ServerUnavailable
from gatebook_client.types import Json

if TYPE_CHECKING:
    from gatebook_client.attempts import EffectSession

log = logging.getLogger("gatebook_client")
WAIT_S = 45  # maximum duration of one long poll
PAUSE_S = 2.0  # between two checks of a state without a long poll
CHECK_EVERY_S = 5.0
OF_PEOPLE = ("people", "stop")  # the reasons of NotYet that only a person ends
# Reasons of verdicts that wait, as reasons of NotYet; for all others: the in-flight window.
REASON_OF_VERDICT = {
    "GATE_PENDING": "people",
    "STOPPED": "stop",
    "LEASE_HELD": "lease",
    "PROBE_FAILED": "probe",
}


@dataclass(frozen=True)
class Limits:
    """Until when to wait for people, and for what ends by itself; None: without a limit.

    Monotonic times.
    """

    people: float | None = None
    windows: float | None = None

    @classmethod
    def from_now(
        cls, wait_s: float | None, people_s: float | None = None, windows_s: float | None = None
    ) -> "Limits":
        """Return the limits of a wait that begins now; `wait_s` is the default of both others."""

        def until(seconds: float | None) -> float | None:
            seconds = wait_s if seconds is None else seconds
            return None if seconds is None else time.monotonic() + seconds

        return cls(until(people_s), until(windows_s))

    def of(self, reason: str) -> float | None:
        """Return the limit for a reason of NotYet."""
        return self.people if reason in OF_PEOPLE else self.windows


def describe_wait(reason: str, answer: Json) -> str:
    """Return the sentence for a call of `on_wait`, such as "waiting for approval of e_5: http://…"."""
    if reason == "gate":
        page = answer.get("gate_url")
        sentence = f"waiting for approval of {answer.get('handle')} ({answer.get('tool')})"
        return f"{sentence}: {page}" if page else sentence
    if reason == "same_call":
        named = ", ".join(
            f"{effect['handle']} in {effect['session_key']}" for effect in answer["same_calls"]
        )
        return f"the same call may have happened already: {named}; its outcome is unknown"
    if reason == "left_open":
        handles = ", ".join(str(effect.get("handle")) for effect in answer["effects"])
        return f"session {answer['session_key']} is left open because of {handles}"
    return f"waiting: {answer.get('detail') or answer.get('reason') or reason}"


def log_wait(reason: str, answer: Json) -> None:
    """Log a wait: the default of `on_wait`.

    What people must do is a warning, which Python shows without any configuration of logging.
    """
    if reason == "verdict":
        reason = REASON_OF_VERDICT.get(str(answer.get("reason")), reason)
    needs_people = reason in ("gate", "same_call", *OF_PEOPLE)
    level = logging.WARNING if needs_people else logging.INFO
    log.log(level, "gatebook: %s", describe_wait(reason, answer))


def build_gate_url(session: "EffectSession", gate: Json) -> str:
    """Return the address of the page of a gate, or "" when the server did not name it."""
    page = gate.get("page")
    return f"{session.http.url}{page}" if page else ""


def report_gate(
    session: "EffectSession", effect: Json, on_wait: Callable[[str, Json], object]
) -> None:
    """Call `on_wait` before a wait for approval, with the effect and the address of the page."""
    on_wait("gate", effect | {"gate_url": build_gate_url(session, effect["gate"])})


async def wait_for_permission(session: "EffectSession", effect: Json, limits: Limits) -> None:
    """Wait until the gate of an effect is approved.

    Raises PermissionRefused if it is not, NotYet at the limit for people. Each request is answered
    as soon as the gate is newer than the version sent with it, so no ruling is missed. A gate under
    a stop is waited for until the stop is lifted.
    """
    identity, version, until = effect["gate"]["id"], 0, limits.people
    while True:
        await session.check_active()
        remaining_s = WAIT_S if until is None else max(0.0, until - time.monotonic())
        wait_s = int(min(WAIT_S, remaining_s))
        try:
            response = await session.http.get(
                f"/gates/{identity}", timeout_s=wait_s + 10, wait=wait_s, since=version
            )
        except ServerUnavailable as error:
            raise error.with_consequence(
                f"{effect.get('tool') or 'The effect'} was not begun; it waits for permission."
            ) from error
        gate = response.body
        if gate["status"] == "approved" and not gate.get("stopped"):
            return
        if gate.get("reason") == "undone":  # the reviewer took the answer back: wait for the next
            again = (await session.http.get(f"/effects/{effect['id']}")).body.get("gate") or {}
            if again.get("id", identity) != identity:
                identity, version = again["id"], 0
                continue
        if gate["status"] not in ("pending", "approved"):
            raise build_permission_error(str(effect["id"]), gate)
        version = gate["version"]
        if until is not None and time.monotonic() >= until:
            raise build_not_yet(session, effect, gate)
        await session.http.sleep(response.retry_after_s)


def build_permission_error(effect: str, gate: Json) -> PermissionRefused:
    """Build the error for a gate that was not approved."""
    return PermissionRefused(
        effect,
        str(gate.get("status") or "refused"),
        str(gate.get("message") or ""),
        list_comments(gate),
    )


def list_comments(gate: Json) -> tuple[str, ...]:
    """Return what people wrote on a request, oldest first."""
    return tuple(str(comment["text"]) for comment in gate.get("comments") or ())


def build_not_yet(session: "EffectSession", effect: Json, gate: Json) -> NotYet:
    """Build the error for a gate that is not approved, or under a stop."""
    stopped = bool(gate.get("stopped"))
    sentence = "is under a stop" if stopped else "is not approved yet"
    return NotYet(
        f"{effect.get('handle') or effect.get('tool')} {sentence}; nothing was begun.",
        str(effect["id"]),
        reason="stop" if stopped else "people",
        until_us=None if stopped else gate.get("decide_by_us"),
        gate=str(gate["id"]),
        gate_url=build_gate_url(session, gate),
        comments=list_comments(gate),
    )


async def sleep_or_raise(
    session: "EffectSession",
    seconds: float,
    limits: Limits,
    sentence: str,
    effect: str = "",
    *,
    reason: str,
    until_us: int | None = None,
) -> None:
    """Sleep, and check at intervals that the session is active.

    Raises NotYet with the sentence if the sleep would pass the limit for `reason`.
    """
    until = limits.of(reason)
    if until is not None and time.monotonic() + seconds > until:
        sentence = f"{sentence.rstrip('.')}. Nothing was begun; try again later."
        raise NotYet(sentence, effect, reason=reason, until_us=until_us)
    while seconds > 0:
        await session.http.sleep(min(seconds, CHECK_EVERY_S))
        seconds -= CHECK_EVERY_S
        await session.check_active()


def get_pause_reason(refusal: Refused) -> str:
    """Return the reason of NotYet for a refusal that ends, or "" for any other."""
    if refusal.code == "STOPPED":
        return "stop"
    if refusal.status == 429:
        return "breaker" if refusal.code == "BREAKER_OPEN" else "pace"
    return ""


def seconds_until(until_us: int | None, now_us: int | None, otherwise: float) -> float:
    """Return how long until a moment of the server's clock, rounded up slightly."""
    if until_us is None:
        return otherwise
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    return max((until_us - now_us) / 1_000_000, 0.0) + 0.05
