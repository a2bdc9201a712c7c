"""Fold facts into an effect and its attempts, and derive the state of the effect.

State is a pure function of marks. A fact only sets marks, and each mark keeps the fact with the
smallest order key, regardless of arrival (of acknowledgements: the smallest of those that know the
outcome). Of the policy results of several plans, `resolve_policy_result` keeps one. So the same
facts give the same state in every order of delivery, however often they are repeated; only the
columns of `DELIVERY_COLUMNS` depend on delivery. Commands (after their compare-and-set), evidence
and as-of views all use this module.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, fields, replace
from operator import attrgetter
from typing import Any, Final, NamedTuple
from uuid import UUID

from journal.order_keys import (
    attempt_of_confirmation,
    attempt_of_resolution,
    is_command_mark,
    is_earlier_mark,
    is_resolution_mark,
)
from ledger.states import MOVED_PERMISSIONS, OUTCOME_OF_REASON
from ledger.store.effect_rows import AttemptRow, EffectRow

# Server clocks and journal positions: not part of the state.
DELIVERY_COLUMNS: Final = frozenset(
    {
        "received_us",
        "heard_us",
        "changed_us",
        "deadline_us",
        "opened_position",
        "plan_position",
        "answer_position",
        "version",
        "gave_way",
    }
)
# The columns that a plan sets, with their values while no plan has set them.
_PLAN_COLUMNS: Final = {
    "tool",
    "claimed_class",
    "intent_digest",
    "call_id",
    "turn",
    "task_id",
    "repository_id",
    "ref",
    "ref_class",
    "moved_refs",
    "ref_patterns_version",
    "environment",
    "resource",
    "parent_effect_id",
    "compensates_id",
    "undoes",
    "redactions",
    "policy_outcome",
    "policy_rule",
    "policy_tool_class",
    "policy_parts_digest",
    "policy_enforced",
}
_PLAN_DEFAULTS: Final = {
    column.name: column.default for column in fields(EffectRow) if column.name in _PLAN_COLUMNS
}


class Observation(NamedTuple):
    """The permission and basis of something that happened without a command."""

    permission: str
    basis: str


# Bases of what happened without a command, from the weakest to the strongest. Any other basis is
# that of a command or a ruling, and stays.
_OBSERVED_BASES: Final = ("import", "observe", "policy")


@dataclass(slots=True)
class Fact:
    """One fact about an effect. `values` holds the validated fields of its kind."""

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


def fold_fact(effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact) -> list[str]:
    """Set the marks of `fact` on effect and attempts; return its own violations.

    Call `derive_state` when all facts are applied. A fact of an unknown kind changes
    nothing.
    """
    effect.changed_us = max(effect.changed_us, fact.received_us)
    handler = _HANDLERS.get(fact.kind)
    if handler is None:
        return []
    key_reused = (
        fact.kind == "effect.planned"
        and bool(effect.planned_mark)
        and fact.values["intent_digest"] != effect.intent_digest
    )
    found_twice = fact.kind == PROBED and fact.values.get("result") == "several"
    contradicts = _contradicts_resolution(effect, fact)
    effect.violates = effect.violates or key_reused or found_twice or contradicts
    handler(effect, attempts, fact)
    if key_reused:
        return ["key_reuse"]
    if found_twice:
        return ["found_twice"]
    return ["rejected_after_all"] if contradicts else []


def _contradicts_resolution(effect: EffectRow, fact: Fact) -> bool:
    """True if a "rejected" report contradicts a human "happened" resolution."""
    rejects: bool = fact.kind == "effect.failed" and fact.values["reason"] == "rejected"
    return (
        rejects
        and effect.resolution == "happened"
        and attempt_of_resolution(effect.resolved_mark) == fact.attempt
    )


def _is_resolved_as_happened(effect: EffectRow, attempt: int) -> bool:
    """True if a person stated that this attempt happened."""
    return (
        effect.resolution == "happened" and attempt_of_resolution(effect.resolved_mark) == attempt
    )


def _planned(effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact) -> None:
    is_command, wins = fact.lane == "command", is_earlier_mark(fact.mark, effect.planned_mark)
    columns, is_replan_by_command = fact.values, False
    if effect.planned_mark:
        policy_outcome = resolve_policy_result(
            effect, fact.values, wins=wins, by_command=is_command
        )
        if not wins and policy_outcome == policy_result_of_effect(effect):
            return
        archive_replaced_plan(effect, plan_values(effect), fact.position)
        # Values of the losing plan must not fill gaps of the winning one, except the policy result.
        columns = (_PLAN_DEFAULTS | fact.values if wins else {}) | policy_outcome._asdict()
        # A command that re-plans a reported effect requests permission for the next attempt only.
        is_replan_by_command = is_command
    effect.replanned = True
    if wins:
        effect.planned_mark = fact.mark
        effect.planned_at_us = fact.told_us
        effect.plan_position = fact.position
        effect.lane = fact.lane
        # Until a plan arrives, the agent is that of the first fact.
        effect.agent_id = fact.agent or effect.agent_id
    for name, value in columns.items():
        setattr(effect, name, value)
    if (
        effect.permission_basis in _OBSERVED_BASES[1:]
        and effect.permission in _UNCOMMANDED
        and not is_replan_by_command
    ):
        # It happened before its plan arrived, so the policy outcome is known only now.
        _apply_observation(
            effect, attempts, classify_observation("none", False, effect.enforced_outcome)
        )


_STRICTNESS: Final = {"ask": 1, "deny": 2}


class PolicyResult(NamedTuple):
    """The policy columns of a plan; the defaults apply where no policy was evaluated."""

    policy_outcome: str = ""
    policy_rule: str = ""
    policy_tool_class: str = ""
    policy_enforced: bool = False
    policy_parts_digest: str = ""

    @property
    def strictness(self) -> int:
        """How restrictive the policy's outcome is; 0 if it was not enforced."""
        return _STRICTNESS.get(self.policy_outcome, 0) if self.policy_enforced else 0


