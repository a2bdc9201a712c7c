"""The card of a gate: the facts a person decides by, each with its source, as plain values the server computed.

Facts 1 to 5 and the claim are what was asked; their canonical JSON is hashed, and a vote carries that hash. Facts 6 and
7 (approvals/around.py) are the surroundings: they go on changing and are no part of it.
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

import orjson
import rfc8785
from django.conf import settings

from approvals import reading, words
from approvals.canonical import canonical
from approvals.changes import Changes, changes
from approvals.models import Gate, PolicySet
from approvals.requirement import PARTIES, Requirement
from journal import exact, untrusted
from journal.gists import RUNS
from ledger.models_tools import Tool

COMPUTED: Final = "computed here"
SENT: Final = "sent by the agent, unverified"
UNKNOWN: Final = "unknown"
WORST: Final = "unknown, treat as worst case"
FITS_CHARACTERS: Final = 1200  # in the box of fact 1 and in fact 2 together; what is longer must be ticked as read
FITS_LINES: Final = 10
FITS_NAME: Final = 40  # characters of a name in fact 3
_COUNTED: Final = ("recipients", "count", "limit", "amount", "number", "rows", "issues", "files", "total", "quantity")


@dataclass(frozen=True, slots=True)
class Piece:
    """One argument, whole. `told` is true where fact 2 shows the whole of it instead."""

    name: str
    text: str
    kind: str
    told: bool = False


@dataclass(frozen=True, slots=True)
class Line:
    """One labelled statement with its source."""

    label: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Card:
    """The facts of one gate; see the module."""

    tool: str
    intent: str
    verified: str  # "equal", "different", or "unknown": the arguments, hashed again, against the effect's intent
    pieces: tuple[Piece, ...]  # 1
    hidden: int  # hidden characters in what would run and in the names of its target
    blanks: int  # the longest run of blanks in the arguments, from the length that is shown as a count
    complete: bool
    changes: Changes  # 2
    changes_known: bool
    radius: tuple[Line, ...]  # 3
    undo: tuple[Line, ...]  # 4
    asked: tuple[Line, ...]  # 5
    claim: str
    risk: str

    @property
    def sha256(self) -> str:
        """Of the canonical JSON, as 64 hex characters."""
        return hashlib.sha256(orjson.dumps(self, option=orjson.OPT_SORT_KEYS)).hexdigest()

    @property
    def first(self) -> Piece | None:
        """The argument that says by itself what will run, or the whole where it has no names."""
        named = next((one for name in RUNS for one in self.pieces if one.name == name and not one.told), None)
        return named or next((one for one in self.pieces if not one.name), None)

    @property
    def others(self) -> tuple[Piece, ...]:
        """The arguments beside `first`."""
        first = self.first
        return tuple(one for one in self.pieces if one is not first)

    @property
    def long(self) -> bool:
        """True when the arguments, and what fact 2 shows in their place, are more than a glance takes in."""
        return sum(map(len, self._texts())) > FITS_CHARACTERS or self.lines > FITS_LINES

    @property
    def plain(self) -> bool:
        """True when a glance shows all of it: nothing hidden, pushed out of sight, too long or missing."""
        return self.complete and not (self.hidden or self.blanks or self.long)

    @property
    def lines(self) -> int:
        """Lines that must be read: of the arguments that fact 1 shows, and of what fact 2 shows."""
        return sum(map(_lines, self._texts()))

    def _texts(self) -> Iterator[str]:
        yield from (one.text for one in self.pieces if not one.told)
        yield from (row.text for file in self.changes.files for row in file.rows)
        yield from (f"{one.name} {one.title} {one.author}" for one in self.changes.commits)

    @property
    def names(self) -> tuple[Line, ...]:
        """Every name of the target and every precondition, for where they stand whole."""
        return (Line("Tool", self.tool, SENT), *self.radius, *self.undo[1:])

    @property
    def wide(self) -> bool:
        """True when one of `names` is too long for its place in facts 3 and 4, and all stand whole below."""
        return any(max(len(line.text), len(line.label)) > FITS_NAME for line in self.names)


def of(gate: Gate, plan: Mapping[str, Any] | None = None) -> Card:
    """Compute the card of `gate`, whose `effect` and its `repository` are best loaded with it, from its plan's body."""
    effect = gate.effect
    plan = reading.plan_body(gate.plan_position) if plan is None else plan
    arguments, preconditions = plan.get("arguments"), plan.get("preconditions")
    preconditions = preconditions if isinstance(preconditions, dict) else {}
    found = changes(arguments, preconditions)
    tool = Tool.objects.filter(project=gate.project_id, name=gate.tool).first()
    pieces = _pieces(arguments, found.told)
    claim = plan["why"] if isinstance(plan.get("why"), str) else ""
    verified = _verified(gate.tool, arguments, plan, effect.intent_digest) if plan else "unknown"
    names = (gate.tool, gate.repository_name, effect.ref, effect.environment, effect.resource)
    sent = (*names, *(text for one in pieces for text in (one.name, one.text)))
    return Card(
        tool=gate.tool,
        intent=effect.intent_digest,
        verified=verified,
        pieces=pieces,
        hidden=sum(map(untrusted.hidden_count, sent)),
        blanks=max((blank_run(one.text) for one in pieces), default=0),
        complete=bool(plan) and verified != "different",
        changes=found,
        changes_known=bool(found.files or found.commits) or gate.reversibility == "read",
        radius=_radius(gate, arguments),
        undo=_undo(gate, tool, preconditions),
        asked=_asked(gate),
        claim=claim,
        risk=gate.risk,
    )


