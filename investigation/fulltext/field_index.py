"""The one writer of FieldValue and FieldCoverage: values of declared arguments, for the search.

Tools declare fields as `fields: {ticket: ticket}`. The job of the word index stores the values of
new plans in its transactions. After a declaration changed, it indexes older effects of the tool
again, the newest first, in small batches; FieldCoverage says from where on the values are complete.
"""

import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.db import transaction

from db import raw_sql
from db.row_changes import RowChange, write_row_changes
from db.triggers import TriggerSet
from investigation.fulltext import store
from investigation.models import FieldCoverage, FieldValue
from journal.summaries import parse_body
from ledger.models import Tool
from ledger.tools import cache as tool_cache
from ledger.tools.argument_values import list_field_values

BATCH_EFFECTS: Final = 100  # older effects that are read in one transaction
MAX_TOOLS_REPORTED: Final = 20

# Project id as plain SQL returns it as text, and tool -> search field -> path of the argument.
DeclaredFields = Mapping[tuple[str, str], Mapping[str, str]]


class EffectFields(NamedTuple):
    """The values of one effect's plan. Ids are text, as plain SQL returns them."""

    effect: str
    project: str
    tool: str
    position: int
    plan_position: int | None
    values: tuple[tuple[str, str], ...]  # (field, value)


def load_declared_fields() -> dict[tuple[str, str], dict[str, str]]:
    """Return the declared fields of all tools that have any. One query."""
    rows = Tool.objects.exclude(fields={}).values_list("project_id", "name", "fields")
    return {(raw_sql.uuid_as_cast_text(project), name): fields for project, name, fields in rows}


def store_field_values(
    effects: Sequence[EffectFields], declared: DeclaredFields, *, again: bool = False
) -> None:
    """Replace the stored values of each effect. Needs the lock of `store.lock_words`.

    One query for what is stored, and writes only for what differs. Nothing is read if no tool has
    fields; `again` reads in any case.
    """
    if not effects or not (declared or again):
        return
    stored: defaultdict[str, dict[tuple[str, str, int], int]] = defaultdict(dict)
    for pk, effect, *key in _load_stored([row.effect for row in effects]):
        stored[effect][tuple(key)] = pk
    stale: list[int] = []
    new: list[FieldValue] = []
    for row in effects:
        present = stored[row.effect]
        plan = row.plan_position
        # A value goes with the body of its plan: that of a later plan is another row.
        wanted = {} if plan is None else {(*pair, plan): None for pair in row.values}
        stale += [pk for key, pk in present.items() if key not in wanted]
        new += [
            FieldValue(
                project_id=UUID(row.project),
                effect_id=UUID(row.effect),
                position=row.position,
                plan_position=plan_position,
                field=field,
                value=value,
            )
            for field, value, plan_position in wanted
            if (field, value, plan_position) not in present
        ]
    if stale:
        FieldValue.objects.filter(id__in=stale).delete()
    FieldValue.objects.bulk_create(new, batch_size=500)


_STORED: Final = (
    "SELECT stored.id, CAST(stored.effect_id AS text), stored.field, stored.value,"
    " stored.plan_position FROM {} CROSS JOIN investigation_fieldvalue stored"
    " WHERE stored.effect_id = wanted.key"
)


def _load_stored(effects: Iterable[str]) -> list[tuple[Any, ...]]:
    return raw_sql.fetch_rows(
        _STORED.format(raw_sql.wanted_table("uuid")), [raw_sql.to_array_parameter(effects)]
    )


def restore_field_values(changes: Sequence[RowChange]) -> None:
    """Restore values to those of the plans in the journal (manage.py rebuild)."""
    write_row_changes(FieldValue, changes)


def begin_changed_tools(position: int) -> None:
    """Note which tools have other fields than their older effects are indexed by.

    `position` is the last entry of the journal: later entries are indexed by the new fields.
    """
    declared = {
        (project, name): fields
        for project, name, fields in Tool.objects.exclude(fields={}).values_list(
            "project_id", "name", "fields"
        )
    }
    covered = {(row.project_id, row.tool): row for row in FieldCoverage.objects.all()}
    for project, tool in declared.keys() | covered.keys():
        fields, row = declared.get((project, tool), {}), covered.get((project, tool))
        if row is None:
            FieldCoverage.objects.create(
                project_id=project, tool=tool, fields=fields, complete_from=position + 1
            )
        elif row.fields != fields:
            row.fields, row.complete_from = fields, position + 1
            row.save(update_fields=["fields", "complete_from"])


