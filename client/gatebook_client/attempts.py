"""Attempts of effects: dispatch, run the act, report the outcome.

No act runs before Gatebook has answered the dispatch with a 2xx.
"""

import asyncio
import subprocess
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Any, NoReturn, Protocol

import httpx

from gatebook_client import waiting
from gatebook_client.effect_keys import new_key
from gatebook_client.errors import (
    GatebookError,
    LeaseLost,
    PermissionRefused,
    Refused,
    Rejected,
    ServerUnavailable,
    SessionEnded,
    WaitTimeout,
)
from gatebook_client.http import AsyncHttpClient, Response
from gatebook_client.lease import Lease
from gatebook_client.types import (
    ENDED,
    Act,
    AttemptInfo,
    EffectResult,
    Json,
    Probe,
    Result,
    Undo,
    Verdict,
    to_sendable_json,
)
from gatebook_client.waiting import Limits

TIMEOUTS = (TimeoutError, subprocess.TimeoutExpired, httpx.TimeoutException)
_REPLAN_CODES = ("GATE_PENDING", "GATE_GONE", "NO_PERMISSION", "ALREADY_DISPATCHED", "key_reuse")
REFUSED_REASONS = (
    "denied",
    "denied_session",
    "expired",
    "changes_requested",
    "revoked",
    "cancelled",
    "by_agent",
)
MAX_DISPATCH_AGE_S = 60.0  # counted from the request; a lease with a shorter ttl is stricter
_DETAIL_CHARS = 4_000  # of an error message


class EffectSession(Protocol):
    """What attempts and effects need of their session."""

    id: str
    process: str
    status: str
    http: AsyncHttpClient
    lease: Lease | None

    async def check_active(self) -> None:
        """Raise unless this process may still begin an effect."""


@dataclass
class EffectRequest:
    """One effect to perform.

    `plan` is the request body of the plan, without the session.
    """

    tool: str
    arguments: Any
    act: Act
    plan: Json
    probe: Probe | None = None
    undo: Undo | None = None
    compensates: str = ""
    limits: Limits = field(default_factory=Limits)
    on_wait: Callable[[str, Json], object] = lambda _reason, _answer: None
    on_dispatch: Callable[[Json, float], object] = lambda _answer, _sent_at: None
    # Effects of other sessions with the same call, already passed to `on_wait`.
    reported_calls: set[object] = field(default_factory=set)

    @property
    def name(self) -> str:
        """Name of the effect in messages."""
        return f"{self.tool} ({self.plan.get('effect_key') or self.plan.get('call_id')})"

    def attempt_info(self, verdict: Verdict) -> AttemptInfo:
        """Return the attempt that a verdict is about."""
        effect = verdict.effect_json
        return AttemptInfo(
            verdict.effect,
            verdict.handle,
            str(effect.get("effect_key") or ""),
            self.tool,
            self.arguments,
            verdict.attempt,
            verdict.remote_key,
            str(effect.get("external_reference") or ""),
        )


