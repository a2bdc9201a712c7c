"""References to sessions, effects, gates and journal entries: parse and load.

Every look-up uses an index, starts with the project, and finds nothing of other projects.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

from django.db.models import Case, JSONField, OuterRef, QuerySet, Subquery, When
from django.db.models.functions import JSONObject
from django.urls import reverse

from accounts.models import Agent, Project
from approvals.models import Gate
from db.errors import ChangeRefused
from display import handles
from display.keyset_pagination import MAX_POSITION
from journal.models import Entry
from ledger.models import Effect
from ledger.partial_indexes import HAS_REFERENCE
from sessions.models import Session

MAX_REFERENCE_CHARS: Final = 400
SESSION, EFFECT, GATE, ENTRY = KINDS = ("session", "effect", "gate", "entry")
MODEL_OF_KIND: Final[dict[str, type[Session] | type[Effect] | type[Gate]]] = {
    SESSION: Session,
    EFFECT: Effect,
    GATE: Gate,
}
LETTERS: Final = {SESSION: "s_", EFFECT: "e_", GATE: "g_", ENTRY: "#"}
_KIND_OF_LETTER: Final = {"s": SESSION, "e": EFFECT, "g": GATE}
_KIND_OF_PATH: Final = {"sessions": SESSION, "effects": EFFECT, "approvals": GATE}
_PATH: Final = re.compile(r"/(sessions|effects|approvals)/([0-9a-fA-F-]{32,36})(?:/|$|\?|#)")
_FACT: Final = re.compile(r"[?&](?:fact|at)=([0-9]{1,19})(?:&|#|$)|#p([0-9]{1,19})$")
_ENTRY: Final = re.compile(r"#?([0-9][0-9\s\u202f\u00a0]{0,30})")
_NONE: Final = (
    "Not found in this project. Enter a session, effect or gate (s_12, e_41, g_7), an id, a page "
    "address, or a journal position such as #48211."
)


@dataclass(frozen=True, slots=True)
class Reference:
    """A kind of KINDS and a handle's or entry's number; `id` is None for an entry."""

    kind: str
    number: int
    id: UUID | None = None

    def __str__(self) -> str:
        return reference_handle(self.kind, self.number)

    @property
    def url(self) -> str:
        """Return the address of its page."""
        return reference_url(self.kind, self.number, self.id)


def reference_handle(kind: str, number: int) -> str:
    """Return the handle: s_12, e_41, g_7, #48211."""
    return f"{LETTERS[kind]}{number}"


def reference_url(kind: str, number: int, identity: UUID | None) -> str:
    """Return the page of an object; for an entry, its place in the journal."""
    if kind == ENTRY or identity is None:
        return f"{reverse('journal')}?at={number}#p{number}"
    return reverse(kind, args=[identity])


def find_session_reference(project: Project, text: str) -> Session:
    """Load the session that `text` names. Raises ChangeRefused."""
    path = _PATH.search(text)
    if path is not None and path[1] == "sessions":
        text = path[2]
    thing = handles.find_session(project, text) if text and "\0" not in text else None
    if thing is None:
        raise ChangeRefused(
            "No such session in this project. Enter its handle (s_412), its key or its address."
        )
    return thing


def find_reference(project: Project, text: str) -> Reference:
    """Return the object `text` names. Raises ChangeRefused if none or several."""
    text = text.strip()
    if not text or len(text) > MAX_REFERENCE_CHARS or "\0" in text:
        raise ChangeRefused(_NONE)
    path, fact, entry = _PATH.search(text), _FACT.search(text), _ENTRY.fullmatch(text)
    if fact is not None and (path is None or path[1] == "effects"):
        return _find_entry(project, fact[1] or fact[2])
    if entry is not None:
        return _find_entry(project, re.sub(r"\D", "", entry[1]))
    if path is not None:
        shaped = handles.parse_uuid(path[2])
        return _require_one(_find_by_id(project, [_KIND_OF_PATH[path[1]]], shaped))
    handle = handles.parse_handle(text)
    if handle is not None:
        return _require_one(_find_by_number(project, *handle))
    matches = _find_by_id(project, MODEL_OF_KIND, handles.parse_uuid(text))
    keyed = handles.find_session(project, text)
    if keyed is not None:
        matches.append(Reference(SESSION, keyed.opened_position, keyed.id))
    if not matches:
        referred = Effect.objects.filter(HAS_REFERENCE, project=project, external_reference=text)
        thing = referred.order_by("-opened_position").values_list("opened_position", "id")[:5]
        matches = [Reference(EFFECT, number, identity) for number, identity in thing]
    return _require_one(matches)


