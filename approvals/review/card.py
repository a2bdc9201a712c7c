"""The card of a gate: the facts a reviewer decides by, each with its source.

Facts 1 to 5 and the claim are the request; their canonical JSON is hashed, and every vote stores
that hash. Facts 6 and 7 (approvals/review/context.py) are context: they keep changing and are not
hashed.
"""

import hashlib
import hmac
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import orjson
import rfc8785
from django.conf import settings
from django.db.models import QuerySet

from approvals import labels
from approvals.checks.quantities import NO_UNIT, find_unit
from approvals.diff.from_arguments import Changes, extract_changes
from approvals.diff.hidden_characters import is_prose_argument
from approvals.digest_json import to_canonical_json
from approvals.models import Gate, PolicySet
from approvals.policies import policy_evaluation
from approvals.policies.engine import REQUEST_PARTIES, Requirement
from approvals.review.attached_diffs import AttachedDiff, load_attached_diffs
from db import long_numbers
from db.compiled_query import CompiledQuerySet
from journal.summaries import COMMAND_ARGUMENTS
from ledger.models import Tool
from ledger.tools import cache
from web import untrusted_text

SOURCE_COMPUTED: Final = "computed here"
SOURCE_AGENT: Final = "sent by the agent, unverified"
SOURCE_UNKNOWN: Final = "unknown"
NOT_TOLD: Final = "unknown"  # by the agent; the page asks once to assume the worst
MAX_GLANCE_CHARACTERS: Final = (
    1200  # of facts 1 and 2 together; longer cards must be ticked as read
)
MAX_GLANCE_LINES: Final = 10
MAX_NAME_CHARACTERS: Final = 40  # characters of a name in fact 3
_COUNT_NAMES: Final = (
    "recipients",
    "count",
    "limit",
    "amount",
    "number",
    "rows",
    "issues",
    "files",
    "total",
    "quantity",
)


@dataclass(frozen=True, slots=True)
class CallArgument:
    """One full argument. `shown_above`: fact 2 shows all of it instead."""

    name: str
    text: str
    kind: str
    shown_above: bool = False
    prose: bool = False  # its no-break spaces are typography
    unit: str = ""  # of its number, in the words of the arguments: "currency EUR", "cents"

    @property
    def hidden(self) -> int:
        """Number of hidden characters in its name and text."""
        return untrusted_text.count_hidden_characters(
            self.name
        ) + untrusted_text.count_hidden_characters(self.text, prose=self.prose)


@dataclass(frozen=True, slots=True)
class CardLine:
    """One labelled statement with its source."""

    label: str
    text: str
    source: str

    @property
    def is_computed(self) -> bool:
        """True if the server computed it from declarations and its own records."""
        return self.source == SOURCE_COMPUTED


