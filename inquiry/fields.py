"""The one registry of what effects can be searched by. A field in a query string is looked up here and nowhere else.

Request data is only ever a value: the registry alone names columns. Each field says which index serves it; one that has
none is `slow`, and a search by slow fields alone reads the book window by window (inquiry/search.py).
"""

import difflib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import UUID

from django.db.models import Q, Subquery

from inquiry import shown
from inquiry.indexes import HAS_BAD_OUTCOME, HAS_GUARDED_REF, HAS_REFERENCE, NEEDS_LEAVE
from journal.ids import derived
from ledger.models import Effect
from ledger.states import LEAVES
from sessions.models import REF_CLASSES, Project, Session

NEWEST_SESSIONS: Final = 2000  # of these an effect key is found without naming its session
_AGO: Final = re.compile(r"(\d{1,6})\s*(m|min|h|d|w)", re.IGNORECASE)
_MINUTES: Final = {"m": 1, "min": 1, "h": 60, "d": 1440, "w": 10080}


class Invalid(ValueError):
    """A value that the field cannot mean; the message says what it can."""


@dataclass(frozen=True, slots=True)
class Context:
    """What a value may depend on."""

    project: Project
    now_us: int
    session: Session | None = None  # the one named in the same search


@dataclass(frozen=True, slots=True)
class Field:
    """One thing to search by. `arms` turns a checked value into disjoint conditions on ledger.Effect."""

    name: str
    label: str
    help: str
    index: str  # the index of ledger.Effect that serves it, or "" when none does
    arms: Callable[[str, Context], list[Q]]
    choices: Sequence[tuple[str, str]] = ()
    many: bool = False
    walled: bool = False  # its arms stay within the project by themselves

    def check(self, value: str) -> str:
        """Return the value as it will be used. Raises Invalid."""
        value = value.strip()
        if "\0" in value:
            raise Invalid("A value cannot hold a NUL character.")
        if len(value) > 300:
            raise Invalid("A value has at most 300 characters.")
        if self.choices and value not in dict(self.choices):
            raise Invalid(f"{self.label} is one of: {', '.join(key for key, _ in self.choices)}.")
        return value


def _equals(column: str) -> Callable[[str, Context], list[Q]]:
    return lambda value, _context: [Q(**{column: value})]


def _state(value: str, context: Context) -> list[Q]:
    return shown.arms(value, context.now_us)


def _outcome(value: str, _context: Context) -> list[Q]:
    return [Q(outcome=value)] if value == "ok" else [Q(HAS_BAD_OUTCOME, outcome=value)]


def _agent(value: str, context: Context) -> list[Q]:
    return [Q(agent=Subquery(context.project.agents.filter(name=value).values("id")[:1]))]


def _on_behalf_of(value: str, context: Context) -> list[Q]:
    sessions = context.project.sessions.filter(on_behalf_of__username=value)
    return [Q(session__in=Subquery(sessions.order_by().values("id")))]


def _repository(value: str, context: Context) -> list[Q]:
    return [Q(repository=Subquery(context.project.repositories.filter(name=value).values("id")[:1]))]


def _session(_value: str, context: Context) -> list[Q]:
    return [Q(session=context.session)]


def _ref_class(value: str, _context: Context) -> list[Q]:
    return [Q(ref_class=value)] if value == "other" else [Q(HAS_GUARDED_REF, ref_class=value)]


def _reference(value: str, context: Context) -> list[Q]:
    found = Effect.objects.filter(HAS_REFERENCE, project=context.project, external_reference=value)
    return [Q(id__in=found.order_by().values("id"))]


def _effect_key(value: str, context: Context) -> list[Q]:
    return [Q(id__in=effect_ids(context.project, value, context.session))]


def _violating(_value: str, _context: Context) -> list[Q]:
    return [Q(violates=True)]


def _judged(value: str, _context: Context) -> list[Q]:
    if value == "not_held":
        return [Q(NEEDS_LEAVE, enforced=False)]
    return [Q(judged=value)] if value == "allow" else [Q(NEEDS_LEAVE, judged=value)]


def effect_ids(project: Project, effect_key: str, session: Session | None = None) -> list[UUID]:
    """The ids that `effect_key` has in `session`, or in each of the project's newest sessions.

    An effect's id is derived from its session and key, so a key is found by primary key without an index of its own.
    """
    if session is not None:
        return [derived(session.id, effect_key)]
    newest = project.sessions.order_by("-opened_position").values_list("id", flat=True)[:NEWEST_SESSIONS]
    return [derived(session_id, effect_key) for session_id in newest]


_STATES: Final = tuple(shown.STATES.items())
_OUTCOMES: Final = (("ok", "ok"), ("error", "error"), ("unknown", "unknown"))
_CLASSES: Final = tuple((name, name) for name in REF_CLASSES)
_LEAVES: Final = tuple((name, name) for name in LEAVES)
_JUDGED: Final = (
    ("ask", "asks for leave"),
    ("deny", "denied"),
    ("not_held", "would have been held"),
    ("allow", "allowed"),
)

FIELDS: Final[dict[str, Field]] = {
    field.name: field
    for field in (
        Field("state", "State", "as shown on every page", "effect_by_state", _state, _STATES, many=True),
        Field("outcome", "Outcome", "", "effect_by_bad_outcome", _outcome, _OUTCOMES),
        Field("tool", "Tool", "its whole name", "effect_by_tool", _equals("tool")),
        Field("agent", "Agent", "its name", "", _agent),
        Field("on_behalf_of", "On behalf of", "a user name, as the agent said", "", _on_behalf_of),
        Field("session", "Session", "s_41, id or key", "effect_by_session", _session, walled=True),
        Field("repository", "Repository", "its whole name", "effect_by_repository", _repository),
        Field("ref", "Ref", "branch or tag", "", _equals("ref")),
        Field("ref_class", "Ref class", "", "effect_by_ref_class", _ref_class, _CLASSES),
        Field("environment", "Environment", "its whole name", "", _equals("environment")),
        Field("leave", "Leave", "", "", _equals("leave"), _LEAVES),
        Field(
            "reference",
            "External reference",
            "pull request, commit, message id",
            "effect_by_reference",
            _reference,
            walled=True,
        ),
        Field("key", "Effect key", "its idempotency key", "primary key", _effect_key, walled=True),
        Field("intent", "Intent digest", "v1:… in full", "", _equals("intent_digest")),
        Field("judged", "Judged by policy", "", "effect_judged_to_need_leave", _judged, _JUDGED),
        Field("violating", "Violations", "", "effect_violations", _violating, (("1", "only violating"),)),
    )
}
TIMES: Final = {"since": "Since", "until": "Until"}
PAGING: Final = frozenset({"before", "after", "from"})
NAMES: Final = (*FIELDS, *TIMES)


def nearest(name: str) -> str | None:
    """The field that an unknown `name` was probably meant to be."""
    close = difflib.get_close_matches(name.lower(), NAMES, n=1, cutoff=0.5)
    return close[0] if close else None


def moment(value: str, now_us: int) -> int:
    """Read a time in UTC (2026-11-20T09:00, 2026-11-20) or an age (30m, 24h, 7d) as microseconds. Raises Invalid."""
    value = value.strip()
    ago = _AGO.fullmatch(value)
    if ago is not None:
        return now_us - int(ago[1]) * _MINUTES[ago[2].lower()] * 60_000_000
    try:
        at = datetime.fromisoformat(value.replace("Z", "+00:00"))
    except ValueError:
        raise Invalid("A time is 2026-11-20T09:00, 2026-11-20, or an age as 30m, 24h or 7d.") from None
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return (at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
