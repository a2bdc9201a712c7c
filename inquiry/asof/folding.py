"""Effects made again from what the journal says of them, by the same fold that made their rows."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from approvals import leave
from approvals.states import LEAVE_OF
from inquiry.asof.told import Told, runs
from journal.entries import SYSTEM_SOURCE
from journal.order import given_up_key, person_key
from ledger import fold, undoing
from ledger.fold import Fact
from ledger.models import Attempt, Effect
from ledger.rows import AttemptRow, EffectRow

# Stands for words that no replay reads, with the position of the entry whose body has them (see words.py).
WORDS_OF: Final = "\0"
_UNDECIDED: Final = ("denied", "denied_final")  # rulings that end a gate without an entry of their own
_ENDS: Final = tuple(f"gate.{status}" for status in ("returned", "expired", "lapsed", "revoked", "cancelled"))
_UNSAID: Final = {"claimed_class": "", "redactions": 0, "ref_class": "", "judged": "", "judged_by": "", "judged_as": ""}


@dataclass(slots=True)
class Folded:
    """One effect, as far as its facts say. Words are left to words.py."""

    row: EffectRow
    attempts: dict[int, AttemptRow] = field(default_factory=dict)
    plan: int | None = None  # position of the plan that stands
    settled: int = 0  # position of the last fact that could move it
    violates: bool = False
    told_by: dict[str, int] = field(default_factory=dict)  # order key of a fact -> its position


class Folding:
    """Folds entries into effects. `rows` are the effects as stored; what cannot change is read from there."""

    def __init__(
        self,
        rows: Mapping[UUID, Effect],
        attempts: Mapping[UUID, Mapping[int, Attempt]],
        replaced: Mapping[UUID, Sequence[dict[str, Any]]],
    ) -> None:
        self.folded: dict[UUID, Folded] = {}
        self._rows = rows
        self._attempts = attempts
        self._replaced = replaced
        self._agents: dict[int, UUID] = {}  # who told of a plan, by its position
        self._undoing: dict[UUID, set[UUID]] = {}  # what plans named as undone, and by which effects

    def tell(self, told: Iterable[Told]) -> None:
        """Fold entries, in the order of the journal."""
        for run in runs(told):
            facts: dict[UUID, list[Fact]] = {}
            for one in run:
                stored = self._rows.get(one.effect) if one.effect is not None else None
                if stored is None or one.effect is None or one.position < stored.opened_position:
                    continue  # it was merely named before anything was told of it
                self._open(stored, one)
                if one.kind == "effect.planned" and one.agent is not None:
                    self._agents[one.position] = one.agent
                fact = self._fact(self.folded[one.effect], one)
                if fact is not None:
                    facts.setdefault(one.effect, []).append(fact)
                else:
                    self._leave(self.folded[one.effect], one)
            if facts:
                self._fold(facts, run[-1].position)

    def _open(self, stored: Effect, one: Told) -> None:
        """Begin with the first fact that arrived."""
        if stored.id in self.folded:
            return
        self.folded[stored.id] = Folded(
            EffectRow(
                id=stored.id,
                project_id=stored.project_id,
                session_id=stored.session_id,
                agent_id=one.agent or stored.agent_id,
                effect_key=stored.effect_key,
                opened_position=stored.opened_position,
                received_us=stored.received_us,
                changed_us=stored.received_us,
            )
        )
        for other in self._undoing.get(stored.id, ()):  # what undoes it may have been told of before it
            if self.folded[other].row.compensates_id == stored.id:
                self._carry_over(self.folded[other], self.folded[stored.id], one.position)

    def _fold(self, facts: Mapping[UUID, list[Fact]], position: int) -> None:
        before = {effect: self.folded[effect].row.compensates_id for effect in facts}
        for effect, told in facts.items():
            one = self.folded[effect]
            one.row.spent_by, one.row.replanned, one.row.gave_way = 0, False, None  # of one transaction
            one.row.recalled = False
            for fact in sorted(told, key=_plans_first):
                one.told_by[fact.mark] = fact.position
                fold.apply(one.row, one.attempts, fact, leave.observe)
                if fact.kind == "effect.planned" and one.row.planned_mark == fact.mark:
                    one.plan = fact.position
            self._settle(one, position)
        self._carry(facts, before, position)

    def _settle(self, one: Folded, position: int) -> None:
        fold.settle(one.row, one.attempts, 0)
        one.settled = position

    def _carry(self, told: Iterable[UUID], before: Mapping[UUID, UUID | None], position: int) -> None:
        """Carry compensations over to what they compensate, as ledger.undoing.carry does with stored rows."""
        for effect in told:
            one = self.folded[effect]
            was, now = before[effect], one.row.compensates_id
            former = self.folded.get(was) if was is not None and was != now else None
            if former is not None:
                self._undo(former, position)
            if former is not None and former.row.compensated and not self._is_compensated(former.row.id):
                former.row.compensated = False
                self._settle(former, position)
            if now is not None:
                self._undoing.setdefault(now, set()).add(effect)
                if now in self.folded:
                    self._carry_over(one, self.folded[now], position)

    def _carry_over(self, one: Folded, target: Folded, position: int) -> None:
        if one.row.undoes is None and _happened(one) and not target.row.compensated:
            target.row.compensated = True
            self._settle(target, position)
        elif one.row.undoes:
            self._undo(target, position)

    def _undo(self, target: Folded, position: int) -> None:
        """Take back, or let stand, the attempts that compensations of a part undid of it."""
        others = [self.folded[other] for other in self._undoing.get(target.row.id, ())]
        mine = [one for one in others if one.row.compensates_id == target.row.id and one.row.undoes]
        well = [one.row.undoes or 0 for one in mine if undoing.went_well(one.row, one.attempts.values())]
        if target.row.undone != max(well, default=0):
            target.row.undone = max(well, default=0)
            self._settle(target, position)

    def _is_compensated(self, effect: UUID) -> bool:
        others = (self.folded[other] for other in self._undoing.get(effect, ()))
        return any(one.row.compensates_id == effect and _happened(one) for one in others)

    def _fact(self, one: Folded, told: Told) -> Fact | None:
        """The fact that an entry is, as the fold reads it; None for what moves an effect in another way or not."""
        if told.kind == fold.RESOLVED and told.is_ours:
            return _word_of_a_person(one.row.id, told)
        given_up = told.kind == "effect.failed" and told.is_ours
        # A plan that was asked again names no intent: the one that was accepted stands.
        asked_again = told.kind == "effect.planned" and "intent" not in told.facts
        if told.kind not in fold.KINDS or asked_again or (told.is_ours and not given_up):
            return None
        if "leave" in told.facts:  # given in the transaction of the plan, before it was folded
            _give(one.row, told.facts["leave"], told.facts)
        return Fact(
            kind=told.kind,
            mark=given_up_key(told.event_id) if given_up else told.mark,
            lane=told.lane,
            key=told.event_id,
            position=told.position,
            received_us=told.received_us,
            told_us=told.told_us,
            attempt=told.attempt or 1,
            imports=bool(told.facts.get("imported")),
            lease_epoch=told.lease_epoch,
            agent=told.agent,
            values=self._values(one.row, told),
        )

    def _values(self, row: EffectRow, told: Told) -> dict[str, Any]:
        """The fields of a fact's kind; words by where they stand."""
        said = told.facts
        if told.kind == "effect.planned":
            texts = dict.fromkeys(("call_id", "turn", "ref", "moved_refs", "environment", "resource"), "")
            plan = {"tool": f"{WORDS_OF}{told.position}", "intent_digest": said["intent"], **texts}
            return plan | self.said_of_plan(row.id, told.position)
        if told.kind == "effect.dispatched" and said.get("replaces"):
            tried = self._attempts[row.id][told.attempt or 1]
            return {"replaces": said["replaces"], "verdict_row": said["row"], "remote_key": tried.remote_key}
        values = {name: said[name] for name in ("outcome", "reason", "found") if name in said}
        return values | {"external_reference": f"{WORDS_OF}{told.position}"}

    def said_of_plan(self, effect: UUID, position: int) -> dict[str, Any]:
        """The columns, words left out, of the plan that stood at `position`, where one did."""
        stood = next((said for said in self._replaced.get(effect, ()) if said["by"] > position), None)
        if stood is None:
            return {name: getattr(self._rows[effect], name) for name in fold.KEPT_OF_PLANS}
        said = {name: stood.get(name, _UNSAID.get(name)) for name in fold.KEPT_OF_PLANS}
        ids = {name: UUID(said[name]) for name in said if name.endswith("_id") and said[name] is not None}
        return said | ids | {"enforced": bool(stood.get("enforced"))}

    def _leave(self, one: Folded, told: Told) -> None:
        """What was decided about leave: by the policy, by people through a gate, or because one of these was over."""
        row, said = one.row, told.facts
        ours = told.is_ours
        if ours and told.kind == "integrity.violation":
            one.violates = True
        elif ours and told.kind in ("effect.granted", "effect.withheld"):
            row.changed_us = max(row.changed_us, told.received_us)
            if told.subject is not None:
                _give(row, said["leave"], {**said, "ref": told.subject.hex})
                return
            _give(row, said["leave"], said)
            row.judged, row.judged_by = said.get("judged", ""), said.get("judged_by", "")
            row.judged_as, row.enforced = said.get("judged_as", ""), bool(said.get("enforced"))
            if "plan" in said:
                row.plan_position = said["plan"]
                row.agent_id = self._agents.get(said["plan"], row.agent_id)
        elif told.subject is None:
            return
        elif ours and told.kind == "gate.extended":
            _give(row, "pending", {"basis": "policy", "ref": told.subject.hex, "until_us": said["decide_by_us"]})
        elif ours and told.kind == "gate.ruled" and said.get("ruling") in _UNDECIDED:
            _follow(row, told.subject, said["ruling"])
        elif told.kind in _ENDS and (ours or (told.lane, told.kind) == ("command", "gate.cancelled")):
            _follow(row, told.subject, told.kind.removeprefix("gate."))


