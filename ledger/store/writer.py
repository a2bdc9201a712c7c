"""The one writer of Effect and Attempt: locks rows, folds facts, writes sets.

The commands (ledger/commands.py) write through this module.
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import Any, Final
from uuid import UUID

import orjson
from django.db import connection
from django.db.models import F

from db import long_numbers, raw_sql
from db.clock import now_us
from db.row_changes import RowChange, write_row_changes
from journal import entries, outbox
from journal.entries import Draft
from journal.models import Entry
from journal.order_keys import is_command_mark
from ledger.fold import compensation, effect_state, stop_violations
from ledger.fold.effect_state import Fact
from ledger.models import Attempt, Effect
from ledger.store.effect_rows import (
    AttemptRow,
    EffectRow,
    given_table,
    row_columns,
    rows_to_json,
    rows_to_parameters,
    typed_placeholders,
)
from ledger.store.reader import ATTEMPT_COLUMNS as _ATTEMPT
from ledger.store.reader import attempt_values, load_relevant_attempts, lock_effects
from ledger.tools import cache

_EFFECT: Final = row_columns(EffectRow)
_EFFECT_LIST: Final = ", ".join(_EFFECT)
_ATTEMPT_LIST: Final = ", ".join(_ATTEMPT)


# The columns that a move (dispatch, acknowledgement, failure …) may change. For a stored effect
# with an unchanged plan only these are written, so that other indexes and foreign keys stay idle.
_MOVING: Final = (
    "permission",
    "permission_basis",
    "permission_ref",
    "permission_until_us",
    "saved_permission",
    "saved_permission_until_us",
    "state",
    "outcome",
    "attempt_count",
    "failure_reason",
    "external_reference",
    "violates",
    "dispatched_at_us",
    "settled_at_us",
    "changed_us",
    "deadline_us",
    "superseded_mark",
    "resolved_mark",
    "resolution",
    "compensated",
    "undone",
    "confirmed_by",
    "confirmed_mark",
    "version",
)
_FIXED: Final = {"id", "project_id", "session_id", "effect_key", "opened_position", "received_us"}
_CHANGING: Final = tuple(name for name in _EFFECT if name not in _FIXED)


# Each write has two statements: one for a single row, on either vendor, and one for a set of rows
# as a JSON document, several times faster on PostgreSQL than row after row.
_EFFECT_MARKS: Final = ", ".join(["%s"] * len(_EFFECT))
_INSERT_ROW: Final = (
    f"INSERT INTO ledger_effect ({_EFFECT_LIST}) VALUES ({_EFFECT_MARKS})"
    " ON CONFLICT (id) DO NOTHING"
)
_INSERT_SET: Final = (
    f"INSERT INTO ledger_effect ({_EFFECT_LIST}) SELECT {_EFFECT_LIST}"
    f" FROM {given_table(EffectRow, _EFFECT)} ORDER BY id"
    " ON CONFLICT (id) DO NOTHING"
)
_ATTEMPT_FIXED: Final = (
    "project_id",
    "effect_id",
    "number",
    "remote_key",
    "replaces",
    "verdict_row",
)
_ATTEMPT_ASSIGNED: Final = ", ".join(
    f"{name} = excluded.{name}" for name in _ATTEMPT if name not in _ATTEMPT_FIXED
)
_ATTEMPT_CONFLICT: Final = f" ON CONFLICT (effect_id, number) DO UPDATE SET {_ATTEMPT_ASSIGNED}"
_ATTEMPT_MARKS: Final = ", ".join(["%s"] * len(_ATTEMPT))
_ATTEMPT_ROW: Final = (
    f"INSERT INTO ledger_attempt ({_ATTEMPT_LIST}) VALUES ({_ATTEMPT_MARKS}){_ATTEMPT_CONFLICT}"
)
_ATTEMPT_SET: Final = (
    f"INSERT INTO ledger_attempt ({_ATTEMPT_LIST}) SELECT {_ATTEMPT_LIST}"
    f" FROM {given_table(AttemptRow, _ATTEMPT)} ORDER BY effect_id, number{_ATTEMPT_CONFLICT}"
)


def _update_statements(names: tuple[str, ...]) -> tuple[str, str]:
    """Return the two statements that update `names`."""
    marked = ", ".join(f"{name} = %s" for name in names)
    taken = ", ".join(f"{name} = given.{name}" for name in names)
    return (
        f"UPDATE ledger_effect SET {marked} WHERE id = %s AND version = %s - 1",
        f"UPDATE ledger_effect SET {taken} FROM {given_table(EffectRow, (*names, 'id'))}"
        " WHERE ledger_effect.id = given.id AND ledger_effect.version = given.version - 1",
    )


_MOVED: Final = (*_MOVING, "id", "version")  # the version a second time, for the condition
_MOVE: Final = _update_statements(_MOVING)
# The most common pair on PostgreSQL, an effect and its moving attempt, in one atomic statement.
_MOVE_AND_TRY: Final = (
    f"WITH moved AS ({_MOVE[0]} RETURNING 1) INSERT INTO ledger_attempt ({_ATTEMPT_LIST})"
    f" SELECT {typed_placeholders(AttemptRow, _ATTEMPT)} FROM moved{_ATTEMPT_CONFLICT}"
)
_REPLAN: Final = _update_statements(_CHANGING)


@dataclass(slots=True)
class EffectFact:
    """A fact and its effect, which may not be stored yet."""

    effect: UUID
    project: UUID
    session: UUID
    agent: UUID
    effect_key: str
    fact: Fact


@dataclass(slots=True)
class Violation:
    """A violation, recorded as `integrity.violation`."""

    effect: EffectRow
    name: str


class LostRace(Exception):
    """Another writer stored the same new effect first; retry the transaction."""


def apply_effect_facts(facts: Sequence[EffectFact]) -> dict[UUID, EffectRow]:
    """Apply journalled facts to their effects; return these by id.

    Must run inside a transaction. Raises LostRace when another writer stored a new effect first:
    the endpoint then retries the whole transaction, so nothing is lost.
    """
    by_effect = _group_by_effect(facts)
    rows = lock_effects(by_effect)
    attempts = load_relevant_attempts(rows, by_effect)
    repeated = _find_repeated_plans(rows, by_effect)
    for report in facts:
        if report.effect not in rows:
            rows[report.effect] = _new_row(report)
    arrived = [(report.effect, report.fact) for report in facts]
    violations = _fold_and_write(rows, attempts, by_effect, arrived, repeated)
    record_violations(violations, now_us())
    return rows


def apply_fact(row: EffectRow, attempts: dict[int, AttemptRow], fact: Fact) -> None:
    """Apply a journalled fact to a locked effect, whose attempts are `attempts`."""
    rows, attempts_by_effect = {row.id: row}, {row.id: attempts}
    violations = _fold_and_write(rows, attempts_by_effect, {row.id: [fact]}, [(row.id, fact)])
    record_violations(violations, fact.received_us)


def _fold_and_write(
    rows: dict[UUID, EffectRow],
    attempts: dict[UUID, dict[int, AttemptRow]],
    facts: Mapping[UUID, Sequence[Fact]],
    arrived: Sequence[tuple[UUID, Fact]],
    repeated: Set[int] = frozenset(),
) -> list[Violation]:
    """Fold facts into locked effects, and write these and those that they compensate.

    Returns the violations that the facts show. `arrived` are the same facts in the order of their
    arrival. Plans at positions in `repeated` keep the policy result of their effect.
    """
    compensations = compensation.compensation_effects(rows, attempts)
    names: dict[UUID, list[str]] = {}
    for identity, effect_facts in facts.items():
        row, numbered = rows[identity], attempts.setdefault(identity, {})
        names[identity] = []
        for fact in sorted(effect_facts, key=is_not_plan):
            if fact.position in repeated:
                fact.values |= effect_state.policy_result_of_effect(row)._asdict()
            names[identity] += effect_state.fold_fact(row, numbered, fact)
            names[identity] += check_claimed_class(row, fact)
    for identity, names_of_effect in names.items():
        names_of_effect += compensation.load_and_derive_state(rows[identity], rows, attempts)
    violations = [
        Violation(rows[identity], name)
        for identity, names_of_effect in names.items()
        for name in dict.fromkeys(names_of_effect)
    ]
    violations += [
        Violation(*pair) for pair in compensation.apply_compensations(rows, attempts, compensations)
    ]
    violations += [
        Violation(row, stop_violations.STOP_VIOLATION)
        for row in stop_violations.mark_stop_violations(rows, attempts, arrived)
    ]
    write_effects(
        rows.values(), [attempt for numbered in attempts.values() for attempt in numbered.values()]
    )
    return violations


def _find_repeated_plans(
    rows: Mapping[UUID, EffectRow], facts_by_effect: Mapping[UUID, Sequence[Fact]]
) -> set[int]:
    """Return the positions of plans that repeat an earlier plan of their effect.

    Such a plan keeps the first policy result. `rows` are the stored effects. No query where all
    plans of each effect, including the stored one, have the same policy result; elsewhere bodies
    are read, because rules see free text. Imported plans have no live result to repeat, and the
    content of erased ones is unknown.
    """
    plans_by_effect = {}
    for effect, facts in facts_by_effect.items():
        row = rows.get(effect)
        has_plan = row is not None and bool(row.planned_mark)
        if has_plan or len(facts) > 1:
            plans = [fact for fact in facts if fact.kind == "effect.planned" and not fact.imports]
            if len(plans) + has_plan > 1 and _differ_in_result(row, plans):
                plans_by_effect[effect] = plans
    if not plans_by_effect:
        return set()
    first_positions = _first_positions(plans_by_effect)
    now = {
        fact.position for plans_of_effect in plans_by_effect.values() for fact in plans_of_effect
    }
    return {
        position
        for position, earliest in first_positions.items()
        if position in now and position > earliest
    }


def _differ_in_result(row: EffectRow | None, plans: Sequence[Fact]) -> bool:
    """True if the order of `plans` matters; next to a command's plan it does not."""
    outcomes = {effect_state.policy_result_of_plan(fact.values) for fact in plans}
    if plans and row is not None and row.planned_mark:
        if is_command_mark(row.planned_mark):
            return False
        outcomes.add(effect_state.policy_result_of_effect(row))
    return len(outcomes) > 1


