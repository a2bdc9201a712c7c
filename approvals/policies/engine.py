"""Policy rule engine: what rules require and what they say of an input. Pure; imports no Django.

Deny overrides. Among the rules that ask, the one with more people wins, then step-up, then
rationale (`Requirement.strictness`), then the earlier in the file. Then comes allow, then the
default of the project's mode for unmatched inputs. A rule that cannot be evaluated asks, or denies
an irreversible effect; it never allows.
"""

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any, Final, NamedTuple

from accounts import git_refs
from approvals.gates import statuses
from approvals.gates.statuses import RISKS
from ledger.tools.predicates import PredicateError, compile_globs, compile_predicate

_PUSH_WORDS: Final = {"git", "push"}  # words in the name of a tool that moves refs
_WORDS: Final = re.compile(r"[a-z0-9]+")
_PRODUCTION_WORDS: Final = {"production", "prod", "prd", "live"}
_MAX_CACHED_TOOLS: Final = 4096  # agents can invent tool names, so the cache is bounded


# Who may not approve an effect that they have an interest in.
REQUEST_PARTIES: Final = ("requester", "session_owner", "agent_owner")

# Least proof of an approval of a request with a warning, from the laxest. Each includes those
# before it. typed_name: the reviewer also types a lookalike name, from their own records.
WARNED_PROOFS: Final = ("reauth", "typed_digest", "typed_name")
_WARNED_RANKS: Final = {"": 0} | {name: rank for rank, name in enumerate(WARNED_PROOFS, 1)}


@dataclass(frozen=True, slots=True)
class RequiredEvidence:
    """What a request itself must carry. What is missing is a warning and refuses nothing.

    `tickets` are globs: a word of the request's own fields must match each. `removed_commits` asks
    for the list of commits that a destructive push removes, `plan_hash` for the plan that an
    infrastructure tool applies, `row_count` for the rows that a SQL statement changes, `arguments`
    for values at dot paths.
    """

    tickets: tuple[str, ...] = ()
    removed_commits: bool = False
    plan_hash: bool = False
    row_count: bool = False
    arguments: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return self != NO_EVIDENCE

    def as_dict(self) -> dict[str, Any]:
        """Convert what is required to JSON values."""
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if value
        }

    @classmethod
    def of(cls, stored: dict[str, Any]) -> "RequiredEvidence":
        """Return the evidence that `as_dict` converted."""
        values: dict[str, Any] = {}
        for name, value in stored.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        return cls(**values)

    def combine_with(self, other: "RequiredEvidence") -> "RequiredEvidence":
        """Return the evidence that either requires."""
        return RequiredEvidence(
            tuple(dict.fromkeys((*self.tickets, *other.tickets))),
            self.removed_commits or other.removed_commits,
            self.plan_hash or other.plan_hash,
            self.row_count or other.row_count,
            tuple(dict.fromkeys((*self.arguments, *other.arguments))),
        )

    def is_within(self, other: "RequiredEvidence") -> bool:
        """True if whatever satisfies `other` satisfies this."""
        return (
            set(self.tickets) <= set(other.tickets)
            and set(self.arguments) <= set(other.arguments)
            and self.removed_commits <= other.removed_commits
            and self.plan_hash <= other.plan_hash
            and self.row_count <= other.row_count
        )


NO_EVIDENCE: Final = RequiredEvidence()


