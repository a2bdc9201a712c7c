"""What happens rarely and in an odd order: a retry beside an undoing, a word after an answer, a
resource too busy."""

from typing import Any

import pytest

from accounts.models import Project
from ledger.models import Attempt, Effect
from ledger.verdicts import verdict_inputs
from tests.api.api_client import Caller, code
from tests.approvals.inbox_scenario import Desk
from tests.recovery.remote import declare, dispatched, replay, row, verdict
from tests.recovery.resolver import Resolver, mail, now, olga

__all__ = ["mail", "olga"]


@pytest.fixture
def worker(agent: Caller) -> Caller:
    """An agent with an open session, in a project whose tools are declared."""
    declare(Project.objects.get(name="default"))
    agent.session()
    return agent


def undo(
    worker: Caller, effect: dict[str, Any], tool: str = "pay.keyed", key: str = "undo"
) -> dict[str, Any]:
    body = {"effect_key": key, "tool": tool, "arguments": {"undo": key}}
    answer = worker.post(f"/effects/{effect['id']}/compensate", body)
    assert answer.status_code == 201, answer.text
    planned: dict[str, Any] = answer.json()
    return planned


def resume(worker: Caller, effect: dict[str, Any]) -> dict[str, Any]:
    answer = worker.get(f"/sessions/{effect['session']}/resume")
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


@pytest.mark.parametrize("begun", [False, True], ids=["planned", "in doubt"])
def test_what_is_being_undone_is_not_done_again_although_its_undoing_may_be(
    worker: Caller, begun: bool
) -> None:
    effect = dispatched(worker, "pay.keyed")
    undoing = undo(worker, effect)
    if begun:
        worker.dispatch(undoing)
    said = verdict(worker, effect)
    assert (said["verdict"], said["row"]) == ("replay" if begun else "execute", "11")
    assert said["compensation"] == undoing["id"]
    assert (
        "remote_key" not in said
    )  # what the verdict tells to do is done under keys of the compensation
    refused = replay(worker, effect)
    assert code(refused) == (409, "COMPENSATION_OPEN")
    assert Attempt.objects.filter(effect=effect["id"]).count() == 1
    if begun:
        assert replay(worker, undoing).status_code == 200


def test_permission_that_its_undoing_lacks_is_not_asked_for_what_is_undone(quiet: Desk) -> None:
    declare(quiet.project)
    effect = quiet.plan(tool="pay.keyed", arguments={})
    quiet.agent.dispatch(effect)
    quiet.rules()
    undoing = undo(quiet.agent, effect, "git.push")
    assert quiet.agent.post(f"/gates/{quiet.gate(undoing).id}/cancel").status_code == 200
    said = verdict(quiet.agent, effect)
    assert (said["verdict"], said["row"]) == ("ask", "11")
    quiet.plan(tool="pay.keyed", arguments={})
    stored = Effect.objects.get(id=effect["id"])
    assert (stored.state, stored.permission) == ("dispatched", "used")


def test_an_undoing_that_is_itself_undone_is_decided_by_that(quiet: Desk) -> None:
    declare(quiet.project)
    effect = quiet.plan(tool="vm.start", arguments={})
    quiet.agent.dispatch(effect)
    first = undo(quiet.agent, effect, "vm.start", "undo")
    quiet.agent.dispatch(first)
    assert row(quiet.agent, effect) == ("compensate", "11", "COMP_RESUME")
    quiet.rules()
    second = undo(quiet.agent, first, "git.push", "undo of undo")
    assert second["permission"] == "pending"
    found = verdict(quiet.agent, effect)
    assert (found["verdict"], found["row"], found["safe"]) == ("wait", "11", False)
    assert found["compensation"] == first["id"]


