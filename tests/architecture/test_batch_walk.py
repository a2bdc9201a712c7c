"""The flow of a batch, and its decisions without a database."""

from typing import Any, Final
from uuid import UUID

import pytest

from api.events import foreign_items, record
from api.events.foreign_items import EffectPlan, SenderContext
from api.events.parse import BatchItem
from api.schemas import core
from journal.entries import AppendResult, AppendStatus, Origin
from sessions.writers import SessionLease, WriterContext, WriterStatus
from tests.api.api_client import Caller
from tests.api.conftest import application as application
from tests.api.conftest import call as call
from tests.api.conftest import issue as issue
from tests.api.sample_facts import STORY, make_items, statuses
from tests.architecture.walk import assert_walk


@pytest.mark.django_db
def test_a_batch_takes_the_documented_steps(call: Any) -> None:
    agent: Caller = call()
    noted = {"kind": "fact.observed", "name": "build", "value": "green"}
    responses = []
    assert_walk(
        "Report a batch", lambda: responses.append(agent.report(make_items([*STORY[:-1], noted])))
    )
    assert statuses(responses[0]) == ["created"] * len(STORY)


SENDER, OTHER, SESSION, EFFECT = (UUID(int=number) for number in (1, 2, 3, 4))
SPEAKS, LOST, FOREIGN = WriterStatus.SPEAKS, WriterStatus.LEASE_LOST, WriterStatus.OTHER_AGENT
OWN: Final = WriterContext(SENDER, "", ())
OTHERS: Final = WriterContext(OTHER, "", ())
LEASED_BY_OTHER: Final = SessionLease(None, OTHER, 5, True)
LEASED_BY_SENDER: Final = SessionLease(None, SENDER, 5, True)
OWN_PLAN: Final = {EFFECT: EffectPlan(SENDER)}
OTHERS_PLAN: Final = {EFFECT: EffectPlan(OTHER)}


def build_item(kind: str = "effect.acknowledged", epoch: int | None = None) -> BatchItem:
    origin = Origin(
        project=UUID(int=9),
        agent=SENDER,
        source="tester",
        actor="agent:1",
        lane="evidence",
        key="f-1",
        text="{}",
        received_us=1,
        lease_epoch=epoch,
    )
    envelope = core.Envelope(id="f-1", kind=kind, session="s-1", attempt=1, lease_epoch=epoch)
    return BatchItem(0, envelope, core.OtherFact(), origin, "e", {}, SESSION, "s-1", EFFECT)


def build_context(writer: WriterContext | None, **more: Any) -> SenderContext:
    return SenderContext({} if writer is None else {SESSION: writer}, frozenset(), **more)


@pytest.mark.once
@pytest.mark.parametrize(
    ("item", "context", "expected"),
    [
        pytest.param(build_item(), build_context(None), SPEAKS, id="session not stored"),
        pytest.param(build_item(), build_context(OWN), SPEAKS, id="own session"),
        pytest.param(build_item(), build_context(OTHERS), FOREIGN, id="session of another agent"),
        pytest.param(
            build_item(),
            SenderContext({SESSION: OTHERS}, {SESSION}),
            SPEAKS,
            id="session that another agent only named",
        ),
        pytest.param(
            build_item(),
            build_context(OTHERS, plans=OWN_PLAN),
            SPEAKS,
            id="effect that the sender planned in a foreign session",
        ),
        pytest.param(
            build_item("task.done"),
            build_context(OWN._replace(leases=(LEASED_BY_OTHER,))),
            LOST,
            id="own session, leased by another agent",
        ),
        pytest.param(
            build_item("task.done"),
            build_context(OWN._replace(leases=(LEASED_BY_OTHER._replace(is_live=False),))),
            SPEAKS,
            id="own session, lease of another agent expired",
        ),
        pytest.param(
            build_item("task.done", epoch=4),
            build_context(OWN._replace(leases=(LEASED_BY_SENDER,))),
            LOST,
            id="own lease, outdated epoch",
        ),
        pytest.param(
            build_item("task.done", epoch=5),
            build_context(OTHERS._replace(leases=(LEASED_BY_SENDER,))),
            SPEAKS,
            id="lease in a foreign session, current epoch",
        ),
        pytest.param(
            build_item("task.done"),
            build_context(OTHERS._replace(leases=(LEASED_BY_SENDER,))),
            FOREIGN,
            id="lease in a foreign session, no epoch",
        ),
        pytest.param(
            build_item(),
            build_context(
                OWN._replace(leases=(LEASED_BY_OTHER,)),
                plans=OTHERS_PLAN,
                stored_attempts={(EFFECT, 1)},
                own_attempts={(EFFECT, 1)},
            ),
            SPEAKS,
            id="lease lost, own attempt",
        ),
        pytest.param(
            build_item(),
            build_context(
                OWN._replace(leases=(LEASED_BY_OTHER,)),
                plans=OWN_PLAN,
                stored_attempts={(EFFECT, 1)},
            ),
            LOST,
            id="lease lost, attempt of another agent",
        ),
        pytest.param(
            build_item(),
            build_context(OWN._replace(leases=(LEASED_BY_OTHER,)), plans=OWN_PLAN),
            SPEAKS,
            id="lease lost, attempt that no agent has recorded",
        ),
        pytest.param(
            build_item("effect.superseded"),
            build_context(OWN._replace(leases=(LEASED_BY_OTHER,)), plans=OWN_PLAN),
            LOST,
            id="lease lost, withdrawal",
        ),
    ],
)
def test_the_kind_and_scope_decide_who_may_report(
    item: BatchItem, context: SenderContext, expected: WriterStatus
) -> None:
    (decided,) = foreign_items.decide_writer_statuses([item], context)
    assert decided.writer_status is expected
    assert decided.is_claim == (expected is not SPEAKS)
    assert item.origin.lane == "evidence", "A decision does not change what was parsed."


CLAIM: Final = foreign_items.decide_writer_statuses([build_item()], build_context(OTHERS))[0]


@pytest.mark.once
@pytest.mark.parametrize(
    ("item", "status", "created", "counted", "result"),
    [
        (build_item(), AppendStatus.CREATED, 1, 1, {}),
        (build_item(), AppendStatus.DUPLICATE, 0, 0, {}),
        (build_item(), AppendStatus.CONFLICT, 0, 0, {"code": "key_reuse", "retryable": False}),
        (CLAIM, AppendStatus.CREATED, 1, 0, {"note": "other_agent"}),
        (CLAIM, AppendStatus.DUPLICATE, 0, 0, {}),
    ],
)
def test_the_journals_result_decides_the_next_step(
    item: BatchItem, status: AppendStatus, created: int, counted: int, result: dict[str, Any]
) -> None:
    invalid = {"index": 7, "id": None, "status": "invalid"}
    decision = record.decide_results([item], [AppendResult(status, 42)], [invalid])
    assert (len(decision.created), len(decision.counted)) == (created, counted)
    assert [new.position for new in decision.created] == [42] * created
    first, last = decision.results
    assert last == invalid
    assert first.items() >= ({"index": 0, "id": "f-1", "status": status.value} | result).items()
    assert decision.rejected_count == 1 + (status is AppendStatus.CONFLICT)
