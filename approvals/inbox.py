"""The lists of the desk: what waits, what waits for one person, what was decided, what ended without a decision.

What waits is ordered by what cannot be undone, then by what expires soonest; pages go on by key, so that they stay true
while requests come and go.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from django.db.models import Case, Count, Exists, F, IntegerField, Max, OuterRef, Q, QuerySet, Subquery, Value, When

from approvals import frame
from approvals.entries import Row, entries_of
from approvals.models import Gate, Vote
from approvals.requirement import Requirement
from approvals.words import RANKS
from journal import sql
from journal.clock import now_us
from journal.compiled import Compiled
from ledger import breaches
from ledger.models import Effect
from ledger.rows import as_uuid
from sessions.access import may
from sessions.models import Membership, Project
from sessions.teams import teams_of

STATES: Final = ("pending", "mine", "decided", "expired")
SIZE: Final = 50
BATCH: Final = 25
WINDOW_US: Final = 7 * 24 * 3600 * 1_000_000


@dataclass(slots=True)
class Listed:
    """A page of rows; `further` is the key of the next page, empty at the end."""

    rows: list[Row] = field(default_factory=list)
    further: str = ""


@dataclass(frozen=True, slots=True)
class Waiting:
    """What waits in a project: how many, and the newest of them. As text it is what a page polls with."""

    count: int
    newest: int

    def __str__(self) -> str:
        return f"{self.count}-{self.newest}"


def waiting(project: Project) -> Waiting:
    """What waits now."""
    found = frame.waiting(project.id, now_us()).aggregate(count=Count("*"), newest=Max("opened_position"))
    return Waiting(found["count"], found["newest"] or 0)


def as_waiting(waits: str) -> Waiting:
    """The same, of what the frame has read."""
    count, newest = map(int, waits.split("-"))
    return Waiting(count, newest)


def news(project: Project, since: str) -> tuple[int, Waiting] | None:
    """How many requests came since what `since` names, and what waits now; None for no news."""
    now = waiting(project)
    if since == str(now):
        return None
    newest = since.rpartition("-")[2]
    if not newest.isascii() or not newest.isdigit() or len(newest) > 18:
        return 0, now
    return frame.waiting(project.id, now_us()).filter(opened_position__gt=int(newest)).count(), now


class Week(NamedTuple):
    """Of the last seven days: how many ended without a decision, and whether anything ran that was not to."""

    unanswered: int
    has_violations: bool


def week(project: Project) -> Week:
    """How the last seven days were. What has ended counts whether or not the sweeper has been."""
    now = now_us()
    *counts, found = _WEEK.rows(project=project.pk, now=now, since=now - WINDOW_US)[0]
    return Week(sum(count or 0 for count in counts), bool(found))


def _week(project: UUID, now: int, since: int) -> Any:
    rows = Gate.objects.filter(project=project)
    lists = [rows.filter(**{f"{ended}__gte": since}).order_by() for rows, ended in _unanswered(rows, now)]
    counted = [Subquery(rows.values("project").annotate(n=Count("*")).values("n")) for rows in lists]
    return Project.objects.filter(pk=project).values_list(*counted, Exists(_violations(project, since)))


_WEEK: Final = Compiled(_week, project=UUID, now=int, since=int)


def page(membership: Membership, state: str, *, risk: str = "", repository: str = "", after: str = "") -> Listed:
    """A page of one list; `after` is the `further` of the page before. An unreadable key begins at the beginning."""
    rows = Gate.objects.filter(project=membership.project)
    if risk:
        rows = rows.filter(risk=risk)
    if repository:
        rows = rows.filter(repository_name=repository)
    if state == "pending" and not (risk or repository or after):
        found, further = _cut(sql.rows(_FIRST, [sql.vendor_id(membership.project_id), now_us()] * len(RANKS)))
    elif state in ("pending", "mine"):
        found, further = _pending(rows, membership, after, mine=state == "mine")
    elif state == "decided":
        found, further = _by([(rows.filter(decided_at_us__isnull=False), "decided_at_us")], after)
    else:
        found, further = _by(_unanswered(rows, now_us()), after)
    return Listed(entries_of(found), further)


def following(membership: Membership, gate: Gate) -> UUID | None:
    """Of what waits for a person, the request that comes after `gate` in the order of the list; None at its end."""
    rows = Gate.objects.filter(project=membership.project)
    after = f"{RANKS[gate.reversibility]}-{gate.decide_by_us}-{gate.opened_position}"
    found, _ = _pending(rows, membership, after, mine=True)
    return found[0] if found else None


def first(membership: Membership) -> UUID | None:
    """The first of what waits for a person."""
    found, _ = _pending(Gate.objects.filter(project=membership.project), membership, "", mine=True)
    return found[0] if found else None


def grouped(rows: Iterable[Row]) -> list[Row]:
    """Fold rows that may be decided together under the first of them: one agent's, of one tool, rule and repository."""
    heads: dict[tuple[Any, ...], Row] = {}
    found: list[Row] = []
    for row in rows:
        shape = (row.gate.tool, row.gate.rule, row.gate.agent_id, row.gate.repository_name)
        if row.groups and shape in heads:
            heads[shape].like.append(row)
            continue
        if row.groups:
            heads[shape] = row
        found.append(row)
    return found