@dataclass
class Attempts:
    """Makes the attempts of one session."""

    session: EffectSession
    # Key and body of each dispatch without an answer, by effect.
    _dispatches: dict[str, tuple[str, Json]] = field(default_factory=dict)
    _unsent_reports: list[tuple[str, Json, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._reporting = self.session.http.io.lock()

    def epoch_json(self) -> Json:
        """Return the lease epoch as a field of a request body, or nothing without a lease."""
        return {} if self.session.lease is None else {"lease_epoch": self.session.lease.epoch}

    async def retry_while_paused(
        self, request: EffectRequest, command: Callable[[], Awaitable[Response]]
    ) -> Response:
        """Send a command; retry while a stop is in force or plans are paced (429)."""
        wait_reported = False
        while True:
            await self.session.check_active()
            try:
                return await command()
            except ServerUnavailable as error:
                raise error.with_consequence(f"{request.name} was not begun.") from error
            except Refused as refusal:
                self.raise_if_ended(refusal)
                reason = waiting.get_pause_reason(refusal)
                if not reason:
                    raise
                if not wait_reported:
                    request.on_wait(reason, refusal.problem)
                wait_reported = True
                pause_s = float(refusal.problem.get("retry_after_s") or waiting.PAUSE_S)
                sentence = f"{request.name}: {refusal.sentence}."
                until_us = None if reason == "stop" else refusal.retry_at_us
                await waiting.sleep_or_raise(
                    self.session,
                    pause_s,
                    request.limits,
                    sentence,
                    reason=reason,
                    until_us=until_us,
                )

    def raise_if_ended(self, refusal: Refused) -> None:
        """Raise SessionEnded or LeaseLost if a refusal rules out any further effect."""
        # Gatebook checks the lease first, and the lease ended with the session.
        ended = self.session.status in ENDED
        if refusal.code == "SESSION_ENDED" or (refusal.code == "LEASE_LOST" and ended):
            raise SessionEnded(self.session.status if ended else "") from refusal
        if refusal.code == "LEASE_LOST":
            self.mark_lease_lost(refusal)

    def mark_lease_lost(self, refusal: Refused) -> NoReturn:
        """Mark the lease as lost and raise LeaseLost."""
        if self.session.lease is not None:
            self.session.lease.lost = True
        raise LeaseLost(f"{refusal.sentence}; nothing was begun.") from refusal

    async def dispatch(
        self, effect: str, request: EffectRequest, replays: int = 0
    ) -> EffectResult | None:
        """Use the permission and run the act.

        Return None if the permission is no longer valid and the effect must be planned again.
        """
        body: Json = {
            "process": self.session.process,
            "arguments": request.arguments,
        } | self.epoch_json()
        body |= {
            name: request.plan[name]
            for name in ("free_text", "preconditions")
            if name in request.plan
        }
        unanswered_key, unanswered_body = self._dispatches.get(effect, ("", {}))
        if replays or "replays" in unanswered_body:
            body["replays"] = replays or unanswered_body["replays"]
        key = unanswered_key if body == unanswered_body else new_key()
        self._dispatches[effect] = key, body
        sent_at = time.monotonic()
        try:
            response = await self.retry_while_paused(
                request,
                lambda: self.session.http.post(f"/effects/{effect}/dispatch", body, key=key),
            )
        except Refused as refusal:
            self._dispatches.pop(effect, None)
            if refusal.code in ("GATE_DENIED", "GATE_EXPIRED") or refusal.reason in REFUSED_REASONS:
                raise PermissionRefused(effect, refusal.reason or "denied") from refusal
            if refusal.code in _REPLAN_CODES:
                return None
            raise
        self._dispatches.pop(effect, None)
        if not await self._may_still_act(effect, response.body, sent_at):
            return None
        request.on_dispatch(response.body, sent_at)
        return await self._run_act(effect, response.body, request)

    async def _may_still_act(self, effect: str, dispatch: Json, sent_at: float) -> bool:
        """Return whether the act may begin, and report the attempt as rejected if not.

        A process that slept after the dispatch may count as dead and may have been replaced. The
        report is certain: this process knows that it did not act. Raises LeaseLost,
        ServerUnavailable.
        """
        attempt = int(dispatch["attempt"])
        too_late = WaitTimeout(
            f"not begun: {MAX_DISPATCH_AGE_S} s passed between the dispatch and the act", effect
        )
        try:
            await self.session.check_active()
        except GatebookError as error:
            await self._report_failure(effect, attempt, "rejected", error)
            raise
        if time.monotonic() - sent_at <= MAX_DISPATCH_AGE_S:
            return True
        await self._report_failure(effect, attempt, "rejected", too_late)
        return False

    async def _run_act(self, effect: str, dispatch: Json, request: EffectRequest) -> EffectResult:
        attempt = int(dispatch["attempt"])
        try:
            returned = request.act(str(dispatch.get("remote_key") or ""))
            result = Result.from_return_value(await self.session.http.io.settle(returned))
        except Rejected as rejection:
            await self._report_failure(effect, attempt, "rejected", rejection)
            raise
        except TIMEOUTS as error:
            await self._report_failure(effect, attempt, "timeout", error)
            raise
        except GeneratorExit:  # the event loop is gone, and nothing can be sent
            raise
        except BaseException as error:
            await self._report_failure(effect, attempt, "error", error)
            raise
        answer = await self.acknowledge(effect, attempt, result, request.name)
        performed = EffectResult.from_json(answer.body, result.result)
        if answer.status == 202 and self.session.lease is not None:
            self.session.lease.lost = True
            sentence = (
                f"{request.name} was done, and its report is stored as evidence. "
                "Another process has the session. Stop."
            )
            raise LeaseLost(sentence, performed)
        return performed

    async def acknowledge(self, effect: str, attempt: int, result: Result, name: str) -> Response:
        """Report that an attempt happened; `name` is the effect's in messages.

        A report that cannot be sent now is kept, and sent by the next call.
        """
        body: Json = {
            "attempt": attempt,
            "outcome": result.outcome,
            "result": to_sendable_json(result.result),
        } | self.epoch_json()
        if result.reference:
            body["external_reference"] = result.reference[:300].encode("utf-8", "replace").decode()
        path, key = f"/effects/{effect}/acknowledge", new_key()
        try:
            return await self.session.http.post(path, body, key=key)
        except ServerUnavailable as error:
            self._unsent_reports.append((path, body, key))
            sentence = f"{name} was done; only the report is missing. The next call sends it."
            raise ServerUnavailable(error.reason, sentence, acted=True) from error
        except Refused as refusal:
            if refusal.status != 422 or "result" not in body:
                raise
            # The act happened, so it must be reported even if its result is refused.
            left_out = {"left_out": f"refused: {refusal.code}"}
            return await self.session.http.post(path, body | {"result": left_out})

    async def _report_failure(
        self, effect: str, attempt: int, reason: str, error: BaseException
    ) -> None:
        """Report a failed attempt.

        If the report itself fails, a note is added to the error of the act.
        """
        detail = str(error) if reason == "rejected" else repr(error)
        # Other exceptions (KeyboardInterrupt, SystemExit) end the process: do not delay that.
        is_urgent = not isinstance(error, Exception | asyncio.CancelledError)
        try:
            await self.send_failure(effect, attempt, reason, detail, 2.0 if is_urgent else None)
        except ServerUnavailable as unavailable:
            error.add_note(
                f"The failure of this attempt ({reason}) could not be reported: {unavailable}"
            )
        except Refused as refusal:
            error.add_note(f"Gatebook refused the report of this failure ({reason}): {refusal}")

    async def send_failure(
        self, effect: str, attempt: int, reason: str, detail: str, patience_s: float | None = None
    ) -> Response:
        """Report a failed attempt; one that cannot be sent now is sent by the next call."""
        body: Json = {"attempt": attempt, "reason": reason} | self.epoch_json()
        if detail:
            body["detail"] = detail[:_DETAIL_CHARS].encode("utf-8", "replace").decode()
        path, key = f"/effects/{effect}/fail", new_key()
        try:
            return await self.session.http.post(path, body, key=key, patience_s=patience_s)
        except ServerUnavailable:
            self._unsent_reports.append((path, body, key))
            raise

    async def send_unsent_reports(self) -> None:
        """Send the reports that could not be sent before. Raises ServerUnavailable."""
        async with self._reporting:
            while self._unsent_reports:
                path, body, key = self._unsent_reports[0]
                try:
                    await self.session.http.post(path, body, key=key)
                except ServerUnavailable as error:
                    raise error.with_consequence(
                        "Nothing was begun: earlier results could not be reported yet."
                    ) from error
                except Refused:
                    pass  # The outcome is already recorded from another source.
                self._unsent_reports.pop(0)
