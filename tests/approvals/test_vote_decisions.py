"""The effect of a ballot on a gate, decided without a database."""

from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from approvals.policies.engine import Requirement
from approvals.voting.eligibility import Voter, decide_eligibility
from approvals.voting.quorum import ApprovalVote
from approvals.voting.votes import Ballot, ShownGate, VoteContext, decide_vote

ANN, BEN, OWNER = 1, 2, 3
REASON = "agreed in INC-204"
BALLOT = Ballot("approve", REASON, ShownGate(4, "digest", "card", True, 0))
VOTER = Voter(ANN, "ann", True, (None, OWNER, None))
CONTEXT = VoteContext(
    voter=VOTER,
    has_own_password=True,
    requirement=Requirement(),
    version=4,
    digest="digest",
    minimum=1,
    deny_threshold=1,
)


def approval(number: int, fault: str = "") -> ApprovalVote:
    return ApprovalVote(UUID(int=number), number, "none", 17, fault)


@pytest.mark.parametrize(
    ("minimum", "deny_threshold", "approvals", "denials", "answer", "ruling", "votes"),
    [
        (1, 1, [], [], "approve", "approved", 1),
        (2, 1, [], [], "approve", "", 1),
        (2, 1, [approval(7)], [], "approve", "approved", 2),
        (2, 1, [approval(7, "no_reviewer")], [], "approve", "", 2),
        (2, 1, [approval(7, "part_in_it"), approval(8)], [], "approve", "approved", 3),
        (2, 2, [approval(7)], ["deny"], "approve", "approved", 3),
        (1, 1, [], [], "deny", "denied", 1),
        (1, 1, [], [], "deny_session", "denied_session", 1),
        (1, 2, [], [], "deny", "", 1),
        (1, 2, [], ["deny"], "deny", "denied", 2),
        (1, 2, [], ["deny_session"], "deny", "denied_session", 2),
        (1, 2, [], ["deny"], "deny_session", "denied_session", 2),
        (2, 1, [approval(7)], [], "deny", "denied", 2),
        (1, 3, [], ["deny"], "request_changes", "changes_requested", 2),
    ],
)
def test_votes_rule_at_their_thresholds(
    minimum: int,
    deny_threshold: int,
    approvals: list[ApprovalVote],
    denials: list[str],
    answer: str,
    ruling: str,
    votes: int,
) -> None:
    context = replace(
        CONTEXT,
        minimum=minimum,
        deny_threshold=deny_threshold,
        approvals=tuple(approvals),
        denials=tuple(denials),
    )
    decision = decide_vote(context, replace(BALLOT, answer=answer))
    assert (decision.refusal, decision.ruling, decision.votes) == (None, ruling, votes)
    assert decision.uncounted == tuple(vote for vote in approvals if vote.fault)


