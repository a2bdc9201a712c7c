"""Queries of the approval lists: pending, for one person, decided, expired, cancelled.

Pending requests are ordered by reversibility (irreversible first), then by deadline. Pagination is
by key, so pages stay correct while requests come and go. Within a page those with dangers come
first (put_dangers_first).
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, cast
from uuid import UUID

from django.db.models import (
    Case,
    Count,
    Exists,
    F,
    IntegerField,
    Max,
    Min,
    OuterRef,
    Q,
    QuerySet,
    Value,
    When,
    Window,
)

from accounts.access import has_role
from accounts.models import Membership, Project
from accounts.teams import load_team_names
from approvals import pending_counts
from approvals.checks.outliers import build_shape, compare_set
from approvals.inbox.inbox_rows import InboxRow, load_inbox_rows
from approvals.labels import REVERSIBILITY_RANKS
from approvals.models import Addressee, Gate, Vote
from approvals.policies.engine import Requirement
from approvals.review_settings import load_absences
from db import raw_sql
from db.clock import now_us
from db.compiled_query import CompiledQuerySet
from db.whole_days import build_period
from ledger import violations as ledger_violations
from ledger.models import Effect
from ledger.store.effect_rows import to_uuid

LISTS: Final = ("pending", "mine", "decided", "expired", "cancelled")
UNDECIDED_LISTS: Final = LISTS[3:]  # of requests that ended before a decision
INBOX_PAGE_SIZE: Final = 50
MAX_BATCH: Final = 25
_MAX_VIOLATIONS: Final = 5  # that a page names
WINDOW_US: Final = 7 * 24 * 3600 * 1_000_000


class ListFilters(NamedTuple):
    """Which list a page shows: the parameters of its URL; `after` is the key of its page."""

    state: str = ""
    risk: str = ""
    repo: str = ""
    tool: str = ""
    rule: str = ""
    after: str = ""


class NextRequest(NamedTuple):
    """The request that follows an answered one, and the key of the page that lists it."""

    gate: UUID
    after: str


@dataclass(slots=True)
class InboxPage:
    """A page of rows; `further` is the key of the next page, empty on the last."""

    rows: list[InboxRow] = field(default_factory=list)
    further: str = ""


@dataclass(frozen=True, slots=True)
class PendingMark:
    """Number and newest position of pending requests; as text, a page's poll mark."""

    count: int
    newest: int

    def __str__(self) -> str:
        return f"{self.count}-{self.newest}"


def load_pending_mark(project: Project) -> PendingMark:
    """Count the pending requests and find the newest."""
    totals = pending_counts.select_pending_gates(project.id, now_us()).aggregate(
        count=Count("*"), newest=Max("opened_position")
    )
    return PendingMark(totals["count"], totals["newest"] or 0)


def parse_pending_mark(waits: str) -> PendingMark:
    """Parse the pending requests that the page header has loaded."""
    count, newest = map(int, waits.split("-"))
    return PendingMark(count, newest)


def find_new_requests(project: Project, since: str) -> tuple[int, PendingMark] | None:
    """Return the number of requests since mark `since`, and the mark; None if equal."""
    now = load_pending_mark(project)
    if since == str(now):
        return None
    newest = since.rpartition("-")[2]
    if not newest.isascii() or not newest.isdigit() or len(newest) > 18:
        return 0, now
    return pending_counts.select_pending_gates(project.id, now_us()).filter(
        opened_position__gt=int(newest)
    ).count(), now


def has_recent_violations(project: Project) -> bool:
    """Return whether an effect of the last 7 days ran unapproved or during a stop."""
    return bool(_HAS_VIOLATIONS.rows(project=project.pk, since=now_us() - WINDOW_US)[0])


def _select_has_violations(project: UUID, since: int) -> Any:
    return Project.objects.filter(pk=project).values_list(
        Exists(_select_violations(project, since)), flat=True
    )


_HAS_VIOLATIONS: Final = CompiledQuerySet(_select_has_violations, project=UUID, since=int)


class UndecidedOfWeek(NamedTuple):
    """How many requests since a day ended before a decision."""

    requests: int
    since_us: int


