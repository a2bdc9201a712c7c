"""Rebuild effects from journal entries with the fold that wrote their rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from approvals.gates.statuses import PERMISSION_OF_STATUS
from investigation.history.past_entries import PastEntry, group_batches
from journal.entries import SYSTEM_SOURCE
from journal.order_keys import make_given_up_key, make_resolution_key
from ledger import confirmations
from ledger.fold import compensation as fold_compensation
from ledger.fold import effect_state
from ledger.fold.effect_state import Fact
from ledger.models import Attempt, Effect
from ledger.store.effect_rows import AttemptRow, EffectRow
from ledger.store.writer import is_not_plan

# Placeholder for text that no replay reads, followed by the position of the entry whose body has it
# (see search_text.py).
TEXT_PLACEHOLDER: Final = "\0"
# Rulings that end a gate without an entry of their own.
_ENDING_RULINGS: Final = ("denied", "denied_session")
_ENDS: Final = tuple(
    f"gate.{status}"
    for status in ("changes_requested", "expired", "expired_unused", "revoked", "cancelled")
)
_MISSING_PLAN_VALUES: Final = {
    "claimed_class": "",
    "redactions": 0,
    "ref_class": "",
    "policy_outcome": "",
    "policy_rule": "",
    "policy_tool_class": "",
    "policy_parts_digest": "",
}


@dataclass(slots=True)
class RebuiltEffect:
    """A rebuilt effect. Text is added by search_text.py."""

    row: EffectRow
    attempts: dict[int, AttemptRow] = field(default_factory=dict)
    plan: int | None = None  # Position of the current plan.
    settled: int = 0  # Position of the last fact that could change the state.
    violates: bool = False
    told_by: dict[str, int] = field(default_factory=dict)  # Position by the order key of a fact.


class EffectRebuilder:
    """Folds entries into effects. `rows` are the stored effects, read for what never changes."""

    def __init__(
        self,
        rows: Mapping[UUID, Effect | EffectRow],
        attempts: Mapping[UUID, Mapping[int, Attempt]],
        replaced: Mapping[UUID, Sequence[dict[str, Any]]],
    ) -> None:
        self.folded: dict[UUID, RebuiltEffect] = {}
        self._rows = rows
        self._attempts = attempts
        self._replaced = replaced
        self._agents: dict[int, UUID] = {}  # The agent of a plan, by the plan's position.
        # Effects that plans named as compensated, with the compensating effects.
        self._undoing: dict[UUID, set[UUID]] = {}

    def tell(self, entries: Iterable[PastEntry]) -> None:
        """Fold entries, in the order of the journal."""
        for run in group_batches(entries):
            facts: dict[UUID, list[Fact]] = {}
            for entry in run:
                stored_row = self._rows.get(entry.effect) if entry.effect is not None else None
                if (
                    stored_row is None
                    or entry.effect is None
                    or entry.position < stored_row.opened_position
                ):
                    continue  # The effect was named before its first entry.
                self._open(stored_row, entry)
                if entry.kind == "effect.planned" and entry.agent is not None:
                    self._agents[entry.position] = entry.agent
                fact = self._fact(self.folded[entry.effect], entry)
                if fact is not None:
                    facts.setdefault(entry.effect, []).append(fact)
                else:
                    self._permission(self.folded[entry.effect], entry)
            if facts:
                self._fold(facts, run[-1].position)

    def _open(self, stored: Effect | EffectRow, entry: PastEntry) -> None:
        """Create the effect at its first fact."""
        if stored.id in self.folded:
            return
        self.folded[stored.id] = RebuiltEffect(
            EffectRow(
                id=stored.id,
                project_id=stored.project_id,
                session_id=stored.session_id,
                agent_id=entry.agent or stored.agent_id,
                effect_key=stored.effect_key,
                opened_position=stored.opened_position,
                received_us=stored.received_us,
                changed_us=stored.received_us,
            )
        )
        # A compensation may have been reported before the effect that it compensates.
        for compensation_id in self._undoing.get(stored.id, ()):
            if self.folded[compensation_id].row.compensates_id == stored.id:
                self._carry_over(
                    self.folded[compensation_id], self.folded[stored.id], entry.position
                )

    def _fold(self, facts: Mapping[UUID, list[Fact]], position: int) -> None:
        targets_before = {effect: self.folded[effect].row.compensates_id for effect in facts}
        for effect, effect_facts in facts.items():
            folded = self.folded[effect]
            # These flags hold for one transaction.
            folded.row.spent_by, folded.row.replanned, folded.row.gave_way = 0, False, None
            folded.row.recalled = False
            for fact in sorted(effect_facts, key=is_not_plan):
                folded.told_by[fact.mark] = fact.position
                effect_state.fold_fact(folded.row, folded.attempts, fact)
                if fact.kind == "effect.planned" and folded.row.planned_mark == fact.mark:
                    folded.plan = fact.position
            self._settle(folded, position)
        self._carry(facts, targets_before, position)

    def _settle(self, folded: RebuiltEffect, position: int) -> None:
        effect_state.derive_state(folded.row, folded.attempts, 0)
        folded.settled = position

    def _carry(
        self, effects: Iterable[UUID], before: Mapping[UUID, UUID | None], position: int
    ) -> None:
        """Apply compensations to their targets, like `apply_compensations` for stored rows."""
        for effect in effects:
            folded = self.folded[effect]
            target_before, target_now = before[effect], folded.row.compensates_id
            former_target = (
                self.folded.get(target_before)
                if target_before is not None and target_before != target_now
                else None
            )
            if former_target is not None:
                self._undo(former_target, position)
            if (
                former_target is not None
                and former_target.row.compensated
                and not self._is_compensated(former_target.row.id)
            ):
                former_target.row.compensated = False
                self._settle(former_target, position)
            if target_now is not None:
                self._undoing.setdefault(target_now, set()).add(effect)
                if target_now in self.folded:
                    self._carry_over(folded, self.folded[target_now], position)

    def _carry_over(self, folded: RebuiltEffect, target: RebuiltEffect, position: int) -> None:
        if folded.row.undoes is None and _happened(folded) and not target.row.compensated:
            target.row.compensated = True
            self._settle(target, position)
        elif folded.row.undoes:
            self._undo(target, position)

    def _undo(self, target: RebuiltEffect, position: int) -> None:
        """Set how many attempts the partial compensations of `target` undid."""
        compensations = [self.folded[other_id] for other_id in self._undoing.get(target.row.id, ())]
        partial = [
            compensation
            for compensation in compensations
            if compensation.row.compensates_id == target.row.id and compensation.row.undoes
        ]
        undone_attempts = [
            compensation.row.undoes or 0
            for compensation in partial
            if fold_compensation.has_succeeded(compensation.row, compensation.attempts.values())
        ]
        if target.row.undone != max(undone_attempts, default=0):
            target.row.undone = max(undone_attempts, default=0)
            self._settle(target, position)

    def _is_compensated(self, effect: UUID) -> bool:
        compensations = (self.folded[other_id] for other_id in self._undoing.get(effect, ()))
        return any(
            compensation.row.compensates_id == effect and _happened(compensation)
            for compensation in compensations
        )

    def _fact(self, folded: RebuiltEffect, entry: PastEntry) -> Fact | None:
        """Return the entry as a fact for the fold, or None if it has another effect or none."""
        if entry.kind == effect_state.RESOLVED and entry.is_ours:
            return _resolution_fact(folded.row.id, entry)
        if entry.kind in (effect_state.CONFIRMED, effect_state.UNCONFIRMED) and entry.is_ours:
            return confirmations.make_confirmation_fact(
                folded.row.id,
                entry.kind,
                position=entry.position,
                attempt=entry.attempt or 0,
                at_us=entry.received_us,
                by=entry.facts["by"],
            )
        is_given_up = entry.kind == "effect.failed" and entry.is_ours
        # A repeated plan names no intent: the accepted plan remains.
        is_repeated_plan = entry.kind == "effect.planned" and "intent" not in entry.facts
        if (
            entry.kind not in effect_state.REPORTABLE_KINDS
            or is_repeated_plan
            or (entry.is_ours and not is_given_up)
        ):
            return None
        if (
            "permission" in entry.facts
        ):  # Given in the transaction of the plan, before it was folded.
            _set_permission(folded.row, entry.facts["permission"], entry.facts)
        return Fact(
            kind=entry.kind,
            mark=make_given_up_key(entry.event_id) if is_given_up else entry.mark,
            lane=entry.lane,
            key=entry.event_id,
            position=entry.position,
            received_us=entry.received_us,
            told_us=entry.told_us,
            attempt=entry.attempt or 1,
            imports=bool(entry.facts.get("imported")),
            lease_epoch=entry.lease_epoch,
            agent=entry.agent,
            values=self._values(folded.row, entry),
        )

    def _values(self, row: EffectRow, entry: PastEntry) -> dict[str, Any]:
        """Return the fields of a fact by kind; text is replaced by placeholders."""
        entry_facts = entry.facts
        if entry.kind == "effect.planned":
            texts = dict.fromkeys(
                ("call_id", "turn", "ref", "moved_refs", "environment", "resource"), ""
            )
            plan = {
                "tool": f"{TEXT_PLACEHOLDER}{entry.position}",
                "intent_digest": entry_facts["intent"],
                **texts,
            }
            return plan | self.said_of_plan(row.id, entry.position)
        if entry.kind == "effect.dispatched" and entry_facts.get("replaces"):
            tried = self._attempts[row.id][entry.attempt or 1]
            return {
                "replaces": entry_facts["replaces"],
                "verdict_row": entry_facts["row"],
                "remote_key": tried.remote_key,
            }
        values = {
            name: entry_facts[name]
            for name in ("outcome", "reason", "result")
            if name in entry_facts
        }
        return values | {"external_reference": f"{TEXT_PLACEHOLDER}{entry.position}"}

    def said_of_plan(self, effect: UUID, position: int) -> dict[str, Any]:
        """Return the columns, without text, of the plan that was current at `position`."""
        replaced_plan = next(
            (
                plan_values
                for plan_values in self._replaced.get(effect, ())
                if plan_values["by"] > position
            ),
            None,
        )
        if replaced_plan is None:
            return {
                name: getattr(self._rows[effect], name)
                for name in effect_state.ARCHIVED_PLAN_COLUMNS
            }
        plan_values = {
            name: replaced_plan.get(name, _MISSING_PLAN_VALUES.get(name))
            for name in effect_state.ARCHIVED_PLAN_COLUMNS
        }
        ids = {
            name: UUID(plan_values[name])
            for name in plan_values
            if name.endswith("_id") and plan_values[name] is not None
        }
        return plan_values | ids | {"policy_enforced": bool(replaced_plan.get("policy_enforced"))}

    def _permission(self, folded: RebuiltEffect, entry: PastEntry) -> None:
        """Apply a decision on permission: by the policy, by a gate, or by expiry of either."""
        row, entry_facts = folded.row, entry.facts
        is_own = entry.is_ours
        if is_own and entry.kind == "integrity.violation":
            folded.violates = True
        elif is_own and entry.kind in ("effect.granted", "effect.withheld"):
            row.changed_us = max(row.changed_us, entry.received_us)
            if entry.subject is not None:
                _set_permission(
                    row, entry_facts["permission"], {**entry_facts, "ref": entry.subject.hex}
                )
                return
            _set_permission(row, entry_facts["permission"], entry_facts)
            row.policy_outcome, row.policy_rule = (
                entry_facts.get("policy_outcome", ""),
                entry_facts.get("policy_rule", ""),
            )
            row.policy_parts_digest = entry_facts.get("policy_parts_digest", "")
            row.policy_tool_class, row.policy_enforced = (
                entry_facts.get("policy_tool_class", ""),
                bool(entry_facts.get("policy_enforced")),
            )
            if "plan" in entry_facts:
                row.plan_position = entry_facts["plan"]
                row.agent_id = self._agents.get(entry_facts["plan"], row.agent_id)
        elif entry.subject is None:
            return
        elif is_own and entry.kind == "gate.extended":
            _set_permission(
                row,
                "pending",
                {
                    "basis": "policy",
                    "ref": entry.subject.hex,
                    "until_us": entry_facts["decide_by_us"],
                },
            )
        elif is_own and entry.kind == "gate.ruled" and entry_facts.get("ruling") in _ENDING_RULINGS:
            _follow_gate(row, entry.subject, entry_facts["ruling"])
        elif entry.kind in _ENDS and (
            is_own or (entry.lane, entry.kind) == ("command", "gate.cancelled")
        ):
            _follow_gate(row, entry.subject, entry.kind.removeprefix("gate."))


def _resolution_fact(effect: UUID, entry: PastEntry) -> Fact:
    number = entry.attempt or 0
    reference = f"{TEXT_PLACEHOLDER}{entry.position}" if entry.facts.get("named") else ""
    return Fact(
        kind=entry.kind,
        mark=make_resolution_key(number, entry.position, SYSTEM_SOURCE, effect.hex),
        lane=entry.lane,
        key=effect.hex,
        position=entry.position,
        received_us=entry.received_us,
        told_us=entry.received_us,
        attempt=number,
        values={"answer": entry.facts["answer"], "external_reference": reference},
    )


def _set_permission(row: EffectRow, permission: str, basis_facts: Mapping[str, Any]) -> None:
    row.permission, row.permission_basis = permission, basis_facts.get("basis", "")
    row.permission_ref, row.permission_until_us = (
        basis_facts.get("ref", ""),
        basis_facts.get("until_us"),
    )


def _follow_gate(row: EffectRow, gate: UUID, status: str) -> None:
    """Set the permission after a gate has ended, like approvals.gates.gates."""
    if row.permission in ("pending", "granted") and row.permission_ref == gate.hex:
        permission, basis = PERMISSION_OF_STATUS[status]
        _set_permission(row, permission, {"basis": basis, "ref": gate.hex})


def _happened(folded: RebuiltEffect) -> bool:
    return fold_compensation.has_happened(folded.row, folded.attempts.values())
