"""The check of projects: their names, and whether they store what agents send as it came."""

from collections.abc import Iterator, Mapping
from typing import Any, Final
from uuid import UUID

from django.db.models import QuerySet

from accounts import projects
from accounts.models import Project
from journal.models import Entry
from rebuild.project_journal import EARLIER_VERSION, ProjectEntry, load_installation_entries
from rebuild.registry import FoldedRow, RebuildBatch, RowCheck, register_row_check

_PROJECTS: Final = ("admin.project_created", "admin.project_renamed")


def _fold_projects(_batch: RebuildBatch) -> Iterator[FoldedRow]:
    """Yield every project whose creation the journal has. None is ever deleted."""
    names = dict(Project.objects.values_list("id", "name"))
    rows: dict[UUID, FoldedRow] = {}
    for entry in load_installation_entries(_PROJECTS):
        key, facts = entry.subject, entry.facts
        if key is None or key != entry.project:
            continue
        if entry.kind == "admin.project_created" and key in rows:
            continue  # a project is created once: a later entry is no creation
        if entry.kind == "admin.project_created":
            values = {"id": key, "archive": facts["mode"] == "archive"}
            row = rows[key] = FoldedRow((key,), values)
            if "redacts" in facts:
                values["redacts"] = bool(facts["redacts"])
            else:  # early versions let the operator switch it off
                row.unknown["redacts"] = EARLIER_VERSION
        elif key not in rows or (entry.body is not None and "name" not in entry.body):
            continue  # of a project that was not created, or of no form that Gatebook writes
        rows[key].position = entry.position
        _read_name(rows[key], entry, names.get(key))
    yield from rows.values()


def _read_name(row: FoldedRow, entry: ProjectEntry, stored: str | None) -> None:
    """Set the name that an entry gives; where it is erased, its digest knows the stored one."""
    row.unknown.pop("name", None)
    row.faults.pop("name", None)
    row.values["name"] = entry.read("name", row.unknown)
    row.is_lost = row.values["name"] is None
    if not row.is_lost or stored is None or "name" not in entry.facts:
        return
    del row.unknown["name"]
    row.values["name"] = stored
    if entry.facts["name"] != projects.digest_project_name(stored):
        row.faults["name"] = "altered"


def _excuse_project(batch: RebuildBatch, stored: Mapping[str, Any]) -> str:
    """Excuse a project that was in use before the journal had the creation of any project.

    Its own entries decide that: their positions are given by the journal, while a row that is
    inserted now can have any time.
    """
    if "first creation" not in batch.cache:
        created = load_installation_entries(("admin.project_created",))
        batch.cache["first creation"] = min((entry.position for entry in created), default=2**63)
    of_project = Entry.objects.filter(project=stored["id"])
    is_earlier = of_project.filter(position__lt=batch.cache["first creation"]).exists()
    return EARLIER_VERSION if is_earlier else ""


def _select_projects(_batch: RebuildBatch) -> "QuerySet[Any]":
    return Project.objects.all()


def register_project_checks() -> None:
    """Register the check of projects."""
    check = RowCheck(
        Project,
        ("id",),
        "installation",
        _fold_projects,
        _select_projects,
        projects.restore_projects,
        {"created_at": "the clock of the row, which no entry repeats"},
        excuse=_excuse_project,
    )
    register_row_check(check.table, check)
