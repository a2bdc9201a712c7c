"""Handoffs: five sections, references to wait on, a budget, and one acceptance."""

from collections.abc import Callable
from functools import partial
from uuid import UUID, uuid4

import pytest
from django.db import transaction

from accounts.models import Project
from approvals.models import Gate
from approvals.policies import policies
from journal.models import Entry
from sessions import handoffs
from sessions.models import Handoff, Session
from tests.api.api_client import Caller, code
from tests.api.rows import select_body_text
from tests.journal.committed import committed as committed
from tests.journal.committed import together
from tests.ledger.conftest import application_outside as application_outside

RULES = """
name: basic
rules:
  - {id: deploys, title: A deployment, match: {tools: [deploy]}, outcome: require}
  - {id: the-rest, title: Everything else, match: {tools: ["*"]}, outcome: allow}
"""

NOTE = {
    "in_progress": ["the migration of orders"],
    "decided": ["batches of 100, since larger ones time out"],
    "needs_attention": ["batch 7 failed twice"],
    "can_wait": ["the report"],
}


@pytest.fixture
def session(agent: Caller) -> str:
    session_id: str = agent.session()["id"]
    return session_id


def test_a_handoff_has_five_sections(agent: Caller, session: str) -> None:
    waits = [{"kind": "text", "text": "Ann is back on Monday"}]
    created = agent.post(f"/sessions/{session}/handoffs", {**NOTE, "waits_on": waits})
    assert created.status_code == 201
    (row,) = agent.get(f"/sessions/{session}/handoffs").json()["items"]
    assert {name: row[name] for name in NOTE} == NOTE
    assert row["waits_on"] == waits
    assert (row["accepted"], row["over_budget"], row["written_by"]) == (False, False, "tester")
    assert 200 < row["bytes"] == created.json()["bytes"] < handoffs.HANDOFF_BUDGET_BYTES
    stored = Handoff.objects.get()
    assert "Ann" not in str(stored.__dict__)  # the text is only in the journal body
    assert "Ann is back" in select_body_text(stored.written_position)


def test_a_handoff_may_wait_on_existing_effects_and_messages(
    agent: Caller, session: str, call: Callable[..., Caller]
) -> None:
    call("other").get("/sessions")
    effect = agent.plan("push-1")
    message = agent.post("/messages", {"to": "other", "body": "may I?"}).json()
    path = f"/sessions/{session}/handoffs"
    named = [
        {"kind": "effect", "ref": "push-1"},
        {"kind": "effect", "ref": effect["id"]},
        {"kind": "effect", "ref": effect["handle"], "text": "the push"},
        {"kind": "message", "ref": message["id"]},
        {"kind": "message", "ref": message["handle"]},
    ]
    assert agent.post(path, {"waits_on": named}).status_code == 201
    wanted = [effect["id"]] * 3 + [message["id"]] * 2
    assert [wait["ref"] for wait in Handoff.objects.get().waits_on] == wanted
    assert [wait["ref"] for wait in agent.get(path).json()["items"][0]["waits_on"]] == wanted
    facts = Entry.objects.get(kind="handoff.written").facts
    assert effect["id"] in facts
    assert "the push" not in facts


@pytest.mark.parametrize(
    ("thing", "refusal", "pointer"),
    [
        ({"kind": "effect", "ref": "push-9"}, "waits_on_unknown", "/waits_on/1/ref"),
        ({"kind": "effect", "ref": "e_999999"}, "waits_on_unknown", "/waits_on/1/ref"),
        ({"kind": "gate", "ref": str(UUID(int=7))}, "waits_on_unknown", "/waits_on/1/ref"),
        ({"kind": "gate", "ref": "g_999999"}, "waits_on_unknown", "/waits_on/1/ref"),
        ({"kind": "gate", "ref": "push-1"}, "waits_on_unknown", "/waits_on/1/ref"),
        ({"kind": "message", "ref": str(UUID(int=7))}, "waits_on_unknown", "/waits_on/1/ref"),
        ({"kind": "message"}, "waits_on_missing", "/waits_on/1/ref"),
        ({"kind": "text"}, "waits_on_missing", "/waits_on/1/text"),
        ({"kind": "weather", "text": "rain"}, "invalid", "/waits_on/1/kind"),
    ],
    ids=str,
)
def test_a_handoff_that_waits_on_an_unknown_reference_is_refused(
    agent: Caller, session: str, thing: dict[str, str], refusal: str, pointer: str
) -> None:
    agent.plan("push-1")
    refused = agent.post(
        f"/sessions/{session}/handoffs", {"waits_on": [{"kind": "effect", "ref": "push-1"}, thing]}
    )
    assert code(refused) == (422, refusal)
    assert refused.json()["pointer"] == pointer
    assert not Handoff.objects.exists()


