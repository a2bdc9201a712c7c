"""What a fact does. State is a pure function of marks; a fact only sets marks, each once, the first by its order key.

The command lane (after its compare-and-set), the evidence lane and as-of views all come through here. Because a mark is
kept by the smallest order key and never by arrival (of acknowledgements, by the smallest of those that know the
outcome), the same facts give the same state in every order of delivery and however often they are repeated. Only the
columns of `FOLLOW_DELIVERY` depend on it.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, fields, replace
from typing import Any, Final, NamedTuple
from uuid import UUID

from journal.order import attempt_of, earlier, is_of_a_command
from ledger import judgement
from ledger.marks import once_more_is_spent as once_more_is_spent
from ledger.marks import says
from ledger.marks import settle as settle
from ledger.rows import AttemptRow, EffectRow
from ledger.states import MOVED

# The server's clocks, and pointers into the journal: no part of state.
FOLLOW_DELIVERY: Final = frozenset(
    {
        *("received_us", "heard_us", "changed_us", "deadline_us"),
        *("opened_position", "plan_position", "answer_position", "version", "gave_way"),
    }
)
# What a plan says of its effect, and what each column is while no plan has said it.
_UNSAID: Final = {
    column.name: column.default
    for column in fields(EffectRow)
    if column.name
    in {
        *(
            "tool",
            "claimed_class",
            "intent_digest",
            "call_id",
            "turn",
            "task_id",
            "repository_id",
            "ref",
            "ref_class",
        ),
        *(
            "moved_refs",
            "ref_patterns_version",
            "environment",
            "resource",
            "parent_effect_id",
            "compensates_id",
            "undoes",
            "redactions",
        ),
        *("judged", "judged_by", "judged_as", "enforced"),
    }
}


class Observation(NamedTuple):
    """What it means that something happened without a command: the leave it ran under, and the basis."""

    leave: str
    basis: str


# (present leave, from an import, what an enforced policy said of the plan or "") -> Observation
Observe = Callable[[str, bool, str], Observation]
# Bases of what happened without a command, from the lightest to the weightiest; any other basis is a command's or a
# ruling's, and stands.
_OBSERVED_BASES: Final = ("import", "observe", "policy")


@dataclass(slots=True)
class Fact:
    """One fact about an effect, as the fold reads it. `values` holds the fields of its kind, already checked."""

    kind: str
    mark: str
    lane: str
    key: str
    position: int
    received_us: int
    told_us: int | None
    attempt: int
    imports: bool = False
    lease_epoch: int | None = None
    agent: UUID | None = None
    values: dict[str, Any] = field(default_factory=dict)


def apply(
    effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact, observe: Observe
) -> list[str]:
    """Set the marks of `fact` on `effect` and `attempts` (by number) and return the violations it shows by itself.

    Call `settle` when all facts are in. A kind the fold does not know moves nothing.
    """
    effect.changed_us = max(effect.changed_us, fact.received_us)
    handler = _HANDLERS.get(fact.kind)
    if handler is None:
        return []
    reused = (
        fact.kind == "effect.planned"
        and bool(effect.planned_mark)
        and fact.values["intent_digest"] != effect.intent_digest
    )
    twice = fact.kind == PROBED and fact.values.get("found") == "several"
    denied = _denies_a_person(effect, fact)
    effect.violates = effect.violates or reused or twice or denied
    handler(effect, attempts, fact, observe)
    return (
        ["key_reuse"]
        if reused
        else ["found_twice"]
        if twice
        else ["rejected_after_all"]
        if denied
        else []
    )


def _denies_a_person(effect: EffectRow, fact: Fact) -> bool:
    """True for a clean rejection of the attempt that a person said had happened, also where it moves no mark."""
    rejects: bool = fact.kind == "effect.failed" and fact.values["reason"] == "rejected"
    return (
        rejects
        and effect.resolution == "happened"
        and attempt_of(effect.resolved_mark) == fact.attempt
    )


def _is_told_by_a_person(effect: EffectRow, attempt: int) -> bool:
    """True when a person said of this attempt that it happened."""
    return effect.resolution == "happened" and attempt_of(effect.resolved_mark) == attempt


def _planned(
    effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact, observe: Observe
) -> None:
    by_command, wins = fact.lane == "command", earlier(fact.mark, effect.planned_mark)
    columns, asks_on = fact.values, False
    if effect.planned_mark:
        judged = judgement.standing(effect, fact.values, wins=wins, by_command=by_command)
        if not wins and judged == judgement.of(effect):
            return
        gives_way(effect, said_by_plan(effect), fact.position)
        # What a losing plan said may not show through where the winning one is silent; but for what was said of it.
        columns = (_UNSAID | fact.values if wins else {}) | judged._asdict()
        # A command that plans anew what was reported asks for the next attempt; of those before it says nothing.
        asks_on = by_command
    effect.replanned = True
    if wins:
        effect.planned_mark = fact.mark
        effect.planned_at_us = fact.told_us
        effect.plan_position = fact.position
        effect.lane = fact.lane
        effect.agent_id = (
            fact.agent or effect.agent_id
        )  # until a plan is heard, whoever spoke of the effect first
    for name, value in columns.items():
        setattr(effect, name, value)
    if effect.leave_basis in _OBSERVED_BASES[1:] and effect.leave in _SEEN and not asks_on:
        # It happened before this was heard: what the policy says of the plan is only known now.
        _see(effect, attempts, observe("held", False, effect.enforced_judgement))


# What the book keeps of a plan that another takes the place of: ids, enums and numbers, by column. Its words stand in
# its body; its intent, and when and by whom it was told, in its entry.
KEPT_OF_PLANS: Final = (
    *(
        "task_id",
        "repository_id",
        "parent_effect_id",
        "compensates_id",
        "undoes",
        "claimed_class",
        "redactions",
    ),
    *("ref_class", "ref_patterns_version", "judged", "judged_by", "judged_as", "enforced"),
)


def said_by_plan(effect: EffectRow) -> dict[str, Any]:
    """What the plan that stands says, as the book keeps it."""
    columns = {name: getattr(effect, name) for name in KEPT_OF_PLANS}
    return {
        name: value
        for name, value in columns.items()
        if value or (name == "undoes" and value is not None)
    }


def gives_way(effect: EffectRow, replaced: dict[str, Any], position: int) -> None:
    """Remember what a plan said until the one at `position` took its place (see effects.write)."""
    effect.gave_way = [*(effect.gave_way or ()), {"by": position, **replaced}]


_SEEN: Final = ("observed", "bypassed")


def _see(effect: EffectRow, attempts: dict[int, AttemptRow], seen: Observation) -> None:
    """Let the effect, and those of its attempts that happened without a command, stand under what was observed."""
    if effect.leave_basis == "exemption":
        effect.leave_ref = ""
    effect.leave, effect.leave_basis = (
        seen.leave,
        seen.basis,
    )  # whether it is a breach, `settle` says at the end
    if effect.spent_by:  # several attempts told of at once: which of them had leave nobody can say
        attempts[effect.spent_by].leave, effect.spent_by = seen.leave, 0
    for row in attempts.values():
        if row.leave in _SEEN:
            row.leave = seen.leave


def may_change_every_attempt(effect: EffectRow, facts: Iterable[Fact]) -> bool:
    """False when none of `facts` can move the leave under which attempts ran that it does not name (see `_see`).

    So it is where every attempt was observed already, and no import turns out to have been live, and no plan wins or
    is judged more strictly than what stands.
    """
    if effect.leave not in _SEEN or effect.leave_aside:
        return True
    imported = effect.leave_basis == "import"
    return any(
        _may_be_judged_otherwise(effect, fact)
        if fact.kind == "effect.planned"
        else imported and not fact.imports and fact.kind != "effect.superseded"
        for fact in facts
    )


def _may_be_judged_otherwise(effect: EffectRow, plan: Fact) -> bool:
    if earlier(plan.mark, effect.planned_mark):
        return True
    judged = judgement.standing(effect, plan.values, wins=False, by_command=plan.lane == "command")
    return judged != judgement.of(effect)


def _attempt(
    effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact, observe: Observe
) -> AttemptRow:
    """The attempt a moving fact speaks of. A new one happened: the effect's leave is spent or found wanting."""
    row = attempts.get(fact.attempt)
    if row is None and effect.leave_aside:
        # The attempt after the one that was rejected, and then had happened: leave is judged as it stood for this one.
        effect.leave, effect.leave_until_us = effect.leave_aside, effect.leave_aside_until_us
        effect.leave_aside, effect.leave_aside_until_us, effect.recalled = "", None, True
    if effect.leave in _SEEN and effect.leave_basis in _OBSERVED_BASES:
        # Import and live evidence of one effect may arrive either way round: the weightier basis stays.
        if effect.leave_basis == "import" and not fact.imports:
            _see(effect, attempts, observe("held", False, effect.enforced_judgement))
    elif row is not None:
        # Leave asked for since a rejection is for the next attempt: a late word on this one does not spend it.
        if effect.leave not in MOVED and _will_tell(effect, attempts, fact, row):
            effect.leave_aside, effect.leave_aside_until_us = effect.leave, effect.leave_until_us
            effect.leave = row.leave
    elif effect.leave == "used" and fact.values.get("replaces"):
        pass  # the table lets it act again under the leave that the attempt before it used
    elif effect.leave == "granted" and not effect.lapsed(fact.received_us):
        effect.leave, effect.spent_by = "used", fact.attempt
    elif effect.leave in ("granted", "used"):
        # Its time was over, or another attempt used it: leave is for one.
        _see(effect, attempts, observe("held", fact.imports, effect.enforced_judgement))
    elif effect.leave not in MOVED:
        _see(effect, attempts, observe(effect.leave, fact.imports, effect.enforced_judgement))
    if row is None:
        row = attempts[fact.attempt] = AttemptRow(
            project_id=effect.project_id,
            effect_id=effect.id,
            number=fact.attempt,
            remote_key=remote_key(effect.id, fact.attempt),
            leave=effect.leave,
        )
    if not fact.imports:
        row.heard_us = min(fact.received_us, row.heard_us or fact.received_us)
    return row


