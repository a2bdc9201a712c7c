"""The laws of leases that a CHECK cannot keep, kept by the database itself on both vendors.

An epoch only grows, whoever writes; a lease changes hands by a higher epoch alone; and what it is on stays as it is. A
lease is never deleted: its subject would begin at the first epoch again, and every stranger's writes would count.
"""

from journal.triggers import Law

_TABLE = "agent_sessions_lease"
_FIXED = ("id", "project_id", "kind", "subject", "session_id", "task_id")
_CHANGED = " OR ".join(f"NEW.{name} IS {{distinct}} OLD.{name}" for name in _FIXED)
_HANDS = "NEW.epoch = OLD.epoch AND (NEW.agent_id <> OLD.agent_id OR NEW.process <> OLD.process)"
_BACK = "OLD.fence IS NOT NULL AND (NEW.fence IS NULL OR NEW.fence < OLD.fence)"

# name -> (table, event, of which columns, condition, what it says)
_LAWS = {
    "lease_epoch_only_grows": (_TABLE, "UPDATE", "epoch", "NEW.epoch < OLD.epoch", "an epoch only grows"),
    "lease_changes_hands_by_a_new_epoch": (
        _TABLE, "UPDATE", "agent_id, process", _HANDS, "a lease changes hands by a higher epoch alone",
    ),
    "lease_stays_on_its_subject": (
        _TABLE, "UPDATE", ", ".join(_FIXED), _CHANGED, "what a lease is on stays as it is",
    ),
    "lease_that_was_released_stays_so": (
        _TABLE, "UPDATE", "released_at_us",
        "OLD.released_at_us IS NOT NULL AND NEW.released_at_us IS {distinct} OLD.released_at_us"
        " AND NEW.epoch = OLD.epoch",
        "a lease that was given up is taken again by a higher epoch alone",
    ),
    "lease_never_goes": (_TABLE, "DELETE", "", "TRUE", "a lease is never deleted"),
    "session_fence_only_grows": (
        "agent_sessions_session", "UPDATE", "fence", _BACK, "the fence of a session only grows",
    ),
}  # fmt: skip


def _of(columns: str) -> str:
    return f" OF {columns}" if columns else ""


# PostgreSQL calls a law only where its condition holds, so it costs no call where nothing offends.
_POSTGRESQL = {
    name: (
        table,
        f"BEFORE {event}{_of(columns)} ON {table} FOR EACH ROW"
        f" WHEN ({condition.replace('{distinct}', 'DISTINCT FROM')}) EXECUTE FUNCTION {name}()",
    )
    for name, (table, event, columns, condition, _) in _LAWS.items()
}
_FUNCTIONS = "".join(
    f"""
CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  RAISE EXCEPTION '{name}: {said}' USING ERRCODE = 'check_violation';
END $$;"""
    for name, (_, _, _, _, said) in _LAWS.items()
)
_SQLITE = {
    name: (
        table,
        f"BEFORE {event}{_of(columns)} ON {table} WHEN {condition.replace('{distinct}', 'NOT')}"
        f" BEGIN SELECT RAISE(ABORT, '{name}: {said}'); END",
    )
    for name, (table, event, columns, condition, said) in _LAWS.items()
}
# INSERT OR REPLACE would remove a lease past the law on a connection without recursive_triggers.
_SQLITE["lease_is_never_replaced"] = (
    _TABLE,
    f"BEFORE INSERT ON {_TABLE} WHEN EXISTS (SELECT 1 FROM {_TABLE} WHERE id = NEW.id OR rowid = NEW.rowid OR"
    " (project_id = NEW.project_id AND kind = NEW.kind AND subject = NEW.subject))"
    f" BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: {_TABLE}.id'); END",
)
LAW = Law(postgresql=_POSTGRESQL, functions=_FUNCTIONS, sqlite=_SQLITE)
