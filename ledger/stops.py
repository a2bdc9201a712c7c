"""The one writer of Stop: stops of effects, sessions, agents, tools and projects.

A dispatch holds back stops and activations of policies until its transaction ends; setting or
lifting a stop holds back dispatches. So once `set_stop` is committed, no dispatch that checked
earlier can still succeed.
"""

from collections.abc import Iterable, Sequence
from uuid import UUID

from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Exists, Q

from accounts import projects
from accounts.models import Agent, Project
from accounts.people import ensure_pseudonym
from db import raw_sql
from db.clock import now_us
from db.errors import ChangeRefused
from db.ids import new_uuid7
from db.notify import ALL_LISTENERS, notify_listeners
from db.row_changes import RowChange, write_row_changes
from journal import entries
from ledger.models import Effect, Stop
from ledger.states import STOP_SCOPES
from ledger.tools.registry import tool_name_digest
from sessions.models import Session

MIN_REASON = 3
MAX_REASON = 2000
_LOCK = 0x6761  # class of these advisory locks


def hold_back_stops_and_activations(project: UUID) -> None:
    """Let no stop or policy of the project change until the transaction ends.

    A shared lock: other dispatches go on.
    """
    if connection.vendor == "postgresql":  # SQLite has one writer at a time
        raw_sql.fetch_rows(
            "SELECT pg_advisory_xact_lock_shared(%s, %s)", [_LOCK, _lock_number(project)]
        )