def _first_positions(effects: Iterable[UUID]) -> dict[int, int]:
    """Map each reported plan's position to the position of the first identical plan."""
    plans = Entry.objects.filter(effect__in=list(effects), kind="effect.planned", lane="evidence")
    rows = plans.annotate(text=F("body__text")).order_by("position")
    first: dict[tuple[UUID | None, str, bytes], int] = {}
    earliest = {}
    for effect, position, source, facts, text in rows.values_list(
        "effect", "position", "source", "facts", "text"
    ):
        if text is not None and not orjson.loads(facts).get("imported"):
            earliest[position] = first.setdefault(
                (effect, source, _policy_evaluation(long_numbers.parse_json(text))), position
            )
    return earliest


def _policy_evaluation(body: Mapping[str, Any]) -> bytes:
    """Return a plan's policy inputs in canonical form, with empty values left out."""
    target = {name: value for name, value in (body.get("target") or {}).items() if value}
    return long_numbers.to_json_bytes(
        [body.get("tool"), body.get("arguments") or {}, target], orjson.OPT_SORT_KEYS
    )


def record_named_effects(
    stubs: Mapping[UUID, EffectFact], reported: Set[UUID], project: UUID, received_us: int
) -> list[EffectFact]:
    """Journal each named effect without facts; return the facts of all named effects.

    `reported` have facts in this batch. The entry gets a position of its own, because the position
    of the plan that names the effect opens the planned effect.
    """
    unreported = stubs.keys() - reported
    unreported -= (
        set(Effect.objects.filter(id__in=unreported).values_list("id", flat=True))
        if unreported
        else set()
    )
    about = {
        effect: {"session": stubs[effect].session, "effect": effect}
        for effect in sorted(unreported)
    }
    positions = entries.append_named_entries(project, "effect.named", about, received_us)
    return [
        replace(stub, fact=replace(stub.fact, position=positions[effect]))
        if effect in positions
        else stub
        for effect, stub in stubs.items()
    ]