@dataclass(frozen=True, slots=True)
class Requirement:
    """Distinct people who must approve, and how.

    Empty `teams` and `people` mean every reviewer of the project.
    """

    teams: tuple[str, ...] = ()
    people: tuple[str, ...] = ()  # user names
    minimum: int = 1
    distinct_from: tuple[str, ...] = REQUEST_PARTIES
    step_up: str = "none"
    deny_threshold: int = 1
    rationale: str = "on_deny"
    rationale_characters: int = 10
    ticket: str = ""  # a glob that a word of the reason must match; empty for none
    decide_within_s: int = statuses.DEFAULT_DECIDE_WITHIN_S
    valid_for_s: int = statuses.DEFAULT_VALID_FOR_S
    self_approval: bool = False
    evidence: RequiredEvidence = NO_EVIDENCE
    proof_on_warning: str = ""  # one of WARNED_PROOFS; empty: a warning raises no proof

    def as_dict(self) -> dict[str, Any]:
        """Convert to JSON values.

        What only some rules have is left out of the others, whose hash it must not change.
        """
        values = {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in asdict(self).items()
            if name not in ("evidence", "proof_on_warning")
        }
        if self.evidence:
            values["evidence"] = self.evidence.as_dict()
        if self.proof_on_warning:
            values["proof_on_warning"] = self.proof_on_warning
        return values

    @classmethod
    def of(cls, stored: dict[str, Any]) -> "Requirement":
        """Return the requirement that `as_dict` converted."""
        values: dict[str, Any] = {}
        for name, value in stored.items():
            values[name] = tuple(value) if isinstance(value, list) else value
        if "evidence" in values:
            values["evidence"] = RequiredEvidence.of(values["evidence"])
        return cls(**values)

    def combine_warnings(self, others: Iterable["Requirement"]) -> "Requirement":
        """Return the same requirement with the evidence and warned proof of all `others` too.

        Warnings ask no other people, so those of every rule that asks apply together.
        """
        evidence, proof = self.evidence, self.proof_on_warning
        for other in others:
            if other.evidence:
                evidence = evidence.combine_with(other.evidence)
            proof = max(proof, other.proof_on_warning, key=_WARNED_RANKS.__getitem__)
        if (evidence, proof) == (self.evidence, self.proof_on_warning):
            return self
        return replace(self, evidence=evidence, proof_on_warning=proof)

    def step_up_when_warned(self) -> str:
        """Return the step-up that an approval of a request with a warning needs."""
        raised = "typed_digest" if self.proof_on_warning == "typed_name" else self.proof_on_warning
        return max(self.step_up, raised or "none", key=statuses.STEP_UPS.index)

    def strengthened(self, reversibility: str, risk: str) -> "Requirement":
        """Return the same requirement, raised to the minimum for the severity.

        Irreversible effects and those of high or critical risk need the typed code; irreversible
        and critical ones a reason; and self-approval is possible for low risk only.
        """
        is_final = reversibility == "irreversible" or risk == "critical"
        return replace(
            self,
            step_up="typed_digest" if is_final or risk in statuses.HIGH_RISKS else self.step_up,
            rationale="always" if is_final else self.rationale,
            self_approval=self.self_approval and risk == "low",
        )

    def met_by(self, step_up: str, reason_characters: int) -> "Requirement":
        """Return what is met if every approval had at least this proof and reason length.

        The ticket is not checked in reasons that were optional.
        """
        enough = not self.ticket and reason_characters >= max(
            statuses.MIN_REASON_CHARS, self.rationale_characters
        )
        proved = max(self.step_up, step_up, key=statuses.STEP_UPS.index)
        return replace(self, step_up=proved, rationale="always" if enough else self.rationale)

    @property
    def kept_away(self) -> tuple[str, ...]:
        """The members of REQUEST_PARTIES who may not approve: all, unless self-approval is on."""
        return self.distinct_from if self.self_approval else REQUEST_PARTIES

    @property
    def reason_of_yes(self) -> int:
        """The minimum length of an approval's reason; 0 if none is needed."""
        return (
            max(statuses.MIN_REASON_CHARS, self.rationale_characters)
            if self.rationale == "always"
            else 0
        )

    @property
    def hash(self) -> str:
        """SHA-256 of the canonical JSON, as 64 hex characters; permission is bound to it."""
        text = json.dumps(self.as_dict(), sort_keys=True, separators=(",", ":"), ensure_ascii=False)
        return hashlib.sha256(text.encode()).hexdigest()

    @property
    def strictness(self) -> tuple[int, ...]:
        """Sort key from the laxest: people, step-up, rationale, its length, ticket, rest.

        It selects which of several requirements people must meet; only `is_stricter_requirement`
        can tell whether one is laxer than another.
        """
        return (
            self.minimum,
            statuses.STEP_UPS.index(self.step_up),
            statuses.RATIONALES.index(self.rationale),
            self.rationale_characters,
            int(bool(self.ticket)),
            len(self.distinct_from),
            -self.deny_threshold,
            -self.valid_for_s,
            -self.decide_within_s,
        )


