"""Data types of acts, probes and results."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Json = dict[str, Any]
ENDED = ("completed", "failed", "cancelled")  # statuses of a session that accepts no new effects
# Maximum size of an act's result. An item may have 256 KiB; larger results belong in artifacts.
RESULT_BYTES = 200_000


@dataclass(frozen=True)
class Result:
    """The result of an act. `outcome` is ok, error (it ran and failed) or unknown.

    `reference` is the remote's name for it: a commit, a message, a ticket. `result` is any JSON.
    """

    outcome: str = "ok"
    reference: str = ""
    result: Any = None

    @classmethod
    def from_return_value(cls, returned: object) -> Result:
        """Return a `Result` as it is, and any other value as the result of a successful act."""
        return returned if isinstance(returned, Result) else cls(result=returned)


@dataclass(frozen=True)
class AttemptInfo:
    """An attempt whose outcome is to be found by a probe, or that is to be compensated.

    `remote_key` is the key that the attempt sent to the remote; `reference` the remote's name for
    it, if known. `arguments` are those of the plan, None if they can no longer be read.
    """

    effect: str
    handle: str
    effect_key: str
    tool: str
    arguments: Any
    attempt: int
    remote_key: str
    reference: str = ""


@dataclass(frozen=True)
class Verdict:
    """What Gatebook allows for an effect now. `until_us` is a time of the server's clock."""

    effect: str
    answer: str
    reason: str = ""
    row: str = ""
    sentence: str = ""
    until_us: int | None = None
    attempt: int = 0
    remote_key: str = ""
    needs_permission: bool = False
    now_us: int | None = None
    compensation: str = ""  # the open effect that compensates this one
    effect_json: Json = field(default_factory=dict, compare=False)

    @property
    def handle(self) -> str:
        """The short name of the effect on the pages."""
        return str(self.effect_json.get("handle") or "")

    @classmethod
    def from_json(cls, answer_json: Json, effect: str = "") -> Verdict:
        """Read an answer of /verdict or /probe, or the `verdict` of a refusal."""
        effect_json = answer_json.get("effect")
        effect_json = effect_json if isinstance(effect_json, dict) else {}
        return cls(
            effect=str(effect_json.get("id") or effect),
            answer=str(answer_json.get("verdict") or ""),
            reason=str(answer_json.get("reason") or ""),
            row=str(answer_json.get("row") or ""),
            sentence=str(answer_json.get("sentence") or ""),
            until_us=answer_json.get("until_us"),
            attempt=int(answer_json.get("attempt") or effect_json.get("attempt") or 0),
            remote_key=str(answer_json.get("remote_key") or ""),
            needs_permission=bool(answer_json.get("needs_permission")),
            now_us=answer_json.get("as_of_us"),
            compensation=str(answer_json.get("compensation") or ""),
            effect_json=effect_json,
        )


@dataclass(frozen=True)
class EffectResult:
    """The state and outcome of an effect.

    `already_done` is true if it had happened before and nothing was done now. `result` is what the
    act returned; for an effect that had happened before, what Gatebook stored of it, with secrets
    replaced by marks (`redacted`), and nothing if it was erased (`erased`).
    """

    effect: str
    handle: str
    effect_key: str
    tool: str
    state: str
    outcome: str = ""
    reference: str = ""
    attempt: int = 0
    result: Any = None
    already_done: bool = False
    redacted: bool = False
    erased: bool = False

    @property
    def ok(self) -> bool:
        """Whether it happened and succeeded."""
        return self.outcome == "ok"

    @classmethod
    def from_json(
        cls, effect: Mapping[str, Any], result: Any = None, *, already_done: bool = False
    ) -> EffectResult:
        """Read an effect object of the API."""
        return cls(
            effect=str(effect["id"]),
            handle=str(effect.get("handle") or ""),
            effect_key=str(effect.get("effect_key") or ""),
            tool=str(effect.get("tool") or ""),
            state=str(effect.get("state") or ""),
            outcome=str(effect.get("outcome") or ""),
            reference=str(effect.get("external_reference") or ""),
            attempt=int(effect.get("attempt") or 0),
            result=result,
            already_done=already_done,
        )

    @classmethod
    def from_stored(cls, stored: Mapping[str, Any]) -> EffectResult:
        """Read an answer of /result."""
        plain = cls.from_json({**stored, "id": stored["effect"]}, stored.get("result"))
        return replace(
            plain,
            already_done=True,
            redacted=bool(stored.get("redacted")),
            erased=stored.get("stored") == "erased",
        )


