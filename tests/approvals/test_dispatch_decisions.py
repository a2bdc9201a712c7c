"""The decisions on a dispatch, as tables: context in, decision out, without a database."""

from dataclasses import replace
from typing import Any, Final
from uuid import UUID

import pytest

from approvals.digests import compute_preconditions_digest
from approvals.dispatch_command import (
    AttemptContext,
    AttemptDecision,
    DispatchArguments,
    DispatchContext,
    DispatchRequest,
    PermissionDecision,
    PermissionUse,
    decide_attempt,
    decide_permission_use,
    find_dispatch_refusal,
)
from approvals.models import Exemption, Gate
from approvals.policies.engine import Requirement
from approvals.policies.policy_evaluation import CommandContext, Severity
from approvals.voting.quorum import ApprovalVote
from ledger.dispatch import FIRST_ATTEMPT
from ledger.permissions import Grant
from ledger.store.effect_rows import AttemptRow, EffectRow
from ledger.verdicts.evaluate import Evaluation, UncertainAttempt
from ledger.verdicts.table import Verdict, VerdictInput
from sessions.writers import StaleEpoch
from tests.approvals.test_plan_decisions import evaluation

pytestmark = pytest.mark.once
NOW: Final = 1_000_000_000_000_000
S: Final = 1_000_000
SESSION, EFFECT, GATE, DENIED, AGENT, OTHER, PROJECT = (UUID(int=number) for number in range(1, 8))
USED, NEWER = (Exemption(id=UUID(int=number), ends_at_us=NOW + 5 * S) for number in (11, 12))
WITHDRAWN: Final = Grant("none", "revoked")
REQUEST: Final = DispatchRequest(EFFECT, "p-1", lambda _tool: "v1:1")
POLICY: Final = evaluation("allow").policy
ENFORCED: Final = CommandContext(POLICY)
REQUIREMENT: Final = Requirement(minimum=1)


def context(permission: str = "granted", basis: str = "policy", **fields: Any) -> DispatchContext:
    """An effect that its own agent dispatches; `fields` of the row override the defaults."""
    own = {name: fields.pop(name) for name in list(fields) if name in DispatchContext.__slots__}
    names = (EFFECT, PROJECT, SESSION, AGENT, "e-1", 7, NOW, NOW)
    row = EffectRow(
        *names, intent_digest="v1:1", permission=permission, permission_basis=basis, **fields
    )
    return replace(DispatchContext(row, {}, AGENT, "v1:1", ENFORCED), **own)


def exempted() -> DispatchContext:
    return context(basis="exemption", permission_ref=USED.id.hex)


def gated(**fields: Any) -> PermissionUse:
    """A permission by one vote, for an action that is unchanged since."""
    requirement = REQUIREMENT.as_dict()
    gate = Gate(
        id=GATE,
        digest="v1:seen",
        minimum=1,
        requirement=requirement,
        requirement_hash=REQUIREMENT.hash,
        preconditions_digest=fields.pop("preconditions_digest", ""),
    )
    vote = ApprovalVote(UUID(int=30), 1, "none", 0, fields.pop("fault", ""))
    return replace(PermissionUse(gate=gate, digest="v1:seen", approvals=(vote,)), **fields)


@pytest.mark.parametrize(
    ("loaded", "code"),
    [
        (context(), None),
        (context(intent_digest="v1:1"), None),
        (replace(context(), intent_digest="v1:2"), "INTENT_MISMATCH"),
        (replace(context(), intent_digest=""), "INTENT_MISMATCH"),
        (context(stale_lease=StaleEpoch(1, 2)), "LEASE_LOST"),
        (context(stale_lease=StaleEpoch(1, 2), is_stopped=True), "LEASE_LOST"),
        (context(is_stopped=True), "STOPPED"),
    ],
)
def test_the_refusal_of_a_dispatch(loaded: DispatchContext, code: str | None) -> None:
    refusal = find_dispatch_refusal(loaded)
    assert (refusal and refusal.code) == code


def sent(value: str, *, leaves_out: bool = True) -> DispatchRequest:
    return replace(REQUEST, arguments=DispatchArguments({"why": value}, leaves_out))


PLANNED: Final = {"arguments": {"why": "fix"}}
SEVERITY: Final = Severity("compensable", "medium")
STRICTER: Final = gated(evaluation=evaluation("ask"), severity=SEVERITY)
SAME_ASK: Final = evaluation("ask")._replace(
    decision=evaluation("ask").decision._replace(requirement=REQUIREMENT)
)
UNCHANGED: Final = PermissionDecision()


