"""Follows transcripts that grow, and adds what they report as evidence.

A file is read up to its last complete line, again whenever it grew; one JSON document that its
program rewrites is read as a whole, whenever it changed and is complete. A call that a hook
reported before is recognized by its call id, or as `hooked_calls` describes: the transcript then
becomes evidence beside that effect, and closes it if its result was missing. Any other call becomes
an effect that only the transcript knows, as an import makes it. What was sent is kept in a file of
state, and every fact has an id of its own, so that neither a restart nor a crash records anything
twice.
"""

from __future__ import annotations

import fcntl
import fnmatch
import hashlib
import json
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any, Final, Self

from importers.api_client import ImportClient, ImportRefusedError
from importers.claude_code import ClaudeTranscript
from importers.codex import CodexRollout
from importers.files import BadInputError
from importers.gemini import GeminiConversation
from importers.hooked_calls import HookedCalls, Meeting
from importers.to_events import (
    Payload,
    TooLargeError,
    build_effect_key,
    build_event_id,
    build_shipment,
    split_batches,
)
from importers.trajectory import Call, Json, Trajectory, hash_json
from importers.transcripts import TranscriptReader

SETTLE_S: Final = 5.0  # a hook reports a call within this time after the transcript does
LOOK_S: Final = 1.0
RETRY_S: Final = 30.0  # after a refusal, or while Gatebook is away
MAX_FILES: Final = 5_000  # of all folders
MAX_LINE_BYTES: Final = 64 * 1024 * 1024  # of a document, too
HEAD_BYTES: Final = 1024  # by which a file is recognized
_CHUNK: Final = 4 * 1024 * 1024
_RAN: Final = ("ok", "error")


@dataclass(frozen=True, slots=True)
class FollowedFormat:
    """How the transcripts of a program are followed."""

    make_reader: Callable[[Path], TranscriptReader]
    documents: str = ""  # pattern of the names of files that are one JSON document
    hooks_have_ids: bool = True


FOLLOWED: Final[dict[str, FollowedFormat]] = {
    "claude-code": FollowedFormat(lambda path: ClaudeTranscript()),
    "codex": FollowedFormat(lambda path: CodexRollout()),
    "gemini": FollowedFormat(GeminiConversation, "session-*.json", hooks_have_ids=False),
}


@dataclass(slots=True)
class Progress:
    """What was sent of one session: its first `planned` calls, except results of `open`."""

    planned: int = 0
    open: set[int] = field(default_factory=set)  # positions of calls


@dataclass(slots=True)
class FollowedFile:
    """One file: what was read of it, and what was sent."""

    path: Path
    stream: IO[bytes] | None  # None for a document
    inode: tuple[int, int]
    reader: TranscriptReader
    offset: int = 0  # behind the last complete line
    line: int = 0
    head: str = ""
    sent: dict[str, Progress] = field(default_factory=dict)
    seen: dict[tuple[str, int, bool], float] = field(default_factory=dict)  # call, has a result
    retry_at: float = 0.0
    size: int = -1
    changed_ns: int = -1  # of a document, when it was read

    def close(self) -> None:
        """Close the file."""
        if self.stream is not None:
            self.stream.close()


class FollowStateInUse(Exception):
    """Another process follows with the same file of state."""