def count_undecided_of_week(project: Project, state: str) -> UndecidedOfWeek:
    """Count the requests of one of UNDECIDED_LISTS that were made in 7 days, as the overview does.

    Today and the six days before. Counts expired gates that are not yet swept. At most two queries.
    """
    now = now_us()
    since = build_period(now, 7).since_us
    counts = [
        rows.filter(requested_at_us__gte=since, **{f"{ended}__gte": since}).count()
        for rows, ended in _undecided_queries(Gate.objects.filter(project=project), state, now)
    ]
    return UndecidedOfWeek(sum(counts), since)


def load_inbox_page(membership: Membership, filters: ListFilters) -> InboxPage:
    """Load a page of one list. An invalid key starts at the first page."""
    state, *narrowed, after = filters
    rows = _filter_gates(membership.project, filters)
    if state == "pending" and not (any(narrowed) or after):
        gate_ids, further = _cut_page(
            raw_sql.fetch_rows(
                _FIRST_PAGE_SQL,
                [raw_sql.vendor_id(membership.project_id), now_us()] * len(REVERSIBILITY_RANKS),
            )
        )
    elif state in ("pending", "mine"):
        gate_ids, further = _pending_page(rows, membership, after, for_member=state == "mine")
    elif state == "decided":
        gate_ids, further = _merge_newest(
            [(rows.filter(decided_at_us__isnull=False), "decided_at_us")], after
        )
    else:
        gate_ids, further = _merge_newest(_undecided_queries(rows, state, now_us()), after)
    return InboxPage(load_inbox_rows(gate_ids), further)


def _filter_gates(project: Project, filters: ListFilters) -> "QuerySet[Gate]":
    columns = {
        "risk": filters.risk,
        "repository_name": filters.repo,
        "tool": filters.tool,
        "rule": filters.rule,
    }
    narrowed = {name: value for name, value in columns.items() if value}
    return Gate.objects.filter(project=project, **narrowed)


def find_next_gate(membership: Membership, gate: Gate, filters: ListFilters) -> NextRequest | None:
    """Return the request below `gate` in its list that waits for a person, in the order shown.

    After the last row the list begins again. None if no other request of the list waits for them.
    """
    if not has_role(membership, "reviewer"):
        return None
    if filters.state != "mine":  # votes are given in a list of pending requests only
        filters = filters._replace(state="pending")
    shown, further = _list_page_gates(membership, filters)
    waiting = _find_waiting(membership, filters, shown) - {gate.id}
    at = shown.index(gate.id) if gate.id in shown else -1
    below = next((gate_id for gate_id in shown[at + 1 :] if gate_id in waiting), None)
    if below is not None:
        return NextRequest(below, filters.after)
    beyond = _find_first_beyond(membership, gate, filters, further) if further else None
    if beyond is not None:
        return beyond
    if filters.after:
        return _find_first_beyond(membership, gate, filters, "")
    above = next((gate_id for gate_id in shown if gate_id in waiting), None)
    return NextRequest(above, "") if above is not None else None


def _find_first_beyond(
    membership: Membership, gate: Gate, filters: ListFilters, after: str
) -> NextRequest | None:
    """Return what waits for a person first on the pages behind key `after`, except `gate`.

    Pages on which nothing waits for them are skipped: the page then begins with the request.
    """
    rows = _filter_gates(membership.project, filters)
    theirs, _ = _pending_page(rows.exclude(id=gate.id), membership, after, for_member=True)
    if not theirs:
        return None
    listed, _ = _pending_page(rows, membership, after, for_member=filters.state == "mine")
    if theirs[0] not in listed:
        first = Gate.objects.get(id=theirs[0])
        rank, position = REVERSIBILITY_RANKS[first.reversibility], first.opened_position
        after = f"{rank}-{first.decide_by_us}-{position - 1}"
    shown, _ = _list_page_gates(membership, filters._replace(after=after))
    waiting = _find_waiting(membership, filters, shown) - {gate.id}
    return next((NextRequest(gate_id, after) for gate_id in shown if gate_id in waiting), None)


def _list_page_gates(membership: Membership, filters: ListFilters) -> tuple[list[UUID], str]:
    """Return the requests of a page of a list in the order shown, and the next page's key."""
    page = load_inbox_page(membership, filters)
    rows = arrange_rows(page.rows)
    return [each.gate.id for row in rows for each in (row, *row.like)], page.further


def _find_waiting(
    membership: Membership, filters: ListFilters, listed: Sequence[UUID]
) -> set[UUID]:
    """Return which of the listed requests wait for a person. At most five queries."""
    if filters.state == "mine":
        return set(listed)
    waiting = Gate.objects.filter(id__in=listed, status="pending", decide_by_us__gte=now_us())
    theirs = _filter_for_member(waiting, waiting, membership)
    return set(theirs.values_list("id", flat=True))