def policy_result_of_effect(effect: EffectRow) -> PolicyResult:
    """Return the current policy result of an effect."""
    return PolicyResult(
        effect.policy_outcome,
        effect.policy_rule,
        effect.policy_tool_class,
        effect.policy_enforced,
        effect.policy_parts_digest,
    )


def policy_result_of_plan(plan: Mapping[str, Any]) -> PolicyResult:
    """Return the policy result in the columns of one plan."""
    return PolicyResult(**{name: plan[name] for name in PolicyResult._fields if name in plan})


def resolve_policy_result(
    effect: EffectRow, plan: Mapping[str, Any], *, wins: bool, by_command: bool
) -> PolicyResult:
    """Return the policy result after another `plan`, which `wins` or loses.

    A command was decided for what it requested, so reports never change its result. Which of
    several reported plans ran is unknown, so the strictest result counts, whatever their order.
    """
    reported, current = policy_result_of_plan(plan), policy_result_of_effect(effect)
    if by_command:
        return reported if wins else current
    if is_command_mark(effect.planned_mark):
        return current
    if reported.strictness != current.strictness:
        return max(reported, current, key=attrgetter("strictness"))
    if reported.strictness:
        return min(reported, current)  # of two equally strict rules always the same
    return reported if wins else current


# What the journal keeps of a replaced plan: ids, enums and numbers, by column. Its texts are in its
# body; its intent, time and agent are in its entry.
ARCHIVED_PLAN_COLUMNS: Final = (
    "task_id",
    "repository_id",
    "parent_effect_id",
    "compensates_id",
    "undoes",
    "claimed_class",
    "redactions",
    "ref_class",
    "ref_patterns_version",
    "policy_outcome",
    "policy_rule",
    "policy_tool_class",
    "policy_parts_digest",
    "policy_enforced",
)


def plan_values(effect: EffectRow) -> dict[str, Any]:
    """Return the current plan's values as the journal keeps them."""
    columns = {name: getattr(effect, name) for name in ARCHIVED_PLAN_COLUMNS}
    return {
        name: value
        for name, value in columns.items()
        if value or (name == "undoes" and value is not None)
    }


def archive_replaced_plan(effect: EffectRow, replaced: dict[str, Any], position: int) -> None:
    """Archive the plan that the one at `position` replaces (see writer.write_effects)."""
    effect.gave_way = [*(effect.gave_way or ()), {"by": position, **replaced}]


_UNCOMMANDED: Final = ("observed", "bypassed")


def classify_observation(permission: str, is_import: bool, policy_outcome: str) -> Observation:
    """Classify an effect that happened without a command.

    `permission` is the present value (none, pending or denied). `policy_outcome` is the result of
    an enforced policy on the plan (the strictest of several reported plans), or empty. The effect
    was bypassed where people had not approved or had denied it, or where the policy would not have
    allowed it.
    """
    if permission in ("pending", "denied"):
        return Observation("bypassed", "ruling")
    if is_import:
        return Observation("observed", "import")
    if policy_outcome in ("ask", "deny"):
        return Observation("bypassed", "policy")
    return Observation("observed", "policy" if policy_outcome else "observe")


