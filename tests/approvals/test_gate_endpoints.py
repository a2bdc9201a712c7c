"""What agents read of gates: status, reason, the message meant for them, and never a person's
name."""

from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
import time_machine

from approvals.gates.statuses import US
from approvals.models import Gate
from db.clock import now_us
from journal.models import Entry
from ledger import stops
from tests.api.api_client import code
from tests.approvals.inbox_scenario import InboxScenario
from tests.pages.sample_data import connect_agent

pytestmark = pytest.mark.django_db
HOUR = 3_600


def read_gate(inbox: InboxScenario, gate: Gate | dict[str, Any], **query: Any) -> dict[str, Any]:
    """What the agent reads of a gate."""
    identity = gate.id if isinstance(gate, Gate) else gate["id"]
    answer = inbox.agent.get(f"/gates/{identity}", **query)
    assert answer.status_code == 200, answer.text
    body: dict[str, Any] = answer.json()
    return body


def denied(inbox: InboxScenario, gate: Gate) -> None:
    inbox.answer(gate, "reviewer", "deny", "the branch is frozen")


def denied_for_good(inbox: InboxScenario, gate: Gate) -> None:
    inbox.answer(gate, "reviewer", "deny_session", "never on a Friday")


def returned(inbox: InboxScenario, gate: Gate) -> None:
    inbox.answer(gate, "reviewer", "request_changes", "squash it first")


def approved(inbox: InboxScenario, gate: Gate) -> None:
    inbox.answer(gate, "reviewer", reason="")


def no_vote(_desk: InboxScenario, _gate: Gate) -> None:
    """No vote arrives."""


@pytest.mark.parametrize(
    ("happens", "status", "reason", "message"),
    [
        (no_vote, "pending", "not_resolved", None),
        (approved, "approved", None, None),
        (denied, "denied", "denied", "the branch is frozen"),
        (denied_for_good, "denied_session", "denied_session", "never on a Friday"),
        (returned, "changes_requested", "changes_requested", "squash it first"),
    ],
)
def test_each_ruling_is_returned_with_its_reason_and_without_names(
    inbox: InboxScenario,
    happens: Callable[[InboxScenario, Gate], None],
    status: str,
    reason: str | None,
    message: str | None,
) -> None:
    gate = inbox.gate(inbox.plan())
    happens(inbox, gate)
    body = read_gate(inbox, gate)
    assert (body["status"], body["reason"], body.get("message")) == (status, reason, message)
    assert body["proceed"] is (status == "approved")
    assert body["id"] == str(gate.id)
    assert body["handle"] == f"g_{gate.opened_position}"
    assert body["version"] == Gate.objects.get(id=gate.id).version
    people = inbox.person("reviewer")
    text = inbox.agent.get(f"/gates/{gate.id}").text
    assert "reviewer" not in text
    assert people.user.person.pseudonym not in text