def arrange_rows(rows: Iterable[InboxRow]) -> list[InboxRow]:
    """Return the rows of a page of pending requests as the list shows them."""
    return put_dangers_first(group_rows(rows))


def group_rows(rows: Iterable[InboxRow]) -> list[InboxRow]:
    """Fold rows that may be decided together: same agent, repository and shape.

    A request that stands out is never folded. It comes directly before the others of its set, if
    both have the same reversibility, and their row names it.
    """
    heads: dict[tuple[Any, ...], InboxRow] = {}
    folded: list[InboxRow] = []
    for row in rows:
        shape = (*_find_shape(row), row.gate.repository_name)
        if row.groups and shape in heads and len(heads[shape].like) < MAX_BATCH - 1:
            heads[shape].like.append(row)
            continue
        if row.groups:
            heads[shape] = row
        folded.append(row)
    by_shape = {_find_shape(head): head for head in reversed(heads.values())}
    for row in [row for row in folded if row.stands_out]:
        head = by_shape.get(_find_shape(row))
        if head is None or len(head.like) + len(head.apart) >= MAX_BATCH - 1:
            continue
        head.apart.append(row)
        if row.gate.reversibility == head.gate.reversibility:
            folded.remove(row)
            folded.insert(next(n for n, other in enumerate(folded) if other is head), row)
    for head in by_shape.values():
        head.tally = _tally_set(head) if head.apart else ()
    return folded


def put_dangers_first(rows: Iterable[InboxRow]) -> list[InboxRow]:
    """Order the rows of a page: within a reversibility, first those with a danger.

    Dangers are computed for the rows of a page only, so pages follow each other by deadline, and
    each page is ordered by itself. A set stays together: it counts by its worst row.
    """
    return sorted(
        rows, key=lambda row: (REVERSIBILITY_RANKS[row.gate.reversibility], not _has_danger(row))
    )


def _has_danger(row: InboxRow) -> bool:
    return any(result.level == "danger" for each in (row, *row.apart) for result in each.checks)


def _find_shape(row: InboxRow) -> tuple[Any, ...]:
    shape = build_shape(row.request) if row.request is not None else (row.gate.tool, row.gate.rule)
    return row.gate.agent_id, *shape


def _tally_set(head: InboxRow) -> tuple[tuple[str, tuple[tuple[int, str, bool], ...]], ...]:
    """Count the values of at most two columns in which a request of the set stands out."""
    listed = [row.request for row in (head, *head.like, *head.apart) if row.request is not None]
    odd = [column for column in compare_set(listed).columns if column.outlying]
    tallies = []
    for column in sorted(odd, key=lambda column: column.common is None)[:2]:
        counts = Counter(column.texts)
        usual = [(counts[column.common], column.common, False)] if column.common else []
        outlying = sorted({column.texts[number] or "" for number in column.outlying})
        rare = [(counts[text], text, True) for text in outlying[:2]]
        tallies.append((column.name, (*usual, *rare)))
    return tuple(tallies)


def load_recent_violations(project: Project) -> list[tuple[Effect, list[str]]]:
    """Load the newest effects of 7 days that ran unapproved or during a stop.

    Those that a person has acknowledged since are left out.
    """
    rows = _VIOLATIONS.rows(project=project.id, since=now_us() - WINDOW_US)
    labels = (
        ledger_violations.load_violations(project.id, [effect.id for effect in rows])
        if rows
        else {}
    )
    return [(effect, labels.get(effect.id, [])) for effect in rows]


def _select_violations(project: UUID, since: int) -> "QuerySet[Effect]":
    return ledger_violations.query_unacknowledged(project).filter(received_us__gte=since)


def _select_newest_violations(project: UUID, since: int) -> Any:
    effects = _select_violations(project, since).select_related("agent", "session")
    return effects.order_by("-opened_position")[:_MAX_VIOLATIONS]


_VIOLATIONS: Final = CompiledQuerySet(_select_newest_violations, project=UUID, since=int)


def count_not_enforced(project: Project) -> int:
    """Count plans of 7 days that an enforced policy would have held or refused."""
    since = now_us() - WINDOW_US
    effects = Effect.objects.filter(
        project=project,
        policy_outcome__in=("ask", "deny"),
        policy_enforced=False,
        received_us__gte=since,
    )
    return effects.count()


