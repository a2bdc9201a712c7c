"""The one writer of Tool, and the queries of the tools page."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from django.db import connection, transaction

from accounts.audit_log import record_admin_entry
from accounts.models import Project
from db.row_changes import RowChange, write_row_changes
from journal.entries import SYSTEM_SOURCE, dump_sorted_json, keyed_digest
from ledger import circuit_breakers
from ledger.models import Tool
from ledger.states import DEFAULT_DEADLINE_S
from ledger.tools.tools_yaml import FIELD_NAME, ToolDeclaration

_COLUMNS = (
    "tool_class",
    "reversibility",
    "deadline_s",
    "request_lifetime_s",
    "description",
    "breaker_failures",
    "breaker_pause_s",
    "key_window_s",
    "probe",
    "undo",
    "max_attempts",
    "max_probes",
    "telling",
    "fields",
    "raises",
    "shell",
)
# What decides. An erasure may remove words from the description.
DECLARED_COLUMNS: Final = tuple(column for column in _COLUMNS if column != "description")


@dataclass(frozen=True, slots=True)
class ToolChanges:
    """The changes that `declare_tools` made, as sorted tool names."""

    added: list[str]
    changed: list[str]
    removed: list[str]

    def __bool__(self) -> bool:
        """True if anything changed."""
        return bool(self.added or self.changed or self.removed)


@transaction.atomic(savepoint=False)
def declare_tools(
    project: Project, declarations: Iterable[ToolDeclaration], *, actor: str = SYSTEM_SOURCE
) -> ToolChanges:
    """Replace the project's declared tools by `declarations`, and record the changes.

    A tool that is no longer declared becomes opaque and irreversible like any undeclared tool. That
    is the strictest class, so a missing line never makes anything laxer. Dispatched effects keep
    their deadline.
    """
    wanted = {declaration.name: declaration for declaration in declarations}
    existing = {
        tool.name: tool
        for tool in Tool.objects.select_for_update().filter(project=project).order_by("name")
    }
    change = ToolChanges(
        added=sorted(wanted.keys() - existing.keys()),
        changed=sorted(
            name
            for name in wanted.keys() & existing.keys()
            if _differs(existing[name], wanted[name])
        ),
        removed=sorted(existing.keys() - wanted.keys()),
    )
    if not change:
        return change
    # The entry comes first: guards refuse other tools without one (ledger/control_guards.py).
    position = record_admin_entry(
        project.id,
        "admin.tools_loaded",
        actor=actor,
        subject=None,
        facts={
            "added": len(change.added),
            "changed": len(change.changed),
            "removed": len(change.removed),
            "before": _deadlines_before(existing, wanted),
            "tools": len(wanted),
            "declared": {
                tool_name_digest(name): digest_declaration(asdict(wanted[name]))
                for name in sorted(wanted)
            },
        },
        words={"tools": [asdict(wanted[name]) for name in sorted(wanted)], **asdict(change)},
    )
    Tool.objects.filter(project=project, name__in=change.removed).delete()
    for name in change.added:
        Tool.objects.create(project=project, declared_position=position, **asdict(wanted[name]))
    for name in change.changed:
        tool = existing[name]
        for column in _COLUMNS:
            setattr(tool, column, getattr(wanted[name], column))
        tool.declared_position = position
        tool.save()
    unchanged = existing.keys() & wanted.keys() - set(change.changed)
    Tool.objects.filter(project=project, name__in=unchanged).update(declared_position=position)
    circuit_breakers.delete_breakers(
        project.id, existing.keys() - {name for name in wanted if wanted[name].breaker_failures}
    )
    return change


def restore_tools(changes: Sequence[RowChange]) -> None:
    """Restore declared tools to what the journal gives (manage.py rebuild)."""
    write_row_changes(Tool, changes)


def digest_declaration(columns: Mapping[str, Any]) -> str:
    """Return the journal's keyed digest of a declaration: 16 hex digits."""
    text = dump_sorted_json({column: columns[column] for column in DECLARED_COLUMNS})
    return keyed_digest("declaration", text)[:16]


def tool_name_digest(name: str) -> str:
    """Return the journal's pseudonym of a tool name: 16 hex digits."""
    return keyed_digest("tool", name)[:16]


def _deadlines_before(
    existing: Mapping[str, Tool], wanted: Mapping[str, ToolDeclaration]
) -> dict[str, int]:
    """Return the old deadline of each tool whose deadline changes, in seconds."""
    before = {name: tool.deadline_s for name, tool in existing.items()}
    after = {name: declaration.deadline_s for name, declaration in wanted.items()}
    return {
        tool_name_digest(name): before.get(name, DEFAULT_DEADLINE_S)
        for name in before.keys() | after.keys()
        if before.get(name, DEFAULT_DEADLINE_S) != after.get(name, DEFAULT_DEADLINE_S)
    }


# One index step per tool (effect_by_tool) instead of a scan of all effects.
_USED = """
WITH RECURSIVE used(tool) AS (
  SELECT min(tool) FROM ledger_effect WHERE project_id = %s
  UNION ALL
  SELECT (SELECT min(tool) FROM ledger_effect WHERE project_id = %s AND tool > used.tool)
  FROM used
  WHERE used.tool IS NOT NULL
)
SELECT tool FROM used
WHERE tool <> '' AND NOT EXISTS (
  SELECT 1 FROM ledger_tool WHERE project_id = %s AND name = used.tool
)
LIMIT %s
"""


def list_undeclared_tools(project: Project, limit: int = 200) -> list[str]:
    """Return the names of used but undeclared tools, sorted, at most `limit`."""
    key = project.id if connection.vendor == "postgresql" else project.id.hex
    with connection.cursor() as cursor:
        cursor.execute(_USED, [key, key, key, limit])
        return [str(row[0]) for row in cursor.fetchall()]


def import_tools(rows: Sequence[Tool]) -> None:
    """Import a bundle's declarations into its archive, without fields that cannot be read."""
    for row in rows:
        row.fields = {
            name: path
            for name, path in row.fields.items()
            if isinstance(path, str) and FIELD_NAME.fullmatch(name)
        }
    Tool.objects.bulk_create(rows, batch_size=500)


def _differs(tool: Tool, declaration: ToolDeclaration) -> bool:
    return any(getattr(tool, column) != getattr(declaration, column) for column in _COLUMNS)
