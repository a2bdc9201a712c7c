"""Guards of the outbox, on both databases: what is queued is sent once and stays on record."""

from typing import Final

from db.row_guards import RowGuard, build_guards, list_changes

_KEPT: Final = ("id", "project", "entry_id", "topic", "deduplication_key")

_GUARDS: Final = (
    RowGuard(
        "outbox_row_is_never_deleted",
        "journal_outbox",
        "DELETE",
        "",
        "what is queued is sent and never deleted",
        moment="BEFORE",
    ),
    RowGuard(
        "outbox_row_keeps_its_cause",
        "journal_outbox",
        "UPDATE",
        list_changes(_KEPT),
        "what is queued keeps its entry, topic and key",
        columns=_KEPT,
        moment="BEFORE",
    ),
    RowGuard(
        "outbox_row_is_sent_once",
        "journal_outbox",
        "UPDATE",
        "OLD.sent_at_us IS NOT NULL OR NEW.tries <= OLD.tries",
        "a queued row is marked as sent once, by its next try",
        columns=("sent_at_us",),
        when="NEW.sent_at_us IS {distinct} OLD.sent_at_us",
        moment="BEFORE",
    ),
)

OUTBOX_GUARDS: Final = build_guards(
    _GUARDS, {"journal_outbox": (("id",), ("project", "deduplication_key"))}, skips=True
)