def _apply_observation(
    effect: EffectRow, attempts: dict[int, AttemptRow], observation: Observation
) -> None:
    """Set the observed permission on effect and attempts made without a command."""
    if effect.permission_basis == "exemption":
        effect.permission_ref = ""
    # `derive_state` decides at the end whether this is a violation.
    effect.permission, effect.permission_basis = observation.permission, observation.basis
    # Several attempts were reported at once: which of them had permission is unknown.
    if effect.spent_by:
        attempts[effect.spent_by].permission, effect.spent_by = observation.permission, 0
    for row in attempts.values():
        if row.permission in _UNCOMMANDED:
            row.permission = observation.permission


def may_change_every_attempt(effect: EffectRow, facts: Iterable[Fact]) -> bool:
    """False if no fact can change the permission of attempts that it does not name.

    That is the case when every attempt was observed, no import turns out to be live, and no plan
    wins or gets a stricter policy outcome than the current one.
    """
    if effect.permission not in _UNCOMMANDED or effect.saved_permission:
        return True
    imported = effect.permission_basis == "import"
    return any(
        _may_change_policy_result(effect, fact)
        if fact.kind == "effect.planned"
        else imported and not fact.imports and fact.kind != "effect.superseded"
        for fact in facts
    )


def _may_change_policy_result(effect: EffectRow, plan: Fact) -> bool:
    if is_earlier_mark(plan.mark, effect.planned_mark):
        return True
    policy_outcome = resolve_policy_result(
        effect, plan.values, wins=False, by_command=plan.lane == "command"
    )
    return policy_outcome != policy_result_of_effect(effect)


def _attempt_of_fact(effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact) -> AttemptRow:
    """Return the attempt of a fact; a new one uses the effect's permission."""
    row = attempts.get(fact.attempt)
    if row is None and effect.saved_permission:
        # A rejected attempt turned out to have happened: restore the permission for the next one.
        effect.permission, effect.permission_until_us = (
            effect.saved_permission,
            effect.saved_permission_until_us,
        )
        effect.saved_permission, effect.saved_permission_until_us, effect.recalled = "", None, True
    if effect.permission in _UNCOMMANDED and effect.permission_basis in _OBSERVED_BASES:
        # Imported and live evidence of an effect arrive in any order: the stronger basis stays.
        if effect.permission_basis == "import" and not fact.imports:
            _apply_observation(
                effect, attempts, classify_observation("none", False, effect.enforced_outcome)
            )
    elif row is not None:
        # Permission requested after a rejection is for the next attempt: a late report on this
        # attempt does not use it.
        if effect.permission not in MOVED_PERMISSIONS and _will_set_state(
            effect, attempts, fact, row
        ):
            effect.saved_permission, effect.saved_permission_until_us = (
                effect.permission,
                effect.permission_until_us,
            )
            effect.permission = row.permission
    elif effect.permission == "used" and fact.values.get("replaces"):
        pass  # the verdict table allows a second attempt under the permission already used
    elif effect.permission == "granted" and not effect.is_expired(fact.received_us):
        effect.permission, effect.spent_by = "used", fact.attempt
    elif effect.permission in ("granted", "used"):
        # The permission expired or another attempt used it: a permission covers one attempt.
        _apply_observation(
            effect, attempts, classify_observation("none", fact.imports, effect.enforced_outcome)
        )
    elif effect.permission not in MOVED_PERMISSIONS:
        _apply_observation(
            effect,
            attempts,
            classify_observation(effect.permission, fact.imports, effect.enforced_outcome),
        )
    if row is None:
        row = attempts[fact.attempt] = AttemptRow(
            project_id=effect.project_id,
            effect_id=effect.id,
            number=fact.attempt,
            remote_key=make_remote_key(effect.id, fact.attempt),
            permission=effect.permission,
        )
    if not fact.imports:
        row.heard_us = min(fact.received_us, row.heard_us or fact.received_us)
    return row


