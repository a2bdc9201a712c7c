"""What a policy says of a wish. Pure, deterministic and quick; knows no Django, no database and no model's opinion.

Deny overrides. Among the rules that ask, the one with more people wins, then step-up, then rationale (`Requirement.
strictness`), then the earlier in the file. Then comes allow, and at last what the project's mode says of the unmatched.
A rule that cannot be evaluated asks, or denies what is irreversible; it never lets pass.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

from approvals.predicates import Unclear, globs, predicate
from approvals.requirement import DEFAULT, Requirement, is_stricter
from approvals.states import RISKS
from sessions import refs

__all__ = [
    "DEFAULT",
    "SAME_CALL",
    "Compiled",
    "Counted",
    "Judgement",
    "Rate",
    "Requirement",
    "Wish",
    "compile_rules",
    "is_stricter",
    "judge",
    "operation_of",
    "risk_of",
]

_PUSHES: Final = {"git", "push"}  # words in the name of a tool that moves refs
_WORDS: Final = re.compile(r"[a-z0-9]+")
_PRODUCTION: Final = {"production", "prod", "prd", "live"}
_KEPT: Final = 4096  # tool names whose rules are remembered; agents make names up


@dataclass(frozen=True, slots=True)
class Wish:
    """One intention as rules see it. Class, reversibility and risk are the server's; labels are the agent's word."""

    tool: str
    repository: str
    ref: str
    ref_class: str
    environment: str
    resource: str
    tool_class: str
    reversibility: str
    declared: bool
    risk: str
    agent: str
    labels: Mapping[str, str]
    arguments: Any
    moved_refs: str = ""  # as an effect stores them

    @property
    def moves(self) -> tuple[str, ...]:
        """The refs that git moves. A push that names none moves what only the repository's configuration says."""
        if self.moved_refs:
            return tuple(self.moved_refs.split())
        if self.ref:
            return refs.moved(self.ref)
        return (refs.ANY,) if set(_WORDS.findall(self.tool.casefold())) >= _PUSHES else ()


class Rate(NamedTuple):
    """How many effects must have been planned before, in the last `within_s` seconds, for a rule to hold.

    `per` tool: with this tool in the project; agent: with it by this agent; session: with it in this session; project:
    with any tool; session_effects: with any tool in this session since it began (`within_s` is 0). Of same_call see
    SAME_CALL.
    """

    over: int
    within_s: int
    per: str


# Effects of other sessions with the same tool and arguments of whose outcome nobody knows.
SAME_CALL: Final = Rate(1, 0, "same_call")


class Suspension(NamedTuple):
    """What an exemption must have to suspend every rule that asks: so many people, and whether any may at all."""

    minimum: int = 1
    allowed: bool = True


class Judgement(NamedTuple):
    """What the policy says. `rule` is empty where none matched, `error` where every rule could be evaluated.

    `asking` are all rules that ask, in the order of the file: only what covers each of them suspends the asking. It is
    empty after an error, which nothing suspends.
    """

    outcome: str  # allow | ask | deny
    rule: str
    requirement: Requirement | None
    error: str = ""
    asking: tuple[str, ...] = ()
    suspension: Suspension = Suspension()


Counted = Callable[[Rate], int]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, its globs compiled."""

    id: str
    outcome: str
    asks: Requirement  # for a rule that does not ask: what is asked when it cannot be evaluated
    strictness: tuple[int, ...]
    exemptible: str  # never | reversible | irreversible: the worst that an exemption may let pass
    for_tool: tuple[Callable[[str], bool], ...]
    checks: tuple[Callable[[Wish], bool], ...]
    arguments: tuple[tuple[str, Callable[[Any], bool]], ...]
    rates: tuple[Rate, ...]
    same_call_unknown: bool  # it asks, and does not allow, where the same call may have happened in another session

    def holds(self, wish: Wish, counted: Counted) -> bool:
        """True when every condition but those about the tool's name holds. Raises what an evaluation raises.

        One condition that is clearly false is enough for no, whatever the others would have said.
        """
        for check in self.checks:
            if not check(wish):
                return False
        unclear: Unclear | None = None
        for path, test in self.arguments:
            try:
                if not test(wish.arguments):
                    return False
            except Unclear as reason:
                unclear = unclear or Unclear(f"argument {path} {reason}")
        for rate in self.rates:
            if counted(rate) < rate.over:
                return False
        if unclear is not None:
            raise unclear
        return True


EXEMPTIBLE: Final = (
    "reversible"  # where a rule says nothing, and where none speaks of it: all but the irreversible
)
_STRICTNESS: Final = attrgetter("strictness")


@dataclass(frozen=True, slots=True)
class Compiled:
    """Rules in the order of the file, and which of them speak of a tool."""

    rules: tuple[Rule, ...]
    _by_tool: dict[str, tuple[Rule, ...]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, tool: str) -> tuple[Rule, ...]:
        """The rules whose conditions about the tool's name hold for `tool`."""
        found = self._by_tool.get(tool)
        if found is None:
            found = tuple(
                rule for rule in self.rules if all(covers(tool) for covers in rule.for_tool)
            )
            if len(self._by_tool) >= _KEPT:
                self._by_tool.clear()
            self._by_tool[tool] = found
        return found


