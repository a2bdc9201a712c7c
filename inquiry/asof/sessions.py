"""Sessions as of a cut: status, times and links from the facts of the journal, words from what said them then."""

import copy
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple
from uuid import UUID

from django.contrib.auth.models import User
from django.db.models import Count, OuterRef, Subquery

from inquiry import bodies
from inquiry.asof import told
from inquiry.asof.cut import Cut
from inquiry.asof.told import Told
from journal import gists
from journal.models import Entry
from journal.order import SEPARATOR, earlier, is_of_a_command, latest_key
from journal.text import column_text
from ledger.models import Effect
from sessions import openings, registers
from sessions.models import ENDED, Repository, Session
from sessions.origin import Origin
from sessions.references import by_reference

_STATUS_OF_KIND: Final = {"session.waiting": "waiting", "session.resumed": "running", "session.suspended": "suspended"}
_JOINED: Final = ("agent", "owner", "on_behalf_of", "repository", "parent")
_NAMING: Final = ("session.started", *registers.KINDS)
MOST_WORDS: Final = 500  # entries, the newest, whose bodies are read for what a session was called and where it stood
_UNSTARTED: Final[dict[str, Any]] = {
    **dict.fromkeys(("started_mark", "branch", "title"), ""),
    **dict.fromkeys(("started_at_us", "parent_id", "owner_id", "on_behalf_of_id", "repository_id")),
    "mode": "reported",
    "labels": {},
}


class Held(NamedTuple):
    """What the journal says of a session's lease. Beats are not in it; `released_us` is None while it was held."""

    epoch: int
    acquired_us: int
    released_us: int | None


@dataclass(slots=True)
class Then:
    """A session as of a cut (not saved), its lease, and the columns whose words were erased since."""

    session: Session
    lease: Held | None = None
    lost: set[str] = field(default_factory=set)


def sessions(project: UUID, ids: Iterable[UUID], cut: Cut) -> dict[UUID, Session]:
    """The sessions of `ids` in the state as of `cut`, not saved; those that were not there yet are absent."""
    return {identity: then.session for identity, then in whole(project, ids, cut).items()}


def whole(project: UUID, ids: Iterable[UUID], cut: Cut) -> dict[UUID, Then]:
    """The same with what else the journal says of them."""
    stored: dict[UUID, Session] = {}
    for part in told.parts(ids):
        for row in Session.objects.filter(id__in=part).select_related(*_JOINED):
            if row.project_id == project and row.opened_position <= cut.position:
                stored[row.id] = row
    said: dict[UUID | None, list[Told]] = {}
    for one in told.of_sessions(stored, cut.position):
        said.setdefault(one.session, []).append(one)
    counts = dict(
        Effect.objects.filter(session__in=stored, opened_position__lte=cut.position)
        .values_list("session")
        .annotate(number=Count("id"))
        .order_by()
    )
    seen = heard(stored, cut)
    after = Entry.objects.filter(session__in=stored, position__gt=cut.position).exclude(lane="claim").order_by()
    renamed = set(after.filter(kind__in=_NAMING).values_list("session", flat=True).distinct())
    found = {}
    for key, row in stored.items():
        then = _then(row, said.get(key, []))
        then.session.effect_count = counts.get(key, 0)
        then.session.seen_at_us = seen.get(key) or row.created_at_us
        if key in renamed:
            _words(then, row, cut)
            _labels(then, row, cut)
        found[key] = then
    return found


def heard(sessions: Iterable[UUID], cut: Cut) -> dict[UUID, int | None]:
    """When the last fact of each was received, of those that its agents told by the cut.

    Heartbeats are not in the journal: when they were last heard by then, nobody can know. One query for each AT_ONCE.
    """
    last = Entry.objects.filter(session=OuterRef("pk"), position__lte=cut.position, lane__in=_OF_AGENTS)
    found: dict[UUID, int | None] = {}
    for part in told.parts(sessions):
        newest = Subquery(last.order_by("-position").values("received_us")[:1])
        found |= dict(Session.objects.filter(pk__in=part).values_list("pk", newest))
    return found


_OF_AGENTS: Final = ("command", "evidence")