@dataclass(frozen=True, slots=True)
class Card:
    """The facts of one gate; see the module docstring."""

    tool: str
    intent: str
    verified: str  # arguments hashed again and compared with the intent: equal, different, unknown
    pieces: tuple[CallArgument, ...]  # 1
    hidden: int  # hidden characters in the arguments and in the names of the target
    blanks: int  # the longest run of blanks in the arguments that is shown as a count
    complete: bool
    changes: Changes  # 2
    changes_known: bool
    radius: tuple[CardLine, ...]  # 3
    undo: tuple[CardLine, ...]  # 4
    requirement_lines: tuple[CardLine, ...]  # 5
    claim: str
    risk: str
    attached: tuple[AttachedDiff, ...] = ()  # recorded for the effect, in no argument

    @property
    def sha256(self) -> str:
        """Hash of the canonical JSON, as 64 hex characters."""
        return hashlib.sha256(orjson.dumps(self, option=orjson.OPT_SORT_KEYS)).hexdigest()

    @property
    def first(self) -> CallArgument | None:
        """The argument that names what will run, or all arguments if they have no names."""
        named = next(
            (
                piece
                for name in COMMAND_ARGUMENTS
                for piece in self.pieces
                if piece.name == name and not piece.shown_above
            ),
            None,
        )
        return named or next((piece for piece in self.pieces if not piece.name), None)

    @property
    def others(self) -> tuple[CallArgument, ...]:
        """The arguments other than `first`."""
        first = self.first
        return tuple(piece for piece in self.pieces if piece is not first)

    @property
    def long(self) -> bool:
        """True if the arguments, and what fact 2 shows instead of them, exceed the limits."""
        # Most long ones are so by their lines, and pages ask often.
        texts, limit = self._iterate_texts(), MAX_GLANCE_CHARACTERS
        characters = lines = 0
        for text in texts:
            characters += len(text)
            lines += _count_lines(text)
            if characters > limit or lines > MAX_GLANCE_LINES:
                return True
        return False

    @property
    def plain(self) -> bool:
        """True if nothing is hidden, pushed out of view, too long or missing."""
        return self.complete and not (self.hidden or self.blanks or self.long)

    @property
    def lines(self) -> int:
        """Number of lines to read: arguments in fact 1, and everything in fact 2."""
        return sum(map(_count_lines, self._iterate_texts()))

    def _iterate_texts(self) -> Iterator[str]:
        yield from (piece.text for piece in self.pieces if not piece.shown_above)
        yield from (row.text for file in self.changes.files for row in file.rows)
        for commit in self.changes.commits:
            yield f"{commit.name} {commit.title} {commit.author}"

    @property
    def names(self) -> tuple[CardLine, ...]:
        """All names of the target and all preconditions, to show them in full."""
        preconditions = (line for line in self.undo[1:] if not line.is_computed)
        return (CardLine("Tool", self.tool, SOURCE_AGENT), *self.radius, *preconditions)

    @property
    def wide(self) -> bool:
        """True if one of `names` is too long for facts 3 and 4; all are then listed."""
        return any(
            max(len(line.text), len(line.label)) > MAX_NAME_CHARACTERS for line in self.names
        )


def build_card(gate: Gate, plan: Mapping[str, Any] | None = None) -> Card:
    """Build the card of `gate` from its plan's body.

    Load `gate` with its `effect` and `effect.repository` to save queries.
    """
    effect = gate.effect
    plan = policy_evaluation.load_plan_body(gate.plan_position) if plan is None else plan
    arguments, preconditions = plan.get("arguments"), plan.get("preconditions")
    preconditions = preconditions if isinstance(preconditions, dict) else {}
    changed = extract_changes(arguments, preconditions)
    tool = next(iter(_TOOL.rows(project=gate.project_id, name=gate.tool)), None)
    pieces = _build_pieces(arguments, changed.shown_names)
    claim = plan["why"] if isinstance(plan.get("why"), str) else ""
    verified = (
        _verify_arguments(gate.tool, arguments, plan, effect.intent_digest) if plan else "unknown"
    )
    names = (gate.tool, gate.repository_name, effect.ref, effect.environment, effect.resource)
    return Card(
        tool=gate.tool,
        intent=effect.intent_digest,
        verified=verified,
        pieces=pieces,
        hidden=sum(map(untrusted_text.count_hidden_characters, names))
        + sum(piece.hidden for piece in pieces),
        blanks=max((longest_blank_run(piece.text) for piece in pieces), default=0),
        complete=bool(plan) and verified != "different",
        changes=changed,
        changes_known=bool(changed.files or changed.commits) or gate.reversibility == "read",
        radius=_radius_lines(gate, arguments),
        undo=_undo_lines(gate, tool, policy_evaluation.get_plan_arguments(plan), preconditions),
        requirement_lines=_requirement_lines(gate),
        claim=claim,
        risk=gate.risk,
        attached=load_attached_diffs(gate, plan),
    )


def _select_tool(project: UUID, name: str) -> "QuerySet[Tool]":
    return Tool.objects.filter(project=project, name=name)