DEFAULT_REQUIREMENT: Final = Requirement()


def is_stricter_requirement(new: Requirement, old: Requirement) -> bool:
    """True unless whatever met `old` provably meets `new`.

    If true, an approval under `old` must be requested again. Two teams are different people as far
    as can be proved, so only a longer list of teams is laxer.
    """
    wider = not (new.teams or new.people) or (
        bool(old.teams or old.people)
        and set(old.teams) <= set(new.teams)
        and set(old.people) <= set(new.people)
    )
    return not (
        wider
        and new.minimum <= old.minimum
        and set(new.distinct_from) <= set(old.distinct_from)
        and statuses.STEP_UPS.index(new.step_up) <= statuses.STEP_UPS.index(old.step_up)
        and new.deny_threshold >= old.deny_threshold
        and statuses.RATIONALES.index(new.rationale) <= statuses.RATIONALES.index(old.rationale)
        and new.rationale_characters <= old.rationale_characters
        and new.ticket in ("", old.ticket)
        and new.decide_within_s >= old.decide_within_s
        and new.valid_for_s >= old.valid_for_s
        and (new.self_approval or not old.self_approval)
        and new.evidence.is_within(old.evidence)
        and _WARNED_RANKS[new.proof_on_warning]
        <= max(_WARNED_RANKS[old.proof_on_warning], statuses.STEP_UPS.index(old.step_up))
    )


@dataclass(frozen=True, slots=True)
class PolicyInput:
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
    parts: tuple["PolicyInput", ...] = ()  # the other calls that a shell command makes

    @property
    def moves(self) -> tuple[str, ...]:
        """The refs that git moves.

        A push that names no ref moves those of the repository's configuration, so it could be any.
        """
        if self.moved_refs:
            return tuple(self.moved_refs.split())
        if self.ref:
            return git_refs.parse_moved_refs(self.ref)
        return (
            (git_refs.ANY_REF,) if set(_WORDS.findall(self.tool.casefold())) >= _PUSH_WORDS else ()
        )


def digest_parts(parts: Sequence[PolicyInput]) -> str:
    """Return a digest of how the other calls of a command are declared; empty without any."""
    if not parts:
        return ""
    lines = [
        f"{part.tool} {part.tool_class}/{part.reversibility} {part.declared} {part.risk}"
        for part in parts
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]


class PlanRate(NamedTuple):
    """How many effects must have been planned in the last `within_s` seconds.

    `per` tool: with this tool in the project; agent: with it by this agent; session: with it in
    this session; project: with any tool; session_effects: with any tool in this session since it
    began (`within_s` is 0). For same_call see SAME_CALL.
    """

    over: int
    within_s: int
    per: str


# Effects of other sessions with the same tool and arguments whose outcome is unknown.
SAME_CALL: Final = PlanRate(1, 0, "same_call")


class ExemptionRequirement(NamedTuple):
    """How many grantors an exemption needs here, and whether any is allowed."""

    minimum: int = 1
    allowed: bool = True


class PolicyDecision(NamedTuple):
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
    suspension: ExemptionRequirement = ExemptionRequirement()


RateCounter = Callable[[PlanRate], int]


