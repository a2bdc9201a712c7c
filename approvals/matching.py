"""What a policy says of a wish. Pure, deterministic and quick; knows no Django, no database and no model's opinion.

Deny overrides. Among the rules that ask, the one with more people wins, then step-up, then rationale (`Requirement.
strictness`), then the earlier in the file. Then comes allow, and at last what the project's mode says of the unmatched.
A rule that cannot be evaluated asks, or denies what is irreversible; it never lets pass.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple

from approvals.predicates import Unclear, globs, predicate
from approvals.requirement import DEFAULT, Requirement, is_stricter
from approvals.states import RISKS

__all__ = [
    "DEFAULT",
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

_PREFIXES: Final = ("refs/heads/", "refs/tags/")
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


class Rate(NamedTuple):
    """How many effects must have been planned before, in the last `within_s` seconds, for a rule to hold.

    `per` tool: with this tool in the project; agent: with it by this agent; session: with it in this session; project:
    with any tool; session_effects: with any tool in this session since it began (`within_s` is 0).
    """

    over: int
    within_s: int
    per: str


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


Counted = Callable[[Rate], int]


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule, its globs compiled."""

    id: str
    outcome: str
    asks: Requirement  # for a rule that does not ask: what is asked when it cannot be evaluated
    strictness: tuple[int, ...]
    for_tool: tuple[Callable[[str], bool], ...]
    checks: tuple[Callable[[Wish], bool], ...]
    arguments: tuple[tuple[str, Callable[[Any], bool]], ...]
    rates: tuple[Rate, ...]

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
            found = tuple(rule for rule in self.rules if all(covers(tool) for covers in rule.for_tool))
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
        except Exception as fault:  # whatever it was, nobody is let through by it
            reason = str(fault) if isinstance(fault, Unclear) else f"could not be evaluated ({type(fault).__name__})"
            if not error:
                error, faulty = f"rule {rule.id}: {reason}", rule.id
            asking.append(rule)
            continue
        if not held:
            continue
        if rule.outcome == "deny":
            return Judgement("deny", rule.id, None)
        if rule.outcome == "require":
            asking.append(rule)
        elif not allowing:
            allowing = rule.id
    if error and wish.reversibility == "irreversible":
        return Judgement("deny", faulty, None, error)
    if asking:
        strictest = max(asking, key=_STRICTNESS)  # of equals the earlier
        suspendable = () if error else tuple(rule.id for rule in asking)
        return Judgement("ask", strictest.id, strictest.asks, error, suspendable)
    if allowing:
        return Judgement("allow", allowing, None)
    harmless = wish.declared and wish.tool_class == "read_only"
    if mode == "observe" or harmless:
        return Judgement("allow", "", None)
    return Judgement("ask", "", DEFAULT, asking=("",))


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
    return "medium" if reversibility == "compensable" or ref_class == "protected" or not declared else "low"


def names_production(environment: str) -> bool:
    """True when the name of an environment has a word for production in it."""
    words = environment.casefold().replace("-", " ").replace("_", " ").replace("/", " ").replace(".", " ").split()
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
        for_tool=tuple(for_tool),
        checks=tuple(_checks(match)),
        arguments=tuple(
            (one["path"], predicate(one, allows=rule["outcome"] == "allow")) for one in match.get("arguments", ())
        ),
        rates=tuple(rates),
    )


def _checks(match: dict[str, Any]) -> list[Callable[[Wish], bool]]:
    """The conditions about a wish other than its tool and arguments, the cheapest first."""
    found: list[Callable[[Wish], bool]] = []
    if "ref_classes" in match:
        classes = frozenset(match["ref_classes"])
        found.append(lambda wish: wish.ref_class in classes)
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
        ref = globs(match["refs"])
        found.append(lambda wish: ref(wish.ref) or ref(_short(wish.ref)))
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


def _label(name: str, covers: Callable[[str], bool]) -> Callable[[Wish], bool]:
    def check(wish: Wish) -> bool:
        return name in wish.labels and covers(wish.labels[name])

    return check


def _short(ref: str) -> str:
    """`refs/heads/main` as `main`, so that a rule covers a ref however an agent spells it."""
    for prefix in _PREFIXES:
        if ref.startswith(prefix):
            return ref[len(prefix) :]
    return ref
