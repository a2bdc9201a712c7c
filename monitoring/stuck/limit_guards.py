"""Guards of the limits of stuck rules: they change only with the entry that has the value."""

from typing import Final

from db.row_guards import RowGuard, build_guards, entry_says, list_changes

_TABLE: Final = "monitoring_stucklimit"


def _says_limit(row: str, value: str) -> str:
    return entry_says(
        "stuck.limit_changed",
        project=f"{row}.project_id",
        subject=f"{row}.agent_id",
        about=f"{{fact:limit}} = {row}.name",
        where=f"{{fact:value}} = {value}",
    )


_GUARDS: Final = (
    RowGuard(
        "stuck_limit_is_set_with_its_entry",
        _TABLE,
        "INSERT",
        f"NOT {_says_limit('NEW', '{text:NEW.value}')}",
        "a limit of a stuck rule is set only with stuck.limit_changed",
    ),
    RowGuard(
        "stuck_limit_changes_with_its_entry",
        _TABLE,
        "UPDATE",
        f"{list_changes(('project_id', 'agent_id', 'name'))}"
        f" OR NOT {_says_limit('NEW', '{text:NEW.value}')}",
        "a limit of a stuck rule changes only with stuck.limit_changed",
        when=list_changes(("project_id", "agent_id", "name", "value")),
    ),
    RowGuard(
        "stuck_limit_ends_with_its_entry",
        _TABLE,
        "DELETE",
        f"NOT {_says_limit('OLD', repr(''))}",
        "a limit of a stuck rule ends only with stuck.limit_changed",
    ),
)

LIMIT_GUARDS: Final = build_guards(_GUARDS, {_TABLE: (("agent_id", "name"),)})
