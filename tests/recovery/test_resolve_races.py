"""Concurrent resolutions and reports with real commits: one counts, and the others are refused."""

from functools import partial
from typing import Any

import orjson
import pytest
from django.db import transaction
from pytest_django import Settings

from accounts import tokens
from accounts.models import Membership
from approvals.gates import resolution
from journal.models import Entry
from ledger.models import Attempt, Effect
from ledger.resolutions import ANSWERS, ResolutionInput, ResolutionResult
from ledger.tools import cache
from tests.api.api_client import Caller
from tests.approvals.inbox_scenario import InboxScenario
from tests.journal.committed import committed, together
from tests.pages.people import build

__all__ = ["committed"]
ROUNDS = 4


@pytest.fixture
def inbox(committed: None, settings: Settings) -> InboxScenario:
    """An inbox without a policy, with real commits."""
    from config.wsgi import application

    settings.PASSWORD_HASHERS = ["django.contrib.auth.hashers.MD5PasswordHasher"]
    cache.clear_tool_cache()
    organization = build()
    with transaction.atomic():
        token = tokens.issue_token(organization.agent, expires_in=None, actor="tests")
    made = InboxScenario(organization, Caller(token, app=application))
    made.agent.session("s-1")
    return made


def sent(inbox: InboxScenario, number: int) -> tuple[dict[str, Any], Effect]:
    planned = inbox.plan(f"mail-{number}", tool="mail.send", arguments={"to": number})
    inbox.agent.dispatch(planned)
    return planned, inbox.effect(planned)


def resolution_input(effect: Effect, answer: str) -> ResolutionInput:
    return ResolutionInput(answer, "Read in the provider's log.", effect.version, insists=True)


def test_of_many_resolutions_at_once_one_counts(inbox: InboxScenario) -> None:
    people = list(Membership.objects.filter(project=inbox.project).select_related("user"))
    for number in range(ROUNDS):
        _, effect = sent(inbox, number)
        inputs = [resolution_input(effect, ANSWERS[index % 4]) for index in range(8)]
        work = [
            partial(
                resolution.resolve_effect, effect.id, people[index % len(people)], inputs[index]
            )
            for index in range(len(inputs))
        ]
        results: list[ResolutionResult] = together(*work)
        accepted = [result for result in results if result.refusal is None]
        assert len(accepted) == 1, results
        assert {result.refusal.code for result in results if result.refusal is not None} == {
            "stale_view"
        }
        [entry] = Entry.objects.filter(effect=effect.id, kind="effect.resolved")
        assert entry.position == accepted[0].position
        now = Effect.objects.get(id=effect.id)
        assert (now.resolution, now.version) == (
            orjson.loads(entry.facts)["answer"],
            effect.version + 1,
        )


def test_of_a_resolution_and_an_acknowledgement_at_once_one_comes_first(
    inbox: InboxScenario,
) -> None:
    """Either the resolution is refused as stale, or the agent's answer is late and contradicts it."""
    person = inbox.organization.members["operator"]
    for number in range(ROUNDS):
        planned, effect = sent(inbox, number)
        body = {"attempt": 1, "outcome": "ok"}
        acknowledging = partial(inbox.agent.post, f"/effects/{planned['id']}/acknowledge", body)
        resolved, answer = together(
            partial(
                resolution.resolve_effect,
                effect.id,
                person,
                resolution_input(effect, "not_happened"),
            ),
            acknowledging,
        )
        now, attempt = Effect.objects.get(id=effect.id), Attempt.objects.get(effect=effect.id)
        assert (now.state, now.outcome) == ("acknowledged", "ok")
        assert answer.status_code == (200 if resolved.refusal is not None else 202)
        assert now.violates == attempt.is_denied == (resolved.refusal is None)
