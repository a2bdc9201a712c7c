"""Waiting for people, for a fence, for a stop to be lifted; whoever waits looks up now and then."""

import time
from typing import TYPE_CHECKING

from gatebook_client.errors import LedgerAway, NoLeave, NotYet
from gatebook_client.values import Json

if TYPE_CHECKING:
    from gatebook_client.attempts import Holder

WAIT_S = 45  # how long one request waits for people, at most
PAUSE_S = 2.0  # between two looks at what has no end that could be waited for
LOOK_UP_S = 5.0


def for_leave(holder: "Holder", effect: Json, until: float | None) -> None:
    """Wait until people, or their clock, have said yes. Raises NoLeave when they say no, NotYet when time is over.

    Each request is answered as soon as the gate is newer than the version sent with it, so no moment is left in which a
    ruling could be missed. A gate that a person has stopped is waited for until the stop is lifted.
    """
    identity, version = effect["gate"]["id"], 0
    while True:
        holder.guard()
        wait_s = WAIT_S if until is None else max(0, min(WAIT_S, int(until - time.monotonic())))
        try:
            told = holder.wire.get(f"/gates/{identity}", timeout_s=wait_s + 10, wait=wait_s, since=version)
        except LedgerAway as away:
            raise away.about(f"{effect.get('tool') or 'The effect'} was not begun; it still waits for leave.") from away
        gate = told.body
        if gate["status"] == "approved" and not gate.get("held"):
            return
        if gate["status"] not in ("pending", "approved"):
            raise NoLeave(str(effect["id"]), str(gate["status"]), str(gate.get("message") or ""))
        version = gate["version"]
        if until is not None and time.monotonic() >= until:
            raise NotYet(f"People have not ruled on {effect.get('handle')} yet; nothing was begun.", str(effect["id"]))
        holder.wire.sleep(told.retry_after_s)


def pause(holder: "Holder", seconds: float, until: float | None, sentence: str, effect: str = "") -> None:
    """Sleep, looking up now and then. Raises NotYet with the sentence when the time given is over before."""
    if until is not None and time.monotonic() + seconds > until:
        raise NotYet(f"{sentence.rstrip('.')}. Nothing was begun; ask again later.", effect)
    while seconds > 0:
        holder.wire.sleep(min(seconds, LOOK_UP_S))
        seconds -= LOOK_UP_S
        holder.guard()


def seconds_until(until_us: int | None, now_us: int | None, otherwise: float) -> float:
    """How long until a moment of the server's clock, a little more rather than less."""
    if until_us is None:
        return otherwise
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    return max((until_us - now_us) / 1_000_000, 0.0) + 0.05


def message(holder: "Holder", effect: Json) -> str:
    """What people wrote with their no, where a gate holds it."""
    gate = effect.get("gate")
    if not isinstance(gate, dict):
        return ""
    return str(holder.wire.get(f"/gates/{gate['id']}").body.get("message") or "")