def load_last_decision_us(project: Project) -> int | None:
    """Return the time of the last decision in a project, in microseconds."""
    decided = Gate.objects.filter(project=project, decided_at_us__isnull=False)
    last: int | None = decided.aggregate(last=Max("decided_at_us"))["last"]
    return last


_IS_UNDECIDED: Final = Q(decided_at_us__isnull=True, ended_at_us__isnull=False)


def _undecided_queries(
    rows: "QuerySet[Gate]", state: str, now: int
) -> list[tuple["QuerySet[Gate]", str]]:
    """Return queries of gates that expired or were cancelled, each with the column of its end.

    Several queries, since each uses its own index. A gate past its deadline counts as expired
    before the sweeper ends it.
    """
    ended = [(rows.filter(_IS_UNDECIDED, status=state), "ended_at_us")]
    late = [(rows.filter(status="pending", decide_by_us__lt=now), "decide_by_us")]
    return ended + (late if state == "expired" else [])


_RANK: Final = Case(
    *[When(reversibility=name, then=Value(rank)) for name, rank in REVERSIBILITY_RANKS.items()],
    output_field=IntegerField(),
)


def _pending_page(
    gates: "QuerySet[Gate]", membership: Membership, after: str, *, for_member: bool
) -> tuple[list[UUID], str]:
    if for_member and not has_role(membership, "reviewer"):
        return [], ""
    waiting: QuerySet[Gate] = gates.filter(status="pending", decide_by_us__gte=now_us())
    rows: QuerySet[Any] = waiting.annotate(rank=_RANK)
    if for_member:
        rows = _filter_for_member(rows, waiting, membership)
    key = _parse_key(after, 3)
    if key is not None:
        rank, until, position = key
        rows = rows.filter(
            Q(rank__gt=rank)
            | Q(rank=rank, decide_by_us__gt=until)
            | Q(rank=rank, decide_by_us=until, opened_position__gt=position)
        )
    ordered = rows.order_by("rank", "decide_by_us", "opened_position")
    return _cut_page(
        ordered.values_list("rank", "decide_by_us", "opened_position", "id")[: INBOX_PAGE_SIZE + 1]
    )


def _filter_for_member(
    rows: "QuerySet[Any]", waiting: "QuerySet[Gate]", membership: Membership
) -> "QuerySet[Any]":
    """Keep the requests that wait for this person. At most five queries.

    Those that a comment asks the person about, and those that wait for their vote: assigned to
    them, or unassigned.
    """
    user = membership.user
    theirs = Q(requester=user) | Q(session_owner=user) | Q(agent_owner=user)
    addressed = Addressee.objects.filter(gate=OuterRef("pk"))
    # What is assigned to somebody who is away is the stand-in's, or everybody's.
    absences = load_absences(membership.project_id)
    own = [user.pk, *(away for away, each in absences.items() if each.stand_in in (None, user.pk))]
    elsewhere = Exists(addressed.filter(relation="assigned").exclude(user__in=own))
    votable = Q(
        ~theirs | Q(self_approval=True),
        ~elsewhere,
        requirement_hash__in=_answerable_hashes(waiting, membership),
    )
    rows = rows.filter(~Exists(Vote.objects.filter(gate=OuterRef("pk"), user=user)))
    return rows.filter(Q(Exists(addressed.filter(relation="mentioned", user=user))) | votable)


@dataclass(frozen=True, slots=True)
class FirstRequests:
    """The first requests of a list, in its order.

    `count` is the number of all, `ends_us` when the first of all expires.
    """

    gates: list[UUID]
    count: int
    ends_us: int | None


def load_first_requests(membership: Membership, most: int, *, for_member: bool) -> FirstRequests:
    """Return the first pending requests: irreversible first, then what expires first.

    Of the project, or `for_member` those that wait for this person. At most four queries.
    """
    if for_member and not has_role(membership, "reviewer"):
        return FirstRequests([], 0, None)
    waiting = pending_counts.select_pending_gates(membership.project_id, now_us())
    rows: QuerySet[Any] = waiting.annotate(rank=_RANK)
    rows = _filter_for_member(rows, waiting, membership) if for_member else rows
    ordered = rows.annotate(
        of_all=Window(Count("pk")), ends_us=Window(Min("decide_by_us"))
    ).order_by("rank", "decide_by_us", "opened_position")
    listed = list(ordered.values_list("id", "of_all", "ends_us")[:most])
    count, ends_us = listed[0][1:] if listed else (0, None)
    return FirstRequests([gate for gate, *_ in listed], count, ends_us)