@dataclass(frozen=True, slots=True)
class CompiledRule:
    """One rule with compiled globs."""

    id: str
    outcome: str
    asks: Requirement  # of a rule that does not ask: used when it cannot be evaluated
    strictness: tuple[int, ...]
    exemptible: str  # never | reversible | irreversible: the worst that can be exempted
    for_tool: tuple[Callable[[str], bool], ...]
    checks: tuple[Callable[[PolicyInput], bool], ...]
    arguments: tuple[tuple[str, Callable[[Any], bool]], ...]
    rates: tuple[PlanRate, ...]
    same_call_unknown: bool  # asks if the same call may have happened in another session

    def holds(self, policy_input: PolicyInput, count: RateCounter) -> bool:
        """True if every condition but those on the tool's name holds.

        Raises what an evaluation raises. One condition that is false is enough for False, even if
        others cannot be evaluated.
        """
        for check in self.checks:
            if not check(policy_input):
                return False
        unclear: PredicateError | None = None
        for path, test in self.arguments:
            try:
                if not test(policy_input.arguments):
                    return False
            except PredicateError as reason:
                unclear = unclear or PredicateError(f"argument {path} {reason}")
        for rate in self.rates:
            if count(rate) < rate.over:
                return False
        if unclear is not None:
            raise unclear
        return True


DEFAULT_EXEMPTIBLE: Final = "reversible"  # default: everything but irreversible effects
_STRICTNESS: Final = attrgetter("strictness")
_OUTCOMES: Final = ("allow", "ask", "deny")


