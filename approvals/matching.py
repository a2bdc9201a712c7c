"""Policy rule engine: what the rules say of an input. Pure; imports no Django.

Deny overrides. Among the rules that ask, the one with more people wins, then step-up, then
rationale (`Requirement.strictness`), then the earlier in the file. Then comes allow, then the
default of the project's mode for unmatched inputs. A rule that cannot be evaluated asks, or denies
an irreversible effect; it never allows.
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

_PUSH_WORDS: Final = {"git", "push"}  # words in the name of a tool that moves refs
_WORDS: Final = re.compile(r"[a-z0-9]+")
_PRODUCTION_WORDS: Final = {"production", "prod", "prd", "live"}
_MAX_CACHED_TOOLS: Final = 4096  # agents can invent tool names, so the cache is bounded


@dataclass(frozen=True, slots=True)
class Wish:
    """One plan as rules see it.

    The server sets class, reversibility and risk; the agent claims the labels.
    """

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
        """The refs that git moves.

        A push that names no ref moves those of the repository's configuration, so it could be any.
        """
        if self.moved_refs:
            return tuple(self.moved_refs.split())
        if self.ref:
            return refs.moved(self.ref)
        return (refs.ANY,) if set(_WORDS.findall(self.tool.casefold())) >= _PUSH_WORDS else ()


class Rate(NamedTuple):
    """How many effects must have been planned in the last `within_s` seconds.

    `per` tool: with this tool in the project; agent: with it by this agent; session: with it in
    this session; project: with any tool; session_effects: with any tool in this session since it
    began (`within_s` is 0). For same_call see SAME_CALL.
    """

    over: int
    within_s: int
    per: str


# Effects of other sessions with the same tool and arguments whose outcome is unknown.
SAME_CALL: Final = Rate(1, 0, "same_call")


class Suspension(NamedTuple):
    """What an exemption needs to suspend every rule that asks.

    How many grantors, and whether any exemption is allowed.
    """

    minimum: int = 1
    allowed: bool = True


class Judgement(NamedTuple):
    """The policy's decision. `rule` is empty if none matched.

    `error` is empty if every rule could be evaluated. `asking` lists all rules that ask, in the
    order of the file: an exemption must cover each of them. It is empty after an error, which no
    exemption suspends.
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
    """One rule with compiled globs."""

    id: str
    outcome: str
    asks: Requirement  # of a rule that does not ask: used when it cannot be evaluated
    strictness: tuple[int, ...]
    exemptible: str  # never | reversible | irreversible: the worst that can be exempted
    for_tool: tuple[Callable[[str], bool], ...]
    checks: tuple[Callable[[Wish], bool], ...]
    arguments: tuple[tuple[str, Callable[[Any], bool]], ...]
    rates: tuple[Rate, ...]
    same_call_unknown: bool  # asks if the same call may have happened in another session

    def holds(self, policy_input: Wish, count: Counted) -> bool:
        """True if every condition but those on the tool's name holds.

        Raises what an evaluation raises. One condition that is false is enough for False, even if
        others cannot be evaluated.
        """
        for check in self.checks:
            if not check(policy_input):
                return False
        unclear: Unclear | None = None
        for path, test in self.arguments:
            try:
                if not test(policy_input.arguments):
                    return False
            except Unclear as reason:
                unclear = unclear or Unclear(f"argument {path} {reason}")
        for rate in self.rates:
            if count(rate) < rate.over:
                return False
        if unclear is not None:
            raise unclear
        return True


EXEMPTIBLE: Final = "reversible"  # default: everything but irreversible effects
_STRICTNESS: Final = attrgetter("strictness")


@dataclass(frozen=True, slots=True)
class Compiled:
    """Rules in the order of the file, and an index of them by tool."""

    rules: tuple[Rule, ...]
    _by_tool: dict[str, tuple[Rule, ...]] = field(default_factory=dict, repr=False, compare=False)

    def of(self, tool: str) -> tuple[Rule, ...]:
        """Return the rules whose conditions on the tool's name hold for `tool`."""
        rules = self._by_tool.get(tool)
        if rules is None:
            rules = tuple(
                rule for rule in self.rules if all(covers(tool) for covers in rule.for_tool)
            )
            if len(self._by_tool) >= _MAX_CACHED_TOOLS:
                self._by_tool.clear()
            self._by_tool[tool] = rules
        return rules