def _will_set_state(
    effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact, row: AttemptRow
) -> bool:
    """True if this acknowledgement will determine the state (derive_state.determines_state)."""
    if fact.kind != "effect.acknowledged":
        return False
    outcome = fact.values["outcome"] if _takes_precedence(effect, fact, row) else row.outcome
    return outcome_determines_state(row, outcome, effect.undone, max(attempts))


def _takes_precedence(effect: EffectRow, fact: Fact, row: AttemptRow) -> bool:
    """True if this acknowledgement counts, whatever was reported before.

    A known outcome takes precedence over "unknown", even a report over a command. Among equals the
    first by its mark counts. Exception: among reports on a partial compensation (`undoes`), the
    report that it went wrong counts.
    """
    knows: bool = fact.values["outcome"] != "unknown"
    if row.acknowledged_mark and knows != (row.outcome != "unknown"):
        return knows
    commanded = fact.lane == "command" or is_command_mark(row.acknowledged_mark)
    if (
        effect.undoes
        and knows
        and row.acknowledged_mark
        and fact.values["outcome"] != row.outcome
        and not commanded
    ):
        return row.outcome == "ok"
    return is_earlier_mark(fact.mark, row.acknowledged_mark)


def _dispatched(effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact) -> None:
    row = _attempt_of_fact(effect, attempts, fact)
    if not is_earlier_mark(fact.mark, row.dispatched_mark):
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


def _acknowledged(effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact) -> None:
    row = _attempt_of_fact(effect, attempts, fact)
    if not _takes_precedence(effect, fact, row):
        return
    row.acknowledged_mark = fact.mark
    row.acknowledged_at_us = fact.told_us
    row.outcome = fact.values["outcome"]
    reference = effect.told_reference if _is_resolved_as_happened(effect, row.number) else ""
    row.external_reference = reference or fact.values.get("external_reference") or ""
    row.answer_position = fact.position


def _failed(effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact) -> None:
    row = _attempt_of_fact(effect, attempts, fact)
    if not is_earlier_mark(fact.mark, row.failed_mark):
        return
    row.failed_mark = fact.mark
    row.failed_at_us = fact.told_us
    row.failure_reason = fact.values["reason"]
    if not row.acknowledged_mark:
        row.answer_position = fact.position


def _probed(effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact) -> None:
    """Apply a probe: a hit acknowledges the attempt, other results move no mark."""
    if fact.values.get("result") == "hit":
        values = {"outcome": "ok", "external_reference": fact.values.get("external_reference")}
        _acknowledged(effect, attempts, replace(fact, kind="effect.acknowledged", values=values))


def _superseded(effect: EffectRow, _attempts: dict[int, AttemptRow], fact: Fact) -> None:
    if is_earlier_mark(fact.mark, effect.superseded_mark):
        effect.superseded_mark = fact.mark


def _resolved(effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact) -> None:
    """Apply a person's resolution; reports of agents never count as one."""
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
    if answer == "not_happened" and is_earlier_mark(fact.mark, row.failed_mark):
        row.failed_mark = fact.mark
        row.failed_at_us = fact.told_us
        row.failure_reason = "rejected"  # nothing happened, as after a clean rejection
    if answer == "happened":
        row.external_reference = fact.values.get("external_reference") or row.external_reference
        if effect.permission not in MOVED_PERMISSIONS:  # requested later, for the next attempt
            effect.saved_permission, effect.saved_permission_until_us = (
                effect.permission,
                effect.permission_until_us,
            )
            effect.permission = row.permission


def _confirmed(effect: EffectRow, attempts: dict[int, AttemptRow], fact: Fact) -> None:
    """Apply a code host's confirmation; reports of agents never count as one."""
    if fact.lane != "system" or fact.mark <= effect.confirmed_mark:
        return
    effect.confirmed_mark, effect.confirmed_by = fact.mark, fact.values["by"]
    row = attempts.get(fact.attempt)
    if row is not None and effect.permission not in MOVED_PERMISSIONS:
        effect.saved_permission, effect.saved_permission_until_us = (
            effect.permission,
            effect.permission_until_us,
        )
        effect.permission = row.permission


def _unconfirmed(effect: EffectRow, _attempts: dict[int, AttemptRow], fact: Fact) -> None:
    """Apply a withdrawn confirmation; `by` names the host of another that still counts."""
    if fact.lane != "system" or fact.mark <= effect.confirmed_mark:
        return
    effect.confirmed_mark, effect.confirmed_by = fact.mark, fact.values["by"]