def _will_tell(
    effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact, row: AttemptRow
) -> bool:
    """True for an acknowledgement that will say what state the effect is in (see marks.tells)."""
    if fact.kind != "effect.acknowledged":
        return False
    outcome = fact.values["outcome"] if _is_believed(effect, fact, row) else row.outcome
    return says(row, outcome, effect.undone, max(attempts))


def _is_believed(effect: EffectRow, fact: Fact, row: AttemptRow) -> bool:
    """True for an acknowledgement that stands for its attempt, whatever was told of it before.

    Whoever knows the outcome is believed before whoever does not, also a report before a command: "unknown" contradicts
    nobody. Of two that know, and of two that do not, the first by its mark stands; but of reports of what undoes a part
    of another effect, so that it can be done anew, the one that says that it went wrong.
    """
    knows: bool = fact.values["outcome"] != "unknown"
    if row.acknowledged_mark and knows != (row.outcome != "unknown"):
        return knows
    commanded = fact.lane == "command" or is_of_a_command(row.acknowledged_mark)
    if (
        effect.undoes
        and knows
        and row.acknowledged_mark
        and fact.values["outcome"] != row.outcome
        and not commanded
    ):
        return row.outcome == "ok"
    return earlier(fact.mark, row.acknowledged_mark)


def _dispatched(
    effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact, observe: Observe
) -> None:
    row = _attempt(effect, attempts, fact, observe)
    if not earlier(fact.mark, row.dispatched_mark):
        return
    row.dispatched_mark = fact.mark
    row.dispatched_at_us = fact.told_us
    row.lane = fact.lane
    row.dispatch_key = fact.key
    row.lease_epoch = fact.lease_epoch
    row.process = fact.values.get("process") or ""
    row.received_us = fact.received_us
    if fact.values.get("replaces"):
        row.replaces, row.verdict_row = fact.values["replaces"], fact.values["verdict_row"]
        row.remote_key = fact.values["remote_key"]