def violations(project: Project, most: int = 5) -> list[tuple[Effect, list[str]]]:
    """The newest effects that ran without approval or while on hold in the last seven days, and what was found."""
    found = _violations(project.id, now_us() - WINDOW_US)
    rows = list(found.select_related("agent", "session").order_by("-opened_position")[:most])
    said = breaches.told(project.id, [one.id for one in rows]) if rows else {}
    return [(one, said.get(one.id, [])) for one in rows]


def _violations(project: UUID, since: int) -> "QuerySet[Effect]":
    return Effect.objects.filter(breaches.RAN_ALL_THE_SAME, project=project, violates=True, received_us__gte=since)


def would_have_been_held(project: Project) -> int:
    """How many plans of the last seven days the policy would have held or refused, had it been enforced."""
    since = now_us() - WINDOW_US
    found = Effect.objects.filter(project=project, judged__in=("ask", "deny"), enforced=False, received_us__gte=since)
    return found.count()


def last_decision(project: Project) -> int | None:
    """When somebody last decided anything here, in microseconds."""
    decided = Gate.objects.filter(project=project, decided_at_us__isnull=False)
    found: int | None = decided.aggregate(last=Max("decided_at_us"))["last"]
    return found


_UNANSWERED: Final = Q(decided_at_us__isnull=True, ended_at_us__isnull=False)


def _unanswered(rows: "QuerySet[Gate]", now: int) -> list[tuple["QuerySet[Gate]", str]]:
    """What ended without a decision and the column of its end: several lists, since each is read by an index.

    What the sweeper has yet to end ended when its time did.
    """
    ended = [(rows.filter(_UNANSWERED, status=status), "ended_at_us") for status in ("expired", "cancelled")]
    return [*ended, (rows.filter(status="pending", decide_by_us__lt=now), "decide_by_us")]


_RANK: Final = Case(
    *[When(reversibility=name, then=Value(rank)) for name, rank in RANKS.items()], output_field=IntegerField()
)


def _pending(gates: "QuerySet[Gate]", membership: Membership, after: str, *, mine: bool) -> tuple[list[UUID], str]:
    if mine and not may(membership, "reviewer"):
        return [], ""
    waiting: QuerySet[Gate] = gates.filter(status="pending", decide_by_us__gte=now_us())
    rows: QuerySet[Any] = waiting.annotate(rank=_RANK)
    if mine:
        user = membership.user
        theirs = Q(requester=user) | Q(session_owner=user) | Q(agent_owner=user)
        rows = rows.filter(~theirs | Q(self_approval=True))
        rows = rows.filter(~Exists(Vote.objects.filter(gate=OuterRef("pk"), user=user)))
        rows = rows.filter(requirement_hash__in=_asking(waiting, membership))
    key = _key(after, 3)
    if key is not None:
        rank, until, position = key
        rows = rows.filter(
            Q(rank__gt=rank)
            | Q(rank=rank, decide_by_us__gt=until)
            | Q(rank=rank, decide_by_us=until, opened_position__gt=position)
        )
    ordered = rows.order_by("rank", "decide_by_us", "opened_position")
    return _cut(ordered.values_list("rank", "decide_by_us", "opened_position", "id")[: SIZE + 1])