def compile_rules(rules: dict[str, Any]) -> Compiled:
    """Compile the rules that approvals/document.py read."""
    return Compiled(tuple(_compile_rule(rule) for rule in rules["rules"]))


def judge(compiled: Compiled, policy_input: Wish, mode: str, count: Counted) -> Judgement:
    """Decide `policy_input` by the rules in a project of `mode`. Never raises.

    `count` returns how many effects were planned in the window of a rate; it is called last, and
    only where all other conditions hold.
    """
    allowing_rule = ""
    error = faulty_rule = ""
    asking_rules: list[Rule] = []
    for rule in compiled.of(policy_input.tool):
        try:
            matches = rule.holds(policy_input, count)
            needs_approval = rule.outcome == "require" or (
                matches and rule.same_call_unknown and count(SAME_CALL) > 0
            )
        except Exception as exception:  # no fault may let an effect pass
            reason = (
                str(exception)
                if isinstance(exception, Unclear)
                else f"could not be evaluated ({type(exception).__name__})"
            )
            if not error:
                error, faulty_rule = f"rule {rule.id}: {reason}", rule.id
            asking_rules.append(rule)
            continue
        if not matches:
            continue
        if rule.outcome == "deny":
            return Judgement("deny", rule.id, None)
        if needs_approval:
            asking_rules.append(rule)
        elif not allowing_rule:
            allowing_rule = rule.id
    if error and policy_input.reversibility == "irreversible":
        return Judgement("deny", faulty_rule, None, error)
    if asking_rules:
        strictest = max(asking_rules, key=_STRICTNESS)  # the earlier of equals
        suspendable = () if error else tuple(rule.id for rule in asking_rules)
        suspension = Suspension(
            max(rule.asks.minimum for rule in asking_rules),
            all(_is_exemptible(rule.exemptible, policy_input) for rule in asking_rules),
        )
        return Judgement("ask", strictest.id, strictest.asks, error, suspendable, suspension)
    if allowing_rule:
        return Judgement("allow", allowing_rule, None)
    is_harmless = policy_input.declared and policy_input.tool_class == "read_only"
    if mode == "observe" or is_harmless:
        return Judgement("allow", "", None)
    return Judgement(
        "ask", "", DEFAULT, "", ("",), Suspension(1, _is_exemptible(EXEMPTIBLE, policy_input))
    )


def _is_exemptible(exemptible: str, policy_input: Wish) -> bool:
    return exemptible == "irreversible" or (
        exemptible == EXEMPTIBLE and policy_input.reversibility != "irreversible"
    )


def operation_of(tool: str) -> str:
    """Return the part of a tool's name after the last dot: `push` of `git.push`."""
    return tool.rpartition(".")[2]