RESOLVED: Final = "effect.resolved"
PROBED: Final = "effect.probed"
CONFIRMED: Final = "effect.confirmed"
UNCONFIRMED: Final = "effect.unconfirmed"
_HANDLERS = {
    PROBED: _probed,
    RESOLVED: _resolved,
    CONFIRMED: _confirmed,
    UNCONFIRMED: _unconfirmed,
    "effect.planned": _planned,
    "effect.dispatched": _dispatched,
    "effect.acknowledged": _acknowledged,
    "effect.failed": _failed,
    "effect.superseded": _superseded,
}
REPORTABLE_KINDS = frozenset(_HANDLERS) - {
    RESOLVED,
    CONFIRMED,
    UNCONFIRMED,
}  # what agents may report


def make_remote_key(effect: UUID, attempt: int) -> str:
    """Return the key that the remote sees for this attempt; every attempt has its own."""
    return f"gbk-{effect.hex}-{attempt}"


def derive_state(
    effect: EffectRow,
    attempts: dict[int, AttemptRow],
    deadline_s: int,
    undoable_through: int = 0,
) -> list[str]:
    """Derive the state from the marks; return the violations that they show.

    `deadline_s` is the maximum duration of a dispatch of the effect's tool. `undoable_through` is
    the attempt up to which the effect may still turn out to have been undone; it matters only where
    `may_have_happened_twice`.
    """
    highest = max(attempts, default=0)
    resolved = attempt_of_resolution(effect.resolved_mark)
    confirmed = confirmed_attempt(effect)
    for number, row in attempts.items():
        is_unanswered = (
            bool(row.dispatched_mark) and not row.acknowledged_mark and not row.failed_mark
        )
        row.is_open = (
            is_unanswered and number == highest and number != resolved and number > effect.undone
        )
        row.replaced = is_unanswered and number < highest
        if row.failure_reason and not row.acknowledged_mark:
            row.outcome = OUTCOME_OF_REASON[row.failure_reason]
    acknowledged = [
        row for _, row in sorted(attempts.items()) if determines_state(row, effect.undone, highest)
    ]
    last = attempts.get(highest)
    answering = acknowledged[-1] if acknowledged else last
    effect.state = _state(effect, attempts, acknowledged, last)
    effect.outcome = answering.outcome if answering is not None else ""
    reason = (
        "rejected" if highest <= effect.undone else last.failure_reason if last is not None else ""
    )
    if effect.state == "failed":
        effect.outcome = OUTCOME_OF_REASON[reason]
    if effect.state == "acknowledged" and (effect.resolution == "happened" or confirmed):
        is_known = acknowledged and effect.outcome != "unknown"
        effect.outcome = effect.outcome if is_known else "ok"
    if effect.state in ("planned", "dispatched"):
        effect.outcome = ""
    effect.attempt_count = highest
    effect.failure_reason = reason if effect.state == "failed" else ""
    effect.external_reference = answering.external_reference if answering is not None else ""
    effect.dispatched_at_us = last.dispatched_at_us if last is not None else None
    effect.settled_at_us = None
    if answering is not None:
        effect.settled_at_us = (
            answering.acknowledged_at_us if acknowledged else answering.failed_at_us
        )
    effect.deadline_us = None
    if effect.state == "dispatched" and last is not None and last.received_us is not None:
        effect.deadline_us = last.received_us + deadline_s * 1_000_000
    violations = []
    # A violation is never withdrawn. So it is recorded only where no later fact can contradict it:
    # an attempt of unknown outcome may still turn out not to have happened, and one that is being
    # undone may have been undone before the next.
    known_attempts = [row.number for row in acknowledged if row.outcome != "unknown"]
    first = known_attempts[0] if known_attempts else 0
    later_attempts = [number for number in known_attempts if number > undoable_through]
    if len(later_attempts) > 1 or (
        effect.resolution == "happened"
        and first > resolved
        and not 0 < resolved <= undoable_through
    ):
        violations.append("acknowledged_twice")
    # "It did not happen" applies to the attempt and to those before it.
    if (
        0
        < first
        <= max(
            (number for number, row in attempts.items() if is_resolution_mark(row.failed_mark)),
            default=0,
        )
    ):
        violations.append("happened_after_all")
    resolved_attempt = attempts.get(resolved) if effect.resolution == "happened" else None
    if resolved_attempt is not None and resolved_attempt.failure_reason == "rejected":
        violations.append("rejected_after_all")
    if _is_withdrawn_wrongly(effect, attempts, known_attempts):
        violations.append("withdrawn_after_dispatch")
    if effect.resolution == "abandoned" and known_attempts:
        violations.append("happened_after_abandoned")
    if effect.permission == "bypassed":
        violations.append("executed_without_permission")
    effect.violates = effect.violates or bool(violations)
    return violations