def test_a_deadline_that_passed_counts_before_a_job_records_it(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    with time_machine.travel(now_us() / US + HOUR + 1, tick=False):
        body = read_gate(inbox, gate)
        assert (body["status"], body["reason"], body["proceed"]) == ("expired", "expired", False)
        for status, number in (("pending", 0), ("expired", 1)):
            assert len(inbox.agent.get("/gates", status=status).json()["items"]) == number
    assert Gate.objects.get(id=gate.id).status == "pending", "the row itself was not touched"


def test_permission_that_was_not_used_in_time_is_expired_unused(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    approved(inbox, gate)
    with time_machine.travel(now_us() / US + HOUR, tick=False):
        body = read_gate(inbox, gate)
        assert (body["status"], body["reason"], body["proceed"]) == (
            "expired_unused",
            "expired_unused",
            False,
        )
        for status, number in (("approved", 0), ("expired_unused", 1)):
            assert len(inbox.agent.get("/gates", status=status).json()["items"]) == number


def test_permission_that_was_used_is_no_permission_any_more(inbox: InboxScenario) -> None:
    effect = inbox.plan()
    approved(inbox, inbox.gate(effect))
    inbox.agent.dispatch(effect)
    body = read_gate(inbox, inbox.gate(effect))
    assert (body["status"], body["reason"], body["proceed"]) == ("used", "already_used", False)


def test_a_stop_blocks_an_approved_effect_until_it_is_lifted(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    approved(inbox, gate)
    stop_row = stops.set_stop(
        inbox.project, "tool", "git.push", "stop all pushes", inbox.user("operator")
    )
    assert (read_gate(inbox, gate)["stopped"], read_gate(inbox, gate)["proceed"]) == (True, False)
    stops.lift_stop(stop_row, "they may go on", inbox.user("operator"))
    assert (read_gate(inbox, gate)["stopped"], read_gate(inbox, gate)["proceed"]) == (False, True)


def test_a_stop_on_something_else_blocks_nothing(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    approved(inbox, gate)
    stops.set_stop(inbox.project, "tool", "deploy", "stop all deployments", inbox.user("operator"))
    assert (read_gate(inbox, gate)["stopped"], read_gate(inbox, gate)["proceed"]) == (False, True)


@pytest.mark.parametrize(("since", "news"), [(0, True), (1, False), (2, False)])
def test_waiting_for_many_gates_lists_the_changed_ones(
    inbox: InboxScenario, since: int, news: bool
) -> None:
    gate = inbox.gate(inbox.plan())
    answer = inbox.agent.client.post("/gates/wait", json={"gates": {str(gate.id): since}})
    assert answer.status_code == 200, answer.text
    assert answer.json()["changed"] == ([str(gate.id)] if news else [])
    assert answer.json()["gates"] == [read_gate(inbox, gate)]
    assert answer.headers["Retry-After"] == ("0" if news else "1")


def test_an_ended_gate_is_always_returned_as_changed_without_retry_after(
    inbox: InboxScenario,
) -> None:
    gate = inbox.gate(inbox.plan())
    denied(inbox, gate)
    answer = inbox.agent.get(f"/gates/{gate.id}", wait=55, since=99)
    assert answer.json()["status"] == "denied"
    assert "Retry-After" not in answer.headers


@pytest.mark.parametrize(
    "query", [{"wait": 56}, {"wait": -1}, {"wait": "x"}, {"since": -1}, {"colour": "red"}]
)
def test_a_question_that_cannot_be_is_refused(inbox: InboxScenario, query: dict[str, Any]) -> None:
    gate = inbox.gate(inbox.plan())
    assert code(inbox.agent.get(f"/gates/{gate.id}", **query))[0] == 422


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"gates": {}},
        {"gates": {"x": 1}},
        {"gates": {str(UUID(int=7)): -1}},
        {"gates": {str(UUID(int=7)): 1}, "wait": 56},
        {"gates": {str(UUID(int=number)): 1 for number in range(101)}},
        {"gates": {str(UUID(int=7)): 1}, "approve": True},
    ],
)
def test_a_question_about_many_that_cannot_be_is_refused(
    inbox: InboxScenario, body: dict[str, Any]
) -> None:
    assert code(inbox.agent.client.post("/gates/wait", json=body)) == (422, "invalid")


def test_a_gate_of_another_project_is_not_there(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    with connect_agent(inbox.organization.other_token.agent) as stranger:
        assert code(stranger.get(f"/gates/{gate.id}", wait=55)) == (404, "not_found")
        assert code(stranger.client.post("/gates/wait", json={"gates": {str(gate.id): 0}})) == (
            404,
            "not_found",
        )
        assert code(stranger.post(f"/gates/{gate.id}/cancel")) == (404, "not_found")
        assert stranger.get("/gates").json()["items"] == []
    assert Gate.objects.get(id=gate.id).status == "pending"


def test_one_foreign_gate_among_many_is_named_and_no_state_is_returned(
    inbox: InboxScenario,
) -> None:
    gate = inbox.gate(inbox.plan())
    other = UUID(int=7)
    answer = inbox.agent.client.post(
        "/gates/wait", json={"gates": {str(gate.id): 0, str(other): 0}, "wait": 55}
    )
    assert code(answer) == (404, "not_found")
    assert answer.json()["pointer"] == f"/gates/{other}"


def test_only_the_requesting_agent_withdraws_its_request(inbox: InboxScenario) -> None:
    from accounts import agents

    effect = inbox.plan()
    gate = inbox.gate(effect)
    with connect_agent(agents.ensure_agent(inbox.project, "another")) as another:
        assert another.get(f"/gates/{gate.id}").status_code == 200, "agents of a project may read"
        assert code(another.post(f"/gates/{gate.id}/cancel")) == (403, "OTHER_AGENT")
    assert Gate.objects.get(id=gate.id).status == "pending"
    answer = inbox.agent.post(f"/gates/{gate.id}/cancel")
    assert answer.status_code == 200
    assert (answer.json()["status"], answer.json()["reason"]) == ("cancelled", "by_agent")
    assert inbox.effect(effect).permission == "none"


def test_a_decided_gate_is_not_withdrawn(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    denied(inbox, gate)
    body = inbox.agent.post(f"/gates/{gate.id}/cancel").json()
    assert body["status"] == "denied"
    assert Gate.objects.get(id=gate.id).status == "denied"


def test_gates_are_listed_by_session_and_status(inbox: InboxScenario) -> None:
    first, second = (
        inbox.gate(inbox.plan("e-1")),
        inbox.gate(inbox.plan("e-2", arguments={"ref": "other"})),
    )
    denied(inbox, first)
    ids = {str(gate.id): gate for gate in (first, second)}
    listed = inbox.agent.get("/gates", session="s-1").json()["items"]
    assert [gate["id"] for gate in listed] == list(reversed(ids))
    assert [gate["id"] for gate in inbox.agent.get("/gates", status="denied").json()["items"]] == [
        str(first.id)
    ]
    assert (
        inbox.agent.get("/gates", status="denied").json()["items"][0]["message"]
        == "the branch is frozen"
    )
    assert inbox.agent.get("/gates", session="s-9").json()["items"] == []
    assert code(inbox.agent.get("/gates", status="open")) == (422, "invalid")


def test_an_unchanged_gate_is_304_to_a_client_that_sends_its_etag(inbox: InboxScenario) -> None:
    gate = inbox.gate(inbox.plan())
    tag = inbox.agent.get(f"/gates/{gate.id}").headers["ETag"]
    again = inbox.agent.client.get(f"/gates/{gate.id}", headers={"If-None-Match": tag})
    assert (again.status_code, again.headers["ETag"], again.content) == (304, tag, b"")
    approved(inbox, gate)
    assert (
        inbox.agent.client.get(f"/gates/{gate.id}", headers={"If-None-Match": tag}).status_code
        == 200
    )


def test_a_cancellation_is_the_agents_own_fact_and_its_key_is_used_once(
    inbox: InboxScenario,
) -> None:
    first, second = (
        inbox.gate(inbox.plan("e-1")),
        inbox.gate(inbox.plan("e-2", arguments={"ref": "topic"})),
    )
    first_answer = inbox.agent.post(f"/gates/{first.id}/cancel", key="k-1")
    again = inbox.agent.post(f"/gates/{first.id}/cancel", key="k-1")
    assert (first_answer.status_code, again.status_code, again.json()) == (
        200,
        200,
        first_answer.json(),
    )
    assert again.headers["idempotent-replay"] == "true"
    entry = Entry.objects.get(kind="gate.cancelled")
    assert (entry.source, entry.event_id, entry.subject) == ("deploy-7", "k-1", first.id)
    assert code(inbox.agent.post(f"/gates/{second.id}/cancel", key="k-1")) == (422, "key_reuse")
    second.refresh_from_db()
    assert second.status == "pending"
