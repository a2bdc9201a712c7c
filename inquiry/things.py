"""What people point at: a session, an effect, a gate or an entry of the journal, by handle, id, key, number or address.

Every look-up is a probe of an index, begins with the project, and finds nothing of another.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import Case, JSONField, OuterRef, QuerySet, Subquery, When
from django.db.models.functions import JSONObject
from django.urls import reverse

from approvals.models import Gate
from inquiry import handles
from inquiry.indexes import HAS_REFERENCE
from inquiry.keyset import MAX_POSITION
from journal.models import Entry
from ledger.models import Effect
from sessions.models import Agent, Project, Session
from sessions.refused import RefusedError

LONGEST: Final = 400
SESSION, EFFECT, GATE, ENTRY = KINDS = ("session", "effect", "gate", "entry")
HOMES: Final[dict[str, type[Session] | type[Effect] | type[Gate]]] = {SESSION: Session, EFFECT: Effect, GATE: Gate}
LETTERS: Final = {SESSION: "s_", EFFECT: "e_", GATE: "g_", ENTRY: "#"}
_KIND_OF_LETTER: Final = {"s": SESSION, "e": EFFECT, "g": GATE}
_KIND_OF_PATH: Final = {"sessions": SESSION, "effects": EFFECT, "approvals": GATE}
_PATH: Final = re.compile(r"/(sessions|effects|approvals)/([0-9a-fA-F-]{32,36})(?:/|$|\?|#)")
_FACT: Final = re.compile(r"[?&](?:fact|at)=([0-9]{1,19})(?:&|#|$)|#p([0-9]{1,19})$")
_ENTRY: Final = re.compile(r"#?([0-9][0-9\s\u202f\u00a0]{0,30})")
_NONE: Final = (
    "Nothing of this project is called that. Name a session, an effect or a gate by handle, id or address, or an entry "
    "of the journal by its position, as #48211."
)


@dataclass(frozen=True, slots=True)
class Thing:
    """One of KINDS, by the number of its handle; of an entry its position. `id` is None for an entry."""

    kind: str
    number: int
    id: UUID | None = None

    def __str__(self) -> str:
        return name(self.kind, self.number)

    @property
    def url(self) -> str:
        """Its page."""
        return address(self.kind, self.number, self.id)


def name(kind: str, number: int) -> str:
    """The handle: s_12, e_41, g_7, #48211."""
    return f"{LETTERS[kind]}{number}"


def address(kind: str, number: int, identity: UUID | None) -> str:
    """The page of a thing; of an entry its place in the journal."""
    if kind == ENTRY or identity is None:
        return f"{reverse('journal')}?at={number}#p{number}"
    return reverse(kind, args=[identity])


def session(project: Project, text: str) -> Session:
    """The session that `text` names. Raises RefusedError."""
    path = _PATH.search(text)
    if path is not None and path[1] == "sessions":
        text = path[2]
    found = handles.session(project, text) if text and "\0" not in text else None
    if found is None:
        raise RefusedError("This project has no such session. Name it by its handle, as s_412, its key or its address.")
    return found


def find(project: Project, text: str) -> Thing:
    """The one thing of the project that `text` names. Raises RefusedError, also where it names several."""
    text = text.strip()
    if not text or len(text) > LONGEST or "\0" in text:
        raise RefusedError(_NONE)
    path, fact, entry = _PATH.search(text), _FACT.search(text), _ENTRY.fullmatch(text)
    if fact is not None and (path is None or path[1] == "effects"):
        return _entry(project, fact[1] or fact[2])
    if entry is not None:
        return _entry(project, re.sub(r"\D", "", entry[1]))
    if path is not None:
        shaped = handles.as_uuid(path[2])
        return _one(_by_id(project, [_KIND_OF_PATH[path[1]]], shaped))
    handle = handles.handle(text)
    if handle is not None:
        return _one(_by_number(project, *handle))
    named = _by_id(project, HOMES, handles.as_uuid(text))
    keyed = handles.session(project, text)
    if keyed is not None:
        named.append(Thing(SESSION, keyed.opened_position, keyed.id))
    if not named:
        referred = Effect.objects.filter(HAS_REFERENCE, project=project, external_reference=text)
        found = referred.order_by("-opened_position").values_list("opened_position", "id")[:5]
        named = [Thing(EFFECT, number, identity) for number, identity in found]
    return _one(named)


