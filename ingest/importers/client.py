"""The importers' client of the HTTP API: batches, artifacts with their bytes, patience, and refusals in words."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import httpx
import msgspec

from ingest.importers.facts import Payload
from ingest.importers.shapes import Json

MOST_TRIES = 8
LONGEST_WAIT_S = 60.0
FIRST_WAIT_S = 0.5
_BUSY = (429, 503)


class RefusalError(Exception):
    """The API refused something; the message is its own sentence. `about` is an event id or a path."""

    def __init__(self, about: str, sentence: str) -> None:
        super().__init__(f"{about}: {sentence}")
        self.about = about
        self.sentence = sentence


@dataclass(slots=True)
class Tally:
    """How the items of one or more batches were received."""

    created: int = 0
    known: int = 0


class Client:
    """Sends to one Gatebook as one agent. `http` carries base URL and token; `sleep` takes seconds.

    With `judge`, the policy in force there is asked about every effect.
    Everything it sends carries a stable id, so anything that failed half-way may be sent again whole.
    """

    def __init__(self, http: httpx.Client, sleep: Callable[[float], None] = time.sleep, *, judge: bool = False) -> None:
        self._http = http
        self._events = f"/api/v1/events{'?judge=true' if judge else ''}"
        self._sleep = sleep
        self._answered = False

    def send(self, batch: list[bytes]) -> Tally:
        """Post encoded items; items the server asks to send again are, a bounded number of times.

        Raises RefusalError for the first item that is neither created nor known, or is a claim that changes nothing.
        """
        tally = Tally()
        waiting = batch
        for attempt in range(MOST_TRIES):
            answer = self._ask("POST", self._events, b"[" + b",".join(waiting) + b"]", "application/json")
            results = answer.get("results")
            if not isinstance(results, list) or len(results) != len(waiting):
                raise RefusalError("/api/v1/events", "The server answered without a result for every item.")
            again = []
            for item, result in zip(waiting, results, strict=True):
                status = result.get("status")
                if result.get("note"):
                    raise _refused(result)
                if status == "created":
                    tally.created += 1
                elif status == "duplicate":
                    tally.known += 1
                elif result.get("retryable") is True:
                    again.append((item, result))
                else:
                    raise _refused(result)
            if not again:
                return tally
            if attempt == MOST_TRIES - 1:
                raise _refused(again[0][1])
            self._sleep(_backoff(attempt))
            waiting = [item for item, _ in again]
        return tally

    def store(self, payload: Payload) -> bool:
        """Register a payload as an artifact of its effect and put its bytes there. True when the bytes are new."""
        effect = self._effect_id(payload)
        artifact = self._ask(
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
            return False  # registered so long ago that its answer is gone; an import of that time has sent the bytes
        path = f"/api/v1/artifacts/{artifact['id']}"
        if self._ask("GET", path).get("stored") is True:
            return False
        self._ask("PUT", f"{path}/bytes", payload.content, "application/octet-stream")
        return True

    def judgements(self, session: str) -> Counter[tuple[str, str]]:
        """How many effects of a session the policy let go, asked about or denied (or empty), and by which rule."""
        found: Counter[tuple[str, str]] = Counter()
        query = {"session": session, "limit": "200"}
        while True:
            answer = self._ask("GET", f"/api/v1/effects?{httpx.QueryParams(query)}")
            for effect in answer.get("items") or []:
                found[effect.get("judged", ""), effect.get("judged_by", "")] += 1
            if not answer.get("next"):
                return found
            query["after"] = str(answer["next"])

    def _effect_id(self, payload: Payload) -> str:
        query = httpx.QueryParams({"session": payload.session, "effect_key": payload.effect_key, "limit": "1"})
        answer = self._ask("GET", f"/api/v1/effects?{query}")
        for effect in answer.get("items") or []:
            if effect.get("effect_key") == payload.effect_key:
                return str(effect["id"])
        raise RefusalError(payload.effect_key, f"The server does not know this effect of session {payload.session}.")

    def _ask(
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
        for attempt in range(MOST_TRIES):
            last = attempt == MOST_TRIES - 1
            try:
                response = self._http.request(method, path, content=content, headers=headers)
            except httpx.TransportError as fault:
                # Before the first answer a wrong address is likelier than a restart of the server.
                if last or not self._answered:
                    why = str(fault) or type(fault).__name__
                    raise RefusalError(path, f"The server cannot be reached ({why}).") from None
                self._sleep(_backoff(attempt))
                continue
            self._answered = True
            if response.status_code in _BUSY and not last:
                self._sleep(_patience(response, attempt))
                continue
            if not response.is_success:
                raise RefusalError(path, _sentence(response))
            return _object(response, path)
        raise AssertionError("the last try returns or raises")


def _object(response: httpx.Response, path: str) -> dict[str, Json]:
    try:
        answer = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        answer = None
    if not isinstance(answer, dict):
        raise RefusalError(path, "The server's answer is not a JSON object; is this the address of a Gatebook?")
    return answer


def _refused(result: dict[str, Json]) -> RefusalError:
    sentence = result.get("detail") or result.get("code") or result.get("status") or "refused without a reason"
    if result.get("status") == "conflict":
        # The server tells an agent to send a new id; whoever imports has files, and chose no ids.
        sentence = (
            "This session was imported before from a file that tells another beginning of it. Import the whole file; a "
            "part of one, or one whose earlier lines were changed, cannot be told apart from a contradiction. What was "
            "sent until here stays, and the contradiction is kept as evidence."
        )
    if result.get("note") == "other_agent":
        sentence = "This session belongs to another agent. Import the file as that agent: by --agent or its token."
    return RefusalError(f"event {result.get('id')}", str(sentence))


def _sentence(response: httpx.Response) -> str:
    """What the server says is wrong, and its status."""
    try:
        problem = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        problem = None
    said = problem.get("detail") or problem.get("title") if isinstance(problem, dict) else None
    return f"{said or response.reason_phrase} (HTTP {response.status_code})"


def _patience(response: httpx.Response, attempt: int) -> float:
    asked = response.headers.get("Retry-After", "")
    seconds = float(asked) if asked.isascii() and asked.isdigit() else 0.0
    # A server that is busy for long says the same short time again and again.
    return min(max(seconds, _backoff(attempt)), LONGEST_WAIT_S)


def _backoff(attempt: int) -> float:
    return min(FIRST_WAIT_S * 2.0**attempt, LONGEST_WAIT_S)
