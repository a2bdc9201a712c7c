"""A person stops something: later plans and dispatches get STOPPED, reports still arrive; lifting
is recorded."""

from typing import Any
from uuid import UUID

import pytest
from django.db import transaction

from accounts.models import Agent
from db.errors import ChangeRefused
from journal.models import Body, Entry
from ledger import stops
from ledger.models import Attempt, Stop
from sessions.models import Session
from tests.api.api_client import code
from tests.approvals.inbox_scenario import InboxScenario

pytestmark = pytest.mark.django_db


def put(
    inbox: InboxScenario, scope: str, subject: str = "", reason: str = "it deletes too much"
) -> Stop:
    with transaction.atomic():
        return stops.set_stop(inbox.project, scope, subject, reason, inbox.user("reviewer"))


def lift(inbox: InboxScenario, stop_row: Stop) -> bool:
    with transaction.atomic():
        return stops.lift_stop(stop_row, "looked into it", inbox.user("administrator"))


def request_push(inbox: InboxScenario, effect_key: str = "e-2") -> Any:
    body = {
        "session": "s-1",
        "effect_key": effect_key,
        "tool": "git.push",
        "arguments": {"ref": effect_key},
    }
    return inbox.agent.post("/effects", body)


def dispatched(inbox: InboxScenario, effect: dict[str, Any], key: str | None = None) -> Any:
    body = {"process": "p-1", "intent_digest": effect["intent_digest"]}
    return inbox.agent.post(f"/effects/{effect['id']}/dispatch", body, key=key)


def subject(inbox: InboxScenario, scope: str, effect: dict[str, Any]) -> str:
    return {
        "project": "",
        "tool": "git.push",
        "agent": Agent.objects.get(name="deploy-7").id.hex,
        "session": Session.objects.get(key="s-1").id.hex,
        "effect": UUID(effect["id"]).hex,
    }[scope]


@pytest.mark.parametrize("scope", ["project", "tool", "agent", "session", "effect"])
def test_a_stop_blocks_what_it_covers_until_it_is_lifted(quiet: InboxScenario, scope: str) -> None:
    planned = quiet.plan()
    stop_row = put(quiet, scope, subject(quiet, scope, planned))
    assert code(dispatched(quiet, planned)) == (409, "STOPPED")
    if scope != "effect":
        assert code(request_push(quiet)) == (409, "STOPPED")
    assert not Attempt.objects.exists()
    assert lift(quiet, stop_row)
    assert dispatched(quiet, planned).status_code == 200
    assert request_push(quiet).status_code == 201


@pytest.mark.parametrize(
    ("scope", "other"), [("tool", "mail.send"), ("agent", ""), ("session", ""), ("effect", "")]
)
def test_a_stop_blocks_nothing_else(quiet: InboxScenario, scope: str, other: str) -> None:
    planned = quiet.plan()
    away = quiet.agent.session("s-2")
    elsewhere = quiet.agent.plan("e-9", "s-2")
    identities = {"session": UUID(away["id"]).hex, "effect": UUID(elsewhere["id"]).hex}
    if scope == "agent":
        identities["agent"] = Agent.objects.create(project=quiet.project, name="build-9").id.hex
    put(quiet, scope, identities.get(scope, other))
    assert dispatched(quiet, planned).status_code == 200


def test_an_answer_is_never_stopped(quiet: InboxScenario) -> None:
    planned = quiet.plan()
    assert dispatched(quiet, planned).status_code == 200
    put(quiet, "project")
    assert quiet.agent.acknowledge(planned)["state"] == "acknowledged"
    fact = {"id": "x", "kind": "effect.dispatched", "session": "s-1", "effect_key": "e-7"}
    assert quiet.agent.report([fact]).status_code == 200


def test_a_repeated_grant_is_stopped_too(quiet: InboxScenario) -> None:
    planned = quiet.plan()
    assert dispatched(quiet, planned, key="k").status_code == 200
    stop_row = put(quiet, "session", subject(quiet, "session", planned))
    assert code(dispatched(quiet, planned, key="k")) == (409, "STOPPED")
    lift(quiet, stop_row)
    assert dispatched(quiet, planned, key="k").status_code == 200


def test_a_stopped_effect_can_be_approved_and_still_waits(inbox: InboxScenario) -> None:
    planned = inbox.plan()
    stop_row = put(inbox, "tool", "git.push")
    inbox.answer(inbox.gate(planned), "reviewer")
    assert code(dispatched(inbox, planned)) == (409, "STOPPED")
    lift(inbox, stop_row)
    assert dispatched(inbox, planned).status_code == 200


def test_the_author_and_reason_of_a_stop_are_in_the_journal(quiet: InboxScenario) -> None:
    quiet.plan()
    stop_row = put(quiet, "tool", "git.push")
    assert put(quiet, "tool", "git.push").id == stop_row.id  # again: the same stop
    lift(quiet, stop_row)
    assert not lift(quiet, stop_row)
    kinds = list(Entry.objects.filter(subject=stop_row.id).order_by("position"))
    assert [entry.kind for entry in kinds] == ["stop.set", "stop.lifted"]
    assert "it deletes too much" in Body.objects.get(entry=kinds[0]).text
    assert "deletes" not in kinds[0].facts


@pytest.mark.parametrize(
    ("scope", "thing", "reason"),
    [
        ("tool", "", "because"),
        ("planet", "x", "because"),
        ("session", "0" * 32, "because"),
        ("tool", "git.push", " "),
    ],
)
def test_a_stop_without_subject_or_reason_is_refused(
    quiet: InboxScenario, scope: str, thing: str, reason: str
) -> None:
    with pytest.raises(ChangeRefused):
        put(quiet, scope, thing, reason)
    assert not Stop.objects.exists()


def test_a_stop_ends_at_the_wall(quiet: InboxScenario) -> None:
    planned = quiet.plan()
    with transaction.atomic():
        stops.set_stop(
            quiet.organization.other, "tool", "git.push", "theirs", quiet.user("neighbour")
        )
    assert dispatched(quiet, planned).status_code == 200