def hold_back_dispatches(project: UUID) -> None:
    """Let no dispatch of the project begin until the transaction ends; wait for those that run.

    An exclusive lock: other changes of stops, and activations of policies, wait too.
    """
    if connection.vendor == "postgresql":
        raw_sql.fetch_rows("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK, _lock_number(project)])


def _lock_number(project: UUID) -> int:
    """Return the last 32 bits of a project's id as a signed number."""
    return int.from_bytes(project.bytes[-4:], "big", signed=True)


def find_stop(
    project: UUID, session: UUID, agent: UUID, tool: str, effect: UUID | None
) -> Stop | None:
    """Return the stop that covers this effect, if any: the widest first."""
    return find_covering_stop(load_stops(project), session, agent, tool, effect)


def find_covering_stop(
    stops: Iterable[Stop], session: UUID, agent: UUID, tool: str, effect: UUID | None
) -> Stop | None:
    """Return the widest of the loaded `stops` that covers this effect, if any."""
    covers = {
        "project": "",
        "tool": tool,
        "agent": agent.hex,
        "session": session.hex,
        "effect": effect.hex if effect is not None else None,
    }
    matching = [stop for stop in stops if covers[stop.scope] == stop.subject]
    return min(matching, key=lambda stop: STOP_SCOPES.index(stop.scope), default=None)


def load_stops(project: UUID) -> list[Stop]:
    """Return every stop in force in the project, latest first."""
    # Nearly every project has none, and every woken agent asks.
    if not raw_sql.fetch_rows(_ANY, [raw_sql.vendor_id(project)]):
        return []
    return list(
        Stop.objects.filter(project=project, lifted_at_us__isnull=True)
        .select_related("set_by")
        .order_by("-set_at_us")
    )


_ANY = "SELECT 1 FROM ledger_stop WHERE project_id = %s AND lifted_at_us IS NULL LIMIT 1"


def has_stops(project: UUID, _now: int) -> Exists:
    """Return a subquery: whether anything in the project is stopped."""
    return Exists(Stop.objects.filter(project=project, lifted_at_us__isnull=True))


def is_project_stopped(project: UUID, _now: int) -> Exists:
    """Return a subquery: whether the entire project is stopped."""
    return Exists(Stop.objects.filter(project=project, lifted_at_us__isnull=True, scope="project"))


_ANY_SINCE = (
    "SELECT 1 FROM ledger_stop"
    " WHERE project_id = %s AND (lifted_at_us IS NULL OR lifted_at_us > %s) LIMIT 1"
)


def load_stops_since(project: UUID, at_us: int) -> list[Stop]:
    """Return every stop of the project that was in force at `at_us` or was set later."""
    # Nearly every project has none, and every report asks.
    if not raw_sql.fetch_rows(_ANY_SINCE, [raw_sql.vendor_id(project), at_us]):
        return []
    return list(
        Stop.objects.filter(
            Q(lifted_at_us__isnull=True) | Q(lifted_at_us__gt=at_us), project=project
        )
    )


@transaction.atomic(savepoint=False)
def set_stop(project: Project, scope: str, subject: str, reason: str, user: User) -> Stop:
    """Stop what `scope` and `subject` (hex id, tool name or "") name.

    Repeating it returns the existing stop. Raises ChangeRefused for an empty reason, an unknown
    subject, and in an archive, where nothing runs.
    """
    projects.require_active_project(project)
    checked_reason = _validated_reason(reason)
    if scope not in STOP_SCOPES:
        raise ChangeRefused(
            f"Scope {scope!r} cannot be stopped. Choose one of {', '.join(STOP_SCOPES)}."
        )
    if not _subject_exists(project, scope, subject):
        raise ChangeRefused(f"This project has no such {scope}.")
    hold_back_dispatches(project.id)
    existing = Stop.objects.filter(
        project=project, scope=scope, subject=subject, lifted_at_us__isnull=True
    ).first()
    if existing is not None:
        return existing
    identity, now = new_uuid7(), now_us()
    position = _record(project.id, "stop.set", identity, scope, subject, checked_reason, user, now)
    return Stop.objects.create(
        id=identity,
        project=project,
        scope=scope,
        subject=subject,
        set_by=user,
        set_at_us=now,
        opened_position=position,
    )


@transaction.atomic(savepoint=False)
def lift_stop(stop: Stop, reason: str, user: User) -> bool:
    """End a stop; False if already lifted. Raises ChangeRefused without a reason."""
    checked_reason = _validated_reason(reason)
    hold_back_dispatches(stop.project_id)
    now = now_us()
    unlifted = Stop.objects.filter(id=stop.id, lifted_at_us__isnull=True)
    if not unlifted.exists():
        return False
    _record(
        stop.project_id,
        "stop.lifted",
        stop.id,
        stop.scope,
        stop.subject,
        checked_reason,
        user,
        now,
    )
    return bool(unlifted.update(lifted_at_us=now, lifted_by=user))


def restore_stops(changes: Sequence[RowChange]) -> None:
    """Restore stops to what the journal gives (manage.py rebuild)."""
    write_row_changes(Stop, changes)


def _validated_reason(reason: str) -> str:
    stripped = reason.strip()
    if not MIN_REASON <= len(stripped) <= MAX_REASON:
        raise ChangeRefused(
            f"Give a reason of {MIN_REASON} to {MAX_REASON} characters; others will act on it."
        )
    return stripped


def _subject_exists(project: Project, scope: str, subject: str) -> bool:
    if scope == "project":
        return subject == ""
    if scope == "tool":
        return 0 < len(subject) <= 100
    try:
        identity = UUID(hex=subject)
    except ValueError:
        return False
    tables: dict[str, Iterable[object]] = {
        "effect": Effect.objects.filter(project=project, id=identity)[:1],
        "session": Session.objects.filter(project=project, id=identity)[:1],
        "agent": Agent.objects.filter(project=project, id=identity)[:1],
    }
    return subject == identity.hex and bool(list(tables[scope]))


def _record(
    project: UUID,
    kind: str,
    stop: UUID,
    scope: str,
    subject: str,
    reason: str,
    user: User,
    now: int,
) -> int:
    identity = UUID(hex=subject) if scope in ("effect", "session", "agent") else None
    facts = {"scope": scope, "thing": identity.hex if identity is not None else ""}
    if scope == "tool":
        facts["tool"] = tool_name_digest(subject)
    appended = entries.record_system_entry(
        project,
        kind,
        event_id=new_uuid7().hex,
        text=entries.dump_sorted_json(
            {"kind": kind, "scope": scope, "subject": subject, "reason": reason}
        ),
        received_us=now,
        actor=ensure_pseudonym(user),
        facts=entries.dump_sorted_json(facts),
        session=identity if scope == "session" else None,
        effect=identity if scope == "effect" else None,
        subject=stop,
    )
    notify_listeners([ALL_LISTENERS])
    return appended.position
