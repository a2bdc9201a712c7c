"""The one writer of Hold: stops of effects, sessions, agents, tools and projects.

A dispatch takes the shared lock (`share`), setting or lifting a stop the exclusive one (`alone`).
So once `put` is committed, no dispatch that checked earlier can still succeed.
"""

from collections.abc import Iterable
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db import connection, transaction
from django.db.models import Exists, Q

from journal import entries, sql
from journal.announcing import ALL, announce
from journal.clock import now_us
from journal.ids import uuid7
from ledger.models import Effect
from ledger.models_holds import Hold
from ledger.states import HOLD_SCOPES
from sessions import projects
from sessions.models import Agent, Project, Session
from sessions.people import pseudonym_of
from sessions.refused import RefusedError

LEAST_REASON = 3
MOST_REASON = 2000
_LOCK = 0x6761  # the namespace of our advisory locks


def share(project: UUID) -> None:
    """Block stops and policy activations in this project until the transaction ends."""
    if connection.vendor == "postgresql":  # SQLite has one writer at a time
        sql.rows("SELECT pg_advisory_xact_lock_shared(%s, %s)", [_LOCK, _lock_number(project)])


def alone(project: UUID) -> None:
    """Block dispatches of the project until the transaction ends."""
    if connection.vendor == "postgresql":
        sql.rows("SELECT pg_advisory_xact_lock(%s, %s)", [_LOCK, _lock_number(project)])


def _lock_number(project: UUID) -> int:
    """Return the last 32 bits of a project's id as a signed number."""
    return int.from_bytes(project.bytes[-4:], "big", signed=True)


def stopping(
    project: UUID, session: UUID, agent: UUID, tool: str, effect: UUID | None
) -> Hold | None:
    """Return the stop that covers this effect, if any: the widest first."""
    return covering(live(project), session, agent, tool, effect)


def covering(
    stops: Iterable[Hold], session: UUID, agent: UUID, tool: str, effect: UUID | None
) -> Hold | None:
    """Return the widest of the loaded `stops` that covers this effect, if any."""
    covers = {
        "project": "",
        "tool": tool,
        "agent": agent.hex,
        "session": session.hex,
        "effect": effect.hex if effect is not None else None,
    }
    matching = [hold for hold in stops if covers[hold.scope] == hold.subject]
    return min(matching, key=lambda hold: HOLD_SCOPES.index(hold.scope), default=None)


def live(project: UUID) -> list[Hold]:
    """Return every stop in force in the project, latest first."""
    # Nearly every project has none, and every woken agent asks.
    if not sql.rows(_ANY, [sql.vendor_id(project)]):
        return []
    return list(
        Hold.objects.filter(project=project, lifted_at_us__isnull=True)
        .select_related("set_by")
        .order_by("-set_at_us")
    )


_ANY = "SELECT 1 FROM ledger_hold WHERE project_id = %s AND lifted_at_us IS NULL LIMIT 1"


def any_in(project: UUID, _now: int) -> Exists:
    """Return a subquery: whether anything in the project is stopped."""
    return Exists(Hold.objects.filter(project=project, lifted_at_us__isnull=True))


def of_all(project: UUID, _now: int) -> Exists:
    """Return a subquery: whether the entire project is stopped."""
    return Exists(Hold.objects.filter(project=project, lifted_at_us__isnull=True, scope="project"))


_ANY_SINCE = (
    "SELECT 1 FROM ledger_hold"
    " WHERE project_id = %s AND (lifted_at_us IS NULL OR lifted_at_us > %s) LIMIT 1"
)


def since(project: UUID, at_us: int) -> list[Hold]:
    """Return every stop of the project that was in force at `at_us` or was set later."""
    # Nearly every project has none, and every report asks.
    if not sql.rows(_ANY_SINCE, [sql.vendor_id(project), at_us]):
        return []
    return list(
        Hold.objects.filter(
            Q(lifted_at_us__isnull=True) | Q(lifted_at_us__gt=at_us), project=project
        )
    )


@transaction.atomic(savepoint=False)
def put(project: Project, scope: str, subject: str, reason: str, user: User) -> Hold:
    """Stop what `scope` and `subject` (hex id, tool name or "") name.

    Repeating it returns the existing stop. Raises RefusedError for an empty reason, an unknown
    subject, and in an archive, where nothing runs.
    """
    projects.expect_life(project)
    checked_reason = _validated_reason(reason)
    if scope not in HOLD_SCOPES:
        raise RefusedError(
            f"Scope {scope!r} cannot be stopped. Choose one of {', '.join(HOLD_SCOPES)}."
        )
    if not _subject_exists(project, scope, subject):
        raise RefusedError(f"This project has no such {scope}.")
    alone(project.id)
    existing = Hold.objects.filter(
        project=project, scope=scope, subject=subject, lifted_at_us__isnull=True
    ).first()
    if existing is not None:
        return existing
    identity, now = uuid7(), now_us()
    position = _record(project.id, "hold.set", identity, scope, subject, checked_reason, user, now)
    return Hold.objects.create(
        id=identity,
        project=project,
        scope=scope,
        subject=subject,
        set_by=user,
        set_at_us=now,
        opened_position=position,
    )


@transaction.atomic(savepoint=False)
def lift(hold: Hold, reason: str, user: User) -> bool:
    """End a stop; False if already lifted. Raises RefusedError without a reason."""
    checked_reason = _validated_reason(reason)
    alone(hold.project_id)
    now = now_us()
    lifted = Hold.objects.filter(id=hold.id, lifted_at_us__isnull=True).update(
        lifted_at_us=now, lifted_by=user
    )
    if lifted:
        _record(
            hold.project_id,
            "hold.lifted",
            hold.id,
            hold.scope,
            hold.subject,
            checked_reason,
            user,
            now,
        )
    return bool(lifted)


def _validated_reason(reason: str) -> str:
    stripped = reason.strip()
    if not LEAST_REASON <= len(stripped) <= MOST_REASON:
        raise RefusedError(
            f"Give a reason of {LEAST_REASON} to {MOST_REASON} characters; others will act on it."
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
    hold: UUID,
    scope: str,
    subject: str,
    reason: str,
    user: User,
    now: int,
) -> int:
    identity = UUID(hex=subject) if scope in ("effect", "session", "agent") else None
    facts = {"scope": scope, "thing": identity.hex if identity is not None else ""}
    appended = entries.record(
        project,
        kind,
        event_id=uuid7().hex,
        text=orjson.dumps(
            {"kind": kind, "scope": scope, "subject": subject, "reason": reason},
            option=orjson.OPT_SORT_KEYS,
        ).decode(),
        received_us=now,
        actor=pseudonym_of(user),
        facts=orjson.dumps(facts, option=orjson.OPT_SORT_KEYS).decode(),
        session=identity if scope == "session" else None,
        effect=identity if scope == "effect" else None,
        subject=hold,
    )
    announce([ALL])
    return appended.position