def _group_by_effect(facts: Sequence[EffectFact]) -> dict[UUID, list[Fact]]:
    groups: dict[int, tuple[UUID, list[Fact]]] = {}  # by the integer: hashing a UUID is slow
    for report in facts:
        groups.setdefault(report.effect.int, (report.effect, []))[1].append(report.fact)
    return dict(groups.values())


def is_not_plan(fact: Fact) -> bool:
    """Sort the plans of a batch first, so that its other facts see them."""
    return fact.kind != "effect.planned"


def _new_row(report: EffectFact) -> EffectRow:
    return EffectRow(
        id=report.effect,
        project_id=report.project,
        session_id=report.session,
        agent_id=report.agent,
        effect_key=report.effect_key,
        opened_position=report.fact.position,
        received_us=report.fact.received_us,
        changed_us=report.fact.received_us,
    )


def check_claimed_class(row: EffectRow, plan: Fact) -> list[str]:
    """Return the violation of a plan that claims a laxer tool class than was declared."""
    claimed = plan.values.get("claimed_class")
    if not claimed:
        return []
    stricter = cache.load_tool(row.project_id, plan.values["tool"])
    if stricter is cache.UNDECLARED or not cache.is_laxer_class(claimed, stricter.tool_class):
        return []
    row.violates = True
    return ["class_claim"]


