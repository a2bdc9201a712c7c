"""An ended session requests nothing more: its open gates are cancelled, and no plan opens a
gate."""

from typing import Any

import pytest

from approvals.models import Gate
from journal.models import Entry
from ledger.models import Attempt, Effect
from sessions.models import Session
from tests.api.api_client import code
from tests.approvals.inbox_scenario import InboxScenario
from tests.recovery.stuck_helpers import leased

pytestmark = pytest.mark.django_db
SENTENCE = "The session has ended. Open a new session to plan effects."


def end(
    inbox: InboxScenario, how: str = "command", session: str = "s-1", status: str = "completed"
) -> None:
    if how == "command":
        answer = inbox.agent.post(
            f"/sessions/{Session.objects.get(key=session).id}/end", {"status": status}
        )
        assert answer.status_code == 200
    else:
        answer = inbox.agent.report(
            [{"id": "end", "kind": "session.ended", "session": session, "status": status}]
        )
        assert answer.status_code == 200, answer.text


def plan(inbox: InboxScenario, effect_key: str, **fields: Any) -> Any:
    body = {
        "session": "s-1",
        "effect_key": effect_key,
        "tool": "git.push",
        "arguments": {"ref": "main"},
    }
    return inbox.agent.post("/effects", body | fields)


@pytest.mark.parametrize("how", ["command", "evidence"])
@pytest.mark.parametrize("status", ["completed", "failed", "cancelled"])
def test_a_plan_in_an_ended_session_is_refused_and_stores_nothing(
    inbox: InboxScenario, how: str, status: str
) -> None:
    inbox.agent.session("s-1")
    end(inbox, how, status=status)
    entries = Entry.objects.count()
    refused = plan(inbox, "e-1")
    assert code(refused) == (409, "SESSION_ENDED")
    assert refused.json()["detail"].startswith(SENTENCE)
    assert (Gate.objects.count(), Effect.objects.count(), Entry.objects.count()) == (0, 0, entries)
    assert Session.objects.get().effect_count == 0
    inbox.agent.session("s-2")
    assert inbox.agent.plan("e-1", "s-2")["answer"] == "wait"


@pytest.mark.parametrize("tool", ["file.read", "git.tag", "mail.send"])
def test_a_plan_in_an_ended_session_is_refused_under_any_policy(
    inbox: InboxScenario, tool: str
) -> None:
    inbox.agent.session("s-1")
    end(inbox)
    assert code(plan(inbox, "e-1", tool=tool)) == (409, "SESSION_ENDED")


def test_a_plan_in_an_ended_session_is_refused_without_any_policy(quiet: InboxScenario) -> None:
    quiet.agent.session("s-1")
    end(quiet)
    assert code(plan(quiet, "e-1")) == (409, "SESSION_ENDED")


@pytest.mark.parametrize("status", ["session.waiting", "session.suspended"])
def test_a_session_that_only_waits_goes_on(inbox: InboxScenario, status: str) -> None:
    inbox.agent.session("s-1")
    assert inbox.agent.report([{"id": "w", "kind": status, "session": "s-1"}]).status_code == 200
    assert plan(inbox, "e-1").json()["answer"] == "wait"


def test_an_earlier_plan_of_an_ended_session_gets_its_present_state(inbox: InboxScenario) -> None:
    """An agent that returns after a crash plans again, and must get the present outcome."""
    read, push = inbox.plan("e-1", tool="file.read"), inbox.plan("e-2")
    inbox.agent.dispatch(read)
    end(inbox)
    assert plan(inbox, "e-1", tool="file.read").json()["answer"] == "ambiguous"
    inbox.agent.acknowledge(read)
    assert plan(inbox, "e-1", tool="file.read").json()["answer"] == "done"
    # The gate ended with its session, and another request would open a new gate.
    refused = plan(inbox, "e-2")
    assert code(refused) == (409, "SESSION_ENDED")
    assert (refused.json()["effect"]["id"], refused.json()["effect"]["permission"]) == (
        push["id"],
        "none",
    )
    assert list(Gate.objects.values_list("status", "reason")) == [("cancelled", "session_ended")]


def test_a_clean_rejection_is_not_tried_again_there(inbox: InboxScenario) -> None:
    planned = inbox.plan("e-1", tool="file.read")
    inbox.agent.dispatch(planned)
    end(inbox)
    inbox.agent.fail(planned, "rejected")
    assert code(plan(inbox, "e-1", tool="file.read")) == (409, "SESSION_ENDED")
    assert Attempt.objects.count() == 1


@pytest.mark.parametrize("decided", [False, True])
@pytest.mark.parametrize("how", ["command", "evidence"])
def test_its_end_takes_gates_and_permission_by_ruling_with_it(
    inbox: InboxScenario, how: str, decided: bool
) -> None:
    planned = inbox.plan()
    gate = inbox.gate(planned)
    if decided:
        inbox.answer(gate, "reviewer")
    end(inbox, how)
    stored, effect = Gate.objects.get(), inbox.effect(planned)
    assert (stored.status, stored.reason, effect.permission, effect.permission_basis) == (
        "cancelled",
        "session_ended",
        "none",
        "cancelled",
    )
    body = {"process": "p-1", "intent_digest": planned["intent_digest"]}
    assert code(inbox.agent.post(f"/effects/{planned['id']}/dispatch", body)) == (409, "GATE_GONE")
    assert inbox.answer(gate, "administrator").refusal[0] == "not_resolved"  # type: ignore[index]
    assert inbox.agent.get(f"/gates/{gate.id}").json()["reason"] == "session_ended"


