"""Guards of notification channels, on both databases.

A channel decides who learns of a request or a violation. It starts, changes and ends only with the
`admin.channel_*` entry that has its settings, and keeps its address.
"""

from typing import Final

from db.row_guards import RowGuard, build_guards, entry_says, list_changes

_KINDS: Final = ("admin.channel_added", "admin.channel_changed", "admin.channel_removed")
_FLAGS: Final = ("requests", "rulings", "expiries", "violations", "stuck", "enabled")
_SETTINGS: Final = (*_FLAGS, "minimum_risk")
_KEPT: Final = (
    *("id", "project_id", "kind", "body_form", "person_id", "created_by_id", "created_at_us"),
)
_PSEUDONYM: Final = (
    "COALESCE((SELECT pseudonym FROM {{schema}}accounts_person WHERE user_id = NEW.{column}), '')"
)
_SAME_SETTINGS: Final = " AND ".join(
    (
        *(f"{{fact:{name}}} = CASE WHEN NEW.{name} THEN '1' ELSE '0' END" for name in _FLAGS),
        "{fact:minimum_risk} = NEW.minimum_risk",
    )
)


def _says_channel(kinds: tuple[str, ...], where: str) -> str:
    return entry_says(kinds, project="NEW.project_id", subject="NEW.id", among=_KINDS, where=where)


_GUARDS: Final = (
    RowGuard(
        "channel_starts_with_its_entry",
        "notifications_notificationchannel",
        "INSERT",
        "NOT "
        + _says_channel(
            _KINDS[:1],
            f"{_SAME_SETTINGS} AND {{fact:kind}} = NEW.kind"
            " AND {fact:body_form} = CASE NEW.body_form WHEN 'plain' THEN '' ELSE NEW.body_form END"
            f" AND {{fact:person}} = {_PSEUDONYM.format(column='person_id')}"
            f" AND entry.actor = {_PSEUDONYM.format(column='created_by_id')}",
        ),
        "a channel is added only with admin.channel_added",
    ),
    RowGuard(
        "channel_changes_with_its_entry",
        "notifications_notificationchannel",
        "UPDATE",
        f"NOT {_says_channel(_KINDS[1:], _SAME_SETTINGS)}",
        "a channel is changed only with admin.channel_changed",
        columns=_SETTINGS,
        when=list_changes(_SETTINGS),
    ),
    RowGuard(
        # An erasure removes the address; the entry is then that of a removal.
        "channel_is_removed_with_its_entry",
        "notifications_notificationchannel",
        "UPDATE",
        "NOT "
        + _says_channel(_KINDS[2:], "{fact:removed_at_us} = {text:NEW.removed_at_us}")
        + " OR (NEW.target <> OLD.target AND NOT "
        + _says_channel(_KINDS[2:], "{fact:erased} = '1'")
        + ")",
        "a channel keeps its address, and ends only with admin.channel_removed",
        columns=("target", "removed_at_us"),
        when=list_changes(("target", "removed_at_us")),
    ),
    RowGuard(
        "channel_keeps_its_person",
        "notifications_notificationchannel",
        "UPDATE",
        list_changes(_KEPT),
        "a channel keeps its kind and its person; remove it and add another",
        columns=_KEPT,
        moment="BEFORE",
    ),
    RowGuard(
        "channel_is_never_deleted",
        "notifications_notificationchannel",
        "DELETE",
        "",
        "a channel is removed and never deleted",
        moment="BEFORE",
    ),
)

CHANNEL_GUARDS: Final = build_guards(
    _GUARDS, {"notifications_notificationchannel": (("id",),)}, needs=("accounts_person",)
)