def test_many_attempts_of_one_effect_hide_no_doubt_of_another(
    worker: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_inputs, "MAX_ATTEMPTS_LOADED", 3)
    effect = dispatched(worker, "mail.send", "doubt")
    worker.fail(effect, "timeout")
    worker.report([_failed("doubt", 2)])
    assert resume(worker, effect)["safe"] is False
    busy = dispatched(worker, "page.read", "busy", arguments={"page": 1})
    assert (
        worker.report([_failed("busy", number, "timeout") for number in range(2, 9)]).status_code
        == 200
    )
    assert row(worker, busy)[0] == "replay"
    assert resume(worker, effect)["because"][0]["effect"] == effect["id"]
    # Nor do those after it that are answered hide it.
    assert worker.report([_failed("doubt", number) for number in range(3, 9)]).status_code == 200
    assert row(worker, effect) == ("escalate", "26", "UNDECIDABLE")
    assert resume(worker, effect)["because"][0]["effect"] == effect["id"]


def test_a_key_used_more_often_than_is_read_is_not_relied_upon(
    worker: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = dispatched(worker, "pay.keyed")
    for number in (1, 2):
        assert replay(worker, effect, number).status_code == 200
    assert row(worker, effect)[2] == "KEY_LIVE"
    monkeypatch.setattr(verdict_inputs, "MAX_ATTEMPTS_LOADED", 3)
    assert row(worker, effect) == ("escalate", "18", "KEY_EXPIRED")


def _failed(key: str, attempt: int, reason: str = "rejected") -> dict[str, Any]:
    named = {"id": f"{key}-{attempt}", "session": "s-1", "effect_key": key, "attempt": attempt}
    return {"kind": "effect.failed", "reason": reason, **named}


@pytest.mark.parametrize("resource", ["/etc/motd", ""], ids=["named", "whatever the tool does"])
def test_a_resource_with_many_effects_is_overtaken_by_one_planned_long_ago(
    worker: Caller, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    monkeypatch.setattr(verdict_inputs, "_NEWEST_ON_RESOURCE", 2)
    target: dict[str, Any] = {"target": {"resource": resource}} if resource else {}
    early = worker.plan("early", tool="file.put", arguments={"text": "early"}, **target)
    for n in range(3):
        worker.plan(f"never {n}", tool="file.put", arguments={"text": n}, **target)
    effect = dispatched(worker, "file.put", "late", arguments={"text": "late"}, **target)
    assert row(worker, effect) == ("replay", "15", "PUT_LATEST")
    worker.dispatch(early)
    assert row(worker, effect) == ("escalate", "16", "STALE_PUT")
    worker.fail(early, "rejected")
    assert row(worker, effect) == ("replay", "15", "PUT_LATEST")
    monkeypatch.setattr(
        verdict_inputs, "_RELEASES_READ", 0
    )  # more than can be looked through: nobody knows
    assert row(worker, effect) == ("escalate", "16", "STALE_PUT")


def test_what_a_person_wants_undone_is_told_whoever_resumes_also_when_it_is_known_to_have_happened(
    mail: Effect, olga: Resolver, desk: Desk
) -> None:
    olga.say(mail, "compensate")
    late = {"attempt": 1, "outcome": "ok"}
    assert desk.agent.post(f"/effects/{mail.id}/acknowledge", late).status_code == 202
    effect = {"id": str(mail.id), "session": str(mail.session_id)}
    assert row(desk.agent, effect) == ("compensate", "11b", "RESOLVED")
    (told,) = resume(desk.agent, effect)["crash_recovery"]["open_effects"]
    assert (told["effect"], told["verdict"]) == (effect["id"], "compensate")
    desk.rules()
    refused = undo(desk.agent, effect, "git.tag")
    assert refused["permission"] == "denied"
    assert row(desk.agent, effect) == ("escalate", "11b", "UNDO_FAILED")
    found = resume(desk.agent, effect)
    assert (found["safe"], found["because"][0]["effect"]) == (False, effect["id"])
    olga.say(now(mail), "happened")
    assert resume(desk.agent, effect)["safe"] is True
