"""Triggers that keep the rows of Anchor as they were written."""

from typing import Final

from db.triggers import TriggerSet

_TABLE: Final = "proofs_anchor"
_FUNCTION: Final = """
CREATE OR REPLACE FUNCTION proofs_refuse_anchor_change() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION 'anchors are append-only: % on % is refused', TG_OP, TG_TABLE_NAME
    USING ERRCODE = 'restrict_violation';
END $$;
"""
_CALL: Final = "EXECUTE FUNCTION proofs_refuse_anchor_change()"
_POSTGRESQL: Final = {
    "anchor_never_changes": (
        _TABLE,
        f"BEFORE UPDATE OR DELETE ON {_TABLE} FOR EACH ROW {_CALL}",
    ),
    "anchor_is_never_truncated": (
        _TABLE,
        f"BEFORE TRUNCATE ON {_TABLE} FOR EACH STATEMENT {_CALL}",
    ),
}


def _refused(event: str) -> tuple[str, str]:
    return (
        _TABLE,
        f"BEFORE {event} ON {_TABLE} BEGIN"
        f" SELECT RAISE(ABORT, 'anchors are append-only: {event} on {_TABLE} is refused'); END",
    )


_SQLITE: Final = {
    "anchor_never_changes": _refused("UPDATE"),
    "anchor_is_never_deleted": _refused("DELETE"),
    # INSERT OR REPLACE deletes without a DELETE trigger: an insert of an existing row is skipped.
    "anchor_is_never_replaced": (
        _TABLE,
        f"BEFORE INSERT ON {_TABLE} WHEN EXISTS (SELECT 1 FROM {_TABLE} stored"
        " WHERE stored.id = NEW.id OR (stored.tree_head_id = NEW.tree_head_id"
        " AND stored.name = NEW.name AND stored.error = '' AND NEW.error = ''))"
        " BEGIN SELECT RAISE(IGNORE); END",
    ),
}

ANCHOR_TRIGGERS: Final = TriggerSet(_POSTGRESQL, _FUNCTION, _SQLITE, append_only=(_TABLE,))