_TOOL: Final = CompiledQuerySet(_select_tool, project=UUID, name=str)


def confirmation_code(intent_digest: str) -> str:
    """Return the four characters that a reviewer types to confirm an intent."""
    return intent_digest.rpartition(":")[2][:4]


def longest_blank_run(text: str) -> int:
    """Return the length of the longest run of blanks shown as a count; 0 for none."""
    runs = (
        piece for piece in untrusted_text.split_untrusted(text) if piece.shown and not piece.hidden
    )
    return max((len(piece.raw) for piece in runs), default=0)


def _build_pieces(arguments: Any, shown_as_rows: tuple[str, ...]) -> tuple[CallArgument, ...]:
    if arguments is None:
        return ()
    if not isinstance(arguments, dict):
        prose = is_prose_argument("", arguments, {})
        return (CallArgument("", _format_value(arguments), _type_label(arguments), prose=prose),)
    order = sorted(
        arguments, key=lambda name: (name not in COMMAND_ARGUMENTS, "\n" in str(arguments[name]))
    )
    return tuple(
        CallArgument(
            name,
            _format_value(arguments[name]),
            _type_label(arguments[name]),
            name in shown_as_rows,
            is_prose_argument(name, arguments[name], arguments),
            find_unit(name, arguments),
        )
        for name in order
    )


def _format_value(value: Any) -> str:
    """Format a JSON value: strings as they are, lists of words as one quoted line."""
    if isinstance(value, str):
        return value
    if isinstance(value, list) and value and all(isinstance(item, str) for item in value):
        return " ".join(
            item if item and not set(item) & set(" \t\n\"'\\") else orjson.dumps(item).decode()
            for item in value
        )
    return long_numbers.to_json_bytes(value, orjson.OPT_INDENT_2).decode()


def _count_lines(text: str) -> int:
    return text.count("\n") + (not text.endswith("\n"))


def _type_label(value: Any) -> str:
    names = {str: "text", bool: "true or false", type(None): "null", list: "list", dict: "object"}
    return names.get(type(value), "number")


def _verify_arguments(tool: str, arguments: Any, plan: Mapping[str, Any], intent: str) -> str:
    """Hash the arguments again and compare with `intent`: equal, different or unknown."""
    free = plan.get("free_text")
    if isinstance(arguments, dict) and isinstance(free, list):
        arguments = {name: value for name, value in arguments.items() if name not in free}
    try:
        text = to_canonical_json([tool, arguments])
    except (rfc8785.CanonicalizationError, RecursionError):
        return "unknown"
    digest = "v1:" + hmac.new(settings.GATEBOOK_PEPPER, text, hashlib.sha256).hexdigest()
    return "equal" if hmac.compare_digest(digest, intent) else "different"