def _cut_page(listed: Iterable[tuple[Any, ...]]) -> tuple[list[UUID], str]:
    """Cut rows (rank, deadline, position, id) to a page; return ids and next key."""
    rows = list(listed)
    further = (
        "{}-{}-{}".format(*rows[INBOX_PAGE_SIZE - 1][:3]) if len(rows) > INBOX_PAGE_SIZE else ""
    )
    return [cast(UUID, to_uuid(identity)) for *_, identity in rows[:INBOX_PAGE_SIZE]], further


# The first page of pending requests: the first rows of each rank, read in index order, then merged.
# A single query over all ranks would sort every pending request.
_FIRST_PAGE_SQL: Final = (
    " UNION ALL ".join(
        f"SELECT * FROM (SELECT {rank} AS rank, decide_by_us, opened_position, id"
        f" FROM approvals_gate WHERE project_id = %s AND status = 'pending'"
        f" AND reversibility = '{name}' AND decide_by_us >= %s"
        f" ORDER BY decide_by_us, opened_position LIMIT {INBOX_PAGE_SIZE + 1}) AS of_{name}"
        for name, rank in REVERSIBILITY_RANKS.items()
    )
    + f" ORDER BY 1, 2, 3 LIMIT {INBOX_PAGE_SIZE + 1}"
)


def _answerable_hashes(waiting: "QuerySet[Gate]", membership: Membership) -> list[str]:
    """Return hashes of pending requirements that this person may satisfy."""
    samples_by_hash = (
        waiting.order_by().values_list("requirement_hash").annotate(sample=Max("opened_position"))
    )
    hashes = dict(samples_by_hash)
    named_by_hash = {
        digest: cached for digest in hashes if (cached := _named_cache.get(digest)) is not None
    }
    unknown = [position for digest, position in hashes.items() if digest not in named_by_hash]
    if unknown:
        samples = waiting.filter(opened_position__in=unknown).values_list(
            "requirement_hash", "requirement"
        )
        needed = {digest: Requirement.of(requirement) for digest, requirement in samples}
        read = {
            digest: (frozenset(of.people), frozenset(of.teams)) for digest, of in needed.items()
        }
        if len(_named_cache) >= _MAX_CACHED:
            _named_cache.clear()
        _named_cache.update(read)
        named_by_hash |= read  # not read back: another thread may have cleared the cache
    name = membership.user.get_username()
    teams = (
        load_team_names(membership.project, membership.user)
        if any(of for _, of in named_by_hash.values())
        else set()
    )
    return [
        digest
        for digest, (people, of) in named_by_hash.items()
        if not (people or of) or name in people or teams & of
    ]


_named_cache: dict[
    str, tuple[frozenset[str], frozenset[str]]
] = {}  # hash of a requirement -> named people and teams
_MAX_CACHED: Final = 1000


def _merge_newest(
    lists: Iterable[tuple["QuerySet[Gate]", str]], after: str
) -> tuple[list[UUID], str]:
    """Merge the newest rows of several queries, by their column and position."""
    key = _parse_key(after, 2)
    merged: list[tuple[int, int, UUID]] = []
    for rows, column in lists:
        if key is not None:
            below = {f"{column}__lte": key[0]}
            same: dict[str, Any] = {column: key[0], "opened_position__gte": key[1]}
            rows = rows.filter(Q(**below) & ~Q(**same))
        ordered = rows.order_by(F(column).desc(), "-opened_position").values_list(
            column, "opened_position", "id"
        )
        merged += ordered[: INBOX_PAGE_SIZE + 1]
    merged.sort(reverse=True)
    further = (
        "{}-{}".format(*merged[INBOX_PAGE_SIZE - 1][:2]) if len(merged) > INBOX_PAGE_SIZE else ""
    )
    return [identity for *_, identity in merged[:INBOX_PAGE_SIZE]], further


def _parse_key(text: str, parts: int) -> list[int] | None:
    numbers = text.split("-")
    if len(numbers) != parts or not all(
        number.isascii() and number.isdigit() and len(number) <= 18 for number in numbers
    ):
        return None
    return [int(number) for number in numbers]
