"""Triggers of leases, on both vendors, for rules that no CHECK can express.

An epoch only grows. A lease changes its holder only under a higher epoch. The subject of a lease
never changes. A lease is never deleted: its subject would start at the first epoch again, and
fenced writes would count.
"""

from db.triggers import TriggerSet

_TABLE = "agent_sessions_lease"
_FIXED = ("id", "project_id", "kind", "subject", "session_id", "task_id")
_CHANGED = " OR ".join(
    f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _FIXED if name != "subject"
)
# The name of a resource can be erased; its id, which is derived from the name, stays.
_CHANGED += " OR (NEW.subject IS {distinct} OLD.subject AND NEW.subject NOT LIKE '[erased %')"
_HANDS = "NEW.epoch = OLD.epoch AND (NEW.agent_id <> OLD.agent_id OR NEW.process <> OLD.process)"
_BACK = "OLD.fence IS NOT NULL AND (NEW.fence IS NULL OR NEW.fence < OLD.fence)"

# name -> (table, event, columns, condition, message)
_TRIGGERS = {
    "lease_epoch_only_grows": (
        _TABLE,
        "UPDATE",
        "epoch",
        "NEW.epoch < OLD.epoch",
        "an epoch only increases",
    ),
    "new_lease_holder_has_a_new_epoch": (
        _TABLE,
        "UPDATE",
        "agent_id, process",
        _HANDS,
        "a new holder of a lease needs a higher epoch",
    ),
    "lease_subject_never_changes": (
        _TABLE,
        "UPDATE",
        ", ".join(_FIXED),
        _CHANGED,
        "the subject of a lease never changes",
    ),
    "released_lease_needs_a_new_epoch": (
        _TABLE,
        "UPDATE",
        "released_at_us",
        "OLD.released_at_us IS NOT NULL AND NEW.released_at_us IS {distinct} OLD.released_at_us"
        " AND NEW.epoch = OLD.epoch",
        "a released lease is acquired again only with a higher epoch",
    ),
    "lease_is_never_deleted": (_TABLE, "DELETE", "", "TRUE", "a lease is never deleted"),
    "session_fence_only_grows": (
        "agent_sessions_session",
        "UPDATE",
        "fence",
        _BACK,
        "the fencing epoch of a session only increases",
    ),
}


def _of_columns(columns: str) -> str:
    return f" OF {columns}" if columns else ""


# PostgreSQL calls a trigger function only where its condition holds.
_POSTGRESQL = {
    name: (
        table,
        f"BEFORE {event}{_of_columns(columns)} ON {table} FOR EACH ROW"
        f" WHEN ({condition.replace('{distinct}', 'DISTINCT FROM')}) EXECUTE FUNCTION {name}()",
    )
    for name, (table, event, columns, condition, _) in _TRIGGERS.items()
}
_FUNCTIONS = "".join(
    f"""
CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '{name}: {message}' USING ERRCODE = 'check_violation';
END $$;"""
    for name, (_, _, _, _, message) in _TRIGGERS.items()
)
_SQLITE = {
    name: (
        table,
        f"BEFORE {event}{_of_columns(columns)} ON {table}"
        f" WHEN {condition.replace('{distinct}', 'NOT')}"
        f" BEGIN SELECT RAISE(ABORT, '{name}: {message}'); END",
    )
    for name, (table, event, columns, condition, message) in _TRIGGERS.items()
}
# On a connection without recursive_triggers, INSERT OR REPLACE deletes without delete triggers.
_SQLITE["lease_is_never_replaced"] = (
    _TABLE,
    f"BEFORE INSERT ON {_TABLE} WHEN EXISTS"
    f" (SELECT 1 FROM {_TABLE} WHERE id = NEW.id OR rowid = NEW.rowid OR"
    " (project_id = NEW.project_id AND kind = NEW.kind AND subject = NEW.subject))"
    f" BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: {_TABLE}.id'); END",
)
LEASE_TRIGGERS = TriggerSet(postgresql=_POSTGRESQL, functions=_FUNCTIONS, sqlite=_SQLITE)