def _radius_lines(gate: Gate, arguments: Any) -> tuple[CardLine, ...]:
    effect = gate.effect
    lines = [
        CardLine(
            "Repository",
            gate.repository_name or NOT_TOLD,
            SOURCE_AGENT if gate.repository_name else SOURCE_UNKNOWN,
        ),
        CardLine("Ref", effect.ref or NOT_TOLD, SOURCE_AGENT if effect.ref else SOURCE_UNKNOWN),
    ]
    if effect.ref:
        lines.append(
            CardLine("Git moves", labels.describe_moved_refs(effect.moved_refs), SOURCE_COMPUTED)
        )
        version = (
            f", by patterns v{effect.ref_patterns_version}" if effect.ref_patterns_version else ""
        )
        ref_class = f"{effect.ref_class}{version}" if effect.ref_class else NOT_TOLD
        lines.append(
            CardLine(
                "Ref class", ref_class, SOURCE_COMPUTED if effect.ref_class else SOURCE_UNKNOWN
            )
        )
        now, patterns = policy_evaluation.compute_current_ref_class(effect.repository, effect)
        if now != effect.ref_class:
            lines.append(
                CardLine("Ref class now", f"{now}, by patterns v{patterns}", SOURCE_COMPUTED)
            )
    lines.append(
        CardLine(
            "Environment",
            effect.environment or NOT_TOLD,
            SOURCE_AGENT if effect.environment else SOURCE_UNKNOWN,
        )
    )
    if effect.resource:
        lines.append(CardLine("Resource", effect.resource, SOURCE_AGENT))
    if isinstance(arguments, dict):
        for name in _COUNT_NAMES:
            value = arguments.get(name)
            if isinstance(value, int | float) and not isinstance(value, bool):
                unit = find_unit(name, arguments)
                text = f"{value:,}".replace(",", " ")
                if unit not in ("", NO_UNIT):  # the agent sent it
                    text += f", {unit}"
                lines.append(CardLine(name.capitalize(), text, SOURCE_AGENT))
            elif isinstance(value, list):
                lines.append(
                    CardLine(name.capitalize(), f"{len(value)} in the arguments", SOURCE_COMPUTED)
                )
    if effect.redactions:
        lines.append(
            CardLine("Secrets", f"{effect.redactions} replaced before storage", SOURCE_COMPUTED)
        )
    return tuple(lines)


def _undo_lines(
    gate: Gate, tool: Tool | None, arguments: Any, preconditions: Mapping[str, Any]
) -> tuple[CardLine, ...]:
    if tool is None:
        lines = [
            CardLine(
                "No automatic undo.",
                "The tool is not declared.",
                SOURCE_UNKNOWN,
            )
        ]
    else:
        declaration = cache.build_declaration(tool).raise_by_arguments(arguments)
        lines = [
            CardLine(
                labels.UNDO_LABELS[declaration.reversibility],
                labels.TOOL_CLASS_LABELS[declaration.tool_class],
                SOURCE_COMPUTED,
            )
        ]
        lines += [
            CardLine(f"Raised to {word}:", f"{reason}.", SOURCE_COMPUTED)
            for word, reason in declaration.raised.reasons
        ]
        if declaration.reversibility != gate.reversibility:
            lines.append(
                CardLine(
                    "Declared since", f"was {gate.reversibility} at the request", SOURCE_COMPUTED
                )
            )
    for name, value in sorted(preconditions.items()):
        if name not in ("commits", "removed_commits", "commits_removed", "added_commits"):
            lines.append(CardLine(f"Only while {name} is", _format_value(value), SOURCE_AGENT))
    return tuple(lines)


def _requirement_lines(gate: Gate) -> tuple[CardLine, ...]:
    needed = Requirement.of(gate.requirement)
    policy: PolicySet | None = gate.policy_set
    name = f"{policy.name}@{policy.version}" if policy is not None else ""
    rules = policy.rules.get("rules", []) if policy is not None else []
    rule = next((candidate for candidate in rules if candidate.get("id") == gate.rule), None)
    if not gate.rule:
        title = "No rule allows this effect, so it needs approval"
    else:
        title = rule["title"].rstrip(".") if rule is not None else gate.rule
    lines = (
        CardLine("Policy", f"{name}, rule {gate.rule}" if gate.rule else name, SOURCE_COMPUTED),
        CardLine("Rule", title, SOURCE_COMPUTED),
        CardLine("Needs", labels.describe_needs(needed, _excluded_names(gate)), SOURCE_COMPUTED),
    )
    return (
        lines
        if gate.requester is None
        else (*lines, CardLine("For", gate.requester.get_username(), SOURCE_AGENT))
    )


def _excluded_names(gate: Gate) -> list[str]:
    """Return the names of people who may not approve because the request is theirs."""
    kept_away = Requirement.of(gate.requirement).kept_away
    people = zip(
        REQUEST_PARTIES, (gate.requester, gate.session_owner, gate.agent_owner), strict=True
    )
    return sorted(
        {user.get_username() for party, user in people if user is not None and party in kept_away}
    )