@dataclass(frozen=True, slots=True)
class CompiledPolicy:
    """Rules in the order of the file, and an index of them by tool."""

    rules: tuple[CompiledRule, ...]
    _by_tool: dict[str, tuple[CompiledRule, ...]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def of(self, tool: str) -> tuple[CompiledRule, ...]:
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


def compile_rules(rules: dict[str, Any]) -> CompiledPolicy:
    """Compile the rules that approvals/policies/policies_yaml.py read."""
    return CompiledPolicy(tuple(_compile_rule(rule) for rule in rules["rules"]))


def evaluate_rules(
    compiled: CompiledPolicy, policy_input: PolicyInput, mode: str, count: RateCounter
) -> PolicyDecision:
    """Decide `policy_input` by the rules in a project of `mode`. Never raises.

    A shell command is denied if one of its calls is, asks if one of them asks, and is allowed only
    if each is. `count` returns how many effects were planned in the window of a rate; it is called
    last, and only where all other conditions hold.
    """
    decision = _evaluate_one(compiled, policy_input, mode, count)
    for part in policy_input.parts:
        if decision.outcome == "deny":
            return decision
        decision = _combine_decisions(decision, _evaluate_one(compiled, part, mode, count))
    return decision


def _combine_decisions(first: PolicyDecision, second: PolicyDecision) -> PolicyDecision:
    """Return the stricter of two decisions; what both ask for applies together."""
    if first.requirement is None or second.requirement is None:  # one of them does not ask
        return max(first, second, key=lambda decision: _OUTCOMES.index(decision.outcome))
    is_stricter = second.requirement.strictness > first.requirement.strictness
    rule = second.rule if is_stricter else first.rule
    requirement = second.requirement if is_stricter else first.requirement
    error = first.error or second.error
    return PolicyDecision(
        "ask",
        rule,
        requirement.combine_warnings((first.requirement, second.requirement)),
        error,
        () if error else tuple(dict.fromkeys((*first.asking, *second.asking))),
        ExemptionRequirement(
            max(first.suspension.minimum, second.suspension.minimum),
            first.suspension.allowed and second.suspension.allowed,
        ),
    )


def _evaluate_one(
    compiled: CompiledPolicy, policy_input: PolicyInput, mode: str, count: RateCounter
) -> PolicyDecision:
    allowing_rule = ""
    error = faulty_rule = ""
    asking_rules: list[CompiledRule] = []
    for rule in compiled.of(policy_input.tool):
        try:
            matches = rule.holds(policy_input, count)
            needs_approval = rule.outcome == "require" or (
                matches and rule.same_call_unknown and count(SAME_CALL) > 0
            )
        except Exception as exception:  # no fault may let an effect pass
            reason = (
                str(exception)
                if isinstance(exception, PredicateError)
                else f"could not be evaluated ({type(exception).__name__})"
            )
            if not error:
                error, faulty_rule = f"rule {rule.id}: {reason}", rule.id
            asking_rules.append(rule)
            continue
        if not matches:
            continue
        if rule.outcome == "deny":
            return PolicyDecision("deny", rule.id, None)
        if needs_approval:
            asking_rules.append(rule)
        elif not allowing_rule:
            allowing_rule = rule.id
    if error and policy_input.reversibility == "irreversible":
        return PolicyDecision("deny", faulty_rule, None, error)
    if asking_rules:
        strictest = max(asking_rules, key=_STRICTNESS)  # the earlier of equals
        suspendable = () if error else tuple(rule.id for rule in asking_rules)
        suspension = ExemptionRequirement(
            max(rule.asks.minimum for rule in asking_rules),
            all(_is_exemptible(rule.exemptible, policy_input) for rule in asking_rules),
        )
        requirement = strictest.asks
        if len(asking_rules) > 1:
            requirement = requirement.combine_warnings(rule.asks for rule in asking_rules)
        return PolicyDecision("ask", strictest.id, requirement, error, suspendable, suspension)
    if allowing_rule:
        return PolicyDecision("allow", allowing_rule, None)
    is_harmless = policy_input.declared and policy_input.tool_class == "read_only"
    if mode == "observe" or is_harmless:
        return PolicyDecision("allow", "", None)
    return PolicyDecision(
        "ask",
        "",
        DEFAULT_REQUIREMENT,
        "",
        ("",),
        ExemptionRequirement(1, _is_exemptible(DEFAULT_EXEMPTIBLE, policy_input)),
    )


def _is_exemptible(exemptible: str, policy_input: PolicyInput) -> bool:
    return exemptible == "irreversible" or (
        exemptible == DEFAULT_EXEMPTIBLE and policy_input.reversibility != "irreversible"
    )


def get_operation(tool: str) -> str:
    """Return the part of a tool's name after the last dot: `push` of `git.push`."""
    return tool.rpartition(".")[2]


def compute_risk(reversibility: str, environment: str, ref_class: str, declared: bool) -> str:
    """Return the risk of an effect: low | medium | high | critical.

    The operator declares the reversibility, and the ref class was stored when the plan arrived. The
    agent claims the environment, which can only raise the risk.
    """
    production = ref_class == "production" or is_production_name(environment)
    if reversibility == "irreversible":
        return "critical" if production else "high"
    if production:
        return "high"
    return (
        "medium"
        if reversibility == "compensable" or ref_class == "protected" or not declared
        else "low"
    )


def is_production_name(environment: str) -> bool:
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


def _compile_rule(rule: dict[str, Any]) -> CompiledRule:
    match = rule["match"]
    for_tool: list[Callable[[str], bool]] = []
    if "tools" in match:
        for_tool.append(compile_globs(match["tools"]))
    if "operations" in match:
        operation = compile_globs(match["operations"])
        for_tool.append(lambda tool: operation(get_operation(tool)))
    rates = [PlanRate(**match["rate"])] if "rate" in match else []
    if "session_effects_over" in match:
        rates.append(PlanRate(match["session_effects_over"], 0, "session_effects"))
    requirement = (
        Requirement.of(rule["require"]) if rule["require"] is not None else DEFAULT_REQUIREMENT
    )
    return CompiledRule(
        id=rule["id"],
        outcome=rule["outcome"],
        asks=requirement,
        strictness=requirement.strictness,
        exemptible=rule.get("exemptible") or DEFAULT_EXEMPTIBLE,
        for_tool=tuple(for_tool),
        checks=tuple(_compile_checks(match, allows=rule["outcome"] == "allow")),
        arguments=tuple(
            (condition["path"], compile_predicate(condition, allows=rule["outcome"] == "allow"))
            for condition in match.get("arguments", ())
        ),
        rates=tuple(rates),
        same_call_unknown=rule.get("same_call_unknown") == "ask",
    )


def _compile_checks(match: dict[str, Any], *, allows: bool) -> list[Callable[[PolicyInput], bool]]:
    """Return the checks other than those on tool and arguments, the cheapest first.

    A rule that allows must cover every ref that git may move; one that asks or denies matches if it
    covers any of them.
    """
    checks: list[Callable[[PolicyInput], bool]] = []
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
        repository = compile_globs(match["repositories"])
        checks.append(lambda policy_input: repository(policy_input.repository))
    if "refs" in match:
        checks.append(compile_ref_check(match["refs"], all_refs=allows))
    if "environments" in match:
        environment = compile_globs(match["environments"])
        checks.append(lambda policy_input: environment(policy_input.environment))
    if "resources" in match:
        resource = compile_globs(match["resources"])
        checks.append(lambda policy_input: resource(policy_input.resource))
    if "agents" in match:
        agent = compile_globs(match["agents"])
        checks.append(lambda policy_input: agent(policy_input.agent))
    checks += [
        _compile_label_check(name, compile_globs([pattern]))
        for name, pattern in match.get("labels", {}).items()
    ]
    return checks


def _compile_ref_class_check(
    classes: frozenset[str], *, allows: bool
) -> Callable[[PolicyInput], bool]:
    """Return the check of the ref class.

    The stored class is the worst of several refs, which may include any class up to it.
    """

    def check(policy_input: PolicyInput) -> bool:
        moves = policy_input.moves
        if len(moves) < 2 and git_refs.are_refs_exact(moves):
            return policy_input.ref_class in classes
        among = (
            git_refs.REF_CLASSES_WORST_FIRST[
                git_refs.REF_CLASSES_WORST_FIRST.index(policy_input.ref_class) :
            ]
            if policy_input.ref_class
            else git_refs.REF_CLASSES_WORST_FIRST
        )
        return classes.issuperset(among) if allows else not classes.isdisjoint(among)

    return check


def compile_ref_check(patterns: Iterable[str], *, all_refs: bool) -> Callable[[PolicyInput], bool]:
    """Return a check whether globs cover the refs of an input, in any spelling.

    With `all_refs`, each ref that git may move must be covered, by exact case. Else one that may be
    moved is enough, also on a host that ignores case; a wildcard or unknown ref always may be.
    """
    listed = list(patterns)
    exact, folded = compile_globs(listed), compile_globs([*listed, *map(git_refs.fold_ref, listed)])
    everything = "*" in listed

    def check(policy_input: PolicyInput) -> bool:
        moves = policy_input.moves
        if everything or not moves:
            return exact("")
        if all_refs:
            is_known = git_refs.are_refs_exact(moves)
            return is_known and all(
                any(map(exact, git_refs.ref_names(spelling)))
                for ref in moves
                for spelling in git_refs.possible_refs(ref, policy_input.ref)
            )
        return not git_refs.are_refs_exact(moves) or any(
            folded(name) or folded(git_refs.fold_ref(name))
            for ref in moves
            for spelling in git_refs.possible_refs(ref, policy_input.ref)
            for name in git_refs.ref_names(spelling)
        )

    return check


def _compile_label_check(name: str, covers: Callable[[str], bool]) -> Callable[[PolicyInput], bool]:
    def check(policy_input: PolicyInput) -> bool:
        return name in policy_input.labels and covers(policy_input.labels[name])

    return check
