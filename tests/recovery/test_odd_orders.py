"""Rare orders of events: retries during a compensation, resolutions after an answer, and busy
resources."""

from typing import Any

import pytest

from accounts.models import Project
from ledger.models import Attempt, Effect
from ledger.verdicts import verdict_inputs
from tests.api.api_client import Caller, code
from tests.approvals.inbox_scenario import InboxScenario
from tests.recovery.remote import declare, dispatch_effect, replay, row, verdict
from tests.recovery.resolver import Resolver, mail, olga, reload

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
    body: dict[str, Any] = answer.json()
    return body


@pytest.mark.parametrize("begun", [False, True], ids=["planned", "in doubt"])
def test_an_effect_under_compensation_is_not_replayed(worker: Caller, begun: bool) -> None:
    effect = dispatch_effect(worker, "pay.keyed")
    compensation = undo(worker, effect)
    if begun:
        worker.dispatch(compensation)
    current = verdict(worker, effect)
    assert (current["verdict"], current["row"]) == ("replay" if begun else "execute", "11")
    assert current["compensation"] == compensation["id"]
    assert "remote_key" not in current  # the verdict is for the compensation, which has its own key
    refused = replay(worker, effect)
    assert code(refused) == (409, "COMPENSATION_OPEN")
    assert Attempt.objects.filter(effect=effect["id"]).count() == 1
    if begun:
        assert replay(worker, compensation).status_code == 200


def test_a_compensation_without_permission_requests_none_for_its_target(
    quiet: InboxScenario,
) -> None:
    declare(quiet.project)
    effect = quiet.plan(tool="pay.keyed", arguments={})
    quiet.agent.dispatch(effect)
    quiet.rules()
    compensation = undo(quiet.agent, effect, "git.push")
    assert quiet.agent.post(f"/gates/{quiet.gate(compensation).id}/cancel").status_code == 200
    current = verdict(quiet.agent, effect)
    assert (current["verdict"], current["row"]) == ("ask", "11")
    quiet.plan(tool="pay.keyed", arguments={})
    stored = Effect.objects.get(id=effect["id"])
    assert (stored.state, stored.permission) == ("dispatched", "used")


def test_a_compensated_compensation_is_decided_by_its_own_compensation(
    quiet: InboxScenario,
) -> None:
    declare(quiet.project)
    effect = quiet.plan(tool="vm.start", arguments={})
    quiet.agent.dispatch(effect)
    first = undo(quiet.agent, effect, "vm.start", "undo")
    quiet.agent.dispatch(first)
    assert row(quiet.agent, effect) == ("compensate", "11", "COMP_RESUME")
    quiet.rules()
    second = undo(quiet.agent, first, "git.push", "undo of undo")
    assert second["permission"] == "pending"
    current = verdict(quiet.agent, effect)
    assert (current["verdict"], current["row"], current["safe"]) == ("wait", "11", False)
    assert current["compensation"] == first["id"]


def test_many_attempts_of_one_effect_hide_no_attempt_of_another(
    worker: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(verdict_inputs, "MAX_ATTEMPTS_LOADED", 3)
    effect = dispatch_effect(worker, "mail.send", "doubt")
    worker.fail(effect, "timeout")
    worker.report([_failed("doubt", 2)])
    assert resume(worker, effect)["safe"] is False
    busy = dispatch_effect(worker, "page.read", "busy", arguments={"page": 1})
    assert (
        worker.report([_failed("busy", number, "timeout") for number in range(2, 9)]).status_code
        == 200
    )
    assert row(worker, busy)[0] == "replay"
    assert resume(worker, effect)["because"][0]["effect"] == effect["id"]
    # Later answered attempts do not hide it either.
    assert worker.report([_failed("doubt", number) for number in range(3, 9)]).status_code == 200
    assert row(worker, effect) == ("escalate", "26", "UNDECIDABLE")
    assert resume(worker, effect)["because"][0]["effect"] == effect["id"]


def test_a_key_with_more_uses_than_are_read_is_not_replayed(
    worker: Caller, monkeypatch: pytest.MonkeyPatch
) -> None:
    effect = dispatch_effect(worker, "pay.keyed")
    for number in (1, 2):
        assert replay(worker, effect, number).status_code == 200
    assert row(worker, effect)[2] == "KEY_LIVE"
    monkeypatch.setattr(verdict_inputs, "MAX_ATTEMPTS_LOADED", 3)
    assert row(worker, effect) == ("escalate", "18", "KEY_EXPIRED")


def _failed(key: str, attempt: int, reason: str = "rejected") -> dict[str, Any]:
    named = {"id": f"{key}-{attempt}", "session": "s-1", "effect_key": key, "attempt": attempt}
    return {"kind": "effect.failed", "reason": reason, **named}


@pytest.mark.parametrize("resource", ["/etc/motd", ""], ids=["named resource", "any resource"])
def test_a_late_dispatch_of_an_old_plan_makes_a_put_stale(
    worker: Caller, monkeypatch: pytest.MonkeyPatch, resource: str
) -> None:
    monkeypatch.setattr(verdict_inputs, "_NEWEST_ON_RESOURCE", 2)
    target: dict[str, Any] = {"target": {"resource": resource}} if resource else {}
    early = worker.plan("early", tool="file.put", arguments={"text": "early"}, **target)
    for n in range(3):
        worker.plan(f"never {n}", tool="file.put", arguments={"text": n}, **target)
    effect = dispatch_effect(worker, "file.put", "late", arguments={"text": "late"}, **target)
    assert row(worker, effect) == ("replay", "15", "PUT_LATEST")
    worker.dispatch(early)
    assert row(worker, effect) == ("escalate", "16", "STALE_PUT")
    worker.fail(early, "rejected")
    assert row(worker, effect) == ("replay", "15", "PUT_LATEST")
    monkeypatch.setattr(verdict_inputs, "_RELEASES_READ", 0)  # more releases than are read: unknown
    assert row(worker, effect) == ("escalate", "16", "STALE_PUT")


def test_resume_lists_a_requested_compensation_of_an_acknowledged_effect(
    mail: Effect, olga: Resolver, inbox: InboxScenario
) -> None:
    olga.resolve(mail, "compensate")
    late = {"attempt": 1, "outcome": "ok"}
    assert inbox.agent.post(f"/effects/{mail.id}/acknowledge", late).status_code == 202
    effect = {"id": str(mail.id), "session": str(mail.session_id)}
    assert row(inbox.agent, effect) == ("compensate", "11b", "RESOLVED")
    (open_effect,) = resume(inbox.agent, effect)["crash_recovery"]["open_effects"]
    assert (open_effect["effect"], open_effect["verdict"]) == (effect["id"], "compensate")
    inbox.rules()
    refused = undo(inbox.agent, effect, "git.tag")
    assert refused["permission"] == "denied"
    assert row(inbox.agent, effect) == ("escalate", "11b", "UNDO_FAILED")
    resumed = resume(inbox.agent, effect)
    assert (resumed["safe"], resumed["because"][0]["effect"]) == (False, effect["id"])
    olga.resolve(reload(mail), "happened")
    assert resume(inbox.agent, effect)["safe"] is True