@pytest.mark.parametrize(
    ("request_", "loaded", "use", "reason", "decision"),
    [
        pytest.param(REQUEST, context(), PermissionUse(), "", UNCHANGED, id="nothing changed"),
        pytest.param(
            REQUEST, context(agent=OTHER), PermissionUse(), "digest_mismatch", UNCHANGED,
            id="another agent's permission",
        ),
        pytest.param(
            REQUEST, context(agent=OTHER, command=CommandContext(None)), PermissionUse(), "",
            UNCHANGED, id="another agent without a policy",
        ),
        pytest.param(
            sent("fix"), context(), PermissionUse(plan=PLANNED), "", UNCHANGED,
            id="the planned arguments",
        ),
        pytest.param(
            sent("hack"), context(), PermissionUse(plan=PLANNED), "digest_mismatch", UNCHANGED,
            id="other free text",
        ),
        pytest.param(
            sent("hack", leaves_out=False), context(), PermissionUse(plan=PLANNED), "", UNCHANGED,
            id="the intent holds all arguments",
        ),
        pytest.param(
            sent("fix"), context(), PermissionUse(plan={}), "digest_mismatch", UNCHANGED,
            id="an erased plan",
        ),
        pytest.param(
            REQUEST, context(), PermissionUse(denied_gate=DENIED), "denied_session",
            PermissionDecision(grant=Grant("denied", "ruling", DENIED.hex)),
            id="denied for the session",
        ),
        pytest.param(
            REQUEST, context(basis="ruling"), gated(denied_gate=DENIED), "denied_session",
            PermissionDecision(grant=Grant("denied", "ruling", DENIED.hex), revokes_gate=True),
            id="denied for the session after an approval",
        ),
        pytest.param(
            REQUEST, context(), PermissionUse(evaluation=evaluation("allow")), "", UNCHANGED,
            id="new rules still allow it",
        ),
        pytest.param(
            REQUEST, context(), PermissionUse(evaluation=evaluation("ask")),
            "requirement_changed", PermissionDecision(grant=WITHDRAWN), id="new rules ask people",
        ),
        pytest.param(
            REQUEST, exempted(), PermissionUse(), "revoked", PermissionDecision(grant=WITHDRAWN),
            id="a revoked exemption",
        ),
        pytest.param(
            REQUEST, exempted(),
            PermissionUse(evaluation=evaluation("ask"), is_exemption_valid=True, exemption=USED),
            "", UNCHANGED, id="the same exemption",
        ),
        pytest.param(
            REQUEST, exempted(),
            PermissionUse(evaluation=evaluation("ask"), is_exemption_valid=True, exemption=NEWER),
            "",
            PermissionDecision(
                grant=Grant("granted", "exemption", NEWER.id.hex, NEWER.ends_at_us),
                exemption=NEWER,
            ),
            id="another exemption",
        ),
        pytest.param(
            REQUEST, exempted(),
            PermissionUse(evaluation=evaluation("ask"), is_exemption_valid=True),
            "requirement_changed", PermissionDecision(grant=WITHDRAWN),
            id="the exemption no longer covers it",
        ),
        pytest.param(REQUEST, context(basis="ruling"), gated(), "", UNCHANGED, id="approved"),
        pytest.param(
            REQUEST, context(basis="ruling"), gated(digest="v1:other"), "digest_mismatch",
            PermissionDecision(revokes_gate=True), id="another action than people saw",
        ),
        pytest.param(
            REQUEST, context(basis="ruling"),
            gated(preconditions_digest=compute_preconditions_digest({"head": "a"})),
            "precondition_changed", PermissionDecision(revokes_gate=True),
            id="missing preconditions",
        ),
        pytest.param(
            replace(REQUEST, preconditions={"head": "a"}), context(basis="ruling"),
            gated(preconditions_digest=compute_preconditions_digest({"head": "a"})), "",
            UNCHANGED, id="the same preconditions",
        ),
        pytest.param(
            REQUEST, context(basis="ruling"), gated(fault="no_reviewer"), "quorum_lost",
            PermissionDecision(revokes_gate=True), id="the approver may not vote any more",
        ),
        pytest.param(
            REQUEST, context(basis="ruling"), STRICTER, "requirement_changed",
            PermissionDecision(revokes_gate=True), id="new rules require more people",
        ),
        pytest.param(
            REQUEST, context(basis="ruling"), gated(evaluation=SAME_ASK, severity=SEVERITY), "",
            UNCHANGED, id="new rules require the same",
        ),
        pytest.param(
            REQUEST, context(basis="ruling"), gated(evaluation=evaluation("deny")),
            "requirement_changed", PermissionDecision(revokes_gate=True), id="new rules deny it",
        ),
    ],
)  # fmt: skip
def test_the_use_of_a_permission(
    request_: DispatchRequest,
    loaded: DispatchContext,
    use: PermissionUse,
    reason: str,
    decision: PermissionDecision,
) -> None:
    """`decision` is the expected decision except for its refusal, whose reason is `reason`."""
    decided = decide_permission_use(request_, loaded, use)
    assert (decided.refusal.reason if decided.refusal is not None else "") == reason
    assert replace(decided, refusal=None) == decision


def attempted(permission: str, basis: str = "policy", *, is_open: bool = False) -> DispatchContext:
    """An effect after its first attempt, which was dispatched and never answered."""
    first = AttemptRow(PROJECT, EFFECT, 1, "gbk-1", "used", is_open=is_open)
    state = "dispatched" if is_open else "failed"
    loaded = context(permission, basis, state=state, attempt_count=1, permission_ref=GATE.hex)
    return replace(loaded, attempts={1: first})