@dataclass(slots=True)
class _Folded:
    """What a session's facts make of it. `start` and `word` are the entries that describe it and set its status."""

    start: Told | None = None
    word: Told | None = None
    status: str = "running"
    status_mark: str = ""
    ended_at_us: int | None = None
    resumes: int = 0
    lease: Held | None = None


def _fold(said: Iterable[Told]) -> _Folded:
    """The session's own fold (sessions/sessions.py) over what the journal keeps of it."""
    one = _Folded()
    for fact in said:
        if fact.kind.startswith("lease."):
            one.lease = _lease(one.lease, fact) or one.lease
            continue
        if fact.is_ours:
            one.resumes += fact.kind == "session.resumed"
            continue
        status = fact.facts.get("status") if fact.kind == "session.changed" else _STATUS_OF_KIND.get(fact.kind)
        latest = latest_key(fact.lane, fact.position, fact.producer_seq, fact.source, fact.event_id)
        if fact.kind == "session.started" and earlier(fact.mark, one.start.mark if one.start else ""):
            one.start = fact
        elif fact.kind == "session.ended" and (one.status not in ENDED or earlier(fact.mark, one.status_mark)):
            one.status, one.status_mark, one.ended_at_us = fact.facts["status"], fact.mark, fact.told_us
            one.word = None
        elif status and one.status not in ENDED and latest > one.status_mark:
            one.status, one.status_mark, one.word = status, latest, fact
    return one


def _lease(held: Held | None, fact: Told) -> Held | None:
    """The lease on the session itself; those on its tasks and on resources are others'."""
    epoch = fact.facts.get("epoch")
    if fact.lane == "evidence" or epoch is None:
        return None
    if fact.kind == "lease.acquired":
        return Held(epoch, fact.received_us, None) if fact.facts.get("kind") == "session" else None
    if held is None or held.epoch != epoch or fact.kind not in ("lease.released", "lease.lost"):
        return None
    return Held(epoch, held.acquired_us, fact.received_us)


def _then(stored: Session, said: list[Told]) -> Then:
    one = _fold(said)
    session = copy.copy(stored)
    values: dict[str, Any] = {
        "status": one.status,
        "status_mark": one.status_mark,
        "ended_at_us": one.ended_at_us,
        "resumes": one.resumes,
        "waiting_on": "",
    }
    lost: set[str] = set()
    start = one.start
    if start is None and stored.started_mark:
        values |= _UNSTARTED
    elif start is not None and start.mark != stored.started_mark:
        values |= {"started_mark": start.mark, "started_at_us": start.told_us, **_described(stored, start, lost)}
    speaker = start.agent if start is not None else _first_speaker(stored)
    if speaker is not None:
        values["agent_id"] = speaker
    if one.word is not None and one.status_mark == stored.status_mark:
        values["waiting_on"] = stored.waiting_on
    elif one.word is not None and one.word.kind == "session.changed":  # the older words say for nothing what they wait
        values["waiting_on"] = _body(stored, one.word.position, "waiting_on", lost).get("waiting_on") or ""
    for name, value in values.items():
        setattr(session, name, value)
    return Then(session, one.lease, lost)


def _first_speaker(stored: Session) -> UUID | None:
    """Whose session it is taken for until its start is told: the agent's that spoke of it first."""
    actor = Entry.objects.filter(position=stored.opened_position).values_list("actor", flat=True).first() or ""
    return UUID(hex=actor[6:]) if actor.startswith("agent:") else None


def _described(stored: Session, start: Told, lost: set[str]) -> dict[str, Any]:
    """What a start said that another took the place of since: ids from its facts, words from its body."""
    facts = start.facts
    words = _body(stored, start.position, "title", lost)
    for_whom = User.objects.filter(person__pseudonym=facts.get("on_behalf_of")).values_list("id", flat=True).first()
    owner = openings.member(stored.project_id, words.get("owner"))
    repository = Repository.objects.filter(project=stored.project_id, name=words.get("repository") or "").first()
    return {
        "mode": facts.get("mode", "reported"),
        "parent_id": UUID(facts["parent"]) if facts.get("parent") not in (None, str(stored.id)) else None,
        "on_behalf_of_id": for_whom,
        "owner_id": owner.pk if owner is not None else None,
        "repository_id": repository.id if repository is not None else None,
        "title": column_text(words.get("title") or ""),
        "branch": words.get("branch") or "",
        "labels": words.get("labels") or {},
    }


