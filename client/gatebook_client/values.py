"""What acts, probes and callers hand to and fro."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Json = dict[str, Any]
ENDED = ("completed", "failed", "cancelled")  # statuses of a session that takes nothing new
RESULT_BYTES = 200_000  # of an act's result; an item may have 256 KiB, and larger things are artifacts


@dataclass(frozen=True)
class Done:
    """What came of an act. `outcome` is ok, error (it ran and went wrong) or unknown.

    `reference` is what the other side calls it: a commit, a message, a ticket. `result` is any JSON.
    """

    outcome: str = "ok"
    reference: str = ""
    result: Any = None

    @classmethod
    def of(cls, returned: object) -> Done:
        """What an act returned: a `Done` as it is, anything else as the result of an act that went well."""
        return returned if isinstance(returned, Done) else cls(result=returned)


@dataclass(frozen=True)
class Known:
    """An attempt whose fate is to be found out: what a probe looks for, and a compensation takes back.

    `remote_key` is the key that the attempt offered to the other side; `reference` the other side's own name, where it
    is known. `arguments` are those of the plan, None where they cannot be read any more.
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
    """What Gatebook says may be done with an effect now. `until_us` is a time of the server's clock."""

    effect: str
    answer: str
    reason: str = ""
    row: str = ""
    sentence: str = ""
    until_us: int | None = None
    attempt: int = 0
    remote_key: str = ""
    needs_leave: bool = False
    now_us: int | None = None
    compensation: str = ""  # the open effect that takes this one back
    about: Json = field(default_factory=dict, compare=False)

    @property
    def handle(self) -> str:
        """The short name of the effect on the pages."""
        return str(self.about.get("handle") or "")

    @classmethod
    def read(cls, told: Json, effect: str = "") -> Verdict:
        """Of an answer of /verdict or /probe, or of the `verdict` in a refusal."""
        about = told.get("effect")
        about = about if isinstance(about, dict) else {}
        return cls(
            effect=str(about.get("id") or effect),
            answer=str(told.get("verdict") or ""),
            reason=str(told.get("reason") or ""),
            row=str(told.get("row") or ""),
            sentence=str(told.get("sentence") or ""),
            until_us=told.get("until_us"),
            attempt=int(told.get("attempt") or about.get("attempt") or 0),
            remote_key=str(told.get("remote_key") or ""),
            needs_leave=bool(told.get("needs_leave")),
            now_us=told.get("as_of_us"),
            compensation=str(told.get("compensation") or ""),
            about=about,
        )


@dataclass(frozen=True)
class Performed:
    """What became of an effect. `again` is true when it had happened before and nothing was done now.

    `result` is what the act returned; of an effect that an earlier process performed, only `reference` is left.
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
    again: bool = False

    @property
    def ok(self) -> bool:
        """Whether it happened and went well."""
        return self.outcome == "ok"

    @classmethod
    def read(cls, told: Mapping[str, Any], result: Any = None, *, again: bool = False) -> Performed:
        """Of Gatebook's object of an effect."""
        return cls(
            effect=str(told["id"]),
            handle=str(told.get("handle") or ""),
            effect_key=str(told.get("effect_key") or ""),
            tool=str(told.get("tool") or ""),
            state=str(told.get("state") or ""),
            outcome=str(told.get("outcome") or ""),
            reference=str(told.get("external_reference") or ""),
            attempt=int(told.get("attempt") or 0),
            result=result,
            again=again,
        )


Act = Callable[[str], object]  # gets the attempt's remote_key
# None or False: not there. True, or its reference: there. Several references: it is there more than once.
Looked = str | bool | Sequence[str] | None
Probe = Callable[[Known], Looked]


@dataclass(frozen=True)
class Undo:
    """How an attempt is taken back: an effect of its own, planned with `tool` and what `arguments` makes of it."""

    tool: str
    act: Callable[[Known, str], object]
    arguments: Callable[[Known], Any] = lambda known: {"undoes": known.effect_key, "attempt": known.attempt}


Compensate = Undo | Callable[[Known, str], object]


def undo_of(compensate: Compensate | None, tool: str) -> Undo | None:
    """A bare function is planned as the tool's name with `.undo`."""
    if compensate is None or isinstance(compensate, Undo):
        return compensate
    return Undo(f"{tool}.undo", compensate)


def what_was_found(looked: object) -> tuple[str, str]:
    """The word and the reference for what a probe returned. Raises TypeError where it says neither yes nor no."""
    if looked is None or looked is False:
        return "miss", ""
    if looked is True:
        return "hit", ""
    if isinstance(looked, str) and looked:
        return "hit", looked
    if isinstance(looked, Sequence) and not isinstance(looked, str | bytes):
        if not looked:
            return "miss", ""
        return ("several", "") if len(looked) > 1 else what_was_found(looked[0])
    raise TypeError(f"a probe returns None, True, a reference or a list of references, not {looked!r}")


def sendable(result: object) -> Any:
    """`result` as JSON that Gatebook takes, or a note in its place: an act that happened must never go unreported."""
    try:
        text = json.dumps(result, allow_nan=False, ensure_ascii=False, default=str)
        size = len(text.encode())
    except (TypeError, ValueError, RecursionError) as fault:
        return {"left_out": f"{type(result).__name__} is no JSON: {str(fault)[:200]!a}"}
    return json.loads(text) if size <= RESULT_BYTES else {"left_out": f"{size} bytes; keep it as an artifact"}
