"""Guards of the webhooks and identities of code hosts, on both databases.

They decide which events count, and of which agent they are. They change only with the `admin.*`
entry that says so.
"""

from typing import Final

from db.row_guards import RowGuard, build_guards, entry_says, list_changes

_SOURCES: Final = "hooks_codehostsource"
_IDENTITIES: Final = "hooks_agentidentity"
_SOURCE_KINDS: Final = ("admin.source_added", "admin.source_rotated", "admin.source_changed")
_IDENTITY_KINDS: Final = ("admin.identity_added", "admin.identity_removed")
_SETTINGS: Final = ("secret_generation", "previous_until_us", "enabled")
_KEPT: Final = ("id", "project_id", "host", "name", "created_by", "created_at_us")
_SAME_SETTINGS: Final = (
    "{fact:host} = NEW.host AND {fact:generation} = {text:NEW.secret_generation}"
    " AND {fact:previous_until_us} = {text:NEW.previous_until_us}"
    " AND {fact:enabled} = CASE WHEN NEW.enabled THEN '1' ELSE '0' END"
)


_SAME_AUTHOR: Final = "entry.actor = NEW.created_by"


def _says_source(kinds: tuple[str, ...], where: str) -> str:
    return entry_says(
        kinds, project="NEW.project_id", subject="NEW.id", among=_SOURCE_KINDS, where=where
    )


def _says_identity(kind: str, row: str, where: str = "") -> str:
    return entry_says(
        kind,
        project=f"{row}.project_id",
        subject=f"{row}.agent_id",
        among=_IDENTITY_KINDS,
        where=where,
        about=f"{{fact:identity}} = {{hex:{row}.id}}",
    )


_GUARDS: Final = (
    RowGuard(
        "source_starts_with_its_entry",
        _SOURCES,
        "INSERT",
        "NOT " + _says_source(_SOURCE_KINDS[:1], f"{_SAME_SETTINGS} AND {_SAME_AUTHOR}"),
        "a webhook of a code host is added only with admin.source_added",
    ),
    RowGuard(
        "source_changes_with_its_entry",
        _SOURCES,
        "UPDATE",
        f"NOT {_says_source(_SOURCE_KINDS[1:], _SAME_SETTINGS)}",
        "the secret and the switch of a webhook change only with their entry",
        columns=_SETTINGS,
        when=list_changes(_SETTINGS),
    ),
    RowGuard(
        "source_keeps_its_project",
        _SOURCES,
        "UPDATE",
        list_changes(("id", "project_id", "host", "created_by", "created_at_us")),
        "a webhook of a code host keeps its project and its host",
        columns=_KEPT,
        moment="BEFORE",
    ),
    RowGuard(
        "source_is_never_deleted",
        _SOURCES,
        "DELETE",
        "",
        "a webhook of a code host is disabled and never deleted",
        moment="BEFORE",
    ),
    RowGuard(
        "identity_is_added_with_its_entry",
        _IDENTITIES,
        "INSERT",
        "NOT "
        + _says_identity(
            _IDENTITY_KINDS[0],
            "NEW",
            "{fact:host} = NEW.host AND {fact:identity_kind} = NEW.kind"
            " AND entry.actor = NEW.created_by",
        ),
        "an agent gets an identity on a code host only with admin.identity_added",
    ),
    RowGuard(
        "identity_never_changes",
        _IDENTITIES,
        "UPDATE",
        "",
        "an identity is added or removed, and never changed",
        moment="BEFORE",
    ),
    RowGuard(
        "identity_is_removed_with_its_entry",
        _IDENTITIES,
        "DELETE",
        f"NOT {_says_identity(_IDENTITY_KINDS[1], 'OLD')}",
        "an identity is removed only with admin.identity_removed",
    ),
)

SETTING_GUARDS: Final = build_guards(
    _GUARDS,
    {
        _SOURCES: (("id",), ("project_id", "host", "name")),
        _IDENTITIES: (("id",), ("agent_id", "host", "kind", "value")),
    },
)
