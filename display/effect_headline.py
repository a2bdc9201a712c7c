"""Headline of an effect in one sentence, computed from its reported entries.

A sentence is a list of parts; a `Moment` is a time that the page shows in the reader's clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from display.display_state import UNKNOWN, derive_shown_state
from ledger.confirmations import CODE_HOST_LABELS
from ledger.models import Attempt, Effect

OUTCOME_UNKNOWN_TEXT: Final = " It may or may not have happened."
# Permission of a planned effect -> what it waits for.
_WAITS: Final = {
    "none": "it has no permission yet, so it may not be dispatched",
    "pending": "it waits for approval",
    "granted": "permission is granted; no dispatch was reported",
}
# Permission and its basis -> why an effect without an attempt does not run.
_ENDINGS: Final = {
    ("denied", "ruling"): "approval was denied",
    ("denied", "policy"): "a policy denied it",
    ("denied", "expired"): "its request expired without an answer",
    ("none", "changes_requested"): "a reviewer requested changes",
    ("none", "expired_unused"): "its approval expired unused",
    ("none", "revoked"): "its approval was revoked",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """A time within a sentence, microseconds since the epoch."""

    us: int


Part = str | Moment
Sentence = list[Part]


@dataclass(slots=True)
class Headline:
    """Headline of the effect page.

    Its first words in the colour of `style`, then the rest.

    `state` is the word for the effect's state; `detail` is the text below, often empty.
    """

    state: str
    style: str
    words: str
    rest: Sentence
    detail: Sentence = field(default_factory=list)


def effect_headline(
    effect: Effect,
    attempts: Sequence[Attempt],
    times: int,
    now_us: int,
    violations: Sequence[str] = (),
) -> Headline:
    """Return the headline of `effect` at `now_us`: what is wrong comes before its outcome.

    `attempts` are its newest attempts in order; `times` is their total number. `violations` are
    the labels of its violations, oldest first.
    """
    state = derive_shown_state(effect, now_us)
    result = _SAY.get(effect.state, _planned_headline)(
        effect, attempts[-1] if attempts else None, now_us
    )
    result.state, result.style = state, result.style or state
    if effect.permission == "bypassed":  # takes precedence over the outcome
        lead = f" {result.words[:1].lower()}{result.words[1:]}"
        result.words, result.rest, result.style = (
            "Ran without approval:",
            [lead, *result.rest],
            "failed",
        )
    elif violations:
        lead = f" {result.words[:1].lower()}{result.words[1:]}"
        wrong = violations[0].rstrip(".")
        result.words, result.rest, result.style = f"{wrong}:", [lead, *result.rest], "failed"
    if effect.resolution == "compensate" and effect.state != "compensated":
        result.detail.append(" A person requested its compensation.")
    if times > 1:
        result.detail.append(f" It was attempted {times} times.")
    if not effect.planned_mark:
        result.detail.append(" Its plan has not arrived: tool, arguments and target are unknown.")
    return result


def is_ended_unrun(effect: Effect) -> bool:
    """Return True if the effect has no attempt and can get none: it was denied or withdrawn."""
    is_ended = effect.state == "superseded" or (
        effect.state == "planned" and effect.permission == "denied"
    )
    return is_ended and not effect.attempt_count


def is_resolved_by_person_only(effect: Effect, last: Attempt) -> bool:
    """Return True if a person resolved as happened what the agent reported unknown."""
    return effect.resolution == "happened" and last.outcome == UNKNOWN and effect.outcome != UNKNOWN


def _headline(
    words: str, *rest: Part | Sentence, detail: Sentence | None = None, style: str = ""
) -> Headline:
    flat: Sentence = []
    for part in rest:
        flat += part if isinstance(part, list) else [part]
    return Headline("", style, words, flat, detail or [])


def _at_time(us: int | None) -> Sentence:
    return [" at ", Moment(us)] if us is not None else []


def _planned_headline(effect: Effect, _last: Attempt | None, _now: int) -> Headline:
    if is_ended_unrun(effect):
        ending = _ENDINGS.get((effect.permission, effect.permission_basis), "permission was denied")
        return _headline("Not run:", f" {ending}.")
    waits = _WAITS.get(effect.permission, "no dispatch was reported")
    return _headline("Planned", _at_time(effect.planned_at_us), "; ", waits, ".")


def _dispatched_headline(effect: Effect, _last: Attempt | None, now: int) -> Headline:
    when = [*_at_time(effect.dispatched_at_us), "; no result reported."]
    deadline = effect.deadline_us
    if deadline is None:
        return _headline("Dispatched", when, OUTCOME_UNKNOWN_TEXT)
    if deadline < now:
        late: Sentence = [
            "Its deadline passed",
            *_at_time(deadline),
            ". A late report will still be recorded.",
        ]
        return _headline("Dispatched", when, OUTCOME_UNKNOWN_TEXT, detail=late)
    return _headline(
        "Dispatched", when, detail=["A result may still arrive until ", Moment(deadline), "."]
    )


def is_confirmed_only(effect: Effect, last: Attempt | None) -> bool:
    """Return True if a code host confirmed what no agent reported with a known outcome."""
    return (
        bool(effect.confirmed_by)
        and effect.resolution != "happened"
        and (last is None or not last.acknowledged_mark or last.outcome == UNKNOWN)
    )


def _acknowledged_headline(effect: Effect, last: Attempt | None, _now: int) -> Headline:
    if is_confirmed_only(effect, last):
        host = CODE_HOST_LABELS[effect.confirmed_by]
        return _headline(
            "Happened,",
            f" as confirmed by {host}.",
            detail=["No agent has reported its outcome."],
        )
    if effect.resolution == "happened" and (last is None or last.acknowledged_mark == ""):
        return _headline(
            "Happened,", " as resolved by a person.", detail=["No agent has reported it."]
        )
    if last is not None and is_resolved_by_person_only(effect, last):
        when = [
            "Its agent acknowledged it",
            *_at_time(last.acknowledged_at_us),
            " with outcome unknown.",
        ]
        return _headline("Happened,", " as resolved by a person.", detail=when)
    when = [*_at_time(effect.settled_at_us), " with outcome ", effect.outcome, "."]
    if effect.outcome == UNKNOWN:
        return _headline("Acknowledged", when, OUTCOME_UNKNOWN_TEXT)
    if effect.outcome == "error":
        ended: Sentence = ["It finished and reported an error."]
        return _headline("Acknowledged", when, detail=ended, style="failed")
    return _headline("Acknowledged", when)


def _failed_headline(effect: Effect, last: Attempt | None, _now: int) -> Headline:
    when = _at_time(effect.settled_at_us)
    if last is not None and last.is_denied:
        return _headline("Did not happen,", " as resolved by a person", when, ".")
    if effect.failure_reason == "rejected":
        clean: Sentence = ["The remote service refused before doing anything."]
        return _headline("Rejected", when, ": it did not happen.", detail=clean)
    if effect.failure_reason == "timeout":
        return _headline("Timed out", when, ".", OUTCOME_UNKNOWN_TEXT)
    return _headline("Failed with an error", when, ".", OUTCOME_UNKNOWN_TEXT)


def _compensated_headline(effect: Effect, _last: Attempt | None, _now: int) -> Headline:
    before: Sentence = (
        [f"It had been acknowledged with outcome {effect.outcome}."] if effect.outcome else []
    )
    return _headline("Compensated:", " the effect that undoes it was acknowledged.", detail=before)


def _superseded_headline(effect: Effect, last: Attempt | None, _now: int) -> Headline:
    if last is None and effect.resolution == "abandoned":
        return _headline("Not run:", " a person abandoned it before it was dispatched.")
    if last is None:
        ending = _ENDINGS.get((effect.permission, effect.permission_basis), "")
        withdrawal = "its agent withdrew it"
        rest = f"{ending}, and {withdrawal}" if ending else f"{withdrawal} before it was dispatched"
        return _headline("Not run:", f" {rest}.")
    if effect.resolution == "abandoned" and last.acknowledged_mark and effect.outcome != UNKNOWN:
        return _headline(
            "Abandoned",
            " by a person, and acknowledged with outcome ",
            effect.outcome or "unknown",
            ".",
        )
    if effect.resolution == "abandoned":
        return _headline("Abandoned", " by a person. Whether it happened stays unknown.")
    if last.failure_reason == "rejected":
        return _headline("Superseded,", " after its last attempt was rejected.")
    return _headline("Superseded,", " after it was dispatched.", OUTCOME_UNKNOWN_TEXT)


_SAY: Final = {
    "planned": _planned_headline,
    "dispatched": _dispatched_headline,
    "acknowledged": _acknowledged_headline,
    "failed": _failed_headline,
    "compensated": _compensated_headline,
    "superseded": _superseded_headline,
}
