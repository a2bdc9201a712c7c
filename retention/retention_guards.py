"""Guards of retention: sets never change, and expiry goes with its entry."""

from typing import Final

from db.row_guards import RowGuard, build_guards, entry_says, list_changes

_SET: Final = "retention_retentionset"
_LOADED: Final = (
    "id",
    "project_id",
    "name",
    "version",
    "text",
    "sha256",
    "rules",
    "loaded_by",
    "loaded_at_us",
)
# SQLite and PostgreSQL (json) compare texts of documents.
_CHANGED: Final = list_changes([name for name in _LOADED if name != "rules"]) + (
    " OR CAST(NEW.rules AS text) IS {distinct} CAST(OLD.rules AS text)"
)
_GUARDS: Final = (
    RowGuard(
        "retention_set_is_loaded_with_its_entry",
        _SET,
        "INSERT",
        "NEW.activation_position IS NOT NULL OR NOT "
        + entry_says(
            "retention.loaded",
            project="NEW.project_id",
            subject="NEW.id",
            once=True,
            where="{fact:sha256} = NEW.sha256",
        ),
        "a retention set is loaded with retention.loaded",
    ),
    RowGuard(
        "retention_set_never_changes",
        _SET,
        "UPDATE",
        _CHANGED,
        "the rules of a retention set never change; load a new version",
        columns=_LOADED,
    ),
    RowGuard(
        "retention_set_is_active_with_its_entry",
        _SET,
        "UPDATE",
        "NOT "
        + entry_says(
            "retention.activated",
            project="NEW.project_id",
            subject="NEW.id",
            position="NEW.activation_position",
            where="entry.actor = NEW.activated_by"
            " AND entry.position > COALESCE(OLD.activation_position, 0)",
        ),
        "a retention set becomes active only with retention.activated",
        columns=("activation_position", "activated_by", "activated_at_us"),
        when="NEW.activation_position IS {distinct} OLD.activation_position"
        " OR NEW.activated_by IS {distinct} OLD.activated_by"
        " OR NEW.activated_at_us IS {distinct} OLD.activated_at_us",
    ),
    RowGuard(
        "retention_set_is_never_deleted", _SET, "DELETE", "", "a retention set is never deleted"
    ),
    RowGuard(
        "body_expires_with_its_entry",
        "journal_erasure",
        "INSERT",
        "NOT EXISTS (SELECT 1 FROM {schema}journal_entry entry"
        " WHERE entry.position = NEW.expired_by AND entry.kind = 'retention.expired'"
        " AND entry.lane = 'system' AND entry.project = NEW.project"
        "{only:postgresql} AND entry.txid = pg_current_xact_id(){end:postgresql})",
        "a body expires only with retention.expired",
        when="NEW.expired_by IS NOT NULL",
    ),
)
RETENTION_GUARDS: Final = build_guards(
    _GUARDS,
    {_SET: (("id",), ("project_id", "name", "version"))},
    needs=("journal_erasure",),
)