def compile_rules(rules: dict[str, Any]) -> Compiled:
    """Compile what approvals/document.py read."""
    return Compiled(tuple(_compiled(rule) for rule in rules["rules"]))


def judge(compiled: Compiled, wish: Wish, mode: str, counted: Counted) -> Judgement:
    """What the rules say of `wish` in a project of `mode`. Never raises.

    `counted` tells how many effects were planned in the window of a rate; it is asked last and only where all else
    holds.
    """
    allowing = ""
    error = faulty = ""
    asking: list[Rule] = []
    for rule in compiled.of(wish.tool):
        try:
            held = rule.holds(wish, counted)
            asks = rule.outcome == "require" or (
                held and rule.same_call_unknown and counted(SAME_CALL) > 0
            )
        except Exception as fault:  # whatever it was, nobody is let through by it
            reason = (
                str(fault)
                if isinstance(fault, Unclear)
                else f"could not be evaluated ({type(fault).__name__})"
            )
            if not error:
                error, faulty = f"rule {rule.id}: {reason}", rule.id
            asking.append(rule)
            continue
        if not held:
            continue
        if rule.outcome == "deny":
            return Judgement("deny", rule.id, None)
        if asks:
            asking.append(rule)
        elif not allowing:
            allowing = rule.id
    if error and wish.reversibility == "irreversible":
        return Judgement("deny", faulty, None, error)
    if asking:
        strictest = max(asking, key=_STRICTNESS)  # of equals the earlier
        suspendable = () if error else tuple(rule.id for rule in asking)
        suspension = Suspension(
            max(rule.asks.minimum for rule in asking),
            all(_is_exemptible(rule.exemptible, wish) for rule in asking),
        )
        return Judgement("ask", strictest.id, strictest.asks, error, suspendable, suspension)
    if allowing:
        return Judgement("allow", allowing, None)
    harmless = wish.declared and wish.tool_class == "read_only"
    if mode == "observe" or harmless:
        return Judgement("allow", "", None)
    return Judgement("ask", "", DEFAULT, "", ("",), Suspension(1, _is_exemptible(EXEMPTIBLE, wish)))


def _is_exemptible(exemptible: str, wish: Wish) -> bool:
    return exemptible == "irreversible" or (
        exemptible == EXEMPTIBLE and wish.reversibility != "irreversible"
    )


def operation_of(tool: str) -> str:
    """The part of a tool's name after the last dot: `push` of `git.push`."""
    return tool.rpartition(".")[2]


def risk_of(reversibility: str, environment: str, ref_class: str, declared: bool) -> str:
    """The risk of an effect: low | medium | high | critical.

    The reversibility is the operator's declaration and the ref class was stamped on arrival. The environment is the
    agent's word; it can only raise the risk.
    """
    production = ref_class == "production" or names_production(environment)
    if reversibility == "irreversible":
        return "critical" if production else "high"
    if production:
        return "high"
    return (
        "medium"
        if reversibility == "compensable" or ref_class == "protected" or not declared
        else "low"
    )


def names_production(environment: str) -> bool:
    """True when the name of an environment has a word for production in it."""
    words = (
        environment.casefold()
        .replace("-", " ")
        .replace("_", " ")
        .replace("/", " ")
        .replace(".", " ")
        .split()
    )
    return not _PRODUCTION.isdisjoint(words)


