"""A request that came before in other words: withdrawn or refused, then asked for again with something changed.

Nobody who remembers the first reads the second as closely, so the desk says what differs, name by name. Whatever is
found here can only raise what a reader looks at.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import takewhile
from typing import Any, Final, NamedTuple
from uuid import UUID

import orjson
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Substr

from approvals import words
from approvals.flags import ASK
from approvals.models import Gate
from approvals.states import LONGEST_LEAVE_FOR_S, US
from journal import exact
from journal.compiled import Compiled
from journal.models import Body, Entry
from ledger import breaches
from ledger.models import Effect

WITHIN_US: Final = 24 * 3600 * US  # from the end of the one before to the request that is told of it
OVERLAP_US: Final = 600 * US  # … and from a request to the end of one that its agent withdrew only after it
MOST_DIFFERENCES: Final = 12
MOST_CONFLICTS: Final = 5
_KNOWN: Final = 1_000  # of either kind, the newest, that are compared with what is asked
_EFFECTS: Final = 100  # of a session with one tool, the newest, that are looked at for conflicts
_READ: Final = 65_536  # characters of a refused plan that are compared
_REFUSED: Final = ("denied", "denied_final", "returned", "revoked", "cancelled")
_HARMLESS: Final = ("happened",)
_TARGET: Final = ("repository", "ref", "environment", "resource")
_SHOWN: Final = 160  # characters of a value that is shown from its beginning
_CONTEXT: Final = 24  # … and before the difference of a longer one
_ABSENT: Final = object()


class Asked(NamedTuple):
    """A request, as it is compared: `same` is its intent and target, in the order of flags.ASK."""

    gate: UUID
    position: int
    session: UUID
    agent: UUID
    at_us: int
    same: tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Before:
    """The last request before that ended without a yes and differs; `others` are the handles of more of them."""

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
        """What became of it, in words."""
        if self.status == "cancelled":
            # A report that an effect was withdrawn may come from another agent: then the book says from which.
            return {"by_agent": "withdrawn by its agent", "superseded": "withdrawn"}.get(self.reason, "cancelled")
        return words.STATUSES[self.status][0]

    @property
    def what(self) -> str:
        """In what it differs, at least."""
        return "other arguments" if self.arguments_differ else "another target"

    def __str__(self) -> str:
        return f"g_{self.position}"


class Difference(NamedTuple):
    """One name whose value changed, as people read them; None where there was, or is, none."""

    name: str
    old: str | None
    new: str | None


@dataclass(frozen=True, slots=True)
class Conflict:
    """An entry of the book that says that something was tried, or went, against the rules, with this tool here.

    `same` is true where what was refused had the very arguments of the request that this is told of; None where that
    cannot be compared.
    """

    words: str
    effect: UUID
    handle: str
    position: int
    at_us: int
    own: bool
    same: bool | None


def before(project: UUID, listed: Iterable[Asked]) -> dict[UUID, Before]:
    """What came before each request, by gate; those that nothing came before are left out. Two queries.

    Of what ended in the time that matters the newest are looked at: an agent that asks and withdraws all day makes no
    page of anybody's slow.
    """
    asked = list(listed)
    if not asked:
        return {}
    since, until = min(one.at_us for one in asked) - WITHIN_US, max(one.at_us for one in asked) + OVERLAP_US
    # Two lists, each by an index of its own: what people ended, and what ended before anybody had answered. The rest is
    # sorted out below: told more, SQLite would rather read everything of an agent or a session that waits.
    within: dict[str, Any] = {"project": project, "since": since, "until": until}
    rows = _DECIDED.rows(**within, earliest=since - LONGEST_LEAVE_FOR_S * US) + _ALONE.rows(**within)
    known = [Before(**dict(zip(_OWN, row, strict=False)), same=row[len(_OWN) :]) for row in rows]
    known.sort(key=lambda one: one.position)
    found = {}
    for one in asked:
        mine = [other for other in known if _precedes(other, one)]
        if mine:
            others = tuple(str(other) for other in mine[:-1][-MOST_CONFLICTS:])
            found[one.gate] = replace(mine[-1], arguments_differ=mine[-1].same[1] != one.same[1], others=others)
    return found


def _ended(project: UUID, since: int, until: int) -> "QuerySet[Gate]":
    ended = Gate.objects.filter(project=project, status__in=_REFUSED, ended_at_us__range=(since, until))
    return ended.exclude(reason__in=_HARMLESS)


def _decided(project: UUID, since: int, until: int, earliest: int) -> Any:
    decided = _ended(project, since, until).filter(decided_at_us__range=(earliest, until))
    return decided.order_by("-decided_at_us").values_list(*_COLUMNS)[:_KNOWN]


def _alone(project: UUID, since: int, until: int) -> Any:
    alone = _ended(project, since, until).filter(decided_at_us__isnull=True, status="cancelled")
    return alone.order_by("-ended_at_us").values_list(*_COLUMNS)[:_KNOWN]


_DECIDED: Final = Compiled(_decided, project=UUID, since=int, until=int, earliest=int)
_ALONE: Final = Compiled(_alone, project=UUID, since=int, until=int)


def of(gates: Sequence[Gate]) -> dict[UUID, Before]:
    """The same for gates of one project, whose effects are loaded."""
    listed = [
        Asked(
            one.id,
            one.opened_position,
            one.session_id,
            one.agent_id,
            one.requested_at_us,
            tuple(getattr(one.effect, name) for name in ASK),
        )
        for one in gates
    ]
    return before(gates[0].project_id, listed) if gates else {}


_OWN: Final = ("gate", "position", "status", "reason", "ended_at_us", "session", "agent", "plan_position", "effect")
_COLUMNS: Final = (
    *("id", "opened_position", *_OWN[2:]),
    *(f"effect__{name}" for name in ASK),
)


def _precedes(old: Before, new: Asked) -> bool:
    """True for the same tool in the same session, or of the same agent on the same target, and not the very same."""
    return (
        old.position < new.position
        and old.ended_at_us >= new.at_us - WITHIN_US
        and old.ended_at_us <= new.at_us + (OVERLAP_US if old.status == "cancelled" else 0)
        and old.same[0] == new.same[0]
        and old.same != new.same
        and (old.session == new.session or (old.agent == new.agent and old.same[2:] == new.same[2:]))
    )


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> list[Difference]:
    """What differs between the arguments and the targets of two plans, by name; what is long and alike is cut."""
    found = list(_unlike("", old.get("arguments", _ABSENT), new.get("arguments", _ABSENT)))
    targets = [one if isinstance(one, dict) else {} for one in (old.get("target"), new.get("target"))]
    for name in _TARGET:
        found += _unlike(f"target: {name}", *(one.get(name) or _ABSENT for one in targets))
    return found


def _unlike(name: str, old: Any, new: Any) -> Iterator[Difference]:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in dict.fromkeys((*new, *old)):
            yield from _unlike(f"{name}.{key}" if name else key, old.get(key, _ABSENT), new.get(key, _ABSENT))
    elif _canonical(old) != _canonical(new):
        yield Difference(name or "arguments", *_parted(old, new))


def _canonical(value: Any) -> bytes | None:
    return None if value is _ABSENT else exact.dumps(value, orjson.OPT_SORT_KEYS)


def _parted(old: Any, new: Any) -> tuple[str | None, str | None]:
    """Two values as text. Where they are long, what is alike at their beginning is left away: the rest tells them."""
    was, now = (None if one is _ABSENT else one if isinstance(one, str) else _json(one) for one in (old, new))
    if was is None or now is None or max(len(was), len(now)) <= _SHOWN:
        return was, now
    start = max(0, _alike(was, now) - _CONTEXT)
    return (f"…{was[start:]}", f"…{now[start:]}") if start else (was, now)


def _alike(one: str, other: str) -> int:
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(one, other, strict=False)))


def _json(value: Any) -> str:
    return exact.dumps(value).decode()


def conflicts(gate: Gate, plan: Mapping[str, Any], earlier: Before | None) -> list[Conflict]:
    """What the book says went against the rules with this tool in this session, the newest first. One query."""
    beside = Effect.objects.filter(session=gate.session_id, tool=gate.tool).order_by("-opened_position")
    here = Q(effect__in=beside.values("id")[:_EFFECTS]) | Q(effect=gate.effect_id)
    entries = Entry.objects.filter(
        here if earlier is None else here | Q(effect=earlier.effect),
        project=gate.project_id,
        kind__in=_KINDS,
        lane="system",
    )
    handle = Effect.objects.filter(id=OuterRef("effect")).values("opened_position")
    body = Body.objects.filter(entry=OuterRef("position")).annotate(head=Substr("text", 1, _READ)).values("head")
    read = entries.annotate(handle=Subquery(handle), head=Subquery(body)).order_by("-position")[:MOST_CONFLICTS]
    return [
        Conflict(
            _words(one.kind, orjson.loads(one.facts)),
            one.effect or gate.effect_id,
            f"e_{one.handle}",
            one.position,
            one.received_us,
            one.effect == gate.effect_id,
            _same(one.head, plan) if one.kind == "integrity.conflict" else None,
        )
        for one in read
    ]


def reused(project: UUID, effects: Iterable[UUID]) -> set[UUID]:
    """Those of some effects under whose keys something else was tried. One query."""
    listed = list(effects)
    return {one for (one,) in _CONFLICTS.rows(project=project, effects=listed)} if listed else set()


def _of_effects(project: UUID, effects: Sequence[UUID]) -> Any:
    found = Entry.objects.filter(project=project, effect__in=effects, kind="integrity.conflict", lane="system")
    return found.values_list("effect")


_CONFLICTS: Final = Compiled(_of_effects, project=UUID, effects=[UUID])


_KINDS: Final = ("integrity.conflict", "integrity.violation")


def _words(kind: str, facts: Mapping[str, Any]) -> str:
    if kind == "integrity.violation":
        name = str(facts.get("violation", ""))
        return breaches.WORDS.get(name, name)
    if facts.get("refused") == "INTENT_MISMATCH":
        return "It was to be dispatched with another digest than planned, and refused."
    return "Its key was sent again with other content, and refused."


def _same(head: str | None, plan: Mapping[str, Any]) -> bool | None:
    try:
        sent = exact.loads(head or "")
    except orjson.JSONDecodeError:
        return None
    return sent["arguments"] == plan.get("arguments") if isinstance(sent, dict) and "arguments" in sent else None
