"""Find an earlier withdrawn or refused version of a request and diff the two.

A reviewer who remembers the first version reads the second less closely, so the page lists the
differences by name. Results here only add warnings.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import chain, takewhile
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db import connection
from django.db.models import QuerySet

from approvals import labels
from approvals.gates.statuses import MAX_VALID_FOR_S, US
from approvals.models import Gate
from approvals.review.plan_digests import Identities, StoredPlan, load_plan_digests
from approvals.review.warnings import IS_UNDONE, REQUEST_IDENTITY
from db import long_numbers, raw_sql
from db.compiled_query import CompiledQuerySet
from journal.models import Body, Entry
from ledger import violations
from ledger.store.effect_rows import to_uuid

EARLIER_WINDOW_US: Final = 24 * 3600 * US  # from the end of the earlier request to the new one
WITHDRAWAL_WINDOW_US: Final = (
    600 * US
)  # from the new request to a later withdrawal of the earlier one
MOST_DIFFERENCES: Final = 12
MOST_CONFLICTS: Final = 5
_KNOWN: Final = 1_000  # newest candidates of each kind
_MOST_COMPARED: Final = 20  # newest candidates of a request whose arguments are compared
_NUMBERED_KINDS: Final = ("order", "ticket")  # numbers that tell pieces of work apart
_MAX_EFFECTS: Final = 98  # newest effects of a session and tool, searched for conflicts
_COMPARED_CHARACTERS: Final = 65_536  # compared characters of a refused plan
_REFUSED_STATUSES: Final = ("denied", "denied_session", "changes_requested", "revoked", "cancelled")
_HARMLESS_REASONS: Final = ("happened", "undone")
_TARGET_FIELDS: Final = ("repository", "ref", "environment", "resource")
_SHOWN_CHARACTERS: Final = 160  # characters of a value shown from its start
_CONTEXT_CHARACTERS: Final = 24  # characters before the difference in a longer value
_ABSENT: Final = object()


class GateRequest(NamedTuple):
    """A request to compare; `same` has the order of warnings.REQUEST_IDENTITY."""

    gate: UUID
    position: int
    session: UUID
    agent: UUID
    at_us: int
    same: tuple[Any, ...]
    plan_position: int = 0


@dataclass(frozen=True, slots=True)
class EarlierRequest:
    """The last different request, not approved; `others` are further handles."""

    gate: UUID
    position: int
    status: str
    reason: str
    ended_at_us: int
    session: UUID
    agent: UUID
    plan_position: int
    effect: UUID
    same: tuple[Any, ...]
    arguments_differ: bool = True
    others: tuple[str, ...] = ()

    @property
    def word(self) -> str:
        """How it ended, as text."""
        if self.status == "cancelled":
            # Another agent may report the withdrawal of an effect; the journal names it.
            return {"by_agent": "withdrawn by its agent", "superseded": "withdrawn"}.get(
                self.reason, "cancelled"
            )
        return labels.STATUS_LABELS[self.status][0]

    @property
    def what(self) -> str:
        """What differs, at least."""
        return "other arguments" if self.arguments_differ else "another target"

    def __str__(self) -> str:
        return f"g_{self.position}"


class Difference(NamedTuple):
    """A name whose value changed, both values as text; None for an absent value."""

    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """A conflict or violation recorded for the tool of a request in its session.

    `same` is True if the refused call had exactly the arguments of the request, None if that cannot
    be compared.
    """

    words: str
    effect: UUID
    handle: str
    position: int
    at_us: int
    own: bool
    same: bool | None


def find_earlier_requests(
    project: UUID, listed: Iterable[GateRequest]
) -> dict[UUID, EarlierRequest]:
    """Find the earlier version of each request, by gate. At most four queries.

    Only the newest requests that ended in the window are compared, so an agent that requests and
    withdraws all day slows no page.
    """
    requests = list(listed)
    if not requests:
        return {}
    since, until = (
        min(request.at_us for request in requests) - EARLIER_WINDOW_US,
        max(request.at_us for request in requests) + WITHDRAWAL_WINDOW_US,
    )
    # Two lists, each read by its own index: ended after a decision, and ended without one. Other
    # conditions are checked below: with them, SQLite would scan everything of an agent or session.
    within: dict[str, Any] = {"project": project, "since": since, "until": until}
    rows = _DECIDED_GATES.plain_rows(**within, earliest=since - MAX_VALID_FOR_S * US)
    rows += _ALONE.plain_rows(**within)
    by_party = _group_by_party(rows, requests)
    candidates_by_gate = {}
    for request in requests:
        candidates = {
            other.gate: other
            for party in _list_parties(request)
            for other in by_party.get(party, ())
            if _is_earlier_version(other, request)
        }
        newest = sorted(candidates.values(), key=lambda other: other.position)[-_MOST_COMPARED:]
        if newest:
            candidates_by_gate[request.gate] = newest
    if not candidates_by_gate:
        return {}
    listed = [request for request in requests if request.gate in candidates_by_gate]
    named = _load_identities([*listed, *chain.from_iterable(candidates_by_gate.values())])
    earlier_by_gate = {}
    for request in listed:
        matches = [
            other
            for other in candidates_by_gate[request.gate]
            if _is_same_work(other.same, request.same, named[other.gate], named[request.gate])
        ]
        if matches:
            others = tuple(str(other) for other in matches[:-1][-MOST_CONFLICTS:])
            earlier_by_gate[request.gate] = replace(
                matches[-1], arguments_differ=matches[-1].same[1] != request.same[1], others=others
            )
    return earlier_by_gate


def _load_identities(
    requests: Iterable[GateRequest | EarlierRequest],
) -> dict[UUID, Identities]:
    """Load what the arguments of requests name, by gate; nothing for an erased plan. Two queries.

    A process may have read a plan before it was erased, so the body must still be stored.
    """
    by_gate = {request.gate: request for request in requests}
    positions = sorted({request.plan_position for request in by_gate.values()})
    stored = {position for (position,) in _STORED_PLANS.rows(positions=positions)}
    digests = load_plan_digests(
        {
            gate: StoredPlan(request.plan_position, request.same[0])
            for gate, request in by_gate.items()
            if request.plan_position in stored
        }
    )
    return {gate: digests[gate].identities if gate in digests else {} for gate in by_gate}


def _select_stored_plans(positions: Sequence[int]) -> Any:
    return Body.objects.filter(entry__in=positions).values_list("entry_id")


_STORED_PLANS: Final = CompiledQuerySet(_select_stored_plans, positions=[int])


def _is_same_work(
    old: tuple[Any, ...], new: tuple[Any, ...], before: Identities, after: Identities
) -> bool:
    """Return False if two different calls of a tool name other orders or tickets. Pure.

    Another recipient, account, file or target is not enough: a request that is made again can
    change just these.
    """
    if old[1] == new[1]:
        return True
    common = [kind for kind in _NUMBERED_KINDS if before.get(kind) and after.get(kind)]
    return not common or any(before[kind] & after[kind] for kind in common)


def _list_parties(request: GateRequest) -> tuple[tuple[Any, ...], ...]:
    """Return what a request shares with its versions: tool and session, or agent and target.

    Ids are as the database returns them.
    """
    target = (
        raw_sql.vendor_id(value) if isinstance(value, UUID) else value for value in request.same[2:]
    )
    tool = request.same[0]
    return (
        (tool, raw_sql.vendor_id(request.session)),
        (tool, raw_sql.vendor_id(request.agent), *target),
    )


def _group_by_party(
    rows: Iterable[Sequence[Any]], requests: Iterable[GateRequest]
) -> dict[tuple[Any, ...], list[EarlierRequest]]:
    """Group the rows that may be versions of one of `requests` by what they share."""
    by_party: dict[tuple[Any, ...], list[EarlierRequest]] = {
        party: [] for request in requests for party in _list_parties(request)
    }
    tools = {party[0] for party in by_party}
    for row in rows:
        if row[_SAME] not in tools:
            continue
        tool, digest, *target = row[_SAME:]
        session, agent = row[_SESSION], row[_AGENT]
        shared = [party for party in ((tool, session), (tool, agent, *target)) if party in by_party]
        if shared:
            other = _read_earlier_request(row, (tool, digest, to_uuid(target[0]), *target[1:]))
            for party in shared:
                by_party[party].append(other)
    return by_party


def _read_earlier_request(row: Sequence[Any], same: tuple[Any, ...]) -> EarlierRequest:
    fields = dict(zip(_EARLIER_FIELDS, row, strict=False))
    for name in ("gate", "session", "agent", "effect"):
        fields[name] = to_uuid(fields[name])
    return EarlierRequest(**fields, same=same)


class Successor(NamedTuple):
    """The newer request of a request that ended. `tie` says what they have in common."""

    gate: UUID
    position: int
    status: str
    tie: str

    @property
    def status_word(self) -> str:
        """Its status as text."""
        return labels.STATUS_LABELS[self.status][0]

    def __str__(self) -> str:
        return f"g_{self.position}"


def find_successor(gate: Gate) -> Successor | None:
    """Find the newest request that replaces a gate, whose effect is loaded. At most three queries.

    A request of the same effect; else the same call again, or other arguments for the same target,
    requested by the same session or agent within a day of the end. Requests without any target
    share none, so only the next one of their session counts, within ten minutes. One that waits
    comes before newer ones that ended.
    """
    newer = Gate.objects.filter(project=gate.project_id, opened_position__gt=gate.opened_position)
    own = newer.filter(effect=gate.effect_id).order_by("-opened_position")
    for identity, position, status in own.values_list("id", "opened_position", "status")[:1]:
        return Successor(identity, position, status, "of the same effect")
    same = tuple(getattr(gate.effect, name) for name in REQUEST_IDENTITY)
    identities = (f"effect__{name}" for name in REQUEST_IDENTITY)
    listed = (
        newer.filter(tool=gate.tool)
        .order_by("opened_position")
        .values_list("id", "opened_position", "status", "session", "requested_at_us", *identities)
    )
    # Two lists, each by its own index: requests of the session, and of the agent with the tool.
    rows = {
        row[0]: row
        for siblings in (listed.filter(session=gate.session_id), listed.filter(agent=gate.agent_id))
        for row in siblings[:_SUCCESSORS]
    }
    ordered = sorted(rows.values(), key=lambda row: row[1])
    ties = [(row, _name_tie(gate, same, row)) for row in ordered]
    tied = [Successor(row[0], row[1], row[2], tie) for row, tie in ties if tie]
    waiting = [successor for successor in tied if successor.status == "pending"]
    return next(reversed(waiting or tied), None)


_SUCCESSORS: Final = 50  # next requests of a session or agent that are compared
_NEXT_WINDOW_US: Final = 600 * US  # from the end of a request without a target to the next one


def _name_tie(gate: Gate, same: tuple[Any, ...], row: tuple[Any, ...]) -> str:
    """Return what a later request has in common with `gate`; empty if it replaces nothing."""
    session, other = row[3], row[5:]
    late_us = row[4] - (gate.ended_at_us or gate.decided_at_us or gate.decide_by_us)
    if late_us > EARLIER_WINDOW_US:
        return ""
    if other == same:
        return "for the same call"
    if other[2:] == same[2:] and any(same[2:]):
        return "for the same target, with other arguments"
    is_next = session == gate.session_id and abs(late_us) <= _NEXT_WINDOW_US
    if is_next and not any(same[2:]) and not any(other[2:]):
        return "of the same tool in this session, with other arguments"
    return ""


def _ended_gates(project: UUID, since: int, until: int) -> "QuerySet[Gate]":
    ended = Gate.objects.filter(
        project=project, status__in=_REFUSED_STATUSES, ended_at_us__range=(since, until)
    )
    return ended.filter(~IS_UNDONE).exclude(reason__in=_HARMLESS_REASONS)


def _decided_gates(project: UUID, since: int, until: int, earliest: int) -> Any:
    decided = _ended_gates(project, since, until).filter(decided_at_us__range=(earliest, until))
    return decided.order_by("-decided_at_us").values_list(*_COLUMNS)[:_KNOWN]


def _alone(project: UUID, since: int, until: int) -> Any:
    alone = _ended_gates(project, since, until).filter(
        decided_at_us__isnull=True, status="cancelled"
    )
    return alone.order_by("-ended_at_us").values_list(*_COLUMNS)[:_KNOWN]


_DECIDED_GATES: Final = CompiledQuerySet(
    _decided_gates, project=UUID, since=int, until=int, earliest=int
)
_ALONE: Final = CompiledQuerySet(_alone, project=UUID, since=int, until=int)


def find_earlier_versions(gates: Sequence[Gate]) -> dict[UUID, EarlierRequest]:
    """Find the earlier versions of gates of one project, whose effects are loaded."""
    listed = [
        GateRequest(
            gate.id,
            gate.opened_position,
            gate.session_id,
            gate.agent_id,
            gate.requested_at_us,
            tuple(getattr(gate.effect, name) for name in REQUEST_IDENTITY),
            gate.plan_position,
        )
        for gate in gates
    ]
    return find_earlier_requests(gates[0].project_id, listed) if gates else {}


_EARLIER_FIELDS: Final = (
    "gate",
    "position",
    "status",
    "reason",
    "ended_at_us",
    "session",
    "agent",
    "plan_position",
    "effect",
)
_SESSION, _AGENT = map(_EARLIER_FIELDS.index, ("session", "agent"))
_SAME: Final = len(_EARLIER_FIELDS)  # where the columns of REQUEST_IDENTITY begin: the tool
_COLUMNS: Final = (
    "id",
    "opened_position",
    *_EARLIER_FIELDS[2:],
    *(f"effect__{name}" for name in REQUEST_IDENTITY),
)


def _is_earlier_version(old: EarlierRequest, new: GateRequest) -> bool:
    """Return True if `old` is an earlier, different version of `new`.

    Both have the same tool, and the same session or the same agent and target.
    """
    return (
        old.position < new.position
        and old.ended_at_us >= new.at_us - EARLIER_WINDOW_US
        and old.ended_at_us
        <= new.at_us + (WITHDRAWAL_WINDOW_US if old.status == "cancelled" else 0)
        and old.same[0] == new.same[0]
        and old.same != new.same
        and (
            old.session == new.session or (old.agent == new.agent and old.same[2:] == new.same[2:])
        )
    )


def diff_plans(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """List the differences of two plans' arguments and targets, by name."""
    listed = list(_compare_values("", old.get("arguments", _ABSENT), new.get("arguments", _ABSENT)))
    targets = [
        target if isinstance(target, dict) else {}
        for target in (old.get("target"), new.get("target"))
    ]
    for name in _TARGET_FIELDS:
        listed += _compare_values(
            f"target: {name}", *(target.get(name) or _ABSENT for target in targets)
        )
    return listed


