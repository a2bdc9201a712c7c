"""Only the holder of the session's lease writes working state; reports under an older epoch are
claims."""

from typing import Any

import orjson
import pytest

from journal.models import Entry
from sessions.models import Checkpoint, Decision, Handoff, Lease, ObservedFact, Session
from tests.api.api_client import Caller, code
from tests.recovery.lease_helpers import expire, hold, pass_time

ENDPOINTS: list[tuple[str, dict[str, Any]]] = [
    ("/sessions/{session}/checkpoints", {"summary": "x"}),
    ("/sessions/{session}/decisions", {"key": "e", "choice": "right"}),
    ("/decisions/{decision}/conclude", {"status": "done", "outcome": "x"}),
    ("/sessions/{session}/handoffs", {"in_progress": ["x"]}),
    ("/handoffs/{handoff}/accept", {}),
    ("/sessions/{session}/facts", {"name": "n", "value": 1, "source": "s"}),
    ("/sessions/{session}/change", {"cursor": "x"}),
    ("/sessions/{session}/merged", {"into": "other"}),
]


@pytest.fixture
def ids(agent: Caller) -> dict[str, str]:
    agent.session("other")
    session = agent.session()["id"]
    return {
        "session": session,
        "decision": agent.post(
            f"/sessions/{session}/decisions", {"key": "d", "choice": "left"}
        ).json()["id"],
        "handoff": agent.post(f"/sessions/{session}/handoffs").json()["id"],
    }


def rows() -> list[list[dict[str, Any]]]:
    tables = (
        Session.objects,
        Checkpoint.objects,
        Decision.objects,
        Handoff.objects,
        ObservedFact.objects,
    )
    return [
        [
            {name: value for name, value in row.items() if name != "seen_at_us"}
            for row in table.order_by("id").values()
        ]
        for table in tables
    ]


@pytest.mark.parametrize(
    ("endpoint", "body"), ENDPOINTS, ids=[endpoint for endpoint, _body in ENDPOINTS]
)
def test_an_older_epoch_writes_nothing_and_the_current_one_does(
    agent: Caller, ids: dict[str, str], endpoint: str, body: dict[str, Any]
) -> None:
    expire(hold(agent, "s-1", "p-1"))
    hold(agent, "s-1", "p-2")
    before = rows()
    refused = agent.post(
        endpoint.format(**ids), body | {"lease_epoch": 1}, headers={"If-Match": "99"}
    )
    assert code(refused) == (
        409,
        "LEASE_LOST",
    )  # checked before the version
    assert refused.json()["lease"]["epoch"] == 2
    assert rows() == before
    (trace,) = Entry.objects.filter(kind="integrity.fenced")
    assert orjson.loads(trace.facts)["kept"] is False
    done = agent.post(endpoint.format(**ids), body | {"lease_epoch": 2}, key="k")
    assert done.status_code in (200, 201), done.text
    assert rows() != before
    again = agent.post(endpoint.format(**ids), body | {"lease_epoch": 2}, key="k")
    assert (again.status_code, again.json()) == (done.status_code, done.json())


def test_only_checkpoints_and_decisions_are_progress(agent: Caller, ids: dict[str, str]) -> None:
    lease = hold(agent, "s-1", "p-1")
    moved = []
    for endpoint, body in ENDPOINTS:
        pass_time(lease, 60)
        before = Lease.objects.get().progress_at_us
        assert agent.post(endpoint.format(**ids), body | {"lease_epoch": 1}).status_code in (
            200,
            201,
        )
        if Lease.objects.get().progress_at_us > before:
            moved.append(endpoint)
    assert moved == [
        endpoint
        for endpoint, _body in ENDPOINTS
        if "checkpoints" in endpoint or "decision" in endpoint
    ]


def test_reports_of_a_fenced_worker_are_stored_and_marked(
    agent: Caller, ids: dict[str, str]
) -> None:
    expire(hold(agent, "s-1", "p-1"))
    hold(agent, "s-1", "p-2")
    reports: list[dict[str, Any]] = [
        {
            "id": "f-1",
            "kind": "checkpoint.written",
            "session": "s-1",
            "summary": "late",
            "lease_epoch": 1,
        },
        {
            "id": "f-2",
            "kind": "decision.concluded",
            "session": "s-1",
            "decision": "d",
            "status": "failed",
        },
    ]
    assert agent.report([reports[0], reports[1] | {"lease_epoch": 1}]).json()["accepted"] == 2
    assert (Checkpoint.objects.count(), Decision.objects.get().status) == (
        0,
        "open",
    )  # its reports are claims
    assert Entry.objects.filter(lane="claim").count() == 2
    facts = [orjson.loads(entry.facts) for entry in Entry.objects.filter(kind="integrity.fenced")]
    assert [fact["kept"] for fact in facts] == [True, True]