@dataclass(frozen=True)
class PlannedEffect:
    """A planned effect and its permission.

    `answer` is what may be done now: `proceed`, `wait`, `blocked`, `done`, or `ambiguous` where
    `open_effect` must be settled first. `gate` and `gate_url` are the id and the page of its gate.
    """

    effect: str
    handle: str
    session: str
    effect_key: str
    call_id: str
    tool: str
    answer: str
    state: str
    permission: str
    intent_digest: str = ""
    attempt: int = 0
    gate: str = ""
    gate_url: str = ""
    open_effect: str = ""
    effect_json: Json = field(default_factory=dict, compare=False)

    @property
    def may_proceed(self) -> bool:
        """Whether it may be dispatched now."""
        return self.answer == "proceed"

    @classmethod
    def from_json(cls, effect: Mapping[str, Any], url: str = "") -> PlannedEffect:
        """Read an effect object of the API of the Gatebook at `url`."""
        gate = effect.get("gate")
        gate = gate if isinstance(gate, dict) else {}
        names = ("handle", "session", "effect_key", "call_id", "tool", "answer", "state")
        return cls(
            effect=str(effect["id"]),
            **{name: str(effect.get(name) or "") for name in names},
            permission=str(effect.get("permission") or ""),
            intent_digest=str(effect.get("intent_digest") or ""),
            attempt=int(effect.get("attempt") or 0),
            gate=str(gate.get("id") or ""),
            gate_url=f"{url}{gate['page']}" if gate.get("page") else "",
            open_effect=str(effect.get("open_effect") or ""),
            effect_json=dict(effect),
        )


@dataclass(frozen=True)
class Dispatched:
    """A dispatched attempt: act now, with `remote_key`, and report the outcome.

    No request of the attempt may live longer than `request_lifetime_s`.
    """

    effect: str
    handle: str
    effect_key: str
    tool: str
    attempt: int
    remote_key: str
    request_lifetime_s: float

    @classmethod
    def from_json(cls, dispatch: Mapping[str, Any]) -> Dispatched:
        """Read an answer of /dispatch."""
        return cls(
            effect=str(dispatch["id"]),
            handle=str(dispatch.get("handle") or ""),
            effect_key=str(dispatch.get("effect_key") or ""),
            tool=str(dispatch.get("tool") or ""),
            attempt=int(dispatch["attempt"]),
            remote_key=str(dispatch.get("remote_key") or ""),
            request_lifetime_s=float(dispatch.get("request_lifetime_s") or 300),
        )


Act = Callable[[str], object]  # gets the attempt's remote_key
# None or False: it did not happen. True or a reference: it happened. Several references: it
# happened more than once.
ProbeAnswer = str | bool | Sequence[str] | None
# An async session may also get functions that return awaitables of these.
Probe = Callable[[AttemptInfo], object]


@dataclass(frozen=True)
class Undo:
    """How an attempt is compensated: a separate effect with its own tool and arguments."""

    tool: str
    act: Callable[[AttemptInfo, str], object]
    arguments: Callable[[AttemptInfo], Any] = lambda attempt: {
        "undoes": attempt.effect_key,
        "attempt": attempt.attempt,
    }


Compensate = Undo | Callable[[AttemptInfo, str], object]


def to_undo(compensate: Compensate | None, tool: str) -> Undo | None:
    """Return a plain function as an `Undo` whose tool is the tool's name with `.undo`."""
    if compensate is None or isinstance(compensate, Undo):
        return compensate
    return Undo(f"{tool}.undo", compensate)


def parse_probe_answer(answer: object) -> tuple[str, str]:
    """Return the API value and the reference for the return value of a probe.

    Raises TypeError for a value that is neither yes nor no.
    """
    if answer is None or answer is False:
        return "miss", ""
    if answer is True:
        return "hit", ""
    if isinstance(answer, str) and answer:
        return "hit", answer
    if isinstance(answer, Sequence) and not isinstance(answer, str | bytes):
        if not answer:
            return "miss", ""
        return ("several", "") if len(answer) > 1 else parse_probe_answer(answer[0])
    raise TypeError(
        f"a probe returns None, True, a reference or a list of references, not {answer!r}"
    )


def to_sendable_json(result: object) -> Any:
    """Return `result` as JSON that Gatebook accepts, or a note in its place.

    An act that happened must always be reported.
    """
    try:
        text = json.dumps(result, allow_nan=False, ensure_ascii=False, default=str)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as error:
        return {"left_out": f"{type(result).__name__} is not JSON: {str(error)[:200]!a}"}
    return (
        json.loads(text)
        if size <= RESULT_BYTES
        else {"left_out": f"{size} bytes; store it as an artifact"}
    )
