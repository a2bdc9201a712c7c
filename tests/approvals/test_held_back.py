"""Permission expires in time, also for a dispatch that began before: a slow request stops no
clock."""

from collections.abc import Callable
from typing import Any

import pytest
import time_machine
from django.db import transaction

from approvals import dispatch_command, exemptions, plan_command
from approvals.gates.statuses import US
from db.clock import now_us
from journal.entries import Origin
from journal.models import Entry
from ledger import commands
from ledger.models import Attempt
from ledger.store.writer import LostRace
from tests.api.api_client import Caller, code
from tests.approvals.confirm_helpers import proved
from tests.approvals.inbox_scenario import InboxScenario

pytestmark = pytest.mark.django_db
Wait = Callable[[], Any]


class Withheld:
    """A request's body that sends nothing until `wait` was called."""

    def __init__(self, body: Any, wait: Wait) -> None:
        self.body, self.wait = body, wait

    def read(self, size: int = -1) -> bytes:
        self.wait()
        read: bytes = self.body.read(size)
        return read

    readline = read


def held_back(inbox: InboxScenario, wait: Wait) -> Caller:
    """An agent client that calls `wait` between the headers and the body of its requests."""
    from config.wsgi import application

    def slow(environ: dict[str, Any], start: Any) -> Any:
        return application({**environ, "wsgi.input": Withheld(environ["wsgi.input"], wait)}, start)

    caller = Caller(inbox.agent.token, app=slow)
    caller.client.event_hooks = inbox.agent.client.event_hooks
    return caller


def waits_for_the_row(patch: pytest.MonkeyPatch, wait: Wait) -> None:
    locked = commands.lock_effect

    def slow(*arguments: Any) -> Any:
        wait()
        return locked(*arguments)

    patch.setattr(commands, "lock_effect", slow)


def waits_for_another_try(patch: pytest.MonkeyPatch, wait: Wait) -> None:
    """The first try passes the check of the clock, and loses a race."""
    dispatched, tries = dispatch_command.dispatch_with_policy, iter([True])

    def slow(*arguments: Any, **named: Any) -> Any:
        if next(tries, False):
            wait()
            raise LostRace
        return dispatched(*arguments, **named)

    patch.setattr(dispatch_command, "dispatch_with_policy", slow)


def dispatch(
    inbox: InboxScenario, effect: dict[str, Any], where: str, patch: pytest.MonkeyPatch, wait: Wait
) -> Any:
    """Dispatch, and call `wait` where the request has to wait."""
    caller = inbox.agent
    if where == "the body":
        caller = held_back(inbox, wait)
    elif where == "the row":
        waits_for_the_row(patch, wait)
    else:
        waits_for_another_try(patch, wait)
    body = {"process": "p-1", "intent_digest": effect["intent_digest"]}
    return caller.post(f"/effects/{effect['id']}/dispatch", body)


def with_permission(inbox: InboxScenario, basis: str) -> tuple[dict[str, Any], int]:
    """An effect with permission, and the time when its permission ends."""
    if basis == "exemption":
        with transaction.atomic():
            exemptions.create_exemption(
                inbox.project,
                tool="git.push",
                reason="a release is going on",
                ends_at_us=now_us() + 60 * US,
                user=inbox.user("administrator"),
                **proved(),
            )
    planned = inbox.plan()
    if basis == "ruling":
        assert inbox.answer(inbox.gate(planned), "reviewer").refusal is None
    effect = inbox.effect(planned)
    assert (effect.permission, effect.permission_basis) == ("granted", basis)
    return planned, effect.permission_until_us or 0


WHERE = pytest.mark.parametrize("where", ["the body", "the row", "another try"])


@WHERE
@pytest.mark.parametrize("basis", ["ruling", "exemption"])
def test_permission_that_ends_while_a_dispatch_waits_is_not_used(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch, basis: str, where: str
) -> None:
    planned, until = with_permission(inbox, basis)
    with time_machine.travel(now_us() / US, tick=False) as clock:
        late = dispatch(inbox, planned, where, monkeypatch, lambda: clock.move_to(until / US + 1))
    assert code(late) == (409, "GATE_GONE")
    assert not Attempt.objects.exists()
    effect = inbox.effect(planned)
    assert (effect.permission, effect.permission_basis) == ("none", "expired_unused")


@WHERE
def test_a_dispatch_that_waited_is_of_the_moment_when_it_came_through(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    planned, until = with_permission(inbox, "ruling")
    late = (until // US - 1) * US
    with time_machine.travel(now_us() / US, tick=False) as clock:
        done = dispatch(inbox, planned, where, monkeypatch, lambda: clock.move_to(late / US))
    assert done.status_code == 200
    attempt, gate = Attempt.objects.get(), inbox.gate(planned)
    assert (attempt.received_us, attempt.dispatched_at_us, gate.used_at_us) == (late, late, late)


def test_a_command_that_lost_a_race_as_evidence_is_tried_again_as_a_command(
    inbox: InboxScenario, monkeypatch: pytest.MonkeyPatch
) -> None:
    planned, tries = plan_command.plan_with_policy, iter([True])

    def lose_first(origin: Origin, *arguments: Any, **named: Any) -> Any:
        if next(tries, False):
            origin.lane = "evidence"
            raise LostRace
        return planned(origin, *arguments, **named)

    monkeypatch.setattr(plan_command, "plan_with_policy", lose_first)
    effect = inbox.plan()
    assert Entry.objects.get(effect=effect["id"], kind="effect.planned").lane == "command"
