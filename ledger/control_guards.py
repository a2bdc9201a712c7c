"""Guards of stops and declared tools, on both databases.

A stop is set and lifted only with its entry. Declared tools change only with
`admin.tools_loaded`: every load gives all of a project's tools its position, so a tool that is
changed, added or removed needs a later load than the one that the project has.
"""

from typing import Final

from db.row_guards import RowGuard, build_guards, entry_says
from ledger.models import Tool

_PSEUDONYM: Final = "(SELECT pseudonym FROM {{schema}}accounts_person WHERE user_id = NEW.{column})"
_IS_ARCHIVE: Final = "(SELECT archive FROM {schema}accounts_project WHERE id = NEW.project_id)"
# An erasure may remove words from the description, which decides nothing.
_TOOL_COLUMNS: Final = tuple(
    str(field.column)
    for field in Tool._meta.concrete_fields
    if field.column not in ("declared_at", "description")
)


def _says_loaded(row: str, where: str) -> str:
    return entry_says("admin.tools_loaded", project=f"{row}.project_id", subject="", where=where)


_GUARDS: Final = (
    RowGuard(
        "stop_is_set_with_its_entry",
        "ledger_stop",
        "INSERT",
        "NOT "
        + entry_says(
            "stop.set",
            project="NEW.project_id",
            subject="NEW.id",
            position="NEW.opened_position",
            where=f"entry.actor = {_PSEUDONYM.format(column='set_by_id')}"
            " AND entry.received_us = NEW.set_at_us AND {fact:scope} = NEW.scope"
            " AND (NEW.scope = 'tool' OR {fact:thing} = NEW.subject)",
        ),
        "a stop is set only with stop.set",
    ),
    RowGuard(
        "stop_is_lifted_with_its_entry",
        "ledger_stop",
        "UPDATE",
        "NOT "
        + entry_says(
            "stop.lifted",
            project="NEW.project_id",
            subject="NEW.id",
            once=True,
            where=f"entry.actor = {_PSEUDONYM.format(column='lifted_by_id')}"
            " AND entry.received_us = NEW.lifted_at_us",
        ),
        "a stop is lifted only with stop.lifted",
        columns=("lifted_at_us", "lifted_by_id"),
        when="NEW.lifted_at_us IS {distinct} OLD.lifted_at_us"
        " OR NEW.lifted_by_id IS {distinct} OLD.lifted_by_id",
    ),
    RowGuard(
        "tool_is_declared_with_its_entry",
        "ledger_tool",
        "INSERT",
        "NOT "
        + _says_loaded(
            "NEW",
            "entry.position = NEW.declared_position"
            # Otherwise one more tool could be added to the newest load.
            " AND (SELECT COUNT(*) FROM {schema}ledger_tool tool"
            " WHERE tool.project_id = NEW.project_id"
            " AND tool.declared_position = NEW.declared_position)"
            " <= {only:postgresql}CAST(NULLIF({fact:tools}, '') AS integer){end:postgresql}"
            "{only:sqlite}CAST({fact:tools} AS integer){end:sqlite}",
        )
        + f" AND NOT {_IS_ARCHIVE}",
        "a tool is declared only with admin.tools_loaded",
    ),
    RowGuard(
        "tool_changes_with_its_entry",
        "ledger_tool",
        "UPDATE",
        "NEW.id <> OLD.id OR NEW.project_id <> OLD.project_id OR NEW.name <> OLD.name OR NOT "
        + _says_loaded(
            "NEW",
            "entry.position = NEW.declared_position"
            " AND entry.position > COALESCE(OLD.declared_position, 0)",
        ),
        "a declared tool changes only with admin.tools_loaded",
        columns=_TOOL_COLUMNS,
    ),
    RowGuard(
        "tool_is_removed_with_its_entry",
        "ledger_tool",
        "DELETE",
        "NOT " + _says_loaded("OLD", "entry.position > COALESCE(OLD.declared_position, 0)"),
        "a declared tool is removed only with admin.tools_loaded",
    ),
)

# approvals/triggers.py keeps the table of stops from TRUNCATE and REPLACE.
CONTROL_GUARDS: Final = build_guards(
    _GUARDS,
    {"ledger_tool": (("id",), ("project_id", "name"))},
    needs=("accounts_person", "accounts_project"),
)