def _body(stored: Session, position: int, column: str, lost: set[str]) -> dict[str, Any]:
    text = bodies.texts(stored.project_id, [position]).get(position)
    if text is None:
        lost.add(column)
        return {}
    return gists.parsed(text)


# --- what later facts say of it: title, cursor, branches


def _words(then: Then, stored: Session, cut: Cut) -> None:
    """Set the registers (sessions/registers.py) as they stood."""
    marks = _marks(stored)
    since = {name for name, (mark, _value) in marks if _position(stored.project_id, mark) > cut.position}
    for name in {name for name, _said in marks} - since:  # what was said by then and stands, whatever start came since
        setattr(then.session, _column(name), getattr(stored, _column(name)))
    if not since:
        return
    heard = copy.copy(then.session)
    heard.said = {}
    for name in (*registers.LATEST, *registers.FIRST):
        setattr(heard, _column(name), None if name in _LINKS else "")
    heard.title = registers.first_title(stored) if then.session.started_mark == stored.started_mark else heard.title
    heard.title = heard.title if then.session.started_mark else ""
    opened_as = heard.title
    entries = Entry.objects.filter(session=stored.id, position__lte=cut.position)
    newest = entries.filter(kind__in=_NAMING, lane__in=_OF_AGENTS).order_by("-position")
    found = list(newest[:MOST_WORDS])
    texts = bodies.texts(stored.project_id, [entry.position for entry in found])
    for entry in reversed(found):
        if entry.position not in texts:
            then.lost |= since
            continue
        fact = _Heard.of(entry, gists.parsed(texts[entry.position]))
        meant = by_reference(stored.project_id, registers.references(fact.values))
        registers.hear(heard, fact, {name: value for name, (value, _key) in meant.items()})
    registers.settle(heard, opened_as)
    for name in since:
        setattr(then.session, _column(name), getattr(heard, _column(name)))


def _labels(then: Then, stored: Session, cut: Cut) -> None:
    """Leave out the labels that were added since (see sessions.open_session)."""
    added = Entry.objects.filter(session=stored.id, kind="session.changed", facts=_LABELLED).order_by("position")
    positions = list(added.values_list("position", flat=True))
    if not positions or positions[-1] <= cut.position or then.session.labels != stored.labels:
        return
    start = Entry.objects.filter(session=stored.id, kind="session.started", lane="command").order_by("position").first()
    told = [*([start.position] if start is not None else []), *(one for one in positions if one <= cut.position)]
    texts = bodies.texts(stored.project_id, told)
    labels: dict[str, str] = {}
    for position in told:
        labels = {**(gists.parsed(texts.get(position, "")).get("labels") or {}), **labels}
    then.session.labels = labels
    if len(texts) < len(told):
        then.lost.add("labels")


_LABELLED: Final = '{"labelled":true}'
_LINKS: Final = ("merge_into", "branched_from", "merged_into")


def _column(name: str) -> str:
    return f"{name}_id" if name in _LINKS else name


def _marks(stored: Session) -> list[tuple[str, tuple[str, Any]]]:
    return [(name, tuple(said)) for name, said in stored.said.items() if name in (*registers.LATEST, *registers.FIRST)]


def _position(project: UUID, mark: str) -> int:
    """The position of the entry that an order key is of."""
    rank, second, source, event_id = mark.split(SEPARATOR)
    if is_of_a_command(mark) and rank == "2":
        return int(second)
    entry = Entry.objects.filter(project=project, source=source, event_id=event_id)
    return entry.values_list("position", flat=True).first() or 0


@dataclass(slots=True)
class _Heard:
    """A fact about a session as registers hear it."""

    origin: Origin
    kind: str
    position: int
    values: dict[str, Any]

    @classmethod
    def of(cls, entry: Entry, values: dict[str, Any]) -> "_Heard":
        """The fact that an entry is; `values` are its body."""
        origin = Origin(
            project=entry.project,
            agent=entry.project,  # nobody asks for it
            source=entry.source,
            actor=entry.actor,
            lane="command" if entry.lane == "command" else "evidence",
            key=entry.event_id,
            text="",
            received_us=entry.received_us,
            occurred_us=entry.occurred_us,
            producer_seq=entry.producer_seq,
        )
        return cls(origin, entry.kind, entry.position, values)
