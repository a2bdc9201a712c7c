"""What is known of an effect, said in one plain sentence: computed from its marks, never a guess.

A sentence is a list of parts; a `Moment` among them is a time, which the page tells in the reader's clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from inquiry.shown import UNKNOWN, shown_state
from ledger.models import Attempt, Effect

NOBODY_KNOWS: Final = " Nobody has said whether it happened."
# Leave under which a planned effect waits, and what that means for it.
_WAITS: Final = {
    "held": "no leave has been given, so it may not be dispatched",
    "pending": "it waits for people to give leave",
    "granted": "leave is granted, and no dispatch is known",
    "refused": "leave was refused, so it may not be dispatched",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """A time within a sentence, microseconds since the epoch."""

    us: int


Part = str | Moment
Sentence = list[Part]


@dataclass(slots=True)
class Known:
    """The headline of the effect page: its first words in the colour of `looks` (a shown state), then the rest.

    `state` is the word for the effect's state; `detail` what stands under the headline, often nothing.
    """

    state: str
    looks: str
    words: str
    rest: Sentence
    detail: Sentence = field(default_factory=list)


def known(effect: Effect, attempts: Sequence[Attempt], times: int, now_us: int) -> Known:
    """Say what is known of `effect` at `now_us`. `attempts` are its newest, in order, of `times` in all."""
    state = shown_state(effect, now_us)
    said = _SAY.get(effect.state, _planned)(effect, attempts[-1] if attempts else None, now_us)
    said.state, said.looks = state, said.looks or state
    if effect.leave == "bypassed":  # before whatever came of it
        then = f" {said.words[:1].lower()}{said.words[1:]}"
        said.words, said.rest, said.looks = "Ran without approval:", [then, *said.rest], "failed"
    if effect.resolution == "compensate" and effect.state != "compensated":
        said.detail.append(" A person asked for its compensation.")
    if times > 1:
        said.detail.append(f" It was attempted {times} times.")
    if not effect.planned_mark:
        said.detail.append(" Its plan has not arrived: its tool, arguments and target are not known yet.")
    return said


def is_of_a_person_alone(effect: Effect, last: Attempt) -> bool:
    """True when the agent answered, but with outcome unknown: that it happened is known from a person."""
    return effect.resolution == "happened" and last.outcome == UNKNOWN and effect.outcome != UNKNOWN


def _say(words: str, *rest: Part | Sentence, detail: Sentence | None = None, looks: str = "") -> Known:
    flat: Sentence = []
    for part in rest:
        flat += part if isinstance(part, list) else [part]
    return Known("", looks, words, flat, detail or [])


def _at(us: int | None) -> Sentence:
    return [" at ", Moment(us)] if us is not None else []


def _planned(effect: Effect, _last: Attempt | None, _now: int) -> Known:
    waits = _WAITS.get(effect.leave, "no dispatch is known")
    return _say("Planned", _at(effect.planned_at_us), "; ", waits, ".")


def _dispatched(effect: Effect, _last: Attempt | None, now: int) -> Known:
    told = [*_at(effect.dispatched_at_us), ", and no answer has come."]
    deadline = effect.deadline_us
    if deadline is None:
        return _say("Dispatched", told, NOBODY_KNOWS)
    if deadline < now:
        late: Sentence = ["Its deadline passed", *_at(deadline), ". Late evidence is still accepted."]
        return _say("Dispatched", told, NOBODY_KNOWS, detail=late)
    return _say("Dispatched", told, detail=["An answer may be on its way until ", Moment(deadline), "."])


def _acknowledged(effect: Effect, last: Attempt | None, _now: int) -> Known:
    if effect.resolution == "happened" and (last is None or last.acknowledged_mark == ""):
        return _say("Happened,", " as a person said.", detail=["No agent has told of it."])
    if last is not None and is_of_a_person_alone(effect, last):
        told = ["Its agent acknowledged it", *_at(last.acknowledged_at_us), " with outcome unknown."]
        return _say("Happened,", " as a person said.", detail=told)
    told = [*_at(effect.settled_at_us), " with outcome ", effect.outcome, "."]
    if effect.outcome == UNKNOWN:
        return _say("Acknowledged", told, NOBODY_KNOWS)
    if effect.outcome == "error":
        ended: Sentence = ["It ran to an end, and what it reported is an error."]
        return _say("Acknowledged", told, detail=ended, looks="failed")
    return _say("Acknowledged", told)


def _failed(effect: Effect, last: Attempt | None, _now: int) -> Known:
    told = _at(effect.settled_at_us)
    if last is not None and last.is_denied:
        return _say("Did not happen,", " as a person said", told, ".")
    if effect.failure_reason == "rejected":
        clean: Sentence = ["The other side refused before anything was done."]
        return _say("Rejected", told, ": it did not happen.", detail=clean)
    if effect.failure_reason == "timeout":
        return _say("Timed out", told, ".", NOBODY_KNOWS)
    return _say("Failed with an error", told, ".", NOBODY_KNOWS)


def _compensated(effect: Effect, _last: Attempt | None, _now: int) -> Known:
    before: Sentence = [f"It had been acknowledged with outcome {effect.outcome}."] if effect.outcome else []
    return _say("Compensated:", " another effect that undoes it was acknowledged.", detail=before)


def _superseded(effect: Effect, last: Attempt | None, _now: int) -> Known:
    if last is None:
        return _say("Superseded", " before it was dispatched. No attempt of it is known.")
    if effect.resolution == "abandoned" and last.acknowledged_mark and effect.outcome != UNKNOWN:
        return _say("Abandoned", " by a person, and acknowledged with outcome ", effect.outcome or "unknown", ".")
    if effect.resolution == "abandoned":
        return _say("Abandoned", " by a person. Whether it happened stays unknown.")
    if last.failure_reason == "rejected":
        return _say("Superseded,", " after its last attempt was rejected.")
    return _say("Superseded,", " after it was dispatched.", NOBODY_KNOWS)


_SAY: Final = {
    "planned": _planned,
    "dispatched": _dispatched,
    "acknowledged": _acknowledged,
    "failed": _failed,
    "compensated": _compensated,
    "superseded": _superseded,
}
