"""Reads what a bundle tells of a session, part by part, so that no session has to fit into memory.

People travel as pseudonyms: wherever a column or a known place of a body holds a user's name, the pseudonym stands in
its stead. What agents wrote of people in free text cannot be told apart and travels as it was stored.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final
from uuid import UUID

import orjson
from django.contrib.auth.models import User
from django.db.models import Count, Max, Q, QuerySet

from approvals.models import Exemption, Gate
from inquiry import resume
from inquiry.bundles.shape import FORMAT, VERSION, row
from journal import entries, exact
from journal.models import Entry
from ledger import cases, holds
from ledger.models import Attempt, Effect
from ledger.models_tools import Tool
from sessions import artifacts as stored
from sessions.models import Agent, Artifact, Item, Person, Session, Task
from sessions.models_leases import Lease
from sessions.models_state import Checkpoint, Decision, Handoff, ObservedFact

AT_ONCE: Final = 500  # rows read together
# What this book did with the session afterwards is its own affair, and so is a look at it; but what people were shown
# of a gate before they ruled on it is part of the ruling.
_OURS: Final = ("access.exported", "access.searched")
# Where bodies hold names of users by their shape: kind -> paths to a name or a list of names.
NAMES: Final[dict[str, tuple[tuple[str, ...], ...]]] = {
    "session.started": (("owner",), ("on_behalf_of",)),
    "gate.requested": (("asks", "people"),),
}
LINKS: Final = ("parent", "branched_from", "merge_into", "merged_into")
LEFT_OUT: Final = (
    (
        "names and addresses of people",
        "people travel as pseudonyms, the only names of theirs the journal holds",
    ),
    ("tokens and keys", "nothing of them belongs to a session"),
    (
        "policy texts",
        "gates and effects name set, version and rule; their requirement is told whole",
    ),
    (
        "messages",
        "they are their recipients'; what was sent about the session stands among its entries",
    ),
    ("sub-sessions", "each is a session of its own, with a bundle of its own"),
    ("minutes of heartbeats", "the lease's own row says when its holder was heard last"),
    (
        "who looked at or exported it",
        "that is the business of its book; looks at gates are part of the ruling",
    ),
    ("entries not committed when it was read", "the book tells them from its next position on"),
)


@dataclass(frozen=True, slots=True)
class Cut:
    """Up to where the session is told: a position of the journal, the time of that entry, and how many there are."""

    position: int
    at_us: int
    count: int


def cut_of(session: Session) -> Cut:
    """The latest word of the journal on `session` that a bundle tells."""
    last = _entries(session).aggregate(
        count=Count("pk"), last=Max("position"), at=Max("received_us")
    )
    return Cut(last["last"] or 0, last["at"] or 0, last["count"])


def _entries(session: Session) -> "QuerySet[Any]":
    """What the journal says of the session, and the grants of the exemptions that it used."""
    granted = list(
        Exemption.objects.filter(id__in=_exempted(session)).values_list(
            "opened_position", flat=True
        )
    )
    told = Q(session=session.id) | Q(position__in=granted) if granted else Q(session=session.id)
    gates = Gate.objects.filter(session=session).values("id")
    return (
        Entry.objects.filter(told)
        .exclude(kind__in=_OURS)
        .exclude(~Q(subject__in=gates), kind="access.viewed")
    )


def _exempted(session: Session) -> set[str]:
    """The exemptions under which effects of the session stand."""
    rows = Effect.objects.filter(session=session, leave_basis="exemption").order_by()
    return set(rows.values_list("leave_ref", flat=True).distinct())


@dataclass
class Collected:
    """A session up to `cut`. Lists that can be long are read as they are asked for."""

    session: Session
    cut: Cut
    _known: dict[int, str] = field(default_factory=dict)

    def person(self, user: int | None) -> str | None:
        """The pseudonym of a user by their id; one who never acted has none yet, and is called by a keyed digest."""
        if user is None:
            return None
        if user not in self._known:
            found = Person.objects.filter(user=user).values_list("pseudonym", flat=True).first()
            self._known[user] = found or f"p_{entries.keyed_digest('person', str(user))[:16]}"
        return self._known[user]

    @cached_property
    def effects_count(self) -> int:
        """How many effects the session has."""
        return self.effects_of().count()

    def effects_of(self) -> "QuerySet[Any]":
        """Its effects in the order of the book."""
        joined = Effect.objects.filter(session=self.session).select_related("agent", "repository")
        return joined.order_by("opened_position", "id")

    def head(self) -> dict[str, Any]:
        """The parts that are small whatever the session is."""
        one, judged = self.session, self.resume
        links = {name: getattr(one, name) for name in LINKS}
        repository = one.repository.name if one.repository is not None else None
        return {
            "format": FORMAT,
            "version": VERSION,
            "origin": {
                "project": one.project_id,
                "project_name": one.project.name,
                "session": one.id,
                "handle": str(one),
            },
            "cut": {"position": self.cut.position, "at_us": self.cut.at_us},
            "left_out": [{"what": what, "why": why} for what, why in LEFT_OUT],
            "links": {
                name: link and {"key": link.key, "handle": str(link)}
                for name, link in links.items()
            },
            "session": row(one, agent=one.agent.name, repository=repository),
            "owner": self.person(one.owner_id),
            "on_behalf_of": self.person(one.on_behalf_of_id),
            "resume": {
                "safe": judged.safe,
                "sentence": resume.sentence(judged),
                "open": len(judged.open),
            },
        }

    @cached_property
    def resume(self) -> resume.Resume:
        """Whether it could be resumed as of the cut."""
        return resume.judge(self.session, self.cut.at_us)

    def parts(self) -> list[tuple[str, Callable[[], Iterator[dict[str, Any]]]]]:
        """The lists of the document by name, in their order."""
        return [
            ("agents", self.agents),
            ("tools", self.tools),
            ("tasks", self.tasks),
            ("items", self.items),
            ("effects", self.effects),
            ("gates", self.gates),
            ("exemptions", self.exemptions),
            ("stops", self.stops),
            ("leases", self.leases),
            ("decisions", self.decisions),
            ("handoffs", self.handoffs),
            ("checkpoints", self.checkpoints),
            ("facts", self.facts),
            ("artifacts", self.artifacts),
            ("entries", self.entries),
        ]

    def agents(self) -> Iterator[dict[str, Any]]:
        """Everybody that a row names."""
        of_session = (Effect, Handoff, Lease, Gate)
        named = {self.session.agent_id}
        for model, names in zip(
            of_session,
            (("agent",), ("written_by", "accepted_by"), ("agent",), ("agent",)),
            strict=True,
        ):
            for name in names:
                named |= set(_of(model, self.session).values_list(name, flat=True).distinct())
        for one in Agent.objects.filter(id__in=named - {None}).order_by("name"):
            yield {"name": one.name, "charter": one.charter, "charter_version": one.charter_version}

    def tools(self) -> Iterator[dict[str, Any]]:
        """The declarations of the tools that it used."""
        named = Effect.objects.filter(session=self.session).exclude(tool="").values("tool")
        for one in Tool.objects.filter(project=self.session.project_id, name__in=named).order_by(
            "name"
        ):
            yield row(one)

    def tasks(self) -> Iterator[dict[str, Any]]:
        """Its tasks in the order of the book."""
        for one in _few(_of(Task, self.session).order_by("opened_position", "id")):
            yield row(one, id=one.id, parent=one.parent_id)

    def items(self) -> Iterator[dict[str, Any]]:
        """What its tasks work through, in the order in which it was told."""
        for one in _few(Item.objects.filter(task__session=self.session).order_by("id")):
            yield row(one, task=one.task_id)

    def effects(self) -> Iterator[dict[str, Any]]:
        """Its effects with their attempts, and the verdict on each as of the cut."""
        for effects in _batches(self.effects_of()):
            attempts: dict[UUID, list[dict[str, Any]]] = {}
            for one in Attempt.objects.filter(effect__in=effects).order_by("effect", "number"):
                attempts.setdefault(one.effect_id, []).append(row(one))
            judged = cases.judge(self.session.project_id, effects, self.cut.at_us, None)
            for effect in effects:
                verdict = judged[effect.id].verdict
                yield row(
                    effect,
                    id=effect.id,
                    agent=effect.agent.name,
                    task=effect.task_id,
                    repository=effect.repository.name if effect.repository is not None else None,
                    parent_effect=effect.parent_effect_id,
                    compensates=effect.compensates_id,
                    attempts=attempts.get(effect.id, []),
                    verdict={
                        "row": verdict.row,
                        "answer": verdict.answer,
                        "reason": verdict.reason,
                    },
                )

    def gates(self) -> Iterator[dict[str, Any]]:
        """Its gates with their votes. Names in what a rule asks for are pseudonyms."""
        rows = (
            _of(Gate, self.session).select_related("agent", "policy_set").prefetch_related("votes")
        )
        for one in _few(rows.order_by("opened_position", "id")):
            told = row(one)
            asked = {"asks": dict(told["requirement"])}
            _rename(asked, ("asks", "people"))
            told["requirement"] = asked["asks"]
            votes = sorted(one.votes.all(), key=lambda vote: vote.position)
            yield told | {
                "id": one.id,
                "effect": one.effect_id,
                "agent": one.agent.name,
                "policy_set": str(one.policy_set) if one.policy_set is not None else None,
                "requester": self.person(one.requester_id),
                "session_owner": self.person(one.session_owner_id),
                "agent_owner": self.person(one.agent_owner_id),
                "votes": [row(vote) for vote in votes],
            }

    def exemptions(self) -> Iterator[dict[str, Any]]:
        """Those under which effects of it ran or may run; the reason is in the body of the grant's entry."""
        named = _exempted(self.session)
        for one in Exemption.objects.filter(id__in=named).order_by("opened_position"):
            yield row(one, id=one.id, granted_by=self.person(one.granted_by_id))

    def stops(self) -> Iterator[dict[str, Any]]:
        """The stops in force that cover it as a whole."""
        one = self.session
        for stop in holds.live(one.project_id):
            if holds.covering([stop], one.id, one.agent_id, "", None) is not None:
                yield row(stop, set_by=self.person(stop.set_by_id))

    def leases(self) -> Iterator[dict[str, Any]]:
        """Its leases and those of its tasks, as they stand."""
        for one in _of(Lease, self.session).select_related("agent").order_by("opened_position"):
            yield row(one, task=one.task_id, agent=one.agent.name)

    def decisions(self) -> Iterator[dict[str, Any]]:
        """What its agent wrote down that it had chosen."""
        for one in _few(_of(Decision, self.session).order_by("opened_position", "id")):
            yield row(one, id=one.id, effect=one.effect)

    def handoffs(self) -> Iterator[dict[str, Any]]:
        """What its workers told each other."""
        rows = _of(Handoff, self.session).select_related("written_by", "accepted_by")
        for one in _few(rows.order_by("opened_position", "id")):
            writer, reader = (who and who.name for who in (one.written_by, one.accepted_by))
            yield row(one, id=one.id, written_by=writer, accepted_by=reader)

    def checkpoints(self) -> Iterator[dict[str, Any]]:
        """Those that are kept."""
        for one in _of(Checkpoint, self.session).order_by("opened_position", "id"):
            yield row(one, id=one.id)

    def facts(self) -> Iterator[dict[str, Any]]:
        """The latest word of each source on each named value."""
        for one in _few(_of(ObservedFact, self.session).order_by("opened_position", "id")):
            yield row(one)

    def artifacts(self) -> Iterator[dict[str, Any]]:
        """What it made or kept, by hash; `enclosed` where the bytes lie beside the document."""
        for one in _few(_of(Artifact, self.session).order_by("opened_position", "id")):
            yield row(one, id=one.id, effect=one.effect, enclosed=is_enclosed(one))

    def entries(self) -> Iterator[dict[str, Any]]:
        """What the journal says of it, body and salt beside the commitment; of what was erased, that it was."""
        rows = _entries(self.session).filter(position__lte=self.cut.position)
        for batch in _batches(
            rows.select_related("body", "erasure").order_by("position"), "position"
        ):
            for one in batch:
                yield _entry(one)