def _compare_values(name: str, old: Any, new: Any) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*new, *old)):
            yield from _compare_values(
                f"{name}.{key}" if name else key, old.get(key, _ABSENT), new.get(key, _ABSENT)
            )
    elif _canonical(old) != _canonical(new):
        yield Difference(name or "arguments", *_trim_common_start(old, new))


def _canonical(value: Any) -> bytes | None:
    return None if value is _ABSENT else long_numbers.to_json_bytes(value, orjson.OPT_SORT_KEYS)


def _trim_common_start(old: Any, new: Any) -> tuple[str | None, str | None]:
    """Format two values as text; long values lose their common beginning."""
    was, now = (
        None if value is _ABSENT else value if isinstance(value, str) else _value_to_json(value)
        for value in (old, new)
    )
    if was is None or now is None or max(len(was), len(now)) <= _SHOWN_CHARACTERS:
        return was, now
    start = max(0, _count_common_start(was, now) - _CONTEXT_CHARACTERS)
    return (f"…{was[start:]}", f"…{now[start:]}") if start else (was, now)


def _count_common_start(before_text: str, after_text: str) -> int:
    return sum(
        1
        for _ in takewhile(
            lambda pair: pair[0] == pair[1], zip(before_text, after_text, strict=False)
        )
    )