def index_older_effects(position: int, ends: float | None) -> int:
    """Index older effects of tools whose fields changed, until `ends`; return their number.

    `position` is the last entry that the index has read, and `ends` a time of the monotonic clock.
    At least one batch is read.
    """
    number = 0
    if not Tool.objects.exclude(fields={}).exists() and not FieldCoverage.objects.exists():
        return 0
    with transaction.atomic():
        store.lock_words()
        begin_changed_tools(position)
    while True:
        with transaction.atomic():
            store.lock_words()
            row = FieldCoverage.objects.filter(complete_from__gt=0).order_by("id").first()
            if row is None:
                return number
            number += _index_batch(row)
        if ends is not None and time.monotonic() > ends:
            return number


_OLDER: Final = (
    "SELECT CAST(effect.id AS text), effect.opened_position, effect.plan_position, body.text"
    " FROM ledger_effect effect LEFT JOIN journal_body body ON body.entry_id = effect.plan_position"
    " WHERE effect.project_id = %s AND effect.tool = %s AND effect.opened_position < %s"
    " ORDER BY effect.opened_position DESC LIMIT %s"
)


def _index_batch(row: FieldCoverage) -> int:
    """Index the next older effects of a tool. Needs the lock; one query and the writes."""
    older = raw_sql.fetch_rows(
        _OLDER, [raw_sql.vendor_id(row.project_id), row.tool, row.complete_from, BATCH_EFFECTS]
    )
    project = raw_sql.uuid_as_cast_text(row.project_id)
    effects = [
        EffectFields(
            effect,
            project,
            row.tool,
            position,
            plan_position,
            list_field_values(row.fields, parse_body(text).get("arguments")) if text else (),
        )
        for effect, position, plan_position, text in older
    ]
    store_field_values(effects, {}, again=True)
    if len(older) == BATCH_EFFECTS:
        row.complete_from = older[-1][1]
        row.save(update_fields=["complete_from"])
    elif row.fields:
        row.complete_from = 0
        row.save(update_fields=["complete_from"])
    else:  # no field is declared any more, and no value is left
        row.delete()
    return len(older)


def list_declared_names(project: UUID) -> list[str]:
    """Return the search fields that the project's tools declare, sorted, up to 5 s late."""
    declarations = tool_cache.load_tools(project).values()
    return sorted({name for declaration in declarations for name in declaration.fields})


def list_tools_with_fields(project: UUID) -> frozenset[str]:
    """Return the names of the project's tools that declare search fields, up to 5 s late."""
    declarations = tool_cache.load_tools(project).items()
    return frozenset(name for name, declaration in declarations if declaration.fields)


def describe_incomplete_fields(project: UUID, field: str) -> str:
    """Return a note about older effects that are not indexed by a field yet, or nothing."""
    rows = [
        row
        for row in FieldCoverage.objects.filter(project=project, complete_from__gt=0).order_by(
            "tool"
        )
        if field in row.fields
    ]
    if not rows:
        return ""
    tools = ", ".join(
        f"{row.tool} (from entry {row.complete_from:,})" for row in rows[:MAX_TOOLS_REPORTED]
    )
    return f"Older effects are still being indexed by {field}. Complete so far: {tools}."


def load_values_of_effects(effects: Sequence[UUID]) -> list[tuple[str, str]]:
    """Return the (field, value) pairs of these effects, sorted. One query."""
    rows = FieldValue.objects.filter(effect__in=effects).order_by("field", "value")
    return list(rows.values_list("field", "value"))


# Deleting the body of a plan, in any way, deletes its values in the same transaction.
_DELETE: Final = (
    "DELETE FROM {}investigation_fieldvalue WHERE plan_position = OLD.entry_id AND effect_id ="
    " (SELECT entry.effect FROM {}journal_entry entry WHERE entry.position = OLD.entry_id)"
)
FIELD_VALUE_TRIGGERS: Final = TriggerSet(
    postgresql={
        "erased_body_deletes_its_field_values": (
            "journal_body",
            "AFTER DELETE ON journal_body FOR EACH ROW EXECUTE FUNCTION "
            "investigation_delete_values()",
        ),
    },
    functions=f"""
CREATE OR REPLACE FUNCTION investigation_delete_values() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  PERFORM pg_advisory_xact_lock({store.WORDS_LOCK});
  {_DELETE.format("{schema}.", "{schema}.")};
  RETURN NULL;
END $$;
""",
    sqlite={
        "erased_body_deletes_its_field_values": (
            "journal_body",
            f"AFTER DELETE ON journal_body BEGIN {_DELETE.format('', '')}; END",
        ),
    },
    needs=("investigation_fieldvalue", "journal_entry"),
)