def code(intent_digest: str) -> str:
    """The four characters that a person types to say which intent they mean."""
    return intent_digest.rpartition(":")[2][:4]


def blank_run(text: str) -> int:
    """The longest run of blanks in `text`; 0 when every run is one that a page shows as it is."""
    runs = (one for one in untrusted.pieces(text) if one.shown and not one.hidden)
    return max((len(one.raw) for one in runs), default=0)


def _pieces(arguments: Any, told: tuple[str, ...]) -> tuple[Piece, ...]:
    if arguments is None:
        return ()
    if not isinstance(arguments, dict):
        return (Piece("", _shown(arguments), _kind(arguments)),)
    order = sorted(arguments, key=lambda name: (name not in RUNS, "\n" in str(arguments[name])))
    return tuple(Piece(name, _shown(arguments[name]), _kind(arguments[name]), name in told) for name in order)


def _shown(value: Any) -> str:
    """A JSON value as people read it: a string is itself; a list of words is one line, quoted where that matters."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(one, str) for one in value):
        return " ".join(
            one if one and not set(one) & set(" \t\n\"'\\") else orjson.dumps(one).decode() for one in value
        )
    return exact.dumps(value, orjson.OPT_INDENT_2).decode()


def _lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _kind(value: Any) -> str:
    names = {str: "text", bool: "true or false", type(None): "null", list: "list", dict: "object"}
    return names.get(type(value), "number")


def _verified(tool: str, arguments: Any, plan: Mapping[str, Any], intent: str) -> str:
    """Hash the arguments again."""
    free = plan.get("free_text")
    if isinstance(arguments, dict) and isinstance(free, list):
        arguments = {name: value for name, value in arguments.items() if name not in free}
    try:
        text = canonical([tool, arguments])
    except (rfc8785.CanonicalizationError, RecursionError):
        return "unknown"
    digest = "v1:" + hmac.new(settings.GATEBOOK_PEPPER, text, hashlib.sha256).hexdigest()
    return "equal" if hmac.compare_digest(digest, intent) else "different"


def _radius(gate: Gate, arguments: Any) -> tuple[Line, ...]:
    effect = gate.effect
    found = [
        Line("Repository", gate.repository_name or WORST, SENT if gate.repository_name else UNKNOWN),
        Line("Ref", effect.ref or WORST, SENT if effect.ref else UNKNOWN),
    ]
    if effect.ref:
        found.append(Line("Git moves", words.moved_refs(effect.moved_refs), COMPUTED))
        version = f", by patterns v{effect.ref_patterns_version}" if effect.ref_patterns_version else ""
        known = f"{effect.ref_class}{version}" if effect.ref_class else WORST
        found.append(Line("Class of ref", known, COMPUTED if effect.ref_class else UNKNOWN))
        now, patterns = reading.ref_class_now(effect.repository, effect)
        if now != effect.ref_class:
            found.append(Line("Class now", f"{now}, by patterns v{patterns}", COMPUTED))
    found.append(Line("Environment", effect.environment or WORST, SENT if effect.environment else UNKNOWN))
    if effect.resource:
        found.append(Line("Resource", effect.resource, SENT))
    if isinstance(arguments, dict):
        for name in _COUNTED:
            value = arguments.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                found.append(Line(name.capitalize(), f"{value:,}".replace(",", " "), SENT))
            elif isinstance(value, list):
                found.append(Line(name.capitalize(), f"{len(value)} in the arguments", COMPUTED))
    if effect.redactions:
        found.append(Line("Secrets", f"{effect.redactions} replaced before storage", COMPUTED))
    return tuple(found)


def _undo(gate: Gate, tool: Tool | None, preconditions: Mapping[str, Any]) -> tuple[Line, ...]:
    if tool is None:
        found = [Line("No automatic undo.", "The tool is not declared: treat as worst case.", UNKNOWN)]
    else:
        found = [Line(words.UNDO[tool.reversibility], words.CLASSES[tool.tool_class], COMPUTED)]
        if tool.reversibility != gate.reversibility:
            found.append(Line("Declared anew", f"it was {gate.reversibility} when this was asked", COMPUTED))
    for name, value in sorted(preconditions.items()):
        if name not in ("commits", "removed_commits", "commits_removed", "added_commits"):
            found.append(Line(f"Only while {name} is", _shown(value), SENT))
    return tuple(found)


def _asked(gate: Gate) -> tuple[Line, ...]:
    needed = Requirement.of(gate.requirement)
    policy: PolicySet | None = gate.policy_set
    name = f"{policy.name}@{policy.version}" if policy is not None else ""
    rules = policy.rules.get("rules", []) if policy is not None else []
    rule = next((one for one in rules if one.get("id") == gate.rule), None)
    if not gate.rule:
        title = "No rule lets this through, and what no rule lets through is asked about"
    else:
        title = rule["title"].rstrip(".") if rule is not None else gate.rule
    found = (
        Line("Policy", f"{name}, rule {gate.rule}" if gate.rule else name, COMPUTED),
        Line("Rule", title, COMPUTED),
        Line("Needs", words.needs(needed, _parties(gate)), COMPUTED),
    )
    return found if gate.requester is None else (*found, Line("For", gate.requester.get_username(), SENT))


def _parties(gate: Gate) -> list[str]:
    """The names of those who may not say yes because it is theirs."""
    kept_away = Requirement.of(gate.requirement).kept_away
    people = zip(PARTIES, (gate.requester, gate.session_owner, gate.agent_owner), strict=True)
    return sorted({one.get_username() for party, one in people if one is not None and party in kept_away})
