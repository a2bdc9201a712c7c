"""What a rule requires for approval: who, how many, how. Pure; imports no Django."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from approvals.gates import statuses

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