def _word_of_a_person(effect: UUID, told: Told) -> Fact:
    number = told.attempt or 0
    reference = f"{WORDS_OF}{told.position}" if told.facts.get("named") else ""
    return Fact(
        kind=told.kind,
        mark=person_key(number, told.position, SYSTEM_SOURCE, effect.hex),
        lane=told.lane,
        key=effect.hex,
        position=told.position,
        received_us=told.received_us,
        told_us=told.received_us,
        attempt=number,
        values={"answer": told.facts["answer"], "external_reference": reference},
    )


def _plans_first(fact: Fact) -> bool:
    return fact.kind != "effect.planned"


def _give(row: EffectRow, word: str, said: Mapping[str, Any]) -> None:
    row.leave, row.leave_basis = word, said.get("basis", "")
    row.leave_ref, row.leave_until_us = said.get("ref", ""), said.get("until_us")


def _follow(row: EffectRow, gate: UUID, status: str) -> None:
    """Let leave follow a gate that has ended, as approvals.gates does."""
    if row.leave in ("pending", "granted") and row.leave_ref == gate.hex:
        word, basis = LEAVE_OF[status]
        _give(row, word, {"basis": basis, "ref": gate.hex})


def _happened(one: Folded) -> bool:
    return undoing.happened(one.row, one.attempts.values())
