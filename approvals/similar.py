"""Fact 6 of a card: how requests like this one were decided, and in exactly what they are like it.

A yes to something else is no comfort, and a no to something else no warning. What shares only the tool is therefore
named without its answer.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from django.db.models import F, OuterRef, Subquery
from django.db.models.functions import Substr

from approvals import pushes
from approvals.binding import is_named
from approvals.deadlines import current_status
from approvals.flags import ASK, NOES, REFUSED, Again, asked_again
from approvals.models import Gate, Vote
from approvals.reading import plan_body
from journal import gists
from journal.clock import now_us
from journal.models import Body

SHOWN: Final = 5  # of each degree
_LOOKED_AT: Final = 40  # the newest of the same tool and repository
_READ: Final = 2048  # characters of a plan that its kind is told by
_DEGREES: Final = (
    *("same arguments and target", "same arguments, no target named", "same arguments, another target"),
    "same target and kind of call",
)
_COMMANDS: Final = ("command", "cmd", "commands", "code", "script", "sql")
_PARTS: Final = re.compile(r"[;&|\n]+")
_BEFORE_A_PROGRAM: Final = re.compile(r"(?:\w+=\S*\s+|sudo\s+|env\s+|time\s+|nohup\s+|\s+)*")
_WITH_VERBS: Final = frozenset(
    [
        *("apt", "apt-get", "aws", "az", "brew", "cargo", "docker", "gcloud", "gh", "git", "go", "helm", "kubectl"),
        *("make", "npm", "pip", "pnpm", "systemctl", "terraform", "uv", "yarn"),
    ]
)
_WORD: Final = re.compile(r"[A-Za-z][\w-]*")


class Alike(NamedTuple):
    """Gates that are like another in the same things, newest first, and how they were decided."""

    words: str
    gates: list[Gate]

    @property
    def counted(self) -> str:
        """How they were decided, in words: 3 approved, 1 denied, 1 waiting."""
        kinds = Counter(_KIND[gate.status] for gate in self.gates)
        return ", ".join(f"{number} {kind}" for kind, number in kinds.items())


@dataclass(slots=True)
class Similar:
    """What is like a request, the likest first; `others` share its tool and repository and no more.

    `again` is the last no to exactly this, in any session; it then stands in `last_no` too. Else `last_no` is that of
    what is alike.
    """

    alike: list[Alike] = field(default_factory=list)
    others: list[Gate] = field(default_factory=list)
    last_no: Vote | None = None
    said: str = ""
    again: Again | None = None


_KIND: Final = {
    **dict.fromkeys(("approved", "used", "lapsed"), "approved"),
    **dict.fromkeys(("denied", "denied_final"), "denied"),
    **{name: name for name in ("returned", "expired", "revoked", "cancelled")},
    "pending": "waiting",
}


def similar(gate: Gate, plan: Mapping[str, Any]) -> Similar:
    """How other requests like `gate`, whose plan's body is `plan`, were decided, in at most five queries."""
    same = tuple(getattr(gate.effect, name) for name in ASK)
    own = kind(gate.tool, plan)
    found = Similar()
    degrees: list[list[Gate]] = [[] for _ in _DEGREES]
    now = now_us()
    for one in _neighbours(gate):
        one.status = current_status(one, now)
        degree = _degree(same, own, one)
        (found.others if degree is None else degrees[degree]).append(one)
    found.alike = [Alike(words, gates[:SHOWN]) for words, gates in zip(_DEGREES, degrees, strict=True) if gates]
    found.again = asked_again([gate]).get(gate.id)
    refused = [one.id for alike in found.alike for one in alike.gates if one.status in REFUSED]
    if found.again is not None:
        found.last_no = found.again.vote
    elif refused:
        noes = Vote.objects.filter(gate__in=refused, answer__in=NOES).select_related("user")
        found.last_no = noes.order_by("-voted_at_us").first()
    if found.last_no is not None:
        reason = plan_body(found.last_no.position).get("reason")
        found.said = reason if isinstance(reason, str) else ""
    return found


def _neighbours(gate: Gate) -> list[Any]:
    plan = Body.objects.filter(entry=OuterRef("plan_position")).annotate(head=Substr("text", 1, _READ))
    near = Gate.objects.filter(project=gate.project_id, tool=gate.tool, repository_name=gate.repository_name)
    told = near.exclude(id=gate.id).annotate(
        head=Subquery(plan.values("head")), **{f"effect_{name}": F(f"effect__{name}") for name in ASK}
    )
    return list(told.order_by("-opened_position")[:_LOOKED_AT])


def _degree(same: tuple[Any, ...], own: object, other: Any) -> int | None:
    """How like another request is, 0 the most; None when it shares no more than the tool."""
    its = tuple(getattr(other, f"effect_{name}") for name in ASK)
    named = is_named(same[2:])
    if its == same:
        return 0 if named else 1
    if its[:2] == same[:2]:
        return 2
    if its[2:] != same[2:] or not named or not other.head:
        return None
    plan = gists.parsed(other.head) or gists.parsed(gists.closed(other.head))
    return 3 if kind(other.tool, plan) == own else None


def kind(tool: str, plan: Mapping[str, Any]) -> object:
    """What a call is like apart from its values: the names of its arguments, what it runs and with which options."""
    arguments = plan.get("arguments")
    named = arguments if isinstance(arguments, dict) else {"": arguments}
    switched = {name for name, value in named.items() if value is True}
    runs = {word for name in (*_COMMANDS, "") for word in _programs(named.get(name))}
    return frozenset(named), switched, runs, pushes.takes(tool, arguments, plan.get("preconditions"))


def _programs(value: Any) -> Iterator[str]:
    """Each program of a command with its verb, if it takes one, and its options: git push --force, rm -rf, DELETE."""
    if isinstance(value, list) and all(isinstance(one, str) for one in value):
        value = " ".join(value)
    if not isinstance(value, str):
        return
    for part in _PARTS.split(value):
        words = _BEFORE_A_PROGRAM.sub("", part, count=1).split()
        if not words:
            continue
        program = words[0].rpartition("/")[2]
        verb = next((word for word in words[1:] if _WORD.fullmatch(word)), "") if program in _WITH_VERBS else ""
        options = sorted({word.partition("=")[0] for word in words[1:] if word.startswith("-")})
        yield " ".join([program, verb, *options])