def verdict(answer: str, reason: str = "NATURAL", row: str = "5", **fields: Any) -> Evaluation:
    case = VerdictInput(state="dispatched", attempts=1)
    decision = Verdict(answer, reason, row, **fields)
    return Evaluation(decision, case, (UncertainAttempt(1, "gbk-1"),), 1)


REPLAY: Final = replace(REQUEST, replays=1)
SAME_KEY: Final = verdict("replay", remote_key="same")
REUSE: Final = AttemptContext(verdict=SAME_KEY, reuse=PermissionUse())


@pytest.mark.parametrize(
    ("request_", "loaded", "attempt", "code", "withdraws"),
    [
        (REQUEST, context("none", ""), AttemptContext(), "NO_PERMISSION", False),
        (REQUEST, context("pending"), AttemptContext(), "GATE_PENDING", False),
        (REQUEST, context("denied", "ruling"), AttemptContext(), "GATE_DENIED", False),
        (REQUEST, context("denied", "expired"), AttemptContext(), "GATE_EXPIRED", False),
        (REQUEST, context("none", "expired_unused"), AttemptContext(), "GATE_GONE", False),
        (REQUEST, context(state="superseded"), AttemptContext(), "WRONG_STATE", False),
        (
            REQUEST, context(), AttemptContext(has_open_compensation=True), "COMPENSATION_OPEN",
            False,
        ),
        (REQUEST, attempted("used", is_open=True), AttemptContext(), "ALREADY_DISPATCHED", False),
        (
            REQUEST, attempted("used"), AttemptContext(verdict=verdict("probe")), "NO_PERMISSION",
            False,
        ),
        (REPLAY, attempted("used"), AttemptContext(verdict=verdict("probe")),
            "ALREADY_DISPATCHED", False),
        (REPLAY, attempted("used"), AttemptContext(verdict=verdict("wait", "LEASE_HELD", "1")),
            "LEASE_HELD", False),
        (REPLAY, attempted("used"), AttemptContext(verdict=verdict("replay", needs_new_permission=True)),
            "NO_PERMISSION", False),
        (REPLAY, attempted("used"), AttemptContext(verdict=verdict("wait", row="11")),
            "COMPENSATION_OPEN", False),
        (replace(REQUEST, replays=2), attempted("used"), REUSE, "ALREADY_DISPATCHED", False),
        (REPLAY, replace(attempted("used"), agent=OTHER), REUSE, "NO_PERMISSION", False),
        (
            REPLAY, attempted("used"),
            replace(REUSE, reuse=PermissionUse(evaluation=evaluation("ask"))), "GATE_GONE", True,
        ),
        (REPLAY, attempted("used", "ruling"), REUSE, "GATE_GONE", True),
        (
            REPLAY, attempted("used", "ruling"), replace(REUSE, reuse=gated(fault="no_reviewer")),
            "GATE_GONE", True,
        ),
        (REPLAY, attempted("used", "exemption"), REUSE, "GATE_GONE", True),
        (
            REPLAY, attempted("used"), replace(REUSE, reuse=PermissionUse(denied_gate=DENIED)),
            "GATE_DENIED", False,
        ),
    ],
)  # fmt: skip
def test_an_attempt_that_is_refused(
    request_: DispatchRequest,
    loaded: DispatchContext,
    attempt: AttemptContext,
    code: str,
    withdraws: bool,
) -> None:
    decided = decide_attempt(request_, loaded, attempt)
    assert decided.refusal is not None
    assert (decided.refusal.code, decided.withdraws) == (code, withdraws)


def test_a_first_attempt_needs_no_verdict() -> None:
    assert decide_attempt(REQUEST, context(), AttemptContext()) == AttemptDecision()
    assert AttemptDecision().attempt is FIRST_ATTEMPT


def test_a_repeated_request_gets_the_present_attempt() -> None:
    loaded, repeated = attempted("used", is_open=True), AttemptContext(is_repeated=True)
    assert decide_attempt(REQUEST, loaded, repeated) == AttemptDecision(is_repeated=True)


@pytest.mark.parametrize("use", [PermissionUse(), gated()])
def test_a_replay_reuses_permission_and_remote_key(use: PermissionUse) -> None:
    loaded = attempted("used", "ruling" if use.gate is not None else "policy")
    decided = decide_attempt(REPLAY, loaded, replace(REUSE, reuse=use))
    assert decided.refusal is None
    assert decided.attempt.again
    assert decided.attempt.values == {"replaces": 1, "verdict_row": "5", "remote_key": "gbk-1"}


def test_a_retry_after_a_rejection_uses_its_own_permission() -> None:
    decided = decide_attempt(
        REQUEST, attempted("granted"), AttemptContext(verdict=verdict("execute"))
    )
    assert decided.refusal is None
    assert not decided.attempt.again
    assert decided.attempt.facts["row"] == "5"
