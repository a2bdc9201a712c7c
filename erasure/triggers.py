"""Triggers of erasure requests and legal holds, on both vendors.

What a request asks for never changes, and its state only moves forward. The person who confirms it
is a second administrator who chose their own password: of the request's project, of every project
if it names none, or of every project of the person whom it erases. When it has run, it holds no
words.
"""

from db.triggers import TriggerSet

_REQUEST = "erasure_erasurerequest"
_HOLD = "erasure_legalhold"
_ASKED = (
    "id",
    "project_id",
    "subject_kind",
    "person_id",
    "session_id",
    "word_digests",
    "keeps_decisions",
    "reason",
    "asked_by_id",
    "asked_at_us",
    "requested_position",
)
_HELD = ("id", "project_id", "kind", "session_id", "words", "reason", "set_by_id", "set_at_us")
_MOVES = {
    "counting": ("counted", "withdrawn"),
    "counted": ("counting", "confirmed", "withdrawn"),
    "confirmed": ("running",),
    "running": ("scrubbing",),
    "scrubbing": ("done",),
}
_MOVED = " OR ".join(
    f"(OLD.state = '{before}' AND NEW.state = '{state}')"
    for before, after in _MOVES.items()
    for state in after
)


def _differ(names: tuple[str, ...]) -> str:
    return " OR ".join(f"{{new}}{name} IS {{distinct}} {{old}}{name}" for name in names)


_ADMINISTERS = (
    "EXISTS (SELECT 1 FROM {schema}accounts_membership own WHERE own.user_id = NEW.confirmed_by_id"
    " AND own.role = 'administrator'"
)
_NOT_ENTITLED = (
    "NEW.confirmed_by_id IS NOT NULL AND OLD.confirmed_by_id IS NULL AND ("
    "NOT EXISTS (SELECT 1 FROM {schema}accounts_person person"
    " JOIN {schema}auth_user account ON account.id = person.user_id"
    " WHERE person.user_id = NEW.confirmed_by_id AND person.password_is_own AND account.is_active)"
    f" OR NOT {_ADMINISTERS})"
    " OR (NEW.subject_kind = 'person' AND EXISTS ("
    "SELECT 1 FROM {schema}accounts_membership theirs WHERE theirs.user_id = NEW.person_id"
    f" AND NOT {_ADMINISTERS} AND own.project_id = theirs.project_id)))"
    " OR (NEW.project_id IS NULL AND NEW.subject_kind <> 'person' AND EXISTS ("
    "SELECT 1 FROM {schema}accounts_project project"
    f" WHERE NOT {_ADMINISTERS} AND own.project_id = project.id)))"
    f" OR (NEW.project_id IS NOT NULL AND NOT {_ADMINISTERS}"
    " AND own.project_id = NEW.project_id)))"
)
# name -> (table, event, condition, message)
_TRIGGERS = {
    "erasure_starts_as_a_request": (
        _REQUEST,
        "INSERT",
        "NEW.state <> 'counting' OR NEW.confirmed_by_id IS NOT NULL",
        "an erasure starts as a request, which another person confirms",
    ),
    "erasure_request_never_changes": (
        _REQUEST,
        "UPDATE",
        f"{_differ(_ASKED)} OR (OLD.confirmed_by_id IS NOT NULL AND"
        f" ({_differ(('confirmed_by_id', 'confirmed_at_us'))}))"
        " OR (NEW.words IS {distinct} OLD.words AND {words} <> '[]')",
        "what an erasure request asks for, and who confirmed it, never changes",
    ),
    "erasure_moves_forward": (
        _REQUEST,
        "UPDATE",
        f"NEW.state <> OLD.state AND NOT ({_MOVED})",
        "an erasure request only moves forward",
    ),
    "erasure_is_confirmed_by_an_administrator": (
        _REQUEST,
        "UPDATE",
        _NOT_ENTITLED,
        "an administrator of every project that an erasure covers confirms it",
    ),
    "erasure_that_ran_keeps_no_words": (
        _REQUEST,
        "UPDATE",
        "NEW.state IN ('scrubbing', 'done', 'withdrawn') AND {words} <> '[]'",
        "an erasure that ended holds no words",
    ),
    "erasure_request_is_never_deleted": (
        _REQUEST,
        "DELETE",
        "",
        "an erasure request is never deleted",
    ),
    "legal_hold_is_only_released": (
        _HOLD,
        "UPDATE",
        f"{_differ(_HELD[:4] + _HELD[5:])} OR OLD.released_at_us IS NOT NULL"
        " OR (NEW.words IS {distinct} OLD.words AND {words} <> '[]')",
        "a legal hold never changes, except that it is released once",
    ),
    "legal_hold_is_never_deleted": (_HOLD, "DELETE", "", "a legal hold is never deleted"),
}


def _fill(condition: str, vendor: str) -> str:
    is_postgresql = vendor == "postgresql"
    values = {
        "{new}": "NEW.",
        "{old}": "OLD.",
        "{distinct}": "DISTINCT FROM" if is_postgresql else "NOT",
        "{words}": "CAST(NEW.words AS text)",
        "{schema}": "{schema}." if is_postgresql else "",
    }
    for mark, value in values.items():
        condition = condition.replace(mark, value)
    return condition


def _build_function(name: str, condition: str, message: str) -> str:
    end = "OLD" if not condition else "NEW"
    raises = f"RAISE EXCEPTION '{name}: {message}' USING ERRCODE = 'check_violation';"
    body = f"IF {_fill(condition, 'postgresql')} THEN {raises} END IF;" if condition else raises
    return f"""
CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  {body}
  RETURN {end};
END $$;"""


ERASURE_REQUEST_TRIGGERS = TriggerSet(
    postgresql={
        name: (table, f"BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()")
        for name, (table, event, _, _) in _TRIGGERS.items()
    },
    functions="".join(
        _build_function(name, condition, message)
        for name, (_, _, condition, message) in _TRIGGERS.items()
    ),
    sqlite={
        **{
            name: (
                table,
                f"BEFORE {event} ON {table}"
                f"{' WHEN ' + _fill(condition, 'sqlite') if condition else ''}"
                f" BEGIN SELECT RAISE(ABORT, '{name}: {message}'); END",
            )
            for name, (table, event, condition, message) in _TRIGGERS.items()
        },
        # INSERT OR REPLACE deletes without delete triggers.
        **{
            f"{table}_is_never_replaced": (
                table,
                f"BEFORE INSERT ON {table} WHEN EXISTS (SELECT 1 FROM {table} WHERE id = NEW.id)"
                f" BEGIN SELECT RAISE(ABORT, 'UNIQUE constraint failed: {table}.id'); END",
            )
            for table in (_REQUEST, _HOLD)
        },
    },
    needs=("accounts_membership", "accounts_person", "accounts_project", "auth_user"),
)
