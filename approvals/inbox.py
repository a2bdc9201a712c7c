"""The lists of the desk: what waits, what waits for one person, what was decided, what ended without a decision.

What waits is ordered by what cannot be undone, then by what expires soonest; pages go on by key, so that they stay true
while requests come and go.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final
from uuid import UUID

import orjson
from django.db.models import Case, Count, Exists, F, IntegerField, Max, OuterRef, Q, QuerySet, Value, When
from django.db.models.functions import Length, Substr

from approvals.card import blank_run
from approvals.gates import current_status
from approvals.models import Gate, Vote
from approvals.requirement import Requirement
from approvals.words import RANKS
from journal import untrusted
from journal.clock import now_us
from journal.models import Body
from ledger import breaches
from ledger.models import Effect
from sessions.access import may
from sessions.models import Membership, Project
from sessions.teams import teams_of

STATES: Final = ("pending", "mine", "decided", "expired")
SIZE: Final = 50
MOST_TRIED: Final = 1000  # gates that a page of "mine" looks through
BATCH: Final = 25
WINDOW_US: Final = 7 * 24 * 3600 * 1_000_000
_READ: Final = 16_384  # characters of a plan that a row looks at
_LINE: Final = 160
_FIRST: Final = ("command", "cmd", "code", "file_path", "path", "url", "query", "subject", "name")


@dataclass(slots=True)
class Row:
    """A gate in a list: `gist` is agent text, `hidden` how many hidden characters the beginning of its plan holds."""

    gate: Gate
    gist: str = ""
    hidden: int = 0
    long: bool = False
    votes: int = 0
    refused_before: bool = False
    blanks: int = 0  # length of the longest run of blanks that could push something out of sight
    like: list["Row"] = field(default_factory=list)  # further ones of the same shape, folded under this

    @property
    def groups(self) -> bool:
        """True when it may be decided together with its likes."""
        return self.gate.status == "pending" and batchable(self.gate)


@dataclass(slots=True)
class Listed:
    """A page of rows; `further` is the key of the next page, empty at the end."""

    rows: list[Row] = field(default_factory=list)
    further: str = ""


@dataclass(frozen=True, slots=True)
class Standing:
    """What waits in a project: how many, and the newest of them. As text it is what a page polls with."""

    count: int
    newest: int

    def __str__(self) -> str:
        return f"{self.count}-{self.newest}"


def batchable(gate: Gate) -> bool:
    """True for what may be decided with others: reversible and of at most medium risk."""
    return gate.reversibility in ("read", "reversible") and gate.risk in ("low", "medium")


def standing(project: Project) -> Standing:
    """What waits now."""
    found = _waiting(project).aggregate(count=Count("id"), newest=Max("opened_position"))
    return Standing(found["count"], found["newest"] or 0)


def news(project: Project, since: str) -> tuple[int, Standing] | None:
    """How many requests came since the standing that `since` names, and the new standing; None for no news."""
    now = standing(project)
    if since == str(now):
        return None
    newest = since.rpartition("-")[2]
    if not newest.isascii() or not newest.isdigit() or len(newest) > 18:
        return 0, now
    return _waiting(project).filter(opened_position__gt=int(newest)).count(), now


def expired_count(project: Project) -> int:
    """How many ended in the last seven days because nobody answered in time."""
    now = now_us()
    since = now - WINDOW_US
    return Gate.objects.filter(
        Q(status="expired") | Q(status="pending", decide_by_us__lt=now),
        project=project,
        requested_at_us__gte=since,
    ).count()


def page(membership: Membership, state: str, *, risk: str = "", repository: str = "", after: str = "") -> Listed:
    """A page of one list; `after` is the `further` of the page before. An unreadable key begins at the beginning."""
    rows = Gate.objects.filter(project=membership.project)
    if risk:
        rows = rows.filter(risk=risk)
    if repository:
        rows = rows.filter(repository_name=repository)
    if state in ("pending", "mine"):
        found, further = _pending(rows, membership, after, mine=state == "mine")
    elif state == "decided":
        found, further = _by(rows.filter(decided_at_us__isnull=False), "decided_at_us", after)
    else:
        ended = Q(status__in=("expired", "lapsed", "cancelled")) | Q(status="pending", decide_by_us__lt=now_us())
        found, further = _by(rows.filter(ended), "opened_position", after)
    return Listed(_rows(_whole(found)), further)


def grouped(rows: Iterable[Row]) -> list[Row]:
    """Fold rows of the same tool and rule that may be decided together under the first of them."""
    heads: dict[tuple[str, str], Row] = {}
    found: list[Row] = []
    for row in rows:
        shape = (row.gate.tool, row.gate.rule)
        if row.groups and shape in heads:
            heads[shape].like.append(row)
            continue
        if row.groups:
            heads[shape] = row
        found.append(row)
    return found


def violations(project: Project, most: int = 5) -> list[tuple[Effect, list[str]]]:
    """The newest effects that ran without approval or while on hold in the last seven days, and what was found."""
    since = now_us() - WINDOW_US
    found = Effect.objects.filter(breaches.RAN_ALL_THE_SAME, project=project, violates=True, received_us__gte=since)
    rows = list(found.select_related("agent", "session").order_by("-opened_position")[:most])
    said = breaches.told(project.id, [one.id for one in rows]) if rows else {}
    return [(one, said.get(one.id, [])) for one in rows]


def would_have_been_held(project: Project) -> int:
    """How many plans of the last seven days the policy would have held or refused, had it been enforced."""
    since = now_us() - WINDOW_US
    found = Effect.objects.filter(project=project, judged__in=("ask", "deny"), enforced=False, received_us__gte=since)
    return found.count()


def last_decision(project: Project) -> int | None:
    """When somebody last decided anything here, in microseconds."""
    found: int | None = Gate.objects.filter(project=project).aggregate(last=Max("decided_at_us"))["last"]
    return found


def _waiting(project: Project) -> "QuerySet[Gate]":
    return Gate.objects.filter(project=project, status="pending", decide_by_us__gte=now_us())


_RANK: Final = Case(
    *[When(reversibility=name, then=Value(rank)) for name, rank in RANKS.items()], output_field=IntegerField()
)


def _whole(found: list[Gate]) -> list[Gate]:
    """The gates of a page with what their rows name. They are found alone: to sort thousands, each must be small."""
    joined = Gate.objects.select_related("agent", "effect", "requester", "session_owner").in_bulk([gate.id for gate in found])
    return [joined[gate.id] for gate in found]


def _pending(gates: "QuerySet[Gate]", membership: Membership, after: str, *, mine: bool) -> tuple[list[Gate], str]:
    if mine and not may(membership, "reviewer"):
        return [], ""
    rows: QuerySet[Any] = gates.filter(status="pending", decide_by_us__gte=now_us()).annotate(rank=_RANK)
    if mine:
        user = membership.user
        theirs = Q(requester=user) | Q(session_owner=user) | Q(agent_owner=user)
        rows = rows.filter(~theirs | Q(self_approval=True))
        rows = rows.filter(~Exists(Vote.objects.filter(gate=OuterRef("pk"), user=user)))
    key = _key(after, 3)
    if key is not None:
        rank, until, position = key
        rows = rows.filter(
            Q(rank__gt=rank)
            | Q(rank=rank, decide_by_us__gt=until)
            | Q(rank=rank, decide_by_us=until, opened_position__gt=position)
        )
    ordered = rows.order_by("rank", "decide_by_us", "opened_position")
    if mine:
        names = {user.get_username()}, teams_of(membership.project, user)
        asked = ordered.only("id", "decide_by_us", "opened_position", "requirement")[:MOST_TRIED]
        found = list(islice((gate for gate in asked if _asks(gate, *names)), SIZE + 1))
    else:
        found = list(ordered.only("id", "decide_by_us", "opened_position")[: SIZE + 1])
    last: Any = found[SIZE - 1] if len(found) > SIZE else None
    further = f"{last.rank}-{last.decide_by_us}-{last.opened_position}" if last is not None else ""
    return found[:SIZE], further


def _asks(gate: Gate, names: set[str], teams: set[str]) -> bool:
    """True when the rule names this person or a team of theirs, or nobody in particular."""
    needed = Requirement.of(gate.requirement)
    named = bool(needed.people or needed.teams)
    return not named or bool(names & set(needed.people)) or bool(teams & set(needed.teams))


def _by(rows: "QuerySet[Gate]", column: str, after: str) -> tuple[list[Gate], str]:
    """The newest by one column, position second."""
    key = _key(after, 2)
    if key is not None:
        below = {f"{column}__lt": key[0]}
        same: dict[str, Any] = {column: key[0], "opened_position__lt": key[1]}
        rows = rows.filter(Q(**below) | Q(**same))
    ordered = rows.order_by(F(column).desc(), "-opened_position").only("id", "opened_position", column)
    found = list(ordered[: SIZE + 1])
    last = found[SIZE - 1] if len(found) > SIZE else None
    return found[:SIZE], f"{getattr(last, column)}-{last.opened_position}" if last is not None else ""


def _key(text: str, parts: int) -> list[int] | None:
    found = text.split("-")
    if len(found) != parts or not all(one.isascii() and one.isdigit() and len(one) <= 18 for one in found):
        return None
    return [int(one) for one in found]


def _rows(found: list[Gate]) -> list[Row]:
    """Rows with what their plans, votes and histories say, in three queries."""
    now = now_us()
    for gate in found:
        gate.status = current_status(gate, now)
    positions = [gate.plan_position for gate in found]
    bodies = Body.objects.filter(entry__in=positions).annotate(head=Substr("text", 1, _READ), length=Length("text"))
    heads = {one.entry_id: one for one in bodies.defer("text", "salt")}
    yes = Count("id", filter=Q(answer="approve"))
    voted = Vote.objects.filter(gate__in=[gate.id for gate in found]).values("gate").annotate(yes=yes)
    votes: dict[UUID, int] = {one["gate"]: one["yes"] for one in voted}
    before = {
        (session, digest): position
        for session, digest, position in Gate.objects.filter(
            session__in={gate.session_id for gate in found},
            digest__in={gate.digest for gate in found},
            status__in=("denied", "denied_final", "returned"),
        ).values_list("session", "digest", "opened_position")
    }
    rows = []
    for gate in found:
        head: Any = heads.get(gate.plan_position)
        arguments = _arguments(head.head) if head is not None else None
        refused = before.get((gate.session_id, gate.digest))
        rows.append(
            Row(
                gate,
                gist=_gist(arguments),
                hidden=sum(map(untrusted.hidden_count, _texts(arguments))),
                blanks=max(map(blank_run, _texts(arguments)), default=0),
                long=head is not None and head.length > _READ,
                votes=votes.get(gate.id, 0),
                refused_before=refused is not None and refused < gate.opened_position,
            )
        )
    return rows


def _arguments(text: str) -> Any:
    """The arguments in a plan's body; None when it is longer than what is read here."""
    try:
        return orjson.loads(text).get("arguments")
    except orjson.JSONDecodeError:
        return None


def _texts(value: Any) -> Iterable[str]:
    """Every text within a JSON value, names too."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, list):
        for one in value:
            yield from _texts(one)
    elif isinstance(value, dict):
        for name, one in value.items():
            yield name
            yield from _texts(one)


def _gist(arguments: Any) -> str:
    """What tells this call from its neighbours, in a line."""
    if not isinstance(arguments, dict):
        return "" if arguments is None else _line(arguments)
    first = next((arguments[name] for name in _FIRST if name in arguments), None)
    if first is not None:
        return _line(first)
    return "  ".join(f"{name}={_line(value)}" for name, value in list(arguments.items())[:4])[:_LINE]


def _line(value: Any) -> str:
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = " ".join(value)
    text = value if isinstance(value, str) else orjson.dumps(value).decode()
    return text[:_LINE].replace("\n", " ⏎ ")