def test_a_handoff_cannot_wait_on_what_its_agent_may_not_read(
    agent: Caller, stranger: Caller, session: str, call: Callable[..., Caller]
) -> None:
    stranger.session("theirs")
    effect = stranger.plan("push-1", session="theirs")
    second, third = call("second"), call("third")
    secret = second.post("/messages", {"to": "third", "body": "x"}).json()
    path = f"/sessions/{session}/handoffs"
    for kind, ref in (
        ("effect", effect["id"]),
        ("effect", effect["handle"]),
        ("message", secret["id"]),
    ):
        refused = agent.post(path, {"waits_on": [{"kind": kind, "ref": ref}]})
        assert code(refused) == (422, "waits_on_unknown")
    assert (
        third.post(path, {"waits_on": [{"kind": "message", "ref": secret["id"]}]}).status_code
        == 201
    )


def test_a_handoff_over_the_budget_is_stored_and_marked(agent: Caller, session: str) -> None:
    path = f"/sessions/{session}/handoffs"
    created = agent.post(path, {"in_progress": ["x" * 4000], "decided": ["y" * 4000]})
    assert (created.status_code, created.json()["over_budget"]) == (201, True)
    assert Handoff.objects.get().size > handoffs.HANDOFF_BUDGET_BYTES
    fits = {"in_progress": ["x" * (handoffs.HANDOFF_BUDGET_BYTES - len('{"in_progress":[""]}'))]}
    assert agent.post(path, fits).json()["over_budget"] is False
    assert Handoff.objects.filter(size=handoffs.HANDOFF_BUDGET_BYTES).count() == 1


def test_a_handoff_is_accepted_once(
    agent: Caller, session: str, call: Callable[..., Caller]
) -> None:
    accept = f"/handoffs/{agent.post(f'/sessions/{session}/handoffs', NOTE).json()['id']}/accept"
    second, third = call("second"), call("third")
    taken = second.post(accept, key="k")
    assert (taken.status_code, taken.json()["accepted"], taken.json()["version"]) == (200, True, 2)
    assert second.post(accept, key="k").json() == taken.json()  # the same request again
    refused = third.post(accept)
    assert code(refused) == (409, "HANDOFF_ACCEPTED")
    assert refused.json()["handoff"]["version"] == 2
    assert code(second.post(accept)) == (409, "HANDOFF_ACCEPTED")
    (row,) = agent.get(f"/sessions/{session}/handoffs").json()["items"]
    assert (row["accepted_by"], row["written_by"]) == ("second", "tester")
    assert Handoff.objects.get().accept_by_us is None
    assert Entry.objects.filter(kind="handoff.accepted").count() == 1
    assert code(agent.post(f"/handoffs/{uuid4()}/accept")) == (404, "not_found")


def test_only_the_latest_handoff_awaits_acceptance(agent: Caller, session: str) -> None:
    path = f"/sessions/{session}/handoffs"
    agent.post(path, {"in_progress": ["one"]}, key="z")
    handoff = handoffs.load_unaccepted_handoff(Session.objects.get())
    assert handoff is not None
    assert handoff.id == Handoff.objects.get().id
    latest = agent.post(path, {"in_progress": ["two"]}, key="a").json()
    handoff = handoffs.load_unaccepted_handoff(Session.objects.get())
    assert handoff is not None
    assert str(handoff.id) == latest["id"]
    assert handoffs.handoff_to_json(handoff)["in_progress"] == ["two"]
    due = Handoff.objects.filter(accept_by_us__isnull=False)
    assert [str(row.id) for row in due] == [latest["id"]]
    agent.post(f"/handoffs/{latest['id']}/accept")
    assert handoffs.load_unaccepted_handoff(Session.objects.get()) is None
    assert not due.all().exists()


def test_a_handoff_may_wait_on_a_gate(agent: Caller, session: str) -> None:
    project = Project.objects.get(name="default")
    with transaction.atomic():
        policies.activate_policy_set(project, policies.load_policy_set(project, RULES), "enforce")
    plan = agent.plan("deploy-1", tool="deploy")
    gate = Gate.objects.get()
    waits = [
        {"kind": "gate", "ref": f"g_{gate.opened_position}"},
        {"kind": "gate", "ref": str(gate.id)},
    ]
    assert plan["answer"] == "wait"
    assert agent.post(f"/sessions/{session}/handoffs", {"waits_on": waits}).status_code == 201
    assert [wait["ref"] for wait in Handoff.objects.get().waits_on] == [str(gate.id)] * 2


def test_of_many_workers_that_accept_at_once_one_succeeds(
    application_outside: Callable[[str], Caller],
) -> None:
    agent = application_outside("races")
    session = agent.session()["id"]
    application = agent.client._transport.app  # type: ignore[attr-defined]  # that of WSGITransport
    for _ in range(3):
        accept = (
            f"/handoffs/{agent.post(f'/sessions/{session}/handoffs', NOTE).json()['id']}/accept"
        )
        workers = [Caller(agent.token, app=application) for _ in range(8)]
        answers = together(*(partial(worker.post, accept) for worker in workers))
        assert sorted(answer.status_code for answer in answers) == [200] + [409] * 7
        assert {code(answer)[1] for answer in answers if answer.status_code == 409} == {
            "HANDOFF_ACCEPTED"
        }
    assert Entry.objects.filter(kind="handoff.accepted").count() == 3