def referenced_object_json() -> Case:
    """Return an expression for rows with the columns `kind` and `number`.

    JSON of the object.

    NULL if it does not exist. `model_from_reference_json` turns the JSON into a model. Uses one
    index look-up per row and no further query.
    """
    match = {"project": OuterRef("project"), "opened_position": OuterRef("number")}
    subqueries: dict[str, QuerySet[Any]] = {
        SESSION: Session.objects.filter(**match).values(
            it=JSONObject(**_OF_SESSION, agent="agent__name")
        ),
        EFFECT: Effect.objects.filter(**match).values(
            it=JSONObject(**_OF_EFFECT, home="session__opened_position")
        ),
        GATE: Gate.objects.filter(**match).values(
            it=JSONObject(**_OF_GATE, home="effect__opened_position")
        ),
        ENTRY: Entry.objects.filter(
            project=OuterRef("project"), position=OuterRef("number")
        ).values(it=JSONObject(**_OF_ENTRY)),
    }
    cases = [When(kind=kind, then=Subquery(rows[:1])) for kind, rows in subqueries.items()]
    return Case(*cases, output_field=JSONField())


_OF_SESSION: Final = {
    name: name for name in ("id", "opened_position", "title", "key", "status", "mode")
}
_OF_EFFECT: Final = {
    name: name
    for name in (
        "id",
        "opened_position",
        "session_id",
        "tool",
        "state",
        "outcome",
        "permission",
        "deadline_us",
    )
}
_OF_GATE: Final = {
    name: name
    for name in (
        "id",
        "opened_position",
        "effect_id",
        "tool",
        "status",
        "decide_by_us",
        "permission_until_us",
    )
}
_OF_ENTRY: Final = {name: name for name in ("position", "kind", "effect")}


def model_from_reference_json(kind: str, values: dict[str, Any]) -> Any:
    """Return a model instance of `kind` with the fields that `referenced_object_json` loaded."""
    fields: dict[str, Any] = {
        name: UUID(value) if name in _IDS and value else value for name, value in values.items()
    }
    if kind == SESSION:
        return Session(**fields | {"agent": Agent(name=values["agent"])})
    home = fields.pop("home", None)
    if kind == EFFECT:
        its_session = Session(id=fields.pop("session_id"), opened_position=home)
        return Effect(**fields, session=its_session)
    if kind == GATE:
        effect = Effect(id=fields.pop("effect_id"), opened_position=home)
        return Gate(**fields, effect=effect)
    return Entry(**fields)


_IDS: Final = frozenset({"id", "session_id", "effect_id", "effect"})


def _require_one(things: Iterable[Reference]) -> Reference:
    several = sorted(set(things), key=lambda thing: thing.number)
    if not several:
        raise ChangeRefused(_NONE)
    if len(several) > 1:
        raise ChangeRefused(
            f"Several objects match: {', '.join(map(str, several))}. Enter one of them."
        )
    return several[0]


def _find_by_number(project: Project, letter: str, number: int) -> list[Reference]:
    kind = _KIND_OF_LETTER.get(letter)
    if kind is None:
        return []
    rows = MODEL_OF_KIND[kind]._default_manager.filter(project=project, opened_position=number)
    return [Reference(kind, number, identity) for identity in rows.values_list("id", flat=True)[:2]]


def _find_by_id(project: Project, kinds: Iterable[str], identity: UUID | None) -> list[Reference]:
    things: list[Reference] = []
    if identity is None:
        return things
    for kind in kinds:
        row = (
            MODEL_OF_KIND[kind]
            ._default_manager.filter(project=project, id=identity)
            .values_list("opened_position", flat=True)
        )
        things += [Reference(kind, number, identity) for number in row[:1]]
    return things


def _find_entry(project: Project, digits: str) -> Reference:
    position = int(digits)
    if (
        position > MAX_POSITION
        or not Entry.objects.filter(project=project.id, position=position).exists()
    ):
        raise ChangeRefused(
            "No journal entry at that position in this project. Enter another position."
        )
    return Reference(ENTRY, position)