def risk_of(reversibility: str, environment: str, ref_class: str, declared: bool) -> str:
    """Return the risk of an effect: low | medium | high | critical.

    The operator declares the reversibility, and the ref class was stored when the plan arrived. The
    agent claims the environment, which can only raise the risk.
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
    """True if the name of an environment contains a word for production."""
    parts = (
        environment.casefold()
        .replace("-", " ")
        .replace("_", " ")
        .replace("/", " ")
        .replace(".", " ")
        .split()
    )
    return not _PRODUCTION_WORDS.isdisjoint(parts)


def _compile_rule(rule: dict[str, Any]) -> Rule:
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
    requirement = Requirement.of(rule["require"]) if rule["require"] is not None else DEFAULT
    return Rule(
        id=rule["id"],
        outcome=rule["outcome"],
        asks=requirement,
        strictness=requirement.strictness,
        exemptible=rule.get("exemptible") or EXEMPTIBLE,
        for_tool=tuple(for_tool),
        checks=tuple(_compile_checks(match, allows=rule["outcome"] == "allow")),
        arguments=tuple(
            (condition["path"], predicate(condition, allows=rule["outcome"] == "allow"))
            for condition in match.get("arguments", ())
        ),
        rates=tuple(rates),
        same_call_unknown=rule.get("same_call_unknown") == "ask",
    )


def _compile_checks(match: dict[str, Any], *, allows: bool) -> list[Callable[[Wish], bool]]:
    """Return the checks other than those on tool and arguments, the cheapest first.

    A rule that allows must cover every ref that git may move; one that asks or denies matches if it
    covers any of them.
    """
    checks: list[Callable[[Wish], bool]] = []
    if "ref_classes" in match:
        checks.append(_compile_ref_class_check(frozenset(match["ref_classes"]), allows=allows))
    if "reversibility" in match:
        kinds = frozenset(match["reversibility"])
        checks.append(lambda policy_input: policy_input.reversibility in kinds)
    if "risk_at_least" in match or "risk_at_most" in match:
        least = RISKS.index(match.get("risk_at_least", RISKS[0]))
        most = RISKS.index(match.get("risk_at_most", RISKS[-1]))
        risks = frozenset(RISKS[least : most + 1])
        checks.append(lambda policy_input: policy_input.risk in risks)
    if "repositories" in match:
        repository = globs(match["repositories"])
        checks.append(lambda policy_input: repository(policy_input.repository))
    if "refs" in match:
        checks.append(covers_refs(match["refs"], all_refs=allows))
    if "environments" in match:
        environment = globs(match["environments"])
        checks.append(lambda policy_input: environment(policy_input.environment))
    if "resources" in match:
        resource = globs(match["resources"])
        checks.append(lambda policy_input: resource(policy_input.resource))
    if "agents" in match:
        agent = globs(match["agents"])
        checks.append(lambda policy_input: agent(policy_input.agent))
    checks += [
        _compile_label_check(name, globs([pattern]))
        for name, pattern in match.get("labels", {}).items()
    ]
    return checks


def _compile_ref_class_check(classes: frozenset[str], *, allows: bool) -> Callable[[Wish], bool]:
    """Return the check of the ref class.

    The stored class is the worst of several refs, which may include any class up to it.
    """

    def check(policy_input: Wish) -> bool:
        moves = policy_input.moves
        if len(moves) < 2 and refs.is_clear(moves):
            return policy_input.ref_class in classes
        among = (
            refs.CLASSES[refs.CLASSES.index(policy_input.ref_class) :]
            if policy_input.ref_class
            else refs.CLASSES
        )
        return classes.issuperset(among) if allows else not classes.isdisjoint(among)

    return check


def covers_refs(patterns: Iterable[str], *, all_refs: bool) -> Callable[[Wish], bool]:
    """Return a check whether globs cover the refs of an input, in any spelling.

    With `all_refs`, each ref that git may move must be covered, by exact case. Else one that may be
    moved is enough, also on a host that ignores case; a wildcard or unknown ref always may be.
    """
    listed = list(patterns)
    exact, folded = globs(listed), globs([*listed, *map(refs.fold, listed)])
    everything = "*" in listed

    def check(policy_input: Wish) -> bool:
        moves = policy_input.moves
        if everything or not moves:
            return exact("")
        if all_refs:
            is_known = refs.is_clear(moves)
            return is_known and all(
                any(map(exact, refs.names(spelling)))
                for ref in moves
                for spelling in refs.possible(ref, policy_input.ref)
            )
        return not refs.is_clear(moves) or any(
            folded(name) or folded(refs.fold(name))
            for ref in moves
            for spelling in refs.possible(ref, policy_input.ref)
            for name in refs.names(spelling)
        )

    return check


def _compile_label_check(name: str, covers: Callable[[str], bool]) -> Callable[[Wish], bool]:
    def check(policy_input: Wish) -> bool:
        return name in policy_input.labels and covers(policy_input.labels[name])

    return check