def _cut(listed: Iterable[tuple[Any, ...]]) -> tuple[list[UUID], str]:
    """A page of what waits, by rank, end and position, and the key of the next where there is one more."""
    found = list(listed)
    further = "{}-{}-{}".format(*found[SIZE - 1][:3]) if len(found) > SIZE else ""
    return [cast(UUID, as_uuid(identity)) for *_, identity in found[:SIZE]], further


# The first page of all that waits: the beginning of each rank, read by the index that is in its order, and of those
# the first. The same as a list of all, of which the database would have to sort what nobody sees.
_FIRST: Final = (
    " UNION ALL ".join(
        f"SELECT * FROM (SELECT {rank} AS rank, decide_by_us, opened_position, id FROM approvals_gate"
        f" WHERE project_id = %s AND status = 'pending' AND reversibility = '{name}' AND decide_by_us >= %s"
        f" ORDER BY decide_by_us, opened_position LIMIT {SIZE + 1}) AS of_{name}"
        for name, rank in RANKS.items()
    )
    + f" ORDER BY 1, 2, 3 LIMIT {SIZE + 1}"
)


def _asking(waiting: "QuerySet[Gate]", membership: Membership) -> list[str]:
    """Hashes of the requirements among what waits that name this person, a team of theirs, or nobody in particular."""
    told = waiting.order_by().values_list("requirement_hash").annotate(sample=Max("opened_position"))
    hashes = dict(told)
    found = {one: asked for one in hashes if (asked := _asked.get(one)) is not None}
    unknown = [position for one, position in hashes.items() if one not in found]
    if unknown:
        samples = waiting.filter(opened_position__in=unknown).values_list("requirement_hash", "requirement")
        needed = {one: Requirement.of(requirement) for one, requirement in samples}
        read = {one: (frozenset(of.people), frozenset(of.teams)) for one, of in needed.items()}
        if len(_asked) >= _MOST_ASKED:
            _asked.clear()
        _asked.update(read)
        found |= read  # and not read back: another thread may have emptied it meanwhile
    name, teams = membership.user.get_username(), teams_of(membership.project, membership.user)
    return [one for one, (people, of) in found.items() if not (people or of) or name in people or teams & of]


_asked: dict[str, tuple[frozenset[str], frozenset[str]]] = {}  # hash of a requirement -> the people and teams it names
_MOST_ASKED: Final = 1000


def _by(lists: Iterable[tuple["QuerySet[Gate]", str]], after: str) -> tuple[list[UUID], str]:
    """The newest of all lists, each by its column, position second."""
    key = _key(after, 2)
    found: list[tuple[int, int, UUID]] = []
    for rows, column in lists:
        if key is not None:
            below = {f"{column}__lte": key[0]}
            same: dict[str, Any] = {column: key[0], "opened_position__gte": key[1]}
            rows = rows.filter(Q(**below) & ~Q(**same))
        ordered = rows.order_by(F(column).desc(), "-opened_position").values_list(column, "opened_position", "id")
        found += ordered[: SIZE + 1]
    found.sort(reverse=True)
    further = "{}-{}".format(*found[SIZE - 1][:2]) if len(found) > SIZE else ""
    return [identity for *_, identity in found[:SIZE]], further


def _key(text: str, parts: int) -> list[int] | None:
    found = text.split("-")
    if len(found) != parts or not all(one.isascii() and one.isdigit() and len(one) <= 18 for one in found):
        return None
    return [int(one) for one in found]