class FollowState:
    """The file with what was sent; only one process at a time uses it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.files: dict[str, dict[str, Any]] = {}
        self._lock = -1

    def __enter__(self) -> Self:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC
        self._lock = os.open(f"{self.path}.lock", flags, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise FollowStateInUse(str(self.path)) from None
        try:
            stored = json.loads(self.path.read_bytes())
            self.files = stored["files"]
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            self.files = {}  # what was recorded before is recognized by its id
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._lock)

    def load(self, file: FollowedFile) -> None:
        """Take over what was sent of a file, if it is still the same file."""
        stored = self.files.get(str(file.path))
        if stored is None or stored["head"] != file.head or file.offset < stored["offset"]:
            return
        file.sent = {
            key: Progress(item["planned"], set(item["open"]))
            for key, item in stored["sessions"].items()
        }

    def store(self, file: FollowedFile) -> None:
        """Keep what was sent of a file.

        Of a document nothing is kept: its calls may move, and what Gatebook has is not sent again.
        """
        if file.stream is None:
            return
        self.files[str(file.path)] = {
            "head": file.head,
            "offset": file.offset,
            "sessions": {
                key: {"planned": progress.planned, "open": sorted(progress.open)}
                for key, progress in file.sent.items()
            },
        }
        temporary = self.path.with_suffix(".new")
        with temporary.open("w") as stream:
            json.dump({"files": self.files}, stream)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(self.path)


class Follower:
    """Follows files and folders until `stop`. `report` gets a sentence for people."""

    def __init__(
        self,
        name: str,
        places: Iterable[Path],
        client: ImportClient,
        state: FollowState,
        *,
        report: Callable[[str], None],
        settle_s: float = SETTLE_S,
        max_age_s: float = 24 * 3600.0,
    ) -> None:
        self.format = FOLLOWED[name]
        self.name = name
        self.places = list(places)
        self.client = client
        self.state = state
        self.report = report
        self.settle_s = settle_s
        self.max_age_s = max_age_s
        self.is_stopped = False
        self._files: dict[Path, FollowedFile] = {}
        self._ignored: set[tuple[int, int]] = set()
        self._reported: dict[Path, str] = {}
        self._hooked: dict[str, HookedCalls] = {}  # by session

    def stop(self) -> None:
        """Let `run` end after the file at hand."""
        self.is_stopped = True

    def run(self) -> None:
        """Follow until stopped."""
        while not self.is_stopped:
            self.look_once()
            time.sleep(LOOK_S)

    def look_once(self) -> None:
        """Read and send what is new in all files."""
        for path in self._list_paths():
            if self.is_stopped:
                return
            try:
                if self._is_document(path):
                    self._follow_document(path)
                else:
                    self._follow(path)
            except OSError as error:
                self._report_once(path, f"cannot be read: {error.strerror or error}")

    def _list_paths(self) -> Iterator[Path]:
        """Yield the files; of folders, those that changed within `max_age_s`."""
        count = 0
        oldest = time.time() - self.max_age_s
        for place in self.places:
            if not place.is_dir():
                yield place
                continue
            for folder, _, names in os.walk(place):
                for name in names:
                    path = Path(folder, name)
                    if not name.endswith(".jsonl") and not self._is_document(path):
                        continue
                    if path not in self._files and path.stat().st_mtime < oldest:
                        continue
                    count += 1
                    if count > MAX_FILES:
                        self._report_once(place, f"has more than {MAX_FILES} files; others wait")
                        return
                    yield path

    def _is_document(self, path: Path) -> bool:
        pattern = self.format.documents
        return bool(pattern) and fnmatch.fnmatchcase(path.name, pattern)

    def _follow_document(self, path: Path) -> None:
        """Read a document that has changed, and send what is new.

        A document that its program is just writing is read when it is complete.
        """
        now = time.monotonic()
        file = self._files.get(path)
        try:
            status = path.stat()
        except FileNotFoundError:
            if file is not None:
                self._send(file, now)
            return
        if file is None:
            identity = (status.st_dev, status.st_ino)
            if identity in self._ignored:
                return
            file = FollowedFile(path, None, identity, self.format.make_reader(path))
            self._files[path] = file
        if (status.st_size, status.st_mtime_ns) != (file.size, file.changed_ns):
            file.size, file.changed_ns = status.st_size, status.st_mtime_ns
            try:
                self._read_document(file)
            except BadInputError as fault:
                self._report_once(path, f"is not followed: {fault.reason}")
                self._ignored.add(file.inode)
                del self._files[path]
                return
        if now >= file.retry_at:
            self._send(file, now)

    def _read_document(self, file: FollowedFile) -> None:
        """Read a document again: calls that are known keep their place. Raises BadInputError."""
        if file.size > MAX_LINE_BYTES:
            raise BadInputError(1, f"it has more than {MAX_LINE_BYTES:,} bytes")
        try:
            value = json.loads(file.path.read_bytes())
        except (ValueError, RecursionError):
            self._report_once(file.path, "is not complete JSON; reading it when it has changed")
            return
        file.reader.add(1, value)

    def _follow(self, path: Path) -> None:
        """Read what is new in one file, and send it."""
        now = time.monotonic()
        file = self._files.get(path)
        try:
            status = path.stat()
        except FileNotFoundError:
            if file is not None:  # removed or renamed: its last lines are in the open file
                self._read(file)
                self._send(file, now)
            return
        identity = (status.st_dev, status.st_ino)
        if file is None:
            if identity in self._ignored:
                return
            file = self._open(path)
            if file is None:
                return
            self.state.load(file)
        elif file.inode != identity:
            self._read(file)
            self._send(file, now + self.settle_s)  # its hooks have come long ago
            file.close()
            self._report_once(path, "was replaced; following the new file")
            del self._files[path]
            return
        elif status.st_size < file.offset or _digest_head(file) != file.head:
            file.close()
            del self._files[path]
            self._report_once(path, "was shortened or rewritten; reading it from its beginning")
            self.state.files.pop(str(path), None)
            return
        elif status.st_size != file.size:
            self._read(file)
        file.size = status.st_size
        if now >= file.retry_at:
            self._send(file, now)

    def _open(self, path: Path) -> FollowedFile | None:
        """Open and read a file; None if it is no transcript, or has no complete line yet."""
        stream = path.open("rb")
        status = os.fstat(stream.fileno())
        identity = (status.st_dev, status.st_ino)
        file = FollowedFile(path, stream, identity, self.format.make_reader(path))
        try:
            self._read(file, is_first=True)
        except BadInputError as fault:
            self._report_once(path, f"is not followed: {fault.reason}")
            self._ignored.add(identity)
            stream.close()
            return None
        if not file.offset:
            stream.close()
            return None
        self._files[path] = file
        return file

    def _read(self, file: FollowedFile, *, is_first: bool = False) -> None:
        """Read the complete lines behind the last one. The rest is read when it is complete.

        A line that is not JSON is skipped with a notice: a client that was killed leaves half of
        one, behind which the next one writes.
        """
        assert file.stream is not None  # noqa: S101 - a document is read in another way
        file.stream.seek(file.offset)
        rest = b""
        while chunk := file.stream.read(_CHUNK):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                file.line += 1
                file.offset += len(line) + 1
                if not line.strip():
                    continue
                try:
                    file.reader.add(file.line, json.loads(line))
                except (ValueError, RecursionError):
                    self.report(f"{file.path}: line {file.line} is not JSON and was skipped.")
                except BadInputError as fault:
                    if is_first and not file.reader.list_trajectories():
                        raise
                    self.report(f"{file.path}: line {file.line} was skipped: {fault.reason}.")
            if len(rest) > MAX_LINE_BYTES:
                raise BadInputError(file.line + 1, "a line is too long")
        file.head = _digest_head(file)

    def _send(self, file: FollowedFile, now: float) -> None:
        """Send what may be sent by now; try again later what Gatebook refused."""
        try:
            for trajectory in file.reader.list_trajectories():
                self._send_session(file, trajectory, now)
        except (ImportRefusedError, TooLargeError) as refusal:
            file.retry_at = now + RETRY_S
            self._report_once(file.path, f"{refusal} What is missing is sent again later.")
        else:
            if self._reported.get(file.path):
                self._reported[file.path] = ""

    def _send_session(self, file: FollowedFile, trajectory: Trajectory, now: float) -> None:
        progress = file.sent.setdefault(trajectory.key, Progress())
        planned = list[Call]()
        for call in trajectory.calls[progress.planned :]:
            if not self._is_settled(file, trajectory, call, now):
                break
            planned.append(call)
        answered = [
            call
            for position in sorted(progress.open)
            if (call := trajectory.calls[position - 1]).result is not None
            and self._is_settled(file, trajectory, call, now)
        ]
        if not planned and not answered:
            return
        session = self.client.find_session(trajectory.key)
        hooked = None if self.format.hooks_have_ids else self._load_hooked_calls(trajectory)
        own = list[Call]()
        facts = list[dict[str, Json]]()
        payloads = list[Payload]()
        for call in (*answered, *planned):
            if call.has_unique_id and self._is_recorded(session, trajectory, call, facts, payloads):
                continue
            meeting = (
                self._find_meeting(session, trajectory, call)
                if hooked is None
                else hooked.find(trajectory, call)
            )
            if meeting is None:
                own.append(call)
            elif call.result is not None:
                facts += self._build_evidence(trajectory, call, meeting)
        shipment = build_shipment(replace(trajectory, calls=own, ended=None))
        if own:
            facts = shipment.facts + facts
        for batch in split_batches(facts):
            self.client.send(batch)
        for payload in (*shipment.payloads, *payloads):
            self.client.store(payload)
        progress.planned += len(planned)
        progress.open -= {call.position for call in answered}
        progress.open |= {call.position for call in planned if call.result is None}
        self.state.store(file)
        for call in (*answered, *planned):
            file.seen.pop((trajectory.key, call.position, call.result is not None), None)
        self.report(
            f"{file.path.name}: {len(planned)} calls and {len(answered)} results of session"
            f" {trajectory.key!a} are recorded."
        )

    def _is_settled(
        self, file: FollowedFile, trajectory: Trajectory, call: Call, now: float
    ) -> bool:
        """Return whether a hook would have reported a call, or its result, by now."""
        moment = (trajectory.key, call.position, call.result is not None)
        return now - file.seen.setdefault(moment, now) >= self.settle_s

    def _load_hooked_calls(self, trajectory: Trajectory) -> HookedCalls:
        """Return what hooks reported of the client's session: a sub-agent's are in its parent's."""
        key = trajectory.parent_key or trajectory.key
        if key not in self._hooked:
            session = self.client.find_session(key)
            hooked = HookedCalls(self.client, self.name, key, session)
            if not session:
                return hooked
            self._hooked[key] = hooked
        self._hooked[key].load_new()
        return self._hooked[key]

    def _is_recorded(
        self,
        session: str,
        trajectory: Trajectory,
        call: Call,
        facts: list[dict[str, Json]],
        payloads: list[Payload],
    ) -> bool:
        """Return whether Gatebook has a call from a transcript; add its result if it lacks one.

        Another file of the session may describe the call otherwise, so it is not sent again.
        """
        if not session:
            return False
        effect = self.client.find_effect(session, build_effect_key(call))
        if effect is None:
            return False
        if effect["state"] in ("planned", "dispatched") and call.result is not None:
            shipment = build_shipment(replace(trajectory, calls=[call], ended=None))
            facts.append(shipment.facts[-1])
            payloads += [payload for payload in shipment.payloads if payload.type == "result"]
        return True

    def _find_meeting(self, session: str, trajectory: Trajectory, call: Call) -> Meeting | None:
        """Return the effect of a call that was reported in another way; None if there is none.

        Of several with one call id, the one that comes as late as the call does.
        """
        if not session or call.call_id is None:
            return None
        effects = self.client.list_effects_of_call(session, call.call_id)
        own = build_effect_key(call)
        if any(effect["effect_key"] == own for effect in effects):
            return None
        others = [effect for effect in effects if not _is_own_key(effect, call.call_id)]
        if not others:
            return None
        before = sum(
            earlier.call_id == call.call_id for earlier in trajectory.calls[: call.position - 1]
        )
        effect = others[min(before, len(others) - 1)]
        return Meeting(trajectory.key, effect, effect.get("attempt"))

    def _build_evidence(
        self, trajectory: Trajectory, call: Call, meeting: Meeting
    ) -> list[dict[str, Json]]:
        """Build what a transcript adds to an effect that was reported in another way."""
        assert call.result is not None  # noqa: S101 - the caller checks it
        # The facts of the call as an import makes them: payloads that are too large are digests.
        shipment = build_shipment(replace(trajectory, calls=[call], ended=None))
        plan, *_, report = shipment.facts[1:]
        effect = meeting.effect
        key, outcome = str(effect["effect_key"]), call.result.outcome
        named = {"session": meeting.session, "effect_key": key}
        moment = {"occurred_us": report["occurred_us"]} if "occurred_us" in report else {}
        content = {
            "format": trajectory.format,
            "tool": call.tool,
            "arguments": plan["arguments"],
            "outcome": outcome,
            "result": report.get("result", report.get("detail")),
        }
        identity: tuple[str | int, ...] = (trajectory.format, trajectory.key, call.position)
        if call.has_unique_id:  # another file of the session may describe it otherwise
            identity = (*identity[:2], build_effect_key(call), hash_json([moment, content]))
        facts: list[dict[str, Json]] = [
            {"id": build_event_id("transcript.recorded", *identity), "kind": "transcript.recorded"}
            | named
            | moment
            | {"call_id": call.call_id}
            | content
        ]
        if meeting.attempt is None and effect.get("attempt"):
            return facts  # of a call that did not run, beside attempts that are other calls
        effect = _describe_attempt(effect, meeting.attempt)
        contradiction = find_contradiction(effect, outcome)
        if contradiction:
            shown = {"contradiction": contradiction, "recorded": _describe_effect(effect)}
            digest = hashlib.sha256(json.dumps(shown, sort_keys=True).encode()).hexdigest()
            facts.append(
                {
                    "id": build_event_id("transcript.contradicted", *identity, digest),
                    "kind": "transcript.contradicted",
                }
                | named
                | moment
                | {"outcome": outcome}
                | shown
            )
            self.report(f"{effect['handle']}: the transcript contradicts it. {contradiction}")
        if needs_report(effect, outcome):
            attempt = meeting.attempt or 1
            values = {
                name: value
                for name, value in report.items()
                if name in ("kind", "occurred_us", "outcome", "result", "reason", "detail")
            }
            facts.append(
                {"id": build_event_id("transcript.result", *identity, attempt)}
                | named
                | values
                | {"attempt": attempt}
            )
        return facts

    def _report_once(self, path: Path, sentence: str) -> None:
        if self._reported.get(path) != sentence:
            self._reported[path] = sentence
            self.report(f"{path}: {sentence}")