def named() -> Case:
    """For a query of a project's rows with the columns `kind` and `number`: as much of the thing that they name as
    `shown` takes, NULL where there is none. Every thing is a probe of an index, and all of them no query more.
    """
    there = {"project": OuterRef("project"), "opened_position": OuterRef("number")}
    found: dict[str, QuerySet[Any]] = {
        SESSION: Session.objects.filter(**there).values(it=JSONObject(**_OF_SESSION, agent="agent__name")),
        EFFECT: Effect.objects.filter(**there).values(it=JSONObject(**_OF_EFFECT, home="session__opened_position")),
        GATE: Gate.objects.filter(**there).values(it=JSONObject(**_OF_GATE, home="effect__opened_position")),
        ENTRY: Entry.objects.filter(project=OuterRef("project"), position=OuterRef("number")).values(
            it=JSONObject(**_OF_ENTRY)
        ),
    }
    each = [When(kind=kind, then=Subquery(rows[:1])) for kind, rows in found.items()]
    return Case(*each, output_field=JSONField())


_OF_SESSION: Final = {name: name for name in ("id", "opened_position", "title", "key", "status", "mode")}
_OF_EFFECT: Final = {
    name: name for name in ("id", "opened_position", "session_id", "tool", "state", "outcome", "leave", "deadline_us")
}
_OF_GATE: Final = {
    name: name for name in ("id", "opened_position", "effect_id", "tool", "status", "decide_by_us", "leave_until_us")
}
_OF_ENTRY: Final = {name: name for name in ("position", "kind", "effect")}


def shown(kind: str, told: dict[str, Any]) -> Any:
    """A row of the table of `kind` with what `named` told of it, for a page to show; nothing else of it is there."""
    known: dict[str, Any] = {name: UUID(value) if name in _IDS and value else value for name, value in told.items()}
    if kind == SESSION:
        return Session(**known | {"agent": Agent(name=told["agent"])})
    home = known.pop("home", None)
    if kind == EFFECT:
        its_session = Session(id=known.pop("session_id"), opened_position=home)
        return Effect(**known, session=its_session)
    if kind == GATE:
        effect = Effect(id=known.pop("effect_id"), opened_position=home)
        return Gate(**known, effect=effect)
    return Entry(**known)


_IDS: Final = frozenset({"id", "session_id", "effect_id", "effect"})


def _one(found: Iterable[Thing]) -> Thing:
    several = sorted(set(found), key=lambda one: one.number)
    if not several:
        raise RefusedError(_NONE)
    if len(several) > 1:
        raise RefusedError(f"That names several: {', '.join(map(str, several))}. Name one of them.")
    return several[0]


def _by_number(project: Project, letter: str, number: int) -> list[Thing]:
    kind = _KIND_OF_LETTER.get(letter)
    if kind is None:
        return []
    found = HOMES[kind]._default_manager.filter(project=project, opened_position=number)
    return [Thing(kind, number, identity) for identity in found.values_list("id", flat=True)[:2]]


def _by_id(project: Project, kinds: Iterable[str], identity: UUID | None) -> list[Thing]:
    found: list[Thing] = []
    if identity is None:
        return found
    for kind in kinds:
        row = (
            HOMES[kind]._default_manager.filter(project=project, id=identity).values_list("opened_position", flat=True)
        )
        found += [Thing(kind, number, identity) for number in row[:1]]
    return found


def _entry(project: Project, digits: str) -> Thing:
    position = int(digits)
    if position > MAX_POSITION or not Entry.objects.filter(project=project.id, position=position).exists():
        raise RefusedError("This project's journal has no entry at that position.")
    return Thing(ENTRY, position)