def _acknowledged(
    effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact, observe: Observe
) -> None:
    row = _attempt(effect, attempts, fact, observe)
    if not _is_believed(effect, fact, row):
        return
    row.acknowledged_mark = fact.mark
    row.acknowledged_at_us = fact.told_us
    row.outcome = fact.values["outcome"]
    reference = effect.told_reference if _is_told_by_a_person(effect, row.number) else ""
    row.external_reference = reference or fact.values.get("external_reference") or ""
    row.answer_position = fact.position


def _failed(
    effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact, observe: Observe
) -> None:
    row = _attempt(effect, attempts, fact, observe)
    if not earlier(fact.mark, row.failed_mark):
        return
    row.failed_mark = fact.mark
    row.failed_at_us = fact.told_us
    row.failure_reason = fact.values["reason"]
    if not row.acknowledged_mark:
        row.answer_position = fact.position


def _probed(
    effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact, observe: Observe
) -> None:
    """A look at the remote. One that found it tells that it happened; the others move nothing, and are read with it."""
    if fact.values.get("found") == "hit":
        values = {"outcome": "ok", "external_reference": fact.values.get("external_reference")}
        _acknowledged(
            effect, attempts, replace(fact, kind="effect.acknowledged", values=values), observe
        )


def _superseded(
    effect: EffectRow, _attempts: dict[int, AttemptRow], fact: Fact, _observe: Observe
) -> None:
    if earlier(fact.mark, effect.superseded_mark):
        effect.superseded_mark = fact.mark


def _resolved(
    effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact, _observe: Observe
) -> None:
    """A person said what became of an attempt of which nobody could know. No agent's report is that word."""
    if fact.lane != "system":
        return
    answer, row = fact.values["answer"], attempts.get(fact.attempt)
    if fact.mark > effect.resolved_mark:
        effect.resolved_mark, effect.resolution = fact.mark, answer
        effect.told_reference = (
            fact.values.get("external_reference") or "" if answer == "happened" else ""
        )
    if row is None:
        return
    if answer == "not_happened" and earlier(fact.mark, row.failed_mark):
        row.failed_mark = fact.mark
        row.failed_at_us = fact.told_us
        row.failure_reason = (
            "rejected"  # nothing happened: what follows is what follows a clean rejection
        )
    if answer == "happened":
        row.external_reference = fact.values.get("external_reference") or row.external_reference
        if effect.leave not in MOVED:  # asked for since, for the next attempt
            effect.leave_aside, effect.leave_aside_until_us = effect.leave, effect.leave_until_us
            effect.leave = row.leave


RESOLVED: Final = "effect.resolved"
PROBED: Final = "effect.probed"
_HANDLERS = {
    PROBED: _probed,
    RESOLVED: _resolved,
    "effect.planned": _planned,
    "effect.dispatched": _dispatched,
    "effect.acknowledged": _acknowledged,
    "effect.failed": _failed,
    "effect.superseded": _superseded,
}
KINDS = frozenset(_HANDLERS) - {RESOLVED}  # what agents may tell


def remote_key(effect: UUID, attempt: int) -> str:
    """The key offered to the remote for this attempt; another attempt has another."""
    return f"gbk-{effect.hex}-{attempt}"
