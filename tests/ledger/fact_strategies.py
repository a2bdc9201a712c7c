"""Hypothesis strategies for facts about effects, and random ways to deliver them."""

import random
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from uuid import UUID

from hypothesis import strategies as st

from db.ids import derive_uuid
from journal.order_keys import make_order_key
from ledger.fold import effect_state
from ledger.fold.effect_state import Fact
from ledger.store.effect_rows import AttemptRow, EffectRow

KEYS: Final = ("edit", "push", "undo", "redo")
COMPENSATES: Final = {"undo": "push", "redo": "undo"}  # a chain: a compensation can be compensated
SOURCES: Final = ("tester", "tester/hook")


@dataclass(frozen=True, slots=True)
class Said:
    """One fact about one effect, as a producer would send it to `POST /events`."""

    id: str
    effect_key: str
    kind: str
    source: str = "tester"
    producer_seq: int | None = None
    attempt: int = 1
    occurred_us: int | None = None
    fields: dict[str, Any] = field(default_factory=dict, hash=False)

    def item(self, session: str) -> dict[str, Any]:
        """The fact as an item of a batch."""
        item = {
            "id": self.id,
            "kind": self.kind,
            "session": session,
            "effect_key": self.effect_key,
            "source": self.source,
            "producer_seq": self.producer_seq,
            "occurred_us": self.occurred_us,
            **self.fields,
        }
        if self.kind in (
            "effect.dispatched",
            "effect.acknowledged",
            "effect.failed",
            "effect.probed",
        ):
            item["attempt"] = self.attempt
        return {name: value for name, value in item.items() if value is not None}

    def fact(self, session: UUID, position: int) -> Fact:
        """The fact as the fold reads it, arriving as the entry at `position`."""
        values = dict(self.fields)
        if self.kind == "effect.planned":
            arguments = values.pop("arguments", {})
            values["intent_digest"] = f"v1:{abs(hash(repr((values['tool'], arguments)))):064d}"
            if "compensates" in values:
                values["compensates_id"] = derive_uuid(session, values.pop("compensates"))
        return Fact(
            kind=self.kind,
            mark=make_order_key("evidence", self.producer_seq, self.source, self.id),
            lane="evidence",
            key=self.id,
            position=position,
            received_us=1_000_000 * position,
            told_us=self.occurred_us,
            attempt=self.attempt,
            values=values,
        )


def _fields(kind: str, effect_key: str, *, rich: bool) -> st.SearchStrategy[dict[str, Any]]:
    """Fields of a kind. A rich plan also names rows of other tables, and two plans may contradict
    each other."""
    if kind == "effect.dispatched":
        return st.fixed_dictionaries({}, optional={"process": st.sampled_from(["p-1", "p-2"])})
    if kind == "effect.acknowledged":
        reference = {"external_reference": st.sampled_from(["ref-1", "ref-2"])}
        return st.fixed_dictionaries(
            {"outcome": st.sampled_from(["ok", "error", "unknown"])}, optional=reference
        )
    if kind == "effect.failed":
        return st.fixed_dictionaries({"reason": st.sampled_from(["rejected", "timeout", "error"])})
    if kind == "effect.probed":
        optional_of_probe = {"external_reference": st.just("ref-1"), "began_us": st.integers(1, 5)}
        results = st.sampled_from(["hit", "miss", "error", "several"])
        return st.fixed_dictionaries({"result": results}, optional=optional_of_probe)
    if kind == "effect.superseded":
        return st.just({})
    always: dict[str, st.SearchStrategy[Any]] = {
        "tool": st.sampled_from(["git.push", "deploy"]),
        "arguments": st.sampled_from([{}, {"ref": "main"}]),
    }
    if effect_key in COMPENSATES:
        always["compensates"] = st.sampled_from([COMPENSATES[effect_key], "edit"])
    optional: dict[str, st.SearchStrategy[Any]] = {
        "turn": st.just("turn-1"),
        "call_id": st.just("call-1"),
    }
    if rich:
        optional |= {
            "target": st.sampled_from(
                [
                    {"repository": "acme/x", "ref": "main", "resource": "x"},
                    {"environment": "ci"},
                    {"ref": "topic"},
                ]
            ),
            "task": st.sampled_from(["build", "ship"]),
            "tool_class": st.sampled_from(["read_only", "opaque"]),
            "parent_effect": st.just("edit"),
        }
    return st.fixed_dictionaries(always, optional=optional)


KINDS: Final = tuple(sorted(effect_state.REPORTABLE_KINDS))


@st.composite
def stories(
    draw: st.DrawFn, *, keys: Sequence[str] = KEYS, most: int = 10, rich: bool = False
) -> list[Said]:
    """Up to `most` facts about the effects of `keys`, each with an id of its own."""
    reports = []
    for number in range(draw(st.integers(2, most))):
        kind, effect_key = draw(st.sampled_from(KINDS)), draw(st.sampled_from(keys))
        if draw(st.booleans()):
            kind = "effect.planned"  # plans have the most fields, so the most contradictions
        report = Said(
            id=draw(st.sampled_from("abcdef")) + str(number),
            effect_key=effect_key,
            kind=kind,
            source=draw(st.sampled_from(SOURCES)),
            producer_seq=draw(st.none() | st.integers(0, 3)),
            attempt=draw(st.integers(1, 3)),
            occurred_us=draw(st.none() | st.integers(1, 5)),
            fields=draw(_fields(kind, effect_key, rich=rich)),
        )
        reports.append(report)
    return reports


def deliveries(reports: Sequence[Said], chance: random.Random) -> list[list[Said]]:
    """Some way to deliver a story: shuffled, partly repeated, cut into batches anywhere."""
    sent = [*reports, *chance.choices(reports, k=chance.randint(0, len(reports)))]
    chance.shuffle(sent)
    batches: list[list[Said]] = [[]]
    for report in sent:
        if batches[-1] and chance.random() < 0.4:
            batches.append([])
        batches[-1].append(report)
    return batches


SESSION: Final = UUID("018f0000-0000-8000-8000-00000000beef")
DEADLINE_S: Final = 60
PROJECT: Final = UUID("018f0000-0000-8000-8000-0000000000aa")


def fold_reports(
    batches: Sequence[Sequence[Said]], effect_key: str = "push"
) -> tuple[EffectRow, dict[int, AttemptRow]]:
    """Fold one effect's facts in this order, on rows without a database."""
    effect = EffectRow(
        id=derive_uuid(SESSION, effect_key),
        project_id=PROJECT,
        session_id=SESSION,
        agent_id=PROJECT,
        effect_key=effect_key,
        opened_position=1,
        received_us=1,
        changed_us=1,
    )
    attempts: dict[int, AttemptRow] = {}
    position = 0
    for batch in batches:
        for report in batch:
            position += 1
            effect_state.fold_fact(effect, attempts, report.fact(SESSION, position))
        effect_state.derive_state(effect, attempts, DEADLINE_S)
    return effect, attempts


def state(effect: EffectRow, attempts: dict[int, AttemptRow]) -> dict[str, Any]:
    """Every column of an effect and its attempts that may not depend on the order of delivery."""
    return {
        "effect": {name: getattr(effect, name) for name in _columns(effect)},
        **{
            f"attempt {number}": {name: getattr(row, name) for name in _columns(row)}
            for number, row in sorted(attempts.items())
        },
    }


def _columns(row: EffectRow | AttemptRow) -> list[str]:
    return [
        name
        for name in row.__dataclass_fields__
        if name not in effect_state.DELIVERY_COLUMNS and name != "replanned"
    ]