def write_effects(rows: Iterable[EffectRow], attempts: Iterable[AttemptRow]) -> None:
    """Store rows with the next version, and their changed attempts. Raises LostRace.

    A fact is about one attempt, and an effect may have many: unchanged ones are not written.
    """
    new: list[EffectRow] = []
    moved: list[EffectRow] = []
    replanned: list[EffectRow] = []
    for row in sorted(rows, key=_by_id):
        (new if row.version == 0 else replanned if row.replanned else moved).append(row)
        row.version += 1
    # The closing attempt is written before the opening one: at most one is open at any moment.
    changed_attempts = sorted(
        (row for row in attempts if row.stored != attempt_values(row)), key=_by_effect_and_number
    )
    if (
        connection.vendor == "postgresql"
        and len(moved) == len(changed_attempts) == 1
        and not new
        and not replanned
    ):
        written = raw_sql.execute_write(
            _MOVE_AND_TRY,
            [
                *rows_to_parameters(moved, _MOVED)[0],
                *rows_to_parameters(changed_attempts, _ATTEMPT)[0],
            ],
        )
        changed_attempts = []
    else:
        written = _write_rows(_INSERT_ROW, _INSERT_SET, new, _EFFECT)
        written += _write_rows(*_MOVE, moved, _MOVED)
        written += _write_rows(*_REPLAN, replanned, (*_CHANGING, "id", "version"))
    if written < len(new) + len(moved) + len(replanned):
        raise LostRace  # before the attempts, whose trigger compares them with the stored effect
    _write_rows(_ATTEMPT_ROW, _ATTEMPT_SET, changed_attempts, _ATTEMPT)
    if replanned:
        _archive_replaced_plans(replanned)


def _archive_replaced_plans(rows: Iterable[EffectRow]) -> None:
    """Record replaced plans in the journal before they are overwritten."""
    drafts = []
    for row in rows:
        for plan in row.gave_way or ():
            facts = entries.dump_sorted_json(plan)
            drafts.append(
                Draft(
                    project=row.project_id,
                    source=entries.SYSTEM_SOURCE,
                    event_id=entries.keyed_digest("replanned", str(row.id), str(plan["by"])),
                    kind=REPLANNED,
                    lane="system",
                    actor=entries.SYSTEM_SOURCE,
                    text=facts,
                    facts=facts,
                    session=row.session_id,
                    effect=row.id,
                )
            )
        row.gave_way = None
    if drafts:
        entries.append_entries(drafts, now_us())


REPLANNED: Final = "effect.replanned"
_by_id: Final = attrgetter("id.int")
_by_effect_and_number: Final = attrgetter("effect_id.int", "number")


def _write_rows(
    row_text: str,
    set_text: str,
    rows: Sequence[EffectRow] | Sequence[AttemptRow],
    names: tuple[str, ...],
) -> int:
    """Write `rows` in the cheapest way, and return how many were written."""
    if not rows:
        return 0
    if len(rows) == 1:
        return raw_sql.execute_write(row_text, rows_to_parameters(rows, names)[0])
    if connection.vendor == "postgresql":
        return raw_sql.execute_write(set_text, [rows_to_json(rows, names)])
    return raw_sql.execute_write_each(row_text, rows_to_parameters(rows, names))


def import_effects(rows: Sequence[Effect], attempts: Sequence[Attempt]) -> None:
    """Import effects of a bundle with their attempts; they never change afterwards.

    Requires an archive. The database rejects them elsewhere, and any later change.
    """
    Effect.objects.bulk_create(rows, batch_size=200)
    Attempt.objects.bulk_create(attempts, batch_size=200)


def restore_effects(changes: Sequence[RowChange]) -> None:
    """Restore effects to what the journal gives (manage.py rebuild)."""
    write_row_changes(Effect, changes)


def restore_attempts(changes: Sequence[RowChange]) -> None:
    """Restore attempts to what the journal gives (manage.py rebuild)."""
    write_row_changes(Attempt, changes)


def violation_facts(name: str) -> str:
    """Return the facts of a violation's entry, in a form that queries can compare."""
    return orjson.dumps({"violation": name}).decode()


def record_violations(violations: Sequence[Violation], received_us: int) -> None:
    """Record each violation once as an entry, and put it in the outbox."""
    for violation in violations:
        effect = violation.effect
        event_id = entries.keyed_digest("violation", str(effect.id), violation.name)
        appended = entries.record_system_entry(
            effect.project_id,
            "integrity.violation",
            event_id=event_id,
            text=entries.dump_sorted_json({"effect": effect.id, "violation": violation.name}),
            received_us=received_us,
            facts=violation_facts(violation.name),
            session=effect.session_id,
            effect=effect.id,
        )
        outbox.queue_delivery(
            effect.project_id,
            entry=appended.position,
            topic="integrity",
            deduplication_key=event_id,
            due_at_us=received_us,
        )