def find_contradiction(effect: dict[str, Json], outcome: str) -> str:
    """Return how a transcript contradicts what is recorded of an effect; empty if it does not."""
    state, recorded = effect["state"], effect.get("outcome")
    if state == "acknowledged" and recorded in _RAN:
        if outcome == "refused":
            return "It is recorded as executed, and the transcript says that it did not run."
        if outcome in _RAN and outcome != recorded:
            return f"Its outcome is recorded as {recorded}, and the transcript says {outcome}."
    has_not_run = state in ("planned", "superseded") or (state == "failed" and recorded == "error")
    if has_not_run and outcome in _RAN:
        return "It is recorded as not executed, and the transcript says that it ran."
    return ""


def needs_report(effect: dict[str, Json], outcome: str) -> bool:
    """Return whether the transcript reports an outcome that Gatebook does not know."""
    if outcome == "unknown":
        return False
    state, recorded = effect["state"], effect.get("outcome")
    if outcome == "refused":
        return bool(state == "dispatched")
    return state in ("planned", "dispatched") or recorded == "unknown"


def _describe_attempt(effect: dict[str, Json], number: int | None) -> dict[str, Json]:
    """Return an effect as it was with this attempt, if a later one has replaced it."""
    attempts = [item for item in effect.get("attempts", ()) if item["attempt"] == number]
    if not attempts or number == effect.get("attempt"):
        return effect
    (attempt,) = attempts
    state = (
        "dispatched" if attempt["open"] else "failed" if attempt.get("reason") else "acknowledged"
    )
    return effect | {"state": state, "outcome": attempt.get("outcome")}


def _describe_effect(effect: dict[str, Json]) -> dict[str, Json]:
    names = ("state", "outcome", "permission", "attempt", "tool")
    return {name: effect[name] for name in names if effect.get(name)}


def _is_own_key(effect: dict[str, Json], call_id: str) -> bool:
    """Return whether only a transcript reports an effect, by its key."""
    key = str(effect["effect_key"])
    return key.startswith(f"{call_id}:") and key.removeprefix(f"{call_id}:").isdecimal()


def _digest_head(file: FollowedFile) -> str:
    """Return a digest of the beginning of what was read."""
    assert file.stream is not None  # noqa: S101 - a document has no lines
    file.stream.seek(0)
    return hashlib.sha256(file.stream.read(min(file.offset, HEAD_BYTES))).hexdigest()