@pytest.mark.parametrize(
    ("context", "ballot", "code"),
    [
        ({"has_own_password": False}, {}, "own_password"),
        ({}, {"answer": "maybe"}, "not_eligible"),
        ({"ended": ("expired", "It expired.")}, {}, "expired"),
        ({"voter": replace(VOTER, is_reviewer=False)}, {}, "not_eligible"),
        ({"voter": replace(VOTER, is_reviewer=False)}, {"answer": "deny"}, "not_eligible"),
        ({"voter": replace(VOTER, user_id=OWNER)}, {}, "self_approval"),
        ({"voter": replace(VOTER, user_id=OWNER)}, {"answer": "deny"}, None),
        ({"voter": replace(VOTER, has_resolved=True)}, {}, "self_approval"),
        ({"parties": (None, None, ANN)}, {}, "self_approval"),
        ({"parties": (None, None, ANN)}, {"answer": "deny"}, None),
        ({"parties": (None, None, BEN)}, {}, None),
        ({"has_voted": True}, {}, "duplicate_vote"),
        ({"version": 5}, {}, "stale_view"),
        ({"version": 5}, {"answer": "deny"}, "stale_view"),
        ({"digest": "another"}, {}, "stale_view"),
        ({}, {"shown": BALLOT.shown._replace(complete=False)}, "stale_view"),
        ({}, {"shown": BALLOT.shown._replace(complete=False), "answer": "deny"}, None),
        ({}, {"reason": "x" * 4001}, "rationale_required"),
        ({}, {"reason": ""}, None),
        ({}, {"reason": "", "answer": "deny"}, "rationale_required"),
        ({}, {"reason": "too few", "answer": "deny"}, "rationale_required"),
        ({"requirement": Requirement(rationale="none")}, {"reason": "", "answer": "deny"}, None),
        (
            {"requirement": Requirement(rationale="none")},
            {"reason": "", "answer": "request_changes"},
            "rationale_required",
        ),
        ({"requirement": Requirement(rationale="always")}, {"reason": ""}, "rationale_required"),
        (
            {"requirement": Requirement(rationale="always", ticket="OPS-*")},
            {},
            "rationale_required",
        ),
        ({"requirement": Requirement(rationale="always", ticket="INC-*")}, {}, None),
        ({"requirement": Requirement(step_up="reauth")}, {}, "step_up_required"),
        ({"requirement": Requirement(step_up="reauth")}, {"answer": "deny"}, None),
        ({"requirement": Requirement(step_up="reauth")}, {"step_up": "typed_digest"}, None),
        (
            {"requirement": Requirement(step_up="typed_digest")},
            {"step_up": "reauth"},
            "step_up_required",
        ),
        ({"requirement": Requirement(people=("ben",))}, {}, "not_eligible"),
        ({"requirement": Requirement(people=("ben",))}, {"answer": "deny"}, "not_eligible"),
    ],
)
def test_a_ballot_is_refused_with_a_code(
    context: dict[str, Any], ballot: dict[str, Any], code: str | None
) -> None:
    decision = decide_vote(replace(CONTEXT, **context), replace(BALLOT, **ballot))
    assert (decision.refusal and decision.refusal[0]) == code
    if code is not None:
        assert (decision.ruling, decision.votes) == ("", 0)


@pytest.mark.parametrize(
    ("voter", "requirement", "code", "team"),
    [
        ({}, Requirement(), None, ""),
        ({}, Requirement(teams=("leads",)), "not_eligible", ""),
        (
            {"teams": frozenset({"leads", "ops"})},
            Requirement(teams=("ops", "leads")),
            None,
            "leads",
        ),
        ({"teams": frozenset({"ops"})}, Requirement(teams=("leads",)), "not_eligible", ""),
        ({"teams": frozenset({"ops"})}, Requirement(("ops",), ("ann",)), None, ""),
        ({"user_id": OWNER}, Requirement(), "self_approval", ""),
        ({"user_id": OWNER}, Requirement(("leads",)), "self_approval", ""),
        (
            {"user_id": OWNER},
            Requirement(self_approval=True, distinct_from=("requester",)),
            None,
            "",
        ),
        (
            {"has_resolved": True},
            Requirement(self_approval=True, distinct_from=("session_owner",)),
            None,
            "",
        ),
        ({"is_reviewer": False}, Requirement(people=("ann",)), "not_eligible", ""),
    ],
)
def test_eligibility_follows_role_relation_and_the_eligible_people(
    voter: dict[str, Any], requirement: Requirement, code: str | None, team: str
) -> None:
    eligibility = decide_eligibility(replace(VOTER, **voter), requirement)
    assert (eligibility.refusal and eligibility.refusal[0], eligibility.team) == (code, team)


@pytest.mark.parametrize(("answer", "own"), [("approve", True), ("deny", False)])
def test_an_own_approval_is_marked(answer: str, own: bool) -> None:
    lax = Requirement(self_approval=True, distinct_from=("requester",))
    context = replace(CONTEXT, voter=replace(VOTER, user_id=OWNER), requirement=lax)
    decision = decide_vote(context, replace(BALLOT, answer=answer))
    assert (decision.refusal, decision.own) == (None, own)