def is_enclosed(artifact: Artifact) -> bool:
    """True when the bytes of an artifact are stored here, as its row says."""
    return (
        artifact.stored_at_us is not None
        and stored.path(artifact.project_id, artifact.sha256).is_file()
    )


def _entry(one: Any) -> dict[str, Any]:
    told = {name: getattr(one, name) for name in _COLUMNS} | {
        "id": one.event_id,
        "facts": orjson.loads(one.facts),
    }
    told["of_session"] = one.session is not None
    told["commitment"] = bytes(one.body_commit).hex() if one.body_commit is not None else None
    body, erasure = getattr(one, "body", None), getattr(one, "erasure", None)
    if body is None:
        told["body"] = erasure and {
            "erased": {"reason": erasure.reason, "erased_at_us": erasure.erased_at_us}
        }
        return told
    told["body"] = {"text": body.text, "salt": bytes(body.salt).hex()}
    if one.kind in NAMES:
        value = exact.loads(body.text)
        replaced = [".".join(path) for path in NAMES[one.kind] if _rename(value, path)]
        if replaced:  # other text than was committed to: nobody shall take it for that
            told["body"] = {
                "text": exact.dumps(value, orjson.OPT_SORT_KEYS).decode(),
                "replaced": replaced,
            }
    return told