def test_effects_of_an_ended_session_can_still_be_compensated(inbox: InboxScenario) -> None:
    done = inbox.plan("e-1", tool="file.read")
    inbox.agent.dispatch(done)
    inbox.agent.acknowledge(done)
    end(inbox)
    undo = inbox.agent.post(
        f"/effects/{done['id']}/compensate",
        {"effect_key": "u-1", "tool": "git.push", "arguments": {}},
    )
    assert (undo.status_code, undo.json()["answer"]) == (201, "wait")
    gate = inbox.gate(undo.json())
    inbox.answer(gate, "reviewer")
    body = {"process": "p-1", "intent_digest": undo.json()["intent_digest"]}
    assert inbox.agent.post(f"/effects/{undo.json()['id']}/dispatch", body).status_code == 200


def test_a_new_worker_compensates_effects_of_an_ended_session_under_a_lease(
    inbox: InboxScenario,
) -> None:
    inbox.declare("file.read", "reversible")
    session, lease = leased(inbox.agent)
    epoch = {"lease_epoch": lease["epoch"]}
    done = [
        inbox.agent.plan(f"e-{n}", session["id"], tool="file.read", arguments={"n": n}, **epoch)
        for n in range(2)
    ]
    for effect in done:
        begin = {"process": "w-1", "intent_digest": effect["intent_digest"], **epoch}
        assert inbox.agent.post(f"/effects/{effect['id']}/dispatch", begin).status_code == 200
        inbox.agent.acknowledge(effect)
    inbox.agent.post(f"/sessions/{session['id']}/end", {"status": "completed", **epoch})
    wish = {"effect_key": "u-0", "tool": "file.read", "arguments": {"undo": 0}}
    for sent in ({}, {"lease_epoch": 7}):
        refused = inbox.agent.post(f"/effects/{done[0]['id']}/compensate", wish | sent)
        assert code(refused) == (409, "LEASE_LOST")
        assert "lease with `to_compensate`" in refused.json()["detail"]
    lease_fields = {"session": session["id"], "process": "w-2"}
    refused = inbox.agent.post("/leases", lease_fields)
    assert code(refused) == (409, "SESSION_ENDED")
    assert "send `to_compensate`" in refused.json()["detail"]
    taken = inbox.agent.post("/leases", lease_fields | {"to_compensate": True})
    assert (taken.status_code, taken.json()["epoch"], taken.json()["state"]) == (201, 2, "live")
    assert code(
        inbox.agent.post("/leases", lease_fields | {"to_compensate": True, "process": "w-3"})
    ) == (
        409,
        "LEASE_HELD",
    )
    undo = inbox.agent.post(f"/effects/{done[0]['id']}/compensate", wish | {"lease_epoch": 2})
    assert (undo.status_code, undo.json()["answer"]) == (201, "proceed"), undo.text
    start = {"process": "w-2", "intent_digest": undo.json()["intent_digest"]}
    stale = inbox.agent.post(f"/effects/{undo.json()['id']}/dispatch", start | {"lease_epoch": 1})
    assert code(stale) == (409, "LEASE_LOST")  # an agent that ended it may not act for it any more
    begun = inbox.agent.post(f"/effects/{undo.json()['id']}/dispatch", start | {"lease_epoch": 2})
    assert begun.status_code == 200, begun.text
    inbox.agent.acknowledge(undo.json(), lease_epoch=2)
    assert inbox.effect(done[0]).state == "compensated"
    # The compensation begins nothing else, and the session stays ended.
    assert code(plan(inbox, "e-9", session=session["id"], lease_epoch=2)) == (409, "SESSION_ENDED")
    body = inbox.agent.get(f"/sessions/{session['id']}").json()
    assert (body["status"], body["resumes"], body["lease"]["epoch"]) == ("completed", 0, 2)
    assert not Entry.objects.filter(kind="session.resumed").exists()
    assert inbox.agent.post("/claims", {"process": "w-4"}).json() == {"claimed": None}
    assert (
        inbox.agent.post(f"/leases/{taken.json()['id']}/release", {"epoch": 2}).status_code == 200
    )
    late = {"effect_key": "u-1", "tool": "file.read", "arguments": {"undo": 1}, "lease_epoch": 2}
    assert code(inbox.agent.post(f"/effects/{done[1]['id']}/compensate", late)) == (
        409,
        "LEASE_LOST",
    )
    assert inbox.agent.post("/leases", lease_fields | {"to_compensate": True}).json()["epoch"] == 3


def test_the_end_of_its_parent_ends_no_session(inbox: InboxScenario) -> None:
    """A child is an execution of its own, often with a waiting agent of its own: it ends by its own
    end."""
    inbox.agent.session("parent")
    inbox.agent.session("child", parent="parent")
    first = inbox.agent.plan("e-1", "child")
    above = inbox.agent.plan("e-1", "parent")
    end(inbox, session="parent")
    assert inbox.gate(above).reason == "session_ended"
    assert inbox.gate(first).status == "pending"
    assert inbox.agent.plan("e-2", "child", arguments={"ref": "topic"})["answer"] == "wait"
    end(inbox, session="child")
    assert inbox.gate(first).reason == "session_ended"


def test_reports_of_an_ended_session_are_kept(inbox: InboxScenario) -> None:
    inbox.agent.session("s-1")
    end(inbox)
    facts: list[dict[str, Any]] = [
        {
            "id": "p",
            "kind": "effect.planned",
            "session": "s-1",
            "effect_key": "e-1",
            "tool": "file.read",
            "arguments": {},
        },
        {"id": "d", "kind": "effect.dispatched", "session": "s-1", "effect_key": "e-1"},
    ]
    assert inbox.agent.report(facts).status_code == 200
    assert Effect.objects.get().state == "dispatched"
    assert not Gate.objects.exists()
    assert plan(inbox, "e-1", tool="file.read", arguments={}).json()["answer"] == "ambiguous"