def _compiled(rule: dict[str, Any]) -> Rule:
    match = rule["match"]
    for_tool: list[Callable[[str], bool]] = []
    if "tools" in match:
        for_tool.append(globs(match["tools"]))
    if "operations" in match:
        operation = globs(match["operations"])
        for_tool.append(lambda tool: operation(operation_of(tool)))
    rates = [Rate(**match["rate"])] if "rate" in match else []
    if "session_effects_over" in match:
        rates.append(Rate(match["session_effects_over"], 0, "session_effects"))
    asks = Requirement.of(rule["require"]) if rule["require"] is not None else DEFAULT
    return Rule(
        id=rule["id"],
        outcome=rule["outcome"],
        asks=asks,
        strictness=asks.strictness,
        exemptible=rule.get("exemptible") or EXEMPTIBLE,
        for_tool=tuple(for_tool),
        checks=tuple(_checks(match, allows=rule["outcome"] == "allow")),
        arguments=tuple(
            (one["path"], predicate(one, allows=rule["outcome"] == "allow"))
            for one in match.get("arguments", ())
        ),
        rates=tuple(rates),
        same_call_unknown=rule.get("same_call_unknown") == "ask",
    )


def _checks(match: dict[str, Any], *, allows: bool) -> list[Callable[[Wish], bool]]:
    """The conditions about a wish other than its tool and arguments, the cheapest first.

    A rule that allows covers every ref that git may move; one that asks or denies holds where it covers any of them.
    """
    found: list[Callable[[Wish], bool]] = []
    if "ref_classes" in match:
        found.append(_of_class(frozenset(match["ref_classes"]), allows=allows))
    if "reversibility" in match:
        kinds = frozenset(match["reversibility"])
        found.append(lambda wish: wish.reversibility in kinds)
    if "risk_at_least" in match or "risk_at_most" in match:
        least = RISKS.index(match.get("risk_at_least", RISKS[0]))
        most = RISKS.index(match.get("risk_at_most", RISKS[-1]))
        risks = frozenset(RISKS[least : most + 1])
        found.append(lambda wish: wish.risk in risks)
    if "repositories" in match:
        repository = globs(match["repositories"])
        found.append(lambda wish: repository(wish.repository))
    if "refs" in match:
        found.append(covers_refs(match["refs"], surely=allows))
    if "environments" in match:
        environment = globs(match["environments"])
        found.append(lambda wish: environment(wish.environment))
    if "resources" in match:
        resource = globs(match["resources"])
        found.append(lambda wish: resource(wish.resource))
    if "agents" in match:
        agent = globs(match["agents"])
        found.append(lambda wish: agent(wish.agent))
    found += [_label(name, globs([pattern])) for name, pattern in match.get("labels", {}).items()]
    return found


def _of_class(classes: frozenset[str], *, allows: bool) -> Callable[[Wish], bool]:
    """What is stamped is the worst class of several refs; any class up to it can be among them."""

    def check(wish: Wish) -> bool:
        moves = wish.moves
        if len(moves) < 2 and refs.is_clear(moves):
            return wish.ref_class in classes
        among = (
            refs.CLASSES[refs.CLASSES.index(wish.ref_class) :] if wish.ref_class else refs.CLASSES
        )
        return classes.issuperset(among) if allows else not classes.isdisjoint(among)

    return check


def covers_refs(patterns: Iterable[str], *, surely: bool) -> Callable[[Wish], bool]:
    """Whether globs cover the refs of a wish, however they are spelled.

    `surely`: each ref that git may move is covered, by exact case. Else it is enough that one may be, also on a host
    that ignores case; what stands for several refs may always be.
    """
    listed = list(patterns)
    exact, folded = globs(listed), globs([*listed, *map(refs.fold, listed)])
    everything = "*" in listed

    def check(wish: Wish) -> bool:
        moves = wish.moves
        if everything or not moves:
            return exact("")
        if surely:
            known = refs.is_clear(moves)
            return known and all(
                any(map(exact, refs.names(one)))
                for ref in moves
                for one in refs.possible(ref, wish.ref)
            )
        return not refs.is_clear(moves) or any(
            folded(name) or folded(refs.fold(name))
            for ref in moves
            for one in refs.possible(ref, wish.ref)
            for name in refs.names(one)
        )

    return check


def _label(name: str, covers: Callable[[str], bool]) -> Callable[[Wish], bool]:
    def check(wish: Wish) -> bool:
        return name in wish.labels and covers(wish.labels[name])

    return check