def confirmed_attempt(effect: EffectRow) -> int:
    """Return the attempt that a code host confirmed; 0 if none, or if it was undone.

    The attempt stays open: events often arrive before the report of the worker, which counts.
    A confirmation can be withdrawn, so no violation is ever derived from it.
    """
    number = attempt_of_confirmation(effect.confirmed_mark) if effect.confirmed_by else 0
    return number if number > effect.undone else 0


def may_have_happened_twice(effect: EffectRow, attempts: Mapping[int, AttemptRow]) -> bool:
    """True if two attempts of known outcome count, unless one of them was undone."""
    if len(attempts) < 2 and effect.resolution != "happened":
        return False
    highest = max(attempts, default=0)
    known_attempts = [
        number
        for number, row in attempts.items()
        if row.outcome != "unknown" and determines_state(row, effect.undone, highest)
    ]
    if effect.resolution == "happened" and known_attempts:
        return len(known_attempts) > 1 or min(known_attempts) > attempt_of_resolution(
            effect.resolved_mark
        )
    return len(known_attempts) > 1


def is_retry_exhausted(effect: EffectRow) -> bool:
    """True if the one retry after a person's "it did not happen" was used."""
    return effect.resolution == "not_happened" and effect.attempt_count > attempt_of_resolution(
        effect.resolved_mark
    )


def determines_state(row: AttemptRow, undone: int, highest: int) -> bool:
    """True if the acknowledgement of an attempt determines the effect's state.

    An undone attempt does not. Nor does an unknown outcome, once another attempt was made or this
    one was reported as failed.
    """
    return bool(row.acknowledged_mark) and outcome_determines_state(
        row, row.outcome, undone, highest
    )


def outcome_determines_state(row: AttemptRow, outcome: str, undone: int, highest: int) -> bool:
    if row.number <= undone or outcome != "unknown":
        return row.number > undone
    return row.number == highest and not row.failed_mark


def _is_withdrawn(
    effect: EffectRow,
    attempts: dict[int, AttemptRow],
    acknowledged: list[AttemptRow],
    last: AttemptRow | None,
) -> bool:
    """True if a withdrawal counts: nothing of the effect may have happened.

    A withdrawal by command was accepted because nothing had happened: after it only the last
    attempt counts. A reported withdrawal is checked against every attempt.
    """
    if not effect.superseded_mark or acknowledged or effect.resolution == "happened":
        return False
    if confirmed_attempt(effect):
        return False
    if is_command_mark(effect.superseded_mark):
        return last is None or not _is_in_doubt(effect, last)
    return not any(_is_in_doubt(effect, row) for row in attempts.values())


def _is_in_doubt(effect: EffectRow, row: AttemptRow) -> bool:
    """True if an attempt may have happened: not rejected, undone or denied."""
    denied_through = (
        attempt_of_resolution(effect.resolved_mark) if effect.resolution == "not_happened" else 0
    )
    return row.number > max(effect.undone, denied_through) and row.failure_reason != "rejected"


def _is_withdrawn_wrongly(
    effect: EffectRow, attempts: dict[int, AttemptRow], known_attempts: list[int]
) -> bool:
    """True for a reported withdrawal after dispatch, or any of what happened.

    Also if the attempt turns out to be rejected: the report came too early, or should have been a
    command, and no later fact withdraws a violation.
    """
    if not effect.superseded_mark:
        return False
    return bool(known_attempts or (attempts and not is_command_mark(effect.superseded_mark)))


def _state(
    effect: EffectRow,
    attempts: dict[int, AttemptRow],
    acknowledged: list[AttemptRow],
    last: AttemptRow | None,
) -> str:
    """Return the state; the first match counts (docs/explanation/order-of-facts.md)."""
    if effect.resolution == "abandoned" or _is_withdrawn(effect, attempts, acknowledged, last):
        return "superseded"
    if effect.compensated:
        return "compensated"
    if acknowledged or effect.resolution == "happened" or confirmed_attempt(effect):
        return "acknowledged"
    if last is not None:
        return "failed" if last.failed_mark or last.number <= effect.undone else "dispatched"
    return "planned"