_COLUMNS: Final = (
    *(
        "position",
        "source",
        "claimed_source",
        "kind",
        "lane",
        "effect",
        "attempt",
        "subject",
        "actor",
        "lease_epoch",
    ),
    *("producer_seq", "occurred_us", "received_us"),
)


def _rename(value: Any, path: tuple[str, ...]) -> bool:
    """Put pseudonyms where `value` names users at `path`; True when it named any."""
    for name in path[:-1]:
        value = value.get(name) if isinstance(value, dict) else None
    told = value.get(path[-1]) if isinstance(value, dict) else None
    names = (
        [told]
        if isinstance(told, str)
        else [one for one in told if isinstance(one, str)]
        if told
        else []
    )
    if not names:
        return False
    people = dict(
        User.objects.filter(username__in=names).values_list("username", "person__pseudonym")
    )
    called = [people.get(one) or f"p_{entries.keyed_digest('name', one)[:16]}" for one in names]
    value[path[-1]] = called[0] if isinstance(told, str) else called
    return True


def _of(model: Any, session: Session) -> "QuerySet[Any]":
    found: QuerySet[Any] = model.objects.filter(session=session)
    return found


def _few(rows: "QuerySet[Any]") -> Iterable[Any]:
    """The rows one by one, fetched in batches, of lists that are short beside those of effects and entries."""
    return rows.iterator(chunk_size=AT_ONCE)


def _batches(rows: "QuerySet[Any]", key: str = "opened_position") -> Iterator[list[Any]]:
    """The rows in lists of at most AT_ONCE, each a query of its own by `key`, which no two rows share."""
    found = list(rows[:AT_ONCE])
    while found:
        yield found
        found = list(rows.filter(**{f"{key}__gt": getattr(found[-1], key)})[:AT_ONCE])
