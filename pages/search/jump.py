"""Find objects by any id. Every look-up uses an index; missing indexes are named."""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.parse import urlencode
from uuid import UUID

from django.db.models import QuerySet
from django.urls import reverse

from accounts.models import Project
from approvals.models import Exemption, Gate
from db.ids import derive_uuid
from display import urls_of_rows
from display.handles import parse_handle, parse_position, parse_uuid
from investigation.models import Incident
from investigation.query.entity_registry import ENTITIES
from journal.entries import SYSTEM_SOURCE
from journal.models import Entry
from ledger.models import Effect
from ledger.partial_indexes import HAS_REFERENCE
from sessions.lookup import derive_session_id
from sessions.models import Artifact, Message, Session, Task

NEWEST_SESSIONS: Final = 2000  # sessions in which an effect key is found without naming the session
MAX_HITS: Final = 20  # hits of one kind that a page lists
LONGEST_ID: Final = 300  # characters
_DIGEST: Final = re.compile(r"(?:v1:|sha256:)?([0-9a-f]{64})")
_FIELDS: Final = frozenset(name for entity in ENTITIES.values() for name in entity.fields)
_ADDRESS: Final = re.compile(r"https?://[^\"\\]+$", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Hit:
    """An object that an id names: kind, handle, agent text, and address."""

    what: str
    handle: str
    text: str
    url: str


@dataclass(slots=True)
class JumpResult:
    """The hits, the look-ups that were tried, and a search where no index exists."""

    hits: list[Hit] = field(default_factory=list)
    tried: list[str] = field(default_factory=list)
    search: str = ""


def find_identity_url(project: Project, text: str) -> str | None:
    """Return the address of an object if the query is a handle, id, digest or URL."""
    # `reference:https://…` is a query; looking it up as every kind of id would take longer.
    is_address = "://" in text and text.partition(":")[0] not in _FIELDS
    shaped = parse_handle(text) or parse_uuid(text) or is_sha256(text) or is_address
    if not shaped or len(text) > LONGEST_ID or "\0" in text or len(text.split()) > 1:
        return None
    matches = find_by_any_id(project, text)
    if len(matches.hits) == 1:
        return matches.hits[0].url
    if matches.hits:
        return f"{reverse('search_jump')}?{urlencode({'id': text})}"
    # An address that no effect has as a reference: search for text that contains it.
    return urls_of_rows.build_search_url(f'"{text}"') if _ADDRESS.match(text) else None


def find_by_any_id(project: Project, text: str) -> JumpResult:
    """Look up `text` as every kind of id.

    `text` is stripped, not empty, at most LONGEST_ID characters, without NUL.
    """
    result = JumpResult()
    handle_parts, uuid, digest = (
        parse_handle(text),
        parse_uuid(text),
        _DIGEST.fullmatch(text.lower()),
    )
    if handle_parts is not None:
        letter, number = handle_parts
        what, look = _BY_LETTER[letter]
        result.tried.append(f"the handle of {what}")
        result.hits = look(project, {"opened_position": number})
        return result
    if uuid is not None:
        result.tried.append("the id of an effect, task or artifact")
        for look in (_effect_hits, _task_hits, _artifact_hits):
            result.hits += look(project, {"id": uuid})
    if digest is not None:
        result.tried.append("the SHA-256 of an artifact")
        result.hits += _artifact_hits(project, {"sha256": digest[1]})
        result.search = urls_of_rows.build_search_url(f"intent:v1:{digest[1]}")
    position = parse_position(text)
    if position is not None:
        result.tried.append("a position of the journal")
        result.hits += _entry_hits(Entry.objects.filter(project=project.id, position=position))
    result.tried.append("the id or key of a session")
    result.hits += _session_hits(
        project, {"id__in": [derive_session_id(project.id, text), *([uuid] if uuid else [])]}
    )
    result.tried += [
        "an external reference",
        f"an effect key of the {NEWEST_SESSIONS:,} newest sessions",
    ]
    result.hits += _by_reference_or_key(project, text)
    if len(text) <= 64:
        result.tried.append("the id of a journal entry reported under its agent's name")
        result.hits += _entry_hits(_entries_with_id(project, text))
    result.hits = list({hit.url: hit for hit in result.hits}.values())
    return result


def is_id_shaped(text: str) -> bool:
    """Return True if `text` is a handle, UUID, digest or position and cannot be words to search."""
    return bool(
        parse_handle(text)
        or parse_uuid(text)
        or is_sha256(text)
        or parse_position(text) is not None
    )


def is_bare_number(text: str) -> bool:
    """Return True for digits that may be a position or a key, and also a word of some effect."""
    return text.isdigit() and parse_position(text) is not None


def is_sha256(text: str) -> bool:
    """Return True if `text` is a SHA-256 in hexadecimal, with or without its prefix."""
    return _DIGEST.fullmatch(text.lower()) is not None


def effect_ids_of_key(project: Project, effect_key: str) -> list[UUID]:
    """Return the ids that `effect_key` has in each of the project's newest sessions.

    An effect's id is derived from session and key, so a key is found by primary key.
    """
    newest = project.sessions.order_by("-opened_position").values_list("id", flat=True)[
        :NEWEST_SESSIONS
    ]
    return [derive_uuid(session_id, effect_key) for session_id in newest]


def _by_reference_or_key(project: Project, text: str) -> list[Hit]:
    """Return effects with that external reference or key: one query over two indexes."""
    referenced = Effect.objects.filter(HAS_REFERENCE, project=project, external_reference=text)
    keyed = Effect.objects.filter(id__in=effect_ids_of_key(project, text), project=project)
    effects = referenced.union(keyed).order_by("-opened_position")[:MAX_HITS]
    return [
        _effect_hit(
            effect,
            "effect with this external reference"
            if effect.external_reference == text
            else "effect with this key",
        )
        for effect in effects
    ]


def _entries_with_id(project: Project, text: str) -> "QuerySet[Entry]":
    """Return the entries with that id from Gatebook and from each agent.

    Entries under an agent's sub-source (its name, then / or : and more) have no index and are not
    found.
    """
    system_entries = Entry.objects.filter(project=project.id, source=SYSTEM_SOURCE, event_id=text)
    return system_entries.union(
        Entry.objects.filter(
            project=project.id, source__in=project.agents.values("name"), event_id=text
        )
    )


def _gate_hits(project: Project, match: dict[str, Any]) -> list[Hit]:
    return [
        Hit("gate", str(gate), gate.tool, reverse("gate", args=[gate.id]))
        for gate in Gate.objects.filter(project=project, **match)[:MAX_HITS]
    ]


def _session_hits(project: Project, match: dict[str, Any]) -> list[Hit]:
    return [
        Hit(
            "session",
            str(session),
            session.title or session.key,
            reverse("session", args=[session.id]),
        )
        for session in Session.objects.filter(project=project, **match)[:MAX_HITS]
    ]


def _effect_hits(project: Project, match: dict[str, Any]) -> list[Hit]:
    return [
        _effect_hit(effect) for effect in Effect.objects.filter(project=project, **match)[:MAX_HITS]
    ]


def _effect_hit(effect: Effect, what: str = "effect") -> Hit:
    return Hit(what, str(effect), effect.tool, reverse("effect", args=[effect.id]))


def _task_hits(project: Project, match: dict[str, Any]) -> list[Hit]:
    return [
        Hit("task", str(task), task.title or task.key, reverse("task", args=[task.id]))
        for task in Task.objects.filter(project=project, **match)[:MAX_HITS]
    ]


def _artifact_hits(project: Project, match: dict[str, Any]) -> list[Hit]:
    rows = Artifact.objects.filter(project=project, **match).order_by("-opened_position")[:MAX_HITS]
    hits = []
    for artifact in rows:
        url = f"{reverse('session_artifacts', args=[artifact.session_id])}?at={artifact}#{artifact}"
        hits.append(Hit("artifact", str(artifact), artifact.name or artifact.type, url))
    return hits


def _message_hits(project: Project, match: dict[str, Any]) -> list[Hit]:
    """Return the page of a message: its session's messages, else its recipient's."""
    hits = []
    for message in Message.objects.filter(project=project, **match)[:MAX_HITS]:
        page = reverse("shared_messages")
        if message.session_id is not None:
            page = reverse("session_messages", args=[message.session_id])
        elif message.recipient_id is not None:
            page = reverse("agent_messages", args=[message.recipient_id])
        hits.append(
            Hit(
                "message",
                str(message),
                "",
                f"{page}?before={message.opened_position + 1}#{message}",
            )
        )
    return hits


def _incident_hits(project: Project, match: dict[str, Any]) -> list[Hit]:
    return [
        Hit("incident", str(incident), "", reverse("incident", args=[incident.id]))
        for incident in Incident.objects.filter(project=project, **match)[:MAX_HITS]
    ]


def _exemption_hits(project: Project, match: dict[str, Any]) -> list[Hit]:
    return [
        Hit(
            "exemption",
            f"x_{exemption.opened_position}",
            exemption.tool,
            reverse("exemption", args=[exemption.id]),
        )
        for exemption in Exemption.objects.filter(project=project, **match)[:MAX_HITS]
    ]


def _entry_hits(entries: "QuerySet[Entry]") -> list[Hit]:
    """Return an entry's page: of its effect, else session, else the journal."""
    hits = []
    for entry in entries[:MAX_HITS]:
        if entry.effect is not None:
            url = (
                f"{reverse('effect', args=[entry.effect])}?fact={entry.position}#p{entry.position}"
            )
        elif entry.session is not None:
            url = reverse("session", args=[entry.session])
        else:
            url = f"{reverse('journal')}?at={entry.position}#p{entry.position}"
        hits.append(Hit(f"journal entry {entry.kind}", str(entry.position), "", url))
    return hits


_BY_LETTER: Final[dict[str, tuple[str, Callable[[Project, dict[str, Any]], list[Hit]]]]] = {
    "e": ("an effect", _effect_hits),
    "s": ("a session", _session_hits),
    "t": ("a task", _task_hits),
    "a": ("an artifact", _artifact_hits),
    "g": ("a gate", _gate_hits),
    "m": ("a message", _message_hits),
    "i": ("an incident", _incident_hits),
    "x": ("an exemption", _exemption_hits),
}