def _value_to_json(value: Any) -> str:
    return long_numbers.to_json_bytes(value).decode()


def load_conflicts(
    gate: Gate, plan: Mapping[str, Any], earlier: EarlierRequest | None
) -> list[Conflict]:
    """List conflicts and violations of a tool and session, newest first. One query."""
    own, others = raw_sql.vendor_id(gate.effect_id), earlier.effect if earlier is not None else None
    rows = raw_sql.fetch_rows(
        _conflicts_sql(),
        [
            raw_sql.vendor_id(gate.session_id),
            gate.tool,
            own,
            own if others is None else raw_sql.vendor_id(others),
            raw_sql.vendor_id(gate.project_id),
        ],
    )
    return [
        Conflict(
            _describe_conflict(kind, orjson.loads(facts)),
            raw_sql.read_uuid(effect),
            f"e_{handle}",
            position,
            at_us,
            effect == own,
            _compare_arguments(head, plan) if kind == "integrity.conflict" else None,
        )
        for kind, facts, effect, handle, position, at_us, head in rows
    ]


@cache
def _conflicts_sql() -> str:
    """Return the query of conflicts: it looks up the entries of each effect by index."""
    newest = (
        "SELECT id FROM ledger_effect WHERE session_id = %s AND tool = %s"
        f" ORDER BY opened_position DESC LIMIT {_MAX_EFFECTS}"
    )
    effects = f"SELECT id FROM ({newest}) AS newest UNION SELECT CAST(%s AS {{0}})"
    effects = f"{effects} UNION SELECT CAST(%s AS {{0}})".format(
        "uuid" if connection.vendor == "postgresql" else "text"
    )
    condition = (
        "entry.effect = listed.id AND entry.project = %s AND entry.lane = 'system'"
        " AND entry.kind IN ('integrity.conflict', 'integrity.violation')"
    )
    joined = f"journal_entry AS entry WHERE {condition}"
    if connection.vendor == "postgresql":  # which would read all conflicts of the project
        own = f"SELECT * FROM {joined} ORDER BY entry.position DESC LIMIT {MOST_CONFLICTS}"
        joined = f"LATERAL ({own}) AS entry"
    return (
        "SELECT entry.kind, entry.facts, entry.effect, (SELECT effect.opened_position"
        " FROM ledger_effect AS effect WHERE effect.id = entry.effect), entry.position,"
        " COALESCE(entry.occurred_us, entry.received_us),"
        f" (SELECT substr(body.text, 1, {_COMPARED_CHARACTERS})"
        " FROM journal_body AS body WHERE body.entry_id = entry.position)"
        f" FROM ({effects}) AS listed CROSS JOIN {joined}"
        f" ORDER BY entry.position DESC LIMIT {MOST_CONFLICTS}"
    )


