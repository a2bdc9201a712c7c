"""HTTP client of the importers: sends batches and artifacts, with retries."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import httpx
import msgspec

from importers.to_events import Payload
from importers.trajectory import Json

MAX_TRIES = 8
MAX_RETRY_WAIT_S = 60.0
FIRST_WAIT_S = 0.5
_RETRY_STATUSES = (429, 503)


class ImportRefusedError(Exception):
    """An API error with its own sentence. `about` is an event id or a path."""

    def __init__(self, about: str, sentence: str, status: int = 0) -> None:
        super().__init__(f"{about}: {sentence}")
        self.about = about
        self.sentence = sentence
        self.status = status  # of HTTP


@dataclass(slots=True)
class BatchCounts:
    """Counts of the items of one or more batches."""

    created: int = 0
    already_recorded: int = 0


class ImportClient:
    """HTTP client of one Gatebook. `http` has the base URL and the token.

    With `evaluate_policies`, the server evaluates its active policy for every effect. Every request
    has a stable id, so an import that failed can be repeated from the start.
    """

    def __init__(
        self,
        http: httpx.Client,
        sleep: Callable[[float], None] = time.sleep,
        *,
        evaluate_policies: bool = False,
    ) -> None:
        self._http = http
        self._events = f"/api/v1/events{'?evaluate_policies=true' if evaluate_policies else ''}"
        self._sleep = sleep
        self._answered = False

    def send(self, batch: list[bytes]) -> BatchCounts:
        """Post encoded items; retry retryable ones a bounded number of times.

        Raises ImportRefusedError for the first item that is rejected or recorded only as a claim.
        """
        tally = BatchCounts()
        waiting = batch
        for attempt in range(MAX_TRIES):
            answer = self._request(
                "POST", self._events, b"[" + b",".join(waiting) + b"]", "application/json"
            )
            results = answer.get("results")
            if not isinstance(results, list) or len(results) != len(waiting):
                raise ImportRefusedError(
                    "/api/v1/events", "The server answered without a result for every item."
                )
            retryable = []
            for item, result in zip(waiting, results, strict=True):
                status = result.get("status")
                if result.get("note"):
                    raise _build_item_refusal(result)
                if status == "created":
                    tally.created += 1
                elif status == "duplicate":
                    tally.already_recorded += 1
                elif result.get("retryable") is True:
                    retryable.append((item, result))
                else:
                    raise _build_item_refusal(result)
            if not retryable:
                return tally
            if attempt == MAX_TRIES - 1:
                raise _build_item_refusal(retryable[0][1])
            self._sleep(_backoff_s(attempt))
            waiting = [item for item, _ in retryable]
        return tally

    def store(self, payload: Payload) -> bool:
        """Record and upload a payload as an artifact; return whether it is new."""
        effect = self._effect_id(payload)
        artifact = self._request(
            "POST",
            "/api/v1/artifacts",
            msgspec.json.encode(
                {
                    "session": payload.session,
                    "effect": effect,
                    "type": payload.type,
                    "name": f"{payload.type} of {payload.effect_key}",
                    "sha256": payload.sha256,
                    "size": len(payload.content),
                    "media_type": payload.media_type,
                }
            ),
            "application/json",
            {"Idempotency-Key": payload.request_id},
        )
        if "id" not in artifact:
            return False  # recorded by an earlier import, which has uploaded the bytes
        path = f"/api/v1/artifacts/{artifact['id']}"
        if self._request("GET", path).get("stored") is True:
            return False
        self._request("PUT", f"{path}/bytes", payload.content, "application/octet-stream")
        return True

    def count_policy_outcomes(self, session: str) -> Counter[tuple[str, str]]:
        """Count the effects of a session by policy outcome (empty if none) and rule."""
        counts: Counter[tuple[str, str]] = Counter()
        for effect in self.iterate_effects(session):
            counts[effect.get("policy_outcome", ""), effect.get("policy_rule", "")] += 1
        return counts

    def find_session(self, key: str) -> str:
        """Return the id of a session, empty if there is none."""
        answer = self._request("GET", f"/api/v1/sessions?{httpx.QueryParams({'key': key})}")
        items = answer.get("items") or []
        return str(items[0]["id"]) if items else ""

    def list_effects_of_call(self, session: str, call_id: str) -> list[dict[str, Json]]:
        """Return the effects of a session with this call id, oldest first; at most 50."""
        query = httpx.QueryParams({"session": session, "call_id": call_id, "limit": "50"})
        items = self._request("GET", f"/api/v1/effects?{query}").get("items") or []
        return items[::-1]

    def iterate_effects(self, session: str) -> Iterator[dict[str, Json]]:
        """Yield the effects of a session, newest first."""
        query = {"session": session, "limit": "200"}
        while True:
            answer = self._request("GET", f"/api/v1/effects?{httpx.QueryParams(query)}")
            yield from answer.get("items") or []
            if not answer.get("next"):
                return
            query["after"] = str(answer["next"])

    def find_effect(self, session: str, effect_key: str) -> dict[str, Json] | None:
        """Return an effect by its key; None if there is none."""
        query = httpx.QueryParams({"session": session, "effect_key": effect_key, "limit": "1"})
        items = self._request("GET", f"/api/v1/effects?{query}").get("items") or []
        return items[0] if items else None

    def load_effect(self, effect: str) -> dict[str, Json]:
        """Return an effect with its attempts."""
        return self._request("GET", f"/api/v1/effects/{effect}")

    def load_plan(self, effect: str) -> dict[str, Json] | None:
        """Return the plan of an effect; None if another agent planned it."""
        try:
            return self._request("GET", f"/api/v1/effects/{effect}/plan")
        except ImportRefusedError as refusal:
            if refusal.status == 404:
                return None
            raise

    def _effect_id(self, payload: Payload) -> str:
        effect = self.find_effect(payload.session, payload.effect_key)
        if effect is not None:
            return str(effect["id"])
        raise ImportRefusedError(
            payload.effect_key,
            f"The server does not know this effect of session {payload.session}.",
        )

    def _request(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        media_type: str | None = None,
        headers: dict[str, str] | None = None,
    ) -> dict[str, Json]:
        headers = dict(headers or {})
        if media_type is not None:
            headers["Content-Type"] = media_type
        for attempt in range(MAX_TRIES):
            last = attempt == MAX_TRIES - 1
            try:
                response = self._http.request(method, path, content=content, headers=headers)
            except httpx.TransportError as fault:
                # Before the first response, a wrong URL is likelier than a restart of the server.
                if last or not self._answered:
                    why = str(fault) or type(fault).__name__
                    raise ImportRefusedError(
                        path, f"The server cannot be reached ({why})."
                    ) from None
                self._sleep(_backoff_s(attempt))
                continue
            self._answered = True
            if response.status_code in _RETRY_STATUSES and not last:
                self._sleep(_retry_delay_s(response, attempt))
                continue
            if not response.is_success:
                raise ImportRefusedError(path, _error_sentence(response), response.status_code)
            return _decode_object(response, path)
        raise AssertionError("the last try returns or raises")


def _decode_object(response: httpx.Response, path: str) -> dict[str, Json]:
    try:
        answer = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise ImportRefusedError(
            path, "The server's response is not a JSON object. Check that --url is a Gatebook."
        )
    return answer


def _build_item_refusal(result: dict[str, Json]) -> ImportRefusedError:
    sentence = (
        result.get("detail")
        or result.get("code")
        or result.get("status")
        or "refused without a reason"
    )
    if result.get("status") == "conflict":
        # The server's advice to send a new id does not apply to files.
        sentence = (
            "This session was already imported from a file with another beginning. Import the"
            " complete, unchanged "
            "file: a part of a file, or a file with changed earlier lines, looks like a"
            " contradiction. Everything "
            "sent so far remains, and the contradiction is kept as evidence."
        )
    if result.get("note") == "other_agent":
        sentence = (
            "This session belongs to another agent. Import the file as that agent, with --agent"
            " or its token."
        )
    return ImportRefusedError(f"event {result.get('id')}", str(sentence))


def _error_sentence(response: httpx.Response) -> str:
    """Return the server's error sentence with the HTTP status."""
    try:
        problem = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        problem = None
    detail = problem.get("detail") or problem.get("title") if isinstance(problem, dict) else None
    return f"{detail or response.reason_phrase} (HTTP {response.status_code})"


def _retry_delay_s(response: httpx.Response, attempt: int) -> float:
    retry_after = response.headers.get("Retry-After", "")
    seconds = float(retry_after) if retry_after.isascii() and retry_after.isdigit() else 0.0
    # A server that is busy for long keeps sending the same short Retry-After.
    return min(max(seconds, _backoff_s(attempt)), MAX_RETRY_WAIT_S)


def _backoff_s(attempt: int) -> float:
    return min(FIRST_WAIT_S * 2.0**attempt, MAX_RETRY_WAIT_S)
