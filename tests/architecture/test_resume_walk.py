"""The flow of a resume, and its decision without a database."""

from typing import Any, Final
from uuid import UUID

import pytest

from ledger.models import Effect, Stop
from ledger.verdicts import table
from ledger.verdicts.evaluate import Evaluation
from ledger.verdicts.table import VerdictInput
from recovery import resume
from recovery.resume import ResumeContext, WorkingState
from sessions.models import Session
from tests.api.api_client import Caller
from tests.api.conftest import application as application
from tests.api.conftest import call as call
from tests.api.conftest import issue as issue
from tests.architecture.walk import assert_walk


@pytest.mark.django_db
def test_a_resume_takes_the_documented_steps(call: Any) -> None:
    agent: Caller = call()
    session = agent.session("s-1")["id"]
    agent.dispatch(agent.plan("e-1"))
    responses = []
    assert_walk(
        "Resume a session", lambda: responses.append(agent.get(f"/sessions/{session}/resume"))
    )
    assert responses[0].json()["crash_recovery"]["open_effects_in_all"] == 1


SESSION, AGENT, PROJECT = (UUID(int=number) for number in (1, 2, 3))
NOW: Final = 1_000_000_000
WAIT: Final = {"state": "dispatched", "lease_elsewhere": True, "lease_until_us": NOW + 5}
ESCALATE: Final = {"state": "dispatched", "attempts": 1}  # opaque: its outcome is unknown
EXECUTE: Final = {"state": "planned", "permission": "granted"}
PENDING: Final = {"state": "planned", "permission": "pending"}


def build_context(
    *cases: dict[str, Any], status: str = "running", stops: tuple[Stop, ...] = (), **more: Any
) -> ResumeContext:
    """Build a context with an open effect for each verdict input in `cases`, newest first."""
    effects, evaluations = [], {}
    for number, fields in enumerate(cases):
        effect = Effect(id=UUID(int=100 + number), opened_position=100 - number)
        effect.state = fields["state"]
        effect.plan_head = None  # type: ignore[attr-defined]  # annotated by the query
        case = VerdictInput(**fields)
        evaluations[effect.id] = Evaluation(table.decide_verdict(case, NOW), case)
        effects.append(effect)
    session = Session(id=SESSION, project_id=PROJECT, agent_id=AGENT, status=status)
    return ResumeContext(
        session,
        NOW,
        stops,
        effects,
        more.pop("too_many", False),
        evaluations,
        evaluations,
        {},
        **more,
    )


@pytest.mark.once
@pytest.mark.parametrize(
    ("context", "safe", "answers", "until_us"),
    [
        pytest.param(build_context(), True, [], None, id="nothing is open"),
        pytest.param(build_context(EXECUTE), True, ["execute"], None, id="planned"),
        pytest.param(build_context(PENDING), False, ["wait"], None, id="waits for approval"),
        pytest.param(build_context(ESCALATE), False, ["escalate"], None, id="outcome is unknown"),
        pytest.param(build_context(WAIT), True, ["wait"], NOW + 5, id="leased by another worker"),
        pytest.param(
            build_context(EXECUTE, WAIT, ESCALATE),
            False,
            ["escalate", "wait", "execute"],
            NOW + 5,
            id="most urgent first",
        ),
        pytest.param(
            build_context(EXECUTE, too_many=True), False, ["execute"], None, id="too many"
        ),
        pytest.param(
            build_context(stops=(Stop(scope="agent", subject=AGENT.hex),)),
            False,
            [],
            None,
            id="agent is stopped",
        ),
        pytest.param(
            build_context(stops=(Stop(scope="tool", subject="bash"),)),
            True,
            [],
            None,
            id="only a tool is stopped",
        ),
    ],
)
def test_whether_a_session_can_resume(
    context: ResumeContext, safe: bool, answers: list[str], until_us: int | None
) -> None:
    state = resume.decide_resume(context)
    assert (state.safe, state.until_us) == (safe, until_us)
    assert [item.evaluation.verdict.answer for item in state.open] == answers


@pytest.mark.once
@pytest.mark.parametrize(
    ("status", "changed_us", "is_unheard"),
    [
        ("running", 11, True),  # nothing was begun after the outcome
        ("running", 9, False),  # the worker went on after the outcome
        ("failed", 11, True),
        ("completed", 11, False),  # the worker of a completed session knew every outcome
    ],
)
def test_which_completed_effects_the_worker_may_not_know(
    status: str, changed_us: int, is_unheard: bool
) -> None:
    effect = Effect(id=UUID(int=7), state="acknowledged", outcome="ok", changed_us=changed_us)
    facts = [object()]
    context = build_context(
        status=status, completed=[effect], last_begun_us=10, working_state=WorkingState(facts=facts)
    )
    state = resume.decide_resume(context)
    assert [item.unheard for item in state.done] == [is_unheard]
    assert (state.facts, state.ended) == (facts, status != "running")