def find_reused_keys(project: UUID, effects: Iterable[UUID]) -> set[UUID]:
    """Return the effects whose keys were sent with other content. One query."""
    listed = list(effects)
    return (
        {effect for (effect,) in _CONFLICTS.rows(project=project, effects=listed)}
        if listed
        else set()
    )


def _select_conflicts(project: UUID, effects: Sequence[UUID]) -> Any:
    entries = Entry.objects.filter(
        project=project, effect__in=effects, kind="integrity.conflict", lane="system"
    )
    return entries.values_list("effect")


_CONFLICTS: Final = CompiledQuerySet(_select_conflicts, project=UUID, effects=[UUID])


def _describe_conflict(kind: str, facts: Mapping[str, Any]) -> str:
    if kind == "integrity.violation":
        name = str(facts.get("violation", ""))
        return violations.VIOLATION_LABELS.get(name, name)
    if facts.get("refused") == "INTENT_MISMATCH":
        return "A dispatch with a digest other than the planned one was refused."
    return "Its key was sent again with other content, and refused."


def _compare_arguments(head: str | None, plan: Mapping[str, Any]) -> bool | None:
    try:
        sent = long_numbers.parse_json(head or "")
    except orjson.JSONDecodeError:
        return None
    return (
        sent["arguments"] == plan.get("arguments")
        if isinstance(sent, dict) and "arguments" in sent
        else None
    )
