"""Checks of what rows refer to: a row and all that it names are of one project, and one session.

A row that names the session of another project is in no batch of its own project, and the rows of a
sample are not compared. So these checks read every row of a table at once, with one join for each
reference. The rows that they select are named only. That what a row refers to is gone does not show
that the row is forged: it may be honest, and everything under it too.
"""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Final

from django.db.models import Field, ForeignKey, Model, QuerySet
from django.db.models.expressions import RawSQL

from accounts.models import Project
from approvals.models import Gate
from db import raw_sql
from ledger.models import Effect
from rebuild.registry import (
    FoldedRow,
    RebuildBatch,
    RowCheck,
    list_registered_checks,
    register_row_check,
)
from sessions.models import Artifact, Lease, Message, Session

# References to a row of the same session. Others may name another session of the project.
_OF_ONE_SESSION: Final[dict[type[Model], tuple[str, ...]]] = {
    Effect: ("compensates", "task"),
    Gate: ("effect",),
    Lease: ("task",),
}
# A report may name any effect, of another project and one that is not there too: nothing checks it.
_SET_FREELY: Final[dict[type[Model], tuple[str, ...]]] = {Effect: ("parent_effect",)}
# The entry that a row shows the words of, or that says what it belongs to, is the row's own.
_OF_ITS_ENTRY: Final[dict[type[Model], tuple[str, str]]] = {
    Message: ("message.sent", " AND entry.lane IN ('command', 'system')"),
    Artifact: (
        "artifact.recorded",
        " AND entry.lane IN ('command', 'evidence') AND entry.session = stored.session_id"
        " AND (entry.effect = stored.effect OR entry.effect IS NULL AND stored.effect IS NULL)",
    ),
}
_OWN_ENTRY: Final = (
    "NOT EXISTS (SELECT 1 FROM journal_entry entry WHERE entry.position = stored.opened_position"
    " AND entry.kind = '{kind}' AND entry.project = stored.project_id"
    " AND entry.subject = stored.id{more})"
)


@dataclass(frozen=True, slots=True)
class _Relations:
    """The joins of a table with what its rows refer to, and when a row does not belong there."""

    joins: tuple[str, ...]
    faults: tuple[str, ...]
    projects: tuple[str, ...]  # the columns that name a project


def _list_relations(model: type[Model]) -> _Relations:
    """Return the relations of a table, from the fields of its model."""
    columns = {field.column: field for field in model._meta.concrete_fields}
    joins, faults = list[str](), list[str]()
    projects = ["stored.project_id"] if "project_id" in columns else []
    for number, (column, field) in enumerate(columns.items()):
        target = _find_target(field)
        if target is None or field.name in _SET_FREELY.get(model, ()):
            continue
        other, table, key = f"other{number}", target._meta.db_table, target._meta.pk.column
        joins.append(f"LEFT JOIN {table} {other} ON {other}.{key} = stored.{column}")
        if getattr(field, "db_constraint", False):
            faults.append(f"stored.{column} IS NOT NULL AND {other}.{key} IS NULL")
        if target is Project:
            continue
        projects.append(f"{other}.project_id")
        if field.name in _OF_ONE_SESSION.get(model, ()):
            faults.append(f"{other}.session_id <> stored.session_id")
        # A vote has no session of its own: it is of that of its gate.
        if "session_id" not in columns and _has_column(target, "session_id"):
            session = f"session{number}"
            joins.append(
                f"LEFT JOIN {Session._meta.db_table} {session} ON {session}.id = {other}.session_id"
            )
            projects.append(f"{session}.project_id")
    faults += [f"{projects[0]} <> {other}" for other in projects[1:]]
    if model in _OF_ITS_ENTRY:
        kind, more = _OF_ITS_ENTRY[model]
        faults.append(_OWN_ENTRY.format(kind=kind, more=more))
    return _Relations(tuple(joins), tuple(faults), tuple(projects))


def _find_target(field: "Field[Any, Any]") -> type[Model] | None:
    """Return the model that a column refers to, if its rows are of a project, or a project."""
    if isinstance(field, ForeignKey):
        target: type[Model] = field.related_model
        return target if target is Project or _has_column(target, "project_id") else None
    return Effect if field.column == "effect" else None  # of a table below the ledger


def _has_column(model: type[Model], column: str) -> bool:
    return any(field.column == column for field in model._meta.concrete_fields)


def _select_misplaced(
    model: type[Model], relations: _Relations, batch: RebuildBatch
) -> "QuerySet[Any]":
    """Select the rows that name something of another project or session, or what is not there."""
    text = (
        f"SELECT stored.{model._meta.pk.column} FROM {model._meta.db_table} stored"
        f" {' '.join(relations.joins)} WHERE ({' OR '.join(relations.faults)})"
    )
    parameters = []
    if batch.project is not None:
        text += f" AND ({' OR '.join(f'{column} = %s' for column in relations.projects)})"
        parameters = [raw_sql.vendor_id(batch.project)] * len(relations.projects)
    text += f" LIMIT {MAX_MISPLACED}"
    return model._default_manager.filter(pk__in=RawSQL(text, parameters))  # noqa: S611


MAX_MISPLACED: Final = 10_000  # rows of a table: all rows of a session that is gone are misplaced


def _fold_nothing(_batch: RebuildBatch) -> Iterator[FoldedRow]:
    yield from ()


def _excuse_nothing(_batch: RebuildBatch, _stored: Any) -> str:
    return ""


def register_relation_checks() -> None:
    """Register a check of the references of each checked table, after all other checks."""
    by_table: dict[str, RowCheck] = {check.table: check for check in list_registered_checks()}
    for table, check in by_table.items():
        relations = _list_relations(check.model)
        if relations.faults:
            register_row_check(
                table,
                replace(
                    check,
                    unit="relations",
                    fold=_fold_nothing,
                    select=partial(_select_misplaced, check.model, relations),
                    excuse=_excuse_nothing,
                    per_effect=False,
                ),
            )
