"""Waiting for people, for the in-flight window and for the end of a stop.

Every wait checks at intervals whether the session is still active.
"""

import time
from typing import TYPE_CHECKING

from gatebook_client.errors import PermissionRefused, ServerUnavailable, WaitTimeout
from gatebook_client.types import Json

if TYPE_CHECKING:
    from gatebook_client.attempts import EffectSession

WAIT_S = 45  # maximum duration of one long poll
PAUSE_S = 2.0  # between two checks of a state without a long poll
CHECK_EVERY_S = 5.0


def wait_for_permission(session: "EffectSession", effect: Json, until: float | None) -> None:
    """Wait until the gate of an effect is approved.

    Raises PermissionRefused if it is not, WaitTimeout at the time `until`. Each request is
    answered as soon as the gate is newer than the version sent with it, so no ruling is missed. A
    gate under a stop is waited for until the stop is lifted.
    """
    identity, version = effect["gate"]["id"], 0
    while True:
        session.check_active()
        wait_s = WAIT_S if until is None else max(0, min(WAIT_S, int(until - time.monotonic())))
        try:
            response = session.http.get(
                f"/gates/{identity}", timeout_s=wait_s + 10, wait=wait_s, since=version
            )
        except ServerUnavailable as error:
            raise error.with_consequence(
                f"{effect.get('tool') or 'The effect'} was not begun; it waits for permission."
            ) from error
        gate = response.body
        if gate["status"] == "approved" and not gate.get("stopped"):
            return
        if gate["status"] not in ("pending", "approved"):
            raise PermissionRefused(
                str(effect["id"]), str(gate["status"]), str(gate.get("message") or "")
            )
        version = gate["version"]
        if until is not None and time.monotonic() >= until:
            raise WaitTimeout(
                f"{effect.get('handle')} is not approved yet; nothing was begun.",
                str(effect["id"]),
            )
        session.http.sleep(response.retry_after_s)


def sleep_or_raise(
    session: "EffectSession", seconds: float, until: float | None, sentence: str, effect: str = ""
) -> None:
    """Sleep, and check at intervals that the session is active.

    Raises WaitTimeout with the sentence if the sleep would pass `until`.
    """
    if until is not None and time.monotonic() + seconds > until:
        raise WaitTimeout(f"{sentence.rstrip('.')}. Nothing was begun; try again later.", effect)
    while seconds > 0:
        session.http.sleep(min(seconds, CHECK_EVERY_S))
        seconds -= CHECK_EVERY_S
        session.check_active()


def seconds_until(until_us: int | None, now_us: int | None, otherwise: float) -> float:
    """Return how long until a moment of the server's clock, rounded up slightly."""
    if until_us is None:
        return otherwise
    now_us = time.time_ns() // 1000 if now_us is None else now_us
    return max((until_us - now_us) / 1_000_000, 0.0) + 0.05
